//! One replica of the control plane: its tasks, its kills and its restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_control::clusters::Clusters;
use rackwright_control::clusters::network::Tester;
use rackwright_ground::agents::AdmittedAgent;
use rackwright_ground::agents::QUEUE;
use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_ground::config::Config;
use rackwright_ground::core::{Core, Tasks};
use rackwright_ground::{clock, testing};
use rackwright_lifecycle::{NodeId, State, Timestamp};
use rackwright_nodes::agent_boot::{self, BootRequester, Registration};
use rackwright_nodes::agent_session::{ArrivingAgent, admit_agent, compare_ledger, heard, note_disconnect};
use rackwright_nodes::firmware_settings::{Wanted, WantedCache};
use rackwright_nodes::perform::ActivePerformer;
use rackwright_nodes::replicas;
use rackwright_site::model::WantedSettings;
use rackwright_store::{ImageVersionBody, ImageVersionRow, Scope};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::chance::Chance;
use super::gate::GatePoints;
use super::performer::Fake;
use super::world::{Certificate, Connection, FACTORY, PlannedEvent, Running, World, inventory, kernel_boot_id, mac};
use crate::test_calls::{self, NodeRequest};

const IMAGE: &str = "images/some";
/// The address of all machines. The replica takes it from the connection.
const ADDRESS: &str = "10.0.0.1";

/// Limit for the next point of a task, which normally takes milliseconds.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// One replica.
pub struct Process {
    /// Its index among the replicas.
    number: usize,
    /// The core of its present process, or of the last one.
    pub core: Arc<Core>,
    /// The world as this replica reaches it.
    pub fake: Fake,
    /// Steps of the runner.
    pub steps: JoinSet<()>,
    /// Calls and connections: the node that each is about.
    calls: JoinSet<String>,
    /// Nodes with a running call.
    pub busy: BTreeSet<String>,
    /// The work that the former process left is not closed yet.
    is_recovering: bool,
    /// The replica stays down until then. `None`: it runs.
    pub down_until: Option<Timestamp>,
    /// The time of its next sign of life and check of the others.
    pub next_round: Timestamp,
    config: Config,
    /// The wanted firmware settings, kept over its lives.
    wanted: Arc<Wanted>,
}

fn running(tasks: &Tasks) -> MutexGuard<'_, JoinSet<()>> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder in memory if possible.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).expect("a folder")
    } else {
        tempfile::tempdir().expect("a folder")
    }
}

/// Copies the keys of another replica if this one has none.
pub fn share_keys(from: &Path, to: &Path) {
    let (from, to) = (from.join("data/keys"), to.join("data/keys"));
    std::fs::create_dir_all(to.parent().expect("a folder in a folder")).expect("a folder");
    if to.is_dir() || !from.is_dir() {
        return;
    }
    let done = std::process::Command::new("cp").arg("-a").args([from, to]).status();
    assert!(done.is_ok_and(|status| status.success()), "keys are copied");
}

async fn open(config: Config, fake: &Fake) -> Arc<Core> {
    let opened = testing::open(config).await.expect("it opens");
    let mut core = Arc::into_inner(opened).expect("nobody else has it yet");
    core.rng = fake.chance.clone();
    core.replace_feature(ActivePerformer(Arc::new(fake.clone())));
    core.replace_feature(Clusters::with_tester(Tester(Arc::new(fake.clone()))));
    core.crash_points = Some(Arc::new(GatePoints(fake.gate.clone())));
    core.tasks = Some(Tasks::default());
    Arc::new(core)
}

impl Process {
    /// The first life of a replica with its data in `dir`.
    pub async fn start(number: usize, dir: &Path, database: &Path, limits: &str, fake: Fake) -> Self {
        let further = format!(
            "database: {}\npolicy: {{agent_boot_s: 60, host_boot_s: 60, write_image_s: 90, erase_s: 90, validate_s: 60, \
             bmc_s: 20, agent_grace_s: 20, agent_quiet_s: 3, tries: 3, boots: 2}}\nbmc_accounts: {{rotate_days: 1}}\n{limits}",
            database.display()
        );
        let config = testing::config(dir, &further);
        let mut process = Self {
            number,
            core: open(config.clone(), &fake).await,
            fake,
            steps: JoinSet::new(),
            calls: JoinSet::new(),
            busy: BTreeSet::new(),
            is_recovering: false,
            down_until: None,
            next_round: clock::now(),
            config,
            wanted: Arc::default(),
        };
        process.recover();
        process
    }

    /// Whether the replica runs and answers calls.
    pub fn answers(&self) -> bool {
        self.down_until.is_none() && !self.is_recovering
    }

    /// Adds the image for deployments.
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

