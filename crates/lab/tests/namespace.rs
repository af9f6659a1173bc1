//! A lab leaves no traces, however it ends.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started
#![allow(clippy::unwrap_used)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rackwright_lab::{self as lab, LabFile};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn rackwright_lab(temp: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rackwright-lab"));
    command.env("TMPDIR", temp).stdin(Stdio::null());
    command
}

/// A lab that keeps running, with one machine powered on; and its description.
fn start(temp: &Path) -> (Child, LabFile) {
    let arguments = ["up", "--firmware", "bios", "--power-on"];
    let mut child = rackwright_lab(temp)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        text.push_str(&line);
        if line == "}" {
            break;
        }
    }
    (child, serde_json::from_str(&text).unwrap())
}

/// Folders of labs under a temporary folder.
fn folders(temp: &Path) -> Vec<PathBuf> {
    let parent = fs::read_dir(temp).unwrap().next();
    let Some(parent) = parent else { return Vec::new() };
    let entries = fs::read_dir(parent.unwrap().path()).unwrap().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn processes() -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Running (not zombie) processes in a network namespace, given as the target of `/proc/<pid>/ns/net`.
fn inside(namespace: &Path) -> Vec<String> {
    processes()
        .filter(|(_, path)| fs::read_link(path.join("ns/net")).is_ok_and(|link| link == namespace))
        .map(|(pid, path)| {
            format!(
                "{pid} {}",
                fs::read_to_string(path.join("comm")).unwrap_or_default().trim()
            )
        })
        .collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn kill_9_leaves_nothing_running_and_the_next_start_removes_the_folder() {
    let temp = tempfile::tempdir().unwrap();
    let (mut lab, file) = start(temp.path());
    let namespace = fs::read_link(format!("/proc/{}/ns/net", file.pid)).unwrap();
    assert_ne!(namespace, fs::read_link("/proc/self/ns/net").unwrap());
    let running = inside(&namespace);
    assert!(
        running.iter().any(|process| process.contains("qemu-system")),
        "{running:?}"
    );
    assert_eq!(folders(temp.path()).len(), 1);

    lab.kill().unwrap(); // SIGKILL
    lab.wait().unwrap();
    wait_until("the end of everything inside", || inside(&namespace).is_empty());
    let stale = folders(temp.path());
    assert_eq!(stale.len(), 1, "a killed process cannot remove its folder");

    let mut next = rackwright_lab(temp.path());
    next.args(["up", "--firmware", "bios", "--", "test", "-d"])
        .arg(&stale[0]);
    assert_eq!(
        next.status().unwrap().code(),
        Some(1),
        "the next lab still found the folder"
    );
    assert_eq!(folders(temp.path()), Vec::<PathBuf>::new());
}

#[test]
fn killing_any_process_between_ends_the_lab() {
    let temp = tempfile::tempdir().unwrap();
    let (mut lab, file) = start(temp.path());
    let namespace = fs::read_link(format!("/proc/{}/ns/net", file.pid)).unwrap();
    kill(Pid::from_raw(file.pid.cast_signed()), Signal::SIGKILL).unwrap();
    assert!(!lab.wait().unwrap().success());
    wait_until("the end of everything inside", || inside(&namespace).is_empty());
    assert_eq!(folders(temp.path()), Vec::<PathBuf>::new());
}

#[test]
fn sigterm_ends_a_lab_in_order() {
    let temp = tempfile::tempdir().unwrap();
    let (mut lab, file) = start(temp.path());
    let namespace = fs::read_link(format!("/proc/{}/ns/net", file.pid)).unwrap();
    kill(Pid::from_raw(lab.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(lab.wait().unwrap().success());
    wait_until("the end of everything inside", || inside(&namespace).is_empty());
    assert_eq!(folders(temp.path()), Vec::<PathBuf>::new());
}

#[test]
fn the_command_gets_the_description_and_gives_the_exit_code() {
    let temp = tempfile::tempdir().unwrap();
    let keep = temp.path().join("kept");
    let script = "cat \"$RACKWRIGHT_LAB_FILE\"; test -z \"$RACKWRIGHT_LAB\" || exit 4; exit 3";
    let mut command = rackwright_lab(&temp.path().join("."));
    command
        .args(["up", "--machines", "2", "--firmware", "bios", "--disk", "both", "--dir"])
        .arg(&keep);
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file: LabFile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(file.machines.len(), 2);
    let second = &file.machines[1];
    assert_eq!(second.bmc.address, "https://10.77.0.1:8002");
    assert_eq!((second.disks.len(), second.disks[1].bus.as_str()), (2, "nvme"));
    assert!(
        second.disks[0].path.starts_with(&keep) && second.disks[0].path.exists(),
        "--dir keeps the drives"
    );
}

#[test]
fn a_command_gets_a_signal_to_end() {
    let temp = tempfile::tempdir().unwrap();
    let script = "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let mut command = rackwright_lab(temp.path());
    let mut lab = command
        .args(["up", "--firmware", "bios", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(lab.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    kill(Pid::from_raw(lab.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(7));
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "told\n");
}

#[test]
#[should_panic(expected = "no test ran inside the namespace")]
fn a_wrong_test_name_is_no_success() {
    lab::run_test("no_test_has_this_name", async |_| {});
}

#[test]
#[should_panic(expected = "the test failed inside the lab")]
fn a_failure_inside_is_a_failure_outside() {
    lab::run_test("a_failure_inside_is_a_failure_outside", async |_| {
        panic!("meant to fail")
    });
}

#[test]
fn doctor_finds_the_tools_of_the_tests() {
    let output = Command::new(env!("CARGO_BIN_EXE_rackwright-lab"))
        .arg("doctor")
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success());
    assert!(
        text.contains("MISSING  qemu-system-x86_64: not found on PATH; install it: apt-get install"),
        "{text}"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_rackwright-lab"))
        .arg("doctor")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
