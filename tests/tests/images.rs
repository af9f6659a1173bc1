//! The images start, read their seed and refuse all other logins: `images/selftest.sh` on real (emulated) machines.
//! The deploys of `life.rs` and `variants.rs` start the Debian images; `make test-images` starts all of them.

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
fn tiny_without_a_seed_refuses_logins() {
    selftest("tiny:uefi:none");
}

#[test]
fn tiny_takes_its_seed_under_bios() {
    selftest("tiny:bios:seed");
}
