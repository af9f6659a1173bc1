//! Changes of SQLite that are made stay together: group commit.
//!
//! SQLite has one writer, and each COMMIT waits for the disk. So changes that come close behind each other share one
//! transaction, each in a savepoint of its own: whoever has filled its change lets those who wait already go
//! first, and then commits for all. Nobody is told that a change stays before that COMMIT has come back; when
//! it fails, it has failed for all of them.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Transaction};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};

use crate::{Result, StoreError};

/// Takes the one place of a writer at once, and makes the savepoint that every transaction has from then on.
const BEGIN: &str = "BEGIN IMMEDIATE; SAVEPOINT change";
/// A savepoint in place of the one before it, of which nothing has to be undone any more. That the old one has to be there
/// matters: a savepoint alone would begin another transaction where SQLite has ended this one, and what it undid by that
/// would be acknowledged.
const NEXT: &str = "RELEASE change; SAVEPOINT change";

/// The one writer of a SQLite database, and what it has not committed yet.
#[derive(Debug, Clone)]
pub(crate) struct Group(Arc<Mutex<Writer>>);

#[derive(Debug)]
struct Writer {
    pool: AnyPool,
    open: Option<Open>,
}

/// A transaction that changes take part in. Begun and ended by statements of ours: sqlx's own would count a transaction
/// that SQLite has ended as open for ever.
#[derive(Debug)]
struct Open {
    connection: PoolConnection<Any>,
    batch: Arc<Batch>,
    /// A change has begun and is not complete. Who finds this with the lock in hand finds what was dropped.
    in_change: bool,
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
    /// The open transaction, with nothing in it of a change that was dropped; one is begun where there is none.
    async fn ready(&mut self) -> Result<&mut Open> {
        self.clear().await;
        let open = match self.open.take() {
            Some(open) => open,
            None => Open::begin(&self.pool).await?,
        };
        Ok(self.open.insert(open))
    }

    /// Takes out what was dropped; a transaction that cannot go on is given up.
    async fn clear(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if open.in_change && open.broken.is_none() {
            open.in_change = false;
            if !open.has_changes {
                open.run("ROLLBACK").await;
                open.end(Err("there is no change in it".into()));
                return;
            }
            open.run("ROLLBACK TO change").await;
        }
        match open.broken.clone() {
            Some(why) => open.end(Err(why)),
            None => self.open = Some(open),
        }
    }

    /// Commits what is open, if it is the batch that is meant.
    async fn commit(&mut self, batch: &Arc<Batch>) {
        if !self.open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.batch, batch)) {
            return;
        }
        self.clear().await;
        if let Some(mut open) = self.open.take() {
            open.run("COMMIT").await;
            let outcome = open.broken.clone().map_or(Ok(()), Err);
            open.end(outcome);
        }
    }
}

impl Open {
    async fn begin(pool: &AnyPool) -> Result<Self> {
        let mut connection = pool.acquire().await?;
        if let Err(error) = sqlx::raw_sql(BEGIN).execute(&mut *connection).await {
            // Whatever is the matter with it, the next one is new.
            drop(connection.detach());
            return Err(error.into());
        }
        Ok(Self {
            connection,
            batch: Arc::default(),
            in_change: false,
            has_changes: false,
            broken: None,
        })
    }

    /// Runs a statement of the group's own, which fails only when the transaction is no more.
    async fn run(&mut self, sql: &'static str) {
        if let Err(error) = sqlx::raw_sql(sql).execute(&mut *self.connection).await {
            self.broken = Some(error.to_string());
        }
    }

    /// Tells the batch what has become of it. A connection that is not as it should be is not used again.
    fn end(self, outcome: std::result::Result<(), String>) {
        if self.broken.is_some() {
            drop(self.connection.detach());
        }
        // It is set once: nobody else has this transaction.
        let _ = self.batch.outcome.set(outcome);
    }
}

impl Group {
    pub(crate) fn new(pool: AnyPool) -> Self {
        Self(Arc::new(Mutex::new(Writer { pool, open: None })))
    }

    /// Begins a change, when those that began before it are complete.
    pub(crate) async fn begin(&self) -> Result<Part> {
        whole(self.clone().start(true)).await
    }

    /// The same for a change of one statement, which SQLite makes whole or not at all. Dropped after the statement was
    /// begun, it stays.
    pub(crate) async fn begin_statement(&self) -> Result<Part> {
        whole(self.clone().start(false)).await
    }

    async fn start(self, undoable: bool) -> Result<Part> {
        let mut writer = Arc::clone(&self.0).lock_owned().await;
        let open = writer.ready().await?;
        if !undoable {
            open.has_changes = true;
        } else {
            if open.has_changes {
                open.run(NEXT).await;
            }
            open.in_change = true;
        }
        if let Some(why) = &open.broken {
            return Err(StoreError::NotCommitted(why.clone()));
        }
        let batch = Arc::clone(&open.batch);
        let gone = || StoreError::NotCommitted("there is no transaction".into());
        let open = OwnedMutexGuard::try_map(writer, |writer| writer.open.as_mut()).map_err(|_| gone())?;
        let end = End { group: self, batch };
        Ok(Part { open, end })
    }
}

/// Runs in a task of its own: whoever waits for it may be dropped, but a statement of the group's own that was begun has to
/// be followed to its end, or nobody knows which savepoints there are.
async fn whole<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|_| Err(StoreError::NotCommitted("this process is ending".into())))
}

/// A change in its savepoint. Dropped, nothing of it stays.
#[derive(Debug)]
pub(crate) struct Part {
    // In this order: the writer is let go, then the batch is brought to its end.
    open: OwnedMappedMutexGuard<Writer, Open>,
    end: End,
}

impl Part {
    /// The change is complete; waits until it stays.
    async fn commit(self) -> Result<()> {
        whole(self.stay()).await
    }

    async fn stay(mut self) -> Result<()> {
        self.open.has_changes = true;
        self.open.in_change = false;
        let Self { open, end } = self;
        drop(open);
        // It comes after those who wait for the writer already.
        end.group.0.lock().await.commit(&end.batch).await;
        match end.batch.outcome.get() {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(StoreError::NotCommitted(why.clone())),
            None => Err(StoreError::NotCommitted("nobody committed it".into())),
        }
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
            let (writer, batch) = (Arc::clone(&self.group.0), Arc::clone(&self.batch));
            runtime.spawn(async move { writer.lock().await.commit(&batch).await });
        }
    }
}

/// A transaction for one change: its own on PostgreSQL, a part of one on SQLite.
#[derive(Debug)]
pub(crate) enum Tx {
    Own(Transaction<'static, Any>),
    Part(Part),
}

impl Tx {
    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Own(tx) => Ok(tx.commit().await?),
            Self::Part(part) => part.commit().await,
        }
    }
}

impl Deref for Tx {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        match self {
            Self::Own(tx) => tx,
            Self::Part(part) => &part.open.connection,
        }
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        match self {
            Self::Own(tx) => tx,
            Self::Part(part) => &mut part.open.connection,
        }
    }
}
