//! Measured boot: which programs, files and commands a machine started with, by an event log that replays to quoted values.
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

/// Words of the kernel's command line that differ from boot to boot. The agent takes no other server than one that the pinned
/// CA vouches for, so that none of them opens anything.
const OF_THE_BOOT: [&str; 6] = ["server", "caurl", "token", "mac", "ip", "gw"];

/// The registers that a judgement of the boot rests on. The log has to replay to each of them.
pub const REGISTERS: [u8; 3] = [4, 8, 9];

/// SHA-256 of a program or a file.
pub type Digest = [u8; 32];

/// What a control plane serves to machines that boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Authenticode digests of the boot programs and of the kernel.
    pub programs: BTreeSet<Digest>,
    /// SHA-256 of the kernel's file.
    pub kernel: Digest,
    /// SHA-256 of the ramdisk's file.
    pub ramdisk: Digest,
    /// Values of `rackwright.ca` that the control plane gives.
    pub authorities: BTreeSet<String>,
    /// What the settings add to the kernel's command line, in order.
    pub arguments: Vec<String>,
}

/// What a machine started with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boot {
    /// Authenticode digests of the EFI programs, in their order.
    pub programs: Vec<Digest>,
    /// SHA-256 of the files that the boot loader read, in their order. The names that a log has for them are not measured.
    pub files: Vec<Digest>,
    /// Commands of the boot loader, in their order.
    pub commands: Vec<String>,
    /// The kernel's command lines; more than one where a boot loader loaded a kernel again.
    pub command_lines: Vec<String>,
}

/// Why a boot is not proven to be the one that was served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// The log and the registers differ.
    #[error("the event log does not replay to PCR {0}")]
    Replay(u8),
    /// A text was not what the register was extended with.
    #[error("the event log has a text in PCR {0} that is not the measured one")]
    ForgedText(u8),
    /// An event that no boot loader of ours makes.
    #[error("the event log has an unknown measurement of kind {kind:#x} in PCR {pcr}")]
    UnknownEvent {
        /// The register.
        pcr: u8,
        /// The event's type.
        kind: u32,
    },
    /// The way of booting leaves a gap.
    #[error(
        "the ramdisk and the kernel's command line were not measured: iPXE does not measure them. Boot with boot_loader: \
         shim-grub"
    )]
    NotMeasured,
    /// Another program was started.
    #[error("the machine started an EFI program that is not served (Authenticode digest {0})")]
    Program(String),
    /// Another kernel.
    #[error("the kernel is not the one that is served ({0})")]
    Kernel(String),
    /// Another ramdisk, or one more.
    #[error("the ramdisk is not the one that is served ({0})")]
    Ramdisk(String),
    /// A command of the boot loader.
    #[error("the boot loader ran {0:?}, which is in no configuration that is served")]
    Command(String),
    /// Commands and files do not match.
    #[error("the boot loader read {files} files, and its commands name {commands}")]
    Files {
        /// Measured files.
        files: usize,
        /// Files that the commands name.
        commands: usize,
    },
    /// The kernel's command line.
    #[error("the kernel's command line differs from the one that is served at {0:?}")]
    CommandLine(String),
}

/// What a command of the boot loader read.
enum Reads {
    Nothing,
    Configuration,
    Kernel,
    Ramdisk,
}

