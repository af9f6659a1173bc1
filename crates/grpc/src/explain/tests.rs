//! Tests of the text that operators see, word for word.

use rackwright_ground::testing;
use rackwright_ground::testing::nodes::{Shape, all_nodes, record, request};
use rackwright_lifecycle::{Effect, Outcome, Power, PowerGoal, PowerRequest, Wait};
use rackwright_nodes::perform::seen_answering;
use rackwright_nodes::runner::step_until_rest;
use rackwright_store::{AgentBootRow, AlarmRow, PermitRequest, UnknownMachineRow};

use super::*;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;

/// 2025-06-01 00:00:00 UTC.
const START: Timestamp = Timestamp(1_748_736_000 * SECOND);

fn known<T>(value: T, after_us: i64) -> Reading<T> {
    Reading::Known {
        value,
        at: START.plus(after_us),
    }
}

/// A node that has been in `state` since `START`.
fn started(state: State, shape: Shape) -> NodeRecord {
    let mut record = record(state, shape);
    record.node.since = START;
    record
}

/// Seconds after `START`; empty without a time.
fn seconds(line: &v1::FactLine) -> String {
    let start = START.0 / SECOND;
    line.time
        .as_ref()
        .map_or(String::new(), |t| format!(" @{}", t.seconds - start))
}

/// Whether the node accepts the request with that name. `None`: the command only reads.
fn takes(verb: &str, record: &NodeRecord) -> Option<bool> {
    request(verb, &mut record.clone()).map(|answer| answer.is_ok())
}

fn explained(record: &NodeRecord, agent: &Reading<Agent>, progress: Option<&v1::JobProgress>, after_us: i64) -> String {
    let mut lines = vec![summary(record, "", progress, START.plus(after_us))];
    lines.extend(hints(record, false).into_iter().map(|hint| format!("> {hint}")));
    for line in fact_lines(record, agent) {
        lines.push(format!("{}: {}{}", line.name, line.value, seconds(&line)));
    }
    lines.join("\n")
}

#[test]
fn a_node_that_waits_says_for_what_and_how_long() {
    let mut record = started(State::Inspecting, Shape::Free);
    record.identity.macs = vec!["52:54:00:00:00:01".into(), "52:54:00:00:00:02".into()];
    record.wait = Wait::AgentBoot;
    record.wait_until = START.plus(15 * MINUTE);
    record.readings.bmc = known(Bmc::Identified, SECOND);
    record.readings.power = known(Power::On, 5 * SECOND);
    record.readings.boot_target = Reading::Unknown {
        since: START.plus(4 * SECOND),
    };
    let agent = known(Agent::Absent, 90 * SECOND);
    let wanted = "\
n1 has been inspecting for 90 s, waiting for the machine to boot into the agent, for another 13 min at most
> rackwright node watch n1: shows progress
> rackwright node quarantine n1: stops the work and takes the node out of service
> rackwright boot trace 52:54:00:00:00:01: shows the progress of its network boot
bmc: answers @1
power: on @5
boot target: unknown since then @4
agent: not connected @90
identity: not known yet
inventory: never read
image on disk: none
data: none written by Rackwright, or erased with proof";
    assert_eq!(explained(&record, &agent, None, 90 * SECOND), wanted);
}

#[test]
fn a_node_that_is_written_says_how_far_it_is() {
    let mut record = started(State::Imaging, Shape::Claimed);
    record.wait = Wait::Effect(Effect::WriteImage);
    record.wait_until = START.plus(60 * MINUTE);
    record.readings.bmc = known(Bmc::Identified, 0);
    record.readings.power = known(Power::On, 5 * SECOND);
    record.readings.boot_target = known(BootTarget::Network, 3 * SECOND);
    record.readings.inventory = known((), 60 * SECOND);
    record.node.evidence.written_at = Some(START.plus(70 * SECOND));
    record.node.evidence.image_digest = None;
    record.node.evidence.erased_at = None;
    let agent = Agent::Present {
        boot_id: "b00t".into(),
        booted_at: START,
    };
    let progress = v1::JobProgress {
        step: "write".into(),
        logical_bytes: 1 << 30,
        logical_bytes_total: 3 << 30,
        real_bytes: 1,
        bytes_per_second: 512_000_000,
    };
    let wanted = "\
n1 has been imaging for 2 min, waiting for the agent to write the image, for another 57 min at most; \
write is 33 % done at 512 MB/s
> rackwright node watch n1: shows progress
> rackwright node quarantine n1: stops the work and takes the node out of service
bmc: answers @0
power: on @5
boot target: network, once @3
agent: connected, boot b00t @120
identity: not known yet
inventory: reported @60
image on disk: none @70
data: written, not erased @70
customer: old-co";
    let agent = known(agent, 120 * SECOND);
    assert_eq!(explained(&record, &agent, Some(&progress), 2 * MINUTE + SECOND), wanted);
}

