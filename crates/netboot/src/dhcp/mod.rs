//! DHCP for machines that boot: pure decisions, and the loops that receive and send.

mod answer;
mod boot;
mod pending;
mod reply;
mod request;
mod rogue;
mod server;

pub use answer::{Answer, AnswerKind, Decision, Ignored, decide};
pub use boot::{FirstStage, NoBoot};
pub use reply::{EncodeError, Reply, reply};
pub(crate) use request::sender;
pub use request::{Architecture, Kind, Malformed, MessageKind, Port, Request};

pub(crate) use rogue::listen_for_offers;
pub(crate) use server::serve;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
