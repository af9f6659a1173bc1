//! One boot of a machine into the ramdisk, and the faults of its agent there. All faults come from outside, through the
//! host, drives and network that the agent receives.

use super::cable::{Cable, Carries};
use crate::fleet::faults::{During, Then};
use crate::fleet::node::Node;
use rackwright_agent::cmdline::Settings;
use rackwright_agent::jobs::control::{JobControl, StopReason};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// One boot.
pub(in crate::fleet) struct Life {
    pub(in crate::fleet) node: Arc<Node>,
    pub(in crate::fleet) number: u32,
    pub(super) address: Ipv4Addr,
    /// When the boot began, in milliseconds of the fleet's time.
    pub(super) since_ms: u64,
    runtime: Handle,
    /// Whether the control plane has accepted the agent's stream.
    has_stream: AtomicBool,
    crash: Mutex<Option<Then>>,
    crashed: Notify,
    /// Only if the fault script has connection faults for this machine.
    cable: Option<Arc<Cable>>,
}

impl Life {
    /// A boot that begins now. Must be called within a Tokio runtime.
    pub(super) fn new(node: Arc<Node>, number: u32, address: Ipv4Addr) -> Self {
        let faults = &node.shared.config.faults;
        let cable = faults.has_connection_faults(node.index());
        Self {
            since_ms: node.shared.clock.now_ms(),
            runtime: Handle::current(),
            has_stream: AtomicBool::new(false),
            crash: Mutex::default(),
            crashed: Notify::new(),
            cable: cable.then(|| Arc::new(Cable::new(Arc::clone(&node), number, address))),
            node,
            number,
            address,
        }
    }

    /// Whether the boot still lasts.
    pub(in crate::fleet) fn lasts(&self) -> bool {
        self.node.runs(self.number)
    }

    /// Changes the settings so that the agent's stream goes through the machine's cable.
    pub(super) fn over_cable(&self, mut settings: Settings) -> Settings {
        for endpoint in &mut settings.endpoints {
            endpoint.server = self.through_cable(&endpoint.server, Carries::Stream);
        }
        settings
    }

    /// A URL that reaches the same server through the machine's cable.
    pub(super) fn through_cable(&self, url: &str, carries: Carries) -> String {
        match &self.cable {
            Some(cable) => Arc::clone(cable).through(url, carries, &self.runtime),
            None => url.to_owned(),
        }
    }

    /// Notes that the control plane has accepted the agent's stream.
    pub(super) fn note_stream(&self) {
        self.has_stream.store(true, Ordering::Relaxed);
    }

    /// Notes that the agent reports its uptime, as in each heartbeat.
    pub(super) fn note_uptime(&self) {
        if !self.has_stream.load(Ordering::Relaxed) {
            return;
        }
        let faults = &self.node.shared.config.faults;
        if let Some(then) = faults.agent_crash(During::Heartbeat, self.node.moment()) {
            self.crash(then);
        }
        if let (Some(cable), Some(time)) = (&self.cable, faults.heartbeat_lost(self.node.moment())) {
            cable.go_silent(self.node.shared.clock.lasts(time));
        }
    }

    /// Called by a job at a point where the agent may crash. After a crash the job's thread waits for the agent's
    /// end, and the job reports nothing. Must not be called from a task.
    ///
    /// # Errors
    /// The agent crashes.
    pub(in crate::fleet) fn survive(&self, at: During, control: &JobControl) -> Result<(), StopReason> {
        match self.node.shared.config.faults.agent_crash(at, self.node.moment()) {
            Some(then) => {
                self.crash(then);
                Err(self.runtime.block_on(control.wait_for_stop()))
            }
            None => Ok(()),
        }
    }

    fn crash(&self, then: Then) {
        *self.crash.lock().unwrap_or_else(PoisonError::into_inner) = Some(then);
        self.crashed.notify_one();
    }

    /// Waits until the agent crashes.
    pub(super) async fn crashed(&self) -> Then {
        loop {
            let crash = self.crash.lock().unwrap_or_else(PoisonError::into_inner).take();
            match crash {
                Some(then) => return then,
                None => self.crashed.notified().await,
            }
        }
    }
}
