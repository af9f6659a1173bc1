//! Filters over nodes, and pages.

use rackwright_lifecycle::{Bmc, Effect, Power, Reading, State, Wait};
use rackwright_store::{Filter, NodeColumn, NodeCount, NodeOrder, NodeRecord, Readings, Scope, Term};

use super::support::{Lab, at, node, node_in, rest};

/// Each clause as terms `FIELD=VALUE` or `FIELD!=VALUE`, with `|` between them.
fn filter(clauses: &[&str]) -> Filter {
    let term = |term: &str| {
        let (field, value) = term.split_once('=').unwrap();
        Term {
            field: field.trim_end_matches('!').to_owned(),
            value: value.to_owned(),
            negated: field.ends_with('!'),
        }
    };
    clauses
        .iter()
        .map(|clause| clause.split('|').map(term).collect())
        .collect()
}

fn labelled(mut record: NodeRecord, sku: &str, labels: &[(&str, &str)]) -> NodeRecord {
    record.spec.sku = sku.to_owned();
    record.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    record
}

fn ids(records: &[NodeRecord]) -> Vec<&str> {
    records.iter().map(|r| r.id.as_str()).collect()
}

async fn four() -> Lab {
    Lab::new()
        .await
        .with(&[
            labelled(node_in("d", State::Failed), "big", &[]),
            labelled(node_in("b", State::Available), "big", &[("rack", "r2")]),
            labelled(node_in("a", State::Available), "small", &[("rack", "r1"), ("hot", "")]),
            labelled(node_in("c", State::Active), "small", &[("rack", "r1")]),
        ])
        .await
}

#[tokio::test]
async fn clauses_are_joined_by_and_and_their_terms_by_or() {
    let lab = four().await;
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["a", "b", "c", "d"]),
        (&["state=available"], &["a", "b"]),
        (&["state!=available"], &["c", "d"]),
        (&["state=nonsense"], &[]),
        (&["sku=big"], &["b", "d"]),
        (&["sku!=big"], &["a", "c"]),
        (&["name=c"], &["c"]),
        (&["name!=c"], &["a", "b", "d"]),
        (&["labels.rack=r1"], &["a", "c"]),
        // A node without the label does not have that value.
        (&["labels.rack!=r1"], &["b", "d"]),
        (&["labels.hot="], &["a"]),
        (&["labels.r%=r1"], &[]),
        (&["labels.rack=r1", "state=active"], &["c"]),
        (&["labels.rack=r1", "labels.hot!="], &["c"]),
        (&["sku=small", "sku=big"], &[]),
        (&["name=' OR '1'='1"], &[]),
        (&["state=failed|state=active"], &["c", "d"]),
        (&["state=failed|labels.rack=r1", "sku=small"], &["a", "c"]),
        (&["name!=a|labels.hot="], &["a", "b", "c", "d"]),
        (&["name=*"], &["a", "b", "c", "d"]),
        (&["name!=*a*"], &["b", "c", "d"]),
        (&["name=%"], &[]),
        (&["name=A*"], &[]),
        (&["name=_*"], &[]),
    ];
    for (terms, wanted) in cases {
        let found = lab.store.nodes(&Scope::Site, &filter(terms), "", 100).await.unwrap();
        assert_eq!(ids(&found), *wanted, "{terms:?}");
    }
}

/// Four nodes that differ in what is read of them.
async fn read() -> Lab {
    let known = |bmc: Bmc, power: Power| Readings {
        bmc: Reading::Known { value: bmc, at: at(7) },
        power: Reading::Known {
            value: power,
            at: at(7),
        },
        ..Readings::default()
    };
    let mut nodes = ["a", "b", "c", "d"].map(|id| node_in(id, State::Available));
    nodes[0].readings = known(Bmc::Identified, Power::On);
    nodes[1].readings = known(Bmc::Unreachable("\"no\" answer".into()), Power::On);
    nodes[2].readings = known(Bmc::Identified, Power::Off);
    nodes[2].spec.account.refused_at = Some(at(8));
    nodes[3].readings.bmc = Reading::Unknown { since: at(9) };
    // PostgreSQL stores an escaped NUL, and refuses to read it as JSON.
    nodes[3].reason = "\0".into();
    nodes[3].identity.serial = "S1\0\0".into();
    Lab::new().await.with(&nodes).await
}

