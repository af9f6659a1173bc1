//! Forward-only migrations, run in order, each in one transaction with its number.

use sqlx::sqlite::SqlitePool;
use sqlx::{Executor, Row};

use crate::error::StoreError;

/// Every migration, oldest first; its number is its place, from 1.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_init.sql")];

pub(crate) async fn migrate(pool: &SqlitePool) -> Result<(), StoreError> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    tx.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        .await?;
    let row = tx
        .fetch_one("SELECT COALESCE(MAX(version), 0) AS version FROM schema_version")
        .await?;
    let found: i64 = row.try_get("version")?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    for (number, sql) in (1i64..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        tx.execute(*sql).await?;
        sqlx::query("INSERT INTO schema_version (version) VALUES (?)")
            .bind(number)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}
