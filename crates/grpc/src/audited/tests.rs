use std::sync::Arc;

use axum::http;
use rackwright_api::v1;
use rackwright_ground::testing;
use rackwright_identity::{AuditRecord, ClientIdentity};
use rackwright_store::AuditFilter;
use tower::ServiceExt as _;

use super::super::tenancy::{join, methods, mutation};
use super::*;

async fn called(core: &Arc<Core>, member: &str, method: &str, message: &impl prost::Message) -> Status {
    let bytes = message.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    body.extend(bytes);
    let request = http::Request::post(format!("/rackwright.v1.{method}"))
        .header("content-type", "application/grpc")
        .header("user-agent", "test/1")
        .extension(ClientIdentity::member(member, 0).unwrap())
        .body(Body::new(axum::body::Body::from(body)))
        .unwrap();
    let audited = Audited {
        core: core.clone(),
        services: super::super::routes(core),
    };
    let response = audited.oneshot(request).await.unwrap();
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok(""))
}

async fn records(core: &Core) -> Vec<AuditRecord> {
    let rows = core.store.audit(&AuditFilter::default(), 0, 1000).await.unwrap();
    rows.iter()
        .map(|row| AuditRecord::decode(&row.record).unwrap())
        .collect()
}

fn password(key: &str) -> v1::AddFactoryCredentialRequest {
    v1::AddFactoryCredentialRequest {
        pattern: "acme*".into(),
        username: "admin".into(),
        password: "hunter2".into(),
        mutation: mutation(key),
        ..v1::AddFactoryCredentialRequest::default()
    }
}

#[tokio::test]
async fn a_change_has_one_record_without_secrets_and_so_has_a_repeat_and_a_refusal() {
    let core = testing::core().await;
    join(&core, "olga", "operator", "").await;
    join(&core, "vera", "viewer", "").await;
    let method = "CredentialService/AddFactoryCredential";
    assert_eq!(called(&core, "olga", method, &password("a")).await.code(), Code::Ok);
    assert_eq!(
        called(&core, "olga", method, &password("a")).await.code(),
        Code::Ok,
        "a repeat"
    );
    assert_eq!(
        called(&core, "vera", method, &password("b")).await.code(),
        Code::PermissionDenied
    );
    let records = records(&core).await;
    let recorded: Vec<_> = records
        .iter()
        .map(|r| {
            (
                r.caller.as_str(),
                r.role.as_str(),
                r.outcome.as_str(),
                r.client.as_str(),
            )
        })
        .collect();
    assert_eq!(
        recorded,
        [
            ("members/olga", "operator", "OK", "test/1"),
            ("members/olga", "operator", "OK", "test/1"),
            ("members/vera", "viewer", "PERMISSION_DENIED", "test/1"),
        ]
    );
    for record in &records {
        assert!(record.request.contains("acme*"), "{record:?}");
        assert!(!record.encode().contains("hunter2"), "{record:?}");
    }
    let (head, _) = core.store.audit_head().await.unwrap();
    assert_eq!(core.audit.newest().map(|head| head.position), u64::try_from(head).ok());
}

#[tokio::test]
async fn plain_reads_are_not_recorded_and_sensitive_ones_are() {
    let core = testing::core().await;
    join(&core, "olga", "operator", "").await;
    join(&core, "ann", "customer-user", "acme").await;
    called(&core, "olga", "NodeService/ListNodes", &v1::ListNodesRequest::default()).await;
    called(&core, "olga", "AuthService/WhoAmI", &v1::WhoAmIRequest::default()).await;
    assert!(records(&core).await.is_empty());
    called(
        &core,
        "olga",
        "AuthService/ListTokens",
        &v1::ListTokensRequest::default(),
    )
    .await;
    called(
        &core,
        "ann",
        "AuthService/ListTokens",
        &v1::ListTokensRequest::default(),
    )
    .await;
    called(
        &core,
        "ann",
        "BootService/ListUnknownMachines",
        &v1::ListUnknownMachinesRequest::default(),
    )
    .await;
    let records = records(&core).await;
    let recorded: Vec<_> = records
        .iter()
        .map(|r| (r.customer.as_str(), r.outcome.as_str()))
        .collect();
    assert_eq!(
        recorded,
        [("", "OK"), ("acme", "PERMISSION_DENIED"), ("acme", "PERMISSION_DENIED")]
    );
}

#[test]
fn a_method_whose_name_does_not_say_that_it_reads_is_recorded() {
    let all = methods();
    for listed in [SENSITIVE, RECORDED_SEPARATELY, QUESTIONS, AGENT_STREAMS].concat() {
        assert!(all.iter().any(|method| method == listed), "there is no {listed}");
    }
    for method in [
        "NewService/Change",
        "NodeService/Getter",
        "NodeService/HoldNode",
        "ConsoleService/AttachConsole",
    ] {
        assert_eq!(recorded(&format!("{OURS}{method}")), Recorded::WithChange, "{method}");
    }
    for method in [
        "NodeService/GetNode",
        "EventService/StreamEvents",
        "AgentService/ClaimChunks",
        "AgentService/Connect",
    ] {
        assert_eq!(recorded(&format!("{OURS}{method}")), Recorded::IfRefused, "{method}");
    }
    assert_eq!(recorded("/grpc.health.v1.Health/Check"), Recorded::IfRefused);
}