#[test]
fn a_failed_node_says_why_and_what_can_be_done() {
    let mut record = started(State::Failed, Shape::Claimed);
    record.reason = "write-image failed 4 times; the last: disk too small".into();
    record.wait = Wait::Operator;
    record.wait_until = START.plus(4 * 60 * MINUTE);
    record.readings.bmc = known(Bmc::Unreachable("no route to host".into()), 2 * SECOND);
    record.spec.bmc_address = "https://10.0.0.7".into();
    let agent = Reading::Unknown { since: START };
    record.node.evidence.written_at = Some(START.plus(-10 * SECOND));
    record.node.evidence.erased_at = None;
    let wanted = "\
n1 has been failed for 3 h, waiting for an operator. \
Reason: write-image failed 4 times; the last: disk too small
> the BMC at https://10.0.0.7 does not answer, so nothing can be done to n1: look at its power, its cable and its address \
(`rackwright node update n1` changes it)
> rackwright node retry n1: writes the image again
> rackwright node release n1: erases it and frees it
> rackwright node reports n1: shows the checks
bmc: no route to host @2
power: unknown
boot target: never read
agent: unknown since then @0
identity: not known yet
inventory: never read
image on disk: b3-old @-10
data: written, not erased @-10
bmc password: not known; the factory list is tried
customer: old-co";
    assert_eq!(explained(&record, &agent, None, 180 * MINUTE), wanted);
}

#[test]
fn what_was_handed_over_is_not_said_to_be_written_again_by_a_retry() {
    let mut record = started(State::Failed, Shape::Claimed);
    if let Some(claim) = &mut record.node.claim {
        claim.handed_over = Some(claim.deployment);
    }
    let hints = hints(&record, false);
    assert!(
        hints[0].starts_with("rackwright node retry n1: checks it again"),
        "{hints:?}"
    );
    for hint in hints {
        let verb = hint.split(' ').nth(2).unwrap();
        assert_ne!(takes(verb, &record), Some(false), "{hint}");
    }
}

#[test]
fn a_node_at_rest_waits_for_nothing() {
    let mut record = started(State::Available, Shape::Free);
    // The runner looks again at that time, but the text does not mention it.
    record.wait_until = START.plus(4 * 24 * 60 * MINUTE);
    record.readings.power = known(Power::Off, 0);
    record.node.evidence.clean_at = Some(START);
    let agent = Reading::Never;
    let wanted = "\
n1 has been available for 3 days
> rackwright node deploy n1: --image IMAGE puts an image on it
bmc: never read
power: off @0
boot target: never read
agent: never read
identity: not known yet
inventory: never read
image on disk: none
data: none written by Rackwright, or erased with proof @0";
    assert_eq!(explained(&record, &agent, None, 3 * 24 * 60 * MINUTE), wanted);
}

#[test]
fn a_wait_that_is_over_is_not_told_and_neither_is_progress_of_nothing() {
    let mut record = started(State::Validating, Shape::Claimed);
    record.wait = Wait::Effect(Effect::Validate);
    record.wait_until = START.plus(10 * SECOND);
    let nothing = v1::JobProgress::default();
    let text = summary(&record, "", Some(&nothing), START.plus(10 * SECOND));
    assert_eq!(text, "n1 has been validating for 10 s");
}

#[test]
fn a_free_node_is_deployed_only_if_its_bmc_takes_requests_and_no_update_has_begun() {
    let deploys = |record: &NodeRecord, is_updated| {
        let hints = hints(record, is_updated);
        hints.iter().any(|hint| hint.starts_with("rackwright node deploy "))
    };
    let free = started(State::Available, Shape::Free);
    assert!(deploys(&free, false));
    assert!(!deploys(&free, true));
    let mut refused = free.clone();
    refused.spec.account.refused_at = Some(START);
    assert!(!deploys(&refused, false));
    assert!(!hints(&refused, false).is_empty(), "the login can be corrected");
    let mut silent = free;
    silent.readings.bmc = known(Bmc::Unreachable("no route to host".into()), 0);
    assert!(!deploys(&silent, false));
}

