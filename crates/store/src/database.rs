//! Where the database is, and what the two kinds of databases do differently beside their schema.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions, install_default_drivers};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AnyConnection, ConnectOptions as _, Connection as _, Executor as _};

use crate::group::Group;
use crate::hints::Hints;
use crate::{Result, Store, StoreError, schema};

/// The longest wait for a connection, for making one, and on SQLite for the other writer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is tried before it is used: the server may have gone meanwhile.
const IDLE: Duration = Duration::from_secs(1);
/// Connections that read.
const READERS: u32 = 8;
/// Connections that write to PostgreSQL; SQLite has one.
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

/// Every connection that writes to SQLite. What was acknowledged survives a power cut, not only a crash.
const SQLITE: &str = "PRAGMA busy_timeout = 10000; PRAGMA foreign_keys = ON; PRAGMA journal_mode = WAL; \
                      PRAGMA synchronous = FULL;";
const SQLITE_READER: &str = "PRAGMA busy_timeout = 10000;";
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
    /// Begins a change.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            // Takes the one place of a writer at once: a change that reads first never finds it taken later.
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

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
    pub(crate) options: AnyConnectOptions,
    password_file: Option<PathBuf>,
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
        let mut url = server.options.database_url.clone();
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
        let options = AnyConnectOptions::from_str(text).map_err(|_| no_url.to_owned())?;
        let url = &options.database_url;
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
        Ok(Self::Server(Server { options, password_file }))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::File(_) => Kind::Sqlite,
            Self::Server(_) => Kind::Postgres,
        }
    }

    /// What connects to it: for writing, and for reading.
    fn options(&self) -> Result<(AnyConnectOptions, AnyConnectOptions)> {
        match self {
            Self::File(path) => {
                let path = escaped(&path.to_string_lossy());
                let mode = |mode: &str| AnyConnectOptions::from_str(&format!("sqlite:{path}?mode={mode}"));
                Ok((mode("rwc")?, mode("ro")?))
            }
            Self::Server(server) => {
                let mut options = server.options.clone();
                if let Some(path) = &server.password_file {
                    let password = std::fs::read_to_string(path).map_err(|source| StoreError::PasswordFile {
                        path: path.clone(),
                        source,
                    })?;
                    // Refused only by addresses without a host, which were refused before.
                    let _ = options
                        .database_url
                        .set_password(Some(password.lines().next().unwrap_or_default()));
                }
                if !options.database_url.query_pairs().any(|(k, _)| k == "application_name") {
                    options
                        .database_url
                        .query_pairs_mut()
                        .append_pair("application_name", "rackwrightd");
                }
                Ok((options.clone(), options))
            }
        }
    }

    pub(crate) async fn open(self) -> Result<Store> {
        install_default_drivers();
        let (kind, (options, reader_options)) = (self.kind(), self.options()?);
        let named = |source| StoreError::Open {
            database: self.to_string(),
            hint: hint(kind, &source),
            source,
        };
        // By itself, without the pool: that would try until its time is over and then not say why.
        let connected = tokio::time::timeout(PATIENCE, connect(kind, &options)).await;
        let mut connection = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(named)?;
        schema::migrate(kind, &mut connection).await.map_err(|e| match e {
            StoreError::Database(source) | StoreError::Contended(source) => named(source),
            other => other,
        })?;
        connection.close().await.map_err(named)?;
        let (writers, hints) = match kind {
            Kind::Sqlite => (1, Hints::none()),
            Kind::Postgres => (WRITERS, hints(&options).map_err(named)?),
        };
        let writer = pool(setup(kind), writers).connect_lazy_with(options);
        Ok(Store {
            kind,
            group: (kind == Kind::Sqlite).then(|| Group::new(writer.clone())),
            writer,
            readers: pool(reader_setup(kind), READERS).connect_lazy_with(reader_options),
            hints: Arc::new(hints),
            placing: Arc::default(),
        })
    }
}

async fn connect(kind: Kind, options: &AnyConnectOptions) -> sqlx::Result<AnyConnection> {
    let mut connection = AnyConnection::connect_with(options).await?;
    connection.execute(setup(kind)).await?;
    Ok(connection)
}

fn setup(kind: Kind) -> &'static str {
    match kind {
        Kind::Sqlite => SQLITE,
        Kind::Postgres => POSTGRES,
    }
}

fn reader_setup(kind: Kind) -> &'static str {
    match kind {
        Kind::Sqlite => SQLITE_READER,
        Kind::Postgres => POSTGRES,
    }
}

fn pool(setup: &'static str, connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(PATIENCE)
        .after_connect(move |connection, _| {
            Box::pin(async move {
                connection.execute(setup).await?;
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

/// A pool of its own: hints wait for no change, and no change for them.
fn hints(options: &AnyConnectOptions) -> sqlx::Result<Hints> {
    let options = PgConnectOptions::from_url(&options.database_url)?;
    let pool = PgPoolOptions::new()
        .max_connections(HINTS)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options);
    Ok(Hints::through(pool))
}

/// A path as it stands in a URL.
fn escaped(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b);
    path.bytes().fold(String::with_capacity(path.len()), |mut url, b| {
        if plain(b) {
            url.push(char::from(b));
        } else {
            url.push_str(&format!("%{b:02X}"));
        }
        url
    })
}

/// What to do about a database that cannot be opened.
fn hint(kind: Kind, error: &sqlx::Error) -> String {
    if kind == Kind::Sqlite {
        return "is its folder there, may we write to it, and is it a database of ours?".into();
    }
    let code = error.as_database_error().and_then(|e| e.code());
    match code.as_deref() {
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
