//! Where the database is, and what the two kinds of databases do differently beside their schema.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, Postgres, Transaction};
use url::Url;

use crate::error::DatabaseError;
use crate::group::Group;
use crate::hints::Hints;
use crate::readers::{SqliteReaders, empty_log, open_writer};
use crate::sql::On;
use crate::{Result, Store, StoreError, schema};

/// The longest wait for a connection, and for making one.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is tried before it is used: the server may have gone meanwhile.
const IDLE: Duration = Duration::from_secs(1);
/// Connections that read.
const READERS: u32 = 8;
/// Connections that write.
const WRITERS: u32 = 16;
/// Connections that listen and speak for hints.
const HINTS: u32 = 2;
/// What may stand behind the `?` of a PostgreSQL URL. Nothing else: it would be ignored, or printed.
const PARAMETERS: &[&str] = &[
    "application_name",
    "host",
    "options",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
];

/// Every connection to PostgreSQL. No statement, no wait for a lock and no change whose owner is gone lasts for ever.
/// What a server or role sets otherwise for isolation, and for acknowledging before it is safe, does not count here.
const POSTGRES: &str = "SET client_min_messages = warning; SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
                        SET idle_in_transaction_session_timeout = '60s'; \
                        SET default_transaction_isolation = 'read committed'; \
                        SELECT set_config('synchronous_commit', 'on', false) \
                        WHERE current_setting('synchronous_commit') = 'off'";

/// Which of the two it is, and the few words of SQL that they do not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    /// At the end of a SELECT: nobody else changes these rows until the change ends. On SQLite nobody else writes at all.
    pub(crate) fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// The same, but rows that somebody else is at are left out.
    pub(crate) fn for_update_skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }
}

/// Where the database is. Shown without its password.
#[derive(Clone)]
pub enum Database {
    /// A SQLite file; its folder has to be there.
    File(PathBuf),
    /// A PostgreSQL server.
    Server(Server),
}

/// A PostgreSQL server and one of its databases.
#[derive(Clone)]
pub struct Server {
    pub(crate) url: Url,
    pub(crate) password_file: Option<PathBuf>,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Database {
    fn from(path: &P) -> Self {
        Self::File(path.as_ref().to_owned())
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Server(server) = self else {
            let Self::File(path) = self else { return Ok(()) };
            return write!(f, "{}", path.display());
        };
        let mut url = server.url.clone();
        let socket = url.query_pairs().find(|(key, _)| key == "host").map(|(_, host)| host);
        let socket = socket.map(|host| format!(" at {host}")).unwrap_or_default();
        // An address that can hold no password holds none.
        let _ = url.set_password(None);
        url.set_query(None);
        write!(f, "{url}{socket}")
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({self})")
    }
}

impl Database {
    /// A database as settings name it: the absolute path of a file, or `postgres://USER[:PASSWORD]@HOST[:PORT]/NAME`. The
    /// password may be in a file instead, of which the first line counts, or where libpq looks: `PGPASSFILE`, `~/.pgpass`.
    ///
    /// # Errors
    /// What is wrong with it, in words and without the password.
    pub fn parse(text: &str, password_file: Option<PathBuf>) -> std::result::Result<Self, String> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            if !Path::new(text).is_absolute() || text.contains("://") {
                return Err("must be an absolute path, or postgres://USER@HOST/NAME".into());
            }
            if password_file.is_some() {
                return Err("is a file, which has no password".into());
            }
            return Ok(Self::File(text.into()));
        }
        let no_url = "is not a URL like postgres://USER@HOST:PORT/NAME; in a password, # / and @ are %23 %2F and %40";
        let url = Url::parse(text).map_err(|_| no_url.to_owned())?;
        if let Some((key, _)) = url.query_pairs().find(|(key, _)| !PARAMETERS.contains(&key.as_ref())) {
            return Err(match key.as_ref() {
                "password" => "a password belongs before the @, or into a file".to_owned(),
                _ => format!("{key:?} is not one of {}", PARAMETERS.join(", ")),
            });
        }
        if url.fragment().is_some() {
            return Err(no_url.into());
        }
        if url.path().trim_matches('/').is_empty() {
            return Err("names no database: postgres://USER@HOST/NAME".into());
        }
        if url.password().is_some() && password_file.is_some() {
            return Err("holds a password, and there is a password file too: keep one of them".into());
        }
        Ok(Self::Server(Server { url, password_file }))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::File(_) => Kind::Sqlite,
            Self::Server(_) => Kind::Postgres,
        }
    }

    pub(crate) async fn open(self) -> Result<Store> {
        match &self {
            Self::File(path) => self.open_file(path.clone()).await,
            Self::Server(server) => self.open_server(server).await,
        }
    }

    async fn open_file(&self, path: PathBuf) -> Result<Store> {
        let file = path.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let mut connection = open_writer(&file)?;
            schema::migrate_sqlite(&mut connection)?;
            Ok(empty_log(&connection).map_err(DatabaseError::Sqlite)?)
        });
        let opened = opened.await.unwrap_or(Err(DatabaseError::Ending.into()));
        opened.map_err(|error| self.named(error))?;
        Ok(Store {
            kind: Kind::Sqlite,
            writer: Writer::Sqlite(Group::new(&path)),
            readers: Readers::Sqlite(SqliteReaders::new(&path)),
            hints: Arc::new(Hints::none()),
            placing: Arc::default(),
        })
    }

    async fn open_server(&self, server: &Server) -> Result<Store> {
        let options = server.options()?;
        let named = |error: sqlx::Error| self.named(DatabaseError::from(error).into());
        // By itself, without the pool: that would try until its time is over and then not say why.
        let connecting = async {
            let mut connection = options.connect().await?;
            connection.execute(POSTGRES).await?;
            Ok(connection)
        };
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        let mut connection = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(named)?;
        let migrated = schema::migrate_postgres(&mut connection).await;
        migrated.map_err(|error| self.named(error))?;
        connection.close().await.map_err(named)?;
        Ok(Store {
            kind: Kind::Postgres,
            hints: Arc::new(hints(options.clone())),
            writer: Writer::Postgres(pool(WRITERS).connect_lazy_with(options.clone())),
            readers: Readers::Postgres(pool(READERS).connect_lazy_with(options)),
            placing: Arc::default(),
        })
    }

    /// What the database said, with its name and what to do.
    fn named(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Database(source) | StoreError::Contended(source) => StoreError::Open {
                database: self.to_string(),
                hint: hint(self.kind(), &source),
                source,
            },
            other => other,
        }
    }
}

