//! The line to one node's console: one connection to its BMC, any number of watchers, at most one writer, and the
//! recording.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::NodeId;
use rackwright_serial::record::{Holder, Recorder};
use rackwright_serial::{Entry, Line};
use rackwright_store::{NodeRecord, Scope, StoreError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, broadcast, mpsc, watch};
use tokio::time::Instant;

use super::dial::{self, LineError};
use super::lock::ConsoleLock;
use crate::console::Consoles;

/// Output pieces that a watcher may lag behind. A watcher further behind misses some and gets a notice.
const OUTPUT_QUEUE: usize = 1024;
/// Bytes per read.
const READ: usize = 4096;
/// Input pieces that may wait for the serial port.
const INPUT_QUEUE: usize = 16;
/// Interval of writes to the recording; also the most that a dying process loses.
const WRITE_EVERY: Duration = Duration::from_millis(200);
/// Bytes after which the recording is written sooner.
const WRITE_AT: usize = 64 * 1024;
/// A BMC that accepts no input for this long counts as a broken line.
const TYPE_LIMIT: Duration = Duration::from_secs(10);
/// Interval of checks that the node still has this machine, and who owns the node.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// First and longest pause between two connections.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Pause after a failure that a simple retry does not fix; an operator may repair it meanwhile.
const LONG_PAUSE: Duration = Duration::from_secs(300);

/// The demand for a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// The console is recorded.
    pub record: bool,
    /// Owner of the output.
    pub holder: Holder,
    /// Time of the last observed power-on, in microseconds since 1970.
    pub boot_us: i64,
    /// Number of attached clients.
    pub watchers: usize,
    /// Grows when a client attaches, which ends a pause early.
    pub hurry: u64,
}

impl Demand {
    fn is_any(&self) -> bool {
        self.record || self.watchers > 0
    }
}

/// The machine at the end of a line. A node of the same id may later be another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    uid: String,
    bmc_address: String,
}

impl Machine {
    /// The machine of a node record.
    #[must_use]
    pub fn of(record: &NodeRecord) -> Self {
        Self {
            uid: record.uid.clone(),
            bmc_address: record.spec.bmc_address.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineState {
    /// The line is being opened.
    Opening,
    /// The line is open.
    Open,
    /// The line is closed, with the reason.
    Broken(String),
}

/// The client that types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typist {
    id: u64,
    /// Name of the member.
    pub name: String,
}

/// One node's line.
pub struct Hub {
    /// The node's id.
    pub node: NodeId,
    output: broadcast::Sender<Arc<[u8]>>,
    input: mpsc::Sender<Vec<u8>>,
    typed: Mutex<mpsc::Receiver<Vec<u8>>>,
    demand: watch::Sender<Demand>,
    state: watch::Sender<LineState>,
    typist: watch::Sender<Option<Typist>>,
    /// The machine to which the line goes or is being opened.
    machine: StdMutex<Option<Machine>>,
    next: AtomicU64,
}

/// A client at a console. Dropping it detaches the client.
pub struct Attachment {
    hub: Arc<Hub>,
    /// Output of the machine.
    pub output: broadcast::Receiver<Arc<[u8]>>,
    /// State of the line.
    pub state: watch::Receiver<LineState>,
    /// The client that types.
    pub typist: watch::Receiver<Option<Typist>>,
    /// The demand for the line; it changes when the node changes hands.
    pub demand: watch::Receiver<Demand>,
    own: Option<u64>,
}

impl Hub {
    /// A line that is not open yet.
    #[must_use]
    pub fn new(node: &NodeId) -> Arc<Self> {
        let (input, typed) = mpsc::channel(INPUT_QUEUE);
        Arc::new(Self {
            node: node.to_owned(),
            output: broadcast::Sender::new(OUTPUT_QUEUE),
            input,
            typed: Mutex::new(typed),
            demand: watch::Sender::new(Demand::default()),
            state: watch::Sender::new(LineState::Opening),
            typist: watch::Sender::new(None),
            machine: StdMutex::default(),
            next: AtomicU64::new(1),
        })
    }

    /// Whether the line is in demand.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.demand.borrow().is_any()
    }

    pub(super) fn set_machine(&self, machine: Option<Machine>) {
        *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = machine;
    }

    /// Whether the line goes to this machine, or to none at the moment.
    #[must_use]
    pub fn may_serve(&self, machine: &Machine) -> bool {
        let now = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        now.as_ref().is_none_or(|now| now == machine)
    }

    /// Whether the console is recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.demand.borrow().record
    }

