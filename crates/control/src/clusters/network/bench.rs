//! The machines of a network test: logins, the traffic program on them, and its measurements.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rackwright_store::NodeRecord;
use rackwright_validate::{
    MeasureRequest, Measured, Session, SshTarget, TrafficProgram, TrafficServer, TrafficSetup, clear_traffic,
    keep_traffic, measure, serve_traffic,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::core::Core;
use crate::perform;
use crate::text::chain;

/// Logins opened at once: each costs both sides milliseconds of CPU.
const LOGINS_AT_ONCE: usize = 32;
/// Tries for a login.
const TRIES: usize = 2;
/// A larger file is not accepted as the traffic program.
const PROGRAM_BYTES: u64 = 64 << 20;
/// Time between two keep-alive messages to the servers. A server without one ends by itself after a minute.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(15);

/// A machine with a running traffic server.
#[derive(Debug)]
pub struct Machine {
    session: Session,
    target: SshTarget,
    /// The traffic server on it.
    pub served: TrafficServer,
    /// Its address.
    pub address: IpAddr,
}

/// Reads the traffic program.
///
/// # Errors
/// The file cannot be read; text for people.
pub async fn program(path: &Path) -> Result<TrafficProgram, String> {
    let wrong = |what: String| format!("the traffic program {}: {what}", path.display());
    let size = tokio::fs::metadata(path).await.map_err(|e| wrong(e.to_string()))?.len();
    if size > PROGRAM_BYTES {
        return Err(wrong(format!(
            "the file has {size} bytes; at most {PROGRAM_BYTES} are allowed"
        )));
    }
    let bytes = tokio::fs::read(path).await.map_err(|e| wrong(e.to_string()))?;
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    Ok(TrafficProgram {
        sha256: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes: bytes.into(),
    })
}

/// The machines of a run, by the index of their node.
pub struct Bench {
    machines: Vec<Result<Arc<Machine>, String>>,
    /// Sends the keep-alive messages; ends with the bench.
    keepalives: JoinSet<()>,
    setup: Arc<TrafficSetup>,
    at_once: usize,
}

impl Bench {
    /// Logs in to every node and starts the program there. A node where that fails gets no machine but the reason. When the
    /// process stops, no further node is opened.
    pub async fn open(core: &Arc<Core>, nodes: &[NodeRecord], program: &TrafficProgram, setup: TrafficSetup) -> Self {
        let (room, setup) = (Arc::new(Semaphore::new(LOGINS_AT_ONCE)), Arc::new(setup));
        let mut opening = JoinSet::new();
        for (at, node) in nodes.iter().cloned().enumerate() {
            let (core, room, program, setup) = (core.clone(), room.clone(), program.clone(), setup.clone());
            opening.spawn(async move {
                let _place = room.acquire_owned().await;
                let mut opened = Err(String::new());
                for _ in 0..TRIES {
                    opened = open(&core, &node, &program, &setup).await;
                    if opened.is_ok() {
                        break;
                    }
                }
                (at, opened.map(Arc::new))
            });
        }
        let mut machines: Vec<Result<Arc<Machine>, String>> = nodes
            .iter()
            .map(|_| Err("the test did not open a session to the node".into()))
            .collect();
        let mut keepalives = JoinSet::new();
        while let Some(Some(opened)) = core.stop.run_until_cancelled(opening.join_next()).await {
            if let Ok((at, machine)) = opened {
                if let Ok(machine) = &machine {
                    keepalives.spawn(keep_alive(Arc::downgrade(machine)));
                }
                machines[at] = machine;
            }
        }
        Self {
            machines,
            keepalives,
            setup,
            at_once: core.config.network_test.at_once,
        }
    }

    /// The machine of a node, or the reason why there is none.
    pub fn machine(&self, node: usize) -> Result<&Machine, &str> {
        match self.machines.get(node) {
            Some(Ok(machine)) => Ok(machine),
            Some(Err(why)) => Err(why),
            None => Err("the test has no such node"),
        }
    }

    /// Lets many machines measure at once: up to `at_once` in a round of pairs, all of them if `together`.
    pub async fn measure(
        &self,
        orders: Vec<(usize, MeasureRequest)>,
        together: bool,
    ) -> Vec<(usize, Result<Vec<Measured>, String>)> {
        let most = if together { orders.len().max(1) } else { self.at_once };
        let room = Arc::new(Semaphore::new(most));
        let mut measuring = JoinSet::new();
        for (place, (node, order)) in orders.into_iter().enumerate() {
            let Some(Ok(machine)) = self.machines.get(node).cloned() else {
                continue;
            };
            let (room, setup) = (room.clone(), self.setup.clone());
            measuring.spawn(async move {
                let _place = room.acquire_owned().await;
                let measured = measure(&machine.session, &machine.served, &setup, &order).await;
                (place, measured.map_err(|error| chain(&error)))
            });
        }
        let mut all = Vec::new();
        while let Some(measured) = measuring.join_next().await {
            all.extend(measured.ok());
        }
        all
    }

    /// Removes the program from every machine, with a new login if the first is broken. Returns the nodes where it may
    /// still be, with the reason: there it ends by itself within a minute.
    pub async fn close(mut self) -> BTreeMap<usize, String> {
        // Stopped first: a file written into a folder during its removal would stay.
        self.keepalives.shutdown().await;
        let room = Arc::new(Semaphore::new(LOGINS_AT_ONCE));
        let mut closing = JoinSet::new();
        let machines = self.machines.into_iter().enumerate();
        for (at, machine) in machines.filter_map(|(at, machine)| Some((at, machine.ok()?))) {
            let room = room.clone();
            closing.spawn(async move {
                let _place = room.acquire_owned().await;
                let cleared = clear_traffic(&machine.session, &machine.target, &machine.served).await;
                if let Ok(machine) = Arc::try_unwrap(machine) {
                    machine.session.close().await;
                }
                Some((at, chain(&cleared.err()?)))
            });
        }
        let left: BTreeMap<usize, String> = closing.join_all().await.into_iter().flatten().collect();
        for why in left.values() {
            tracing::warn!(why, "the traffic program could not be removed");
        }
        left
    }
}

/// Sends keep-alive messages to a machine's server as long as the machine belongs to a bench.
async fn keep_alive(machine: Weak<Machine>) {
    let mut turns = tokio::time::interval(KEEPALIVE_PAUSE);
    loop {
        turns.tick().await;
        let Some(machine) = machine.upgrade() else { return };
        if let Err(error) = keep_traffic(&machine.session, &machine.served).await {
            tracing::debug!(%error, "the keep-alive of a traffic server failed");
        }
    }
}

async fn open(
    core: &Core,
    node: &NodeRecord,
    program: &TrafficProgram,
    setup: &TrafficSetup,
) -> Result<Machine, String> {
    let target = perform::login_to(core, node).await?;
    let session = Session::connect(&target).await.map_err(|error| chain(&error))?;
    match serve_traffic(&session, program, setup).await {
        Ok(served) => Ok(Machine {
            session,
            served,
            address: target.address,
            target,
        }),
        Err(error) => {
            session.close().await;
            Err(chain(&error))
        }
    }
}
