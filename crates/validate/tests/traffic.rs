//! The traffic program over real SSH servers.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rackwright_validate::{
    CarriedProgram, LaneTarget, MeasureRequest, Session, SshTarget, TrafficError, TrafficServer, TrafficSetup,
    clear_traffic, keep_traffic, measure, serve_traffic_below, stop_traffic, wait_reachable,
};
use support::{LIMIT, Server, sshd};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

async fn login(server: &Server) -> Session {
    let reached = wait_reachable(&server.target(), Instant::now() + LIMIT, &CancellationToken::new()).await;
    reached.unwrap_or_else(|e| panic!("{e}: {e:?}\n{}", server.log()))
}

fn sha256(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, bytes).unwrap();
    let output = std::process::Command::new("sha256sum").arg(&file).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

fn program(text: &str) -> CarriedProgram {
    CarriedProgram {
        sha256: sha256(text.as_bytes()),
        bytes: text.as_bytes().into(),
    }
}

fn setup(id: &str) -> TrafficSetup {
    TrafficSetup {
        id: id.to_owned(),
        token: "00112233445566778899aabbccddeeff".into(),
        deadline_s: 60,
        port: 0,
    }
}

/// Plays the program and echoes its arguments.
const ECHO: &str = "#!/bin/sh\n\
    case $1 in\n\
    serve) echo '{\"port\":4242,\"pid\":0,\"lanes\":[{\"name\":\"mlx5_0\",\"guid\":\"0x1\",\"address\":\"fe80::1\",\"interface\":\"ib0\"},\
    {\"name\":\"bad name;\",\"address\":\"fe80::1\"}]}' ;;\n\
    run) echo \"{\\\"lanes\\\":[{\\\"lane\\\":\\\"-\\\",\\\"error\\\":\\\"$* $RACKWRIGHT_TRAFFIC_TOKEN\\\"},{\\\"lane\\\":\\\"not asked\\\"}]}\" ;;\n\
    esac\n";

/// Each test has its own folders, so that it does not touch the servers of other tests.
async fn serve_in(
    folders: &[&Path],
    session: &Session,
    program: &CarriedProgram,
    id: &str,
) -> Result<TrafficServer, TrafficError> {
    let parents: Vec<&str> = folders.iter().map(|folder| folder.to_str().unwrap()).collect();
    serve_traffic_below(session, program, &setup(id), &parents).await
}

/// A server left by an earlier test: it runs, and only its process shows it. Dropping it ends it.
struct Left {
    folder: PathBuf,
    child: Child,
}

