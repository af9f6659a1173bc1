//! PostgreSQL and replicas of `rackwrightd` on it, all as killable processes on this computer's loopback interface.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rackwright_tests::ports::free_port;
use rackwright_tests::process::signal;
use rackwright_tests::site::{STORAGE, program};
use tempfile::TempDir;

use crate::client::Client;

/// Debian's folder of server programs.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// Long for every start.
const WAIT_LIMIT: Duration = Duration::from_secs(90);

fn ok(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
}

fn log(path: &Path) -> Stdio {
    let file = File::options().create(true).append(true).open(path);
    Stdio::from(file.expect("the log can be opened"))
}

/// A server for this test alone. A client of its socket may do anything.
pub struct Postgres {
    dir: TempDir,
    server: Child,
}

impl Postgres {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        if is_root() {
            ok(Command::new("chown").arg("postgres").arg(dir.path()));
        }
        let mut init = as_user("initdb");
        init.arg("-D").arg(dir.path().join("data"));
        ok(init.args([
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--username=rackwright",
            "--auth=trust",
        ]));
        let server = serve(dir.path());
        let mut postgres = Self { dir, server };
        postgres.answers().await;
        postgres
    }

    pub fn url(&self) -> String {
        format!(
            "postgres://rackwright@localhost/postgres?host={}",
            self.dir.path().display()
        )
    }

    async fn answers(&mut self) {
        let start = Instant::now();
        loop {
            let mut ask = as_user("pg_isready");
            ask.arg("-h").arg(self.dir.path()).stdout(Stdio::null());
            if ask.status().is_ok_and(|status| status.success()) {
                return;
            }
            assert!(
                start.elapsed() < WAIT_LIMIT,
                "PostgreSQL does not answer: see {:?}",
                self.dir.path()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills the server and starts it again.
    pub async fn restart(&mut self) {
        signal(self.server.id(), Signal::SIGQUIT);
        self.server.wait().expect("it ends");
        self.server = serve(self.dir.path());
        self.answers().await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        signal(self.server.id(), Signal::SIGQUIT);
        let _ = self.server.wait();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("a process").uid() == 0
}

/// A command of the newest server, run as a user that the server accepts.
fn as_user(name: &str) -> Command {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|e| e.path());
    let newest = installed.max_by_key(number);
    let newest = newest.unwrap_or_else(|| panic!("no server in {PROGRAMS}: `apt-get install postgresql` installs it"));
    let path = newest.join("bin").join(name);
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
        command.arg(path);
        command
    } else {
        Command::new(path)
    };
    command.env("LC_ALL", "C").current_dir("/");
    command
}

fn serve(dir: &Path) -> Child {
    let mut command = as_user("postgres");
    command.arg("-D").arg(dir.join("data"));
    let sockets = format!("unix_socket_directories={}", dir.display());
    for setting in [
        "listen_addresses=",
        &sockets,
        "max_connections=200",
        "shared_buffers=64MB",
    ] {
        command.args(["-c", setting]);
    }
    command
        .stdin(Stdio::null())
        .stdout(log(&dir.join("log")))
        .stderr(log(&dir.join("log")));
    command.spawn().expect("PostgreSQL can be started")
}

/// One `rackwrightd` process.
pub struct Replica {
    dir: PathBuf,
    pub url: String,
    starts: u32,
    daemon: Option<Child>,
}

impl Replica {
    /// A replica with its data below `dir`; `further` are lines of settings. Every replica has the keys of the site.
    fn new(dir: PathBuf, port: u16, database: &str, ports: &[u16], further: &str) -> Self {
        let url = format!("https://127.0.0.1:{port}");
        let endpoints: Vec<_> = ports
            .iter()
            .map(|port| format!("\"https://127.0.0.1:{port}\""))
            .collect();
        let text = format!(
            "data_dir: {}\ndatabase: {database}\nsite: chaos\n{STORAGE}api:\n  listen: 127.0.0.1:{port}\n  \
             names: [127.0.0.1]\n  endpoints: [{}]\nstore:\n  listen: 127.0.0.1:{}\n{further}",
            dir.join("data").display(),
            endpoints.join(", "),
            free_port(),
        );
        fs::create_dir_all(dir.join("data")).expect("a folder");
        fs::write(dir.join("rackwrightd.yaml"), text).expect("settings can be written");
        Self {
            dir,
            url,
            starts: 0,
            daemon: None,
        }
    }

    /// Starts the replica, with repetitions while the database is unavailable.
    pub async fn start(&mut self) {
        let begun = Instant::now();
        while !self.try_start().await {
            assert!(
                begun.elapsed() < WAIT_LIMIT,
                "{} does not start:\n{}",
                self.url,
                self.log_tail()
            );
        }
    }

    async fn try_start(&mut self) -> bool {
        self.starts += 1;
        let ready = self.dir.join(format!("ready-{}", self.starts));
        let mut daemon = Command::new(program("rackwrightd"))
            .arg("serve")
            .arg("--config")
            .arg(self.dir.join("rackwrightd.yaml"))
            .arg("--ready-file")
            .arg(&ready)
            .env("RACKWRIGHT_LOG", "info")
            .stdin(Stdio::null())
            .stdout(log(&self.dir.join("out")))
            .stderr(log(&self.dir.join("log")))
            .spawn()
            .expect("rackwrightd can be started");
        while !ready.is_file() {
            if daemon.try_wait().expect("it is ours").is_some() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.daemon = Some(daemon);
        true
    }

    fn keys(&self) -> PathBuf {
        self.dir.join("data/keys")
    }

    /// Kills the replica as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().expect("it runs");
            daemon.wait().expect("it ends");
        }
    }

    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Replicas on one database.
pub struct Cluster {
    pub replicas: Vec<Replica>,
    pub postgres: Postgres,
    /// The files of a logged-in operator: `*.pem` and `*.ca.pem`.
    pub login: PathBuf,
    dir: TempDir,
}

impl Cluster {
    /// The folder that all replicas share.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a cluster. `further` returns more lines of settings, from the shared folder and the replica's number.
    pub async fn start(replicas: usize, further: impl Fn(&Path, usize) -> String) -> Self {
        let postgres = Postgres::start().await;
        let dir = tempfile::tempdir().expect("a folder");
        let ports: Vec<u16> = (0..replicas).map(|_| free_port()).collect();
        let of = |number: usize| dir.path().join(format!("replica-{number}"));
        let replica = |(number, port): (usize, &u16)| {
            let further = further(dir.path(), number);
            Replica::new(of(number), *port, &postgres.url(), &ports, &further)
        };
        let replicas: Vec<_> = ports.iter().enumerate().map(replica).collect();
        let mut cluster = Self {
            replicas,
            login: dir.path().join("login"),
            postgres,
            dir,
        };
        cluster.replicas[0].start().await;
        // Until the first member has joined, each start of another replica makes a new invitation.
        cluster.log_in();
        let (first, others) = cluster.replicas.split_at_mut(1);
        for replica in others {
            ok(Command::new("cp").arg("-a").args([first[0].keys(), replica.keys()]));
            replica.start().await;
        }
        cluster
    }

    fn log_in(&self) {
        let printed = fs::read_to_string(self.replicas[0].dir.join("out")).expect("it has printed its invitation");
        let after = |flag: &str| {
            let rest = printed
                .split(flag)
                .nth(1)
                .unwrap_or_else(|| panic!("{flag} is not in:\n{printed}"));
            rest.split_whitespace().next().expect("a value follows").to_owned()
        };
        let servers: Vec<_> = self.replicas.iter().map(|replica| replica.url.as_str()).collect();
        let (ca, token) = (after("--ca-sha256 "), after("--token "));
        self.cli(&[
            "login",
            "--server",
            &servers.join(","),
            "--ca-sha256",
            &ca,
            "--token",
            &token,
        ]);
    }

    /// A client that knows all replicas.
    pub fn client(&self) -> Client {
        let servers: Vec<_> = self.replicas.iter().map(|replica| replica.url.clone()).collect();
        Client::new(&self.login, &servers)
    }

    /// Runs `rackwright`, which knows every replica since its login.
    pub fn cli(&self, arguments: &[&str]) {
        let mut command = Command::new(program("rackwright"));
        ok(command.env("RACKWRIGHT_CONFIG", &self.login).args(arguments));
    }
}
