//! Lists, filters, field masks and watches.

use std::time::Duration;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::boot_service_client::BootServiceClient;
use rackwright_lab as lab;
use rackwright_lifecycle::Timestamp;
use rackwright_store::{Store, UnknownMachineRow};
use rackwright_tests::site::Site;
use tonic::{Code, Streaming};

use crate::client::{Api, TEST_LIMIT, enrolment, fields, fresh, mask, node, refused, start, version};

/// More than one page of the default size.
const NODES: usize = 57;

#[test]
fn lists_are_read_page_by_page() {
    lab::run_test("reading::lists_are_read_page_by_page", async |namespace| {
        let (_lab, site, api) = start(&namespace).await;
        let one = |i: usize| enrolment(&format!("n{i:02}"), &[("rack", ["r1", "r2"][i % 2]), ("row", "a b")]);
        let batch = v1::BatchEnrollNodesRequest {
            requests: (0..NODES).map(one).collect(),
            mutation: fresh(),
        };
        api.nodes()
            .batch_enroll_nodes(batch)
            .await
            .expect("the nodes are enrolled");
        inspected(&site).await;
        pages(&api).await;
        page_tokens(&api).await;
        filters(&api).await;
        masks(&api).await;
        more_masks(&api).await;
        operations(&api).await;
        unknown_machines(&api, &site).await;
    });
}

fn ask(page_size: i32, page_token: &str, filter: &str) -> v1::ListNodesRequest {
    v1::ListNodesRequest {
        page_size,
        page_token: page_token.into(),
        filter: filter.into(),
        ..v1::ListNodesRequest::default()
    }
}

async fn list(api: &Api, request: v1::ListNodesRequest) -> (Vec<String>, String) {
    let page = api.nodes().list_nodes(request).await.expect("a page").into_inner();
    (page.nodes.into_iter().map(|n| n.name).collect(), page.next_page_token)
}

fn names(keep: impl Fn(usize) -> bool) -> Vec<String> {
    (0..NODES)
        .filter(|i| keep(*i))
        .map(|i| format!("nodes/n{i:02}"))
        .collect()
}

async fn pages(api: &Api) {
    for size in [1, 10, 19, NODES as i32, NODES as i32 - 1] {
        let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let (page, next) = list(api, ask(size, &token, "")).await;
            assert!(
                page.len() <= size as usize,
                "a page of {} where {size} were requested",
                page.len()
            );
            seen.extend(page);
            pages += 1;
            assert!(pages <= NODES + 1, "pages without an end");
            if next.is_empty() {
                break;
            }
            token = next;
        }
        assert_eq!(seen, names(|_| true), "pages of {size}");
    }
    let (page, next) = list(api, ask(0, "", "")).await;
    assert_eq!((page.len(), next.is_empty()), (50, false), "the default size");
    // A size above the maximum is reduced to the maximum.
    let (page, next) = list(api, ask(i32::MAX, "", "")).await;
    assert_eq!((page.len(), next.as_str()), (NODES, ""));
    let negative = api.nodes().list_nodes(ask(-1, "", "")).await;
    assert_eq!(fields(&refused(negative, Code::InvalidArgument)), ["page_size"]);
}

async fn page_tokens(api: &Api) {
    let (_, token) = list(api, ask(5, "", "")).await;
    let (_, filtered) = list(api, ask(5, "", "labels.rack = r1")).await;
    let operations = v1::ListOperationsRequest {
        page_size: 5,
        ..Default::default()
    };
    let operations = api.operations().list_operations(operations).await.expect("a page");
    let of_operations = operations.into_inner().next_page_token;
    let mut garbled = token.clone();
    let last = garbled.pop().expect("a token has characters");
    garbled.push(if last == '1' { '2' } else { '1' });
    let is_refused = async |what: &str, token: &str, filter: &str| {
        let answer = api.nodes().list_nodes(ask(5, token, filter)).await;
        assert_eq!(
            fields(&refused(answer, Code::InvalidArgument)),
            ["page_token"],
            "{what}: {token:?}"
        );
    };
    is_refused("not a token", "zzz", "").await;
    is_refused("not a token", "n10", "").await;
    is_refused("another's characters", &"\u{e9}".repeat(40), "").await;
    is_refused("garbled", &garbled, "").await;
    is_refused("cut", &token[..token.len() - 1], "").await;
    is_refused("of another filter", &filtered, "").await;
    is_refused("of another filter", &token, "labels.rack = r1").await;
    is_refused("of another list", &of_operations, "").await;
    let (page, _) = list(api, ask(7, &token, "")).await;
    assert_eq!(
        page,
        names(|i| (5..12).contains(&i)),
        "the list continues with another page size"
    );
    // A token points to a position, not to the node there.
    let name = "nodes/n04".to_owned();
    api.nodes()
        .delete_node(v1::DeleteNodeRequest {
            name,
            mutation: fresh(),
        })
        .await
        .expect("it is free");
    assert_eq!(list(api, ask(2, &token, "")).await.0, ["nodes/n05", "nodes/n06"]);
    api.nodes()
        .enroll_node(enrolment("n04", &[("rack", "r1"), ("row", "a b")]))
        .await
        .expect("back again");

    tokens_of_other_lists(api, &token).await;
}

