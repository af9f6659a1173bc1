//! Breaches of isolation that concerned clusters, for the usage of their customers: one row for each breach and cluster, in
//! whole seconds. The rows outlive the breach and the cluster. A breach at ports of an unknown cluster has one more row,
//! without a customer and a cluster.

use rackwright_lifecycle::usage::second_of;
use rackwright_lifecycle::{ClusterId, CustomerId, Timestamp};

use crate::sql::{Row, statement};
use crate::{BreachRow, Period, Result, Scope, Store, WriteTx};

/// A breach of isolation that concerned a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageBreachRow {
    /// Grows in the order in which breaches and their clusters were found. Set by the store.
    pub position: i64,
    /// The kind of the breach.
    pub kind: String,
    /// The customer of the cluster. `None`: unknown.
    pub customer: Option<CustomerId>,
    /// Id of the cluster, which may be deleted since. `None`: unknown.
    pub cluster: Option<ClusterId>,
    /// The last second since 1970 UTC in which a reading showed no such breach; none: unknown.
    pub good_s: Option<i64>,
    /// The second in which it was first seen at the cluster.
    pub from_s: i64,
    /// The second in which it was over, or the cluster was released. Equal to `from_s` for a short breach; none: it is open.
    pub to_s: Option<i64>,
}

fn usage_breach(row: &Row) -> Result<UsageBreachRow> {
    Ok(UsageBreachRow {
        position: row.try_get("position")?,
        kind: row.try_get("kind")?,
        customer: row.id_unless_empty("customer")?,
        cluster: row.id_unless_empty("cluster_id")?,
        good_s: row.try_get("good_s")?,
        from_s: row.try_get("from_s")?,
        to_s: row.try_get("to_s")?,
    })
}

impl Store {
    /// Breaches in a period after the position `after`, in the order of their positions, at most `limit` rows.
    /// Not clipped. A breach that begins and ends in one second of the period is one of them.
    ///
    /// # Errors
    /// The database failed.
    pub async fn usage_breaches(
        &self,
        scope: &Scope,
        period: &Period<'_>,
        after: i64,
        limit: i64,
    ) -> Result<Vec<UsageBreachRow>> {
        let sql = format!(
            "SELECT position, kind, customer, cluster_id, good_s, from_s, to_s FROM usage_breaches \
             WHERE from_s < $1 AND (to_s IS NULL OR to_s > $2 OR from_s >= $2) \
             AND ($3 = '' OR customer = $3) AND ($4 = '' OR cluster_id = $4){} \
             AND position > $5 ORDER BY position LIMIT $6",
            scope.rows("customer", 7)
        );
        let query = statement(sql).bind(period.to_s).bind(period.from_s);
        let query = query
            .bind(period.customer.map_or("", CustomerId::as_str))
            .bind(period.cluster.map_or("", ClusterId::as_str));
        let query = scope.bind(query.bind(after).bind(limit));
        let rows = query.blocking().fetch_all(&self.readers).await?;
        rows.iter().map(usage_breach).collect()
    }
}

/// The hall must have been read within the change, which locks it.
impl WriteTx {
    /// Adds to the usage that the breach concerned the cluster with this uid since `since`. Without effect if the
    /// usage has it already, or the cluster is released. [`WriteTx::put_breach`] ends it with the breach.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add_usage_breach(&mut self, breach: &BreachRow, cluster_uid: &str, since: Timestamp) -> Result<()> {
        let sql = "INSERT INTO usage_breaches (breach_id, cluster_uid, cluster_id, customer, kind, good_s, from_s, to_s) \
                   SELECT $1, c.uid, c.id, c.customer, $3, $4, $5, $6 FROM clusters c \
                   WHERE c.uid = $2 AND c.state <> 'released' ON CONFLICT DO NOTHING";
        let from_s = second_of(since);
        let to_s = breach.ended_at.map(|at| second_of(at).max(from_s));
        let query = statement(sql).bind(&breach.id).bind(cluster_uid).bind(&breach.kind);
        let query = query.bind(breach.good_at.map(second_of)).bind(from_s).bind(to_s);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Adds to the usage that the breach has concerned ports of an unknown cluster since `since`. No effect if the usage
    /// has this row already.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add_usage_breach_of_unknown(&mut self, breach: &BreachRow, since: Timestamp) -> Result<()> {
        let sql = "INSERT INTO usage_breaches (breach_id, cluster_uid, cluster_id, customer, kind, good_s, from_s, to_s) \
                   VALUES ($1, '', '', '', $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        let from_s = second_of(since);
        let to_s = breach.ended_at.map(|at| second_of(at).max(from_s));
        let query = statement(sql).bind(&breach.id).bind(&breach.kind);
        let query = query.bind(breach.good_at.map(second_of)).bind(from_s).bind(to_s);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Ends the open breaches of a cluster that is released: later, its customer has nothing that they concern.
    ///
    /// # Errors
    /// The database failed.
    pub async fn end_usage_breaches_of_cluster(&mut self, uid: &str, at: Timestamp) -> Result<()> {
        self.end_usage_breaches("cluster_uid", uid, at).await
    }

    /// Ends a breach at all its clusters.
    pub(crate) async fn end_usage_breach(&mut self, id: &str, at: Timestamp) -> Result<()> {
        self.end_usage_breaches("breach_id", id, at).await
    }

    async fn end_usage_breaches(&mut self, column: &'static str, value: &str, at: Timestamp) -> Result<()> {
        let sql = format!(
            "UPDATE usage_breaches SET to_s = CASE WHEN from_s > $1 THEN from_s ELSE $1 END \
             WHERE {column} = $2 AND to_s IS NULL"
        );
        let query = statement(sql).bind(second_of(at)).bind(value);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
