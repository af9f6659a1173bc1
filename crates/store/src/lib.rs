//! All stored data: schema, queries, leases. This crate contains all SQL of the project.
//!
//! SQLite in a file for one daemon, PostgreSQL for several. Both run the same queries (`sql.rs`) and the same test suite;
//! the differences are in `database.rs` (connecting and locking) and in `schema.rs` (names of types).
//!
//! A change is a `WriteTx`: it is begun, filled and committed, and waits only for the database in between. Nodes have a
//! version; a write gives the version that it read and is refused if the node was changed since. SQLite has one writer at a
//! time. PostgreSQL has many, and each statement sees what was committed before it: a change that decides by a row locks
//! the row first (`WriteTx::node` does), a node before everything that belongs to it.

mod accounts;
mod agent_boots;
mod agents;
mod audit;
mod authorities;
mod backup;
mod bmc_log;
mod bmc_state;
mod boot;
mod breaches;
mod cluster_nodes;
mod clusters;
mod console;
mod counts;
mod database;
mod discoveries;
mod drives;
mod effects;
mod error;
mod events;
mod evidence;
mod fabric;
mod facility;
mod filter;
mod filter_text;
mod firmware;
mod golden_firmware;
mod group;
mod hints;
mod images;
mod member_origins;
mod member_tokens;
mod members;
mod neighbours;
mod network_test;
mod networks;
mod nodes;
mod operations;
mod permits;
mod readers;
mod replicas;
mod requests;
mod resting;
mod restored;
mod schema;
mod scope;
mod sealed;
mod seen;
mod sessions;
mod settings;
mod sites;
mod sql;
mod terms;
mod unerased;
mod usage;
mod usage_breaches;
mod waits;

use std::sync::Arc;

use rackwright_lifecycle::{NodeId, OperationId};
use tokio::sync::Mutex;

pub use accounts::{BmcAccount, FactoryCredential, Lockout, PendingPassword};
pub use agent_boots::{AgentBootRow, ContestKind};
pub use agents::{AgentConnection, AgentSession};
pub use audit::{AuditFilter, AuditRow};
pub use backup::{BackupError, DatabaseSite};
pub use bmc_log::BmcLogRow;
pub use bmc_state::{BmcStateLine, BmcStateRow};
pub use boot::{BootStageRow, UnknownMachineRow};
pub use breaches::{BreachRow, FabricCheckRow};
pub use cluster_nodes::{ClusterNode, ClusterNodeCount};
pub use clusters::{ClusterHistoryRow, ClusterRecord, ClusterSpec, FormerSpec, Replaced, SealedUserData};
pub use console::{SSH_KEYS_MAX, SshKeyRow};
pub use counts::NodeCount;
pub use database::Database;
pub use discoveries::{DiscoveryRow, FindingRow};
pub use effects::EffectRow;
pub use error::{DatabaseError, StoreError};
pub use events::{EventFilter, EventRow};
pub use evidence::{ChainEntry, ChainHead, Proof};
pub use fabric::{ComparisonRow, FabricKeyRow, FabricRow, ImpairedNodeRow, PartitionRow, PartitionRows, TakenKeyRow};
pub use facility::{AlarmRow, ReadingRow};
pub use filter::{Clause, Filter, NodeColumn, NodeOrder, NodePlace, Term};
pub use filter_text::parse_filter;
pub use firmware::{FirmwareFileRow, FirmwareSeenRow, FirmwareUpdateRow, WindowRow};
pub use golden_firmware::{FirmwareValuesRow, GoldenFirmwareRow};
pub use hints::{Change, Changes};
pub use images::{ImageRow, ImageVersionBody, ImageVersionRow, UploadBody, UploadRow};
pub use member_origins::MemberOrigin;
pub use member_tokens::MemberTokenRow;
pub use members::{DeploymentKeys, MemberRecord, MemberRow, TokenRow};
pub use neighbours::NodeNeighbours;
pub use network_test::{NetworkRow, NetworkTest};
pub use networks::{NodeNetwork, VlanRow};
pub use nodes::{HistoryRow, Identity, NodeRecord, Readings, Spec};
pub use operations::OperationRow;
pub use permits::{Permit, PermitRequest, Queue, Queued};
pub use replicas::ReplicaRow;
pub use requests::RequestKey;
pub use resting::RestingRow;
pub use restored::DatabaseAge;
pub use scope::Scope;
pub use sealed::{ReplicaKeys, SEAL_HEADER_BYTES, SealedColumn, SealedSecret};
pub use sessions::{SessionFilter, SessionKind, SessionRow};
pub use settings::{SettingsRead, SettingsRow};
pub use sites::{HallRow, SiteFile, SiteRow};
pub use terms::TermRow;
pub use usage::{Period, UsageRow};
pub use usage_breaches::UsageBreachRow;