async fn tokens_of_other_lists(api: &Api, token: &str) {
    let garbage = |page_token: &str| page_token.to_owned();
    let images = v1::ListImagesRequest {
        page_size: 0,
        page_token: garbage("zzz"),
    };
    assert_eq!(
        fields(&refused(api.images().list_images(images).await, Code::InvalidArgument)),
        ["page_token"]
    );
    let reports = v1::ListReportsRequest {
        parent: "nodes/n01".into(),
        page_size: 0,
        page_token: garbage("zzz"),
    };
    assert_eq!(
        fields(&refused(api.nodes().list_reports(reports).await, Code::InvalidArgument)),
        ["page_token"]
    );
    let proofs = v1::ListEraseCertificatesRequest {
        parent: "nodes/n01".into(),
        page_size: 0,
        page_token: token.to_owned(),
    };
    let proofs = api.nodes().list_erase_certificates(proofs).await;
    assert_eq!(fields(&refused(proofs, Code::InvalidArgument)), ["page_token"]);
}

async fn filters(api: &Api) {
    for (filter, wanted) in [
        ("labels.rack = r1", names(|i| i % 2 == 0)),
        ("labels.rack != r1", names(|i| i % 2 == 1)),
        ("labels.row=\"a b\" AND labels.rack = r2", names(|i| i % 2 == 1)),
        ("labels.nothing = x", Vec::new()),
        ("name = nodes/n07", names(|i| i == 7)),
        ("name = n07 AND labels.rack = r1", Vec::new()),
        ("state = discovered AND sku = default", names(|_| true)),
        ("state = active", Vec::new()),
        ("(name = n07 OR state = active) AND sku = default", names(|i| i == 7)),
        ("sku != default", Vec::new()),
    ] {
        assert_eq!(list(api, ask(100, "", filter)).await.0, wanted, "{filter}");
    }
    for wrong in [
        "colour = red",
        "state = asleep",
        "state",
        "sku = a or sku = b",
        "sku = \"a",
        "name = x AND",
        "labels. = x",
        "labels = n07",
    ] {
        let answer = api.nodes().list_nodes(ask(0, "", wrong)).await;
        let status = refused(answer, Code::InvalidArgument);
        assert_eq!(fields(&status), ["filter"], "{wrong}");
        assert!(status.message().contains("character"), "{wrong}: {}", status.message());
    }
}

async fn masks(api: &Api) {
    let read = async |paths: &[&str]| {
        let request = v1::GetNodeRequest {
            name: "nodes/n01".into(),
            read_mask: mask(paths),
        };
        api.nodes().get_node(request).await
    };
    let whole = read(&[]).await.expect("a node").into_inner();
    let all = [whole.spec.is_some(), whole.status.is_some(), whole.metadata.is_some()];
    assert_eq!(all, [true; 3], "no mask leaves nothing out");
    let some = read(&["name", "metadata"]).await.expect("a node").into_inner();
    let wanted = v1::Node {
        name: whole.name.clone(),
        metadata: whole.metadata.clone(),
        ..Default::default()
    };
    assert_eq!(some, wanted);
    let spec = read(&["spec"]).await.expect("a node").into_inner();
    assert_eq!((spec.name.as_str(), &spec.spec), ("", &whole.spec));
    assert!(spec.status.is_none() && spec.metadata.is_none());
    for unknown in ["spec.nothing", "colour", ""] {
        let status = refused(read(&["name", unknown]).await, Code::InvalidArgument);
        assert_eq!(fields(&status), ["read_mask"], "{unknown:?}");
    }
    let request = v1::ListNodesRequest {
        read_mask: mask(&["name"]),
        ..ask(3, "", "")
    };
    let page = api
        .nodes()
        .list_nodes(request)
        .await
        .expect("a page")
        .into_inner()
        .nodes;
    assert!(
        page.iter()
            .all(|n| !n.name.is_empty() && n.spec.is_none() && n.status.is_none() && n.metadata.is_none())
    );
    let unknown = v1::ListNodesRequest {
        read_mask: mask(&["colour"]),
        filter: "labels.nothing = x".into(),
        ..ask(0, "", "")
    };
    assert_eq!(
        fields(&refused(api.nodes().list_nodes(unknown).await, Code::InvalidArgument)),
        ["read_mask"]
    );
}

