//! Simulated machines: power, boots, drives, and an agent with its ledger. Records everything that must never happen to a
//! machine.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_api::v1::job::Work;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_ground::agents::ToAgent;
use rackwright_ground::clock;
use rackwright_lifecycle::drives::KnownDrive;
use rackwright_lifecycle::{Effect, Timestamp};
use rackwright_store::AgentSession;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::chance::Chance;
use super::clusters::fabric::PhysicalFabric;
use super::clusters::traffic::Verdicts;
use crate::feature_tests::fake_bmc::{Accounts, FakeBmcAccess};
use crate::test_calls::NodeRequest;

/// The factory password of BMCs.
pub const FACTORY: &str = "as it came";
/// Size of every drive in bytes.
const DRIVE_BYTES: u64 = 1 << 40;

/// The content of a machine's drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Clean,
    /// A write under that claim was begun and did not end.
    Partial(u64),
    /// A whole image of that claim.
    Image(u64, String),
}

/// The software that runs on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    Nothing,
    Agent,
    Host,
}

/// The identity of an agent after its registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The claim generation and the boot in it.
    pub of: AgentSession,
    pub kernel_boot_id: String,
}

/// The agent's end of a connection.
#[derive(Debug)]
pub struct Connection {
    /// The replica at the other end.
    pub process: usize,
    /// The certificate that the replica accepted.
    pub certificate: Certificate,
    /// As in the node's row; 0 until the hello is handled.
    pub number: i64,
    pub receiver: mpsc::Receiver<ToAgent>,
    pub end: CancellationToken,
}

/// A simulated machine.
#[derive(Debug)]
pub struct Machine {
    pub on: bool,
    /// Whether the next boot is over the network.
    network_once: bool,
    /// Grows with each change of power: work of an earlier boot is gone.
    pub boot: u64,
    pub running: Running,
    pub content: Content,
    /// Memory of this boot's agent.
    ledger: BTreeMap<String, v1::JobReport>,
    highest: u64,
    /// The token of this boot's plan.
    pub token: Option<String>,
    /// The registration of this boot's agent.
    pub certificate: Option<Certificate>,
    pub connection: Option<Connection>,
    /// Whether the firmware settings are as wanted.
    pub is_set: bool,
    /// Whether they will be after the next start.
    pub will_be_set: bool,
    /// Whether a customer's system left something on the BMC.
    pub has_back_door: bool,
}

/// A future event.
#[derive(Debug, Clone)]
pub enum PlannedEvent {
    AgentUp {
        boot: u64,
    },
    HostUp {
        boot: u64,
    },
    Connect {
        boot: u64,
    },
    Say {
        boot: u64,
        message: Box<Message>,
    },
    JobEnds {
        boot: u64,
        operation: String,
        work: Box<Work>,
    },
    /// A replica notices that a connection is gone.
    Gone {
        process: usize,
        number: i64,
    },
    /// The network fails for a moment: the agent comes back, to any replica.
    Move,
    /// The power fails for a moment: the machine starts again as it would by itself.
    BriefFailure,
    Request {
        request: NodeRequest,
        key: String,
    },
}

/// All machines and all future events.
#[derive(Debug, Default)]
pub struct World {
    pub machines: BTreeMap<String, Machine>,
    /// The accounts of the machines' BMCs.
    pub bmcs: BTreeMap<String, FakeBmcAccess>,
    pub planned: BTreeMap<(Timestamp, u64), (String, PlannedEvent)>,
    /// Violations of the invariants.
    pub wrong: Vec<String>,
    /// Failures in a thousand cases.
    pub failures_of_1000: usize,
    /// Whether firmware settings are wanted.
    pub wants_settings: bool,
    /// While a BMC gives no answer: from, until.
    pub silences: BTreeMap<String, (Timestamp, Timestamp)>,
    /// The subnet manager and the ports of the fabric.
    pub fabric: PhysicalFabric,
    /// The verdicts of network tests.
    pub verdicts: Verdicts,
    /// Connections that the agent has given up and the replica still considers good.
    stale: Vec<(String, Connection)>,
    executed: BTreeSet<String>,
    next: u64,
}

/// A message from a replica on a connection.
pub struct Sent {
    pub id: String,
    pub process: usize,
    /// The certificate of the agent at the other end.
    pub certificate: Certificate,
    /// False: the agent has given up the connection and does not receive the message.
    pub is_heard: bool,
    pub message: ToAgent,
}

impl World {
    /// Adds a machine that is off and clean.
    pub fn add(&mut self, id: &str) {
        let machine = Machine {
            on: false,
            network_once: false,
            boot: 0,
            running: Running::Nothing,
            content: Content::Clean,
            ledger: BTreeMap::new(),
            highest: 0,
            token: None,
            certificate: None,
            connection: None,
            is_set: false,
            will_be_set: false,
            has_back_door: false,
        };
        self.machines.insert(id.to_owned(), machine);
        let bmc = FakeBmcAccess::new(Accounts::new("root", FACTORY));
        self.bmcs.insert(id.to_owned(), bmc);
    }

