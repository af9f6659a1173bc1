//! A site on one computer: control plane, CLI and machines.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rackwright_lab::{Lab, Machine, SERVER_IPV4};
use serde_json::Value;
use tokio::process::Child;

use crate::{member, process};

/// Time limit for a machine of the lab to reach another state. A minute or two is usual on a busy computer. But an
/// emulated machine hangs once in some hundred boots before its system is up, and the control plane's reaction is part of
/// the test: a second boot after the five minutes that it allows a first one.
pub const BOOT: Duration = Duration::from_secs(900);
/// Time limits of the control plane's start and end, which take seconds on a quiet computer.
const START: Duration = Duration::from_secs(300);
const END: Duration = Duration::from_secs(120);
/// Time between two calls of the CLI while a test waits. A start of the unoptimised CLI costs some 50 ms of a processor.
pub const POLL: Duration = Duration::from_millis(250);

/// Settings of a site that tests change.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seconds a machine may take from power-on to its agent.
    pub agent_boot_s: u32,
    /// Seconds that an installed system may take until it accepts a login.
    pub host_boot_s: u32,
    /// Boots before a state gives up.
    pub boots: u32,
    /// Tries before a state gives up.
    pub tries: u32,
    /// Longest pause between tries, in seconds.
    pub backoff_max_s: u32,
    /// "pxe" or "uefi-http".
    pub method: &'static str,
    /// "ipxe" or "shim-grub".
    pub loader: &'static str,
    /// URL from which agents fetch images; none: the control plane.
    pub store_url: Option<String>,
    /// Members with certificates that may fetch every image.
    pub caches: Vec<String>,
    /// Validation profile of every node without a SKU; none: the built-in one.
    pub profile: Option<PathBuf>,
    /// minisign public key that must have signed every image.
    pub trusted_key: Option<String>,
    /// Whether machines that belong to no node boot the agent.
    pub boot_unknown: bool,
    /// The traffic program that is uploaded to machines; none: the one beside the control plane, if there is one.
    pub traffic: Option<PathBuf>,
    /// The hardware probe that validations run; none: hardware is not read.
    pub probe: Option<PathBuf>,
    /// Networks of machines behind relays. Each has its addresses from 10 to 99 as its pool.
    pub relayed: Vec<[u8; 3]>,
    /// Further lines of settings.
    pub further: String,
    /// The ramdisk that machines boot: "cloud", or "generic" with the drivers of real servers.
    pub ramdisk: &'static str,
    /// Whether machines may be known by their addresses only, as most machines of the lab have no TPM. Not used if `further` has
    /// settings of the identity.
    pub address_only: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            agent_boot_s: 240,
            host_boot_s: 300,
            boots: 2,
            tries: 3,
            backoff_max_s: 5,
            method: "pxe",
            loader: "ipxe",
            store_url: None,
            caches: Vec::new(),
            profile: None,
            trusted_key: None,
            boot_unknown: false,
            traffic: None,
            probe: None,
            relayed: Vec::new(),
            further: String::new(),
            ramdisk: "cloud",
            address_only: true,
        }
    }
}

/// A running control plane and the means to talk to it.
#[derive(Debug)]
pub struct Site {
    dir: PathBuf,
    daemon: Option<Child>,
    starts: u32,
}

/// The folder of this program, which also contains the other programs.
fn binaries() -> PathBuf {
    let me = std::env::current_exe().expect("the path of this program is known");
    let dir = me.parent().expect("a program is in a folder");
    if dir.ends_with("deps") {
        dir.parent().expect("deps is in a folder").to_owned()
    } else {
        dir.to_owned()
    }
}

/// A program of this workspace.
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let path = binaries().join(name);
    assert!(path.is_file(), "{} is missing: `make build` builds it", path.display());
    path
}

/// The folder with the images that `make images` builds.
///
/// # Panics
/// If it does not exist.
#[must_use]
pub fn images() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images");
    let dir = std::env::var_os("RACKWRIGHT_IMAGES").map_or(default, PathBuf::from);
    assert!(dir.is_dir(), "{} is missing: `make images` builds it", dir.display());
    dir.canonicalize().expect("the folder can be named")
}

