//! A customer changes the firmware of a machine.

use rackwright_sim::fleet::Fleet;
use rackwright_tests::site::Site;
use serde_json::Value;
use tempfile::TempDir;

use crate::machine::{self, KEY, TEST_LIMIT};

const NOT_GOLDEN: &str = "security.firmware-not-golden";

/// A control plane and two machines of one SKU with the same firmware.
pub struct Bench {
    pub site: Site,
    pub fleet: Fleet,
    _dir: TempDir,
}

impl Bench {
    pub async fn start(more: &str) -> Self {
        Self::start_fitted(more, &[]).await
    }

    /// Starts with these components in each machine.
    pub async fn start_fitted(more: &str, components: &[&str]) -> Self {
        let setup = machine::Setup {
            nodes: 2,
            more,
            ..machine::Setup::default()
        };
        let fit = |fleet: &Fleet| {
            for (index, component) in [0, 1]
                .into_iter()
                .flat_map(|index| components.iter().map(move |one| (index, one)))
            {
                fleet.node(index).fit_component(component).expect("it has a key");
            }
        };
        let machine::Bench { site, fleet, dir, .. } = setup.start(fit).await;
        Self { site, fleet, _dir: dir }
    }

    pub fn ids(&self) -> [String; 2] {
        [0, 1].map(|index| self.fleet.node(index).name())
    }

    pub async fn until(&self, id: &str, state: &str) {
        self.site.until(id, &[state], TEST_LIMIT).await;
    }

    pub fn deploy(&self, id: &str) {
        self.site
            .cli(["node", "deploy", id, "--image", "disk", "--ssh-key", KEY]);
    }

    /// Approves a node's values if they equal these values. Returns the id of the approved values.
    pub fn approve(&self, id: &str, values: Option<&str>) -> String {
        let words = [
            "firmware",
            "golden",
            "add",
            "--from-node",
            id,
            "--reason",
            "looked at it",
        ];
        let values = values.map(|values| ["--values", values]);
        let words = words.into_iter().chain(values.into_iter().flatten());
        let output = self.site.cli(words);
        let at = output.split_whitespace().nth(2).expect("\"golden values ID approved\"");
        at.to_owned()
    }

    pub fn events(&self, id: &str) -> Vec<Value> {
        let target = format!("nodes/{id}");
        let events = self.site.cli(["events", "--target", &target, "-o", "json"]);
        serde_json::Deserializer::from_str(&events)
            .into_iter::<Value>()
            .map(|event| event.expect("events are JSON"))
            .filter(|event| event["kind"] == NOT_GOLDEN)
            .collect()
    }

    pub fn explained(&self, id: &str) -> String {
        self.site.cli(["node", "explain", id])
    }

    /// The customer writes other firmware to the machine, and a certificate for starting other programs.
    fn tamper(&self, index: usize) {
        let node = self.fleet.node(index);
        let tpm = node.tpm().expect("it has one");
        let changed = tpm.with_firmware("simulated firmware 1+").with_variable("db", b"mine");
        node.set_tpm(Some(changed));
    }

