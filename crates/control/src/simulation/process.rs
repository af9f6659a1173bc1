//! One life of the control plane: its tasks, and how it is started and killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_lifecycle::{State, Timestamp};
use rackwright_store::{ImageVersionBody, ImageVersionRow};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::chance::Chance;
use super::gate::{Doors, Gate};
use super::performer::Fake;
use super::world::{Coming, Connection, Running, World, inventory};
use crate::agents::QUEUE;
use crate::config::Config;
use crate::core::Core;
use crate::grpc::agents::{arrive, farewell, heard, welcome};
use crate::grpc::said::{self, Wish};
use crate::{clock, daemon, replicas, testing};

const IMAGE: &str = "images/some";

/// One life.
pub struct Process {
    pub core: Arc<Core>,
    /// Steps of the runner.
    pub steps: JoinSet<()>,
    /// Calls and connections: the node that each is about.
    calls: JoinSet<String>,
    /// Nodes that a call is about.
    pub busy: BTreeSet<String>,
    /// What the former process left is not closed yet.
    pub is_recovering: bool,
    config: Config,
}

/// A folder in memory.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).expect("a folder")
    } else {
        tempfile::tempdir().expect("a folder")
    }
}

/// Keys are kept from seed to seed, the database is not.
fn forget_database(dir: &Path) {
    for name in ["rackwright.db", "rackwright.db-wal", "rackwright.db-shm"] {
        let _ = std::fs::remove_file(dir.join("data").join(name));
    }
}

async fn open(config: Config, fake: &Fake) -> Arc<Core> {
    let opened = daemon::open(config, CancellationToken::new()).await.expect("it opens");
    let mut core = Arc::into_inner(opened).expect("nobody else has it yet");
    core.rng = fake.chance.clone();
    core.performer = Arc::new(fake.clone());
    core.points = Some(Arc::new(Doors(fake.gate.clone())));
    Arc::new(core)
}

impl Process {
    /// The first life, over an empty database.
    pub async fn start(dir: &Path, fake: &Fake) -> Self {
        forget_database(dir);
        let policy = "policy: {agent_boot_s: 60, host_boot_s: 60, write_image_s: 90, erase_s: 90, validate_s: 60, \
                      bmc_s: 20, agent_grace_s: 20, tries: 3, boots: 2}\n";
        let config = testing::config(dir, policy);
        let mut process = Self {
            core: open(config.clone(), fake).await,
            steps: JoinSet::new(),
            calls: JoinSet::new(),
            busy: BTreeSet::new(),
            is_recovering: false,
            config,
        };
        process.recover();
        process
    }

    /// Adds the image that is deployed.
    pub async fn add_image(&self) {
        let row = ImageVersionRow {
            image_id: "some".into(),
            digest: format!("b3-{}", "1".repeat(64)),
            created_at: clock::now(),
            body: ImageVersionBody::default(),
        };
        let mut tx = self.core.store.write().await.expect("a change begins");
        tx.add_image_version(&row, "uid").await.expect("the image is added");
        tx.commit().await.expect("it is committed");
    }

    /// Adds a node as its enrolment does.
    pub async fn enroll(&self, id: &str) {
        let mut record = testing::node(id, State::Discovered, None);
        record.node.since = clock::now();
        let mut tx = self.core.store.write().await.expect("a change begins");
        tx.insert_node(&record).await.expect("the node is added");
        tx.commit().await.expect("it is committed");
    }

    fn recover(&mut self) {
        self.is_recovering = true;
        let core = self.core.clone();
        self.calls.spawn(async move {
            replicas::recover(&core).await.expect("what was left is closed");
            String::new()
        });
    }

    /// Ends it in the middle of whatever it does, and starts the next one.
    pub async fn kill(&mut self, fake: &Fake) {
        self.end().await;
        fake.gate.clear();
        fake.world().disconnected(clock::now(), &fake.chance);
        self.core = open(self.config.clone(), fake).await;
        self.recover();
    }

    /// Drops every task where it is.
    pub async fn end(&mut self) {
        self.steps.shutdown().await;
        self.calls.shutdown().await;
        self.busy.clear();
        self.core.store.close().await;
    }

