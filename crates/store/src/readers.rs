//! A SQLite file: opening it, and its connections for reads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::DatabaseError;
use crate::sql::{PREPARED, Query, QueryResult};

/// Longest wait for the file's lock, if another process has it.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Settings of every writing connection. Acknowledged changes survive a power cut, not only a crash. The undo data of
/// savepoints stay in memory. Deleted content is overwritten in the file, so that a later copy of the file does not contain
/// a deleted secret.
const WRITER: &str = "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; \
                      PRAGMA secure_delete = ON;";
const WAL: &str = "PRAGMA journal_mode = WAL;";
/// Between two tries to switch to WAL. SQLite does not wait by itself for other processes that switch a new file.
const PAUSE: Duration = Duration::from_millis(10);

/// Opens the file for writing, and creates it if it is missing. May block: not for async threads.
pub(crate) fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(path, flags)?;
    connection.execute_batch(WRITER)?;
    let begun = Instant::now();
    loop {
        match connection.execute_batch(WAL) {
            #[expect(
                clippy::disallowed_methods,
                reason = "connections have threads of their own; SQLite sends no event here"
            )]
            Err(error) if is_busy(&error) && begun.elapsed() < BUSY_TIMEOUT => std::thread::sleep(PAUSE),
            done => return done.map(|()| connection),
        }
    }
}

/// Moves the write-ahead log into the file and empties it: it contains former contents of rows, in the clear where they
/// were not sealed. Postponed to the next call while others read.
pub(crate) fn empty_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// True if another process has the file's lock.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // With QPSG a statement's plan does not depend on its parameters. Otherwise many statements would be prepared anew for
    // each value, because of partial indexes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    // As in PostgreSQL.
    connection.pragma_update(None, "case_sensitive_like", true)?;
    Ok(connection)
}

/// Connections for reads: as many as statements have run at once, at most one for each thread.
#[derive(Debug, Clone)]
pub(crate) struct SqliteReaders(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// None: closed.
    idle: Mutex<Option<Vec<Connection>>>,
}

impl SqliteReaders {
    pub(crate) fn new(path: &Path) -> Self {
        let (path, idle) = (path.to_owned(), Mutex::new(Some(Vec::new())));
        Self(Arc::new(Shared { path, idle }))
    }

    pub(crate) async fn run(&self, query: Query<'_>) -> Result<QueryResult, DatabaseError> {
        if !query.is_blocking {
            return self.run_here(&query);
        }
        let (this, query) = (self.clone(), query.into_owned());
        let done = tokio::task::spawn_blocking(move || this.run_here(&query)).await;
        done.unwrap_or(Err(DatabaseError::Ending))
    }

    fn run_here(&self, query: &Query<'_>) -> Result<QueryResult, DatabaseError> {
        let idle = self.idle().as_mut().ok_or(DatabaseError::Ending)?.pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open(
                &self.0.path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?,
        };
        let done = query.run_on(&connection)?;
        if let Some(idle) = &mut *self.idle() {
            idle.push(connection);
        }
        Ok(done)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn close(&self) {
        *self.idle() = None;
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<Connection>>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
