//! Nodes at rest, and their stored readings.

use rackwright_lifecycle::{Effect, NodeId, Outcome, Power, Reading, State};
use rackwright_store::{Readings, RestingRow};

use super::support::{Lab, at, node_in, session_of, try_of};

const LIMIT: i64 = 100;

#[tokio::test]
async fn nodes_with_open_work_are_not_at_rest() {
    let all: Vec<_> = State::ALL.iter().map(|state| node_in(state.as_str(), *state)).collect();
    let lab = Lab::new().await.with(&all).await;
    let ids = async |after: &str, limit| lab.store.resting_ids(after, limit).await.unwrap();
    let resting = ["active", "available", "failed", "maintenance", "quarantined"];
    assert_eq!(ids("", LIMIT).await, resting);
    assert_eq!(ids("", 2).await, resting[..2]);
    assert_eq!(ids("available", LIMIT).await, resting[2..]);

    let mut tx = lab.store.write().await.unwrap();
    tx.begin_effect(&try_of("active", Effect::PowerOn, 1)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(ids("", LIMIT).await, resting[1..]);
    assert_eq!(lab.store.resting(&[&"active".into()]).await.unwrap(), []);
    let mut tx = lab.store.write().await.unwrap();
    tx.end_effect("active-power-on-1", &Outcome::Succeeded, at(150))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(ids("", LIMIT).await, resting);
}

#[tokio::test]
async fn any_number_of_resting_nodes_is_read_with_their_last_readings() {
    let all: Vec<_> = (0..150)
        .map(|n| node_in(&format!("n{n:03}"), State::Available))
        .collect();
    let lab = Lab::new().await.with(&all).await;
    let power = Reading::Known {
        value: Power::Off,
        at: at(7),
    };
    let readings = Readings {
        power,
        ..Readings::default()
    };
    let mut tx = lab.store.write().await.unwrap();
    tx.save_readings(&"n149".into(), &readings, at(300)).await.unwrap();
    let session = tx
        .connect_agent(&"n149".into(), "replica-1", &session_of(0), "address only")
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let unknown = "nobody".into();
    let wanted: Vec<&NodeId> = all.iter().map(|node| &node.id).chain([&unknown]).collect();
    let mut found = lab.store.resting(&wanted).await.unwrap();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let ids: Vec<&NodeId> = found.iter().map(|row| &row.id).collect();
    assert_eq!(ids, wanted[..150]);
    let last = RestingRow {
        id: "n149".into(),
        version: 1,
        session,
        readings,
    };
    assert_eq!(found[149], last);
    assert_eq!(lab.store.resting(&[]).await.unwrap(), []);
}
