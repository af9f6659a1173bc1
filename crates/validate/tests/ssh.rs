//! Tests against real servers: which logins succeed, which machines are trusted, and how misbehaving servers are handled.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, SystemTime};

use rackwright_validate::{
    Deployment, Expected, HandOverError, Logins, ProbeOptions, Profile, RunLimits, SeedScrub, Session, SshError,
    SshTarget, hand_over, judge, probe, wait_reachable,
};
use support::{LIMIT, Server, dropbear, free_port, key, sshd};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LIMITS: RunLimits = RunLimits {
    timeout: LIMIT,
    output_max_bytes: 1 << 20,
};

/// A quick reading.
const PROBE: ProbeOptions = ProbeOptions {
    systemd_wait_s: 0,
    disk_read_sample_mib: 0,
};

async fn login(server: &Server) -> Session {
    let reached = wait_reachable(&server.target(), Instant::now() + LIMIT, &CancellationToken::new()).await;
    reached.unwrap_or_else(|e| panic!("{e}: {e:?}\n{}", server.log()))
}

#[tokio::test]
async fn runs_scripts_and_reports_their_end() {
    let server = sshd("");
    let session = login(&server).await;
    let script = "echo out; echo err >&2; read -r line || echo \"no input\"; exit 7\n";
    let output = session.run(script, LIMITS).await.unwrap();
    assert_eq!(output.status, 7);
    assert_eq!(output.stderr_tail(), "err");
    assert!(output.stdout.starts_with(b"out\n"));
    let again = session.run("echo \"it's fine\"", LIMITS).await.unwrap();
    assert_eq!((again.status, again.stdout.as_slice()), (0, &b"it's fine\n"[..]));
    session.close().await;
}

#[tokio::test]
async fn another_host_key_is_refused_and_named() {
    let server = sshd("");
    drop(login(&server).await);
    let logins = || server.log().matches("Accepted publickey").count();
    assert_eq!(logins(), 1);
    let other = key("other");
    let target = SshTarget {
        host_key: other.public_line().into(),
        ..server.target()
    };
    match Session::connect(&target).await {
        Err(SshError::HostKeyMismatch {
            expected, presented, ..
        }) => {
            assert_eq!(expected, other.fingerprint());
            assert_eq!(presented, server.host.fingerprint());
        }
        result => panic!("{result:?}"),
    }
    let waited = wait_reachable(
        &target,
        Instant::now() + Duration::from_secs(1),
        &CancellationToken::new(),
    )
    .await;
    match waited {
        Err(SshError::NotReachable {
            attempts,
            last: Some(last),
            ..
        }) => {
            assert!(attempts > 1 && matches!(*last, SshError::HostKeyMismatch { .. }));
        }
        result => panic!("{result:?}"),
    }
    assert_eq!(logins(), 1, "a client logged in to a machine it did not know");
}

