//! Permits for shared resources, and the lines for them: a circuit allows a number of machines to start at once, and so on.
//!
//! A node takes the permits of an effect one after the other, the narrow before the wide, and keeps what it has while it
//! waits for more. The common order prevents circular waits, and each line is fair, so every node makes progress. A permit
//! is taken as long as its row exists: from the change that gives it to the change that ends its effect
//! (`WriteTx::end_effect`), or until its settling time is over, or its node leaves the line or is deleted.
//!
//! A returned permit goes to the next in line, and that node becomes due. A settling permit becomes free by time alone, so
//! the first in line is scheduled for that moment.

use std::collections::BTreeMap;

use rackwright_lifecycle::{CustomerId, Need, NodeId, QueueHead, Resource, Timestamp, Wait, line, minutes};

use crate::database::Kind as Database;
use crate::error::{DatabaseError, corrupt};
use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx, waits};

/// A node in line is looked at again after this time in any case, in microseconds: a safety net.
const RECHECK_US: i64 = minutes(10);

/// A node's permit for one resource, or its place in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub resource: Resource,
    /// When the node requested the first permit of its effect.
    pub asked_at: Timestamp,
    /// The node has the permit; else it waits in line.
    pub is_taken: bool,
    /// The attempt that uses it, under way or ended; none: the node still waits for other permits.
    pub effect: Option<String>,
    /// End of the settling time after the attempt; none: it is in use.
    pub free_at: Option<Timestamp>,
}

/// A node that requests permits.
#[derive(Debug, Clone, Copy)]
pub struct PermitRequest<'a> {
    pub node: &'a NodeId,
    /// The customer that it works for; none: no customer in particular.
    pub customer: Option<&'a CustomerId>,
    /// An operator requested this very machine.
    pub is_urgent: bool,
    /// The start of its request.
    pub asked_at: Timestamp,
}

/// Why a node has to wait in line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub resource: Resource,
    /// Permits taken.
    pub taken: u32,
    /// Permits in all.
    pub room: u32,
}

/// The present state of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// Permits in all; 0: never requested.
    pub room: u32,
    /// Permits taken.
    pub taken: u32,
    /// Nodes in line.
    pub waiting: u32,
}

fn permit(row: &Row) -> Result<Permit> {
    let text: String = row.try_get("resource")?;
    Ok(Permit {
        resource: Resource::parse(&text).ok_or_else(|| corrupt("permit", &text, "an unknown resource"))?,
        asked_at: Timestamp(row.try_get("asked_at")?),
        is_taken: row.try_get::<Option<i64>>("taken_at")?.is_some(),
        effect: row.try_get("effect_id")?,
        free_at: row.try_get::<Option<i64>>("free_at")?.map(Timestamp),
    })
}

fn count(row: &Row, column: usize) -> Result<u32> {
    Ok(u32::try_from(row.try_get::<i64>(column)?).unwrap_or(u32::MAX))
}

impl Store {
    /// A node's permits and places in lines, in locking order.
    pub async fn permits(&self, node: &NodeId) -> Result<Vec<Permit>> {
        let sql = "SELECT resource, asked_at, taken_at, effect_id, free_at FROM permits WHERE node_id = $1";
        let rows = statement(sql).bind(node).fetch_all(&self.readers).await?;
        let mut permits: Vec<_> = rows.iter().map(permit).collect::<Result<_>>()?;
        permits.sort_by(|a, b| a.resource.cmp(&b.resource));
        Ok(permits)
    }

    /// Time that a node waited in line before the attempts of the state entered at `since`, in microseconds.
    pub async fn in_line_us(&self, node: &NodeId, since: Timestamp) -> Result<i64> {
        // Not SUM, which returns another type on PostgreSQL.
        let sql = "SELECT in_line_us FROM effects WHERE node_id = $1 AND state_since = $2 AND in_line_us > 0";
        let rows = statement(sql).bind(node).bind(since.0).fetch_all(&self.readers);
        let each = rows.await?.iter().map(|r| r.try_get::<i64>(0)).collect::<Vec<_>>();
        each.into_iter().try_fold(0_i64, |sum, us| Ok(sum.saturating_add(us?)))
    }

