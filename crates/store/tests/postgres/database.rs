//! A PostgreSQL server for each test.
//!
//! Every test starts a server from a copy of a folder that `initdb` made once: tests do not disturb each other, each may
//! kill its server, and the test runner and its number of processes do not matter. The server ends with the thread that
//! started it, however that ends.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rackwright_store::{Database, Store};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use tempfile::TempDir;

/// Debian and Ubuntu install the server's programs here, a folder for each version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// The server refuses to run as root; this user comes with Debian's package.
const USER: &str = "postgres";
/// The role that owns the database, as at a site: not a superuser.
const ROLE: &str = "rackwright";
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with one empty database.
pub struct Fresh {
    dir: TempDir,
    server: Child,
    durable: bool,
}

impl Fresh {
    /// A server that does not wait for its disk: these tests do not cut its power.
    pub async fn new() -> Self {
        Self::start(&template(), false).await
    }

    /// The same with the present schema, which one test made for all.
    pub async fn with_schema() -> Self {
        Self::start(&template_with_schema().await, false).await
    }

    /// A server with default durability.
    pub async fn durable() -> Self {
        Self::start(&template(), true).await
    }

    async fn start(template: &Path, durable: bool) -> Self {
        let dir = TempDir::new().unwrap();
        ok(Command::new("cp").arg("-a").arg(template).arg(dir.path().join("data")));
        own(dir.path());
        let server = serve(dir.path(), durable);
        let fresh = Self { dir, server, durable };
        fresh.connect().await;
        fresh
    }

    /// Waits until the server answers.
    pub async fn connect(&self) -> PgConnection {
        let start = Instant::now();
        loop {
            let options = PgConnectOptions::new().socket(self.dir.path()).username(ROLE);
            let options = options.database("site");
            // A server that is still starting may accept a connection and stay silent for its whole 60 s timeout.
            let connected = tokio::time::timeout(Duration::from_secs(5), options.connect()).await;
            if let Ok(Ok(connection)) = connected {
                return connection;
            }
            if start.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("the server does not answer: {connected:?}\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn url(&self) -> String {
        format!("postgres://{ROLE}@localhost/site?host={}", self.dir.path().display())
    }

    pub fn database(&self) -> Database {
        Database::parse(&self.url(), None).unwrap()
    }

    /// Runs one statement, bypassing the store.
    pub async fn sql(&self, statement: &str) {
        let mut connection = self.connect().await;
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .unwrap();
    }

    /// Kills the server at once: everything not in its log is lost.
    pub fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Starts the server again after `kill`. Processes of the former server may still hold its memory: then it tries again.
    pub async fn restart(&mut self) {
        let start = Instant::now();
        loop {
            self.server = serve(self.dir.path(), self.durable);
            tokio::time::sleep(Duration::from_millis(200)).await;
            if self.server.try_wait().unwrap().is_none() {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "the server does not start again");
        }
        self.connect().await;
    }

    /// Ends the server with a signal, and waits for its end.
    fn end(&mut self, signal: &str) {
        if matches!(self.server.try_wait(), Ok(Some(_))) {
            return;
        }
        let pid = self.server.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        if !sent.is_ok_and(|status| status.success()) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // On a signal the server ends its children and frees its shared memory.
        self.end("-QUIT");
    }
}

/// The folder of `initdb` and `postgres`, of the newest version.
fn programs() -> PathBuf {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|e| e.path());
    let newest = installed
        .filter(|path| path.join("bin/postgres").is_file())
        .max_by_key(|path| version(path));
    let Some(newest) = newest else {
        panic!("no PostgreSQL server in {PROGRAMS}: `images/deps.sh` or `apt-get install postgresql` installs it");
    };
    newest.join("bin")
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A command of the server, as a user that the server accepts. It ends with this thread.
fn as_user(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if is_root() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    command
        .arg(programs().join(program))
        .env("LC_ALL", "C")
        .current_dir("/");
    command
}

fn own(path: &Path) {
    if is_root() {
        ok(Command::new("chown").args(["-R", USER]).arg(path));
    }
}

fn ok(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
    output
}

fn serve(dir: &Path, durable: bool) -> Child {
    let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    let mut command = as_user("postgres");
    command.arg("-D").arg(dir.join("data"));
    let sockets = format!("unix_socket_directories={}", dir.display());
    let fsync = format!("fsync={}", if durable { "on" } else { "off" });
    for setting in [
        "listen_addresses=",
        &sockets,
        &fsync,
        "shared_buffers=16MB",
        "max_connections=200",
        "max_wal_size=64MB",
        "autovacuum=off",
    ] {
        command.args(["-c", setting]);
    }
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command.spawn().unwrap()
}

/// A server's folder with the role and its database; the first test makes it.
fn template() -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(kept).unwrap();
    let version = programs().parent().unwrap().file_name().unwrap().to_owned();
    let template = kept.join("postgres-template").join(&version);
    let lock = File::create(kept.join("postgres-template.lock")).unwrap();
    lock.lock().unwrap();
    if template.is_dir() {
        return template;
    }
    // Made in a folder that the server's user can reach, whatever the path of the checkout.
    let dir = TempDir::new().unwrap();
    own(dir.path());
    let data = dir.path().join("data");
    let mut init = as_user("initdb");
    init.arg("-D").arg(&data);
    init.args(["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "--wal-segsize=1"]);
    init.args(["--username=admin", "--auth=trust"]);
    if version
        .to_str()
        .and_then(|v| v.parse().ok())
        .is_some_and(|v: u32| v >= 15)
    {
        // A locale that sorts text by language, which the tables must override. Older servers have no such default.
        init.args(["--locale-provider=icu", "--icu-locale=en"]);
    }
    ok(&mut init);
    let mut single = as_user("postgres");
    single.arg("--single").arg("-D").arg(&data).arg("template1");
    single
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    let mut single = single.spawn().unwrap();
    // Every test copies the folder: unneeded parts are dropped.
    let statements = format!(
        "CREATE ROLE {ROLE} LOGIN;\nALTER DATABASE postgres RENAME TO site;\nALTER DATABASE site OWNER TO {ROLE};\n\
         UPDATE pg_database SET datistemplate = false WHERE datname = 'template0';\nDROP DATABASE template0;\n"
    );
    single.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
    assert!(single.wait().unwrap().success());
    keep(&data, &template);
    template
}

/// The same folder after `Store::open`. It belongs to this build of the tests: another one may have another schema.
async fn template_with_schema() -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postgres-schema");
    fs::create_dir_all(&kept).unwrap();
    let build = fs::metadata(std::env::current_exe().unwrap()).unwrap();
    let template = kept.join(format!("{}-{}", build.mtime(), build.mtime_nsec()));
    let lock = File::create(kept.join("lock")).unwrap();
    lock.lock().unwrap();
    if template.is_dir() {
        return template;
    }
    let mut fresh = Fresh::new().await;
    drop(Store::open(fresh.database()).await.unwrap());
    // The server writes all data, and ends.
    fresh.end("-INT");
    keep(&fresh.dir.path().join("data"), &template);
    template
}

/// Copies a folder of a server. The copy gets its name when it is whole.
fn keep(data: &Path, template: &Path) {
    let part = template.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(template.parent().unwrap()).unwrap();
    ok(Command::new("cp").arg("-a").arg(data).arg(&part));
    fs::rename(&part, template).unwrap();
}
