//! Access to the API, and the rights of each role.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rackwright_api::v1;
use rackwright_identity::{ClientIdentity, ClientKey, KeyFiles, SystemRng};
use rackwright_lab as lab;
use rackwright_tests::site::Site;
use rcgen::{CertificateParams, KeyPair};
use tonic::Code;
use tonic::transport::{Channel, Identity};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::client::{Api, authority, fields, fresh, methods, refused, start};

/// Calls that change nothing: each new method without a Mutation must be added to one of these lists on purpose.
const READS: &[&str] = &[
    "BmcService/ListBmcLogEntries",
    "BootService/GetCounters",
    "BootService/ListUnknownMachines",
    "BootService/TraceBoot",
    "ClusterService/GetCapacity",
    "ClusterService/GetCluster",
    "ClusterService/GetHandoverPack",
    "ClusterService/ListClusters",
    "ClusterService/PlanCluster",
    "ClusterService/PlanClusterResize",
    "ControlService/GetControl",
    "CredentialService/ListFactoryCredentials",
    // The role decides about the right to type when the console is requested.
    "ConsoleService/AttachConsole",
    "ConsoleService/ListConsoleBoots",
    "ConsoleService/ListSshKeys",
    "ConsoleService/ReadConsoleLog",
    "DiscoveryService/GetDiscovery",
    "DiscoveryService/ListDiscoveries",
    "DiscoveryService/ListFindings",
    "EventService/StreamEvents",
    "FirmwareService/GetFirmwareReport",
    "FirmwareService/GetMaintenanceWindow",
    "FirmwareService/GetNodeFirmware",
    "FirmwareService/ListFirmware",
    "FirmwareService/ListGoldenFirmware",
    "ImageService/GetImage",
    "ImageService/GetImageSpread",
    "ImageService/GetUpload",
    "ImageService/ListImages",
    "MeteringService/ListTerms",
    "MeteringService/ListUsage",
    "MeteringService/ListUsageBreaches",
    "MeteringService/SumUsage",
    "NodeService/ExplainNode",
    "NodeService/GetNode",
    "NodeService/ListEraseCertificates",
    "NodeService/ListEraseChain",
    "NodeService/ListNodes",
    "NodeService/ListReports",
    "NodeService/SummarizeFleet",
    "NodeService/WatchNodes",
    "OperationService/GetOperation",
    "OperationService/ListOperations",
    "OperationService/WaitOperation",
    "PowerService/ExplainPower",
    "PowerService/GetPowerReport",
    "PowerService/ListAlarms",
    "SessionService/ListApiKeys",
    "SessionService/ListSessions",
    "SettingsService/GetNodeSettings",
    "SettingsService/ListSettingsDrift",
    "SiteService/GetSite",
    "SiteService/GetTopology",
    "SiteService/ListFabricFaults",
    "SiteService/PlanSite",
    "AuthService/ListMembers",
    "AuthService/ListTokens",
    "AuthService/WhoAmI",
];
/// About the caller's own credential.
const OWN: &[&str] = &["AuthService/RenewCredential"];
/// Changes of the caller's own logins.
const OWN_CHANGES: &[&str] = &[
    "SessionService/CreateApiKey",
    "SessionService/CreateLoginToken",
    "SessionService/DeleteApiKey",
    "SessionService/EndSession",
];
/// For callers without a certificate.
const OPEN: &[&str] = &[
    "AuthService/BeginDeviceLogin",
    "AuthService/FinishDeviceLogin",
    "AuthService/RedeemToken",
    "AgentService/Register",
    "ControlService/ProveDatabase",
    "SessionService/OpenSession",
];
/// For agents only.
const AGENTS: &[&str] = &["AgentService/ClaimChunks", "AgentService/Connect"];
/// For operators and auditors.
const AUDIT: &[&str] = &["AuditService/ListAudit", "AuditService/StreamAudit"];
/// Changes without a Mutation: a stream continues from its offset instead.
const STREAMED: &[&str] = &["FirmwareService/AddFirmware", "ImageService/WriteUpload"];

fn short(method: &crate::client::Method) -> String {
    let service = method.service.trim_start_matches("rackwright.v1.");
    format!("{service}/{}", method.name)
}

/// A key and a certificate request for it.
pub fn new_key() -> (KeyPair, String) {
    let key = KeyPair::generate().expect("a key can be made");
    let request = CertificateParams::default()
        .serialize_request(&key)
        .expect("a request can be made");
    (key, request.pem().expect("a request is PEM"))
}

