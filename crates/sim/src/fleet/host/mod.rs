//! The systems that are installed on the machines, as SSH clients see them.
//!
//! One socket serves them all ([`listen`]), a login lasts as long as its connection ([`session`]), and answers are
//! created on request ([`answers`]). A running system without clients takes a few hundred bytes.

mod answers;
mod listen;
mod session;
mod traffic;

pub(super) use listen::{listen, run};

use super::clock::Clock;
use super::config::FleetConfig;
use super::dice::Dice;
use super::faults::{Chances, Moment, Script};
use super::installed::{SystemUp, Systems};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Concurrent connections to one address, as many as OpenSSH accepts before a login (`MaxStartups`).
const CONNECTIONS: u32 = 10;

/// The installed systems of a fleet.
pub(super) struct Hosts {
    faults: Script,
    dice: Dice,
    clock: Clock,
    /// One entry for each machine.
    chances: Box<[Chances]>,
    endpoints: Mutex<Endpoints>,
}

/// By address, in the form of clients' connections. Each running system and each waiting client has an endpoint.
#[derive(Default)]
struct Endpoints {
    endpoints: HashMap<IpAddr, Endpoint>,
    of_nodes: HashMap<usize, IpAddr>,
}

#[derive(Default)]
struct Endpoint {
    running: Option<Arc<Running>>,
    /// Notified when a system starts or ends.
    changed: Arc<Notify>,
    clients: u32,
}

/// A running system.
struct Running {
    system: SystemUp,
    since_ms: u64,
    /// It never answers.
    silent: bool,
    degraded: bool,
}

impl Hosts {
    pub(super) fn new(config: &FleetConfig, dice: Dice, clock: Clock) -> Self {
        Self {
            faults: config.faults.clone(),
            dice,
            clock,
            chances: (0..config.nodes).map(|_| Chances::new(&config.faults)).collect(),
            endpoints: Mutex::default(),
        }
    }

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a client to an address, unless there are too many.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Client> {
        let mut endpoints = self.endpoints();
        let endpoint = endpoints.endpoints.entry(address).or_default();
        if endpoint.clients >= CONNECTIONS {
            return None;
        }
        endpoint.clients += 1;
        Some(Client {
            hosts: Arc::clone(self),
            address,
            changed: Arc::clone(&endpoint.changed),
        })
    }

    /// The system that answers at an address.
    fn answering(&self, address: IpAddr) -> Option<Arc<Running>> {
        let running = self.endpoints().endpoints.get(&address)?.running.clone()?;
        (!running.silent).then_some(running)
    }
}

impl Endpoints {
    /// Removes an endpoint without clients and without a system.
    fn remove_unused(&mut self, address: IpAddr) {
        let unused = |endpoint: &Endpoint| endpoint.clients == 0 && endpoint.running.is_none();
        if self.endpoints.get(&address).is_some_and(unused) {
            self.endpoints.remove(&address);
        }
    }
}

impl Systems for Hosts {
    fn up(&self, system: &SystemUp) {
        let (Some(address), Some(chances)) = (system.address, self.chances.get(system.node)) else {
            return;
        };
        let moment = Moment {
            node: system.node,
            now_ms: self.clock.now_ms(),
            dice: self.dice,
            chances,
        };
        let running = Arc::new(Running {
            system: system.clone(),
            since_ms: moment.now_ms,
            silent: self.faults.host_stays_silent(moment),
            degraded: self.faults.host_is_degraded(moment),
        });
        let mut endpoints = self.endpoints();
        endpoints.of_nodes.insert(system.node, address);
        let endpoint = endpoints.endpoints.entry(address).or_default();
        endpoint.running = Some(running);
        endpoint.changed.notify_waiters();
    }

    fn down(&self, node: usize) {
        let mut endpoints = self.endpoints();
        let Some(address) = endpoints.of_nodes.remove(&node) else {
            return;
        };
        if let Some(endpoint) = endpoints.endpoints.get_mut(&address)
            && endpoint
                .running
                .take_if(|running| running.system.node == node)
                .is_some()
        {
            endpoint.changed.notify_waiters();
        }
        endpoints.remove_unused(address);
    }
}

/// A client at an address.
struct Client {
    hosts: Arc<Hosts>,
    address: IpAddr,
    changed: Arc<Notify>,
}

impl Client {
    /// Waits for a system that answers.
    async fn wait_for_system(&self) -> Arc<Running> {
        self.until(|running| running).await
    }

    /// Waits until this system has ended.
    async fn wait_for_end(&self, running: &Arc<Running>) {
        let ended = |now: Option<Arc<Running>>| now.is_none_or(|now| !Arc::ptr_eq(&now, running));
        self.until(|now| ended(now).then_some(())).await;
    }

    async fn until<T>(&self, wanted: impl Fn(Option<Arc<Running>>) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = wanted(self.hosts.answering(self.address)) {
                return found;
            }
            changed.await;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut endpoints = self.hosts.endpoints();
        if let Some(endpoint) = endpoints.endpoints.get_mut(&self.address) {
            endpoint.clients -= 1;
        }
        endpoints.remove_unused(self.address);
    }
}

#[cfg(test)]
mod tests;
