//! The systems that are installed on the machines, as SSH clients meet them.
//!
//! One socket serves them all ([`listen`]), a login lasts as long as its connection ([`session`]), and what a system says
//! of itself is made when it is asked ([`answers`]). An installed system that nobody talks to is a hundred bytes.

mod answers;
mod listen;
mod session;

pub(super) use listen::{listen, run};

use super::clock::Clock;
use super::config::FleetConfig;
use super::dice::Dice;
use super::faults::{Chances, Moment};
use super::installed::{Installed, SystemUp, Systems};
use super::shared::Shared;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The installed systems of a fleet.
pub(super) struct Hosts {
    config: FleetConfig,
    dice: Dice,
    clock: Clock,
    slots: Box<[Slot]>,
}

/// The place of one machine.
struct Slot {
    chances: Chances,
    connections: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Option<Arc<Running>>,
    handed_over: Option<HandedOver>,
}

/// Keys that were taken off an installation. They stay off through its boots; another installation has its own.
struct HandedOver {
    instance_id: String,
    keys: Vec<String>,
}

/// A system that runs.
struct Running {
    system: SystemUp,
    since_ms: u64,
    /// It never gets so far as to answer.
    silent: bool,
    degraded: bool,
}

impl Hosts {
    pub(super) fn new(shared: &Shared) -> Self {
        let slot = |_| Slot {
            chances: Chances::new(&shared.config.faults),
            connections: AtomicU32::new(0),
            state: Mutex::default(),
        };
        Self {
            dice: shared.dice,
            clock: shared.clock,
            slots: (0..shared.config.nodes).map(slot).collect(),
            config: shared.config.clone(),
        }
    }

    fn slot(&self, node: usize) -> Option<&Slot> {
        self.slots.get(node)
    }

    fn state(&self, node: usize) -> Option<MutexGuard<'_, State>> {
        let slot = self.slot(node)?;
        Some(slot.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn moment<'a>(&self, node: usize, slot: &'a Slot) -> Moment<'a> {
        Moment {
            node,
            now_ms: self.clock.now_ms(),
            dice: self.dice,
            chances: &slot.chances,
        }
    }

    /// The system that answers on a machine in its boot number `boot`.
    fn answering(&self, node: usize, boot: u32) -> Option<Arc<Running>> {
        let running = self.state(node)?.running.clone()?;
        (running.system.boot == boot && !running.silent).then_some(running)
    }

    /// Whether a key, as base64, opens an installation.
    fn admits(&self, node: usize, installed: &Installed, key: &str) -> bool {
        let gone = self.state(node).is_none_or(|state| {
            let handed_over = state.handed_over.as_ref();
            handed_over
                .is_some_and(|done| done.instance_id == installed.instance_id && done.keys.iter().any(|k| k == key))
        });
        !gone && has_key(installed, key)
    }

    /// Takes a key off an installation; `false` if it is not there.
    fn remove_key(&self, node: usize, installed: &Installed, key: &str) -> bool {
        if !self.admits(node, installed, key) {
            return false;
        }
        let Some(mut state) = self.state(node) else {
            return false;
        };
        match &mut state.handed_over {
            Some(done) if done.instance_id == installed.instance_id => done.keys.push(key.to_owned()),
            other => {
                *other = Some(HandedOver {
                    instance_id: installed.instance_id.clone(),
                    keys: vec![key.to_owned()],
                });
            }
        }
        true
    }
}

/// Whether the seed let the key in: the base64 part of one of its lines.
fn has_key(installed: &Installed, key: &str) -> bool {
    let mut keys = installed.authorized_keys.iter();
    keys.any(|line| line.split(' ').nth(1) == Some(key))
}

impl Systems for Hosts {
    fn up(&self, system: &SystemUp) {
        let Some(slot) = self.slot(system.node) else { return };
        let moment = self.moment(system.node, slot);
        let running = Running {
            system: system.clone(),
            since_ms: moment.now_ms,
            silent: self.config.faults.host_stays_silent(moment),
            degraded: self.config.faults.host_is_degraded(moment),
        };
        if let Some(mut state) = self.state(system.node) {
            state.running = Some(Arc::new(running));
        }
    }

    fn down(&self, node: usize) {
        if let Some(mut state) = self.state(node) {
            state.running = None;
        }
    }
}
