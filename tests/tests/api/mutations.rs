//! The common property of all changes: a key, and the effect of a repeat under that key.

use rackwright_api::v1;
use rackwright_lab as lab;
use rackwright_store::{Scope, Store};
use rackwright_tests::site::Site;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::client::{
    Api, enrolment, fields, fresh, hint, mask, methods, node, refused, seen, start, until_state, version,
};

/// The numbers of nodes, of operations, and of events that members caused.
pub async fn tally(site: &Site) -> (usize, usize, usize) {
    let store = Store::open(&site.dir().join("data/rackwright.db"))
        .await
        .expect("the database opens");
    let nodes = store
        .nodes(&Scope::Site, &Vec::new(), "", 1000)
        .await
        .expect("nodes are read")
        .len();
    let operations = store
        .operations(&Scope::Site, &Vec::new(), "", 1000)
        .await
        .expect("operations are read")
        .len();
    let events = store
        .events(&Scope::Site, 0, "", 10_000)
        .await
        .expect("events are read");
    store.close().await;
    let caused = events.iter().filter(|e| e.attributes.contains_key("by")).count();
    (nodes, operations, caused)
}

/// Sends the same request twice and expects one answer and one effect.
macro_rules! same_twice {
    ($api:expr, $site:expr, $service:ident.$method:ident, $request:expr) => {{
        let (api, site, request) = ($api, $site, $request);
        let first = api.$service().$method(request.clone()).await;
        let first = first
            .unwrap_or_else(|s| panic!("{}: {s:?}", stringify!($method)))
            .into_inner();
        let before = tally(site).await;
        let again = api.$service().$method(request).await;
        let again = again.unwrap_or_else(|s| panic!("{} again: {s:?}", stringify!($method)));
        assert_eq!(
            again.into_inner(),
            first,
            "{} again is answered otherwise",
            stringify!($method)
        );
        assert_eq!(tally(site).await, before, "{} again did something", stringify!($method));
        first
    }};
}

#[test]
fn every_change_needs_a_key_and_is_made_once() {
    lab::run_test(
        "mutations::every_change_needs_a_key_and_is_made_once",
        async |namespace| {
            let (_lab, site, api) = start(&namespace).await;
            for method in methods().iter().filter(|m| m.is_mutation) {
                let status = api
                    .call(&method.path(), Vec::new())
                    .await
                    .expect_err("a change without a key");
                assert_eq!(status.code(), Code::InvalidArgument, "{}: {status:?}", method.name);
                assert_eq!(fields(&status), ["mutation.idempotency_key"], "{}", method.name);
            }
            keys_are_text(&api).await;
            repeats_of_nodes(&api, &site).await;
            repeats_of_rests(&api, &site).await;
            repeats_of_bmc_work(&api, &site).await;
            repeats_of_terms(&api, &site).await;
            repeats_of_credentials(&api, &site).await;
            repeats_of_discoveries(&api, &site).await;
            repeats_of_firmware(&api, &site).await;
            reused_keys(&api, &site).await;
        },
    );
}

async fn keys_are_text(api: &Api) {
    for bad in ["é", "a\nb", &"k".repeat(129)] {
        let mut request = enrolment("n0", &[]);
        request.mutation.as_mut().expect("set").idempotency_key = bad.to_owned();
        let status = refused(api.nodes().enroll_node(request).await, Code::InvalidArgument);
        assert_eq!(fields(&status), ["mutation.idempotency_key"], "{bad:?}");
    }
}

