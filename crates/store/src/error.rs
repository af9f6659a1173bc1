//! What can go wrong with what is kept.

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
    /// The database itself.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    /// True when the same again may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Database(_))
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

pub(crate) fn is_unique_violation(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|e| e.is_unique_violation())
}
