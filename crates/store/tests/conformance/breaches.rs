//! Breaches of isolation, and the check that finds them.

use rackwright_lifecycle::cluster::State;
use rackwright_lifecycle::{ClusterId, CustomerId};
use rackwright_store::{BreachRow, FabricCheckRow, Period, Scope, WriteTx};

use super::clusters::{cluster, insert};
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

fn second(s: i64) -> i64 {
    s * 1_000_000
}

/// A change that has locked the hall.
async fn change(lab: &Lab) -> WriteTx {
    let mut tx = lab.store.write().await.unwrap();
    tx.hall().await.unwrap();
    tx
}

/// Kind, customer, cluster, last good second, from, to.
type Short = (String, String, String, Option<i64>, i64, Option<i64>);

fn short(kind: &str, customer: &str, cluster: &str, span: (i64, Option<i64>)) -> Short {
    (kind.into(), customer.into(), cluster.into(), Some(9), span.0, span.1)
}

async fn usage(
    lab: &Lab,
    scope: &Scope,
    span: (i64, i64),
    customer: &'static str,
    cluster: &'static str,
) -> Vec<Short> {
    let customer = Some(customer).filter(|id| !id.is_empty()).map(CustomerId::from);
    let cluster = Some(cluster).filter(|id| !id.is_empty()).map(ClusterId::from);
    let period = Period {
        from_s: span.0,
        to_s: span.1,
        customer: customer.as_ref(),
        cluster: cluster.as_ref(),
    };
    let (mut all, mut after) = (Vec::new(), 0);
    // Pages of two rows.
    loop {
        let page = lab.store.usage_breaches(scope, &period, after, 2).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.position;
        all.extend(page.into_iter().map(|row| {
            let customer = row.customer.map(|id| id.to_string()).unwrap_or_default();
            let cluster = row.cluster.map(|id| id.to_string()).unwrap_or_default();
            (row.kind, customer, cluster, row.good_s, row.from_s, row.to_s)
        }));
    }
}

/// A breach that is open at alpha and beta, and one that a change found and repaired at beta.
async fn breached() -> (Lab, BreachRow, BreachRow) {
    let lab = Lab::new().await;
    insert(&lab, &cluster("alpha", "acme"), &[]).await.unwrap();
    insert(&lab, &cluster("beta", "bolt"), &[]).await.unwrap();
    let open = BreachRow {
        kind: "cut-off".into(),
        good_at: Some(at(second(9))),
        ..breach("open", 10, None)
    };
    let repaired = BreachRow {
        id: "repaired".into(),
        kind: "foreign-key".into(),
        since: at(second(40)),
        ended_at: Some(at(second(40) + 5)),
        ..open.clone()
    };
    let mut tx = change(&lab).await;
    tx.put_breach(&open).await.unwrap();
    for (uid, since) in [("uid-alpha", 10), ("uid-beta", 20), ("gone", 10)] {
        let since = at(second(since) + 999_999);
        tx.add_usage_breach(&open, uid, since).await.unwrap();
    }
    // The next check finds the same.
    tx.add_usage_breach(&open, "uid-alpha", at(second(30))).await.unwrap();
    tx.put_breach(&repaired).await.unwrap();
    tx.add_usage_breach(&repaired, "uid-beta", repaired.since)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    (lab, open, repaired)
}

/// Ends a breach in this second.
async fn end(tx: &mut WriteTx, open: &BreachRow, s: i64) {
    let ended = BreachRow {
        ended_at: Some(at(second(s))),
        ..open.clone()
    };
    tx.put_breach(&ended).await.unwrap();
}

#[tokio::test]
async fn a_breach_in_the_usage_of_customers_outlives_the_breach_and_the_cluster() {
    let (lab, open, repaired) = breached().await;
    let stored = [
        short("cut-off", "acme", "alpha", (10, None)),
        short("cut-off", "bolt", "beta", (20, None)),
        short("foreign-key", "bolt", "beta", (40, Some(40))),
    ];
    assert_eq!(usage(&lab, &Scope::Site, (0, 1000), "", "").await, stored);

    // Alpha is released and deleted during the breach. The next cluster of its name has no part in it.
    let mut tx = change(&lab).await;
    let mut alpha = tx.cluster(&"alpha".into()).await.unwrap();
    tx.end_usage_breaches_of_cluster(&alpha.uid, at(second(50)))
        .await
        .unwrap();
    alpha.cluster.state = State::Released;
    tx.save_cluster(&mut alpha, at(second(50))).await.unwrap();
    for breach in [&open, &repaired] {
        tx.add_usage_breach(breach, &alpha.uid, at(second(55))).await.unwrap();
    }
    tx.delete_cluster(&alpha).await.unwrap();
    tx.commit().await.unwrap();
    let mut next = cluster("alpha", "bolt");
    next.uid = "uid-next".into();
    insert(&lab, &next, &[]).await.unwrap();

    // The store forgets both breaches after so many later ones.
    let mut tx = change(&lab).await;
    end(&mut tx, &open, 60).await;
    for n in 0..1_000 {
        let since = second(100) + n;
        let later = breach(&format!("b{n}"), since, Some(since));
        tx.put_breach(&later).await.unwrap();
    }
    tx.commit().await.unwrap();
    let left = lab.store.fabric_breaches(9_999).await.unwrap();
    assert!(left.iter().all(|row| row.id != open.id && row.id != repaired.id));
    let kept = [
        short("cut-off", "acme", "alpha", (10, Some(50))),
        short("cut-off", "bolt", "beta", (20, Some(60))),
        short("foreign-key", "bolt", "beta", (40, Some(40))),
    ];
    assert_eq!(usage(&lab, &Scope::Site, (0, 1000), "", "").await, kept);
}

