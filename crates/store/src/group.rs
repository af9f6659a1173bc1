//! Changes of SQLite that are made stay together: group commit.
//!
//! SQLite has one writer, and each COMMIT waits for the disk. So changes that come close behind each other share one
//! transaction, each in a savepoint of its own: whoever has filled its change lets those who wait already go
//! first, and then commits for all. Nobody is told that a change stays before that COMMIT has come back; when
//! it fails, it has failed for all of them.
//!
//! Statements of a change are carried out in place (`sql.rs`). What waits for the disk or for another process goes to a
//! thread that may wait, and takes the writer along: who asked for it may be dropped meanwhile.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::Connection;
use sqlx::{Postgres, Transaction};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::DatabaseError;
use crate::readers::{PATIENCE, is_busy, open_writer};
use crate::sql::{Done, On, Query};
use crate::{Result, StoreError};

/// Takes the one place of a writer at once: a change that reads first never finds it taken later.
const BEGIN: &str = "BEGIN IMMEDIATE";
/// The savepoint that every transaction has from then on.
const FIRST: &str = "SAVEPOINT change";
/// A savepoint in place of the one before it, of which nothing has to be undone any more. That the old one has to be there
/// matters: a savepoint alone would begin another transaction where SQLite has ended this one, and what it undid by that
/// would be acknowledged.
const NEXT: [&str; 2] = ["RELEASE change", "SAVEPOINT change"];

/// The one writer of a SQLite database, and what it has not committed yet.
#[derive(Debug, Clone)]
pub(crate) struct Group(Arc<Mutex<Writer>>);

#[derive(Debug)]
struct Writer {
    path: PathBuf,
    /// None before the first change, and after one that left the last connection in doubt.
    connection: Option<Connection>,
    open: Option<Open>,
    is_closed: bool,
}

/// A transaction that changes take part in.
#[derive(Debug)]
struct Open {
    batch: Arc<Batch>,
    /// At least one change is complete: the next one needs a savepoint.
    has_changes: bool,
    /// SQLite has ended the transaction, as it does when the disk is full or broken.
    broken: Option<String>,
}

/// Changes that stay, or do not, together.
#[derive(Debug, Default)]
struct Batch {
    /// Set when it is known; the words say why they do not stay.
    outcome: OnceLock<std::result::Result<(), String>>,
}

impl Writer {
    /// Begins a transaction, and opens the file first if that has to be done.
    fn begin(&mut self, patience: Duration) -> std::result::Result<(), DatabaseError> {
        if self.is_closed {
            return Err(DatabaseError::Ending);
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => open_writer(&self.path)?,
        };
        connection.busy_timeout(patience)?;
        // A connection that fails at this is not used again, but for a lock that somebody else has for a while.
        let begun = run(&connection, BEGIN);
        if begun.as_ref().err().is_none_or(is_busy) {
            self.connection = Some(connection);
        }
        begun?;
        self.open = Some(Open {
            batch: Arc::default(),
            has_changes: false,
            broken: None,
        });
        self.run_own(FIRST);
        Ok(())
    }

