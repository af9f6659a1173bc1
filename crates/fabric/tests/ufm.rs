//! UFM, played by a server that answers by UFM's documentation. Not tested against a real UFM.

mod permits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use permits::Permits;
use rackwright_fabric::{FabricError, FabricManager as _, Proof, Ufm, UfmAccess, UfmError, UfmSettings, Unshared};
use rackwright_infiniband::{Guid, PKey, Partition, Partitions};
use serde_json::{Value, json};

/// The state of the played UFM, and its faults.
#[derive(Default)]
struct FakeUfm {
    pkeys: BTreeMap<String, BTreeMap<String, (String, bool)>>,
    requests: Vec<String>,
    /// Additions for this key are answered with 200 and dropped.
    forgets: Option<String>,
    /// Additions for this key are refused.
    refuses: Option<String>,
}

type Shared = Arc<Mutex<FakeUfm>>;

fn router(shared: Shared, base: &str) -> Router {
    Router::new()
        .route(&format!("{base}/resources/pkeys"), get(list))
        .route(&format!("{base}/resources/pkeys/add"), post(create))
        .route(&format!("{base}/resources/pkeys/"), post(add))
        .route(
            &format!("{base}/resources/pkeys/{{pkey}}/guids/{{csv}}"),
            delete(remove),
        )
        .route(&format!("{base}/resources/ports"), get(ports))
        .with_state(shared)
}

async fn list(
    State(shared): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Result<Json<Value>, StatusCode> {
    if headers.get("authorization").and_then(|value| value.to_str().ok()) != Some("Basic YWRtaW46c2VjcmV0") {
        return Err(StatusCode::UNAUTHORIZED);
    }
    assert_eq!(query.get("guids_data").map(String::as_str), Some("true"));
    let shared = shared.lock().expect("the played UFM");
    let all = shared.pkeys.iter().map(|(pkey, members)| {
        let guids: Vec<Value> = members
            .iter()
            .map(|(guid, (membership, index0))| json!({"guid": guid, "membership": membership, "index0": index0, "new": 1}))
            .collect();
        (pkey.clone(), json!({"partition": format!("part-{pkey}"), "ip_over_ib": true, "guids": guids}))
    });
    Ok(Json(Value::Object(all.collect())))
}

async fn create(State(shared): State<Shared>, Json(body): Json<Value>) -> &'static str {
    let pkey = body["pkey"].as_str().expect("a key").to_owned();
    let mut shared = shared.lock().expect("the played UFM");
    shared.requests.push(format!("create {pkey}"));
    shared.pkeys.entry(pkey).or_default();
    "{}"
}

async fn add(
    State(shared): State<Shared>,
    Json(body): Json<Value>,
) -> Result<&'static str, (StatusCode, &'static str)> {
    let pkey = body["pkey"].as_str().expect("a key").to_owned();
    let guids = body["guids"].as_array().expect("GUIDs");
    let mut shared = shared.lock().expect("the played UFM");
    shared.requests.push(format!("add {pkey} {}", guids.len()));
    if shared.refuses.as_ref() == Some(&pkey) {
        return Err((StatusCode::BAD_REQUEST, "index0 is taken"));
    }
    if shared.forgets.as_ref() == Some(&pkey) {
        return Ok("{}");
    }
    let (membership, index0) = (
        body["membership"].as_str().expect("full or limited"),
        body["index0"] == json!(true),
    );
    let members = shared.pkeys.entry(pkey).or_default();
    for guid in guids {
        members.insert(
            guid.as_str().expect("a GUID").to_owned(),
            (membership.to_owned(), index0),
        );
    }
    Ok("{}")
}

async fn remove(State(shared): State<Shared>, Path((pkey, csv)): Path<(String, String)>) -> &'static str {
    let mut shared = shared.lock().expect("the played UFM");
    shared
        .requests
        .push(format!("remove {pkey} {}", csv.split(',').count()));
    let members = shared.pkeys.entry(pkey).or_default();
    csv.split(',').for_each(|guid| drop(members.remove(guid)));
    "{}"
}

async fn ports(Query(query): Query<BTreeMap<String, String>>) -> Json<Value> {
    assert_eq!(query.get("sys_type").map(String::as_str), Some("Computer"));
    let port = |number: u64| json!({"guid": format!("0x{number:016x}"), "name": "x", "lid": 7});
    Json(Value::Array(
        (1..=6).map(port).chain([json!({"name": "no GUID"})]).collect(),
    ))
}

