//! Permits for shared resources: never more than the bound, returned however an effect ends, fair.

use std::collections::BTreeMap;

use rackwright_lifecycle::limits::{ImageLimits, PowerOnLimits};
use rackwright_lifecycle::{CustomerId, Effect, Kind, Limits, Need, NodeId, Outcome, Resource, Scope, Timestamp, Wait};
use rackwright_store::{NodeRecord, PermitRequest, Queue, Queued, Store, StoreError, WriteTx};

use super::support::{Lab, at, node, rest, try_of};

/// Long after every other time in these tests.
const LATER: i64 = 1_000_000_000;

fn limits(per_circuit: u32, at_once: Option<u32>, settle_s: u32) -> Limits {
    Limits {
        power_on: PowerOnLimits {
            per_circuit: Some(per_circuit),
            at_once,
            settle_s,
            ..PowerOnLimits::default()
        },
        image: ImageLimits::default(),
    }
}

fn needs(limits: &Limits, circuit: &str) -> Vec<Need> {
    let labels = BTreeMap::from([("circuit".to_owned(), circuit.to_owned())]);
    limits.needs(Effect::PowerOn, &labels)
}

fn circuit(name: &str) -> Resource {
    Resource {
        kind: Kind::PowerOn,
        scope: Scope::Circuit(name.into()),
    }
}

/// Nodes with these names, at rest for a long time.
async fn resting(names: &[&str]) -> Lab {
    let records: Vec<NodeRecord> = names.iter().map(|name| node(name)).collect();
    let lab = Lab::new().await.with(&records).await;
    for name in names {
        rest(&lab.store, name, &Wait::Rest, at(LATER)).await;
    }
    lab
}

/// Requests permits for `node` of `customer` at `now`, and begins the power-on if it has them.
async fn begin(tx: &mut WriteTx, owner: (&str, &str), needs: &[Need], now: i64) -> Result<Option<Queued>, StoreError> {
    let (node, customer) = (owner.0, CustomerId::stored(owner.1));
    tx.node(&NodeId::stored(node)).await?;
    let request = PermitRequest {
        node: &NodeId::stored(node),
        customer: Some(&customer),
        is_urgent: customer == "operator",
        asked_at: at(now),
    };
    let wait = tx.request_permits(request, needs, at(now)).await?;
    if wait.is_none() {
        let row = try_of(node, Effect::PowerOn, 1);
        tx.begin_effect(&row).await?;
        tx.use_permits(&NodeId::stored(node), &row.id, 0).await?;
    }
    Ok(wait)
}

/// As `begin`, in a change of its own.
async fn begun(store: &Store, owner: (&str, &str), needs: &[Need], now: i64) -> Option<Queued> {
    let mut tx = store.write().await.unwrap();
    let wait = begin(&mut tx, owner, needs, now).await.unwrap();
    tx.commit().await.unwrap();
    wait
}

/// Ends the node's power-on. Returns the nodes that got their turn.
async fn ended(store: &Store, node: &str, now: i64) -> Vec<NodeId> {
    let mut tx = store.write().await.unwrap();
    tx.node(&NodeId::stored(node)).await.unwrap();
    let id = try_of(node, Effect::PowerOn, 1).id;
    assert!(tx.end_effect(&id, &Outcome::Interrupted, at(now)).await.unwrap());
    let next_in_line = tx.take_next_in_line();
    tx.commit().await.unwrap();
    next_in_line
}

async fn due(store: &Store, now: i64) -> Vec<NodeId> {
    let mut due = store
        .lease_due_nodes("replica-1", at(now), at(LATER), 99)
        .await
        .unwrap();
    due.sort();
    due
}

async fn queue(store: &Store, name: &str, now: i64) -> (u32, u32) {
    let Queue { taken, waiting, .. } = store.queue(&circuit(name), at(now)).await.unwrap();
    (taken, waiting)
}

