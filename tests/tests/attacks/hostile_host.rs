//! A hostile host in its own network namespace, on one bridge with real machines (QEMU: firmware, iPXE, our ramdisk and agent)
//! and a simulated one. It attacks while the machines live from enrolment to erase.

#[path = "hostile_host/attacks.rs"]
mod attacks;
#[path = "hostile_host/hall.rs"]
mod hall;

use std::net::Ipv4Addr;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_lab::{self as lab, DiskKind, LabConfig, SERVER_IPV4};
use rackwright_tests::bridge_host::CARD;
use rackwright_tests::customer::on_host;
use rackwright_tests::drive::is_empty;
use rackwright_tests::impostor::Agent;
use rackwright_tests::member;
use rackwright_tests::rogue_dhcp::RogueDhcp;
use rackwright_tests::site::BOOT;
use rackwright_tests::witness::{StartedJobs, begun};
use serde_json::Value;
use tonic::{Code, Status};

use attacks::{
    Race, false_report, pose_with_another_tpm, pose_without_a_tpm, race, replay_a_token, send_huge_messages,
    use_a_token_in_two_places,
};
use hall::{CALLER, HOSTILE, Hall, NODES, SHORT, host_name};

const CONTESTED: &str = "security.boot-contested";
const REFUSED: &str = "security.attestation-refused";
/// A second address of the hostile host.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 60);

impl Hall {
    /// All machines are inspected while the hostile host answers their firmware and their iPXE by DHCP.
    async fn inspect_beside_a_rogue_dhcp_server(&self) {
        let offered = Ipv4Addr::new(10, 77, 0, 222);
        let rogue = self.hostile.run(RogueDhcp::start(CARD, HOSTILE, offered)).await;
        self.all_become("available").await;
        let (firmware, ipxe) = rogue.offers();
        assert!(
            firmware >= 2 && ipxe >= 2,
            "{firmware} offers to firmware, {ipxe} to iPXE"
        );
        let events = self
            .site
            .until_reported("boot-network", "security.rogue-dhcp", 1, BOOT)
            .await;
        let words = format!("another DHCP server, {HOSTILE}");
        assert!(events[0].to_string().contains(&words), "{events:?}");
        for id in NODES {
            assert_eq!(self.events(id, CONTESTED), [] as [Value; 0], "{id}");
        }
    }

