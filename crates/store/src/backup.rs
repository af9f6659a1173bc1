//! Backup and restore of the whole database; a backup may be taken while daemons run.
//!
//! SQLite copies itself (`VACUUM INTO`); PostgreSQL uses `pg_dump` and `pg_restore`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;
use rusqlite::{Connection, OpenFlags};
use sqlx::{ConnectOptions as _, Row as _};
use tokio::process::Command;
use url::Url;

use crate::database::Server;
use crate::error::DatabaseError;
use crate::{Database, StoreError, schema};

/// Time that a server may take to close the connections of ended processes.
const CLOSING: Duration = Duration::from_secs(3);
/// Between two checks.
const PAUSE: Duration = Duration::from_millis(100);
/// Most characters of another program's output in an error.
const WORDS_MAX: usize = 2000;

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database failed.
    #[error("the database cannot be read")]
    Database(#[source] DatabaseError),
    /// The database cannot be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database has no site yet, or is not a database of Rackwright.
    #[error("{0} contains no site: no rackwrightd has used this database")]
    NoSite(String),
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// PostgreSQL's program is not installed.
    #[error("{program} cannot be started: install the client programs of PostgreSQL, of the server's version or newer")]
    NoProgram {
        /// Name of the program.
        program: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// PostgreSQL's program failed.
    #[error("{program} failed and changed nothing: {words}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// The program's output.
        words: String,
    },
    /// Other connections use the database.
    #[error("{0} other connections use the database: stop every rackwrightd and every other client, and try again")]
    InUse(i64),
}

impl From<rusqlite::Error> for BackupError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.into())
    }
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

/// The site of a database, and the age of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSite {
    /// SHA-256 of the certificate of the site's authority.
    pub authority: String,
    /// Random id, the same in all copies of the database.
    pub id: String,
    /// A counter that grows while a daemon runs.
    pub age: i64,
    /// Version of the schema.
    pub schema: i64,
}

const SITE: &str =
    "SELECT ca_sha256, database_id, age, (SELECT MAX(version) FROM schema_version) FROM site WHERE id = 1";

const AUTHORITY: &str = "SELECT ca_sha256 FROM site WHERE id = 1";
/// PostgreSQL's code for a table that does not exist.
const NO_TABLE: &str = "42P01";
/// PostgreSQL's code for a column that does not exist.
const NO_COLUMN: &str = "42703";

impl Database {
    /// The newest schema that this program knows.
    #[must_use]
    pub fn newest_schema() -> i64 {
        schema::newest()
    }

    /// The path of a SQLite file; none for a server.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) => None,
        }
    }

    /// The site of the database. Reads only.
    ///
    /// # Errors
    /// [`BackupError`]; `NoSite` also for a database that an older version made.
    pub async fn site(&self) -> Result<DatabaseSite, BackupError> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                blocking(move || site_of_file(&path)).await
            }
            Self::Server(server) => {
                let mut connection = server.options()?.connect().await?;
                let row = match sqlx::query(SITE).fetch_optional(&mut connection).await {
                    Ok(row) => row,
                    Err(error) => match DatabaseError::from(error) {
                        error if error.code().is_some_and(|code| code == NO_TABLE || code == NO_COLUMN) => None,
                        error => return Err(BackupError::Database(error)),
                    },
                };
                let row = row.ok_or_else(|| BackupError::NoSite(self.to_string()))?;
                Ok(DatabaseSite {
                    authority: row.try_get(0)?,
                    id: row.try_get(1)?,
                    age: row.try_get(2)?,
                    schema: row.try_get(3)?,
                })
            }
        }
    }

    /// SHA-256 of the certificate of the authority of the database's site; none if the database is missing or empty. Reads
    /// only: no database and no table is made. A database that an older version made has an answer, too.
    ///
    /// # Errors
    /// [`BackupError`]: the database cannot be read.
    pub async fn authority(&self) -> Result<Option<String>, BackupError> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                blocking(move || authority_of_file(&path)).await
            }
            Self::Server(server) => {
                let mut connection = server.options()?.connect().await?;
                match sqlx::query(AUTHORITY).fetch_optional(&mut connection).await {
                    Ok(row) => Ok(row.map(|row| row.try_get(0)).transpose()?),
                    Err(error) => match DatabaseError::from(error) {
                        error if error.code().is_some_and(|code| code == NO_TABLE) => Ok(None),
                        error => Err(BackupError::Database(error)),
                    },
                }
            }
        }
    }

    /// Copies the database, as of one moment, into a new file. Daemons may use the database meanwhile.
    ///
    /// # Errors
    /// [`BackupError`]; a partial file may remain.
    pub async fn back_up(&self, to: &Path) -> Result<(), BackupError> {
        match self {
            Self::File(path) => {
                let (path, to) = (path.clone(), to.to_owned());
                blocking(move || copy_file(&path, &to)).await
            }
            Self::Server(server) => {
                let arguments = ["--format=custom", "--no-owner", "--no-privileges", "--file"];
                server.run("pg_dump", &arguments, to).await
            }
        }
    }

    /// Replaces the database on a server by a copy, all or nothing. No daemon may be connected. A SQLite file is restored
    /// by renaming, not here.
    ///
    /// # Errors
    /// [`BackupError`]; the database is unchanged.
    pub async fn put_back(&self, from: &Path) -> Result<(), BackupError> {
        let Self::Server(server) = self else { return Ok(()) };
        let mut connection = server.options()?.connect().await?;
        let others = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        let begun = Instant::now();
        // A server closes the connections of an ended process with a short delay, and gives no notice.
        loop {
            let others: i64 = sqlx::query(others).fetch_one(&mut connection).await?.try_get(0)?;
            match others {
                0 => break,
                others if begun.elapsed() > CLOSING => return Err(BackupError::InUse(others)),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
        drop(connection);
        let arguments = [
            "--clean",
            "--if-exists",
            "--no-owner",
            "--no-privileges",
            "--single-transaction",
            "--exit-on-error",
        ];
        server.run("pg_restore", &arguments, from).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(BackupError::Database(DatabaseError::Ending)))
}

fn read_only(path: &Path) -> Result<Connection, BackupError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(crate::readers::BUSY_TIMEOUT)?;
    Ok(connection)
}