#[test]
fn every_method_is_judged() {
    let listed: Vec<&str> = [READS, OWN, OPEN, AGENTS, AUDIT, STREAMED].concat();
    let mut judged: Vec<String> = listed.iter().map(|name| (*name).to_owned()).collect();
    let methods = methods();
    judged.extend(methods.iter().filter(|m| m.is_mutation).map(short));
    judged.sort();
    let mut all: Vec<String> = methods.iter().map(short).collect();
    all.sort();
    assert_eq!(
        judged, all,
        "each method (right) is either a mutation or in one of the lists (left)"
    );
    assert!(methods.iter().filter(|m| m.is_mutation).count() >= 17);
}

#[test]
fn the_services_describe_themselves() {
    lab::run_test("access::the_services_describe_themselves", async |namespace| {
        let (_lab, _site, api) = start(&namespace).await;
        let mut wanted: Vec<String> = methods().into_iter().map(|m| m.service).collect();
        wanted.dedup();
        assert!(wanted.len() >= 7, "{wanted:?}");

        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut reflection = ServerReflectionClient::new(api.channel.clone());
        let answer = reflection.server_reflection_info(tokio_stream::once(request)).await;
        let answer = answer.expect("reflection answers").into_inner().message().await;
        let answer = answer.expect("reflection answers").expect("reflection has an answer");
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("not a list: {answer:?}");
        };
        let listed: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
        for service in &wanted {
            assert!(listed.contains(service), "{service} is not in {listed:?}");
            let status = health(&api.channel, service).await;
            assert_eq!(status, Ok(ServingStatus::Serving), "{service}");
        }
        assert_eq!(
            health(&api.channel, "").await,
            Ok(ServingStatus::Serving),
            "the whole server"
        );
        // Each part of the daemon reports its health by name.
        for part in ["runner", "boot", "images", "API"] {
            let status = health(&api.channel, &format!("rackwright.parts/{part}")).await;
            assert_eq!(status, Ok(ServingStatus::Serving), "{part}");
        }
        assert_eq!(health(&api.channel, "rackwright.v1.NoSuch").await, Err(Code::NotFound));
    });
}

async fn health(channel: &Channel, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = HealthClient::new(channel.clone()).check(request).await;
    answer.map(|a| a.into_inner().status()).map_err(|s| s.code())
}

#[test]
fn only_members_are_let_in() {
    lab::run_test("access::only_members_are_let_in", async |namespace| {
        let (_lab, site, _operator) = start(&namespace).await;
        without_a_certificate(&site).await;
        with_a_foreign_certificate(&site, namespace.state_dir()).await;
        tokens_work_once(&site).await;
    });
}

async fn without_a_certificate(site: &Site) {
    let anonymous = Api::connect(&authority(&site.dir().join("cli")), None);
    for method in methods() {
        let answer = anonymous.call(&method.path(), Vec::new()).await;
        let status = answer.expect_err("an anonymous caller is answered");
        let name = short(&method);
        if name == "AgentService/Register" {
            assert_eq!(fields(&status), ["mac"], "{name} looks at the request: {status:?}");
            continue;
        }
        if name.ends_with("DeviceLogin") {
            let is_off = status.message().contains("no logins with a device code");
            assert!(
                is_off && status.code() == Code::FailedPrecondition,
                "{name}: {status:?}"
            );
            continue;
        }
        assert_eq!(status.code(), Code::Unauthenticated, "{name}: {status:?}");
        if name == "ControlService/ProveDatabase" {
            assert!(
                status.message().contains("proof"),
                "{name} looks at the request: {status:?}"
            );
            continue;
        }
        let about_the_token = status.message().contains("token");
        assert_eq!(about_the_token, OPEN.contains(&name.as_str()), "{name}: {status:?}");
    }
}

async fn with_a_foreign_certificate(site: &Site, dir: &Path) {
    let foreign = KeyFiles::load_or_create(&dir.join("foreign"), "Other", SystemTime::now(), Arc::new(SystemRng));
    let foreign = foreign.expect("another authority can be made");
    let (key, csr) = new_key();
    let operator = ClientIdentity::member("operator", 0).expect("a name");
    let hour = Duration::from_secs(3600);
    let client_key = ClientKey::of_request(&csr).expect("a key");
    let issued = foreign
        .authority
        .issue_client(&client_key, &operator, SystemTime::now(), hour);
    let issued = issued.expect("another authority issues what it likes");
    let identity = Identity::from_pem(issued.certificate_pem, key.serialize_pem());
    let stranger = Api::connect(&authority(&site.dir().join("cli")), Some(identity));
    for path in [
        "/rackwright.v1.AuthService/WhoAmI",
        "/rackwright.v1.AuthService/RedeemToken",
    ] {
        let status = stranger
            .call(path, Vec::new())
            .await
            .expect_err("a stranger is not answered");
        let story = format!("{status:?}");
        assert!(!story.contains("token"), "the call was looked at: {story}");
        // The server's answers have no local cause; a connection that the server ends has one.
        assert!(
            std::error::Error::source(&status).is_some(),
            "the server answered: {story}"
        );
    }
    let log = site.log_tail();
    assert!(!log.contains("panicked"), "{log}");
}

