//! `rackwright cluster ...` with a control plane.

use std::collections::VecDeque;

use rackwright_api::v1::*;
use tonic::Status;

use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

fn member(node: &str, standing: &str, state: NodeState, reason: &str) -> ClusterMember {
    ClusterMember {
        node: format!("nodes/{node}"),
        spare: node.ends_with('4'),
        state: state as i32,
        standing: standing.into(),
        reason: reason.into(),
        address: "10.0.0.1".into(),
    }
}

fn step(edge: &str, from: ClusterState, to: ClusterState, seconds: i64, spent: i64) -> ClusterTransition {
    ClusterTransition {
        edge: edge.into(),
        from_state: from as i32,
        to_state: to as i32,
        time: Some(fixtures::ago(seconds)),
        reason: String::new(),
        time_in_former_state: Some(prost_types::Duration {
            seconds: spent,
            nanos: 500_000_000,
        }),
    }
}

/// A cluster that was handed over.
fn ready(id: &str) -> Cluster {
    let nodes = ["gpu-001", "gpu-002", "gpu-003", "gpu-004"];
    Cluster {
        name: format!("clusters/{id}"),
        spec: Some(ClusterSpec {
            customer: "acme".into(),
            sku: "dgx-h100".into(),
            nodes: 3,
            spares: 1,
            bandwidth: "non-blocking".into(),
            deployment: Some(Deployment {
                image: format!("images/debian/versions/b3-{}", "0123456789abcdef".repeat(4)),
                ssh_authorized_keys: vec!["ssh-ed25519 AAAA".into()],
                has_user_data: true,
                ..Deployment::default()
            }),
            lease_end: Some(fixtures::ahead(86400 * 2 + 7200 + 1800)),
        }),
        status: Some(ClusterStatus {
            state: ClusterState::Ready as i32,
            state_since: Some(fixtures::ago(3600 * 3 + 1800)),
            members: nodes
                .map(|node| member(node, "handed-over", NodeState::Active, ""))
                .into(),
            partition: Some(ClusterPartition {
                key: "0x0012".into(),
                ports: 32,
                proven_time: Some(fixtures::ago(190)),
                ..ClusterPartition::default()
            }),
            reserved_watts: 40_800.0,
            ready_nodes: 4,
            history: vec![
                step(
                    "handed-over",
                    ClusterState::Validating,
                    ClusterState::Ready,
                    12_600,
                    100,
                ),
                step("built", ClusterState::Building, ClusterState::Validating, 12_700, 900),
                step("started", ClusterState::Reserved, ClusterState::Building, 13_600, 1),
            ],
            ..ClusterStatus::default()
        }),
        metadata: Some(Metadata {
            uid: format!("uid-{id}"),
            resource_version: "12".into(),
            create_time: Some(fixtures::ago(13_601)),
            labels: [("team".to_owned(), "ml".to_owned())].into(),
            ..Metadata::default()
        }),
    }
}

/// A cluster with a lost node; text from machines can contain anything.
fn degraded(id: &str) -> Cluster {
    let mut cluster = ready(id);
    let status = cluster.status.as_mut().unwrap();
    status.state = ClusterState::Degraded as i32;
    status.reason = "gpu-002: failed: the BMC is away\x1b[2J".into();
    status.waiting_for = "a replacement for node gpu-002: 0 nodes are free".into();
    status.waiting_kind = "replacement".into();
    status.members[1] = member("gpu-002", "lost", NodeState::Failed, "failed: the BMC is away\x1b[2J");
    status.ready_nodes = 3;
    let replaced = |node: &str, by: &str, seconds, reason: &str| ClusterReplacement {
        node: format!("nodes/{node}"),
        by: format!("nodes/{by}"),
        time: Some(fixtures::ago(seconds)),
        reason: reason.into(),
    };
    status.replaced = vec![
        replaced("gpu-008", "gpu-003", 90_000, "its link to the fabric"),
        replaced("gpu-009", "gpu-004", 8000, "memory"),
    ];
    let partition = status.partition.as_mut().unwrap();
    partition.proven_time = None;
    partition.fault = "4 ports lack it".into();
    let mut degraded = step("degraded", ClusterState::Ready, ClusterState::Degraded, 300, 12_300);
    degraded.reason = status.reason.clone();
    status.history.insert(0, degraded);
    cluster
}

