//! The agent and a control plane in this process: registration, streams, jobs, reconnection and restart.

// Helpers outside of test functions.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rackwright_agent::agent::{self, AgentError};
use rackwright_agent::jobs::power::PowerAction;
use rackwright_agent::machine::Machine;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_api::v1::control_message::Message as Down;
use rackwright_api::v1::job::Work;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_api::v1::{
    CancelJob, EraseDrives, EraseMethod, Hello, Job, JobState, RebootMachine, RebootWay, Seed, WriteImage,
};
use rackwright_free_port::free_port;
use secrecy::ExposeSecret as _;
use support::{Bench, Control, Stream, TOKEN, WAIT_LIMIT, bench};
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn start(control: &Control, machine: &Machine) -> JoinHandle<AgentError> {
    let (settings, machine) = (control.settings(), machine.clone());
    tokio::spawn(async move {
        let Err(error) = agent::run(settings, machine, async {}).await;
        error
    })
}

async fn hello(stream: &mut Stream) -> Hello {
    match stream.next().await {
        Up::Hello(hello) => hello,
        other => panic!("hello is not first: {other:?}"),
    }
}

fn write_job(operation: &str, claim_generation: u64) -> Job {
    let seed = Some(Seed {
        files: HashMap::from([("meta-data".to_owned(), b"instance-id: i\n".to_vec())]),
    });
    let work = WriteImage {
        image_digest: "b3-00".into(),
        store_urls: vec!["https://127.0.0.1:1/store/v1".into()],
        seed,
        ..WriteImage::default()
    };
    Job {
        operation: operation.into(),
        claim_generation,
        deadline_s: 60,
        work: Some(Work::WriteImage(work)),
    }
}

fn erase_job(operation: &str, claim_generation: u64) -> Job {
    let work = Some(Work::EraseDrives(EraseDrives {
        samples: 64,
        clear_boot_entries: true,
        clear_tpm: false,
        ..EraseDrives::default()
    }));
    Job {
        operation: operation.into(),
        claim_generation,
        deadline_s: 60,
        work,
    }
}

