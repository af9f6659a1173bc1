//! The InfiniBand fat-tree: the plan, the discovered fabric, and their differences in words for a technician.

pub mod adapter;
pub mod check;
pub mod dump;
pub mod guid;
pub mod model;
pub mod name;
pub mod partition;
pub mod plan;
mod plan_csv;
pub mod rail;
pub mod rate;
pub mod structure;
pub mod topo;
pub mod tree;
pub mod twice;

pub use check::{CableFault, FaultKind, check};
pub use dump::{Dump, DumpError};
pub use guid::Guid;
pub use model::{Device, DeviceIx, DeviceKind, Fabric, FabricBuilder, Link, LinkIx, Port, PortRef, Role};
pub use partition::{KeyPool, Membership, PKey, Partition, Partitions, Tables};
pub use plan::{Plan, PlanFault, PlannedCable, PlannedDevice};
pub use rate::{Rate, Speed, Width};
pub use structure::Structure;
pub use tree::FatTree;
