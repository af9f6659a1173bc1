//! Dumps by `ibnetdiscover` (rdma-core, `infiniband-diags/ibnetdiscover.c`), read and written without loss.
//!
//! A dump has one block per device: `vendid=`, `devid=`, `sysimgguid=` and `switchguid=0x..(..)`, `caguid=` or `rtguid=`,
//! then `Switch`, `Ca` or `Rt` with the number of ports, the id and the description, then a line per port that is up.
//! Descriptions may hold anything, quotes and `#` too. Ports that are down have no line.

mod line;
mod read;
mod write;

use std::fmt;

use serde::Serialize;

use super::model::{DeviceIx, Fabric};

pub use read::{Limits, read};

/// What a dump says.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    /// The devices and links.
    pub fabric: Fabric,
    /// What could not be used, or contradicts the rest. At most [`Limits::findings`] of them.
    pub findings: Vec<DumpFinding>,
    /// How many findings were left out.
    pub more_findings: usize,
    /// Text that the model has no place for.
    notes: Vec<Note>,
}

/// Where in a device's block a note stands.
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
    /// Between a port's number and its peer: the number on a chassis.
    Outside(u8),
    /// After a port's rate.
    Port(u8),
}

/// Text that was kept for the writer alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    device: DeviceIx,
    place: Place,
    text: Box<str>,
}

/// Something in a dump that could not be used as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DumpFinding {
    /// Line in the dump, from 1.
    pub line: u32,
    /// What is the matter.
    pub kind: DumpFault,
    /// The same for people.
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
    /// A line of no known form; it was left out.
    UnknownLine,
    /// A line of more bytes than any real one; it was left out.
    LongLine,
    /// Bytes that are no UTF-8; they were replaced.
    NotText,
    /// Two blocks of one GUID: two devices share it, or the fabric changed while it was read.
    DuplicateDevice,
    /// A port that the device does not have, or that was told twice.
    BadPort,
    /// The two ends of a link tell different things.
    Contradiction,
    /// Only one end of a link tells of it.
    OneSided,
    /// A width or speed that is not known here.
    UnknownRate,
}

/// Why text is no dump at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// More bytes than are read.
    #[error("the dump has {bytes} bytes, more than the {most} that are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// What is read at most.
        most: usize,
    },
    /// More devices than are read.
    #[error("line {line}: more than {most} devices")]
    TooManyDevices {
        /// Where the first too many stands, from 1.
        line: u32,
        /// What is read at most.
        most: usize,
    },
    /// Nothing in it is a device.
    #[error("no device in {lines} lines: it should be what ibnetdiscover prints without options{}", hint(.first))]
    NoDevice {
        /// How many lines there are.
        lines: u32,
        /// The first that could not be read, as `line 3: ...`.
        first: Option<String>,
    },
}

fn hint(first: &Option<String>) -> String {
    first.as_ref().map(|first| format!("; {first}")).unwrap_or_default()
}