fn failed(id: &str) -> Cluster {
    let mut cluster = ready(id);
    cluster.spec.as_mut().unwrap().lease_end = None;
    let status = cluster.status.as_mut().unwrap();
    status.state = ClusterState::Failed as i32;
    status.reason = "building took longer than 24 h".into();
    status.members.clear();
    status.ready_nodes = 0;
    status.partition = None;
    status.history.clear();
    cluster
}

fn know(fake: &Fake, forms: impl IntoIterator<Item = Cluster>) {
    let forms: VecDeque<Cluster> = forms.into_iter().collect();
    let name = forms[0].name.clone();
    fake.state().clusters.known.insert(name, forms);
}

/// A fake with three clusters.
fn fake() -> Fake {
    let fake = Fake::start();
    know(&fake, [ready("alpha")]);
    know(&fake, [degraded("beta")]);
    know(&fake, [failed("gamma")]);
    fake
}

#[test]
fn clusters_as_tables() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["cluster", "list"]);
    script.run(
        &program,
        &[
            "cluster",
            "list",
            "--state",
            "ready",
            "--customer",
            "acme",
            "--filter",
            "name != beta",
            "-o",
            "name",
        ],
    );
    script.run(&program, &["cluster", "list", "--state", "asleep"]);
    for name in ["alpha", "clusters/beta", "gamma", "delta"] {
        script.run(&program, &["cluster", "get", name]);
    }
    for name in ["alpha", "beta", "gamma", "delta"] {
        script.run(&program, &["cluster", "explain", name]);
    }
    script.check("clusters", &program);
    let filters = fake.state().clusters.filters.clone();
    assert_eq!(
        filters.last().unwrap(),
        "name != beta AND state = ready AND customer = \"acme\""
    );
    let json = program.run(&["cluster", "get", "beta", "-o", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["status"]["state"], "CLUSTER_STATE_DEGRADED");
    assert_eq!(json["status"]["members"][1]["standing"], "lost");
}

const CLUSTERS: &str = "\
clusters:
- {name: alpha, customer: acme, sku: dgx-h100, nodes: 12, spares: 1, image: debian}
- name: beta
  customer: zeta
  sku: dgx-h100
  nodes: 20
  bandwidth: '2:1'
  image: debian@b3-00
  ssh_authorized_keys: [ssh-ed25519 AAAA]
  user_data: |
    #cloud-config
  lease_end: 2030-01-01T00:00:00Z
  labels: {team: ml}
";

#[test]
fn the_server_makes_a_plan_without_a_site_file() {
    let fake = Fake::start();
    let nodes = |range: std::ops::RangeInclusive<u32>| range.map(|n| format!("gpu-{n:03}")).collect::<Vec<_>>();
    let fits = ClusterPlan {
        fits: true,
        nodes: nodes(1..=12),
        spares: nodes(13..=13),
        picture: "12 nodes in 1 unit\n  su01  ############s\x1b[2J\n".into(),
        reserved_watts: 132_600.0,
        ..ClusterPlan::default()
    };
    let refused = ClusterPlan {
        refusal: "8 nodes of dgx-h100 are free, 20 are requested".into(),
        ..ClusterPlan::default()
    };
    fake.state().clusters.plans = [("alpha".to_owned(), fits), ("beta".to_owned(), refused)].into();
    let program = Program::logged_in(&fake);
    program.file("clusters.yaml", CLUSTERS);
    program.file(
        "one.yaml",
        "clusters:\n- {name: alpha, customer: acme, sku: dgx-h100, nodes: 12}\n",
    );
    program.file("more.yaml", "clusters:\n- {name: nix, customer: nobody, sku: s, nodes: 1}\n- {name: alpha, customer: acme, sku: s, nodes: 1}\n");
    program.file(
        "wrong.yaml",
        "clusters:\n- {name: '', customer: a, sku: s, nodes: 0, lease_end: soon, ssh_authorized_keys: [hello]}\n",
    );
    let mut script = Script::default();
    for file in ["clusters.yaml", "one.yaml", "more.yaml", "wrong.yaml"] {
        script.run(&program, &["cluster", "plan", "-f", file]);
    }
    script.run(&program, &["cluster", "plan", "-f", "one.yaml", "-o", "json"]);
    script.check("cluster_plan_server", &program);
}

