//! Erase certificates without support by the facts. The attacker is the agent of a released machine: it erases nothing and
//! reports false results. The machines are simulated; BMC, boot, registration and jobs use real sockets.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use rackwright_api::v1::{EraseDrivesResult, EraseMethod, Inventory};
use rackwright_sim::fleet::{Fleet, FleetConfig, Format, Profile, SimNode};
use rackwright_sim::install_crypto;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{Site, texts};
use serde_json::Value;

/// Generous: the control plane shares the computer with other tests.
pub(crate) const TEST_LIMIT: Duration = Duration::from_secs(120);

/// A control plane on the loopback interface, and machines with an installed system.
pub(crate) struct Target {
    pub(crate) site: Site,
    pub(crate) fleet: Fleet,
}

impl Target {
    /// Starts both. `prepare` sees each machine before the machine is enrolled.
    pub(crate) async fn start(dir: &Path, config: FleetConfig, prepare: impl Fn(usize, &SimNode)) -> Self {
        Self::start_with(dir, config, ", power_off_s: 1", prepare).await
    }

    /// Starts both, with further settings of the policy.
    pub(crate) async fn start_with(
        dir: &Path,
        config: FleetConfig,
        policy: &str,
        prepare: impl Fn(usize, &SimNode),
    ) -> Self {
        install_crypto();
        let [api, store, dhcp, tftp, http] = std::array::from_fn(|_| free_port());
        for file in ["vmlinuz", "initrd", "snponly.efi", "ipxe.efi"] {
            std::fs::write(dir.join(file), file.repeat(10_000)).expect("the file can be written");
        }
        let at = dir.display();
        let settings = format!(
            "data_dir: {at}/data\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
             store: {{listen: \"127.0.0.1:{store}\"}}\n\
             boot:\n  ramdisk: {{kernel: {at}/vmlinuz, initrd: {at}/initrd}}\n  network:\n    \
             server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    tftp_port: {tftp}\n    \
             http_port: {http}\n    first_stages: {{snponly.efi: {at}/snponly.efi, ipxe.efi: {at}/ipxe.efi}}\n    \
             dhcp:\n      server:\n        subnets:\n        - network: 127.128.0.0/10\n          \
             pool: {{first: 127.128.1.0, last: 127.128.1.255}}\n\
             policy: {{backoff_s: 1, backoff_max_s: 5, tries: 2, agent_grace_s: 2, agent_boot_s: 60{policy}}}\n"
        );
        let site = Site::start_with(dir, &settings).await;
        let config = FleetConfig {
            boot_server: Some(SocketAddrV4::new([127, 0, 0, 1].into(), dhcp)),
            tftp_port: tftp,
            ..config
        };
        let fleet = Fleet::start(config).await.expect("the fleet starts");
        for index in 0..fleet.nodes() {
            prepare(index, &fleet.node(index));
        }
        let target = Self { site, fleet };
        target.install().await;
        target
    }

    /// Enrols the machines and writes an image to each.
    async fn install(&self) {
        let (site, dir) = (&self.site, self.site.dir());
        let mut nodes = Vec::new();
        self.fleet
            .describe(Format::Yaml, None, &mut nodes)
            .expect("the fleet can be described");
        let file = dir.join("nodes.yaml");
        std::fs::write(&file, nodes).expect("the file can be written");
        site.cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]);
        let image = dir.join("disk.raw");
        let content: Vec<u8> = (0..8_u32 << 18)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        std::fs::write(&image, content).expect("the image can be written");
        site.cli(["image", "add", "disk", "--file", &image.display().to_string()]);
        for id in self.names() {
            let state = site.until(&id, &["available", "failed"], TEST_LIMIT).await;
            assert_eq!(state, "available", "{id}: {}", site.reason(&id));
            site.cli(["node", "deploy", &id, "--image", "disk"]);
        }
        for id in self.names() {
            site.until(&id, &["rebooting"], TEST_LIMIT).await;
        }
    }

    fn names(&self) -> Vec<String> {
        (0..self.fleet.nodes())
            .map(|index| self.fleet.node(index).name())
            .collect()
    }

    /// Releases or readmits a machine and waits for the end. Returns the state.
    pub(crate) fn erased_by(&self, index: usize, words: &[&str]) -> String {
        let id = self.fleet.node(index).name();
        let all = [&["node"][..], words, &["--yes", "--wait", &id]].concat();
        // The command fails if the node ends in quarantine.
        let output = self.site.try_cli(all);
        assert!(
            output.status.code().is_some_and(|code| matches!(code, 0 | 7)),
            "{:?}",
            texts(&output)
        );
        self.site.state(&id)
    }

    /// Releases or readmits a machine, and expects it to be free afterwards.
    pub(crate) fn is_erased(&self, index: usize, words: &[&str]) {
        let state = self.erased_by(index, words);
        let id = self.fleet.node(index).name();
        assert_eq!(state, "available", "{id} after {words:?}: {}", self.site.reason(&id));
    }

