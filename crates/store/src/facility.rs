//! The last readings of meters and sensors, the open alarms, and the nodes that the alarms hold.

use std::collections::{BTreeMap, HashSet};

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::sql::{Row, statement};
use crate::{Change, Result, Store, WriteTx};

/// The last reading of one piece of equipment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingRow {
    /// `node`, `pdu` or `cooling`.
    pub kind: String,
    /// Its name in the site file.
    pub name: String,
    /// When it was read.
    pub at: Timestamp,
    /// When it was stored.
    pub stored_at: Timestamp,
    /// The values, as JSON.
    pub body: String,
}

/// An open alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlarmRow {
    /// Kind and subject: `leak cdu/cdu-1`.
    pub id: String,
    /// The kind of fault.
    pub kind: String,
    /// The faulty thing.
    pub subject: String,
    /// `warning` or `critical`.
    pub severity: String,
    /// The fault: a sentence without a full stop.
    pub message: String,
    /// The remedy.
    pub advice: String,
    /// The measured value, in thousandths of the unit.
    pub measured: Option<i64>,
    /// The permitted value, in thousandths of the unit.
    pub limit: Option<i64>,
    /// The unit of both values.
    pub unit: String,
    /// Number of affected nodes.
    pub nodes: i64,
    /// Digest of the affected nodes' names.
    pub nodes_digest: String,
    /// The affected nodes must not be switched on.
    pub blocks: bool,
    /// The affected nodes are not given to new clusters.
    pub cordons: bool,
    /// When the alarm was opened.
    pub opened_at: Timestamp,
    /// When the fault was last seen.
    pub seen_at: Timestamp,
}

/// Nodes that are held with one statement.
const HOLD_BATCH: usize = 200;

const ALARM: &str = "id, kind, subject, severity, message, advice, measured, limit_at, unit, nodes, blocks, cordons, \
                     opened_at, seen_at, which";

fn alarm(row: &Row) -> Result<AlarmRow> {
    Ok(AlarmRow {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        subject: row.try_get("subject")?,
        severity: row.try_get("severity")?,
        message: row.try_get("message")?,
        advice: row.try_get("advice")?,
        measured: row.try_get("measured")?,
        limit: row.try_get("limit_at")?,
        unit: row.try_get("unit")?,
        nodes: row.try_get("nodes")?,
        nodes_digest: row.try_get("which")?,
        blocks: row.try_get::<i64>("blocks")? != 0,
        cordons: row.try_get::<i64>("cordons")? != 0,
        opened_at: Timestamp(row.try_get("opened_at")?),
        seen_at: Timestamp(row.try_get("seen_at")?),
    })
}

fn reading(row: &Row) -> Result<ReadingRow> {
    Ok(ReadingRow {
        kind: row.try_get("kind")?,
        name: row.try_get("name")?,
        at: Timestamp(row.try_get("at")?),
        stored_at: Timestamp(row.try_get("stored_at")?),
        body: row.try_get("body")?,
    })
}

/// The oldest alarm that keeps a node from being switched on.
const BLOCK: &str = "SELECT a.message FROM facility_holds h JOIN facility_alarms a ON a.id = h.alarm_id \
                     WHERE h.node_id = $1 AND h.blocks = 1 ORDER BY a.opened_at, a.id LIMIT 1";

impl Store {
    /// Readings stored at or after `since`, oldest first, at most `limit`.
    pub async fn facility_readings(&self, since: Timestamp, limit: i64) -> Result<Vec<ReadingRow>> {
        let sql = "SELECT kind, name, at, stored_at, body FROM facility_readings WHERE stored_at >= $1 \
                   ORDER BY stored_at, kind, name LIMIT $2";
        let rows = statement(sql).bind(since.0).bind(limit).blocking();
        rows.fetch_all(&self.readers).await?.iter().map(reading).collect()
    }