    /// Sets whether the console is recorded, and the owner of the output.
    pub fn set(&self, record: bool, holder: &Holder) {
        self.demand.send_if_modified(|demand| {
            if demand.record == record && demand.holder == *holder {
                return false;
            }
            demand.record = record;
            demand.holder.clone_from(holder);
            true
        });
    }

    /// Notes a power-on of the machine: another boot begins.
    pub fn note_boot(&self, now_us: i64) {
        self.demand.send_modify(|demand| demand.boot_us = now_us);
    }

    /// Attaches a client. The error is the name of the client that types.
    ///
    /// # Errors
    /// Another client types, and `entry` does not take over.
    pub fn attach(self: &Arc<Self>, entry: Entry, name: &str) -> Result<Attachment, String> {
        let own = match entry {
            Entry::ReadOnly => None,
            Entry::Write | Entry::TakeOver => Some(self.take_keyboard(entry == Entry::TakeOver, name)?),
        };
        let attachment = Attachment {
            output: self.output.subscribe(),
            state: self.state.subscribe(),
            typist: self.typist.subscribe(),
            demand: self.demand.subscribe(),
            own,
            hub: Arc::clone(self),
        };
        self.demand.send_modify(|demand| {
            demand.watchers += 1;
            demand.hurry += 1;
        });
        Ok(attachment)
    }

    fn take_keyboard(&self, takes_over: bool, name: &str) -> Result<u64, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut taken = None;
        self.typist.send_if_modified(|typist| {
            if let Some(typist) = typist.as_ref().filter(|_| !takes_over) {
                taken = Some(typist.name.clone());
                return false;
            }
            *typist = Some(Typist {
                id,
                name: name.to_owned(),
            });
            true
        });
        taken.map_or(Ok(id), Err)
    }
}

impl Attachment {
    /// Whether this client types.
    #[must_use]
    pub fn types(&self) -> bool {
        self.own.is_some()
    }

    /// The name of the client that took the keyboard from this one; reported once.
    pub fn displaced(&mut self) -> Option<String> {
        let typist = self.typist.borrow_and_update().clone();
        let is_own = typist.as_ref().map(|typist| typist.id) == self.own;
        if self.own.is_none() || is_own {
            return None;
        }
        self.own = None;
        Some(typist.map_or_else(|| "another client".to_owned(), |typist| typist.name))
    }

