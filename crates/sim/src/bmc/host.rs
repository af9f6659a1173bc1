//! What a BMC needs of the machine that it manages. The lab's machines and the fleet's stand behind the same service.

use super::firmware::Firmware;
use super::update::UpdateWays;
use super::words::{BootOverride, BootTarget, PowerState, ResetRefused, ResetType};
use async_trait::async_trait;
use http::Method;
use std::path::Path;

/// The machine behind a BMC, and what is broken about the BMC itself.
#[async_trait]
pub(crate) trait Host: Send + Sync {
    /// What it is.
    fn description(&self) -> Description;

    /// What it is doing.
    fn state(&self) -> State;

    /// The name of the BMC's one account.
    fn user(&self) -> &str;

    /// Whether these are name and password of the account.
    fn admits(&self, user: &str, password: &str) -> bool;

    /// Asks for a reset; returns when it is accepted, which may be long before it is done.
    async fn reset(&self, reset: ResetType) -> Result<Accepted, ResetRefused>;

    /// Sets the boot override. The error is a sentence.
    async fn set_boot(&self, boot: BootOverride) -> Result<(), String>;

    /// Puts the image at `url` into the virtual media drive, which is empty.
    async fn insert_media(&self, url: &str) -> Result<(), MediaRefused>;

    /// Empties the virtual media drive. The error is a sentence.
    async fn eject_media(&self) -> Result<(), String>;

    /// Called for each request before anything else; waits as long as the BMC is slow.
    async fn suffer(&self, asked: Asked<'_>) -> Ordeal;

    /// The BMC's tasks, oldest first; `None` if it has no task service.
    fn tasks(&self) -> Option<Vec<Task>> {
        None
    }

    /// How the BMC takes firmware; `None` if it has no update service.
    fn updates(&self) -> Option<UpdateWays> {
        None
    }

    /// How far the BMC's clock is ahead, in seconds.
    fn clock_skew_s(&self) -> i64 {
        0
    }

    /// Waits until the power state is another one than `known`; answers it. One that lasts no time may be missed.
    async fn power_other_than(&self, known: PowerState) -> PowerState;

    /// What the machine draws and how warm it is; `None` where nothing measures that.
    fn climate(&self) -> Option<Climate> {
        None
    }

    /// Whether the BMC knows settings of the firmware.
    fn has_settings(&self) -> bool {
        false
    }

    /// Has `act` done to the settings of the firmware; not at all where the BMC knows none.
    fn firmware(&self, _act: &mut dyn FnMut(&mut Firmware)) {}

    /// Whether settings of the firmware cannot be written now, because a job waits for the next start.
    fn settings_are_busy(&self) -> bool {
        false
    }

    /// How long after a start the job takes that a BMC makes of a change of settings; `None` if it makes none.
    fn settings_jobs_last(&self) -> Option<std::time::Duration> {
        None
    }

    /// The Unix socket of the serial port, there while the machine is on. It takes one client.
    fn serial(&self) -> Option<&Path> {
        None
    }

    /// Whether nobody hears of the BMC.
    fn is_down(&self) -> bool {
        false
    }

    /// Forgets a task that has ended; `false` if there is none of that number.
    fn forget_task(&self, _number: u64) -> bool {
        false
    }
}

/// What sensors of a machine read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Climate {
    pub(crate) watts: f64,
    pub(crate) inlet_celsius: f64,
    pub(crate) board_celsius: f64,
}

/// How a BMC offers the machine's serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsoleWay {
    /// By an SSH server at this port.
    Ssh(u16),
    /// By a WebSocket of the web server.
    WebSocket,
    /// By IPMI at this UDP port.
    Ipmi(u16),
}

