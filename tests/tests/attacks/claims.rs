//! A machine passes from one customer to the next only by release and erase, and is never erased without a request.

use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Output;

use rackwright_sim::fleet::{Fleet, FleetConfig, Format};
use rackwright_sim::install_crypto;
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::Redundancy;
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{POLL, Site, texts};

/// A hall of two machines with the names of its site file, and two customers.
struct Hall {
    plane: Plane,
    fleet: Fleet,
    nodes: Vec<String>,
}

async fn hall(dir: &Path) -> Hall {
    let ssh = free_port();
    let further = format!("ssh_port: {ssh}\nnetwork_test: {{enabled: false}}\n");
    let plane = Plane::start_with(dir, "pxe", &further).await;
    let config = FleetConfig {
        nodes: 2,
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        ssh_listen: Some(SocketAddrV4::new([0, 0, 0, 0].into(), ssh)),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    let mut request = Request::new(ReferenceSku::DgxH100, 2);
    request.customers = ["acme", "zeta"]
        .map(|name| (name.to_owned(), Redundancy::None, false))
        .into();
    let text = site_file(&request).expect("a site");
    let checked = check(&[Source {
        name: "site.yaml",
        text: &text,
    }]);
    let known = checked.site.expect("a site without errors");
    let nodes: Vec<String> = known.nodes.iter().map(|node| node.name.to_string()).collect();
    let file = dir.join("site.yaml");
    std::fs::write(&file, text).expect("the site file");
    let site = &plane.site;
    site.cli(["site".as_ref(), "apply".as_ref(), file.as_os_str(), "--yes".as_ref()]);
    let mut described = Vec::new();
    let written = fleet.describe(Format::Yaml, Some("dgx-h100"), &mut described);
    written.expect("the fleet can be described");
    let mut described = String::from_utf8(described).expect("it is text");
    for (index, node) in nodes.iter().enumerate() {
        let own = format!("id: {}\n", fleet.node(index).name());
        described = described.replace(&own, &format!("id: {node}\n"));
    }
    let file = dir.join("nodes.yaml");
    std::fs::write(&file, described).expect("the nodes");
    site.cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]);
    for node in &nodes {
        site.until(node, &["available"], TEST_LIMIT).await;
    }
    let image = dir.join("disk.raw");
    std::fs::write(&image, vec![7; 1 << 20]).expect("an image");
    let image = image.display().to_string();
    site.cli(["image", "add", "disk", "--file", &image, "--format", "raw"]);
    Hall { plane, fleet, nodes }
}

/// Runs a command that must be refused, and returns its output.
#[track_caller]
fn refused(site: &Site, arguments: &[&str]) -> String {
    let output: Output = site.try_cli(arguments);
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{arguments:?} was taken: {out}");
    err
}

/// The claim of a node: customer, generation, and whether its end was requested.
fn claim(site: &Site, node: &str) -> (String, String, bool) {
    let claim = site.json(["node", "get", node])["status"]["claim"].clone();
    let text = |field: &str| claim[field].as_str().unwrap_or_default().to_owned();
    (
        text("customer"),
        text("generation"),
        claim["release_requested"].as_bool().unwrap_or_default(),
    )
}

