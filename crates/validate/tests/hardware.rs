//! The hardware probe over a real SSH server: copied, run once, removed.

#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rackwright_validate::{CarriedProgram, HardwareReading, Session, read_hardware_below, wait_reachable};
use support::{LIMIT, Server, sshd, sshd_with_environment};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Plays the program: one row with its arguments and its mode.
const ECHO: &str = "#!/bin/sh\n\
    printf 'begin=rackwright-hardware-1\\nargs\\ttext=%s\\nend=rackwright-hardware-1\\n' \"$*\"\n";

async fn login(server: &Server) -> Session {
    let reached = wait_reachable(&server.target(), Instant::now() + LIMIT, &CancellationToken::new()).await;
    reached.unwrap_or_else(|e| panic!("{e}: {e:?}\n{}", server.log()))
}

fn program(text: &str) -> CarriedProgram {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, text).unwrap();
    let output = std::process::Command::new("sha256sum").arg(&file).output().unwrap();
    CarriedProgram {
        sha256: String::from_utf8(output.stdout).unwrap()[..64].to_owned(),
        bytes: text.as_bytes().into(),
    }
}

async fn read(session: &Session, program: &CarriedProgram, folders: &[&Path]) -> HardwareReading {
    let parents: Vec<&str> = folders.iter().map(|folder| folder.to_str().unwrap()).collect();
    let reading = read_hardware_below(session, program, "1-1", Duration::from_millis(1500), &parents).await;
    reading.unwrap()
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

#[tokio::test]
async fn the_probe_runs_once_and_leaves_nothing() {
    let (server, dir) = (sshd(""), tempfile::tempdir().unwrap());
    let session = login(&server).await;
    let reading = read(&session, &program(ECHO), &[dir.path()]).await;
    let facts = reading.facts.unwrap();
    assert_eq!(facts.row("args").unwrap().text("text"), "run --deadline-ms 1500");
    assert_eq!(reading.left, None);
    assert!(is_empty(dir.path()));
}

#[tokio::test]
async fn a_folder_that_cannot_run_it_is_passed_over_and_all_reasons_are_given() {
    let (server, dir) = (sshd(""), tempfile::tempdir().unwrap());
    let session = login(&server).await;
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let good = dir.path().join("good");
    std::fs::create_dir(&good).unwrap();
    let reading = read(&session, &program(ECHO), &[&file, &good]).await;
    assert!(reading.facts.is_ok(), "{reading:?}");
    let mut damaged = program(ECHO);
    damaged.sha256 = program("other").sha256;
    for (program, words) in [
        (damaged, "arrived with the digest"),
        (program("#!/bin/sh\necho no driver >&2\nexit 9\n"), "no driver"),
        (program("#!/bin/sh\necho hello\n"), "does not begin like"),
    ] {
        let reading = read(&session, &program, &[&good]).await;
        let why = reading.facts.unwrap_err();
        assert!(why.contains(words) && why.starts_with(good.to_str().unwrap()), "{why}");
        assert!(is_empty(&good), "{words}");
    }
}

#[tokio::test]
async fn a_folder_that_could_not_be_removed_after_a_failed_copy_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let programs = dir.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let rm = programs.join("rm");
    std::fs::write(&rm, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&rm, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display());
    let server = sshd_with_environment(&path, "");
    let session = login(&server).await;
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let reading = read(&session, &program(ECHO), &[&file]).await;
    assert!(reading.facts.is_err(), "{reading:?}");
    let left = reading.left.unwrap();
    assert_eq!(
        left,
        format!("{}/rackwright-probe-1-1 could not be removed", file.display())
    );
}
