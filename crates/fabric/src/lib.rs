//! Fabric managers: how Rackwright reads an InfiniBand fabric and tells it who may talk to whom.
//!
//! What partitions should be and what is wrong with a fabric is decided in `rackwright-site`; this crate gathers and does.
//! [`FabricManager`] is the one trait; [`OpenSm`] and [`Ufm`] are behind it, [`Diags`] runs the tools of
//! `infiniband-diags` that both read ports with. Every tool and every request is bounded in time and in size.

mod diags;
mod error;
mod manager;
mod opensm;
mod tool;
mod ufm;

pub use diags::{Diags, PortErrors, end_ports};
pub use error::FabricError;
pub use manager::{Applied, FabricManager, Proof, Reading};
pub use opensm::{OpenSm, OpenSmSettings, Process};
pub use tool::{ToolError, ToolSettings, Tools};
pub use ufm::{Ufm, UfmAccess, UfmError, UfmSettings};
