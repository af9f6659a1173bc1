//! What can go wrong with what is kept.

use std::borrow::Cow;
use std::path::PathBuf;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing of that name.
    #[error("{kind} {id:?} does not exist")]
    NotFound {
        /// "node", "image", "operation", ...
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// The name is taken.
    #[error("{kind} {id:?} exists already")]
    Exists {
        /// "node", "image", ...
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// Somebody changed it since it was read.
    #[error("{kind} {id:?} was changed by somebody else meanwhile; read it again")]
    Conflict {
        /// "node", "image", ...
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// The same idempotency key came with another request.
    #[error("idempotency key {key:?} was used before for another request ({method})")]
    KeyReused {
        /// The key.
        key: String,
        /// What it was used for.
        method: String,
    },
    /// The MAC address belongs to another node.
    #[error("MAC address {mac} belongs to node {node:?} already")]
    MacTaken {
        /// The address.
        mac: String,
        /// Its node.
        node: String,
    },
    /// The file was written by a newer program.
    #[error("the database has schema {found}, this program knows up to {known}; start the newer program")]
    NewerSchema {
        /// In the file.
        found: i64,
        /// Here.
        known: i64,
    },
    /// A row does not read as what it should be.
    #[error("{what} {id:?} cannot be read back")]
    Corrupt {
        /// Which kind of row.
        what: &'static str,
        /// Its id.
        id: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database cannot be opened.
    #[error("the database {database} cannot be opened; {hint}")]
    Open {
        /// Where it is, without its password.
        database: String,
        /// What to do.
        hint: String,
        /// Why.
        #[source]
        source: DatabaseError,
    },
    /// The password of the database cannot be read.
    #[error("the database's password file {} cannot be read", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Others changed the same at the same time, and this was not done.
    #[error("others changed the same at the same time; try again")]
    Contended(#[source] DatabaseError),
    /// The transaction that the change was a part of did not stay, and so nothing of the change.
    #[error("the database did not take the change: {0}")]
    NotCommitted(String),
    /// The database itself.
    #[error("the database failed")]
    Database(#[source] DatabaseError),
}

/// What the database, or the way there, says.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// SQLite.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL.
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
    /// An answer has no such column, or it is of another type.
    #[error("column {0:?} is not there or of another type")]
    Column(String),
    /// An answer that has one row in any case has none.
    #[error("the answer is empty")]
    NoRow,
    /// SQLite has ended the transaction before.
    #[error("the transaction was ended: {0}")]
    Ended(String),
    /// It was closed.
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

    /// A row with the same key is there.
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
            // PostgreSQL: serialization failure, deadlock, a lock not had in time.
            Some("40001" | "40P01" | "55P03") => Self::Contended(error),
            // SQLite: the other writer was not done in time.
            Some("5" | "517") => Self::Contended(error),
            _ => Self::Database(error),
        }
    }
}

impl StoreError {
    /// True when the same again may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::Contended(_) | Self::NotCommitted(_) | Self::Open { .. } => true,
            // By SQLSTATE: values that cannot be stored, broken constraints and faulty statements stay what they are.
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