/// What a machine is. Made anew for each request, so that thousands of machines need not keep it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) manufacturer: &'static str,
    pub(crate) model: &'static str,
    /// Product name of the BMC.
    pub(crate) bmc_model: &'static str,
    pub(crate) serial: String,
    /// Lower case.
    pub(crate) uuid: String,
    pub(crate) uefi: bool,
    pub(crate) secure_boot: bool,
    pub(crate) tpm: bool,
    pub(crate) reset_types: &'static [ResetType],
    /// How the serial port is reached, where it is.
    pub(crate) console: Option<ConsoleWay>,
    pub(crate) processors: Vec<Processor>,
    pub(crate) memory: Vec<MemoryModule>,
    pub(crate) nics: Vec<Nic>,
    pub(crate) drives: Vec<Drive>,
}

impl Description {
    /// Boot targets that the firmware offers.
    pub(crate) fn targets(&self) -> impl Iterator<Item = BootTarget> {
        let uefi = self.uefi;
        let offered = move |target: &BootTarget| uefi || *target != BootTarget::UefiHttp;
        BootTarget::ALL.into_iter().filter(offered)
    }

    /// The boot mode, as Redfish writes it.
    pub(crate) fn boot_mode(&self) -> &'static str {
        if self.uefi { "UEFI" } else { "Legacy" }
    }

    /// Memory of all modules in MiB.
    pub(crate) fn memory_mib(&self) -> u64 {
        self.memory.iter().map(|module| module.mib).sum()
    }
}

/// A CPU or a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Processor {
    pub(crate) id: String,
    /// Redfish's `ProcessorType`.
    pub(crate) kind: &'static str,
    pub(crate) manufacturer: &'static str,
    pub(crate) model: &'static str,
    /// 0 for what has no cores to count.
    pub(crate) cores: u32,
    pub(crate) threads: u32,
}

/// A memory module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryModule {
    pub(crate) id: String,
    pub(crate) manufacturer: &'static str,
    pub(crate) mib: u64,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nic {
    pub(crate) id: String,
    /// Lower case with colons.
    pub(crate) mac: String,
}

/// A drive; its id is its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drive {
    pub(crate) manufacturer: &'static str,
    pub(crate) model: &'static str,
    pub(crate) serial: String,
    pub(crate) bytes: u64,
    /// Redfish's `Protocol`, where it has a word for it.
    pub(crate) protocol: Option<&'static str>,
}

/// What a machine is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) power: PowerState,
    /// Whether it has power, whatever it is about to do.
    pub(crate) powered: bool,
    pub(crate) boot: BootOverride,
    /// Counts changes of the boot override; the ETag is made of it.
    pub(crate) boot_generation: u64,
    /// URL of the medium in the virtual media drive.
    pub(crate) media: Option<String>,
    /// Why the last power-on failed.
    pub(crate) fault: Option<String>,
}

/// How a reset was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// What comes of it shows in the machine's state.
    Silently,
    /// A task of this number follows it.
    AsTask(u64),
}

/// Why an image was not inserted. Both hold a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MediaRefused {
    /// The image cannot be had.
    Unreachable(String),
    /// The machine cannot take it.
    Failed(String),
}

/// A task that follows a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) progress: Progress,
    /// Unix time, seconds.
    pub(crate) started_s: u64,
    /// Unix time, seconds; for a task that has ended.
    pub(crate) ended_s: Option<u64>,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Completed,
    /// A later request took its place, or the machine failed.
    Failed,
}

/// A request, as far as a fault may depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
}

/// What happens to a request on a BMC that is not well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ordeal {
    /// Nothing: it is answered.
    None,
    /// The connection ends without an answer.
    HangUp,
    /// 503 with `Retry-After`.
    Unavailable { retry_after_s: u32 },
    /// No session is opened: as many as the BMC holds are open.
    SessionsFull,
    /// It is answered, and the answer is then spoilt.
    Spoilt(Spoilt),
}

/// How an answer is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoilt {
    /// A page of HTML with status 200.
    Html,
    /// JSON that ends in its middle.
    Truncated,
    /// Status 500 with Redfish's general error.
    InternalError,
    /// Every text that is no link is a number, every number a text.
    Types,
}
