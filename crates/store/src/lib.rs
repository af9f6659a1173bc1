//! Everything that is kept: schema, queries, leases. SQL is written here and nowhere else.
//!
//! SQLite in WAL mode with one writer connection and several readers. A change is a `WriteTx`: begun, filled and
//! committed without anything but the database being waited for in between. Nodes carry a version; a write names the
//! version it read and is refused when somebody was faster.

mod boot;
mod effects;
mod error;
mod events;
mod evidence;
mod images;
mod members;
mod nodes;
mod operations;
mod requests;
mod schema;
mod unerased;

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, Transaction};

pub use boot::{BootStageRow, UnknownMachineRow};
pub use effects::EffectRow;
pub use error::StoreError;
pub use events::EventRow;
pub use evidence::Proof;
pub use images::{ImageRow, ImageVersionBody, ImageVersionRow, UploadBody, UploadRow};
pub use members::{DeploymentKeys, TokenRow};
pub use nodes::{Filter, HistoryRow, Identity, NodeRecord, Readings, Spec, Term};
pub use operations::OperationRow;
pub use requests::RequestKey;

/// Answer of everything here.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The database.
#[derive(Debug, Clone)]
pub struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
}

/// A change under way. Dropped without `commit`, nothing of it stays.
#[derive(Debug)]
pub struct WriteTx {
    tx: Transaction<'static, Sqlite>,
}

impl Store {
    /// Opens the database file, making it and bringing its schema up to date where needed.
    ///
    /// # Errors
    /// The file cannot be opened or made, or its schema is newer than this program.
    pub async fn open(path: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // What was acknowledged survives a power cut, not only a crash.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10));
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone())
            .await?;
        schema::migrate(&writer).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(8)
            .connect_with(options.read_only(true))
            .await?;
        Ok(Self { writer, readers })
    }

    /// Begins a change. Others wait until it is committed or dropped.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn write(&self) -> Result<WriteTx> {
        Ok(WriteTx {
            tx: self.writer.begin_with("BEGIN IMMEDIATE").await?,
        })
    }

    /// Closes all connections; what was committed is in the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

impl WriteTx {
    /// Makes the change stay.
    ///
    /// # Errors
    /// The database could not write it; then nothing of it stays.
    pub async fn commit(self) -> Result<()> {
        Ok(self.tx.commit().await?)
    }
}
