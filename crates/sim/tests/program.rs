//! `rackwright-sim` as a program: its output, its end, its refusals.
#![allow(clippy::unwrap_used)]

mod common;

use common::{LONG, SYSTEM};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::Stdio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rackwright-sim"))
        .args(["--listen", "0.0.0.0:0", "--ssh-listen", "0.0.0.0:0"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// All of standard output, which ends although the program keeps running.
async fn printed(child: &mut Child) -> String {
    let mut text = String::new();
    let mut out = child.stdout.take().unwrap();
    tokio::time::timeout(LONG, out.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    assert!(child.try_wait().unwrap().is_none(), "it has ended: {text}");
    text
}

/// Waits for the end; returns whether it succeeded, and standard error.
async fn end(child: Child) -> (bool, String) {
    let output = tokio::time::timeout(LONG, child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn prints_the_machines_and_ends_with_its_input() {
    let mut child = start(&["--nodes", "3", "--format", "json", "--plain-http", "--sku", "h100"]);
    let description: Value = serde_json::from_str(&printed(&mut child).await).unwrap();
    let nodes = description["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(
        (&nodes[2]["id"], &nodes[2]["sku"]),
        (&"sim-00002".into(), &"h100".into())
    );
    let text = |path: &str| nodes[2].pointer(path).unwrap().as_str().unwrap();
    rackwright_sim::install_crypto();
    let client = reqwest::Client::builder().no_proxy().timeout(LONG).build().unwrap();
    let system = client
        .get(format!("{}{SYSTEM}", text("/bmc/address")))
        .basic_auth(text("/bmc/username"), Some(text("/bmc/password")));
    let system: Value = system.send().await.unwrap().json().await.unwrap();
    assert_eq!(system["UUID"], text("/uuid"));

    let mut input = child.stdin.take().unwrap();
    input.write_all(b"this is not read as anything\n").await.unwrap();
    drop(input);
    let (well, words) = end(child).await;
    assert!(well, "{words}");
    assert!(
        words.contains("ended after 1 requests on 1 connections and 0 boots"),
        "{words}"
    );
}

#[tokio::test]
async fn prints_documents_that_apply_takes() {
    let mut child = start(&["--nodes", "2", "--seed", "7"]);
    let text = printed(&mut child).await;
    let documents: Vec<&str> = text.split("---\n").skip(1).collect();
    assert_eq!(documents.len(), 2);
    for (index, document) in documents.iter().enumerate() {
        let lines: Vec<&str> = document.lines().collect();
        assert_eq!(lines[0], "kind: Node");
        assert_eq!(lines[1], format!("id: sim-0000{index}"));
        assert_eq!(lines[2], "bmc:");
        assert!(lines[3].starts_with(&format!("  address: https://127.64.0.{}:", index + 1)));
        assert_eq!(lines[4], "  username: admin");
        assert!(
            lines[5].starts_with("  password: \"") && lines[5].len() == 34,
            "{document}"
        );
        let digits = lines[6].strip_prefix("  certificate_sha256: sha256:").unwrap();
        assert!(digits.len() == 64, "{document}");
        assert_eq!(lines.len(), 7);
    }
    let pid = Pid::from_raw(child.id().unwrap().cast_signed());
    kill(pid, Signal::SIGTERM).unwrap();
    let (well, words) = end(child).await;
    assert!(well, "{words}");
}

#[tokio::test]
async fn a_file_with_passwords_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nodes.yaml");
    let mut child = start(&["--output", path.to_str().unwrap()]);
    assert_eq!(printed(&mut child).await, "");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&path).unwrap().contains("kind: Node"));
    drop(child.stdin.take());
    assert!(end(child).await.0);
}

#[tokio::test]
async fn impossible_options_are_refused_with_a_reason() {
    for (arguments, words) in [
        (&["--nodes", "0"][..], "--nodes: must be 1 to 100000"),
        (&["--nodes", "many"], "invalid value 'many'"),
        (&["--profile", "toaster"], "dgx-h100"),
        (
            &["--network", "127.64.0.0/30", "--nodes", "3"],
            "--network: 127.64.0.0/30 has addresses for 2",
        ),
        (&["--network", "everywhere"], "--network"),
        (&["--speed", "-1"], "--speed"),
        (&["--plain-http"], "--format json"),
        (&["--output", "/nowhere/nodes.yaml"], "cannot write /nowhere/nodes.yaml"),
        (&["--hosts", "127.65.0.0/16"], "--hosts: 127.65.0.0/16 overlaps"),
        (&["--ssh-listen=127.128.0.1"], "--ssh-listen"),
        // RFC 5737: an address for documentation only.
        (
            &["--network", "192.0.2.0/24", "--listen=192.0.2.1:0"],
            "cannot listen on 192.0.2.1:0",
        ),
    ] {
        let arguments: Vec<&str> = arguments.to_vec();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rackwright-sim"));
        if !arguments.iter().any(|argument| argument.starts_with("--listen")) {
            command.args(["--listen", "0.0.0.0:0"]);
        }
        if !arguments.iter().any(|argument| argument.starts_with("--ssh-listen")) {
            command.args(["--ssh-listen", "0.0.0.0:0"]);
        }
        let output = command.args(&arguments).stdin(Stdio::null()).output();
        let output = tokio::time::timeout(LONG, output).await.unwrap().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?} was taken");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn a_fault_script_is_read_and_its_faults_reported_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("faults.yaml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "faults:\n  - fault: bmc-down\n    nodes: [7]\n").unwrap();
    let child = start(&["--faults", file]);
    let (well, words) = end(child).await;
    assert!(
        !well && words.contains(&format!("{file}:3: nodes: there is no machine 7")),
        "{words}"
    );
    let (well, words) = end(start(&["--faults", "/nowhere/faults.yaml"])).await;
    assert!(!well && words.contains("cannot read /nowhere/faults.yaml"), "{words}");
    let mut child = start(&["--faults", file, "--nodes", "8"]);
    assert!(printed(&mut child).await.contains("sim-00007"));
    drop(child.stdin.take());
    assert!(end(child).await.0);
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.64.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (listen, ssh_listen) in [(address.as_str(), "0.0.0.0:0"), ("0.0.0.0:0", &address)] {
        let output = Command::new(env!("CARGO_BIN_EXE_rackwright-sim"))
            .args(["--listen", listen, "--ssh-listen", ssh_listen])
            .stdin(Stdio::null())
            .output();
        let output = tokio::time::timeout(LONG, output).await.unwrap().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(&address), "{error}");
    }
}

/// Memory in use, in bytes, as the kernel counts it.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn ten_thousand_machines_at_rest_are_small() {
    let mut child = start(&["--nodes", "10000", "--profile", "dgx-h100"]);
    printed(&mut child).await;
    let bytes = resident(child.id().unwrap());
    // Measured: see docs/sim.md. All certificates exist by then.
    assert!(bytes < 64 << 20, "{} MiB", bytes >> 20);
    drop(child.stdin.take());
    assert!(end(child).await.0);
}