async fn until_cluster(site: &Site, cluster: &str, state: &str) {
    let deadline = std::time::Instant::now() + TEST_LIMIT;
    loop {
        let found = site.json(["cluster", "get", cluster]);
        if found["status"]["state"] == state {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{cluster} is not {state}: {found}"
        );
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_keeps_its_customer_and_a_cluster_its_nodes() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let hall = hall(dir.path()).await;
    let site = &hall.plane.site;

    // A customer that is not in the site gets nothing, by any call.
    let unknown = "the site has no customer \"mallory\"";
    let deploy = [
        "node",
        "deploy",
        &hall.nodes[0],
        "--image",
        "disk",
        "--customer",
        "mallory",
    ];
    assert!(refused(site, &deploy).contains(unknown));
    let invite = [
        "token",
        "create",
        "m@mallory",
        "--role",
        "customer-admin",
        "--customer",
        "mallory",
    ];
    assert!(refused(site, &invite).contains(unknown));
    let create = |customer: &'static str| {
        let wants = [
            "--sku",
            "dgx-h100",
            "--nodes",
            "1",
            "--image",
            "disk",
            "--customer",
            customer,
        ];
        [["cluster", "create", "alpha"].as_slice(), &wants].concat()
    };
    assert!(refused(site, &create("mallory")).contains(unknown));

    site.cli(create("acme"));
    until_cluster(site, "alpha", "CLUSTER_STATE_READY").await;
    let members = site.json(["cluster", "get", "alpha"])["status"]["members"].clone();
    let member = members[0]["node"]
        .as_str()
        .expect("a node")
        .trim_start_matches("nodes/");
    let single = hall.nodes.iter().find(|node| *node != member).expect("another node");

    // Only its cluster can change a node of the cluster.
    let held = claim(site, member);
    for customer in [&["--customer", "zeta"][..], &[]] {
        let reimage = [&["node", "reimage", member, "--image", "disk", "--yes"], customer].concat();
        let why = refused(site, &reimage);
        assert!(why.contains("rackwright cluster reimage alpha"), "{why}");
    }
    let why = refused(site, &["node", "release", member, "--yes"]);
    assert!(why.contains("rackwright cluster release alpha"), "{why}");
    assert_eq!(claim(site, member), held);
    assert_eq!(site.state(member), "active");

    // Another customer gets a machine after release and erase, but not by a reimage.
    site.cli(["node", "deploy", single, "--image", "disk", "--customer", "acme"]);
    site.until(single, &["active"], TEST_LIMIT).await;
    let held = claim(site, single);
    let why = refused(
        site,
        &[
            "node",
            "reimage",
            single,
            "--image",
            "disk",
            "--yes",
            "--customer",
            "zeta",
        ],
    );
    assert!(why.contains("release the node first"), "{why}");
    assert_eq!(claim(site, single), held);
    site.cli([
        "node",
        "reimage",
        single,
        "--image",
        "disk",
        "--yes",
        "--customer",
        "acme",
    ]);
    site.until(single, &["active"], TEST_LIMIT).await;
    assert_eq!(claim(site, single), held, "its own customer may be named");

    hall.plane.site.stop().await;
    hall.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_node_of_a_deleted_cluster_is_erased_only_by_an_operators_call() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let hall = hall(dir.path()).await;
    let site = &hall.plane.site;
    let wants = [
        "--sku",
        "dgx-h100",
        "--nodes",
        "1",
        "--image",
        "disk",
        "--customer",
        "acme",
    ];
    site.cli([["cluster", "create", "alpha"].as_slice(), &wants].concat());
    until_cluster(site, "alpha", "CLUSTER_STATE_READY").await;
    let members = site.json(["cluster", "get", "alpha"])["status"]["members"].clone();
    let node = members[0]["node"]
        .as_str()
        .expect("a node")
        .trim_start_matches("nodes/");
    let index = hall
        .nodes
        .iter()
        .position(|one| one == node)
        .expect("it is of the hall");
    // The other node is put on hold first, so that the cluster finds no replacement for the held one.
    let other = &hall.nodes[1 - index];
    site.cli(["node", "hold", other, "--reason", "apart"]);
    site.until(other, &["maintenance"], TEST_LIMIT).await;
    site.cli(["node", "hold", node, "--reason", "keep the evidence"]);
    site.until(node, &["maintenance"], TEST_LIMIT).await;
    site.cli(["cluster", "release", "alpha", "--yes", "--wait"]);
    assert_eq!(site.state(node), "maintenance");
    assert!(claim(site, node).2, "its claim has ended");

    let machine = hall.fleet.node(index);
    let explained = site.cli(["node", "explain", node]);
    assert!(explained.contains("erases it"), "{explained}");
    let why = refused(site, &["node", "resume", node]);
    assert!(why.contains("destroys all data on the drives"), "{why}");
    assert_eq!(site.state(node), "maintenance");
    assert!(machine.installed().is_some(), "the evidence is there");

    site.cli(["node", "resume", "--yes", node]);
    site.until(node, &["available"], TEST_LIMIT).await;
    assert!(machine.installed().is_none());

    // Without the confirmation the API erases nothing, for any client.
    site.cli(["node", "quarantine", node, "--reason", "odd", "--yes"]);
    site.until(node, &["quarantined"], TEST_LIMIT).await;
    assert!(refused(site, &["node", "readmit", node]).contains("destroys all data on the drives"));
    site.cli(["node", "readmit", node, "--yes"]);
    site.until(node, &["available"], TEST_LIMIT).await;

    hall.plane.site.stop().await;
    hall.fleet.stop().await;
}