    /// Number of things of each kind with a reading taken at or after `since`.
    pub async fn count_facility_readings(&self, since: Timestamp) -> Result<BTreeMap<String, i64>> {
        let sql = "SELECT kind, COUNT(*) FROM facility_readings WHERE at >= $1 GROUP BY kind";
        let rows = statement(sql).bind(since.0).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// The last reading of one thing.
    pub async fn facility_reading(&self, kind: &str, name: &str) -> Result<Option<ReadingRow>> {
        let sql = "SELECT kind, name, at, stored_at, body FROM facility_readings WHERE kind = $1 AND name = $2";
        let row = statement(sql).bind(kind).bind(name).fetch_optional(&self.readers);
        row.await?.as_ref().map(reading).transpose()
    }

    /// The pinned address and certificate of a PDU or a cooling unit.
    pub async fn facility_pin(&self, kind: &str, name: &str) -> Result<Option<String>> {
        let query = statement("SELECT pin FROM facility_pins WHERE kind = $1 AND name = $2");
        let row = query.bind(kind).bind(name).fetch_optional(&self.readers).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }

    /// Everything with a pin, as pairs of kind and name.
    pub async fn facility_pins(&self) -> Result<Vec<(String, String)>> {
        let query = statement("SELECT kind, name FROM facility_pins ORDER BY kind, name");
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Alarms by id after `after`, at most `limit`.
    pub async fn alarms(&self, after: &str, limit: i64) -> Result<Vec<AlarmRow>> {
        let sql = format!("SELECT {ALARM} FROM facility_alarms WHERE id > $1 ORDER BY id LIMIT $2");
        let rows = statement(sql).bind(after).bind(limit);
        rows.fetch_all(&self.readers).await?.iter().map(alarm).collect()
    }

    /// Alarms that hold a node, oldest first.
    pub async fn alarms_of(&self, node: &NodeId) -> Result<Vec<AlarmRow>> {
        let sql = format!(
            "SELECT {ALARM} FROM facility_alarms WHERE id IN (SELECT alarm_id FROM facility_holds WHERE node_id = $1) \
             ORDER BY opened_at, id"
        );
        let rows = statement(sql).bind(node);
        rows.fetch_all(&self.readers).await?.iter().map(alarm).collect()
    }

    /// Nodes that an alarm holds, by id after `after`, at most `limit`.
    pub async fn nodes_held_by(&self, alarm: &str, after: &str, limit: i64) -> Result<Vec<NodeId>> {
        let sql = "SELECT node_id FROM facility_holds WHERE alarm_id = $1 AND node_id > $2 ORDER BY node_id LIMIT $3";
        let rows = statement(sql).bind(alarm).bind(after).bind(limit);
        let rows = rows.fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(row.id(0)?)).collect()
    }

    /// Nodes that are not given to new clusters because of an alarm.
    pub async fn cordoned_nodes(&self) -> Result<Vec<NodeId>> {
        let sql = "SELECT DISTINCT node_id FROM facility_holds WHERE cordons = 1 ORDER BY node_id";
        let rows = statement(sql).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(row.id(0)?)).collect()
    }

    /// The message of the alarm that keeps a node from being switched on.
    pub async fn power_block(&self, node: &NodeId) -> Result<Option<String>> {
        let row = statement(BLOCK).bind(node).fetch_optional(&self.readers).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }
}

impl WriteTx {
    /// Stores readings; a reading older than the stored one of the same thing is ignored.
    pub async fn put_facility_readings(&mut self, rows: &[ReadingRow]) -> Result<()> {
        let sql = "INSERT INTO facility_readings (kind, name, at, stored_at, body) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (kind, name) DO UPDATE SET at = excluded.at, stored_at = excluded.stored_at, \
                   body = excluded.body WHERE facility_readings.at <= excluded.at";
        // In a fixed order, so that concurrent changes do not deadlock.
        let mut sorted: Vec<&ReadingRow> = rows.iter().collect();
        sorted.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
        for row in sorted {
            let query = statement(sql).bind(&row.kind).bind(&row.name).bind(row.at.0);
            let query = query.bind(row.stored_at.0).bind(&row.body);
            query.execute(&mut self.tx).await?;
        }
        Ok(())
    }

