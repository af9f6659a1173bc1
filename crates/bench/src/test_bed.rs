//! The test stand: a control plane, its database and simulated machines, each as a separate process.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::{Bmc, CreateTokenRequest, Role};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::{Cx, login, tls};
use rackwright_free_port::free_port;
use secrecy::SecretString;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::args::{FleetArgs, IdentityArg, StoreArg};
use crate::meter::{self, Process};
use crate::phases::mutation;

/// The simulated machines' own addresses, which are the default of `rackwright-sim`, and the part of them for machines
/// without a node.
const HOSTS: &str = "127.128.0.0/10";
const HOSTS_POOL: &str = "first: 127.190.0.1, last: 127.190.255.254";
/// Time limit for the start of the control plane.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A machine, as the simulator describes it.
#[derive(Debug, Deserialize)]
pub struct Machine {
    pub id: String,
    bmc: MachineBmc,
}

#[derive(Debug, Deserialize)]
struct MachineBmc {
    address: String,
    username: String,
    password: String,
    certificate_sha256: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Description {
    nodes: Vec<Machine>,
}

impl Machine {
    pub fn bmc(&self) -> Bmc {
        Bmc {
            address: self.bmc.address.clone(),
            username: self.bmc.username.clone(),
            password: self.bmc.password.clone(),
            certificate_sha256: self.bmc.certificate_sha256.clone().unwrap_or_default(),
            system: String::new(),
        }
    }
}

/// Ports of this computer that belong to this run.
#[derive(Debug, Clone, Copy)]
struct Ports {
    api: u16,
    store: u16,
    boot: u16,
    tftp: u16,
    bmc: u16,
    ssh: u16,
    dhcp: u16,
    /// The port where PXE clients request their boot file; no client does so here.
    proxy: u16,
    web: u16,
}

impl Ports {
    fn find() -> io::Result<Self> {
        Ok(Self {
            api: free_port()?,
            store: free_port()?,
            boot: free_port()?,
            tftp: free_port()?,
            bmc: free_port()?,
            ssh: free_port()?,
            dhcp: free_port()?,
            proxy: free_port()?,
            web: free_port()?,
        })
    }
}

/// The folder of all files: a temporary one, or one that is kept.
#[derive(Debug)]
enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(dir) => dir.path(),
            Self::Kept(path) => path,
        }
    }
}

/// All running processes and a client of the control plane. Dropping it stops them.
pub struct TestBed {
    folder: Folder,
    programs: PathBuf,
    store: StoreArg,
    database: Option<String>,
    daemon: Child,
    simulator: Child,
    server: String,
    call_timeout: Duration,
    pub client: Arc<Client>,
    /// The authority of the control plane's certificates, in PEM.
    pub authority: String,
    /// The address of the web console.
    pub web: String,
    pub machines: Vec<Machine>,
}

impl TestBed {
    /// Starts everything.
    pub async fn start(cx: &Cx, args: &FleetArgs) -> Result<Self, CliError> {
        let folder = match &args.keep {
            Some(path) => {
                std::fs::create_dir(path).map_err(|e| CliError::given("make", path, e))?;
                Folder::Kept(std::path::absolute(path).map_err(|e| CliError::file("find", path, e))?)
            }
            None => Folder::Temporary(
                TempDir::with_prefix("rackwright-bench-").map_err(|e| CliError::io("make a directory", e))?,
            ),
        };
        let programs = match &args.programs {
            Some(path) => path.clone(),
            None => program_folder()?,
        };
        let ports = Ports::find().map_err(|e| CliError::io("find free ports", e))?;
        let (simulator, machines) = start_simulator(folder.path(), &programs, args, ports).await?;
        let config = config_text(folder.path(), args, ports);
        let file = folder.path().join("rackwrightd.yaml");
        std::fs::write(&file, config).map_err(|e| CliError::file("write", &file, e))?;
        for name in ["vmlinuz", "initrd"] {
            // Simulated machines fetch only the boot script; the control plane checks that the files exist.
            let file = folder.path().join(name);
            std::fs::write(&file, name).map_err(|e| CliError::file("write", &file, e))?;
        }
        let (daemon, printed) = start_daemon(folder.path(), &programs, &[]).await?;
        let (invitation, call_timeout) = (first_invitation(&printed)?, cx.global.call_timeout);
        let (context, credential) = login::redeem(&invitation, call_timeout).await?;
        let authority = credential.ca_pem.clone();
        Ok(Self {
            folder,
            programs,
            store: args.store,
            database: args.database.clone(),
            daemon,
            simulator,
            server: context.servers.first().cloned().unwrap_or_default(),
            call_timeout,
            client: Client::of_credential(&context, credential, call_timeout).map(Arc::new)?,
            authority,
            web: format!("https://127.0.0.1:{}", ports.web),
            machines,
        })
    }