    /// Sees to it that a transaction is open, if nothing has to be waited for. False: it may take longer.
    fn opens_at_once(&mut self) -> std::result::Result<bool, DatabaseError> {
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

    /// Runs a statement of the group's own, which fails only when the transaction is no more.
    fn run_own(&mut self, sql: &str) {
        let Some(open) = &mut self.open else { return };
        let done = self.connection.as_ref().ok_or(DatabaseError::Ending);
        if let Err(error) = done.and_then(|connection| Ok(run(connection, sql)?)) {
            open.broken = Some(error.to_string());
        }
    }

    /// Carries out a statement of a change.
    fn run(&mut self, query: &Query<'_>) -> std::result::Result<Done, DatabaseError> {
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

    /// Undoes the change that was begun last; nothing is left open for it alone.
    fn undo(&mut self) {
        match &self.open {
            Some(open) if open.broken.is_some() => {}
            Some(open) if open.has_changes => return self.run_own("ROLLBACK TO change"),
            _ => self.run_own("ROLLBACK"),
        }
        self.end(Err("there is no change in it".into()));
    }

    /// Commits what is open, if it is the batch that is meant.
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

    /// Tells the batch what has become of it. A connection that is not as it should be is not used again.
    fn end(&mut self, outcome: std::result::Result<(), String>) {
        let Some(open) = self.open.take() else { return };
        if open.broken.is_some() || !self.connection.as_ref().is_some_and(Connection::is_autocommit) {
            self.connection = None;
        }
        // It is set once: nobody else has this transaction.
        let _ = open.batch.outcome.set(open.broken.map_or(outcome, Err));
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(|_| ())
}

/// Does what may wait on a thread for that. It is done to its end, even if nobody waits for it any more.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
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

    /// Begins a change, when those that began before it are complete.
    pub(crate) async fn begin(&self) -> Result<Part> {
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        if !writer.opens_at_once()? {
            let group = self.clone();
            return aside(move || {
                writer.begin(PATIENCE)?;
                Part::of(&group, writer)
            })
            .await?;
        }
        // The first one has the savepoint that the transaction began with.
        if writer.open.as_ref().is_some_and(|open| open.has_changes) {
            NEXT.into_iter().for_each(|sql| writer.run_own(sql));
        }
        Part::of(self, writer)
    }

    /// A change of one statement.
    pub(crate) async fn execute(&self, query: Query<'_>) -> Result<Done> {
        if query.is_aside {
            let (mut part, query) = (self.begin().await?, query.into_owned());
            let (part, done) = aside(move || part.run(&query).map(|done| (part, done))).await??;
            part.commit().await?;
            return Ok(done);
        }
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        let mut part = if writer.opens_at_once()? {
            // Without a savepoint: SQLite makes it whole or not at all, and nobody can leave in the middle of it.
            Part::of(self, writer)?
        } else {
            drop(writer);
            self.begin().await?
        };
        match part.run(&query) {
            Ok(done) => part.commit().await.map(|()| done),
            Err(error) => {
                drop(part.keep());
                Err(error.into())
            }
        }
    }

    /// Commits a batch, unless somebody has.
    async fn commit(&self, batch: Arc<Batch>) -> Result<()> {
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        if !writer.is_open(&batch) {
            return Ok(());
        }
        aside(move || writer.commit(&batch)).await
    }

    /// Commits what is complete and closes the file.
    pub(crate) async fn close(&self) {
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        writer.is_closed = true;
        // Nobody is told of how that went: what was committed is there either way.
        let _ = aside(move || {
            if let Some(batch) = writer.open.as_ref().map(|open| open.batch.clone()) {
                writer.commit(&batch);
            }
            writer.connection = None;
        })
        .await;
    }
}

/// A change in its savepoint. Dropped, nothing of it stays.
#[derive(Debug)]
pub(crate) struct Part {
    /// None once it is complete.
    writer: Option<OwnedMutexGuard<Writer>>,
    group: Group,
    batch: Arc<Batch>,
}

impl Part {
    fn of(group: &Group, writer: OwnedMutexGuard<Writer>) -> Result<Self> {
        let Some(open) = &writer.open else {
            return Err(StoreError::NotCommitted("there is no transaction".into()));
        };
        let batch = Arc::clone(&open.batch);
        if let Some(why) = open.broken.clone() {
            drop(End {
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

    pub(crate) fn run(&mut self, query: &Query<'_>) -> std::result::Result<Done, DatabaseError> {
        self.writer.as_mut().ok_or(DatabaseError::Ending)?.run(query)
    }

    /// The change is complete: lets the writer go.
    fn keep(mut self) -> End {
        if let Some(writer) = &mut self.writer
            && let Some(open) = &mut writer.open
        {
            open.has_changes = true;
        }
        self.writer = None;
        End {
            group: self.group.clone(),
            batch: self.batch.clone(),
        }
    }

    /// The change is complete; waits until it stays.
    pub(crate) async fn commit(self) -> Result<()> {
        let end = self.keep();
        // It comes after those who wait for the writer already.
        end.group.commit(end.batch.clone()).await?;
        match end.batch.outcome.get() {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(StoreError::NotCommitted(why.clone())),
            None => Err(StoreError::NotCommitted("nobody committed it".into())),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        writer.undo();
        drop(writer);
        drop(End {
            group: self.group.clone(),
            batch: self.batch.clone(),
        });
    }
}

/// Brings a batch to its end when nobody waits for it any more: SQLite's lock must not stay taken.
#[derive(Debug)]
struct End {
    group: Group,
    batch: Arc<Batch>,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.batch.outcome.get().is_some() {
            return;
        }
        // Without a runtime nobody is there who could wait for the lock.
        if let Ok(runtime) = Handle::try_current() {
            let (group, batch) = (self.group.clone(), Arc::clone(&self.batch));
            runtime.spawn(async move { group.commit(batch).await });
        }
    }
}

/// A transaction for one change: its own on PostgreSQL, a part of one on SQLite.
#[derive(Debug)]
pub(crate) enum Tx {
    Own(Transaction<'static, Postgres>),
    Part(Part),
}

impl Tx {
    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Own(tx) => tx.commit().await.map_err(|error| DatabaseError::from(error).into()),
            Self::Part(part) => part.commit().await,
        }
    }
}

impl<'a> From<&'a mut Tx> for On<'a> {
    fn from(tx: &'a mut Tx) -> Self {
        match tx {
            Tx::Own(tx) => Self::Postgres(tx),
            Tx::Part(part) => Self::Sqlite(part),
        }
    }
}
