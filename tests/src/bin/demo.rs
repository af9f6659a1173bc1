//! `make demo`: two real machines from power-off to hand-over, with another image, and back.
//!
//! Every line after `$` is a command that an operator would type; the timeline below it is the output that the operator
//! would see.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use rackwright_lab::{self as lab, Entered, Firmware, Lab, LabConfig, Namespace, Reentry};
use rackwright_store::Store;
use rackwright_tests::site::{Settings, Site};
use rackwright_tests::{keep, outside, timing};

const NODES: [&str; 2] = ["gpu-001", "gpu-002"];
/// Upper aim for the seconds of a deploy that are ours and not the machine's.
const AIM_S: f64 = 3.0;
/// The listener of the web console, inside of the namespace.
const CONSOLE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7080));

fn main() -> ExitCode {
    let offer = |folder: &Path| match keep::is_wanted() {
        true => outside::offer(folder),
        false => Ok(()),
    };
    let namespace = match lab::enter_with(Reentry::SameArguments, offer) {
        Ok(Entered::Inside(namespace)) => namespace,
        Ok(Entered::Outside(outcome)) if outcome.status.success() => return ExitCode::SUCCESS,
        Ok(Entered::Outside(_)) => return ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the demo cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    lab::install_crypto();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime
        .expect("an async runtime can be made")
        .block_on(demo(&namespace))
}

/// The demo, printed on standard output.
struct Demo {
    site: Site,
    failed: bool,
}

impl Demo {
    /// Shows a command and runs it; its output goes to the terminal.
    fn run(&mut self, arguments: &[&str]) {
        let shown: Vec<String> = arguments.iter().map(|a| shown(a)).collect();
        println!("\n$ rackwright {}", shown.join(" "));
        let status = self
            .site
            .command()
            .args(arguments)
            .status()
            .expect("the CLI can be started");
        self.failed |= !status.success();
    }
}

/// An argument in the form that a person would type; paths in temporary folders are shortened.
fn shown(argument: &str) -> String {
    match argument.rsplit_once('/') {
        Some((dir, file)) if dir.starts_with('/') => format!(".../{file}"),
        _ => argument.to_owned(),
    }
}

fn say(text: &str) {
    println!("\n== {text}");
    let _ = std::io::stdout().flush();
}

async fn demo(namespace: &Namespace) -> ExitCode {
    let started = Instant::now();
    say("Two machines are switched off. Each has a BMC that speaks Redfish; nothing else is known of them.");
    println!("They have no TPM: the settings of this site allow that machines are known by their addresses only.");
    let config = LabConfig {
        machines: 2,
        firmware: Firmware::Uefi,
        memory_mb: 768,
        ..LabConfig::default()
    };
    let lab = match Lab::start(namespace, config).await {
        Ok(lab) => lab,
        Err(error) => {
            eprintln!("the lab cannot start: {error}; `rackwright-lab doctor` says what is missing");
            return ExitCode::FAILURE;
        }
    };
    let dir = namespace.state_dir().join("site");
    let settings = match outside::public_url(namespace.state_dir()) {
        Some(url) => Settings {
            further: format!("web: {{listen: \"{CONSOLE}\", public_url: \"{url}\"}}\n"),
            ..Settings::default()
        },
        None => Settings::default(),
    };
    let site = Site::start(&dir, &settings).await;
    say("The control plane runs: one process, an embedded database. The first operator has logged in.");
    let mut demo = Demo { site, failed: false };
    demo.run(&["whoami"]);
    life(&mut demo, &lab);
    let store = Store::open(&dir.join("data/rackwright.db"))
        .await
        .expect("the database opens");
    let ours = times(&store, &lab).await;
    let Demo { site, failed } = demo;
    println!("The whole demo took {:.0} s.", started.elapsed().as_secs_f64());
    if keep::is_wanted() {
        keep(namespace, &site).await;
    }
    site.stop().await;
    if let Err(error) = lab.stop().await {
        eprintln!("the lab did not end in order: {error}");
    }
    if failed || ours.is_empty() {
        eprintln!("The demo did not end as it should.");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn life(demo: &mut Demo, lab: &Lab) {
    say("Images go in: checked against their digest, cut into chunks, stored once.");
    for (name, file) in [("debian", "debian-slim.raw.zst"), ("tiny", "tiny.raw.zst")] {
        let file = rackwright_tests::site::images().join(file).display().to_string();
        demo.run(&["image", "add", name, "--file", &file, "--quiet"]);
    }
    demo.run(&["image", "list"]);
    say("Discover: the machines are found by their BMCs, booted into the agent, inventoried and switched off again.");
    for (id, machine) in NODES.iter().zip(lab.machines()) {
        let password = demo.site.dir().join(format!("{id}.password"));
        std::fs::write(&password, machine.bmc().password()).expect("the password file can be written");
        let (url, user) = (machine.bmc().url.clone(), machine.bmc().user.clone());
        let file = password.display().to_string();
        demo.run(&[
            "node",
            "enroll",
            id,
            "--bmc",
            &url,
            "--user",
            &user,
            "--password-file",
            &file,
        ]);
    }
    demo.run(&["node", "watch", NODES[0], NODES[1], "--until", "available"]);
    demo.run(&["node", "list"]);
    demo.run(&["boot", "trace", lab.machine(0).mac()]);
    say("Deploy: the image is written by the agent, the machine reboots from it and is checked over SSH.");
    demo.run(&["node", "deploy", NODES[0], NODES[1], "--image", "tiny"]);
    demo.run(&["node", "watch", NODES[0], NODES[1], "--until", "active"]);
    demo.run(&["node", "reports", NODES[0]]);
    say("Reimage one of them with a whole Debian.");
    demo.run(&["node", "reimage", NODES[0], "--image", "debian", "--yes", "--wait"]);
    demo.run(&["node", "explain", NODES[0]]);
    say("Release: every drive is erased, proven erased, and certified. Only then are the nodes available again.");
    demo.run(&["node", "release", NODES[0], NODES[1], "--yes", "--wait"]);
    demo.run(&["node", "certificates", NODES[0], "--verify"]);
    demo.run(&["node", "list"]);
}

/// Prints seconds per phase; returns our share of each deploy.
async fn times(store: &Store, lab: &Lab) -> Vec<f64> {
    say("Seconds by phase");
    let mut ours = Vec::new();
    let (mut all, mut starts) = (Vec::new(), Vec::new());
    for (id, machine) in NODES.iter().zip(lab.machines()) {
        let console = machine.serial_log();
        let phases = timing::phases(store, id, machine.mac(), &console).await;
        starts.extend(timing::agent_starts(&console));
        ours.extend(timing::deploys(&phases));
        all.extend(phases);
    }
    println!("{}", timing::table(&all));
    let mut line = String::from("Our own share of each deploy:");
    for s in &ours {
        let _ = write!(line, " {s:.2} s");
    }
    let verdict = if ours.iter().all(|s| *s <= AIM_S) {
        "met"
    } else {
        "missed"
    };
    println!("{line} (aim: at most {AIM_S} s, {verdict})");
    let mut line = String::from("Kernel start to agent ready, and how much of it was the agent's own start:");
    for s in &starts {
        let _ = write!(line, " {:.1} s ({:.1} s)", s.ready_s, s.ready_s - s.userspace_s);
    }
    println!("{line}");
    ours
}

/// Everything keeps running until Ctrl-C. A browser outside of the namespace reaches the web console.
async fn keep(namespace: &Namespace, site: &Site) {
    let enter = [format!("sudo nsenter --target {} --net --pid --mount", namespace.pid())];
    tokio::select! {
        served = outside::serve(namespace.state_dir(), CONSOLE) => {
            eprintln!("the web console cannot be reached from outside of the namespace: {served:?}");
        }
        () = keep::with_logins(site, &enter) => {}
    }
}