    /// The state of a resource at `now`. Counts all rows: for display, not for decisions.
    pub async fn queue(&self, resource: &Resource, now: Timestamp) -> Result<Queue> {
        let sql = "SELECT COALESCE((SELECT room FROM bounds WHERE resource = $1), 0), \
                   (SELECT COUNT(*) FROM permits WHERE resource = $1 AND taken_at IS NOT NULL \
                    AND (free_at IS NULL OR free_at > $2)), \
                   (SELECT COUNT(*) FROM permits WHERE resource = $1 AND taken_at IS NULL)";
        let query = statement(sql).bind(resource.to_string()).bind(now.0);
        let row = query.fetch_one(&self.readers).await?;
        Ok(Queue {
            room: count(&row, 0)?,
            taken: count(&row, 1)?,
            waiting: count(&row, 2)?,
        })
    }

    /// Number of nodes in the line for `resource` of the same or a higher rank that asked before `node`. Counts rows.
    pub async fn count_ahead(&self, resource: &Resource, node: &NodeId) -> Result<u32> {
        let sql = "SELECT COUNT(*) FROM permits p JOIN permits own ON own.resource = p.resource AND own.node_id = $2 \
                   WHERE p.resource = $1 AND p.taken_at IS NULL AND p.rank <= own.rank AND p.asked_at < own.asked_at";
        let query = statement(sql).bind(resource.to_string()).bind(node);
        count(&query.fetch_one(&self.readers).await?, 0)
    }

    /// For each kind: the number of nodes that use permits at `now`, and the number that wait for one.
    pub async fn count_permits(&self, now: Timestamp) -> Result<Vec<(String, i64, i64)>> {
        let sql = "SELECT kind, COUNT(DISTINCT CASE WHEN effect_id IS NOT NULL AND (free_at IS NULL OR free_at > $1) \
                   THEN node_id END), COUNT(DISTINCT CASE WHEN taken_at IS NULL THEN node_id END) \
                   FROM permits GROUP BY kind";
        let rows = statement(sql).bind(now.0).fetch_all(&self.readers).await?;
        let row = |r: &Row| Ok((r.try_get(0)?, r.try_get(1)?, r.try_get(2)?));
        rows.iter().map(row).collect()
    }
}

impl WriteTx {
    /// Takes the permits of an effect, as far as there is room and it is the node's turn. Lock the node's row before
    /// (`WriteTx::node`). Returns the resource to wait for, if any: then the node rests, and becomes due at its turn.
    pub async fn request_permits(
        &mut self,
        request: PermitRequest<'_>,
        needs: &[Need],
        now: Timestamp,
    ) -> Result<Option<Queued>> {
        for need in needs {
            let text = need.resource.to_string();
            self.lock_with_room(&text, need.room).await?;
            if self.take_if_free(request, need, now).await? || self.holds_permit(request, &text, now).await? {
                continue;
            }
            // Before others are called, because they may set an earlier time for this very node.
            self.put_due(request.node, now.plus(RECHECK_US)).await?;
            let taken = self.grant_next(&text, now).await?;
            if !self.holds_permit(request, &text, now).await? {
                return Ok(Some(Queued {
                    resource: need.resource.clone(),
                    taken,
                    room: need.room,
                }));
            }
        }
        Ok(None)
    }

