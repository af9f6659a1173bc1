//! The interface between a BMC and its machine. The lab's machines and the fleet's implement the same trait.

use super::firmware::Firmware;
use super::update::UpdateSettings;
use super::words::{BootOverride, BootTarget, PowerState, ResetRefused, ResetType};
use async_trait::async_trait;
use http::Method;
use std::path::Path;

/// The machine behind a BMC, and the faults of the BMC itself.
#[async_trait]
pub(crate) trait Host: Send + Sync {
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
    async fn power_other_than(&self, known: PowerState) -> PowerState;

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
pub(crate) struct Climate {
    pub(crate) watts: f64,
    pub(crate) inlet_celsius: f64,
    pub(crate) board_celsius: f64,
}

/// How a BMC offers the machine's serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsoleKind {
    /// By an SSH server at this port.
    Ssh(u16),
    /// By a WebSocket of the web server.
    WebSocket,
    /// By IPMI at this UDP port.
    Ipmi(u16),
}

/// The description of a machine. Created for each request, so that thousands of machines need not store it.
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
    /// How the serial port is reached, if there is one.
    pub(crate) console: Option<ConsoleKind>,
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
    /// 0 for a processor without countable cores.
    pub(crate) cores: u32,
    pub(crate) threads: u32,
}

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

/// A drive; its id is its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drive {
    pub(crate) manufacturer: &'static str,
    pub(crate) model: &'static str,
    pub(crate) serial: String,
    pub(crate) bytes: u64,
    /// Redfish's `Protocol`, if it has a value for it.
    pub(crate) protocol: Option<&'static str>,
}

/// The state of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) power: PowerState,
    /// Whether it has power now, also during a transition.
    pub(crate) powered: bool,
    pub(crate) boot: BootOverride,
    /// Counts changes of the boot override; the ETag is derived from it.
    pub(crate) boot_generation: u64,
    /// URL of the medium in the virtual media drive.
    pub(crate) media: Option<String>,
    /// Why the last power-on failed.
    pub(crate) fault: Option<String>,
}

/// How a reset was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The effect shows in the machine's state.
    Silently,
    /// A task of this number follows it.
    AsTask(u64),
}

/// Why an image was not inserted. Both variants hold a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MediaRefused {
    /// The image cannot be fetched.
    Unreachable(String),
    /// The machine cannot use the image.
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

/// The progress of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Completed,
    /// A later request replaced it, or the machine failed.
    Failed,
}

/// The parts of a request on which a fault may depend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
}

/// The effect of a faulty BMC on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFault {
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
pub(crate) enum BadAnswer {
    /// A page of HTML with status 200.
    Html,
    /// JSON that is cut off in the middle.
    Truncated,
    /// Status 500 with Redfish's general error.
    InternalError,
    /// Every text except a link becomes a number, every number a text.
    Types,
}
