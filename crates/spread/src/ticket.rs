//! The part of a job that lets an agent ask other agents for chunks, and serve them.

use rackwright_api::v1;
use rackwright_fanout::{LONGEST_VALIDITY_S, Ticket, TicketError};
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Claim, NodeId, Timestamp};
use rackwright_peers::SignedTicket;
use rackwright_store::AgentSession;

/// How long a ticket outlives the deadline of its job, in seconds: the agent reports its end, and serves its rack.
const EXTRA_S: i64 = 120;
/// Signing keys in force: the present one, and the one before it, with which a replica signs that has not yet taken up the
/// present one.
const KEYS: usize = 2;

/// What the agent of this session needs, for a job that ends at `deadline`. `None`: agents do not serve each other here.
///
/// # Errors
/// A name is too long for a ticket.
pub fn peers(
    core: &Core,
    (node, of): (&NodeId, &AgentSession),
    claim: &Claim,
    (now, deadline): (Timestamp, Timestamp),
) -> Result<Option<v1::Peers>, TicketError> {
    let Some(port) = core.config.images.peer_port() else {
        return Ok(None);
    };
    let customer = match claim.customer.as_str() {
        "" => String::new(),
        id => format!("customers/{id}"),
    };
    let begins = now.0.div_euclid(1_000_000);
    let ends = deadline.0.div_euclid(1_000_000).saturating_add(EXTRA_S);
    let ticket = Ticket {
        image: claim.image_digest.clone(),
        customer: customer.clone(),
        node: node.as_str().to_owned(),
        generation: of.generation,
        boot: of.boot.clone(),
        begins,
        ends: ends.clamp(begins.saturating_add(1), begins.saturating_add(LONGEST_VALIDITY_S)),
    };
    let signed = SignedTicket::sign(&ticket, &core.keys.signer)?;
    let keys = core.keys.signer.keys();
    Ok(Some(v1::Peers {
        ticket: signed.text().to_vec(),
        ticket_signature: signed.signature().to_vec(),
        ticket_keys: keys
            .iter()
            .rev()
            .take(KEYS)
            .map(|key| key.public_key.to_vec())
            .collect(),
        customer,
        // Images belong to the site, and every customer may have them written.
        is_public: true,
        port: u32::from(port),
    }))
}

#[cfg(test)]
#[path = "ticket_tests.rs"]
mod tests;