#[test]
fn a_cluster_is_created_from_options() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let key = program.file("id.pub", "ssh-ed25519 AAAAC3 ann@example\n");
    let data = program.file("user-data", "#cloud-config\n");
    fake.state().scripts.extend([fixtures::stepwise(), fixtures::failing()]);
    let mut script = Script::default();
    let plain = [
        "cluster",
        "create",
        "alpha",
        "--customer",
        "acme",
        "--sku",
        "dgx-h100",
        "--nodes",
        "3",
        "--image",
        "debian",
    ];
    let mut full = plain.to_vec();
    full.extend([
        "--spares",
        "1",
        "--bandwidth",
        "2:1",
        "--ssh-key",
        &key,
        "--user-data",
        &data,
    ]);
    full.extend(["--lease-end", "2030-01-01T00:00:00Z", "--label", "team=ml", "--wait"]);
    script.run(&program, &full);
    script.run(&program, &[&plain[..], &["--wait"]].concat());
    script.run(&program, &plain);
    for wrong in [
        ["--bandwidth", "fast"],
        ["--lease-end", "tomorrow"],
        ["--nodes", "0"],
        ["-f", "x.yaml"],
    ] {
        script.run(&program, &[&plain[..], &wrong].concat());
    }
    script.run(&program, &["cluster", "create", "alpha", "--customer", "acme"]);
    fake.refuse(
        "CreateCluster",
        Status::failed_precondition("8 nodes are free, 12 are requested"),
    );
    script.run(&program, &plain);
    script.check("cluster_create", &program);
    let state = fake.state();
    let request = &state.clusters.created[0];
    let spec = request.spec.clone().unwrap();
    assert_eq!((request.cluster_id.as_str(), spec.nodes, spec.spares), ("alpha", 3, 1));
    assert_eq!(
        (spec.bandwidth.as_str(), spec.lease_end.unwrap().seconds),
        ("2:1", 1_893_456_000)
    );
    let deployment = spec.deployment.unwrap();
    assert_eq!(
        (deployment.image.as_str(), deployment.user_data.as_str()),
        ("images/debian", "#cloud-config\n")
    );
    assert_eq!(deployment.ssh_authorized_keys, ["ssh-ed25519 AAAAC3 ann@example"]);
    assert_eq!(request.labels["team"], "ml");
    let plain = state.clusters.created[1].spec.clone().unwrap();
    assert_eq!(
        (plain.spares, plain.bandwidth.as_str(), plain.lease_end),
        (0, "non-blocking", None)
    );
}

#[test]
fn clusters_of_a_file_are_created_independently() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    program.file("clusters.yaml", CLUSTERS);
    program.file("plain.yaml", CLUSTERS.replace(", image: debian}", "}"));
    program.file("empty.yaml", "clusters: []\n");
    let mut script = Script::default();
    script.run(&program, &["cluster", "create", "-f", "plain.yaml"]);
    script.run(&program, &["cluster", "create", "-f", "empty.yaml"]);
    assert!(fake.keys("CreateCluster").is_empty(), "one fault and no request");
    fake.refuse(
        "CreateCluster",
        Status::failed_precondition("8 nodes are free, 12 are requested"),
    );
    script.run(
        &program,
        &[
            "cluster",
            "create",
            "-f",
            "clusters.yaml",
            "--idempotency-key",
            "k",
            "--wait",
        ],
    );
    script.check("cluster_create_file", &program);
    assert_eq!(fake.keys("CreateCluster"), ["k.alpha", "k.beta"]);
    let state = fake.state();
    let spec = state.clusters.created[0].spec.clone().unwrap();
    assert_eq!(spec.deployment.unwrap().image, "images/debian/versions/b3-00");
    assert_eq!(spec.customer, "zeta");
}

