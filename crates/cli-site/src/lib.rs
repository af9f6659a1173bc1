//! Commands of `rackwright` for the planned datacenter: its site files, its fabrics and its power. Most of them work from
//! files and need no control plane.

pub mod fabric;
pub mod power;
pub mod site;
