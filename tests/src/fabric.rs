//! A real OpenSM on a fabric that ibsim plays: in its own folder and under its own name, and stopped with its owner.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use rackwright_fabric::{Diags, OpenSm, OpenSmSettings, Process, ToolSettings, Tools};
use rackwright_infiniband::{Device, Fabric, FatTree, Guid, Plan, PortRef, Speed};
use rackwright_site::model::{FabricPurpose, Site, SwitchId};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::process;

/// Time limit of every wait for ibsim or OpenSM. Each takes seconds on a quiet computer.
const WAIT_LIMIT: Duration = Duration::from_secs(600);
/// Most starts of one OpenSM. An OpenSM on ibsim may end or stand still during its start on a busy computer; its service
/// manager would start it again.
const STARTS: usize = 5;
/// An OpenSM that has written nothing to its log for this time before its first sweep stands still.
const STANDS_STILL: Duration = Duration::from_secs(120);
/// Time limit of each tool that reads the fabric.
const TOOL_LIMIT: Duration = Duration::from_secs(120);
/// The library of Debian's libumad2sim that connects the tools to ibsim.
const UMAD2SIM: &str = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so";

/// A cable, with ibsim's ids of its ends.
#[derive(Debug, Clone)]
pub struct Cable {
    /// The name in the plan.
    pub name: String,
    a: String,
    b: String,
}

/// A folder in memory if possible. Each tool that is connected to ibsim makes and removes some hundred files in its working
/// folder: on ext4 that took two thirds of the time of `make demo-cluster` (`perf`: `recently_deleted`).
///
/// # Panics
/// If no folder can be made.
#[must_use]
pub fn folder() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// A fabric that ibsim plays and OpenSM manages.
#[derive(Debug)]
pub struct Lab {
    /// The plan of the cabling.
    pub plan: Plan,
    /// ibsim gives an adapter's port the GUID of its node plus one: the node's GUID is less than the plan's by this
    /// difference.
    less: u64,
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
    ibsim: Child,
    console: File,
    /// The number of prompts of ibsim: each executed command adds one.
    prompts: watch::Receiver<usize>,
    opensm: Child,
}

impl Lab {
    /// A rail-optimised tree of this many hosts with eight adapters each, at HDR: ibsim 0.10 does not know NDR.
    pub async fn start(hosts: u32) -> Self {
        Self::start_with(hosts, 0).await
    }

    /// Another such fabric, with other GUIDs than that of `start`.
    pub async fn second(hosts: u32) -> Self {
        Self::start_with(hosts, 1 << 40).await
    }

    /// `more` is added to every GUID.
    async fn start_with(hosts: u32, more: u64) -> Self {
        let tree = FatTree {
            speed: Speed::Hdr,
            ..FatTree::rail_optimised(hosts)
        };
        let (mut devices, cables) = tree.plan().expect("a tree");
        for device in &mut devices {
            device.guid = device.guid.and_then(|guid| Guid::new(guid.get() + more));
        }
        Self::play(Plan::new(&devices, &cables).expect("a plan"), 0).await
    }

    /// The fabric of a site with adapter GUIDs equal to those of the ports. ibsim plays its links at HDR.
    pub async fn of_site(site: &Site) -> Self {
        Self::of_part(site, |_| true).await
    }

    /// One of the named fabrics of a site, as [`Lab::of_site`].
    pub async fn of_fabric(site: &Site, name: &str) -> Self {
        Self::of_part(site, |switch| {
            let fabric = site.switch(switch).fabric;
            fabric.is_some_and(|fabric| *site.fabric(fabric).name == *name)
        })
        .await
    }

    /// The fabrics of a site with this purpose, which must be connected, as [`Lab::of_site`]. A fabric without a name is for
    /// compute.
    pub async fn of_purpose(site: &Site, purpose: FabricPurpose) -> Self {
        let compute = FabricPurpose::Compute;
        Self::of_part(site, |switch| site.purpose_of(switch).unwrap_or(compute) == purpose).await
    }

    async fn of_part(site: &Site, is_part: impl Fn(SwitchId) -> bool) -> Self {
        let plan = rackwright_planner::cabling::plan_of(site, is_part).expect("a plan");
        Self::play(plan, 1).await
    }

