//! Members of a customer power-cycle their own nodes, and do nothing else with power.

use rackwright_api::v1;
use rackwright_api::v1::PowerAction;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use tonic::Code;

use super::{as_member, lab, missing, mutation, names, same};

fn power(name: &str, action: PowerAction, key: &str) -> v1::SetNodePowerRequest {
    v1::SetNodePowerRequest {
        name: name.into(),
        action: action.into(),
        mutation: mutation(key),
    }
}

#[tokio::test]
async fn members_of_a_customer_restart_their_own_nodes_alone() {
    let core = lab().await;
    let own = format!("nodes/{}", names(&core, "alpha").await.first().unwrap());
    let foreign = format!("nodes/{}", names(&core, "beta").await.first().unwrap());
    let none = missing(&foreign);
    for member in ["ann", "adam"] {
        let mut nodes = NodeServiceClient::new(as_member(&core, member));
        let key = |word: &str| format!("{member}-{word}");
        let cycled = nodes
            .set_node_power(power(&own, PowerAction::Cycle, &key("own")))
            .await
            .unwrap();
        let operation = cycled.into_inner();
        assert_eq!((operation.kind.as_str(), operation.target), ("power", own.clone()));
        for action in [PowerAction::On, PowerAction::Off] {
            let refused = nodes
                .set_node_power(power(&own, action, &key(action.as_str_name())))
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{action:?}");
        }
        let (others, absent) = (
            power(&foreign, PowerAction::Cycle, &key("foreign")),
            power(&none, PowerAction::Cycle, &key("none")),
        );
        same(
            &foreign,
            nodes.set_node_power(others).await,
            nodes.set_node_power(absent).await,
        );
    }
}