    /// The folder with data and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn control_plane(&self) -> Process {
        Process::new("the control plane", self.daemon.id().into_iter().collect())
    }

    pub fn simulator(&self) -> Process {
        Process::new("the simulator", self.simulator.id().into_iter().collect())
    }

    /// Bytes that the database takes on disk.
    pub async fn database_bytes(&self) -> Result<u64, CliError> {
        let Some(url) = &self.database else {
            let data = self.folder().join("data");
            return meter::file_bytes(&data, "rackwright.db").map_err(|e| CliError::file("measure", &data, e));
        };
        let query = "SELECT pg_database_size(current_database())";
        let output = Command::new("psql").args([url, "-XAtc", query]).output().await;
        let output = output.map_err(|e| CliError::io("run psql", e))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            CliError::BadAnswer(format!("psql did not report the size of the database: {why}"))
        })
    }

    pub fn store(&self) -> StoreArg {
        self.store
    }

    /// Kills the control plane as a crash would and starts it again; returns the seconds until it answers.
    pub async fn crash(&mut self) -> Result<f64, CliError> {
        let killed = self.daemon.kill().await;
        killed.map_err(|e| CliError::io("kill the control plane", e))?;
        let begun = Instant::now();
        (self.daemon, _) = start_daemon(self.folder.path(), &self.programs, &[]).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Starts the control plane again, paused: it answers and does not work on any machine.
    pub async fn pause(&mut self) -> Result<(), CliError> {
        let killed = self.daemon.kill().await;
        killed.map_err(|e| CliError::io("kill the control plane", e))?;
        (self.daemon, _) = start_daemon(self.folder.path(), &self.programs, &["--paused"]).await?;
        Ok(())
    }

    /// A client for a new member of the role viewer, which reads all resources.
    pub async fn join(&self, member: &str) -> Result<Client, CliError> {
        let request = CreateTokenRequest {
            member: member.to_owned(),
            role: Role::Viewer as i32,
            mutation: mutation(),
            ..CreateTokenRequest::default()
        };
        let invited = rpc!(self.client, AuthServiceClient.create_token, "invite a member", request).await?;
        let invitation = login::Invitation {
            servers: vec![self.server.clone()],
            tls_name: None,
            ca_sha256: tls::parse_pin(&invited.ca_sha256).map_err(CliError::BadAnswer)?,
            token: SecretString::from(invited.token),
        };
        let (context, credential) = login::redeem(&invitation, self.call_timeout).await?;
        Client::of_credential(&context, credential, self.call_timeout)
    }
}

fn program_folder() -> Result<PathBuf, CliError> {
    let program = std::env::current_exe().map_err(|e| CliError::io("find the directory of this program", e))?;
    Ok(program.parent().map(Path::to_owned).unwrap_or_default())
}

fn program(programs: &Path, name: &str) -> Result<Command, CliError> {
    let path = programs.join(name);
    if !path.is_file() {
        return Err(CliError::usage(
            format!("{} is missing", path.display()),
            "build the workspace (`make build`), or give the directory of the programs with --programs",
        ));
    }
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

fn log(folder: &Path, name: &str) -> Result<Stdio, CliError> {
    let path = folder.join(name);
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    file.map(Stdio::from).map_err(|e| CliError::file("write", &path, e))
}

async fn start_simulator(
    folder: &Path,
    programs: &Path,
    args: &FleetArgs,
    ports: Ports,
) -> Result<(Child, Vec<Machine>), CliError> {
    let mut command = program(programs, "rackwright-sim")?;
    command
        .args(["--nodes", &args.nodes.to_string(), "--profile", args.profile.name()])
        .args(["--speed", &args.speed.to_string()])
        .args([
            "--listen",
            &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, ports.bmc).to_string(),
        ])
        .args([
            "--boot-server",
            &SocketAddrV4::new(Ipv4Addr::LOCALHOST, ports.dhcp).to_string(),
        ])
        .args([
            "--ssh-listen",
            &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, ports.ssh).to_string(),
        ])
        .args(["--format", "json", "--keep-running"])
        .stdout(Stdio::piped())
        .stderr(log(folder, "rackwright-sim.log")?);
    if let Some(faults) = &args.faults {
        command.arg("--faults").arg(faults);
    }
    if args.identity == IdentityArg::None {
        command.arg("--no-tpm");
    }
    let mut child = command.spawn().map_err(|e| CliError::io("start rackwright-sim", e))?;
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        let read = out.read_to_string(&mut text).await;
        read.map_err(|e| CliError::io("read the output of rackwright-sim", e))?;
    }
    let description: Description = serde_json::from_str(&text).map_err(|e| {
        let log = tail(&folder.join("rackwright-sim.log"));
        CliError::BadAnswer(format!(
            "the output of rackwright-sim is not a list of machines: {e}\n{log}"
        ))
    })?;
    Ok((child, description.nodes))
}