    async fn play(plan: Plan, less: u64) -> Self {
        let folder = folder();
        let here = folder.path();
        std::fs::write(here.join("net"), net_file(plan.fabric(), less)).expect("the net file");
        let fifo = here.join("console");
        let made = Command::new("mkfifo").arg(&fifo).status().await.expect("mkfifo runs");
        assert!(made.success(), "mkfifo: {made}");
        // Open for reading and writing, so that neither side waits for the other and ibsim never sees the end of the input.
        let console = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&fifo)
            .expect("the console");
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "rackwright.{}.{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let adapters = plan.fabric().devices().filter(|(_, device)| device.is_adapter());
        let adapter = adapters.map(|(_, device)| device).next().expect("an adapter");
        let host = id(adapter, less).replace('"', "");
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment = vec![
            own("IBSIM_SOCKNAME", &name),
            own("SIM_HOST", &host),
            own("OSM_TMP_DIR", &here.display().to_string()),
            own("OSM_CACHE_DIR", &here.display().to_string()),
        ];
        let (ibsim, prompts) = start_ibsim(here, &console, &environment).await;
        // A standby notices after three seconds that the master is gone. After a shorter time it would take the place of a
        // master that is slow on a busy computer.
        let options = "sminfo_polling_timeout 500\npolling_retry_number 6\n";
        std::fs::write(here.join("opensm.conf"), options).expect("its options");
        let closed = rackwright_infiniband::Partitions::default().render().expect("a file");
        std::fs::write(here.join("partitions.conf"), closed).expect("its partitions");
        let opensm = start_opensm(here, &environment).await;
        Self {
            plan,
            less,
            folder,
            environment,
            ibsim,
            console,
            opensm,
            prompts,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// OpenSM's log file and the file with its process id.
    pub fn log_and_pid_files(&self) -> [PathBuf; 2] {
        [self.path("osm.log"), self.path("opensm.pid")]
    }

    /// The environment with which the tools of infiniband-diags see this fabric.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut environment = self.environment.clone();
        environment.push(("LD_PRELOAD".into(), UMAD2SIM.into()));
        environment
    }

    /// OpenSM's file of partitions.
    pub fn partitions_file(&self) -> PathBuf {
        self.path("partitions.conf")
    }

    /// A driver for OpenSM.
    pub fn opensm(&self) -> OpenSm {
        self.opensm_with(&self.partitions_file(), WAIT_LIMIT)
    }

    /// A driver with this partitions file and this time limit.
    pub fn opensm_with(&self, partitions: &Path, deadline: Duration) -> OpenSm {
        let tools = Tools::new(ToolSettings {
            directory: Some(self.folder.path().to_owned()),
            environment: self.environment(),
            timeout: TOOL_LIMIT,
            ..ToolSettings::default()
        });
        let settings = OpenSmSettings {
            partitions: partitions.to_owned(),
            log: self.path("osm.log"),
            options: Some(self.path("opensm.conf")),
            process: Process::File(self.path("opensm.pid")),
            standbys: BTreeSet::new(),
            deadline,
        };
        OpenSm::new(settings, Diags::new(tools))
    }

    /// Port GUIDs by host, as discovered: ibsim derives them from the node's GUID.
    pub async fn ports(&self, opensm: &OpenSm) -> BTreeMap<String, Vec<Guid>> {
        use rackwright_fabric::FabricManager as _;
        let dump = opensm.topology().await.expect("a topology");
        let mut ports: BTreeMap<String, Vec<Guid>> = BTreeMap::new();
        for (ix, device) in dump.fabric.devices() {
            if let Some(host) = device.host() {
                let own = dump.fabric.ports(ix).iter().filter_map(|port| port.guid);
                ports.entry(host.machine.to_owned()).or_default().extend(own);
            }
        }
        ports
    }

    /// The planned cable of a port.
    pub fn cable(&self, device: &str, port: u8) -> Cable {
        let fabric = self.plan.fabric();
        let (ix, _) = fabric
            .devices()
            .find(|(_, known)| *known.name == *device)
            .expect("a device");
        let (_, far, link) = fabric.neighbours(ix).find(|(own, _, _)| *own == port).expect("a cable");
        Cable {
            name: self.plan.cable_name(link).to_owned(),
            a: self.end(PortRef { device: ix, port }),
            b: self.end(far),
        }
    }

    fn end(&self, end: PortRef) -> String {
        format!("{}[{}]", id(self.plan.fabric().device(end.device), self.less), end.port)
    }

    /// Cuts a cable, and waits until OpenSM has routed around it.
    pub async fn unlink(&mut self, cable: &Cable) {
        self.run_commands(&[format!("Unlink {}", cable.a)]).await;
    }