/// Storage settings for tests and demonstrations: their images are small, and a developer's disk is often nearly full.
pub const STORAGE: &str = "storage: {reserve_mib: 256}\n";

/// Settings of a site that accepts machines without a proof of their identity.
pub const ADDRESS_ONLY: &str = "identity: {address_only: allow}\n";

fn config_text(dir: &Path, settings: &Settings) -> String {
    let images = images();
    let netboot = images.join("netboot");
    let ramdisk = images.join("ramdisk").join(settings.ramdisk);
    let stages: String = ["undionly.kpxe", "snponly.efi", "ipxe.efi", "shimx64.efi", "grubx64.efi"]
        .iter()
        .map(|name| format!("      {name}: {}\n", netboot.join(name).display()))
        .collect();
    let store = settings.store_url.as_ref().map(|url| {
        let caches = settings.caches.join(", ");
        format!("store:\n  urls: [\"{url}\"]\n  caches: [{caches}]\n")
    });
    let profile = settings.profile.as_ref();
    let profile = profile.map(|file| format!("profiles:\n  default: {}\n", file.display()));
    let signed = settings.trusted_key.as_ref();
    let signed = signed.map(|key| format!("images:\n  trusted_keys: [\"{key}\"]\n  require_signature: true\n"));
    let traffic = settings.traffic.as_ref();
    let traffic = traffic.map(|file| format!("network_test:\n  program: {}\n  seconds: 1\n", file.display()));
    let relayed: String = settings
        .relayed
        .iter()
        .map(|[a, b, c]| {
            format!(
                "        - network: {a}.{b}.{c}.0/24\n          pool: {{first: {a}.{b}.{c}.10, last: {a}.{b}.{c}.99}}\n"
            )
        })
        .collect();
    let probe = settings.probe.as_ref();
    let probe = probe.map(|file| format!("hardware_probe:\n  program: {}\n", file.display()));
    let identity = match settings.address_only && !settings.further.contains("identity:") {
        true => ADDRESS_ONLY,
        false => "",
    };
    format!(
        "data_dir: {data}\nsite: lab\napi:\n  names: [\"{SERVER_IPV4}\", localhost]\n{store}{profile}{signed}{traffic}{identity}{further}\
         {probe}boot:\n  method: {method}\n  ramdisk:\n    kernel: {kernel}\n    initrd: {initrd}\n    \
         arguments: console=ttyS0\n  network:\n    server_ip: {SERVER_IPV4}\n    interface: br0\n    \
         boot_loader: {loader}\n    boot_unknown: {boot_unknown}\n    router_advertisements: true\n    dhcp:\n      server:\n        subnets:\n        \
         - network: 10.77.0.0/24\n          pool: {{first: 10.77.0.100, last: 10.77.0.199}}\n          \
         router: {SERVER_IPV4}\n{relayed}    first_stages:\n{stages}\
         policy:\n  agent_boot_s: {agent}\n  host_boot_s: {host}\n  boots: {boots}\n  tries: {tries}\n  \
         backoff_s: 1\n  backoff_max_s: {backoff}\n  agent_grace_s: 20\n  bmc_s: 60\n",
        data = dir.join("data").display(),
        store = store.unwrap_or_default(),
        profile = profile.unwrap_or_default(),
        signed = signed.unwrap_or_default(),
        traffic = traffic.unwrap_or_default(),
        probe = probe.unwrap_or_default(),
        further = settings.further,
        method = settings.method,
        loader = settings.loader,
        boot_unknown = settings.boot_unknown,
        kernel = ramdisk.join("vmlinuz").display(),
        initrd = ramdisk.join("initrd").display(),
        agent = settings.agent_boot_s,
        host = settings.host_boot_s,
        boots = settings.boots,
        tries = settings.tries,
        backoff = settings.backoff_max_s,
    )
}