    /// Stores the wait of a node in line, until the node is due.
    pub async fn wait_in_queue(&mut self, node: &NodeId, wait: &Wait) -> Result<()> {
        let (text, kind) = waits::columns(node.as_str(), wait)?;
        let query =
            statement("UPDATE nodes SET wait = $1, wait_until = due_at, wait_kind = $3 WHERE id = $2").bind(text);
        query.bind(node).bind(kind).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Assigns the node's unused permits to an attempt that has just begun, after `in_line_us` microseconds in line.
    pub async fn use_permits(&mut self, node: &NodeId, effect: &str, in_line_us: i64) -> Result<()> {
        let query = statement("UPDATE permits SET effect_id = $1 WHERE node_id = $2 AND effect_id IS NULL");
        query.bind(effect).bind(node).execute(&mut self.tx).await?;
        if in_line_us > 0 {
            let query = statement("UPDATE effects SET in_line_us = $1 WHERE id = $2").bind(in_line_us);
            query.bind(effect).execute(&mut self.tx).await?;
        }
        Ok(())
    }

    /// Returns a node's unused permits, and takes the node out of every line. Its row must be locked.
    pub async fn leave_queues(&mut self, node: &NodeId, now: Timestamp) -> Result<()> {
        self.drop_permits(node, " AND effect_id IS NULL", now).await
    }

    /// As `leave_queues`, except for the line of an alarm: others do not wait for a machine that must not be switched on.
    pub async fn leave_for_alarm(&mut self, node: &NodeId, now: Timestamp) -> Result<()> {
        self.drop_permits(
            node,
            " AND effect_id IS NULL AND resource NOT LIKE 'power-on alarm %'",
            now,
        )
        .await
    }

    /// As `leave_queues`, including permits in use: the node is about to be deleted.
    pub async fn forget_permits(&mut self, node: &NodeId, now: Timestamp) -> Result<()> {
        self.drop_permits(node, "", now).await
    }

    async fn drop_permits(&mut self, node: &NodeId, which: &str, now: Timestamp) -> Result<()> {
        let sql = format!("SELECT resource FROM permits WHERE node_id = $1{which} ORDER BY resource");
        let rows = statement(sql).bind(node).fetch_all(&mut self.tx).await?;
        for row in rows {
            let resource: String = row.try_get(0)?;
            // Locked first: a change that calls the next node holds this lock and writes rows of other nodes.
            self.lock(&resource).await?;
            let query = statement("DELETE FROM permits WHERE node_id = $1 AND resource = $2").bind(node);
            query.bind(&resource).execute(&mut self.tx).await?;
            self.grant_next(&resource, now).await?;
        }
        Ok(())
    }

    /// Returns the permits of an effect: they stay taken for their settling time.
    pub async fn release_permits(&mut self, effect: &str, now: Timestamp) -> Result<()> {
        let sql =
            "UPDATE permits SET free_at = $1 + settle_us WHERE effect_id = $2 AND free_at IS NULL RETURNING resource";
        let rows = statement(sql).bind(now.0).bind(effect);
        let rows = rows.fetch_all(&mut self.tx).await?;
        let mut resources: Vec<String> = rows
            .iter()
            .map(|r| r.try_get(0))
            .collect::<std::result::Result<_, DatabaseError>>()?;
        resources.sort();
        for resource in resources {
            self.lock(&resource).await?;
            self.grant_next(&resource, now).await?;
        }
        Ok(())
    }

    /// Nodes that got their turn by this change; the caller wakes them after the commit. They are due already, except those
    /// with a row that another change has locked.
    pub fn take_next_in_line(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.next_in_line)
    }

    /// Locks a resource until this change ends. Its row exists: every permit begins with a request.
    async fn lock(&mut self, resource: &str) -> Result<()> {
        if self.kind == Database::Sqlite {
            return Ok(());
        }
        let sql = "SELECT room FROM bounds WHERE resource = $1 FOR UPDATE";
        statement(sql).bind(resource).fetch_optional(&mut self.tx).await?;
        Ok(())
    }