    /// Adds a node as an enrolment does.
    pub async fn enroll(&self, id: &str, labels: BTreeMap<String, String>) {
        let mut record = testing::node(id, State::Discovered, None);
        record.labels = labels;
        record.node.since = clock::now();
        record.spec.bmc_address = "https://bmc".into();
        record.spec.bmc_username = "root".into();
        let sealed = self
            .core
            .keys
            .sealer
            .seal(&FACTORY.into(), &bmc_password_purpose(&NodeId::stored(id)));
        record.spec.bmc_password = sealed.expect("it is sealed");
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

    /// Kills the replica in the middle of its work. It is started again at `until`.
    pub async fn kill(&mut self, until: Timestamp) {
        self.end().await;
        self.fake.gate.clear();
        self.is_recovering = false;
        self.down_until = Some(until);
        self.fake
            .world()
            .disconnected(self.number, clock::now(), &self.fake.chance);
    }

    /// Starts its next life.
    pub async fn start_again(&mut self) {
        self.core = open(self.config.clone(), &self.fake).await;
        self.publish_settings();
        self.down_until = None;
        self.recover();
    }

    /// Sets whether the site wants firmware settings for these nodes.
    pub fn want_settings(&mut self, wants: bool, ids: &[String]) {
        let wanted = Arc::new(WantedSettings {
            secure_boot: Some(true),
            ..WantedSettings::default()
        });
        let wanted = ids
            .iter()
            .filter(|_| wants)
            .map(|id| (NodeId::stored(id.as_str()), wanted.clone()));
        self.wanted = Arc::new(Wanted::of_nodes(wanted.collect()));
        self.publish_settings();
    }

    fn publish_settings(&self) {
        self.core.feature::<WantedCache>().replace(self.wanted.clone());
    }

    /// Gives a sign of life and checks the others.
    pub fn round(&mut self) {
        let core = self.core.clone();
        self.call("", async move {
            replicas::round(&core).await.expect("the database answers");
        });
    }

    /// Drops every task where it is.
    pub async fn end(&mut self) {
        self.steps.shutdown().await;
        self.calls.shutdown().await;
        let mut tasks = std::mem::take(&mut *self.tasks());
        tasks.shutdown().await;
        self.busy.clear();
        self.core.store.close().await;
    }

    /// Waits until every task waits at the gate or has ended.
    pub async fn settle(&mut self) {
        let settled = tokio::time::timeout(SETTLE_LIMIT, self.settled()).await;
        settled.expect("a task goes round and round, and comes to no point");
    }

    async fn settled(&mut self) {
        let gate = self.fake.gate.clone();
        loop {
            while let Some(ended) = self.steps.try_join_next() {
                ended.expect("no step panics");
            }
            while let Some(ended) = self.calls.try_join_next() {
                self.busy.remove(&ended.expect("no call panics"));
                self.is_recovering = false;
            }
            while let Some(ended) = self.tasks().try_join_next() {
                ended.expect("no task panics");
            }
            let tasks = self.core.tasks.clone().expect("a simulated process has tasks");
            if gate.waiting().len() == self.steps.len() + self.calls.len() + running(&tasks).len() {
                return;
            }
            tokio::select! {
                Some(ended) = poll_fn(|cx| running(&tasks).poll_join_next(cx)) => ended.expect("no task panics"),
                () = gate.came.notified() => {}
                Some(ended) = self.steps.join_next() => ended.expect("no step panics"),
                Some(ended) = self.calls.join_next() => {
                    self.busy.remove(&ended.expect("no call panics"));
                    self.is_recovering = false;
                }
            }
        }
    }

    /// Whether no task runs.
    pub fn is_quiet(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty() && self.tasks().is_empty()
    }

    /// The tasks that the replica began with `Core::spawn`.
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        running(self.core.tasks.as_ref().expect("a simulated process has tasks"))
    }

    /// Begins a call about a node or another part of the site.
    pub fn call(&mut self, id: &str, work: impl Future<Output = ()> + Send + 'static) {
        self.busy.insert(id.to_owned());
        let id = id.to_owned();
        self.calls.spawn(async move {
            work.await;
            id
        });
    }

    /// Connects a machine's agent. Before its first connection in a boot, the agent gets its plan and registers.
    pub fn connect(&mut self, id: &str, boot: u64) {
        let (process, core, fake, node) = (self.number, self.core.clone(), self.fake.clone(), id.to_owned());
        self.call(id, async move {
            let later = |fake: &Fake| {
                // The agent tries again: it does not know that only another boot helps.
                let later = clock::now().plus(fake.chance.millis(20_000, 40_000));
                fake.world().at(later, &node, PlannedEvent::Connect { boot });
            };
            let Some(certificate) = certificate(&core, &fake, &node, boot).await else {
                return later(&fake);
            };
            let (agent, sender, end) = {
                let mut world = fake.world();
                let machine = world.machine(&node);
                if machine.boot != boot || machine.running != Running::Agent || machine.connection.is_some() {
                    return;
                }
                machine.certificate = Some(certificate.clone());
                let (sender, receiver) = mpsc::channel(QUEUE);
                let end = CancellationToken::new();
                machine.connection = Some(Connection {
                    process,
                    certificate: certificate.clone(),
                    number: 0,
                    receiver,
                    end: end.clone(),
                });
                let agent = ArrivingAgent {
                    node: NodeId::stored(node.clone()),
                    of: certificate.of,
                    remote: ADDRESS.into(),
                    hello: world.hello(&node),
                    reading: None,
                    secret: None,
                };
                (agent, sender, end)
            };
            let arrived = admit_agent(
                &core,
                &agent,
                &rackwright_nodes::attestation::TpmEvidence::Nothing(String::new()),
                sender,
                end,
            )
            .await;
            let Ok(arrived) = arrived.expect("the database answers") else {
                fake.world().refused(&node, process);
                return later(&fake);
            };
            let admitted_agent = arrived.admitted_agent;
            fake.world()
                .arrived(&node, process, admitted_agent.number, clock::now(), &fake.chance);
            compare_ledger(&core, &admitted_agent, &agent.hello, arrived.open)
                .await
                .expect("it is welcome");
            let message = Box::new(Message::Inventory(inventory(&node)));
            fake.world()
                .at(clock::now(), &node, PlannedEvent::Say { boot, message });
        });
    }

