//! Changes: atomic, serialized where they touch the same rows, and durable over a restart.

use std::time::Duration;

use rackwright_lifecycle::{Effect, State, Wait};
use rackwright_store::{BootStageRow, ImageVersionBody, ImageVersionRow, Proof, RequestKey, Scope, Store, StoreError};

use crate::database::Fresh;

use super::support::{Lab, at, event, given, is_missing, member, node, node_in, rest, try_of};

/// Long enough for a writer that does not wait to finish.
const MOMENT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_change_that_is_dropped_leaves_nothing() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    tx.insert_node(&node("n1")).await.unwrap();
    tx.put_macs(&"n1".into(), &["m1".to_owned()]).await.unwrap();
    tx.add_event(&event("enrolled", "nodes/n1", 100)).await.unwrap();
    tx.put_member("ann", &member("operator"), 1, at(1)).await.unwrap();
    assert!(tx.node(&"n1".into()).await.is_ok(), "the change itself sees it");
    assert!(
        is_missing(&lab.store.node(&Scope::Site, &"n1".into()).await),
        "no other store does"
    );
    drop(tx);
    assert!(is_missing(&lab.store.node(&Scope::Site, &"n1".into()).await));
    assert_eq!(lab.store.node_of_mac("m1").await.unwrap(), None);
    assert_eq!(lab.store.event_range().await.unwrap(), (0, 0));
    assert_eq!(lab.store.member("ann").await.unwrap(), None);
    // The next change is not hindered.
    let lab = lab.with(&[node("n1")]).await;
    assert!(lab.store.node(&Scope::Site, &"n1".into()).await.is_ok());
}

/// `second` changes the same node as `first`: it waits, then sees the change of `first`.
async fn second_waits_for_first(first: &Store, second: Store) {
    let mut tx = first.write().await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    record.reason = "first".into();
    tx.save_node(&mut record, at(200)).await.unwrap();
    let waiting = tokio::spawn(async move {
        let mut tx = second.write().await?;
        let mut record = tx.node(&"n1".into()).await?;
        record.reason.push_str(", second");
        tx.save_node(&mut record, at(200)).await?;
        tx.commit().await
    });
    tokio::time::sleep(MOMENT).await;
    assert!(!waiting.is_finished(), "it has to wait");
    tx.commit().await.unwrap();
    waiting.await.unwrap().unwrap();
    let record = first.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!((record.reason.as_str(), record.version), ("first, second", 3));
}

#[tokio::test]
async fn a_second_writer_of_this_process_waits_and_sees_the_first() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    second_waits_for_first(&lab.store, lab.store.clone()).await;
}

#[tokio::test]
async fn a_second_writer_of_another_process_waits_and_sees_the_first() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    second_waits_for_first(&lab.store, lab.other().await).await;
}

#[tokio::test]
async fn readers_do_not_wait_for_a_writer() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut tx = lab.store.write().await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    record.reason = "new".into();
    tx.save_node(&mut record, at(200)).await.unwrap();
    let id = "n1".into();
    let read = tokio::time::timeout(Duration::from_secs(5), lab.store.node(&Scope::Site, &id));
    assert_eq!(read.await.unwrap().unwrap().reason, "");
    tx.commit().await.unwrap();
    assert_eq!(lab.store.node(&Scope::Site, &"n1".into()).await.unwrap().reason, "new");
}

#[tokio::test]
async fn the_slower_of_two_changes_of_a_node_gets_a_conflict() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut outcomes = Vec::new();
    let (a, b) = (
        lab.store.node(&Scope::Site, &"n1".into()).await.unwrap(),
        lab.store.node(&Scope::Site, &"n1".into()).await.unwrap(),
    );
    for mut record in [a, b] {
        let mut tx = lab.store.write().await.unwrap();
        outcomes.push(tx.save_node(&mut record, at(200)).await);
        if outcomes.last().unwrap().is_ok() {
            tx.commit().await.unwrap();
        }
    }
    assert!(outcomes[0].is_ok());
    assert!(matches!(&outcomes[1], Err(StoreError::Conflict { kind: "node", id }) if id == "n1"));
}

