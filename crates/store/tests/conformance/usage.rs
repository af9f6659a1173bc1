//! The recorded use of nodes.

use rackwright_lifecycle::usage::{Effect, Holder};
use rackwright_lifecycle::{ClusterClaim, ClusterId, CustomerId, State};
use rackwright_store::{NodeRecord, Period, Scope, UsageRow};

use super::support::{Lab, at, claim, node_in};

const ALL: Period<'_> = Period {
    from_s: 0,
    to_s: 1000,
    customer: None,
    cluster: None,
};

/// None for an empty text.
fn some<T: From<&'static str>>(id: &'static str) -> Option<T> {
    Some(id).filter(|id| !id.is_empty()).map(T::from)
}

fn holder(customer: &'static str, cluster: &'static str) -> Holder {
    Holder {
        customer: customer.into(),
        cluster: some(cluster),
    }
}

fn begin(customer: &'static str, cluster: &'static str) -> Effect {
    Effect::Begin(holder(customer, cluster))
}

/// A change of the use in second `s`, near the end of that second.
async fn put(lab: &Lab, record: &NodeRecord, effect: &Effect, s: i64) {
    let mut tx = lab.store.write().await.unwrap();
    tx.put_usage(record, effect, at(s * 1_000_000 + 999_999)).await.unwrap();
    tx.commit().await.unwrap();
}

/// Node, customer, cluster, SKU, from, to.
type Short = (String, String, String, String, i64, Option<i64>);

fn short(rows: Vec<UsageRow>) -> Vec<Short> {
    let short = |row: UsageRow| {
        let (customer, cluster) = (row.holder.customer.to_string(), row.holder.cluster);
        let cluster = cluster.map(|id| id.to_string()).unwrap_or_default();
        (row.node.to_string(), customer, cluster, row.sku, row.from_s, row.to_s)
    };
    rows.into_iter().map(short).collect()
}

fn row(node: &str, customer: &str, cluster: &str, from_s: i64, to_s: Option<i64>) -> Short {
    (
        node.into(),
        customer.into(),
        cluster.into(),
        "default".into(),
        from_s,
        to_s,
    )
}

async fn all(lab: &Lab) -> Vec<Short> {
    short(lab.store.usage(&Scope::Site, &ALL, 0, 100).await.unwrap())
}

async fn lab() -> (Lab, NodeRecord, NodeRecord) {
    let (n1, n2) = (node_in("n1", State::Available), node_in("n2", State::Available));
    let lab = Lab::new().await.with(&[n1.clone(), n2.clone()]).await;
    (lab, n1, n2)
}

#[tokio::test]
async fn use_is_begun_once_and_ended_once() {
    let (lab, n1, n2) = lab().await;
    put(&lab, &n1, &Effect::End, 5).await;
    assert_eq!(all(&lab).await, []);
    put(&lab, &n1, &begin("acme", "alpha"), 10).await;
    put(&lab, &n2, &begin("", ""), 12).await;
    put(&lab, &n1, &begin("acme", "alpha"), 20).await;
    put(&lab, &n1, &Effect::Keep(holder("acme", "alpha")), 25).await;
    assert_eq!(
        all(&lab).await,
        [row("n1", "acme", "alpha", 10, None), row("n2", "", "", 12, None)]
    );
    put(&lab, &n1, &Effect::End, 30).await;
    put(&lab, &n1, &Effect::End, 40).await;
    put(&lab, &n1, &begin("acme", "alpha"), 30).await;
    assert_eq!(
        all(&lab).await,
        [
            row("n1", "acme", "alpha", 10, Some(30)),
            row("n2", "", "", 12, None),
            row("n1", "acme", "alpha", 30, None)
        ]
    );
}

#[tokio::test]
async fn another_holder_or_sku_begins_where_the_former_ends() {
    let (lab, mut n1, n2) = lab().await;
    put(&lab, &n1, &begin("acme", ""), 10).await;
    put(&lab, &n1, &begin("bolt", ""), 20).await;
    put(&lab, &n1, &begin("bolt", "beta"), 30).await;
    n1.spec.sku = "large".into();
    put(&lab, &n1, &begin("bolt", "beta"), 40).await;
    put(&lab, &n2, &begin("acme", ""), 10).await;
    put(&lab, &n2, &Effect::Keep(holder("bolt", "")), 50).await;
    let mut large = row("n1", "bolt", "beta", 40, None);
    large.3 = "large".into();
    assert_eq!(
        all(&lab).await,
        [
            row("n1", "acme", "", 10, Some(20)),
            row("n1", "bolt", "", 20, Some(30)),
            row("n1", "bolt", "beta", 30, Some(40)),
            large,
            row("n2", "acme", "", 10, Some(50)),
        ]
    );
}

#[tokio::test]
async fn no_clock_that_goes_back_makes_use_overlap() {
    let (lab, n1, _) = lab().await;
    put(&lab, &n1, &begin("acme", ""), 20).await;
    put(&lab, &n1, &Effect::End, 30).await;
    put(&lab, &n1, &begin("acme", ""), 25).await;
    put(&lab, &n1, &Effect::End, 28).await;
    put(&lab, &n1, &begin("bolt", ""), 22).await;
    put(&lab, &n1, &begin("acme", ""), 21).await;
    let rows = all(&lab).await;
    let spans: Vec<_> = rows.iter().map(|row| (row.4, row.5)).collect();
    // A use without a full second is in no report.
    assert_eq!(spans, [(20, Some(30)), (30, None)]);
}

