//! `kill -9` of the control plane in every phase of a real deploy and release: nothing is lost, and nothing destructive
//! is done twice. The agent's own console is the witness.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rackwright_lifecycle::{Effect, Outcome};
use rackwright_sim::lab::{self, Firmware, Lab, LabConfig};
use rackwright_store::Store;
use rackwright_tests::site::{Settings, Site};

const LIMIT: Duration = Duration::from_secs(600);

/// Kills and restarts the control plane once shortly after each phase was seen, until the node gets to `end`.
async fn kill_in_every_phase(site: &mut Site, end: &str) -> BTreeSet<String> {
    let mut killed = BTreeSet::new();
    let deadline = Instant::now() + LIMIT;
    loop {
        let state = site.state("n1");
        assert_ne!(state, "failed", "{}\n{}", site.reason("n1"), site.log_tail());
        if state == end {
            return killed;
        }
        assert!(
            Instant::now() < deadline,
            "still {state} after {LIMIT:?}\n{}",
            site.log_tail()
        );
        if killed.insert(state) {
            site.kill().await;
            site.restart().await;
            continue;
        }
        // In the middle of a phase too: what hurts most is what was begun.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let again = format!("{} again", site.state("n1"));
        if !again.starts_with(end) && killed.insert(again) {
            site.kill().await;
            site.restart().await;
        }
    }
}

fn again(phases: BTreeSet<String>) -> BTreeSet<String> {
    phases.into_iter().map(|phase| format!("reimage: {phase}")).collect()
}

async fn operations_of(site: &Site, effect: Effect) -> Vec<rackwright_store::EffectRow> {
    let store = Store::open(&site.dir().join("data/rackwright.db"))
        .await
        .expect("the database opens");
    store.tries_of("n1", effect).await.expect("tries can be read")
}

#[test]
fn killed_in_every_phase_a_deploy_and_a_release_end_well() {
    lab::run_test(
        "killed_in_every_phase_a_deploy_and_a_release_end_well",
        async |namespace| {
            let config = LabConfig {
                firmware: Firmware::Bios,
                ..LabConfig::default()
            };
            let lab = Lab::start(&namespace, config).await.expect("the lab starts");
            let mut site = Site::start(&namespace.state_dir().join("site"), &Settings::default()).await;
            site.add_image("tiny", "tiny.raw.zst");

            site.enroll("n1", lab.machine(0));
            let mut killed = kill_in_every_phase(&mut site, "available").await;
            site.cli(["node", "deploy", "n1", "--image", "tiny"]);
            killed.extend(kill_in_every_phase(&mut site, "active").await);
            site.cli(["node", "reimage", "n1", "--image", "tiny", "--yes"]);
            site.until("n1", &["imaging"], LIMIT).await;
            killed.extend(again(kill_in_every_phase(&mut site, "active").await));
            site.cli(["node", "release", "n1", "--yes"]);
            killed.extend(kill_in_every_phase(&mut site, "available").await);
            let phases = ["inspecting", "imaging", "rebooting", "validating", "reclaiming"];
            for phase in phases
                .into_iter()
                .chain(["reimage: imaging", "reimage: rebooting", "reimage: validating"])
            {
                assert!(
                    killed.contains(phase),
                    "the control plane was not killed in {phase}: {killed:?}"
                );
            }

            let console = lab.machine(0).serial_log();
            for (effect, wanted) in [(Effect::WriteImage, 2), (Effect::EraseDrives, 1)] {
                let rows = operations_of(&site, effect).await;
                let done = rows.iter().filter(|r| r.attempt.outcome == Outcome::Succeeded).count();
                assert_eq!(done, wanted, "{effect:?}: {rows:?}");
                let mut begun = 0;
                for row in &rows {
                    let times = console
                        .lines()
                        .filter(|l| l.contains("job begins") && l.contains(&row.id))
                        .count();
                    assert!(times <= 1, "the agent began {} {times} times", row.id);
                    begun += times;
                }
                assert_eq!(
                    begun, wanted,
                    "{effect:?} was begun {begun} times on the machine: {rows:?}"
                );
            }
            let certificates = site.json(["node", "certificates", "n1"]);
            assert_eq!(certificates.as_array().map(Vec::len), Some(1), "{certificates}");
            lab.stop().await.expect("the lab ends");
        },
    );
}
