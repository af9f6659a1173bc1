//! Proof: validation reports and erase certificates, as the messages they are handed out as.

use std::collections::BTreeMap;

use crate::sql::statement;
use crate::{Result, Scope, Store, StoreError, WriteTx};

/// Which kind of proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// A validation report.
    Report,
    /// An erase certificate.
    EraseCertificate,
}

impl Proof {
    fn table(self) -> &'static str {
        match self {
            Self::Report => "reports",
            Self::EraseCertificate => "erase_certificates",
        }
    }
}

impl Store {
    /// Proofs of a node, newest first, before a position; for a customer those from when the node was theirs.
    ///
    /// # Errors
    /// The database failed.
    pub async fn proofs(
        &self,
        scope: &Scope,
        kind: Proof,
        node: &str,
        before: i64,
        limit: i64,
    ) -> Result<Vec<(i64, Vec<u8>)>> {
        let sql = format!(
            "SELECT position, body FROM {} WHERE node_id = $1 AND position < $2{} ORDER BY position DESC LIMIT $3",
            kind.table(),
            scope.rows("customer", 4)
        );
        let query = scope.bind(statement(sql).bind(node).bind(before).bind(limit));
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?))).collect()
    }

    /// The newest report of each node of a cluster, by node. Nodes without one are left out.
    ///
    /// # Errors
    /// The database failed.
    pub async fn newest_reports(&self, cluster: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        let sql = "SELECT node_id, body FROM reports WHERE position IN (SELECT MAX(r.position) FROM reports r \
                   JOIN cluster_nodes c ON c.node_id = r.node_id WHERE c.cluster_id = $1 GROUP BY r.node_id)";
        let rows = statement(sql).bind(cluster).aside().fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?))).collect()
    }
}

impl WriteTx {
    /// Keeps a proof.
    ///
    /// # Errors
    /// `Exists`: an id is given once.
    pub async fn add_proof(&mut self, kind: Proof, id: &str, node: &str, body: &[u8]) -> Result<()> {
        let sql = format!(
            "INSERT INTO {} (id, node_id, body, customer) \
             VALUES ($1, $2, $3, COALESCE((SELECT customer FROM nodes WHERE id = $2), '')) ON CONFLICT DO NOTHING",
            kind.table()
        );
        let query = statement(sql).bind(id).bind(node).bind(body);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Exists {
                kind: "proof",
                id: id.to_owned(),
            });
        }
        Ok(())
    }
}
