//! Proof: validation reports and erase certificates, as the messages they are handed out as.

use sqlx::Row;

use crate::{Result, Store, WriteTx};

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
                "SELECT position, body FROM reports WHERE node_id = ? AND position < ? \
                 ORDER BY position DESC LIMIT ?"
            }
            Self::EraseCertificate => {
                "SELECT position, body FROM erase_certificates WHERE node_id = ? AND position < ? \
                 ORDER BY position DESC LIMIT ?"
            }
        }
    }

    fn insert(self) -> &'static str {
        match self {
            Self::Report => "INSERT INTO reports (id, node_id, body) VALUES (?, ?, ?)",
            Self::EraseCertificate => "INSERT INTO erase_certificates (id, node_id, body) VALUES (?, ?, ?)",
        }
    }
}

impl Store {
    /// Proofs of a node, newest first, before a position.
    ///
    /// # Errors
    /// The database failed.
    pub async fn proofs(&self, kind: Proof, node: &str, before: i64, limit: i64) -> Result<Vec<(i64, Vec<u8>)>> {
        let query = sqlx::query(kind.list()).bind(node).bind(before).bind(limit);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?))).collect()
    }
}

impl WriteTx {
    /// Keeps a proof.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add_proof(&mut self, kind: Proof, id: &str, node: &str, body: &[u8]) -> Result<()> {
        sqlx::query(kind.insert())
            .bind(id)
            .bind(node)
            .bind(body)
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }
}
