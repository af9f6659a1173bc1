//! Conformance: what everything above relies on when it keeps something. Only the public API, on a fresh database for
//! every test. The same tests run on both databases; `crate::database::Fresh` is a database of the kind at hand.

mod accounts;
mod agents;
mod audit;
mod bmc_log;
mod bmc_state;
mod boot;
mod changes;
mod clusters;
mod console;
mod discoveries;
mod drives;
mod effects;
mod facility;
mod filters;
mod firmware;
mod images;
mod leases;
mod log;
mod members;
mod nodes;
mod operations;
mod permits;
mod races;
mod replicas;
mod requests;
mod resting;
mod restored;
mod sealed;
mod seated;
mod settings;
mod sites;
pub mod support;
mod tenants;
mod terms;
mod tokens;
mod usage;