#[tokio::test]
async fn health_power_and_wait_are_found_by_their_words() {
    let lab = read().await;
    rest(&lab.store, "a", &Wait::Operator, at(900)).await;
    let cases: &[(&str, &[&str])] = &[
        ("health=ok", &["a"]),
        ("health!=ok", &["b", "c", "d"]),
        ("health=unreachable|health=login-refused", &["b", "c"]),
        ("health=unknown", &["d"]),
        ("power=on", &["a"]),
        ("power=off", &["c"]),
        // A reading from before the BMC became unreachable does not count.
        ("power=unknown", &["b", "d"]),
        ("wait=operator", &["a"]),
        ("wait!=operator", &["b", "c", "d"]),
        ("agent=yes", &[]),
        ("agent=no", &["a", "b", "c", "d"]),
        ("customer=", &["a", "b", "c", "d"]),
        ("cluster=", &["a", "b", "c", "d"]),
        ("cluster=alpha", &[]),
        ("image=", &["a", "b", "c", "d"]),
        ("image=debian", &[]),
        ("image=debian@b3-0", &[]),
    ];
    for (clause, wanted) in cases {
        let found = lab
            .store
            .nodes(&Scope::Site, &filter(&[clause]), "", 100)
            .await
            .unwrap();
        assert_eq!(ids(&found), *wanted, "{clause}");
    }
}

#[tokio::test]
async fn nodes_are_counted_by_what_they_share() {
    let lab = read().await;
    let count = async |clauses: &[&str]| {
        let mut counts = lab.store.count_nodes(&Scope::Site, &filter(clauses)).await.unwrap();
        counts.sort_by(|a, b| a.health.cmp(&b.health));
        counts
    };
    let row = |health: &str, power: &str| NodeCount {
        state: "available".into(),
        health: health.into(),
        power: power.into(),
        nodes: 1,
        ..NodeCount::default()
    };
    let all = [
        row("login-refused", "off"),
        row("ok", "on"),
        row("unknown", "unknown"),
        row("unreachable", "unknown"),
    ];
    let found = count(&[]).await;
    assert_eq!(
        found
            .iter()
            .map(|c| NodeCount {
                sku: String::new(),
                ..c.clone()
            })
            .collect::<Vec<_>>(),
        all
    );
    assert_eq!(count(&["power=on"]).await.len(), 1);
    assert!(count(&["name=z"]).await.is_empty());
}

#[tokio::test]
async fn removed_labels_no_longer_match() {
    let lab = four().await;
    let mut record = lab.store.node(&Scope::Site, &"a".into()).await.unwrap();
    record.labels = [("rack".to_owned(), "r9".to_owned())].into();
    record.spec.sku = "odd".into();
    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut record, at(200)).await.unwrap();
    tx.put_labels(&record).await.unwrap();
    tx.commit().await.unwrap();
    for (term, wanted) in [
        ("labels.rack=r1", vec!["c"]),
        ("labels.rack=r9", vec!["a"]),
        ("labels.hot=", vec![]),
        ("sku=odd", vec!["a"]),
        ("sku=small", vec!["c"]),
    ] {
        let found = lab.store.nodes(&Scope::Site, &filter(&[term]), "", 100).await.unwrap();
        assert_eq!(ids(&found), wanted, "{term}");
    }
}