    pub fn machine(&mut self, id: &str) -> &mut Machine {
        self.machines.get_mut(id).expect("a machine of this world")
    }

    pub fn at(&mut self, at: Timestamp, id: &str, planned: PlannedEvent) {
        self.next += 1;
        self.planned.insert((at, self.next), (id.to_owned(), planned));
    }

    /// Whether the BMC gives no answer to a request for this effect.
    pub fn is_silent(&self, id: &str, effect: Effect, now: Timestamp) -> bool {
        let is_of_bmc = !matches!(
            effect,
            Effect::AwaitHost | Effect::Validate | Effect::ValidateFromOutside | Effect::HandOver
        );
        let silence = self.silences.get(id);
        is_of_bmc && silence.is_some_and(|(from, until)| (*from..*until).contains(&now))
    }

    pub fn set_network_once(&mut self, id: &str, network: bool) {
        self.machine(id).network_once = network;
    }

    pub fn power_on(&mut self, id: &str, now: Timestamp, chance: &Chance) {
        if self.machine(id).on {
            return;
        }
        let failures_of_1000 = self.failures_of_1000;
        let machine = self.machine(id);
        machine.on = true;
        machine.boot += 1;
        let boot = machine.boot;
        let network = std::mem::take(&mut machine.network_once);
        if std::mem::take(&mut machine.will_be_set) {
            // Sometimes firmware loses settings that wait for a start.
            machine.is_set |= !chance.of_1000(failures_of_1000);
        }
        if chance.of_1000(failures_of_1000) {
            return; // It hangs in its firmware.
        }
        let up = now.plus(chance.millis(5_000, 50_000));
        if network {
            self.at(up, id, PlannedEvent::AgentUp { boot });
        } else if matches!(machine.content, Content::Image(..)) {
            self.at(up, id, PlannedEvent::HostUp { boot });
        }
    }

    pub fn power_off(&mut self, id: &str, now: Timestamp, chance: &Chance) {
        let machine = self.machine(id);
        if !machine.on {
            return;
        }
        machine.on = false;
        machine.boot += 1;
        machine.running = Running::Nothing;
        self.break_connection(id, now.plus(chance.millis(0, 15_000)));
    }

    /// Breaks the agent's connection; the replica notices at `noticed`.
    pub fn break_connection(&mut self, id: &str, noticed: Timestamp) {
        let Some(connection) = self.machine(id).connection.take() else {
            return;
        };
        let (process, number) = (connection.process, connection.number);
        // A replica that is just handling the hello notices afterwards: see `arrived`.
        if number != 0 {
            self.at(noticed, id, PlannedEvent::Gone { process, number });
        }
        self.stale.push((id.to_owned(), connection));
    }

    /// A replica has refused an agent's hello.
    pub fn refused(&mut self, id: &str, process: usize) {
        let mine = |c: &mut Connection| c.process == process && c.number == 0;
        self.machine(id).connection.take_if(mine);
        self.stale
            .retain(|(of, c)| of != id || (c.process, c.number) != (process, 0));
    }

    /// A replica has accepted an agent's hello.
    pub fn arrived(&mut self, id: &str, process: usize, number: i64, now: Timestamp, chance: &Chance) {
        let mine = |c: &&mut Connection| c.process == process && c.number == 0;
        if let Some(connection) = self.machine(id).connection.as_mut().filter(mine) {
            connection.number = number;
            return;
        }
        for (_, connection) in self.stale.iter_mut().filter(|(of, _)| of == id) {
            if (connection.process, connection.number) == (process, 0) {
                connection.number = number;
            }
        }
        let noticed = now.plus(chance.millis(0, 15_000));
        self.at(noticed, id, PlannedEvent::Gone { process, number });
    }

    /// A replica has noticed that a connection is gone.
    pub fn noticed(&mut self, id: &str, process: usize, number: i64) {
        let is_it = |of: &str, c: &Connection| of == id && (c.process, c.number) == (process, number);
        self.stale.retain(|(of, connection)| !is_it(of, connection));
    }

    /// The network fails for a moment.
    pub fn moves(&mut self, id: &str, now: Timestamp, chance: &Chance) {
        let machine = self.machine(id);
        if machine.connection.is_some() {
            let boot = machine.boot;
            self.break_connection(id, now.plus(chance.millis(0, 15_000)));
            let most = if chance.of_1000(500) { 5 } else { 4_000 };
            self.at(now.plus(chance.millis(0, most)), id, PlannedEvent::Connect { boot });
        }
    }

