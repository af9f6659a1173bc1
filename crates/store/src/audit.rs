//! The audit: records are added and read, never changed. The caller decides their content.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Query, Row, statement};
use crate::{Result, Store, WriteTx};

/// A record with the columns that searches use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditRow {
    /// Place in the chain, from 1.
    pub position: i64,
    /// Time of the record.
    pub at: Timestamp,
    /// Resource name of the caller.
    pub caller: String,
    /// The caller's customer.
    pub customer: String,
    /// `Service/Method`.
    pub method: String,
    /// Resource name of the target.
    pub target: String,
    /// Name of the status code.
    pub outcome: String,
    /// Encoded record.
    pub record: String,
    /// Hash of the chain up to this record, in hex.
    pub hash: String,
    /// Public key of the signature, in hex.
    pub key: String,
    /// Signature over position and hash, in hex.
    pub signature: String,
}

/// Conditions of a search. An empty field matches every record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Resource name of the caller.
    pub caller: String,
    /// The caller's customer.
    pub customer: String,
    /// `Service/Method`, or `Service/` for all methods of a service.
    pub method: String,
    /// Resource name of the target.
    pub target: String,
    /// Only records with another outcome than `OK`.
    pub only_failed: bool,
    /// Not before this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
}

const COLUMNS: &str = "position, at, caller, customer, method, target, outcome, record, hash, key, signature";

fn row(row: &Row) -> Result<AuditRow> {
    Ok(AuditRow {
        position: row.try_get("position")?,
        at: Timestamp(row.try_get("at")?),
        caller: row.try_get("caller")?,
        customer: row.try_get("customer")?,
        method: row.try_get("method")?,
        target: row.try_get("target")?,
        outcome: row.try_get("outcome")?,
        record: row.try_get("record")?,
        hash: row.try_get("hash")?,
        key: row.try_get("key")?,
        signature: row.try_get("signature")?,
    })
}

/// The conditions of a filter and their parameters; the first parameter is `$first`.
fn conditions(filter: &AuditFilter, first: usize) -> (String, Vec<Parameter<'_>>) {
    let (mut sql, mut parameters) = (String::new(), Vec::new());
    let mut add = |condition: &str, parameter| {
        sql.push_str(&condition.replace('?', &format!("${}", first + parameters.len())));
        parameters.push(parameter);
    };
    for (column, value) in [
        ("caller", &filter.caller),
        ("customer", &filter.customer),
        ("target", &filter.target),
    ] {
        if !value.is_empty() {
            add(&format!(" AND {column} = ?"), Parameter::Text(value));
        }
    }
    if filter.method.ends_with('/') {
        add(" AND SUBSTR(method, 1, LENGTH(?)) = ?", Parameter::Text(&filter.method));
    } else if !filter.method.is_empty() {
        add(" AND method = ?", Parameter::Text(&filter.method));
    }
    if let Some(since) = filter.since {
        add(" AND at >= ?", Parameter::Integer(since.0));
    }
    if let Some(until) = filter.until {
        add(" AND at < ?", Parameter::Integer(until.0));
    }
    if filter.only_failed {
        sql.push_str(" AND outcome <> 'OK'");
    }
    (sql, parameters)
}

enum Parameter<'a> {
    Text(&'a str),
    Integer(i64),
}

fn bind<'a>(query: Query<'a>, parameters: Vec<Parameter<'a>>) -> Query<'a> {
    parameters.into_iter().fold(query, |query, parameter| match parameter {
        Parameter::Text(text) => query.bind(text),
        Parameter::Integer(number) => query.bind(number),
    })
}

impl Store {
    /// Records after a position, oldest first, at most `limit`.
    pub async fn audit(&self, filter: &AuditFilter, after: i64, limit: i64) -> Result<Vec<AuditRow>> {
        let (conditions, parameters) = conditions(filter, 3);
        let sql = format!("SELECT {COLUMNS} FROM audit WHERE position > $1{conditions} ORDER BY position LIMIT $2");
        let query = bind(statement(sql).bind(after).bind(limit), parameters).blocking();
        query.fetch_all(&self.readers).await?.iter().map(row).collect()
    }

    /// Records before a position, newest first, at most `limit`.
    pub async fn audit_before(&self, filter: &AuditFilter, before: i64, limit: i64) -> Result<Vec<AuditRow>> {
        let (conditions, parameters) = conditions(filter, 3);
        let sql =
            format!("SELECT {COLUMNS} FROM audit WHERE position < $1{conditions} ORDER BY position DESC LIMIT $2");
        let query = bind(statement(sql).bind(before).bind(limit), parameters).blocking();
        query.fetch_all(&self.readers).await?.iter().map(row).collect()
    }

    /// Position and hash of the end of the chain.
    ///
    /// # Errors
    /// The database failed, or the row was removed.
    pub async fn audit_head(&self) -> Result<(i64, String)> {
        let query = statement("SELECT position, hash FROM audit_head WHERE id = 1");
        let row = query.fetch_one(&self.readers).await?;
        Ok((row.try_get("position")?, row.try_get("hash")?))
    }
}

impl WriteTx {
    /// Position and hash of the end of the chain, locked: no other change adds a record until this change ends.
    ///
    /// # Errors
    /// The database failed, or the row was removed.
    pub async fn audit_head(&mut self) -> Result<(i64, String)> {
        let sql = format!(
            "SELECT position, hash FROM audit_head WHERE id = 1{}",
            self.kind.for_update()
        );
        let row = statement(sql).fetch_one(&mut self.tx).await?;
        Ok((row.try_get("position")?, row.try_get("hash")?))
    }

    /// The hash at a position; none: there is no such record.
    pub async fn audit_hash(&mut self, position: i64) -> Result<Option<String>> {
        let query = statement("SELECT hash FROM audit WHERE position = $1").bind(position);
        let row = query.fetch_optional(&mut self.tx).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }

    /// Adds a record at the end of the chain. Call `audit_head` before, and take no other lock afterwards.
    ///
    /// # Errors
    /// The database failed, or a record exists at that position.
    pub async fn add_audit(&mut self, row: &AuditRow) -> Result<()> {
        let sql = format!("INSERT INTO audit ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)");
        let query = statement(sql)
            .bind(row.position)
            .bind(row.at.0)
            .bind(&row.caller)
            .bind(&row.customer)
            .bind(&row.method)
            .bind(&row.target)
            .bind(&row.outcome)
            .bind(&row.record)
            .bind(&row.hash)
            .bind(&row.key)
            .bind(&row.signature);
        query.execute(&mut self.tx).await?;
        let query = statement("UPDATE audit_head SET position = $1, hash = $2 WHERE id = 1");
        query.bind(row.position).bind(&row.hash).execute(&mut self.tx).await?;
        Ok(())
    }
}
