//! `rackwrightd`: the control plane's process.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use rackwright_control::config::Config;
use rackwright_control::daemon;
use rackwright_control::telemetry::Telemetry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// The C library's own took a fifth of the CPU when a thousand machines were deployed at once.
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
    /// Run until told to stop.
    Serve {
        /// The configuration file.
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
        config: PathBuf,
        /// How to write the log (to standard error).
        #[arg(long, value_enum, default_value_t = Log::Text)]
        log: Log,
        /// Write this file once everything listens.
        #[arg(long)]
        ready_file: Option<PathBuf>,
    },
    /// Show what opens the BMC of a node, also while the control plane is down. An event that tells why is stored first.
    BmcPassword {
        /// The node.
        node: String,
        /// Why you need it, for those who read the events.
        #[arg(long)]
        reason: String,
        /// The configuration file.
        #[arg(long, short, default_value = "/etc/rackwright/rackwrightd.yaml")]
        config: PathBuf,
    },
    /// Read and check a configuration file, and say everything that is wrong with it.
    CheckConfig {
        /// The configuration file.
        config: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Log {
    /// For people.
    Text,
    /// A JSON object a line.
    Json,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::CheckConfig { config } => Config::load(&config)
            .map(|_| println!("{}: good", config.display()))
            .map_err(|e| Box::new(e) as Box<dyn std::error::Error>),
        Command::BmcPassword { node, reason, config } => bmc_password(&config, &node, &reason),
        Command::Serve {
            config,
            log,
            ready_file,
        } => serve(&config, log, ready_file),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rackwrightd: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// Has spans and events written to standard error, and told to the collector of traces where there is one.
fn listen_to_spans(log: Log, telemetry: &Telemetry) {
    let filter = EnvFilter::try_from_env("RACKWRIGHT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let written = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // Colours are for eyes: a file or a journal keeps their codes.
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
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let revealed = runtime.block_on(rackwright_control::credentials::reveal::reveal(&config, node, reason))?;
    print!("{}", revealed.lines());
    Ok(())
}

fn serve(path: &std::path::Path, log: Log, ready: Option<PathBuf>) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let telemetry = Telemetry::start(&config)?;
        listen_to_spans(log, &telemetry);
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::debug!("a TLS provider was installed before");
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
        let ended = daemon::run(config, telemetry.traces(), ready.as_deref(), stop).await;
        telemetry.end().await;
        Ok(ended?)
    })
}
