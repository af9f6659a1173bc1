//! The images start, take their seed and let nobody else in: `images/selftest.sh` on real (emulated) machines.
//! The Debian images are started by the deploys of `life.rs` and `variants.rs`; `make test-images` starts all of them.

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