fn site_of_file(path: &Path) -> Result<DatabaseSite, BackupError> {
    let no_site = || BackupError::NoSite(path.display().to_string());
    if !path.is_file() {
        return Err(no_site());
    }
    let connection = read_only(path)?;
    let site = connection.query_row(SITE, [], |row| {
        Ok(DatabaseSite {
            authority: row.get(0)?,
            id: row.get(1)?,
            age: row.get(2)?,
            schema: row.get(3)?,
        })
    });
    site.map_err(|error| match error {
        rusqlite::Error::QueryReturnedNoRows => no_site(),
        // The table or column is missing.
        error if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => no_site(),
        other => other.into(),
    })
}

fn authority_of_file(path: &Path) -> Result<Option<String>, BackupError> {
    if !path.is_file() {
        return Ok(None);
    }
    match read_only(path)?.query_row(AUTHORITY, [], |row| row.get(0)) {
        Ok(authority) => Ok(Some(authority)),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
        // The table is missing.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn copy_file(path: &Path, to: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::File {
        path: to.to_owned(),
        source,
    };
    if to.exists() {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    let name = to
        .to_str()
        .ok_or_else(|| failed(std::io::ErrorKind::InvalidFilename.into()))?;
    read_only(path)?.execute("VACUUM INTO ?1", [name])?;
    std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(failed)
}

impl Server {
    /// The address without its password, and the password.
    fn address(&self) -> Result<(Url, Option<String>), BackupError> {
        let mut url = self.url.clone();
        let password = match &self.password_file {
            Some(path) => Some(self.password_in(path)?),
            None => url
                .password()
                .map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned()),
        };
        // Fails only for an address that cannot have a password.
        let _ = url.set_password(None);
        Ok((url, password))
    }

    /// Runs a PostgreSQL program on the database and a file. The password is in the program's environment, which only this
    /// user and root can read.
    async fn run(&self, program: &'static str, arguments: &[&str], file: &Path) -> Result<(), BackupError> {
        let (url, password) = self.address()?;
        let mut command = Command::new(program);
        command.arg(format!("--dbname={url}")).args(arguments).arg(file);
        command.stdin(Stdio::null()).kill_on_drop(true);
        if let Some(password) = password {
            command.env("PGPASSWORD", password);
        }
        let output = command.output().await;
        let output = output.map_err(|source| BackupError::NoProgram { program, source })?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let words = words.trim().replace(char::is_control, " ");
        Err(BackupError::Program {
            program,
            words: words.chars().take(WORDS_MAX).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_without_a_site_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        for _ in 0..2 {
            let refused = Database::from(&path).site().await.unwrap_err();
            assert!(matches!(refused, BackupError::NoSite(_)), "{refused:?}");
            Connection::open(&path)
                .unwrap()
                .execute_batch("CREATE TABLE IF NOT EXISTS t (a)")
                .unwrap();
        }
    }
}