async fn repeats_of_firmware(api: &Api, site: &Site) {
    let first = v1::AddFirmwareRequest {
        component: "BMC".into(),
        version: "1.2".into(),
        file_name: "bmc.bin".into(),
        // FIPS 180-4, the example of three letters.
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
        data: b"abc".to_vec(),
    };
    let added = api.firmware().add_firmware(tokio_stream::once(first.clone())).await;
    let added = added.expect("a file is added").into_inner();
    let again = api.firmware().add_firmware(tokio_stream::once(first.clone())).await;
    assert_eq!(again.expect("it is there").into_inner().name, added.name);
    let other = v1::AddFirmwareRequest {
        data: b"abd".to_vec(),
        ..first
    };
    let wrong = refused(
        api.firmware().add_firmware(tokio_stream::once(other)).await,
        Code::InvalidArgument,
    );
    assert_eq!(fields(&wrong), ["sha256"]);
    let remove = v1::RemoveFirmwareRequest {
        name: added.name,
        mutation: fresh(),
    };
    same_twice!(api, site, firmware.remove_firmware, remove);
    let update = v1::UpdateNodeFirmwareRequest {
        name: "nodes/n1".into(),
        mutation: fresh(),
    };
    let status = refused(
        api.firmware().update_node_firmware(update).await,
        Code::FailedPrecondition,
    );
    assert!(hint(&status).contains("firmware:"), "{status:?}");
    let window = v1::SetMaintenanceWindowRequest {
        window: Some(v1::MaintenanceWindow {
            target: "nodes/n1".into(),
            ..v1::MaintenanceWindow::default()
        }),
        mutation: fresh(),
    };
    refused(
        api.firmware().set_maintenance_window(window).await,
        Code::FailedPrecondition,
    );
}

async fn repeats_of_nodes(api: &Api, site: &Site) {
    // Labels have no order on the wire: a repeat may list them in another order.
    let labels: Vec<String> = (0..12).map(|i| format!("l{i}")).collect();
    let labels: Vec<(&str, &str)> = labels.iter().map(|l| (l.as_str(), "x")).collect();
    let enrolled = same_twice!(api, site, nodes.enroll_node, enrolment("n1", &labels));
    assert_eq!(
        (enrolled.kind.as_str(), enrolled.target.as_str()),
        ("enroll", "nodes/n1")
    );
    assert_eq!(enrolled.requested_by, "operator");
    let batch = v1::BatchEnrollNodesRequest {
        requests: vec![enrolment("n2", &labels), enrolment("n3", &labels)],
        mutation: fresh(),
    };
    assert_eq!(
        same_twice!(api, site, nodes.batch_enroll_nodes, batch).operations.len(),
        2
    );

    let mut changed = node(api, "n1").await;
    let metadata = changed.metadata.as_mut().expect("a node has metadata");
    metadata.labels.insert("l0".into(), "y".into());
    let update = v1::UpdateNodeRequest {
        mutation: seen(&metadata.resource_version),
        node: Some(changed),
        update_mask: mask(&["metadata.labels"]),
    };
    let updated = same_twice!(api, site, nodes.update_node, update.clone());
    assert_ne!(
        version(&updated),
        update.mutation.clone().expect("set").resource_version
    );

    let name = "nodes/n2".to_owned();
    let delete = v1::DeleteNodeRequest {
        name,
        mutation: fresh(),
    };
    same_twice!(api, site, nodes.delete_node, delete);
    let gone = v1::GetNodeRequest {
        name: "nodes/n2".into(),
        read_mask: None,
    };
    refused(api.nodes().get_node(gone).await, Code::NotFound);
    let invite = v1::CreateTokenRequest {
        member: "guest".into(),
        role: v1::Role::Viewer.into(),
        lifetime: None,
        mutation: fresh(),
        customer: String::new(),
    };
    // A secret is shown once: its answer is not stored.
    api.auth().create_token(invite.clone()).await.expect("a token is made");
    let before = tally(site).await;
    refused(api.auth().create_token(invite).await, Code::AlreadyExists);
    assert_eq!(tally(site).await, before);
}

