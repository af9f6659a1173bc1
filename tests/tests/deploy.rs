//! The example configuration in `deploy/` is one that `rackwrightd` takes.

// Helpers outside of test functions.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the example expects what `make images` builds.
const INSTALLED: &str = "/usr/lib/rackwright";

fn check_config(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rackwrightd.yaml");
    fs::write(&file, text).unwrap();
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    if program.ends_with("deps") {
        program.pop();
    }
    program.push("rackwrightd");
    assert!(
        program.is_file(),
        "{} is missing: `make build` builds it",
        program.display()
    );
    Command::new(program).arg("check-config").arg(&file).output().unwrap()
}

/// The example, with the files of this checkout.
fn example() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let images = std::env::var_os("RACKWRIGHT_IMAGES").map_or(root.join("target/images"), PathBuf::from);
    let text = fs::read_to_string(root.join("deploy/rackwrightd.yaml")).unwrap();
    assert!(text.contains(INSTALLED));
    text.replace(INSTALLED, &images.display().to_string())
}

#[test]
fn the_example_configuration_is_good() {
    let output = check_config(&example());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_misspelt_field_in_it_is_refused_by_name() {
    let output = check_config(&example().replace("boot_unknown:", "boot_unknwon:"));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("boot_unknwon"), "{words}");
}
