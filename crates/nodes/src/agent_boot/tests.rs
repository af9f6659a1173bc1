use rackwright_ground::testing::{self, TestCore};
use rackwright_lifecycle::{Effect, Outcome, Reading, State};
use rackwright_store::Readings;

use super::*;

const MAC: &str = "52:54:00:00:00:01";
const HERE: BootRequester<'static> = BootRequester {
    mac: MAC,
    address: "10.0.0.9",
};

/// A node with one MAC address in a state.
async fn bench(state: State) -> TestCore {
    let core = testing::core().await;
    let mut record = testing::node("n1", state, Some("b3-1"));
    record.identity.macs = vec![MAC.to_owned()];
    testing::add(&core, &record).await;
    let mut tx = core.store.write().await.unwrap();
    tx.put_macs(&"n1".into(), &record.identity.macs).await.unwrap();
    tx.commit().await.unwrap();
    core
}

async fn plan(core: &Core, requester: BootRequester<'_>) -> Result<String, Refused> {
    let mut tx = core.store.write().await.unwrap();
    let given = give_plan(core, &mut tx, &"n1".into(), requester).await.unwrap();
    core.commit(tx).await.unwrap();
    given
}

async fn registers(
    core: &Core,
    token: &str,
    kernel: &str,
    key: &str,
    requester: BootRequester<'_>,
) -> Result<AgentSession, Refused> {
    let mut tx = core.store.write().await.unwrap();
    let hash = token_hash(token).unwrap();
    let Some((row, _)) = tx.token(&hash, "agent").await.unwrap() else {
        return Err(Refused("there is no such token".into()));
    };
    let registration = Registration {
        requester,
        kernel_boot_id: kernel,
        key_sha256: key,
    };
    let registered = register(&mut tx, &row, registration).await.unwrap();
    core.commit(tx).await.unwrap();
    registered.map(|(_, of)| of)
}

async fn admitted(core: &Core, of: &AgentSession, kernel: &str) -> Result<(), Refused> {
    let mut tx = core.store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    admit(&mut tx, &record, of, kernel).await.unwrap().map(drop)
}

async fn contests(core: &Core) -> Vec<String> {
    let events = core.store.events(&Scope::Site, 0, "nodes/n1", 100).await.unwrap();
    let events = events.into_iter().filter(|e| e.kind == "security.boot-contested");
    events.map(|e| e.message).collect()
}

