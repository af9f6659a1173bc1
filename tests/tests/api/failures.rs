//! Errors report all faults at once, with place and remedy; and a failed call changes nothing.

use std::collections::BTreeSet;

use rackwright_api::v1;
use rackwright_lab as lab;
use rackwright_tests::site::Site;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

use crate::client::{
    Api, NO_BMC, enrolment, fields, fresh, mask, node, precondition, refused, seen, start, until_state, version,
};
use crate::mutations::tally;

#[test]
fn failures_name_their_cause_and_place() {
    lab::run_test("failures::failures_name_their_cause_and_place", async |namespace| {
        let (_lab, site, api) = start(&namespace).await;
        faults_of_one(&api).await;
        faults_of_a_batch(&api, &site).await;
        faults_of_an_update(&api).await;
        stale_versions(&api).await;
        states_that_refuse(&api).await;
    });
}

fn as_set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn faults(status: &Status) -> BTreeSet<String> {
    fields(status).into_iter().collect()
}

/// An enrolment with faults everywhere.
fn all_wrong() -> v1::EnrollNodeRequest {
    let mut wrong = enrolment("Not-An-Id", &[("bad key", "x")]);
    let bmc = wrong.spec.get_or_insert_default().bmc.get_or_insert_default();
    bmc.address = "ftp://somewhere".into();
    bmc.username.clear();
    // Without name and password, a login of the factory list is tried.
    bmc.password = "x".repeat(2000);
    bmc.certificate_sha256 = "sha256:12".into();
    wrong
}

const ALL_WRONG: &[&str] = &[
    "node_id",
    "spec.bmc.address",
    "spec.bmc.username",
    "spec.bmc.password",
    "spec.bmc.certificate_sha256",
    "labels",
];

async fn faults_of_one(api: &Api) {
    let status = refused(api.nodes().enroll_node(all_wrong()).await, Code::InvalidArgument);
    assert_eq!(faults(&status), as_set(ALL_WRONG), "{status:?}");
    for field in ALL_WRONG {
        assert!(
            status.message().contains(field),
            "{field} is not reported: {}",
            status.message()
        );
    }
    let name = v1::GetNodeRequest {
        name: "n1".into(),
        read_mask: None,
    };
    assert_eq!(
        fields(&refused(api.nodes().get_node(name).await, Code::InvalidArgument)),
        ["name"]
    );
    let unknown = v1::GetNodeRequest {
        name: "nodes/nobody".into(),
        read_mask: None,
    };
    let status = refused(api.nodes().get_node(unknown).await, Code::NotFound);
    let info = status
        .get_details_resource_info()
        .expect("a failure names what it is about");
    assert_eq!(
        (info.resource_type.as_str(), info.resource_name.as_str()),
        ("node", "nobody")
    );
    let upload = v1::StartUploadRequest {
        image_id: "i".into(),
        sha256: "12".into(),
        mutation: fresh(),
        ..Default::default()
    };
    let status = refused(api.images().start_upload(upload).await, Code::InvalidArgument);
    assert_eq!(faults(&status), as_set(&["sha256", "size_bytes"]));
}

async fn count(site: &Site) -> usize {
    tally(site).await.0
}

