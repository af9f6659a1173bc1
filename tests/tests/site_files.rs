//! Site files beyond 64 MiB against the real daemon: they are sent, stored and returned in parts, byte for byte.

#![allow(clippy::disallowed_methods)] // a test may start programs

use std::fmt::Write as _;
use std::path::Path;

use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_tests::fabric::folder;
use rackwright_tests::hall::{Ports, config_without_fabric};
use rackwright_tests::site::{Site, texts};

/// The size of the larger file, in bytes: one file alone is larger than 64 MiB.
const LARGE: usize = 66 << 20;
/// The limit of the second control plane, and a size above it.
const LIMIT_MIB: usize = 8;

/// A text with comments in front, of at least this size.
fn padded(text: &str, bytes: usize) -> String {
    let mut padded = String::with_capacity(bytes + text.len() + 100);
    for number in 0.. {
        if padded.len() + text.len() >= bytes {
            break;
        }
        let _ = writeln!(padded, "# {number:09}: {}", "x".repeat(4000));
    }
    padded + text
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.join(name), text).expect("a file");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_of_more_than_64_mib_is_applied_and_exported_in_parts() {
    let dir = folder();
    let here = dir.path();
    let text = site_file(&Request::new(ReferenceSku::DgxH100, 32)).expect("a site");
    let large = padded(&text, LARGE);
    let customers = "customers: [{name: acme}]\n";
    let given = here.join("given");
    write(&given, &[("hall.yaml", &large), ("customers.yaml", customers)]);
    let given = given.display().to_string();
    let mut site = Site::start_with(here, &config_without_fabric(here, &Ports::find())).await;
    // An unoptimised check of so much text takes longer than the usual limit of a call on a busy computer.
    site.cli(["--call-timeout", "10m", "site", "apply", &given, "--yes", "--quiet"]);
    // Also after a restart: the files are those of the database.
    site.halt().await;
    site.restart().await;
    let exported = here.join("exported");
    let folder = exported.display().to_string();
    site.cli(["--call-timeout", "10m", "site", "export", &folder]);
    for (name, text) in [("hall.yaml", large.as_str()), ("customers.yaml", customers)] {
        let back = std::fs::read_to_string(exported.join(name)).expect("the exported file");
        assert!(back == text, "{name} has {} bytes of {}", back.len(), text.len());
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_above_the_setting_are_refused_by_size_and_nothing_is_applied() {
    let dir = folder();
    let here = dir.path();
    let text = site_file(&Request::new(ReferenceSku::DgxH100, 4)).expect("a site");
    write(here, &[("hall.yaml", &padded(&text, (LIMIT_MIB << 20) + 1))]);
    let storage = format!("storage: {{reserve_mib: 256, site_files_mib: {LIMIT_MIB}}}\n");
    let config = config_without_fabric(here, &Ports::find());
    let site = Site::start_with(here, &format!("{storage}{config}")).await;
    let refused = site.try_cli(["site", "apply", &here.join("hall.yaml").display().to_string(), "--yes"]);
    let (_, why) = texts(&refused);
    let words = format!("more than {LIMIT_MIB} MiB together (storage.site_files_mib)");
    assert!(!refused.status.success() && why.contains(&words), "{why}");
    assert!(!site.try_cli(["site", "show"]).status.success(), "no site was applied");
    site.stop().await;
}
