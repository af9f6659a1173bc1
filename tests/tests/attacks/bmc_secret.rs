//! Hosts that pose as a node without a TPM; the node's BMC delivers a secret to it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_sim::fleet::Profile;
use rackwright_tests::impostor::{Host, Key, get};
use serde_json::Value;
use tonic::Code;

use crate::machine::{Bench, Setup, TEST_LIMIT};

const REFUSED: &str = "security.attestation-refused";
const REQUIRED: &str = "identity: {bmc: required}\n";
const PREFERRED: &str = "identity: {bmc: preferred, address_only: allow}\n";
/// The address of the machine's BMC.
const BMC: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 1);
/// The address of a host on the boot network.
const BOOT_HOST: Ipv4Addr = Ipv4Addr::new(127, 128, 7, 7);

/// A control plane and one honest machine without a TPM. `refuses`: the BMC refuses all media.
async fn start(profile: Profile, refuses: bool, more: &str) -> Bench {
    let setup = Setup {
        profile,
        tpm: false,
        more,
        ..Setup::default()
    };
    setup.start(|fleet| fleet.node(0).refuse_media(refuses)).await
}

impl Bench {
    fn identity(&self) -> Value {
        self.site.json(["node", "get", &self.id()])["status"]["identity"].clone()
    }

    fn explained(&self) -> String {
        self.site.cli(["node", "explain", &self.id()])
    }

    /// The address of the medium in the virtual drive, once there is one.
    async fn medium(&self) -> String {
        let deadline = Instant::now() + TEST_LIMIT;
        loop {
            if let Some(url) = self.node().media() {
                return url;
            }
            assert!(Instant::now() < deadline, "no medium\n{}", self.site.log_tail());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A host registers with the machine's MAC address in its place and answers the challenge; returns the end of the
    /// stream.
    async fn pose(&self, attacker: &Host, proof: &[u8]) -> tonic::Status {
        let plan = attacker.plan_as_soon_as_possible(TEST_LIMIT).await;
        let agent = plan
            .register(&Key::new("attacker"))
            .await
            .expect("no agent has registered before");
        let mut session = agent.connect("10.66.6.6").await.expect("it opens for the challenge");
        // Messages before the answer are ignored.
        session.send_message(Up::Inventory(v1::Inventory::default())).await;
        let answer = |challenge: &v1::Challenge| {
            assert!(
                challenge.bmc_secret && challenge.credential_blob.is_empty(),
                "{challenge:?}"
            );
            v1::Attestation {
                bmc_proof: proof.to_vec(),
                bmc_fault: "no drive has the medium".into(),
                ..v1::Attestation::default()
            }
        };
        session.answer_by(answer, TEST_LIMIT).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_machine_is_known_by_its_bmc_and_its_erase_certificate_states_it() {
    let bench = start(Profile::Instant, false, REQUIRED).await;
    bench.until(&["available"]).await;
    assert_eq!(bench.identity(), "bmc");
    bench.deploy();
    bench.until(&["active"]).await;
    assert_eq!(bench.node().media(), None, "the customer finds no medium of ours");
    let explained = bench.explained();
    assert!(explained.contains("the medium with the boot's secret"), "{explained}");
    bench.release();
    bench.until(&["available"]).await;
    let certificates = bench.certificates();
    assert!(certificates.contains("\"identity\":\"bmc\""), "{certificates}");
    let printed = bench.site.cli(["node", "certificates", &bench.id(), "--verify"]);
    assert!(printed.contains("valid") && printed.contains("bmc"), "{printed}");
    for kind in [
        REFUSED,
        "security.no-bmc-secret",
        "security.bmc-foreign",
        "security.bmc-foreign-removed",
    ] {
        assert_eq!(bench.events(kind), [] as [Value; 0]);
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_the_medium_cannot_pose_as_the_machine() {
    let bench = start(Profile::Vm, false, PREFERRED).await;
    bench.until(&["available"]).await;
    let attacker = Host::with_mac(bench.dhcp, &bench.node().mac()).await;
    bench.deploy();
    let ended = bench.pose(&attacker, &[]).await;
    assert!(
        ended.code() == Code::Unauthenticated && ended.message().contains("no drive has the medium"),
        "{ended}"
    );
    // The real machine, after a power cycle.
    bench.until(&["active"]).await;
    assert!(bench.node().installed().is_some());
    assert_eq!(bench.identity(), "bmc");
    let events = bench.events(REFUSED);
    assert!(
        events.len() == 1 && events[0].to_string().contains(&bench.node().mac()),
        "{events:?}"
    );
    // During the erase, with an invented secret: after two attempts the control plane gives the node up.
    bench.release();
    for _ in 0..2 {
        let ended = bench.pose(&attacker, &[7; 32]).await;
        assert!(ended.message().contains("does not know the secret"), "{ended}");
    }
    bench.until(&["quarantined"]).await;
    let reason = bench.site.reason(&bench.id());
    assert!(reason.contains("does not know the secret"), "{reason}");
    assert_eq!(bench.events(REFUSED).len(), 3);
    assert!(!bench.certificates().contains("signature"));
    assert!(
        bench.node().installed().is_some(),
        "nothing was erased, and the node shows that"
    );
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_medium_is_for_the_bmc_alone_and_for_its_own_boot_alone() {
    let bench = start(Profile::Vm, false, REQUIRED).await;
    let first = bench.medium().await;
    assert!(!first.contains('?'), "{first}");
    let medium = get(&first, BMC).await.expect("the BMC may have it");
    assert!(medium.contains("CD001") && medium.contains("rackwright-bmc-secret-v1"));
    assert_eq!(get(&first, BOOT_HOST).await, None, "another address");
    let (before, seal) = first
        .strip_suffix("/rackwright.iso")
        .and_then(|url| url.rsplit_once('/'))
        .expect("a seal");
    let guessed = format!("{before}/{}/rackwright.iso", "0".repeat(seal.len()));
    assert_eq!(get(&guessed, BMC).await, None, "a guess");
    bench.until(&["available"]).await;
    assert_eq!(get(&first, BMC).await, None, "its boot is over");
    bench.deploy();
    let second = bench.medium().await;
    assert_ne!(first, second);
    assert_eq!(get(&first, BMC).await, None, "an old boot's");
    bench.until(&["active"]).await;
    assert_eq!(get(&second, BMC).await, None, "a customer's machine expects none");
    assert_eq!(bench.identity(), "bmc");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_with_a_bmc_without_virtual_media_is_refused_where_the_secret_is_required() {
    let strict = start(Profile::Instant, true, REQUIRED).await;
    strict.until(&["failed"]).await;
    let reason = strict.site.reason(&strict.id());
    assert!(
        reason.contains("delivers none") && reason.contains("not licensed") && reason.contains("identity.bmc_skus"),
        "{reason}"
    );
    assert_eq!(strict.node().view().boots, 0, "it was not even switched on");
    strict.end().await;

    let bench = start(Profile::Instant, true, PREFERRED).await;
    bench.until(&["available"]).await;
    assert_eq!(bench.identity(), "address only");
    let explained = bench.explained();
    assert!(
        explained.contains("delivers no secret") && explained.contains("not licensed"),
        "{explained}"
    );
    bench.deploy();
    bench.until(&["active"]).await;
    bench.release();
    bench.until(&["available"]).await;
    let certificates = bench.certificates();
    assert!(certificates.contains("\"identity\":\"address only\""), "{certificates}");
    let events = bench.events("security.no-bmc-secret");
    assert!(
        events.len() == 1 && events[0].to_string().contains("not licensed"),
        "once: {events:?}"
    );
    bench.end().await;
}
