//! Follows operations to their end, and events without a gap.

use std::time::{Duration, Instant};

use rackwright_api::v1;
use rackwright_lab as lab;
use rackwright_store::{Scope, Store};
use rackwright_tests::site::Site;
use tonic::{Code, Streaming};

use crate::client::{
    Api, done, drain, enrolment, events, fields, fresh, hint, precondition, refused, start, until_state,
};

async fn enroll(api: &Api, id: &str) -> v1::Operation {
    let answer = api.nodes().enroll_node(enrolment(id, &[])).await;
    answer.expect("a new node").into_inner()
}

#[test]
fn operations_are_followed_and_cancelled() {
    lab::run_test("following::operations_are_followed_and_cancelled", async |namespace| {
        let (_lab, _site, api) = start(&namespace).await;
        let enrolled = enroll(&api, "n1").await;
        let get = v1::GetOperationRequest {
            name: enrolled.name.clone(),
        };
        let read = api
            .operations()
            .get_operation(get)
            .await
            .expect("it is kept")
            .into_inner();
        assert!(
            !read.done && read.end_time.is_none() && read.progress.is_some(),
            "{read:?}"
        );
        for (name, code) in [("operations/none", Code::NotFound), ("nodes/n1", Code::InvalidArgument)] {
            let name = name.to_owned();
            refused(
                api.operations().get_operation(v1::GetOperationRequest { name }).await,
                code,
            );
        }
        waits(&api, &enrolled).await;
        cancels(&api, &enrolled).await;
        ends(&api, &enrolled).await;
    });
}

async fn waits(api: &Api, operation: &v1::Operation) {
    let wait = |nanos: i32, seconds: i64| v1::WaitOperationRequest {
        name: operation.name.clone(),
        timeout: Some(prost_types::Duration { seconds, nanos }),
    };
    let begun = Instant::now();
    let answer = api.operations().wait_operation(wait(400_000_000, 0)).await;
    assert!(!answer.expect("not done is not an error").into_inner().done);
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(400) && took < Duration::from_secs(5),
        "{took:?}"
    );
    // A time limit of zero means the default, not no wait.
    let unlimited = api.operations();
    let mut unlimited = unlimited;
    let waiting = tokio::time::timeout(Duration::from_secs(1), unlimited.wait_operation(wait(0, 0))).await;
    assert!(waiting.is_err(), "a timeout of 0 means 30 s: {waiting:?}");
    let negative = api.operations().wait_operation(wait(0, -1)).await;
    assert_eq!(fields(&refused(negative, Code::InvalidArgument)), ["timeout"]);
}

async fn cancels(api: &Api, enrolled: &v1::Operation) {
    let cancel = |name: &str| v1::CancelOperationRequest {
        name: name.to_owned(),
        mutation: fresh(),
    };
    let answer = api.operations().cancel_operation(cancel(&enrolled.name)).await;
    precondition(answer, &enrolled.name, "node quarantine");
    let read = v1::GetOperationRequest {
        name: enrolled.name.clone(),
    };
    let read = api
        .operations()
        .get_operation(read)
        .await
        .expect("it is kept")
        .into_inner();
    assert!(!read.cancel_requested, "a refused cancel left its mark");

    enroll(api, "n2").await;
    let hold = v1::HoldNodeRequest {
        name: "nodes/n2".into(),
        reason: "a look inside".into(),
        mutation: fresh(),
    };
    api.nodes().hold_node(hold).await.expect("a discovered node is held");
    until_state(api, "n2", v1::NodeState::Maintenance).await;
    let power = v1::SetNodePowerRequest {
        name: "nodes/n2".into(),
        action: v1::PowerAction::On.into(),
        mutation: fresh(),
    };
    let power = api
        .nodes()
        .set_node_power(power)
        .await
        .expect("a node at rest")
        .into_inner();
    let waiting = tokio::spawn({
        let (api, power) = (api.clone(), power.clone());
        async move { done(&api, &power).await }
    });
    let answer = api.operations().cancel_operation(cancel(&power.name)).await;
    assert!(
        answer
            .expect("a power change is cancelled")
            .into_inner()
            .cancel_requested
    );
    let ended = waiting.await.expect("the wait ends");
    assert_eq!(
        ended.error.map(|e| e.code),
        Some(Code::Cancelled as i32),
        "the wait ends with the cancel"
    );
    let again = api.operations().cancel_operation(cancel(&power.name)).await;
    precondition(again, &power.name, "rackwright operation get");
}