    /// The power or only the network fails for a moment. The control plane is not informed of either.
    pub fn fail_briefly(&mut self, id: &str, now: Timestamp, chance: &Chance) {
        let machine = self.machine(id);
        if machine.running == Running::Agent && chance.of_1000(500) {
            let boot = machine.boot;
            self.break_connection(id, now.plus(chance.millis(0, 15_000)));
            let back = now.plus(chance.millis(200, 40_000));
            return self.at(back, id, PlannedEvent::Connect { boot });
        }
        // Firmware that tries the network before the disk asks for the plan again in the same boot.
        let network = machine.running == Running::Agent && chance.of_1000(300);
        if machine.on {
            self.power_off(id, now, chance);
            self.machine(id).network_once |= network;
            self.power_on(id, now, chance);
        }
    }

    /// A replica is gone: its agents lose their connections and come back later.
    pub fn disconnected(&mut self, process: usize, now: Timestamp, chance: &Chance) {
        let of_it =
            |planned: &PlannedEvent| matches!(planned, PlannedEvent::Gone { process: of, .. } if *of == process);
        self.planned.retain(|_, (_, planned)| !of_it(planned));
        self.stale.retain(|(_, connection)| connection.process != process);
        let ids: Vec<String> = self.machines.keys().cloned().collect();
        for id in ids {
            let machine = self.machine(&id);
            let was_there = |c: &mut Connection| c.process == process;
            if machine.connection.take_if(was_there).is_some() && machine.running == Running::Agent {
                let boot = machine.boot;
                let back = now.plus(chance.millis(200, 30_000));
                self.at(back, &id, PlannedEvent::Connect { boot });
            }
        }
    }

    /// The messages to agents, each returned once. Removes connections that a replica has ended.
    pub fn sent(&mut self, now: Timestamp, chance: &Chance) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut take = |id: &str, connection: &mut Connection, is_heard| {
            while let Ok(message) = connection.receiver.try_recv() {
                sent.push(Sent {
                    id: id.to_owned(),
                    process: connection.process,
                    certificate: connection.certificate.clone(),
                    is_heard,
                    message,
                });
            }
        };
        for (id, connection) in &mut self.stale {
            take(id, connection, false);
        }
        let mut ended = Vec::new();
        for (id, machine) in &mut self.machines {
            let Some(connection) = &mut machine.connection else {
                continue;
            };
            take(id, connection, true);
            if connection.end.is_cancelled() {
                ended.push((id.clone(), machine.boot));
            }
        }
        for (id, boot) in ended {
            self.break_connection(&id, now);
            self.at(
                now.plus(chance.millis(200, 10_000)),
                &id,
                PlannedEvent::Connect { boot },
            );
        }
        sent
    }

    pub fn agent_up(&mut self, id: &str, now: Timestamp, chance: &Chance) {
        let machine = self.machine(id);
        machine.running = Running::Agent;
        machine.ledger.clear();
        machine.token = None;
        machine.certificate = None;
        // Every agent reads the content of the drives.
        machine.highest = match machine.content {
            Content::Partial(generation) | Content::Image(generation, _) => generation,
            Content::Clean => 0,
        };
        let boot = machine.boot;
        self.at(now.plus(chance.millis(0, 500)), id, PlannedEvent::Connect { boot });
    }

    pub fn hello(&mut self, id: &str) -> v1::Hello {
        let machine = self.machine(id);
        v1::Hello {
            boot_id: kernel_boot_id(id, machine.boot),
            // The control plane does not believe an agent's address.
            address: "10.66.6.6".into(),
            mac: mac(id),
            jobs: machine.ledger.values().cloned().collect(),
            claim_generation: machine.highest,
            ..v1::Hello::default()
        }
    }

    /// Delivers a job to the agent.
    pub fn receive_job(&mut self, id: &str, job: v1::Job, now: Timestamp, chance: &Chance) {
        let (operation, generation) = (job.operation.clone(), job.claim_generation);
        let machine = self.machine(id);
        let boot = machine.boot;
        let soon = now.plus(chance.millis(0, 50));
        if let Some(known) = machine.ledger.get(&operation) {
            let message = Box::new(Message::Job(known.clone()));
            return self.at(soon, id, PlannedEvent::Say { boot, message });
        }
        let running = v1::JobReport {
            operation: operation.clone(),
            claim_generation: generation,
            state: v1::JobState::Running.into(),
            ..v1::JobReport::default()
        };
        let is_busy = machine.ledger.values().any(|j| j.state() == v1::JobState::Running);
        if generation < machine.highest || is_busy {
            let code = if is_busy { "busy" } else { "stale-generation" };
            let message = Box::new(Message::Job(failed(&running, v1::JobState::Refused, code, is_busy)));
            return self.at(soon, id, PlannedEvent::Say { boot, message });
        }
        machine.highest = generation;
        machine.ledger.insert(operation.clone(), running);
        let Some(work) = job.work else { return };
        if matches!(work, Work::WriteImage(_)) {
            match machine.content {
                Content::Clean => {}
                Content::Partial(of) | Content::Image(of, _) if of == generation => {}
                ref other => {
                    let wrong = format!("{id}: generation {generation} writes over {other:?}");
                    self.wrong.push(wrong);
                }
            }
            self.machine(id).content = Content::Partial(generation);
        }
        if !self.executed.insert(operation.clone()) {
            self.wrong.push(format!("{id}: {operation} ran twice"));
        }
        let ends = now.plus(chance.millis(100, 60_000));
        let work = Box::new(work);
        self.at(ends, id, PlannedEvent::JobEnds { boot, operation, work });
    }

    pub fn cancelled(&mut self, id: &str, operation: &str, now: Timestamp) {
        let machine = self.machine(id);
        let boot = machine.boot;
        let running = machine.ledger.get_mut(operation);
        if let Some(job) = running.filter(|j| j.state() == v1::JobState::Running) {
            *job = failed(job, v1::JobState::Failed, "cancelled", true);
            let message = Box::new(Message::Job(job.clone()));
            self.at(now, id, PlannedEvent::Say { boot, message });
        }
    }

    pub fn job_ends(&mut self, id: &str, operation: &str, work: &Work, now: Timestamp, chance: &Chance) {
        let failures_of_1000 = self.failures_of_1000;
        let machine = self.machine(id);
        let boot = machine.boot;
        let Some(job) = machine.ledger.get_mut(operation) else {
            return;
        };
        if job.state() != v1::JobState::Running {
            return;
        }
        *job = if chance.of_1000(failures_of_1000) {
            failed(job, v1::JobState::Failed, "write-failed", chance.of_1000(700))
        } else {
            match work {
                Work::WriteImage(write) => {
                    machine.content = Content::Image(job.claim_generation, write.image_digest.clone());
                }
                _ => machine.content = Content::Clean,
            }
            succeeded(id, job, work, now)
        };
        let message = Box::new(Message::Job(job.clone()));
        self.at(now, id, PlannedEvent::Say { boot, message });
    }
}

