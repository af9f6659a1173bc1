//! The interface between a BMC and its machine. The lab's machines and the fleet's implement the same trait.

use super::firmware::Firmware;
use super::update::UpdateSettings;
use super::words::{BootOverride, BootTarget, PowerState, ResetRefused, ResetType};
use async_trait::async_trait;
use http::Method;
use std::path::Path;

/// The machine behind a BMC, and the faults of the BMC itself.
#[async_trait]
pub trait Host: Send + Sync {
    /// The description of the machine.
    fn description(&self) -> Description;

    /// The current state of the machine.
    fn state(&self) -> State;

    /// The name of the BMC's one account.
    fn user(&self) -> &str;

    /// Checks name and password of the account.
    fn admits(&self, user: &str, password: &str) -> bool;

    /// Requests a reset; returns when it is accepted, which may be long before it is carried out.
    async fn reset(&self, reset: ResetType) -> Result<Accepted, ResetRefused>;

    /// Sets the boot override. The error is a sentence.
    async fn set_boot(&self, boot: BootOverride) -> Result<(), String>;

    /// Puts the image at `url` into the virtual media drive, which is empty.
    async fn insert_media(&self, url: &str) -> Result<(), MediaRefused>;

    /// Empties the virtual media drive. The error is a sentence.
    async fn eject_media(&self) -> Result<(), String>;

    /// Called for each request before all else; returns after the delay of a slow BMC.
    async fn inject_fault(&self, request_line: RequestLine<'_>) -> RequestFault;

    /// The BMC's tasks, oldest first; `None` if it has no task service.
    fn tasks(&self) -> Option<Vec<Task>> {
        None
    }

    /// How the BMC accepts firmware; `None` if it has no update service.
    fn updates(&self) -> Option<UpdateSettings> {
        None
    }

    /// Seconds by which the BMC's clock is ahead.
    fn clock_skew_s(&self) -> i64 {
        0
    }

    /// Waits until the power state differs from `known`, and returns it. A state without duration may be missed.
    async fn wait_power_change(&self, known: PowerState) -> PowerState;

    /// The machine's power and temperature; `None` if it has no sensors.
    fn climate(&self) -> Option<Climate> {
        None
    }

    /// Whether the BMC has BIOS settings.
    fn has_settings(&self) -> bool {
        false
    }

    /// Runs `act` on the BIOS settings; does nothing if the BMC has none.
    fn firmware(&self, _act: &mut dyn FnMut(&mut Firmware)) {}

    /// Whether BIOS settings are locked, because a job waits for the next start.
    fn settings_are_busy(&self) -> bool {
        false
    }

    /// Time after a start until a settings job ends; `None` if the BMC makes no jobs of changes.
    fn settings_jobs_last(&self) -> Option<std::time::Duration> {
        None
    }

    /// The Unix socket of the serial port, which exists while the machine is on. It accepts one client.
    fn serial(&self) -> Option<&Path> {
        None
    }

    /// Whether the BMC is unreachable.
    fn is_down(&self) -> bool {
        false
    }

    /// Deletes a task that has ended; `false` if there is none of that number.
    fn forget_task(&self, _number: u64) -> bool {
        false
    }
}

/// The sensor readings of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Climate {
    pub watts: f64,
    pub inlet_celsius: f64,
    pub board_celsius: f64,
}

/// How a BMC offers the machine's serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsoleKind {
    /// By an SSH server at this port.
    Ssh(u16),
    /// By a WebSocket of the web server.
    WebSocket,
    /// By IPMI at this UDP port.
    Ipmi(u16),
}

/// The description of a machine. Created for each request, so that thousands of machines need not store it.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    pub name: String,
    pub manufacturer: &'static str,
    pub model: &'static str,
    /// Product name of the BMC.
    pub bmc_model: &'static str,
    pub serial: String,
    /// Lower case.
    pub uuid: String,
    pub uefi: bool,
    pub secure_boot: bool,
    pub tpm: bool,
    pub reset_types: &'static [ResetType],
    /// How the serial port is reached, if there is one.
    pub console: Option<ConsoleKind>,
    pub processors: Vec<Processor>,
    pub memory: Vec<MemoryModule>,
    pub nics: Vec<Nic>,
    pub drives: Vec<Drive>,
}

impl Description {
    /// Boot targets that the firmware offers.
    pub fn targets(&self) -> impl Iterator<Item = BootTarget> {
        let uefi = self.uefi;
        let offered = move |target: &BootTarget| uefi || *target != BootTarget::UefiHttp;
        BootTarget::ALL.into_iter().filter(offered)
    }

    /// The boot mode, as Redfish writes it.
    pub fn boot_mode(&self) -> &'static str {
        if self.uefi { "UEFI" } else { "Legacy" }
    }

    /// Memory of all modules in MiB.
    pub fn memory_mib(&self) -> u64 {
        self.memory.iter().map(|module| module.mib).sum()
    }
}

/// A CPU or a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    pub id: String,
    /// Redfish's `ProcessorType`.
    pub kind: &'static str,
    pub manufacturer: &'static str,
    pub model: &'static str,
    /// 0 for a processor without countable cores.
    pub cores: u32,
    pub threads: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryModule {
    pub id: String,
    pub manufacturer: &'static str,
    pub mib: u64,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    pub id: String,
    /// Lower case with colons.
    pub mac: String,
}

/// A drive; its id is its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    pub manufacturer: &'static str,
    pub model: &'static str,
    pub serial: String,
    pub bytes: u64,
    /// Redfish's `Protocol`, if it has a value for it.
    pub protocol: Option<&'static str>,
}

/// The state of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub power: PowerState,
    /// Whether it has power now, also during a transition.
    pub powered: bool,
    pub boot: BootOverride,
    /// Counts changes of the boot override; the ETag is derived from it.
    pub boot_generation: u64,
    /// URL of the medium in the virtual media drive.
    pub media: Option<String>,
    /// Why the last power-on failed.
    pub fault: Option<String>,
}

/// How a reset was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The effect shows in the machine's state.
    Silently,
    /// A task of this number follows it.
    AsTask(u64),
}

/// Why an image was not inserted. Both variants hold a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaRefused {
    /// The image cannot be fetched.
    Unreachable(String),
    /// The machine cannot use the image.
    Failed(String),
}

/// A task that follows a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub number: u64,
    pub name: String,
    pub progress: Progress,
    /// Unix time, seconds.
    pub started_s: u64,
    /// Unix time, seconds; for a task that has ended.
    pub ended_s: Option<u64>,
}

/// The progress of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Running,
    Completed,
    /// A later request replaced it, or the machine failed.
    Failed,
}

/// The parts of a request on which a fault may depend.
#[derive(Debug, Clone, Copy)]
pub struct RequestLine<'a> {
    pub method: &'a Method,
    pub path: &'a str,
}

/// The effect of a faulty BMC on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// No effect: the request is answered.
    None,
    /// The connection ends without an answer.
    HangUp,
    /// 503 with `Retry-After`.
    Unavailable { retry_after_s: u32 },
    /// No session is opened: all sessions of the BMC are in use.
    SessionsFull,
    /// The request is answered, and the answer is then corrupted.
    BadAnswer(BadAnswer),
}

/// How an answer is corrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadAnswer {
    /// A page of HTML with status 200.
    Html,
    /// JSON that is cut off in the middle.
    Truncated,
    /// Status 500 with Redfish's general error.
    InternalError,
    /// Every text except a link becomes a number, every number a text.
    Types,
}
