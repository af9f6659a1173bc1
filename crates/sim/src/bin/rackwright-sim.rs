//! A datacenter of simulated machines to try Rackwright on: each with a Redfish BMC of its own, all in this process.

use clap::Parser;
use ipnet::Ipv4Net;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rackwright_sim::fleet::{
    AccountRules, BootFiles, BootMethod, DescribeError, Fleet, FleetConfig, FleetError, Format, ImageData, Profile,
    Script, ScriptError, UpdateSettings,
};
use rackwright_sim::install_crypto;
use rackwright_sim::mockup::{Mockup, MockupError, Tree};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// With the C library's allocator, allocations took a sixth of the CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A datacenter of simulated machines, each with a Redfish BMC of its own, in one process.
///
/// Prints the machines, all of them switched off, as documents that `rackwright apply`
/// takes, and serves their BMCs until standard input closes, or SIGTERM, SIGHUP or Ctrl-C
/// comes. The output ends as soon as all BMCs answer:
///
///     rackwright-sim --nodes 100 | rackwright apply -f -
#[derive(Parser)]
#[command(version, about, verbatim_doc_comment)]
struct Cli {
    /// Number of machines, 1 to 100000
    #[arg(long, default_value_t = 1, value_name = "N")]
    nodes: usize,
    /// Speed and components of the machines
    #[arg(long, value_enum, default_value = "instant")]
    profile: Profile,
    /// Seed of all random values: the same seed makes the same machines, passwords, times and faults
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// File of faults in YAML: see docs/sim.md
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// BMCs refuse all other requests until the initial password is changed
    #[arg(long)]
    must_change_passwords: bool,
    /// BMCs have N fixed slots for accounts; the second slot is in use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    account_slots: Option<u32>,
    /// BMCs lock an account for 30 s after N refused logins
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    lockout_threshold: Option<u32>,
    /// Seconds of the machines' time in one real second
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", allow_negative_numbers = true)]
    speed: f64,
    /// The BMCs' addresses, from the network's first host address on; outside of 127.0.0.0/8 the network must be routed to
    /// this machine (`ip route add local NETWORK dev lo`)
    #[arg(long, default_value = "127.64.0.0/10", value_name = "NETWORK")]
    network: Ipv4Net,
    /// Address and port of the one socket of all BMCs. If their network is within 127.0.0.0/8, the socket is bound to the
    /// loopback interface, so 0.0.0.0 is not reachable from outside. Port 0 selects a free port
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS:PORT")]
    listen: SocketAddrV4,
    /// Address and port of the one socket of all installed systems' SSH servers; set this port as `ssh_port` of the control
    /// plane. Port 0 selects a free port
    #[arg(long, default_value = "0.0.0.0:8022", value_name = "ADDRESS:PORT")]
    ssh_listen: SocketAddrV4,
    /// BMCs use plain HTTP; needs `--format json`, because `rackwright apply` accepts only HTTPS
    #[arg(long)]
    plain_http: bool,
    /// The control plane's DHCP server: machines boot from the network and run the agent. Without it they run no agent
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = boot_server)]
    boot_server: Option<SocketAddrV4>,
    /// The machines' own addresses, from the DHCP server; the first host address is the relay's
    #[arg(long, default_value = "127.128.0.0/10", value_name = "NETWORK")]
    hosts: Ipv4Net,
    /// How machines boot from the boot server: start as iPXE, or with the firmware's first DHCP message
    #[arg(long, value_enum, default_value = "ipxe")]
    boot: BootMethod,
    /// Whether machines fetch the kernel and the ramdisk that their boot script names
    #[arg(long, value_enum, default_value = "skip")]
    boot_files: BootFiles,
    /// Whether agents fetch and verify a whole image, or only its index
    #[arg(long, value_enum, default_value = "skip")]
    image_data: ImageData,
    /// Samples of each drive that an agent reads before and after an erase; a real machine reads 4096
    #[arg(long, default_value_t = 64, value_name = "N")]
    erase_samples: u32,
    /// Machines have no TPM
    #[arg(long)]
    no_tpm: bool,
    /// BMCs have an update service: an update lasts 30 s; after an update of its own firmware the BMC restarts for 20 s
    #[arg(long)]
    firmware_updates: bool,
    /// The boot server's port for TFTP
    #[arg(long, default_value_t = 69, value_name = "PORT")]
    tftp_port: u16,
    /// Format of the machines' description
    #[arg(long, value_enum, default_value = "yaml")]
    format: Format,
    /// Write the machines' description to this file, readable only by its owner, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// SKU to name in each machine's description
    #[arg(long, value_name = "NAME")]
    sku: Option<String>,
    /// Serve a recorded BMC from this folder or file, read-only, in place of simulated machines, and print its address
    #[arg(long, value_name = "PATH")]
    mockup: Option<PathBuf>,
    /// Continue after standard input has closed
    #[arg(long)]
    keep_running: bool,
}

