//! A copied or restored control plane does no harm: it does not start beside the first, and does not trust old records.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rackwright_sim::fleet::{BootSource, Fleet, FleetConfig, Phase};
use rackwright_sim::install_crypto;
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::site::{Site, program, texts};

/// Settings with which idle nodes are polled every second.
const WATCHED: &str = "power_watch: {interval_s: 1, recheck_s: 1}\n";
/// Time without any request to a BMC: several times the pause between two polls.
const QUIET: Duration = Duration::from_secs(4);

async fn fleet(plane: &Plane) -> Fleet {
    let config = FleetConfig {
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    plane.enrol(&fleet, |_| "lab".to_owned()).await;
    fleet
}

fn add_image(site: &Site) {
    let image = site.dir().join("disk.raw");
    std::fs::write(&image, vec![7; 1 << 20]).expect("an image");
    let image = image.display().to_string();
    site.cli(["image", "add", "disk", "--file", &image, "--format", "raw"]);
}

/// Runs a command that must be refused, and returns its output.
#[track_caller]
fn refused(site: &Site, arguments: &[&str]) -> String {
    let output = site.try_cli(arguments);
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{arguments:?} was taken: {out}");
    err
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "{} is copied",
        from.display()
    );
}

/// Starts a daemon that must refuse to start, and returns its output.
fn does_not_start(config: &Path) -> String {
    let log = config.with_extension("log");
    let mut child = Command::new(program("rackwrightd"))
        .args(["serve".as_ref(), "--config".as_ref(), config.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("rackwrightd can be started");
    let deadline = Instant::now() + TEST_LIMIT;
    loop {
        if let Some(status) = child.try_wait().expect("its state can be read") {
            assert!(!status.success());
            return std::fs::read_to_string(&log).expect("its log can be read");
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it continues: {}", std::fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files of the SQLite database, below a folder.
fn database(dir: &Path) -> [PathBuf; 3] {
    ["rackwright.db", "rackwright.db-wal", "rackwright.db-shm"].map(|name| dir.join(name))
}

/// Copies only the database from one folder to another.
fn put_database(from: &Path, to: &Path) {
    for (from, to) in database(from).iter().zip(database(to)) {
        let _ = std::fs::remove_file(&to);
        if from.is_file() {
            copy(from, &to);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_control_plane_does_not_start_on_the_same_folder_nor_on_a_copy_of_it() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", WATCHED).await;
    let config = std::fs::read_to_string(dir.path().join("rackwrightd.yaml")).expect("the settings");
    // The same folder, although the second one listens on other ports.
    let other_ports = |text: &str| {
        let taken = [plane.dhcp.port(), plane.tftp_port];
        let ports = text
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse::<u16>().ok());
        let listened: Vec<u16> = ports.filter(|port| *port > 1023).collect();
        assert!(taken.iter().all(|port| listened.contains(port)));
        listened.iter().fold(text.to_owned(), |text, port| {
            let free = rackwright_tests::ports::free_port();
            text.replace(&port.to_string(), &free.to_string())
        })
    };
    let second = dir.path().join("second.yaml");
    std::fs::write(&second, other_ports(&config)).expect("the settings");
    let output = does_not_start(&second);
    let pid = format!("process {}", plane.site.pid());
    assert!(
        output.contains("another rackwrightd uses the database") && output.contains(&pid),
        "{output}"
    );

    // A copy of the folder, with its own ports: the first one is still serving.
    let copied = tempfile::tempdir().expect("a folder");
    copy(&dir.path().join("data"), &copied.path().join("data"));
    let here = |path: &Path| format!("data_dir: {}/data", path.display());
    let moved = other_ports(&config).replace(&here(dir.path()), &here(copied.path()));
    let third = copied.path().join("rackwrightd.yaml");
    std::fs::write(&third, moved).expect("the settings");
    let output = does_not_start(&third);
    assert!(output.contains("is a copy") && output.contains("--paused"), "{output}");
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_database_assigns_no_used_machine_and_calls_no_bmc_before_an_operator_resumes_it() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let mut plane = Plane::start_with(dir.path(), "pxe", WATCHED).await;
    let fleet = fleet(&plane).await;
    let (machine, id) = (fleet.node(0), fleet.node(0).name());
    add_image(&plane.site);
    machine.wait_for(|view| view.phase == Phase::Off).await;

    // A backup; afterwards acme gets the machine.
    plane.site.halt().await;
    let backup = tempfile::tempdir().expect("a folder");
    put_database(&data, backup.path());
    plane.site.restart().await;
    plane
        .site
        .cli(["node", "deploy", &id, "--image", "disk", "--customer", "acme"]);
    plane.site.until(&id, &["rebooting"], TEST_LIMIT).await;
    machine.wait_for(|view| view.phase == Phase::Up(BootSource::Disk)).await;
    let written = machine.installed().expect("acme's system");
    plane.site.halt().await;

    // The old database, in which the machine is free, is put back.
    put_database(backup.path(), &data);
    let requests = fleet.totals().requests;
    plane.site.restart().await;
    let site = &plane.site;
    assert_eq!(site.state(&id), "available", "as in the old record");
    let doubt = site.json(["node", "get", &id])["status"]["doubt"].to_string();
    assert!(doubt.contains("older"), "{doubt}");
    for zeta in [
        &["node", "deploy", &id, "--image", "disk", "--customer", "zeta"][..],
        &["node", "power", &id, "off", "--yes"],
        &["node", "delete", &id, "--yes"],
    ] {
        let why = refused(site, zeta);
        assert!(why.contains("is doubted"), "{why}");
    }
    let explained = site.cli(["node", "explain", &id]);
    assert!(
        explained.contains("node readmit") && explained.contains("node believe"),
        "{explained}"
    );
    let events = site.cli(["events", "--target", "site"]);
    assert!(events.contains("1 node is doubted"), "{events}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(
        fleet.totals().requests,
        requests,
        "a BMC was called before an operator's decision"
    );
    let still = machine.installed().expect("acme's system is there");
    assert_eq!(still.image_digest, written.image_digest);

    // A doubt survives another start, and the operator's decision ends it: the machine is erased with a certificate.
    plane.site.halt().await;
    plane.site.restart().await;
    let site = &plane.site;
    tokio::time::sleep(QUIET).await;
    assert_eq!(fleet.totals().requests, requests);
    assert!(refused(site, &["node", "readmit", &id]).contains("destroys all data on the drives"));
    site.cli(["node", "readmit", &id, "--yes"]);
    site.until(&id, &["reclaiming"], TEST_LIMIT).await;
    site.until(&id, &["available"], TEST_LIMIT).await;
    assert!(machine.installed().is_none(), "acme's system is gone");
    site.cli(["node", "deploy", &id, "--image", "disk", "--customer", "zeta"]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    assert!(machine.installed().expect("zeta's system").generation > written.generation);
    plane.site.stop().await;
    fleet.stop().await;
}

/// Runs a command of `rackwrightd` on the site's settings. Returns its success and its output.
fn daemon_command(dir: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program("rackwrightd"))
        .args(arguments)
        .arg("--config")
        .arg(dir.join("rackwrightd.yaml"))
        .output()
        .expect("rackwrightd can be started");
    let (out, err) = texts(&output);
    (output.status.success(), format!("{out}{err}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_of_a_running_control_plane_assigns_no_used_machine() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start_with(dir.path(), "pxe", WATCHED).await;
    let fleet = fleet(&plane).await;
    let (machine, id) = (fleet.node(0), fleet.node(0).name());
    add_image(&plane.site);
    machine.wait_for(|view| view.phase == Phase::Off).await;

    // A backup of the running control plane; afterwards acme gets the machine.
    let backups = dir.path().join("backups");
    let to = backups.display().to_string();
    let (is_done, output) = daemon_command(dir.path(), &["backup", "--to", &to]);
    assert!(is_done, "{output}");
    let mut entries = std::fs::read_dir(&backups).expect("the backup");
    let backup = entries.next().expect("a backup").expect("an entry").path();
    assert!(entries.next().is_none(), "only the backup");
    let events = plane.site.cli(["events", "--target", "site"]);
    assert!(events.contains("a backup of database and keys is taken"), "{events}");
    plane
        .site
        .cli(["node", "deploy", &id, "--image", "disk", "--customer", "acme"]);
    plane.site.until(&id, &["rebooting"], TEST_LIMIT).await;
    machine.wait_for(|view| view.phase == Phase::Up(BootSource::Disk)).await;

    // A restore is refused while the control plane runs, and over an existing site without the operator's confirmation.
    let from = backup.display().to_string();
    let (is_done, output) = daemon_command(dir.path(), &["restore", "--from", &from, "--replace"]);
    assert!(
        !is_done && output.contains("another rackwrightd uses the database"),
        "{output}"
    );
    plane.site.halt().await;
    let (is_done, output) = daemon_command(dir.path(), &["restore", "--from", &from]);
    assert!(!is_done && output.contains("--replace"), "{output}");
    let (is_done, output) = daemon_command(dir.path(), &["restore", "--from", &from, "--replace"]);
    assert!(is_done && output.contains("every node is doubted"), "{output}");

    let requests = fleet.totals().requests;
    plane.site.restart().await;
    let site = &plane.site;
    assert_eq!(site.state(&id), "available", "as in the backup");
    let why = refused(site, &["node", "deploy", &id, "--image", "disk", "--customer", "zeta"]);
    assert!(why.contains("is doubted"), "{why}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(fleet.totals().requests, requests, "a BMC was called");
    assert!(machine.installed().is_some(), "acme's system is there");

    // The restored keys open the secrets of the restored database: the machine is reached, erased and given out again.
    site.cli(["node", "readmit", &id, "--yes"]);
    site.until(&id, &["reclaiming"], TEST_LIMIT).await;
    site.until(&id, &["available"], TEST_LIMIT).await;
    assert!(machine.installed().is_none(), "acme's system is gone");
    site.cli(["node", "deploy", &id, "--image", "disk", "--customer", "zeta"]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_record_is_acted_on_after_an_operator_confirms_it() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start_with(dir.path(), "pxe", WATCHED).await;
    let fleet = fleet(&plane).await;
    let id = fleet.node(0).name();
    plane.site.halt().await;
    // The whole folder is restored, including the marks that would reveal it: the operator states it.
    plane.site.restart_as("info", &["--restored"]).await;
    let site = &plane.site;
    assert_eq!(site.json(["control", "show"])["doubted_nodes"], 1);
    let requests = fleet.totals().requests;
    tokio::time::sleep(QUIET).await;
    assert_eq!(fleet.totals().requests, requests);
    site.cli([
        "node",
        "believe",
        "--all",
        "--yes",
        "--reason",
        "nothing happened since",
    ]);
    assert_eq!(site.json(["control", "show"])["doubted_nodes"], 0);
    let events = site.cli(["events", "--target", &format!("nodes/{id}")]);
    assert!(events.contains("nothing happened since"), "{events}");
    let deadline = Instant::now() + TEST_LIMIT;
    while fleet.totals().requests == requests {
        assert!(Instant::now() < deadline, "the node is not watched again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_control_plane_reads_and_does_nothing_until_an_operator_resumes_it() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start_with(dir.path(), "pxe", WATCHED).await;
    let fleet = fleet(&plane).await;
    let id = fleet.node(0).name();
    add_image(&plane.site);
    assert!(UdpSocket::bind(plane.dhcp).is_err(), "DHCP is answered");
    // Nothing in the settings says how the Ethernet networks are separated.
    let warning = "the separation of the Ethernet networks is unknown";
    let warnings = |site: &Site| site.json(["control", "show"])["warnings"].to_string();
    assert!(warnings(&plane.site).contains(warning), "{}", warnings(&plane.site));
    plane.site.halt().await;
    assert_eq!(plane.site.log().matches(warning).count(), 1);
    let settings = dir.path().join("rackwrightd.yaml");
    let text = std::fs::read_to_string(&settings).expect("the settings");
    std::fs::write(&settings, text + "ethernet: {by_hand: true}\n").expect("the settings");
    plane.site.restart_as("info", &["--paused"]).await;
    let site = &plane.site;
    assert_eq!(warnings(site), "[]");
    assert_eq!(site.log().matches(warning).count(), 1, "no second warning");
    let requests = fleet.totals().requests;
    assert_eq!(site.state(&id), "available");
    assert!(site.cli(["whoami"]).contains("paused"));
    for write in [
        &["node", "deploy", &id, "--image", "disk"][..],
        &["node", "power", &id, "on"],
        &["node", "hold", &id, "--reason", "x"],
        &["token", "create", "ann", "--role", "viewer"],
        &["node", "bmc-log", &id],
    ] {
        let why = refused(site, write);
        assert!(why.contains("rackwright control resume"), "{write:?}: {why}");
    }
    tokio::time::sleep(QUIET).await;
    assert_eq!(fleet.totals().requests, requests, "a BMC was called");
    drop(UdpSocket::bind(plane.dhcp).expect("DHCP is not answered"));

    site.cli(["control", "resume", "--yes"]);
    let deadline = Instant::now() + TEST_LIMIT;
    while fleet.totals().requests == requests {
        assert!(Instant::now() < deadline, "the node is not watched again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(UdpSocket::bind(plane.dhcp).is_err(), "DHCP is answered again");
    site.cli(["node", "deploy", &id, "--image", "disk"]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    plane.site.stop().await;
    fleet.stop().await;
}