    /// Sends input, if this client types.
    pub async fn type_in(&self, bytes: Vec<u8>) {
        let typist = self.hub.typist.borrow().as_ref().map(|typist| typist.id);
        // A line that is not open discards input: old keystrokes must not arrive later.
        let is_open = *self.hub.state.borrow() == LineState::Open;
        if self.own.is_some() && typist == self.own && is_open {
            let _ = self.hub.input.send_timeout(bytes, TYPE_LIMIT).await;
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let own = self.own;
        self.hub.typist.send_if_modified(|typist| {
            let is_own = typist.as_ref().is_some_and(|typist| Some(typist.id) == own);
            if is_own {
                *typist = None;
            }
            is_own
        });
        self.hub.demand.send_modify(|demand| demand.watchers -= 1);
    }
}

/// Keeps the line open as long as it is in demand.
pub async fn run(core: Arc<Core>, hub: Arc<Hub>) {
    let mut demand = hub.demand.subscribe();
    let mut typed = hub.typed.lock().await;
    let mut pause = FIRST_PAUSE;
    while !core.feature::<Consoles>().retire(&hub) {
        hub.state.send_replace(LineState::Opening);
        let (why, rest) = match open(&core, &hub).await {
            Ok((line, record, held)) => {
                hub.state.send_replace(LineState::Open);
                let opened = Instant::now();
                let folder = core.feature::<Consoles>().folder(&record.uid);
                let recording = Recording::new(&core, folder, demand.borrow().clone());
                let machine_changed = machine_changed(&core, &hub, &record);
                let ended = carry_bytes(line, &hub, &mut typed, &mut demand, recording, machine_changed).await;
                hub.set_machine(None);
                drop(held);
                let Some(why) = ended else { continue };
                if opened.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                (why, pause)
            }
            Err((why, is_retryable)) => {
                hub.set_machine(None);
                (why, if is_retryable { pause } else { LONG_PAUSE })
            }
        };
        pause = (pause * 2).min(LONGEST_PAUSE);
        tracing::debug!(node = %hub.node, why, "the connection to a console is broken");
        hub.state.send_replace(LineState::Broken(why));
        wait(&mut demand, jittered(&core, rest)).await;
    }
}

/// Waits until the pause ends, a client attaches, or the demand ends.
async fn wait(demand: &mut watch::Receiver<Demand>, pause: Duration) {
    let hurry = demand.borrow_and_update().hurry;
    let changed = demand.wait_for(|demand| demand.hurry != hurry || !demand.is_any());
    let _ = tokio::time::timeout(pause, changed).await;
}

/// A random time between half of the pause and all of it.
fn jittered(core: &Core, pause: Duration) -> Duration {
    let mut byte = [0];
    let _ = core.rng.fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 510
}

type Opened = (Line, NodeRecord, ConsoleLock);

/// Opens the line. The error is the reason, and whether a retry may help soon.
async fn open(core: &Core, hub: &Hub) -> Result<Opened, (String, bool)> {
    let record = core.store.node(&Scope::Site, &hub.node).await;
    let record = record.map_err(|error| (error.to_string(), error.is_retryable()))?;
    if let Some(doubt) = &record.node.doubt {
        return Err((format!("the node is doubted: {}", doubt.why), false));
    }
    hub.set_machine(Some(Machine::of(&record)));
    core.feature::<Consoles>().seen(&record);
    let folder = core.feature::<Consoles>().folder(&record.uid);
    let held = ConsoleLock::take(folder, core.replica.clone()).await;
    let held = held.map_err(|why| (why, true))?;
    let opened = dial::open(core, &record).await;
    let line = opened.map_err(|error: LineError| (error.to_string(), error.is_retryable()))?;
    // Opening takes a while: the node may have another machine by now, and output of the former one must not be shown.
    match look(core, hub, &record).await {
        None => Ok((line, record, held)),
        Some(why) => Err((why, true)),
    }
}

/// Why the line must end: the node has another machine or does not exist any more. `None` while the machine is the
/// same; then the recording follows the node's current state. This replica has to look, because other replicas may do
/// the node's steps.
async fn look(core: &Core, hub: &Hub, opened: &NodeRecord) -> Option<String> {
    match core.store.node(&Scope::Site, &hub.node).await {
        Ok(now) if Machine::of(&now) == Machine::of(opened) => {
            core.feature::<Consoles>().seen(&now);
            None
        }
        Ok(_) => Some("the node has another BMC now".into()),
        Err(StoreError::NotFound { .. }) => {
            hub.set(false, &Holder::default());
            Some("the node no longer exists".into())
        }
        // No node changes hands while the database is unavailable.
        Err(_) => None,
    }
}

/// Waits until the line must end, and returns the reason.
async fn machine_changed(core: &Core, hub: &Hub, opened: &NodeRecord) -> String {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if let Some(why) = look(core, hub, opened).await {
            return why;
        }
    }
}