    /// As `lock`, and stores the number of permits. PostgreSQL locks the row even if the number is unchanged.
    async fn lock_with_room(&mut self, resource: &str, room: u32) -> Result<()> {
        let sql = "INSERT INTO bounds (resource, room) VALUES ($1, $2) ON CONFLICT (resource) \
                   DO UPDATE SET room = excluded.room WHERE bounds.room <> excluded.room";
        let query = statement(sql).bind(resource).bind(i64::from(room));
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Inserts the node: with a permit where one is free and the line is empty, else into the line. Returns true only if
    /// that gave it a permit; a node that is there already is left as it is.
    async fn take_if_free(&mut self, request: PermitRequest<'_>, need: &Need, now: Timestamp) -> Result<bool> {
        let sql = "INSERT INTO permits (node_id, resource, kind, customer, rank, asked_at, settle_us, taken_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, CASE \
                     WHEN EXISTS (SELECT 1 FROM permits WHERE resource = $2 AND taken_at IS NULL) THEN NULL \
                     WHEN (SELECT COUNT(*) FROM permits WHERE resource = $2 AND taken_at IS NOT NULL \
                           AND (free_at IS NULL OR free_at > $8)) < $9 THEN $8 END) \
                   ON CONFLICT DO NOTHING RETURNING taken_at";
        let query = statement(sql)
            .bind(request.node)
            .bind(need.resource.to_string())
            .bind(need.resource.kind.as_str())
            .bind(request.customer.map_or("", CustomerId::as_str))
            .bind(i64::from(!request.is_urgent));
        let query = query.bind(request.asked_at.0).bind(need.settle_us).bind(now.0);
        let put_in = query.bind(i64::from(need.room)).fetch_optional(&mut self.tx).await?;
        Ok(put_in.is_some_and(|row| matches!(row.try_get::<Option<i64>>(0), Ok(Some(_)))))
    }

    /// True when the node has a permit that it can use now. A permit still settling after the node's own former attempt is
    /// used again; a settled one is lost, and the node waits in line.
    async fn holds_permit(&mut self, request: PermitRequest<'_>, resource: &str, now: Timestamp) -> Result<bool> {
        let sql = "UPDATE permits SET effect_id = NULL, free_at = NULL, asked_at = $1, customer = $2, rank = $3, \
                   taken_at = CASE WHEN free_at > $4 THEN taken_at END \
                   WHERE node_id = $5 AND resource = $6 AND free_at IS NOT NULL";
        let query = statement(sql)
            .bind(request.asked_at.0)
            .bind(request.customer.map_or("", CustomerId::as_str));
        let query = query.bind(i64::from(!request.is_urgent)).bind(now.0);
        query.bind(request.node).bind(resource).execute(&mut self.tx).await?;
        let sql = "SELECT 1 FROM permits WHERE node_id = $1 AND resource = $2 AND taken_at IS NOT NULL";
        let query = statement(sql).bind(request.node).bind(resource);
        Ok(query.fetch_optional(&mut self.tx).await?.is_some())
    }

    /// Gives the free permits of a locked resource to the next nodes in line, and schedules the next node for the moment
    /// when a settling permit becomes free. Returns the number of permits taken; 0 if the line was empty.
    async fn grant_next(&mut self, resource: &str, now: Timestamp) -> Result<u32> {
        let sql = "DELETE FROM permits WHERE resource = $1 AND taken_at IS NOT NULL AND free_at <= $2";
        let query = statement(sql).bind(resource).bind(now.0);
        query.execute(&mut self.tx).await?;
        let mut heads = self.heads(resource).await?;
        if heads.is_empty() {
            return Ok(0);
        }
        let query = statement("SELECT room FROM bounds WHERE resource = $1").bind(resource);
        let room = count(&query.fetch_one(&mut self.tx).await?, 0)?;
        let mut taken = self.taken(resource).await?;
        loop {
            let total = taken.values().sum();
            let Some(head) = line::next(&heads, &taken).cloned() else {
                // Without a line the last turns no longer matter.
                let query = statement("DELETE FROM turns WHERE resource = $1").bind(resource);
                query.execute(&mut self.tx).await?;
                return Ok(total);
            };
            if total >= room {
                self.wake_when_free(resource, &head.node).await?;
                return Ok(total);
            }
            self.grant(resource, &head, now).await?;
            *taken.entry(head.customer).or_insert(0) += 1;
            heads = self.heads(resource).await?;
        }
    }

    async fn grant(&mut self, resource: &str, head: &QueueHead, now: Timestamp) -> Result<()> {
        let query = statement("UPDATE permits SET taken_at = $1 WHERE node_id = $2 AND resource = $3").bind(now.0);
        query.bind(&head.node).bind(resource).execute(&mut self.tx).await?;
        let sql = "INSERT INTO turns (resource, customer, number) \
                   VALUES ($1, $2, (SELECT COALESCE(MAX(number), 0) + 1 FROM turns WHERE resource = $1)) \
                   ON CONFLICT (resource, customer) DO UPDATE SET number = excluded.number";
        let query = statement(sql).bind(resource).bind(&head.customer);
        query.execute(&mut self.tx).await?;
        self.make_due(&head.node, now).await?;
        self.next_in_line.push(head.node.clone());
        Ok(())
    }

    /// A settling permit may become free by time alone: `node` becomes due then.
    async fn wake_when_free(&mut self, resource: &str, node: &NodeId) -> Result<()> {
        let sql = "SELECT MIN(free_at) FROM permits WHERE resource = $1 AND taken_at IS NOT NULL";
        let row = statement(sql).bind(resource).fetch_one(&mut self.tx).await?;
        match row.try_get::<Option<i64>>(0)? {
            Some(free_at) if !self.make_due(node, Timestamp(free_at)).await? => self.next_in_line.push(node.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Makes another node due at `at`, without waiting for a lock on its row: the lock's holder may wait for this change.
    /// False: the row may have been locked, and the node is perhaps not due.
    async fn make_due(&mut self, node: &NodeId, at: Timestamp) -> Result<bool> {
        let sql = format!(
            "UPDATE nodes SET due_at = $1 WHERE id IN (SELECT id FROM nodes WHERE id = $2 AND due_at > $1{})",
            self.kind.for_update_skip_locked()
        );
        let query = statement(sql).bind(at.0).bind(node);
        let is_made = query.execute(&mut self.tx).await? > 0;
        self.due.push(node.clone());
        Ok(is_made || self.kind == Database::Sqlite)
    }

    /// Number of permits of each customer.
    async fn taken(&mut self, resource: &str) -> Result<BTreeMap<CustomerId, u32>> {
        let sql =
            "SELECT customer, COUNT(*) FROM permits WHERE resource = $1 AND taken_at IS NOT NULL GROUP BY customer";
        let rows = statement(sql).bind(resource).fetch_all(&mut self.tx).await?;
        rows.iter().map(|r| Ok((r.id(0)?, count(r, 1)?))).collect()
    }

    /// The first in line of each customer, within the highest rank in the line. Steps from customer to customer through the
    /// index, however long the line is.
    async fn heads(&mut self, resource: &str) -> Result<Vec<QueueHead>> {
        let sql = "WITH RECURSIVE line (rank, customer) AS ( \
                     SELECT rank, customer FROM (SELECT rank, customer FROM permits \
                       WHERE resource = $1 AND taken_at IS NULL ORDER BY rank, customer LIMIT 1) first \
                     UNION ALL \
                     SELECT line.rank, (SELECT MIN(p.customer) FROM permits p WHERE p.resource = $1 \
                       AND p.taken_at IS NULL AND p.rank = line.rank AND p.customer > line.customer) \
                     FROM line WHERE line.customer IS NOT NULL) \
                   SELECT p.node_id, p.customer, p.rank, p.asked_at, COALESCE(t.number, 0) AS last_turn FROM line \
                   JOIN permits p ON p.resource = $1 AND p.taken_at IS NULL AND p.node_id = \
                     (SELECT f.node_id FROM permits f WHERE f.resource = $1 AND f.taken_at IS NULL \
                      AND f.rank = line.rank AND f.customer = line.customer ORDER BY f.asked_at, f.node_id LIMIT 1) \
                   LEFT JOIN turns t ON t.resource = $1 AND t.customer = p.customer \
                   WHERE line.customer IS NOT NULL";
        let rows = statement(sql).bind(resource).fetch_all(&mut self.tx).await?;
        let head = |row: &Row| {
            Ok(QueueHead {
                node: row.id("node_id")?,
                customer: row.id("customer")?,
                is_urgent: row.try_get::<i64>("rank")? == 0,
                last_turn: row.try_get("last_turn")?,
                asked_at: Timestamp(row.try_get("asked_at")?),
            })
        };
        rows.iter().map(head).collect()
    }
}
