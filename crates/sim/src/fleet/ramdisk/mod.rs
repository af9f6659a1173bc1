//! Network boots of machines: the control plane's boot script, and the agent's own code.
//!
//! Of the ramdisk only the agent is real: it runs in this process, on the machine's simulated host and drives. A boot is one
//! task. The task ends when the machine loses power, is reset or leaves the fleet, whatever the agent is doing.

mod cable;
mod dhcp;
pub(super) mod fetch;
mod firmware;
mod host;
mod life;
mod script;
mod tftp;
mod writer;

use super::clock::Clock;
use super::faults::Then;
use super::forgery::SimEraser;
use super::machine::Phase;
use super::node::{Boot, Node};
use super::{FleetConfig, FleetError};
use dhcp::Relay;
use host::{SimHost, SimPower};
pub(super) use life::Life;
use rackwright_agent::agent;
use rackwright_agent::cmdline::{CmdlineError, Mac, OnFatal, Settings};
use rackwright_agent::jobs::power::{Power as _, PowerAction};
use rackwright_agent::machine::Machine;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Instrument as _;
use writer::SimWriter;

/// How long an agent's last message stays on the console before the machine goes down, in the machine's time.
const END_GRACE: Duration = Duration::from_secs(10);

/// Restarts of a crashed agent in one boot, and the pause before each, in the machine's time.
const RESTARTS: u32 = 5;
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Time from a kernel panic to the reset, in the machine's time.
const PANIC_RESET: Duration = Duration::from_secs(30);

/// After an unsuccessful boot order the firmware starts anew; the pause between rounds, in the machine's time.
const ROUND: Duration = Duration::from_secs(10);

/// Why a network boot fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum BootError {
    #[error("the DHCP server {server} does not answer")]
    NoAnswer { server: SocketAddrV4 },
    #[error("the DHCP server names no boot file: the machine boots from its drive")]
    NoScript,
    #[error("fetching {what}: {why}")]
    Fetch { what: String, why: String },
    #[error("the boot script starts no kernel")]
    NoKernel,
    #[error("the kernel's command line: {0}")]
    Cmdline(#[from] CmdlineError),
}

/// Network boots of a fleet's machines.
pub(super) struct Ramdisk {
    relay: Arc<Relay>,
    runtime: Handle,
}

impl Ramdisk {
    /// Binds the relay agent.
    ///
    /// # Errors
    /// [`FleetError::Listen`]
    pub(super) async fn new(config: &FleetConfig, server: SocketAddrV4) -> Result<Self, FleetError> {
        let relay = Relay::bind(config.relay(), server).await?;
        Ok(Self {
            relay: Arc::new(relay),
            runtime: Handle::current(),
        })
    }

    /// The task that delivers DHCP answers to machines. Runs until it is dropped.
    pub(super) fn relay(&self) -> impl Future<Output = ()> + Send + 'static {
        let relay = Arc::clone(&self.relay);
        async move { relay.run().await }
    }

    /// Boots a machine from the network.
    pub(super) fn boot(&self, node: Arc<Node>, boot: Boot) {
        let relay = Arc::clone(&self.relay);
        let name = node.shared.name(boot.node);
        let span = tracing::warn_span!("machine", name, boot = boot.number);
        let lives = Arc::clone(&node);
        let task = async move {
            tokio::select! {
                () = Box::pin(run(node, boot, relay)) => {}
                () = lives.left(boot.number) => {}
            }
        };
        self.runtime.spawn(task.instrument(span));
    }
}

async fn run(node: Arc<Node>, boot: Boot, relay: Arc<Relay>) {
    let (settings, address) = loop {
        match firmware::load(&node, boot.source, &relay).await {
            Ok(loaded) => break loaded,
            Err(error) => tracing::info!("no network boot: {error}"),
        }
        node.falls_through(boot.number);
        tokio::time::sleep(node.shared.clock.lasts(ROUND)).await;
    };
    drop(relay);
    node.reached(|machine| machine.phase == Phase::Up(boot.source)).await;
    let life = Arc::new(Life::new(node, boot.number, address));
    let action = supervise(settings, &life).await;
    if let Err(error) = SimPower(life).perform(action) {
        tracing::debug!("{error}");
    }
}

/// Starts the agent, and restarts it after a crash, as PID 1 of the ramdisk does; returns how the machine goes down.
async fn supervise(settings: Settings, life: &Arc<Life>) -> PowerAction {
    let clock = life.node.shared.clock;
    let machine = equip(life);
    for _ in 0..=RESTARTS {
        let settings = life.over_cable(settings.clone());
        let then = tokio::select! {
            Err(error) = Box::pin(agent::run(settings, machine.clone(), async {})) => {
                tracing::warn!("the agent cannot continue: {error}");
                break;
            }
            then = life.crashed() => then,
        };
        match then {
            Then::Restarts => tokio::time::sleep(clock.lasts(RESTART_PAUSE)).await,
            // Waits for the end of the boot.
            Then::StaysDead => std::future::pending().await,
            Then::Panics => {
                tokio::time::sleep(clock.lasts(PANIC_RESET)).await;
                return PowerAction::Reset;
            }
        }
    }
    tokio::time::sleep(clock.lasts(END_GRACE)).await;
    match settings.on_fatal {
        OnFatal::PowerOff => PowerAction::PowerOff,
        OnFatal::Reset => PowerAction::Reset,
    }
}

/// The address of the NIC that machines boot from.
fn mac(node: &Node) -> Mac {
    Mac(node.shared.mac_bytes(node.index(), 0))
}

/// The machine for the agent of one boot. It has no access beyond the simulation or to another boot.
fn equip(life: &Arc<Life>) -> Machine {
    Machine {
        drives: Arc::new(life.node.sim_drives().of_boot(Arc::clone(life))),
        writer: Arc::new(SimWriter::new(Arc::clone(life))),
        eraser: Arc::new(SimEraser(Arc::clone(life))),
        power: Arc::new(SimPower(Arc::clone(life))),
        host: Arc::new(SimHost::new(Arc::clone(life))),
    }
}

/// Seconds of the machines' time since `since_ms`.
fn seconds_since(clock: Clock, since_ms: u64) -> f64 {
    clock.now_ms().saturating_sub(since_ms) as f64 / 1000.0
}