async fn tokens_work_once(site: &Site) {
    let printed = std::fs::read_to_string(site.dir().join("rackwrightd.out")).expect("rackwrightd has printed");
    let bootstrap = printed
        .split("--token ")
        .nth(1)
        .and_then(|t| t.split_whitespace().next());
    let bootstrap = bootstrap.expect("the first token was printed").to_owned();
    let anonymous = Api::connect(&authority(&site.dir().join("cli")), None);
    let redeem = |token: &str, csr_pem: String| v1::RedeemTokenRequest {
        token: token.to_owned(),
        csr_pem,
    };
    let answer = anonymous.auth().redeem_token(redeem(&bootstrap, new_key().1)).await;
    let status = refused(answer, Code::Unauthenticated);
    assert!(
        !format!("{status:?}").contains(&bootstrap),
        "the failure repeats the token"
    );

    let made = site.json(["token", "create", "guest", "--role", "viewer"]);
    let token = made["token"].as_str().expect("the answer holds a token").to_owned();
    // A request that cannot be answered does not use up the token.
    let broken = anonymous.auth().redeem_token(redeem(&token, "no request".into())).await;
    assert_eq!(fields(&refused(broken, Code::InvalidArgument)), ["csr_pem"]);
    let first = anonymous.auth().redeem_token(redeem(&token, new_key().1)).await;
    let first = first.expect("the token is good").into_inner();
    assert_eq!((first.member.as_str(), first.role()), ("guest", v1::Role::Viewer));
    let again = anonymous.auth().redeem_token(redeem(&token, new_key().1)).await;
    refused(again, Code::Unauthenticated);
}

#[test]
fn a_viewer_reads_and_changes_nothing() {
    lab::run_test("access::a_viewer_reads_and_changes_nothing", async |namespace| {
        let (_lab, site, operator) = start(&namespace).await;
        let home = site.viewer("guest");
        let viewer = Api::of_cli(&home);
        let me = viewer
            .auth()
            .who_am_i(v1::WhoAmIRequest {})
            .await
            .expect("a member")
            .into_inner();
        assert_eq!((me.member.as_str(), me.role()), ("guest", v1::Role::Viewer));
        for method in methods() {
            let name = short(&method);
            let code = viewer
                .call(&method.path(), Vec::new())
                .await
                .map_or_else(|s| s.code(), |_| Code::Ok);
            let is_own = OWN_CHANGES.contains(&name.as_str());
            let is_for_others =
                (method.is_mutation && !is_own) || [STREAMED, AGENTS, AUDIT].concat().contains(&name.as_str());
            if is_for_others {
                assert_eq!(code, Code::PermissionDenied, "{name}");
            } else if !OPEN.contains(&name.as_str()) {
                // Read, or refused with the missing thing: here, a site.
                let is_let_in = matches!(code, Code::Ok | Code::InvalidArgument | Code::FailedPrecondition);
                assert!(is_let_in, "{name}: {code:?}");
            }
        }
        promotion_counts_at_once(&operator, &viewer).await;
    });
}

/// The store's role counts, not the certificate's.
async fn promotion_counts_at_once(operator: &Api, viewer: &Api) {
    let request = v1::CreateTokenRequest {
        member: "guest".into(),
        role: v1::Role::Operator.into(),
        lifetime: None,
        mutation: fresh(),
        customer: String::new(),
    };
    refused(
        viewer.auth().create_token(request.clone()).await,
        Code::PermissionDenied,
    );
    let made = operator
        .auth()
        .create_token(request)
        .await
        .expect("an operator may")
        .into_inner();
    let redeem = v1::RedeemTokenRequest {
        token: made.token,
        csr_pem: new_key().1,
    };
    viewer.auth().redeem_token(redeem).await.expect("the token is good");
    let me = viewer
        .auth()
        .who_am_i(v1::WhoAmIRequest {})
        .await
        .expect("a member")
        .into_inner();
    assert_eq!(me.role(), v1::Role::Operator);
    let (_, csr_pem) = new_key();
    let renewed = viewer
        .auth()
        .renew_credential(v1::RenewCredentialRequest { csr_pem })
        .await;
    assert_eq!(renewed.expect("a member renews").into_inner().member, "guest");
}