/// Deletion or hold of a node ends earlier requests for the node.
async fn ends(api: &Api, enrolled: &v1::Operation) {
    let name = "nodes/n1".to_owned();
    api.nodes()
        .delete_node(v1::DeleteNodeRequest {
            name,
            mutation: fresh(),
        })
        .await
        .expect("it is free");
    let ended = done(api, enrolled).await;
    assert_eq!(ended.error.map(|e| e.code), Some(Code::Aborted as i32));
    enroll(api, "n3").await;
    let again = api.nodes().enroll_node(enrolment("n3", &[])).await;
    refused(again, Code::AlreadyExists);
    let filter = "target = nodes/n2 AND kind = enroll".to_owned();
    let list = v1::ListOperationsRequest {
        filter,
        ..Default::default()
    };
    let list = api
        .operations()
        .list_operations(list)
        .await
        .expect("a page")
        .into_inner()
        .operations;
    assert!(
        list.len() == 1 && list[0].done && list[0].error.is_some(),
        "held: {list:?}"
    );
}

async fn follow(api: &Api, request: v1::StreamEventsRequest) -> Streaming<v1::Event> {
    let opened = api.events().stream_events(request).await;
    opened.expect("the stream opens").into_inner()
}

fn ascend(events: &[v1::Event]) -> bool {
    events.windows(2).all(|w| w[0].position < w[1].position)
}

#[test]
fn events_are_followed_over_a_restart() {
    lab::run_test("following::events_are_followed_over_a_restart", async |namespace| {
        let (_lab, mut site, api) = start(&namespace).await;
        enroll(&api, "n1").await;
        only_new_and_target(&api).await;

        let mut stream = follow(&api, v1::StreamEventsRequest::default()).await;
        let mut seen = drain(&mut stream).await;
        enroll(&api, "n4").await;
        seen.extend(drain(&mut stream).await);
        assert!(
            seen.iter().any(|e| e.target == "nodes/n4"),
            "what happened while we listened"
        );
        assert!(seen.len() >= 4 && ascend(&seen), "{seen:?}");
        site.kill().await;
        let cut = tokio::time::timeout(Duration::from_secs(10), async {
            while let Ok(Some(event)) = stream.message().await {
                seen.push(event);
            }
        });
        cut.await.expect("the stream ends with the daemon");
        site.restart().await;
        let api = Api::of_site(&site);
        enroll(&api, "n5").await;
        let last = seen.last().expect("events were seen").position;
        let resumed = events(&api, last).await;
        assert!(resumed.iter().any(|e| e.target == "nodes/n5"), "{resumed:?}");
        seen.extend(resumed);
        let end = seen.last().expect("events were seen").position;
        let all: Vec<_> = events(&api, 0)
            .await
            .into_iter()
            .filter(|e| e.position <= end)
            .collect();
        assert_eq!(seen, all, "in two parts (left) and in one (right)");
        dropped_events(&mut site, &all).await;
    });
}