#[tokio::test]
async fn the_end_of_an_effect_grants_the_next_permit() {
    let lab = resting(&["n1", "n2", "n3", "n4"]).await;
    let limits = limits(2, None, 0);
    let on_c1 = needs(&limits, "c1");
    assert_eq!(begun(&lab.store, ("n1", ""), &on_c1, 200).await, None);
    assert_eq!(begun(&lab.store, ("n2", ""), &on_c1, 200).await, None);
    let wait = begun(&lab.store, ("n3", ""), &on_c1, 201).await;
    let full = Queued {
        resource: circuit("c1"),
        taken: 2,
        room: 2,
    };
    assert_eq!(wait, Some(full));
    assert_eq!(begun(&lab.store, ("n4", ""), &needs(&limits, "c2"), 201).await, None);
    assert_eq!(queue(&lab.store, "c1", 202).await, (2, 1));
    assert!(due(&lab.store, 300).await.is_empty());

    assert_eq!(ended(&lab.store, "n1", 300).await, ["n3"]);
    assert_eq!(due(&lab.store, 300).await, ["n3"]);
    // The next node has its permit before it begins: no other node can get in between.
    assert_eq!(queue(&lab.store, "c1", 300).await, (2, 0));
    assert!(begun(&lab.store, ("n1", ""), &on_c1, 301).await.is_some());
    assert_eq!(begun(&lab.store, ("n3", ""), &on_c1, 302).await, None);
    assert!(ended(&lab.store, "n4", 303).await.is_empty());
    let kinds = lab.store.count_permits(at(303)).await.unwrap();
    assert_eq!(kinds, [("power-on".to_owned(), 2, 1)]);
}

#[tokio::test]
async fn a_permit_settles_and_the_first_waiter_is_due_then() {
    let lab = resting(&["n1", "n2", "n3"]).await;
    let on_c1 = needs(&limits(1, None, 10), "c1");
    assert_eq!(begun(&lab.store, ("n1", ""), &on_c1, 200).await, None);
    assert!(begun(&lab.store, ("n2", ""), &on_c1, 201).await.is_some());
    assert!(begun(&lab.store, ("n3", ""), &on_c1, 202).await.is_some());
    assert!(ended(&lab.store, "n1", 300).await.is_empty());
    let settled = 300 + 10_000_000;
    assert_eq!(queue(&lab.store, "c1", settled - 1).await, (1, 2));
    assert!(due(&lab.store, settled - 1).await.is_empty());
    assert_eq!(due(&lab.store, settled).await, ["n2"]);
    assert_eq!(begun(&lab.store, ("n2", ""), &on_c1, settled).await, None);
    assert_eq!(queue(&lab.store, "c1", settled).await, (1, 1));
    // With an empty line it becomes free by itself, and is its own node's until then.
    ended(&lab.store, "n2", settled).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.node(&"n3".into()).await.unwrap();
    tx.leave_queues(&"n3".into(), at(settled)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(queue(&lab.store, "c1", settled).await, (1, 0));
    assert_eq!(queue(&lab.store, "c1", 2 * settled).await, (0, 0));
    assert_eq!(begun(&lab.store, ("n3", ""), &on_c1, 2 * settled).await, None);
}

#[tokio::test]
async fn a_retry_keeps_a_settling_permit_and_requests_a_settled_one_again() {
    let lab = resting(&["n1", "n2"]).await;
    let on_c1 = needs(&limits(1, None, 10), "c1");
    let request_permits = async |node: &'static str, now: i64| {
        let mut tx = lab.store.write().await.unwrap();
        tx.node(&NodeId::stored(node)).await.unwrap();
        let request = PermitRequest {
            node: &NodeId::stored(node),
            customer: None,
            is_urgent: false,
            asked_at: at(now),
        };
        let wait = tx.request_permits(request, &on_c1, at(now)).await.unwrap();
        tx.commit().await.unwrap();
        wait.is_none()
    };
    assert_eq!(begun(&lab.store, ("n1", ""), &on_c1, 200).await, None);
    assert!(!request_permits("n2", 201).await);
    ended(&lab.store, "n1", 300).await;
    assert!(request_permits("n1", 400).await, "it is still its own");
    let mut tx = lab.store.write().await.unwrap();
    let row = try_of("n1", Effect::PowerOn, 2);
    tx.begin_effect(&row).await.unwrap();
    tx.use_permits(&"n1".into(), &row.id, 7).await.unwrap();
    tx.end_effect(&row.id, &Outcome::Succeeded, at(500)).await.unwrap();
    tx.commit().await.unwrap();
    let settled = 500 + 10_000_000;
    assert!(!request_permits("n1", settled).await, "n2 has waited longer");
    assert!(request_permits("n2", settled).await);
    assert_eq!(lab.store.in_line_us(&"n1".into(), at(100)).await.unwrap(), 7);
    assert_eq!(lab.store.in_line_us(&"n1".into(), at(99)).await.unwrap(), 0);
}

