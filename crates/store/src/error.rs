//! The errors of the store.

use std::borrow::Cow;
use std::path::PathBuf;

use rackwright_lifecycle::NodeId;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No object has that name.
    #[error("{kind} {id:?} does not exist")]
    NotFound {
        /// "node", "image", "operation", ...
        kind: &'static str,
        id: String,
    },
    /// The name is taken.
    #[error("{kind} {id:?} exists already")]
    Exists {
        /// "node", "image", ...
        kind: &'static str,
        id: String,
    },
    /// The object was changed since it was read.
    #[error("{kind} {id:?} was changed in the meantime; read it again")]
    Conflict {
        /// "node", "image", ...
        kind: &'static str,
        id: String,
    },
    /// The same idempotency key came with another request.
    #[error("idempotency key {key:?} was used before for another request ({method})")]
    KeyReused {
        key: String,
        /// The method of the first request.
        method: String,
    },
    /// The MAC address belongs to another node.
    #[error("MAC address {mac} belongs to node {node:?} already")]
    MacTaken {
        /// The address.
        mac: String,
        /// The node that has it.
        node: NodeId,
    },
    /// A newer version of this program wrote the database.
    #[error("the database has schema {found}, but this program supports up to {known}; start the newer version")]
    NewerSchema {
        /// Version in the database.
        found: i64,
        /// Newest version that this program knows.
        known: i64,
    },
    /// A row cannot be decoded.
    #[error("{what} {id:?} cannot be read back")]
    Corrupt {
        /// The kind of row.
        what: &'static str,
        id: String,
        /// The decoding error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database cannot be opened.
    #[error("the database {database} cannot be opened; {hint}")]
    Open {
        /// The database, without its password.
        database: String,
        /// The remedy.
        hint: String,
        /// The cause.
        #[source]
        source: DatabaseError,
    },
    /// The password file cannot be read.
    #[error("the database's password file {} cannot be read", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A concurrent change of the same data; this change was not made.
    #[error("another change of the same data was made at the same time; try again")]
    Contended(#[source] DatabaseError),
    /// The transaction of this change was rolled back, and with it the change.
    #[error("the database did not store the change: {0}")]
    NotCommitted(String),
    /// The database itself failed.
    #[error("the database failed")]
    Database(#[source] DatabaseError),
}

/// An error of the database or of the connection.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
    /// A result has no such column, or the column has another type.
    #[error("column {0:?} is missing or has another type")]
    Column(String),
    /// A result that always has one row has none.
    #[error("the answer is empty")]
    NoRow,
    /// SQLite ended the transaction earlier.
    #[error("the transaction was ended: {0}")]
    Ended(String),
    /// The database was closed.
    #[error("the database is being closed")]
    Ending,
}

impl DatabaseError {
    /// PostgreSQL's SQLSTATE, SQLite's extended result code.
    pub(crate) fn code(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Sqlite(error) => error.sqlite_error().map(|e| e.extended_code.to_string().into()),
            Self::Postgres(error) => error.as_database_error()?.code(),
            _ => None,
        }
    }

    /// True if a row with the same key exists.
    pub(crate) fn is_unique_violation(&self) -> bool {
        // SQLITE_CONSTRAINT_UNIQUE, SQLITE_CONSTRAINT_PRIMARYKEY; SQLSTATE unique_violation.
        matches!(self.code().as_deref(), Some("2067" | "1555" | "23505"))
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        DatabaseError::from(error).into()
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        match error.code().as_deref() {
            // PostgreSQL: serialization failure, deadlock, lock timeout.
            Some("40001" | "40P01" | "55P03") => Self::Contended(error),
            // SQLite: the other writer did not finish in time.
            Some("5" | "517") => Self::Contended(error),
            _ => Self::Database(error),
        }
    }
}

impl StoreError {
    /// True when a retry may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::Contended(_) | Self::NotCommitted(_) | Self::Open { .. } => true,
            // By SQLSTATE: unstorable values, broken constraints and faulty statements fail again.
            Self::Database(error) => {
                let code = error.code();
                let class = code.as_deref().filter(|c| c.len() == 5).map_or("", |c| &c[..2]);
                !matches!(class, "22" | "23" | "42")
            }
            _ => false,
        }
    }
}

pub(crate) fn corrupt(
    what: &'static str,
    id: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Corrupt {
        what,
        id: id.to_owned(),
        source: source.into(),
    }
}
