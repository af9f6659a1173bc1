//! The use of nodes by customers: one row for each use of a node, in whole seconds.
//!
//! Rows of a node never overlap, whatever the replicas' clocks show: a use begins no earlier than the end of the former
//! one, and ends no earlier than its own beginning.

use rackwright_lifecycle::usage::{Effect, Holder, second_of};
use rackwright_lifecycle::{ClusterId, CustomerId, NodeId, State, Timestamp};

use crate::sql::{Query, Row, statement};
use crate::{NodeRecord, Result, Scope, Store, StoreError, WriteTx};

/// One use of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// Grows in the order of the beginnings. Set by the store.
    pub position: i64,
    /// Id of the node, which may be deleted since.
    pub node: NodeId,
    /// The customer and cluster that used it.
    pub holder: Holder,
    /// The node's SKU at the beginning.
    pub sku: String,
    /// First second since 1970 UTC.
    pub from_s: i64,
    /// The second after the last one; none: still in use.
    pub to_s: Option<i64>,
}

/// The seconds `[from_s, to_s)` since 1970 UTC, and the customer and cluster to select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period<'a> {
    /// First second.
    pub from_s: i64,
    /// The second after the last one.
    pub to_s: i64,
    /// None: all customers.
    pub customer: Option<&'a CustomerId>,
    /// None: all uses, with or without a cluster.
    pub cluster: Option<&'a ClusterId>,
}

const COLUMNS: &str = "SELECT position, node_id, customer, cluster_id, sku, from_s, to_s FROM usage \
                       WHERE from_s < $1 AND (to_s IS NULL OR to_s > $2 AND to_s > from_s) \
                       AND ($3 = '' OR customer = $3) AND ($4 = '' OR cluster_id = $4)";

/// The rows of a period within `scope`, narrowed by `further`, which begins with the parameter `$5`; `$place` is the first
/// free parameter after it.
fn usage_query<'a>(scope: &Scope, place: usize, period: &Period<'a>, further: &str) -> Query<'a> {
    let sql = format!("{COLUMNS}{} {further}", scope.rows("customer", place));
    let query = statement(sql).bind(period.to_s).bind(period.from_s);
    query
        .bind(period.customer.map_or("", CustomerId::as_str))
        .bind(period.cluster.map_or("", ClusterId::as_str))
}

/// The stored form of the holder's cluster: empty without one.
fn cluster_text(holder: &Holder) -> &str {
    holder.cluster.as_ref().map_or("", ClusterId::as_str)
}

fn usage(row: &Row) -> Result<UsageRow> {
    Ok(UsageRow {
        position: row.try_get("position")?,
        node: row.id("node_id")?,
        holder: Holder {
            customer: row.id("customer")?,
            cluster: row.id_unless_empty("cluster_id")?,
        },
        sku: row.try_get("sku")?,
        from_s: row.try_get("from_s")?,
        to_s: row.try_get("to_s")?,
    })
}

impl Store {
    /// Uses in a period after the position `after`, in the order of their beginnings, at most `limit` rows. Not clipped;
    /// uses without a full second are omitted.
    pub async fn usage(&self, scope: &Scope, period: &Period<'_>, after: i64, limit: i64) -> Result<Vec<UsageRow>> {
        let query = usage_query(scope, 7, period, "AND position > $5 ORDER BY position LIMIT $6");
        let query = scope.bind(query.bind(after).bind(limit));
        let rows = query.blocking().fetch_all(&self.readers).await?;
        rows.iter().map(usage).collect()
    }

    /// As `usage`, ordered by customer, SKU and beginning: after the row `after`, or from the first row.
    pub async fn usage_in_groups(
        &self,
        scope: &Scope,
        period: &Period<'_>,
        after: Option<&UsageRow>,
        limit: i64,
    ) -> Result<Vec<UsageRow>> {
        let sql = "AND (customer, sku, from_s, position) > ($5, $6, $7, $8) \
                   ORDER BY customer, sku, from_s, position LIMIT $9";
        let query = usage_query(scope, 10, period, sql);
        let query = match after {
            Some(last) => query.bind(&last.holder.customer).bind(&last.sku),
            None => query.bind("").bind(""),
        };
        let (from_s, position) = after.map_or((i64::MIN, i64::MIN), |last| (last.from_s, last.position));
        let query = scope.bind(query.bind(from_s).bind(position).bind(limit));
        let rows = query.blocking().fetch_all(&self.readers).await?;
        rows.iter().map(usage).collect()
    }

    /// Begins missing uses of active nodes, which were handed over before uses were recorded. Returns their number.
    pub async fn begin_missing_usage(&self) -> Result<usize> {
        let sql = "SELECT id FROM nodes WHERE state = 'active' \
                   AND NOT EXISTS (SELECT 1 FROM usage u WHERE u.node_id = nodes.id AND u.to_s IS NULL) ORDER BY id";
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        let mut begun = 0;
        for row in &rows {
            let id: NodeId = row.id(0)?;
            let mut tx = self.write().await?;
            let record = match tx.node(&id).await {
                Err(StoreError::NotFound { .. }) => continue,
                other => other?,
            };
            if record.node.state != State::Active {
                continue;
            }
            let holder = Holder::of(record.node.claim.as_ref());
            tx.put_usage(&record, &Effect::Begin(holder), record.node.since).await?;
            tx.commit().await?;
            begun += 1;
        }
        Ok(begun)
    }
}

impl WriteTx {
    /// Stores the effect of an edge at `at` on the use of a node, which must have been read or saved within this change.
    pub async fn put_usage(&mut self, record: &NodeRecord, effect: &Effect, at: Timestamp) -> Result<()> {
        let at_s = second_of(at);
        match effect {
            Effect::End => self.end_usage(&record.id, "", at_s, &[]).await,
            Effect::Keep(holder) => {
                let others = " AND (customer <> $3 OR cluster_id <> $4)";
                self.end_usage(
                    &record.id,
                    others,
                    at_s,
                    &[holder.customer.as_str(), cluster_text(holder)],
                )
                .await
            }
            Effect::Begin(holder) => {
                let others = " AND (customer <> $3 OR cluster_id <> $4 OR sku <> $5)";
                let held = [holder.customer.as_str(), cluster_text(holder), &*record.spec.sku];
                self.end_usage(&record.id, others, at_s, &held).await?;
                self.begin_usage(record, holder, at_s).await
            }
        }
    }

    async fn end_usage(&mut self, node: &NodeId, others: &str, at_s: i64, held: &[&str]) -> Result<()> {
        let sql = format!(
            "UPDATE usage SET to_s = CASE WHEN from_s > $1 THEN from_s ELSE $1 END \
             WHERE node_id = $2 AND to_s IS NULL{others}"
        );
        let query = statement(sql).bind(at_s).bind(node);
        let query = held.iter().fold(query, |query, value| query.bind(*value));
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Begins a use unless one runs.
    async fn begin_usage(&mut self, record: &NodeRecord, holder: &Holder, at_s: i64) -> Result<()> {
        let sql = "INSERT INTO usage (node_id, customer, cluster_id, sku, from_s) \
                   SELECT $1, $2, $3, $4, CASE WHEN former.to_s > $5 THEN former.to_s ELSE $5 END \
                   FROM (SELECT MAX(to_s) AS to_s FROM usage WHERE node_id = $1) former WHERE true \
                   ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(&record.id).bind(&holder.customer);
        let query = query.bind(cluster_text(holder)).bind(&record.spec.sku).bind(at_s);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
