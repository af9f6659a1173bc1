//! Readings, alarms and the nodes that they hold.

use rackwright_lifecycle::{NodeId, State, Wait};
use rackwright_store::{AlarmRow, ReadingRow, Scope};

use super::support::{Lab, at, node_in, rest};

fn alarm(subject: &str, blocks: bool) -> AlarmRow {
    AlarmRow {
        id: format!("leak {subject}"),
        kind: "leak".into(),
        subject: subject.into(),
        severity: "critical".into(),
        message: format!("a leak at {subject}"),
        advice: "look at it".into(),
        measured: None,
        limit: Some(-5),
        unit: "W".into(),
        nodes: 2,
        nodes_digest: "0a".into(),
        blocks,
        cordons: true,
        opened_at: at(100),
        seen_at: at(100),
    }
}

fn reading(name: &str, when: i64, body: &str) -> ReadingRow {
    ReadingRow {
        kind: "node".into(),
        name: name.into(),
        at: at(when),
        stored_at: at(when + 5),
        body: body.into(),
    }
}

#[tokio::test]
async fn the_newest_reading_of_each_device_is_kept() {
    let lab = Lab::new().await;
    for rows in [
        vec![reading("n2", 10, "a"), reading("n1", 10, "b")],
        vec![reading("n1", 9, "older"), reading("n2", 20, "newer")],
    ] {
        let mut tx = lab.store.write().await.unwrap();
        tx.put_facility_readings(&rows).await.unwrap();
        tx.commit().await.unwrap();
    }
    let all = lab.store.facility_readings(at(0), 10).await.unwrap();
    assert_eq!(all, [reading("n1", 10, "b"), reading("n2", 20, "newer")]);
    assert_eq!(lab.store.facility_readings(at(25), 10).await.unwrap().len(), 1);
    assert_eq!(
        lab.store.facility_reading("node", "n1").await.unwrap().unwrap().body,
        "b"
    );
    assert_eq!(lab.store.facility_reading("pdu", "n1").await.unwrap(), None);
    let mut tx = lab.store.write().await.unwrap();
    tx.forget_facility_readings(at(20)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        lab.store.facility_readings(at(0), 10).await.unwrap(),
        [reading("n2", 20, "newer")]
    );
}

#[tokio::test]
async fn a_pin_outlives_readings_until_it_is_forgotten() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for pin in ["https://a sha256:1", "https://b sha256:2"] {
        tx.put_facility_pin("cooling", "c1", pin).await.unwrap();
    }
    tx.put_facility_pin("pdu", "p1", "https://p sha256:3").await.unwrap();
    tx.forget_facility_readings(at(i64::from(i32::MAX))).await.unwrap();
    tx.commit().await.unwrap();
    let kept = async |kind: &str, name: &str| lab.store.facility_pin(kind, name).await.unwrap();
    assert_eq!(kept("cooling", "c1").await.as_deref(), Some("https://b sha256:2"));
    assert_eq!(kept("pdu", "c1").await, None);
    let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    assert_eq!(
        lab.store.facility_pins().await.unwrap(),
        [pair("cooling", "c1"), pair("pdu", "p1")]
    );
    let mut tx = lab.store.write().await.unwrap();
    tx.forget_facility_pin("cooling", "c1").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(kept("cooling", "c1").await, None);
}

#[tokio::test]
async fn an_alarm_holds_nodes_until_it_clears_and_then_wakes_those_that_waited() {
    let nodes = ["n1", "n2", "n3"].map(|id| node_in(id, State::Available));
    let lab = Lab::new().await.with(&nodes).await;
    let (first, second) = (alarm("cdu/c1", true), alarm("cdu/c2", false));
    let mut tx = lab.store.write().await.unwrap();
    tx.put_alarm(&first, &["n1".into(), "n2".into(), "ghost".into()])
        .await
        .unwrap();
    tx.put_alarm(&second, &["n2".into(), "n3".into()]).await.unwrap();
    assert_eq!(
        tx.power_block(&"n1".into()).await.unwrap().as_deref(),
        Some("a leak at cdu/c1")
    );
    tx.commit().await.unwrap();
    assert_eq!(
        lab.store.power_block(&"n3".into()).await.unwrap(),
        None,
        "it is cordoned, not blocked"
    );
    assert_eq!(lab.store.cordoned_nodes().await.unwrap(), ["ghost", "n1", "n2", "n3"]);
    assert_eq!(lab.store.alarms("", 10).await.unwrap(), [first.clone(), second.clone()]);
    assert_eq!(
        lab.store.alarms(&first.id, 10).await.unwrap(),
        std::slice::from_ref(&second)
    );
    assert_eq!(lab.store.alarms_of(&"n2".into()).await.unwrap().len(), 2);
    assert_eq!(lab.store.nodes_held_by(&first.id, "ghost", 1).await.unwrap(), ["n1"]);

    // The alarm persists with fewer nodes: the opening time stays.
    let again = AlarmRow {
        opened_at: at(900),
        seen_at: at(900),
        message: "a leak at two detectors".into(),
        nodes_digest: "0b".into(),
        ..first.clone()
    };
    let leak = Wait::Alarm { why: "a leak".into() };
    rest(&lab.store, "n1", &leak, at(5000)).await;
    rest(&lab.store, "n2", &leak, at(5000)).await;
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.put_alarm(&again, &["n1".into()]).await.unwrap(), "n2 is due");
    assert!(!tx.put_alarm(&again, &["n1".into()]).await.unwrap());
    tx.commit().await.unwrap();
    let due = async |id: &str| lab.store.node(&Scope::Site, &NodeId::stored(id)).await.unwrap().due_at;
    assert_eq!((due("n1").await, due("n2").await), (at(5000), at(900)));
    let kept = lab.store.alarms("", 1).await.unwrap().remove(0);
    assert_eq!(
        (
            kept.opened_at,
            kept.seen_at,
            kept.message.as_str(),
            kept.nodes_digest.as_str()
        ),
        (at(100), at(900), "a leak at two detectors", "0b")
    );
    assert_eq!(lab.store.power_block(&"n2".into()).await.unwrap(), None);

    rest(&lab.store, "n3", &Wait::Operator, at(5000)).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.clear_alarm(&first.id, at(1000)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((due("n1").await, due("n3").await), (at(1000), at(5000)));
    assert_eq!(lab.store.alarms("", 10).await.unwrap(), [second]);
    assert_eq!(lab.store.cordoned_nodes().await.unwrap(), ["n2", "n3"]);
}
