//! Observations of booting machines, and the addresses leased to them.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// Stages kept for one MAC address.
const STAGES_KEPT: i64 = 200;
/// Unknown machines kept in all. Any host on the network can fake one, so the machine seen longest ago is dropped first.
const UNKNOWN_KEPT: i64 = 4096;
/// Bytes of unknown machines' inventories kept in all. The inventories of the machines seen longest ago are dropped first.
const UNKNOWN_INVENTORIES_KEPT: i64 = 32 << 20;
/// Stages dropped with one statement: bounds the wait of other writers.
const STAGES_DROPPED: i64 = 5000;

/// A stage of a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootStageRow {
    /// MAC address.
    pub mac: String,
    /// When it happened.
    pub at: Timestamp,
    /// Name of the stage.
    pub stage: String,
    /// Description for people.
    pub detail: String,
    /// The sender's address.
    pub remote: String,
}

/// A machine that requested a boot and belongs to no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMachineRow {
    /// MAC address.
    pub mac: String,
    /// When the machine first requested a boot.
    pub first_seen: Timestamp,
    /// When the machine last requested a boot, or its agent last sent an inventory.
    pub last_seen: Timestamp,
    /// Client architecture.
    pub architecture: String,
    /// Relay of its request.
    pub relay: String,
    /// SMBIOS UUID in its request.
    pub system_uuid: String,
    /// The agent's inventory, encoded; none: no agent has reported.
    pub inventory: Option<Vec<u8>>,
}

const UNKNOWN: &str = "SELECT mac, first_seen, last_seen, architecture, relay, system_uuid, inventory \
                       FROM unknown_machines";

fn unknown_machine(row: &Row) -> Result<UnknownMachineRow> {
    Ok(UnknownMachineRow {
        mac: row.try_get("mac")?,
        first_seen: Timestamp(row.try_get("first_seen")?),
        last_seen: Timestamp(row.try_get("last_seen")?),
        architecture: row.try_get("architecture")?,
        relay: row.try_get("relay")?,
        system_uuid: row.try_get("system_uuid")?,
        inventory: row.try_get("inventory")?,
    })
}

impl Store {
    /// Stages of a MAC address, oldest first.
    pub async fn boot_stages(&self, mac: &str) -> Result<Vec<BootStageRow>> {
        let sql = "SELECT mac, at, stage, detail, remote FROM boot_stages WHERE mac = $1 ORDER BY position";
        let rows = statement(sql).bind(mac).fetch_all(&self.readers).await?;
        rows.iter()
            .map(|r| {
                Ok(BootStageRow {
                    mac: r.try_get("mac")?,
                    at: Timestamp(r.try_get("at")?),
                    stage: r.try_get("stage")?,
                    detail: r.try_get("detail")?,
                    remote: r.try_get("remote")?,
                })
            })
            .collect()
    }

    /// Machines of no enrolled node, by MAC address.
    pub async fn unknown_machines(&self) -> Result<Vec<UnknownMachineRow>> {
        let sql = format!("{UNKNOWN} ORDER BY mac");
        let rows = statement(sql).blocking().fetch_all(&self.readers).await?;
        rows.iter().map(unknown_machine).collect()
    }

    /// MAC addresses of no enrolled node that were last seen with this SMBIOS UUID, the newest first, at most `limit`. Any
    /// host on the network can send the UUID.
    pub async fn unknown_macs_with_uuid(&self, uuid: &str, limit: i64) -> Result<Vec<String>> {
        let sql = "SELECT mac FROM unknown_machines WHERE system_uuid = $1 ORDER BY last_seen DESC, mac LIMIT $2";
        let rows = statement(sql).bind(uuid).bind(limit).fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok(r.try_get(0)?)).collect()
    }

    /// Drops stages older than `oldest`, and all but the newest `kept` of the others. Returns the number dropped.
    ///
    /// # Errors
    /// The database failed; some may have been dropped.
    pub async fn forget_boot_stages(&self, oldest: Timestamp, kept: i64) -> Result<u64> {
        let sql = "DELETE FROM boot_stages WHERE position IN \
                   (SELECT position FROM boot_stages WHERE at < $1 ORDER BY at, position LIMIT $2)";
        let mut dropped = 0;
        loop {
            let query = statement(sql).bind(oldest.0).bind(STAGES_DROPPED).blocking();
            let done = self.execute(query).await?;
            dropped += done;
            if done == 0 {
                break;
            }
        }
        let row = statement("SELECT COUNT(*) FROM boot_stages")
            .blocking()
            .fetch_one(&self.readers);
        let mut excess = row.await?.try_get::<i64>(0)? - kept;
        let sql = "DELETE FROM boot_stages WHERE position IN \
                   (SELECT position FROM boot_stages ORDER BY at, position LIMIT $1)";
        while excess > 0 {
            let query = statement(sql).bind(excess.min(STAGES_DROPPED)).blocking();
            dropped += self.execute(query).await?;
            excess -= STAGES_DROPPED;
        }
        Ok(dropped)
    }

    /// All leased addresses: pairs of MAC address and address.
    pub async fn addresses(&self) -> Result<Vec<(String, String)>> {
        let query = statement("SELECT mac, address FROM addresses").blocking();
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?))).collect()
    }

    /// The address leased to a MAC address.
    pub async fn address_of(&self, mac: &str) -> Result<Option<String>> {
        let query = statement("SELECT address FROM addresses WHERE mac = $1").bind(mac);
        Ok(query
            .fetch_optional(&self.readers)
            .await?
            .map(|r| r.try_get(0))
            .transpose()?)
    }
}

