//! Machines deleted while they held data: this record outlives the node.

use rackwright_lifecycle::Timestamp;

use crate::nodes::NodeRecord;
use crate::sql::statement;
use crate::{Result, WriteTx};

impl WriteTx {
    /// Stores that the machine of a node under deletion holds data, if it does.
    pub(crate) async fn record_unerased(&mut self, record: &NodeRecord) -> Result<()> {
        let evidence = &record.node.evidence;
        let Some(written_at) = evidence.written_at.filter(|_| !evidence.is_untouched()) else {
            return Ok(());
        };
        for mac in &record.identity.macs {
            let sql = "INSERT INTO unerased_machines (mac, written_at) VALUES ($1, $2) \
                       ON CONFLICT (mac) DO UPDATE SET written_at = excluded.written_at";
            let query = statement(sql).bind(mac).bind(written_at.0);
            query.execute(&mut self.tx).await?;
        }
        Ok(())
    }

    /// When the machine with these MAC addresses was last written, if it was deleted with data on it. Removes the record:
    /// from here on the new node must remember it.
    pub async fn take_unerased(&mut self, macs: &[String]) -> Result<Option<Timestamp>> {
        let mut newest = None;
        for mac in macs {
            let query = statement("DELETE FROM unerased_machines WHERE mac = $1 RETURNING written_at").bind(mac);
            if let Some(row) = query.fetch_optional(&mut self.tx).await? {
                newest = newest.max(Some(Timestamp(row.try_get(0)?)));
            }
        }
        Ok(newest)
    }
}
