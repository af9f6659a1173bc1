//! Operations: requests and their outcomes.

use rackwright_lifecycle::{OperationId, OperationKind, Timestamp};

use crate::error::corrupt;
use crate::filter::{Conditions, Filter};
use crate::sql::{Row, statement};
use crate::{Result, Scope, Store, StoreError, WriteTx};

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationRow {
    /// UUID, ordered by time.
    pub id: OperationId,
    /// Grows with every change.
    pub version: i64,
    /// The kind of request.
    pub kind: OperationKind,
    /// Resource name of the target.
    pub target: String,
    /// The member who requested it.
    pub requested_by: String,
    /// When it was requested.
    pub created_at: Timestamp,
    /// After this time it fails.
    pub deadline: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// gRPC status code of the outcome; 0: success.
    pub code: i32,
    /// A sentence about a failure.
    pub message: String,
    /// An end was requested.
    pub cancel_requested: bool,
}

const COLUMNS: &str = "SELECT id, version, kind, target, requested_by, created_at, deadline, ended_at, code, message, \
                       cancel_requested FROM operations";

fn from_row(row: &Row) -> Result<OperationRow> {
    let id: OperationId = row.id("id")?;
    let kind: String = row.try_get("kind")?;
    Ok(OperationRow {
        version: row.try_get("version")?,
        kind: OperationKind::parse(&kind)
            .ok_or_else(|| corrupt("operation", id.as_str(), format!("unknown kind {kind:?}")))?,
        target: row.try_get("target")?,
        requested_by: row.try_get("requested_by")?,
        created_at: Timestamp(row.try_get("created_at")?),
        deadline: Timestamp(row.try_get("deadline")?),
        ended_at: row.try_get::<Option<i64>>("ended_at")?.map(Timestamp),
        code: i32::try_from(row.try_get::<i64>("code")?).unwrap_or(2),
        message: row.try_get("message")?,
        cancel_requested: row.try_get::<i64>("cancel_requested")? != 0,
        id,
    })
}

fn not_found(id: &OperationId) -> StoreError {
    StoreError::NotFound {
        kind: "operation",
        id: id.to_string(),
    }
}

impl Store {
    /// One operation.
    ///
    /// # Errors
    /// `NotFound`: there is none, or its target is outside the scope.
    pub async fn operation(&self, scope: &Scope, id: &OperationId) -> Result<OperationRow> {
        let sql = format!("{COLUMNS} WHERE id = $1{}", scope.targets("operations.created_at", 2));
        let query = scope.bind(statement(sql).bind(id));
        let row = query.fetch_optional(&self.readers).await?;
        from_row(&row.ok_or_else(|| not_found(id))?)
    }

    /// Operations by id, newest first, before `before` (empty: from the newest). Fields of the filter: target, kind, done
    /// ("true", "false"), result ("succeeded", "failed"; an operation under way has none).
    pub async fn operations(
        &self,
        scope: &Scope,
        filter: &Filter,
        before: &str,
        limit: i64,
    ) -> Result<Vec<OperationRow>> {
        let conditions = Conditions::of(filter, 3, |made, term| match term.field.as_str() {
            "target" => made.equal("target", term),
            "kind" => made.equal("kind", term),
            "done" => made.equal("CASE WHEN ended_at IS NULL THEN 'false' ELSE 'true' END", term),
            _ => made.equal(
                "CASE WHEN ended_at IS NULL THEN '' WHEN code = 0 THEN 'succeeded' ELSE 'failed' END",
                term,
            ),
        });
        let sql = format!(
            "{COLUMNS} WHERE ($1 = '' OR id < $1){}{} ORDER BY id DESC LIMIT $2",
            conditions.sql,
            scope.targets("operations.created_at", conditions.values.len() + 3)
        );
        let query = statement(sql).bind(before).bind(limit);
        let query = if filter.is_empty() { query } else { query.blocking() };
        let query = scope.bind(conditions.values.iter().fold(query, |query, value| query.bind(value)));
        query.fetch_all(&self.readers).await?.iter().map(from_row).collect()
    }

    /// Open operations past their deadline, at most 100.
    pub async fn overdue_operations(&self, now: Timestamp) -> Result<Vec<OperationRow>> {
        let sql = format!("{COLUMNS} WHERE ended_at IS NULL AND deadline < $1 LIMIT 100");
        statement(sql)
            .bind(now.0)
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(from_row)
            .collect()
    }
}

impl WriteTx {
    /// One operation within this change, locked until the change ends.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the operation does not exist.
    pub async fn operation(&mut self, id: &OperationId) -> Result<OperationRow> {
        let sql = format!("{COLUMNS} WHERE id = $1{}", self.kind.for_update());
        let row = statement(sql).bind(id).fetch_optional(&mut self.tx).await?;
        from_row(&row.ok_or_else(|| not_found(id))?)
    }

    /// Inserts a new operation.
    pub async fn insert_operation(&mut self, row: &OperationRow) -> Result<()> {
        let sql = "INSERT INTO operations (id, version, kind, target, requested_by, created_at, deadline, ended_at, \
                   code, message, cancel_requested) VALUES ($1, 1, $2, $3, $4, $5, $6, NULL, 0, '', 0)";
        let query = statement(sql)
            .bind(&row.id)
            .bind(row.kind.as_str())
            .bind(&row.target)
            .bind(&row.requested_by);
        query
            .bind(row.created_at.0)
            .bind(row.deadline.0)
            .execute(&mut self.tx)
            .await?;
        Ok(())
    }

    /// Open operations on a target, oldest first.
    pub async fn open_operations(&mut self, target: &str) -> Result<Vec<OperationRow>> {
        let sql = format!("{COLUMNS} WHERE target = $1 AND ended_at IS NULL ORDER BY id");
        statement(sql)
            .bind(target)
            .fetch_all(&mut self.tx)
            .await?
            .iter()
            .map(from_row)
            .collect()
    }

    /// Ends an operation. Returns false if it had ended before.
    pub async fn end_operation(&mut self, id: &OperationId, code: i32, message: &str, now: Timestamp) -> Result<bool> {
        let sql = "UPDATE operations SET ended_at = $1, code = $2, message = $3, version = version + 1 \
                   WHERE id = $4 AND ended_at IS NULL";
        let query = statement(sql).bind(now.0).bind(i64::from(code)).bind(message).bind(id);
        let has_ended = query.execute(&mut self.tx).await? > 0;
        if has_ended {
            self.ended.push(id.clone());
        }
        Ok(has_ended)
    }

    /// The operations that this change ends, once; the caller notifies their waiters after the commit.
    pub fn take_ended_operations(&mut self) -> Vec<OperationId> {
        std::mem::take(&mut self.ended)
    }

    /// Stores that an end was requested. Returns false if the operation has ended.
    pub async fn request_cancel(&mut self, id: &OperationId) -> Result<bool> {
        let sql = "UPDATE operations SET cancel_requested = 1, version = version + 1 \
                   WHERE id = $1 AND ended_at IS NULL";
        Ok(statement(sql).bind(id).execute(&mut self.tx).await? > 0)
    }
}
