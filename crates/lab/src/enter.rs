//! Enters the lab's namespace, so that no part of a lab can outlive it.
//!
//! ```text
//! outer process ── setpriv --pdeathsig KILL unshare … --kill-child ── init (PID 1 inside) ── the same program again
//!   holds the folder's lock           dies with its parent              sets up the bridge,      runs the lab
//!                                                                       reaps orphans
//! ```
//!
//! When the outer process dies, in whatever way, the kernel kills `unshare`, that kills PID 1 of the namespace, and
//! that kills every process inside. Bridge and taps disappear with the network namespace. The folder stays and is
//! removed at the next start (see `state.rs`).
//!
//! The outer process and init share a Unix socket. Over it the outer process learns init's PID as seen from
//! outside, and forwards signals.

use super::state::StateDir;
use super::{LabError, network, requirements};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rackwright_sim_bmc::install_crypto;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const STAGE: &str = "RACKWRIGHT_LAB";
const STATE: &str = "RACKWRIGHT_LAB_STATE";
const PID: &str = "RACKWRIGHT_LAB_PID";
const SOCKET: &str = "enter.sock";
const ENTERED: &str = "entered";

/// The arguments of the program when it starts again inside the namespace.
#[derive(Debug, Clone, Copy)]
pub enum Reentry<'a> {
    /// The same arguments as now; SIGTERM, SIGINT and SIGHUP are forwarded to the inside.
    SameArguments,
    /// A test binary's arguments to run only the test with this full name (`module::function`).
    Test(&'a str),
}

/// The side on which this process runs.
#[derive(Debug)]
pub enum Entered {
    /// Inside: continue.
    Inside(Namespace),
    /// Outside: the inside has run and ended.
    Outside(Outcome),
}

/// Proof of being inside a lab's namespace.
#[derive(Debug, Clone)]
pub struct Namespace {
    state_dir: PathBuf,
    pid: u32,
}

impl Namespace {
    /// The lab's own folder; removed when the lab ends.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// PID of the namespace's first process as seen from outside: the argument of `nsenter --target`.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Removes the lab's variables from a command's environment, so that a lab started by it gets its own namespace.
    pub fn forget(command: &mut tokio::process::Command) {
        for name in [STAGE, STATE, PID] {
            command.env_remove(name);
        }
    }

    fn from_env() -> Result<Self, LabError> {
        let missing = || LabError::Namespace {
            detail: format!("{STAGE} is set, but {STATE} or {PID} is not set: unset {STAGE}"),
        };
        let state_dir = PathBuf::from(env::var_os(STATE).ok_or_else(missing)?);
        let pid = env::var(PID)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(missing)?;
        Ok(Self { state_dir, pid })
    }
}

/// The result of the inside.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Exit status of the inside (128 + n after signal n).
    pub status: ExitStatus,
    /// Whether the program inside reached its call of [`enter`].
    pub entered: bool,
}

/// Enters a lab namespace: runs this program again inside a new one and waits for it, or returns at once if already inside.
///
/// Call it before other threads are started (tests excepted) and from a thread that lives until it returns.
///
/// # Errors
/// [`LabError::Missing`] if the machine lacks a requirement of a namespace; [`LabError::File`] for the lab's folder.
pub fn enter(reentry: Reentry<'_>) -> Result<Entered, LabError> {
    enter_with(reentry, |_| Ok(()))
}

