//! The line to one node's console: one connection to its BMC, however many look, at most one who types, and the recording.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use rackwright_serial::record::{Holder, Recorder};
use rackwright_serial::{Entry, Line};
use rackwright_store::{NodeRecord, Scope, StoreError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, broadcast, mpsc, watch};
use tokio::time::Instant;

use super::lock::Held;
use super::way::{self, WayError};
use crate::clock;
use crate::core::Core;

/// Pieces that a watcher may be behind; who is further behind misses some, and is told.
const BEHIND: usize = 1024;
/// Read at once.
const READ: usize = 4096;
/// Pieces that may be typed ahead of the serial port.
const AHEAD: usize = 16;
/// What is recorded is written so often: a process that dies loses no more.
const WRITE_EVERY: Duration = Duration::from_millis(200);
/// Written sooner when there is so much.
const WRITE_AT: usize = 64 * 1024;
/// A BMC that takes nothing for so long has broken the line.
const TYPE_LIMIT: Duration = Duration::from_secs(10);
/// Whether the node is still the machine at the end of the line, and whose it is, is looked up so often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// First and longest pause between two connections.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After what the same again does not help with: somebody may have mended it.
const LONG_PAUSE: Duration = Duration::from_secs(300);

/// What is wanted of the line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Want {
    /// It is recorded.
    pub record: bool,
    /// Whose the output is.
    pub holder: Holder,
    /// When the machine was last switched on, as far as that was seen.
    pub boot_us: i64,
    /// How many look.
    pub watchers: usize,
    /// Grows when somebody comes who should not wait for a pause to end.
    pub hurry: u64,
}

impl Want {
    fn is_any(&self) -> bool {
        self.record || self.watchers > 0
    }
}

/// The machine at the end of a line: a node of the same id may be another one later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    uid: String,
    bmc_address: String,
}

impl Machine {
    /// That of a node as it is now.
    #[must_use]
    pub fn of(record: &NodeRecord) -> Self {
        Self {
            uid: record.uid.clone(),
            bmc_address: record.spec.bmc_address.clone(),
        }
    }
}

/// How the line stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineState {
    /// It is being opened.
    Opening,
    /// It is open.
    Open,
    /// It is not, and why.
    Broken(String),
}

/// Who types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    id: u64,
    /// Name.
    pub who: String,
}

/// One node's line.
pub struct Hub {
    /// The node's id.
    pub node: String,
    output: broadcast::Sender<Arc<[u8]>>,
    input: mpsc::Sender<Vec<u8>>,
    typed: Mutex<mpsc::Receiver<Vec<u8>>>,
    want: watch::Sender<Want>,
    state: watch::Sender<LineState>,
    seat: watch::Sender<Option<Seat>>,
    /// Where the line goes to, or is being opened to.
    machine: StdMutex<Option<Machine>>,
    next: AtomicU64,
}

/// Somebody at a console. Dropping it leaves.
pub struct Attachment {
    hub: Arc<Hub>,
    /// What the machine prints.
    pub output: broadcast::Receiver<Arc<[u8]>>,
    /// How the line stands.
    pub state: watch::Receiver<LineState>,
    /// Who types.
    pub seat: watch::Receiver<Option<Seat>>,
    /// What is wanted of the line; changes when the machine changes hands.
    pub want: watch::Receiver<Want>,
    own: Option<u64>,
}

impl Hub {
    /// A line that nobody has opened yet.
    #[must_use]
    pub fn new(node: &str) -> Arc<Self> {
        let (input, typed) = mpsc::channel(AHEAD);
        Arc::new(Self {
            node: node.to_owned(),
            output: broadcast::Sender::new(BEHIND),
            input,
            typed: Mutex::new(typed),
            want: watch::Sender::new(Want::default()),
            state: watch::Sender::new(LineState::Opening),
            seat: watch::Sender::new(None),
            machine: StdMutex::default(),
            next: AtomicU64::new(1),
        })
    }

