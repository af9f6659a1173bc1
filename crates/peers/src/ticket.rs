//! Tickets with the signature of the control plane: Ed25519 (RFC 8032) over the bytes of [`Ticket::encode`]. The first line
//! of these bytes keeps the signature from being valid for anything else that the same key signs.

use std::fmt;

use rackwright_fanout::{LONGEST_TICKET, Refusal, Ticket, TicketError};
use rackwright_identity::CertificateSigner;

/// Length of a signature in bytes.
pub const SIGNATURE_BYTES: usize = 64;

/// A ticket and its signature. Only [`SignedTicket::verify`] tells whether the signature is right.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedTicket {
    text: Vec<u8>,
    signature: [u8; SIGNATURE_BYTES],
}

impl fmt::Debug for SignedTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedTicket")
            .field("text", &String::from_utf8_lossy(&self.text))
            .finish_non_exhaustive()
    }
}

/// Why a ticket gives no right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketRefusal {
    /// No key of the control plane has signed it, or it is no ticket.
    #[error("the ticket has no valid signature of the control plane")]
    Unsigned,
    /// The ticket gives no right at this agent.
    #[error("{0}")]
    Refused(Refusal),
}

impl SignedTicket {
    /// Signs a ticket. Only the control plane has a signer.
    ///
    /// # Errors
    /// A field of the ticket is too long, or has a line break.
    pub fn sign(ticket: &Ticket, signer: &CertificateSigner) -> Result<Self, TicketError> {
        let text = ticket.encode()?.into_bytes();
        let mut signature = [0; SIGNATURE_BYTES];
        signature.copy_from_slice(&signer.sign(&text));
        Ok(Self { text, signature })
    }

    /// A ticket that came from elsewhere.
    ///
    /// # Errors
    /// The text is longer than every ticket.
    pub fn new(text: Vec<u8>, signature: [u8; SIGNATURE_BYTES]) -> Result<Self, TicketError> {
        if text.len() > LONGEST_TICKET {
            return Err(TicketError::TooLong);
        }
        Ok(Self { text, signature })
    }

    /// The signed bytes.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The signature over [`SignedTicket::text`].
    #[must_use]
    pub fn signature(&self) -> &[u8; SIGNATURE_BYTES] {
        &self.signature
    }

    /// The ticket, if one of these keys has signed it.
    ///
    /// # Errors
    /// [`TicketRefusal::Unsigned`]
    pub fn verify(&self, keys: &[[u8; 32]]) -> Result<Ticket, TicketRefusal> {
        let is_signed = |key: &[u8; 32]| CertificateSigner::verify(key, &self.text, &self.signature).is_ok();
        if !keys.iter().any(is_signed) {
            return Err(TicketRefusal::Unsigned);
        }
        Ticket::parse(&self.text).map_err(|_| TicketRefusal::Unsigned)
    }
}
