//! Everything that is kept: schema, queries, leases. SQL is written here and nowhere else.
//!
//! SQLite in a file for one daemon, PostgreSQL for several. Both run the same queries (`sql.rs`), and one suite of tests; what
//! differs is in `database.rs` (how to connect and lock) and in `schema.rs` (names of types).
//!
//! A change is a `WriteTx`: begun, filled and committed without anything but the database being waited for in between.
//! Nodes carry a version; a write names the version it read and is refused when somebody was faster. SQLite has one writer
//! at a time. PostgreSQL has many, each of which sees what was committed before each of its statements: whoever decides
//! by what it read locks that first (`WriteTx::node` does), a node before anything that hangs on it.

mod accounts;
mod agent_boots;
mod agents;
mod audit;
mod authorities;
mod backup;
mod bmc_log;
mod bmc_state;
mod boot;
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
mod facility;
mod firmware;
mod golden_firmware;
mod group;
mod hints;
mod images;
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
mod seated;
mod seen;
mod settings;
mod sites;
mod sql;
mod terms;
mod unerased;
mod usage;
mod waits;

use std::sync::Arc;

use tokio::sync::Mutex;

pub use accounts::{BmcAccount, FactoryCredential, Lockout, PendingPassword};
pub use agent_boots::{AgentBootRow, ContestKind};
pub use agents::{AgentSession, Hold};
pub use audit::{AuditFilter, AuditRow};
pub use backup::{BackupError, DatabaseSite};
pub use bmc_log::BmcLogRow;
pub use bmc_state::{BmcStateLine, BmcStateRow};
pub use boot::{BootStageRow, UnknownMachineRow};
pub use clusters::{ClusterHistoryRow, ClusterRecord, ClusterSpec, Former, Replaced, SealedUserData};
pub use console::{SSH_KEYS_MAX, SshKeyRow};
pub use database::Database;
pub use discoveries::{DiscoveryRow, FindingRow};
pub use effects::EffectRow;
pub use error::{DatabaseError, StoreError};
pub use events::EventRow;
pub use evidence::{ChainEntry, ChainHead, Proof};
pub use facility::{AlarmRow, ReadingRow};
pub use firmware::{FirmwareFileRow, FirmwareSeenRow, FirmwareUpdateRow, WindowRow};
pub use golden_firmware::{FirmwareValuesRow, GoldenFirmwareRow};
pub use hints::{Change, Changes};
pub use images::{ImageRow, ImageVersionBody, ImageVersionRow, UploadBody, UploadRow};
pub use member_tokens::MemberTokenRow;
pub use members::{DeploymentKeys, MemberRecord, MemberRow, TokenRow};
pub use neighbours::NodeNeighbours;
pub use network_test::{NetworkRow, NetworkTest};
pub use networks::{NodeNetwork, VlanRow};
pub use nodes::{Filter, HistoryRow, Identity, NodeRecord, Readings, Spec, Term};
pub use operations::OperationRow;
pub use permits::{Asker, InLine, Permit, Queue};
pub use replicas::ReplicaRow;
pub use requests::RequestKey;
pub use resting::RestingRow;
pub use restored::DatabaseAge;
pub use scope::Scope;
pub use sealed::{ReplicaKeys, SEAL_HEADER_BYTES, SealedColumn, SealedSecret};
pub use seated::{SeatedCount, SeatedNode};
pub use settings::{SettingsRead, SettingsRow};
pub use sites::{HallRow, SiteFile, SiteRow};
pub use terms::TermRow;
pub use usage::{Period, UsageRow};

use database::{Kind, Readers, Writer};
use group::Tx;
use hints::Hints;
use sql::{Query, Row, statement};

/// Answer of everything here.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The database.
#[derive(Debug, Clone)]
pub struct Store {
    kind: Kind,
    writer: Writer,
    readers: Readers,
    hints: Arc<Hints>,
    /// Held by who gives positions to events.
    placing: Arc<Mutex<()>>,
}

/// A change under way. Dropped without `commit`, nothing of it stays.
#[derive(Debug)]
pub struct WriteTx {
    kind: Kind,
    tx: Tx,
    /// Added at the end, by `commit`.
    events: Vec<EventRow>,
    /// Nodes that it makes due.
    due: Vec<String>,
    /// Nodes whose turn it has become.
    called: Vec<String>,
    /// Operations that it ends.
    ended: Vec<String>,
    /// Whether it changes what a member may do.
    changes_members: bool,
    /// Nodes whose agent's session it ends, with the number from which on a session counts again.
    parted: Vec<(String, i64)>,
    hints: Arc<Hints>,
}

impl Store {
    /// Opens the database, making the file where there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// It cannot be opened or reached: named without its password, with what to do. Its schema is newer than this program.
    pub async fn open(database: impl Into<Database>) -> Result<Self> {
        database.into().open().await
    }

    /// Begins a change. On SQLite others wait until it is complete or dropped.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn write(&self) -> Result<WriteTx> {
        let tx = match &self.writer {
            Writer::Sqlite(group) => Tx::Part(group.begin().await?),
            Writer::Postgres(pool) => Tx::Own(database::begin(pool).await?),
        };
        Ok(WriteTx {
            kind: self.kind,
            tx,
            events: Vec::new(),
            due: Vec::new(),
            called: Vec::new(),
            ended: Vec::new(),
            changes_members: false,
            parted: Vec::new(),
            hints: self.hints.clone(),
        })
    }

    /// A change of one statement; answers how many rows it changed.
    async fn execute(&self, query: Query<'_>) -> Result<u64> {
        match &self.writer {
            Writer::Sqlite(group) => Ok(group.execute(query).await?.changed),
            Writer::Postgres(pool) => Ok(query.execute(pool).await?),
        }
    }

    /// A change of one statement that answers with rows.
    async fn fetch_changed(&self, query: Query<'_>) -> Result<Vec<Row>> {
        match &self.writer {
            Writer::Sqlite(group) => Ok(group.execute(query).await?.rows),
            Writer::Postgres(pool) => Ok(query.fetch_all(pool).await?),
        }
    }

    /// Empties the write-ahead log of a SQLite file: it holds former contents of rows. A server keeps its own log.
    ///
    /// # Errors
    /// The database failed.
    pub async fn empty_log(&self) -> Result<()> {
        let Readers::Sqlite(readers) = &self.readers else {
            return Ok(());
        };
        let path = readers.path().to_owned();
        let emptied = tokio::task::spawn_blocking(move || readers::empty_log(&readers::open_writer(&path)?));
        let emptied = emptied.await.map_err(|_| DatabaseError::Ending)?;
        Ok(emptied.map_err(DatabaseError::Sqlite)?)
    }

    /// Closes all connections; what was committed is in the database.
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
    /// Makes the change stay. When the connection breaks in the middle of this, it may have stayed.
    ///
    /// # Errors
    /// The database could not write it, or refused a part of it before; then nothing of it stays.
    pub async fn commit(mut self) -> Result<()> {
        let has_events = !self.events.is_empty();
        if has_events {
            self.append_events().await?;
        } else if self.kind == Kind::Postgres {
            // A change of which a statement was refused is rolled back by COMMIT, and that counts as success there.
            statement("SELECT 1").execute(&mut self.tx).await?;
        }
        self.tx.commit().await?;
        if has_events {
            self.hints.say(Change::Events);
        }
        if !self.due.is_empty() {
            self.hints.say(Change::Due);
        }
        Ok(())
    }
}
