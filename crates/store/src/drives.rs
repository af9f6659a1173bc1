//! Drives of nodes, as each source lists them. The report of an erase never changes them.

use rackwright_lifecycle::drives::{DriveList, Source};
use rackwright_lifecycle::{NodeId, Timestamp};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

const LISTS: &str = "SELECT source, said_at, said_by, body FROM node_drives WHERE node_id = $1 ORDER BY source";

fn read(node: &NodeId, row: &Row) -> Result<DriveList> {
    let source: String = row.try_get("source")?;
    let source =
        Source::parse(&source).ok_or_else(|| corrupt("node", node.as_str(), format!("unknown source {source:?}")))?;
    Ok(DriveList {
        source,
        at: Timestamp(row.try_get("said_at")?),
        by: row.try_get("said_by")?,
        drives: serde_json::from_str(row.try_get("body")?).map_err(|e| corrupt("node", node.as_str(), e))?,
    })
}

impl Store {
    /// The drive lists of a node, one for each source.
    pub async fn drive_lists(&self, node: &NodeId) -> Result<Vec<DriveList>> {
        let rows = statement(LISTS).bind(node).fetch_all(&self.readers).await?;
        rows.iter().map(|row| read(node, row)).collect()
    }
}

impl WriteTx {
    /// As [`Store::drive_lists`], within this change.
    pub async fn drive_lists(&mut self, node: &NodeId) -> Result<Vec<DriveList>> {
        let rows = statement(LISTS).bind(node).fetch_all(&mut self.tx).await?;
        rows.iter().map(|row| read(node, row)).collect()
    }

    /// Stores the list of one source, and replaces its former list.
    pub async fn put_drive_list(&mut self, node: &NodeId, list: &DriveList) -> Result<()> {
        let body = serde_json::to_string(&list.drives).map_err(|e| corrupt("node", node.as_str(), e))?;
        let sql = "INSERT INTO node_drives (node_id, source, said_at, said_by, body) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (node_id, source) DO UPDATE SET said_at = excluded.said_at, \
                   said_by = excluded.said_by, body = excluded.body";
        let query = statement(sql).bind(node).bind(list.source.as_str()).bind(list.at.0);
        query.bind(&list.by).bind(body).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Deletes the list of one source, if there is one.
    pub async fn delete_drive_list(&mut self, node: &NodeId, source: Source) -> Result<()> {
        let query = statement("DELETE FROM node_drives WHERE node_id = $1 AND source = $2");
        let query = query.bind(node).bind(source.as_str());
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
