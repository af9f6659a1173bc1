//! One interface to both databases: a statement with its parameters in, rows out.
//!
//! Statements for SQLite run on the calling thread: one takes a few microseconds, far less than waking another thread and
//! back. Statements on many rows, which may take long, go `blocking` to a blocking thread, and so do statements that wait
//! for the disk (`group.rs`). PostgreSQL is reached by sqlx.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_lifecycle::{ClusterId, CustomerId, ImageId, NodeId, OperationId};
use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, Postgres, Row as _, Type};

use crate::error::{DatabaseError, corrupt};

/// Prepared statements that SQLite caches for a connection.
pub(crate) const PREPARED: usize = 256;
/// A statement that takes longer is logged.
const SLOW: Duration = Duration::from_secs(1);

type SqlResult<T> = std::result::Result<T, DatabaseError>;

/// A parameter.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Integer(Option<i64>),
    Text(Option<Cow<'a, str>>),
    Blob(Option<Cow<'a, [u8]>>),
}

impl Value<'_> {
    fn into_owned(self) -> Value<'static> {
        match self {
            Self::Integer(value) => Value::Integer(value),
            Self::Text(value) => Value::Text(value.map(|v| Cow::Owned(v.into_owned()))),
            Self::Blob(value) => Value::Blob(value.map(|v| Cow::Owned(v.into_owned()))),
        }
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Integer(Some(value)) => ValueRef::Integer(*value),
            Self::Text(Some(value)) => ValueRef::Text(value.as_bytes()),
            Self::Blob(Some(value)) => ValueRef::Blob(value),
            _ => ValueRef::Null,
        }))
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value.into()))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(Some(value.into()))
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Self::Text(Some(value.into()))
    }
}

impl<'a> From<&'a Option<String>> for Value<'a> {
    fn from(value: &'a Option<String>) -> Self {
        Self::Text(value.as_ref().map(Into::into))
    }
}

/// An id that a row holds.
pub(crate) trait StoredId {
    fn from_row(text: String) -> Self;
}

macro_rules! stored_id {
    ($($id:ty),+) => { $(
        impl StoredId for $id {
            fn from_row(text: String) -> Self {
                Self::stored(text)
            }
        }

        impl<'a> From<&'a $id> for Value<'a> {
            fn from(id: &'a $id) -> Self {
                id.as_str().into()
            }
        }

        impl<'a> From<Option<&'a $id>> for Value<'a> {
            fn from(id: Option<&'a $id>) -> Self {
                Self::Text(id.map(|id| id.as_str().into()))
            }
        }
    )+ };
}

stored_id!(OperationId, ImageId, CustomerId, ClusterId, NodeId);

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Blob(Some(value.into()))
    }
}

impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(value: Option<&'a [u8]>) -> Self {
        Self::Blob(value.map(Into::into))
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(value: &'a Vec<u8>) -> Self {
        Self::Blob(Some(value.into()))
    }
}

/// A statement and its parameters: the first one bound is `$1`.
#[derive(Debug, Clone)]
pub(crate) struct Query<'a> {
    pub(crate) sql: Cow<'static, str>,
    values: Vec<Value<'a>>,
    /// The statement may take long: on SQLite it runs on a blocking thread.
    pub(crate) is_blocking: bool,
    is_unprepared: bool,
}

/// A statement. Its text is fixed in this crate; values from outside are bound as parameters.
pub(crate) fn statement<'a>(sql: impl Into<Cow<'static, str>>) -> Query<'a> {
    Query {
        sql: sql.into(),
        values: Vec::new(),
        is_blocking: false,
        is_unprepared: false,
    }
}

impl<'a> Query<'a> {
    /// Binds the next parameter.
    pub(crate) fn bind(mut self, value: impl Into<Value<'a>>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Marks a statement that may take long, because of many rows. Within a change it still runs in place.
    pub(crate) fn blocking(mut self) -> Self {
        self.is_blocking = true;
        self
    }

    /// Does not cache the prepared statement: its text seldom recurs.
    pub(crate) fn unprepared(mut self) -> Self {
        self.is_unprepared = true;
        self
    }

    pub(crate) fn into_owned(self) -> Query<'static> {
        Query {
            sql: self.sql,
            values: self.values.into_iter().map(Value::into_owned).collect(),
            is_blocking: self.is_blocking,
            is_unprepared: self.is_unprepared,
        }
    }

