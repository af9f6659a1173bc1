//! Breaches of isolation in the usage of customers.

use rackwright_lifecycle::usage::second_of;

use super::*;
use crate::caller::Caller;
use crate::metering::breaches::list;
use crate::test_calls::release_cluster;

/// A breach in the usage: kind, customer, cluster, since, until, seconds in the period. Times are seconds since a start.
type InUsage = (String, String, String, i64, Option<i64>, i64);

/// The breaches in the usage since `start` that a member sees, sorted. Pages of one breach.
async fn usage(core: &Core, scope: Scope, start: i64, request: &v1::ListUsageBreachesRequest) -> Vec<InUsage> {
    let caller = Caller {
        name: "ann".into(),
        role: match scope {
            Scope::Site => v1::Role::Viewer,
            Scope::Customer(_) => v1::Role::CustomerAdmin,
        },
        scope,
        epoch: 0,
    };
    let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let mut request = v1::ListUsageBreachesRequest {
        page_size: 1,
        start_time: request.start_time.or(time(start)),
        ..request.clone()
    };
    let mut all = Vec::new();
    loop {
        let page = list(&core.store, &caller, &request).await.unwrap();
        all.extend(page.breaches.into_iter().map(|one| {
            assert!(one.good_time.unwrap().seconds < one.since.unwrap().seconds);
            let until = one.end_time.map(|time| time.seconds - start);
            let since = one.since.unwrap().seconds - start;
            (one.kind, one.customer, one.cluster, since, until, one.seconds)
        }));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            all.sort();
            return all;
        }
    }
}

/// Both kinds of a breach of open ports at one cluster.
fn in_usage(customer: &str, span: (i64, Option<i64>), counted: i64) -> Vec<InUsage> {
    let cluster = match customer {
        "acme" => "clusters/alpha",
        _ => "clusters/beta",
    };
    ["cut-off", "open-default"]
        .into_iter()
        .map(|kind| (kind.into(), customer.into(), cluster.into(), span.0, span.1, counted))
        .collect()
}

#[tokio::test]
async fn usage_has_the_breaches_of_the_own_clusters_and_keeps_them_after_the_release() {
    let start = second_of(clock::now());
    let now = Timestamp(start * 1_000_000);
    let at = |second: i64| clock::simulated::set(now.plus(seconds(second)));
    at(0);
    let core = hall(32, FABRIC).await;
    let (manager, mut rounds) = proven(&core).await;
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        check(&core, &node).await;
    }
    let all = v1::ListUsageBreachesRequest::default();
    assert_eq!(usage(&core, Scope::Site, start - 1, &all).await, []);
    manager.open();
    manager.refuses.store(true, Ordering::Relaxed);
    at(60);
    rounds.run(&core).await;
    at(70);
    // The partition file is a breach too, which concerns no cluster's ports.
    let mut open = in_usage("acme", (60, None), 10);
    open.extend(in_usage("bolt", (60, None), 10));
    open.sort();
    assert_eq!(usage(&core, Scope::Site, start, &all).await, open);

    // Alpha is released during the breach, and then deleted.
    at(90);
    release_cluster(&core, "r", "alpha").await.unwrap();
    assert_eq!(step(&core, "alpha").await, State::Releasing);
    for node in names(&core, "alpha").await {
        put(&core, &node, |record| {
            record.node.state = NodeState::Available;
            record.node.claim = None;
        })
        .await;
    }
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Released);
    let record = cluster(&core, "alpha").await;
    let mut tx = core.store.write().await.unwrap();
    tx.delete_cluster(&record).await.unwrap();
    tx.commit().await.unwrap();
    at(180);
    manager.refuses.store(false, Ordering::Relaxed);
    restarted(&core, &manager).run(&core).await;
    assert_eq!(core.store.count_open_breaches().await.unwrap(), 0);

    at(200);
    let (acme, bolt) = (
        in_usage("acme", (60, Some(90)), 30),
        in_usage("bolt", (60, Some(180)), 120),
    );
    for (customer, own) in [("acme", &acme), ("bolt", &bolt)] {
        let scope = Scope::Customer(customer.into());
        assert_eq!(&usage(&core, scope, start, &all).await, own);
    }
    let of = |customer: &str, cluster: &str| v1::ListUsageBreachesRequest {
        customer: customer.into(),
        cluster: cluster.into(),
        ..all.clone()
    };
    assert_eq!(usage(&core, Scope::Site, start, &of("acme", "")).await, acme);
    assert_eq!(usage(&core, Scope::Site, start, &of("", "clusters/beta")).await, bolt);
    let foreign = usage(&core, Scope::Customer("bolt".into()), start, &of("", "clusters/alpha")).await;
    assert_eq!(foreign, []);
    // The part in a period.
    let later = v1::ListUsageBreachesRequest {
        start_time: Some(prost_types::Timestamp {
            seconds: start + 100,
            nanos: 0,
        }),
        ..all.clone()
    };
    // The check before the repair found the ports of alpha, which are no cluster's any more.
    let mut part = in_usage("bolt", (60, Some(180)), 80);
    part.push(("open-default".into(), String::new(), String::new(), 180, Some(180), 0));
    part.sort();
    assert_eq!(usage(&core, Scope::Site, start, &later).await, part);
}