async fn started(shared: &Shared) -> Ufm {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = router(Arc::clone(shared), "/ufmRest");
    tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
    let access = UfmAccess::User {
        name: "admin".into(),
        password: "secret".to_owned().into(),
    };
    Ufm::new(settings(&format!("http://{address}"), access), None).expect("a client")
}

fn settings(url: &str, access: UfmAccess) -> UfmSettings {
    UfmSettings {
        url: url.parse().expect("a URL"),
        authorities: Vec::new(),
        access,
        first: key(0x100),
        last: key(0x1ff),
        timeout: Duration::from_secs(5),
        answer_bytes: 1 << 20,
        deadline: Duration::from_secs(1),
    }
}

fn key(number: u16) -> PKey {
    PKey::new(number).expect("a key")
}

fn guids(numbers: std::ops::RangeInclusive<u64>) -> Vec<Guid> {
    numbers.map(|number| Guid::new(number).expect("a GUID")).collect()
}

fn wanted(of: &[(u16, std::ops::RangeInclusive<u64>)]) -> Partitions {
    let partition = |(number, ports): &(u16, std::ops::RangeInclusive<u64>)| {
        let key = key(*number);
        (
            key,
            Partition::of_cluster(format!("part-{key}"), key, guids(ports.clone())),
        )
    };
    Partitions {
        partitions: of.iter().map(partition).collect(),
        ..Partitions::default()
    }
}

fn members(shared: &Shared, pkey: &str) -> Vec<String> {
    let shared = shared.lock().expect("the played UFM");
    shared
        .pkeys
        .get(pkey)
        .map(|members| members.keys().cloned().collect())
        .unwrap_or_default()
}

#[tokio::test]
async fn partitions_are_set_as_sets_and_foreign_keys_are_left_alone() {
    let shared = Shared::default();
    {
        let mut fake = shared.lock().expect("the played UFM");
        let other = BTreeMap::from([("00000000000000aa".to_owned(), ("full".to_owned(), false))]);
        fake.pkeys.insert("0x7fff".into(), other.clone());
        fake.pkeys.insert("0x0044".into(), other);
        let stale = BTreeMap::from([("0000000000000001".to_owned(), ("limited".to_owned(), false))]);
        fake.pkeys.insert("0x0150".into(), stale);
    }
    let ufm = started(&shared).await;
    let applied = ufm
        .apply(&wanted(&[(0x101, 1..=3), (0x102, 4..=8)]), &Unshared)
        .await
        .expect("applied");
    assert!(applied.changed);
    assert_eq!(applied.absent, guids(7..=8).into_iter().collect());
    assert_eq!(applied.reading.proof, Proof::Manager);
    assert_eq!(applied.reading.tables.read[&guids(1..=1)[0]], [0x8101]);
    assert_eq!(members(&shared, "0x0101").len(), 3);
    assert_eq!(
        members(&shared, "0x0150").len(),
        0,
        "a key of our range that no port has any more"
    );
    assert_eq!(
        (members(&shared, "0x0044").len(), members(&shared, "0x7fff").len()),
        (1, 1),
        "keys of others"
    );
    let requests = std::mem::take(&mut shared.lock().expect("the played UFM").requests);
    assert_eq!(
        requests,
        [
            "remove 0x0150 1",
            "create 0x0101",
            "add 0x0101 3",
            "create 0x0102",
            "add 0x0102 5"
        ]
    );

    let again = ufm
        .apply(&wanted(&[(0x101, 1..=3), (0x102, 4..=8)]), &Unshared)
        .await
        .expect("applied");
    assert!(!again.changed);
    ufm.apply(&wanted(&[(0x101, 2..=3), (0x102, 4..=9)]), &Unshared)
        .await
        .expect("applied");
    let requests = std::mem::take(&mut shared.lock().expect("the played UFM").requests);
    assert_eq!(requests, ["remove 0x0101 1", "add 0x0102 1"]);
    let error = ufm
        .apply(&wanted(&[(0x200, 1..=1)]), &Unshared)
        .await
        .expect_err("not ours");
    assert!(
        matches!(error, FabricError::Ufm(UfmError::ForeignKey { .. })),
        "{error}"
    );
    assert!(shared.lock().expect("the played UFM").requests.is_empty());
}