/// Starts the control plane and returns its output until it was ready.
async fn start_daemon(folder: &Path, programs: &Path, further: &[&str]) -> Result<(Child, String), CliError> {
    let mut command = program(programs, "rackwrightd")?;
    command
        .arg("serve")
        .arg("--config")
        .arg(folder.join("rackwrightd.yaml"))
        .args(further)
        .stdout(Stdio::piped())
        .stderr(log(folder, "rackwrightd.log")?);
    let mut child = command.spawn().map_err(|e| CliError::io("start rackwrightd", e))?;
    let is_ready = |line: &str| line.starts_with("rackwrightd is ready") || line.starts_with("rackwrightd is paused");
    let ready = async {
        let mut printed = String::new();
        let Some(out) = child.stdout.take() else { return printed };
        let mut lines = BufReader::new(out).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            printed.push_str(&line);
            printed.push('\n');
            if is_ready(&line) {
                break;
            }
        }
        // What the control plane prints later is read, too: it could not go on with a full or closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        printed
    };
    let printed = tokio::time::timeout(START_LIMIT, ready).await.unwrap_or_default();
    if printed.lines().any(is_ready) {
        return Ok((child, printed));
    }
    let log = tail(&folder.join("rackwrightd.log"));
    Err(CliError::BadAnswer(format!(
        "rackwrightd did not become ready; the end of its log:\n{log}"
    )))
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// The invitation of the first operator, from the control plane's output.
fn first_invitation(printed: &str) -> Result<login::Invitation, CliError> {
    let after = |flag: &str| {
        let mut words = printed.split_whitespace().skip_while(|word| *word != flag).skip(1);
        words.next().map(str::to_owned).ok_or_else(|| {
            CliError::BadAnswer(format!(
                "rackwrightd printed no {flag}: the database may belong to a site with operators; use an empty database"
            ))
        })
    };
    Ok(login::Invitation {
        servers: vec![after("--server")?],
        tls_name: None,
        ca_sha256: tls::parse_pin(&after("--ca-sha256")?).map_err(CliError::BadAnswer)?,
        token: SecretString::from(after("--token")?),
    })
}

fn config_text(folder: &Path, args: &FleetArgs, ports: Ports) -> String {
    let folder = folder.display();
    let database = args.database.as_ref();
    let database = database.map(|url| format!("database: \"{url}\"\n")).unwrap_or_default();
    let streams = args.streams;
    let interval_s = args.interval.as_secs();
    let identity = match args.identity {
        IdentityArg::None => "tpm: none, address_only: allow",
        IdentityArg::Tpm | IdentityArg::Both => "tpm: required",
    };
    // The same duration as the default, in the machines' time.
    let power_off_s = (10.0 / args.speed.max(0.1)).ceil() as u32;
    let (recheck_s, streamed_s) = (interval_s.min(60), interval_s.max(3600));
    let Ports {
        api,
        store,
        boot,
        tftp,
        ssh,
        dhcp,
        proxy,
        web,
        ..
    } = ports;
    let web = match args.has_console {
        true => format!("web: {{listen: \"127.0.0.1:{web}\"}}\n"),
        false => String::new(),
    };
    format!(
        "data_dir: {folder}/data\nstorage: {{reserve_mib: 256}}\nsite: bench\n{database}\
         api:\n  listen: 127.0.0.1:{api}\n  names: [127.0.0.1, localhost]\n\
         store:\n  listen: 127.0.0.1:{store}\n\
         boot:\n  ramdisk:\n    kernel: {folder}/vmlinuz\n    initrd: {folder}/initrd\n  \
         network:\n    server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    boot_server_port: {proxy}\n    \
         http_port: {boot}\n    tftp_port: {tftp}\n    first_stages: {{}}\n    \
         dhcp:\n      server:\n        subnets:\n        - network: {HOSTS}\n          pool: {{{HOSTS_POOL}}}\n\
         ssh_port: {ssh}\n\
         identity: {{{identity}}}\n{web}\
         policy: {{power_off_s: {power_off_s}}}\n\
         power_watch: {{interval_s: {interval_s}, recheck_s: {recheck_s}, streamed_s: {streamed_s}, streams: {streams}}}\n"
    )
}
