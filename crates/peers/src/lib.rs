//! The exchange of an image's chunks between agents: the server that an agent runs beside its own write, and the client that
//! asks other agents.
//!
//! | module | content |
//! |---|---|
//! | `ticket` | a ticket with the control plane's signature |
//! | `wire` | the bytes of requests and answers |
//! | `frame` | frames that were compared with the image's index |
//! | `store` | the frames that an agent keeps in memory for others |
//! | `places` | the limits of connections |
//! | `counted` | a stream that counts what is written to it |
//! | `server` | answers the requests of other agents |
//! | `client` | asks other agents; remembers which of them lied |
//! | `checks` | what the workers of a download share |
//! | `spread` | the download of one image: carries out the decisions of `fanout` with client, store and image servers |
//!
//! The crate decides nothing about the spread. The crate `fanout` decides which agent is asked, which request comes first
//! and what is kept. `docs/fanout.md` has the bytes, and states what the product uses today.

#![forbid(unsafe_code)]

mod checks;
mod client;
mod counted;
mod frame;
mod places;
mod server;
mod spread;
mod store;
mod ticket;
mod wire;

pub use client::{Answer, AskError, ClientSettings, Holdings, PeerAddress, PeerClient, UncheckedFrame, WrongBytes};
pub use frame::{FrameCheck, FrameError, VerifiedFrame};
pub use server::{Clock, Heard, PeerServer, ServerCounts, ServerSettings, Serving};
pub use spread::{FromTable, PATIENCE, Spread, SpreadChannels, SpreadEnd, SpreadError, Take, ToTable};
pub use store::FrameStore;
pub use ticket::{SIGNATURE_BYTES, SignedTicket, TicketRefusal};
