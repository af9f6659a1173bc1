//! Measured boot: the programs, files and commands of a machine's start, from an event log that replays to the quoted
//! values.
//!
//! | PCR | measured by | what | source |
//! |---|---|---|---|
//! | 4 | firmware, shim | the Authenticode digest of each EFI program | TCG "PC Client Platform Firmware Profile" |
//! | 8 | grub | each command, and the kernel's command line | GNU GRUB manual, "Measuring boot components" |
//! | 9 | grub | each file that it reads | the same |
//! | 9 | Linux EFI stub | the load options | Linux, `drivers/firmware/efi/libstub` |

use std::collections::BTreeSet;

use crate::log::{Event, Log};
use crate::pcr::Values;
use crate::sha256;

const EV_IPL: u32 = 0x0d;
const EV_EVENT_TAG: u32 = 0x06;
const EV_EFI_BOOT_SERVICES_APPLICATION: u32 = 0x8000_0003;
const COMMAND: &str = "grub_cmd: ";
const KERNEL_COMMAND_LINE: &str = "kernel_cmdline: ";
/// The tag of the EFI stub's event for its load options.
const LOAD_OPTIONS_TAG: u32 = 0x8f3b_22ed;

/// Arguments of the kernel's command line that differ from boot to boot. They give an attacker nothing: the agent
/// accepts only a server that the pinned CA vouches for.
const BOOT_ARGUMENTS: [&str; 6] = ["server", "caurl", "token", "mac", "ip", "gw"];

/// The registers that prove the boot. The log must replay to each of them.
pub const REGISTERS: [u8; 3] = [4, 8, 9];

/// SHA-256 of a program or a file.
pub type Digest = [u8; 32];

/// The boot files and settings that a control plane serves to machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Authenticode digests of the boot programs and of the kernel.
    pub programs: BTreeSet<Digest>,
    /// SHA-256 of the kernel's file.
    pub kernel: Digest,
    /// SHA-256 of the ramdisk's file.
    pub ramdisk: Digest,
    /// The values of `rackwright.ca` that the control plane sends.
    pub authorities: BTreeSet<String>,
    /// Arguments that the settings append to the kernel's command line, in order.
    pub arguments: Vec<String>,
}

/// The programs, files and commands of a machine's start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boot {
    /// Authenticode digests of the EFI programs, in order.
    pub programs: Vec<Digest>,
    /// SHA-256 of the files that the boot loader read, in order. The log's file names are not measured.
    pub files: Vec<Digest>,
    /// Commands of the boot loader, in order.
    pub commands: Vec<String>,
    /// Command lines of the kernel. A boot loader that loads a kernel again measures more than one.
    pub command_lines: Vec<String>,
}

/// Why the boot is not proven to match the served boot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootMismatch {
    /// The log does not replay to this register.
    #[error("the event log does not replay to PCR {0}")]
    Replay(u8),
    /// The text of an event does not match its digest.
    #[error("the event log has a text in PCR {0} that does not match its digest")]
    ForgedText(u8),
    /// The boot loaders that are served never make this event.
    #[error("the event log has an unknown measurement of kind {kind:#x} in PCR {pcr}")]
    UnknownEvent {
        /// The extended register.
        pcr: u8,
        /// The event's type.
        kind: u32,
    },
    /// This boot method leaves files unmeasured.
    #[error(
        "the ramdisk and the kernel's command line were not measured: iPXE does not measure them. Boot with boot_loader: \
         shim-grub"
    )]
    NotMeasured,
    /// The machine started an EFI program that is not served.
    #[error("the machine started an EFI program that is not served (Authenticode digest {0})")]
    Program(String),
    /// The kernel's digest differs.
    #[error("the kernel is not the served kernel ({0})")]
    Kernel(String),
    /// A ramdisk's digest differs, or the machine read an additional ramdisk.
    #[error("the ramdisk is not the served ramdisk ({0})")]
    Ramdisk(String),
    /// The served configuration does not contain this command.
    #[error("the boot loader ran {0:?}; no served configuration has this command")]
    Command(String),
    /// The numbers of measured files and of commands that read files differ.
    #[error("the boot loader read {files} files, but its commands name {commands} files")]
    Files {
        /// Number of measured files.
        files: usize,
        /// Number of files that the commands name.
        commands: usize,
    },
    /// The kernel's command line differs.
    #[error("the kernel's command line differs from the served command line at {0:?}")]
    CommandLine(String),
}

/// The file that a command of the boot loader reads.
enum CommandInput {
    Nothing,
    Configuration,
    Kernel,
    Ramdisk,
}

impl Boot {
    /// Reads the events of the boot loader's registers from a log, after comparing the log's replay with the quoted
    /// values.
    ///
    /// # Errors
    /// The log does not replay, the text of an event is not the measured text, or the event's type is unknown.
    pub fn read(log: &Log<'_>, quoted: &Values) -> Result<Self, BootMismatch> {
        let replayed = log.replay();
        for pcr in REGISTERS {
            let value = |values: &Values| values.get(&pcr).copied().unwrap_or_default();
            if value(&replayed) != value(quoted) {
                return Err(BootMismatch::Replay(pcr));
            }
        }
        let mut boot = Self::default();
        for event in &log.events {
            match event.pcr {
                4 if event.kind == EV_EFI_BOOT_SERVICES_APPLICATION => boot.programs.push(event.digest),
                8 => boot.text(event)?,
                9 => boot.file(event)?,
                _ => {}
            }
        }
        Ok(boot)
    }

