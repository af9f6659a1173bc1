//! Events and proofs: append-only logs.

use rackwright_store::{EventRow, Proof, Scope, Store};

use super::support::{Lab, at, event};

async fn add(store: &Store, events: &[EventRow]) {
    let mut tx = store.write().await.unwrap();
    for event in events {
        tx.add_event(event).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn positions(events: &[EventRow]) -> Vec<i64> {
    events.iter().map(|e| e.position).collect()
}

#[tokio::test]
async fn positions_grow_and_the_log_is_read_from_any_of_them() {
    let lab = Lab::new().await;
    assert_eq!(lab.store.event_range().await.unwrap(), (0, 0));
    let (a, b) = (event("held", "nodes/a", 300), event("held", "nodes/b", 200));
    add(&lab.store, &[a.clone(), b.clone(), a.clone()]).await;
    let all = lab.store.events(&Scope::Site, 0, "", 10).await.unwrap();
    let numbered = |position: i64, event: &EventRow| EventRow {
        position,
        ..event.clone()
    };
    assert_eq!(all, [numbered(1, &a), numbered(2, &b), numbered(3, &a)]);
    assert_eq!(
        positions(&lab.store.events(&Scope::Site, 1, "", 10).await.unwrap()),
        [2, 3]
    );
    assert_eq!(
        positions(&lab.store.events(&Scope::Site, 0, "", 2).await.unwrap()),
        [1, 2]
    );
    assert_eq!(
        positions(&lab.store.events(&Scope::Site, 0, "nodes/a", 10).await.unwrap()),
        [1, 3]
    );
    assert_eq!(
        positions(&lab.store.events(&Scope::Site, 0, "nodes/", 10).await.unwrap()),
        [0; 0]
    );
    assert_eq!(
        positions(&lab.store.events(&Scope::Site, 3, "", 10).await.unwrap()),
        [0; 0]
    );
    assert_eq!(lab.store.event_range().await.unwrap(), (1, 3));
}

#[tokio::test]
async fn a_position_is_never_given_out_twice() {
    let lab = Lab::new().await;
    add(&lab.store, &[event("one", "t", 100), event("two", "t", 200)]).await;
    assert_eq!(lab.store.forget_events(at(200)).await.unwrap(), 1);
    assert_eq!(lab.store.event_range().await.unwrap(), (2, 2));
    // The newest event stays, because followers are at its position.
    assert_eq!(lab.store.forget_events(at(999)).await.unwrap(), 0);
    assert_eq!(lab.store.event_range().await.unwrap(), (2, 2));
    add(&lab.store, &[event("three", "t", 300)]).await;
    assert_eq!(lab.store.event_range().await.unwrap(), (2, 3));
}

#[tokio::test]
async fn a_follower_of_the_log_misses_nothing_during_writes() {
    let lab = Lab::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let store = lab.store.clone();
        writers.spawn(async move {
            for n in 0..10 {
                add(&store, &[event(&format!("{writer}-{n}"), "t", 100)]).await;
            }
        });
    }
    let mut seen: Vec<EventRow> = Vec::new();
    while seen.len() < 40 {
        let after = seen.last().map_or(0, |e| e.position);
        seen.extend(lab.store.events(&Scope::Site, after, "", 7).await.unwrap());
        tokio::task::yield_now().await;
    }
    writers.join_all().await;
    assert_eq!(positions(&seen), (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn proofs_are_paged_newest_first_by_kind_and_node() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for n in 0..5u8 {
        tx.add_proof(Proof::Report, &format!("r{n}"), &"n1".into(), &[n, 255])
            .await
            .unwrap();
        tx.add_proof(Proof::Report, &format!("other{n}"), &"n2".into(), b"other")
            .await
            .unwrap();
    }
    tx.add_proof(Proof::EraseCertificate, "r0", &"n1".into(), b"erased")
        .await
        .unwrap();
    let twice = tx
        .add_proof(Proof::EraseCertificate, "r0", &"n1".into(), b"forged")
        .await;
    assert!(twice.is_err(), "an id is given once");
    tx.commit().await.unwrap();

    let mut seen = Vec::new();
    let mut before = i64::MAX;
    loop {
        let page = lab
            .store
            .proofs(&Scope::Site, Proof::Report, &"n1".into(), before, 2)
            .await
            .unwrap();
        let Some((position, _)) = page.last() else { break };
        before = *position;
        assert!(page.len() <= 2);
        seen.extend(page.into_iter().map(|(_, body)| body));
    }
    assert_eq!(seen, [[4, 255], [3, 255], [2, 255], [1, 255], [0, 255]]);
    let erased = lab
        .store
        .proofs(&Scope::Site, Proof::EraseCertificate, &"n1".into(), i64::MAX, 9)
        .await
        .unwrap();
    assert_eq!(erased.len(), 1);
    assert_eq!(erased[0].1, b"erased");
}
