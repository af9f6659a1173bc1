use rackwright_ground::testing;
use rackwright_lifecycle::Timestamp;
use rackwright_lifecycle::usage::{Effect, Holder};
use rackwright_store::{Scope, StoreError};

use super::*;

fn at(second: i64) -> Option<ProtoTime> {
    time(second)
}

fn term(id: &str, customer: &str, nodes: u32, from_s: i64, to_s: i64) -> v1::Term {
    v1::Term {
        name: format!("terms/{id}"),
        customer: customer.into(),
        sku: "h100".into(),
        nodes,
        start_time: at(from_s),
        end_time: at(to_s),
        metadata: None,
    }
}

fn operator() -> Caller {
    Caller {
        name: "ann".into(),
        role: v1::Role::Operator,
        scope: Scope::Site,
        epoch: 0,
    }
}

async fn set(core: &Core, key: &str, version: &str, term: v1::Term) -> Result<v1::Term, ApiError> {
    let caller = operator();
    let mutation = v1::Mutation {
        idempotency_key: key.into(),
        resource_version: version.into(),
    };
    let call = MutatingCall::new(core, &caller, "SetTerm", Some(&mutation), &term)?;
    terms::set(core, &call, "ann", terms::checked(&term)?).await
}

/// A node in use for a span of seconds.
async fn used(core: &Core, id: &str, customer: &'static str, cluster: &'static str, span: (i64, Option<i64>)) {
    let mut record = testing::node(id, rackwright_lifecycle::State::Available, None);
    record.spec.sku = "h100".into();
    let holder = Holder {
        customer: customer.into(),
        cluster: Some(cluster).filter(|id| !id.is_empty()).map(Into::into),
    };
    let mut tx = core.store.write().await.unwrap();
    let moment = |second: i64| Timestamp(second * 1_000_000 + 7);
    tx.put_usage(&record, &Effect::Begin(holder), moment(span.0))
        .await
        .unwrap();
    if let Some(end) = span.1 {
        tx.put_usage(&record, &Effect::End, moment(end)).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Two clusters of acme, one node of bolt, one node without a customer; seconds 1000 to 1100 and later.
async fn lab() -> testing::TestCore {
    let core = testing::core().await;
    used(&core, "n1", "acme", "alpha", (1000, Some(1060))).await;
    used(&core, "n2", "acme", "alpha", (1010, Some(1100))).await;
    used(&core, "n3", "acme", "beta", (1020, None)).await;
    used(&core, "n4", "bolt", "", (1000, Some(1030))).await;
    used(&core, "n5", "", "", (1090, Some(1200))).await;
    set(&core, "k1", "", term("t1", "acme", 1, 0, 5000)).await.unwrap();
    set(&core, "k2", "", term("t2", "acme", 1, 1050, 1070)).await.unwrap();
    core
}

fn period(from_s: i64, to_s: i64) -> Period<'static> {
    Period {
        from_s,
        to_s,
        customer: None,
        cluster: None,
    }
}

/// Customer, cluster, reserved, on demand, open.
type Short = (String, String, i64, i64, bool);

fn short(sum: &v1::UsageSum) -> Short {
    assert_eq!(sum.node_seconds, sum.reserved_node_seconds + sum.on_demand_node_seconds);
    (
        sum.customer.clone(),
        sum.cluster.clone(),
        sum.reserved_node_seconds,
        sum.on_demand_node_seconds,
        sum.open,
    )
}

fn row(customer: &str, cluster: &str, reserved: i64, on_demand: i64, open: bool) -> Short {
    (customer.into(), cluster.into(), reserved, on_demand, open)
}

#[tokio::test]
async fn sums_are_by_customer_and_cluster_and_the_longest_in_use_are_reserved() {
    let core = lab().await;
    let answer = sums::of(&core.store, &Scope::Site, &period(1000, 1100)).await.unwrap();
    let found: Vec<_> = answer.sums.iter().map(short).collect();
    // The first term covers n1 until 1060, then n2. The second, from 1050 to 1070, covers n2, and n3 from 1060 on.
    assert_eq!(
        found,
        [
            row("", "", 0, 10, false),
            row("acme", "clusters/alpha", 60 + 50, 40, false),
            row("acme", "clusters/beta", 10, 70, true),
            row("bolt", "", 0, 30, false),
        ]
    );
    assert_eq!(short(&answer.total.unwrap()), row("", "", 120, 150, true));
    // The sum of one cluster does not depend on whether the others are shown.
    let (acme, beta) = ("acme".into(), "beta".into());
    let only = Period {
        customer: Some(&acme),
        cluster: Some(&beta),
        ..period(1000, 1100)
    };
    let answer = sums::of(&core.store, &Scope::Site, &only).await.unwrap();
    assert_eq!(short(&answer.sums[0]), row("acme", "clusters/beta", 10, 70, true));
    assert_eq!((answer.sums.len(), short(&answer.total.unwrap()).2), (1, 10));
}

#[tokio::test]
async fn records_and_parts_of_a_period_sum_to_the_same() {
    let core = lab().await;
    let metering = Metering((*core).clone());
    let whole = sums::of(&core.store, &Scope::Site, &period(900, 1300))
        .await
        .unwrap()
        .total
        .unwrap();
    let (mut listed, mut token, mut pages) = (0, String::new(), 0);
    loop {
        let request = v1::ListUsageRequest {
            page_size: 2,
            page_token: token,
            start_time: at(900),
            end_time: at(1300),
            ..Default::default()
        };
        let page = metering.list(&operator(), &request).await.unwrap();
        for one in &page.records {
            let span = one.end_time.unwrap().seconds - one.start_time.unwrap().seconds;
            assert_eq!(one.node_seconds, span);
            listed += span;
        }
        (token, pages) = (page.next_page_token, pages + 1);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((listed, pages), (whole.node_seconds, 3));
    let mut parts = (0, 0);
    for cut in [900, 1005, 1055, 1065, 1066, 1299].windows(2) {
        let part = sums::of(&core.store, &Scope::Site, &period(cut[0], cut[1]))
            .await
            .unwrap()
            .total
            .unwrap();
        parts.0 += part.reserved_node_seconds;
        parts.1 += part.on_demand_node_seconds;
    }
    let last = sums::of(&core.store, &Scope::Site, &period(1299, 1300))
        .await
        .unwrap()
        .total
        .unwrap();
    parts.0 += last.reserved_node_seconds;
    parts.1 += last.on_demand_node_seconds;
    assert_eq!(parts, (whole.reserved_node_seconds, whole.on_demand_node_seconds));
}

#[tokio::test]
async fn what_is_in_use_still_is_counted_to_now_on_every_page() {
    let core = testing::core().await;
    let now = second_of(clock::now());
    for id in ["n1", "n2", "n3"] {
        used(&core, id, "acme", "", (now - 100, None)).await;
    }
    let metering = Metering((*core).clone());
    let mut request = v1::ListUsageRequest {
        page_size: 2,
        start_time: at(now - 50),
        end_time: at(now + 5000),
        ..Default::default()
    };
    let first = metering.list(&operator(), &request).await.unwrap();
    let end = first.end_time.unwrap().seconds;
    assert!((now..now + 30).contains(&end), "{end} is not now, {now}");
    assert!(
        first
            .records
            .iter()
            .all(|one| one.open && one.node_seconds == end - now + 50)
    );
    request.page_token = first.next_page_token;
    // A later page has the end of the first page.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let second = metering.list(&operator(), &request).await.unwrap();
    assert_eq!(second.end_time.unwrap().seconds, end);
    assert_eq!(second.records[0].node_seconds, end - now + 50);
    request.customer = "bolt".into();
    let refused = metering.list(&operator(), &request).await;
    assert!(
        matches!(refused, Err(ApiError::Invalid(_))),
        "a token of another list: {refused:?}"
    );
}

#[test]
fn periods_are_whole_seconds_in_order() {
    let fields =
        |start: Option<ProtoTime>, end: Option<ProtoTime>| match PeriodRequest::new(start.as_ref(), end.as_ref()) {
            Ok(_) => String::new(),
            Err(ApiError::Invalid(faults)) => faults[0].0.clone(),
            Err(other) => panic!("{other}"),
        };
    assert_eq!(fields(None, at(10)), "start_time");
    assert_eq!(fields(at(-1), at(10)), "start_time");
    assert_eq!(fields(at(0), at(LATEST_S + 1)), "end_time");
    assert_eq!(fields(at(10), at(10)), "end_time");
    let half = ProtoTime {
        seconds: 20,
        nanos: 500_000_000,
    };
    assert_eq!(fields(at(10), Some(half)), "end_time");
    assert_eq!(fields(at(10), None), "");
    let future = PeriodRequest::new(at(100).as_ref(), None).unwrap();
    assert_eq!(future.end_s(50), 100, "empty, not turned round");
}

#[tokio::test]
async fn terms_are_set_changed_as_they_were_read_and_forgotten() {
    let core = testing::core().await;
    let first = set(&core, "k1", "", term("t1", "acme", 4, 10, 20)).await.unwrap();
    let version = |term: &v1::Term| term.metadata.clone().unwrap().resource_version;
    assert_eq!((version(&first).as_str(), first.nodes), ("1", 4));
    let again = set(&core, "k1", "", term("t1", "acme", 4, 10, 20)).await.unwrap();
    assert_eq!(again, first, "the same request has the same answer");
    let second = set(&core, "k2", "1", term("t1", "acme", 5, 10, 30)).await.unwrap();
    assert_eq!(version(&second), "2");
    let stale = set(&core, "k3", "1", term("t1", "acme", 6, 10, 30)).await;
    assert!(matches!(stale, Err(ApiError::Stale { .. })), "{stale:?}");
    let events = core.store.events(&Scope::Site, 0, "terms/t1", 10).await.unwrap();
    assert!(events[1].message.contains("5 nodes of h100 for acme"), "{events:?}");
    assert!(events[1].message.contains("it was 4 nodes"), "{events:?}");

    let listed = terms::list(&core.store, &Scope::Site, &v1::ListTermsRequest::default())
        .await
        .unwrap();
    assert_eq!(listed.terms, [second]);
    let caller = Caller {
        name: "ann".into(),
        role: v1::Role::Operator,
        scope: rackwright_store::Scope::Site,
        epoch: 0,
    };
    let mutation = v1::Mutation {
        idempotency_key: "k4".into(),
        ..Default::default()
    };
    let call = MutatingCall::new(&core, &caller, "DeleteTerm", Some(&mutation), &()).unwrap();
    terms::delete(&call, "ann", "terms/t1").await.unwrap();
    terms::delete(&call, "ann", "terms/t1").await.unwrap();
    let mutation = v1::Mutation {
        idempotency_key: "k5".into(),
        ..Default::default()
    };
    let call = MutatingCall::new(&core, &caller, "DeleteTerm", Some(&mutation), &()).unwrap();
    let gone = terms::delete(&call, "ann", "terms/t1").await;
    assert!(
        matches!(gone, Err(ApiError::Store(StoreError::NotFound { .. }))),
        "{gone:?}"
    );
}

#[test]
fn every_fault_of_a_term_is_reported() {
    let wrong = v1::Term {
        name: "terms/t1".into(),
        ..Default::default()
    };
    let Err(ApiError::Invalid(faults)) = terms::checked(&wrong) else {
        panic!("taken");
    };
    let fields: Vec<_> = faults.iter().map(|(field, _)| field.as_str()).collect();
    let wanted = [
        "term.customer",
        "term.sku",
        "term.nodes",
        "term.start_time",
        "term.end_time",
    ];
    assert_eq!(fields, wanted);
    assert!(terms::checked(&term("T", "acme", 1, 0, 1)).is_err());
    assert!(terms::checked(&term("t", "acme", 1, 5, 5)).is_err());
    assert!(terms::checked(&term("t", "acme", 1, 5, 6)).is_ok());
}

#[tokio::test]
async fn a_customers_admin_sees_what_is_theirs_and_never_others() {
    let core = lab().await;
    let adam = Caller {
        name: "adam".into(),
        role: v1::Role::CustomerAdmin,
        scope: Scope::Customer("acme".into()),
        epoch: 0,
    };
    let metering = Metering(core.clone());
    let request = |customer: &str, cluster: &str| v1::ListUsageRequest {
        start_time: at(1000),
        end_time: at(1100),
        customer: customer.into(),
        cluster: cluster.into(),
        ..v1::ListUsageRequest::default()
    };
    for customer in ["", "acme"] {
        let listed = metering.list(&adam, &request(customer, "")).await.unwrap();
        let nodes: Vec<&str> = listed.records.iter().map(|record| &*record.node).collect();
        assert_eq!(nodes, ["nodes/n1", "nodes/n2", "nodes/n3"]);
        assert!(listed.records.iter().all(|record| record.customer == "acme"));
    }
    // Another customer and an unknown customer are refused alike.
    let refused = |customer: &str| customer_of(&adam, customer).unwrap_err().to_string();
    assert_eq!(refused("bolt"), refused("nobody"));
    assert!(metering.list(&adam, &request("bolt", "")).await.is_err());
    // A cluster of another customer has no usage of the caller.
    used(&core, "n6", "bolt", "gamma", (1000, Some(1030))).await;
    let others = metering.list(&adam, &request("", "clusters/gamma")).await.unwrap();
    assert_eq!(others.records, []);
    let customer = customer_of(&adam, "").unwrap();
    let own = Period {
        customer: customer.as_ref(),
        ..period(1000, 1100)
    };
    let sums = sums::of(&core.store, &adam.scope, &own).await.unwrap();
    let found: Vec<_> = sums.sums.iter().map(short).collect();
    assert_eq!(
        found,
        [
            row("acme", "clusters/alpha", 60 + 50, 40, false),
            row("acme", "clusters/beta", 10, 70, true)
        ],
        "split by the terms of acme"
    );
}