    /// Runs the statement; returns the number of changed rows.
    pub(crate) async fn execute(self, on: impl Into<QueryTarget<'_>>) -> SqlResult<u64> {
        match on.into() {
            QueryTarget::Sqlite(link) => Ok(link.run(&self)?.changed),
            QueryTarget::Readers(readers) => Ok(readers.run(self).await?.changed),
            QueryTarget::Postgres(connection) => Ok(self.prepared().execute(connection).await?.rows_affected()),
            QueryTarget::Pool(pool) => Ok(self.prepared().execute(pool).await?.rows_affected()),
        }
    }

    /// All rows.
    pub(crate) async fn fetch_all(self, on: impl Into<QueryTarget<'_>>) -> SqlResult<Vec<Row>> {
        let rows = match on.into() {
            QueryTarget::Sqlite(link) => return Ok(link.run(&self)?.rows),
            QueryTarget::Readers(readers) => return Ok(readers.run(self).await?.rows),
            QueryTarget::Postgres(connection) => self.prepared().fetch_all(connection).await?,
            QueryTarget::Pool(pool) => self.prepared().fetch_all(pool).await?,
        };
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    /// The first row, if there is one.
    pub(crate) async fn fetch_optional(self, on: impl Into<QueryTarget<'_>>) -> SqlResult<Option<Row>> {
        let row = match on.into() {
            QueryTarget::Sqlite(link) => return Ok(link.run(&self)?.rows.into_iter().next()),
            QueryTarget::Readers(readers) => return Ok(readers.run(self).await?.rows.into_iter().next()),
            QueryTarget::Postgres(connection) => self.prepared().fetch_optional(connection).await?,
            QueryTarget::Pool(pool) => self.prepared().fetch_optional(pool).await?,
        };
        Ok(row.map(Row::Postgres))
    }

    /// The first row; its absence is an error.
    pub(crate) async fn fetch_one(self, on: impl Into<QueryTarget<'_>>) -> SqlResult<Row> {
        self.fetch_optional(on).await?.ok_or(DatabaseError::NoRow)
    }

    /// The statement for PostgreSQL.
    fn prepared(self) -> sqlx::query::Query<'a, Postgres, PgArguments> {
        let query = sqlx::query(AssertSqlSafe(self.sql.into_owned())).persistent(!self.is_unprepared);
        self.values.into_iter().fold(query, |query, value| match value {
            Value::Integer(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
            Value::Blob(value) => query.bind(value.map(Cow::into_owned)),
        })
    }

    /// Runs it on SQLite.
    fn run(&self, connection: &Connection) -> rusqlite::Result<QueryResult> {
        let mut prepared = connection.prepare_cached(&self.sql)?;
        for index in 1..=prepared.parameter_count() {
            // SQLite treats `$1` as a name, and numbers names by their first occurrence.
            let number = prepared
                .parameter_name(index)
                .and_then(|name| name.get(1..)?.parse().ok());
            let value = number.and_then(|number: usize| self.values.get(number.checked_sub(1)?));
            let value = value.ok_or(rusqlite::Error::InvalidParameterCount(index, self.values.len()))?;
            prepared.raw_bind_parameter(index, value)?;
        }
        let columns: Arc<[String]> = prepared.column_names().map(str::to_owned).collect();
        let mut found = Vec::new();
        let mut rows = prepared.raw_query();
        while let Some(row) = rows.next()? {
            let cells = (0..columns.len()).map(|index| Ok(Cell::from(row.get_ref(index)?)));
            found.push(Row::Sqlite {
                cells: cells.collect::<rusqlite::Result<_>>()?,
                columns: columns.clone(),
            });
        }
        drop(rows);
        if self.is_unprepared {
            prepared.discard();
        }
        Ok(QueryResult {
            rows: found,
            changed: connection.changes(),
        })
    }

    /// Runs it on SQLite, and logs a slow statement.
    pub(crate) fn run_on(&self, connection: &Connection) -> SqlResult<QueryResult> {
        tracing::trace!(sql = %self.sql, "statement");
        let begun = Instant::now();
        let done = self.run(connection);
        let took = begun.elapsed();
        if took > SLOW {
            tracing::warn!(sql = %self.sql, seconds = took.as_secs_f64(), "a statement took long");
        }
        Ok(done?)
    }
}

/// The result of a statement on SQLite.
pub(crate) struct QueryResult {
    pub(crate) rows: Vec<Row>,
    pub(crate) changed: u64,
}

/// The target of a statement.
pub(crate) enum QueryTarget<'a> {
    Sqlite(&'a mut crate::group::GroupedChange),
    Readers(&'a crate::readers::SqliteReaders),
    Postgres(&'a mut sqlx::PgConnection),
    Pool(&'a sqlx::PgPool),
}

impl<'a> From<&'a sqlx::PgPool> for QueryTarget<'a> {
    fn from(pool: &'a sqlx::PgPool) -> Self {
        Self::Pool(pool)
    }
}

/// A value from SQLite.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
    /// A type that the schema does not use: a real number, or text that is not UTF-8.
    Other,
}

impl From<ValueRef<'_>> for Cell {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Integer(value),
            ValueRef::Text(bytes) => std::str::from_utf8(bytes).map_or(Self::Other, |text| Self::Text(text.to_owned())),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
            ValueRef::Real(_) => Self::Other,
        }
    }
}

