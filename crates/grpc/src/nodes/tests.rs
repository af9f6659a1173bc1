use std::sync::atomic::{AtomicBool, Ordering};

use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_ground::agents::Session;
use rackwright_ground::testing;
use rackwright_lifecycle::{Effect, Outcome};
use rackwright_nodes::perform::{Hardware, Performer as _};
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::feature_tests::clusters::{hall, names, put, spec};
use crate::tenancy::{as_member, join, mutation};
use crate::test_calls::create_cluster;

#[tokio::test]
async fn a_lost_node_of_a_cluster_is_not_deleted_before_the_cluster_has_replaced_it() {
    let core = hall(32, "").await;
    create_cluster(&core, "1", "alpha", spec("bolt", 2)).await.unwrap();
    let lost = names(&core, "alpha").await.first().unwrap().clone();
    put(&core, &lost, |record| {
        record.node.state = State::Available;
        record.node.claim = None;
    })
    .await;
    let record = core
        .store
        .node(&Scope::Site, &NodeId::stored(lost.as_str()))
        .await
        .unwrap();
    intent::delete(&record).unwrap();
    join(&core, "olga", "operator", "").await;
    let request = v1::DeleteNodeRequest {
        name: format!("nodes/{lost}"),
        mutation: mutation("d1"),
    };
    let mut olga = NodeServiceClient::new(as_member(&core, "olga"));
    let refused = olga.delete_node(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(
        refused.message().contains("it is a node of cluster alpha"),
        "{refused:?}"
    );
    let kept = core
        .store
        .node(&Scope::Site, &NodeId::stored(lost.as_str()))
        .await
        .unwrap();
    assert_eq!(kept.version, record.version);
}

/// A BMC without sessions: each request has the password.
async fn bmc() -> String {
    use axum::Json;
    use axum::routing::get;
    let app = axum::Router::new().route("/redfish/v1/", get(async || Json(serde_json::json!({}))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// A node with this BMC.
async fn node_of_bmc(core: &Core, address: &str) -> NodeRecord {
    let mut record = testing::node("n1", State::Available, None);
    record.spec.bmc_address = address.into();
    record.spec.bmc_username = "root".into();
    let password = "secret".to_owned().into();
    let sealed = core.keys.sealer.seal(&password, &bmc_password_purpose(&record.id));
    record.spec.bmc_password = sealed.unwrap();
    testing::add(core, &record).await;
    record
}

/// Changes one field of the node: its address, or its labels to `rack=r1`.
fn update_request(key: &str, path: &str, address: &str) -> v1::UpdateNodeRequest {
    let node = v1::Node {
        name: "nodes/n1".into(),
        spec: Some(v1::NodeSpec {
            bmc: Some(v1::Bmc {
                address: address.into(),
                ..v1::Bmc::default()
            }),
            ..v1::NodeSpec::default()
        }),
        metadata: Some(v1::Metadata {
            labels: [("rack".to_owned(), "r1".to_owned())].into(),
            ..v1::Metadata::default()
        }),
        ..v1::Node::default()
    };
    v1::UpdateNodeRequest {
        node: Some(node),
        update_mask: Some(prost_types::FieldMask {
            paths: vec![path.into()],
        }),
        mutation: mutation(key),
    }
}

/// A BMC of a machine that is off. It answers a power-on only when `answer` allows it, and reports `asked` before.
async fn slow_bmc(asked: Arc<Notify>, answer: Arc<Notify>) -> String {
    use axum::Json;
    use axum::routing::{get, post};
    const SYSTEM: &str = "/redfish/v1/Systems/1";
    let reset = format!("{SYSTEM}/Actions/ComputerSystem.Reset");
    let is_on = Arc::new(AtomicBool::new(false));
    let switched = Arc::clone(&is_on);
    let link = |path: &str| serde_json::json!({"@odata.id": path});
    let root = serde_json::json!({"Systems": link("/redfish/v1/Systems")});
    let systems = serde_json::json!({"Members": [link(SYSTEM)]});
    let target = serde_json::json!({"target": reset, "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]});
    let system = async move || {
        let power = if is_on.load(Ordering::Relaxed) { "On" } else { "Off" };
        Json(serde_json::json!({
            "@odata.id": SYSTEM, "Id": "1", "PowerState": power, "Actions": {"#ComputerSystem.Reset": target}
        }))
    };
    let switch_on = async move || {
        asked.notify_one();
        answer.notified().await;
        switched.store(true, Ordering::Relaxed);
        axum::http::StatusCode::NO_CONTENT
    };
    let app = axum::Router::new()
        .route("/redfish/v1/", get(async || Json(root)))
        .route("/redfish/v1/Systems", get(async || Json(systems)))
        .route(SYSTEM, get(system))
        .route(&reset, post(switch_on));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

#[tokio::test]
async fn a_label_that_is_set_while_the_node_is_switched_on_does_not_end_the_power_on() {
    let core = testing::core().await;
    let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let record = node_of_bmc(&core, &slow_bmc(Arc::clone(&asked), Arc::clone(&answer)).await).await;
    join(&core, "olga", "operator", "").await;
    let mut olga = NodeServiceClient::new(as_member(&core, "olga"));
    let nudge = Notify::new();
    let power_on = Hardware.perform(&core, &record, Effect::PowerOn, &nudge);
    let meanwhile = async {
        asked.notified().await;
        olga.update_node(update_request("u1", "metadata.labels", ""))
            .await
            .unwrap();
        answer.notify_one();
    };
    let (done, ()) = tokio::join!(power_on, meanwhile);
    assert_eq!(done.outcome, Outcome::Succeeded);
    let labelled = core.store.node(&Scope::Site, &record.id).await.unwrap();
    assert_eq!(labelled.labels["rack"], "r1");
}

#[tokio::test]
async fn a_changed_label_keeps_the_client_of_the_bmc_and_a_changed_address_does_not() {
    let core = testing::core().await;
    let record = node_of_bmc(&core, &bmc().await).await;
    let used = core.bmcs.client(&record, &core.keys.sealer).await.unwrap();
    join(&core, "olga", "operator", "").await;
    let mut olga = NodeServiceClient::new(as_member(&core, "olga"));
    let mut update = async |key: &str, path: &str, address: &str| {
        olga.update_node(update_request(key, path, address)).await.unwrap();
    };
    update("u1", "metadata.labels", "").await;
    assert_eq!(core.bmcs.count().await, 1);
    let same = core.bmcs.client(&record, &core.keys.sealer).await.unwrap();
    assert!(Arc::ptr_eq(&used, &same));
    update("u2", "spec.bmc.address", "https://10.0.0.9").await;
    assert_eq!(core.bmcs.count().await, 0);
    // The former client is not closed before its last user.
    assert_eq!(used.get("/redfish/v1/Systems").await.unwrap_err().status(), Some(404));
}

#[tokio::test]
async fn deleting_a_node_ends_the_connection_of_its_agent_and_no_other() {
    let core = testing::core().await;
    join(&core, "olga", "operator", "").await;
    for id in ["n1", "n2"] {
        testing::add(&core, &testing::node(id, State::Available, None)).await;
        let session = Session {
            number: 1,
            of: testing::booted(&core, id, "kernel").await,
            boot_id: "kernel".into(),
            booted_at: clock::now(),
            heard_at: clock::now(),
            sender: mpsc::channel(1).0,
            end: CancellationToken::new(),
        };
        core.agents.connected(&id.into(), session);
    }
    let ends = |id: &'static str| core.agents.session(&id.into()).unwrap().end;
    let (deleted, kept) = (ends("n1"), ends("n2"));
    let request = v1::DeleteNodeRequest {
        name: "nodes/n1".into(),
        mutation: mutation("d1"),
    };
    let mut olga = NodeServiceClient::new(as_member(&core, "olga"));
    olga.delete_node(request).await.unwrap();
    assert!(deleted.is_cancelled(), "the connection goes on");
    assert!(!kept.is_cancelled());
}

#[tokio::test]
async fn an_inventory_that_does_not_decode_is_an_error_that_names_the_node() {
    let core = testing::core().await;
    join(&core, "olga", "operator", "").await;
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    let mut olga = NodeServiceClient::new(as_member(&core, "olga"));
    let request = || v1::GetNodeRequest {
        name: "nodes/n1".into(),
        ..v1::GetNodeRequest::default()
    };
    let found = olga.get_node(request()).await.unwrap().into_inner();
    assert_eq!(found.status.unwrap().inventory, None);
    let mut tx = core.store.write().await.unwrap();
    tx.save_inventory(&"n1".into(), b"no message").await.unwrap();
    tx.commit().await.unwrap();
    let error = olga.get_node(request()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::Internal, "inventory \"n1\" cannot be read back")
    );
}
