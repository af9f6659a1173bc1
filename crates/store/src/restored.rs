//! Restored or copied databases, and the nodes with records that are therefore doubted.

use rackwright_lifecycle::{ClusterId, Doubt, DoubtCause, NodeId, Timestamp};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Change, Result, Store, WriteTx};

/// The identity and age of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseAge {
    /// Random id, the same in all copies of the database.
    pub id: String,
    /// A counter that grows at each start of a daemon, each minute while one runs, and at each end.
    pub age: i64,
}

/// Reads the doubt from a node's row.
pub(crate) fn doubt(id: &NodeId, row: &Row) -> Result<Option<Doubt>> {
    let cause: String = row.try_get("doubt_cause")?;
    if cause.is_empty() {
        return Ok(None);
    }
    let generation: i64 = row.try_get("doubt_generation")?;
    Ok(Some(Doubt {
        cause: DoubtCause::parse(&cause)
            .ok_or_else(|| corrupt("node", id.as_str(), format!("unknown doubt {cause:?}")))?,
        since: Timestamp(row.try_get("doubt_since")?),
        why: row.try_get("doubt_why")?,
        generation: u64::try_from(generation).unwrap_or(0),
    }))
}

/// The columns of a doubt: cause, since, why, generation.
pub(crate) fn columns(doubt: Option<&Doubt>) -> (&str, i64, &str, i64) {
    doubt.map_or(("", 0, "", 0), |doubt| {
        let generation = i64::try_from(doubt.generation).unwrap_or(i64::MAX);
        (doubt.cause.as_str(), doubt.since.0, &doubt.why, generation)
    })
}

impl Store {
    /// Number of doubted nodes.
    pub async fn doubted_nodes(&self) -> Result<i64> {
        let query = statement("SELECT COUNT(*) FROM nodes WHERE doubt_cause <> ''");
        Ok(query.fetch_one(&self.readers).await?.try_get(0)?)
    }

    /// True while a node is doubted because the database was restored: the database may then lack customers of the site.
    pub async fn is_restored(&self) -> Result<bool> {
        let query = statement("SELECT id FROM nodes WHERE doubt_cause = 'restored' AND doubt_cause <> '' LIMIT 1");
        Ok(query.fetch_optional(&self.readers).await?.is_some())
    }

    /// A doubted node of a cluster, if there is one.
    pub async fn doubted_node_of(&self, cluster: &ClusterId) -> Result<Option<NodeId>> {
        let sql = "SELECT n.id FROM cluster_nodes c JOIN nodes n ON n.id = c.node_id \
                   WHERE c.cluster_id = $1 AND n.doubt_cause <> '' ORDER BY n.id LIMIT 1";
        let row = statement(sql).bind(cluster).fetch_optional(&self.readers).await?;
        row.map(|row| Ok(row.id(0)?)).transpose()
    }

    /// Stores the challenge of a starting daemon, which finds it here if both use the same database.
    pub async fn put_challenge(&self, challenge: &str) -> Result<()> {
        let query = statement("UPDATE site SET challenge = $1 WHERE id = 1").bind(challenge);
        self.execute(query).await?;
        Ok(())
    }

    /// The last stored challenge.
    pub async fn challenge(&self) -> Result<String> {
        let query = statement("SELECT challenge FROM site WHERE id = 1");
        Ok(query.fetch_one(&self.readers).await?.try_get(0)?)
    }
}

impl WriteTx {
    /// The identity and age of the database, locked: no other daemon changes the age until this change ends. `fresh`
    /// becomes the id of a database without one.
    ///
    /// # Errors
    /// The database failed, or has no site yet.
    pub async fn database_age(&mut self, fresh: &str) -> Result<DatabaseAge> {
        let query = statement("UPDATE site SET database_id = $1 WHERE id = 1 AND database_id = ''").bind(fresh);
        query.execute(&mut self.tx).await?;
        let sql = format!(
            "SELECT database_id, age FROM site WHERE id = 1{}",
            self.kind.for_update()
        );
        let row = statement(sql).fetch_one(&mut self.tx).await?;
        Ok(DatabaseAge {
            id: row.try_get("database_id")?,
            age: row.try_get("age")?,
        })
    }

    /// Sets the age of the database.
    pub async fn put_database_age(&mut self, age: i64) -> Result<()> {
        let query = statement("UPDATE site SET age = $1 WHERE id = 1").bind(age);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Doubts every node, including nodes doubted for another reason, and makes them due. Returns the number of nodes.
    pub async fn doubt_all(&mut self, doubt: &Doubt) -> Result<u64> {
        let (cause, since, why, _) = columns(Some(doubt));
        let sql =
            "UPDATE nodes SET doubt_cause = $1, doubt_since = $2, doubt_why = $3, version = version + 1, due_at = $2";
        let query = statement(sql).bind(cause).bind(since).bind(why).blocking();
        let doubted = query.execute(&mut self.tx).await?;
        self.hints.send(Change::Due);
        Ok(doubted)
    }
}