    pub async fn end(self) {
        self.site.stop().await;
        self.fleet.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_with_firmware_that_a_customer_changed_is_held_until_an_operator_approves_it() {
    let bench = Bench::start("identity: {firmware: hold}\n").await;
    let [attacked, honest] = bench.ids();
    // No firmware is approved yet, so no machine passes.
    for id in [&attacked, &honest] {
        bench.until(id, "failed").await;
        let reason = bench.site.reason(id);
        assert!(
            reason.contains("no golden values") && reason.contains("firmware golden add"),
            "{reason}"
        );
    }
    let first = bench.approve(&attacked, None);
    assert_eq!(bench.approve(&honest, None), first, "one SKU and one firmware");
    for id in [&attacked, &honest] {
        bench.site.cli(["node", "retry", id]);
        bench.until(id, "available").await;
        assert!(
            bench
                .explained(id)
                .contains(&format!("golden values {first}, approved by"))
        );
    }
    bench.deploy(&attacked);
    bench.until(&attacked, "active").await;
    let before = bench.events(&attacked).len();
    bench.tamper(0);
    bench.site.cli(["node", "release", "--yes", &attacked]);
    bench.until(&attacked, "quarantined").await;
    let reason = bench.site.reason(&attacked);
    for words in [
        "PCR 0 (firmware code)",
        "PCR 7 (Secure Boot policy)",
        "variable \"db\" is ",
        &first,
    ] {
        assert!(reason.contains(words), "{words}: {reason}");
    }
    assert!(reason.contains("No update by Rackwright explains it"), "{reason}");
    assert!(bench.fleet.node(0).installed().is_some(), "it did not erase either");
    let events = bench.events(&attacked);
    assert_eq!(events.len(), before + 1, "two sessions, one event: {events:?}");
    let attributes = &events[before]["attributes"];
    assert_eq!(attributes["golden"], first.as_str());
    for name in ["pcr_0_expected", "pcr_0_found", "pcr_7_expected", "pcr_7_found"] {
        let value = attributes[name].as_str().unwrap_or_default();
        assert!(value.starts_with("sha256:"), "{name}: {attributes}");
    }
    assert!(attributes["pcr_2_found"].is_null(), "{attributes}");

    // The honest machine continues meanwhile.
    bench.deploy(&honest);
    bench.until(&honest, "active").await;

    // The operator inspected other values than the machine's, so they are not approved.
    let wrong = [
        "firmware",
        "golden",
        "add",
        "--from-node",
        &attacked,
        "--reason",
        "x",
        "--values",
        &first,
    ];
    assert!(!bench.site.try_cli(wrong).status.success());
    let second = bench.approve(&attacked, None);
    assert!(reason.contains(&format!("--values {second}")), "{reason}");
    bench.site.cli(["node", "readmit", "--yes", &attacked]);
    bench.until(&attacked, "available").await;
    assert!(bench.explained(&attacked).contains(&format!("golden values {second}")));

    // Both firmwares are approved now.
    let list = bench.site.cli(["firmware", "golden", "list"]);
    assert!(list.contains(&first) && list.contains(&second), "{list}");
    let explained = bench.explained(&honest);
    assert!(explained.contains(&format!("golden values {first}")), "{explained}");
    bench.deploy(&attacked);
    bench.until(&attacked, "active").await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_reports_other_firmware_once_and_holds_nothing() {
    let bench = Bench::start("identity: {firmware: alarm}\n").await;
    let [attacked, honest] = bench.ids();
    for id in [&attacked, &honest] {
        bench.until(id, "available").await;
        let events = bench.events(id);
        assert!(
            events.len() == 1 && events[0].to_string().contains("no golden values"),
            "{events:?}"
        );
    }
    let golden = bench.approve(&honest, None);
    bench.tamper(0);
    for id in [&attacked, &honest] {
        // At least two sessions.
        bench.deploy(id);
        bench.until(id, "active").await;
        bench.site.cli(["node", "release", "--yes", id]);
        bench.until(id, "available").await;
    }
    let events = bench.events(&attacked);
    assert!(
        events.len() == 2 && events[1].to_string().contains("PCR 7"),
        "{events:?}"
    );
    assert_eq!(bench.events(&honest).len(), 1);
    assert!(bench.explained(&attacked).contains("PCR 0 (firmware code)"));
    // Removed values are no longer golden.
    bench.site.cli(["firmware", "golden", "remove", &golden]);
    bench.deploy(&honest);
    bench.until(&honest, "active").await;
    assert_eq!(bench.events(&honest).len(), 2);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_tpm_is_held_where_firmware_has_to_be_approved() {
    let bench = Bench::start("identity: {tpm: none, address_only: allow, firmware: hold}\n").await;
    let [first, _] = bench.ids();
    bench.until(&first, "failed").await;
    let reason = bench.site.reason(&first);
    assert!(reason.contains("no enrolled TPM"), "{reason}");
    assert!(bench.explained(&first).contains("unknown: no enrolled TPM"));
    bench.end().await;
}
