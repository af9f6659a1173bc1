//! Machines that claim to be a node with an enrolled TPM.

use std::sync::{Arc, Mutex};

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_sim::fleet::{Profile, SimNode, SimTpm};
use rackwright_tests::impostor::{Host, Key};
use rackwright_tests::site::ADDRESS_ONLY;
use serde_json::Value;
use tonic::Code;

use crate::machine::{Bench, Setup, TEST_LIMIT};

const REFUSED: &str = "security.attestation-refused";

/// A control plane and one honest machine.
async fn start(tpm: bool, more: &str) -> Bench {
    let setup = Setup {
        tpm,
        more,
        ..Setup::default()
    };
    setup.start(|_| {}).await
}

/// Starts with this kernel for the machine.
async fn start_serving(kernel: &[u8], more: &str) -> Bench {
    let setup = Setup {
        kernel,
        more,
        ..Setup::default()
    };
    setup.start(|_| {}).await
}

/// Starts, with the machine already inspected.
async fn inspected(profile: Profile) -> Bench {
    let setup = Setup {
        profile,
        ..Setup::default()
    };
    let bench = setup.start(|_| {}).await;
    bench.until(&["available"]).await;
    bench
}

impl Bench {
    fn tpm(&self) -> SimTpm {
        self.node().tpm().expect("it has one")
    }

    /// The SHA-256 of the TPM's quote in each erase certificate; empty: no TPM.
    fn attestations(&self) -> Vec<String> {
        let certificates = self.site.json(["node", "certificates", &self.id()]);
        let all = certificates.as_array().expect("a list").iter();
        let attestation = |one: &Value| one["attestation_sha256"].as_str().unwrap_or_default().to_owned();
        let all: Vec<String> = all.map(attestation).collect();
        assert!(!all.is_empty(), "no certificate");
        all
    }

    /// The machine lies in every boot of a deployment: it gets no job, and is quarantined for that reason.
    async fn is_quarantined_for(&self, words: &str) {
        self.deploy();
        self.ends_in_quarantine_for(words).await;
        assert!(self.node().installed().is_none(), "nothing was written");
    }

    async fn ends_in_quarantine_for(&self, words: &str) {
        self.until(&["quarantined"]).await;
        let events = self.events(REFUSED);
        assert_eq!(events.len(), 2, "{events:?}");
        for event in &events {
            assert!(event["message"].to_string().contains(words), "{event}");
        }
        let reason = self.site.reason(&self.id());
        assert!(reason.contains(words) && reason.contains("identity"), "{reason}");
    }

