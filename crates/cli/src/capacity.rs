//! `rackwright capacity`: the nodes that a customer could get now, by SKU.

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{Capacity, GetCapacityRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Paint, Table, clean};
use rackwright_cli_context::{Cx, units};

/// `rackwright capacity`
#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// Customer of the site; required for members of the site, omitted by a customer's own members
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    customer: String,
}

/// Shows the capacity.
pub async fn run(cx: &Cx, args: CapacityArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = GetCapacityRequest {
        customer: args.customer,
    };
    let answer = rpc!(client, ClusterServiceClient.get_capacity, "ask for capacity", request).await?;
    let width = cx.ui.width();
    cx.ui.item(&answer, |paint| render(&answer, paint, width))
}

fn render(capacity: &Capacity, paint: Paint, width: Option<usize>) -> String {
    let mut table = Table::new(&["SKU", "FABRIC", "LARGEST CLUSTER", "FREE NODES", "PRICE/NODE/S", "KIND"]);
    for sku in &capacity.skus {
        let price = match sku.price_per_second.as_str() {
            "" => String::new(),
            price => format!("{price} {}", sku.currency),
        };
        for fabric in &sku.fabrics {
            table.row([
                (&sku.sku).into(),
                (&fabric.bandwidth).into(),
                fabric.largest_cluster_nodes.to_string().into(),
                sku.free_nodes.to_string().into(),
                price.as_str().into(),
                if sku.bare_metal { "bare metal" } else { "" }.into(),
            ]);
        }
    }
    let mut text = table.render(paint, width);
    let time = capacity.time.as_ref().map(units::stamp).unwrap_or_default();
    text.push_str(&format!("for {} as of {time}\n", clean(&capacity.customer)));
    text
}

#[cfg(test)]
mod tests {
    use rackwright_api::v1::{FabricCapacity, SkuCapacity};

    use super::*;

    #[test]
    fn each_class_of_fabric_is_a_line_with_its_price() {
        let fabric = |bandwidth: &str, largest_cluster_nodes| FabricCapacity {
            bandwidth: bandwidth.into(),
            largest_cluster_nodes,
        };
        let sku = |name: &str, price: &str| SkuCapacity {
            sku: name.into(),
            free_nodes: 40,
            bare_metal: true,
            fabrics: vec![fabric("non-blocking", 32), fabric("best-effort", 40)],
            price_per_second: price.into(),
            currency: if price.is_empty() { "" } else { "USD" }.into(),
        };
        let capacity = Capacity {
            customer: "acme".into(),
            skus: vec![sku("dgx-h100", "0.0072"), sku("hgx", "")],
            time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
        };
        assert_eq!(
            render(&capacity, Paint::PLAIN, None),
            "SKU       FABRIC        LARGEST CLUSTER  FREE NODES  PRICE/NODE/S  KIND\n\
             dgx-h100  non-blocking  32               40          0.0072 USD    bare metal\n\
             dgx-h100  best-effort   40               40          0.0072 USD    bare metal\n\
             hgx       non-blocking  32               40          -             bare metal\n\
             hgx       best-effort   40               40          -             bare metal\n\
             for acme as of 1970-01-01T00:00:00Z\n"
        );
    }
}
