//! A host on the boot network that poses as the agent of a node.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_sim::fleet::{Phase, Profile};
use rackwright_tests::impostor::{Agent, Host, Key, Plan, Session};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{ADDRESS_ONLY, POLL};
use serde_json::Value;
use tonic::Code;

use crate::machine::{Bench, KEY, Setup, TEST_LIMIT};

/// The one address that the DHCP server gives to machines.
const LEASED: Ipv4Addr = Ipv4Addr::new(127, 128, 1, 7);

/// A control plane and one honest machine that needs some seconds to boot. The machine was inspected once.
async fn start() -> Bench {
    start_with(free_port()).await
}

/// Starts, with an SSH server of the installed system on this port of its address, and of no other.
async fn start_with(ssh: u16) -> Bench {
    let setup = Setup {
        profile: Profile::Vm,
        // These attacks are on nodes that are identified only by their addresses.
        tpm: false,
        pool: [LEASED, LEASED],
        ssh: SocketAddrV4::new(LEASED, ssh),
        agent_quiet_s: 18,
        more: ADDRESS_ONLY,
        ..Setup::default()
    };
    let bench = setup.start(|_| {}).await;
    bench.until(&["available"]).await;
    bench
}

impl Bench {
    async fn attacker(&self) -> Host {
        Host::with_mac(self.dhcp, &self.node().mac()).await
    }