async fn faults_of_a_batch(api: &Api, site: &Site) {
    let batch = |requests: Vec<v1::EnrollNodeRequest>| v1::BatchEnrollNodesRequest {
        requests,
        mutation: fresh(),
    };
    let mut no_password = enrolment("b3", &[]);
    no_password
        .spec
        .get_or_insert_default()
        .bmc
        .get_or_insert_default()
        .password
        .clear();
    let requests = vec![enrolment("b0", &[]), all_wrong(), enrolment("b2", &[]), no_password];
    let status = refused(
        api.nodes().batch_enroll_nodes(batch(requests)).await,
        Code::InvalidArgument,
    );
    let mut wanted: BTreeSet<String> = ALL_WRONG.iter().map(|f| format!("requests[1].{f}")).collect();
    wanted.insert("requests[3].spec.bmc.password".into());
    assert_eq!(faults(&status), wanted, "{status:?}");

    let twice = vec![enrolment("b0", &[]), enrolment("b1", &[]), enrolment("b0", &[])];
    let status = refused(
        api.nodes().batch_enroll_nodes(batch(twice)).await,
        Code::InvalidArgument,
    );
    assert_eq!(fields(&status), ["requests[2].node_id"], "{status:?}");
    assert_eq!(count(site).await, 0, "a faulty batch enrolled something");

    let some = vec![enrolment("b0", &[]), enrolment("b1", &[])];
    api.nodes().batch_enroll_nodes(batch(some)).await.expect("a good batch");
    let again = ["b5", "b0", "b6", "b1"].map(|id| enrolment(id, &[])).to_vec();
    let status = refused(api.nodes().batch_enroll_nodes(batch(again)).await, Code::AlreadyExists);
    assert_eq!(
        fields(&status),
        ["requests[1].node_id", "requests[3].node_id"],
        "{status:?}"
    );
    assert_eq!(count(site).await, 2, "a batch with known nodes enrolled something");
    let empty = api.nodes().batch_enroll_nodes(batch(Vec::new())).await;
    assert_eq!(fields(&refused(empty, Code::InvalidArgument)), ["requests"]);
    let many = (0..1001).map(|i| enrolment(&format!("m{i}"), &[])).collect();
    let many = api.nodes().batch_enroll_nodes(batch(many)).await;
    assert_eq!(fields(&refused(many, Code::InvalidArgument)), ["requests"]);
}

async fn update(api: &Api, bmc: v1::Bmc, paths: &[&str]) -> Result<Response<v1::Node>, Status> {
    let node = v1::Node {
        name: "nodes/b0".into(),
        spec: Some(v1::NodeSpec {
            bmc: Some(bmc),
            ..v1::NodeSpec::default()
        }),
        ..Default::default()
    };
    let request = v1::UpdateNodeRequest {
        node: Some(node),
        update_mask: mask(paths),
        mutation: fresh(),
    };
    api.nodes().update_node(request).await
}

async fn faults_of_an_update(api: &Api) {
    let none = v1::Bmc::default;
    let before = node(api, "b0").await;
    for (paths, field) in [
        (&[][..], "update_mask"),
        (&["status"][..], "update_mask"),
        (&["metadata.uid"][..], "update_mask"),
        (&["spec.bmc.address"][..], "spec.bmc.address"),
        (&["spec.bmc.username"][..], "spec.bmc.username"),
        (&["spec.bmc.password"][..], "spec.bmc.password"),
    ] {
        let status = refused(update(api, none(), paths).await, Code::InvalidArgument);
        assert_eq!(fields(&status), [field], "{paths:?}");
    }
    assert_eq!(
        version(&node(api, "b0").await),
        version(&before),
        "a refused update changed something"
    );
    let bmc = v1::Bmc {
        address: "https://10.77.0.1:10".into(),
        username: "root".into(),
        ..none()
    };
    let changed = update(api, bmc, &["spec.bmc.username", "spec.sku"]).await;
    let spec = changed
        .expect("a good update")
        .into_inner()
        .spec
        .expect("a node has a spec");
    assert_eq!(spec.sku, "default", "a removed SKU becomes the default one");
    let bmc = spec.bmc.expect("a node has a BMC");
    assert_eq!(
        (bmc.username.as_str(), bmc.address.as_str()),
        ("root", NO_BMC),
        "only what the mask names"
    );
    updates_of_what_is_set_and_of_all(api).await;
}

