//! Tests of the calls that members of customers may make, with the served stack of services but without connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::operation_service_client::OperationServiceClient;
use rackwright_api::{DESCRIPTORS, v1};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::testing::TestCore;
use rackwright_identity::ClientIdentity;
use rackwright_store::{MemberRow, Scope, Term};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tonic::client::GrpcService;
use tonic::{Code, Response, Status};
use tower::ServiceExt as _;

use crate::feature_tests::clusters::{build, hall, names};
use crate::test_calls::OPEN;

mod power;

/// Calls of customer users. All other calls are refused to them, including new ones.
const USERS: &[&str] = &[
    "AuthService/RenewCredential",
    "AuthService/WhoAmI",
    "ClusterService/GetCapacity",
    "ClusterService/GetCluster",
    "ClusterService/GetHandoverPack",
    "ClusterService/ListClusters",
    "ClusterService/ReimageCluster",
    "ClusterService/ResumeClusterReimage",
    "ClusterService/RollBackCluster",
    "ConsoleService/AddSshKey",
    "ConsoleService/AttachConsole",
    "ConsoleService/CreateConsoleToken",
    "ConsoleService/ListConsoleBoots",
    "ConsoleService/ListSshKeys",
    "ConsoleService/ReadConsoleLog",
    "ConsoleService/RemoveSshKey",
    "EventService/StreamEvents",
    "FirmwareService/GetMaintenanceWindow",
    "FirmwareService/SetMaintenanceWindow",
    "ImageService/GetImage",
    "ImageService/ListImages",
    "NodeService/GetNode",
    "NodeService/ListNodes",
    "NodeService/ListReports",
    "NodeService/ReimageNode",
    "NodeService/SetNodePower",
    "NodeService/SummarizeFleet",
    "NodeService/WatchNodes",
    "OperationService/GetOperation",
    "OperationService/ListOperations",
    "OperationService/WaitOperation",
];
/// Further calls of customer admins.
const ADMINS: &[&str] = &[
    "AuthService/CreateToken",
    "AuthService/DeleteMember",
    "AuthService/DeleteToken",
    "AuthService/ListMembers",
    "AuthService/ListTokens",
    "AuthService/RevokeMember",
    "AuthService/SetMemberRole",
    "ClusterService/ReleaseCluster",
    "MeteringService/ListUsage",
    "MeteringService/ListUsageBreaches",
    "MeteringService/SumUsage",
];
/// Calls of auditors.
const AUDITORS: &[&str] = &[
    "AuditService/ListAudit",
    "AuditService/StreamAudit",
    "AuthService/ListMembers",
    "AuthService/RenewCredential",
    "AuthService/WhoAmI",
    "EventService/StreamEvents",
];
/// Calls of every member, about its own logins.
const OWN: &[&str] = &[
    "SessionService/CreateApiKey",
    "SessionService/CreateLoginToken",
    "SessionService/DeleteApiKey",
    "SessionService/EndSession",
    "SessionService/ListApiKeys",
    "SessionService/ListSessions",
];

/// A client that calls the services as a member.
macro_rules! as_member {
    ($client:ident, $core:expr, $name:expr) => {
        $client::new(as_member($core, $name))
    };
}

/// The services, called by a member of epoch 0.
pub(super) fn as_member(
    core: &Arc<Core>,
    name: &str,
) -> impl GrpcService<tonic::body::Body, ResponseBody = tonic::body::Body, Error = std::convert::Infallible, Future: Send>
+ use<> {
    as_identity(core, ClientIdentity::member(name, 0).unwrap())
}

/// The services, called with the certificate of a credential.
fn as_holder(
    core: &Arc<Core>,
    credential: &v1::Credential,
) -> impl GrpcService<tonic::body::Body, ResponseBody = tonic::body::Body, Error = std::convert::Infallible, Future: Send>
+ use<> {
    let leaf = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap();
    as_identity(core, rackwright_identity::identify(&leaf).unwrap())
}

