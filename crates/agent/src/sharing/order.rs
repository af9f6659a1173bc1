//! The check of the message `Peers` of a job.

use std::io;
use std::net::SocketAddr;

use rackwright_api::v1::Peers;
use rackwright_fanout::OwnJob;
use rackwright_identity::TlsError;
use rackwright_image::{ImageDigest, WriteError};
use rackwright_peers::SignedTicket;
use thiserror::Error;

/// Most keys that sign tickets.
const MOST_KEYS: usize = 16;
/// Longest name of a customer in bytes.
const LONGEST_CUSTOMER: usize = 256;

/// Why an image is written without the help of other agents. The job goes on.
#[derive(Debug, Error)]
pub enum NoPeers {
    /// The job's data about peers are wrong: a bug of the control plane, or another version.
    #[error("the job's {0}")]
    Order(&'static str),
    /// The agent has no certificate of a boot.
    #[error("the agent has no certificate that other agents accept")]
    NoCertificate,
    /// The agent's certificate or the authorities cannot be used.
    #[error("TLS with other agents: {0}")]
    Tls(#[from] TlsError),
    /// No control plane is known.
    #[error("no URL of the control plane is known")]
    NoServer,
    /// The address from which the machine reaches the control plane is unknown.
    #[error("the machine's own address is unknown")]
    NoAddress,
    /// The port is in use, or the address is not the machine's own.
    #[error("the agent cannot listen at {at}: {source}")]
    Listen {
        /// Address and port.
        at: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The memory does not suffice, or no thread can be made.
    #[error(transparent)]
    Buffers(#[from] WriteError),
    /// The kernel returns no random bytes.
    #[error("{0}")]
    Random(io::Error),
    /// The job does not run in the agent's runtime.
    #[error("no runtime for connections")]
    NoRuntime,
}

/// The message `Peers` after the check.
pub(super) struct Order {
    pub(super) ticket: SignedTicket,
    pub(super) keys: Vec<[u8; 32]>,
    pub(super) job: OwnJob,
    pub(super) port: u16,
}

impl Order {
    pub(super) fn of(peers: &Peers, image: &ImageDigest) -> Result<Self, NoPeers> {
        let signature = <[u8; 64]>::try_from(&*peers.ticket_signature);
        let signature = signature.map_err(|_| NoPeers::Order("ticket's signature is not 64 bytes long"))?;
        let ticket = SignedTicket::new(peers.ticket.clone(), signature);
        let ticket = ticket.map_err(|_| NoPeers::Order("ticket is too long"))?;
        if peers.ticket_keys.is_empty() || peers.ticket_keys.len() > MOST_KEYS {
            return Err(NoPeers::Order("number of ticket keys is not 1 to 16"));
        }
        let keys = peers.ticket_keys.iter().map(|key| <[u8; 32]>::try_from(&**key));
        let keys = keys.collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(|_| NoPeers::Order("ticket keys are not 32 bytes long"))?;
        // Other agents have the same keys.
        let verified = ticket.verify(&keys);
        verified.map_err(|_| NoPeers::Order("ticket is not signed by one of its keys"))?;
        if peers.customer.len() > LONGEST_CUSTOMER {
            return Err(NoPeers::Order("customer's name is too long"));
        }
        let port = u16::try_from(peers.port).ok().filter(|port| *port != 0);
        Ok(Self {
            ticket,
            keys,
            job: OwnJob {
                image: image.to_string(),
                customer: peers.customer.clone(),
                is_public: peers.is_public,
            },
            port: port.ok_or(NoPeers::Order("port for other agents is not 1 to 65535"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use rackwright_fanout::Ticket;
    use rackwright_identity::{CertificateSigner, SystemRng};

    use super::*;

    fn peers() -> Peers {
        let signer = CertificateSigner::generate(&SystemRng).unwrap();
        let ticket = Ticket {
            image: ImageDigest::of(b"index").to_string(),
            customer: "customers/physics".into(),
            node: "gpu-001".into(),
            generation: 7,
            boot: "boot".into(),
            begins: 1000,
            ends: 2000,
        };
        let ticket = SignedTicket::sign(&ticket, &signer).unwrap();
        Peers {
            ticket: ticket.text().to_vec(),
            ticket_signature: ticket.signature().to_vec(),
            ticket_keys: vec![signer.public_key().to_vec()],
            customer: "customers/physics".into(),
            is_public: false,
            port: 7444,
        }
    }

    #[test]
    fn a_wrong_order_is_refused_with_its_fault() {
        let image = ImageDigest::of(b"index");
        let good = peers();
        let order = Order::of(&good, &image).unwrap();
        assert_eq!((order.port, order.job.image), (7444, image.to_string()));
        type Change = fn(&mut Peers);
        let faults: [(Change, &str); 9] = [
            (|peers| _ = peers.ticket_signature.pop(), "not 64 bytes"),
            (|peers| peers.ticket = vec![b'x'; 2000], "too long"),
            (|peers| peers.ticket[3] ^= 1, "signed"),
            (|peers| peers.ticket_keys.clear(), "number of ticket keys"),
            (
                |peers| peers.ticket_keys = vec![vec![0; 32]; 17],
                "number of ticket keys",
            ),
            (|peers| _ = peers.ticket_keys[0].pop(), "not 32 bytes"),
            (|peers| peers.customer = "c".repeat(257), "customer"),
            (|peers| peers.port = 0, "port"),
            (|peers| peers.port = 65_536, "port"),
        ];
        for (change, fault) in faults {
            let mut wrong = good.clone();
            change(&mut wrong);
            let Err(error) = Order::of(&wrong, &image) else {
                panic!("accepted: {fault}")
            };
            assert!(error.to_string().contains(fault), "{error}");
        }
    }
}
