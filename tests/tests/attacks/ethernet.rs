//! Networks of switch ports. The attacker is a customer who tries to stay in a machine's network, a switch that does not do
//! what it reports, a person who moves a port by hand, and a host on the boot network.

use std::net::{SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::Instant;

use rackwright_sim::fleet::{Fleet, FleetConfig, SimNode};
use rackwright_sim::install_crypto;
use rackwright_sim::netconf::{NetconfSwitch, USER};
use rackwright_sim::switch::{AnswerMode, BRIDGE, Switch};
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{POLL, Site, texts};

const PROVISIONING: (u16, bool) = (10, true);
const QUARANTINE: (u16, bool) = (20, true);

/// A control plane, machines in its pool, and the switch to which they are cabled.
struct Hall<S = Switch> {
    plane: Plane,
    fleet: Fleet,
    switch: S,
}

/// The port of the machine with that index.
fn port(index: usize) -> String {
    format!("swp{index}")
}

impl Hall {
    async fn start(dir: &Path, nodes: usize) -> Self {
        Self::start_with(dir, nodes, "").await
    }

    /// Starts with further settings of `ethernet`.
    async fn start_with(dir: &Path, nodes: usize, ethernet: &str) -> Self {
        install_crypto();
        let switch = Switch::start((0..nodes).map(port)).await.expect("a switch");
        let entry = format!(
            "{{ovsdb: \"{}\", certificate_sha256: \"{}\", bridge: {BRIDGE}}}",
            switch.address(),
            switch.certificate_sha256()
        );
        Self::start_by(dir, nodes, ethernet, switch, &entry).await
    }

    /// Waits until a port has the wanted VLAN and isolation.
    async fn until_port(&self, index: usize, wanted: (u16, bool)) {
        let begun = Instant::now();
        while self.switch.port(&port(index)) != Some(wanted) {
            assert!(
                begun.elapsed() < TEST_LIMIT,
                "{:?}\n{}",
                self.switch.port(&port(index)),
                self.site().log_tail()
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

impl Hall<NetconfSwitch> {
    async fn start_netconf(dir: &Path, nodes: usize) -> Self {
        install_crypto();
        let switch = NetconfSwitch::start((0..nodes).map(port)).await.expect("a switch");
        let key = dir.join("switch.key");
        std::fs::write(&key, switch.login_key().expect("a key")).expect("a file");
        let entry = format!(
            "{{netconf: \"{}\", host_key_sha256: \"{}\", user: {USER}, key_file: \"{}\", isolated_by: site}}",
            switch.address(),
            switch.host_key_sha256(),
            key.display()
        );
        Self::start_by(dir, nodes, "", switch, &entry).await
    }
}

impl<S> Hall<S> {
    /// Starts with a switch and its entry in the settings.
    async fn start_by(dir: &Path, nodes: usize, ethernet: &str, switch: S, entry: &str) -> Self {
        let ssh = free_port();
        let further = format!(
            "ssh_port: {ssh}\nethernet:\n  provisioning: 10\n  quarantine: 20\n  customers: 100-109\n  proof_s: 1\n  \
             timeout_s: 2\n{ethernet}  switches: {{leaf-1: {entry}}}\n"
        );
        let plane = Plane::start_with(dir, "pxe", &further).await;
        let config = FleetConfig {
            nodes,
            boot_server: Some(plane.dhcp),
            tftp_port: plane.tftp_port,
            ssh_listen: Some(SocketAddrV4::new([0, 0, 0, 0].into(), ssh)),
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(config).await.expect("the fleet starts");
        let mut text = "site: {name: lab}\nrooms: [{name: hall}]\nracks: [{name: r, room: hall}]\n\
                        skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1}]\n\
                        nodes:\n"
            .to_owned();
        for index in 0..nodes {
            let (name, unit, port) = (fleet.node(index).name(), index + 1, port(index));
            text.push_str(&format!(
                "- {{name: {name}, sku: k, rack: r, unit: {unit}, ethernet: {{net0: leaf-1/{port}}}}}\n"
            ));
        }
        let file = dir.join("site.yaml");
        std::fs::write(&file, text).expect("a site file");
        tokio::task::block_in_place(|| {
            plane
                .site
                .cli(["site".as_ref(), "apply".as_ref(), file.as_os_str(), "--yes".as_ref()])
        });
        plane.enrol(&fleet, |_| "lab".to_owned()).await;
        let image = dir.join("disk.raw");
        std::fs::write(&image, vec![7; 1 << 20]).expect("an image");
        let image = image.display().to_string();
        plane
            .site
            .cli(["image", "add", "disk", "--file", &image, "--format", "raw"]);
        Self { plane, fleet, switch }
    }

    fn site(&self) -> &Site {
        &self.plane.site
    }

    fn node(&self, index: usize) -> SimNode {
        self.fleet.node(index)
    }

    fn deploy(&self, node: &SimNode) {
        self.site().cli(["node", "deploy", &node.name(), "--image", "disk"]);
    }

    async fn hand_over(&self, node: &SimNode) {
        self.deploy(node);
        self.site().until(&node.name(), &["active"], TEST_LIMIT).await;
    }

    fn release(&self, node: &SimNode) {
        let output = self.site().try_cli(["node", "release", "--yes", &node.name()]);
        assert!(output.status.success(), "{:?}", texts(&output));
    }

    /// Waits until the explanation of a node contains `words`.
    async fn until_explained(&self, node: &SimNode, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let explained = self.site().cli(["node", "explain", &node.name()]);
            if explained.contains(words) {
                return explained;
            }
            assert!(
                begun.elapsed() < TEST_LIMIT,
                "no {words:?}:\n{explained}\n{}",
                self.site().log_tail()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits for an event of that kind about a target.
    async fn until_reported(&self, target: &str, kind: &str) -> String {
        let begun = Instant::now();
        loop {
            let events = self.site().cli(["events", "--target", target, "-o", "json"]);
            if events.contains(kind) {
                return events;
            }
            assert!(
                begun.elapsed() < TEST_LIMIT,
                "no {kind}:\n{events}\n{}",
                self.site().log_tail()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    async fn end(self) {
        self.plane.site.stop().await;
        self.fleet.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_customer_has_a_network_of_its_own_and_a_released_machine_leaves_it_first() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 2).await;
    let (one, two) = (hall.node(0), hall.node(1));
    hall.until_port(0, PROVISIONING).await;
    hall.hand_over(&one).await;
    hall.hand_over(&two).await;
    assert_eq!(hall.switch.port(&port(0)), Some((100, false)));
    assert_eq!(hall.switch.port(&port(1)), Some((101, false)));
    let explained = hall.site().cli(["node", "explain", &one.name()]);
    assert!(
        explained.contains("customer, VLAN 100: leaf-1/swp0 proven"),
        "{explained}"
    );
    hall.release(&one);
    hall.site().until(&one.name(), &["available"], TEST_LIMIT).await;
    assert_eq!(hall.switch.history(&port(0)), [10, 100, 20, 10]);
    assert_eq!(hall.switch.port(&port(1)), Some((101, false)), "no other port is moved");
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_the_switch_leaves_with_the_customer_holds_the_machine_before_the_erase_and_before_the_hand_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 1).await;
    let node = hall.node(0);
    // The switch accepts the change to the customer's network and does not make it.
    hall.switch.keep(&port(0), true);
    hall.deploy(&node);
    let explained = hall
        .until_explained(&node, "the next try of set-network-customer")
        .await;
    assert!(
        explained.contains("switch leaf-1, port swp0: VLAN 100 was set, but the port is in VLAN 10, isolated"),
        "{explained}"
    );
    assert_eq!(hall.site().state(&node.name()), "validating", "it is not handed over");
    hall.switch.keep(&port(0), false);
    hall.site().until(&node.name(), &["active"], TEST_LIMIT).await;
    // The same at the release: the machine is powered off, and does not boot in the customer's network.
    hall.switch.keep(&port(0), true);
    let boots = node.view().boots;
    hall.release(&node);
    let explained = hall
        .until_explained(&node, "the next try of set-network-provisioning")
        .await;
    assert!(explained.contains("but the port is in VLAN 100"), "{explained}");
    assert_eq!(node.view().boots, boots, "it is not booted");
    assert_eq!(hall.site().state(&node.name()), "reclaiming");
    hall.switch.keep(&port(0), false);
    hall.site().until(&node.name(), &["available"], TEST_LIMIT).await;
    hall.until_port(0, PROVISIONING).await;
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_or_lying_switch_gets_no_machine_imaged() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 1).await;
    let node = hall.node(0);
    let boots = node.view().boots;
    hall.switch.answer(AnswerMode::None);
    hall.until_reported("switches/leaf-1", "ethernet.unread").await;
    hall.deploy(&node);
    hall.until_explained(&node, "switch leaf-1 did not answer within 2 s")
        .await;
    hall.switch.answer(AnswerMode::Noise);
    hall.until_explained(&node, "switch leaf-1 sent an invalid answer")
        .await;
    assert_eq!(hall.site().state(&node.name()), "imaging");
    assert_eq!(node.view().boots, boots, "it is not booted");
    hall.switch.answer(AnswerMode::Good);
    hall.site().until(&node.name(), &["active"], TEST_LIMIT).await;
    hall.until_reported("switches/leaf-1", "ethernet.read-again").await;
    hall.end().await;
}

impl<S> Hall<S> {
    /// Another host answers at the address of the switch, and everything correctly. `words` name the reason of the refusal: the
    /// host gets no request to move a port, and the machine is neither booted nor imaged. `moves` reads the port's moves.
    async fn refuses_the_host<T: PartialEq + std::fmt::Debug>(&self, words: &str, moves: impl Fn() -> T) {
        let node = self.node(0);
        let boots = node.view().boots;
        let events = self.until_reported("switches/leaf-1", "ethernet.unread").await;
        assert!(events.contains(words), "{events}");
        let before = moves();
        self.deploy(&node);
        self.until_explained(&node, words).await;
        assert_eq!(self.site().state(&node.name()), "imaging");
        assert_eq!(node.view().boots, boots, "it is not booted");
        assert_eq!(moves(), before, "the host gets no request");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_answers_at_the_address_of_a_switch_is_refused_and_gets_no_machine_imaged() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 1).await;
    hall.switch.answer(AnswerMode::OtherHost);
    let words = format!(
        "switch leaf-1 at {} is not proven: a server with another certificate",
        hall.switch.address()
    );
    hall.refuses_the_host(&words, || hall.switch.history(&port(0))).await;
    hall.switch.answer(AnswerMode::Good);
    hall.site().until(&hall.node(0).name(), &["active"], TEST_LIMIT).await;
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_another_ssh_host_key_at_the_address_of_a_switch_is_refused_and_gets_no_machine_imaged() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start_netconf(dir.path(), 1).await;
    let node = hall.node(0);
    let boots = node.view().boots;
    hall.switch.answer(AnswerMode::OtherHost);
    let words = format!(
        "switch leaf-1 at {} is not proven: a server with another host key",
        hall.switch.address()
    );
    hall.refuses_the_host(&words, || hall.switch.history(&port(0))).await;
    // A silent and a lying server get no machine imaged, too.
    hall.switch.answer(AnswerMode::None);
    hall.until_explained(&node, "switch leaf-1 did not answer within 2 s")
        .await;
    hall.switch.answer(AnswerMode::Noise);
    hall.until_explained(&node, "switch leaf-1 sent an invalid answer")
        .await;
    assert_eq!(node.view().boots, boots, "it is not booted");
    // The switch itself moves the port at each step of the machine's life.
    hall.switch.answer(AnswerMode::Good);
    hall.site().until(&node.name(), &["active"], TEST_LIMIT).await;
    assert_eq!(hall.switch.vlan(&port(0)), Some(100));
    let explained = hall.site().cli(["node", "explain", &node.name()]);
    assert!(
        explained.contains("customer, VLAN 100: leaf-1/swp0 proven"),
        "{explained}"
    );
    hall.release(&node);
    hall.site().until(&node.name(), &["available"], TEST_LIMIT).await;
    assert_eq!(hall.switch.history(&port(0)), [10, 100, 20, 10]);
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_moved_by_hand_is_noticed_and_moved_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 2).await;
    let (one, two) = (hall.node(0), hall.node(1));
    hall.hand_over(&one).await;
    hall.hand_over(&two).await;
    // An operator moves a customer's machine into another customer's network by hand.
    hall.switch.set_vlan(&port(1), 100);
    let target = format!("nodes/{}", two.name());
    let events = hall.until_reported(&target, "security.port-moved").await;
    assert!(
        events.contains("switch leaf-1, port swp1: the port is in VLAN 100, and VLAN 101 was proven"),
        "{events}"
    );
    hall.until_port(1, (101, false)).await;
    hall.until_explained(&two, "customer, VLAN 101: leaf-1/swp1 proven")
        .await;
    assert_eq!(hall.site().state(&two.name()), "active");
    // A quarantined machine is isolated.
    hall.site()
        .cli(["node", "quarantine", &one.name(), "--reason", "suspect", "--yes"]);
    hall.until_port(0, QUARANTINE).await;
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_cables_that_are_exchanged_are_named_on_both_machines_and_hold_them_until_they_are_put_right() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start_with(dir.path(), 3, "  cabling: hold\n").await;
    let (one, two, silent) = (hall.node(0), hall.node(1), hall.node(2));
    one.cable_to("leaf-1.dc.example", "swp1");
    two.cable_to("leaf-1.dc.example", "swp0");
    for node in [&one, &two, &silent] {
        hall.deploy(node);
    }
    // A switch without LLDP does not hold up a machine.
    hall.site().until(&silent.name(), &["active"], TEST_LIMIT).await;
    for (node, other, found, wanted) in [(&one, &two, "swp1", "swp0"), (&two, &one, "swp0", "swp1")] {
        let difference = format!(
            "net0 is cabled to leaf-1/{found}, the port of {}, net0; the site file says leaf-1/{wanted}",
            other.name()
        );
        hall.until_explained(node, &format!("waiting for a cable to be corrected: {difference}"))
            .await;
        let explained = hall
            .until_explained(
                node,
                &format!(
                    "the two cables are exchanged: {}, net0 is cabled to leaf-1/{wanted}",
                    other.name()
                ),
            )
            .await;
        assert!(explained.contains("cabling"), "{explained}");
        let events = hall
            .until_reported(&format!("nodes/{}", node.name()), "ethernet.cabling")
            .await;
        assert_eq!(events.matches(&difference).count(), 1, "{events}");
        assert_eq!(hall.site().state(&node.name()), "imaging");
        let shown = hall.site().cli(["node", "get", &node.name(), "-o", "json"]);
        assert!(shown.contains(&format!("leaf-1/{found}")), "{shown}");
    }
    let silent = hall.site().cli(["node", "explain", &silent.name()]);
    assert!(silent.contains("no LLDP frame was ever received"), "{silent}");
    one.cable_to("leaf-1.dc.example", "swp0");
    two.cable_to("leaf-1.dc.example", "swp1");
    for (node, port) in [(&one, "swp0"), (&two, "swp1")] {
        hall.site().until(&node.name(), &["active"], TEST_LIMIT).await;
        hall.until_reported(&format!("nodes/{}", node.name()), "ethernet.cabling-right")
            .await;
        let explained = hall.site().cli(["node", "explain", &node.name()]);
        assert!(
            explained.contains(&format!("net0 is cabled to leaf-1/{port}")),
            "{explained}"
        );
    }
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lldp_reports_move_no_port_and_hold_no_machine_of_a_site_that_only_records() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 2).await;
    let (one, two) = (hall.node(0), hall.node(1));
    // A host on the wire claims to be at another machine's port.
    one.cable_to("leaf-1", "swp1");
    hall.hand_over(&one).await;
    let events = hall
        .until_reported(&format!("nodes/{}", one.name()), "ethernet.cabling")
        .await;
    assert!(
        events.contains(&format!(
            "net0 is cabled to leaf-1/swp1, the port of {}, net0",
            two.name()
        )),
        "{events}"
    );
    assert_eq!(hall.switch.port(&port(0)), Some((100, false)));
    hall.until_port(1, PROVISIONING).await;
    assert_eq!(hall.switch.history(&port(1)), [10], "the named port stays where it was");
    hall.end().await;
}

/// A DHCP message about an unknown machine, with these options.
fn dhcp(operation: u8, options: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 240];
    packet[..4].copy_from_slice(&[operation, 1, 6, 0]);
    packet[28..34].copy_from_slice(&[0x52, 0x54, 0, 0xee, 0, 1]);
    packet[236..].copy_from_slice(&[99, 130, 83, 99]);
    packet.extend(options);
    packet.push(255);
    packet
}

/// A DHCPOFFER of another server.
fn offer(server: [u8; 4]) -> Vec<u8> {
    let mut packet = dhcp(2, &[&[53, 1, 2, 54, 4][..], &server].concat());
    packet[16..20].copy_from_slice(&[127, 128, 9, 9]);
    packet[20..24].copy_from_slice(&server);
    packet
}

/// A DHCPDECLINE: the machine found this address in use.
fn decline(address: [u8; 4]) -> Vec<u8> {
    dhcp(1, &[&[53, 1, 4, 50, 4][..], &address].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rogue_dhcp_server_and_an_address_in_use_are_reported_and_machines_still_boot() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 1).await;
    let rogue = UdpSocket::bind("127.0.0.9:0").expect("a socket");
    rogue
        .send_to(&offer([192, 0, 2, 66]), hall.plane.dhcp)
        .expect("an offer that reaches us, too");
    let events = hall.until_reported("boot-network", "security.rogue-dhcp").await;
    assert!(events.contains("another DHCP server, 192.0.2.66"), "{events}");
    rogue
        .send_to(&decline([127, 128, 1, 9]), hall.plane.dhcp)
        .expect("a machine declines an address");
    let events = hall.until_reported("boot-network", "security.address-conflict").await;
    let words = "52:54:00:ee:00:01 reports that another machine on the link uses 127.128.1.9";
    assert!(events.contains(words), "{events}");
    hall.hand_over(&hall.node(0)).await;
    hall.end().await;
}