pub(super) fn as_identity(
    core: &Arc<Core>,
    identity: ClientIdentity,
) -> impl GrpcService<tonic::body::Body, ResponseBody = tonic::body::Body, Error = std::convert::Infallible, Future: Send>
+ use<> {
    super::routes(core).map_request(move |mut request: http::Request<tonic::body::Body>| {
        request.extensions_mut().insert(identity.clone());
        request
    })
}

pub(super) async fn join(core: &Core, name: &str, role: &str, customer: &'static str) {
    let row = MemberRow {
        role: role.into(),
        customer: customer.into(),
    };
    let mut tx = core.store.write().await.unwrap();
    assert!(tx.put_member(name, &row, 0, clock::now()).await.unwrap().is_some());
    tx.commit().await.unwrap();
}

/// A hall with a cluster for each of two customers, and members: acme's admin "adam" and user "ann", the site's "olga"
/// and viewer "vera".
pub(super) async fn lab() -> TestCore {
    let core = hall(32, "").await;
    build(&core, "alpha", "acme", 4).await;
    build(&core, "beta", "bolt", 3).await;
    join(&core, "adam", "customer-admin", "acme").await;
    join(&core, "ann", "customer-user", "acme").await;
    join(&core, "olga", "operator", "").await;
    join(&core, "vera", "viewer", "").await;
    core
}

pub(super) fn mutation(key: &str) -> Option<v1::Mutation> {
    Some(v1::Mutation {
        idempotency_key: key.into(),
        ..v1::Mutation::default()
    })
}

/// All calls as "Service/Method".
pub(super) fn methods() -> Vec<String> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let ours = set.file.iter().filter(|file| file.package() == "rackwright.v1");
    let services = ours.flat_map(|file| &file.service);
    let names = services.flat_map(|s| s.method.iter().map(move |m| format!("{}/{}", s.name(), m.name())));
    names.collect()
}

/// The answer to an empty message to a method.
async fn call_empty(core: &Arc<Core>, member: &str, method: &str) -> Result<(), Status> {
    call_empty_as(core, ClientIdentity::member(member, 0).unwrap(), method).await
}

