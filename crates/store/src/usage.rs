//! What customers used: one row for each time that a node was in use, in whole seconds.
//!
//! Rows of a node never overlap, whatever the clocks of replicas say: one begins at the end of the former one at the
//! earliest, and ends at its own beginning at the earliest.

use rackwright_lifecycle::usage::{Effect, Holder, second_of};
use rackwright_lifecycle::{State, Timestamp};

use crate::sql::{Query, Row, statement};
use crate::{NodeRecord, Result, Scope, Store, StoreError, WriteTx};

/// One time that a node was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// In the order in which they were begun. Set by the store.
    pub position: i64,
    /// The node, by its id; it may be gone by now.
    pub node: String,
    /// Whose it was.
    pub holder: Holder,
    /// SKU, as it was when this began.
    pub sku: String,
    /// First second since 1970 UTC.
    pub from_s: i64,
    /// The second after the last one; none while it is in use.
    pub to_s: Option<i64>,
}

/// Seconds `[from_s, to_s)` since 1970 UTC, and whose use in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period<'a> {
    /// First second.
    pub from_s: i64,
    /// The second after the last one.
    pub to_s: i64,
    /// Empty: of all customers.
    pub customer: &'a str,
    /// Empty: of all clusters and of none.
    pub cluster: &'a str,
}

const COLUMNS: &str = "SELECT position, node_id, customer, cluster_id, sku, from_s, to_s FROM usage \
                       WHERE from_s < $1 AND (to_s IS NULL OR to_s > $2 AND to_s > from_s) \
                       AND ($3 = '' OR customer = $3) AND ($4 = '' OR cluster_id = $4)";

/// The rows of a period that lie within `scope`, joined by `further`, which begins with the parameter `$5` and whose first
/// free one is `$place`.
fn narrowed<'a>(scope: &Scope, place: usize, period: &Period<'a>, further: &str) -> Query<'a> {
    let sql = format!("{COLUMNS}{} {further}", scope.rows("customer", place));
    let query = statement(sql).bind(period.to_s).bind(period.from_s);
    query.bind(period.customer).bind(period.cluster)
}

fn usage(row: &Row) -> Result<UsageRow> {
    Ok(UsageRow {
        position: row.try_get("position")?,
        node: row.try_get("node_id")?,
        holder: Holder {
            customer: row.try_get("customer")?,
            cluster: row.try_get("cluster_id")?,
        },
        sku: row.try_get("sku")?,
        from_s: row.try_get("from_s")?,
        to_s: row.try_get("to_s")?,
    })
}

impl Store {
    /// What was in use in a period, as it was begun, after the position `after`, at most `limit` rows. Not clipped; what
    /// took no second is left out.
    ///
    /// # Errors
    /// The database failed.
    pub async fn usage(&self, scope: &Scope, period: &Period<'_>, after: i64, limit: i64) -> Result<Vec<UsageRow>> {
        let query = narrowed(scope, 7, period, "AND position > $5 ORDER BY position LIMIT $6");
        let query = scope.bind(query.bind(after).bind(limit));
        let rows = query.aside().fetch_all(&self.readers).await?;
        rows.iter().map(usage).collect()
    }

    /// The same by customer and SKU, and who was in use first of these: after the row `after`, from the first when there is
    /// none.
    ///
    /// # Errors
    /// The database failed.
    pub async fn usage_in_groups(
        &self,
        scope: &Scope,
        period: &Period<'_>,
        after: Option<&UsageRow>,
        limit: i64,
    ) -> Result<Vec<UsageRow>> {
        let sql = "AND (customer, sku, from_s, position) > ($5, $6, $7, $8) \
                   ORDER BY customer, sku, from_s, position LIMIT $9";
        let query = narrowed(scope, 10, period, sql);
        let query = match after {
            Some(last) => query.bind(&last.holder.customer).bind(&last.sku),
            None => query.bind("").bind(""),
        };
        let (from_s, position) = after.map_or((i64::MIN, i64::MIN), |last| (last.from_s, last.position));
        let query = scope.bind(query.bind(from_s).bind(position).bind(limit));
        let rows = query.aside().fetch_all(&self.readers).await?;
        rows.iter().map(usage).collect()
    }

    /// Begins what is missing for nodes that are active: they were handed over before there was a place to write that down.
    /// Answers how many.
    ///
    /// # Errors
    /// The database failed.
    pub async fn begin_missing_usage(&self) -> Result<usize> {
        let sql = "SELECT id FROM nodes WHERE state = 'active' \
                   AND NOT EXISTS (SELECT 1 FROM usage u WHERE u.node_id = nodes.id AND u.to_s IS NULL) ORDER BY id";
        let rows = statement(sql).aside().fetch_all(&self.readers).await?;
        let mut begun = 0;
        for row in &rows {
            let id: String = row.try_get(0)?;
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
    /// Writes down what an edge at `at` did to the use of a node, which must have been read or saved within this change.
    ///
    /// # Errors
    /// The database failed.
    pub async fn put_usage(&mut self, record: &NodeRecord, effect: &Effect, at: Timestamp) -> Result<()> {
        let at_s = second_of(at);
        match effect {
            Effect::End => self.end_usage(&record.id, "", at_s, &[]).await,
            Effect::Keep(holder) => {
                let others = " AND (customer <> $3 OR cluster_id <> $4)";
                self.end_usage(&record.id, others, at_s, &[&holder.customer, &holder.cluster])
                    .await
            }
            Effect::Begin(holder) => {
                let others = " AND (customer <> $3 OR cluster_id <> $4 OR sku <> $5)";
                let held = [&*holder.customer, &*holder.cluster, &*record.spec.sku];
                self.end_usage(&record.id, others, at_s, &held).await?;
                self.begin_usage(record, holder, at_s).await
            }
        }
    }

    async fn end_usage(&mut self, node: &str, others: &str, at_s: i64, held: &[&str]) -> Result<()> {
        let sql = format!(
            "UPDATE usage SET to_s = CASE WHEN from_s > $1 THEN from_s ELSE $1 END \
             WHERE node_id = $2 AND to_s IS NULL{others}"
        );
        let query = statement(sql).bind(at_s).bind(node);
        let query = held.iter().fold(query, |query, value| query.bind(*value));
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Begins it unless it runs.
    async fn begin_usage(&mut self, record: &NodeRecord, holder: &Holder, at_s: i64) -> Result<()> {
        let sql = "INSERT INTO usage (node_id, customer, cluster_id, sku, from_s) \
                   SELECT $1, $2, $3, $4, CASE WHEN former.to_s > $5 THEN former.to_s ELSE $5 END \
                   FROM (SELECT MAX(to_s) AS to_s FROM usage WHERE node_id = $1) former WHERE true \
                   ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(&record.id).bind(&holder.customer);
        let query = query.bind(&holder.cluster).bind(&record.spec.sku).bind(at_s);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
