//! Faults of real machines: each ends in the right state, with the right message, and destroys nothing twice.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rackwright_lab::{self as lab, Firmware, Lab, LabConfig, Namespace, PowerState, SERVER_IPV4};
use rackwright_tests::drive::is_empty;
use rackwright_tests::neighbour::{lease, mac_bytes, on_the_bridge};
use rackwright_tests::site::{BOOT, Settings, Site, serial_tails, texts};
use rackwright_tests::witness::{StartedJobs, begun};

/// BIOS machines: they reach the agent in a third of the time of a UEFI machine.
fn quick(machines: usize) -> LabConfig {
    LabConfig {
        firmware: Firmware::Bios,
        machines,
        ..LabConfig::default()
    }
}

async fn start(namespace: &Namespace, config: LabConfig, settings: &Settings) -> (Lab, Site) {
    let lab = Lab::start(namespace, config).await.expect("the lab starts");
    let site = Site::start(&namespace.state_dir().join("site"), settings).await;
    (lab, site)
}

async fn available(site: &Site, lab: &Lab) {
    site.enroll("n1", lab.machine(0));
    site.until("n1", &["available"], BOOT).await;
}

async fn fails(site: &Site, words: &[&str]) {
    let state = site.until("n1", &["failed", "active"], BOOT).await;
    let reason = site.reason("n1");
    assert_eq!(state, "failed", "{reason}");
    for word in words {
        assert!(reason.contains(word), "{word:?} is not in the reason: {reason}");
    }
    let explained = site.cli(["node", "explain", "n1"]);
    assert!(explained.contains(words[0]), "explain does not show it:\n{explained}");
}

/// TinyOS's console message after a boot from the disk.
const BOOTED: &str = "tinyos: sshd ready";

/// Checks the agent's ledger and the console: the jobs that began, and whether the disk was booted.
async fn check_started_jobs(site: &Site, lab: &Lab, wanted: StartedJobs, is_booted: bool) {
    assert_eq!(begun(site, lab.machine(0), "n1").await, wanted);
    let log = lab.machine(0).serial_log();
    assert_eq!(log.contains(BOOTED), is_booted, "{}", serial_tails(lab));
}

/// Changes one byte of every chunk below `dir` and packs it again: the frames are valid, but their content does
/// not match their names.
fn falsify_chunks(dir: &Path) -> usize {
    let mut done = 0;
    for entry in std::fs::read_dir(dir).expect("the folder can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            done += falsify_chunks(&path);
            continue;
        }
        let frame = std::fs::read(&path).expect("the chunk reads");
        let mut chunk = zstd::stream::decode_all(&frame[..]).expect("the chunk is a zstd frame");
        chunk[0] ^= 1;
        let frame = zstd::bulk::compress(&chunk, 1).expect("the chunk packs");
        std::fs::write(&path, frame).expect("the chunk takes it");
        done += 1;
    }
    done
}

