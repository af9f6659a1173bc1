//! `rackwrightd`: the control plane's process.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rackwright_control::audit::verify;
use rackwright_control::config::Config;
use rackwright_control::keys::{rotate, rotate_ca};
use rackwright_control::start::Start;
use rackwright_control::telemetry::Telemetry;
use rackwright_control::text::causes;
use rackwright_control::{backup, daemon, hardening};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

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
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
        config: PathBuf,
        /// How to write the log (to standard error).
        #[arg(long, value_enum, default_value_t = Log::Text)]
        log: Log,
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
        /// The node.
        node: String,
        /// The reason, for the event.
        #[arg(long)]
        reason: String,
        /// The configuration file.
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
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
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
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
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
        config: PathBuf,
    },
    /// Copy database and keys of the site into a new folder, also while the control plane runs. An event is stored first.
    Backup {
        /// The folder in which a new folder for the backup is created.
        #[arg(long)]
        to: PathBuf,
        /// The configuration file.
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
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
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
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
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
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
enum Log {
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
        Command::CheckConfig { config } => Config::load(&config)
            .map(|_| println!("{}: good", config.display()))
            .map_err(|e| Box::new(e) as Box<dyn std::error::Error>),
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
        } => rotate_keys(
            &config,
            key,
            &Rotation {
                finish,
                leave_behind,
                status,
                reason,
            },
        ),
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

/// Writes spans and events to standard error, and sends them to the collector of traces if there is one.
fn listen_to_spans(log: Log, telemetry: &Telemetry) {
    let filter = EnvFilter::try_from_env("RACKWRIGHT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let written = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // Colours are for a terminal: a file or a journal would keep their codes.
    let is_coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let written = written.with_ansi(is_coloured);
    let written = match log {
        Log::Text => written.boxed(),
        Log::Json => written.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(written.with_filter(filter))
        .with(telemetry.layer())
        .init();
}

fn bmc_password(path: &std::path::Path, node: &str, reason: &str) -> Result<(), Box<dyn std::error::Error>> {
    let node = rackwright_lifecycle::NodeId::named(node);
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let revealed = runtime.block_on(rackwright_control::credentials::reveal::reveal(&config, &node, reason))?;
    print!("{}", revealed.lines());
    Ok(())
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

fn invite_operator(path: &std::path::Path, name: &str, reason: &str) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    print!(
        "{}",
        runtime.block_on(rackwright_control::invite::invite(&config, name, reason))?
    );
    Ok(())
}

fn verify_audit(
    path: &std::path::Path,
    file: Option<(PathBuf, String)>,
    known_gaps: &[u64],
) -> Result<(), Box<dyn std::error::Error>> {
    let told = match file {
        Some((file, key)) => verify::file(&file, &key, known_gaps)?,
        None => {
            let config = Config::load(path)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(verify::database(&config, known_gaps))?
        }
    };
    print!("{told}");
    Ok(())
}

/// What to do with a key.
struct Rotation {
    finish: bool,
    leave_behind: bool,
    status: bool,
    reason: String,
}

fn rotate_keys(path: &std::path::Path, key: RotatedKey, rotation: &Rotation) -> Result<(), Box<dyn std::error::Error>> {
    let Rotation {
        finish,
        leave_behind,
        status,
        reason,
    } = rotation;
    if !matches!(key, RotatedKey::Ca) && (*leave_behind || *status) {
        return Err("--leave-behind and --status are options of `rotate-keys ca` only".into());
    }
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told = match (key, *finish) {
        (RotatedKey::Ca, _) if *status => runtime.block_on(rotate_ca::status(&config))?,
        (RotatedKey::Ca, false) => runtime.block_on(rotate_ca::begin(&config, reason))?,
        (RotatedKey::Ca, true) => runtime.block_on(rotate_ca::finish(&config, reason, *leave_behind))?,
        (RotatedKey::Sealing, false) => runtime.block_on(rotate::sealing(&config))?,
        (RotatedKey::Sealing, true) => runtime.block_on(rotate::finish_sealing(&config))?,
        (RotatedKey::Signing, false) => runtime.block_on(rotate::signing(&config))?,
        (RotatedKey::Signing, true) => {
            return Err(
                "--finish is an option of `rotate-keys sealing` and `rotate-keys ca`: a signing key is changed \
                        with one command"
                    .into(),
            );
        }
    };
    print!("{told}");
    Ok(())
}

fn back_up(path: &std::path::Path, to: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    print!("{}", runtime.block_on(backup::create(&config, to))?);
    Ok(())
}

fn restore(path: &std::path::Path, from: &std::path::Path, replace: bool) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    print!("{}", runtime.block_on(backup::restore(&config, from, replace))?);
    Ok(())
}

fn serve(
    path: &std::path::Path,
    how: Start,
    log: Log,
    ready: Option<&std::path::Path>,
) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(path)?;
    let files = raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let telemetry = Telemetry::start(&config)?;
        listen_to_spans(log, &telemetry);
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::debug!("a TLS provider was installed before");
        }
        let connections = &config.connections;
        let wanted = 2 * connections.total + connections.boot_http;
        if files < wanted as u64 {
            tracing::warn!(
                files,
                wanted,
                "this process may open fewer files than connections are allowed: see LimitNOFILE"
            );
        }
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let on_signal = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            on_signal.cancel();
        });
        let ended = daemon::run(config, how, telemetry.traces(), ready, stop).await;
        telemetry.end().await;
        Ok(ended?)
    })
}
