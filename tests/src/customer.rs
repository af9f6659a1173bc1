//! A customer of the site, who logs in to an installed system.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::{Site, texts};

/// A customer's key pair: returns the file of the private half; the public half is beside it with `.pub`.
///
/// # Panics
/// If no key can be made.
#[must_use]
pub fn customer_key(dir: &Path) -> PathBuf {
    let file = dir.join("customer");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "customer", "-f"])
        .arg(&file)
        .status();
    assert!(made.expect("ssh-keygen runs").success());
    file
}

/// The output of a command on the installed system, run with the customer's key.
///
/// # Panics
/// If the command fails.
#[must_use]
pub fn on_host(site: &Site, node: &str, key: &Path, command: &str) -> String {
    let node = site.json(["node", "get", node]);
    let address = node["status"]["address"].as_str().expect("the node has an address");
    let output = Command::new("ssh")
        .args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
        .args(["-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-i"])
        .arg(key)
        .args([&format!("root@{address}"), command])
        .output()
        .expect("ssh runs");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{command}: {err}");
    out
}
