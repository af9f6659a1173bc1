//! The agent's LLDP listener against a real Open vSwitch with its userspace datapath: the card that is cabled to the switch
//! receives the frames that the switch sends by itself.
//!
//! The test runs itself again in its own namespaces; everything in them ends with the test.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rackwright_agent::host::{Host as _, KernelHost};
use rackwright_agent::net::neighbours::NeighbourReport;
use rackwright_agent::root::SysRoot;
use rackwright_api::v1::Neighbour;
use tokio::sync::watch;
use tokio::time::timeout;

const INSIDE: &str = "RACKWRIGHT_INSIDE_NAMESPACES";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The switch sends every 5 s, so this is generous.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program and returns its output.
fn run(dir: &Path, program: &str, arguments: &str) -> String {
    let mut command = Command::new(program);
    let output = command
        .args(arguments.split(' '))
        .env("OVS_RUNDIR", dir)
        .env("OVS_LOGDIR", dir)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program} (Debian package openvswitch-switch): {error}"));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Creates a card that is down, at the other end of the switch's port, and copies the kernel's data about it into a tree of
/// files.
fn plug_in(dir: &Path, port: &str, card: &str) {
    run(dir, "ip", &format!("link add {port} type veth peer name {card}"));
    run(dir, "ip", &format!("link set {port} up"));
    let folder = dir.join("sys/class/net").join(card);
    std::fs::create_dir_all(folder.join("device")).unwrap();
    for fact in ["ifindex", "address", "type", "flags"] {
        let text = std::fs::read_to_string(format!("/sys/class/net/{card}/{fact}")).unwrap();
        std::fs::write(folder.join(fact), text).unwrap();
    }
}

fn start_switch(dir: &Path) {
    let at = dir.display();
    run(dir, "ovsdb-tool", &format!("create {at}/conf.db {SCHEMA}"));
    let server =
        format!("{at}/conf.db --remote=punix:{at}/db.sock --unixctl={at}/server.ctl --log-file={at}/server.log");
    run(
        dir,
        "ovsdb-server",
        &format!("{server} --pidfile={at}/server.pid --detach"),
    );
    run(dir, "ovs-vsctl", &format!("--db=unix:{at}/db.sock --no-wait init"));
    let daemon = format!("unix:{at}/db.sock --disable-system --unixctl={at}/switch.ctl --log-file={at}/switch.log");
    run(
        dir,
        "ovs-vswitchd",
        &format!("{daemon} --pidfile={at}/switch.pid --detach"),
    );
    // Open vSwitch sends its name only with an AutoAttach table.
    run(
        dir,
        "ovs-vsctl",
        &format!(
            "--db=unix:{at}/db.sock --id=@a create AutoAttach system_name=eth-leaf-1 system_description=leaf \
             -- add-br br0 -- set bridge br0 datapath_type=netdev auto_attach=@a"
        ),
    );
    for port in ["p1", "p2", "p3"] {
        let lldp = if port == "p3" { "false" } else { "true" };
        run(
            dir,
            "ovs-vsctl",
            &format!("--db=unix:{at}/db.sock add-port br0 {port} -- set interface {port} lldp:enable={lldp}"),
        );
    }
}

/// Waits until the neighbours are as wanted.
async fn wait_for_neighbours(
    neighbours: &mut watch::Receiver<NeighbourReport>,
    wanted: impl Fn(&[Neighbour]) -> bool,
) -> Vec<Neighbour> {
    let found = timeout(
        LIMIT,
        neighbours.wait_for(|neighbours| neighbours.as_ref().is_some_and(|all| wanted(&all.neighbours))),
    );
    let found = found.await.expect("frames come in time").expect("the listener runs");
    found.as_ref().unwrap().neighbours.clone()
}

async fn check_switch_frames(dir: &Path) {
    // A sysfs of this namespace: the kernel shows the interfaces of the namespace in which sysfs was mounted.
    run(dir, "mount", "-t sysfs sysfs /sys");
    for (port, card) in [("p1", "nic1"), ("p2", "nic2"), ("p3", "nic3")] {
        plug_in(dir, port, card);
    }
    start_switch(dir);
    let (sender, mut neighbours) = watch::channel(None);
    let host = KernelHost {
        root: SysRoot::below(dir),
    };
    host.watch_neighbours(sender);
    let found = wait_for_neighbours(&mut neighbours, |all| all.len() == 2).await;
    for (neighbour, (card, port)) in found.iter().zip([("nic1", "p1"), ("nic2", "p2")]) {
        let mac = std::fs::read_to_string(format!("/sys/class/net/{card}/address")).unwrap();
        assert_eq!((&*neighbour.nic, &*neighbour.mac), (card, mac.trim()));
        assert_eq!((&*neighbour.system_name, &*neighbour.port_id), ("eth-leaf-1", port));
    }
    let at = dir.display();
    let record = run(
        dir,
        "ovs-vsctl",
        &format!("--db=unix:{at}/db.sock get bridge br0 auto_attach"),
    );
    run(
        dir,
        "ovs-vsctl",
        &format!(
            "--db=unix:{at}/db.sock set AutoAttach {} system_name=eth-leaf-2",
            record.trim()
        ),
    );
    let renamed = wait_for_neighbours(&mut neighbours, |all| {
        all.iter().all(|one| one.system_name == "eth-leaf-2")
    })
    .await;
    assert_eq!(renamed.len(), 2, "a port that sends nothing is not heard");
}

#[test]
fn an_open_vswitch_is_heard_on_the_cards_that_are_cabled_to_it() {
    let name = "an_open_vswitch_is_heard_on_the_cards_that_are_cabled_to_it";
    if std::env::var_os(INSIDE).is_some() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(check_switch_frames(dir.path()));
    }
    let status = Command::new("unshare")
        .args([
            "--map-root-user",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .status();
    assert!(status.expect("unshare (Debian package util-linux) runs").success());
}
