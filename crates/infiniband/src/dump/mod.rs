//! Dumps of `ibnetdiscover` (rdma-core, `infiniband-diags/ibnetdiscover.c`), read and written without loss.
//!
//! A dump has a block for each device: `vendid=`, `devid=`, `sysimgguid=` and `switchguid=0x..(..)`, `caguid=` or
//! `rtguid=`, then `Switch`, `Ca` or `Rt` with the number of ports, the id and the description, then a line for each
//! port that is up. Descriptions may contain any characters, including quotes and `#`. Ports that are down have no
//! line.

mod line;
mod read;
mod write;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::guid::Guid;
use super::model::{DeviceIx, Fabric};
use super::twice::{TwiceGuid, twice};

pub use read::{Limits, read};

/// The content of a dump.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    /// The devices and links.
    pub fabric: Fabric,
    /// Unusable or contradictory parts. At most [`Limits::findings`].
    pub findings: Vec<DumpFinding>,
    /// Number of further findings.
    pub more_findings: usize,
    /// Port GUIDs that answer in several of the joined fabrics.
    pub twice: Vec<TwiceGuid>,
    /// Text that the model does not hold.
    notes: Vec<Note>,
}

impl Dump {
    /// The dumps of several fabrics as one, each with the name of its fabric. `fabric_of` has the fabrics of known ports: a
    /// port with the same GUID in another fabric is a copy and left out. The text that the model does not hold is lost.
    pub fn joined<'a>(dumps: impl IntoIterator<Item = (&'a str, Self)>, fabric_of: &BTreeMap<Guid, Box<str>>) -> Self {
        let dumps: Vec<(&str, Self)> = dumps.into_iter().collect();
        let parts = || dumps.iter().map(|(name, dump)| (*name, &dump.fabric));
        Self {
            fabric: Fabric::joined(parts(), fabric_of),
            twice: twice(parts()),
            more_findings: dumps.iter().map(|(_, dump)| dump.more_findings).sum(),
            findings: dumps.into_iter().flat_map(|(_, dump)| dump.findings).collect(),
            notes: Vec::new(),
        }
    }
}

/// The position of a note in a device's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Lines before the block: comments, chassis.
    Before,
    /// After `sysimgguid=`.
    System,
    /// After `switchguid=`.
    Guid,
    /// After the description.
    Device,
    /// Between a port's number and its peer: the port number on the chassis.
    Outside(u8),
    /// After a port's rate.
    Port(u8),
}

/// Text kept only for the writer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    device: DeviceIx,
    place: Place,
    text: Box<str>,
}

/// A part of a dump that could not be used as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DumpFinding {
    /// Line in the dump, from 1.
    pub line: u32,
    /// The kind of the finding.
    pub kind: DumpFault,
    /// A description.
    pub text: String,
}

impl fmt::Display for DumpFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Kinds of findings in a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DumpFault {
    /// A line of unknown form, which was skipped.
    UnknownLine,
    /// A line longer than any real one, which was skipped.
    LongLine,
    /// Bytes that are not UTF-8, which were replaced.
    NotText,
    /// Two blocks with one GUID: two devices share it, or the fabric changed during the discovery.
    DuplicateDevice,
    /// A port that the device does not have, or that occurs twice.
    BadPort,
    /// The two ends of a link contradict each other.
    Contradiction,
    /// Only one end of a link mentions it.
    OneSided,
    /// An unknown width or speed.
    UnknownRate,
}

/// Why a text is not a dump at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// The dump exceeds the size limit.
    #[error("the dump has {bytes} bytes; the limit is {most}")]
    TooLarge {
        /// Size of the dump, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        most: usize,
    },
    /// The dump exceeds the limit of devices.
    #[error("line {line}: more than {most} devices")]
    TooManyDevices {
        /// Line of the first excess device, from 1.
        line: u32,
        /// The limit.
        most: usize,
    },
    /// The text has no device.
    #[error("no device in {lines} lines: the input must be the output of ibnetdiscover without options{}", hint(.first))]
    NoDevice {
        /// Number of lines.
        lines: u32,
        /// The first unreadable line, such as `line 3: ...`.
        first: Option<String>,
    },
}

fn hint(first: &Option<String>) -> String {
    first.as_ref().map(|first| format!("; {first}")).unwrap_or_default()
}
