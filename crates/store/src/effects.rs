//! Attempts of effects.

use rackwright_lifecycle::{Attempt, Effect, Kind, NodeId, Outcome, Timestamp};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// One attempt of one effect on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRow {
    /// The operation id in the agent's ledger.
    pub id: String,
    pub node_id: NodeId,
    /// The node's state at the attempt, by the time at which the node entered that state.
    pub state_since: Timestamp,
    /// From 1 within its state.
    pub number: i64,
    /// Claim generation at the attempt.
    pub generation: u64,
    /// The replica that makes it.
    pub owner: String,
    /// The effect and its outcome.
    pub attempt: Attempt,
}

const COLUMNS: &str = "id, node_id, state_since, effect, attempt, generation, owner, boot_id, started_at, deadline, \
                       ended_at, outcome, code, message, retryable";

fn from_row(row: &Row) -> Result<EffectRow> {
    let id: String = row.try_get("id")?;
    let effect: String = row.try_get("effect")?;
    let effect = Effect::parse(&effect).ok_or_else(|| corrupt("effect", &id, effect.clone()))?;
    let outcome = match row.try_get("outcome")? {
        "open" => Outcome::Open,
        "succeeded" => Outcome::Succeeded,
        "interrupted" => Outcome::Interrupted,
        "failed" => Outcome::Failed {
            code: row.try_get("code")?,
            message: row.try_get("message")?,
            retryable: row.try_get::<i64>("retryable")? != 0,
        },
        other => return Err(corrupt("effect", &id, format!("unknown outcome {other:?}"))),
    };
    let attempt = Attempt {
        effect,
        started_at: Timestamp(row.try_get("started_at")?),
        ended_at: row.try_get::<Option<i64>>("ended_at")?.map(Timestamp),
        deadline: Timestamp(row.try_get("deadline")?),
        outcome,
        boot_id: row.try_get("boot_id")?,
    };
    Ok(EffectRow {
        generation: row.unsigned("generation", "effect", &id)?,
        node_id: row.id("node_id")?,
        state_since: Timestamp(row.try_get("state_since")?),
        number: row.try_get("attempt")?,
        owner: row.try_get("owner")?,
        attempt,
        id,
    })
}

fn outcome_columns(outcome: &Outcome) -> (&'static str, &str, &str, bool) {
    match outcome {
        Outcome::Open => ("open", "", "", false),
        Outcome::Succeeded => ("succeeded", "", "", false),
        Outcome::Interrupted => ("interrupted", "", "", true),
        Outcome::Failed {
            code,
            message,
            retryable,
        } => ("failed", code, message, *retryable),
    }
}

impl Store {
    /// Attempts within the state entered at `since`, oldest first, at most the newest 200.
    pub async fn attempts(&self, node: &NodeId, since: Timestamp) -> Result<Vec<EffectRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM effects WHERE node_id = $1 AND state_since = $2 \
             ORDER BY started_at DESC, position DESC LIMIT 200"
        );
        let rows = statement(sql).bind(node).bind(since.0).fetch_all(&self.readers).await?;
        rows.iter().rev().map(from_row).collect()
    }

    /// One attempt.
    pub async fn effect(&self, id: &str) -> Result<Option<EffectRow>> {
        let sql = format!("SELECT {COLUMNS} FROM effects WHERE id = $1");
        let row = statement(sql).bind(id).fetch_optional(&self.readers).await?;
        row.as_ref().map(from_row).transpose()
    }

    /// All attempts of one effect on a node, oldest first. Tests compare them with the agent's ledger.
    pub async fn tries_of(&self, node: &NodeId, effect: Effect) -> Result<Vec<EffectRow>> {
        let sql =
            format!("SELECT {COLUMNS} FROM effects WHERE node_id = $1 AND effect = $2 ORDER BY started_at, position");
        let rows = statement(sql)
            .bind(node)
            .bind(effect.as_str())
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(from_row).collect()
    }
}

impl Store {
    /// All open attempts.
    pub async fn open_effects(&self) -> Result<Vec<EffectRow>> {
        let sql = format!("SELECT {COLUMNS} FROM effects WHERE ended_at IS NULL");
        let rows = statement(sql).fetch_all(&self.readers).await?;
        rows.iter().map(from_row).collect()
    }