/// The inventory that n01's agent would report.
fn inventory() -> v1::Inventory {
    v1::Inventory {
        memory_bytes: 1 << 40,
        ..Default::default()
    }
}

async fn open(site: &Site) -> Store {
    let store = Store::open(&site.dir().join("data/rackwright.db")).await;
    store.expect("the database opens")
}

async fn inspected(site: &Site) {
    let store = open(site).await;
    let mut tx = store.write().await.expect("a change begins");
    let inventory = inventory().encode_to_vec();
    tx.save_inventory(&"n01".into(), &inventory).await.expect("it is kept");
    tx.commit().await.expect("the change stays");
    store.close().await;
}

async fn more_masks(api: &Api) {
    let read = async |paths: &[&str]| {
        let request = v1::GetNodeRequest {
            name: "nodes/n01".into(),
            read_mask: mask(paths),
        };
        api.nodes().get_node(request).await
    };
    let all = read(&["*"]).await.expect("a node").into_inner();
    assert_eq!(all.name, "nodes/n01");
    assert!(all.spec.is_some() && all.metadata.is_some(), "{all:?}");
    let status = all.status.expect("all of it is there");
    assert_eq!(status.inventory, Some(inventory()));
    let some = read(&["status.inventory"]).await.expect("a node").into_inner();
    let wanted = v1::Node {
        status: Some(v1::NodeStatus {
            inventory: Some(inventory()),
            ..Default::default()
        }),
        ..Default::default()
    };
    assert_eq!(some, wanted, "the inventory alone");
    let mixed = refused(read(&["name", "*"]).await, Code::InvalidArgument);
    assert_eq!(fields(&mixed), ["read_mask"], "all and some at once");
    let request = v1::ListNodesRequest {
        read_mask: mask(&["*"]),
        ..ask(3, "", "")
    };
    let page = api.nodes().list_nodes(request).await.expect("a page").into_inner();
    assert!(
        page.nodes
            .iter()
            .all(|n| !n.name.is_empty() && n.spec.is_some() && n.status.is_some() && n.metadata.is_some())
    );
}

async fn unknown_machines(api: &Api, site: &Site) {
    let macs: Vec<String> = (0..7).map(|i| format!("52:54:00:00:00:{i:02x}")).collect();
    let store = open(site).await;
    let mut tx = store.write().await.expect("a change begins");
    for (i, mac) in macs.iter().rev().enumerate() {
        let row = UnknownMachineRow {
            mac: mac.clone(),
            first_seen: Timestamp(i as i64),
            last_seen: Timestamp(i as i64),
            architecture: "x86-64".into(),
            relay: String::new(),
            system_uuid: String::new(),
            inventory: None,
        };
        tx.record_unknown_machine(&row).await.expect("it is noted");
    }
    tx.commit().await.expect("the change stays");
    store.close().await;
    let ask = async |page_size: i32, page_token: &str| {
        let request = v1::ListUnknownMachinesRequest {
            page_size,
            page_token: page_token.to_owned(),
        };
        BootServiceClient::new(api.channel.clone())
            .list_unknown_machines(request)
            .await
    };
    for size in [1, 3, 7, 0, i32::MAX] {
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let page = ask(size, &token).await.expect("a page").into_inner();
            assert!(size == 0 || page.machines.len() <= size as usize);
            assert!(!page.machines.is_empty(), "pages of {size}");
            seen.extend(page.machines.into_iter().map(|m| m.mac));
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, macs, "pages of {size}");
    }
    let status = refused(ask(-1, "").await, Code::InvalidArgument);
    assert_eq!(fields(&status), ["page_size"]);
    let of_nodes = list(api, self::ask(5, "", "")).await.1;
    for token in ["zzz", &of_nodes] {
        let status = refused(ask(3, token).await, Code::InvalidArgument);
        assert_eq!(fields(&status), ["page_token"], "{token:?}");
    }
}

async fn operations(api: &Api) {
    let request = |filter: &str, page_token: String| v1::ListOperationsRequest {
        page_size: 20,
        page_token,
        filter: filter.into(),
    };
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let answer = api.operations().list_operations(request("kind = enroll", token)).await;
        let page = answer.expect("a page").into_inner();
        seen.extend(page.operations);
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    // One node was enrolled twice, with a deletion in between.
    assert_eq!(seen.len(), NODES + 1);
    assert!(
        seen.windows(2).all(|w| w[0].name > w[1].name),
        "newest first, none twice"
    );
    let ended = seen.iter().filter(|o| o.done).map(|o| o.target.as_str());
    assert_eq!(
        ended.collect::<Vec<_>>(),
        ["nodes/n04"],
        "the operation of a deleted node has ended"
    );
    let of_one = api
        .operations()
        .list_operations(request("target = nodes/n04 AND done = false", String::new()))
        .await;
    assert_eq!(of_one.expect("a page").into_inner().operations.len(), 1);
    for wrong in ["done = maybe", "result = good", "sku = a"] {
        let answer = api.operations().list_operations(request(wrong, String::new())).await;
        assert_eq!(fields(&refused(answer, Code::InvalidArgument)), ["filter"], "{wrong}");
    }
}