#[tokio::test]
async fn lost_or_refused_edits_are_rolled_back() {
    let shared = Shared::default();
    let ufm = started(&shared).await;
    ufm.apply(&wanted(&[(0x101, 1..=3)]), &Unshared).await.expect("applied");
    for misbehave in [
        (|fake: &mut FakeUfm| fake.forgets = Some("0x0102".into())) as fn(&mut FakeUfm),
        |fake| (fake.forgets, fake.refuses) = (None, Some("0x0102".into())),
    ] {
        misbehave(&mut shared.lock().expect("the played UFM"));
        let error = ufm
            .apply(&wanted(&[(0x101, 1..=1), (0x102, 2..=3)]), &Unshared)
            .await
            .expect_err("undone")
            .to_string();
        assert!(error.ends_with("the former partitions are restored"), "{error}");
        assert!(
            error.contains("2 ports are not in \"0x0102\"") || error.contains("index0 is taken"),
            "{error}"
        );
        assert_eq!(members(&shared, "0x0101").len(), 3);
    }
}

#[tokio::test]
async fn the_end_of_the_lease_stops_a_change_without_a_rollback() {
    let shared = Shared::default();
    let ufm = started(&shared).await;
    ufm.apply(&wanted(&[(0x101, 1..=3)]), &Unshared).await.expect("applied");
    let next = wanted(&[(0x101, 1..=1), (0x102, 2..=3)]);
    for (permits, sent) in [(0, Vec::new()), (1, vec!["remove 0x0101 2"])] {
        shared.lock().expect("the played UFM").requests.clear();
        let error = ufm
            .apply(&next, &Permits(permits.into()))
            .await
            .expect_err("it is over");
        assert!(error.is_fenced(), "{error:?}");
        assert_eq!(shared.lock().expect("the played UFM").requests, sent);
    }
    ufm.apply(&next, &Unshared).await.expect("the replica with the lease");
    assert_eq!(members(&shared, "0x0102").len(), 2);
}

#[tokio::test]
async fn hostile_and_missing_answers_are_errors() {
    let error_for = |answer: &'static str| async move {
        let app = Router::new().fallback(move || async move { answer });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
        let access = UfmAccess::Token("token".to_owned().into());
        let settings = UfmSettings {
            answer_bytes: 200,
            ..settings(&format!("http://{address}"), access)
        };
        Ufm::new(settings, None)
            .expect("a client")
            .apply(&wanted(&[(0x101, 1..=1)]), &Unshared)
            .await
            .expect_err("an error")
            .to_string()
    };
    assert!(error_for("no JSON").await.contains("not understood"));
    assert!(error_for("[]").await.contains("not an object"));
    assert!(
        error_for(r#"{"0x0101": {"guids": [{"guid": "zz"}]}}"#)
            .await
            .contains("member of 0x0101")
    );
    assert!(
        error_for(Box::leak("x".repeat(201).into_boxed_str()))
            .await
            .contains("more than 200 bytes")
    );
    let access = UfmAccess::Token("token".to_owned().into());
    let gone = Ufm::new(settings("http://127.0.0.1:1", access.clone()), None).expect("a client");
    assert!(
        gone.tables()
            .await
            .expect_err("an error")
            .to_string()
            .contains("does not answer")
    );
    assert!(matches!(gone.topology().await, Err(FabricError::Unsupported(_))));
    // Without requested ports there is nothing to read: UFM is not called.
    let nothing = gone.inspect(&BTreeSet::new()).await.expect("an inspection");
    assert_eq!(
        (nothing.reading.tables.read.len(), nothing.reading.proof),
        (0, Proof::Ports)
    );
    assert!(gone.inspect(&guids(1..=1).into_iter().collect()).await.is_err());
    let wrong = UfmSettings {
        last: PKey::DEFAULT,
        ..settings("http://127.0.0.1:1", access.clone())
    };
    assert!(Ufm::new(wrong, None).is_err());
    for url in ["http://192.0.2.1", "https://192.0.2.1", "ftp://127.0.0.1"] {
        assert!(Ufm::new(settings(url, access.clone()), None).is_err(), "{url}");
    }
    let shared = Shared::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = router(shared, "/ufmRestV3");
    tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
    let access = UfmAccess::Token("wrong".to_owned().into());
    let refused = Ufm::new(settings(&format!("http://{address}"), access), None).expect("a client");
    let error = refused
        .apply(&wanted(&[(0x101, 1..=1)]), &Unshared)
        .await
        .expect_err("an error")
        .to_string();
    assert!(error.contains("401") && !error.contains("wrong"), "{error}");
}
