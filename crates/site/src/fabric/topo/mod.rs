//! Topology files as ibutils and ibdiagnet have them (`.topo`).
//!
//! A section for each system, a line for each of its cabled ports; blank lines and lines with `#` mean nothing:
//!
//! ```text
//! MTS2400 SL1-1
//!     P1 -4x-5G-> MT23108 H-1 P1
//!     P13 -4x-5G-> MTS2400 SL2-1 P1
//! ```
//!
//! The format is described by the manual page ibdm-topo-file(1) of ibutils 1.5.7; width and speed in the arrow, which that
//! page leaves out, are from its reader (`ibdm/Fabric.cpp`, `IBFabric::parseTopology`), with the speeds a lane that came
//! later. A system may be told in its own section, by others that are cabled to it, or by both.
//!
//! What a type of system is made of stands in other files (IBNL), which are not read. So a port is `P5` or `5`, and of a host
//! also `mlx5_3/P1`, `HCA-2/P1` or `U2/P1`; a chassis of several boards (`L1/P3`) is refused. The ports of a host that names
//! no adapter are those of `HCA-1`. There are no GUIDs and no names of cables in such a file.

mod read;
mod write;

pub use write::write;

use super::plan::{Plan, PlanFault};
use super::rate::Speed;

/// Gb/s of one lane, as the arrows have it.
const SPEEDS: [(&str, Speed); 9] = [
    ("2.5", Speed::Sdr),
    ("5", Speed::Ddr),
    ("10", Speed::Qdr),
    ("FDR10", Speed::Fdr10),
    ("14", Speed::Fdr),
    ("25", Speed::Edr),
    ("50", Speed::Hdr),
    ("100", Speed::Ndr),
    ("200", Speed::Xdr),
];

impl Plan {
    /// Reads a topology file.
    ///
    /// # Errors
    /// All faults with their lines, the first 100 of them.
    pub fn from_topo(text: &str) -> Result<Self, Vec<PlanFault>> {
        read::read(text)
    }
}

/// Whether a text is such a file rather than a dump or a list: a system, then a port with an arrow.
#[must_use]
pub fn is_topo(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !read::is_blank(line));
    let system = lines.next().is_some_and(|line| read::system(line).is_ok());
    // A system without cables is followed by the next one.
    let mut rest = lines.take(1000);
    system && rest.any(|line| read::arrow_at(line).is_some())
}
