//! Tests that every open call ends with the rights of the member.

use std::convert::Infallible;
use std::future::poll_fn;
use std::time::Duration;

use axum::body::Body as RequestBody;
use prost::Message;
use rackwright_api::DESCRIPTORS;
use rackwright_api::v1;
use rackwright_ground::clock;
use rackwright_ground::rights;
use rackwright_ground::testing::{self, TestCore};
use rackwright_identity::ClientIdentity;
use rackwright_lifecycle::{OperationKind, State};
use rackwright_store::{OperationRow, UploadBody, UploadRow};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tower::ServiceExt as _;

use super::*;
use crate::tenancy::{join, lab};

/// A method with long calls although it does not stream.
const LASTS: &str = "OperationService/WaitOperation";
/// Streaming methods that are not opened here: `GetSite` sends a site and ends, and `ApplySite` needs the same turn as the
/// open `PlanSite` of this member.
const NOT_OPENED: &[&str] = &["SiteService/GetSite", "SiteService/ApplySite"];
/// Longest delay until rights end on the replica that ends them.
const AT_ONCE: Duration = Duration::from_secs(1);

/// All streaming methods as "Service/Method".
fn streaming() -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let ours = set.file.iter().filter(|file| file.package() == "rackwright.v1");
    let services = ours.flat_map(|file| &file.service);
    let methods = services.flat_map(|s| s.method.iter().map(move |m| (s, m)));
    methods
        .filter(|(_, m)| m.client_streaming() || m.server_streaming())
        .map(|(s, m)| format!("{}/{}", s.name(), m.name()))
        .collect()
}

/// The first message with which a call of `method` stays open in the lab.
fn opening(method: &str) -> Vec<u8> {
    let node = "nodes/n1".to_owned();
    match method {
        "EventService/StreamEvents" => v1::StreamEventsRequest::default().encode_to_vec(),
        "NodeService/WatchNodes" => v1::WatchNodesRequest::default().encode_to_vec(),
        "ConsoleService/AttachConsole" => {
            let enter = v1::ConsoleEntry {
                node,
                read_only: true,
                ..v1::ConsoleEntry::default()
            };
            let message = Some(v1::attach_console_request::Message::Enter(enter));
            v1::AttachConsoleRequest { message }.encode_to_vec()
        }
        "ConsoleService/ReadConsoleLog" => v1::ReadConsoleLogRequest {
            node,
            follow: true,
            ..v1::ReadConsoleLogRequest::default()
        }
        .encode_to_vec(),
        "AuditService/StreamAudit" => v1::StreamAuditRequest::default().encode_to_vec(),
        "ImageService/WriteUpload" => v1::WriteUploadRequest {
            name: "uploads/u1".into(),
            offset: 0,
            data: vec![1],
        }
        .encode_to_vec(),
        "FirmwareService/AddFirmware" => v1::AddFirmwareRequest {
            component: "bmc".into(),
            version: "1".into(),
            file_name: "bmc.bin".into(),
            sha256: "0".repeat(64),
            data: vec![1],
        }
        .encode_to_vec(),
        "SiteService/PlanSite" => {
            let part = v1::SiteFilePart {
                name: "site.yaml".into(),
                data: b"#".to_vec(),
            };
            v1::PlanSiteRequest { part: Some(part) }.encode_to_vec()
        }
        LASTS => v1::WaitOperationRequest {
            name: "operations/o1".into(),
            timeout: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
        }
        .encode_to_vec(),
        other => panic!("say here how a call of {other} stays open, and whether it is one of agents"),
    }
}

/// A lab with all resources that open calls need, and the task that ends grants.
async fn open_lab() -> TestCore {
    let core = lab().await;
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    let mut tx = core.store.write().await.unwrap();
    tx.insert_operation(&OperationRow {
        id: "o1".into(),
        kind: OperationKind::Power,
        target: "nodes/n1".into(),
        ..OperationRow::default()
    })
    .await
    .unwrap();
    tx.insert_upload(&UploadRow {
        id: "u1".into(),
        image_id: "i1".into(),
        owner: "oscar".into(),
        key: "k".into(),
        body: UploadBody {
            size_bytes: 100,
            ..UploadBody::default()
        },
        operation: None,
        created_at: clock::now(),
    })
    .await
    .unwrap();
    core.commit(tx).await.unwrap();
    tokio::spawn(rights::run(Arc::clone(&core)));
    core
}

