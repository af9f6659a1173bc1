//! A database file for each test.

use std::path::PathBuf;

use rackwright_store::Database;
use rusqlite::Connection;
use tempfile::TempDir;

/// A file that is deleted with its folder.
pub struct Fresh {
    dir: TempDir,
}

impl Fresh {
    pub async fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
        }
    }

    /// The store makes the schema of a file quickly: no test makes it for others.
    pub async fn with_schema() -> Self {
        Self::new().await
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("test.db")
    }

    pub fn database(&self) -> Database {
        Database::from(&self.path())
    }

    /// Runs one statement, bypassing the store.
    pub async fn sql(&self, statement: &str) {
        Connection::open(self.path()).unwrap().execute_batch(statement).unwrap();
    }
}