/// A row of a result.
pub(crate) enum Row {
    Sqlite { columns: Arc<[String]>, cells: Vec<Cell> },
    Postgres(PgRow),
}

impl Row {
    /// A column's value, by its name or its index from 0.
    pub(crate) fn try_get<'r, T: Get<'r>>(&'r self, at: impl At) -> SqlResult<T> {
        match self {
            Self::Postgres(row) => Ok(row.try_get(at)?),
            Self::Sqlite { columns, cells } => {
                let cell = at.place(columns).and_then(|place| cells.get(place));
                cell.and_then(T::get)
                    .ok_or_else(|| DatabaseError::Column(at.to_string()))
            }
        }
    }
}

impl Row {
    /// The id in a column.
    pub(crate) fn id<T: StoredId>(&self, at: impl At) -> SqlResult<T> {
        self.try_get(at).map(T::from_row)
    }

    /// The number in a column of the row `id` of the kind `what`.
    ///
    /// # Errors
    /// [`crate::StoreError::Corrupt`]: the number is negative.
    pub(crate) fn unsigned(&self, at: impl At, what: &'static str, id: &str) -> crate::Result<u64> {
        u64::try_from(self.try_get::<i64>(at)?).map_err(|error| corrupt(what, id, error))
    }

    /// The id in a column that is empty without one.
    pub(crate) fn id_unless_empty<T: StoredId>(&self, at: impl At) -> SqlResult<Option<T>> {
        let text: String = self.try_get(at)?;
        Ok(Some(text).filter(|text| !text.is_empty()).map(T::from_row))
    }

    /// The id in a column that may be NULL.
    pub(crate) fn optional_id<T: StoredId>(&self, at: impl At) -> SqlResult<Option<T>> {
        Ok(self.try_get::<Option<String>>(at)?.map(T::from_row))
    }
}

/// A column's name or index.
pub(crate) trait At: ColumnIndex<PgRow> + ToString {
    fn place(&self, columns: &[String]) -> Option<usize>;
}

impl At for usize {
    fn place(&self, _: &[String]) -> Option<usize> {
        Some(*self)
    }
}

impl At for &str {
    fn place(&self, columns: &[String]) -> Option<usize> {
        columns.iter().position(|column| column == self)
    }
}

/// A type as which a column's value can be read.
pub(crate) trait Get<'r>: Type<Postgres> + Decode<'r, Postgres> {
    fn get(cell: &'r Cell) -> Option<Self>;
}

impl Get<'_> for i64 {
    fn get(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Integer(value) => Some(*value),
            _ => None,
        }
    }
}

impl<'r> Get<'r> for &'r str {
    fn get(cell: &'r Cell) -> Option<Self> {
        match cell {
            Cell::Text(value) => Some(value),
            _ => None,
        }
    }
}

impl Get<'_> for String {
    fn get(cell: &Cell) -> Option<Self> {
        <&str>::get(cell).map(str::to_owned)
    }
}

impl Get<'_> for Vec<u8> {
    fn get(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Blob(value) => Some(value.clone()),
            _ => None,
        }
    }
}

impl<'r, T: Get<'r>> Get<'r> for Option<T> {
    fn get(cell: &'r Cell) -> Option<Self> {
        match cell {
            Cell::Null => Some(None),
            cell => T::get(cell).map(Some),
        }
    }
}
