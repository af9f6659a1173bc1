//! What the hostile host does under the MAC address of a machine. All of it runs on that host.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_sim::fleet::SimTpm;
use rackwright_tests::bridge_host::{CARD, ip};
use rackwright_tests::flood::announced;
use rackwright_tests::impostor::{Agent, Host, Key};
use rackwright_tests::site::BOOT;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use super::hall::{HOSTILE, SHORT};

const MIB: u64 = 1 << 20;

/// The outcome of a race with a machine.
pub struct Race {
    /// The certificate, and the key for it.
    pub agent: Agent,
    /// The job that the host got; none: the session ended without one.
    pub job: Option<v1::Job>,
}

/// Registers before the machine, sends `reports`, and waits for the end of the session.
pub async fn race(mac: String, boot_id: &str, reports: Vec<Up>) -> Race {
    let host = Host::on_the_link(CARD, &mac).await;
    let plan = host.plan_as_soon_as_possible(BOOT).await;
    let agent = plan
        .register(&Key::new(boot_id))
        .await
        .expect("no agent has registered before");
    let mut session = agent.connect(&HOSTILE.to_string()).await.expect("the boot is its own");
    for report in reports {
        session.send_message(report).await;
    }
    let job = session.job_before_the_end(BOOT).await;
    Race { agent, job }
}

/// The report of a successful erase of a drive that was not erased.
pub fn false_report(drive_serial: &str) -> Up {
    let drive = v1::DriveErase {
        drive_name: "vda".into(),
        serial_number: drive_serial.into(),
        size_bytes: 1 << 30,
        method: v1::EraseMethod::NvmeSanitizeCrypto.into(),
        samples: 4096,
        sample_bytes: 4096,
        ..v1::DriveErase::default()
    };
    let result = v1::EraseDrivesResult {
        drives: vec![drive],
        ..v1::EraseDrivesResult::default()
    };
    Up::Job(v1::JobReport {
        operation: "erase".into(),
        claim_generation: 1,
        state: v1::JobState::Succeeded.into(),
        result: Some(v1::job_report::Result::EraseDrives(result)),
        ..v1::JobReport::default()
    })
}

/// Registers before the machine, repeats that, and uses the token for a second key. Returns the address of the first
/// registration.
pub async fn replay_a_token(mac: String) -> Ipv4Addr {
    let host = Host::on_the_link(CARD, &mac).await;
    let plan = host.plan_as_soon_as_possible(BOOT).await;
    let key = Key::new("first");
    let agent = plan.register(&key).await.expect("no agent has registered before");
    let mut session = agent.connect(&HOSTILE.to_string()).await.expect("the boot is its own");
    plan.register(&key).await.expect("the same key and the same kernel");
    let refused = plan.register(&Key::new("second")).await.map(drop);
    let refused = refused.expect_err("a second key was registered");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(session.job_before_the_end(SHORT).await.is_none());
    let again = plan.register(&key).await.map(drop);
    let again = again.expect_err("the first key was registered again");
    assert_eq!(again.code(), Code::Unauthenticated, "no host is believed in this boot");
    plan.address
}

/// Uses the script's token from a second address, and then from the leased one.
pub async fn use_a_token_in_two_places(mac: String, elsewhere: Ipv4Addr) {
    ip(&format!("addr add {elsewhere}/24 dev {CARD}"));
    let host = Host::on_the_link(CARD, &mac).await;
    let deadline = Instant::now() + BOOT;
    let (url, leased) = loop {
        let lease = host.lease().await.expect("a known machine has an address");
        if let Some(url) = lease.boot_file {
            break (url, lease.address);
        }
        assert!(Instant::now() < deadline, "nothing is booted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(host.plan_at(&url, elsewhere).await.is_none(), "a plan for {elsewhere}");
    assert!(host.plan_at(&url, leased).await.is_none(), "a plan in a contested boot");
}

/// Registers before the machine and connects without a TPM. Returns the refusal.
pub async fn pose_without_a_tpm(mac: String) -> Status {
    let host = Host::on_the_link(CARD, &mac).await;
    let plan = host.plan_as_soon_as_possible(BOOT).await;
    let agent = plan.register(&Key::new("no TPM")).await;
    let agent = agent.expect("no agent has registered before");
    let refused = agent.connect(&HOSTILE.to_string()).await.map(drop);
    refused.expect_err("the agent was accepted")
}

/// The same with a TPM of the host. Returns the refusal, and the TPM's digest.
pub async fn pose_with_another_tpm(mac: String) -> (Status, String) {
    let host = Host::on_the_link(CARD, &mac).await;
    let plan = host.plan_as_soon_as_possible(BOOT).await;
    let key = Key::new("another TPM");
    let agent = plan.register(&key).await.expect("no agent has registered before");
    let own = SimTpm::new(b"a TPM of the hostile host");
    let mut session = agent
        .connect_with(&own)
        .await
        .expect("the stream opens for the challenge");
    let ended = session.answer_with(&own, &key.sha256(), SHORT).await;
    (ended, own.digest())
}

/// Announces 256 MiB in calls without a certificate: each is refused before that much is sent.
pub async fn send_huge_messages(api: Endpoint) {
    // Here, so that its connection begins on this host.
    let api = api.connect_lazy();
    for (path, wanted) in [
        ("AgentService/Register", Code::ResourceExhausted),
        ("AgentService/Connect", Code::Unauthenticated),
        ("ImageService/WriteUpload", Code::Unauthenticated),
    ] {
        let path = format!("/rackwright.v1.{path}");
        let deadline = Instant::now() + SHORT;
        let (status, sent) = loop {
            let (status, sent) = announced(&api, &path, 256 * MIB, 256 * MIB).await;
            // Beside the flood, a connection may be closed before its call.
            if status.code() != Code::Unknown || Instant::now() > deadline {
                break (status, sent);
            }
        };
        assert_eq!(status.code(), wanted, "{path}: {status:?}");
        assert!(sent < 4 * MIB, "{path}: {sent} bytes were taken");
    }
}