/// One row of many kinds.
async fn fill(store: &Store) {
    let mut tx = store.write().await.unwrap();
    tx.insert_node(&node_in("n1", State::Imaging)).await.unwrap();
    tx.put_macs(&"n1".into(), &["m1".to_owned()]).await.unwrap();
    tx.begin_effect(&try_of("n1", Effect::WriteImage, 1)).await.unwrap();
    tx.add_event(&event("enrolled", "nodes/n1", 100)).await.unwrap();
    tx.add_proof(Proof::Report, "r1", &"n1".into(), b"report")
        .await
        .unwrap();
    tx.assign_address("m1", "10.0.0.1", at(1)).await.unwrap();
    tx.remember(&request(), b"answer", at(1)).await.unwrap();
    tx.put_member("ann", &member("operator"), 1, at(1)).await.unwrap();
    let version = ImageVersionRow {
        image_id: "noble".into(),
        digest: "b3-1".into(),
        created_at: at(1),
        body: ImageVersionBody::default(),
    };
    tx.add_image_version(&version, "uid").await.unwrap();
    let stage = BootStageRow {
        mac: "m1".into(),
        at: at(1),
        stage: "dhcp".into(),
        detail: String::new(),
        remote: String::new(),
    };
    tx.add_boot_stage(&stage).await.unwrap();
    tx.commit().await.unwrap();
    rest(store, "n1", &Wait::AgentBoot, at(5000)).await;
}

fn request() -> RequestKey {
    RequestKey {
        actor: "ann".into(),
        key: "k1".into(),
        method: "EnrollNode".into(),
        digest: "d".into(),
    }
}

async fn check_filled(store: &Store) {
    let record = store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!((record.node.state, record.wait), (State::Imaging, Wait::AgentBoot));
    assert_eq!(store.next_due("replica-1").await.unwrap(), Some(at(5000)));
    assert_eq!(store.node_of_mac("m1").await.unwrap(), Some("n1".into()));
    assert_eq!(
        store.open_effects().await.unwrap(),
        [try_of("n1", Effect::WriteImage, 1)]
    );
    assert_eq!(store.event_range().await.unwrap(), (1, 1));
    let reports = store
        .proofs(&Scope::Site, Proof::Report, &"n1".into(), i64::MAX, 9)
        .await
        .unwrap();
    assert_eq!(reports, [(1, b"report".to_vec())]);
    assert_eq!(store.address_of("m1").await.unwrap().as_deref(), Some("10.0.0.1"));
    assert_eq!(given(store, "ann").await, Some(member("operator")));
    assert_eq!(store.image_versions(&"noble".into()).await.unwrap().len(), 1);
    assert_eq!(store.boot_stages("m1").await.unwrap().len(), 1);
    let mut tx = store.write().await.unwrap();
    assert_eq!(tx.replay(&request()).await.unwrap(), Some(b"answer".to_vec()));
}

#[tokio::test]
async fn everything_is_read_back_after_an_orderly_end() {
    let lab = Lab::new().await;
    fill(&lab.store).await;
    lab.store.close().await;
    check_filled(&lab.other().await).await;
}

#[tokio::test]
async fn committed_changes_are_visible_to_another_store() {
    let lab = Lab::new().await;
    fill(&lab.store).await;
    check_filled(&lab.other().await).await;
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused_and_left_alone() {
    let lab = Lab::new().await;
    fill(&lab.store).await;
    lab.store.close().await;
    lab.database
        .sql("INSERT INTO schema_version (version) VALUES (99)")
        .await;
    let refused = Store::open(lab.database.database()).await.unwrap_err();
    let StoreError::NewerSchema { found, known } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(*found, 99);
    let message =
        format!("the database has schema 99, but this program supports up to {known}; start the newer version");
    assert_eq!(refused.to_string(), message);
    assert!(!refused.is_retryable());
    lab.database.sql("DELETE FROM schema_version WHERE version = 99").await;
    check_filled(&lab.other().await).await;
}

#[tokio::test]
async fn a_row_that_cannot_be_read_back_is_named() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    lab.database
        .sql("UPDATE nodes SET state = 'melted' WHERE id = 'n1'")
        .await;
    let refused = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap_err();
    assert_eq!(refused.to_string(), "node \"n1\" cannot be read back");
    assert!(!refused.is_retryable());
    let source = std::error::Error::source(&refused).unwrap().to_string();
    assert!(source.contains("melted"), "{source}");
}

#[tokio::test]
async fn a_partly_refused_change_does_not_count_as_done() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    for with_event in [false, true] {
        let mut tx = lab.store.write().await.unwrap();
        tx.put_member("ann", &member("operator"), 1, at(1)).await.unwrap();
        assert!(tx.begin_effect(&try_of("ghost", Effect::PowerOn, 1)).await.is_err());
        if with_event {
            tx.add_event(&event("enrolled", "nodes/n1", 100)).await.unwrap();
        }
        // Either everything except the refused part is stored, or the commit reports a failure.
        let kept = tx.commit().await.is_ok();
        assert_eq!(lab.store.member("ann").await.unwrap().is_some(), kept);
    }
}

#[tokio::test]
async fn concurrent_first_opens_each_find_a_complete_database() {
    let database = Fresh::new().await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let at = database.database();
        clients.spawn(async move {
            Store::open(at)
                .await
                .map(|store| async move { store.event_range().await })
        });
    }
    for opened in clients.join_all().await {
        assert_eq!(opened.unwrap().await.unwrap(), (0, 0));
    }
}