/// Starts a control plane at generation 5 and an agent, and reads the agent's hello and inventory.
async fn connected() -> (Control, Bench, JoinHandle<AgentError>, Stream) {
    let mut control = Control::start(5).await;
    let bench = bench();
    let agent = start(&control, &bench.machine);
    let mut stream = control.stream().await;
    let first = hello(&mut stream).await;
    assert_eq!(
        (first.claim_generation, first.jobs.len(), first.mac.as_str()),
        (5, 0, "52:54:00:00:00:01")
    );
    assert_eq!(first.address, "127.0.0.1");
    let Up::Inventory(inventory) = stream.next().await else {
        panic!("the inventory is not second")
    };
    assert_eq!(
        inventory.drives[0].erase_methods().next(),
        Some(EraseMethod::DiscardZeroed)
    );
    (control, bench, agent, stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_write_job_runs_once() {
    let (mut control, bench, _agent, mut stream) = connected().await;
    for _ in 0..3 {
        stream.send(Down::Job(write_job("op-1", 5))).await;
    }
    let progress = stream
        .find(|m| matches!(m, Up::Job(report) if report.state() == JobState::Running).then_some(()))
        .await;
    assert_eq!(progress, ());
    bench.gate.release().await;
    let report = stream.ended("op-1").await;
    assert_eq!(report.state(), JobState::Succeeded, "{:?}", report.error);
    let Some(JobResult::WriteImage(result)) = &report.result else {
        panic!("{report:?}")
    };
    assert_eq!(
        (
            result.drive_name.as_str(),
            result.drive_serial.as_str(),
            result.logical_bytes
        ),
        ("vda", "S1", 64 << 20)
    );
    stream.send(Down::Job(write_job("op-1", 5))).await;
    assert_eq!(stream.ended("op-1").await, report, "the same report again");
    assert_eq!(bench.gate.begun.load(Ordering::SeqCst), 1);
    let order = bench.gate.orders.lock().unwrap()[0].clone();
    assert!(
        order.credentials.certificate_pem.contains("BEGIN CERTIFICATE")
            && order.credentials.ca_pem.contains("BEGIN CERTIFICATE")
    );
    drop(stream);
    let again = hello(&mut control.stream().await).await;
    assert_eq!(again.jobs, [report], "the ledger is in every hello");
    assert_eq!(control.registrations.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_and_second_jobs_are_refused_and_heartbeats_go_on() {
    let (_control, bench, _agent, mut stream) = connected().await;
    stream.send(Down::Job(write_job("old", 4))).await;
    let old = stream.ended("old").await;
    assert_eq!(
        (old.state(), old.error.unwrap().code.as_str()),
        (JobState::Refused, "stale-generation")
    );
    stream.send(Down::Job(write_job("first", 6))).await;
    stream.send(Down::Job(erase_job("second", 6))).await;
    let second = stream.ended("second").await;
    assert_eq!(
        (second.state(), second.error.unwrap().code.as_str()),
        (JobState::Refused, "busy")
    );
    stream
        .find(|message| matches!(message, Up::Heartbeat(_)).then_some(()))
        .await;
    stream
        .send(Down::Cancel(CancelJob {
            operation: "first".into(),
        }))
        .await;
    let first = stream.ended("first").await;
    assert_eq!(
        (first.state(), first.error.unwrap().code.as_str()),
        (JobState::Failed, "cancelled")
    );
    stream.send(Down::Job(write_job("outdated", 5))).await;
    assert_eq!(
        stream.ended("outdated").await.error.unwrap().code,
        "stale-generation",
        "6 was seen"
    );
    stream.send(Down::Job(erase_job("third", 6))).await;
    let third = stream.ended("third").await;
    assert_eq!(
        third.state(),
        JobState::Succeeded,
        "free in the moment of the report: {:?}",
        third.error
    );
    assert_eq!(bench.gate.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_late_ends_with_its_deadline() {
    let (_control, _bench, _agent, mut stream) = connected().await;
    stream
        .send(Down::Job(Job {
            deadline_s: 1,
            ..write_job("slow", 5)
        }))
        .await;
    let slow = stream.ended("slow").await;
    assert_eq!(slow.error.unwrap().code, "deadline");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ended_while_the_stream_was_down_is_reported_by_the_next() {
    let (mut control, bench, _agent, mut stream) = connected().await;
    stream.send(Down::Job(write_job("op-1", 5))).await;
    stream.find(|m| matches!(m, Up::Job(_)).then_some(())).await;
    drop(stream);
    bench.gate.release().await;
    let mut stream = control.stream().await;
    let hello = hello(&mut stream).await;
    let job = hello.jobs.iter().find(|job| job.operation == "op-1").unwrap();
    // The agent may have connected before the job ended; then the report follows.
    let state = if job.state() == JobState::Running {
        stream.ended("op-1").await.state()
    } else {
        job.state()
    };
    assert_eq!(state, JobState::Succeeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_again_needs_no_token_and_reports_its_job_interrupted() {
    let (mut control, bench, agent, mut stream) = connected().await;
    stream.send(Down::Job(write_job("op-1", 7))).await;
    stream.find(|m| matches!(m, Up::Job(_)).then_some(())).await;
    agent.abort();
    drop(stream);
    let _agent = start(&control, &bench.machine);
    let mut stream = control.stream().await;
    let hello = hello(&mut stream).await;
    assert_eq!(
        (hello.claim_generation, hello.jobs.len()),
        (7, 1),
        "the ledger's generation is kept"
    );
    let error = hello.jobs[0].error.clone().unwrap();
    assert_eq!(
        (error.code.as_str(), error.retryable, hello.jobs[0].state()),
        ("interrupted", true, JobState::Failed)
    );
    stream.send(Down::Job(write_job("op-1", 7))).await;
    assert_eq!(
        stream.ended("op-1").await.error.unwrap().code,
        "interrupted",
        "not begun again"
    );
    assert_eq!(bench.gate.begun.load(Ordering::SeqCst), 1);
    assert_eq!(control.registrations.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_drives_generation_outlives_the_agents_memory() {
    let (control, bench, agent, mut stream) = connected().await;
    stream.send(Down::Job(write_job("op-1", 9))).await;
    bench.gate.release().await;
    assert_eq!(stream.ended("op-1").await.state(), JobState::Succeeded);
    agent.abort();
    drop((control, stream));
    // After a reboot only the drive keeps the generation, and the control plane is reset to generation 5.
    std::fs::remove_dir_all(&bench.root.state).unwrap();
    let mut control = Control::start(5).await;
    let _agent = start(&control, &bench.machine);
    let mut stream = control.stream().await;
    assert_eq!(hello(&mut stream).await.claim_generation, 9);
    stream.send(Down::Job(erase_job("op-2", 8))).await;
    assert_eq!(stream.ended("op-2").await.error.unwrap().code, "stale-generation");
    stream.send(Down::Job(erase_job("op-3", 9))).await;
    let erased = stream.ended("op-3").await;
    let Some(JobResult::EraseDrives(result)) = &erased.result else {
        panic!("{erased:?}")
    };
    assert_eq!(
        (result.drives.len(), result.drives[0].method()),
        (1, EraseMethod::DiscardZeroed)
    );
    assert!(std::fs::read(&bench.drive).unwrap().iter().all(|byte| *byte == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erase_with_boot_entries_left_over_has_failed() {
    const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let (_control, bench, _agent, mut stream) = connected().await;
    let efivars = bench.root.efivars();
    std::fs::create_dir_all(&efivars).unwrap();
    // Attributes of the variable and of the entry, the length of its paths, and its label.
    let label = "Rackwright: debian\0".encode_utf16().flat_map(u16::to_le_bytes);
    let entry: Vec<u8> = [7, 0, 0, 0, 1, 0, 0, 0, 0, 0].into_iter().chain(label).collect();
    let ours = efivars.join(format!("Boot0001-{GLOBAL}"));
    std::fs::write(&ours, entry).unwrap();
    // A folder in place of a variable cannot be written.
    let order = efivars.join(format!("BootOrder-{GLOBAL}"));
    std::fs::create_dir(&order).unwrap();

    stream.send(Down::Job(erase_job("op-1", 5))).await;
    let report = stream.ended("op-1").await;
    let error = report.error.clone().unwrap();
    assert_eq!(
        (report.state(), error.code.as_str(), error.retryable),
        (JobState::Failed, "boot-entries", true)
    );
    assert!(error.message.contains("BootOrder"), "{error:?}");
    let Some(JobResult::EraseDrives(result)) = &report.result else {
        panic!("{report:?}")
    };
    assert_eq!(result.drives.len(), 1, "the erased drives are reported");

    std::fs::remove_dir(&order).unwrap();
    stream.send(Down::Job(erase_job("op-2", 5))).await;
    let report = stream.ended("op-2").await;
    assert_eq!(report.state(), JobState::Succeeded, "{:?}", report.error);
    assert!(!ours.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_action_is_reported_before_it_happens() {
    let (_control, bench, _agent, mut stream) = connected().await;
    let reboot = |operation: &str, way: RebootWay| {
        let work = Some(Work::Reboot(RebootMachine { way: way.into() }));
        Down::Job(Job {
            operation: operation.into(),
            claim_generation: 5,
            deadline_s: 60,
            work,
        })
    };
    stream.send(reboot("some-way", RebootWay::Unspecified)).await;
    assert_eq!(stream.ended("some-way").await.error.unwrap().code, "unsupported");
    stream.send(reboot("off", RebootWay::PowerOff)).await;
    assert_eq!(stream.ended("off").await.state(), JobState::Succeeded);
    assert!(bench.switch.0.lock().unwrap().is_empty(), "not before the report");
    let acted = async {
        while bench.switch.0.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WAIT_LIMIT, acted).await.unwrap();
    assert_eq!(*bench.switch.0.lock().unwrap(), [PowerAction::PowerOff]);
    stream.send(Down::Job(erase_job("late", 5))).await;
    assert_eq!(
        stream.ended("late").await.error.unwrap().code,
        "busy",
        "the machine is about to go"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_used_for_the_next_stream() {
    let (mut control, _bench, _agent, stream) = connected().await;
    drop(stream);
    let mut stream = control.stream().await;
    let renewed = control.renew(&hello(&mut stream).await.csr_pem);
    let before = stream.certificate.clone();
    stream.send(Down::Renewed(renewed)).await;
    // The answer to a later job shows that the message was handled.
    stream.send(Down::Job(write_job("old", 1))).await;
    stream.ended("old").await;
    drop(stream);
    let next = control.stream().await;
    assert_ne!(next.certificate, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_ca_and_a_spent_token_end_the_agent() {
    let control = Control::start(5).await;
    let bench = bench();
    let wrong = control.settings_with(&format!("rackwright.ca=sha256:{}", "0".repeat(64)));
    let Err(error) = timeout(WAIT_LIMIT, agent::run(wrong, bench.machine.clone(), async {}))
        .await
        .unwrap();
    assert!(error.to_string().contains("SHA-256"), "{error}");
    let spent = control.settings_with("rackwright.token=another-s3cret");
    assert_eq!(spent.token.expose_secret(), "another-s3cret");
    let Err(error) = timeout(WAIT_LIMIT, agent::run(spent, bench.machine.clone(), async {}))
        .await
        .unwrap();
    assert!(
        matches!(error, AgentError::Refused { .. }) && !error.to_string().contains("s3cret"),
        "{error}"
    );
    assert_eq!(control.registrations.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_ca_is_never_given_the_token() {
    let (control, stranger) = (Control::start(5).await, Control::start(5).await);
    let bench = bench();
    let settings = control.settings_with(&format!("rackwright.server=https://{}", stranger.server));
    let running = tokio::spawn(async move { agent::run(settings, bench.machine.clone(), async {}).await });
    // The agent keeps trying: each connection fails in TLS, before the token is sent.
    let connected = timeout(Duration::from_secs(2), async {
        while stranger.registrations.load(Ordering::SeqCst) == 0 && !running.is_finished() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(connected.await.is_err(), "the foreign server got a registration");
    running.abort();
    assert!(!TOKEN.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_waits_for_a_control_plane_that_comes_late() {
    let mut control = Control::start(5).await;
    let bench = bench();
    // No server listens yet at the address of the CA file.
    let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let settings = control.settings_with(&format!("rackwright.caurl=http://{address}/ca.pem"));
    let machine = bench.machine.clone();
    let agent = tokio::spawn(async move { agent::run(settings, machine, async {}).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!agent.is_finished());
    let listener = std::net::TcpListener::bind(address).unwrap();
    let pem = control.ca_pem.clone();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{pem}",
                pem.len()
            );
        }
    });
    hello(&mut control.stream().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_reached_is_followed_by_the_next() {
    let mut control = Control::start(5).await;
    let bench = bench();
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let (server, url) = (control.server, control.ca_url.clone());
    let settings = control.settings_with(&format!(
        "rackwright.server=https://{closed},https://{server} rackwright.caurl={url},{url}"
    ));
    let machine = bench.machine.clone();
    tokio::spawn(async move { agent::run(settings, machine, async {}).await });
    // The agent skips the dead server at the registration, at the first stream, and when that stream ends.
    for _ in 0..2 {
        let mut stream = control.stream().await;
        hello(&mut stream).await;
    }
}