async fn repeats_of_rests(api: &Api, site: &Site) {
    let (name, reason) = ("nodes/n3".to_owned(), "a fan is loud".to_owned());
    let hold = v1::HoldNodeRequest {
        name: name.clone(),
        reason,
        mutation: fresh(),
    };
    same_twice!(api, site, nodes.hold_node, hold);
    let held = until_state(api, "n3", v1::NodeState::Maintenance).await;
    assert_eq!(held.status.expect("a node has a status").reason, "a fan is loud");
    let power = v1::SetNodePowerRequest {
        name,
        action: v1::PowerAction::On.into(),
        mutation: fresh(),
    };
    let switched = same_twice!(api, site, nodes.set_node_power, power);
    let operation = v1::GetOperationRequest {
        name: switched.name.clone(),
    };
    let operation = api
        .operations()
        .get_operation(operation)
        .await
        .expect("it is kept")
        .into_inner();
    let cancel = v1::CancelOperationRequest {
        name: switched.name,
        mutation: seen(&operation.metadata.expect("it has metadata").resource_version),
    };
    assert!(same_twice!(api, site, operations.cancel_operation, cancel).cancel_requested);
}

async fn repeats_of_bmc_work(api: &Api, site: &Site) {
    let name = "nodes/n3".to_owned();
    let read = v1::ReadBmcLogRequest {
        name: name.clone(),
        mutation: fresh(),
    };
    assert_eq!(same_twice!(api, site, bmc.read_bmc_log, read).wanted, "read");
    let clear = v1::ClearBmcLogRequest {
        name: name.clone(),
        log: "SEL".into(),
        mutation: fresh(),
    };
    assert_eq!(same_twice!(api, site, bmc.clear_bmc_log, clear).wanted, "clear");
    let cycle = v1::AcCycleNodeRequest {
        name,
        force: true,
        mutation: fresh(),
    };
    assert_eq!(same_twice!(api, site, bmc.ac_cycle_node, cycle).wanted, "ac-cycle");
}

async fn repeats_of_terms(api: &Api, site: &Site) {
    let second = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let set = v1::SetTermRequest {
        term: Some(v1::Term {
            name: "terms/t1".into(),
            customer: "acme".into(),
            sku: "h100".into(),
            nodes: 2,
            start_time: second(1_790_812_800),
            end_time: second(1_822_348_800),
            metadata: None,
        }),
        mutation: fresh(),
    };
    let term = same_twice!(api, site, metering.set_term, set);
    let listed = api.metering().list_terms(v1::ListTermsRequest::default()).await;
    assert_eq!(
        listed.expect("an operator reads").into_inner().terms,
        std::slice::from_ref(&term)
    );
    let delete = v1::DeleteTermRequest {
        name: "terms/t1".into(),
        mutation: seen(&term.metadata.expect("a term has metadata").resource_version),
    };
    same_twice!(api, site, metering.delete_term, delete);
    let none = v1::SumUsageRequest {
        start_time: second(0),
        ..Default::default()
    };
    let sums = api.metering().sum_usage(none).await.expect("an operator reads");
    assert_eq!(sums.into_inner().sums, [], "nothing was handed over");
}

async fn repeats_of_credentials(api: &Api, site: &Site) {
    let add = v1::AddFactoryCredentialRequest {
        pattern: String::new(),
        username: "root".into(),
        password: "hunter2".into(),
        order: 0,
        mutation: fresh(),
    };
    let added = same_twice!(api, site, credentials.add_factory_credential, add);
    assert_eq!((added.pattern.as_str(), added.order), ("*", 100));
    let mut credentials = api.credentials();
    let list = credentials.list_factory_credentials(v1::ListFactoryCredentialsRequest {});
    let listed = list.await.expect("an operator reads").into_inner();
    assert_eq!(listed.credentials, std::slice::from_ref(&added));
    let remove = v1::RemoveFactoryCredentialRequest {
        name: added.name,
        mutation: fresh(),
    };
    same_twice!(api, site, credentials.remove_factory_credential, remove);
    let wrong = v1::AddFactoryCredentialRequest {
        order: -1,
        mutation: fresh(),
        ..Default::default()
    };
    let status = refused(
        api.credentials().add_factory_credential(wrong).await,
        Code::InvalidArgument,
    );
    assert_eq!(fields(&status), ["username", "password", "order"]);
    let rotate = v1::RotateBmcPasswordRequest {
        name: "nodes/n1".into(),
        mutation: fresh(),
    };
    let operation = same_twice!(api, site, credentials.rotate_bmc_password, rotate);
    assert_eq!((operation.kind.as_str(), operation.done), ("bmc-password", false));
}

