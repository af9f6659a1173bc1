//! `rackwrightd` accepts the example configuration in `deploy/`, and systemd accepts the unit.

// Helpers outside of test functions.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The example's path for the output of `make images`.
const INSTALLED: &str = "/usr/lib/rackwright";

/// A program that was built beside this test.
fn built(name: &str) -> PathBuf {
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    if program.ends_with("deps") {
        program.pop();
    }
    program.push(name);
    assert!(
        program.is_file(),
        "{} is missing: `make build` builds it",
        program.display()
    );
    program
}

fn check_config(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rackwrightd.yaml");
    fs::write(&file, text).unwrap();
    Command::new(built("rackwrightd"))
        .arg("check-config")
        .arg(&file)
        .output()
        .unwrap()
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

/// systemd's output about a unit, which is empty for a good one.
fn verify_unit(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rackwrightd.service");
    fs::write(&file, text).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&file)
        .output();
    output.expect("systemd-analyze is missing: `make deps` installs it")
}

/// The unit with the path of the built program: systemd checks that the program exists.
fn unit() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rackwrightd.service");
    let text = fs::read_to_string(file).unwrap();
    let installed = "/usr/bin/rackwrightd";
    assert!(text.contains(installed));
    text.replace(installed, &built("rackwrightd").display().to_string())
}

#[test]
fn systemd_takes_the_unit() {
    let output = verify_unit(&unit());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && words.is_empty(), "{words}");
}

#[test]
fn systemd_takes_the_units_that_renew_a_readers_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for unit in ["rackwright-renew@.service", "rackwright-renew@.timer"] {
        let text = fs::read_to_string(deploy.join(unit)).unwrap();
        let text = text.replace("/usr/bin/rackwright ", &format!("{} ", built("rackwright").display()));
        fs::write(folder.path().join(unit), text).unwrap();
    }
    // The timer starts the service of the same instance.
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=yes"])
        .arg(folder.path().join("rackwright-renew@prometheus.timer"))
        .env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display()))
        .output();
    let output = output.expect("systemd-analyze is missing: `make deps` installs it");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_ours: Vec<&str> = words.lines().filter(|line| line.contains("rackwright")).collect();
    assert!(about_ours.is_empty(), "{words}");
    let text = fs::read_to_string(folder.path().join("rackwright-renew@.service")).unwrap();
    assert!(settings(&text)["ExecStart"].ends_with("rackwright whoami"), "{text}");
}

#[test]
fn systemd_refuses_a_damaged_unit() {
    for (good, bad) in [
        ("RestartSec=", "RestartSek="),
        ("@system-service", "@no-such-group"),
        ("serve --config", "serve\nExecStart= --config"),
    ] {
        assert!(unit().contains(good));
        let output = verify_unit(&unit().replace(good, bad));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() || !words.is_empty(), "{bad:?} is taken");
    }
}

/// The settings of the unit; of a repeated setting, the last value.
fn settings(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).collect()
}

#[test]
fn a_daemon_that_ends_with_an_error_is_started_again() {
    let unit = unit();
    let settings = settings(&unit);
    assert_eq!(settings.get("Restart"), Some(&"on-failure"));
    assert!(settings.contains_key("RestartSec"));
}

#[test]
fn the_demo_installs_nothing_of_the_tests_and_removes_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    let groups = makefile
        .lines()
        .skip_while(|line| *line != "deps-demo:")
        .find_map(|line| line.trim().strip_prefix("@images/deps.sh "));
    let groups: Vec<&str> = groups.expect("the demo names its groups").split(' ').collect();
    let script = root.join("images/deps.sh");
    let listed = |groups: &[&str]| {
        let output = Command::new(&script).arg("--list").args(groups).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let (demo, all) = (listed(&groups), listed(&[]));
    for needed in ["gcc", "qemu-system-x86", "mmdebstrap"] {
        assert!(demo.contains(needed), "{needed}");
    }
    for other in [
        "nginx-light",
        "prometheus",
        "postgresql",
        "slurmctld",
        "openssh-server",
        "chromium",
    ] {
        assert!(all.contains(other) && !demo.contains(other), "{other}");
    }
    let script = fs::read_to_string(&script).unwrap();
    let installs: Vec<&str> = script
        .lines()
        .filter(|line| line.starts_with("\"${apt[@]}\" install"))
        .collect();
    assert!(
        !installs.is_empty() && installs.iter().all(|line| line.contains(" --no-remove ")),
        "{installs:?}"
    );
}

#[test]
fn the_unit_protects_secrets_and_limits_access() {
    let unit = unit();
    let settings = settings(&unit);
    for (name, value) in [
        ("LimitCORE", "0"),
        ("UMask", "0077"),
        ("StateDirectoryMode", "0700"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateDevices", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelLogs", "yes"),
        ("ProtectControlGroups", "yes"),
        (
            "RestrictAddressFamilies",
            "AF_INET AF_INET6 AF_UNIX AF_NETLINK AF_PACKET",
        ),
        ("RestrictNamespaces", "yes"),
        ("RestrictSUIDSGID", "yes"),
        ("LockPersonality", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("SystemCallArchitectures", "native"),
        ("SystemCallFilter", "@system-service"),
        ("CapabilityBoundingSet", "CAP_NET_BIND_SERVICE CAP_NET_RAW"),
        ("KeyringMode", "private"),
    ] {
        assert_eq!(settings.get(name), Some(&value), "{name}");
    }
    for name in ["MemoryMax", "TasksMax", "LimitNOFILE"] {
        assert!(settings.contains_key(name), "{name} has no bound");
    }
}
