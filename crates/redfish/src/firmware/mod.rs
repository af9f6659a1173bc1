//! Firmware: what is installed, and how another version gets there.
//!
//! A BMC takes firmware in up to three ways (DMTF DSP2046, `UpdateService`): a multipart push, a push of the bare file,
//! and `SimpleUpdate`, by which it fetches the file itself. [`BmcClient::start_update`] takes the first that is offered, in
//! the order of the profile. Each ends in a task, which may be asked again after a restart of ours ([`UpdateTicket`]), and
//! which a BMC that restarts forgets: what counts is the version that reads back afterwards.

mod body;
mod inventory;
mod reset;
mod send;
mod track;

pub(crate) use body::{Streamed, Upload};
pub use inventory::{FirmwareEntry, FirmwareState, UpdateOffer};
pub use reset::Activation;
pub use send::{FirmwareImage, UpdateTicket};
pub use track::{UpdateLook, UpdateProgress};