    /// The machine, honest again, is readmitted and reaches the end.
    async fn gets_through(&self, readmit: &[&str]) {
        let id = self.id();
        let words = [&["node", "readmit", "--yes", &id], readmit].concat();
        self.site.cli(words);
        self.until(&["available"]).await;
        self.deploy();
        self.until(&["active"]).await;
        assert_eq!(self.status()["identity"], "tpm");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_machine_is_known_by_its_tpm_and_its_erase_certificate_states_it() {
    let bench = inspected(Profile::Instant).await;
    let (id, ek) = (bench.id(), bench.tpm().digest());
    let status = bench.status();
    assert_eq!(
        (&status["identity"], &status["tpm_ek"]),
        (&"tpm".into(), &ek.as_str().into())
    );
    let events = bench.events("security.tpm-enrolled");
    assert!(events.len() == 1 && events[0].to_string().contains(&ek), "{events:?}");
    bench.deploy();
    bench.until(&["active"]).await;
    bench
        .node()
        .set_tpm(Some(bench.tpm().with_stored(b"a key of the customer")));
    bench.site.cli(["node", "release", "--yes", &id]);
    bench.until(&["available"]).await;
    assert_eq!(bench.tpm().stored(), b"", "the TPM holds nothing of the customer");
    let certificates = bench.certificates();
    assert!(certificates.contains("\"identity\":\"tpm\""), "{certificates}");
    assert!(certificates.contains("TPM: cleared"), "{certificates}");
    for attestation in bench.attestations() {
        let is_digest = attestation.len() == 64 && attestation.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_digest, "{attestation:?}: {certificates}");
    }
    let printed = bench.site.cli(["node", "certificates", &id, "--verify"]);
    assert!(printed.contains("valid") && printed.contains("tpm"), "{printed}");
    let explained = bench.site.cli(["node", "explain", &id]);
    assert!(explained.contains(&ek), "{explained}");
    assert_eq!(bench.events(REFUSED), [] as [Value; 0]);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tpm_that_was_named_at_the_enrolment_is_the_only_one_that_an_inspection_accepts() {
    let setup = Setup {
        nodes: 2,
        enrols: false,
        ..Setup::default()
    };
    let bench = setup.start(|_| {}).await;
    let (exchanged, honest) = (bench.fleet.node(0), bench.fleet.node(1));
    let named = SimTpm::new(b"the TPM on the delivery note").digest();
    let shown = |node: &SimNode| node.tpm().expect("it has one").digest();
    for (node, ek) in [(&exchanged, &named), (&honest, &shown(&honest))] {
        let password = bench.dir.path().join("password");
        std::fs::write(&password, node.password()).expect("the password file can be written");
        let (id, url, password) = (node.name(), node.url(), password.display().to_string());
        let words = ["node", "enroll", &id, "--bmc", &url, "--user", node.user()];
        let words = words.into_iter().chain(["--password-file", &password, "--tpm-ek", ek]);
        bench.site.cli(words);
    }
    let (id, ek) = (honest.name(), shown(&honest));
    bench.site.until(&id, &["available"], TEST_LIMIT).await;
    let status = bench.site.json(["node", "get", &id])["status"].clone();
    assert_eq!((&status["identity"], &status["tpm_ek"]), (&"tpm".into(), &ek.into()));
    let enrolled = bench.site.events(&format!("nodes/{id}"), "security.tpm-enrolled");
    assert_eq!(enrolled, [] as [Value; 0], "the inspection enrols nothing");

    bench.until(&["failed"]).await;
    let reason = bench.site.reason(&bench.id());
    for word in [&named, &format!("--accept-tpm {}", shown(&exchanged))] {
        assert!(reason.contains(word.as_str()), "{word}: {reason}");
    }
    assert_eq!(bench.events(REFUSED).len(), 2);
    assert_eq!(bench.status()["tpm_ek"], named.as_str());
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tpm_that_a_customer_locked_holds_the_machine_back_until_it_is_cleared() {
    let bench = inspected(Profile::Instant).await;
    let id = bench.id();
    bench.deploy();
    bench.until(&["active"]).await;
    let honest = bench.tpm();
    bench
        .node()
        .set_tpm(Some(honest.clone().with_stored(b"a key of the customer").locked()));
    bench.site.cli(["node", "release", "--yes", &id]);
    bench.until(&["quarantined"]).await;
    let reason = bench.site.reason(&id);
    assert!(
        reason.contains("the TPM was not cleared and may still hold data of the former system")
            && reason.contains("set a password"),
        "{reason}"
    );
    assert_eq!(bench.site.json(["node", "certificates", &id]), Value::Array(Vec::new()));
    // An operator clears the TPM in the firmware's settings.
    bench.node().set_tpm(Some(honest));
    bench.gets_through(&[]).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_a_tpm_cannot_pose_as_a_machine_with_one() {
    let bench = inspected(Profile::Vm).await;
    let attacker = Host::with_mac(bench.dhcp, &bench.node().mac()).await;
    bench.deploy();
    let plan = attacker.plan_as_soon_as_possible(TEST_LIMIT).await;
    let agent = plan
        .register(&Key::new("attacker"))
        .await
        .expect("no agent has registered");
    let refused = agent.connect("10.66.6.6").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("no TPM answered"), "{refused}");
    let events = bench.until_reported(REFUSED, 1).await;
    assert!(events[0].to_string().contains(&bench.node().mac()), "{events:?}");
    // The real machine, after a power cycle.
    bench.until(&["active"]).await;
    assert!(bench.node().installed().is_some());
    assert_eq!(bench.status()["identity"], "tpm");
    assert_eq!(bench.events(REFUSED).len(), 1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_a_tpm_of_its_own_is_refused_before_it_learns_anything_else() {
    let bench = inspected(Profile::Vm).await;
    let attacker = Host::with_mac(bench.dhcp, &bench.node().mac()).await;
    bench.deploy();
    let plan = attacker.plan_as_soon_as_possible(TEST_LIMIT).await;
    let key = Key::new("attacker");
    let agent = plan.register(&key).await.expect("no agent has registered");
    let own = SimTpm::new(b"a TPM of the attacker");
    let mut session = agent
        .connect_with(&own)
        .await
        .expect("the stream opens for the challenge");
    // Messages before the answer are ignored.
    session.send_message(Up::Inventory(v1::Inventory::default())).await;
    let ended = session.answer_with(&own, &key.sha256(), TEST_LIMIT).await;
    assert!(
        ended.code() == Code::Unauthenticated && ended.message().contains(&own.digest()),
        "{ended}"
    );
    bench.until_reported(REFUSED, 1).await;
    bench.until(&["active"]).await;
    assert_eq!(bench.status()["tpm_ek"], bench.tpm().digest());
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quote_that_another_key_signed_is_refused() {
    let bench = inspected(Profile::Instant).await;
    bench.node().forge_attestation(|answer| {
        // The right content with an invalid signature.
        let end = answer.signature.len() - 1;
        answer.signature[end] ^= 1;
    });
    bench.is_quarantined_for("not signed by the attestation key").await;
    bench.node().end_forgeries();
    bench.gets_through(&[]).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_quote_is_refused_in_a_new_session() {
    let bench = inspected(Profile::Instant).await;
    let first = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&first);
    bench.node().forge_attestation(move |answer| {
        let mut first = kept.lock().expect("no thread panicked");
        let old: &mut v1::Attestation = first.get_or_insert_with(|| answer.clone());
        answer.quote.clone_from(&old.quote);
        answer.signature.clone_from(&old.signature);
        answer.pcrs.clone_from(&old.pcrs);
    });
    // Its first quote is valid only for its own session.
    bench.deploy();
    bench.until(&["active"]).await;
    assert!(first.lock().expect("no thread panicked").is_some());
    let id = bench.id();
    bench.site.cli(["node", "release", "--yes", &id]);
    bench
        .ends_in_quarantine_for("the quote was made for another session")
        .await;
    let certificates = bench.certificates();
    assert!(!certificates.contains("signature"), "{certificates}");
    assert!(
        bench.node().installed().is_some(),
        "nothing was erased, and the node shows that"
    );
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tpm_of_another_machine_is_refused_until_an_operator_accepts_it() {
    let bench = inspected(Profile::Instant).await;
    let other = SimTpm::new(b"a new mainboard");
    let digest = other.digest();
    bench.node().set_tpm(Some(other));
    bench.is_quarantined_for(&digest).await;
    let reason = bench.site.reason(&bench.id());
    assert!(reason.contains(&format!("--accept-tpm {digest}")), "{reason}");
    bench.gets_through(&["--accept-tpm", &digest]).await;
    let events = bench.events("security.tpm-accepted");
    assert!(
        events.len() == 1 && events[0].to_string().contains(&digest),
        "{events:?}"
    );
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_does_not_replay_is_refused() {
    let bench = inspected(Profile::Instant).await;
    bench.node().forge_attestation(|answer| {
        // One event less: the log hides a started program.
        let hidden = b"simulated boot program";
        let at = answer.event_log.windows(hidden.len()).position(|part| part == hidden);
        let begin = at.expect("it is in the log") - (4 + 4 + 4 + 2 + 32 + 4);
        answer.event_log.drain(begin..begin + 50 + hidden.len());
    });
    bench.is_quarantined_for("does not replay to PCR 4").await;
    bench.end().await;
}

/// The smallest file that firmware measures as an EFI program.
fn efi_program() -> Vec<u8> {
    const HEADERS: usize = 0x200;
    let mut file = vec![0; HEADERS];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &0x40_u32.to_le_bytes());
    put(0x40, b"PE\0\0");
    put(0x44, &0x8664_u16.to_le_bytes());
    // The optional header's size and magic (PE32+), the size of all headers, and 16 data directories.
    put(0x54, &240_u16.to_le_bytes());
    put(0x58, &0x020b_u16.to_le_bytes());
    put(0x58 + 32, &0x1000_u32.to_le_bytes());
    put(0x58 + 36, &0x200_u32.to_le_bytes());
    put(0x58 + 60, &0x200_u32.to_le_bytes());
    put(0x58 + 108, &16_u32.to_le_bytes());
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_started_something_else_is_refused_where_a_measured_boot_is_required() {
    let bench = start(true, "identity: {measured_boot: required}\n").await;
    bench.until(&["failed"]).await;
    let reason = bench.site.reason(&bench.id());
    assert!(
        reason.contains("is not an EFI program"),
        "the settings are wrong: {reason}"
    );
    bench.end().await;

    let bench = start_serving(&efi_program(), "identity: {measured_boot: required}\n").await;
    bench.until(&["failed"]).await;
    let reason = bench.site.reason(&bench.id());
    assert!(
        reason.contains("require a measured boot") && reason.contains("an EFI program that is not served"),
        "{reason}"
    );
    bench.until_reported(REFUSED, 2).await;
    bench.end().await;

    // Without that setting the difference is only recorded.
    let bench = start_serving(&efi_program(), "").await;
    bench.until(&["available"]).await;
    let explained = bench.site.cli(["node", "explain", &bench.id()]);
    assert!(
        explained.contains("not proven") && explained.contains("is not served"),
        "{explained}"
    );
    assert_eq!(bench.status()["identity"], "tpm");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_tpm_is_refused_unless_the_site_allows_address_only() {
    // The second site has no settings of the identity.
    for (more, words) in [
        ("identity: {tpm: required}\n", ["require a TPM", "identity.tpm"]),
        (
            "",
            ["identity.address_only is refuse", "set identity.address_only to allow"],
        ),
    ] {
        let strict = start(false, more).await;
        strict.until(&["failed"]).await;
        let reason = strict.site.reason(&strict.id());
        assert!(words.iter().all(|word| reason.contains(word)), "{more}: {reason}");
        assert_eq!(strict.events(REFUSED).len(), 2);
        assert_ne!(strict.status()["identity"], "address only");
        strict.end().await;
    }

    let bench = start(false, ADDRESS_ONLY).await;
    bench.until(&["available"]).await;
    assert_eq!(bench.status()["identity"], "address only");
    let id = bench.id();
    bench.deploy();
    bench.until(&["active"]).await;
    bench.site.cli(["node", "release", "--yes", &id]);
    bench.until(&["available"]).await;
    let certificates = bench.certificates();
    assert!(certificates.contains("\"identity\":\"address only\""), "{certificates}");
    assert!(bench.attestations().iter().all(String::is_empty), "{certificates}");
    bench.end().await;
}