async fn updates_of_what_is_set_and_of_all(api: &Api) {
    let send = async |bmc: v1::Bmc, rack: &str, update_mask| {
        let node = v1::Node {
            name: "nodes/b0".into(),
            spec: Some(v1::NodeSpec {
                bmc: Some(bmc),
                ..v1::NodeSpec::default()
            }),
            metadata: Some(v1::Metadata {
                labels: [("rack".to_owned(), rack.to_owned())].into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = v1::UpdateNodeRequest {
            node: Some(node),
            update_mask,
            mutation: fresh(),
        };
        api.nodes().update_node(request).await
    };
    let shown = |node: Response<v1::Node>| {
        let node = node.into_inner();
        let bmc = node.spec.and_then(|s| s.bmc).expect("a node has a BMC");
        let rack = node.metadata.and_then(|m| m.labels.get("rack").cloned());
        (bmc.address, bmc.username, bmc.system, rack.unwrap_or_default())
    };
    let bmc = v1::Bmc {
        username: "set".into(),
        system: "/redfish/v1/Systems/9".into(),
        ..Default::default()
    };
    let system = bmc.system.clone();
    let some = send(bmc.clone(), "r7", None).await.expect("what is set is changed");
    let wanted = (NO_BMC.into(), "set".into(), system, "r7".into());
    assert_eq!(shown(some), wanted, "without a mask");
    // With this mask all fields are required: an address cannot be removed.
    let status = refused(send(bmc.clone(), "r8", mask(&["*"])).await, Code::InvalidArgument);
    assert_eq!(fields(&status), ["spec.bmc.address"]);
    let whole = v1::Bmc {
        address: NO_BMC.into(),
        system: String::new(),
        ..bmc
    };
    let all = send(whole, "r8", mask(&["*"])).await.expect("a whole node");
    let wanted = (NO_BMC.into(), "set".into(), String::new(), "r8".into());
    assert_eq!(shown(all), wanted, "with a mask of all");
    let mixed = refused(
        send(v1::Bmc::default(), "r9", mask(&["*", "spec.sku"])).await,
        Code::InvalidArgument,
    );
    assert_eq!(fields(&mixed), ["update_mask"]);
}

async fn stale_versions(api: &Api) {
    let stale = version(&node(api, "b0").await);
    let name = "nodes/b0".to_owned();
    update(api, v1::Bmc::default(), &["spec.sku"])
        .await
        .expect("a good update");
    let envelope = || seen(&stale);
    let hold = v1::HoldNodeRequest {
        name: name.clone(),
        reason: "late".into(),
        mutation: envelope(),
    };
    let delete = v1::DeleteNodeRequest {
        name: name.clone(),
        mutation: envelope(),
    };
    let node_of = |name: String| v1::Node {
        name,
        ..Default::default()
    };
    let update = v1::UpdateNodeRequest {
        node: Some(node_of(name)),
        update_mask: mask(&["spec.sku"]),
        mutation: envelope(),
    };
    let check_stale = |status: Status| stale_version_of(&status, "nodes/b0");
    check_stale(refused(api.nodes().hold_node(hold.clone()).await, Code::Aborted));
    check_stale(refused(api.nodes().delete_node(delete).await, Code::Aborted));
    check_stale(refused(api.nodes().update_node(update.clone()).await, Code::Aborted));
    stale_versions_of_work(api, &stale).await;
    let now = v1::UpdateNodeRequest {
        mutation: seen(&version(&node(api, "b0").await)),
        ..update
    };
    api.nodes()
        .update_node(now)
        .await
        .expect("the version is the present one");
}

/// Checks that an error concerns the version of `subject`.
#[track_caller]
fn stale_version_of(status: &Status, subject: &str) {
    let info = status.get_details_error_info().expect("a failure has a reason");
    assert_eq!(info.reason, "STALE_RESOURCE_VERSION", "{status:?}");
    let named = info.metadata.get("subject").map(String::as_str);
    assert_eq!(named, Some(subject), "{status:?}");
}

/// A discovered node has no claim, no hold and no image, so each of these calls would be refused for that too; but the
/// version is checked first.
async fn stale_versions_of_work(api: &Api, stale: &str) {
    let name = || "nodes/b0".to_owned();
    let deployment = || {
        Some(v1::Deployment {
            image: "images/none".into(),
            ..Default::default()
        })
    };
    let mutation = || seen(stale);
    let mut nodes = api.nodes();
    let deploy = v1::DeployNodeRequest {
        name: name(),
        deployment: deployment(),
        mutation: mutation(),
    };
    let reimage = v1::ReimageNodeRequest {
        name: name(),
        deployment: deployment(),
        mutation: mutation(),
    };
    let release = v1::ReleaseNodeRequest {
        name: name(),
        mutation: mutation(),
    };
    let power = v1::SetNodePowerRequest {
        name: name(),
        action: v1::PowerAction::On.into(),
        mutation: mutation(),
    };
    let resume = v1::ResumeNodeRequest {
        name: name(),
        mutation: mutation(),
        confirm_erase: false,
    };
    let readmit = v1::ReadmitNodeRequest {
        name: name(),
        mutation: mutation(),
        confirm_erase: true,
        ..v1::ReadmitNodeRequest::default()
    };
    let retry = v1::RetryNodeRequest {
        name: name(),
        mutation: mutation(),
    };
    for answer in [
        nodes.deploy_node(deploy).await,
        nodes.reimage_node(reimage).await,
        nodes.release_node(release).await,
        nodes.set_node_power(power).await,
        nodes.resume_node(resume).await,
        nodes.readmit_node(readmit).await,
        nodes.retry_node(retry).await,
    ] {
        stale_version_of(&refused(answer, Code::Aborted), "nodes/b0");
    }
    let quarantine = v1::QuarantineNodeRequest {
        name: name(),
        reason: "late".into(),
        mutation: mutation(),
    };
    let quarantine = nodes.quarantine_node(quarantine).await;
    stale_version_of(&refused(quarantine, Code::Aborted), "nodes/b0");
    let list = v1::ListOperationsRequest {
        filter: "target = nodes/b0".into(),
        ..Default::default()
    };
    let open = api.operations().list_operations(list).await;
    let open = open.expect("operations are listed").into_inner().operations;
    let [enrolment] = &open[..] else {
        panic!("only the enrolment was begun: {open:?}");
    };
    // An enrolment cannot be cancelled, which the call with the right version reports.
    let cancel = |resource_version: &str| v1::CancelOperationRequest {
        name: enrolment.name.clone(),
        mutation: seen(resource_version),
    };
    let present = enrolment.metadata.clone().unwrap_or_default().resource_version;
    let late = api.operations().cancel_operation(cancel("999")).await;
    stale_version_of(&refused(late, Code::Aborted), &enrolment.name);
    let cancelled = api.operations().cancel_operation(cancel(&present)).await;
    precondition(cancelled, &enrolment.name, "node quarantine");
}

async fn states_that_refuse(api: &Api) {
    let name = || "nodes/b1".to_owned();
    let about = "nodes/b1";
    let mutation = fresh;
    let power = v1::SetNodePowerRequest {
        name: name(),
        action: v1::PowerAction::On.into(),
        mutation: mutation(),
    };
    precondition(api.nodes().set_node_power(power).await, about, "or hold the node first");
    let resume = v1::ResumeNodeRequest {
        name: name(),
        mutation: mutation(),
        confirm_erase: false,
    };
    precondition(api.nodes().resume_node(resume).await, about, "`rackwright node hold`");
    let readmit = v1::ReadmitNodeRequest {
        name: name(),
        mutation: mutation(),
        confirm_erase: true,
        ..v1::ReadmitNodeRequest::default()
    };
    precondition(api.nodes().readmit_node(readmit).await, about, "node quarantine");
    let retry = v1::RetryNodeRequest {
        name: name(),
        mutation: mutation(),
    };
    precondition(api.nodes().retry_node(retry).await, about, "rackwright node explain b1");
    let release = v1::ReleaseNodeRequest {
        name: name(),
        mutation: mutation(),
    };
    precondition(
        api.nodes().release_node(release).await,
        about,
        "rackwright node explain b1",
    );
    for reason in ["", "  ", "a\nb", &"x".repeat(1001)] {
        let quarantine = v1::QuarantineNodeRequest {
            name: name(),
            reason: reason.to_owned(),
            mutation: mutation(),
        };
        let status = refused(api.nodes().quarantine_node(quarantine).await, Code::InvalidArgument);
        assert_eq!(fields(&status), ["reason"], "{reason:?}");
    }
    let quarantine = v1::QuarantineNodeRequest {
        name: name(),
        reason: "it smells of smoke".into(),
        mutation: mutation(),
    };
    api.nodes()
        .quarantine_node(quarantine.clone())
        .await
        .expect("a discovered node is quarantined");
    until_state(api, "b1", v1::NodeState::Quarantined).await;
    let again = v1::QuarantineNodeRequest {
        mutation: mutation(),
        ..quarantine
    };
    precondition(
        api.nodes().quarantine_node(again).await,
        about,
        "rackwright node readmit b1",
    );
    let hold = v1::HoldNodeRequest {
        name: name(),
        reason: "as well".into(),
        mutation: mutation(),
    };
    precondition(api.nodes().hold_node(hold).await, about, "rackwright node watch b1");
}
