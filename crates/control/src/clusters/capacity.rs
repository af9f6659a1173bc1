//! The largest clusters that a customer could get now.

use rackwright_api::v1;
use rackwright_ground::hall::HallSnapshot;
use rackwright_placement::{Bandwidth, ClusterId, CustomerId, Request, SkuId};
use rackwright_planner::planner::{Planner, Refused};
use rackwright_site::model::{CustomerId as SiteCustomer, Price, Site, Sku};

use super::reserve::ReserveError;

/// The id of a cluster that is placed on trial and released again.
const TRIAL_CLUSTER: ClusterId = ClusterId(u64::MAX);
/// Most tries with the smaller size that a refusal names.
const TRIES: usize = 4;

/// The capacity for each SKU, in the hall of a picture. A search that is cut short in a large hall may miss a larger
/// cluster; a reported size does fit.
///
/// # Errors
/// The site has no such customer, or no cluster can be placed in it.
pub async fn capacity(
    snapshot: HallSnapshot,
    customer: &rackwright_lifecycle::CustomerId,
) -> Result<Vec<v1::SkuCapacity>, ReserveError> {
    let customer = snapshot
        .site
        .customer_named(customer.as_str())
        .ok_or(ReserveError::Field {
            field: "customer",
            fault: "the site has no such customer".into(),
        })?;
    let out = snapshot.out.clone();
    let known = snapshot.plan(move |site: &Site, planner: &mut Planner<'_>| {
        let mut skus: Vec<_> = (0u32..)
            .zip(&site.skus)
            .map(|(at, sku)| {
                let of_sku = site.node_ids().filter(|id| site.sku_of(*id).name == sku.name);
                let free = of_sku.filter(|id| !out.contains(id)).count();
                let free_nodes = u32::try_from(free).unwrap_or(u32::MAX);
                let classes = ["non-blocking", "best-effort"];
                let fabric = |bandwidth: &&str| v1::FabricCapacity {
                    bandwidth: (*bandwidth).to_owned(),
                    largest_cluster_nodes: Bandwidth::parse(bandwidth)
                        .map_or(0, |class| largest(planner, customer, SkuId(at), class, free_nodes)),
                };
                v1::SkuCapacity {
                    sku: sku.name.to_string(),
                    free_nodes,
                    bare_metal: true,
                    fabrics: classes.iter().map(fabric).collect(),
                    price_per_second: of_price(sku, |price| &price.per_second),
                    currency: of_price(sku, |price| &price.currency),
                }
            })
            .collect();
        skus.sort_by(|a, b| a.sku.cmp(&b.sku));
        skus
    });
    Ok(known.await?)
}

fn of_price(sku: &Sku, field: fn(&Price) -> &str) -> String {
    sku.price
        .as_ref()
        .map_or_else(String::new, |price| field(price).to_owned())
}

/// Nodes of the largest cluster that can be placed: all free nodes, or the size that a refusal names.
fn largest(planner: &mut Planner<'_>, customer: SiteCustomer, sku: SkuId, class: Bandwidth, free: u32) -> u32 {
    let mut nodes = free;
    for _ in 0..TRIES {
        if nodes == 0 {
            return 0;
        }
        let request = Request {
            bandwidth: class,
            ..Request::plain(TRIAL_CLUSTER, CustomerId(customer.0), sku, nodes)
        };
        match planner.place(request) {
            Ok(_) => {
                planner.release(TRIAL_CLUSTER);
                return nodes;
            }
            Err(refused) => nodes = nearest(&refused, class, nodes),
        }
    }
    0
}

/// The number of nodes, fewer than `asked`, that fit according to the refusal.
fn nearest(refused: &Refused, class: Bandwidth, requested: u32) -> u32 {
    let fits = match refused {
        Refused::Placement(refusal) => {
            let same = refusal.nearest.iter().filter(|fit| fit.request.bandwidth == class);
            same.map(|fit| fit.request.nodes)
                .filter(|nodes| *nodes < requested)
                .max()
        }
        Refused::Budgets { nearest, .. } => *nearest,
        Refused::Change { .. } => None,
    };
    fits.filter(|nodes| *nodes < requested).unwrap_or(0)
}
