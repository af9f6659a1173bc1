//! Firmware: the installed versions, and their update.
//!
//! A BMC accepts firmware in up to three ways (DMTF DSP2046, `UpdateService`): a multipart push, a push of the bare file,
//! and `SimpleUpdate`, by which the BMC fetches the file itself. [`BmcClient::start_update`] uses the first offered way in
//! the order of the profile. Each way ends in a task. The task can be polled after a restart of this program
//! ([`UpdateTicket`]), but a BMC forgets it when the BMC restarts: the version that reads back afterwards decides.

mod inventory;
mod reset;
mod send;
mod track;

pub use inventory::{FirmwareEntry, FirmwareState, UpdateOffer};
pub use reset::Activation;
pub use send::{FirmwareImage, UpdateTicket};
pub use track::{UpdateLook, UpdateProgress};
