//! The health of GPU nodes and of their components, as values. Pure: no clock, no file, no network.
//!
//! | module | content |
//! |---|---|
//! | `component` | what can be at fault: a kind and an id |
//! | `rated` | rated, seen and least figures of GPUs by SKU, with their sources (`data/figures.txt`) |
//! | `threshold` | the threshold of a figure among like components, and the verdict on a measurement |
//! | `errors` | errors in NVIDIA's log lines: component, severity, remedy (`data/nvidia-errors.txt`) |
//! | `facts` | what the probe program reads, as lines of text |
//! | `passive` | the passive checks: facts in, components at fault out |
//! | `groups` | faults in a cluster: groups of nodes, suspects, culprits; and the simulation that measures the search |
//!
//! `docs/health.md` states what the product uses today.

#![forbid(unsafe_code)]

mod component;
mod errors;
pub mod facts;
pub mod groups;
pub mod passive;
mod rated;
mod table;
mod threshold;

pub use component::{Component, Kind};
pub use errors::{ErrorCatalogue, KnownError, List, Remedy, Severity};
pub use rated::{Figure, FigureKind, Figures};
pub use table::TableError;
pub use threshold::{FLEET_MIN, Like, Measured, Sample, Threshold, ThresholdSource, Verdict, judge, threshold};
