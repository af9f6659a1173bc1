//! The spread of images between agents, as seen by the control plane: which agent fetches which chunk from outside its rack.
//! The decisions are in the crate `fanout`; `docs/fanout.md` has the rules.
//!
//! | module | content |
//! |---|---|
//! | `message` | messages of agents, compared with the image |
//! | `stream` | the call by which agents claim chunks |
//! | `record` | one image version: the claim table and the agents behind its numbers, without tasks and clocks |
//! | `table` | the record shared by streams, with the task that sends grants |
//! | `ticket` | the part of a job that lets an agent serve and ask others |
//!
//! Everything is in memory, and each replica has its own tables. Agents of different replicas do not know each other, so each
//! table takes its own copy from the image servers. A lost table costs traffic only.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod message;
mod record;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod ticket;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_api::v1;
use rackwright_fanout::TableSettings;
use rackwright_ground::agents::Session;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_image::ImageDigest;
use rackwright_lifecycle::{Effect, EventKind, NodeId, Outcome};
use rackwright_store::{AgentSession, EventRow, NodeRecord, Scope, StoreError};
use tokio::sync::mpsc;

pub use message::{Message, MessageError, read};
pub use record::{AgentReport, OwnReport, RackReport, SpreadReport, ToAgent, WrongBytes};
pub use stream::claim;
pub use table::{Joined, Table};
pub use ticket::peers;

use record::{Full, Writer};

/// The tables of this process, by image version.
#[derive(Debug, Default)]
pub struct Spreads {
    tables: Mutex<BTreeMap<String, Arc<Table>>>,
    /// The last job of each node about which wrong bytes were reported: a sender that begins again is no new event.
    reported: Mutex<BTreeMap<NodeId, String>>,
    /// Held while an image's index is read, so that many agents that begin at once do not all read it.
    loading: tokio::sync::Mutex<()>,
}

impl FeatureState for Spreads {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}

impl Spreads {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Table>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of an image version. `None`: no agent here writes it with the help of others.
    #[must_use]
    pub fn table(&self, digest: &str) -> Option<Arc<Table>> {
        let table = self.lock().get(digest).cloned();
        table.filter(|table| !table.closed().is_cancelled())
    }

    /// The place of a node that writes an image with the help of others, with the image's digest.
    #[must_use]
    pub fn report_of(&self, digest: &str, node: &NodeId) -> Option<OwnReport> {
        self.table(digest)?.report_of(node)
    }

    /// Notes a report about a job of this node. Returns whether it is the first one about this job.
    fn is_new_report(&self, sender: &NodeId, operation: &str) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let former = reported.insert(sender.clone(), operation.to_owned());
        former.as_deref() != Some(operation)
    }

    /// Removes a table, if it is still the one of its image.
    fn remove(&self, digest: &str, table: &Table) {
        take_out(&mut self.lock(), digest, table);
    }

    /// Removes a table without agents. Returns whether it is removed.
    fn remove_if_empty(&self, digest: &str, table: &Table) -> bool {
        let mut tables = self.lock();
        if !table.is_empty() {
            return false;
        }
        take_out(&mut tables, digest, table);
        // No agent begins in a table that is not in the list.
        true
    }
}

/// Removes a table from the list, if it is still the one of its image.
fn take_out(tables: &mut BTreeMap<String, Arc<Table>>, digest: &str, table: &Table) {
    let is_present = |present: &Arc<Table>| std::ptr::eq(&**present, table);
    if tables.get(digest).is_some_and(is_present) {
        tables.remove(digest);
    }
}

/// An agent that asks for chunks.
#[derive(Debug, Clone)]
pub struct Asking {
    pub node: NodeId,
    /// The claim generation and the boot in its certificate.
    pub of: AgentSession,
    /// The address of its connection.
    pub address: Option<IpAddr>,
}

fn refuse(node: &NodeId, message: impl Into<String>, hint: &str) -> ApiError {
    ApiError::precondition(format!("nodes/{node}"), message, hint)
}

/// The session of an agent that asks for chunks: the node's present one, in this replica, with the claim generation and the
/// boot of the agent's certificate.
///
/// # Errors
/// The settings do not let agents serve each other, the agent has no such session, or the database failed.
pub async fn session(core: &Core, asking: &Asking) -> Result<(NodeRecord, Session), ApiError> {
    let node = &asking.node;
    if !core.config.images.peers {
        let message = "agents do not serve each other here: the setting images.peers is false";
        return Err(refuse(node, message, "fetch every chunk from the image servers"));
    }
    let none = || {
        let message = format!(
            "the agent of {node} has no session here for claim generation {} and this boot: connect first",
            asking.of.generation
        );
        ApiError::Unauthenticated(message)
    };
    let record = match core.store.node(&Scope::Site, node).await {
        Err(StoreError::NotFound { .. }) => return Err(none()),
        other => other?,
    };
    let session = core.agents.held(&record).filter(|session| session.of == asking.of);
    session.map(|session| (record, session)).ok_or_else(none)
}

