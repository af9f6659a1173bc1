//! Decisions of the fan-out of images between agents. Pure: no clock, no file, no network, no dependency.
//!
//! | module | content |
//! |---|---|
//! | `units` | moments, spans, and the numbers of chunks, agents, racks and peers |
//! | `bits` | sets of chunks, as shown to peers |
//! | `download` | one agent: which peer it asks for which chunk, when it claims, which chunks it gives up |
//! | `peers` | one agent: what it knows about the others of its rack |
//! | `uploads` | one agent: which request it answers next |
//! | `shelf` | one agent: which chunks stay in memory for peers |
//! | `claims` | the control plane: which chunk a rack fetches from outside, from where, and until when |
//! | `rate` | the control plane: how fast it takes the messages of one agent |
//! | `linger` | the simulator: which agents stay for their racks after their own writes |
//! | `ticket` | the right of an agent to an image at its peers: the signed bytes, and the check |
//! | `simulation` | a hall in which these decisions are measured |
//!
//! `docs/fanout.md` states what the product uses today.

#![forbid(unsafe_code)]

mod bits;
mod chance;
mod claims;
mod download;
mod linger;
mod peers;
mod rate;
mod shelf;
pub mod simulation;
mod ticket;
mod units;
mod uploads;

pub use bits::{Bits, BitsError};
pub use chance::Chance;
pub use claims::{ClaimTable, Grant, OriginCounts, TableSettings};
pub use download::{Download, DownloadCounts, DownloadSettings, Source, Step};
pub use linger::{LONGEST_LINGER, Linger, LingerFacts, linger};
pub use peers::MOST_PEERS;
pub use rate::MessageRate;
pub use shelf::{Kept, Shelf, memory_for_peers};
pub use ticket::{
    CLOCK_SKEW_S, Holder, LONGEST_TICKET, LONGEST_VALIDITY_S, OwnJob, Refusal, Ticket, TicketError, admit,
};
pub use units::{AgentNo, Chunk, Moment, Outside, PeerNo, RackNo, Span};
pub use uploads::{UploadSettings, Uploads};
