//! Events: a log with positions.

use std::collections::BTreeMap;

use rackwright_lifecycle::{EventKind, Severity, Timestamp};

use crate::database::{Kind, Writer, begin};
use crate::error::corrupt;
use crate::filter::{Conditions, Term};
use crate::group::Tx;
use crate::sql::{Row, statement};
use crate::{Result, Scope, Store, WriteTx};

/// Events written with one statement.
const EVENTS_AT_ONCE: usize = 100;

/// Events placed with one change.
const EVENTS_PLACED: i64 = 1000;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventRow {
    /// Place in the log; set by the store.
    pub position: i64,
    /// When it happened.
    pub at: Timestamp,
    pub kind: EventKind,
    /// Resource name of the target.
    pub target: String,
    /// A sentence.
    pub message: String,
    /// Further values by name.
    pub attributes: BTreeMap<String, String>,
}

/// Which events a reader wants. The default is all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Only of this resource; empty: of all.
    pub target: String,
    /// Only of these kinds; `security.*` stands for all kinds with this beginning. Empty: of all.
    pub kinds: Vec<String>,
    /// Only of at least this severity.
    pub min_severity: Option<Severity>,
    /// Only at or after this time.
    pub since: Option<Timestamp>,
    /// Only before this time.
    pub until: Option<Timestamp>,
}

impl EventFilter {
    /// True when more than the target decides.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        *self
            != Self {
                target: self.target.clone(),
                ..Self::default()
            }
    }

    /// The filter as SQL. The parameters begin with number `first`.
    fn conditions(&self, first: usize) -> Conditions {
        let kinds: Vec<Term> = self
            .kinds
            .iter()
            .flat_map(|kind| Term::is("kind", kind.as_str()))
            .collect();
        let mut filter = Vec::new();
        if !self.target.is_empty() {
            filter.push(Term::is("target", self.target.as_str()));
        }
        if !kinds.is_empty() {
            filter.push(kinds);
        }
        let mut made = Conditions::of(&filter, first, |made, term| match term.field.as_str() {
            "kind" => made.like("kind", term),
            _ => made.equal("target", term),
        });
        // Times are numbers that this program made.
        let since = self.since.map(|since| format!(" AND at >= {}", since.0));
        let until = self.until.map(|until| format!(" AND at < {}", until.0));
        made.sql.extend([since, until].into_iter().flatten());
        made.sql.push_str(&of_severity(self.min_severity));
        made
    }
}

/// The condition of the least severity, as `EventKind::severity` has it.
fn of_severity(min: Option<Severity>) -> String {
    match min {
        None | Some(Severity::Info) => String::new(),
        // All others, kinds of other versions among them.
        Some(Severity::Warning) => {
            let mild = listed(EventKind::named().filter(|kind| kind.severity() < Severity::Warning));
            format!(
                " AND kind NOT IN ({mild}) AND kind NOT LIKE 'facility.%-cleared' AND kind NOT LIKE 'facility.%-ignored'"
            )
        }
        Some(Severity::Error) => format!(" AND kind IN ({})", listed(EventKind::errors())),
    }
}

/// The condition of the kinds that a reader may see.
fn of_audience(scope: &Scope) -> String {
    match scope {
        Scope::Site => String::new(),
        Scope::Customer(_) => {
            let shown = EventKind::named().filter(EventKind::is_for_customers);
            format!(" AND kind IN ({})", listed(shown))
        }
    }
}

/// Names of kinds as texts of SQL. No name has a quote.
fn listed(kinds: impl Iterator<Item = EventKind>) -> String {
    let names: Vec<String> = kinds.map(|kind| format!("'{kind}'")).collect();
    names.join(", ")
}

const COLUMNS: &str = "SELECT position, at, kind, target, message, attributes FROM events";

fn from_row(row: &Row) -> Result<EventRow> {
    let position: i64 = row.try_get("position")?;
    let attributes =
        serde_json::from_str(row.try_get("attributes")?).map_err(|e| corrupt("event", &position.to_string(), e))?;
    Ok(EventRow {
        position,
        at: Timestamp(row.try_get("at")?),
        kind: EventKind::parse(row.try_get("kind")?),
        target: row.try_get("target")?,
        message: row.try_get("message")?,
        attributes,
    })
}