/// Begins a stream for the open write of the node.
///
/// # Errors
/// The message does not fit the open write, or the image's index cannot be read.
pub async fn begin(
    core: &Arc<Core>,
    asking: &Asking,
    (record, session): (&NodeRecord, &Session),
    begin: &v1::BeginChunks,
) -> Result<(Joined, mpsc::Receiver<ToAgent>), ApiError> {
    let node = &asking.node;
    let open = core.store.effect(&begin.operation).await?;
    let is_own = |effect: &rackwright_store::EffectRow| {
        effect.node_id == *node
            && effect.attempt.effect == Effect::WriteImage
            && effect.attempt.outcome == Outcome::Open
            && effect.generation == asking.of.generation
            && effect.attempt.boot_id.as_ref() == Some(&session.boot_id)
    };
    let claim = record.node.claim.as_ref().filter(|_| open.as_ref().is_some_and(is_own));
    let Some(claim) = claim else {
        let message = format!("begin.operation is no open write of an image by this agent of {node}");
        return Err(refuse(node, message, "begin with the operation of the present job"));
    };
    let Some(address) = asking.address else {
        return Err(ApiError::Internal("the address of the connection is not known".into()));
    };
    let rack = rack(core, record).await?;
    let digest = claim.image_digest.as_str();
    let chunks = chunks(core, digest).await?;
    let beginning =
        message::read_beginning(chunks, begin).map_err(|error| ApiError::invalid("begin", error.to_string()))?;
    let writer = Writer {
        node: node.clone(),
        of: asking.of.clone(),
        operation: begin.operation.clone(),
        address: SocketAddr::new(address.to_canonical(), beginning.port),
        rack,
    };
    let seed = seed(core)?;
    // Under the lock of all tables: a table without agents is removed under the same lock.
    let mut tables = core.feature::<Spreads>().lock();
    let present = tables.get(digest).filter(|table| !table.closed().is_cancelled());
    let table = present.cloned();
    let is_new = table.is_none();
    let table = table.unwrap_or_else(|| Arc::new(Table::new(digest, chunks, settings(core), seed)));
    let full = |full: Full| refuse(node, full.to_string(), "fetch every chunk from the image servers");
    let begun = table.begin(writer, beginning).map_err(full)?;
    if is_new {
        tables.insert(digest.to_owned(), table.clone());
        table::start(core, &table);
    }
    Ok(begun)
}

/// For decisions by chance.
fn seed(core: &Core) -> Result<u64, ApiError> {
    let mut seed = [0; 8];
    let filled = core.rng.fill(&mut seed);
    filled.map_err(|error| ApiError::Internal(error.to_string()))?;
    Ok(u64::from_le_bytes(seed))
}

/// The number of an image's chunks with data: from its table, or else from its index.
async fn chunks(core: &Core, digest: &str) -> Result<u32, ApiError> {
    let spreads = core.feature::<Spreads>();
    if let Some(table) = spreads.table(digest) {
        return Ok(table.chunks());
    }
    let _loading = spreads.loading.lock().await;
    if let Some(table) = spreads.table(digest) {
        return Ok(table.chunks());
    }
    let unreadable = |why: String| ApiError::Internal(format!("the index of the image {digest} cannot be read: {why}"));
    let image: ImageDigest = digest.parse().map_err(|error| unreadable(format!("{error}")))?;
    let store = core.chunks.clone();
    let index = tokio::task::spawn_blocking(move || store.index(&image)).await;
    let index = index.map_err(|error| unreadable(error.to_string()))?;
    let index = index.map_err(|error| unreadable(error.to_string()))?;
    u32::try_from(index.data().len()).map_err(|error| unreadable(error.to_string()))
}

/// The limits of a table: the limit for images at the whole site also limits the chunks from the image servers.
fn settings(core: &Core) -> TableSettings {
    let usual = TableSettings::default();
    TableSettings {
        origin_at_once: core
            .config
            .limits
            .image
            .site()
            .unwrap_or(u32::MAX)
            .min(usual.origin_at_once),
        ..usual
    }
}

/// The name of a node's rack: its label `rack`, or else its rack in the site file; empty: not known.
async fn rack(core: &Core, record: &NodeRecord) -> Result<String, ApiError> {
    if let Some(label) = record.labels.get("rack").filter(|label| !label.is_empty()) {
        return Ok(label.clone());
    }
    match core.sites.current(&core.store).await {
        Ok(Some((_, site))) => {
            let node = site.node_named(record.id.as_str());
            Ok(node.map_or_else(String::new, |node| site.rack(site.node(node).rack).name.to_string()))
        }
        Ok(None) => Ok(String::new()),
        // The table then takes the node for one without a rack.
        Err(error) => {
            tracing::warn!(node = record.id.as_str(), %error, "the racks of the site are not known to the spread of images");
            Ok(String::new())
        }
    }
}

/// Counts a report of wrong bytes. The first one about a job of the sender is stored as one event at the sender; it
/// names both nodes.
pub async fn report_wrong_bytes(core: &Core, wrong: &WrongBytes) {
    core.metrics.spread_wrong_bytes();
    let WrongBytes {
        reporter,
        sender,
        operation,
        reason,
        is_first,
    } = wrong;
    if !is_first || !core.feature::<Spreads>().is_new_report(sender, operation) {
        return;
    }
    tracing::warn!(
        node = sender.as_str(),
        reporter = reporter.as_str(),
        reason,
        "an agent is reported to have sent wrong bytes of an image"
    );
    let message = format!(
        "{reporter} reports wrong bytes of an image from the agent of {sender}: {reason}. {reporter} gets the chunk \
         elsewhere. After reports by two agents of a rack, this rack no longer fetches from {sender}. Check its memory and \
         network card"
    );
    let event = EventRow {
        at: clock::now(),
        kind: EventKind::SecurityAgentSentWrongBytes,
        target: format!("nodes/{sender}"),
        message,
        attributes: [
            ("reporter".to_owned(), format!("nodes/{reporter}")),
            ("operation".to_owned(), operation.clone()),
        ]
        .into(),
        ..EventRow::default()
    };
    let stored = async {
        let mut tx = core.store.write().await?;
        tx.add_event(&event).await?;
        core.commit(tx).await
    };
    if let Err(error) = stored.await {
        tracing::error!(node = sender.as_str(), %error, "a report of wrong bytes could not be stored as an event");
    }
}