#[tokio::test]
async fn a_node_keeps_its_permits_while_it_waits_for_more() {
    let lab = resting(&["n1", "n2", "n3"]).await;
    let limits = limits(1, Some(1), 0);
    let (on_c1, on_c2) = (needs(&limits, "c1"), needs(&limits, "c2"));
    assert_eq!(begun(&lab.store, ("n1", ""), &on_c1, 200).await, None);
    let wait = begun(&lab.store, ("n2", ""), &on_c2, 201).await.unwrap();
    assert_eq!(wait.resource.scope, Scope::Site);
    let wait = begun(&lab.store, ("n3", ""), &on_c2, 202).await.unwrap();
    assert_eq!(wait.resource, circuit("c2"));
    let permits = lab.store.permits(&"n2".into()).await.unwrap();
    let held: Vec<_> = permits
        .iter()
        .map(|p| (p.resource.scope.to_string(), p.is_taken))
        .collect();
    assert_eq!(held, [("circuit c2".to_owned(), true), ("site".to_owned(), false)]);
    assert_eq!(ended(&lab.store, "n1", 300).await, ["n2"]);
    assert_eq!(begun(&lab.store, ("n2", ""), &on_c2, 301).await, None);
    assert_eq!(ended(&lab.store, "n2", 400).await, ["n3"]);
    // Called for the circuit; the site has room too.
    assert_eq!(begun(&lab.store, ("n3", ""), &on_c2, 401).await, None);
    let permits = lab.store.permits(&"n3".into()).await.unwrap();
    assert!(permits.iter().all(|p| p.is_taken && p.effect.is_some()), "{permits:?}");
}

#[tokio::test]
async fn nodes_that_leave_release_their_permits() {
    let lab = resting(&["n1", "n2", "n3", "n4"]).await;
    let limits = limits(1, Some(1), 0);
    let (on_c1, on_c2) = (needs(&limits, "c1"), needs(&limits, "c2"));
    assert_eq!(begun(&lab.store, ("n1", ""), &on_c1, 200).await, None);
    for node in ["n2", "n3"] {
        assert!(begun(&lab.store, (node, ""), &on_c2, 201).await.is_some());
    }
    // n2 has its circuit and waits for the site; n3 waits for the circuit.
    let mut tx = lab.store.write().await.unwrap();
    tx.node(&"n2".into()).await.unwrap();
    tx.leave_queues(&"n2".into(), at(300)).await.unwrap();
    assert_eq!(tx.take_next_in_line(), ["n3"]);
    tx.commit().await.unwrap();
    assert!(lab.store.permits(&"n2".into()).await.unwrap().is_empty());
    assert!(begun(&lab.store, ("n4", ""), &on_c2, 301).await.is_some());
    let wait = begun(&lab.store, ("n3", ""), &on_c2, 301).await.unwrap();
    assert_eq!(wait.resource.scope, Scope::Site);
    // A node is deleted in the middle of its effect.
    let mut tx = lab.store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    tx.forget_permits(&"n1".into(), at(302)).await.unwrap();
    assert_eq!(tx.take_next_in_line(), ["n3"]);
    tx.delete_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(queue(&lab.store, "c1", 302).await, (0, 0));
    assert_eq!(begun(&lab.store, ("n3", ""), &on_c2, 303).await, None);
}

#[tokio::test]
async fn customers_take_turns_and_an_operator_goes_first() {
    let names = ["a1", "a2", "a3", "a4", "b1", "op"];
    let lab = resting(&names).await;
    let on_c1 = needs(&limits(1, None, 0), "c1");
    for (n, name) in names.iter().enumerate() {
        let customer = match &name[..1] {
            "o" => "operator",
            letter => letter,
        };
        let wait = begun(&lab.store, (name, customer), &on_c1, 200 + i64::try_from(n).unwrap()).await;
        assert_eq!(wait.is_none(), n == 0);
    }
    assert_eq!(lab.store.count_ahead(&circuit("c1"), &"b1".into()).await.unwrap(), 3);
    let mut order = vec![NodeId::from("a1")];
    for now in 300..305 {
        let last = order.last().unwrap().clone();
        let next_in_line = ended(&lab.store, last.as_str(), now).await;
        assert_eq!(next_in_line.len(), 1, "as many as there is room for");
        let customer = if next_in_line[0] == "op" {
            "operator"
        } else {
            &next_in_line[0].as_str()[..1]
        };
        assert_eq!(
            begun(&lab.store, (next_in_line[0].as_str(), customer), &on_c1, now).await,
            None
        );
        order.extend(next_in_line);
    }
    assert_eq!(order, ["a1", "op", "a2", "b1", "a3", "a4"]);
}