#[test]
fn spans_are_in_words() {
    for (us, wanted) in [
        (-SECOND, "no time"),
        (0, "0 s"),
        (119 * SECOND, "119 s"),
        (2 * MINUTE, "2 min"),
        (119 * MINUTE + 59 * SECOND, "119 min"),
        (120 * MINUTE, "2 h"),
        (47 * 60 * MINUTE, "47 h"),
        (48 * 60 * MINUTE, "2 days"),
        (i64::MAX, "106751991 days"),
    ] {
        assert_eq!(words(us), wanted, "{us}");
    }
}

#[test]
fn every_node_has_a_hint_and_takes_what_its_hints_name() {
    let mut useless = Vec::new();
    for (state, shape, record) in all_nodes() {
        let hints = hints(&record, false);
        assert!(!hints.is_empty(), "{state}, {shape:?}");
        for hint in &hints {
            let (command, what) = hint.split_once(" n1: ").unwrap();
            let verb = command.strip_prefix("rackwright node ").unwrap();
            assert!(!what.is_empty() && !verb.contains(' '), "{hint}");
            if takes(verb, &record) == Some(false) {
                useless.push((verb.to_owned(), state, shape));
            }
        }
    }
    assert!(useless.is_empty(), "{useless:?}");
}

#[test]
fn what_was_seen_again_is_told_as_of_then_and_what_was_not_is_not() {
    let seen_at = |at| Readings {
        power: Reading::Known {
            value: Power::On,
            at: Timestamp(at),
        },
        bmc: Reading::Known {
            value: Bmc::Identified,
            at: Timestamp(at),
        },
        ..Readings::default()
    };
    for (stored, seen, shown) in [(5, 9, 9), (9, 5, 9)] {
        let mut readings = seen_at(stored);
        seen_again(&mut readings, Timestamp(seen));
        assert_eq!(readings, seen_at(shown));
    }
    let lost = Readings {
        power: Reading::Unknown { since: Timestamp(5) },
        bmc: Reading::Known {
            value: Bmc::Unreachable("away".into()),
            at: Timestamp(5),
        },
        ..Readings::default()
    };
    let mut readings = lost.clone();
    seen_again(&mut readings, Timestamp(9));
    assert_eq!(readings, lost);

    // An effect that the BMC has carried out ends the error, also in the text.
    let mut record = started(State::Available, Shape::Free);
    record.identity.macs = vec!["52:54:00:00:00:01".into()];
    record.readings = readings;
    let bmc_line = |record: &NodeRecord| {
        let lines = fact_lines(record, &Reading::Never);
        lines.into_iter().find(|line| line.name == "bmc").unwrap().value
    };
    assert_eq!(bmc_line(&record), "away");
    let (identity, at) = (record.identity.clone(), Timestamp(9));
    seen_answering(
        &mut record.readings,
        &identity,
        Effect::PowerOn,
        &Outcome::Succeeded,
        at,
    );
    assert_eq!(bmc_line(&record), "answers");
}

