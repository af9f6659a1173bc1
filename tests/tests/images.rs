//! The images start, take their seed and let nobody else in: `images/selftest.sh` on real (emulated) machines.

use std::path::Path;
use std::process::Command;

fn selftest(case: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("images/selftest.sh"))
        .arg(case)
        .output()
        .expect("images/selftest.sh");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{case}:\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    println!("{}", text(&output.stdout));
}

#[test]
fn tiny_without_a_seed_lets_nobody_in() {
    selftest("tiny:uefi:none");
}

#[test]
fn tiny_takes_its_seed_under_bios() {
    selftest("tiny:bios:seed");
}

#[test]
fn debian_takes_its_seed_under_secure_boot() {
    selftest("debian-slim:secureboot:seed");
}

#[test]
fn debian_with_cloud_init_takes_the_same_seed() {
    selftest("debian-cloud-init:uefi:seed");
}
