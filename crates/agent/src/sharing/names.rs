//! The messages of the claim stream. It names agents by their nodes; the decisions count them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use rackwright_api::v1::chunk_message::Message as Up;
use rackwright_api::v1::grant_message::Message as Down;
use rackwright_api::v1::{ChunkCame, ChunkGrant, ClaimChunk, GrantMessage, PeerAgent, WrongChunk};
use rackwright_fanout::{AgentNo, Chunk};
use rackwright_identity::ClientIdentity;
use rackwright_peers::{FromTable, PeerAddress, ToTable};
use thiserror::Error;

/// Most agents that are known in one job.
const MOST_AGENTS: usize = 1 << 16;
/// A longer lease in a message counts as one of this length.
const LONGEST_LEASE: Duration = Duration::from_secs(600);
/// Longest reason of a report, in characters.
const LONGEST_REASON: usize = 200;

/// Why a message of the control plane is not used. A bug of the control plane, or another version.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum BadMessage {
    #[error("the message is of an unknown kind")]
    Unknown,
    #[error("the image has no chunk {0}")]
    NoChunk(u32),
    #[error("{0:?} at {1:?} is no agent")]
    NoAgent(String, String),
    #[error("it names this agent itself")]
    Itself,
    #[error("it names more than {MOST_AGENTS} agents")]
    TooMany,
}

/// The agents that the control plane has named in one job.
pub(super) struct Names {
    own: ClientIdentity,
    chunks: u32,
    numbers: HashMap<ClientIdentity, AgentNo>,
    /// The names of the nodes, by the agents' numbers.
    nodes: Vec<String>,
}

impl Names {
    pub(super) fn new(own: ClientIdentity, chunks: u32) -> Self {
        Self {
            own,
            chunks,
            numbers: HashMap::new(),
            nodes: Vec::new(),
        }
    }

    /// The chunk that a message grants, also if the rest of the message is wrong.
    pub(super) fn granted(message: &GrantMessage) -> Option<u32> {
        match &message.message {
            Some(Down::Grant(grant)) => Some(grant.chunk),
            Some(Down::Mate(_)) | None => None,
        }
    }

    pub(super) fn read(&mut self, message: GrantMessage) -> Result<FromTable, BadMessage> {
        match message.message.ok_or(BadMessage::Unknown)? {
            Down::Mate(agent) => {
                let (number, address) = self.agent(agent, false)?;
                Ok(FromTable::Mate(number, address))
            }
            Down::Grant(ChunkGrant {
                chunk,
                source,
                lease_ms,
            }) => {
                if chunk >= self.chunks {
                    return Err(BadMessage::NoChunk(chunk));
                }
                Ok(FromTable::Granted {
                    chunk: Chunk(chunk),
                    from: source.map(|source| self.agent(source, true)).transpose()?,
                    lease: Duration::from_millis(lease_ms.into()).min(LONGEST_LEASE),
                })
            }
        }
    }

    fn agent(&mut self, agent: PeerAgent, is_outside: bool) -> Result<(AgentNo, PeerAddress), BadMessage> {
        let PeerAgent {
            node,
            claim_generation,
            boot,
            address,
        } = agent;
        let id = node.strip_prefix("nodes/");
        let identity = id.and_then(|id| ClientIdentity::agent_of_boot(id, claim_generation, &boot).ok());
        let at = address.parse::<SocketAddr>().ok().filter(|at| at.port() != 0);
        let (Some(identity), Some(at)) = (identity, at) else {
            let shown = |text: String| text.chars().take(LONGEST_REASON).collect();
            return Err(BadMessage::NoAgent(shown(node), shown(address)));
        };
        if identity == self.own {
            return Err(BadMessage::Itself);
        }
        let number = match self.numbers.get(&identity) {
            Some(number) => *number,
            None => {
                let next = u32::try_from(self.nodes.len()).ok();
                let next = next.filter(|next| (*next as usize) < MOST_AGENTS);
                let number = AgentNo(next.ok_or(BadMessage::TooMany)?);
                self.numbers.insert(identity.clone(), number);
                self.nodes.push(node);
                number
            }
        };
        let address = PeerAddress {
            at,
            agent: identity,
            is_outside,
        };
        Ok((number, address))
    }

