//! The location of the database, and the differences between the two kinds of databases beside their schema.

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
use crate::sql::QueryTarget;
use crate::{Result, Store, StoreError, schema};

/// Longest wait for a connection, and for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection idle for longer is tested before use: the server may be gone.
const IDLE: Duration = Duration::from_secs(1);
/// Connections for reads.
const READERS: u32 = 8;
/// Connections for writes.
const WRITERS: u32 = 16;
/// Connections for hints: one listens, one sends.
const HINTS: u32 = 2;
/// Parameters allowed after the `?` of a PostgreSQL URL. Others are refused: they would be ignored, or printed.
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

/// Sent on every connection to PostgreSQL. Statements, lock waits and abandoned changes have time limits. Settings of the
/// server or role for isolation, and for early acknowledgement, are overridden.
const POSTGRES: &str = "SET client_min_messages = warning; SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
                        SET idle_in_transaction_session_timeout = '60s'; \
                        SET default_transaction_isolation = 'read committed'; \
                        SELECT set_config('synchronous_commit', 'on', false) \
                        WHERE current_setting('synchronous_commit') = 'off'";

/// The kind of database, and the few words of SQL that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    /// Suffix of a SELECT that locks the rows until the change ends. SQLite has only one writer, and needs none.
    pub(crate) fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// As `for_update`, but skips rows that another change has locked.
    pub(crate) fn for_update_skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }
}

/// The location of the database. Displayed without its password.
#[derive(Clone)]
pub enum Database {
    /// A SQLite file; its folder must exist.
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
        // Fails only for an address that cannot have a password.
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
    /// Parses the location from settings: the absolute path of a file, or `postgres://USER[:PASSWORD]@HOST[:PORT]/NAME`.
    /// The password may be in the first line of a file instead, or where libpq looks: `PGPASSFILE`, `~/.pgpass`.
    ///
    /// # Errors
    /// The fault in words, without the password.
    pub fn parse(text: &str, password_file: Option<PathBuf>) -> std::result::Result<Self, String> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            if !Path::new(text).is_absolute() || text.contains("://") {
                return Err("must be an absolute path, or postgres://USER@HOST/NAME".into());
            }
            if password_file.is_some() {
                return Err("is a file; a file has no password".into());
            }
            return Ok(Self::File(text.into()));
        }
        let no_url = "is not a URL like postgres://USER@HOST:PORT/NAME; in a password, # / and @ are %23 %2F and %40";
        let url = Url::parse(text).map_err(|_| no_url.to_owned())?;
        if let Some((key, _)) = url.query_pairs().find(|(key, _)| !PARAMETERS.contains(&key.as_ref())) {
            return Err(match key.as_ref() {
                "password" => "the password belongs before the @ or into a password file".to_owned(),
                _ => format!("{key:?} is not one of {}", PARAMETERS.join(", ")),
            });
        }
        if url.fragment().is_some() {
            return Err(no_url.into());
        }
        if url.path().trim_matches('/').is_empty() {
            return Err("names no database; use postgres://USER@HOST/NAME".into());
        }
        if url.password().is_some() && password_file.is_some() {
            return Err("contains a password, and there is a password file too: keep one of them".into());
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
        opened.map_err(|error| self.with_database(error))?;
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
        let with_database = |error: sqlx::Error| self.with_database(DatabaseError::from(error).into());
        // Outside the pool: the pool would retry until its timeout and then hide the reason.
        let connecting = async {
            let mut connection = options.connect().await?;
            connection.execute(POSTGRES).await?;
            Ok(connection)
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let mut connection = connected
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
            .map_err(with_database)?;
        let migrated = schema::migrate_postgres(&mut connection).await;
        migrated.map_err(|error| self.with_database(error))?;
        connection.close().await.map_err(with_database)?;
        Ok(Store {
            kind: Kind::Postgres,
            hints: Arc::new(hints(options.clone())),
            writer: Writer::Postgres(pool(WRITERS).connect_lazy_with(options.clone())),
            readers: Readers::Postgres(pool(READERS).connect_lazy_with(options)),
            placing: Arc::default(),
        })
    }

    /// The error with the database's name and a hint.
    fn with_database(&self, error: StoreError) -> StoreError {
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
            // Fails only for addresses without a host, which were refused before.
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
        .acquire_timeout(CONNECT_TIMEOUT)
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

/// Begins a transaction, and leaves none open if the caller stops waiting: sqlx-postgres 0.9 sends no ROLLBACK for a BEGIN
/// with an answer that was never read, and the next one-statement change on that connection would join a transaction that
/// is never committed. So a separate task always reads the answer.
pub(crate) async fn begin(pool: &PgPool) -> std::result::Result<Transaction<'static, Postgres>, DatabaseError> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move { pool.begin().await }).await;
    Ok(begun.map_err(|_| DatabaseError::Ending)??)
}

/// A separate pool, so that hints and changes never wait for each other.
fn hints(options: PgConnectOptions) -> Hints {
    let pool = PgPoolOptions::new()
        .max_connections(HINTS)
        .acquire_timeout(CONNECT_TIMEOUT)
        .connect_lazy_with(options);
    Hints::through(pool)
}

/// Executes changes.
#[derive(Debug, Clone)]
pub(crate) enum Writer {
    Sqlite(Group),
    Postgres(PgPool),
}

/// Executes reads.
#[derive(Debug, Clone)]
pub(crate) enum Readers {
    Sqlite(SqliteReaders),
    Postgres(PgPool),
}

impl<'a> From<&'a Readers> for QueryTarget<'a> {
    fn from(readers: &'a Readers) -> Self {
        match readers {
            Readers::Sqlite(readers) => Self::Readers(readers),
            Readers::Postgres(pool) => Self::Pool(pool),
        }
    }
}

/// A hint for a database that cannot be opened.
fn hint(kind: Kind, error: &DatabaseError) -> String {
    if kind == Kind::Sqlite {
        return "check that its folder exists and is writable, and that the file is a database of Rackwright".into();
    }
    match error.code().as_deref() {
        Some("28P01" | "28000") => "check user, password and the server's pg_hba.conf".into(),
        Some("3D000") => "create it: CREATE DATABASE name OWNER user".into(),
        Some("42501") => "the user must be allowed to create tables: make the user the owner of the database".into(),
        Some("53300") => format!(
            "the server has no free connection: each rackwrightd uses up to {}",
            WRITERS + READERS + HINTS
        ),
        _ => "check that the server runs and is reachable from this machine".into(),
    }
}