#[tokio::test]
async fn a_server_without_our_kind_of_host_key_is_another() {
    let server = sshd("HostKeyAlgorithms rsa-sha2-512");
    let rsa = server.dir.path().join("rsa_key");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-N", "", "-f"])
        .arg(&rsa)
        .status();
    assert!(made.unwrap().success());
    let config = server.dir.path().join("sshd_config");
    let text = fs::read_to_string(&config).unwrap().replace("host_key\n", "rsa_key\n");
    fs::write(&config, text).unwrap();
    // A running sshd does not read its configuration again for a connection: another one is started on it.
    let port = free_port();
    let text = fs::read_to_string(&config)
        .unwrap()
        .replace(&format!("Port {}", server.port), &format!("Port {port}"));
    fs::write(&config, text).unwrap();
    let mut child = std::process::Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(&config)
        .spawn()
        .unwrap();
    let target = SshTarget {
        port,
        ..server.target()
    };
    let begun = Instant::now();
    let error = loop {
        match Session::connect(&target).await.unwrap_err() {
            SshError::Connect { .. } if begun.elapsed() < LIMIT => tokio::time::sleep(Duration::from_millis(20)).await,
            error => break error,
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        matches!(&error, SshError::HostKeyMismatch { presented, .. } if presented.contains("rsa")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_key_that_is_not_authorized_is_refused() {
    let server = sshd("");
    drop(login(&server).await);
    let target = SshTarget {
        private_key: key("stranger").private_key().clone(),
        ..server.target()
    };
    assert!(matches!(
        Session::connect(&target).await,
        Err(SshError::AuthRefused { .. })
    ));
}

#[tokio::test]
async fn login_works_as_soon_as_the_server_is_there() {
    let server = sshd("");
    let port = free_port();
    let late = SshTarget {
        port,
        ..server.target()
    };
    let waiting = tokio::spawn(async move {
        let reached = wait_reachable(&late, Instant::now() + LIMIT, &CancellationToken::new()).await;
        (reached.map(|_| ()), Instant::now())
    });
    // A relay plays a machine that comes up later.
    drop(login(&server).await);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let relay = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let up = Instant::now();
    let there = server.port;
    tokio::spawn(async move {
        while let Ok((mut near, _)) = relay.accept().await {
            let mut far = tokio::net::TcpStream::connect(("127.0.0.1", there)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        }
    });
    let (reached, at) = waiting.await.unwrap();
    reached.unwrap();
    assert!(at - up < Duration::from_secs(20), "took {:?}", at - up);
}

#[tokio::test]
async fn waiting_ends_at_the_deadline_and_when_cancelled() {
    let server = sshd("");
    let unreachable = SshTarget {
        port: free_port(),
        ..server.target()
    };
    let begun = Instant::now();
    let result = wait_reachable(
        &unreachable,
        begun + Duration::from_millis(700),
        &CancellationToken::new(),
    )
    .await;
    assert!(matches!(result, Err(SshError::NotReachable { .. })), "{result:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let cancel = CancellationToken::new();
    let waiting = tokio::spawn({
        let cancel = cancel.clone();
        async move { wait_reachable(&unreachable, Instant::now() + LIMIT, &cancel).await }
    });
    tokio::task::yield_now().await;
    cancel.cancel();
    assert!(matches!(waiting.await.unwrap(), Err(SshError::Cancelled { .. })));
}

#[tokio::test]
async fn a_server_that_hangs_is_bounded() {
    let server = sshd("");
    // One server accepts and stays silent; another greets and then stays silent.
    for greeting in ["", "SSH-2.0-OpenSSH_9.2\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let held = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(greeting.as_bytes()).unwrap();
            stream
        });
        let target = SshTarget {
            port,
            ..server.target()
        };
        let begun = Instant::now();
        let deadline = begun + Duration::from_secs(1);
        let result = wait_reachable(&target, deadline, &CancellationToken::new()).await;
        assert!(matches!(result, Err(SshError::NotReachable { .. })), "{result:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        drop(held.join().unwrap());
    }
}

#[tokio::test]
async fn commands_are_bounded_in_time_and_output() {
    let server = sshd("");
    let session = login(&server).await;
    let begun = Instant::now();
    let short = RunLimits {
        timeout: Duration::from_millis(500),
        output_max_bytes: 1000,
    };
    assert!(matches!(
        session.run("sleep 600", short).await,
        Err(SshError::Timeout { .. })
    ));
    let many = session
        .run(
            "yes",
            RunLimits {
                timeout: LIMIT,
                output_max_bytes: 100_000,
            },
        )
        .await;
    assert!(
        matches!(many, Err(SshError::OutputTooLarge { limit: 100_000, .. })),
        "{many:?}"
    );
    let errors = session
        .run(
            "yes >&2",
            RunLimits {
                timeout: LIMIT,
                output_max_bytes: 100_000,
            },
        )
        .await;
    assert!(matches!(errors, Err(SshError::OutputTooLarge { .. })), "{errors:?}");
    assert!(matches!(
        session.run("kill -9 $$", LIMITS).await,
        Err(SshError::NoStatus { .. })
    ));
    // The session still works.
    assert_eq!(session.run("echo on", LIMITS).await.unwrap().stdout, b"on\n");
    assert!(begun.elapsed() < LIMIT);
}

#[tokio::test]
async fn wrong_targets_are_distinguished_and_get_no_secrets() {
    let server = sshd("");
    let text = format!("{:?}", server.target());
    assert!(!text.contains("OPENSSH PRIVATE KEY"), "{text}");
    let secret = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0LXN0dWZm\n-----END OPENSSH PRIVATE KEY-----\n";
    for target in [
        SshTarget {
            private_key: secret.to_owned().into(),
            ..server.target()
        },
        SshTarget {
            host_key: "ssh-ed25519 nonsense".into(),
            ..server.target()
        },
        SshTarget {
            host_key: String::new(),
            ..server.target()
        },
    ] {
        let begun = Instant::now();
        let error = wait_reachable(&target, begun + LIMIT, &CancellationToken::new())
            .await
            .unwrap_err();
        assert!(matches!(error, SshError::Target { .. }), "{error:?}");
        assert!(!error.is_retryable() && begun.elapsed() < LIMIT);
        assert!(!format!("{error:?}{error}").contains("c2VjcmV0"));
    }
}

#[tokio::test]
async fn probes_this_machine() {
    let server = sshd("");
    let session = login(&server).await;
    let before = SystemTime::now();
    let options = ProbeOptions {
        systemd_wait_s: 5,
        disk_read_sample_mib: 1,
    };
    let read = probe(&session, options).await.unwrap();
    let now = &read.readings;
    let file = |path: &str| fs::read_to_string(path).unwrap().trim().to_owned();
    assert_eq!(now.boot_id, file("/proc/sys/kernel/random/boot_id"));
    assert_eq!(now.hostname, file("/proc/sys/kernel/hostname"));
    assert_eq!(now.kernel_release, file("/proc/sys/kernel/osrelease"));
    assert_eq!(now.cmdline, file("/proc/cmdline"));
    let cpus = file("/proc/cpuinfo")
        .lines()
        .filter(|l| l.starts_with("processor"))
        .count();
    assert_eq!(now.cpus, u32::try_from(cpus).ok());
    let memory = file("/proc/meminfo");
    let kib: u64 = memory
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(now.memory_bytes, Some(kib * 1024));
    assert!(now.uptime_s.unwrap() > 0.0);
    assert!(!now.os.id.is_empty() && !now.systemd_state.is_empty() && !now.architecture.is_empty());
    let on_bus = fs::read_dir("/sys/bus/pci/devices").map_or(0, |devices| devices.count());
    assert_eq!(now.pci_devices.len(), on_bus);
    for drive in &now.drives {
        let sectors: u64 = file(&format!("/sys/block/{}/size", drive.name)).parse().unwrap();
        assert_eq!(drive.size_bytes, sectors * 512);
    }
    let clock = now.clock.unwrap();
    assert!(clock.time + clock.resolution >= before && clock.time <= read.clock.received);

    let expected = Expected {
        image_patterns: Default::default(),
        inventory: rackwright_api::v1::Inventory::default(),
        former_boot_id: Some(now.boot_id.clone()),
        image_digest: "b3-00".into(),
        claim_generation: 1,
        hostname: now.hostname.clone(),
    };
    let checks = judge(&Profile::embedded_default().unwrap(), &expected, now, &read.clock);
    let verdict = |id: &str| checks.iter().find(|c| c.id == id).unwrap().verdict();
    use rackwright_api::v1::Verdict::{Fail, NotApplicable, Pass};
    assert_eq!(verdict("boot-id-changed"), Fail);
    assert_eq!(verdict("hostname"), Pass);
    assert_eq!(verdict("clock-offset"), Pass);
    assert_eq!(verdict("drives"), NotApplicable);
}

#[tokio::test]
async fn a_host_with_a_forced_command_cannot_be_probed() {
    let server = sshd("ForceCommand echo Please login as the user debian");
    let session = login(&server).await;
    let options = ProbeOptions {
        systemd_wait_s: 1,
        disk_read_sample_mib: 0,
    };
    let error = probe(&session, options).await.unwrap_err();
    let cause = std::error::Error::source(&error)
        .map(ToString::to_string)
        .unwrap_or_default();
    assert!(cause.contains("Please login"), "{error:?}");
}

#[tokio::test]
async fn hand_over_removes_the_key_and_proves_it() {
    let server = sshd("");
    let customer = key("alice@acme");
    let file = server.authorized_keys();
    let keep = format!("# comment\n{}\n", customer.public_line());
    let ours = server.login.public_line();
    fs::write(&file, format!("{ours}\n{keep}from=\"127.0.0.1\" {ours}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let extra = [file.display().to_string()];
    drop(login(&server).await);

    let done = hand_over(&server.target(), &extra)
        .await
        .unwrap_or_else(|e| panic!("{e:?}\n{}", server.log()));
    assert_eq!(
        done.removed_from,
        [fs::canonicalize(&file).unwrap().display().to_string()]
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), keep);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    assert_eq!(
        fs::read_dir(server.dir.path())
            .unwrap()
            .filter(|e| {
                e.as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with(".rackwright")
            })
            .count(),
        0,
        "a temporary file was left"
    );

    assert!(matches!(
        Session::connect(&server.target()).await,
        Err(SshError::AuthRefused { .. })
    ));
    let customers = SshTarget {
        private_key: customer.private_key().clone(),
        ..server.target()
    };
    Session::connect(&customers).await.unwrap();

    let again = hand_over(&server.target(), &extra).await.unwrap();
    assert_eq!((again.removed_from.len(), again.seed), (0, SeedScrub::NotChecked));
}

#[tokio::test]
async fn one_login_serves_the_steps_of_a_deployment_and_no_other() {
    let server = sshd("");
    let (target, logins) = (server.target(), Logins::default());
    let accepted = || server.log().matches("Accepted publickey").count();
    let deployment = |number| Deployment {
        node: "n1".into(),
        generation: 3,
        number,
    };
    let probe = async |number| {
        let read = logins
            .probe(&deployment(number), &target, PROBE, Instant::now() + LIMIT)
            .await;
        read.unwrap_or_else(|e| panic!("{e:?}\n{}", server.log()))
    };
    logins.keep(deployment(1), login(&server).await).await;
    probe(1).await;
    assert_eq!(accepted(), 1, "{}", server.log());
    probe(2).await;
    assert_eq!(accepted(), 2, "{}", server.log());

    // The machine ends the login of the second deployment: the next step notices it and logs in again.
    server.end_logins();
    probe(2).await;
    assert_eq!(accepted(), 3, "{}", server.log());

    let extra = [server.authorized_keys().display().to_string()];
    let done = logins.hand_over(&deployment(2), &target, &extra).await.unwrap();
    assert_eq!(done.removed_from.len(), 1);
    assert_eq!(accepted(), 3, "{}", server.log());
    assert!(matches!(
        Session::connect(&target).await,
        Err(SshError::AuthRefused { .. })
    ));
}

#[tokio::test]
async fn unused_logins_are_closed_at_the_end() {
    let server = sshd("");
    let (logins, stop) = (Logins::default(), CancellationToken::new());
    let deployment = Deployment {
        node: "n1".into(),
        generation: 1,
        number: 1,
    };
    logins.keep(deployment, login(&server).await).await;
    assert!(!server.logins().is_empty());
    stop.cancel();
    logins.tidy(stop).await;
    let begun = Instant::now();
    while !server.logins().is_empty() {
        assert!(begun.elapsed() < LIMIT, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn hand_over_fails_while_the_key_still_opens() {
    let server = sshd("");
    drop(login(&server).await);
    // The file is not among the searched ones.
    let error = hand_over(&server.target(), &[]).await.unwrap_err();
    assert!(
        matches!(&error, HandOverError::StillAccepted { removed, .. } if removed == "nowhere"),
        "{error:?}"
    );
    drop(login(&server).await);
    // A machine with another host key does not count as one that refuses the key.
    let other = SshTarget {
        host_key: key("other").public_line().into(),
        ..server.target()
    };
    let error = hand_over(&other, &[]).await.unwrap_err();
    assert!(
        matches!(error, HandOverError::Ssh(SshError::HostKeyMismatch { .. })),
        "{error:?}"
    );
    let unreachable = SshTarget {
        port: free_port(),
        ..server.target()
    };
    let error = hand_over(&unreachable, &[]).await.unwrap_err();
    assert!(
        matches!(error, HandOverError::Ssh(SshError::Connect { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn hand_over_follows_links_and_empties_files() {
    let server = sshd("");
    let (file, real) = (server.authorized_keys(), server.dir.path().join("real"));
    drop(login(&server).await);
    fs::rename(&file, &real).unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();
    let done = hand_over(&server.target(), &[file.display().to_string()])
        .await
        .unwrap();
    assert_eq!(
        done.removed_from,
        [fs::canonicalize(&real).unwrap().display().to_string()]
    );
    assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "");
}

#[tokio::test]
async fn dropbear_works_like_openssh() {
    let server = dropbear();
    let session = login(&server).await;
    let options = ProbeOptions {
        systemd_wait_s: 1,
        disk_read_sample_mib: 0,
    };
    let read = probe(&session, options).await.unwrap();
    assert!(!read.readings.boot_id.is_empty() && read.readings.cpus.is_some());
    drop(session);
    // The key is in the usual place: no extra file is needed.
    let done = hand_over(&server.target(), &[])
        .await
        .unwrap_or_else(|e| panic!("{e:?}\n{}", server.log()));
    assert_eq!(done.removed_from, ["/root/.ssh/authorized_keys"]);
    assert!(matches!(
        Session::connect(&server.target()).await,
        Err(SshError::AuthRefused { .. })
    ));
}
