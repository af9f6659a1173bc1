//! `rackwrightd`: the control plane's process.

use std::error::Error;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rackwright_daemon::{backup, daemon, hardening};
use rackwright_ground::audit::verify;
use rackwright_ground::config::Config;
use rackwright_ground::keys::{rotate, rotate_ca};
use rackwright_ground::start::Start;
use rackwright_ground::telemetry::Telemetry;
use rackwright_ground::text::causes;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// The configuration file of a command without `--config`.
const CONFIG_FILE: &str = "/etc/rackwright/rackwrightd.yaml";

/// The result of a command. The error goes to standard error with its causes.
type CommandResult = Result<(), Box<dyn Error>>;

/// mimalloc: the C library's allocator took a fifth of the CPU when a thousand machines were deployed at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rackwright's control plane.
#[derive(Debug, Parser)]
#[command(name = "rackwrightd", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane.
    Serve {
        /// The configuration file.
        #[arg(long, short, default_value = CONFIG_FILE)]
        config: PathBuf,
        /// How to write the log (to standard error).
        #[arg(long, value_enum, default_value_t = LogFormat::Text)]
        log: LogFormat,
        /// Write this file when all ports are open.
        #[arg(long)]
        ready_file: Option<PathBuf>,
        /// Answer read requests and run no operation until `rackwright control resume`: to inspect a copy or a backup.
        #[arg(long)]
        paused: bool,
        /// The data folder comes from a backup: doubt every node until an operator resolves the doubt. If only the database
        /// was restored, the control plane detects this without the option.
        #[arg(long)]
        restored: bool,
    },
    /// Show the login of a node's BMC, also while the control plane is down. An event with the reason is stored first.
    BmcPassword {
        /// Name of the node, such as gpu-001.
        node: String,
        /// The reason, for the event.
        #[arg(long)]
        reason: String,
        /// The configuration file.
        #[arg(long, short, default_value = CONFIG_FILE)]
        config: PathBuf,
    },
    /// Invite an operator, also while the control plane is down: for a site where no operator can log in. An event with the
    /// reason is stored first.
    InviteOperator {
        /// The reason, for the event.
        #[arg(long)]
        reason: String,
        /// The operator's name; a member of the site of that name becomes an operator.
        #[arg(long, default_value = "operator")]
        name: String,
        /// The configuration file.
        #[arg(long, short, default_value = CONFIG_FILE)]
        config: PathBuf,
    },
    /// Change a key of the site, also while the control plane is down. An event is stored first.
    RotateKeys {
        /// The kind of key.
        #[arg(value_enum)]
        key: RotatedKey,
        /// End a rotation: remove the older sealing keys if no secret is sealed with them any more, or the former authority
        /// if every member and agent has a certificate of the next one.
        #[arg(long)]
        finish: bool,
        /// End the rotation of the authority although members or agents have no certificate of the next one.
        #[arg(long, requires = "finish")]
        leave_behind: bool,
        /// Show the progress of the rotation of the authority, and change nothing.
        #[arg(long, conflicts_with = "finish")]
        status: bool,
        /// The reason, for the audit. Required to begin and to end the rotation of the authority.
        #[arg(long, default_value = "")]
        reason: String,
        /// The configuration file.
        #[arg(long, short, default_value = CONFIG_FILE)]
        config: PathBuf,
    },
    /// Copy database and keys of the site into a new folder, also while the control plane runs. An event is stored first.
    Backup {
        /// The folder in which a new folder for the backup is created.
        #[arg(long)]
        to: PathBuf,
        /// The configuration file.
        #[arg(long, short, default_value = CONFIG_FILE)]
        config: PathBuf,
    },
    /// Restore a backup to the places in the configuration. The control plane must be down. The next start doubts every
    /// node.
    Restore {
        /// The backup: a folder that `rackwrightd backup` made.
        #[arg(long)]
        from: PathBuf,
        /// Move an existing site aside.
        #[arg(long)]
        replace: bool,
        /// The configuration file.
        #[arg(long, short, default_value = CONFIG_FILE)]
        config: PathBuf,
    },
    /// The audit: caller, method, address and outcome of each call.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Read and check a configuration file. All wrong values are listed. A fault of the form (no YAML, an unknown field, a
    /// wrong type) ends the check, so only this fault is shown.
    CheckConfig {
        /// The configuration file.
        config: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check that no record was changed, deleted, reordered or cut off. At a fault, the command names the first faulty
    /// position and fails. The daemon may run or not.
    Verify {
        /// Check an exported file in place of the database.
        #[arg(long, requires = "key")]
        file: Option<PathBuf>,
        /// A public signing key of the site, in hex, for --file.
        #[arg(long, requires = "file")]
        key: Option<String>,
        /// Position of a record about lost records that was investigated. Repeat the option for several positions.
        #[arg(long, value_name = "POSITION")]
        known_gap: Vec<u64>,
        /// The configuration file.
        #[arg(long, short, default_value = CONFIG_FILE)]
        config: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RotatedKey {
    /// The key that seals BMC passwords, private keys and user data in the database.
    Sealing,
    /// The key that signs erase certificates.
    Signing,
    /// The authority that signs the certificates of servers, members and agents.
    Ca,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object on each line.
    Json,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = hardening::harden() {
        eprintln!("rackwrightd: the process cannot be hardened against core dumps: {error}");
        return ExitCode::FAILURE;
    }
    let result = match arguments.command {
        Command::CheckConfig { config } => check_config(&config),
        Command::BmcPassword { node, reason, config } => bmc_password(&config, &node, &reason),
        Command::InviteOperator { reason, name, config } => invite_operator(&config, &name, &reason),
        Command::Audit(AuditCommand::Verify {
            file,
            key,
            known_gap,
            config,
        }) => verify_audit(&config, file.zip(key), &known_gap),
        Command::RotateKeys {
            key,
            finish,
            leave_behind,
            status,
            reason,
            config,
        } => {
            let rotation = Rotation {
                finish,
                leave_behind,
                status,
                reason,
            };
            rotate_keys(&config, key, &rotation)
        }
        Command::Backup { to, config } => back_up(&config, &to),
        Command::Restore { from, replace, config } => restore(&config, &from, replace),
        Command::Serve {
            config,
            log,
            ready_file,
            paused,
            restored,
        } => serve(&config, Start { paused, restored }, log, ready_file.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rackwrightd: {error}");
            for cause in causes(&*error) {
                eprintln!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

fn check_config(path: &Path) -> CommandResult {
    Config::load(path)?;
    println!("{}: good", path.display());
    Ok(())
}

/// Runs the asynchronous work of a command that is not the daemon, on this thread.
fn block_on<T, E: Into<Box<dyn Error>>>(work: impl Future<Output = Result<T, E>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work).map_err(Into::into)
}

fn bmc_password(path: &Path, node: &str, reason: &str) -> CommandResult {
    let node = rackwright_lifecycle::NodeId::named(node);
    let config = Config::load(path)?;
    let revealed = block_on(rackwright_nodes::credentials::reveal::reveal(&config, &node, reason))?;
    print!("{}", revealed.lines());
    Ok(())
}

fn invite_operator(path: &Path, name: &str, reason: &str) -> CommandResult {
    let config = Config::load(path)?;
    let report = block_on(rackwright_ground::invite::invite(&config, name, reason))?;
    print!("{report}");
    Ok(())
}

/// Verifies the audit in `file`, with the public signing key beside it, or in the database.
fn verify_audit(path: &Path, file: Option<(PathBuf, String)>, known_gaps: &[u64]) -> CommandResult {
    let report = match file {
        Some((file, key)) => verify::file(&file, &key, known_gaps)?,
        None => {
            let config = Config::load(path)?;
            block_on(verify::database(&config, known_gaps))?
        }
    };
    print!("{report}");
    Ok(())
}

/// The options of `rotate-keys`.
struct Rotation {
    finish: bool,
    leave_behind: bool,
    status: bool,
    reason: String,
}

fn rotate_keys(path: &Path, key: RotatedKey, rotation: &Rotation) -> CommandResult {
    if !matches!(key, RotatedKey::Ca) && (rotation.leave_behind || rotation.status) {
        return Err("--leave-behind and --status are options of `rotate-keys ca` only".into());
    }
    let config = Config::load(path)?;
    let reason = &rotation.reason;
    let report = match (key, rotation.finish) {
        (RotatedKey::Ca, _) if rotation.status => block_on(rotate_ca::status(&config))?,
        (RotatedKey::Ca, false) => block_on(rotate_ca::begin(&config, reason))?,
        (RotatedKey::Ca, true) => block_on(rotate_ca::finish(&config, reason, rotation.leave_behind))?,
        (RotatedKey::Sealing, false) => block_on(rotate::sealing(&config))?,
        (RotatedKey::Sealing, true) => block_on(rotate::finish_sealing(&config))?,
        (RotatedKey::Signing, false) => block_on(rotate::signing(&config))?,
        (RotatedKey::Signing, true) => {
            return Err(
                "--finish is an option of `rotate-keys sealing` and `rotate-keys ca`: a signing key is changed \
                        with one command"
                    .into(),
            );
        }
    };
    print!("{report}");
    Ok(())
}

fn back_up(path: &Path, to: &Path) -> CommandResult {
    let config = Config::load(path)?;
    let report = block_on(backup::create(&config, to))?;
    print!("{report}");
    Ok(())
}

fn restore(path: &Path, from: &Path, replace: bool) -> CommandResult {
    let config = Config::load(path)?;
    let report = block_on(backup::restore(&config, from, replace))?;
    print!("{report}");
    Ok(())
}

/// Runs the control plane until a signal stops it. Writes `ready_file` when all ports are open.
fn serve(path: &Path, start: Start, log: LogFormat, ready_file: Option<&Path>) -> CommandResult {
    let config = Config::load(path)?;
    let max_files = raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let telemetry = Telemetry::start(&config)?;
        start_tracing(log, &telemetry);
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::debug!("a TLS provider was installed before");
        }
        warn_of_few_files(&config, max_files);
        let stop = CancellationToken::new();
        cancel_on_signals(stop.clone())?;
        let ended = daemon::run(config, start, telemetry.traces(), ready_file, stop).await;
        telemetry.end().await;
        Ok(ended?)
    })
}

/// Raises the limit of open files to the maximum, because each connection is one. Returns the new limit.
fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return u64::MAX;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Warns if the configuration allows more connections than this process may open files.
fn warn_of_few_files(config: &Config, max_files: u64) {
    let connections = &config.connections;
    // The API and the image store each allow the total.
    let wanted = 2 * connections.total + connections.boot_http;
    if max_files < wanted as u64 {
        tracing::warn!(
            files = max_files,
            wanted,
            "this process may open fewer files than connections are allowed: see LimitNOFILE"
        );
    }
}

/// Writes spans and events to standard error, and sends them to the collector of traces if there is one.
fn start_tracing(format: LogFormat, telemetry: &Telemetry) {
    let filter = EnvFilter::try_from_env("RACKWRIGHT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for a terminal: a file or a journal would keep their codes.
    let is_coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(is_coloured);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(telemetry.layer())
        .init();
}

/// Cancels `stop` at the first SIGTERM or SIGINT.
fn cancel_on_signals(stop: CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        stop.cancel();
    });
    Ok(())
}