use database::{Kind, Readers, Writer};
use group::Tx;
use hints::Hints;
use sql::{Query, Row, statement};

/// Result of the store's functions.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The database.
#[derive(Debug, Clone)]
pub struct Store {
    kind: Kind,
    writer: Writer,
    readers: Readers,
    hints: Arc<Hints>,
    /// Held while events get their positions.
    placing: Arc<Mutex<()>>,
}

/// A change in progress. Dropping it without `commit` undoes it.
#[derive(Debug)]
pub struct WriteTx {
    kind: Kind,
    tx: Tx,
    /// Events that `commit` writes at the end.
    events: Vec<EventRow>,
    /// Nodes that become due.
    due: Vec<NodeId>,
    /// Nodes that have got their turn.
    next_in_line: Vec<NodeId>,
    /// Operations that end.
    ended: Vec<OperationId>,
    /// The change alters a member's rights.
    changes_members: bool,
    /// Nodes with an agent session that the change ends, and the number from which on a session is valid again.
    ended_sessions: Vec<(NodeId, i64)>,
    hints: Arc<Hints>,
}

impl Store {
    /// Opens the database, creates a missing SQLite file, and brings the schema up to date.
    ///
    /// # Errors
    /// The database cannot be opened or reached: the error has its name without the password, and a hint. Or its schema is
    /// newer than this program.
    pub async fn open(database: impl Into<Database>) -> Result<Self> {
        database.into().open().await
    }

    /// Begins a change. On SQLite other changes wait until it is complete or dropped.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn write(&self) -> Result<WriteTx> {
        let tx = match &self.writer {
            Writer::Sqlite(group) => Tx::GroupedChange(group.begin().await?),
            Writer::Postgres(pool) => Tx::Own(database::begin(pool).await?),
        };
        Ok(WriteTx {
            kind: self.kind,
            tx,
            events: Vec::new(),
            due: Vec::new(),
            next_in_line: Vec::new(),
            ended: Vec::new(),
            changes_members: false,
            ended_sessions: Vec::new(),
            hints: self.hints.clone(),
        })
    }

    /// Runs a change of one statement; returns the number of changed rows.
    async fn execute(&self, query: Query<'_>) -> Result<u64> {
        match &self.writer {
            Writer::Sqlite(group) => Ok(group.execute(query).await?.changed),
            Writer::Postgres(pool) => Ok(query.execute(pool).await?),
        }
    }

    /// Runs a change of one statement that returns rows.
    async fn fetch_changed(&self, query: Query<'_>) -> Result<Vec<Row>> {
        match &self.writer {
            Writer::Sqlite(group) => Ok(group.execute(query).await?.rows),
            Writer::Postgres(pool) => Ok(query.fetch_all(pool).await?),
        }
    }

    /// Empties the write-ahead log of a SQLite file, which holds former contents of rows. A server manages its own log.
    pub async fn empty_log(&self) -> Result<()> {
        let Readers::Sqlite(readers) = &self.readers else {
            return Ok(());
        };
        let path = readers.path().to_owned();
        let emptied = tokio::task::spawn_blocking(move || readers::empty_log(&readers::open_writer(&path)?));
        let emptied = emptied.await.map_err(|_| DatabaseError::Ending)?;
        Ok(emptied.map_err(DatabaseError::Sqlite)?)
    }

    /// Closes all connections; committed changes are in the database.
    pub async fn close(&self) {
        match &self.readers {
            Readers::Sqlite(readers) => readers.close(),
            Readers::Postgres(pool) => pool.close().await,
        }
        match &self.writer {
            Writer::Sqlite(group) => group.close().await,
            Writer::Postgres(pool) => pool.close().await,
        }
    }
}

impl WriteTx {
    /// Commits the change. If the connection breaks during the commit, the change may or may not be stored.
    ///
    /// # Errors
    /// The database could not write the change, or refused a part of it before; then the whole change is undone.
    pub async fn commit(mut self) -> Result<()> {
        let has_events = !self.events.is_empty();
        if has_events {
            self.append_events().await?;
        } else if self.kind == Kind::Postgres {
            // PostgreSQL's COMMIT rolls back a change with a refused statement and reports success; this statement fails
            // instead.
            statement("SELECT 1").execute(&mut self.tx).await?;
        }
        self.tx.commit().await?;
        if has_events {
            self.hints.send(Change::Events);
        }
        if !self.due.is_empty() {
            self.hints.send(Change::Due);
        }
        Ok(())
    }
}
