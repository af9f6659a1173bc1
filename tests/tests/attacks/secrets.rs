//! Secrets at rest, against an attacker who copies the data folder, a backup, the log or the memory of the control plane.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::stat::{Mode, umask};
use rackwright_lifecycle::{NodeId, Timestamp};
use rackwright_sim::fleet::{Fleet, FleetConfig, Format};
use rackwright_sim::install_crypto;
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::Redundancy;
use rackwright_store::{Scope, Store};
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{Site, program, texts};
use serde_json::Value;

use crate::machine::{rackwrightd, until};

/// Part of the user data; must not be found in any file.
const PLANTED: &str = "planted-password-of-a-customer";

/// Machines with installed systems that accept the control plane's login, named as in their site file; one customer, one
/// image.
struct Hall {
    plane: Plane,
    fleet: Fleet,
    nodes: Vec<String>,
}

async fn hall(dir: &Path, nodes: usize) -> Hall {
    let ssh = free_port();
    let further = format!("ssh_port: {ssh}\nnetwork_test: {{enabled: false}}\n");
    let plane = Plane::start_with(dir, "pxe", &further).await;
    let config = FleetConfig {
        nodes,
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        ssh_listen: Some(SocketAddrV4::new([0, 0, 0, 0].into(), ssh)),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    let mut request = Request::new(ReferenceSku::DgxH100, nodes);
    request.customers = vec![("acme".to_owned(), Redundancy::None, false)];
    let text = site_file(&request).expect("a site");
    let checked = check(&[Source {
        name: "site.yaml",
        text: &text,
    }]);
    let site = checked.site.expect("a site without errors");
    let names: Vec<String> = site.nodes.iter().map(|node| node.name.to_string()).collect();
    write(&dir.join("site.yaml"), text.as_bytes());
    let file = |name: &str| dir.join(name).display().to_string();
    plane.site.cli(["site", "apply", &file("site.yaml"), "--yes"]);
    write(&dir.join("disk.raw"), &vec![7; 1 << 20]);
    plane
        .site
        .cli(["image", "add", "disk", "--file", &file("disk.raw"), "--format", "raw"]);
    enrol(&plane, &fleet, &names).await;
    Hall {
        plane,
        fleet,
        nodes: names,
    }
}

async fn enrol(plane: &Plane, fleet: &Fleet, names: &[String]) {
    let mut text = Vec::new();
    let described = fleet.describe(Format::Yaml, Some("dgx-h100"), &mut text);
    described.expect("the fleet can be described");
    let mut text = String::from_utf8(text).expect("it is text");
    for (index, name) in names.iter().enumerate() {
        text = text.replace(&format!("id: {}\n", fleet.node(index).name()), &format!("id: {name}\n"));
    }
    let file = plane.site.dir().join("nodes.yaml");
    write(&file, text.as_bytes());
    let file = file.display().to_string();
    tokio::task::block_in_place(|| plane.site.cli(["apply", "-f", &file]));
    for name in names {
        plane.site.until(name, &["available"], TEST_LIMIT).await;
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("the file can be written");
}

/// Files below a folder that contain a text, except `except`.
fn holders(folder: &Path, text: &str, except: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if except.contains(&path) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(holders(&path, text, except));
        } else if path.is_file() {
            let bytes = fs::read(&path).expect("the file can be read");
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// cloud-config with the planted secret.
fn user_data(dir: &Path) -> PathBuf {
    let path = dir.join("user-data.yaml");
    write(
        &path,
        format!("#cloud-config\nchpasswd: {{list: 'root:{PLANTED}'}}\n").as_bytes(),
    );
    path
}

async fn store(dir: &Path) -> Store {
    let path = dir.join("data/rackwright.db");
    Store::open(&path).await.expect("the database can be opened")
}

/// Whether the current deployment of a node has sealed user data, and whether it has private keys.
async fn kept(store: &Store, id: &str) -> (bool, bool) {
    let claim = store
        .node(&Scope::Site, &NodeId::stored(id))
        .await
        .expect("the node")
        .node
        .claim;
    let claim = claim.expect("it is claimed");
    let keys = store
        .deployment_keys(&NodeId::stored(id), claim.generation, claim.deployment)
        .await;
    let keys = keys.expect("a deployment has keys");
    (
        !keys.user_data.is_empty(),
        !keys.host_private.is_empty() || !keys.provision_private.is_empty(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_data_of_a_customer_is_in_no_file_and_no_answer() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut hall = hall(dir.path(), 2).await;
    let given = user_data(dir.path());
    let file = given.display().to_string();
    let except = std::slice::from_ref(&given);
    hall.plane.site.kill().await;
    hall.plane.site.restart_logging("trace").await;
    let site = &hall.plane.site;
    let id = &hall.nodes[0];
    site.cli([
        "node",
        "deploy",
        id,
        "--image",
        "disk",
        "--customer",
        "acme",
        "--user-data",
        &file,
    ]);
    assert_eq!(kept(&store(dir.path()).await, id).await, (true, true));
    assert_eq!(holders(dir.path(), PLANTED, except), [""; 0], "right after the request");
    // SQLite's log holds all writes since.
    hall.plane.site.kill().await;
    assert_eq!(holders(dir.path(), PLANTED, except), [""; 0], "after a crash");
    hall.plane.site.restart_logging("trace").await;
    let site = &hall.plane.site;
    site.until(id, &["active"], TEST_LIMIT).await;
    assert_eq!(
        kept(&store(dir.path()).await, id).await,
        (false, false),
        "after the hand-over"
    );
    let before = site.json(["node", "get", id]);
    assert_eq!(before["status"]["claim"]["has_user_data"], true, "{before}");

    // Another system needs the user data again, as the CLI reports.
    let reimaged = site.try_cli(["node", "reimage", id, "--image", "disk", "--yes"]);
    let (_, error) = texts(&reimaged);
    assert!(reimaged.status.success() && error.contains("--user-data"), "{error}");
    assert_eq!(kept(&store(dir.path()).await, id).await, (false, true));
    let node = site.json(["node", "get", id]);
    assert_ne!(node["status"]["claim"]["has_user_data"], true, "{node}");
    site.until_active_again(id, &before, TEST_LIMIT).await;
    let outputs = [
        site.cli(["events", "-o", "json"]),
        site.cli(["node", "explain", id]),
        site.cli(["operation", "list", "-o", "json"]),
        node.to_string(),
    ];
    assert!(!outputs.concat().contains(PLANTED));
    hall.plane.site.stop().await;
    assert_eq!(holders(dir.path(), PLANTED, except), [""; 0], "after the end");
    // The search works: it finds the node's id in the log and in the database.
    assert!(holders(dir.path(), id, except).len() > 2);
    hall.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_data_of_a_cluster_is_kept_sealed_and_deleted_with_the_cluster() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let hall = hall(dir.path(), 2).await;
    let given = user_data(dir.path());
    let except = std::slice::from_ref(&given);
    let (site, file) = (&hall.plane.site, given.display().to_string());
    site.cli([
        "cluster",
        "create",
        "alpha",
        "--customer",
        "acme",
        "--sku",
        "dgx-h100",
        "--nodes",
        "1",
        "--bandwidth",
        "best-effort",
        "--image",
        "disk",
        "--user-data",
        &file,
    ]);
    until_cluster(site, "ready").await;
    let cluster = site.json(["cluster", "get", "alpha"]);
    assert_eq!(cluster["spec"]["deployment"]["has_user_data"], true, "{cluster}");
    assert!(!cluster.to_string().contains(PLANTED), "{cluster}");
    let store = store(dir.path()).await;
    let record = store.cluster(&Scope::Site, &"alpha".into()).await.expect("the cluster");
    assert!(record.spec.user_data.is_some(), "nodes that join later need it");
    assert_eq!(holders(dir.path(), PLANTED, except), [""; 0]);
    site.cli(["cluster", "release", "alpha", "--yes"]);
    until_cluster(site, "released").await;
    let record = store.cluster(&Scope::Site, &"alpha".into()).await.expect("the cluster");
    assert_eq!(record.spec.user_data, None);
    assert_eq!(holders(dir.path(), PLANTED, except), [""; 0]);
    hall.plane.site.stop().await;
    hall.fleet.stop().await;
}

async fn until_cluster(site: &Site, wanted: &str) {
    let deadline = Instant::now() + TEST_LIMIT;
    loop {
        let cluster = site.json(["cluster", "get", "alpha"]);
        let state = cluster["status"]["state"]
            .as_str()
            .unwrap_or_default()
            .to_ascii_lowercase();
        if state.ends_with(&format!("_{wanted}")) {
            return;
        }
        assert!(Instant::now() < deadline, "{cluster}\n{}", site.log_tail());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Data that an older version has left: user data in clear, in the row and in a free page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_data_that_an_older_version_stored_is_gone_after_the_next_start() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut hall = hall(dir.path(), 1).await;
    let id = hall.nodes[0].clone();
    hall.plane.site.cli(["node", "deploy", &id, "--image", "disk"]);
    hall.plane.site.until(&id, &["active"], TEST_LIMIT).await;
    hall.plane.site.halt().await;
    let database = dir.path().join("data");
    let plain = format!("#cloud-config\n# {}\n{PLANTED}\n", "x".repeat(50_000));
    {
        let store = store(dir.path()).await;
        let mut tx = store.write().await.expect("a change");
        let mut record = tx.node(&NodeId::stored(id.as_str())).await.expect("the node");
        record.node.claim.as_mut().expect("a claim").plain_user_data = plain;
        tx.save_node(&mut record, Timestamp(1)).await.expect("it is saved");
        tx.commit().await.expect("it stays");
        store.close().await;
    }
    assert!(!holders(&database, PLANTED, &[]).is_empty(), "it would be found");
    hall.plane.site.restart().await;
    assert_eq!(holders(&database, PLANTED, &[]), [""; 0]);
    let events = hall.plane.site.cli(["events", "-o", "json"]);
    assert!(events.contains("security.user-data-sealed"), "{events}");
    let node = hall.plane.site.json(["node", "get", &id]);
    assert_eq!(node["status"]["claim"]["has_user_data"], true, "{node}");
    hall.plane.site.stop().await;
    hall.fleet.stop().await;
}

/// Files and folders below a folder that the group or others may use, except the test's own.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        // The daemon runs: a file that it writes and renames may be gone since the folder was listed.
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        };
        let mode = metadata.permissions().mode();
        if mode & 0o077 != 0 {
            found.push(format!("{} {:o}", path.display(), mode & 0o777));
        }
        if metadata.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_is_open_to_others_whatever_the_umask() {
    install_crypto();
    umask(Mode::empty());
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start_with(dir.path(), "pxe", "console: {}\n").await;
    let data = dir.path().join("data");
    write(&dir.path().join("disk.raw"), &vec![7; 1 << 20]);
    let file = dir.path().join("disk.raw").display().to_string();
    plane.site.cli(["image", "add", "disk", "--file", &file]);
    assert!(data.join("rackwright.db-wal").is_file());
    assert_eq!(open_to_others(&data), [""; 0]);
    let ready = dir.path().join("ready-1");
    assert_eq!(
        fs::metadata(ready).expect("it is ready").permissions().mode() & 0o077,
        0
    );

    // Files that an older version left open are closed, and an event reports it.
    plane.site.halt().await;
    let recording = data.join("consoles/uid-1/boot-1.log");
    fs::create_dir_all(recording.parent().expect("a folder")).expect("a folder");
    write(&recording, b"login: root");
    for path in [data.join("rackwright.db"), data.join("images"), recording] {
        let open = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, Permissions::from_mode(open)).expect("the mode can be set");
    }
    plane.site.restart().await;
    assert_eq!(open_to_others(&data), [""; 0]);
    assert!(
        plane.site.log_tail().contains("other users could read"),
        "{}",
        plane.site.log_tail()
    );
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_core_dump_holds_the_keys() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let pid = plane.site.pid();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("the limits of a process");
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let core: Vec<&str> = core.expect("a limit").split_whitespace().skip(4).take(2).collect();
    assert_eq!(core, ["0", "0"], "{limits}");
    // Root can read it in any case.
    if !nix::unistd::geteuid().is_root() {
        assert!(
            fs::read(format!("/proc/{pid}/maps")).is_err(),
            "its user can look into its memory"
        );
    }
    plane.site.stop().await;
}

/// `rackwrightd rotate-keys` beside the running daemon.
fn rotate(dir: &Path, words: &[&str]) -> Result<String, String> {
    rackwrightd(dir, &[&["rotate-keys"], words].concat())
}

fn keys(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir.join("data/keys")).expect("a folder").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The key folder was copied: the operator changes the sealing key, and the copy opens no later secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_sealing_key_is_replaced_though_the_daemon_is_killed_in_the_middle() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path()).await;
    let config = FleetConfig {
        nodes: 3,
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    plane.enrol(&fleet, |_| "lab".to_owned()).await;
    let passwords = async || {
        let store = store(dir.path()).await;
        let nodes = store.nodes(&Scope::Site, &Vec::new(), "", 10).await.expect("the nodes");
        let of = |node: rackwright_store::NodeRecord| rackwright_identity::sealed_under(&node.spec.bmc_password);
        nodes.into_iter().map(of).collect::<BTreeSet<_>>()
    };
    let before = passwords().await;
    assert_eq!(before.len(), 1, "{before:?}");

    let output = rotate(dir.path(), &["sealing"]).expect("a key is added");
    assert!(output.contains("sealing-0002.key"), "{output}");
    let refused = rotate(dir.path(), &["sealing", "--finish"]).expect_err("nothing is resealed yet");
    assert!(refused.contains("do not seal with the newest key"), "{refused}");
    plane.site.kill().await;
    plane.site.restart().await;
    let resealed = || {
        plane
            .site
            .cli(["events", "-o", "json"])
            .contains("security.secrets-resealed")
    };
    until(&plane.site, "the secrets are not resealed", resealed).await;
    let after = passwords().await;
    assert!(after.len() == 1 && after.is_disjoint(&before), "{after:?}");
    let finished = || rotate(dir.path(), &["sealing", "--finish"]).is_ok();
    until(&plane.site, "the older key is not removed", finished).await;
    assert!(!keys(dir.path()).contains("sealing-0001.key"), "{:?}", keys(dir.path()));

    // The passwords still open the BMCs.
    plane.site.kill().await;
    plane.site.restart().await;
    let id = fleet.node(0).name();
    plane.site.cli(["node", "power", &id, "on", "--wait"]);
    // Without the new key the daemon does not start.
    plane.site.halt().await;
    let new = dir.path().join("data/keys/sealing-0002.key");
    let bytes = fs::read(&new).expect("the key can be read");
    fs::write(&new, [7; 32]).expect("the key can be written");
    let serve = ["serve", "--config"];
    let output = Command::new(program("rackwrightd"))
        .args(serve)
        .arg(dir.path().join("rackwrightd.yaml"))
        .output();
    let (_, err) = texts(&output.expect("rackwrightd can be started"));
    assert!(err.contains("copy the folder from another rackwrightd"), "{err}");
    fs::write(&new, bytes).expect("the key can be written");
    plane.site.restart().await;
    plane.site.stop().await;
    fleet.stop().await;
}

/// Erases a node by a deploy and a release.
async fn erase(site: &Site, id: &str) {
    site.cli(["node", "deploy", id, "--image", "disk"]);
    site.until(id, &["imaging", "rebooting", "validating", "active"], TEST_LIMIT)
        .await;
    site.cli(["node", "release", "--yes", id]);
    site.until(id, &["reclaiming"], TEST_LIMIT).await;
    site.until(id, &["available"], TEST_LIMIT).await;
}

fn certificates(site: &Site, id: &str) -> Vec<Value> {
    let printed = site.cli(["node", "certificates", id, "-o", "json"]);
    serde_json::Deserializer::from_str(&printed)
        .into_iter::<Value>()
        .map(|one| one.expect("JSON"))
        .flat_map(|one| one.as_array().cloned().unwrap_or_else(|| vec![one]))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_erase_certificate_verifies_after_the_signing_key_was_changed() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let hall = hall(dir.path(), 1).await;
    let (site, id) = (&hall.plane.site, &hall.nodes[0]);
    erase(site, id).await;
    site.cli(["node", "certificates", id, "--verify"]);
    let first = fs::read(dir.path().join("data/keys/signing.key")).expect("the first key");
    let first = rackwright_identity::CertificateSigner::from_seed(first.try_into().expect("32 bytes"));
    let first: String = first
        .expect("a key")
        .public_key()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();

    let output = rotate(dir.path(), &["signing"]).expect("a key is added");
    assert!(output.contains("signing-0002.key"), "{output}");
    assert!(
        !keys(dir.path()).contains("signing.key"),
        "the old private half is gone"
    );
    let taken_up = || site.log_tail().contains("is loaded");
    until(site, "the new key is not taken up", taken_up).await;
    erase(site, id).await;
    let signers: BTreeSet<String> = certificates(site, id)
        .iter()
        .map(|one| one["signer_public_key"].to_string())
        .collect();
    assert_eq!(signers.len(), 2, "one certificate by each key: {signers:?}");
    site.cli(["node", "certificates", id, "--verify"]);
    // A verifier with the first key follows the chain to the second.
    site.cli(["node", "certificates", id, "--verify", "--key", &first]);
    let stranger = "ab".repeat(32);
    let refused = site.try_cli(["node", "certificates", id, "--verify", "--key", &stranger]);
    assert!(!refused.status.success());
    hall.plane.site.stop().await;
    hall.fleet.stop().await;
}
