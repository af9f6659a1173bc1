//! Agents that are connected to this process, and the progress of their jobs. Kept in memory: a heartbeat costs no write.
//!
//! A node's row names the replica that has its agent, the number of that connection, and its claim generation and boot. A
//! connection of this process that differs from the row does not count: the agent is elsewhere, its claim or its boot is
//! over, or other replicas took this process for dead.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rackwright_api::v1::{ControlMessage, JobProgress};
use rackwright_lifecycle::{Agent, NodeId, Reading, Timestamp};
use rackwright_store::{AgentSession, NodeRecord};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::text::{NAME_MAX, cut};

/// Prefix of the names in the certificates of agents on machines that belong to no node. No node's id contains a dot.
pub const UNKNOWN_PREFIX: &str = "unknown.";
/// Messages to one agent that may wait to be sent.
pub const QUEUE: usize = 32;
/// A message to an agent. Boxed, because a queue allocates room for 32 at once.
pub type ToAgent = Box<ControlMessage>;

/// One connected agent.
#[derive(Debug, Clone)]
pub struct Session {
    /// Unique for every connection of the node: `Hold::session` of its row.
    pub number: i64,
    /// The claim generation and the boot of the connection.
    pub of: AgentSession,
    /// The kernel's boot id.
    pub boot_id: String,
    /// When this boot first connected.
    pub booted_at: Timestamp,
    /// When its last message arrived.
    pub heard_at: Timestamp,
    /// Queue of messages to the agent.
    pub sender: mpsc::Sender<ToAgent>,
    /// Ends the connection.
    pub end: CancellationToken,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<NodeId, Session>,
    /// By node: the job in the agent's last progress message, and that progress.
    progress: HashMap<NodeId, (String, JobProgress)>,
    /// By node: ends with the next change that ends a session.
    ends: HashMap<NodeId, CancellationToken>,
    next: i64,
}

/// The registry of connected agents.
#[derive(Debug)]
pub struct Agents {
    replica: String,
    up_since: Timestamp,
    inner: Mutex<Inner>,
}

