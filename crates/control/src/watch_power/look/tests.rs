use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_ground::testing::{self, TestCore};
use rackwright_lifecycle::{Agent, Attempt, Effect, NodeId, Outcome, State};
use rackwright_redfish::LoginMethod;
use rackwright_store::{EffectRow, Scope};
use secrecy::SecretString;
use serde::Serialize;

use super::*;

const SYSTEM: &str = "/redfish/v1/Systems/1";

#[derive(Serialize)]
struct System {
    #[serde(rename = "PowerState")]
    power: &'static str,
}

/// A BMC with this answer and status. It counts requests.
struct Bmc {
    answer: Mutex<(u16, &'static str)>,
    requests: AtomicUsize,
}

impl Bmc {
    async fn start() -> (Arc<Self>, String) {
        let bmc = Arc::new(Self {
            answer: Mutex::new((200, "Off")),
            requests: AtomicUsize::new(0),
        });
        let own = bmc.clone();
        let answer = async move || {
            own.requests.fetch_add(1, Ordering::SeqCst);
            let (status, power) = *own.answer.lock().unwrap();
            (StatusCode::from_u16(status).unwrap(), Json(System { power })).into_response()
        };
        let app = Router::new().route(SYSTEM, get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (bmc, address)
    }

    fn set_answer(&self, status: u16, power: &'static str) {
        *self.answer.lock().unwrap() = (status, power);
    }
}

/// An available node with power that was read as off, and its BMC.
struct Bench {
    core: TestCore,
    bmc: Arc<Bmc>,
    bmc_locks: BmcLocks,
    address: String,
}

impl Bench {
    async fn new() -> Self {
        let core = testing::core().await;
        let (bmc, address) = Bmc::start().await;
        let mut record = testing::node("n1", State::Available, None);
        record.spec.bmc_address = address.clone();
        let password = SecretString::from("secret");
        let sealed = core.keys.sealer.seal(&password, &bmc_password_purpose(&"n1".into()));
        record.spec.bmc_password = sealed.unwrap();
        record.identity.macs = vec!["02:00:00:00:00:01".into()];
        seen_off(&mut record.readings, Timestamp(1));
        testing::add(&core, &record).await;
        Self {
            core,
            bmc,
            bmc_locks: BmcLocks::default(),
            address,
        }
    }

    async fn row(&self) -> RestingRow {
        self.core.store.resting(&[&"n1".into()]).await.unwrap().remove(0)
    }

    async fn known(&self) -> Known {
        let record = self.core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        let hints = BmcHints {
            system: Some(SYSTEM.into()),
            login: LoginMethod::EachRequest,
        };
        Known {
            hints,
            ..Known::of(&record)
        }
    }

    async fn look(&self, silent: u32) -> Look {
        let known = Some(self.known().await);
        look(&self.core, &self.bmc_locks, self.row().await, known, silent)
            .await
            .look
    }

    /// Kinds of all events since the last call. `seen` counts the events of earlier calls.
    async fn events(&self, seen: &mut usize) -> Vec<String> {
        let all = self.core.store.events(&Scope::Site, 0, "", 1000).await.unwrap();
        let new = all[*seen..].iter().map(|event| event.kind.to_string()).collect();
        *seen = all.len();
        new
    }

