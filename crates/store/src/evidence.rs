//! Proofs: validation reports and erase certificates, stored as the encoded messages that clients get.

use std::collections::BTreeMap;

use rackwright_lifecycle::{ClusterId, CustomerId, NodeId};

use crate::sql::{Row, statement};
use crate::{Result, Scope, Store, StoreError, WriteTx};

/// The kinds of proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// A validation report.
    Report,
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

/// A place in the chain of erase certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEntry {
    /// Number in the chain, from 1.
    pub number: u64,
    /// SHA-256 of the certificate's payload, 64 hex digits.
    pub payload_hash: String,
    /// The customer that had the machine; empty: none.
    pub customer: CustomerId,
    /// The certificate.
    pub body: Vec<u8>,
}

/// The newest place in the chain of erase certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainHead {
    /// Number in the chain; 0: the chain is empty.
    pub number: u64,
    /// Its hash, 64 hex digits; empty: the chain is empty.
    pub hash: String,
}

const HEAD: &str = "SELECT erase_count, erase_head FROM site WHERE id = 1";

fn head(row: Option<&Row>) -> Result<ChainHead> {
    let Some(row) = row else {
        return Ok(ChainHead::default());
    };
    Ok(ChainHead {
        number: row.unsigned(0, "chain", "erase certificates")?,
        hash: row.try_get(1)?,
    })
}

impl Store {
    /// Places in the chain of erase certificates after a number, in order, at most `limit`.
    pub async fn erase_chain(&self, after: u64, limit: i64) -> Result<Vec<ChainEntry>> {
        let sql = "SELECT number, payload_hash, customer, body FROM erase_certificates WHERE number > $1 \
                   ORDER BY number, position LIMIT $2";
        let query = statement(sql)
            .bind(i64::try_from(after).unwrap_or(i64::MAX))
            .bind(limit);
        let rows = query.blocking().fetch_all(&self.readers).await?;
        let entry = |row: &Row| {
            Ok(ChainEntry {
                number: row.unsigned(0, "chain", "erase certificates")?,
                payload_hash: row.try_get(1)?,
                customer: row.id(2)?,
                body: row.try_get(3)?,
            })
        };
        rows.iter().map(entry).collect()
    }

    /// The newest place in the chain of erase certificates.
    pub async fn erase_head(&self) -> Result<ChainHead> {
        let row = statement(HEAD).fetch_optional(&self.readers).await?;
        head(row.as_ref())
    }

    /// SHA-256 of the last quote of a node's newest boot; empty: there was none.
    pub async fn agent_quote(&self, node: &NodeId) -> Result<String> {
        let row = statement("SELECT quote FROM agent_boots WHERE node_id = $1").bind(node);
        let row = row.fetch_optional(&self.readers).await?;
        row.map_or(Ok(String::new()), |row| Ok(row.try_get(0)?))
    }

    /// Proofs of a node before a position, newest first; for a customer only those from the time when the customer had the
    /// node.
    pub async fn proofs(
        &self,
        scope: &Scope,
        kind: Proof,
        node: &NodeId,
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

    /// The newest report of each node of a cluster, by node. Nodes without a report are omitted.
    pub async fn newest_reports(&self, cluster: &ClusterId) -> Result<BTreeMap<NodeId, Vec<u8>>> {
        let sql = "SELECT node_id, body FROM reports WHERE position IN (SELECT MAX(r.position) FROM reports r \
                   JOIN cluster_nodes c ON c.node_id = r.node_id WHERE c.cluster_id = $1 GROUP BY r.node_id)";
        let rows = statement(sql).bind(cluster).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok((r.id(0)?, r.try_get(1)?))).collect()
    }
}

impl WriteTx {
    /// The newest place in the chain of erase certificates, locked: no other change extends the chain until this one ends.
    pub async fn erase_head(&mut self) -> Result<ChainHead> {
        let sql = format!("{HEAD}{}", self.kind.for_update());
        let row = statement(sql).fetch_optional(&mut self.tx).await?;
        head(row.as_ref())
    }

    /// Stores an erase certificate as the newest place of the chain, with the hash `hash` of that place. Read the head
    /// before.
    ///
    /// # Errors
    /// `Exists`: the id is used already.
    pub async fn add_to_erase_chain(&mut self, id: &str, node: &NodeId, entry: &ChainEntry, hash: &str) -> Result<()> {
        self.add_proof(Proof::EraseCertificate, id, node, &entry.body).await?;
        let number = i64::try_from(entry.number).unwrap_or(i64::MAX);
        let sql = "UPDATE erase_certificates SET number = $2, payload_hash = $3 WHERE id = $1";
        let query = statement(sql).bind(id).bind(number).bind(&entry.payload_hash);
        query.execute(&mut self.tx).await?;
        let sql = "UPDATE site SET erase_count = $1, erase_head = $2 WHERE id = 1";
        let query = statement(sql).bind(number).bind(hash);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores the SHA-256 of the last quote of a node's newest boot.
    pub async fn put_agent_quote(&mut self, node: &NodeId, quote: &str) -> Result<()> {
        let query = statement("UPDATE agent_boots SET quote = $2 WHERE node_id = $1");
        query.bind(node).bind(quote).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores a proof.
    ///
    /// # Errors
    /// `Exists`: the id is used already.
    pub async fn add_proof(&mut self, kind: Proof, id: &str, node: &NodeId, body: &[u8]) -> Result<()> {
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