impl Boot {
    /// Reads the events of the boot loader's registers in a log, and compares the log's replay with the quoted values.
    ///
    /// # Errors
    /// The log does not replay, or an event has a text that was not measured or is of no known kind.
    pub fn read(log: &Log<'_>, quoted: &Values) -> Result<Self, Unproven> {
        let replayed = log.replay();
        for pcr in REGISTERS {
            let value = |values: &Values| values.get(&pcr).copied().unwrap_or_default();
            if value(&replayed) != value(quoted) {
                return Err(Unproven::Replay(pcr));
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

    fn text(&mut self, event: &Event<'_>) -> Result<(), Unproven> {
        let (pcr, kind) = (event.pcr, event.kind);
        let text = words(event.data).filter(|_| kind == EV_IPL);
        let text = text.ok_or(Unproven::UnknownEvent { pcr, kind })?;
        let (list, measured) = if let Some(line) = text.strip_prefix(KERNEL_COMMAND_LINE) {
            (&mut self.command_lines, line)
        } else if let Some(command) = text.strip_prefix(COMMAND) {
            (&mut self.commands, command)
        } else {
            return Err(Unproven::UnknownEvent { pcr, kind });
        };
        if sha256(&[measured.as_bytes()]) != event.digest {
            return Err(Unproven::ForgedText(pcr));
        }
        list.push(measured.to_owned());
        Ok(())
    }

    fn file(&mut self, event: &Event<'_>) -> Result<(), Unproven> {
        let is_load_options = event.kind == EV_EVENT_TAG && event.data.starts_with(&LOAD_OPTIONS_TAG.to_le_bytes());
        match event.kind {
            EV_IPL => self.files.push(event.digest),
            // grub measured the same line as text. Without grub, the ramdisk is not measured and the boot is refused anyway.
            EV_EVENT_TAG if is_load_options => {}
            kind => return Err(Unproven::UnknownEvent { pcr: event.pcr, kind }),
        }
        Ok(())
    }

    /// Compares the boot with what is served: boot programs, kernel, ramdisk, and the kernel's command line but for the words of
    /// the one boot.
    ///
    /// # Errors
    /// The first difference.
    pub fn judge(&self, served: &Served) -> Result<(), Unproven> {
        let mut programs = self.programs.iter();
        if let Some(other) = programs.find(|digest| !served.programs.contains(*digest)) {
            return Err(Unproven::Program(hex(other)));
        }
        if self.files.is_empty() || self.command_lines.is_empty() {
            return Err(Unproven::NotMeasured);
        }
        self.judge_files(served)?;
        let [line] = self.command_lines.as_slice() else {
            return Err(Unproven::CommandLine("a second kernel".into()));
        };
        judge_line(line, served)
    }

    /// The order of events within a register is measured. So the commands that read a file and the files belong to each other
    /// one by one.
    fn judge_files(&self, served: &Served) -> Result<(), Unproven> {
        let mut reads = Vec::new();
        for command in &self.commands {
            match read_by(command).ok_or_else(|| Unproven::Command(command.clone()))? {
                Reads::Nothing => {}
                read => reads.push(read),
            }
        }
        if reads.len() != self.files.len() {
            return Err(Unproven::Files {
                files: self.files.len(),
                commands: reads.len(),
            });
        }
        let (mut kernels, mut ramdisks) = (0, 0);
        for (read, file) in reads.iter().zip(&self.files) {
            match read {
                Reads::Kernel if *file != served.kernel => return Err(Unproven::Kernel(hex(file))),
                Reads::Ramdisk if *file != served.ramdisk => return Err(Unproven::Ramdisk(hex(file))),
                Reads::Kernel => kernels += 1,
                Reads::Ramdisk => ramdisks += 1,
                // A configuration does nothing but by its commands, and each of them is measured.
                Reads::Configuration | Reads::Nothing => {}
            }
        }
        match (kernels, ramdisks) {
            (1, 1) => Ok(()),
            (1, many) => Err(Unproven::Ramdisk(format!("{many} were loaded"))),
            (many, _) => Err(Unproven::Kernel(format!("{many} were loaded"))),
        }
    }
}

/// What a command of a served configuration reads; none: no such command is served.
fn read_by(command: &str) -> Option<Reads> {
    let mut words = command.split(' ');
    let name = words.next()?;
    match (name, words.count()) {
        ("[", _) | ("set" | "echo" | "sleep" | "true" | "boot" | "exit", _) => Some(Reads::Nothing),
        ("source" | "configfile", 1) => Some(Reads::Configuration),
        // The kernel, and its command line that is measured once more.
        ("linux", 1..) => Some(Reads::Kernel),
        ("initrd", 1) => Some(Reads::Ramdisk),
        _ => None,
    }
}

fn judge_line(line: &str, served: &Served) -> Result<(), Unproven> {
    let mut arguments = served.arguments.iter();
    let mut has_authority = false;
    // The first word is the kernel's path.
    for word in line.split(' ').skip(1) {
        let ours = word.strip_prefix("rackwright.").and_then(|word| word.split_once('='));
        let is_served = match ours {
            Some(("ca", authority)) => {
                let is_first = !std::mem::replace(&mut has_authority, true);
                is_first && served.authorities.contains(authority)
            }
            Some((name, _)) if OF_THE_BOOT.contains(&name) => true,
            _ => arguments.next().is_some_and(|argument| argument == word),
        };
        if !is_served {
            return Err(Unproven::CommandLine(shown(word)));
        }
    }
    match arguments.next() {
        Some(missing) => Err(Unproven::CommandLine(format!("{missing} is missing"))),
        None if !has_authority => Err(Unproven::CommandLine("rackwright.ca is missing".into())),
        None => Ok(()),
    }
}

/// A word of a measured text, short enough for a message. A word may hold a token.
fn shown(word: &str) -> String {
    let name = word.split('=').next().unwrap_or_default();
    name.chars().take(64).collect()
}

fn hex(digest: &Digest) -> String {
    crate::sha256_text(digest)
}

/// A text with or without a zero at its end.
fn words(data: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(data).ok()?;
    let text = text.strip_suffix('\0').unwrap_or(text);
    (!text.contains(char::is_control)).then_some(text)
}