#[tokio::test]
async fn a_card_of_no_node_with_the_machines_uuid_is_suggested_while_its_boot_is_not_recognised() {
    let core = testing::core().await;
    let mut record = testing::node("n1", State::Discovered, None);
    record.identity.uuid = "6173ecec-6ef5-11ee-834a-0a8fc3a58a71".into();
    record.spec.boot_macs = vec!["58:a2:e1:bb:b1:0f".into()];
    testing::add(&core, &record).await;
    assert_eq!(card_hints(&core, &record).await.unwrap(), [""; 0]);
    let row = |mac: &str, uuid: &str| UnknownMachineRow {
        mac: mac.into(),
        first_seen: START,
        last_seen: START,
        architecture: String::new(),
        relay: String::new(),
        system_uuid: uuid.into(),
        inventory: None,
    };
    let mut tx = core.store.write().await.unwrap();
    for row in [
        row("94:6d:ae:57:0d:d6", &record.identity.uuid),
        row("94:6d:ae:57:0d:d7", "6173ecec-6ef5-11ee-834a-0a8fc3a58a72"),
        row("94:6d:ae:57:0d:d8", ""),
    ] {
        tx.record_unknown_machine(&row).await.unwrap();
    }
    tx.commit().await.unwrap();
    let hints = card_hints(&core, &record).await.unwrap();
    assert_eq!(hints.len(), 1, "{hints:?}");
    let command = "rackwright node update n1 --boot-mac 58:a2:e1:bb:b1:0f --boot-mac 94:6d:ae:57:0d:d6: ";
    assert!(hints[0].starts_with(command), "{hints:?}");
    let explained = explain(&core, &"n1".into()).await.unwrap();
    assert_eq!(explained.hints[0], hints[0]);
    record.node.state = State::Available;
    assert_eq!(card_hints(&core, &record).await.unwrap(), [""; 0]);
    record.node.state = State::Discovered;
    record.identity.uuid.clear();
    assert_eq!(card_hints(&core, &record).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn each_fact_has_its_own_name() {
    let core = testing::core().await;
    let mut record = testing::node("n1", State::Inspecting, None);
    record.hold.identity = "address only".into();
    testing::add(&core, &record).await;
    let row = AgentBootRow {
        node_id: "n1".into(),
        boot: "b1".into(),
        identity: "tpm".into(),
        measured: AS_SERVED.into(),
        registered_at: START,
        ..AgentBootRow::default()
    };
    let mut tx = core.store.write().await.unwrap();
    tx.put_agent_boot(&row).await.unwrap();
    tx.commit().await.unwrap();
    let facts = explain(&core, &"n1".into()).await.unwrap().facts;
    let names: Vec<_> = facts.iter().map(|fact| fact.name.as_str()).collect();
    let distinct: std::collections::BTreeSet<_> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    let at_boot = facts.iter().find(|fact| fact.name == "identity at boot");
    assert_eq!(at_boot.map(|fact| fact.value.as_str()), Some("tpm"));
}

/// Adds a free node at circuit C7 that an operator wants on.
async fn add_wanted_on(core: &Core, id: &str) {
    let mut record = testing::node(id, State::Available, None);
    record.labels = [("circuit".to_owned(), "C7".to_owned())].into();
    record.node.wanted.power = Some(PowerRequest {
        goal: PowerGoal::On,
        at: Timestamp(1),
    });
    testing::add(core, &record).await;
}

/// Runs a node's step, and returns the words of its explanation after the state.
async fn told_after_step(core: &testing::TestCore, id: &str) -> String {
    let nudge = core.running_steps.begin(&NodeId::stored(id)).unwrap();
    step_until_rest((*core).clone(), NodeId::stored(id), nudge).await;
    let summary = explain(core, &NodeId::stored(id)).await.unwrap().summary;
    summary.split_once(", waiting for ").unwrap().1.to_owned()
}

#[tokio::test]
async fn a_node_in_a_queue_says_how_many_are_before_it() {
    let core = testing::core_with("limits: {power_on: {per_circuit: 1}}\n").await;
    for id in ["n1", "n2"] {
        add_wanted_on(&core, id).await;
    }
    // n1 holds the only place of the circuit.
    let (n1, now) = (NodeId::stored("n1"), clock::now());
    let record = core.store.node(&Scope::Site, &n1).await.unwrap();
    let request = PermitRequest {
        node: &n1,
        customer: None,
        is_urgent: true,
        asked_at: now,
    };
    let needs = core.config.limits.needs(Effect::PowerOn, &record.labels);
    let mut tx = core.store.write().await.unwrap();
    assert_eq!(tx.request_permits(request, &needs, now).await.unwrap(), None);
    tx.use_permits(&n1, "an effect", 0).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        told_after_step(&core, "n2").await,
        "its turn to be switched on, in line at circuit C7: 1 of 1 in use, 1 in the queue, 0 of them queued earlier; \
         customers take turns"
    );
}

#[tokio::test]
async fn a_node_that_an_alarm_holds_names_the_alarm_and_its_remedy() {
    let core = testing::core().await;
    add_wanted_on(&core, "n1").await;
    let alarm = AlarmRow {
        id: "leak cdu/cdu-1".into(),
        kind: "leak".into(),
        subject: "cdu/cdu-1".into(),
        severity: "critical".into(),
        message: "a leak at cdu/cdu-1: tray".into(),
        advice: "inspect the leak".into(),
        measured: None,
        limit: None,
        unit: String::new(),
        nodes: 1,
        nodes_digest: String::new(),
        blocks: true,
        cordons: true,
        opened_at: START,
        seen_at: START,
    };
    let mut tx = core.store.write().await.unwrap();
    tx.put_alarm(&alarm, &["n1".into()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        told_after_step(&core, "n1").await,
        "an alarm to clear: a leak at cdu/cdu-1: tray (inspect the leak)"
    );
}
