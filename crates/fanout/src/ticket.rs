//! Tickets: the right of an agent to a customer's image at its peers.
//!
//! Knowledge of the name of a chunk gives no access to it: images of several customers share chunks, and an answer by name
//! would show whether a peer holds that content. So the control plane signs a ticket for each job, and an agent shows it to
//! its peers. This module has the bytes that are signed, and the decision; the signature itself is made and verified by the
//! caller.
//!
//! The first line names the format. Each further line is one field, in this order; one ticket has exactly one encoding:
//!
//! ```text
//! rackwright-peer-ticket-v1
//! image=b3-…
//! customer=customers/physics
//! node=gpu-001
//! generation=7
//! boot=01994d5e-7c1f-7abc-8def-0123456789ab
//! begins=1789996400
//! ends=1790000000
//! ```

use std::fmt;

const VERSION: &str = "rackwright-peer-ticket-v1";
/// Longest field in bytes.
const LONGEST_FIELD: usize = 256;
/// Longest ticket in bytes.
pub const LONGEST_TICKET: usize = 1024;
/// How far the clocks of two agents may differ, in seconds. An agent sets its clock if it differs by more than 2 s from the
/// control plane's.
pub const CLOCK_SKEW_S: i64 = 30;
/// Longest validity of a ticket, in seconds. The control plane signs no longer one.
pub const LONGEST_VALIDITY_S: i64 = 24 * 60 * 60;

/// The content of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The image version, `b3-` and its digest.
    pub image: String,
    /// The customer of the job; empty for a job without one.
    pub customer: String,
    /// The node that the ticket is for, as in its agent's certificate.
    pub node: String,
    /// The claim generation that the ticket is for, as in its agent's certificate.
    pub generation: u64,
    /// The boot that the ticket is for, as in its agent's certificate.
    pub boot: String,
    /// When it was signed, in Unix seconds.
    pub begins: i64,
    /// When it ends, in Unix seconds.
    pub ends: i64,
}

/// Why bytes are no ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketError {
    /// Longer than every ticket.
    TooLong,
    /// Not the one encoding of a ticket of this version.
    Form,
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the ticket is longer than {LONGEST_TICKET} bytes"),
            Self::Form => write!(f, "the ticket is not of the form {VERSION}"),
        }
    }
}

impl std::error::Error for TicketError {}

impl Ticket {
    /// The bytes that are signed.
    ///
    /// # Errors
    /// A field is too long, or has a line break.
    pub fn encode(&self) -> Result<String, TicketError> {
        let fields = [&self.image, &self.customer, &self.node, &self.boot];
        if fields.iter().any(|field| field.len() > LONGEST_FIELD) {
            return Err(TicketError::TooLong);
        }
        if fields.iter().any(|field| field.chars().any(char::is_control)) {
            return Err(TicketError::Form);
        }
        let Self {
            image,
            customer,
            node,
            generation,
            boot,
            begins,
            ends,
        } = self;
        let text = format!(
            "{VERSION}\nimage={image}\ncustomer={customer}\nnode={node}\ngeneration={generation}\nboot={boot}\n\
             begins={begins}\nends={ends}\n"
        );
        if text.len() > LONGEST_TICKET {
            return Err(TicketError::TooLong);
        }
        Ok(text)
    }

    /// Reads the bytes of [`Ticket::encode`]. The caller has verified their signature.
    ///
    /// # Errors
    /// The bytes are no ticket.
    pub fn parse(bytes: &[u8]) -> Result<Self, TicketError> {
        if bytes.len() > LONGEST_TICKET {
            return Err(TicketError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| TicketError::Form)?;
        let mut lines = text.split('\n');
        let mut field = |name: &str| {
            let value = lines.next().and_then(|line| line.strip_prefix(name));
            value.ok_or(TicketError::Form)
        };
        field(VERSION)?;
        let ticket = Self {
            image: field("image=")?.to_owned(),
            customer: field("customer=")?.to_owned(),
            node: field("node=")?.to_owned(),
            generation: field("generation=")?.parse().map_err(|_| TicketError::Form)?,
            boot: field("boot=")?.to_owned(),
            begins: field("begins=")?.parse().map_err(|_| TicketError::Form)?,
            ends: field("ends=")?.parse().map_err(|_| TicketError::Form)?,
        };
        // Encoded again, only the one encoding is the same.
        if ticket.encode()?.as_bytes() == bytes {
            Ok(ticket)
        } else {
            Err(TicketError::Form)
        }
    }
}

/// The agent at the other end of a connection, as in its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<'a> {
    /// The node's id without `nodes/`.
    pub node: &'a str,
    /// The claim generation of the node when the certificate was issued.
    pub generation: u64,
    /// The boot in which the agent registered.
    pub boot: &'a str,
}

/// The job of the agent that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnJob {
    /// The image version that it writes.
    pub image: String,
    /// The customer; empty for none.
    pub customer: String,
    /// Whether the image is the operator's and open to every customer.
    pub is_public: bool,
}

/// Why a peer is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The ticket is for another machine, boot or claim than the certificate of the connection.
    OtherHolder,
    /// The ticket is for another image than the one that this agent writes.
    OtherImage,
    /// The ticket is for another customer, and the image is not public.
    OtherCustomer,
    /// The ticket begins later.
    NotYet,
    /// The ticket has ended.
    Ended,
    /// The validity of the ticket is longer than allowed, or ends before it begins.
    TooLong,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherHolder => {
                "the ticket is for another machine, boot or claim than the certificate of this connection"
            }
            Self::OtherImage => "the ticket is for another image than the one that this agent writes",
            Self::OtherCustomer => "the ticket is for another customer than the one of this agent's job",
            Self::NotYet => "the ticket begins later than now; compare the clocks of the two agents",
            Self::Ended => {
                "the ticket has ended; ask the control plane for a new one, and compare the clocks if it is new"
            }
            Self::TooLong => "the ticket is valid for more than a day, or ends before it begins",
        })
    }
}

impl std::error::Error for Refusal {}

/// Whether an agent serves a peer. `holder` is the agent in the certificate of the peer's connection; `now` is the time of
/// the serving agent's clock, in Unix seconds.
///
/// # Errors
/// The reason of the refusal. The peer learns nothing about chunks from it.
pub fn admit(ticket: &Ticket, own: &OwnJob, holder: Holder<'_>, now: i64) -> Result<(), Refusal> {
    let of_ticket = Holder {
        node: &ticket.node,
        generation: ticket.generation,
        boot: &ticket.boot,
    };
    if of_ticket != holder || holder.boot.is_empty() {
        return Err(Refusal::OtherHolder);
    }
    if ticket.image != own.image {
        return Err(Refusal::OtherImage);
    }
    if ticket.customer != own.customer && !own.is_public {
        return Err(Refusal::OtherCustomer);
    }
    if ticket.begins > now.saturating_add(CLOCK_SKEW_S) {
        return Err(Refusal::NotYet);
    }
    if now.saturating_sub(CLOCK_SKEW_S) >= ticket.ends {
        return Err(Refusal::Ended);
    }
    if ticket.begins >= ticket.ends || ticket.ends.saturating_sub(ticket.begins) > LONGEST_VALIDITY_S {
        return Err(Refusal::TooLong);
    }
    Ok(())
}
