//! `kill -9` of the control plane in every phase of a real deploy and release: nothing is lost, and no destructive step
//! is done twice. The agent's own console is the witness.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rackwright_lab::{self as lab, Firmware, Lab, LabConfig, Machine};
use rackwright_lifecycle::{Effect, Outcome};
use rackwright_tests::site::{Settings, Site};
use rackwright_tests::witness::{StartedJobs, begun, running_job, tries};

const LIMIT: Duration = Duration::from_secs(600);
/// Time from the first sight of a phase to its middle.
const MIDDLE: Duration = Duration::from_millis(700);
/// Pause between two readings of the machine's console.
const LOOK: Duration = Duration::from_millis(10);

/// Kills and restarts the control plane until the node reaches `end`: once shortly after the start of each phase, once in
/// its middle, and once during each job of the agent.
async fn kill_in_every_phase(site: &mut Site, machine: &Machine, end: &str) -> BTreeSet<String> {
    let mut killed = BTreeSet::new();
    let mut jobs = BTreeSet::new();
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
        if killed.insert(state.clone()) {
            site.kill().await;
            site.restart().await;
            continue;
        }
        // Also in the middle of a phase, and especially during destructive steps.
        let until = Instant::now() + MIDDLE;
        let at_work = loop {
            match running_job(machine) {
                Some(job) if jobs.insert(job) => break true,
                _ if Instant::now() > until => break false,
                _ => tokio::time::sleep(LOOK).await,
            }
        };
        let what = if at_work { "at work" } else { "again" };
        let is_new = killed.insert(format!("{state}: {what}"));
        if at_work || (is_new && site.state("n1") != end) {
            site.kill().await;
            site.restart().await;
        }
    }
}

fn again(phases: BTreeSet<String>) -> BTreeSet<String> {
    phases.into_iter().map(|phase| format!("reimage: {phase}")).collect()
}

#[test]
fn a_deploy_and_a_release_succeed_after_a_kill_in_every_phase() {
    lab::run_test(
        "a_deploy_and_a_release_succeed_after_a_kill_in_every_phase",
        async |namespace| {
            let config = LabConfig {
                firmware: Firmware::Bios,
                ..LabConfig::default()
            };
            let lab = Lab::start(&namespace, config).await.expect("the lab starts");
            let mut site = Site::start(&namespace.state_dir().join("site"), &Settings::default()).await;
            site.add_image("tiny", "tiny.raw.zst");

            site.enroll("n1", lab.machine(0));
            let mut killed = kill_in_every_phase(&mut site, lab.machine(0), "available").await;
            site.cli(["node", "deploy", "n1", "--image", "tiny"]);
            killed.extend(kill_in_every_phase(&mut site, lab.machine(0), "active").await);
            site.cli(["node", "reimage", "n1", "--image", "tiny", "--yes"]);
            site.until("n1", &["imaging"], LIMIT).await;
            killed.extend(again(kill_in_every_phase(&mut site, lab.machine(0), "active").await));
            site.cli(["node", "release", "n1", "--yes"]);
            killed.extend(kill_in_every_phase(&mut site, lab.machine(0), "available").await);
            for phase in [
                "inspecting",
                "imaging",
                "imaging: at work",
                "rebooting",
                "validating",
                "reclaiming",
                "reclaiming: at work",
                "reimage: imaging",
                "reimage: imaging: at work",
                "reimage: rebooting",
                "reimage: validating",
            ] {
                assert!(
                    killed.contains(phase),
                    "the control plane was not killed in {phase}: {killed:?}"
                );
            }

            let wanted = StartedJobs { writes: 2, erases: 1 };
            assert_eq!(begun(&site, lab.machine(0), "n1").await, wanted);
            for (effect, wanted) in [(Effect::WriteImage, 2), (Effect::EraseDrives, 1)] {
                let rows = tries(&site, "n1", effect).await;
                let done = rows.iter().filter(|r| r.attempt.outcome == Outcome::Succeeded).count();
                assert_eq!(done, wanted, "{effect:?}: {rows:?}");
            }
            let certificates = site.json(["node", "certificates", "n1"]);
            assert_eq!(certificates.as_array().map(Vec::len), Some(1), "{certificates}");
            lab.stop().await.expect("the lab ends");
        },
    );
}