async fn repeats_of_discoveries(api: &Api, site: &Site) {
    // Labels of targets have no order on the wire either.
    let labels = (0..12).map(|i| (format!("l{i}"), "x".to_owned())).collect();
    let target = v1::DiscoveryTarget {
        address: "10.77.0.250".into(),
        labels,
        ..Default::default()
    };
    let start = v1::StartDiscoveryRequest {
        ranges: vec!["10.77.0.251".into()],
        targets: vec![target],
        mutation: fresh(),
        ..Default::default()
    };
    let begun = api.discovery().start_discovery(start.clone()).await;
    let begun = begun.expect("a discovery begins").into_inner();
    let again = api.discovery().start_discovery(start).await;
    assert_eq!(again.expect("it is answered again").into_inner(), begun);
    let wait = v1::WaitOperationRequest {
        name: begun.name.clone(),
        timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
    };
    let ended = api
        .operations()
        .wait_operation(wait)
        .await
        .expect("it is waited for")
        .into_inner();
    assert!(ended.done && ended.error.is_none(), "{ended:?}");
    let listed = api
        .discovery()
        .list_discoveries(v1::ListDiscoveriesRequest::default())
        .await;
    assert_eq!(
        listed.expect("an operator reads").into_inner().discoveries.len(),
        1,
        "it began once"
    );
    let enrol = v1::EnrolFindingsRequest {
        parent: begun.target.clone(),
        all_new: true,
        mutation: fresh(),
        ..Default::default()
    };
    assert_eq!(same_twice!(api, site, discovery.enrol_findings, enrol).findings, []);
    let invalid = v1::StartDiscoveryRequest {
        ranges: vec!["10.0.0.0/8".into(), "10.0.0.1".into()],
        ports: vec![0],
        targets: vec![v1::DiscoveryTarget {
            address: "http://10.0.0.1".into(),
            login: "nobody".into(),
            ..Default::default()
        }],
        login_tries: 9,
        mutation: fresh(),
        ..Default::default()
    };
    let status = refused(api.discovery().start_discovery(invalid).await, Code::InvalidArgument);
    assert_eq!(
        fields(&status),
        [
            "ranges[0]",
            "ports",
            "targets[0].address",
            "targets[0].login",
            "login_tries"
        ]
    );
}

async fn reused_keys(api: &Api, site: &Site) {
    let mut request = enrolment("n4", &[]);
    api.nodes().enroll_node(request.clone()).await.expect("a new node");
    let before = tally(site).await;
    request.labels.insert("rack".into(), "r1".into());
    let is_reuse = |status: Status| {
        let info = status.get_details_error_info().expect("a failure has a reason");
        assert_eq!(info.reason, "IDEMPOTENCY_KEY_REUSED", "{status:?}");
        assert!(hint(&status).contains("fresh key"), "{status:?}");
    };
    is_reuse(refused(
        api.nodes().enroll_node(request.clone()).await,
        Code::AlreadyExists,
    ));
    let hold = v1::HoldNodeRequest {
        name: "nodes/n4".into(),
        reason: "why not".into(),
        mutation: request.mutation.clone(),
    };
    is_reuse(refused(api.nodes().hold_node(hold).await, Code::AlreadyExists));
    let upload = v1::StartUploadRequest {
        image_id: "i".into(),
        size_bytes: 1,
        sha256: "0".repeat(64),
        mutation: request.mutation,
        ..Default::default()
    };
    is_reuse(refused(
        api.images().start_upload(upload.clone()).await,
        Code::AlreadyExists,
    ));
    assert_eq!(tally(site).await, before, "a refused request did something");
    // The other way round.
    let upload = v1::StartUploadRequest {
        mutation: fresh(),
        ..upload
    };
    api.images()
        .start_upload(upload.clone())
        .await
        .expect("an upload begins");
    let mut other = enrolment("n5", &[]);
    other.mutation = upload.mutation;
    is_reuse(refused(api.nodes().enroll_node(other).await, Code::AlreadyExists));
}