#[tokio::test]
async fn the_breaches_of_a_period_are_narrowed_by_customer_cluster_and_reader() {
    let (lab, open, _) = breached().await;
    let mut tx = change(&lab).await;
    tx.end_usage_breaches_of_cluster("uid-alpha", at(second(50)))
        .await
        .unwrap();
    end(&mut tx, &open, 60).await;
    tx.commit().await.unwrap();
    // Periods are half-open. A breach without a full second is in the period of its second.
    let found = async |span: (i64, i64)| -> Vec<(String, String)> {
        let rows = usage(&lab, &Scope::Site, span, "", "").await;
        rows.into_iter().map(|row| (row.0, row.2)).collect()
    };
    let [alpha, beta, repaired] = [("cut-off", "alpha"), ("cut-off", "beta"), ("foreign-key", "beta")]
        .map(|(kind, cluster)| (kind.to_owned(), cluster.to_owned()));
    assert_eq!(found((0, 10)).await, []);
    assert_eq!(found((0, 11)).await, std::slice::from_ref(&alpha));
    assert_eq!(found((50, 59)).await, std::slice::from_ref(&beta));
    assert_eq!(found((60, 99)).await, []);
    assert_eq!(found((40, 41)).await, [alpha.clone(), beta.clone(), repaired]);
    assert_eq!(found((41, 42)).await, [alpha, beta]);

    let all = usage(&lab, &Scope::Site, (0, 1000), "", "").await;
    assert_eq!(all.len(), 3);
    assert_eq!(usage(&lab, &Scope::Site, (0, 1000), "acme", "").await, all[..1]);
    assert_eq!(usage(&lab, &Scope::Site, (0, 1000), "bolt", "alpha").await, []);
    assert_eq!(usage(&lab, &Scope::Site, (0, 1000), "", "beta").await, all[1..]);
    for (customer, seen) in [("acme", &all[..1]), ("bolt", &all[1..]), ("", &all[..0])] {
        let scope = Scope::Customer(customer.into());
        assert_eq!(usage(&lab, &scope, (0, 1000), "", "").await, seen, "{customer}");
    }
}

/// Ports of no known cluster: the breach is in the usage without a customer, and only the site's own members see it.
#[tokio::test]
async fn a_breach_at_ports_of_no_known_cluster_is_in_the_usage_as_unknown() {
    let (lab, open, repaired) = breached().await;
    let before = usage(&lab, &Scope::Site, (0, 1000), "", "").await;
    let mut tx = change(&lab).await;
    for since in [25, 35] {
        tx.add_usage_breach_of_unknown(&open, at(second(since))).await.unwrap();
    }
    tx.add_usage_breach_of_unknown(&repaired, repaired.since).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = change(&lab).await;
    // The release of a cluster does not end it.
    tx.end_usage_breaches_of_cluster("uid-alpha", at(second(50)))
        .await
        .unwrap();
    end(&mut tx, &open, 60).await;
    tx.commit().await.unwrap();
    let all = usage(&lab, &Scope::Site, (0, 1000), "", "").await;
    let unknown = [
        short("cut-off", "", "", (25, Some(60))),
        short("foreign-key", "", "", (40, Some(40))),
    ];
    assert_eq!(all[before.len()..], unknown);
    for customer in ["acme", "bolt", ""] {
        let scope = Scope::Customer(customer.into());
        let seen = usage(&lab, &scope, (0, 1000), "", "").await;
        assert!(seen.iter().all(|row| !row.1.is_empty()), "{customer}: {seen:?}");
    }
    let of_acme = usage(&lab, &Scope::Site, (0, 1000), "acme", "").await;
    assert!(of_acme.iter().all(|row| row.1 == "acme"), "{of_acme:?}");
}