/// Calls a method as a member. Returns the code that ends the call.
async fn call(core: Arc<Core>, member: &str, method: &str) -> Code {
    let message = opening(method);
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    let first = tokio_stream::once(Ok::<_, Infallible>(framed));
    let body = match method {
        // The client's stream ends.
        "EventService/StreamEvents"
        | "NodeService/WatchNodes"
        | "ConsoleService/ReadConsoleLog"
        | "AuditService/StreamAudit"
        | LASTS => RequestBody::from_stream(first),
        // The client's stream stays open.
        _ => RequestBody::from_stream(first.chain(tokio_stream::pending())),
    };
    let request = Request::post(format!("/rackwright.v1.{method}"))
        .header("content-type", "application/grpc")
        .extension(ClientIdentity::member(member, 0).unwrap())
        .body(body)
        .unwrap();
    let services = Granted::new(crate::routes(&core), core);
    let response = services.oneshot(request).await.unwrap();
    let code = |headers: &HeaderMap| headers.get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()));
    if let Some(code) = code(response.headers()) {
        return code;
    }
    let mut body = response.into_body();
    loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let frame = frame.expect("trailers come last").unwrap();
        if let Some(code) = frame.trailers_ref().and_then(code) {
            return code;
        }
    }
}

/// One open call of a member on every method that stays open.
async fn all_open(core: &Arc<Core>, member: &'static str) -> Vec<(String, tokio::task::JoinHandle<Code>)> {
    let mut methods = streaming();
    methods.push(LASTS.to_owned());
    methods.retain(|method| !method.starts_with("AgentService/") && !NOT_OPENED.contains(&method.as_str()));
    let mut calls = Vec::new();
    for method in methods {
        let (core, named) = (core.clone(), method.clone());
        let call = tokio::spawn(async move { call(core, member, &named).await });
        calls.push((method, call));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for (method, call) in &calls {
        assert!(!call.is_finished(), "{method} did not stay open");
    }
    calls
}

#[tokio::test]
async fn all_that_is_open_ends_when_the_member_is_deleted_or_revoked() {
    for is_deleted in [true, false] {
        let core = open_lab().await;
        join(&core, "oscar", "operator", "").await;
        let calls = all_open(&core, "oscar").await;
        let mut tx = core.store.write().await.unwrap();
        match is_deleted {
            true => tx.delete_member("oscar").await.unwrap(),
            false => tx.revoke_member("oscar", 5).await.unwrap(),
        }
        core.commit(tx).await.unwrap();
        for (method, call) in calls {
            let ended = tokio::time::timeout(AT_ONCE, call).await;
            let code = ended.unwrap_or_else(|_| panic!("{method} goes on")).unwrap();
            let is_refused = matches!(code, Code::Unauthenticated | Code::Aborted);
            assert!(is_refused, "{method}: {code:?}");
        }
    }
}

#[tokio::test]
async fn all_that_is_open_ends_when_the_role_gives_less_and_not_when_it_gives_more() {
    let core = open_lab().await;
    join(&core, "oscar", "operator", "").await;
    join(&core, "vera", "viewer", "").await;
    let less = all_open(&core, "oscar").await;
    let more = tokio::spawn(call(Arc::clone(&core), "vera", "EventService/StreamEvents"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut tx = core.store.write().await.unwrap();
    tx.set_member_role("oscar", "viewer").await.unwrap();
    tx.set_member_role("vera", "operator").await.unwrap();
    core.commit(tx).await.unwrap();
    for (method, call) in less {
        let ended = tokio::time::timeout(AT_ONCE, call).await;
        let code = ended.unwrap_or_else(|_| panic!("{method} goes on")).unwrap();
        let is_refused = matches!(code, Code::PermissionDenied | Code::Aborted);
        assert!(is_refused, "{method}: {code:?}");
    }
    assert!(!more.is_finished());
}

#[tokio::test]
async fn another_replicas_change_ends_what_is_open_here() {
    tokio::time::pause();
    let core = open_lab().await;
    join(&core, "oscar", "operator", "").await;
    let open = tokio::spawn(call(Arc::clone(&core), "oscar", "EventService/StreamEvents"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut tx = core.store.write().await.unwrap();
    tx.delete_member("oscar").await.unwrap();
    // Bypasses `Core::commit`, like another process.
    tx.commit().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), open).await;
    assert_eq!(ended.unwrap().unwrap(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_grant_ends_with_its_certificate_and_leaves_nothing_behind() {
    tokio::time::pause();
    let core = testing::core().await;
    let soon = clock::now().plus(rackwright_lifecycle::seconds(2));
    let grant = core.rights.open("ann", 1, Some(soon));
    let ended = tokio::time::timeout(Duration::from_secs(3), grant.ended()).await;
    assert_eq!(ended.unwrap(), End::Expired);
    let lasting = core.rights.open("ann", 1, None);
    let ended = lasting.ended();
    assert_eq!(core.rights.count(), 2);
    drop((grant, lasting));
    assert_eq!(core.rights.count(), 0);
    let waited = tokio::time::timeout(Duration::from_secs(60), ended).await;
    assert!(waited.is_err(), "nobody ended it");
}
