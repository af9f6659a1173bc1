//! Group commit for SQLite: concurrent changes share one transaction.
//!
//! SQLite has one writer, and each COMMIT waits for the disk. So changes in quick succession share one transaction, each in
//! its own savepoint: a complete change lets the changes already waiting for the writer go first, and then commits for all.
//! A change is acknowledged only after that COMMIT has returned; a failed COMMIT fails all of its changes.
//!
//! Statements of a change run in place (`sql.rs`). Work that waits for the disk or for another process runs on a blocking
//! thread, which owns the writer meanwhile: the caller may be dropped in the middle.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::Connection;
use sqlx::{Postgres, Transaction};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::DatabaseError;
use crate::readers::{BUSY_TIMEOUT, is_busy, open_writer};
use crate::sql::{Query, QueryResult, QueryTarget};
use crate::{Result, StoreError};

/// Takes the writer lock at the beginning: a change that reads first then cannot find the lock taken later.
const BEGIN: &str = "BEGIN IMMEDIATE";
/// The first savepoint of every transaction.
const FIRST: &str = "SAVEPOINT change";
/// Replaces the savepoint of a finished change by a new one. RELEASE requires the old savepoint, and that is the point: a
/// SAVEPOINT alone would begin a new transaction where SQLite has ended this one, and the lost changes would be
/// acknowledged.
const NEXT: [&str; 2] = ["RELEASE change", "SAVEPOINT change"];

/// The single writer of a SQLite database, and its uncommitted transaction.
#[derive(Debug, Clone)]
pub(crate) struct Group(Arc<Mutex<Writer>>);

#[derive(Debug)]
struct Writer {
    path: PathBuf,
    /// None before the first change, and after a change that left the connection in doubt.
    connection: Option<Connection>,
    open: Option<OpenTransaction>,
    is_closed: bool,
}

/// An open transaction, shared by changes.
#[derive(Debug)]
struct OpenTransaction {
    batch: Arc<Batch>,
    /// At least one change is complete: the next change needs a new savepoint.
    has_changes: bool,
    /// SQLite has ended the transaction, as it does when the disk is full or broken; the reason.
    broken: Option<String>,
}

/// Changes that are committed or lost together.
#[derive(Debug, Default)]
struct Batch {
    /// Set once the outcome is known; an error is the reason of the loss.
    outcome: OnceLock<std::result::Result<(), String>>,
}

impl Writer {
    /// Begins a transaction, and opens the file first if necessary.
    fn begin(&mut self, timeout: Duration) -> std::result::Result<(), DatabaseError> {
        if self.is_closed {
            return Err(DatabaseError::Ending);
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => open_writer(&self.path)?,
        };
        connection.busy_timeout(timeout)?;
        // A connection that fails here is not reused, except after a lock conflict.
        let begun = run(&connection, BEGIN);
        if begun.as_ref().err().is_none_or(is_busy) {
            self.connection = Some(connection);
        }
        begun?;
        self.open = Some(OpenTransaction {
            batch: Arc::default(),
            has_changes: false,
            broken: None,
        });
        self.run_own(FIRST);
        Ok(())
    }

    /// Opens a transaction if that needs no wait. False: it may take longer.
    fn try_open(&mut self) -> std::result::Result<bool, DatabaseError> {
        if self.open.is_some() {
            return Ok(true);
        }
        if self.connection.is_none() {
            return Ok(false);
        }
        match self.begin(Duration::ZERO) {
            Err(DatabaseError::Sqlite(error)) if is_busy(&error) => Ok(false),
            begun => begun.map(|()| true),
        }
    }

    /// Runs a statement of the group itself; a failure means that the transaction is gone.
    fn run_own(&mut self, sql: &str) {
        let Some(open) = &mut self.open else { return };
        let done = self.connection.as_ref().ok_or(DatabaseError::Ending);
        if let Err(error) = done.and_then(|connection| Ok(run(connection, sql)?)) {
            open.broken = Some(error.to_string());
        }
    }

    /// Runs a statement of a change.
    fn run(&mut self, query: &Query<'_>) -> std::result::Result<QueryResult, DatabaseError> {
        let (Some(connection), Some(open)) = (&self.connection, &mut self.open) else {
            return Err(DatabaseError::Ending);
        };
        if let Some(why) = &open.broken {
            return Err(DatabaseError::Ended(why.clone()));
        }
        let done = query.run_on(connection);
        if let (Err(error), true) = (&done, connection.is_autocommit()) {
            open.broken = Some(error.to_string());
        }
        done
    }

    /// Undoes the last change; a transaction without other changes is rolled back.
    fn undo(&mut self) {
        match &self.open {
            Some(open) if open.broken.is_some() => {}
            Some(open) if open.has_changes => return self.run_own("ROLLBACK TO change"),
            _ => self.run_own("ROLLBACK"),
        }
        self.end(Err("the transaction contains no change".into()));
    }

    /// Commits the open transaction, if it is this batch.
    fn commit(&mut self, batch: &Arc<Batch>) {
        if self.is_open(batch) {
            if self.open.as_ref().is_some_and(|open| open.broken.is_none()) {
                self.run_own("COMMIT");
            }
            self.end(Ok(()));
        }
    }

    fn is_open(&self, batch: &Arc<Batch>) -> bool {
        self.open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.batch, batch))
    }

    /// Publishes the outcome of the batch. A connection in an unexpected state is not reused.
    fn end(&mut self, outcome: std::result::Result<(), String>) {
        let Some(open) = self.open.take() else { return };
        if open.broken.is_some() || !self.connection.as_ref().is_some_and(Connection::is_autocommit) {
            self.connection = None;
        }
        // Never set twice: only this call owns the transaction.
        let _ = open.batch.outcome.set(open.broken.map_or(outcome, Err));
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(|_| ())
}