/// The answer to an empty message, sent with any certificate.
pub(super) async fn call_empty_as(core: &Arc<Core>, identity: ClientIdentity, method: &str) -> Result<(), Status> {
    let request = http::Request::post(format!("/rackwright.v1.{method}"))
        .header("content-type", "application/grpc")
        .extension(identity)
        .body(axum::body::Body::from(vec![0; 5]))
        .unwrap();
    let response = super::routes(core).oneshot(request).await.unwrap();
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn unlisted_calls_are_refused_to_customers_and_auditors() {
    let core = lab().await;
    join(&core, "audrey", "auditor", "").await;
    let all = methods();
    for listed in [USERS, ADMINS, AUDITORS, OWN, OPEN].concat() {
        assert!(all.iter().any(|method| method == listed), "there is no {listed}");
    }
    for (member, role, allowed) in [
        ("ann", "a customer user", [USERS, OWN].concat()),
        ("adam", "a customer admin", [USERS, ADMINS, OWN].concat()),
        ("audrey", "an auditor", [AUDITORS, OWN].concat()),
    ] {
        for method in all.iter().filter(|method| !OPEN.contains(&method.as_str())) {
            let answer = call_empty(&core, member, method).await;
            let refusal = answer.err().filter(|status| status.code() == Code::PermissionDenied);
            assert_eq!(
                refusal.is_none(),
                allowed.contains(&method.as_str()),
                "{method}: {refusal:?}"
            );
            if let Some(refusal) = refusal.filter(|_| !method.starts_with("AgentService/")) {
                assert!(refusal.message().contains(role), "{method}: {refusal:?}");
            }
        }
    }
    // A role with a customer that does not fit grants no access.
    join(&core, "eve", "customer-user", "").await;
    join(&core, "mallory", "operator", "acme").await;
    for member in ["eve", "mallory", "nobody"] {
        let answer = call_empty(&core, member, "AuthService/WhoAmI").await;
        assert_eq!(answer.unwrap_err().code(), Code::Unauthenticated, "{member}");
    }
    let reimage = call_empty(&core, "vera", "NodeService/ReimageNode").await.unwrap_err();
    assert_eq!(reimage.code(), Code::PermissionDenied);
    for method in ["AuditService/ListAudit", "AuditService/StreamAudit"] {
        let audit = call_empty(&core, "vera", method).await.unwrap_err();
        assert_eq!(audit.code(), Code::PermissionDenied, "{method}");
    }
}

/// Another name of the same length.
fn missing(name: &str) -> String {
    let (collection, id) = name.split_once('/').unwrap();
    format!("{collection}/{}", "9".repeat(id.len()))
}

/// Checks that another customer's resource is refused exactly like a missing one, to the last byte.
#[track_caller]
fn same<T: std::fmt::Debug>(name: &str, others: Result<Response<T>, Status>, absent: Result<Response<T>, Status>) {
    let (others, absent) = (others.unwrap_err(), absent.unwrap_err());
    assert_eq!(others.code(), Code::NotFound, "{name}: {others:?}");
    let plain = |status: &Status, name: &str| {
        let id = name.split_once('/').unwrap().1.to_owned();
        let details = String::from_utf8_lossy(status.details()).replace(&id, "X");
        (status.code(), status.message().replace(&id, "X"), details)
    };
    assert_eq!(plain(&others, name), plain(&absent, &missing(name)));
}

fn reimage(name: &str, key: &str) -> v1::ReimageNodeRequest {
    v1::ReimageNodeRequest {
        name: name.into(),
        deployment: Some(v1::Deployment {
            image: "images/noble".into(),
            ..v1::Deployment::default()
        }),
        mutation: mutation(key),
    }
}

/// The operation on this target.
async fn operation_on(core: &Core, target: &str) -> String {
    let on_target = vec![Term::is("target", target)];
    let rows = core.store.operations(&Scope::Site, &on_target, "", 1).await.unwrap();
    format!("operations/{}", rows[0].id)
}

async fn others_nodes(core: &Arc<Core>, member: &str, node: &str) {
    let none = missing(node);
    let mut nodes = as_member!(NodeServiceClient, core, member);
    let get = |name: &str| v1::GetNodeRequest {
        name: name.into(),
        read_mask: None,
    };
    same(node, nodes.get_node(get(node)).await, nodes.get_node(get(&none)).await);
    let list = |parent: &str| v1::ListReportsRequest {
        parent: parent.into(),
        ..v1::ListReportsRequest::default()
    };
    same(
        node,
        nodes.list_reports(list(node)).await,
        nodes.list_reports(list(&none)).await,
    );
    let (others, absent) = (
        reimage(node, &format!("{member}1")),
        reimage(&none, &format!("{member}2")),
    );
    same(node, nodes.reimage_node(others).await, nodes.reimage_node(absent).await);
}

async fn others_clusters(core: &Arc<Core>, member: &str) {
    let mut clusters = as_member!(ClusterServiceClient, core, member);
    let (cluster, none) = ("clusters/beta", &missing("clusters/beta"));
    let get = |name: &str| v1::GetClusterRequest { name: name.into() };
    same(
        cluster,
        clusters.get_cluster(get(cluster)).await,
        clusters.get_cluster(get(none)).await,
    );
    let pack = |name: &str| v1::GetHandoverPackRequest { name: name.into() };
    let (others, absent) = (
        clusters.get_handover_pack(pack(cluster)).await,
        clusters.get_handover_pack(pack(none)).await,
    );
    same(cluster, others, absent);
    for name in ["bolt", "none"] {
        let asked = v1::GetCapacityRequest { customer: name.into() };
        let refused = clusters.get_capacity(asked).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(!refused.message().contains(name));
    }
}

async fn others_operations(core: &Arc<Core>, member: &str) {
    let mut operations = as_member!(OperationServiceClient, core, member);
    let operation = operation_on(core, "clusters/beta").await;
    let none = missing(&operation);
    let get = |name: &str| v1::GetOperationRequest { name: name.into() };
    same(
        &operation,
        operations.get_operation(get(&operation)).await,
        operations.get_operation(get(&none)).await,
    );
    let wait = |name: &str| v1::WaitOperationRequest {
        name: name.into(),
        timeout: None,
    };
    same(
        &operation,
        operations.wait_operation(wait(&operation)).await,
        operations.wait_operation(wait(&none)).await,
    );
}

#[tokio::test]
async fn resources_of_others_are_not_found() {
    let core = lab().await;
    let node = format!("nodes/{}", names(&core, "beta").await.first().unwrap());
    for member in ["ann", "adam"] {
        others_nodes(&core, member, &node).await;
        others_clusters(&core, member).await;
        others_operations(&core, member).await;
    }
    let mut clusters = as_member!(ClusterServiceClient, &core, "adam");
    let release = |name: &str, key: &str| v1::ReleaseClusterRequest {
        name: name.into(),
        mutation: mutation(key),
    };
    let none = missing("clusters/beta");
    let (others, absent) = (release("clusters/beta", "r1"), release(&none, "r2"));
    same(
        "clusters/beta",
        clusters.release_cluster(others).await,
        clusters.release_cluster(absent).await,
    );
}

#[tokio::test]
async fn lists_and_streams_hold_what_is_theirs() {
    let core = lab().await;
    let own: BTreeSet<String> = names(&core, "alpha").await;
    let mut nodes = as_member!(NodeServiceClient, &core, "ann");
    let listed = nodes
        .list_nodes(v1::ListNodesRequest::default())
        .await
        .unwrap()
        .into_inner();
    let ids: BTreeSet<String> = listed
        .nodes
        .iter()
        .map(|n| n.name["nodes/".len()..].to_owned())
        .collect();
    assert_eq!(ids, own);
    assert!(listed.nodes.iter().all(|n| n.spec.as_ref().unwrap().bmc.is_none()));
    let by_label = v1::ListNodesRequest {
        filter: "labels.rack = r1".into(),
        ..v1::ListNodesRequest::default()
    };
    let refused = nodes.list_nodes(by_label).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let mut watch = nodes
        .watch_nodes(v1::WatchNodesRequest::default())
        .await
        .unwrap()
        .into_inner();
    let mut seen = BTreeSet::new();
    while let Some(received) = watch.message().await.unwrap().filter(|received| !received.synced) {
        seen.insert(received.node.unwrap().name["nodes/".len()..].to_owned());
    }
    assert_eq!(seen, own);

    let mut clusters = as_member!(ClusterServiceClient, &core, "ann");
    let listed = clusters
        .list_clusters(v1::ListClustersRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        listed.clusters.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        ["clusters/alpha"]
    );
    let mut operations = as_member!(OperationServiceClient, &core, "ann");
    let listed = operations
        .list_operations(v1::ListOperationsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        listed.operations.iter().map(|o| o.target.as_str()).collect::<Vec<_>>(),
        ["clusters/alpha"]
    );
    let mut images = as_member!(ImageServiceClient, &core, "ann");
    let listed = images
        .list_images(v1::ListImagesRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.images.len(), 2);
}

#[tokio::test]
async fn customer_events_name_no_other_customer() {
    let core = lab().await;
    let own: BTreeSet<String> = names(&core, "alpha").await;
    let others = names(&core, "beta").await;
    let all = v1::StreamEventsRequest {
        until_now: true,
        ..v1::StreamEventsRequest::default()
    };
    let mut events = as_member!(EventServiceClient, &core, "ann")
        .stream_events(all)
        .await
        .unwrap()
        .into_inner();
    let mut received = Vec::new();
    while let Some(event) = events.message().await.unwrap() {
        received.push(event);
    }
    assert!(
        received.iter().any(|event| event.target == "clusters/alpha"),
        "{received:?}"
    );
    for event in received {
        let is_own = event.target == "clusters/alpha" || own.iter().any(|id| event.target == format!("nodes/{id}"));
        assert!(is_own, "{event:?}");
        let text = format!("{event:?}");
        assert!(
            !others.iter().any(|id| text.contains(id.as_str())) && !text.contains("bolt"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn customers_reimage_and_release_what_is_theirs() {
    let core = lab().await;
    let id = names(&core, "alpha").await.first().unwrap().clone();
    let node = format!("nodes/{id}");
    let mut nodes = as_member!(NodeServiceClient, &core, "ann");
    let refused = nodes.reimage_node(reimage(&node, "k0")).await.unwrap_err();
    assert_eq!(
        refused.code(),
        Code::FailedPrecondition,
        "the cluster reimages its nodes"
    );
    assert!(refused.message().contains("alpha"), "{refused:?}");
    let mut tx = core.store.write().await.unwrap();
    let mut single = tx
        .node(&rackwright_lifecycle::NodeId::stored(id.as_str()))
        .await
        .unwrap();
    single.node.claim.as_mut().unwrap().cluster = None;
    tx.save_node(&mut single, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    let mut stolen = reimage(&node, "k1");
    stolen.deployment.as_mut().unwrap().customer = "bolt".into();
    assert_eq!(
        nodes.reimage_node(stolen).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    let operation = nodes.reimage_node(reimage(&node, "k2")).await.unwrap().into_inner();
    assert_eq!(
        (operation.target.as_str(), operation.requested_by.as_str()),
        (node.as_str(), "ann")
    );
    let mut operations = as_member!(OperationServiceClient, &core, "ann");
    let get = v1::GetOperationRequest {
        name: operation.name.clone(),
    };
    assert_eq!(
        operations.get_operation(get).await.unwrap().into_inner().name,
        operation.name
    );
    let again = nodes.reimage_node(reimage(&node, "k2")).await.unwrap().into_inner();
    assert_eq!(again.name, operation.name, "the same request is answered again");

    let release = |key: &str| v1::ReleaseClusterRequest {
        name: "clusters/alpha".into(),
        mutation: mutation(key),
    };
    let refused = as_member!(ClusterServiceClient, &core, "ann")
        .release_cluster(release("k3"))
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let released = as_member!(ClusterServiceClient, &core, "adam")
        .release_cluster(release("k4"))
        .await;
    assert_eq!(released.unwrap().into_inner().target, "clusters/alpha");
    let pack = v1::GetHandoverPackRequest {
        name: "clusters/beta".into(),
    };
    assert!(
        as_member!(ClusterServiceClient, &core, "olga")
            .get_handover_pack(pack)
            .await
            .is_ok()
    );
}

fn invitation(member: &str, role: v1::Role, customer: &str, key: &str) -> v1::CreateTokenRequest {
    v1::CreateTokenRequest {
        member: member.into(),
        role: role.into(),
        lifetime: None,
        mutation: mutation(key),
        customer: customer.into(),
    }
}

#[tokio::test]
async fn a_member_is_of_the_site_or_of_one_customer_of_it() {
    use v1::Role::{CustomerUser, Operator, Viewer};
    let core = lab().await;
    let mut operator = as_member!(AuthServiceClient, &core, "olga");
    for (n, (role, customer)) in [
        (CustomerUser, ""),
        (CustomerUser, "nobody"),
        (Viewer, "acme"),
        (Operator, "bolt"),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = operator
            .create_token(invitation("bea", role, customer, &format!("a{n}")))
            .await;
        assert_eq!(
            refused.unwrap_err().code(),
            Code::InvalidArgument,
            "{role:?} {customer}"
        );
    }
    // Names in use: by a member of the site, and by a member of another customer.
    for (n, (member, role, customer)) in [
        ("vera", CustomerUser, "acme"),
        ("ann", CustomerUser, "bolt"),
        ("ann", Viewer, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = operator
            .create_token(invitation(member, role, customer, &format!("b{n}")))
            .await;
        assert_eq!(refused.unwrap_err().code(), Code::AlreadyExists, "{member} {customer}");
    }
}

#[tokio::test]
async fn a_customers_admin_invites_members_of_the_customer_alone() {
    use v1::Role::{CustomerAdmin, CustomerUser, Operator, Viewer};
    let core = lab().await;
    let mut operator = as_member!(AuthServiceClient, &core, "olga");
    let mut admin = as_member!(AuthServiceClient, &core, "adam");
    for (n, (member, role, customer)) in [
        ("bob", CustomerUser, "acme"),
        ("bob@bolt", CustomerUser, ""),
        ("@acme", CustomerUser, ""),
        ("bob@x@acme", CustomerUser, ""),
        ("bob@acme", CustomerUser, "bolt"),
        ("bob@acme", Operator, ""),
        ("bob@acme", Viewer, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = admin
            .create_token(invitation(member, role, customer, &format!("c{n}")))
            .await;
        assert_eq!(
            refused.unwrap_err().code(),
            Code::InvalidArgument,
            "{member} {role:?} {customer}"
        );
    }
    let made = admin
        .create_token(invitation("bob@acme", CustomerAdmin, "", "d"))
        .await
        .unwrap()
        .into_inner();
    let redeem = |token: String| v1::RedeemTokenRequest { token, csr_pem: csr() };
    let credential = admin.redeem_token(redeem(made.token)).await.unwrap().into_inner();
    assert_eq!(
        (credential.role(), credential.customer.as_str()),
        (CustomerAdmin, "acme")
    );
    let mut bob = AuthServiceClient::new(as_holder(&core, &credential));
    let me = bob.who_am_i(v1::WhoAmIRequest {}).await.unwrap().into_inner();
    assert_eq!((me.role(), me.customer.as_str()), (CustomerAdmin, "acme"));
    let renewed = bob
        .renew_credential(v1::RenewCredentialRequest { csr_pem: csr() })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((renewed.role(), renewed.customer.as_str()), (CustomerAdmin, "acme"));

    // Between the token and its use, the name is given to another member.
    let made = operator
        .create_token(invitation("zoe", CustomerUser, "acme", "e"))
        .await
        .unwrap()
        .into_inner();
    join(&core, "zoe", "customer-user", "bolt").await;
    let refused = operator.redeem_token(redeem(made.token)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

fn csr() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    request.pem().unwrap()
}

#[tokio::test]
async fn capacity_is_what_would_be_placed_and_names_nobody() {
    let core = lab().await;
    let ask = |customer: &str| v1::GetCapacityRequest {
        customer: customer.into(),
    };
    let capacity = as_member!(ClusterServiceClient, &core, "ann")
        .get_capacity(ask(""))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(capacity.customer, "acme");
    let [sku] = &capacity.skus[..] else {
        panic!("{capacity:?}")
    };
    assert_eq!(
        (sku.sku.as_str(), sku.free_nodes, sku.bare_metal),
        ("dgx-h100", 25, true)
    );
    let text = format!("{capacity:?}");
    assert!(!text.contains("bolt") && !text.contains("beta"), "{text}");
    let classes: Vec<&str> = sku.fabrics.iter().map(|f| f.bandwidth.as_str()).collect();
    assert_eq!(classes, ["non-blocking", "best-effort"]);

    let mut operator = as_member!(ClusterServiceClient, &core, "olga");
    assert_eq!(
        operator.get_capacity(ask("")).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    assert_eq!(
        operator.get_capacity(ask("nobody")).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    let same = operator.get_capacity(ask("acme")).await.unwrap().into_inner();
    assert_eq!(same.skus, capacity.skus);
    // A plan for the reported size succeeds, and one more node fails.
    for fabric in &sku.fabrics {
        let most = fabric.largest_cluster_nodes;
        assert!(most > 0 && most <= sku.free_nodes, "{fabric:?}");
        let plan = |nodes: u32| v1::PlanClusterRequest {
            cluster_id: String::new(),
            spec: Some(v1::ClusterSpec {
                customer: "acme".into(),
                sku: "dgx-h100".into(),
                nodes,
                bandwidth: fabric.bandwidth.clone(),
                ..v1::ClusterSpec::default()
            }),
        };
        assert!(
            operator.plan_cluster(plan(most)).await.unwrap().into_inner().fits,
            "{fabric:?}"
        );
        assert!(
            !operator.plan_cluster(plan(most + 1)).await.unwrap().into_inner().fits,
            "{fabric:?}"
        );
    }
}