#[tokio::test]
async fn a_period_is_half_open_and_narrowed_by_customer_and_cluster() {
    let (lab, n1, n2) = lab().await;
    put(&lab, &n1, &begin("acme", "alpha"), 10).await;
    put(&lab, &n1, &Effect::End, 20).await;
    put(&lab, &n2, &begin("bolt", "beta"), 20).await;
    let nodes = async |from_s, to_s, customer: &'static str, cluster: &'static str| -> Vec<String> {
        let (customer, cluster) = (some::<CustomerId>(customer), some::<ClusterId>(cluster));
        let period = Period {
            from_s,
            to_s,
            customer: customer.as_ref(),
            cluster: cluster.as_ref(),
        };
        let rows = lab.store.usage(&Scope::Site, &period, 0, 100).await.unwrap();
        let grouped = lab
            .store
            .usage_in_groups(&Scope::Site, &period, None, 100)
            .await
            .unwrap();
        assert_eq!(rows, grouped, "acme comes before bolt in both orders");
        rows.into_iter().map(|row| row.node.to_string()).collect()
    };
    assert_eq!(nodes(0, 10, "", "").await, [""; 0]);
    assert_eq!(nodes(0, 11, "", "").await, ["n1"]);
    assert_eq!(nodes(19, 20, "", "").await, ["n1"]);
    assert_eq!(nodes(20, 21, "", "").await, ["n2"]);
    assert_eq!(nodes(900, 1000, "", "").await, ["n2"]);
    assert_eq!(nodes(0, 100, "acme", "").await, ["n1"]);
    assert_eq!(nodes(0, 100, "", "beta").await, ["n2"]);
    assert_eq!(nodes(0, 100, "acme", "beta").await, [""; 0]);

    for (customer, wanted) in [("acme", vec!["n1"]), ("bolt", vec!["n2"]), ("", vec![])] {
        let scope = Scope::Customer(customer.into());
        let rows = lab.store.usage(&scope, &ALL, 0, 100).await.unwrap();
        let grouped = lab.store.usage_in_groups(&scope, &ALL, None, 100).await.unwrap();
        assert_eq!(rows, grouped);
        assert_eq!(rows.into_iter().map(|row| row.node).collect::<Vec<_>>(), wanted);
    }
}

#[tokio::test]
async fn pages_hold_every_row_once_in_both_orders() {
    let (lab, mut n1, mut n2) = lab().await;
    for (number, customer) in ["bolt", "", "acme", "bolt", "acme"].iter().enumerate() {
        let s = 10 * i64::try_from(number).unwrap();
        n1.spec.sku = format!("sku-{}", number % 2);
        n2.spec.sku = "sku-1".into();
        put(&lab, &n1, &begin(customer, ""), s).await;
        put(&lab, &n2, &begin(customer, ""), s).await;
    }
    let whole = lab.store.usage(&Scope::Site, &ALL, 0, 100).await.unwrap();
    assert_eq!(whole.len(), 10);
    let (mut pages, mut after) = (Vec::new(), 0);
    loop {
        let page = lab.store.usage(&Scope::Site, &ALL, after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.position;
        pages.extend(page);
    }
    assert_eq!(pages, whole);
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = lab
            .store
            .usage_in_groups(&Scope::Site, &ALL, after.as_ref(), 3)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        pages.extend(page);
    }
    let mut sorted = whole;
    sorted.sort_by_key(|row| (row.holder.customer.clone(), row.sku.clone(), row.from_s, row.position));
    assert_eq!(pages, sorted);
}

#[tokio::test]
async fn use_outlives_a_deleted_node_and_is_undone_with_its_change() {
    let (lab, n1, _) = lab().await;
    put(&lab, &n1, &begin("acme", "alpha"), 10).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.put_usage(&n1, &Effect::End, at(15_000_000)).await.unwrap();
    drop(tx);
    assert_eq!(all(&lab).await, [row("n1", "acme", "alpha", 10, None)]);
    put(&lab, &n1, &Effect::End, 20).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_node(&n1).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(all(&lab).await, [row("n1", "acme", "alpha", 10, Some(20))]);
}

#[tokio::test]
async fn nodes_that_were_active_before_there_were_records_count_from_their_hand_over() {
    let mut old = node_in("n1", State::Active);
    let mut claim = claim("b3-0");
    claim.cluster = Some(ClusterClaim {
        cluster: "alpha".into(),
        let_go: None,
        build: 0,
    });
    old.node.claim = Some(claim);
    old.node.since = at(7_500_000);
    let lab = Lab::new().await.with(&[old, node_in("n2", State::Validating)]).await;
    assert_eq!(lab.store.begin_missing_usage().await.unwrap(), 1);
    assert_eq!(lab.store.begin_missing_usage().await.unwrap(), 0);
    assert_eq!(all(&lab).await, [row("n1", "acme", "alpha", 7, None)]);
}