#[test]
fn a_lost_answer_does_not_make_a_second_cluster() {
    let fake = Fake::start();
    fake.state().lost_answers.insert("CreateCluster", 1);
    let program = Program::logged_in(&fake);
    let create = program.run(&[
        "cluster",
        "create",
        "alpha",
        "--customer",
        "acme",
        "--sku",
        "s",
        "--nodes",
        "3",
        "--image",
        "debian",
    ]);
    assert_eq!(create.code, 0, "{create:?}");
    let keys = fake.keys("CreateCluster");
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "the same key again");
    assert_eq!(fake.state().operations.len(), 1);
}

#[test]
fn the_other_verbs() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["cluster", "replace", "beta", "gpu-002"]);
    let replace = ["cluster", "replace", "beta", "gpu-002", "--reason", "memory"];
    script.run(&program, &replace);
    assert!(fake.keys("ReplaceClusterNode").is_empty());
    script.run(&program, &[&replace[..], &["--yes", "--wait"]].concat());
    script.run(&program, &["cluster", "lease", "alpha"]);
    script.run(
        &program,
        &["cluster", "lease", "alpha", "--until", "2030-01-01T00:00:00Z", "--none"],
    );
    script.run(&program, &["cluster", "lease", "alpha", "--none"]);
    let lease = script.run(
        &program,
        &[
            "cluster",
            "lease",
            "alpha",
            "--until",
            "2020-01-01T00:00:00Z",
            "-o",
            "name",
        ],
    );
    assert_eq!(lease.stdout, "clusters/alpha\n");
    script.run(&program, &["cluster", "release", "alpha"]);
    script.run(&program, &["cluster", "release", "delta"]);
    assert!(fake.keys("ReleaseCluster").is_empty());
    script.run(&program, &["cluster", "release", "alpha", "--yes", "--wait"]);
    script.run(&program, &["cluster", "delete", "gamma"]);
    script.run(&program, &["cluster", "delete", "gamma"]);
    script.check("cluster_verbs", &program);
    let state = fake.state();
    assert_eq!(state.clusters.replaced[0].node, "nodes/gpu-002");
    assert_eq!(state.clusters.replaced[0].reason, "memory");
}

/// A cluster with a reimage that stopped after a few failures.
fn stopped(id: &str) -> Cluster {
    let mut cluster = ready(id);
    let status = cluster.status.as_mut().unwrap();
    status.state = ClusterState::Reimaging as i32;
    let why = "1 node failed with the new image, 0 allowed: gpu-003 (failed: no boot\x1b[2J)";
    status.waiting_for = format!("an operator to decide how its reimage continues: {why}");
    status.waiting_kind = "reimage-stopped".into();
    status.members[2] = member("gpu-003", "lost", NodeState::Failed, "failed: no boot\x1b[2J");
    status.leaving = vec!["nodes/gpu-004".into()];
    status.rollout = Some(RolloutStatus {
        rollout: Some(Rollout::default()),
        done: 1,
        of: 4,
        failed: 1,
        is_back: false,
        stopped: why.into(),
    });
    cluster
}