/// Another effect of the node's present state, already ended.
async fn effect(core: &Core, effect: Effect) {
    let mut tx = core.store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    let now = clock::now();
    let row = EffectRow {
        id: core.new_id(),
        node_id: "n1".into(),
        state_since: record.node.since,
        number: 1,
        generation: record.node.generation,
        owner: core.replica.clone(),
        attempt: rackwright_lifecycle::Attempt {
            effect,
            started_at: now,
            ended_at: None,
            deadline: now,
            outcome: Outcome::Open,
            boot_id: None,
        },
    };
    tx.begin_effect(&row).await.unwrap();
    tx.end_effect(&row.id, &Outcome::Succeeded, now).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_plan_is_given_only_after_our_own_power_on_in_a_state_of_the_agent() {
    for state in State::ALL {
        let core = bench(*state).await;
        assert!(plan(&core, HERE).await.is_err(), "{state}: it was not switched on");
        testing::switched_on(&core, "n1").await;
        assert_eq!(plan(&core, HERE).await.is_ok(), state.boots_agent(), "{state}");
        effect(&core, Effect::PowerOff).await;
        assert!(plan(&core, HERE).await.is_err(), "{state}: it was switched off since");
        assert_eq!(contests(&core).await, [""; 0], "{state}: there is no fault");
    }
    let core = bench(State::Imaging).await;
    testing::switched_on(&core, "n1").await;
    let readings = Readings {
        power: Reading::Known {
            value: Power::Off,
            at: clock::now(),
        },
        ..Readings::default()
    };
    let mut tx = core.store.write().await.unwrap();
    tx.save_readings(&"n1".into(), &readings, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(plan(&core, HERE).await.is_err(), "it was seen off");
}

#[tokio::test]
async fn the_same_registration_may_be_repeated_and_another_one_is_contested() {
    let core = bench(State::Imaging).await;
    testing::switched_on(&core, "n1").await;
    let token = plan(&core, HERE).await.unwrap();
    let first = registers(&core, &token, "kernel", "key", HERE).await.unwrap();
    assert_eq!(registers(&core, &token, "kernel", "key", HERE).await.unwrap(), first);
    admitted(&core, &first, "kernel").await.unwrap();
    assert!(admitted(&core, &first, "another").await.is_err(), "another kernel");
    assert_eq!(contests(&core).await, [""; 0]);
    assert!(registers(&core, &token, "kernel", "another key", HERE).await.is_err());
    assert_eq!(contests(&core).await.len(), 1);
    // In this boot, no machine is believed any more, and one event reports it.
    assert!(registers(&core, &token, "kernel", "key", HERE).await.is_err());
    assert!(admitted(&core, &first, "kernel").await.is_err());
    assert!(plan(&core, HERE).await.is_err());
    assert_eq!(contests(&core).await.len(), 1);
    // In the next boot, a machine is believed again.
    testing::switched_on(&core, "n1").await;
    assert!(admitted(&core, &first, "kernel").await.is_err(), "of the boot before");
    let token = plan(&core, HERE).await.unwrap();
    registers(&core, &token, "kernel-2", "key-2", HERE).await.unwrap();
}

#[tokio::test]
async fn a_second_plan_replaces_the_first_and_a_use_of_the_first_contests() {
    for is_registered in [false, true] {
        let core = bench(State::Reclaiming).await;
        testing::switched_on(&core, "n1").await;
        let (first, second) = (plan(&core, HERE).await.unwrap(), plan(&core, HERE).await.unwrap());
        if is_registered {
            registers(&core, &second, "kernel", "key", HERE).await.unwrap();
        }
        assert_eq!(contests(&core).await, [""; 0], "firmware that tries again is honest");
        assert!(registers(&core, &first, "other", "other", HERE).await.is_err());
        assert_eq!(contests(&core).await.len(), 1, "registered: {is_registered}");
    }
}

#[tokio::test]
async fn plans_in_one_boot_are_bounded() {
    let core = bench(State::Inspecting).await;
    testing::switched_on(&core, "n1").await;
    let first = plan(&core, HERE).await.unwrap();
    for _ in 1..PLANS_MAX {
        plan(&core, HERE).await.unwrap();
    }
    let mut tx = core.store.write().await.unwrap();
    let kept = tx.token(&token_hash(&first).unwrap(), "agent").await.unwrap();
    assert!(
        kept.is_some(),
        "the oldest token is still known, so that its use is noticed"
    );
    drop(tx);
    assert!(plan(&core, HERE).await.is_err());
    assert_eq!(contests(&core).await.len(), 1);
}

#[tokio::test]
async fn a_firmware_request_after_a_registration_contests_and_one_of_an_installed_system_does_not() {
    let core = bench(State::Imaging).await;
    let looks = async |is_firmware| {
        let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        looks_for_boot(&core, &record, MAC, is_firmware).await.unwrap()
    };
    assert!(!looks(true).await, "before our power-on");
    testing::switched_on(&core, "n1").await;
    assert!(looks(true).await);
    let token = plan(&core, HERE).await.unwrap();
    assert!(looks(true).await, "no agent has registered");
    let of = registers(&core, &token, "kernel", "key", HERE).await.unwrap();
    assert!(!looks(false).await);
    assert_eq!(contests(&core).await, [""; 0]);
    assert!(!looks(true).await);
    assert!(!looks(true).await);
    assert_eq!(contests(&core).await.len(), 1);
    assert!(admitted(&core, &of, "kernel").await.is_err());
}

#[tokio::test]
async fn a_registration_must_come_from_the_address_that_fetched_the_plan() {
    for (fetched, registered, is_good) in [
        ("10.0.0.9", "10.0.0.9", true),
        ("10.0.0.9", "10.0.0.8", false),
        ("10.0.0.9", "fd00::9", true),
        ("fd00::9", "fd00::8", false),
    ] {
        let core = bench(State::Imaging).await;
        testing::switched_on(&core, "n1").await;
        let at = |address| BootRequester { mac: MAC, address };
        let token = plan(&core, at(fetched)).await.unwrap();
        let answer = registers(&core, &token, "kernel", "key", at(registered)).await;
        assert_eq!(answer.is_ok(), is_good, "{fetched} {registered}");
        assert_eq!(contests(&core).await.is_empty(), is_good, "{fetched} {registered}");
    }
    let mapped: IpAddr = "::ffff:10.0.0.9".parse().unwrap();
    assert_eq!(address_text(Some(mapped)), "10.0.0.9");
}

#[tokio::test]
async fn a_contest_ends_the_session_counts_once_a_boot_and_is_deleted_with_the_state() {
    let core = bench(State::Imaging).await;
    for number in 1..=2 {
        testing::switched_on(&core, "n1").await;
        let token = plan(&core, HERE).await.unwrap();
        let of = registers(&core, &token, "kernel", "key", HERE).await.unwrap();
        let mut tx = core.store.write().await.unwrap();
        tx.connect_agent(&"n1".into(), &core.replica, &of, "address only")
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert!(plan(&core, HERE).await.is_err());
        let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        assert_eq!(record.hold.replica, "", "the session is over");
        let rows = core.store.attempts(&"n1".into(), record.node.since).await.unwrap();
        let known = LastBoot::Unread.facts(&core.store, &record, &rows).await.unwrap();
        assert_eq!((known.contests, known.contested.is_some()), (number, true));
    }
    let mut tx = core.store.write().await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    record.node.since = clock::now();
    tx.save_node(&mut record, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    testing::switched_on(&core, "n1").await;
    let rows = core.store.attempts(&"n1".into(), record.node.since).await.unwrap();
    assert_eq!(
        LastBoot::Unread
            .facts(&core.store, &record, &rows)
            .await
            .unwrap()
            .contests,
        0
    );
}

#[tokio::test]
async fn the_usual_boot_time_is_of_the_last_uncontested_boot() {
    let core = bench(State::Imaging).await;
    let usual = async || {
        let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        let rows = core.store.attempts(&"n1".into(), record.node.since).await.unwrap();
        LastBoot::Unread
            .facts(&core.store, &record, &rows)
            .await
            .unwrap()
            .usual_us
    };
    testing::switched_on(&core, "n1").await;
    let token = plan(&core, HERE).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    registers(&core, &token, "kernel", "key", HERE).await.unwrap();
    assert_eq!(usual().await, 0, "it is of the boots before");
    testing::switched_on(&core, "n1").await;
    let first = usual().await;
    assert!(first >= 5_000, "{first}");
    let token = plan(&core, HERE).await.unwrap();
    registers(&core, &token, "kernel", "key", HERE).await.unwrap();
    assert!(plan(&core, HERE).await.is_err(), "contested");
    testing::switched_on(&core, "n1").await;
    assert_eq!(usual().await, first);
}