    /// Waits until every task waits at the gate or has ended.
    pub async fn settle(&mut self, gate: &Gate) {
        loop {
            while let Some(ended) = self.steps.try_join_next() {
                ended.expect("no step panics");
            }
            while let Some(ended) = self.calls.try_join_next() {
                self.busy.remove(&ended.expect("no call panics"));
                self.is_recovering = false;
            }
            if gate.waiting().len() == self.steps.len() + self.calls.len() {
                return;
            }
            tokio::select! {
                () = gate.came.notified() => {}
                Some(ended) = self.steps.join_next() => ended.expect("no step panics"),
                Some(ended) = self.calls.join_next() => {
                    self.busy.remove(&ended.expect("no call panics"));
                    self.is_recovering = false;
                }
            }
        }
    }

    /// Nothing runs.
    pub fn is_quiet(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty()
    }

    fn call(&mut self, id: &str, work: impl Future<Output = ()> + Send + 'static) {
        self.busy.insert(id.to_owned());
        let id = id.to_owned();
        self.calls.spawn(async move {
            work.await;
            id
        });
    }

    /// A machine's agent connects.
    pub fn connect(&mut self, fake: &Fake, id: &str, boot: u64) {
        let (core, fake, node) = (self.core.clone(), fake.clone(), id.to_owned());
        self.call(id, async move {
            let record = core.store.node(&node).await.expect("the node is there");
            let now = clock::now();
            let (hello, sender, end) = {
                let mut world = fake.world();
                let machine = world.machine(&node);
                if machine.running != Running::Agent || machine.connection.is_some() {
                    return;
                }
                let certificate = *machine.certificate.get_or_insert(record.node.generation);
                if certificate != record.node.generation {
                    // Refused: only another boot helps. The agent does not know that.
                    let later = now.plus(fake.chance.millis(5_000, 10_000));
                    return world.at(later, &node, Coming::Connect { boot });
                }
                let (sender, receiver) = mpsc::channel(QUEUE);
                let end = CancellationToken::new();
                machine.connection = Some(Connection {
                    number: 0,
                    receiver,
                    end: end.clone(),
                });
                (world.hello(&node), sender, end)
            };
            let (number, booted_at) = arrive(&core, &record, &hello, sender, end);
            if let Some(connection) = &mut fake.world().machine(&node).connection {
                connection.number = number;
            }
            welcome(&core, &node, &hello, booted_at).await.expect("it is welcome");
            let message = Box::new(Message::Inventory(inventory(&node)));
            fake.world().at(clock::now(), &node, Coming::Say { boot, message });
        });
    }

    /// An agent says something.
    pub fn say(&mut self, id: &str, message: Message) {
        let (core, node) = (self.core.clone(), id.to_owned());
        let message = v1::AgentMessage { message: Some(message) };
        self.call(id, async move {
            heard(&core, &node, message).await.expect("it is heard");
        });
    }

    /// A connection is found gone.
    pub fn gone(&mut self, id: &str, number: u64) {
        let (core, node) = (self.core.clone(), id.to_owned());
        self.call(id, async move { farewell(&core, &node, number).await });
    }

    /// An operator asks for something.
    pub fn ask(&mut self, fake: &Fake, id: &str, wish: Wish, key: String) {
        let (core, fake, node) = (self.core.clone(), fake.clone(), id.to_owned());
        self.call(id, async move {
            let answer = said::wish(&core, &key, &node, wish, IMAGE).await;
            if let Err(crate::grpc::ApiError::Internal(why)) = answer {
                fake.world().wrong.push(format!("{node}: {wish:?}: {why}"));
            }
        });
    }
}

/// An agent takes a message; answers what it was, for the trace.
pub fn told(world: &mut World, id: &str, message: v1::ControlMessage, now: Timestamp, chance: &Chance) -> String {
    match message.message {
        Some(Control::Job(job)) => {
            let line = format!(
                "{id} is told job {} of generation {}",
                job.operation, job.claim_generation
            );
            world.told(id, job, now, chance);
            line
        }
        Some(Control::Cancel(cancel)) => {
            world.cancelled(id, &cancel.operation, now);
            format!("{id} is told to cancel {}", cancel.operation)
        }
        Some(Control::Renewed(_)) | None => String::new(),
    }
}