async fn only_new_and_target(api: &Api) {
    let newest = events(api, 0).await.last().expect("there are events").position;
    let only_new = v1::StreamEventsRequest {
        only_new: true,
        // This field is ignored.
        after_position: u64::MAX,
        ..Default::default()
    };
    let mut new = follow(api, only_new).await;
    let target = v1::StreamEventsRequest {
        target: "nodes/n3".into(),
        ..Default::default()
    };
    let mut of_one = follow(api, target).await;
    assert_eq!(drain(&mut of_one).await, [], "nothing has happened to it yet");
    for id in ["n2", "n3"] {
        enroll(api, id).await;
    }
    let new = drain(&mut new).await;
    assert!(new.iter().all(|e| e.position > newest) && ascend(&new), "{new:?}");
    for id in ["nodes/n2", "nodes/n3"] {
        let requested = new.iter().find(|e| e.target == id && e.kind == "requested");
        assert_eq!(
            requested.and_then(|e| e.attributes.get("by")).map(String::as_str),
            Some("operator"),
            "{new:?}"
        );
    }
    newest_and_kinds(api).await;
    let of_one = drain(&mut of_one).await;
    assert!(
        !of_one.is_empty() && of_one.iter().all(|e| e.target == "nodes/n3"),
        "{of_one:?}"
    );
}

async fn newest_and_kinds(api: &Api) {
    let all = events(api, 0).await;
    let read = async |request: v1::StreamEventsRequest| {
        let request = v1::StreamEventsRequest {
            until_now: true,
            ..request
        };
        let mut stream = api.events().stream_events(request).await?.into_inner();
        let mut events = Vec::new();
        while let Some(event) = stream.message().await? {
            events.push(event);
        }
        Ok::<_, tonic::Status>(events)
    };
    let newest = v1::StreamEventsRequest {
        newest: 2,
        kinds: vec!["requested".into()],
        ..Default::default()
    };
    let requested: Vec<_> = all.iter().filter(|event| event.kind == "requested").cloned().collect();
    let read_newest = read(newest.clone()).await.expect("the stream opens");
    assert_eq!(read_newest, requested[requested.len() - 2..]);
    let none = v1::StreamEventsRequest {
        min_severity: v1::EventSeverity::Error.into(),
        ..newest.clone()
    };
    assert_eq!(read(none).await.expect("the stream opens"), []);
    let wrong = |kinds: &[&str], newest| v1::StreamEventsRequest {
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        newest,
        ..Default::default()
    };
    for (request, field) in [
        (wrong(&["*"], 0), "kinds"),
        (wrong(&[""], 0), "kinds"),
        (wrong(&[], -1), "newest"),
        (wrong(&[], 10_001), "newest"),
    ] {
        assert_eq!(fields(&read(request).await.expect_err("it is refused")), [field]);
    }
}

async fn is_out_of_range(api: &Api, after_position: u64, words: &str) {
    let request = v1::StreamEventsRequest {
        after_position,
        ..Default::default()
    };
    let status = refused(api.events().stream_events(request).await, Code::OutOfRange);
    assert!(status.message().contains(words), "{status:?}");
    assert!(hint(&status).contains("position 0"), "{status:?}");
}

/// A position with dropped later events is refused: continuing there would silently lose events.
async fn dropped_events(site: &mut Site, all: &[v1::Event]) {
    is_out_of_range(&Api::of_site(site), 1_000_000, "does not exist yet").await;
    let too_large = v1::StreamEventsRequest {
        after_position: u64::MAX,
        ..Default::default()
    };
    let answer = Api::of_site(site).events().stream_events(too_large).await;
    assert_eq!(fields(&refused(answer, Code::InvalidArgument)), ["after_position"]);

    site.kill().await;
    let store = Store::open(&site.dir().join("data/rackwright.db"))
        .await
        .expect("the database opens");
    let rows = store.events(&Scope::Site, 0, "", 1000).await.expect("the events read");
    let cut = rows.iter().position(|r| r.at > rows[1].at).expect("time goes on");
    store.forget_events(rows[cut].at).await.expect("the events go");
    store.close().await;
    site.restart().await;
    let api = Api::of_site(site);
    let oldest = all[cut].position;
    for gone in [1, oldest - 2] {
        is_out_of_range(&api, gone, "no longer stored").await;
    }
    for (after, first) in [(0, oldest), (oldest - 1, oldest), (oldest, all[cut + 1].position)] {
        let kept = events(&api, after).await;
        assert_eq!(kept.first().map(|e| e.position), Some(first), "after {after}");
    }
}
