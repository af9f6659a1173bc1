//! Discoveries: searches of networks for BMCs, with their progress and their findings.

use std::collections::{HashMap, HashSet};

use rackwright_lifecycle::{NodeId, OperationId, Timestamp};

use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// A discovery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryRow {
    /// The id, which is also the id of the discovery's operation.
    pub id: OperationId,
    /// The member who requested the discovery.
    pub requested_by: String,
    /// Time of the request.
    pub created_at: Timestamp,
    /// Time of the end; none: not ended.
    pub ended_at: Option<Timestamp>,
    /// `listening` (waits for announcements), `looking` (probes targets), `judging` (compares findings with nodes) or
    /// `done`.
    pub phase: String,
    /// Why the discovery failed or is incomplete; empty: it did not fail.
    pub message: String,
    /// The request, as JSON.
    pub spec: String,
    /// Targets from announcements, heard before the probing, as JSON.
    pub heard: String,
    /// The credentials to try, sealed.
    pub secrets: Vec<u8>,
    /// Number of targets, in their order, that are finished without a gap.
    pub reached: i64,
    /// Number of targets.
    pub total: i64,
    /// Number of targets without an answer.
    pub silent: i64,
    /// The replica that runs the discovery.
    pub owner: String,
    /// End of the owner's lease. Until then no other replica takes the discovery.
    pub lease_until: Timestamp,
}

/// A BMC, or another host that answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FindingRow {
    /// Id of the discovery.
    pub discovery: OperationId,
    /// Key of the finding in its discovery. The order of places is the order of addresses.
    pub place: String,
    /// `https://10.0.0.5`
    pub address: String,
    /// The state: `asking` while the probe runs, `same` for a further address of another finding's machine, or a result.
    pub state: String,
    /// Of a further address of a machine, the place of the machine's main finding; empty: this is the main finding.
    pub first: String,
    /// The node of the machine, present or former; none: no node.
    pub node: Option<NodeId>,
    /// Details of the state: a sentence without a full stop.
    pub why: String,
    /// Number of logins tried.
    pub tries: i64,
    /// The data that the BMC gave, as JSON.
    pub body: String,
    /// The login that worked, sealed; empty: none.
    pub login: Vec<u8>,
}

const COLUMNS: &str = "SELECT id, requested_by, created_at, ended_at, phase, message, spec, heard, secrets, reached, total, \
                       silent, owner, lease_until FROM discoveries";
const FINDING: &str = "SELECT discovery_id, place, address, state, first, node_id, why, tries, body, login \
                       FROM discovery_findings";

fn discovery(row: &Row) -> Result<DiscoveryRow> {
    Ok(DiscoveryRow {
        id: row.id("id")?,
        requested_by: row.try_get("requested_by")?,
        created_at: Timestamp(row.try_get("created_at")?),
        ended_at: row.try_get::<Option<i64>>("ended_at")?.map(Timestamp),
        phase: row.try_get("phase")?,
        message: row.try_get("message")?,
        spec: row.try_get("spec")?,
        heard: row.try_get("heard")?,
        secrets: row.try_get("secrets")?,
        reached: row.try_get("reached")?,
        total: row.try_get("total")?,
        silent: row.try_get("silent")?,
        owner: row.try_get("owner")?,
        lease_until: Timestamp(row.try_get("lease_until")?),
    })
}

fn finding(row: &Row) -> Result<FindingRow> {
    Ok(FindingRow {
        discovery: row.id("discovery_id")?,
        place: row.try_get("place")?,
        address: row.try_get("address")?,
        state: row.try_get("state")?,
        first: row.try_get("first")?,
        node: row.id_unless_empty("node_id")?,
        why: row.try_get("why")?,
        tries: row.try_get("tries")?,
        body: row.try_get("body")?,
        login: row.try_get("login")?,
    })
}

fn not_found(id: &OperationId) -> StoreError {
    StoreError::NotFound {
        kind: "discovery",
        id: id.to_string(),
    }
}

impl Store {
    /// One discovery.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: no discovery has this id.
    pub async fn discovery(&self, id: &OperationId) -> Result<DiscoveryRow> {
        let sql = format!("{COLUMNS} WHERE id = $1");
        let row = statement(sql).bind(id).fetch_optional(&self.readers).await?;
        discovery(&row.ok_or_else(|| not_found(id))?)
    }