    /// `None`: the message names an agent that the control plane has not named.
    pub(super) fn to_wire(&self, message: ToTable) -> Option<Up> {
        let node = |number: AgentNo| self.nodes.get(number.0 as usize).cloned();
        Some(match message {
            ToTable::Claim { wanted, held, stuck } => Up::Claim(ClaimChunk {
                wanted,
                held: held.to_bytes(),
                stuck: stuck.into_iter().map(|chunk| chunk.0).collect(),
            }),
            ToTable::Done { chunk, held } => Up::Came(ChunkCame {
                chunk: chunk.0,
                held: held.to_bytes(),
            }),
            ToTable::Failed(chunk) => Up::Failed(chunk.0),
            ToTable::Unreachable(agent) => Up::Unreachable(node(agent)?),
            ToTable::SentWrongBytes { agent, reason } => Up::Wrong(WrongChunk {
                node: node(agent)?,
                reason: reason.chars().take(LONGEST_REASON).collect(),
            }),
            ToTable::Alone => Up::IsAlone(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use rackwright_fanout::Bits;

    use super::*;

    fn names() -> Names {
        Names::new(ClientIdentity::agent_of_boot("gpu-001", 7, "boot-1").unwrap(), 10)
    }

    fn agent(node: &str, address: &str) -> PeerAgent {
        PeerAgent {
            node: node.into(),
            claim_generation: 7,
            boot: "boot-1".into(),
            address: address.into(),
        }
    }

    fn mate(agent: PeerAgent) -> GrantMessage {
        GrantMessage {
            message: Some(Down::Mate(agent)),
        }
    }

    fn grant(chunk: u32, source: Option<PeerAgent>) -> GrantMessage {
        let lease_ms = u32::MAX;
        GrantMessage {
            message: Some(Down::Grant(ChunkGrant {
                chunk,
                source,
                lease_ms,
            })),
        }
    }

    #[test]
    fn an_agent_keeps_its_number_and_another_boot_is_another_agent() {
        let mut names = names();
        let mut number = |agent| match names.read(mate(agent)).unwrap() {
            FromTable::Mate(number, address) => (number, address.at.to_string()),
            other => panic!("{other:?}"),
        };
        let second = agent("nodes/gpu-002", "[2001:db8::2]:7444");
        assert_eq!(number(second.clone()), (AgentNo(0), "[2001:db8::2]:7444".to_owned()));
        let booted = PeerAgent {
            boot: "boot-2".into(),
            ..second.clone()
        };
        assert_eq!(number(booted).0, AgentNo(1));
        assert_eq!(number(second).0, AgentNo(0));
        let up = names.to_wire(ToTable::Unreachable(AgentNo(1)));
        assert_eq!(up, Some(Up::Unreachable("nodes/gpu-002".into())));
        assert_eq!(names.to_wire(ToTable::Unreachable(AgentNo(2))), None);
        let held = Bits::full(10);
        let Some(Up::Came(came)) = names.to_wire(ToTable::Done { chunk: Chunk(3), held }) else {
            panic!("no message")
        };
        assert_eq!((came.chunk, came.held), (3, vec![0xff, 3]));
    }

    #[test]
    fn wrong_messages_are_refused() {
        let mut names = names();
        let faults = [
            GrantMessage { message: None },
            mate(agent("gpu-002", "10.0.0.2:7444")),
            mate(agent("nodes/gpu 2", "10.0.0.2:7444")),
            mate(agent("nodes/gpu-002", "gpu-002:7444")),
            mate(agent("nodes/gpu-002", "10.0.0.2:0")),
            mate(agent("nodes/gpu-001", "10.0.0.1:7444")),
            mate(PeerAgent {
                boot: String::new(),
                ..agent("nodes/gpu-002", "10.0.0.2:7444")
            }),
            grant(10, None),
            grant(1, Some(agent("", ""))),
        ];
        for message in faults {
            assert!(names.read(message.clone()).is_err(), "{message:?}");
        }
        assert!(names.numbers.is_empty());
        let FromTable::Granted { lease, from, .. } = names.read(grant(9, None)).unwrap() else {
            panic!("no grant")
        };
        assert_eq!((lease, from), (LONGEST_LEASE, None));
    }
}