    pub(crate) fn certificates(&self, index: usize) -> Vec<Value> {
        let id = self.fleet.node(index).name();
        let list = self.site.json(["node", "certificates", &id]);
        list.as_array().cloned().unwrap_or_default()
    }

    /// Expects the machine in quarantine with these words, no certificate, and an event with the difference.
    pub(crate) async fn is_refused(&self, index: usize, words: &[&str]) {
        let (site, node) = (&self.site, self.fleet.node(index));
        let id = node.name();
        let reason = site.reason(&id);
        for word in words {
            assert!(reason.contains(word), "{word:?} is not in the reason of {id}: {reason}");
        }
        assert_eq!(site.state(&id), "quarantined", "{id}: {reason}");
        assert_eq!(self.certificates(index), [] as [Value; 0], "{id}: {reason}");
        let events = site.cli(["events", "--target", &format!("nodes/{id}"), "-o", "json"]);
        assert!(events.contains("effect.failed"), "{events}");
        assert_eq!(
            events.contains("drives.differ"),
            reason.contains("differ from the record"),
            "{events}"
        );
    }

    pub(crate) async fn end(self) {
        // Stopped first: the control plane logs out of each BMC.
        self.site.stop().await;
        self.fleet.stop().await;
    }
}

fn witnesses(certificate: &Value) -> Vec<&str> {
    let list = certificate["witnesses"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// Large machines: the bytes of their drives need minutes on a link, however slow the test's computer is.
fn large(nodes: usize) -> FleetConfig {
    FleetConfig {
        nodes,
        profile: Profile::DgxH100,
        speed: 200.0,
        ..FleetConfig::default()
    }
}

/// Bytes of the second namespace, on the machine that has one.
const SECOND: u64 = 40_000_000_000;

/// Splits the machine's first drive into two namespaces.
fn two_namespaces(inventory: &mut Inventory) {
    let mut second = inventory.drives[0].clone();
    second.name = "nvme0n2".into();
    second.size_bytes = SECOND;
    inventory.drives[0].size_bytes -= SECOND;
    inventory.drives.push(second);
}

fn yesterday(time: &mut Option<prost_types::Timestamp>) {
    if let Some(time) = time {
        time.seconds -= 24 * 60 * 60;
    }
}

type Lie = fn(&mut EraseDrivesResult);

/// The false report of each agent, and words of the refusal.
const LIES: [(&str, Lie, &[&str]); 9] = [
    (
        "a shrunk drive",
        |report| report.drives[0].size_bytes /= 2,
        &[
            "size 1920383410176 bytes recorded by the inspection on 20",
            "960191705088 bytes reported",
            "--accept-drives",
        ],
    ),
    (
        "an enlarged drive that was overwritten in no time",
        |report| {
            report.drives[0].size_bytes = 20_000_000_000_000;
            report.drives[0].set_method(EraseMethod::Overwrite);
        },
        &["recorded by the BMC on 20", "20000000000000 bytes reported"],
    ),
    (
        "another serial number",
        |report| report.drives[0].serial_number = "FORGED-1".into(),
        &["FORGED-1"],
    ),
    (
        "another model",
        |report| report.drives[0].model = "Other".into(),
        &["model", "\"Other\" reported"],
    ),
    (
        "a hidden namespace",
        |report| report.drives[0].size_bytes -= SECOND,
        &["number of namespaces 2 recorded", "1 reported"],
    ),
    (
        "a drive more",
        |report| {
            let mut more = report.drives[0].clone();
            (more.drive_name, more.serial_number) = ("nvme7n1".into(), "MORE-1".into());
            report.drives.push(more);
        },
        &["nvme7n1 (serial number MORE-1): reported, not recorded"],
    ),
    (
        "an overwrite that is faster than the link",
        |report| report.drives[0].set_method(EraseMethod::Overwrite),
        &[
            "5761150230528 bytes have to cross its link (NVMe, at most 32000 MB/s)",
            "180.036 s or more",
        ],
    ),
    (
        "a zero check that is faster than the link",
        |report| report.drives[0].set_method(EraseMethod::DiscardZeroed),
        &["1920383410176 bytes have to cross its link"],
    ),
    (
        "times of yesterday",
        |report| {
            yesterday(&mut report.drives[0].start_time);
            yesterday(&mut report.drives[0].end_time);
        },
        &["but the job ran from"],
    ),
];
/// Index of the lie with another serial number: the inventory lies too.
const SERIAL: usize = 2;
/// Index of the lie with the hidden namespace.
const NAMESPACES: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_lies_about_an_erase_gets_no_certificate_and_an_honest_agent_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let honest = LIES.len();
    let target = Target::start(dir.path(), large(honest + 1), |index, node| {
        if index == NAMESPACES {
            node.forge_inventory(two_namespaces);
        }
    })
    .await;
    for (index, (_, lie, _)) in LIES.iter().enumerate() {
        let (node, lie) = (target.fleet.node(index), *lie);
        if index == NAMESPACES {
            node.forge_inventory(|inventory| inventory.drives[0].size_bytes -= SECOND);
        }
        if index == SERIAL {
            node.forge_inventory(|inventory| inventory.drives[0].serial_number = "FORGED-1".into());
        }
        node.forge_erase(lie);
    }
    for id in target.names() {
        target.site.cli(["node", "release", "--yes", &id]);
    }
    for (index, (what, _, words)) in LIES.iter().enumerate() {
        let node = target.fleet.node(index);
        let state = target
            .site
            .until(&node.name(), &["available", "quarantined"], TEST_LIMIT)
            .await;
        assert_eq!(state, "quarantined", "{what}");
        target.is_refused(index, words).await;
        assert!(node.installed().is_some(), "{what}: the drive was not touched");
    }
    let node = target.fleet.node(honest);
    let state = target
        .site
        .until(&node.name(), &["available", "quarantined"], TEST_LIMIT)
        .await;
    assert_eq!(state, "available", "{}", target.site.reason(&node.name()));
    let certificates = target.certificates(honest);
    assert_eq!(certificates.len(), 10, "{certificates:?}");
    assert!(
        certificates.iter().all(|c| witnesses(c) == ["bmc", "inspection"]),
        "{certificates:?}"
    );
    assert!(node.installed().is_none());
    target.site.cli(["node", "certificates", "--verify", &node.name()]);
    target.end().await;
}

/// A drive that the agent hides is not a missing drive while the BMC lists it: readmission requires it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_the_bmc_lists_cannot_be_hidden() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::start(dir.path(), large(1), |_, _| {}).await;
    let node = target.fleet.node(0);
    node.forge_inventory(|inventory| _ = inventory.drives.pop());
    node.forge_erase(|report| _ = report.drives.pop());
    let hidden = node.drives().all()[9].serial().to_owned();
    for words in [["release"], ["readmit"]] {
        let state = target.erased_by(0, &words);
        assert_eq!(state, "quarantined", "{words:?}");
        target
            .is_refused(0, &[&hidden, "recorded by the BMC", "not reported"])
            .await;
    }
    // The agent is honest again: every drive is erased and certified.
    node.end_forgeries();
    target.is_erased(0, &["readmit"]);
    let certificates = target.certificates(0);
    assert_eq!(certificates.len(), 10, "{certificates:?}");
    assert!(
        certificates.iter().all(|c| witnesses(c) == ["bmc", "inspection"]),
        "{certificates:?}"
    );
    target.end().await;
}