    /// Open attempts of one replica: at its start, those that its former process left.
    pub async fn open_effects_of(&self, owner: &str) -> Result<Vec<EffectRow>> {
        let sql = format!("SELECT {COLUMNS} FROM effects WHERE ended_at IS NULL AND owner = $1");
        let rows = statement(sql).bind(owner).fetch_all(&self.readers).await?;
        rows.iter().map(from_row).collect()
    }

    /// Open attempts of replicas without a heartbeat since `since`: left by dead replicas.
    pub async fn orphaned_effects(&self, since: Timestamp) -> Result<Vec<EffectRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM effects WHERE ended_at IS NULL \
             AND owner NOT IN (SELECT r.id FROM replicas r WHERE r.heard_at >= $1)"
        );
        let rows = statement(sql).bind(since.0).fetch_all(&self.readers).await?;
        rows.iter().map(from_row).collect()
    }
}

impl WriteTx {
    /// The open attempt of a node.
    pub async fn open_effect(&mut self, node: &NodeId) -> Result<Option<EffectRow>> {
        let sql = format!("SELECT {COLUMNS} FROM effects WHERE node_id = $1 AND ended_at IS NULL");
        let row = statement(sql).bind(node).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(from_row).transpose()
    }

    /// Attempts within the state entered at `since`, oldest first, within this change.
    pub async fn attempts(&mut self, node: &NodeId, since: Timestamp) -> Result<Vec<Attempt>> {
        let rows = self.effects(node, since).await?;
        Ok(rows.into_iter().map(|row| row.attempt).collect())
    }

    /// As `attempts`, as whole rows.
    pub async fn effects(&mut self, node: &NodeId, since: Timestamp) -> Result<Vec<EffectRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM effects WHERE node_id = $1 AND state_since = $2 ORDER BY started_at, position"
        );
        let rows = statement(sql).bind(node).bind(since.0).fetch_all(&mut self.tx).await?;
        rows.iter().map(from_row).collect()
    }

    /// Stores an attempt before it is made.
    ///
    /// # Errors
    /// `Conflict`: the node has an open attempt.
    pub async fn begin_effect(&mut self, row: &EffectRow) -> Result<()> {
        let sql = "INSERT INTO effects (id, node_id, state_since, effect, attempt, generation, owner, boot_id, \
                   started_at, deadline, ended_at, outcome, code, message, retryable) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULL, 'open', '', '', 0) ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(&row.id).bind(&row.node_id).bind(row.state_since.0);
        let query = query.bind(row.attempt.effect.as_str()).bind(row.number);
        let query = query
            .bind(i64::try_from(row.generation).unwrap_or(i64::MAX))
            .bind(&row.owner)
            .bind(&row.attempt.boot_id);
        let query = query.bind(row.attempt.started_at.0).bind(row.attempt.deadline.0);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Conflict {
                kind: "node",
                id: row.node_id.to_string(),
            });
        }
        Ok(())
    }

    /// Ends an attempt and frees its permits. Returns false if it had ended before.
    pub async fn end_effect(&mut self, id: &str, outcome: &Outcome, now: Timestamp) -> Result<bool> {
        let (word, code, message, retryable) = outcome_columns(outcome);
        let sql = "UPDATE effects SET outcome = $1, code = $2, message = $3, retryable = $4, ended_at = $5 \
                   WHERE id = $6 AND ended_at IS NULL RETURNING effect";
        let query = statement(sql)
            .bind(word)
            .bind(code)
            .bind(message)
            .bind(i64::from(retryable));
        let ended = query.bind(now.0).bind(id).fetch_optional(&mut self.tx).await?;
        let Some(row) = ended else { return Ok(false) };
        let effect = Effect::parse(row.try_get(0)?);
        // A firmware update may have a permit for a start in the middle of it.
        if effect == Some(Effect::UpdateFirmware) || effect.and_then(Kind::of).is_some() {
            self.release_permits(id, now).await?;
        }
        Ok(true)
    }
}
