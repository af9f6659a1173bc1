//! Topology files of ibutils and ibdiagnet (`.topo`).
//!
//! The file has a section for each system, with a line for each of its cabled ports. Blank lines and lines with `#` are
//! ignored:
//!
//! ```text
//! MTS2400 SL1-1
//!     P1 -4x-5G-> MT23108 H-1 P1
//!     P13 -4x-5G-> MTS2400 SL2-1 P1
//! ```
//!
//! The format comes from the manual page ibdm-topo-file(1) of ibutils 1.5.7. That page omits width and speed in the
//! arrow, which come from the reader (`ibdm/Fabric.cpp`, `IBFabric::parseTopology`), with the later lane speeds added.
//! A system may appear in its own section, in the lines of systems connected to it, or in both.
//!
//! The components of a type of system are defined in other files (IBNL), which are not read. So a port is `P5` or `5`,
//! and for a host also `mlx5_3/P1`, `HCA-2/P1` or `U2/P1`. A chassis of several boards (`L1/P3`) is refused. If a
//! host's port names no adapter, the adapter is `HCA-1`. The file has no GUIDs and no cable names.

mod read;
mod write;

pub use write::write;

use super::plan::{Plan, PlanFault};
use super::rate::Speed;

/// Lane speeds in Gb/s, as in the arrows.
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
    /// The first 100 faults, with their lines.
    pub fn from_topo(text: &str) -> Result<Self, Vec<PlanFault>> {
        read::read(text)
    }
}

/// Whether a text is a topology file and not a dump or a list: it has a system, followed by a port with an arrow.
#[must_use]
pub fn is_topo(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !read::is_blank(line));
    let system = lines.next().is_some_and(|line| read::system(line).is_ok());
    // A system without cables may be followed by the next system.
    let mut rest = lines.take(1000);
    system && rest.any(|line| read::arrow_at(line).is_some())
}
