//! Boots into the agent: for each node the newest boot, with its plan, its registration and its contests.

use rackwright_lifecycle::{NodeId, Timestamp};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// The newest boot of a node into the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentBootRow {
    pub node_id: NodeId,
    /// The id of the effect that switched the machine on.
    pub boot: String,
    /// The node's state at the boot, by the time at which the node entered that state.
    pub state_since: Timestamp,
    /// When the machine was switched on.
    pub powered_on_at: Timestamp,
    /// MAC address of the last plan.
    pub mac: String,
    /// Address of the last plan: the registration must come from this address.
    pub address: String,
    /// Hash of the token in the last plan.
    pub token_hash: String,
    /// Number of plans given.
    pub plans: i64,
    /// The kernel's boot id, as registered; empty: no agent has registered.
    pub kernel_boot_id: String,
    /// SHA-256 of the registered public key.
    pub key_sha256: String,
    /// When the agent registered.
    pub registered_at: Timestamp,
    /// Contests since the node entered its state.
    pub contests: u32,
    /// Time of the last contest; 0: there was none.
    pub contested_at: Timestamp,
    /// The observation of that contest, as a sentence for people.
    pub contested_why: String,
    /// Microseconds from power-on to registration in the last uncontested boot; 0: unknown.
    pub usual_us: i64,
    /// How the machine of this boot was identified: "tpm", "bmc", "address only"; empty: there was no session yet.
    pub identity: String,
    /// The TPM that answered in this boot, as in [`crate::Spec::tpm_ek`]; empty: no TPM answered.
    pub tpm_ek: String,
    /// The TPM's statement about the started software: "as served", or why that is not proven; empty: no TPM was asked.
    pub measured: String,
    /// The cause of the last contest.
    pub contest_kind: ContestKind,
    /// The secret that the BMC brings in this boot: "inserted", or why it does not; empty: not requested.
    pub bmc_secret: String,
}

/// The cause of a contest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContestKind {
    /// Two machines answered for one boot.
    #[default]
    SecondMachine,
    /// The machine did not prove its identity.
    Identity,
}

impl ContestKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::SecondMachine => "",
            Self::Identity => "identity",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::SecondMachine),
            "identity" => Some(Self::Identity),
            _ => None,
        }
    }
}

impl AgentBootRow {
    /// True when an agent has registered in this boot.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        !self.kernel_boot_id.is_empty()
    }

    /// True when this very boot was contested.
    #[must_use]
    pub fn is_contested(&self) -> bool {
        self.contests > 0 && self.contested_at >= self.powered_on_at
    }
}

const COLUMNS: &str = "SELECT node_id, boot, state_since, powered_on_at, mac, address, token_hash, plans, kernel_boot_id, \
                       key_sha256, registered_at, contests, contested_at, contested_why, usual_us, identity, tpm_ek, contest_kind, measured, \
                       bmc_secret FROM agent_boots WHERE node_id = $1";

fn from_row(row: &Row) -> Result<AgentBootRow> {
    let node_id: NodeId = row.id("node_id")?;
    let kind: String = row.try_get("contest_kind")?;
    let contest_kind = ContestKind::parse(&kind).ok_or_else(|| {
        corrupt(
            "boot of node",
            node_id.as_str(),
            format!("unknown kind of contest {kind:?}"),
        )
    })?;
    Ok(AgentBootRow {
        node_id,
        boot: row.try_get("boot")?,
        state_since: Timestamp(row.try_get("state_since")?),
        powered_on_at: Timestamp(row.try_get("powered_on_at")?),
        mac: row.try_get("mac")?,
        address: row.try_get("address")?,
        token_hash: row.try_get("token_hash")?,
        plans: row.try_get("plans")?,
        kernel_boot_id: row.try_get("kernel_boot_id")?,
        key_sha256: row.try_get("key_sha256")?,
        registered_at: Timestamp(row.try_get("registered_at")?),
        contests: u32::try_from(row.try_get::<i64>("contests")?).unwrap_or(u32::MAX),
        contested_at: Timestamp(row.try_get("contested_at")?),
        contested_why: row.try_get("contested_why")?,
        usual_us: row.try_get("usual_us")?,
        identity: row.try_get("identity")?,
        tpm_ek: row.try_get("tpm_ek")?,
        measured: row.try_get("measured")?,
        contest_kind,
        bmc_secret: row.try_get("bmc_secret")?,
    })
}

impl Store {
    /// The newest boot of a node into the agent; none: there was none.
    pub async fn agent_boot(&self, node: &NodeId) -> Result<Option<AgentBootRow>> {
        let row = statement(COLUMNS).bind(node).fetch_optional(&self.readers).await?;
        row.as_ref().map(from_row).transpose()
    }
}

impl WriteTx {
    /// As [`Store::agent_boot`], within this change. Lock the node first.
    pub async fn agent_boot(&mut self, node: &NodeId) -> Result<Option<AgentBootRow>> {
        let row = statement(COLUMNS).bind(node).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(from_row).transpose()
    }

    /// Stores the newest boot of a node into the agent, and replaces the one before.
    pub async fn put_agent_boot(&mut self, row: &AgentBootRow) -> Result<()> {
        let sql = "INSERT INTO agent_boots (node_id, boot, state_since, powered_on_at, mac, address, token_hash, plans, \
                   kernel_boot_id, key_sha256, registered_at, contests, contested_at, contested_why, usual_us, identity, \
                   tpm_ek, contest_kind, measured, bmc_secret) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) \
                   ON CONFLICT (node_id) DO UPDATE SET boot = excluded.boot, state_since = excluded.state_since, \
                   powered_on_at = excluded.powered_on_at, mac = excluded.mac, address = excluded.address, \
                   token_hash = excluded.token_hash, plans = excluded.plans, \
                   kernel_boot_id = excluded.kernel_boot_id, key_sha256 = excluded.key_sha256, \
                   registered_at = excluded.registered_at, contests = excluded.contests, \
                   contested_at = excluded.contested_at, contested_why = excluded.contested_why, \
                   usual_us = excluded.usual_us, identity = excluded.identity, \
                   tpm_ek = excluded.tpm_ek, contest_kind = excluded.contest_kind, \
                   measured = excluded.measured, bmc_secret = excluded.bmc_secret";
        let query = statement(sql)
            .bind(&row.node_id)
            .bind(&row.boot)
            .bind(row.state_since.0);
        let query = query
            .bind(row.powered_on_at.0)
            .bind(&row.mac)
            .bind(&row.address)
            .bind(&row.token_hash)
            .bind(row.plans);
        let query = query
            .bind(&row.kernel_boot_id)
            .bind(&row.key_sha256)
            .bind(row.registered_at.0);
        let query = query
            .bind(i64::from(row.contests))
            .bind(row.contested_at.0)
            .bind(&row.contested_why)
            .bind(row.usual_us);
        let query = query
            .bind(&row.identity)
            .bind(&row.tpm_ek)
            .bind(row.contest_kind.as_str())
            .bind(&row.measured)
            .bind(&row.bmc_secret);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
