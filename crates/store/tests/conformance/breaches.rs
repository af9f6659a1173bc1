//! Breaches of isolation, and the check that finds them.

use rackwright_store::{BreachRow, FabricCheckRow};

use super::support::{Lab, at};

fn breach(id: &str, since: i64, ended_at: Option<i64>) -> BreachRow {
    BreachRow {
        id: id.into(),
        kind: "open-default".into(),
        good_at: Some(at(since - 1)),
        since: at(since),
        seen: at(since + 1),
        ended_at: ended_at.map(at),
        body: format!("{{\"of\":\"{id}\"}}"),
    }
}

#[tokio::test]
async fn a_breach_is_open_until_its_end_and_is_kept_after_it() {
    let lab = Lab::new().await;
    let store = &lab.store;
    assert_eq!(store.fabric_check().await.unwrap(), None);
    assert_eq!(store.count_open_breaches().await.unwrap(), 0);
    let check = FabricCheckRow {
        checked_at: Some(at(9)),
        problem: "no subnet manager".into(),
        last_port: "0x7".into(),
        written: "b3-1".into(),
        intended: "b3-2".into(),
    };
    let mut tx = store.write().await.unwrap();
    tx.hall().await.unwrap();
    tx.put_fabric_check(&FabricCheckRow::default()).await.unwrap();
    tx.put_fabric_check(&check).await.unwrap();
    assert_eq!(tx.fabric_check().await.unwrap(), Some(check.clone()));
    for row in [breach("b", 10, None), breach("a", 20, None), breach("c", 5, Some(7))] {
        tx.put_breach(&row).await.unwrap();
    }
    assert_eq!(
        tx.open_breaches().await.unwrap(),
        [breach("b", 10, None), breach("a", 20, None)]
    );
    tx.commit().await.unwrap();
    assert_eq!(store.fabric_check().await.unwrap(), Some(check));
    assert_eq!(store.count_open_breaches().await.unwrap(), 2);

    // An end, and what was learnt until then. The start stays.
    let mut tx = store.write().await.unwrap();
    tx.hall().await.unwrap();
    let ended = BreachRow {
        seen: at(29),
        ended_at: Some(at(30)),
        body: "{}".into(),
        ..breach("b", 10, None)
    };
    let sent = BreachRow {
        since: at(99),
        good_at: None,
        ..ended.clone()
    };
    tx.put_breach(&sent).await.unwrap();
    tx.commit().await.unwrap();
    let (a, c) = (breach("a", 20, None), breach("c", 5, Some(7)));
    assert_eq!(store.fabric_breaches(9).await.unwrap(), [a.clone(), ended, c]);
    assert_eq!(store.fabric_breaches(1).await.unwrap(), [a]);
    assert_eq!(store.count_open_breaches().await.unwrap(), 1);
}

#[tokio::test]
async fn of_many_ended_breaches_the_oldest_are_deleted() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    tx.hall().await.unwrap();
    tx.put_breach(&breach("open", 1, None)).await.unwrap();
    for n in 2..=1_003 {
        tx.put_breach(&breach(&format!("b{n}"), n, Some(n + 1))).await.unwrap();
    }
    tx.commit().await.unwrap();
    let kept = lab.store.fabric_breaches(9_999).await.unwrap();
    let ids: Vec<&str> = kept.iter().map(|breach| breach.id.as_str()).collect();
    assert_eq!(
        (ids.len(), ids[0], ids[999], ids[1_000]),
        (1_001, "b1003", "b4", "open")
    );
}