impl Agents {
    /// An empty registry of that replica. `up_since` is the time since which agents can connect to any replica: an absence
    /// before that means nothing.
    #[must_use]
    pub fn new(replica: &str, up_since: Timestamp) -> Self {
        Self {
            replica: replica.to_owned(),
            up_since,
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection number that no row holds yet.
    pub fn next_number(&self) -> i64 {
        let mut inner = self.lock();
        inner.next += 1;
        inner.next
    }

    /// Adds a connection and ends an earlier one of the same node.
    pub fn connected(&self, node: &NodeId, session: Session) {
        if let Some(former) = self.lock().sessions.insert(node.to_owned(), session) {
            former.end.cancel();
        }
    }

    /// Removes a connection, and ends everything that belongs to it. Returns false when a newer one has replaced it.
    pub fn disconnected(&self, node: &NodeId, number: i64) -> bool {
        let mut inner = self.lock();
        let is_this = inner.sessions.get(node).is_some_and(|s| s.number == number);
        if is_this && let Some(session) = inner.sessions.remove(node) {
            session.end.cancel();
        }
        is_this
    }

    /// Cancelled by the next change of this process that ends a session of the node's agent, in whichever process that is:
    /// another state, another claim generation, a broken connection.
    #[must_use]
    pub fn next_end(&self, node: &NodeId) -> CancellationToken {
        self.lock().ends.entry(node.to_owned()).or_default().clone()
    }

    /// Ends a node's connection if its number is below `number`: according to the database it is over.
    pub fn end_earlier(&self, node: &NodeId, number: i64) {
        let mut inner = self.lock();
        if let Some(end) = inner.ends.remove(node) {
            end.cancel();
        }
        if inner.sessions.get(node).is_some_and(|s| s.number < number)
            && let Some(session) = inner.sessions.remove(node)
        {
            session.end.cancel();
        }
    }

    /// Number of connections with this name prefix.
    #[must_use]
    pub fn count(&self, prefix: &str) -> usize {
        self.lock()
            .sessions
            .keys()
            .filter(|name| name.as_str().starts_with(prefix))
            .count()
    }

    /// Stores the time of an agent's message.
    pub fn heard(&self, node: &NodeId, number: i64, now: Timestamp) {
        if let Some(session) = self.lock().sessions.get_mut(node).filter(|s| s.number == number) {
            session.heard_at = now;
        }
    }

    /// The connection of a node, regardless of its row.
    #[must_use]
    pub fn session(&self, node: &NodeId) -> Option<Session> {
        self.lock().sessions.get(node).cloned()
    }

    /// The number of every connection, by name.
    #[must_use]
    pub fn sessions(&self) -> HashMap<NodeId, i64> {
        let inner = self.lock();
        inner.sessions.iter().map(|(of, s)| (of.clone(), s.number)).collect()
    }

    /// Ends every connection.
    pub fn end_all(&self) {
        for session in self.lock().sessions.values() {
            session.end.cancel();
        }
    }

    /// The connection that a node's row names, if it is in this process and of the node's present generation.
    #[must_use]
    pub fn held(&self, record: &NodeRecord) -> Option<Session> {
        let hold = &record.hold;
        let counts = hold.replica == self.replica && hold.of.generation == record.node.generation;
        self.session(&record.id)
            .filter(|session| counts && session.number == hold.session && session.of == hold.of)
    }

    /// What is known of a node's agent: from its connection if that is in this process, else as stored.
    #[must_use]
    pub fn presence(&self, record: &NodeRecord, now: Timestamp) -> Reading<Agent> {
        if let Some(session) = self.held(record) {
            let value = Agent::Present {
                boot_id: session.boot_id,
                booted_at: session.booted_at,
            };
            return Reading::Known {
                value,
                at: session.heard_at.max(now),
            };
        }
        let hold = &record.hold;
        let is_present = hold.of.generation == record.node.generation && !hold.of.boot.is_empty();
        let is_elsewhere = !hold.replica.is_empty() && hold.replica != self.replica && is_present;
        match &record.readings.agent {
            // The other replica reports when the agent is gone.
            present @ Reading::Known {
                value: Agent::Present { .. },
                ..
            } if is_elsewhere => present.clone(),
            // Its connection ended, or the process that had it is gone.
            Reading::Known {
                value: Agent::Present { .. },
                at,
            } => Reading::Unknown {
                since: (*at).max(hold.gone_at).max(self.up_since),
            },
            Reading::Unknown { since } => Reading::Unknown { since: *since },
            Reading::Known {
                value: Agent::Absent, ..
            }
            | Reading::Never => Reading::Known {
                value: Agent::Absent,
                at: now,
            },
        }
    }

    /// Stores the progress of a job, as the node's agent reports it. Only connected agents count, with one job for each
    /// node: an agent that invents jobs changes only its own display.
    pub fn set_progress(&self, node: &NodeId, effect: &str, progress: JobProgress) {
        let mut inner = self.lock();
        if effect.len() > NAME_MAX || !inner.sessions.contains_key(node) {
            return;
        }
        let progress = JobProgress {
            step: cut(&progress.step, NAME_MAX),
            ..progress
        };
        inner.progress.insert(node.to_owned(), (effect.to_owned(), progress));
    }

    /// The progress of a node's job, if its agent has reported any.
    #[must_use]
    pub fn progress(&self, node: &NodeId, effect: &str) -> Option<JobProgress> {
        let inner = self.lock();
        let (of, progress) = inner.progress.get(node)?;
        (of == effect).then(|| progress.clone())
    }

    /// Forgets the progress when a node's job has ended: the next job has not begun.
    pub fn forget_progress(&self, node: &NodeId) {
        self.lock().progress.remove(node);
    }
}

/// An admitted agent, the source of messages.
#[derive(Debug, Clone)]
pub struct AdmittedAgent {
    pub node: NodeId,
    /// The number of its connection.
    pub number: i64,
    /// The claim generation and the boot of the connection.
    pub of: AgentSession,
    /// The kernel's boot id.
    pub boot_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(agents: &Agents, node: &str) {
        let session = Session {
            number: 0,
            of: AgentSession::default(),
            boot_id: String::new(),
            booted_at: Timestamp(1),
            heard_at: Timestamp(1),
            sender: mpsc::channel(1).0,
            end: CancellationToken::new(),
        };
        agents.connected(&NodeId::stored(node), session);
    }

    fn at(step: &str) -> JobProgress {
        JobProgress {
            step: step.to_owned(),
            ..JobProgress::default()
        }
    }

    #[test]
    fn each_node_keeps_one_job_progress() {
        let agents = Agents::new("r1", Timestamp(1));
        for node in ["n1", "n2"] {
            connected(&agents, node);
        }
        agents.set_progress(&"n1".into(), "job", at("writing"));
        agents.set_progress(&"n2".into(), "job", at("lying"));
        assert_eq!(agents.progress(&"n1".into(), "job"), Some(at("writing")));
        for n in 0..1000 {
            agents.set_progress(&"n2".into(), &format!("made-up-{n}"), at("lying"));
        }
        agents.set_progress(&"n2".into(), &"x".repeat(NAME_MAX + 1), at("lying"));
        agents.set_progress(&"nobody".into(), "job", at("lying"));
        assert_eq!(agents.lock().progress.len(), 2);
        assert_eq!(agents.progress(&"n2".into(), "made-up-998"), None);
        assert_eq!(agents.progress(&"n1".into(), "made-up-999"), None);
        agents.set_progress(&"n1".into(), "job", at(&"long\n".repeat(1000)));
        let step = agents.progress(&"n1".into(), "job").unwrap().step;
        assert!(step.len() <= NAME_MAX && !step.contains('\n'), "{step:?}");
        agents.forget_progress(&"n1".into());
        assert_eq!(agents.progress(&"n1".into(), "job"), None);
    }
}