/// Why the program ends early.
#[derive(Debug, thiserror::Error)]
enum SimError {
    #[error("--plain-http needs `--format json`: `rackwright apply` accepts only BMCs with HTTPS")]
    PlainYaml,
    #[error("cannot read {}: {source}", path.display())]
    Script { path: PathBuf, source: io::Error },
    #[error("the fault script is invalid:\n{0}")]
    Faults(#[from] ScriptError),
    #[error("--{0}")]
    Fleet(FleetError),
    #[error(transparent)]
    Describe(#[from] DescribeError),
    #[error(transparent)]
    Mockup(#[from] MockupError),
    #[error("cannot write {}: {source}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl From<FleetError> for SimError {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::Config { .. } => Self::Fleet(error),
            other => Self::Describe(other.into()),
        }
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> SimError {
    move |source| SimError::System { what, source }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    install_crypto();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rackwright-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An address; without a port, the port of DHCP servers.
fn boot_server(text: &str) -> Result<SocketAddrV4, String> {
    let server = text.parse().map(|address| SocketAddrV4::new(address, 67));
    let server = server.or_else(|_| text.parse::<SocketAddrV4>());
    server.map_err(|_| "must be an IPv4 address, with or without a port".to_owned())
}

/// Concurrent blocking jobs of agents; further jobs wait. A machine's waiting times use no thread.
const BLOCKING_THREADS: usize = 16;

fn run(cli: Cli) -> Result<(), SimError> {
    if cli.plain_http && cli.format == Format::Yaml && cli.mockup.is_none() {
        return Err(SimError::PlainYaml);
    }
    allow_connections();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(system("start the async runtime"))?;
    match cli.mockup.clone() {
        Some(recording) => runtime.block_on(serve_mockup(&cli, &recording)),
        None => runtime.block_on(serve(cli)),
    }
}

/// Serves a recorded BMC, on the loopback interface by default.
async fn serve_mockup(cli: &Cli, recording: &Path) -> Result<(), SimError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(system("listen for SIGTERM"))?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(system("listen for SIGHUP"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("listen for SIGINT"))?;
    let input = (!cli.keep_running).then(input_end);
    let mut address = cli.listen;
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST);
    }
    let tree = Tree::read(recording)?;
    let count = tree.len();
    let mockup = Mockup::start(tree, address.into(), !cli.plain_http).await?;
    let words = [Some(mockup.url()), mockup.fingerprint()];
    let line = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    writeln!(io::stdout(), "{line}").map_err(system("write to standard output"))?;
    close_stdout()?;
    eprintln!(
        "rackwright-sim: a recorded BMC of {count} resources answers at {}",
        mockup.url()
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
        _ = interrupt.recv() => {}
        () = ended(input) => {}
    }
    Ok(())
}

/// Raises the limit of file descriptors: each connection needs one, and the usual 1024 are too few for thousands of BMCs.
fn allow_connections() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, "cannot raise the limit of open files");
    }
}