#[test]
fn clusters_in_use_are_changed() {
    let fake = fake();
    know(&fake, [stopped("delta")]);
    fake.state().clusters.resize = ClusterResizePlan {
        fits: true,
        leave: vec!["gpu-003".into()],
        picture: "unit 0  ####....\n".into(),
        reserved_watts: 40_800.0,
        ..ClusterResizePlan::default()
    };
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["cluster", "resize", "alpha"]);
    script.run(&program, &["cluster", "resize", "alpha", "--nodes", "2", "--plan"]);
    script.run(&program, &["cluster", "resize", "alpha", "--nodes", "2"]);
    assert!(fake.state().clusters.resized.is_empty());
    let leave = ["--leave", "gpu-003,nodes/gpu-004", "--yes", "--wait"];
    script.run(&program, &[&["cluster", "resize", "alpha"], &leave[..]].concat());
    fake.state().clusters.resize = ClusterResizePlan {
        refusal: "3 nodes are free".into(),
        ..ClusterResizePlan::default()
    };
    script.run(&program, &["cluster", "resize", "alpha", "--nodes", "200", "--plan"]);
    script.run(&program, &["cluster", "reimage", "alpha", "--image", "noble"]);
    script.run(&program, &["cluster", "reimage", "alpha", "--max-unavailable", "ten"]);
    let noble = ["cluster", "reimage", "alpha", "--image", "noble", "--yes", "--wait"];
    let half = ["--max-unavailable", "50%", "--max-failures", "1", "--roll-back"];
    script.run(&program, &[&noble[..], &half[..]].concat());
    script.run(&program, &["cluster", "explain", "delta"]);
    script.run(&program, &["cluster", "get", "delta"]);
    script.run(&program, &["cluster", "describe", "delta"]);
    script.run(&program, &["cluster", "resume", "delta", "--wait"]);
    script.run(
        &program,
        &["cluster", "rollback", "delta", "--yes", "--any-leaf", "--wait"],
    );
    script.run(&program, &["cluster", "retry", "gamma", "--wait"]);
    script.check("cluster_changes", &program);
    let state = fake.state();
    assert_eq!(
        state.clusters.resized[0].size.as_ref().unwrap().leave,
        ["nodes/gpu-003", "nodes/gpu-004"]
    );
    let reimaged = &state.clusters.reimaged[0];
    assert_eq!(reimaged.deployment.as_ref().unwrap().image, "images/noble");
    let rollout = Rollout {
        max_unavailable: 2,
        any_leaf: false,
        max_failures: 1,
        roll_back: true,
    };
    assert_eq!(reimaged.rollout, Some(rollout));
    let back = Rollout {
        max_unavailable: 1,
        any_leaf: true,
        ..Rollout::default()
    };
    assert_eq!(state.clusters.rollouts, [None, Some(back)]);
}

#[test]
fn a_release_asks_on_a_terminal() {
    let fake = fake();
    let program = Program::logged_in(&fake);
    let refused = program.run_on_terminal(&["cluster", "release", "alpha"], "no\n");
    for words in [
        "gpu-001, gpu-002, gpu-003, gpu-004",
        "of acme",
        "0x0012",
        "40.8 kW",
        "nothing was done",
    ] {
        assert!(refused.stdout.contains(words), "{words}: {refused:?}");
    }
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(fake.keys("ReleaseCluster").is_empty());
    let agreed = program.run_on_terminal(&["cluster", "release", "alpha"], "yes\n");
    assert_eq!(agreed.code, 0, "{agreed:?}");
    assert_eq!(fake.keys("ReleaseCluster").len(), 1);
}

/// The forms of a cluster until it is ready, at fixed times.
fn in_progress() -> Vec<Cluster> {
    let at = |mut cluster: Cluster, state: ClusterState, seconds: i64| {
        let status = cluster.status.as_mut().unwrap();
        status.state = state as i32;
        status.state_since = Some(fixtures::fixed(seconds));
        for (place, step) in status.history.iter_mut().rev().enumerate() {
            step.time = Some(fixtures::fixed(place as i64 * 100));
        }
        cluster
    };
    let done = at(ready("alpha"), ClusterState::Ready, 200);
    let mut building = at(ready("alpha"), ClusterState::Building, 0);
    let status = building.status.as_mut().unwrap();
    status.history.drain(..2);
    status.waiting_for = "4 of 4 nodes to be imaged and checked".into();
    status.waiting_kind = "nodes".into();
    let partition = status.partition.as_mut().unwrap();
    partition.proven_time = None;
    partition.progress = "it is being set up".into();
    for member in &mut status.members {
        member.standing = "coming".into();
        member.state = NodeState::Imaging as i32;
    }
    let mut further = building.clone();
    let status = further.status.as_mut().unwrap();
    status.members[0].standing = "checked".into();
    status.waiting_for = "3 of 4 nodes to be imaged and checked".into();
    vec![building.clone(), building, further, done]
}