impl Site {
    /// Starts a control plane with its data below `dir` and logs in the first operator.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(dir: &Path, settings: &Settings) -> Self {
        Self::start_with(dir, &config_text(dir, settings)).await
    }

    /// Starts a control plane with the caller's configuration, which names `dir/data` as its data folder. The disk reserve
    /// is [`STORAGE`] if the configuration sets none.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_with(dir: &Path, config: &str) -> Self {
        std::fs::create_dir_all(dir.join("data")).expect("the data folder can be made");
        let storage = if config.contains("storage:") { "" } else { STORAGE };
        std::fs::write(dir.join("rackwrightd.yaml"), format!("{storage}{config}")).expect("the config can be written");
        let mut site = Self {
            dir: dir.to_owned(),
            daemon: None,
            starts: 0,
        };
        site.restart().await;
        site.login();
        site
    }

    /// Starts the control plane again after `kill`.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn restart(&mut self) {
        self.restart_logging("info,rackwright_netboot=debug").await;
    }

    /// Like `restart`, with a log filter of `tracing`.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn restart_logging(&mut self, filter: &str) {
        self.restart_as(filter, &[]).await;
    }

    /// Like `restart`, with further arguments of `rackwrightd serve`.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn restart_as(&mut self, filter: &str, arguments: &[&str]) {
        self.starts += 1;
        let ready = self.dir.join(format!("ready-{}", self.starts));
        let log = |name: &str| {
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.dir.join(name));
            Stdio::from(file.expect("the log can be opened"))
        };
        let child = tokio::process::Command::new(program("rackwrightd"))
            .current_dir(&self.dir)
            .args([
                OsStr::new("serve"),
                OsStr::new("--config"),
                self.dir.join("rackwrightd.yaml").as_os_str(),
            ])
            .args([OsStr::new("--ready-file"), ready.as_os_str()])
            .args(arguments)
            .env("RACKWRIGHT_LOG", filter)
            .stdin(Stdio::null())
            .stdout(log("rackwrightd.out"))
            .stderr(log("rackwrightd.log"))
            .kill_on_drop(true)
            .spawn()
            .expect("rackwrightd can be started");
        self.daemon = Some(child);
        let deadline = Instant::now() + START;
        while !ready.is_file() {
            let ended = self.daemon.as_mut().and_then(|d| d.try_wait().ok().flatten());
            assert!(
                ended.is_none(),
                "rackwrightd ended with {ended:?}:\n{}",
                self.log_tail()
            );
            assert!(
                Instant::now() < deadline,
                "rackwrightd is not ready after {START:?}:\n{}",
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the control plane as a crash would.
    ///
    /// # Panics
    /// If it does not run.
    pub async fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("rackwrightd runs");
        daemon.start_kill().expect("rackwrightd can be killed");
        daemon.wait().await.expect("rackwrightd ends");
    }

    /// Requests the end of the control plane, and waits for it.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn stop(mut self) {
        self.halt().await;
    }

    /// Like `stop`, for a control plane that is started again.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn halt(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        process::signal(daemon.id().expect("rackwrightd runs"), Signal::SIGTERM);
        let ended = tokio::time::timeout(END, daemon.wait()).await;
        assert!(
            ended.is_ok(),
            "rackwrightd does not end within {END:?} of SIGTERM:\n{}",
            self.log_tail()
        );
    }

    /// The process id of the control plane, in the lab's namespace.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        let daemon = self.daemon.as_ref().expect("rackwrightd runs");
        daemon.id().expect("rackwrightd runs")
    }

    /// The folder of all files of this site.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The end of the control plane's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(80)..].join("\n")
    }

    /// Everything that the control plane has printed and logged since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        let text = ["rackwrightd.out", "rackwrightd.log"].map(|f| std::fs::read_to_string(self.dir.join(f)));
        text.into_iter().map(Result::unwrap_or_default).collect()
    }

    /// The value after `flag` in the invitation that the control plane printed at its first start.
    fn invited(&self, flag: &str) -> String {
        let printed = std::fs::read_to_string(self.dir.join("rackwrightd.out")).expect("rackwrightd has printed");
        let after = printed.split_once(flag).map(|(_, after)| after);
        let after = after.unwrap_or_else(|| panic!("{flag} is not in:\n{printed}"));
        after.split_whitespace().next().expect("a value follows").to_owned()
    }

    /// The URL of the control plane.
    fn server(&self) -> String {
        self.invited("--server ")
    }

    fn login(&self) {
        let (server, ca, token) = (self.server(), self.invited("--ca-sha256 "), self.invited("--token "));
        self.cli(["login", "--server", &server, "--ca-sha256", &ca, "--token", &token]);
    }

    /// Invites a member who may only read, and logs in as the member; returns the folder of that CLI's files.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn viewer(&self, name: &str) -> PathBuf {
        let made = self.json(["token", "create", name, "--role", "viewer"]);
        let text = |field: &str| made[field].as_str().expect("the answer holds it").to_owned();
        let home = self.dir.join(name);
        let mut login = self.command();
        login.env("RACKWRIGHT_CONFIG", &home);
        login.args(["login", "--server", &format!("https://{SERVER_IPV4}:7070")]);
        login.args(["--ca-sha256", &text("ca_sha256"), "--token", &text("token")]);
        let output = login.output().expect("the CLI can be started");
        assert!(output.status.success(), "{:?}", texts(&output));
        home
    }

    /// The CLI as a command with this site's credential.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(program("rackwright"));
        command
            .env("RACKWRIGHT_CONFIG", self.dir.join("cli"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs the CLI and returns its output.
    ///
    /// # Panics
    /// If it fails.
    pub fn cli<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.try_cli(arguments);
        let (out, err) = texts(&output);
        assert!(
            output.status.success(),
            "the CLI ended with {}:\n{out}{err}\n{}",
            output.status,
            self.log_tail()
        );
        out
    }

    /// Runs the CLI; it may fail.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn try_cli<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command().args(arguments).output().expect("the CLI can be started")
    }

    /// Runs the CLI with `-o json` and parses its output.
    ///
    /// # Panics
    /// If it fails or prints no JSON.
    pub fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        let mut command = self.command();
        let output = command
            .args(["-o", "json"])
            .args(arguments)
            .output()
            .expect("the CLI can be started");
        let (out, err) = texts(&output);
        assert!(
            output.status.success(),
            "the CLI ended with {}:\n{out}{err}",
            output.status
        );
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    /// Enrols a machine under the name `id`.
    ///
    /// # Panics
    /// If that fails.
    pub fn enroll(&self, id: &str, machine: &Machine) {
        let password = self.dir.join(format!("{id}.password"));
        std::fs::write(&password, machine.bmc().password()).expect("the password file can be written");
        let (address, user) = (&machine.bmc().url, &machine.bmc().user);
        let file = password.display().to_string();
        self.cli([
            "node",
            "enroll",
            id,
            "--bmc",
            address,
            "--user",
            user,
            "--password-file",
            &file,
        ]);
    }

    /// The node's state.
    #[must_use]
    pub fn state(&self, id: &str) -> String {
        let node = self.json(["node", "get", id]);
        let state = node["status"]["state"].as_str().unwrap_or_default();
        state.trim_start_matches("NODE_STATE_").to_ascii_lowercase()
    }

    /// Waits until the node is in one of `states`, and returns that state. States come from a stream: one connection for the
    /// whole wait, and no state of more than some milliseconds is missed.
    ///
    /// # Panics
    /// If it is not within `limit`.
    pub async fn until(&self, id: &str, states: &[&str], limit: Duration) -> String {
        let mut seen = "not listed".to_owned();
        let mut lost = String::new();
        let follow = async {
            let channel = member::connect(&self.dir.join("cli"), &self.server());
            loop {
                match member::follow(channel.clone(), id, states, &mut seen).await {
                    Ok(state) => return state,
                    // The control plane may be killed and started again in the meantime.
                    Err(status) => lost = format!(", last connection: {status}"),
                }
                tokio::time::sleep(POLL).await;
            }
        };
        if let Ok(state) = tokio::time::timeout(limit, follow).await {
            return state;
        }
        let explained = texts(&self.try_cli(["node", "explain", id])).0;
        panic!(
            "{id} is {seen}, not {states:?}, after {limit:?}{lost}:\n{explained}\n{}\n{}",
            self.log_tail(),
            self.serial_logs()
        );
    }

    /// Waits until the node is active again since a later moment than in `before`, an earlier `node get`. States in between
    /// may be too short to be seen.
    ///
    /// # Panics
    /// If it is not within `limit`.
    pub async fn until_active_again(&self, id: &str, before: &Value, limit: Duration) {
        let deadline = Instant::now() + limit;
        let since = |node: &Value| node["status"]["state_since"].clone();
        assert!(!since(before).is_null(), "no node: {before}");
        loop {
            let node = self.json(["node", "get", id]);
            let is_active = node["status"]["state"] == "NODE_STATE_ACTIVE";
            if is_active && since(&node) != since(before) {
                return;
            }
            assert!(Instant::now() < deadline, "not active again after {limit:?}: {node}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The events of one kind about a target, such as `nodes/n1`.
    ///
    /// # Panics
    /// If the CLI fails.
    #[must_use]
    pub fn events(&self, target: &str, kind: &str) -> Vec<Value> {
        let events = self.cli(["events", "--target", target, "-o", "json"]);
        serde_json::Deserializer::from_str(&events)
            .into_iter::<Value>()
            .map(|event| event.expect("events are JSON"))
            .filter(|event| event["kind"] == kind)
            .collect()
    }

    /// Waits until there are `count` such events, and returns all of them.
    ///
    /// # Panics
    /// If there are fewer after `limit`.
    pub async fn until_reported(&self, target: &str, kind: &str, count: usize, limit: Duration) -> Vec<Value> {
        let deadline = Instant::now() + limit;
        loop {
            let events = self.events(target, kind);
            if events.len() >= count {
                return events;
            }
            assert!(
                Instant::now() < deadline,
                "{kind} of {target}: {events:?}\n{}",
                self.log_tail()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the boot trace of `mac` contains `word`: stages are stored a little later than their packets.
    ///
    /// # Panics
    /// If it does not within `limit`.
    pub async fn until_traced(&self, mac: &str, word: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            let trace = self.cli(["boot", "trace", mac]);
            if trace.contains(word) {
                return;
            }
            assert!(Instant::now() < deadline, "no {word:?} after {limit:?}:\n{trace}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the recording of the node's console contains `wanted`, and returns the recording.
    ///
    /// # Panics
    /// If it does not within `limit`.
    pub async fn until_recorded(&self, id: &str, wanted: &str, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        loop {
            let log = self.cli(["node", "console", "log", id]);
            if log.contains(wanted) {
                return log;
            }
            assert!(Instant::now() < deadline, "{wanted:?} is not recorded: {log}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The node's reason for its state.
    #[must_use]
    pub fn reason(&self, id: &str) -> String {
        self.json(["node", "get", id])["status"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The last lines on the serial ports of the lab's machines beside this site; empty without a lab.
    fn serial_logs(&self) -> String {
        let mut folders: Vec<PathBuf> = self.dir.parent().map(Path::to_owned).into_iter().collect();
        let mut tails = String::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if entry.file_name() == "serial.log"
                    && let Ok(log) = std::fs::read(&path)
                {
                    let machine = folder.file_name().unwrap_or_default().to_string_lossy();
                    tails.push_str(&serial_tail(&machine, &String::from_utf8_lossy(&log)));
                }
            }
        }
        tails
    }

    /// Adds the image in this file under a name.
    pub fn add_image(&self, name: &str, file: &str) {
        let file = images().join(file).display().to_string();
        self.cli(["image", "add", name, "--file", &file]);
    }
}

/// The last lines of a serial port's log.
fn serial_tail(name: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"))
}

/// Standard output and standard error as text.
#[must_use]
pub fn texts(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Standard output of a program that succeeded, otherwise its standard error.
///
/// # Errors
/// The program failed.
pub fn out_or_error(output: &Output) -> Result<String, String> {
    let (out, error) = texts(output);
    if output.status.success() { Ok(out) } else { Err(error) }
}

/// The serial output of the machines, for the report of a failed test.
#[must_use]
pub fn serial_tails(lab: &Lab) -> String {
    let tail = |machine: &Machine| serial_tail(machine.name(), &machine.serial_log());
    lab.machines().iter().map(tail).collect()
}