    async fn readings(&self) -> Readings {
        self.core.store.node(&Scope::Site, &"n1".into()).await.unwrap().readings
    }
}

#[tokio::test]
async fn a_power_loss_is_reported_once_and_no_change_is_not_written() {
    let bench = Bench::new().await;
    let mut seen = 0;
    let before = bench.readings().await;
    assert_eq!(bench.look(0).await, Look::Same);
    assert_eq!(bench.bmc.requests.load(Ordering::SeqCst), 1, "one request a look");
    assert_eq!(bench.readings().await, before);
    assert!(bench.events(&mut seen).await.is_empty());

    bench.bmc.set_answer(200, "On");
    assert_eq!(bench.look(0).await, Look::Changed);
    assert_eq!(bench.readings().await.power.last(), Some(&Power::On));
    assert_eq!(bench.events(&mut seen).await, ["power.on"]);
    assert_eq!(bench.look(0).await, Look::Same);
    bench.bmc.set_answer(200, "PoweringOff");
    assert_eq!(bench.look(0).await, Look::Unsettled);
    assert!(bench.events(&mut seen).await.is_empty());

    bench.bmc.set_answer(200, "Off");
    assert_eq!(bench.look(0).await, Look::Changed);
    let readings = bench.readings().await;
    assert_eq!(readings.power.last(), Some(&Power::Off));
    assert_eq!(readings.agent.last(), Some(&Agent::Absent));
    assert_eq!(bench.events(&mut seen).await, ["power.off"]);
    let event = &bench.core.store.events(&Scope::Site, 0, "", 1000).await.unwrap()[1];
    assert_eq!(event.message, "n1 is off, and no operation requested this");
    let record = bench.core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!(
        (record.node.state, record.version),
        (State::Available, 1),
        "no state moves"
    );
}

#[tokio::test]
async fn a_bmc_is_lost_after_three_failed_polls_and_back_with_the_next_answer_with_one_event_each() {
    let bench = Bench::new().await;
    let mut seen = 0;
    bench.bmc.set_answer(500, "");
    for silent in 0..2 {
        assert_eq!(bench.look(silent).await, Look::Silent);
        assert!(bench.events(&mut seen).await.is_empty());
    }
    assert_eq!(bench.look(2).await, Look::Silent);
    assert_eq!(bench.events(&mut seen).await, ["bmc.lost"]);
    let bmc = bench.readings().await.bmc;
    let Some(rackwright_lifecycle::Bmc::Unreachable(why)) = bmc.last() else {
        panic!("{bmc:?}");
    };
    assert!(why.contains(&bench.address) && why.contains("500"), "{why}");
    assert_eq!(bench.look(3).await, Look::Silent);
    assert!(bench.events(&mut seen).await.is_empty());
    bench.bmc.set_answer(200, "Off");
    assert_eq!(bench.look(4).await, Look::Same);
    assert_eq!(bench.events(&mut seen).await, ["bmc.back"]);
    let bmc = bench.readings().await.bmc;
    assert_eq!(bmc.last(), Some(&rackwright_lifecycle::Bmc::Identified));
    assert_eq!(bench.look(0).await, Look::Same);
    assert!(bench.events(&mut seen).await.is_empty());
}

#[tokio::test]
async fn a_refusal_is_reported_at_once() {
    let bench = Bench::new().await;
    let mut seen = 0;
    bench.bmc.set_answer(401, "");
    assert_eq!(bench.look(0).await, Look::Refused);
    assert_eq!(bench.events(&mut seen).await, ["security.bmc-login-refused"]);
    // The refusal changed the node: the next look reports the lost BMC.
    assert_eq!(bench.look(1).await, Look::Refused);
    assert_eq!(bench.events(&mut seen).await, ["bmc.lost"]);
    assert_eq!(bench.look(2).await, Look::Refused);
    assert!(bench.events(&mut seen).await.is_empty());
}

#[tokio::test]
async fn a_newer_reading_of_the_runner_is_not_overwritten() {
    let bench = Bench::new().await;
    let core = &bench.core;
    bench.bmc.set_answer(200, "On");
    let stale = bench.row().await;
    let look_late = async |row: RestingRow| {
        let known = Some(bench.known().await);
        look(core, &bench.bmc_locks, row, known, 0).await;
    };
    // The runner has looked as well.
    let mut newer = stale.readings.clone();
    seen_off(&mut newer, Timestamp(2));
    let mut tx = core.store.write().await.unwrap();
    tx.save_readings(&"n1".into(), &newer, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    look_late(stale).await;
    assert_eq!(bench.readings().await, newer);
    // An operator has changed the node: its BMC may be another.
    let stale = bench.row().await;
    let mut record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = core.store.write().await.unwrap();
    tx.save_node(&mut record, Timestamp(3)).await.unwrap();
    tx.commit().await.unwrap();
    look_late(stale).await;
    assert_eq!(bench.readings().await, newer);
    // An effect has begun.
    let stale = bench.row().await;
    let mut tx = core.store.write().await.unwrap();
    let effect = EffectRow {
        id: "e1".into(),
        node_id: "n1".into(),
        state_since: Timestamp(1),
        number: 1,
        generation: 0,
        owner: core.replica.clone(),
        attempt: Attempt {
            effect: Effect::PowerOn,
            started_at: Timestamp(4),
            ended_at: None,
            deadline: Timestamp(5),
            outcome: Outcome::Open,
            boot_id: None,
        },
    };
    tx.begin_effect(&effect).await.unwrap();
    tx.commit().await.unwrap();
    look_late(stale.clone()).await;
    assert_eq!(bench.readings().await, newer);
    // Without these changes the look is stored.
    let mut tx = core.store.write().await.unwrap();
    tx.end_effect("e1", &Outcome::Succeeded, Timestamp(6)).await.unwrap();
    tx.commit().await.unwrap();
    look_late(bench.row().await).await;
    assert_eq!(bench.readings().await.power.last(), Some(&Power::On));
}

#[tokio::test]
async fn a_busy_node_is_not_polled_and_a_bmc_gets_one_request_at_a_time() {
    let bench = Bench::new().await;
    let nudge = bench.core.running_steps.begin(&"n1".into());
    assert!(nudge.is_some());
    assert_eq!(bench.look(0).await, Look::Unsettled);
    bench.core.running_steps.abandon(&"n1".into());
    let bmc_lock = bench.bmc_locks.begin(&bench.address);
    assert!(bmc_lock.is_some());
    assert_eq!(bench.look(0).await, Look::Unsettled);
    assert_eq!(bench.bmc.requests.load(Ordering::SeqCst), 0);
    drop(bmc_lock);
    assert_eq!(bench.look(0).await, Look::Same);
}

#[tokio::test]
async fn a_hint_makes_the_power_of_a_busy_node_unknown_unless_it_was_just_read() {
    let core = testing::core().await;
    let old = Reading::Known {
        value: Power::On,
        at: Timestamp(1),
    };
    let fresh = Reading::Known {
        value: Power::On,
        at: clock::now().plus(seconds(3600)),
    };
    for (id, state, power, is_doubted) in [
        ("old", State::Imaging, old.clone(), true),
        ("fresh", State::Imaging, fresh, false),
        ("rest", State::Available, old, false),
    ] {
        let mut record = testing::node(id, state, None);
        record.readings.power = power.clone();
        testing::add(&core, &record).await;
        assert!(mark_power_unknown(&core, &NodeId::stored(id)).await.unwrap());
        let after = core
            .store
            .node(&Scope::Site, &NodeId::stored(id))
            .await
            .unwrap()
            .readings
            .power;
        assert_eq!(after != power, is_doubted, "{id}: {after:?}");
        assert_eq!(matches!(after, Reading::Unknown { .. }), is_doubted, "{id}");
    }
    assert!(!mark_power_unknown(&core, &"nobody".into()).await.unwrap());
}