    /// Whether anything is wanted of it.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.want.borrow().is_any()
    }

    pub(super) fn goes_to(&self, machine: Option<Machine>) {
        *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = machine;
    }

    /// Whether it goes to this machine, or to none now.
    #[must_use]
    pub fn is_to(&self, machine: &Machine) -> bool {
        let now = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        now.as_ref().is_none_or(|now| now == machine)
    }

    /// Whether it is recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.want.borrow().record
    }

    /// Whether it is to be recorded, and whose the output is.
    pub fn set(&self, record: bool, holder: &Holder) {
        self.want.send_if_modified(|want| {
            if want.record == record && want.holder == *holder {
                return false;
            }
            want.record = record;
            want.holder.clone_from(holder);
            true
        });
    }

    /// The machine is switched on: another boot begins.
    pub fn boots(&self, now_us: i64) {
        self.want.send_modify(|want| want.boot_us = now_us);
    }

    /// Lets somebody to the console. The name of who types is the error where that is somebody else.
    ///
    /// # Errors
    /// Somebody else types, and is not to be put aside.
    pub fn attach(self: &Arc<Self>, entry: Entry, who: &str) -> Result<Attachment, String> {
        let own = match entry {
            Entry::ReadOnly => None,
            Entry::Write | Entry::TakeOver => Some(self.sit(entry == Entry::TakeOver, who)?),
        };
        let attachment = Attachment {
            output: self.output.subscribe(),
            state: self.state.subscribe(),
            seat: self.seat.subscribe(),
            want: self.want.subscribe(),
            own,
            hub: Arc::clone(self),
        };
        self.want.send_modify(|want| {
            want.watchers += 1;
            want.hurry += 1;
        });
        Ok(attachment)
    }

    fn sit(&self, takes_over: bool, who: &str) -> Result<u64, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut taken = None;
        self.seat.send_if_modified(|seat| {
            if let Some(seat) = seat.as_ref().filter(|_| !takes_over) {
                taken = Some(seat.who.clone());
                return false;
            }
            *seat = Some(Seat {
                id,
                who: who.to_owned(),
            });
            true
        });
        taken.map_or(Ok(id), Err)
    }
}

impl Attachment {
    /// Whether they type.
    #[must_use]
    pub fn types(&self) -> bool {
        self.own.is_some()
    }

    /// Who took the keyboard from them, told once.
    pub fn displaced(&mut self) -> Option<String> {
        let seat = self.seat.borrow_and_update().clone();
        let is_own = seat.as_ref().map(|seat| seat.id) == self.own;
        if self.own.is_none() || is_own {
            return None;
        }
        self.own = None;
        Some(seat.map_or_else(|| "somebody".to_owned(), |seat| seat.who))
    }

    /// Types, if they may.
    pub async fn type_in(&self, bytes: Vec<u8>) {
        let seat = self.hub.seat.borrow().as_ref().map(|seat| seat.id);
        // A line that is not open takes nothing, and nothing is kept for it: keys hit in vain are not hit later.
        let is_open = *self.hub.state.borrow() == LineState::Open;
        if self.own.is_some() && seat == self.own && is_open {
            let _ = self.hub.input.send_timeout(bytes, TYPE_LIMIT).await;
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let own = self.own;
        self.hub.seat.send_if_modified(|seat| {
            let is_own = seat.as_ref().is_some_and(|seat| Some(seat.id) == own);
            if is_own {
                *seat = None;
            }
            is_own
        });
        self.hub.want.send_modify(|want| want.watchers -= 1);
    }
}

/// Keeps the line open as long as anything is wanted of it.
pub async fn run(core: Arc<Core>, hub: Arc<Hub>) {
    let mut want = hub.want.subscribe();
    let mut typed = hub.typed.lock().await;
    let mut pause = FIRST_PAUSE;
    while !core.consoles.retire(&hub) {
        hub.state.send_replace(LineState::Opening);
        let (why, rest) = match open(&core, &hub).await {
            Ok((line, record, held)) => {
                hub.state.send_replace(LineState::Open);
                let opened = Instant::now();
                let folder = core.consoles.folder(&record.uid);
                let recording = Recording::new(&core, folder, want.borrow().clone());
                let moved = moved(&core, &hub, &record);
                let ended = pump(line, &hub, &mut typed, &mut want, recording, moved).await;
                hub.goes_to(None);
                drop(held);
                let Some(why) = ended else { continue };
                if opened.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                (why, pause)
            }
            Err((why, is_retryable)) => {
                hub.goes_to(None);
                (why, if is_retryable { pause } else { LONG_PAUSE })
            }
        };
        pause = (pause * 2).min(LONGEST_PAUSE);
        tracing::debug!(node = %hub.node, why, "the console's line is broken");
        hub.state.send_replace(LineState::Broken(why));
        wait(&mut want, jittered(&core, rest)).await;
    }
}

/// Waits for the end of a pause, for somebody in a hurry, or until nothing is wanted any more.
async fn wait(want: &mut watch::Receiver<Want>, pause: Duration) {
    let hurry = want.borrow_and_update().hurry;
    let changed = want.wait_for(|want| want.hurry != hurry || !want.is_any());
    let _ = tokio::time::timeout(pause, changed).await;
}

/// Between half of it and all of it.
fn jittered(core: &Core, pause: Duration) -> Duration {
    let mut byte = [0];
    let _ = core.rng.fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 510
}

type Opened = (Line, NodeRecord, Held);

/// The line, or why there is none and whether the same again may help soon.
async fn open(core: &Core, hub: &Hub) -> Result<Opened, (String, bool)> {
    let record = core.store.node(&Scope::Site, &hub.node).await;
    let record = record.map_err(|error| (error.to_string(), error.is_retryable()))?;
    if let Some(doubt) = &record.node.doubt {
        return Err((format!("the node is doubted: {}", doubt.why), false));
    }
    hub.goes_to(Some(Machine::of(&record)));
    core.consoles.seen(&record);
    let folder = core.consoles.folder(&record.uid);
    let held = Held::take(folder, core.replica.clone()).await;
    let held = held.map_err(|why| (why, true))?;
    let opened = way::open(core, &record).await;
    let line = opened.map_err(|error: WayError| (error.to_string(), error.is_retryable()))?;
    // Opening takes a while: nothing is shown of a machine that the node is no more.
    match look(core, hub, &record).await {
        None => Ok((line, record, held)),
        Some(why) => Err((why, true)),
    }
}

/// Why the line must end: the node is another machine, or none; none while it is the same, and its console is recorded as it
/// is to be now. Other replicas may do its steps, and tell this one nothing.
async fn look(core: &Core, hub: &Hub, opened: &NodeRecord) -> Option<String> {
    match core.store.node(&Scope::Site, &hub.node).await {
        Ok(now) if Machine::of(&now) == Machine::of(opened) => {
            core.consoles.seen(&now);
            None
        }
        Ok(_) => Some("the node has another BMC now".into()),
        Err(StoreError::NotFound { .. }) => {
            hub.set(false, &Holder::default());
            Some("the node is no more".into())
        }
        // Nothing changes hands while the database is away.
        Err(_) => None,
    }
}

/// Waits until the line must end, and says why.
async fn moved(core: &Core, hub: &Hub, opened: &NodeRecord) -> String {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(why) = look(core, hub, opened).await {
            return why;
        }
    }
}