/// Only an operator's explicit confirmation replaces the record, and the certificates name the operator as the witness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_drives_are_certified_only_after_an_operator_accepted_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::start(dir.path(), FleetConfig::default(), |_, _| {}).await;
    let node = target.fleet.node(0);
    node.forge_inventory(|inventory| inventory.drives[0].serial_number = "NEW-1".into());
    node.forge_erase(|report| report.drives[0].serial_number = "NEW-1".into());
    assert_eq!(target.erased_by(0, &["release"]), "quarantined");
    target
        .is_refused(0, &["NEW-1", "reported, not recorded by the inspection"])
        .await;
    assert_eq!(target.erased_by(0, &["readmit"]), "quarantined");
    target.is_refused(0, &["NEW-1"]).await;
    target.is_erased(0, &["readmit", "--accept-drives"]);
    let certificates = target.certificates(0);
    assert_eq!(certificates.len(), 1, "{certificates:?}");
    assert_eq!(certificates[0]["drive_serial"], "NEW-1");
    assert_eq!(witnesses(&certificates[0]), ["operator"], "{certificates:?}");
    let events = target
        .site
        .cli(["events", "--target", &format!("nodes/{}", node.name()), "-o", "json"]);
    assert!(events.contains("drives.accepted"), "{events}");
    target.end().await;
}

/// A node is not given to any customer while its BMC and its agent disagree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inspection_that_the_bmc_contradicts_is_not_accepted() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::start(dir.path(), FleetConfig::default(), |_, _| {}).await;
    let id = target.fleet.node(0).name();
    target.is_erased(0, &["release"]);
    target
        .fleet
        .node(0)
        .forge_inventory(|inventory| inventory.drives[0].size_bytes *= 11);
    target.site.cli(["node", "hold", &id, "--reason", "a look at it"]);
    target.site.until(&id, &["maintenance"], TEST_LIMIT).await;
    target.site.cli(["node", "resume", &id]);
    assert_eq!(
        target.site.until(&id, &["available", "failed"], TEST_LIMIT).await,
        "failed"
    );
    let reason = target.site.reason(&id);
    assert!(
        reason.contains("1099999977472 bytes reported") && reason.contains("by the BMC on"),
        "{reason}"
    );
    let refused = target
        .site
        .try_cli(["node", "readmit", "--yes", "--accept-drives", "nobody"]);
    assert!(!refused.status.success());
    target.end().await;
}