    /// Delivers an agent's message.
    pub fn say(&mut self, id: &str, number: i64, certificate: &Certificate, message: Message) {
        let core = self.core.clone();
        let admitted_agent = AdmittedAgent {
            node: NodeId::stored(id.to_owned()),
            number,
            of: certificate.of.clone(),
            boot_id: certificate.kernel_boot_id.clone(),
        };
        let message = v1::AgentMessage { message: Some(message) };
        self.call(id, async move {
            heard(&core, &admitted_agent, message).await.expect("it is heard");
        });
    }

    /// Notices the end of a connection.
    pub fn gone(&mut self, id: &str, number: i64) {
        let (core, node) = (self.core.clone(), id.to_owned());
        self.call(id, async move {
            note_disconnect(&core, &NodeId::stored(node.as_str()), number).await
        });
    }

    /// Makes an operator's request.
    pub fn make_request(&mut self, id: &str, request: NodeRequest, key: String) {
        let (core, fake, node) = (self.core.clone(), self.fake.clone(), id.to_owned());
        self.call(id, async move {
            let answer = test_calls::wish(&core, &key, &node, request, IMAGE).await;
            if let Err(rackwright_ground::api_error::ApiError::Internal(why)) = answer {
                fake.world().wrong.push(format!("{node}: {request:?}: {why}"));
            }
        });
    }
}

/// The certificate of a machine's agent in this boot. Its firmware looks for a boot and gets the plan, and the agent
/// registers with the plan's token, again after a lost answer. `None`: it was refused.
async fn certificate(core: &Core, fake: &Fake, node: &str, boot: u64) -> Option<Certificate> {
    let known = |fake: &Fake| {
        let mut world = fake.world();
        let machine = world.machine(node);
        (machine.certificate.clone(), machine.token.clone())
    };
    let (certificate, token) = known(fake);
    if certificate.is_some() {
        return certificate;
    }
    let (mac, kernel_boot_id) = (mac(node), kernel_boot_id(node, boot));
    let requester = BootRequester {
        mac: &mac,
        address: ADDRESS,
    };
    let token = match token {
        Some(token) => token,
        None => {
            let record = core
                .store
                .node(&Scope::Site, &NodeId::stored(node))
                .await
                .expect("the node is there");
            let may_boot = agent_boot::looks_for_boot(core, &record, &mac, true).await;
            if !may_boot.expect("the database answers") {
                return None;
            }
            let mut tx = core.store.write().await.expect("a change begins");
            let given = agent_boot::give_plan(core, &mut tx, &NodeId::stored(node), requester).await;
            core.commit(tx).await.expect("it is committed");
            let token = given.expect("the database answers").ok()?;
            let mut world = fake.world();
            let machine = world.machine(node);
            if machine.boot == boot {
                machine.token = Some(token.clone());
            }
            token
        }
    };
    let hash = agent_boot::token_hash(&token).expect("it is a token");
    let mut tx = core.store.write().await.expect("a change begins");
    let (row, _) = tx.token(&hash, "agent").await.expect("the database answers")?;
    let registration = Registration {
        requester,
        kernel_boot_id: &kernel_boot_id,
        key_sha256: &kernel_boot_id,
    };
    let registered = agent_boot::register(&mut tx, &row, registration).await;
    core.commit(tx).await.expect("it is committed");
    let (_, of) = registered.expect("the database answers").ok()?;
    Some(Certificate { of, kernel_boot_id })
}

/// Delivers a message to an agent. Returns its text for the trace.
pub fn deliver(world: &mut World, id: &str, message: v1::ControlMessage, now: Timestamp, chance: &Chance) -> String {
    match message.message {
        Some(Control::Job(job)) => {
            let line = format!("{id} gets job {} of generation {}", job.operation, job.claim_generation);
            world.receive_job(id, job, now, chance);
            line
        }
        Some(Control::Challenge(_)) => format!("{id} has no TPM and is challenged"),
        Some(Control::Cancel(cancel)) => {
            world.cancelled(id, &cancel.operation, now);
            format!("{id} gets the cancellation of {}", cancel.operation)
        }
        Some(Control::Renewed(_)) | None => String::new(),
    }
}