#[test]
fn an_image_with_a_wrong_digest_is_not_written() {
    lab::run_test("an_image_with_a_wrong_digest_is_not_written", async |namespace| {
        let (lab, site) = start(&namespace, quick(1), &Settings::default()).await;
        available(&site, &lab).await;
        let wrong = "0".repeat(64);
        let file = rackwright_tests::site::images()
            .join("tiny.raw.zst")
            .display()
            .to_string();
        let output = site.try_cli(["image", "add", "bad", "--file", &file, "--sha256", &wrong]);
        let (_, err) = texts(&output);
        assert!(
            !output.status.success() && err.contains(&wrong[..16]),
            "a wrong SHA-256 was taken: {err}"
        );

        site.add_image("tiny", "tiny.raw.zst");
        assert!(falsify_chunks(&site.dir().join("data/images/chunks")) > 3);
        site.cli(["node", "deploy", "n1", "--image", "tiny"]);
        fails(&site, &["digest"]).await;
        check_started_jobs(&site, &lab, StartedJobs { writes: 1, erases: 0 }, false).await;
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn a_machine_that_fails_a_check_is_not_handed_over() {
    lab::run_test("a_machine_that_fails_a_check_is_not_handed_over", async |namespace| {
        let folder = namespace.state_dir().join("profiles");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let file = folder.join("strict.yaml");
        let built_in = include_str!("../../crates/validate/profiles/default.yaml");
        let strict = built_in.replace("name: default", "name: strict") + "kernel: \"99.*\"\n";
        std::fs::write(&file, strict).expect("the profile can be written");
        let settings = Settings {
            profile: Some(file),
            ..Settings::default()
        };
        let (lab, site) = start(&namespace, quick(1), &settings).await;
        available(&site, &lab).await;
        let tiny = rackwright_tests::site::images().join("tiny.raw.zst");
        let tiny = tiny.display().to_string();
        site.cli(["image", "add", "tiny", "--file", &tiny, "--kernel", "98.*"]);
        site.cli(["node", "deploy", "n1", "--image", "tiny"]);
        fails(&site, &["kernel", "98.* (image), 99.* (profile strict)"]).await;
        let report = &site.json(["node", "reports", "n1"])[0];
        assert_eq!(
            (&report["passed"], &report["profile"]),
            (&false.into(), &"strict".into()),
            "{report}"
        );
        let checks = report["checks"].as_array().expect("the report has checks");
        let failed: Vec<_> = checks.iter().filter(|c| c["verdict"] == "VERDICT_FAIL").collect();
        assert_eq!(failed.len(), 1, "{report}");
        assert_eq!(failed[0]["id"], "kernel", "{report}");
        check_started_jobs(&site, &lab, StartedJobs { writes: 1, erases: 0 }, true).await;
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn a_disk_that_is_too_small_is_not_touched() {
    lab::run_test("a_disk_that_is_too_small_is_not_touched", async |namespace| {
        let config = LabConfig {
            disk_bytes: 64 << 20,
            ..quick(1)
        };
        let (lab, site) = start(&namespace, config, &Settings::default()).await;
        available(&site, &lab).await;
        site.add_image("tiny", "tiny.raw.zst");
        site.cli(["node", "deploy", "n1", "--image", "tiny"]);
        fails(&site, &["no drive has the", "67108864 bytes"]).await;
        check_started_jobs(&site, &lab, StartedJobs { writes: 1, erases: 0 }, false).await;
        let disk = lab.machine(0).disk_path(0).expect("the machine has a drive");
        assert!(is_empty(&disk), "something was written");
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn a_disk_that_is_missing_fails_the_deploy() {
    lab::run_test("a_disk_that_is_missing_fails_the_deploy", async |namespace| {
        let (lab, site) = start(&namespace, quick(1), &Settings::default()).await;
        available(&site, &lab).await;
        site.add_image("tiny", "tiny.raw.zst");
        site.cli(["node", "deploy", "n1", "--image", "tiny", "--root-drive", "nvme7n1"]);
        fails(&site, &["nvme7n1", "LAB0000-D0"]).await;
        check_started_jobs(&site, &lab, StartedJobs { writes: 1, erases: 0 }, false).await;
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn a_disk_that_cannot_be_written_fails_the_deploy() {
    lab::run_test("a_disk_that_cannot_be_written_fails_the_deploy", async |namespace| {
        let (lab, site) = start(&namespace, quick(1), &Settings::default()).await;
        available(&site, &lab).await;
        site.add_image("tiny", "tiny.raw.zst");
        // In the first chunk, after the partition table.
        lab.machine(0).break_disk(0, 4096).await.expect("the drive breaks");
        site.cli(["node", "deploy", "n1", "--image", "tiny"]);
        fails(&site, &["/dev/vda", "Input/output error"]).await;
        assert!(begun(&site, lab.machine(0), "n1").await.writes > 0);
        assert!(!lab.machine(0).serial_log().contains(BOOTED));
        let disk = lab.machine(0).disk_path(0).expect("the machine has a drive");
        let head = std::fs::read(disk).expect("the drive's file reads");
        assert!(
            head[..512].iter().all(|b| *b == 0),
            "what was half written could be booted"
        );
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn a_dead_bmc_fails_the_deploy_and_a_retry_succeeds() {
    lab::run_test("a_dead_bmc_fails_the_deploy_and_a_retry_succeeds", async |namespace| {
        let (lab, site) = start(&namespace, quick(1), &Settings::default()).await;
        available(&site, &lab).await;
        site.add_image("tiny", "tiny.raw.zst");
        lab.machine(0).bmc_dead(true).await.expect("the BMC dies");
        site.cli(["node", "deploy", "n1", "--image", "tiny"]);
        fails(&site, &["BMC https://"]).await;
        lab.machine(0).bmc_dead(false).await.expect("the BMC comes back");
        site.cli(["node", "retry", "n1", "--wait"]);
        assert_eq!(site.state("n1"), "active");
        check_started_jobs(&site, &lab, StartedJobs { writes: 1, erases: 0 }, true).await;
        lab.stop().await.expect("the lab ends");
    });
}

#[test]
fn a_machine_that_never_boots_is_given_up_with_advice() {
    lab::run_test(
        "a_machine_that_never_boots_is_given_up_with_advice",
        async |namespace| {
            let settings = Settings {
                agent_boot_s: 6,
                ..Settings::default()
            };
            let (lab, site) = start(&namespace, quick(1), &settings).await;
            lab.machine(0).boot_hang(true).await.expect("the machine hangs");
            site.enroll("n1", lab.machine(0));
            fails(&site, &["boot trace", "2 times"]).await;
            check_started_jobs(&site, &lab, StartedJobs { writes: 0, erases: 0 }, false).await;
            lab.stop().await.expect("the lab ends");
        },
    );
}

/// Forwards connections and cuts the first few after some megabytes.
async fn cutting_proxy(cuts: Arc<AtomicU32>) -> SocketAddr {
    let at = SocketAddr::from((SERVER_IPV4, 7444));
    let listener = tokio::net::TcpListener::bind(at).await.expect("the proxy listens");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let cuts = cuts.clone();
            tokio::spawn(async move {
                let server = tokio::net::TcpStream::connect((SERVER_IPV4, 7443))
                    .await
                    .expect("the store listens");
                let (mut client_in, mut client_out) = client.into_split();
                let (server_in, mut server_out) = server.into_split();
                let up = tokio::spawn(async move { tokio::io::copy(&mut client_in, &mut server_out).await });
                let limit = if cuts.fetch_add(1, Ordering::SeqCst) < 4 {
                    2 << 20
                } else {
                    u64::MAX
                };
                let mut down = tokio::io::AsyncReadExt::take(server_in, limit);
                let _ = tokio::io::copy(&mut down, &mut client_out).await;
                up.abort();
            });
        }
    });
    at
}

#[test]
fn a_broken_download_is_resumed() {
    lab::run_test("a_broken_download_is_resumed", async |namespace| {
        let settings = Settings {
            store_url: Some(format!("https://{SERVER_IPV4}:7444/store/v1")),
            ..Settings::default()
        };
        let (lab, site) = start(&namespace, quick(1), &settings).await;
        let cuts = Arc::new(AtomicU32::new(0));
        cutting_proxy(cuts.clone()).await;
        available(&site, &lab).await;
        site.add_image("tiny", "tiny.raw.zst");
        site.cli(["node", "deploy", "n1", "--image", "tiny"]);
        let state = site.until("n1", &["active", "failed"], BOOT).await;
        assert_eq!(state, "active", "{}", site.reason("n1"));
        assert!(cuts.load(Ordering::SeqCst) > 4, "nothing was cut");
        let written = site.cli(["events", "--target", "nodes/n1", "-o", "json"]);
        let written = written
            .lines()
            .find(|l| l.contains("image.written"))
            .expect("the event is there")
            .to_owned();
        let event: serde_json::Value = serde_json::from_str(&written).expect("the event is JSON");
        let resumed = event["attributes"]["resumed_downloads"]
            .as_str()
            .and_then(|n| n.parse::<u32>().ok());
        assert!(resumed.is_some_and(|n| n > 0), "{written}");
        check_started_jobs(&site, &lab, StartedJobs { writes: 1, erases: 0 }, true).await;
        lab.stop().await.expect("the lab ends");
    });
}

fn status_of(url: &str) -> String {
    let output = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", url])
        .output();
    String::from_utf8(output.expect("curl runs").stdout).expect("a status is text")
}

#[test]
fn the_token_of_one_machine_opens_nothing_of_another() {
    lab::run_test("the_token_of_one_machine_opens_nothing_of_another", async |namespace| {
        let (lab, site) = start(&namespace, quick(2), &Settings::default()).await;
        // Both machines hang before their firmware runs: only this test sends messages in their place.
        for (i, id) in ["n1", "n2"].into_iter().enumerate() {
            lab.machine(i).boot_hang(true).await.expect("the machine hangs");
            site.enroll(id, lab.machine(i));
            lab.machine(i)
                .wait_power(PowerState::On, BOOT)
                .await
                .expect("the machine is switched on");
        }
        let mac = |i: usize| lab.machine(i).mac().to_owned();
        let bytes = mac_bytes(&mac(0));
        let script = on_the_bridge(move || lease(bytes)).script;
        assert!(script.contains("token="), "{script}");

        let stolen = script
            .replace(&mac(0), &mac(1))
            .replace(&mac(0).replace(':', "%3a"), &mac(1).replace(':', "%3a"));
        let stolen = match stolen == script {
            true => format!("{script}&mac={}", mac(1)),
            false => stolen,
        };
        assert_eq!(
            status_of(&stolen),
            "403",
            "the token of {} opened the plan of {}",
            mac(0),
            mac(1)
        );
        assert_eq!(
            status_of(&script),
            "403",
            "the token was taken from an address that the machine does not have"
        );
        site.until_traced(&mac(0), "refused", BOOT).await;
        // The token was used away from the machine's address: the boot is not trusted for either side.
        let events = site.cli(["events", "--target", "nodes/n1", "-o", "json"]);
        assert!(events.contains("security.boot-contested"), "{events}");
        lab.stop().await.expect("the lab ends");
    });
}
