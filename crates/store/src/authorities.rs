//! The rotation of the site's authority: remaining certificates of a former authority, and the end of the rotation.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::statement;
use crate::{Result, Store, WriteTx};

impl Store {
    /// SHA-256 of the authority that every starting replica must have. Empty: no rotation has ended yet.
    pub async fn required_authority(&self) -> Result<String> {
        let row = statement("SELECT authority FROM site").fetch_optional(&self.readers);
        row.await?.map_or(Ok(String::new()), |row| Ok(row.try_get(0)?))
    }

    /// Names of members with a newest certificate that is valid at `now` and not signed by this authority.
    pub async fn members_without(&self, authority: &str, now: Timestamp) -> Result<Vec<String>> {
        let sql = "SELECT name FROM members WHERE certificate_ends_at > $1 AND authority <> $2 ORDER BY name";
        let rows = statement(sql).bind(now.0).bind(authority).fetch_all(&self.readers);
        rows.await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Ids of nodes with a connected agent and a newest certificate that is not signed by this authority.
    pub async fn agents_without(&self, authority: &str) -> Result<Vec<NodeId>> {
        let sql = "SELECT n.id FROM nodes n LEFT JOIN agent_boots b ON b.node_id = n.id \
                   WHERE n.agent_holder <> '' AND (b.authority IS NULL OR b.authority <> $1) ORDER BY n.id";
        let rows = statement(sql).bind(authority).fetch_all(&self.readers);
        rows.await?.iter().map(|row| Ok(row.id(0)?)).collect()
    }

    /// Number of unused member tokens that are valid at `now`. Such a token comes with the pin of the present authority.
    pub async fn open_member_tokens(&self, now: Timestamp) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM tokens WHERE purpose = 'member' AND used_at IS NULL AND expires_at > $1";
        let row = statement(sql).bind(now.0).fetch_one(&self.readers);
        Ok(row.await?.try_get(0)?)
    }

    /// Stores the authority that signed the newest certificate of the agent in a node's newest boot.
    pub async fn record_renewal(&self, node: &NodeId, authority: &str) -> Result<()> {
        let query = statement(AGENT).bind(node).bind(authority);
        self.execute(query).await?;
        Ok(())
    }
}

const AGENT: &str = "UPDATE agent_boots SET authority = $2 WHERE node_id = $1 AND authority <> $2";

impl WriteTx {
    /// As [`Store::record_renewal`], within this change.
    pub async fn record_agent_cert(&mut self, node: &NodeId, authority: &str) -> Result<()> {
        let query = statement(AGENT).bind(node).bind(authority);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Ends a rotation: a replica cannot start without this authority, and all other authorities are retired.
    pub async fn require_authority(&mut self, sha256: &str) -> Result<()> {
        let query = statement("UPDATE site SET authority = $1").bind(sha256);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
