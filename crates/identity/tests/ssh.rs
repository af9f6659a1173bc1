//! OpenSSH's `ssh-keygen` must accept the keys.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rackwright_identity::{SshKeyPair, SystemRng};
use secrecy::ExposeSecret as _;

fn ssh_keygen(arguments: &[&str]) -> String {
    let output = Command::new("ssh-keygen")
        .args(arguments)
        .output()
        .expect("ssh-keygen (openssh-client) is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn ssh_keygen_reads_both_halves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    // Comment lengths cover every padding length.
    for length in 0..9 {
        let comment = "c".repeat(length);
        let pair = SshKeyPair::generate(&SystemRng, &comment).unwrap();
        fs::write(&path, pair.private_key().expose_secret()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(ssh_keygen(&["-y", "-f", path]), pair.public_line());
        let listed = ssh_keygen(&["-l", "-f", path]);
        assert!(listed.contains(pair.fingerprint()), "{listed} {}", pair.fingerprint());
        assert!(listed.contains("ED25519"));
    }
}

#[test]
fn no_two_keys_are_alike() {
    let one = SshKeyPair::generate(&SystemRng, "x").unwrap();
    let two = SshKeyPair::generate(&SystemRng, "x").unwrap();
    assert_ne!(one.public_line(), two.public_line());
}
