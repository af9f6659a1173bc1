//! Replicas: which are alive, and the open work of dead ones.

use rackwright_lifecycle::{Effect, Outcome};
use rackwright_store::{EffectRow, ReplicaRow};

use super::support::{Lab, at, node, try_of};

fn replica(id: &str, us: i64) -> ReplicaRow {
    ReplicaRow {
        id: id.into(),
        heard_at: at(us),
    }
}

fn of(owner: &str, node: &str) -> EffectRow {
    EffectRow {
        owner: owner.into(),
        ..try_of(node, Effect::PowerOn, 1)
    }
}

fn ids(effects: Vec<EffectRow>) -> Vec<String> {
    let mut ids: Vec<_> = effects.into_iter().map(|e| e.id).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn a_replica_is_alive_while_it_reports() {
    let lab = Lab::new().await;
    for (id, us) in [("b", 100), ("a", 100), ("a", 200), ("a", 150)] {
        lab.store.record_heartbeat(id, at(us)).await.unwrap();
    }
    let living = async |since| lab.store.replicas(at(since)).await.unwrap();
    assert_eq!(living(100).await, [replica("a", 200), replica("b", 100)]);
    assert_eq!(living(101).await, [replica("a", 200)]);
    assert_eq!(living(201).await, []);
    assert_eq!(lab.store.forget_replicas(at(101)).await.unwrap(), 1);
    assert_eq!(living(0).await, [replica("a", 200)]);
    lab.store.end_replica("a").await.unwrap();
    lab.store.end_replica("a").await.unwrap();
    assert_eq!(living(0).await, []);
    // It starts again, or was falsely taken for dead.
    lab.store.record_heartbeat("b", at(300)).await.unwrap();
    assert_eq!(living(300).await, [replica("b", 300)]);
}

#[tokio::test]
async fn service_time_outlasts_each_replica() {
    let lab = Lab::new().await;
    let begins = async |id, us| lab.store.begin_replica(id, at(us), 30).await.unwrap();
    assert_eq!(begins("a", 100).await, at(100));
    // Killed and restarted repeatedly, by turns.
    for (id, us) in [("b", 120), ("a", 150), ("b", 180), ("b", 181)] {
        assert_eq!(begins(id, us).await, at(100), "{id} at {us}");
    }
    lab.store.record_heartbeat("a", at(200)).await.unwrap();
    assert_eq!(begins("b", 230).await, at(100));
    // No replica was alive for too long.
    assert_eq!(begins("a", 261).await, at(261));
    assert_eq!(begins("b", 262).await, at(261));
    for id in ["a", "b"] {
        lab.store.end_replica(id).await.unwrap();
    }
    assert_eq!(begins("a", 263).await, at(263));
}

#[tokio::test]
async fn open_effects_of_the_dead_are_found_and_those_of_the_living_are_not() {
    let lab = Lab::new().await.with(&["n1", "n2", "n3", "n4"].map(node)).await;
    let mut tx = lab.store.write().await.unwrap();
    for (owner, node) in [("alive", "n1"), ("silent", "n2"), ("nobody", "n3"), ("silent", "n4")] {
        tx.begin_effect(&of(owner, node)).await.unwrap();
    }
    tx.end_effect("n4-power-on-1", &Outcome::Succeeded, at(150))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    lab.store.record_heartbeat("alive", at(200)).await.unwrap();
    lab.store.record_heartbeat("silent", at(100)).await.unwrap();

    let orphaned = async |since| ids(lab.store.orphaned_effects(at(since)).await.unwrap());
    assert_eq!(orphaned(150).await, ["n2-power-on-1", "n3-power-on-1"]);
    assert_eq!(orphaned(100).await, ["n3-power-on-1"]);
    assert_eq!(orphaned(201).await.len(), 3);
    assert_eq!(
        lab.store.open_effects_of("silent").await.unwrap(),
        [of("silent", "n2")],
        "as it was begun, and none that ended"
    );

    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.adopt_effect("n3-power-on-1", "alive").await.unwrap());
    assert!(
        !tx.adopt_effect("n4-power-on-1", "alive").await.unwrap(),
        "it has ended"
    );
    tx.commit().await.unwrap();
    assert_eq!(orphaned(150).await, ["n2-power-on-1"]);
    let own = lab.store.open_effects_of("alive").await.unwrap();
    assert_eq!(ids(own), ["n1-power-on-1", "n3-power-on-1"]);
}