impl Store {
    /// Gives positions to events that have none yet: on PostgreSQL that happens at the next read.
    ///
    /// A follower of the log requests everything after the last position it has seen, so a lower position must never appear
    /// later. A number drawn during a change cannot promise that: of two changes, the one with the higher number may commit
    /// first. A lock from the number to the commit would make the commits of all changes wait for each other. So a change
    /// leaves its events in an inbox, and positions are given to committed events only, by one process at a time, which
    /// holds the counter's row until the placed events are visible. The numbers of the inbox keep the order of successive
    /// changes; all changes of one node are successive.
    async fn place_events(&self) -> Result<()> {
        let Writer::Postgres(pool) = &self.writer else {
            return Ok(());
        };
        if !self.has_unplaced_events().await? {
            return Ok(());
        }
        // Of all callers in this process, one does the work.
        let _placing = self.placing.lock().await;
        while self.has_unplaced_events().await? {
            let mut tx = Tx::Own(begin(pool).await?);
            let sql = "SELECT last FROM event_counter WHERE id = 1 FOR UPDATE";
            let last: i64 = statement(sql).fetch_one(&mut tx).await?.try_get(0)?;
            let sql = "WITH taken AS (DELETE FROM event_inbox WHERE id IN \
                       (SELECT id FROM event_inbox ORDER BY id LIMIT $2) \
                       RETURNING id, at, kind, target, message, attributes) \
                       INSERT INTO events (position, at, kind, target, message, attributes) \
                       SELECT $1 + ROW_NUMBER() OVER (ORDER BY id), at, kind, target, message, attributes FROM taken";
            let query = statement(sql).bind(last).bind(EVENTS_PLACED);
            let placed = query.execute(&mut tx).await?;
            let placed = i64::try_from(placed).unwrap_or(i64::MAX);
            let query = statement("UPDATE event_counter SET last = $1 WHERE id = 1").bind(last + placed);
            query.execute(&mut tx).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    async fn has_unplaced_events(&self) -> Result<bool> {
        let query = statement("SELECT id FROM event_inbox ORDER BY id LIMIT 1");
        Ok(query.fetch_optional(&self.readers).await?.is_some())
    }

    /// Events after a position, oldest first; only of `target` where it is not empty.
    pub async fn events(&self, scope: &Scope, after: i64, target: &str, limit: i64) -> Result<Vec<EventRow>> {
        let filter = EventFilter {
            target: target.to_owned(),
            ..EventFilter::default()
        };
        self.events_that_match(scope, &filter, after, limit).await
    }

    /// Events after a position that match, oldest first.
    pub async fn events_that_match(
        &self,
        scope: &Scope,
        filter: &EventFilter,
        after: i64,
        limit: i64,
    ) -> Result<Vec<EventRow>> {
        self.read_events(scope, filter, ("position > $1", "position"), after, limit)
            .await
    }

    /// The newest `limit` events up to a position that match, oldest first.
    pub async fn newest_events(
        &self,
        scope: &Scope,
        filter: &EventFilter,
        last: i64,
        limit: i64,
    ) -> Result<Vec<EventRow>> {
        let order = ("position <= $1", "position DESC");
        let mut rows = self.read_events(scope, filter, order, last, limit).await?;
        rows.reverse();
        Ok(rows)
    }

    async fn read_events(
        &self,
        scope: &Scope,
        filter: &EventFilter,
        (place, order): (&str, &str),
        position: i64,
        limit: i64,
    ) -> Result<Vec<EventRow>> {
        self.place_events().await?;
        let conditions = filter.conditions(3);
        let sql = format!(
            "{COLUMNS} WHERE {place}{}{}{} ORDER BY {order} LIMIT $2",
            conditions.sql,
            of_audience(scope),
            scope.targets("events.at", conditions.values.len() + 3)
        );
        let query = statement(sql).bind(position).bind(limit);
        let mut query = conditions.values.iter().fold(query, |query, value| query.bind(value));
        if filter.is_narrow() {
            // Only a few of many rows may match; the text of the statement has the times.
            query = query.blocking().unprepared();
        }
        let rows = scope.bind(query).fetch_all(&self.readers).await?;
        rows.iter().map(from_row).collect()
    }

    /// Oldest and newest stored position; (0, 0): there is no event.
    pub async fn event_range(&self) -> Result<(i64, i64)> {
        self.place_events().await?;
        let sql = "SELECT COALESCE(MIN(position), 0), COALESCE(MAX(position), 0) FROM events";
        let row = statement(sql).fetch_one(&self.readers).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Drops events older than `oldest`, except the newest event, which holds the followers' position. Returns the number
    /// dropped.
    pub async fn forget_events(&self, oldest: Timestamp) -> Result<u64> {
        self.place_events().await?;
        let query = statement("DELETE FROM events WHERE at < $1 AND position < (SELECT MAX(position) FROM events)")
            .bind(oldest.0)
            .blocking();
        self.execute(query).await
    }
}

impl WriteTx {
    /// Adds an event; `commit` writes it.
    ///
    /// # Errors
    /// Never fails at present; reserved.
    pub async fn add_event(&mut self, event: &EventRow) -> Result<()> {
        self.events.push(event.clone());
        Ok(())
    }

    /// Writes the events, as the last statements before the commit: with positions on SQLite, which has a single writer,
    /// and without positions on PostgreSQL.
    pub(crate) async fn append_events(&mut self) -> Result<()> {
        let events = std::mem::take(&mut self.events);
        let mut position = None;
        if self.kind == Kind::Sqlite {
            let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
            let sql = "UPDATE event_counter SET last = last + $1 WHERE id = 1 RETURNING last";
            let row = statement(sql).bind(count).fetch_one(&mut self.tx).await?;
            position = Some(row.try_get::<i64>(0)? - count);
        }
        for chunk in events.chunks(EVENTS_AT_ONCE) {
            let (table, columns) = match position {
                Some(_) => ("events (at, kind, target, message, attributes, position)", 6),
                None => ("event_inbox (at, kind, target, message, attributes)", 5),
            };
            let places: Vec<String> = (0..chunk.len()).map(|n| values(columns, n)).collect();
            let sql = format!("INSERT INTO {table} VALUES {}", places.join(", "));
            let mut query = statement(sql);
            if chunk.len() > 4 {
                query = query.unprepared();
            }
            for event in chunk {
                let kind = event.kind.to_string();
                let attributes = serde_json::to_string(&event.attributes).map_err(|e| corrupt("event", &kind, e))?;
                query = query.bind(event.at.0).bind(kind).bind(&event.target);
                query = query.bind(&event.message).bind(attributes);
                if let Some(position) = &mut position {
                    *position += 1;
                    query = query.bind(*position);
                }
            }
            query.execute(&mut self.tx).await?;
        }
        Ok(())
    }
}

/// The placeholders of row `n` (from 0) with `columns` columns: `($1, $2)`, `($3, $4)`, ...
fn values(columns: usize, n: usize) -> String {
    let places: Vec<String> = (1..=columns).map(|c| format!("${}", n * columns + c)).collect();
    format!("({})", places.join(", "))
}
