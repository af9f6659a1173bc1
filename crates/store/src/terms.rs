//! Reserved terms: the contracts of customers.

use rackwright_lifecycle::{CustomerId, Timestamp};

use crate::sql::{Row, statement};
use crate::{Result, Scope, Store, StoreError, WriteTx};

/// A number of nodes of a SKU for a customer, in the seconds `[from_s, to_s)` since 1970 UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermRow {
    /// Chosen by the caller.
    pub id: String,
    /// Never reused.
    pub uid: String,
    /// Grows with every change, from 1.
    pub version: i64,
    /// The customer of the contract.
    pub customer: CustomerId,
    /// The class of machines.
    pub sku: String,
    /// Number of nodes.
    pub nodes: u32,
    /// First second.
    pub from_s: i64,
    /// The second after the last one.
    pub to_s: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// Last changed.
    pub updated_at: Timestamp,
}

const COLUMNS: &str = "SELECT id, uid, version, customer, sku, nodes, from_s, to_s, created_at, updated_at FROM terms";

fn term(row: &Row) -> Result<TermRow> {
    Ok(TermRow {
        id: row.try_get("id")?,
        uid: row.try_get("uid")?,
        version: row.try_get("version")?,
        customer: row.id("customer")?,
        sku: row.try_get("sku")?,
        nodes: u32::try_from(row.try_get::<i64>("nodes")?).unwrap_or(u32::MAX),
        from_s: row.try_get("from_s")?,
        to_s: row.try_get("to_s")?,
        created_at: Timestamp(row.try_get("created_at")?),
        updated_at: Timestamp(row.try_get("updated_at")?),
    })
}

fn conflict(id: &str) -> StoreError {
    StoreError::Conflict {
        kind: "term",
        id: id.to_owned(),
    }
}

impl Store {
    /// Terms by id after `after`, at most `limit`; of one customer when `customer` is not empty.
    pub async fn terms(
        &self,
        scope: &Scope,
        customer: Option<&CustomerId>,
        after: &str,
        limit: i64,
    ) -> Result<Vec<TermRow>> {
        let sql = format!(
            "{COLUMNS} WHERE id > $1 AND ($2 = '' OR customer = $2){} ORDER BY id LIMIT $3",
            scope.rows("customer", 4)
        );
        let query = scope.bind(
            statement(sql)
                .bind(after)
                .bind(customer.map_or("", CustomerId::as_str))
                .bind(limit),
        );
        let rows = query.blocking().fetch_all(&self.readers).await?;
        rows.iter().map(term).collect()
    }
}

impl WriteTx {
    /// One term within this change, if it exists, locked until the change ends.
    pub async fn term(&mut self, id: &str) -> Result<Option<TermRow>> {
        let sql = format!("{COLUMNS} WHERE id = $1{}", self.kind.for_update());
        let row = statement(sql).bind(id).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(term).transpose()
    }

    /// Writes a term. `row.version` is its new version: 1 for a new term, else one more than was read.
    ///
    /// # Errors
    /// `Conflict`: it was changed or created since it was read.
    pub async fn put_term(&mut self, row: &TermRow) -> Result<()> {
        let sql = "INSERT INTO terms (id, uid, version, customer, sku, nodes, from_s, to_s, created_at, updated_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO UPDATE SET \
                   version = excluded.version, customer = excluded.customer, sku = excluded.sku, \
                   nodes = excluded.nodes, from_s = excluded.from_s, to_s = excluded.to_s, \
                   updated_at = excluded.updated_at WHERE terms.version = excluded.version - 1";
        let query = statement(sql).bind(&row.id).bind(&row.uid).bind(row.version);
        let query = query.bind(&row.customer).bind(&row.sku).bind(i64::from(row.nodes));
        let query = query.bind(row.from_s).bind(row.to_s);
        let query = query.bind(row.created_at.0).bind(row.updated_at.0);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(conflict(&row.id));
        }
        Ok(())
    }

    /// Deletes a term in the version that was read.
    ///
    /// # Errors
    /// `Conflict`: it was changed since.
    pub async fn delete_term(&mut self, row: &TermRow) -> Result<()> {
        let query = statement("DELETE FROM terms WHERE id = $1 AND version = $2").bind(&row.id);
        if query.bind(row.version).execute(&mut self.tx).await? == 0 {
            return Err(conflict(&row.id));
        }
        Ok(())
    }
}