    /// The hostile host wants the seed of n1, and registers twice in place of n2. Then both machines are handed over, while it
    /// uses its certificate and sends huge messages. Returns the certificate.
    async fn deploy_beside_a_thief(&self) -> Agent {
        self.deploy("n2");
        let (copy, mac) = self.copy_of("n2");
        let registered = copy.run(replay_a_token(mac)).await;
        drop(copy);
        let events = self.until_reported("n2", CONTESTED, 1).await;
        assert!(events[0]["message"].to_string().contains("another key"), "{events:?}");
        let address = &self.site.json(["node", "get", "n2"])["status"]["address"];
        assert_eq!(
            *address,
            registered.to_string(),
            "not the address that the agent reported"
        );

        self.deploy("n1");
        let (copy, mac) = self.copy_of("n1");
        let reports = vec![Up::Inventory(v1::Inventory::default())];
        let Race { agent, job } = copy.run(race(mac.clone(), "thief", reports)).await;
        drop(copy);
        assert!(job.is_none(), "the hostile host was given a job: {job:?}");
        let events = self.until_reported("n1", CONTESTED, 1).await;
        let words = events[0].to_string();
        assert!(words.contains(&mac) && words.contains("switches"), "{words}");

        let simulated = self.simulated().name();
        self.site.cli(["node", "deploy", &simulated, "--image", "tiny"]);
        let agent = agent.at(CALLER);
        let pressing = async {
            loop {
                self.hostile.run(send_huge_messages(self.stranger())).await;
                self.is_refused(&agent).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = pressing => {}
            () = self.all_become("active") => {}
        }
        for id in NODES {
            self.is_handed_over(id);
            assert_eq!(self.events(id, CONTESTED).len(), 1, "{id} was harmed again");
        }
        agent
    }

    /// The certificate of a contested boot opens nothing.
    async fn is_refused(&self, agent: &Agent) -> Status {
        let agent = agent.clone();
        let refused = self
            .hostile
            .run(async move { agent.connect("10.66.6.6").await.map(drop) });
        let refused = refused.await.expect_err("an old certificate was taken");
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        refused
    }

    /// The machine runs the customer's system, with the key and the name of this customer's seed.
    fn is_handed_over(&self, id: &str) {
        let shown = on_host(&self.site, id, &self.key, "hostname; cat /root/.ssh/authorized_keys");
        assert_eq!(shown.lines().next(), Some(host_name(id).as_str()), "{shown}");
        let keys = shown.lines().filter(|line| line.starts_with("ssh-")).count();
        assert_eq!(keys, 1, "{shown}");
    }

    /// The hostile host uses a token of n2 in two places, and twice reports an erase of n1 that did not happen.
    async fn release_beside_an_impostor(&self) {
        self.site.cli(["node", "release", "n2", "--yes"]);
        let (copy, mac) = self.copy_of("n2");
        copy.run(use_a_token_in_two_places(mac, ELSEWHERE)).await;
        drop(copy);
        let events = self.until_reported("n2", CONTESTED, 2).await;
        let is_it = |event: &Value| event["attributes"]["second_address"] == ELSEWHERE.to_string();
        assert!(events.iter().any(is_it), "{events:?}");

        let disk = self.machine("n1").disk_path(0).expect("the machine has a drive");
        self.site.cli(["node", "release", "n1", "--yes"]);
        self.site.cli(["node", "release", &self.simulated().name(), "--yes"]);
        for boot in ["first", "second"] {
            let (copy, mac) = self.copy_of("n1");
            let Race { job, .. } = copy.run(race(mac, boot, vec![false_report("LAB0000-D0")])).await;
            assert!(
                job.is_none(),
                "the hostile host got an erase job in the {boot} boot: {job:?}"
            );
        }
        self.site.until("n1", &["quarantined"], BOOT).await;
        assert_eq!(self.events("n1", CONTESTED).len(), 3);
        let reason = self.site.reason("n1");
        assert!(
            reason.contains("two machines answered") && reason.contains("readmit"),
            "{reason}"
        );
        let certificates = self.certificates("n1");
        assert!(!certificates.to_string().contains("signature"), "{certificates}");
        assert!(!is_empty(&disk), "the drive was erased, and no certificate states it");
        // Without the hostile host the machine itself erases its drive.
        self.site.cli(["node", "readmit", "n1", "--yes"]);
        self.all_become("available").await;
    }

    /// Each real machine was imaged once and erased once, and the certificates say so.
    async fn is_erased(&self, id: &str) {
        let machine = self.machine(id);
        let disk = machine.disk_path(0).expect("the machine has a drive");
        assert!(is_empty(&disk), "{id}: the drive holds something after its erase");
        let certificates = self.certificates(id);
        let drive = format!("{}-D0", machine.serial());
        assert_eq!(certificates[0]["drive_serial"], drive, "{certificates}");
        let printed = self.site.cli(["node", "certificates", id, "--verify"]);
        assert!(printed.contains("valid"), "{printed}");
        assert_eq!(
            begun(&self.site, machine, id).await,
            StartedJobs { writes: 1, erases: 1 }
        );
    }
}

#[test]
fn a_host_that_copies_real_machines_gets_nothing_and_they_live_their_whole_life() {
    lab::run_test(
        "hostile_host::a_host_that_copies_real_machines_gets_nothing_and_they_live_their_whole_life",
        async |namespace| {
            let config = LabConfig {
                disk_bytes: 1 << 30,
                ..LabConfig::default()
            };
            let hall = Hall::start(&namespace, config).await;
            let floods = hall.flood().await;
            hall.inspect_beside_a_rogue_dhcp_server().await;
            let agent = hall.deploy_beside_a_thief().await;
            hall.release_beside_an_impostor().await;
            // The node is free, and the next customer's job would be the prize.
            let refused = hall.is_refused(&agent).await;
            assert!(refused.message().contains("for claim generation 1 of"), "{refused}");
            hall.until_reported("n1", "security.agent-refused", 1).await;
            for id in NODES {
                hall.is_erased(id).await;
            }
            let simulated = hall.simulated().name();
            assert_eq!(hall.events(&simulated, CONTESTED), [] as [Value; 0]);
            assert!(hall.certificates(&simulated).to_string().contains("signature"));
            for flood in &floods {
                assert!(flood.opened() > 200, "{flood:?}");
            }
            hall.memory_is_bounded();
            drop(floods);
            hall.end().await;
        },
    );
}

impl Hall {
    /// A member with an open stream on the hostile host loses its rights: the stream ends, and a new call is refused.
    async fn revoke_a_member_with_an_open_stream(&self) {
        let home = self.site.viewer("mallory");
        let server = format!("https://{SERVER_IPV4}:7070");
        let watch = move || {
            let (home, server) = (home.clone(), server.clone());
            async move {
                let mut nodes = NodeServiceClient::new(member::connect(&home, &server));
                let stream = nodes.watch_nodes(v1::WatchNodesRequest::default()).await?;
                Ok::<_, Status>(stream.into_inner())
            }
        };
        let mut stream = self.hostile.run(watch()).await.expect("a member follows nodes");
        self.site.cli(["member", "revoke", "mallory"]);
        let ended = self.hostile.run(async move {
            let ended = async {
                loop {
                    if let Err(status) = stream.message().await {
                        return status;
                    }
                }
            };
            tokio::time::timeout(SHORT, ended).await.expect("the stream ends")
        });
        let ended = ended.await;
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
        let refused = self.hostile.run(watch()).await.map(drop);
        let refused = refused.expect_err("a former member was let in");
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }

    /// The hostile host poses as both machines, which have TPMs, and both are handed over all the same.
    async fn deploy_beside_hosts_with_false_tpms(&self) {
        self.deploy("n1");
        let (copy, mac) = self.copy_of("n1");
        let refused = copy.run(pose_without_a_tpm(mac.clone())).await;
        drop(copy);
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        assert!(refused.message().contains("no TPM answered"), "{refused}");
        let events = self.until_reported("n1", REFUSED, 1).await;
        assert!(events[0].to_string().contains(&mac), "{events:?}");

        self.deploy("n2");
        let (copy, mac) = self.copy_of("n2");
        let (refused, digest) = copy.run(pose_with_another_tpm(mac)).await;
        drop(copy);
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        assert!(refused.message().contains(&digest), "{refused}");
        self.until_reported("n2", REFUSED, 1).await;

        let simulated = self.simulated().name();
        self.site.cli(["node", "deploy", &simulated, "--image", "tiny"]);
        self.revoke_a_member_with_an_open_stream().await;
        self.all_become("active").await;
        for id in NODES {
            self.is_handed_over(id);
            assert_eq!(self.events(id, REFUSED).len(), 1, "{id} was harmed again");
            assert_eq!(self.site.json(["node", "get", id])["status"]["identity"], "tpm");
        }
    }
}

#[test]
fn hosts_with_false_tpms_and_a_former_member_get_nothing_beside_real_machines() {
    lab::run_test(
        "hostile_host::hosts_with_false_tpms_and_a_former_member_get_nothing_beside_real_machines",
        async |namespace| {
            let config = LabConfig {
                disk_kind: DiskKind::Nvme,
                disk_bytes: 512 << 20,
                memory_mb: 768,
                tpm: true,
                ..LabConfig::default()
            };
            let hall = Hall::start(&namespace, config).await;
            hall.all_become("available").await;
            hall.deploy_beside_hosts_with_false_tpms().await;
            let simulated = hall.simulated().name();
            assert_eq!(hall.site.state(&simulated), "active");
            assert_eq!(hall.events(&simulated, REFUSED), [] as [Value; 0]);
            hall.memory_is_bounded();
            hall.end().await;
        },
    );
}