    /// Plugs a cable in again at its old place.
    pub async fn relink(&mut self, cable: &Cable) {
        self.run_commands(&[format!("ReLink {}", cable.a)]).await;
    }

    /// Exchanges the second ends of two cables.
    pub async fn swap(&mut self, one: &Cable, other: &Cable) {
        let (one, other) = (one.clone(), other.clone());
        self.run_commands(&[
            format!("Unlink {}", one.a),
            format!("Unlink {}", other.a),
            format!("Link {} {}", one.a, other.b),
            format!("Link {} {}", other.a, one.b),
        ])
        .await;
    }

    /// Runs commands on ibsim's console while OpenSM is stopped, so that OpenSM never sees the fabric change during a
    /// sweep (its directed routes would time out for minutes); then waits for the next sweep, and for OpenSM to become
    /// quiet.
    async fn run_commands(&mut self, commands: &[String]) {
        self.quiet().await;
        let before = self.sweeps_seen();
        process::freeze(self.opensm.id().expect("OpenSM runs"));
        for command in commands {
            let done = *self.prompts.borrow();
            writeln!(self.console, "{command}").expect("the console takes it");
            let next = timeout(WAIT_LIMIT, self.prompts.wait_for(|prompts| *prompts > done)).await;
            next.expect("ibsim does it in time").expect("ibsim runs");
        }
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGHUP);
        self.wait_for_sweep(before).await;
        self.quiet().await;
    }

    /// Kills OpenSM, as a crash would.
    pub async fn kill_opensm(&mut self) {
        self.opensm.kill().await.expect("OpenSM is killed");
    }

    /// Starts OpenSM after `kill_opensm`, with the partition file that is there, and waits for its first sweep.
    pub async fn start_opensm(&mut self) {
        self.opensm = start_opensm(self.folder.path(), &self.environment).await;
    }

    /// Starts a second OpenSM at another adapter, with the highest priority and without partitions: every port becomes a
    /// full member of the default partition. Waits until that one is the master.
    pub async fn start_rival(&self, device: &str) -> Child {
        let here = self.path("rival");
        std::fs::create_dir(&here).expect("a folder");
        let own = |(name, value): &(String, String)| match name.as_str() {
            "SIM_HOST" => (name.clone(), self.id_of(device).replace('"', "")),
            "OSM_TMP_DIR" | "OSM_CACHE_DIR" => (name.clone(), here.display().to_string()),
            _ => (name.clone(), value.clone()),
        };
        let environment: Vec<(String, String)> = self.environment.iter().map(own).collect();
        until_first_sweep(&here, || run_opensm(&here, &environment, &["-p", "15"])).await
    }

    /// Replaces an adapter by one with another port GUID, at the same cable.
    pub async fn replace_adapter(&mut self, device: &str, port: Guid) {
        let (cable, own) = (self.cable(device, 1), self.id_of(device));
        self.run_commands(&[
            format!("Unlink {}", cable.a),
            format!("Guid {own} {:#x}", port.get() - 1),
            format!("Guid {own}[1] {:#x}", port.get()),
            format!("ReLink {}", cable.a),
        ])
        .await;
    }

    /// Cuts all cables of a switch, as if it were off.
    pub async fn switch_off(&mut self, switch: &str) {
        let own = self.id_of(switch);
        let ports = self.cabled_ports(switch).into_iter();
        let commands: Vec<String> = ports.map(|port| format!("Unlink {own}[{port}]")).collect();
        self.run_commands(&commands).await;
    }

    /// Puts a switch with another GUID in the place of one that is off, and plugs all cables in again.
    pub async fn replace_switch(&mut self, switch: &str, guid: Guid) {
        let own = self.id_of(switch);
        let guid = guid.get();
        // Port 0 is the switch itself.
        let mut commands = vec![format!("Guid {own} {guid:#x}"), format!("Guid {own}[0] {guid:#x}")];
        let ports = self.cabled_ports(switch).into_iter();
        commands.extend(ports.map(|port| format!("ReLink {own}[{port}]")));
        self.run_commands(&commands).await;
    }

    /// The ports of a device with a planned cable.
    fn cabled_ports(&self, name: &str) -> Vec<u8> {
        let fabric = self.plan.fabric();
        let (ix, _) = fabric
            .devices()
            .find(|(_, known)| *known.name == *name)
            .expect("a device");
        fabric.neighbours(ix).map(|(own, _, _)| own).collect()
    }

    /// ibsim's id of a device.
    fn id_of(&self, name: &str) -> String {
        let mut devices = self.plan.fabric().devices();
        let (_, device) = devices.find(|(_, known)| *known.name == *name).expect("a device");
        id(device, self.less)
    }

    fn signal(&self, signal: Signal) {
        process::signal(self.opensm.id().expect("OpenSM runs"), signal);
    }

    /// Waits until OpenSM has written nothing for a second. There is no definite sign of its last message.
    async fn quiet(&self) {
        let size = || std::fs::metadata(self.path("osm.log")).map_or(0, |log| log.len());
        let (mut was, deadline) = (0, Instant::now() + WAIT_LIMIT);
        while was != size() {
            was = size();
            assert!(Instant::now() < deadline, "OpenSM is not quiet within {WAIT_LIMIT:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Makes OpenSM read its files again, and waits for the sweep.
    pub async fn sweep_after_hangup(&self) {
        let before = self.sweeps_seen();
        self.signal(Signal::SIGHUP);
        self.wait_for_sweep(before).await;
    }

    fn sweeps_seen(&self) -> usize {
        sweeps_in(&self.path("osm.log"))
    }

    async fn wait_for_sweep(&self, before: usize) {
        let log = self.path("osm.log");
        let deadline = Instant::now() + WAIT_LIMIT;
        let mut requested = 0;
        while sweeps_in(&log) <= before {
            let text = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(Instant::now() < deadline, "no sweep within {WAIT_LIMIT:?}:\n{}", text());
            repeat_failed_sweep(&log, &self.opensm, &mut requested);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops OpenSM first: an OpenSM without its ibsim never ends by itself.
    pub async fn stop(mut self) {
        self.opensm.kill().await.expect("OpenSM is stopped");
        self.ibsim.kill().await.expect("ibsim is stopped");
    }
}

fn sweeps_in(log: &Path) -> usize {
    let log = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&log).matches("SUBNET UP").count()
}

/// The failed sweeps since the last one that succeeded.
fn failed_sweeps_in(log: &Path) -> usize {
    let log = std::fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let since = log.rsplit("SUBNET UP").next().unwrap_or_default();
    since.matches("Errors during initialization").count()
}

/// Requests another sweep after each one that failed: OpenSM is started without regular sweeps, and on a busy computer a
/// sweep can lose packets and fail. `requested` is the number of failed sweeps after which one was requested.
fn repeat_failed_sweep(log: &Path, opensm: &Child, requested: &mut usize) {
    let failed = failed_sweeps_in(log);
    if failed > *requested {
        *requested = failed;
        process::signal(opensm.id().expect("OpenSM runs"), Signal::SIGHUP);
    }
}

/// Starts OpenSM, and waits for the first sweep that its log shows. An OpenSM that ends or stands still before is started
/// again, and its output is printed.
async fn until_first_sweep(here: &Path, start: impl Fn() -> Child) -> Child {
    let log = here.join("osm.log");
    for attempt in 1..=STARTS {
        let _ = std::fs::remove_file(&log);
        let (mut opensm, mut requested) = (start(), 0);
        let (mut size, mut grown) = (0, Instant::now());
        let fault = loop {
            if sweeps_in(&log) > 0 {
                return opensm;
            }
            if let Some(status) = opensm.try_wait().expect("its state") {
                break format!("ended with {status}");
            }
            let now = std::fs::metadata(&log).map_or(0, |log| log.len());
            if now != size {
                (size, grown) = (now, Instant::now());
            }
            if grown.elapsed() > STANDS_STILL {
                opensm.kill().await.expect("OpenSM is killed");
                break format!("wrote nothing for {STANDS_STILL:?}");
            }
            repeat_failed_sweep(&log, &opensm, &mut requested);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let text = |name: &str| std::fs::read_to_string(here.join(name)).unwrap_or_default();
        let (log, out, err) = (text("osm.log"), text("osm.out"), text("osm.err"));
        eprintln!("start {attempt} of OpenSM: it {fault} before its first sweep\n{log}\n{out}\n{err}");
    }
    panic!("OpenSM did not sweep the fabric in {STARTS} starts");
}

async fn start_ibsim(here: &Path, console: &File, environment: &[(String, String)]) -> (Child, watch::Receiver<usize>) {
    let mut ibsim = Command::new("ibsim")
        .current_dir(here)
        .args(["-s", "-N", "20000", "-S", "1500", "-P", "110000", "-L", "49152"])
        .arg(here.join("net"))
        .envs(environment.iter().cloned())
        .stdin(console.try_clone().expect("the console"))
        .stdout(Stdio::piped())
        .stderr(File::create(here.join("ibsim.err")).expect("a file"))
        .kill_on_drop(true)
        .spawn()
        .expect("ibsim runs: images/deps.sh installs it");
    let mut out = BufReader::new(ibsim.stdout.take().expect("its output"));
    let ready = timeout(WAIT_LIMIT, until(&mut out, "simulator ready")).await;
    let is_ready = ready.expect("ibsim gets ready in time");
    // ibsim also writes harmless messages there, about packets to ports that a test has unplugged.
    let err = || std::fs::read_to_string(here.join("ibsim.err")).unwrap_or_default();
    assert!(is_ready, "ibsim ended: {}", err());
    // The output must be read continuously: ibsim blocks when the pipe is full.
    let (prompts, seen) = watch::channel(0);
    tokio::spawn(async move {
        let mut rest = [0; 4096];
        while let Ok(read) = out.read(&mut rest).await
            && read > 0
        {
            let more = rest[..read].iter().filter(|byte| **byte == b'>').count();
            prompts.send_modify(|prompts| *prompts += more);
        }
    });
    (ibsim, seen)
}

/// Reads until a line with these words; false: the output has ended before.
async fn until(out: &mut BufReader<impl AsyncRead + Unpin>, words: &str) -> bool {
    let mut line = String::new();
    while out.read_line(&mut line).await.expect("ibsim's output") > 0 {
        if line.contains(words) {
            return true;
        }
        line.clear();
    }
    false
}

/// OpenSM with the options and partitions in this folder, after its first sweep. Its process id is written there.
async fn start_opensm(here: &Path, environment: &[(String, String)]) -> Child {
    let options = here.join("opensm.conf").display().to_string();
    let start = || {
        let opensm = run_opensm(here, environment, &["-F", &options]);
        let pid = opensm.id().expect("OpenSM runs");
        std::fs::write(here.join("opensm.pid"), format!("{pid}\n")).expect("its number");
        opensm
    };
    until_first_sweep(here, start).await
}

fn run_opensm(here: &Path, environment: &[(String, String)], further: &[&str]) -> Child {
    let file = |name: &str| File::create(here.join(name)).expect("a file");
    Command::new("opensm")
        .current_dir(here)
        .args(further)
        .args(["-d2", "-e", "-R", "minhop", "-s", "0", "-f"])
        .arg(here.join("osm.log"))
        .arg("-P")
        .arg(here.join("partitions.conf"))
        .envs(environment.iter().cloned())
        .env("LD_PRELOAD", UMAD2SIM)
        .stdin(Stdio::null())
        .stdout(file("osm.out"))
        .stderr(file("osm.err"))
        .kill_on_drop(true)
        .spawn()
        .expect("opensm runs: images/deps.sh installs it")
}

fn node_guid(device: &Device, less: u64) -> u64 {
    let guid = device.guid.expect("a GUID").get();
    if device.is_switch() { guid } else { guid - less }
}

fn id(device: &Device, less: u64) -> String {
    let letter = if device.is_switch() { 'S' } else { 'H' };
    format!("\"{letter}-{:016x}\"", node_guid(device, less))
}

/// A net file for ibsim: one end of every link is enough, but ibsim's users write both.
fn net_file(fabric: &Fabric, less: u64) -> String {
    let mut out = String::new();
    for (ix, device) in fabric.devices() {
        let guid = node_guid(device, less);
        let ports = device.port_count;
        let (ids, head, own) = if device.is_switch() {
            let head = format!("switchguid={guid:#x}({guid:x})\nSwitch\t{ports}");
            ("0xd2f2", head, String::new())
        } else {
            (
                "0x1021",
                format!("caguid={guid:#x}\nCa\t{ports}"),
                format!("({:x})", guid + 1),
            )
        };
        let _ = write!(
            out,
            "vendid=0x2c9\ndevid={ids}\nsysimgguid={guid:#x}\n{head} {}\t\t# \"{}\"\n",
            id(device, less),
            device.name
        );
        let ends: BTreeMap<u8, PortRef> = fabric.neighbours(ix).map(|(port, far, _)| (port, far)).collect();
        for (port, far) in ends {
            let there = id(fabric.device(far.device), less);
            let _ = writeln!(out, "[{port}]{own}\t{there}[{}]\t\t# lid 0 4xHDR", far.port);
        }
        out.push('\n');
    }
    out
}