#[tokio::test]
async fn more_room_admits_more_nodes_and_less_room_evicts_none() {
    let lab = resting(&["n1", "n2", "n3", "n4", "n5"]).await;
    let narrow = needs(&limits(1, None, 0), "c1");
    let wide = needs(&limits(3, None, 0), "c1");
    assert_eq!(begun(&lab.store, ("n1", ""), &narrow, 200).await, None);
    assert!(begun(&lab.store, ("n2", ""), &narrow, 201).await.is_some());
    assert!(begun(&lab.store, ("n3", ""), &narrow, 202).await.is_some());
    assert!(
        begun(&lab.store, ("n4", ""), &wide, 203).await.is_some(),
        "two came before"
    );
    assert_eq!(due(&lab.store, 203).await, ["n2", "n3"]);
    assert!(begun(&lab.store, ("n5", ""), &narrow, 204).await.is_some());
    assert!(
        ended(&lab.store, "n1", 300).await.is_empty(),
        "two are too many already"
    );
}

/// Number of nodes that have begun, and number that wait.
type Counts = (usize, usize);

/// Eight nodes request permits at the same time, each with its own store.
async fn rush(lab: &Lab, all_needs: impl Fn(usize) -> Vec<Need>) -> Counts {
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (store, needs) = (lab.other().await, all_needs(n));
        requests.spawn(async move {
            let node = format!("n{n}");
            loop {
                let mut tx = store.write().await.unwrap();
                let begun_effect = begin(&mut tx, (&node, ""), &needs, 200).await;
                let wait = match begun_effect {
                    Ok(wait) => wait,
                    Err(StoreError::Contended(_)) => continue,
                    Err(error) => panic!("{error}"),
                };
                tx.commit().await.unwrap();
                return wait.is_none();
            }
        });
    }
    let begun = requests.join_all().await.into_iter().filter(|begun| *begun).count();
    (begun, 8 - begun)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_requests_gets_the_last_permit() {
    let lab = resting(&["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"]).await;
    let limits = limits(3, Some(5), 0);
    let counts = rush(&lab, |_| needs(&limits, "c1")).await;
    assert_eq!(counts, (3, 5));
    let open = lab.store.open_effects().await.unwrap();
    assert_eq!(open.len(), 3);

    let lab = resting(&["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"]).await;
    let counts = rush(&lab, |n| needs(&limits, &format!("c{}", n % 2))).await;
    assert_eq!(counts, (5, 3), "three and three on the circuits, five at the site");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_ends_and_begins_lose_no_permit_and_no_waiter() {
    let names: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
    let lab = resting(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let limits = limits(2, Some(3), 0);
    let mut nodes = tokio::task::JoinSet::new();
    for (n, node) in names.iter().cloned().enumerate() {
        let (store, needs) = (lab.other().await, needs(&limits, &format!("c{}", n % 2)));
        nodes.spawn(async move {
            // Looks when it is called, as a step does, and asks the database, not its own clock, whether it was called.
            loop {
                let mut tx = store.write().await.unwrap();
                match begin(&mut tx, (&node, ""), &needs, 200).await {
                    Ok(wait) => {
                        tx.commit().await.unwrap();
                        if wait.is_none() {
                            break;
                        }
                    }
                    Err(StoreError::Contended(_)) => continue,
                    Err(error) => panic!("{error}"),
                }
                while !store
                    .permits(&NodeId::stored(node.as_str()))
                    .await
                    .unwrap()
                    .iter()
                    .all(|p| p.is_taken)
                {
                    tokio::task::yield_now().await;
                }
            }
            let open = store.open_effects().await.unwrap();
            assert!(open.len() <= 3, "{open:?}");
            loop {
                let mut tx = store.write().await.unwrap();
                tx.node(&NodeId::stored(node.as_str())).await.unwrap();
                let id = try_of(&node, Effect::PowerOn, 1).id;
                match tx.end_effect(&id, &Outcome::Succeeded, at(300)).await {
                    Ok(_) => break tx.commit().await.unwrap(),
                    Err(StoreError::Contended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let done = tokio::time::timeout(std::time::Duration::from_secs(60), nodes.join_all()).await;
    done.expect("each gets its turn");
    for name in ["c0", "c1"] {
        let now = Timestamp(400);
        assert_eq!(lab.store.queue(&circuit(name), now).await.unwrap().taken, 0);
    }
}