    /// Discoveries with ids below `before`, newest first; empty: all.
    pub async fn discoveries(&self, before: &str, limit: i64) -> Result<Vec<DiscoveryRow>> {
        let sql = format!("{COLUMNS} WHERE ($1 = '' OR id < $1) ORDER BY id DESC LIMIT $2");
        let rows = statement(sql).bind(before).bind(limit).blocking();
        rows.fetch_all(&self.readers).await?.iter().map(discovery).collect()
    }

    /// Open discoveries that this replica may run: its own ones, and those with an expired lease.
    pub async fn claimable_discoveries(&self, replica: &str, now: Timestamp) -> Result<Vec<OperationId>> {
        let sql = "SELECT id FROM discoveries WHERE ended_at IS NULL AND (owner = $1 OR lease_until < $2) ORDER BY id";
        let rows = statement(sql)
            .bind(replica)
            .bind(now.0)
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(|row| Ok(row.id(0)?)).collect()
    }

    /// Leases a discovery. False: another replica has the lease, or the discovery has ended.
    pub async fn lease_discovery(
        &self,
        id: &OperationId,
        replica: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool> {
        let sql = "UPDATE discoveries SET owner = $1, lease_until = $2 WHERE id = $3 AND ended_at IS NULL \
                   AND (owner = $1 OR lease_until < $4)";
        let query = statement(sql).bind(replica).bind(until.0).bind(id).bind(now.0);
        Ok(self.execute(query).await? > 0)
    }

    /// One finding, by its address.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the discovery has no finding of this address.
    pub async fn finding(&self, discovery: &OperationId, address: &str) -> Result<FindingRow> {
        let sql = format!("{FINDING} WHERE discovery_id = $1 AND address = $2");
        let row = statement(sql)
            .bind(discovery)
            .bind(address)
            .fetch_optional(&self.readers);
        let row = row.await?.ok_or_else(|| StoreError::NotFound {
            kind: "finding",
            id: address.to_owned(),
        });
        finding(&row?)
    }

    /// Findings with places after `after`, in the order of places. `state` selects one state; `*`: all finished findings;
    /// empty: all finished main findings.
    pub async fn findings(
        &self,
        discovery: &OperationId,
        state: &str,
        after: &str,
        limit: i64,
    ) -> Result<Vec<FindingRow>> {
        let sql = format!(
            "{FINDING} WHERE discovery_id = $1 AND place > $2 AND (state = $3 OR ($3 = '' AND state <> 'asking' \
             AND state <> 'same') OR ($3 = '*' AND state <> 'asking')) ORDER BY place LIMIT $4"
        );
        let rows = statement(sql)
            .bind(discovery)
            .bind(after)
            .bind(state)
            .bind(limit)
            .blocking();
        rows.fetch_all(&self.readers).await?.iter().map(finding).collect()
    }

    /// Further addresses of machines, for main findings with places from `first` to `last`. Each pair has the place of
    /// the main finding, and one further address.
    pub async fn finding_others(
        &self,
        discovery: &OperationId,
        first: &str,
        last: &str,
    ) -> Result<Vec<(String, String)>> {
        let sql = "SELECT first, address FROM discovery_findings WHERE discovery_id = $1 AND first >= $2 AND first <= $3 \
                   AND first <> '' ORDER BY first, place";
        let rows = statement(sql).bind(discovery).bind(first).bind(last).blocking();
        let rows = rows.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Number of findings in each state.
    pub async fn finding_counts(&self, discovery: &OperationId) -> Result<Vec<(String, i64)>> {
        let sql =
            "SELECT state, COUNT(*) FROM discovery_findings WHERE discovery_id = $1 GROUP BY state ORDER BY state";
        let rows = statement(sql)
            .bind(discovery)
            .blocking()
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Number of logins tried so far, for each unfinished place.
    pub async fn finding_tries(&self, discovery: &OperationId) -> Result<HashMap<String, i64>> {
        let sql = "SELECT place, tries FROM discovery_findings WHERE discovery_id = $1 AND state = 'asking'";
        let rows = statement(sql).bind(discovery).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Finished places. A resumed discovery skips them.
    pub async fn finding_places(&self, discovery: &OperationId) -> Result<HashSet<String>> {
        let sql = "SELECT place FROM discovery_findings WHERE discovery_id = $1 AND state <> 'asking'";
        let rows = statement(sql)
            .bind(discovery)
            .blocking()
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Counts a login before it is tried, so that a login counts even if the process ends meanwhile.
    pub async fn record_login_try(&self, row: &FindingRow) -> Result<()> {
        let sql = "INSERT INTO discovery_findings (discovery_id, place, address, state, first, node_id, why, tries, body, login) \
                   VALUES ($1, $2, $3, 'asking', '', '', '', 1, '{}', $4) \
                   ON CONFLICT (discovery_id, place) DO UPDATE SET tries = discovery_findings.tries + 1";
        let query = statement(sql).bind(&row.discovery).bind(&row.place).bind(&row.address);
        self.execute(query.bind(Vec::new().as_slice())).await?;
        Ok(())
    }
}

impl WriteTx {
    /// Open discoveries. No other change begins a discovery until this change ends (lock of `discovery_guard`).
    pub async fn open_discoveries(&mut self) -> Result<Vec<DiscoveryRow>> {
        let guard = format!("SELECT id FROM discovery_guard{}", self.kind.for_update());
        statement(guard).fetch_all(&mut self.tx).await?;
        let sql = format!("{COLUMNS} WHERE ended_at IS NULL ORDER BY id");
        let rows = statement(sql).fetch_all(&mut self.tx).await?;
        rows.iter().map(discovery).collect()
    }

    /// Inserts a new discovery, and deletes finished discoveries except the newest `keep`.
    pub async fn insert_discovery(&mut self, row: &DiscoveryRow, keep: i64) -> Result<()> {
        let sql = "DELETE FROM discoveries WHERE ended_at IS NOT NULL AND id NOT IN \
                   (SELECT id FROM discoveries WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT $1)";
        statement(sql).bind(keep).execute(&mut self.tx).await?;
        let sql = "INSERT INTO discoveries (id, requested_by, created_at, ended_at, phase, message, spec, heard, secrets, \
                   reached, total, silent, owner, lease_until) \
                   VALUES ($1, $2, $3, NULL, $4, '', $5, $6, $7, $8, $9, $10, $11, $12)";
        let query = statement(sql)
            .bind(&row.id)
            .bind(&row.requested_by)
            .bind(row.created_at.0);
        let query = query
            .bind(&row.phase)
            .bind(&row.spec)
            .bind(&row.heard)
            .bind(&row.secrets);
        let query = query.bind(row.reached).bind(row.total).bind(row.silent);
        query
            .bind(&row.owner)
            .bind(row.lease_until.0)
            .execute(&mut self.tx)
            .await?;
        Ok(())
    }

    /// Stores the progress of a discovery. False: another replica owns the discovery now, or the discovery has ended. The
    /// caller must then store nothing more.
    pub async fn save_discovery(&mut self, row: &DiscoveryRow) -> Result<bool> {
        let sql = "UPDATE discoveries SET phase = $1, heard = $2, reached = $3, total = $4, silent = $5, lease_until = $6, \
                   ended_at = $7, message = $8 WHERE id = $9 AND owner = $10 AND ended_at IS NULL";
        let query = statement(sql).bind(&row.phase).bind(&row.heard).bind(row.reached);
        let query = query.bind(row.total).bind(row.silent).bind(row.lease_until.0);
        let query = query.bind(row.ended_at.map(|at| at.0)).bind(&row.message);
        let query = query.bind(&row.id).bind(&row.owner);
        Ok(query.execute(&mut self.tx).await? > 0)
    }

    /// Deletes the credentials of a finished discovery.
    pub async fn forget_discovery_secrets(&mut self, id: &OperationId) -> Result<()> {
        let query = statement("UPDATE discoveries SET secrets = $1 WHERE id = $2");
        query.bind(Vec::new().as_slice()).bind(id).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores findings. Each replaces the former finding of its place in its discovery.
    pub async fn put_findings(&mut self, rows: &[FindingRow]) -> Result<()> {
        let sql = "INSERT INTO discovery_findings (discovery_id, place, address, state, first, node_id, why, tries, body, login) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (discovery_id, place) DO UPDATE SET \
                   address = excluded.address, state = excluded.state, first = excluded.first, \
                   node_id = excluded.node_id, why = excluded.why, tries = excluded.tries, body = excluded.body, \
                   login = excluded.login";
        for row in rows {
            let query = statement(sql).bind(&row.discovery).bind(&row.place).bind(&row.address);
            let query = query
                .bind(&row.state)
                .bind(&row.first)
                .bind(row.node.as_ref().map_or("", NodeId::as_str))
                .bind(&row.why);
            let query = query.bind(row.tries).bind(&row.body).bind(&row.login);
            query.execute(&mut self.tx).await?;
        }
        Ok(())
    }
}