/// The boot id of the kernel that runs in one boot of a machine.
pub fn kernel_boot_id(id: &str, boot: u64) -> String {
    format!("{id}-{boot}")
}

/// The MAC address of a machine.
pub fn mac(id: &str) -> String {
    let number = id.trim_start_matches(|c: char| !c.is_ascii_digit());
    format!("52:54:00:00:00:{number:0>2}")
}

pub fn inventory(id: &str) -> v1::Inventory {
    let drive = v1::Drive {
        name: "nvme0n1".into(),
        serial_number: format!("serial-{id}"),
        size_bytes: DRIVE_BYTES,
        transport: "nvme".into(),
        ..v1::Drive::default()
    };
    v1::Inventory {
        drives: vec![drive],
        ..v1::Inventory::default()
    }
}

/// The drive in the BMC's list.
pub fn known_to_bmc(id: &str) -> KnownDrive {
    KnownDrive {
        serial: format!("serial-{id}"),
        size_bytes: Some(DRIVE_BYTES),
        protocol: "NVMe".into(),
        ..KnownDrive::default()
    }
}

fn failed(job: &v1::JobReport, state: v1::JobState, code: &str, retryable: bool) -> v1::JobReport {
    let error = v1::JobError {
        code: code.to_owned(),
        message: format!("{code}, as simulated"),
        retryable,
    };
    v1::JobReport {
        state: state.into(),
        error: Some(error),
        ..job.clone()
    }
}

fn succeeded(id: &str, job: &v1::JobReport, work: &Work, now: Timestamp) -> v1::JobReport {
    let result = match work {
        Work::WriteImage(_) => JobResult::WriteImage(v1::WriteImageResult {
            drive_name: "nvme0n1".into(),
            drive_serial: format!("serial-{id}"),
            ..v1::WriteImageResult::default()
        }),
        _ => JobResult::EraseDrives(v1::EraseDrivesResult {
            drives: vec![v1::DriveErase {
                drive_name: "nvme0n1".into(),
                serial_number: format!("serial-{id}"),
                size_bytes: DRIVE_BYTES,
                // A crypto erase takes the same time for a larger drive.
                method: v1::EraseMethod::NvmeSanitizeCrypto.into(),
                samples: 4096,
                sample_bytes: 4096,
                start_time: Some(clock::system_time(now).into()),
                end_time: Some(clock::system_time(now).into()),
                ..v1::DriveErase::default()
            }],
            ..v1::EraseDrivesResult::default()
        }),
    };
    v1::JobReport {
        state: v1::JobState::Succeeded.into(),
        result: Some(result),
        ..job.clone()
    }
}
