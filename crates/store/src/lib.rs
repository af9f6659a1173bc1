//! Everything that is kept: schema, queries, leases. SQL is written here and nowhere else.
//!
//! SQLite in a file for one daemon, PostgreSQL for several. Both run the same queries through `sqlx::Any`, and one suite
//! of tests; what differs is in `database.rs` (how to connect, begin and lock) and in `schema.rs` (names of types).
//!
//! A change is a `WriteTx`: begun, filled and committed without anything but the database being waited for in between.
//! Nodes carry a version; a write names the version it read and is refused when somebody was faster. SQLite has one writer
//! at a time. PostgreSQL has many, each of which sees what was committed before each of its statements: whoever decides
//! by what it read locks that first (`WriteTx::node` does), a node before anything that hangs on it.

mod agents;
mod boot;
mod counts;
mod database;
mod effects;
mod error;
mod events;
mod evidence;
mod group;
mod hints;
mod images;
mod members;
mod nodes;
mod operations;
mod replicas;
mod requests;
mod resting;
mod schema;
mod unerased;

use std::sync::Arc;

use sqlx::any::{AnyArguments, AnyQueryResult, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyPool};
use tokio::sync::Mutex;

pub use agents::Hold;
pub use boot::{BootStageRow, UnknownMachineRow};
pub use database::Database;
pub use effects::EffectRow;
pub use error::StoreError;
pub use events::EventRow;
pub use evidence::Proof;
pub use hints::{Change, Changes};
pub use images::{ImageRow, ImageVersionBody, ImageVersionRow, UploadBody, UploadRow};
pub use members::{DeploymentKeys, TokenRow};
pub use nodes::{Filter, HistoryRow, Identity, NodeRecord, Readings, Spec, Term};
pub use operations::OperationRow;
pub use replicas::ReplicaRow;
pub use requests::RequestKey;
pub use resting::RestingRow;

use database::Kind;
use group::{Group, Tx};
use hints::Hints;

/// Answer of everything here.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The database.
#[derive(Debug, Clone)]
pub struct Store {
    kind: Kind,
    writer: AnyPool,
    /// On SQLite, where changes share transactions.
    group: Option<Group>,
    readers: AnyPool,
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
    /// It makes a node due.
    is_due: bool,
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
        let tx = match &self.group {
            Some(group) => Tx::Part(group.begin().await?),
            None => Tx::Own(self.writer.begin_with(self.kind.begin()).await?),
        };
        Ok(WriteTx {
            kind: self.kind,
            tx,
            events: Vec::new(),
            is_due: false,
            hints: self.hints.clone(),
        })
    }

    /// A change of one statement.
    async fn execute(&self, query: Query<'_, Any, AnyArguments>) -> Result<AnyQueryResult> {
        let Some(group) = &self.group else {
            return Ok(query.execute(&self.writer).await?);
        };
        let mut tx = Tx::Part(group.begin_statement().await?);
        let done = query.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(done)
    }

    /// A change of one statement that answers with rows.
    async fn fetch_changed(&self, query: Query<'_, Any, AnyArguments>) -> Result<Vec<AnyRow>> {
        let Some(group) = &self.group else {
            return Ok(query.fetch_all(&self.writer).await?);
        };
        let mut tx = Tx::Part(group.begin_statement().await?);
        let rows = query.fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Closes all connections; what was committed is in the database.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
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
            sqlx::query("SELECT 1").execute(&mut *self.tx).await?;
        }
        self.tx.commit().await?;
        if has_events {
            self.hints.say(Change::Events);
        }
        if self.is_due {
            self.hints.say(Change::Due);
        }
        Ok(())
    }
}