/// Carries bytes in both directions until the line breaks or `machine_changed` ends it. Returns the reason, or `None` when
/// the demand ended.
async fn carry_bytes(
    line: Line,
    hub: &Hub,
    typed: &mut mpsc::Receiver<Vec<u8>>,
    demand: &mut watch::Receiver<Demand>,
    mut recording: Recording,
    machine_changed: impl Future<Output = String>,
) -> Option<String> {
    let mut machine_changed = std::pin::pin!(machine_changed);
    let (mut reader, mut writer): (ReadHalf<Line>, WriteHalf<Line>) = tokio::io::split(line);
    let mut buffer = vec![0; READ];
    // Input for an earlier line is discarded.
    while typed.try_recv().is_ok() {}
    loop {
        let due = recording.due();
        tokio::select! {
            biased;
            changed = demand.changed() => {
                let wanted = demand.borrow_and_update().clone();
                recording.apply_demand(&wanted).await;
                if changed.is_err() || !wanted.is_any() {
                    return None;
                }
            }
            why = &mut machine_changed => {
                recording.write().await;
                return Some(why);
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => recording.write().await,
            read = reader.read(&mut buffer) => match read {
                Ok(0) => break,
                Ok(count) => {
                    let bytes: Arc<[u8]> = Arc::from(&buffer[..count]);
                    recording.take(&bytes).await;
                    let _ = hub.output.send(bytes);
                }
                Err(error) => {
                    recording.write().await;
                    return Some(format!("the connection to the console broke: {error}"));
                }
            },
            Some(bytes) = typed.recv() => {
                let sent = async {
                    writer.write_all(&bytes).await?;
                    writer.flush().await
                };
                if !matches!(tokio::time::timeout(TYPE_LIMIT, sent).await, Ok(Ok(()))) {
                    recording.write().await;
                    return Some("the BMC accepts no input for the console".into());
                }
            }
        }
    }
    recording.write().await;
    Some("the BMC closed the console".into())
}

/// The recording of a line, with the bytes that are not written yet.
struct Recording {
    recorder: Option<Recorder>,
    is_on: bool,
    holder: Holder,
    boot_us: i64,
    pending: Vec<u8>,
    since: Option<(Instant, i64)>,
    node: std::path::PathBuf,
}

impl Recording {
    fn new(core: &Core, folder: std::path::PathBuf, demand: Demand) -> Self {
        let bounds = core.feature::<Consoles>().settings().bounds();
        let mut recorder = Recorder::new(folder.clone(), bounds, demand.holder.clone());
        recorder.boot(demand.boot_us);
        Self {
            recorder: Some(recorder),
            is_on: demand.record,
            holder: demand.holder,
            boot_us: demand.boot_us,
            pending: Vec::new(),
            since: None,
            node: folder,
        }
    }

    /// When the pending bytes are due to be written.
    fn due(&self) -> Option<Instant> {
        self.since.map(|(since, _)| since + WRITE_EVERY)
    }

    async fn take(&mut self, bytes: &[u8]) {
        if !self.is_on {
            return;
        }
        self.since.get_or_insert_with(|| (Instant::now(), clock::now().0));
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= WRITE_AT {
            self.write().await;
        }
    }

    /// Writes the pending bytes, outside the async threads.
    async fn write(&mut self) {
        // Without pending bytes the recorder stays in place.
        let Some((_, at_us)) = self.since.take() else { return };
        let Some(mut recorder) = self.recorder.take() else {
            return;
        };
        let pending = std::mem::take(&mut self.pending);
        let written = tokio::task::spawn_blocking(move || {
            let written = recorder.write(at_us, &pending);
            (recorder, written)
        });
        if let Ok((recorder, written)) = written.await {
            self.recorder = Some(recorder);
            if let Err(error) = written {
                tracing::error!(folder = %self.node.display(), %error, "a console could not be recorded");
            }
        }
    }

    /// Changes the boot, the holder or whether to record. Pending bytes are written first, under the former values.
    async fn apply_demand(&mut self, demand: &Demand) {
        if demand.boot_us == self.boot_us && demand.holder == self.holder && demand.record == self.is_on {
            return;
        }
        self.write().await;
        if let Some(recorder) = &mut self.recorder {
            if demand.boot_us != self.boot_us {
                recorder.boot(demand.boot_us);
            }
            recorder.set_holder(demand.holder.clone());
        }
        self.boot_us = demand.boot_us;
        self.holder.clone_from(&demand.holder);
        self.is_on = demand.record;
    }
}
