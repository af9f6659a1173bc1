//! A SQLite file: how it is opened, and the connections that read it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::DatabaseError;
use crate::sql::{Done, PREPARED, Query};

/// How long the file's lock is waited for, should another process have it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Every connection that writes. What was acknowledged survives a power cut, not only a crash.
/// What undoes a savepoint is kept in memory, not in a file.
/// What is deleted is overwritten in the file, so that a secret that was dropped is not found in a copy of the file later.
const WRITER: &str = "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; \
                      PRAGMA secure_delete = ON;";
const WAL: &str = "PRAGMA journal_mode = WAL;";
/// Between two tries of that. SQLite does not wait by itself for others who want the same of a new file.
const PAUSE: Duration = Duration::from_millis(10);

/// Opens the file to write to it, and makes it where it is not there. May wait: not for threads that others need.
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
            Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            done => return done.map(|()| connection),
        }
    }
}

/// Carries the write-ahead log over into the file and empties it: what was changed since stands in it in the clear, as far
/// as it was not sealed. Left for the next time where others read.
pub(crate) fn empty_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Somebody else has the file's lock.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // A statement's plan does not depend on its parameters, or it would be prepared anew for each: many did, because of
    // partial indexes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    Ok(connection)
}

/// Connections that read. There are as many as statements were carried out at once: one for each thread, at the most.
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

    pub(crate) async fn run(&self, query: Query<'_>) -> Result<Done, DatabaseError> {
        if !query.is_aside {
            return self.run_here(&query);
        }
        let (this, query) = (self.clone(), query.into_owned());
        let done = tokio::task::spawn_blocking(move || this.run_here(&query)).await;
        done.unwrap_or(Err(DatabaseError::Ending))
    }

    fn run_here(&self, query: &Query<'_>) -> Result<Done, DatabaseError> {
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