impl Left {
    fn below(parent: &Path, id: &str) -> Self {
        let folder = parent.join(format!("rackwright-traffic-{id}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy("/bin/sleep", folder.join("program")).unwrap();
        let child = Command::new(folder.join("program")).arg("600").spawn().unwrap();
        Self { folder, child }
    }

    fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_program_is_copied_run_and_removed() {
    let server = sshd("");
    let session = login(&server).await;
    let (setup, dir) = (setup("test"), tempfile::tempdir().unwrap());
    let served = serve_in(&[dir.path()], &session, &program(ECHO), "test").await.unwrap();
    assert_eq!((served.port, served.lanes.len()), (4242, 1), "{served:?}");
    let folder = Path::new(&served.folder);
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let order = MeasureRequest {
        ms: 100,
        streams: 2,
        one_way: true,
        tcp: false,
        lanes: vec![LaneTarget {
            lane: "-".into(),
            peer: Some("mlx5_1".into()),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 4242,
        }],
    };
    let measured = measure(&session, &served, &setup, &order).await.unwrap();
    assert_eq!(measured.len(), 1, "{measured:?}");
    assert_eq!(
        measured[0].error.as_deref(),
        Some("run --ms 100 --streams 2 --one-way -/mlx5_1=127.0.0.1:4242 00112233445566778899aabbccddeeff")
    );
    keep_traffic(&session, &served).await.unwrap();
    assert!(folder.join("alive").exists());
    stop_traffic(&session, &served).await.unwrap();
    assert!(!folder.exists());
    assert!(
        keep_traffic(&session, &served).await.is_err(),
        "there is nothing to keep"
    );
    session.close().await;
}

#[tokio::test]
async fn a_damaged_program_or_one_that_does_not_run_is_reported_and_leaves_nothing() {
    let server = sshd("");
    let session = login(&server).await;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let parents = [dirs[0].path(), dirs[1].path()];
    let mut damaged = program(ECHO);
    damaged.sha256 = sha256(b"another");
    for (name, program, words) in [
        ("damaged", damaged, "arrived with the digest"),
        ("foreign", program("\u{7f}ELF no program"), "exit status 5"),
        ("silent", program("#!/bin/sh\nexit 9\n"), "exit status 5"),
    ] {
        let error = serve_in(&parents, &session, &program, name).await.unwrap_err();
        assert!(matches!(error, TrafficError::Program { .. }), "{error:?}");
        let (text, second) = (error.to_string(), format!("{}: ", parents[1].display()));
        assert!(text.contains(words) && text.contains(&second), "{name}: {text}");
        assert!(parents.iter().all(|parent| is_empty(parent)), "{name}");
    }
    let nonsense = program("#!/bin/sh\necho '{}'\n");
    let error = serve_in(&parents, &session, &nonsense, "nonsense").await.unwrap_err();
    assert!(matches!(error, TrafficError::Answer { .. }), "{error:?}");
    assert!(
        parents.iter().all(|parent| is_empty(parent)),
        "what gave no answer is removed too"
    );
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

#[tokio::test]
async fn leftovers_of_an_earlier_test_are_ended_and_removed_before_the_next() {
    let (server, dir, other) = (sshd(""), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let session = login(&server).await;
    let mut left = [Left::below(dir.path(), "old"), Left::below(dir.path(), "older")];
    // Its files are gone, but it still runs.
    std::fs::remove_dir_all(&left[1].folder).unwrap();
    let mut elsewhere = Left::below(other.path(), "old");
    let served = serve_in(&[dir.path()], &session, &program(ECHO), "new").await.unwrap();
    assert!(
        left.iter_mut().all(Left::ended),
        "a server of an earlier test still listens"
    );
    assert!(!left[0].folder.exists() && Path::new(&served.folder).exists());
    assert!(!elsewhere.ended() && elsewhere.folder.exists(), "of another folder");
    stop_traffic(&session, &served).await.unwrap();
}

#[tokio::test]
async fn a_server_is_ended_by_its_program_whatever_process_id_it_reported() {
    let (server, dir) = (sshd(""), tempfile::tempdir().unwrap());
    let session = login(&server).await;
    let mut left = Left::below(dir.path(), "test");
    let served = TrafficServer {
        folder: left.folder.to_str().unwrap().to_owned(),
        port: 1,
        pid: 0,
        lanes: Vec::new(),
    };
    stop_traffic(&session, &served).await.unwrap();
    assert!(left.ended() && !left.folder.exists());
}

#[tokio::test]
async fn a_session_that_broke_is_replaced_for_the_cleaning() {
    let (server, dir) = (sshd(""), tempfile::tempdir().unwrap());
    let session = login(&server).await;
    let served = serve_in(&[dir.path()], &session, &program(ECHO), "test").await.unwrap();
    let mut left = Left::below(dir.path(), "test2");
    server.end_logins();
    assert!(stop_traffic(&session, &served).await.is_err());
    clear_traffic(&session, &server.target(), &served).await.unwrap();
    assert!(!Path::new(&served.folder).exists());
    assert!(!left.ended(), "another test's");
    drop(server);
    let gone = TrafficServer {
        folder: left.folder.to_str().unwrap().to_owned(),
        ..served
    };
    let unreachable = SshTarget {
        port: support::free_port(),
        ..Server::target(&sshd(""))
    };
    let error = clear_traffic(&session, &unreachable, &gone).await.unwrap_err();
    assert!(matches!(error, TrafficError::Ssh(_)), "{error:?}");
}
