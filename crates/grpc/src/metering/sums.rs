//! Sums by customer, cluster and SKU, and the part of each under a term.
//!
//! Rows are sorted by customer and SKU. Nodes of one customer and SKU share their terms, so each such group is computed
//! as a whole and separately.

use std::collections::{BTreeMap, HashMap};

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_lifecycle::usage::{InUse, Reserved, Share, split};
use rackwright_lifecycle::{ClusterId, CustomerId};
use rackwright_store::{Period, Scope, Store, UsageRow};

use super::{cluster_name, time};

/// Rows and terms read per page.
const PAGE: i64 = 5000;

/// Customer and SKU.
type Key = (CustomerId, String);

/// All usage of a SKU by a customer in the period.
#[derive(Debug, Default)]
struct Group {
    uses: Vec<InUse>,
    /// For each use: the index of its cluster, and whether it is still open.
    of: Vec<(usize, bool)>,
    clusters: Vec<Option<ClusterId>>,
    known: HashMap<Option<ClusterId>, usize>,
}

impl Group {
    fn add(&mut self, row: &UsageRow, to_s: i64) {
        let next = self.clusters.len();
        let cluster = *self.known.entry(row.holder.cluster.clone()).or_insert(next);
        if cluster == next {
            self.clusters.push(row.holder.cluster.clone());
        }
        self.of.push((cluster, row.to_s.is_none()));
        self.uses.push(InUse {
            position: row.position,
            from_s: row.from_s,
            to_s: row.to_s.unwrap_or(to_s),
        });
    }

    /// The share of each cluster, and whether a part of it is still open.
    fn shares(&self, terms: &[Reserved], from_s: i64, to_s: i64) -> BTreeMap<Option<&ClusterId>, (Share, bool)> {
        let shares = split(&self.uses, terms, from_s, to_s);
        let mut sums: BTreeMap<Option<&ClusterId>, (Share, bool)> = BTreeMap::new();
        for (share, (cluster, open)) in shares.into_iter().zip(&self.of) {
            let sum = sums.entry(self.clusters[*cluster].as_ref()).or_default();
            sum.0 += share;
            sum.1 |= open;
        }
        sums
    }
}

fn message(key: &Key, cluster: Option<&ClusterId>, share: Share, open: bool) -> v1::UsageSum {
    v1::UsageSum {
        customer: key.0.to_string(),
        cluster: cluster_name(cluster),
        sku: key.1.clone(),
        reserved_node_seconds: share.reserved_s,
        on_demand_node_seconds: share.on_demand_s,
        node_seconds: share.total_s(),
        open,
    }
}

async fn terms_of(
    store: &Store,
    scope: &Scope,
    customer: Option<&CustomerId>,
) -> Result<HashMap<Key, Vec<Reserved>>, ApiError> {
    let mut terms: HashMap<Key, Vec<Reserved>> = HashMap::new();
    let mut after = String::new();
    loop {
        let page = store.terms(scope, customer, &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(terms) };
        after.clone_from(&last.id);
        for row in page {
            let reserved = Reserved {
                nodes: row.nodes,
                from_s: row.from_s,
                to_s: row.to_s,
            };
            terms.entry((row.customer, row.sku)).or_default().push(reserved);
        }
    }
}

/// The sums of a period. Each group is added when it is complete.
struct Sums<'a> {
    period: Period<'a>,
    terms: HashMap<Key, Vec<Reserved>>,
    sums: Vec<v1::UsageSum>,
    total: (Share, bool),
}

impl Sums<'_> {
    /// Adds a group. The order of uses under a term depends on all clusters of the customer, so a requested cluster is
    /// selected after the split.
    async fn add(&mut self, key: Key, group: Group) -> Result<(), ApiError> {
        let terms = self.terms.remove(&key).unwrap_or_default();
        let (from_s, to_s) = (self.period.from_s, self.period.to_s);
        let wanted = self.period.cluster.cloned();
        let counted = tokio::task::spawn_blocking(move || {
            let sums = group.shares(&terms, from_s, to_s).into_iter();
            let sums = sums.filter(|(cluster, _)| wanted.is_none() || *cluster == wanted.as_ref());
            sums.map(|(cluster, sum)| (cluster.cloned(), sum)).collect::<Vec<_>>()
        });
        for (cluster, (share, open)) in counted.await.map_err(|e| ApiError::Internal(e.to_string()))? {
            self.sums.push(message(&key, cluster.as_ref(), share, open));
            self.total.0 += share;
            self.total.1 |= open;
        }
        Ok(())
    }
}

/// The sums of a period within `scope`.
pub async fn of(store: &Store, scope: &Scope, period: &Period<'_>) -> Result<v1::SumUsageResponse, ApiError> {
    let mut sums = Sums {
        period: *period,
        terms: terms_of(store, scope, period.customer).await?,
        sums: Vec::new(),
        total: (Share::default(), false),
    };
    let read = Period {
        cluster: None,
        ..*period
    };
    let (mut current, mut after): (Option<(Key, Group)>, Option<UsageRow>) = (None, None);
    loop {
        let page = store.usage_in_groups(scope, &read, after.as_ref(), PAGE).await?;
        for row in &page {
            let is_same = current
                .as_ref()
                .is_some_and(|((customer, sku), _)| *customer == row.holder.customer && *sku == row.sku);
            if !is_same && let Some((key, group)) = current.take() {
                sums.add(key, group).await?;
            }
            let (_, group) =
                current.get_or_insert_with(|| ((row.holder.customer.clone(), row.sku.clone()), Group::default()));
            group.add(row, period.to_s);
        }
        match page.into_iter().next_back() {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    if let Some((key, group)) = current {
        sums.add(key, group).await?;
    }
    let (share, open) = sums.total;
    Ok(v1::SumUsageResponse {
        total: Some(message(&Key::default(), None, share, open)),
        sums: sums.sums,
        start_time: time(period.from_s),
        end_time: time(period.to_s),
    })
}