    fn text(&mut self, event: &Event<'_>) -> Result<(), BootMismatch> {
        let (pcr, kind) = (event.pcr, event.kind);
        let text = printable_text(event.data).filter(|_| kind == EV_IPL);
        let text = text.ok_or(BootMismatch::UnknownEvent { pcr, kind })?;
        let (list, measured) = if let Some(line) = text.strip_prefix(KERNEL_COMMAND_LINE) {
            (&mut self.command_lines, line)
        } else if let Some(command) = text.strip_prefix(COMMAND) {
            (&mut self.commands, command)
        } else {
            return Err(BootMismatch::UnknownEvent { pcr, kind });
        };
        if sha256(&[measured.as_bytes()]) != event.digest {
            return Err(BootMismatch::ForgedText(pcr));
        }
        list.push(measured.to_owned());
        Ok(())
    }

    fn file(&mut self, event: &Event<'_>) -> Result<(), BootMismatch> {
        let is_load_options = event.kind == EV_EVENT_TAG && event.data.starts_with(&LOAD_OPTIONS_TAG.to_le_bytes());
        match event.kind {
            EV_IPL => self.files.push(event.digest),
            // grub has measured the same line as text. Without grub, the ramdisk is not measured and the boot is
            // refused anyway.
            EV_EVENT_TAG if is_load_options => {}
            kind => return Err(BootMismatch::UnknownEvent { pcr: event.pcr, kind }),
        }
        Ok(())
    }

    /// Compares the boot programs, kernel, ramdisk and kernel command line with the served boot. Arguments of a single
    /// boot may differ.
    ///
    /// # Errors
    /// The first difference.
    pub fn judge(&self, served: &Served) -> Result<(), BootMismatch> {
        let mut programs = self.programs.iter();
        if let Some(other) = programs.find(|digest| !served.programs.contains(*digest)) {
            return Err(BootMismatch::Program(hex(other)));
        }
        if self.files.is_empty() || self.command_lines.is_empty() {
            return Err(BootMismatch::NotMeasured);
        }
        self.judge_files(served)?;
        let [line] = self.command_lines.as_slice() else {
            return Err(BootMismatch::CommandLine("a second kernel".into()));
        };
        judge_line(line, served)
    }

    /// The order of events within a register is measured, so the commands that read a file and the files correspond one
    /// to one.
    fn judge_files(&self, served: &Served) -> Result<(), BootMismatch> {
        let mut reads = Vec::new();
        for command in &self.commands {
            match input_of(command).ok_or_else(|| BootMismatch::Command(command.clone()))? {
                CommandInput::Nothing => {}
                read => reads.push(read),
            }
        }
        if reads.len() != self.files.len() {
            return Err(BootMismatch::Files {
                files: self.files.len(),
                commands: reads.len(),
            });
        }
        let (mut kernels, mut ramdisks) = (0, 0);
        for (read, file) in reads.iter().zip(&self.files) {
            match read {
                CommandInput::Kernel if *file != served.kernel => return Err(BootMismatch::Kernel(hex(file))),
                CommandInput::Ramdisk if *file != served.ramdisk => return Err(BootMismatch::Ramdisk(hex(file))),
                CommandInput::Kernel => kernels += 1,
                CommandInput::Ramdisk => ramdisks += 1,
                // A configuration acts only through its commands, and each command is measured.
                CommandInput::Configuration | CommandInput::Nothing => {}
            }
        }
        match (kernels, ramdisks) {
            (1, 1) => Ok(()),
            (1, many) => Err(BootMismatch::Ramdisk(format!("{many} ramdisks were loaded"))),
            (many, _) => Err(BootMismatch::Kernel(format!("{many} kernels were loaded"))),
        }
    }
}

/// The file that a command of a served configuration reads. `None`: no served configuration has this command.
fn input_of(command: &str) -> Option<CommandInput> {
    let mut words = command.split(' ');
    let name = words.next()?;
    match (name, words.count()) {
        ("[", _) | ("set" | "echo" | "sleep" | "true" | "boot" | "exit", _) => Some(CommandInput::Nothing),
        ("source" | "configfile", 1) => Some(CommandInput::Configuration),
        // `linux` reads the kernel. Its command line is measured a second time.
        ("linux", 1..) => Some(CommandInput::Kernel),
        ("initrd", 1) => Some(CommandInput::Ramdisk),
        _ => None,
    }
}

fn judge_line(line: &str, served: &Served) -> Result<(), BootMismatch> {
    let mut arguments = served.arguments.iter();
    let mut has_authority = false;
    // The first word is the path of the kernel.
    for word in line.split(' ').skip(1) {
        let ours = word.strip_prefix("rackwright.").and_then(|word| word.split_once('='));
        let is_served = match ours {
            Some(("ca", authority)) => {
                let is_first = !std::mem::replace(&mut has_authority, true);
                is_first && served.authorities.contains(authority)
            }
            Some((name, _)) if BOOT_ARGUMENTS.contains(&name) => true,
            _ => arguments.next().is_some_and(|argument| argument == word),
        };
        if !is_served {
            return Err(BootMismatch::CommandLine(shown(word)));
        }
    }
    match arguments.next() {
        Some(missing) => Err(BootMismatch::CommandLine(format!("{missing} is missing"))),
        None if !has_authority => Err(BootMismatch::CommandLine("rackwright.ca is missing".into())),
        None => Ok(()),
    }
}

/// The argument's name, short enough for a message. The value is omitted because it may hold a token.
fn shown(word: &str) -> String {
    let name = word.split('=').next().unwrap_or_default();
    name.chars().take(64).collect()
}

fn hex(digest: &Digest) -> String {
    crate::sha256_text(digest)
}

/// A text with or without a zero byte at its end.
fn printable_text(data: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(data).ok()?;
    let text = text.strip_suffix('\0').unwrap_or(text);
    (!text.contains(char::is_control)).then_some(text)
}
