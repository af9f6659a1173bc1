//! Fabric managers: Rackwright reads an InfiniBand fabric through them and sets which ports may communicate.
//!
//! `rackwright-site` computes the partitions and judges a fabric; this crate reads and writes. [`FabricManager`] is the one
//! trait. [`OpenSm`] and [`Ufm`] implement it, and [`Managers`] joins the managers of several fabrics. [`Diags`] runs the
//! tools of `infiniband-diags` with which both read ports. Every tool and every request is bounded in time and in size.

mod diags;
mod error;
mod fence;
mod manager;
mod opensm;
mod several;
mod tool;
mod ufm;

pub use diags::{Diags, PortErrors, end_ports};
pub use error::FabricError;
pub use fence::{Fence, Unshared};
pub use manager::{Applied, FabricManager, Inspection, ManagerFault, Master, PartitionFile, Proof, Reading};
pub use opensm::{OpenSm, OpenSmSettings, Process};
pub use several::Managers;
pub use tool::{ToolError, ToolSettings, Tools};
pub use ufm::{Ufm, UfmAccess, UfmError, UfmSettings};