    /// Registers and connects before the machine itself has booted.
    async fn wins_the_race(&self, attacker: &Host, boot_id: &str) -> (Agent, Session) {
        let plan = attacker.plan_as_soon_as_possible(TEST_LIMIT).await;
        let agent = plan
            .register(&Key::new(boot_id))
            .await
            .expect("no agent has registered before");
        let session = agent.connect("10.66.6.6").await.expect("the boot is its own");
        session.send_message(Up::Inventory(v1::Inventory::default())).await;
        (agent, session)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_boots_before_our_power_on_gets_no_plan() {
    let bench = start().await;
    let attacker = bench.attacker().await;
    let lease = attacker.lease().await.expect("a known machine has an address");
    assert_eq!(lease.boot_file, None, "the node is available: nothing is booted");
    bench.deploy();
    let plan = attacker.plan_as_soon_as_possible(TEST_LIMIT).await;
    let deadline = Instant::now() + TEST_LIMIT;
    while bench.node().view().phase == Phase::Off {
        // The plan exists only after the control plane has begun the power-on.
        assert!(Instant::now() < deadline, "{plan:?} without a power-on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // No registration used that plan: the machine's own replaces it, and the machine reaches the end.
    bench.until(&["rebooting", "validating", "active"]).await;
    assert_eq!(bench.events("security.boot-contested"), [] as [Value; 0]);
    let refused = plan.register(&Key::new("late")).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_faster_than_the_machine_after_a_deploy_gets_no_seed_and_the_machine_succeeds() {
    let bench = start().await;
    let attacker = bench.attacker().await;
    bench.deploy();
    let (agent, mut session) = bench.wins_the_race(&attacker, "attacker").await;
    let job = session.job_before_the_end(TEST_LIMIT).await;
    assert!(job.is_none(), "the attacker was given a job: {job:?}");
    let events = bench.until_reported("security.boot-contested", 1).await;
    let words = events[0].to_string();
    assert!(
        words.contains(&bench.node().mac()) && words.contains("switches"),
        "{words}"
    );
    let refused = agent.connect("10.66.6.6").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    // The machine's own boot after the power cycle.
    bench.until(&["rebooting", "validating", "active"]).await;
    let installed = bench.node().installed().expect("the machine itself was imaged");
    assert!(installed.authorized_keys.iter().any(|key| key == KEY));
    assert_eq!(bench.events("security.boot-contested").len(), 1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impostor_during_an_erase_gets_no_certificate_and_its_second_attempt_quarantines_the_node() {
    let bench = start().await;
    let id = bench.node().name();
    bench.deploy();
    bench.until(&["rebooting", "validating", "active"]).await;
    let attacker = bench.attacker().await;
    bench.release();
    for boot in ["first", "second"] {
        let (_, mut session) = bench.wins_the_race(&attacker, boot).await;
        let job = session.job_before_the_end(TEST_LIMIT).await;
        assert!(
            job.is_none(),
            "the attacker received an erase job in the {boot} boot: {job:?}"
        );
    }
    bench.until(&["quarantined"]).await;
    assert_eq!(bench.events("security.boot-contested").len(), 2);
    let certificates = bench.site.json(["node", "certificates", &id]);
    assert!(!certificates.to_string().contains("signature"), "{certificates}");
    assert!(
        bench.node().installed().is_some(),
        "nothing was erased, and the node shows that"
    );
    let reason = bench.site.reason(&id);
    assert!(
        reason.contains("two machines answered") && reason.contains("readmit"),
        "{reason}"
    );
    // Without the attacker the erase succeeds.
    bench.site.cli(["node", "readmit", "--yes", &id]);
    bench.until(&["available"]).await;
    assert!(bench.node().installed().is_none());
    let certificates = bench.site.json(["node", "certificates", &id]);
    assert!(
        certificates
            .to_string()
            .contains(bench.node().drives().all()[0].serial()),
        "{certificates}"
    );
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_certificate_neither_occupies_a_free_node_nor_gets_the_next_customers_job() {
    let bench = start().await;
    let (id, attacker) = (bench.node().name(), bench.attacker().await);
    // The attacker gets a certificate in a boot that is contested afterwards.
    bench.deploy();
    let (agent, mut session) = bench.wins_the_race(&attacker, "squatter").await;
    assert!(session.job_before_the_end(TEST_LIMIT).await.is_none());
    bench.until(&["rebooting", "validating", "active"]).await;
    bench.release();
    bench.until(&["available"]).await;
    let refused = agent.connect("10.66.6.6").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("for claim generation 1 of"), "{refused}");
    bench.until_reported("security.agent-refused", 1).await;
    bench.deploy();
    // The attacker tries at every moment of the imaging.
    let deadline = Instant::now() + TEST_LIMIT;
    while !["rebooting", "validating", "active"].contains(&bench.site.state(&id).as_str()) {
        assert!(
            agent.connect("10.66.6.6").await.is_err(),
            "an old certificate was taken"
        );
        assert!(Instant::now() < deadline, "the machine does not get through");
        tokio::time::sleep(POLL).await;
    }
    assert_eq!(
        bench.events("security.agent-refused").len(),
        1,
        "reported once, not at each try"
    );
    assert!(bench.node().installed().is_some());
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replayed_token_and_a_second_registration_are_refused_and_end_the_first_one() {
    let bench = start().await;
    let attacker = bench.attacker().await;
    bench.deploy();
    let plan: Plan = attacker.plan_as_soon_as_possible(TEST_LIMIT).await;
    let key = Key::new("first");
    let agent = plan.register(&key).await.expect("no agent has registered before");
    let mut session = agent.connect("10.66.6.6").await.expect("the boot is its own");
    // An identical registration may be repeated: its answer may be lost.
    plan.register(&key).await.expect("the same key and the same kernel");
    let address = &bench.site.json(["node", "get", &bench.node().name()])["status"]["address"];
    assert_eq!(
        *address,
        plan.address.to_string(),
        "the address of DHCP, not the one that the agent reports"
    );
    let replay = plan.register(&Key::new("second")).await.map(drop).unwrap_err();
    assert_eq!(replay.code(), Code::Unauthenticated);
    assert!(session.job_before_the_end(Duration::from_secs(5)).await.is_none());
    let events = bench.until_reported("security.boot-contested", 1).await;
    assert!(events[0]["message"].to_string().contains("another key"), "{events:?}");
    let again = plan.register(&key).await.map(drop).unwrap_err();
    assert_eq!(again.code(), Code::Unauthenticated, "no host is believed in this boot");
    bench.until(&["rebooting", "validating", "active"]).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_mac_address_in_two_places_is_contested_in_either_order() {
    let elsewhere = Ipv4Addr::new(127, 129, 9, 9);
    let bench = start().await;
    let attacker = bench.attacker().await;
    bench.deploy();
    // A token of the script, used from a second address.
    let deadline = Instant::now() + TEST_LIMIT;
    let lease = loop {
        let lease = attacker.lease().await.expect("a known machine has an address");
        if lease.boot_file.is_some() {
            break lease;
        }
        assert!(Instant::now() < deadline, "nothing is booted");
    };
    let url = lease.boot_file.expect("it is there");
    assert!(attacker.plan_at(&url, elsewhere).await.is_none());
    let events = bench.until_reported("security.boot-contested", 1).await;
    assert_eq!(
        events[0]["attributes"]["second_address"],
        elsewhere.to_string(),
        "{events:?}"
    );
    assert!(
        attacker.plan_at(&url, lease.address).await.is_none(),
        "not in this boot"
    );
    // A token of the agent, used from a second address: the second occurrence quarantines the node.
    let plan = attacker.plan_as_soon_as_possible(TEST_LIMIT).await;
    let refused = plan
        .register_from(&Key::new("boot"), elsewhere)
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    bench.until(&["quarantined"]).await;
    assert_eq!(bench.events("security.boot-contested").len(), 2);
    let reason = bench.site.reason(&bench.node().name());
    assert!(reason.contains("two machines answered"), "{reason}");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_that_an_agent_reports_is_no_target_of_a_login() {
    let ssh = free_port();
    let elsewhere = Ipv4Addr::new(127, 66, 6, 6);
    let decoy = tokio::net::TcpListener::bind((elsewhere, ssh)).await;
    let decoy = decoy.expect("the port is free on this address");
    let bench = start_with(ssh).await;
    bench.node().forge_address(elsewhere);
    bench.node().forge_inventory(move |inventory| {
        for nic in &mut inventory.nics {
            nic.addresses = vec![elsewhere.to_string()];
        }
    });
    bench.deploy();
    // The login with the provisioning key, the checks and the hand-over all went to the machine itself.
    let handed_over = bench.until(&["active", "failed", "quarantined"]);
    let id = bench.node().name();
    tokio::select! {
        state = handed_over => assert_eq!(state, "active", "{}", bench.site.reason(&id)),
        client = decoy.accept() => panic!("a client came to the reported address: {client:?}"),
    }
    let status = &bench.site.json(["node", "get", &id])["status"];
    assert_eq!(status["address"], LEASED.to_string(), "{status}");
    assert_eq!(status["address_witness"], "dhcp", "{status}");
    // What the agent reports in a later session, with an erase, changes nothing either.
    bench.release();
    tokio::select! {
        state = bench.until(&["available", "failed", "quarantined"]) => assert_eq!(state, "available"),
        client = decoy.accept() => panic!("a client came to the reported address: {client:?}"),
    }
    bench.end().await;
}