async fn serve(cli: Cli) -> Result<(), SimError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(system("listen for SIGTERM"))?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(system("listen for SIGHUP"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("listen for SIGINT"))?;
    let input = (!cli.keep_running).then(input_end);
    let config = FleetConfig {
        nodes: cli.nodes,
        profile: cli.profile,
        seed: cli.seed,
        network: cli.network,
        listen: cli.listen,
        hosts: cli.hosts,
        ssh_listen: Some(cli.ssh_listen),
        tls: !cli.plain_http,
        speed: cli.speed,
        accounts: AccountRules {
            must_change: cli.must_change_passwords,
            slots: cli.account_slots,
            lockout_threshold: cli.lockout_threshold,
            ..AccountRules::default()
        },
        efivars: None,
        faults: script(&cli)?,
        boot_server: cli.boot_server,
        boot_method: cli.boot,
        boot_files: cli.boot_files,
        image_data: cli.image_data,
        erase_samples: cli.erase_samples,
        tpm: !cli.no_tpm,
        tftp_port: cli.tftp_port,
        updates: cli.firmware_updates.then_some(UpdateSettings {
            multipart: true,
            push: true,
            simple: true,
            lasts: Duration::from_secs(30),
            restarts: Duration::from_secs(20),
            ac_cycle: true,
            refuses: 0,
        }),
        settings_jobs: None,
        sol_port: None,
    };
    let fleet = Fleet::start(config).await?;
    match &cli.output {
        Some(path) => describe_to_file(&fleet, &cli, path)?,
        None => describe_to_stdout(&fleet, &cli)?,
    }
    close_stdout()?;
    eprintln!(
        "rackwright-sim: the BMCs of {} machines answer on port {}, their installed systems on port {}",
        fleet.nodes(),
        fleet.port(),
        fleet.ssh_port().unwrap_or_default()
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
        _ = interrupt.recv() => {}
        () = ended(input) => {}
    }
    let totals = fleet.totals();
    fleet.stop().await;
    eprintln!(
        "rackwright-sim: ended after {} requests on {} connections and {} boots",
        totals.requests, totals.connections, totals.boots
    );
    Ok(())
}

/// Most bytes read of a fault script; `Script::parse` refuses scripts far below this size.
const SCRIPT_BYTES: u64 = 2 << 20;

fn script(cli: &Cli) -> Result<Script, SimError> {
    let Some(path) = &cli.faults else {
        return Ok(Script::default());
    };
    let mut yaml = String::new();
    let read = File::open(path).and_then(|file| file.take(SCRIPT_BYTES).read_to_string(&mut yaml));
    read.map_err(|source| SimError::Script {
        path: path.clone(),
        source,
    })?;
    Ok(Script::parse(&path.display().to_string(), &yaml, cli.nodes)?)
}

/// Reads standard input to its end, in a thread that does not delay the exit of the process.
fn input_end() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = sender.send(());
    });
    receiver
}

async fn ended(input: Option<oneshot::Receiver<()>>) {
    match input {
        Some(input) => _ = input.await,
        None => std::future::pending().await,
    }
}

fn describe_to_file(fleet: &Fleet, cli: &Cli, path: &Path) -> Result<(), SimError> {
    let failed = |source| SimError::Output {
        path: path.to_path_buf(),
        source,
    };
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    fleet.describe(cli.format, cli.sku.as_deref(), &mut BufWriter::new(file))?;
    Ok(())
}

fn describe_to_stdout(fleet: &Fleet, cli: &Cli) -> Result<(), SimError> {
    let mut out = BufWriter::new(io::stdout().lock());
    fleet.describe(cli.format, cli.sku.as_deref(), &mut out)?;
    out.flush().map_err(system("write to standard output"))
}

/// Closes standard output after the description, so that a reader of the whole output need not wait for this process.
fn close_stdout() -> Result<(), SimError> {
    let null = File::options().write(true).open("/dev/null");
    let null = null.map_err(system("open /dev/null"))?;
    nix::unistd::dup2_stdout(&null).map_err(|errno| system("close standard output")(errno.into()))
}
