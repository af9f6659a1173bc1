//! The machines of a network test: logins, the traffic program on them, and its measurements.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rackwright_ground::core::Core;
use rackwright_ground::text::chain;
use rackwright_nodes::perform;
use rackwright_store::NodeRecord;
use rackwright_validate::{
    CarriedProgram, MeasureRequest, Measured, Session, SshTarget, TrafficServer, TrafficSetup, clear_traffic,
    keep_traffic, measure, serve_traffic,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Logins opened at once. Each login costs both sides milliseconds of CPU.
const LOGINS_AT_ONCE: usize = 32;
/// Attempts to log in to a node and start the program.
const TRIES: usize = 2;
/// Time between two keep-alive messages to a server. A server ends by itself after a minute without a message.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(15);

/// A machine with a running traffic server.
#[derive(Debug)]
pub struct Machine {
    session: Session,
    target: SshTarget,
    /// The traffic server on the machine.
    pub server: TrafficServer,
    /// The address of the machine.
    pub address: IpAddr,
}

/// Reads the traffic program.
///
/// # Errors
/// The file cannot be read or is too large; the error is a text for people.
pub async fn program(path: &Path) -> Result<CarriedProgram, String> {
    perform::carried_program(path, "the traffic program").await
}

/// The machines of a run, by the index of their node.
pub struct Machines {
    by_node: Vec<Result<Arc<Machine>, String>>,
    /// The tasks that send the keep-alive messages.
    keepalives: JoinSet<()>,
    setup: Arc<TrafficSetup>,
    at_once: usize,
}

impl Machines {
    /// Logs in to every node and starts the program there. If this fails, the node has the reason in place of a machine.
    /// When the process stops, no further login is opened.
    pub async fn open(core: &Arc<Core>, nodes: &[NodeRecord], program: &CarriedProgram, setup: TrafficSetup) -> Self {
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
        let mut by_node: Vec<Result<Arc<Machine>, String>> = nodes
            .iter()
            .map(|_| Err("the test did not open a session to the node".into()))
            .collect();
        let mut keepalives = JoinSet::new();
        while let Some(Some(opened)) = core.stop.run_until_cancelled(opening.join_next()).await {
            if let Ok((at, machine)) = opened {
                if let Ok(machine) = &machine {
                    keepalives.spawn(keep_alive(Arc::downgrade(machine)));
                }
                by_node[at] = machine;
            }
        }
        Self {
            by_node,
            keepalives,
            setup,
            at_once: core.config.network_test.at_once,
        }
    }

    /// The machine of a node, or the reason why there is none.
    pub fn machine(&self, node: usize) -> Result<&Machine, &str> {
        match self.by_node.get(node) {
            Some(Ok(machine)) => Ok(machine),
            Some(Err(why)) => Err(why),
            None => Err("the test has no such node"),
        }
    }

    /// Lets machines measure in parallel: all of them if `together`, else up to `at_once` (a round of pairs). Each result
    /// has the index of its request.
    pub async fn measure(
        &self,
        requests: Vec<(usize, MeasureRequest)>,
        together: bool,
    ) -> Vec<(usize, Result<Vec<Measured>, String>)> {
        let most = if together { requests.len().max(1) } else { self.at_once };
        let room = Arc::new(Semaphore::new(most));
        let mut measuring = JoinSet::new();
        for (at, (node, request)) in requests.into_iter().enumerate() {
            let Some(Ok(machine)) = self.by_node.get(node).cloned() else {
                continue;
            };
            let (room, setup) = (room.clone(), self.setup.clone());
            measuring.spawn(async move {
                let _place = room.acquire_owned().await;
                let measured = measure(&machine.session, &machine.server, &setup, &request).await;
                (at, measured.map_err(|error| chain(&error)))
            });
        }
        let mut all = Vec::new();
        while let Some(measured) = measuring.join_next().await {
            all.extend(measured.ok());
        }
        all
    }

    /// Removes the program from every machine, with a new login if the first is broken. Returns the nodes where the program
    /// may still be, with the reason. There the program ends by itself within a minute.
    pub async fn close(mut self) -> BTreeMap<usize, String> {
        // First the messages stop: a file written into a folder during its removal would stay.
        self.keepalives.shutdown().await;
        let room = Arc::new(Semaphore::new(LOGINS_AT_ONCE));
        let mut closing = JoinSet::new();
        let machines = self.by_node.into_iter().enumerate();
        for (at, machine) in machines.filter_map(|(at, machine)| Some((at, machine.ok()?))) {
            let room = room.clone();
            closing.spawn(async move {
                let _place = room.acquire_owned().await;
                let cleared = clear_traffic(&machine.session, &machine.target, &machine.server).await;
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

/// Sends keep-alive messages to a machine's server as long as the machine takes part in a run.
async fn keep_alive(machine: Weak<Machine>) {
    let mut turns = tokio::time::interval(KEEPALIVE_PAUSE);
    loop {
        turns.tick().await;
        let Some(machine) = machine.upgrade() else { return };
        if let Err(error) = keep_traffic(&machine.session, &machine.server).await {
            tracing::debug!(%error, "the keep-alive of a traffic server failed");
        }
    }
}

async fn open(
    core: &Core,
    node: &NodeRecord,
    program: &CarriedProgram,
    setup: &TrafficSetup,
) -> Result<Machine, String> {
    let target = perform::login_to(core, node).await?;
    let session = Session::connect(&target).await.map_err(|error| chain(&error))?;
    match serve_traffic(&session, program, setup).await {
        Ok(server) => Ok(Machine {
            session,
            server,
            address: target.address,
            target,
        }),
        Err(error) => {
            session.close().await;
            Err(chain(&error))
        }
    }
}