/// Reads until a message matches; repetitions in between are ignored.
async fn next(
    stream: &mut Streaming<v1::WatchNodesResponse>,
    fits: impl Fn(&v1::WatchNodesResponse) -> bool,
) -> v1::WatchNodesResponse {
    let reading = async {
        loop {
            let message = stream
                .message()
                .await
                .expect("the watch continues")
                .expect("the watch does not end");
            if fits(&message) {
                return message;
            }
        }
    };
    tokio::time::timeout(TEST_LIMIT, reading)
        .await
        .expect("the change is reported")
}

fn is_about(message: &v1::WatchNodesResponse, id: &str) -> bool {
    message.node.as_ref().is_some_and(|n| n.name == format!("nodes/{id}"))
}

#[test]
fn a_watch_reports_the_present_state_and_every_change() {
    lab::run_test(
        "reading::a_watch_reports_the_present_state_and_every_change",
        async |namespace| {
            let (_lab, _site, api) = start(&namespace).await;
            for (id, rack) in [("w1", "r1"), ("w2", "r1"), ("other", "r2")] {
                api.nodes()
                    .enroll_node(enrolment(id, &[("rack", rack)]))
                    .await
                    .expect("a new node");
            }
            let filter = "labels.rack = r1".to_owned();
            let watch = api.nodes().watch_nodes(v1::WatchNodesRequest { filter }).await;
            let mut watch = watch.expect("the watch begins").into_inner();
            for id in ["w1", "w2"] {
                let message = watch
                    .message()
                    .await
                    .expect("the watch continues")
                    .expect("it does not end");
                assert!(
                    is_about(&message, id) && !message.synced && !message.deleted,
                    "{message:?}"
                );
            }
            let synced = watch
                .message()
                .await
                .expect("the watch continues")
                .expect("it does not end");
            assert!(synced.synced && synced.node.is_none(), "{synced:?}");

            api.nodes()
                .enroll_node(enrolment("w3", &[("rack", "r1")]))
                .await
                .expect("a new node");
            let new = next(&mut watch, |m| is_about(m, "w3")).await;
            assert!(!new.deleted && !new.synced);
            let hold = v1::HoldNodeRequest {
                name: "nodes/w1".into(),
                reason: "a look inside".into(),
                mutation: fresh(),
            };
            api.nodes().hold_node(hold).await.expect("a discovered node is held");
            let is_held = |m: &v1::WatchNodesResponse| {
                let status = m.node.as_ref().and_then(|n| n.status.as_ref());
                is_about(m, "w1") && status.is_some_and(|s| s.state() == v1::NodeState::Maintenance)
            };
            next(&mut watch, is_held).await;
            leaving(&api, &mut watch).await;
            let wrong = v1::WatchNodesRequest {
                filter: "colour = red".into(),
            };
            assert_eq!(
                fields(&refused(api.nodes().watch_nodes(wrong).await, Code::InvalidArgument)),
                ["filter"]
            );
        },
    );
}

/// A node that stops matching is reported as removed, like a deleted one; a node that never matched is not reported.
async fn leaving(api: &Api, watch: &mut Streaming<v1::WatchNodesResponse>) {
    let mut moved = node(api, "w2").await;
    let mutation = crate::client::seen(&version(&moved));
    moved
        .metadata
        .get_or_insert_default()
        .labels
        .insert("rack".into(), "r2".into());
    let update = v1::UpdateNodeRequest {
        node: Some(moved),
        update_mask: mask(&["metadata.labels"]),
        mutation,
    };
    api.nodes().update_node(update).await.expect("a good update");
    next(watch, |m| is_about(m, "w2") && m.deleted).await;
    let name = "nodes/w3".to_owned();
    api.nodes()
        .delete_node(v1::DeleteNodeRequest {
            name,
            mutation: fresh(),
        })
        .await
        .expect("it is free");
    next(watch, |m| is_about(m, "w3") && m.deleted).await;
    let rest = async {
        loop {
            let message = watch
                .message()
                .await
                .expect("the watch continues")
                .expect("it does not end");
            assert!(is_about(&message, "w1"), "nothing is left but w1: {message:?}");
        }
    };
    let quiet: Result<(), _> = tokio::time::timeout(Duration::from_secs(1), rest).await;
    assert!(quiet.is_err());
}