/// Runs work that may block on a blocking thread. It runs to its end even if the caller is dropped.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| StoreError::NotCommitted("this process is ending".into()))
}

impl Group {
    pub(crate) fn new(path: &Path) -> Self {
        Self(Arc::new(Mutex::new(Writer {
            path: path.to_owned(),
            connection: None,
            open: None,
            is_closed: false,
        })))
    }

    /// Begins a change, after the earlier ones are complete.
    pub(crate) async fn begin(&self) -> Result<GroupedChange> {
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        if !writer.try_open()? {
            let group = self.clone();
            return blocking(move || {
                writer.begin(BUSY_TIMEOUT)?;
                GroupedChange::of(&group, writer)
            })
            .await?;
        }
        // The first change uses the transaction's own savepoint.
        if writer.open.as_ref().is_some_and(|open| open.has_changes) {
            NEXT.into_iter().for_each(|sql| writer.run_own(sql));
        }
        GroupedChange::of(self, writer)
    }

    /// Runs a change of one statement.
    pub(crate) async fn execute(&self, query: Query<'_>) -> Result<QueryResult> {
        if query.is_blocking {
            let (mut part, query) = (self.begin().await?, query.into_owned());
            let (part, done) = blocking(move || part.run(&query).map(|done| (part, done))).await??;
            part.commit().await?;
            return Ok(done);
        }
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        let mut part = if writer.try_open()? {
            // Without a savepoint: a single statement is atomic in SQLite, and the caller cannot be dropped in the middle
            // of it.
            GroupedChange::of(self, writer)?
        } else {
            drop(writer);
            self.begin().await?
        };
        match part.run(&query) {
            Ok(done) => part.commit().await.map(|()| done),
            Err(error) => {
                drop(part.complete());
                Err(error.into())
            }
        }
    }

    /// Commits a batch, unless it is committed already.
    async fn commit(&self, batch: Arc<Batch>) -> Result<()> {
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        if !writer.is_open(&batch) {
            return Ok(());
        }
        blocking(move || writer.commit(&batch)).await
    }

    /// Commits the complete changes and closes the file.
    pub(crate) async fn close(&self) {
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        writer.is_closed = true;
        // The result does not matter: acknowledged changes are committed already.
        let _ = blocking(move || {
            if let Some(batch) = writer.open.as_ref().map(|open| open.batch.clone()) {
                writer.commit(&batch);
            }
            writer.connection = None;
        })
        .await;
    }
}

/// A change in its savepoint. Dropping it undoes the change.
#[derive(Debug)]
pub(crate) struct GroupedChange {
    /// None once the change is complete.
    writer: Option<OwnedMutexGuard<Writer>>,
    group: Group,
    batch: Arc<Batch>,
}

impl GroupedChange {
    fn of(group: &Group, writer: OwnedMutexGuard<Writer>) -> Result<Self> {
        let Some(open) = &writer.open else {
            return Err(StoreError::NotCommitted("there is no transaction".into()));
        };
        let batch = Arc::clone(&open.batch);
        if let Some(why) = open.broken.clone() {
            drop(PendingCommit {
                group: group.clone(),
                batch,
            });
            return Err(StoreError::NotCommitted(why));
        }
        Ok(Self {
            writer: Some(writer),
            group: group.clone(),
            batch,
        })
    }

    pub(crate) fn run(&mut self, query: &Query<'_>) -> std::result::Result<QueryResult, DatabaseError> {
        self.writer.as_mut().ok_or(DatabaseError::Ending)?.run(query)
    }

    /// Marks the change as complete and releases the writer.
    fn complete(mut self) -> PendingCommit {
        if let Some(writer) = &mut self.writer
            && let Some(open) = &mut writer.open
        {
            open.has_changes = true;
        }
        self.writer = None;
        PendingCommit {
            group: self.group.clone(),
            batch: self.batch.clone(),
        }
    }

    /// Marks the change as complete, and waits for the commit.
    pub(crate) async fn commit(self) -> Result<()> {
        let end = self.complete();
        // Queues behind the changes that wait for the writer already.
        end.group.commit(end.batch.clone()).await?;
        match end.batch.outcome.get() {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(StoreError::NotCommitted(why.clone())),
            None => Err(StoreError::NotCommitted("the transaction was not committed".into())),
        }
    }
}

impl Drop for GroupedChange {
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        writer.undo();
        drop(writer);
        drop(PendingCommit {
            group: self.group.clone(),
            batch: self.batch.clone(),
        });
    }
}

/// Ends a batch when no caller waits for it any more: SQLite's lock must not stay taken.
#[derive(Debug)]
struct PendingCommit {
    group: Group,
    batch: Arc<Batch>,
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        if self.batch.outcome.get().is_some() {
            return;
        }
        // Without a runtime no other task can wait for the lock.
        if let Ok(runtime) = Handle::try_current() {
            let (group, batch) = (self.group.clone(), Arc::clone(&self.batch));
            runtime.spawn(async move { group.commit(batch).await });
        }
    }
}

/// The transaction of one change: a whole one on PostgreSQL, a part of one on SQLite.
#[derive(Debug)]
pub(crate) enum Tx {
    Own(Transaction<'static, Postgres>),
    GroupedChange(GroupedChange),
}

impl Tx {
    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Own(tx) => tx.commit().await.map_err(|error| DatabaseError::from(error).into()),
            Self::GroupedChange(part) => part.commit().await,
        }
    }
}

impl<'a> From<&'a mut Tx> for QueryTarget<'a> {
    fn from(tx: &'a mut Tx) -> Self {
        match tx {
            Tx::Own(tx) => Self::Postgres(tx),
            Tx::GroupedChange(part) => Self::Sqlite(part),
        }
    }
}