/// Carries bytes in both directions until it breaks or `moved` says that it must end. Why it broke; none when nothing is wanted
/// of it any more.
async fn pump(
    line: Line,
    hub: &Hub,
    typed: &mut mpsc::Receiver<Vec<u8>>,
    want: &mut watch::Receiver<Want>,
    mut recording: Recording,
    moved: impl Future<Output = String>,
) -> Option<String> {
    let mut moved = std::pin::pin!(moved);
    let (mut reader, mut writer): (ReadHalf<Line>, WriteHalf<Line>) = tokio::io::split(line);
    let mut buffer = vec![0; READ];
    // What was typed for a line that broke is not for this one.
    while typed.try_recv().is_ok() {}
    loop {
        let due = recording.due();
        tokio::select! {
            biased;
            changed = want.changed() => {
                let wanted = want.borrow_and_update().clone();
                recording.turn(&wanted).await;
                if changed.is_err() || !wanted.is_any() {
                    return None;
                }
            }
            why = &mut moved => {
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
                    return Some(format!("the line to the console broke: {error}"));
                }
            },
            Some(bytes) = typed.recv() => {
                let sent = async {
                    writer.write_all(&bytes).await?;
                    writer.flush().await
                };
                if !matches!(tokio::time::timeout(TYPE_LIMIT, sent).await, Ok(Ok(()))) {
                    recording.write().await;
                    return Some("the BMC takes no input for the console".into());
                }
            }
        }
    }
    recording.write().await;
    Some("the BMC ended the console".into())
}

/// What is recorded of the line, and not written yet.
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
    fn new(core: &Core, folder: std::path::PathBuf, want: Want) -> Self {
        let bounds = core.consoles.settings().bounds();
        let mut recorder = Recorder::new(folder.clone(), bounds, want.holder.clone());
        recorder.boot(want.boot_us);
        Self {
            recorder: Some(recorder),
            is_on: want.record,
            holder: want.holder,
            boot_us: want.boot_us,
            pending: Vec::new(),
            since: None,
            node: folder,
        }
    }

    /// When what is waiting is to be written.
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

    /// Writes what is waiting, apart from what must not wait for a disk.
    async fn write(&mut self) {
        // One after the other: where nothing is waiting the recorder stays where it is.
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

    /// Another boot, another holder, recorded or not: what came before is written as what it was.
    async fn turn(&mut self, want: &Want) {
        if want.boot_us == self.boot_us && want.holder == self.holder && want.record == self.is_on {
            return;
        }
        self.write().await;
        if let Some(recorder) = &mut self.recorder {
            if want.boot_us != self.boot_us {
                recorder.boot(want.boot_us);
            }
            recorder.hand(want.holder.clone());
        }
        self.boot_us = want.boot_us;
        self.holder.clone_from(&want.holder);
        self.is_on = want.record;
    }
}
