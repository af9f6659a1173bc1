//! Proof: validation reports and erase certificates, as the messages they are handed out as.

use crate::sql::statement;
use crate::{Result, Store, StoreError, WriteTx};

/// Which kind of proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// A validation report.
    Report,
    /// An erase certificate.
    EraseCertificate,
}

impl Proof {
    fn list(self) -> &'static str {
        match self {
            Self::Report => {
                "SELECT position, body FROM reports WHERE node_id = $1 AND position < $2 \
                 ORDER BY position DESC LIMIT $3"
            }
            Self::EraseCertificate => {
                "SELECT position, body FROM erase_certificates WHERE node_id = $1 AND position < $2 \
                 ORDER BY position DESC LIMIT $3"
            }
        }
    }

    fn insert(self) -> &'static str {
        match self {
            Self::Report => "INSERT INTO reports (id, node_id, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            Self::EraseCertificate => {
                "INSERT INTO erase_certificates (id, node_id, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
            }
        }
    }
}

impl Store {
    /// Proofs of a node, newest first, before a position.
    ///
    /// # Errors
    /// The database failed.
    pub async fn proofs(&self, kind: Proof, node: &str, before: i64, limit: i64) -> Result<Vec<(i64, Vec<u8>)>> {
        let query = statement(kind.list()).bind(node).bind(before).bind(limit);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?))).collect()
    }
}

impl WriteTx {
    /// Keeps a proof.
    ///
    /// # Errors
    /// `Exists`: an id is given once.
    pub async fn add_proof(&mut self, kind: Proof, id: &str, node: &str, body: &[u8]) -> Result<()> {
        let query = statement(kind.insert()).bind(id).bind(node).bind(body);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Exists {
                kind: "proof",
                id: id.to_owned(),
            });
        }
        Ok(())
    }
}