    /// Pins the address and the certificate of a PDU or a cooling unit.
    pub async fn put_facility_pin(&mut self, kind: &str, name: &str, pin: &str) -> Result<()> {
        let sql = "INSERT INTO facility_pins (kind, name, pin) VALUES ($1, $2, $3) \
                   ON CONFLICT (kind, name) DO UPDATE SET pin = excluded.pin";
        let query = statement(sql).bind(kind).bind(name).bind(pin);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Deletes the pin of a PDU or a cooling unit.
    pub async fn forget_facility_pin(&mut self, kind: &str, name: &str) -> Result<()> {
        let query = statement("DELETE FROM facility_pins WHERE kind = $1 AND name = $2");
        query.bind(kind).bind(name).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Deletes readings stored before `before`.
    pub async fn forget_facility_readings(&mut self, before: Timestamp) -> Result<()> {
        let query = statement("DELETE FROM facility_readings WHERE stored_at < $1").bind(before.0);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Opens an alarm, or renews it and keeps its opening time; an alarm that blocks or cordons holds `nodes` from now on.
    /// Nodes that it blocked before and no longer blocks become due if they wait for alarms to clear. Returns true if a node
    /// became due.
    pub async fn put_alarm(&mut self, row: &AlarmRow, nodes: &[NodeId]) -> Result<bool> {
        let sql = "SELECT node_id FROM facility_holds WHERE alarm_id = $1 AND blocks = 1 ORDER BY node_id";
        let before = statement(sql).bind(&row.id).fetch_all(&mut self.tx).await?;
        let before: Vec<NodeId> = before
            .iter()
            .map(|row| row.id(0))
            .collect::<std::result::Result<_, _>>()?;
        let sql = format!(
            "INSERT INTO facility_alarms ({ALARM}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) \
             ON CONFLICT (id) DO UPDATE SET severity = excluded.severity, message = excluded.message, \
             advice = excluded.advice, measured = excluded.measured, limit_at = excluded.limit_at, nodes = excluded.nodes, which = excluded.which, \
             blocks = excluded.blocks, cordons = excluded.cordons, seen_at = excluded.seen_at"
        );
        let query = statement(sql).bind(&row.id).bind(&row.kind).bind(&row.subject);
        let query = query.bind(&row.severity).bind(&row.message).bind(&row.advice);
        let query = query.bind(row.measured).bind(row.limit).bind(&row.unit).bind(row.nodes);
        let query = query.bind(i64::from(row.blocks)).bind(i64::from(row.cordons));
        let query = query.bind(row.opened_at.0).bind(row.seen_at.0).bind(&row.nodes_digest);
        query.execute(&mut self.tx).await?;
        self.release_nodes(&row.id).await?;
        if row.blocks || row.cordons {
            self.hold_nodes(row, nodes).await?;
        }
        let held: HashSet<&NodeId> = nodes.iter().filter(|_| row.blocks).collect();
        let unblocked: Vec<&NodeId> = before.iter().filter(|node| !held.contains(node)).collect();
        let mut are_due = false;
        for some in unblocked.chunks(HOLD_BATCH) {
            are_due |= self.wake_held(some, row.seen_at).await?;
        }
        Ok(are_due)
    }

    async fn hold_nodes(&mut self, row: &AlarmRow, nodes: &[NodeId]) -> Result<()> {
        for some in nodes.chunks(HOLD_BATCH) {
            let places: Vec<String> = (0..some.len()).map(|n| format!("($1, ${}, $2, $3)", n + 4)).collect();
            let sql = format!(
                "INSERT INTO facility_holds (alarm_id, node_id, blocks, cordons) VALUES {} ON CONFLICT DO NOTHING",
                places.join(", ")
            );
            let query = statement(sql)
                .bind(&row.id)
                .bind(i64::from(row.blocks))
                .bind(i64::from(row.cordons));
            let query = some.iter().fold(query, |query, node| query.bind(node));
            query.execute(&mut self.tx).await?;
        }
        Ok(())
    }

    async fn wake_held(&mut self, nodes: &[&NodeId], now: Timestamp) -> Result<bool> {
        let places: Vec<String> = (0..nodes.len()).map(|n| format!("${}", n + 2)).collect();
        let sql = format!(
            "UPDATE nodes SET due_at = $1 WHERE id IN ({}) AND due_at > $1 AND wait_kind = 'alarm'",
            places.join(", ")
        );
        let query = statement(sql).bind(now.0);
        let query = nodes.iter().fold(query, |query, node| query.bind(*node));
        Ok(query.execute(&mut self.tx).await? > 0)
    }

    async fn release_nodes(&mut self, alarm: &str) -> Result<()> {
        let query = statement("DELETE FROM facility_holds WHERE alarm_id = $1").bind(alarm);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Clears an alarm. The nodes that it blocked become due if they wait for alarms to clear.
    pub async fn clear_alarm(&mut self, id: &str, now: Timestamp) -> Result<()> {
        let sql = "UPDATE nodes SET due_at = $1 WHERE id IN (SELECT node_id FROM facility_holds WHERE alarm_id = $2 \
                   AND blocks = 1) AND due_at > $1 AND wait_kind = 'alarm'";
        let query = statement(sql).bind(now.0).bind(id);
        query.execute(&mut self.tx).await?;
        self.release_nodes(id).await?;
        let query = statement("DELETE FROM facility_alarms WHERE id = $1").bind(id);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// As [`Store::power_block`], within this change.
    pub async fn power_block(&mut self, node: &NodeId) -> Result<Option<String>> {
        let row = statement(BLOCK).bind(node).fetch_optional(&mut self.tx).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }
}

impl Store {
    /// Tells the other processes that nodes may be due, after a change that made many due at once.
    pub fn notify_due(&self) {
        self.hints.send(Change::Due);
    }
}
