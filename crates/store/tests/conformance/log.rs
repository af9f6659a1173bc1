//! Events and proofs: append-only logs.

use rackwright_lifecycle::{EventKind, Severity};
use rackwright_store::{EventFilter, EventRow, Proof, Scope, Store};

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
async fn events_are_found_by_kind_time_and_severity() {
    let lab = Lab::new().await;
    let kinds = [
        "power.on",
        "failed",
        "security.rogue-dhcp",
        "power.off",
        "powered",
        "x_off",
    ];
    let rows: Vec<EventRow> = (1..)
        .zip(kinds)
        .map(|(n, kind)| event(kind, "nodes/a", 100 * n))
        .collect();
    add(&lab.store, &rows).await;
    let all = EventFilter::default;
    let of = |kinds: &[&str]| EventFilter {
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        ..all()
    };
    let cases: &[(EventFilter, &[i64])] = &[
        (all(), &[1, 2, 3, 4, 5, 6]),
        (of(&["power.*"]), &[1, 4]),
        (of(&["power.on", "failed"]), &[1, 2]),
        (of(&["x.off"]), &[]),
        (of(&["%"]), &[]),
        (
            EventFilter {
                since: Some(at(300)),
                until: Some(at(500)),
                ..all()
            },
            &[3, 4],
        ),
        (
            EventFilter {
                target: "nodes/b".into(),
                ..all()
            },
            &[],
        ),
        (
            EventFilter {
                min_severity: Some(Severity::Error),
                ..all()
            },
            &[2, 3],
        ),
        // Kinds of another version count as warnings.
        (
            EventFilter {
                min_severity: Some(Severity::Warning),
                ..all()
            },
            &[2, 3, 5, 6],
        ),
    ];
    for (filter, wanted) in cases {
        let found = lab.store.events_that_match(&Scope::Site, filter, 0, 10).await.unwrap();
        assert_eq!(positions(&found), *wanted, "{filter:?}");
        let newest = lab.store.newest_events(&Scope::Site, filter, 6, 2).await.unwrap();
        assert_eq!(
            positions(&newest),
            wanted[wanted.len().saturating_sub(2)..],
            "{filter:?}"
        );
        let before = lab.store.newest_events(&Scope::Site, filter, 3, 10).await.unwrap();
        assert!(positions(&before).iter().all(|position| *position <= 3), "{filter:?}");
    }
}

#[tokio::test]
async fn the_database_knows_the_severity_of_every_kind() {
    let lab = Lab::new().await;
    let alarms = ["leak", "leak-cleared", "temperature", "feed-lost-ignored"].map(|alarm| format!("facility.{alarm}"));
    let kinds: Vec<String> = EventKind::named().map(|kind| kind.to_string()).chain(alarms).collect();
    let rows: Vec<EventRow> = kinds.iter().map(|kind| event(kind, "nodes/a", 100)).collect();
    add(&lab.store, &rows).await;
    for min in [Severity::Info, Severity::Warning, Severity::Error] {
        let filter = EventFilter {
            min_severity: Some(min),
            ..EventFilter::default()
        };
        let found = lab
            .store
            .events_that_match(&Scope::Site, &filter, 0, 1000)
            .await
            .unwrap();
        let found: Vec<String> = found.iter().map(|event| event.kind.to_string()).collect();
        let severe = kinds.iter().filter(|kind| EventKind::parse(kind).severity() >= min);
        assert_eq!(found, severe.cloned().collect::<Vec<_>>(), "{min:?}");
    }
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
