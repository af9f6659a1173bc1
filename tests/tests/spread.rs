//! Agents of real (emulated) machines serve each other the chunks of an image. `make test-spread` runs this, and `make test` does
//! not: on a busy computer, TLS takes an emulated processor minutes.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rackwright_lab::{self as lab, Firmware, Lab, LabConfig};
use rackwright_tests::site::{BOOT, POLL, Settings, Site, images};
use serde_json::Value;

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
/// Data behind the system's partitions that cannot be compressed: 6 chunks.
const NOISE_BYTES: usize = 24 << 20;
/// Chunks that the killed machine holds for others when its power is cut.
const HELD_AT_CUT: u64 = 2;

/// Makes an image of the small system and of noise behind it. Returns where the noise begins.
fn noisy_image(file: &Path) -> u64 {
    let mut image = File::create(file).expect("the image's file");
    let mut system = File::open(images().join("tiny.raw")).expect("the small system");
    let begin = std::io::copy(&mut system, &mut image).expect("a copy");
    let mut noise = File::open("/dev/urandom")
        .expect("the kernel's noise")
        .take(NOISE_BYTES as u64);
    std::io::copy(&mut noise, &mut image).expect("noise");
    image.flush().expect("a complete file");
    begin
}

fn noise(file: &Path, begin: u64) -> Vec<u8> {
    let mut file = File::open(file).expect("the file opens");
    file.seek(SeekFrom::Start(begin)).expect("the file is long enough");
    let mut noise = vec![0; NOISE_BYTES];
    file.read_exact(&mut noise).expect("the file is long enough");
    noise
}

/// Slows the traffic to a machine down, so that a write takes longer than the test needs to see it.
fn slow_down(tap: &str) {
    let slow = [
        "qdisc", "add", "dev", tap, "root", "tbf", "rate", "40mbit", "burst", "256kb", "latency", "50ms",
    ];
    let status = Command::new("tc").args(slow).status();
    assert!(status.expect("tc of iproute2 runs").success());
}

/// The number of chunks that an agent of the image's only version holds for others, while the agent writes.
fn held(site: &Site, node: &str) -> Option<u64> {
    let spread = site.json(["image", "spread", "noisy"]);
    let racks = spread["versions"][0]["racks"].as_array()?;
    let mut agents = racks.iter().filter_map(|rack| rack["agents"].as_array()).flatten();
    let own = agents.find(|agent| agent["node"] == format!("nodes/{node}"))?;
    Some(own["held_chunks"].as_u64().unwrap_or(0))
}

/// A number among the facts of an event.
fn fact(event: &Value, name: &str) -> u64 {
    let number = event["attributes"][name].as_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{name} is missing: {event:#}"))
}

#[test]
fn four_machines_write_one_image_through_each_other_and_one_is_killed() {
    lab::run_test(
        "four_machines_write_one_image_through_each_other_and_one_is_killed",
        async |namespace| {
            let config = LabConfig {
                machines: NODES.len(),
                firmware: Firmware::Bios,
                // A quarter of the available memory holds every chunk of the image.
                memory_mb: 1280,
                ..LabConfig::default()
            };
            let lab = Lab::start(&namespace, config).await.expect("the lab starts");
            let settings = Settings {
                further: "images: {peers: true}\n".into(),
                ..Settings::default()
            };
            let dir = namespace.state_dir().join("site");
            let site = Site::start(&dir, &settings).await;
            for (at, node) in NODES.iter().enumerate() {
                site.enroll(node, lab.machine(at));
            }
            let image = dir.join("noisy.raw");
            let begin = noisy_image(&image);
            site.cli(["image", "add", "noisy", "--file", &image.display().to_string()]);
            for node in NODES {
                site.until(node, &["available"], BOOT).await;
            }
            for node in NODES {
                site.cli(["node", "deploy", node, "--image", "noisy"]);
            }
            // Each machine is slowed down after its boot. The last one loses its power in the middle of its write.
            let (killed, deadline) = (NODES[NODES.len() - 1], Instant::now() + BOOT);
            let mut slow = [false; NODES.len()];
            loop {
                for (at, node) in NODES.iter().enumerate() {
                    if !slow[at] && held(&site, node).is_some() {
                        slow_down(&format!("tap{at}"));
                        slow[at] = true;
                    }
                }
                if held(&site, killed).is_some_and(|held| held >= HELD_AT_CUT) {
                    break;
                }
                assert!(
                    Instant::now() < deadline,
                    "{killed} holds nothing for others\n{}",
                    site.log_tail()
                );
                tokio::time::sleep(POLL).await;
            }
            lab.machine(NODES.len() - 1)
                .power_cut()
                .await
                .expect("the power is cut");
            println!("{}", site.cli(["image", "spread", "noisy"]));
            assert!(site.events(&format!("nodes/{killed}"), "image.written").is_empty());

            for node in NODES {
                let state = site.until(node, &["active", "failed"], BOOT).await;
                assert_eq!(state, "active", "{node}: {}", site.reason(node));
            }
            every_machine_has_the_image(&site, &lab, &image, begin);
            site.stop().await;
            lab.stop().await.expect("the lab ends");
        },
    );
}

/// Compares the drives with the image, and counts where the chunks came from.
fn every_machine_has_the_image(site: &Site, lab: &Lab, image: &Path, begin: u64) {
    let expected = noise(image, begin);
    let (mut from_servers, mut from_agents, mut chunks) = (0, 0, Vec::new());
    for (at, node) in NODES.iter().enumerate() {
        let drive = lab.machine(at).disk_path(0).expect("the machine has a drive");
        assert!(
            noise(&drive, begin) == expected,
            "the drive of {node} differs from the image"
        );
        let written = site.events(&format!("nodes/{node}"), "image.written");
        assert_eq!(written.len(), 1, "{written:?}");
        let servers = fact(&written[0], "chunks_from_servers");
        let agents = fact(&written[0], "chunks_from_rack") + fact(&written[0], "chunks_from_other_racks");
        println!("{node}: {servers} chunks from the servers, {agents} from agents");
        from_servers += servers;
        from_agents += agents;
        chunks.push(servers + agents);
    }
    assert!(
        chunks.iter().all(|number| *number == chunks[0]),
        "each chunk is counted once: {chunks:?}"
    );
    assert!(from_agents > 0, "the agents gave each other no chunk");
    // Without help there would be four copies. The killed machine writes again, perhaps alone: that is a copy of its own.
    assert!(from_servers <= 3 * chunks[0], "{from_servers} of {chunks:?} chunks");
}