impl Server {
    /// The first line of the password file.
    pub(crate) fn password_in(&self, path: &Path) -> Result<String> {
        let text = std::fs::read_to_string(path).map_err(|source| StoreError::PasswordFile {
            path: path.to_owned(),
            source,
        })?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    pub(crate) fn options(&self) -> Result<PgConnectOptions> {
        let mut url = self.url.clone();
        if let Some(path) = &self.password_file {
            // Refused only by addresses without a host, which were refused before.
            let _ = url.set_password(Some(&self.password_in(path)?));
        }
        if !url.query_pairs().any(|(key, _)| key == "application_name") {
            url.query_pairs_mut().append_pair("application_name", "rackwrightd");
        }
        Ok(PgConnectOptions::from_url(&url).map_err(DatabaseError::from)?)
    }
}

fn pool(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(PATIENCE)
        .after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(POSTGRES).await?;
                Ok(())
            })
        })
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > IDLE {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
}

/// Begins a transaction. Who stops waiting for it leaves none open behind: sqlx-postgres 0.9 sends no ROLLBACK for a BEGIN
/// that was sent and whose answer nobody took, and the next change of one statement on that connection would be part of a
/// transaction that nobody commits. So the answer is always taken, in a task of its own.
pub(crate) async fn begin(pool: &PgPool) -> std::result::Result<Transaction<'static, Postgres>, DatabaseError> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move { pool.begin().await }).await;
    Ok(begun.map_err(|_| DatabaseError::Ending)??)
}

/// A pool of its own: hints wait for no change, and no change for them.
fn hints(options: PgConnectOptions) -> Hints {
    let pool = PgPoolOptions::new()
        .max_connections(HINTS)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options);
    Hints::through(pool)
}

/// Who carries out changes.
#[derive(Debug, Clone)]
pub(crate) enum Writer {
    Sqlite(Group),
    Postgres(PgPool),
}

/// Who carries out what only reads.
#[derive(Debug, Clone)]
pub(crate) enum Readers {
    Sqlite(SqliteReaders),
    Postgres(PgPool),
}

impl<'a> From<&'a Readers> for On<'a> {
    fn from(readers: &'a Readers) -> Self {
        match readers {
            Readers::Sqlite(readers) => Self::Readers(readers),
            Readers::Postgres(pool) => Self::Pool(pool),
        }
    }
}

/// What to do about a database that cannot be opened.
fn hint(kind: Kind, error: &DatabaseError) -> String {
    if kind == Kind::Sqlite {
        return "is its folder there, may we write to it, and is it a database of ours?".into();
    }
    match error.code().as_deref() {
        Some("28P01" | "28000") => "check user, password and the server's pg_hba.conf".into(),
        Some("3D000") => "create it: CREATE DATABASE name OWNER user".into(),
        Some("42501") => "its user must be allowed to make tables: let it own the database".into(),
        Some("53300") => format!(
            "it has no connection left: each rackwrightd uses up to {}",
            WRITERS + READERS + HINTS
        ),
        _ => "is the server up, and can it be reached from here?".into(),
    }
}