#[test]
fn a_cluster_is_watched_until_it_is_at_rest() {
    let fake = Fake::start();
    // Each event triggers a reading.
    fake.state().events = (1..=3)
        .map(|position| Event {
            position,
            target: "clusters/alpha".into(),
            ..Event::default()
        })
        .collect();
    know(&fake, in_progress());
    know(&fake, [failed("gamma")]);
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["cluster", "watch", "alpha", "--timeout", "30s"]);
    script.run(&program, &["cluster", "watch", "gamma"]);
    script.run(&program, &["cluster", "watch", "gamma", "--until", "failed", "-q"]);
    script.run(
        &program,
        &["cluster", "watch", "alpha", "--until", "degraded", "--timeout", "1s"],
    );
    script.run(&program, &["cluster", "watch", "delta"]);
    script.check("cluster_watch", &program);
    let names = program.run(&["cluster", "watch", "alpha", "-o", "name"]);
    assert_eq!((names.stdout.as_str(), names.code), ("clusters/alpha\n", 0));
}

#[test]
fn a_watch_survives_an_unreachable_server_and_ends_with_the_cluster() {
    let fake = Fake::start();
    know(&fake, in_progress()[..1].to_vec());
    let program = Program::logged_in(&fake);
    let mut watch = program.follow(&["cluster", "watch", "alpha"]);
    assert!(watch.line().ends_with("alpha  is building"));
    assert!(watch.line().contains("waits for 4 of 4"));
    for _ in 0..9 {
        fake.refuse("GetCluster", Status::unavailable("restarting"));
    }
    fake.state().clusters.known.clear();
    assert_eq!(watch.line(), "alpha was deleted");
    assert_eq!(watch.end(), "");
}

#[test]
fn a_watch_draws_on_a_terminal() {
    let fake = Fake::start();
    know(&fake, in_progress());
    let program = Program::logged_in(&fake);
    let watch = program.run_on_terminal(&["cluster", "watch", "alpha", "--timeout", "30s"], "");
    assert_eq!(watch.code, 0, "{watch:?}");
    for words in [
        "\x1b[33mbuilding\x1b[0m",
        "\x1b[32mready\x1b[0m",
        "4 coming",
        "4 handed-over",
        "4 imaging",
        "-> ready after",
    ] {
        assert!(watch.stdout.contains(words), "{words}: {watch:?}");
    }
}

#[test]
fn a_pack_is_listed_and_written_safely() {
    let fake = fake();
    let file = |name: &str, text: &str| HandoverFile {
        name: name.into(),
        text: text.into(),
    };
    fake.state().clusters.pack.files = vec![
        file("README.md", "# alpha\n"),
        file("slurm/topology.conf", "SwitchName=su01\n"),
    ];
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["cluster", "pack", "alpha"]);
    script.run(&program, &["cluster", "pack", "alpha", "-o", "name"]);
    script.run(&program, &["cluster", "pack", "alpha", "out"]);
    script.run(&program, &["cluster", "pack", "alpha", "out"]);
    script.run(&program, &["cluster", "pack", "alpha", "out", "--force", "-o", "name"]);
    let conf = std::fs::read_to_string(program.home().join("out/slurm/topology.conf")).unwrap();
    assert_eq!(conf, "SwitchName=su01\n");
    std::fs::create_dir(program.home().join("linked")).unwrap();
    std::os::unix::fs::symlink(program.home(), program.home().join("linked/slurm")).unwrap();
    script.run(&program, &["cluster", "pack", "alpha", "linked", "--force"]);
    assert!(!program.home().join("topology.conf").exists());
    for hostile in ["/etc/cron.d/x", "../../x", "slurm", "README.md\x1b[2J"] {
        fake.state().clusters.pack.files[0].name = hostile.into();
        script.run(&program, &["cluster", "pack", "alpha", "evil"]);
    }
    script.run(&program, &["cluster", "pack", "alpha"]);
    assert!(!program.home().join("evil").exists());
    script.run(&program, &["cluster", "pack", "delta", "evil"]);
    script.check("cluster_pack", &program);
}