impl WriteTx {
    /// Appends a stage; only the newest of a MAC address are kept.
    pub async fn add_boot_stage(&mut self, row: &BootStageRow) -> Result<()> {
        let sql = "INSERT INTO boot_stages (mac, at, stage, detail, remote) VALUES ($1, $2, $3, $4, $5)";
        let query = statement(sql)
            .bind(&row.mac)
            .bind(row.at.0)
            .bind(&row.stage)
            .bind(&row.detail);
        query.bind(&row.remote).execute(&mut self.tx).await?;
        let sql = "DELETE FROM boot_stages WHERE mac = $1 AND position <= \
                   (SELECT position FROM boot_stages WHERE mac = $1 ORDER BY position DESC LIMIT 1 OFFSET $2)";
        let query = statement(sql).bind(&row.mac).bind(STAGES_KEPT);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// A machine of no enrolled node, if it was seen.
    pub async fn unknown_machine(&mut self, mac: &str) -> Result<Option<UnknownMachineRow>> {
        let sql = format!("{UNKNOWN} WHERE mac = $1");
        let query = statement(sql).bind(mac);
        let row = query.fetch_optional(&mut self.tx).await?;
        row.as_ref().map(unknown_machine).transpose()
    }

    /// Stores the inventory of a machine of no enrolled node, if the machine itself is stored. All such inventories
    /// together are bounded in bytes: those of the machines seen longest ago are dropped.
    pub async fn save_unknown_inventory(&mut self, mac: &str, inventory: &[u8], now: Timestamp) -> Result<()> {
        let sql = "UPDATE unknown_machines SET inventory = $1, last_seen = $2 WHERE mac = $3";
        let query = statement(sql).bind(inventory).bind(now.0).bind(mac);
        query.execute(&mut self.tx).await?;
        let sql = "UPDATE unknown_machines SET inventory = NULL WHERE mac IN (SELECT mac FROM \
                   (SELECT mac, SUM(LENGTH(inventory)) OVER (ORDER BY last_seen DESC, mac) AS bytes \
                   FROM unknown_machines WHERE inventory IS NOT NULL) AS sums WHERE bytes > $1)";
        let query = statement(sql).bind(UNKNOWN_INVENTORIES_KEPT);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores a machine of no enrolled node; its earlier inventory stays. Returns true if the machine was not stored
    /// before.
    pub async fn record_unknown_machine(&mut self, row: &UnknownMachineRow) -> Result<bool> {
        let sql = "INSERT INTO unknown_machines (mac, first_seen, last_seen, architecture, relay, system_uuid) \
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (mac) DO NOTHING";
        let query = statement(sql)
            .bind(&row.mac)
            .bind(row.first_seen.0)
            .bind(row.last_seen.0);
        let query = query.bind(&row.architecture).bind(&row.relay).bind(&row.system_uuid);
        let is_new = query.execute(&mut self.tx).await? > 0;
        if is_new {
            let sql = "DELETE FROM unknown_machines WHERE mac = \
                       (SELECT mac FROM unknown_machines WHERE mac <> $1 ORDER BY last_seen, mac LIMIT 1) \
                       AND (SELECT COUNT(*) FROM unknown_machines) > $2";
            let query = statement(sql).bind(&row.mac).bind(UNKNOWN_KEPT);
            query.execute(&mut self.tx).await?;
        } else {
            let sql = "UPDATE unknown_machines SET last_seen = $2, architecture = $3, relay = $4, system_uuid = $5 \
                       WHERE mac = $1";
            let query = statement(sql).bind(&row.mac).bind(row.last_seen.0);
            let query = query.bind(&row.architecture).bind(&row.relay).bind(&row.system_uuid);
            query.execute(&mut self.tx).await?;
        }
        Ok(is_new)
    }

    /// Leases an address to a MAC address.
    ///
    /// # Errors
    /// `Exists`: another MAC address has it.
    pub async fn assign_address(&mut self, mac: &str, address: &str, now: Timestamp) -> Result<()> {
        let exists = || StoreError::Exists {
            kind: "address",
            id: address.to_owned(),
        };
        // Checked first: on PostgreSQL a refused statement would end the change.
        let query = statement("SELECT mac FROM addresses WHERE address = $1 AND mac <> $2");
        let taken = query.bind(address).bind(mac).fetch_optional(&mut self.tx).await?;
        if taken.is_some() {
            return Err(exists());
        }
        let sql = "INSERT INTO addresses (mac, address, given_at) VALUES ($1, $2, $3) \
                   ON CONFLICT (mac) DO UPDATE SET address = excluded.address, given_at = excluded.given_at";
        let query = statement(sql).bind(mac).bind(address).bind(now.0);
        match query.execute(&mut self.tx).await {
            Err(e) if e.is_unique_violation() => Err(exists()),
            other => Ok(other.map(|_| ())?),
        }
    }
}