/// Like [`enter`]. Outside, calls `prepare` with the lab's folder before the inside starts: it may start threads, which last
/// as long as the lab. Unix sockets in the folder connect both sides.
///
/// # Errors
/// As [`enter`]; [`LabError::File`] also if `prepare` fails.
pub fn enter_with(
    reentry: Reentry<'_>,
    prepare: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<Entered, LabError> {
    match env::var(STAGE).as_deref() {
        Ok("init") => init(),
        Ok("inside") => {
            let namespace = Namespace::from_env()?;
            let marker = namespace.state_dir.join(ENTERED);
            fs::write(&marker, "").map_err(LabError::file("write", &marker))?;
            Ok(Entered::Inside(namespace))
        }
        _ => outside(reentry, prepare).map(Entered::Outside),
    }
}

/// Runs an async test in its own lab namespace. `name` is the test's full name as libtest prints it.
///
/// # Panics
/// If the test fails inside, if the machine lacks a requirement of the lab, or if `name` is not the test's name.
pub fn run_test<F: AsyncFnOnce(Namespace)>(name: &str, test: F) {
    match enter(Reentry::Test(name)) {
        Err(error) => panic!("{error}"),
        Ok(Entered::Outside(outcome)) if !outcome.entered && outcome.status.success() => {
            panic!("{}", LabError::NeverEntered { name: name.to_owned() })
        }
        Ok(Entered::Outside(outcome)) => {
            assert!(
                outcome.status.success(),
                "the test failed inside the lab ({}), see above",
                outcome.status
            );
        }
        Ok(Entered::Inside(namespace)) => {
            install_crypto();
            let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
            let _ = tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_writer(std::io::stderr)
                .try_init();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build();
            runtime
                .unwrap_or_else(|error| panic!("no async runtime: {error}"))
                .block_on(test(namespace));
        }
    }
}

// ---- outside ----

type Link = Arc<Mutex<Option<UnixStream>>>;

fn lock(link: &Link) -> MutexGuard<'_, Option<UnixStream>> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

fn outside(reentry: Reentry<'_>, prepare: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<Outcome, LabError> {
    requirements::require_namespace()?;
    let state = StateDir::create()?;
    let socket = state.path().join(SOCKET);
    let listener = UnixListener::bind(&socket).map_err(LabError::file("listen on", &socket))?;
    let forward = matches!(reentry, Reentry::SameArguments)
        .then(block_signals)
        .transpose()?;
    prepare(state.path()).map_err(LabError::file("prepare", state.path()))?;
    let mut command = namespace_command(reentry, state.path())?;
    let failed = |error: std::io::Error| LabError::Command {
        command: "setpriv … unshare".into(),
        detail: error.to_string(),
    };
    let mut child = command.spawn().map_err(failed)?;

    let link = Link::default();
    let accepting = std::thread::spawn({
        let link = Arc::clone(&link);
        move || meet_init(&listener, &link)
    });
    if let Some(signals) = forward {
        let link = Arc::clone(&link);
        let unshare = Pid::from_raw(child.id().cast_signed());
        std::thread::spawn(move || forward_signals(signals, &link, unshare));
    }
    let status = wait(&mut child).map_err(failed)?;
    // If init never connected, the accepting thread still waits: our own connection ends it.
    let _ = UnixStream::connect(&socket);
    let _ = accepting.join();
    Ok(Outcome {
        status,
        entered: state.path().join(ENTERED).exists(),
    })
}

fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    loop {
        match child.wait() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn namespace_command(reentry: Reentry<'_>, state: &Path) -> Result<Command, LabError> {
    let program = env::current_exe().map_err(LabError::file("find", Path::new("/proc/self/exe")))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare"]);
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args([
            "--net",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ])
        .arg(program);
    match reentry {
        Reentry::SameArguments => command.args(env::args_os().skip(1)),
        Reentry::Test(name) => command.args([name, "--exact", "--include-ignored", "--nocapture"]),
    };
    command.env(STAGE, "init").env(STATE, state);
    Ok(command)
}

fn block_signals() -> Result<SigSet, LabError> {
    let set = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    let failed = |error: Errno| LabError::Command {
        command: "sigprocmask".into(),
        detail: error.to_string(),
    };
    set.thread_block().map_err(failed)?;
    Ok(set)
}

/// Waits for init's connection, sends init its PID as seen from here, and keeps the connection.
fn meet_init(listener: &UnixListener, link: &Link) {
    let Ok((mut stream, _)) = listener.accept() else { return };
    let Ok(peer) = getsockopt(&stream, PeerCredentials) else {
        return;
    };
    if peer.pid() != std::process::id().cast_signed() && writeln!(stream, "{}", peer.pid()).is_ok() {
        *lock(link) = Some(stream);
    }
}

fn forward_signals(signals: SigSet, link: &Link, unshare: Pid) {
    while let Ok(signal) = signals.wait() {
        let is_sent = match lock(link).as_mut() {
            Some(stream) => writeln!(stream, "{}", signal.as_str()).is_ok(),
            None => false,
        };
        if !is_sent {
            // The inside cannot be notified yet, so it is killed.
            let _ = kill(unshare, Signal::SIGKILL);
        }
    }
}

// ---- init, PID 1 of the namespace ----

fn init() -> ! {
    let code = run_init().unwrap_or_else(|error| {
        eprintln!("{error}");
        1
    });
    #[expect(
        clippy::disallowed_methods,
        reason = "this process only held the namespace, and must end with its child's status"
    )]
    std::process::exit(code)
}

fn run_init() -> Result<i32, LabError> {
    let socket = PathBuf::from(env::var_os(STATE).unwrap_or_default()).join(SOCKET);
    let stream = UnixStream::connect(&socket).map_err(LabError::file("connect to", &socket))?;
    let mut lines = BufReader::new(stream).lines();
    let gone = || LabError::Namespace {
        detail: "the process outside of the namespace has ended".into(),
    };
    let pid = lines
        .next()
        .ok_or_else(gone)?
        .map_err(LabError::file("read", &socket))?;
    network::up()?;

    // Children inherit the mask, and the outer process had blocked signals when it started this one.
    let failed = |error: Errno| LabError::Command {
        command: "sigprocmask".into(),
        detail: error.to_string(),
    };
    SigSet::empty().thread_set_mask().map_err(failed)?;
    let program = env::current_exe().map_err(LabError::file("find", Path::new("/proc/self/exe")))?;
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let child = Command::new(&program)
        .args(arguments)
        .env(STAGE, "inside")
        .env(PID, pid)
        .spawn()
        .map_err(LabError::file("run", &program))?;
    let child = Pid::from_raw(child.id().cast_signed());
    std::thread::spawn(move || obey(lines, child));
    Ok(reap_until(child))
}

/// Forwards the signals that the outer process names; ends the namespace when the outer process is gone.
fn obey(lines: Lines<BufReader<UnixStream>>, child: Pid) {
    for line in lines.map_while(Result::ok) {
        if let Ok(signal) = line.parse::<Signal>() {
            let _ = kill(child, signal);
        }
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the process outside is gone: the kernel ends all of the namespace"
    )]
    std::process::exit(128 + Signal::SIGKILL as i32);
}

/// Reaps every process that ends, orphans included, until `child` has ended; returns its exit code (128 + n for a signal).
fn reap_until(child: Pid) -> i32 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => return code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return 128 + signal as i32,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 1,
        }
    }
}