#[tokio::test]
async fn pages_are_in_order_and_show_every_node_once() {
    let records: Vec<_> = (0..25).rev().map(|n| node(&format!("n{n:02}"))).collect();
    let lab = Lab::new().await.with(&records).await;
    let mut seen: Vec<String> = Vec::new();
    loop {
        let after = seen.last().cloned().unwrap_or_default();
        let page = lab.store.nodes(&Scope::Site, &Vec::new(), &after, 7).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 7);
        seen.extend(page.into_iter().map(|r| r.id.to_string()));
    }
    let wanted: Vec<_> = (0..25).map(|n| format!("n{n:02}")).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn nodes_come_in_order_and_page_by_page() {
    let lab = four().await;
    let read = async |order: NodeOrder| {
        let mut seen: Vec<String> = Vec::new();
        let mut after = None;
        loop {
            let page = lab
                .store
                .nodes_in_order(&Scope::Site, &Vec::new(), order, after.as_ref(), 3)
                .await;
            let page = page.unwrap();
            seen.extend(page.iter().map(|record| record.id.to_string()));
            let Some(last) = page.last() else { break };
            after = Some(order.place(last));
        }
        seen
    };
    let by = |column, descending| NodeOrder {
        column: Some(column),
        descending,
    };
    assert_eq!(read(NodeOrder::default()).await, ["a", "b", "c", "d"]);
    assert_eq!(read(by(NodeColumn::Sku, false)).await, ["b", "d", "a", "c"]);
    assert_eq!(read(by(NodeColumn::Sku, true)).await, ["a", "c", "b", "d"]);
    assert_eq!(read(by(NodeColumn::State, false)).await, ["c", "a", "b", "d"]);
    for column in [
        NodeColumn::StateSince,
        NodeColumn::Customer,
        NodeColumn::CreateTime,
        NodeColumn::UpdateTime,
    ] {
        for descending in [false, true] {
            assert_eq!(read(by(column, descending)).await, ["a", "b", "c", "d"], "{column:?}");
        }
    }
}

#[tokio::test]
async fn nodes_are_counted_by_state() {
    let lab = four().await;
    let mut counts = lab.store.count_by_state().await.unwrap();
    counts.sort();
    let wanted = [("active", 1), ("available", 2), ("failed", 1)];
    assert_eq!(counts, wanted.map(|(state, n)| (state.to_owned(), n)));
}

#[tokio::test]
async fn waiting_nodes_are_counted_by_state_and_by_the_kind_of_their_wait() {
    let names = ["a", "b", "c", "d"];
    let lab = Lab::new()
        .await
        .with(&names.map(|id| node_in(id, State::Inspecting)))
        .await;
    let retry = |n: u32| Wait::Retry {
        effect: Effect::PowerOn,
        message: format!("BMC https://10.0.0.{n}"),
    };
    for (id, wait) in [("a", retry(1)), ("b", retry(2)), ("c", Wait::Operator)] {
        rest(&lab.store, id, &wait, at(900)).await;
    }
    let mut counts = lab.store.count_waiting().await.unwrap();
    counts.sort();
    let row = |kind: &str, n| ("inspecting".to_owned(), kind.to_owned(), n);
    assert_eq!(counts, [row("operator", 1), row("retry", 2)]);
    // The fourth was never put to rest.
    assert_eq!(lab.store.count_due(at(899)).await.unwrap(), 1);
    assert_eq!(lab.store.count_due(at(900)).await.unwrap(), 4);
}

#[tokio::test]
async fn the_longest_waiting_node_of_each_bounded_state_is_listed() {
    let mut records = Vec::new();
    for (id, state, us) in [
        ("a", State::Imaging, 700),
        ("b", State::Imaging, 500),
        ("c", State::Failed, 600),
        ("d", State::Active, 100),
        ("e", State::Available, 100),
    ] {
        let mut record = node_in(id, state);
        record.node.since = at(us);
        records.push(record);
    }
    let lab = Lab::new().await.with(&records).await;
    let mut oldest = lab.store.oldest_by_state().await.unwrap();
    oldest.sort();
    assert_eq!(
        oldest,
        [("failed".to_owned(), at(600)), ("imaging".to_owned(), at(500))]
    );
}

#[tokio::test]
async fn names_are_ordered_by_their_bytes_whatever_the_language() {
    let names = ["B", "Z-1", "a", "a-1", "a1", "b", "\u{e9}"];
    let lab = Lab::new().await.with(&names.map(node)).await;
    let mut seen: Vec<String> = Vec::new();
    loop {
        let after = seen.last().map_or("", String::as_str);
        let page = lab.store.nodes(&Scope::Site, &Vec::new(), after, 1).await.unwrap();
        let Some(next) = page.first() else { break };
        seen.push(next.id.to_string());
    }
    assert_eq!(seen, names);
}
