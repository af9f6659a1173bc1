use rackwright_api::v1::node_service_client::NodeServiceClient;

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
