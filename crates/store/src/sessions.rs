//! Sessions in the web console, and API keys. Their secrets are stored as hashes.

use rackwright_lifecycle::{CustomerId, Timestamp};

use crate::error::corrupt;
use crate::sql::{Query, Row, statement};
use crate::{Result, Scope, Store, WriteTx};

const SESSIONS: &str = "SELECT id, kind, member, epoch, customer, role, label, created_at, used_at, ends_at, address, client \
                        FROM sessions";

/// Most open browser sessions of a member. A further session ends the session with the oldest use.
const BROWSERS_MAX: i64 = 16;

/// The keeper of a session's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// A browser keeps the secret in a cookie.
    Browser,
    /// A program keeps the secret as its API key.
    ApiKey,
}

impl SessionKind {
    /// The word for the kind in the database.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::ApiKey => "api-key",
        }
    }
}

/// A session in the web console, or an API key. Calls with its secret are calls of the member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Id of the session; not secret.
    pub id: String,
    /// The keeper of the secret.
    pub kind: SessionKind,
    /// Name of the member.
    pub member: String,
    /// The member's epoch at the login. The session has ended when the member has another epoch.
    pub epoch: u64,
    /// The member's customer; empty: a member of the site.
    pub customer: CustomerId,
    /// The role of an API key; empty: the member's role.
    pub role: String,
    /// The purpose of an API key, in the member's words.
    pub label: String,
    /// The time of the login, or when the key was created.
    pub created_at: Timestamp,
    /// The time of the last call. It is stored at most once a minute.
    pub used_at: Timestamp,
    /// The session ends at this time.
    pub ends_at: Timestamp,
    /// The IP address at the login.
    pub address: String,
    /// The client's own name for itself at the login; not verified.
    pub client: String,
}

fn session(row: &Row) -> Result<SessionRow> {
    let id: String = row.try_get("id")?;
    let kind = match row.try_get::<String>("kind")?.as_str() {
        "browser" => SessionKind::Browser,
        "api-key" => SessionKind::ApiKey,
        other => return Err(corrupt("session", &id, format!("unknown kind {other:?}"))),
    };
    let epoch = row.unsigned("epoch", "session", &id)?;
    Ok(SessionRow {
        id,
        kind,
        member: row.try_get("member")?,
        epoch,
        customer: row.id("customer")?,
        role: row.try_get("role")?,
        label: row.try_get("label")?,
        created_at: Timestamp(row.try_get("created_at")?),
        used_at: Timestamp(row.try_get("used_at")?),
        ends_at: Timestamp(row.try_get("ends_at")?),
        address: row.try_get("address")?,
        client: row.try_get("client")?,
    })
}

/// The sessions that a reader sees: the sessions of a scope, or of one member in the scope.
#[derive(Debug, Clone, Copy)]
pub struct SessionFilter<'a> {
    /// The part of the site.
    pub scope: &'a Scope,
    /// Only sessions of this member are seen; empty: sessions of all members of the scope.
    pub member: &'a str,
}

impl SessionFilter<'_> {
    /// Conditions for a `WHERE` clause. Their parameters begin at `$place`.
    fn rows(&self, place: usize) -> String {
        let member = format!(" AND (${place} = '' OR member = ${place})");
        member + &self.scope.rows("customer", place + 1)
    }

    fn bind<'a>(&'a self, query: Query<'a>) -> Query<'a> {
        self.scope.bind(query.bind(self.member))
    }
}

impl Store {
    /// The open session with this hash. None: no session has this hash, or the session has ended.
    pub async fn session(&self, hash: &str, now: Timestamp) -> Result<Option<SessionRow>> {
        let sql = format!("{SESSIONS} WHERE hash = $1 AND ends_at > $2");
        let query = statement(sql).bind(hash).bind(now.0);
        query
            .fetch_optional(&self.readers)
            .await?
            .as_ref()
            .map(session)
            .transpose()
    }

    /// Whether a session exists and has not ended.
    pub async fn session_is_open(&self, id: &str, now: Timestamp) -> Result<bool> {
        let query = statement("SELECT 1 FROM sessions WHERE id = $1 AND ends_at > $2");
        let row = query.bind(id).bind(now.0).fetch_optional(&self.readers).await?;
        Ok(row.is_some())
    }

    /// Open sessions of a kind by id after `after`, at most `limit`.
    pub async fn sessions(
        &self,
        filter: SessionFilter<'_>,
        kind: SessionKind,
        now: Timestamp,
        (after, limit): (&str, i64),
    ) -> Result<Vec<SessionRow>> {
        let sql = format!(
            "{SESSIONS} WHERE kind = $1 AND ends_at > $2 AND id > $3{} ORDER BY id LIMIT $4",
            filter.rows(5)
        );
        let query = statement(sql).bind(kind.word()).bind(now.0).bind(after).bind(limit);
        let rows = filter.bind(query).fetch_all(&self.readers).await?;
        rows.iter().map(session).collect()
    }

    /// Stores `now` as the last use of a session, if the stored use is before `since`. False: nothing was stored.
    pub async fn record_session_use(&self, id: &str, now: Timestamp, since: Timestamp) -> Result<bool> {
        let query = statement("UPDATE sessions SET used_at = $2 WHERE id = $1 AND used_at < $3");
        Ok(self.execute(query.bind(id).bind(now.0).bind(since.0)).await? > 0)
    }

    /// Deletes sessions that ended before `now`, and browser sessions without a call since `idle_since`.
    pub async fn forget_sessions(&self, now: Timestamp, idle_since: Timestamp) -> Result<u64> {
        let sql = "DELETE FROM sessions WHERE ends_at <= $1 OR kind = 'browser' AND used_at < $2";
        let query = statement(sql).bind(now.0).bind(idle_since.0).blocking();
        self.execute(query).await
    }
}

impl WriteTx {
    /// Adds a session. If the member then has too many browser sessions, those with the oldest use end.
    pub async fn put_session(&mut self, hash: &str, row: &SessionRow) -> Result<()> {
        let sql = "INSERT INTO sessions (id, hash, kind, member, epoch, customer, role, label, created_at, used_at, ends_at, \
                   address, client) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
        let query = statement(sql).bind(&row.id).bind(hash).bind(row.kind.word());
        let query = query
            .bind(&row.member)
            .bind(i64::try_from(row.epoch).unwrap_or(i64::MAX));
        let query = query.bind(&row.customer).bind(&row.role).bind(&row.label);
        let query = query.bind(row.created_at.0).bind(row.used_at.0).bind(row.ends_at.0);
        let query = query.bind(&row.address).bind(&row.client);
        query.execute(&mut self.tx).await?;
        if row.kind == SessionKind::Browser {
            // The new session stays, even if clocks of other replicas are ahead and its use looks oldest.
            let sql = "DELETE FROM sessions WHERE kind = 'browser' AND member = $1 AND id <> $3 AND id NOT IN \
                       (SELECT id FROM sessions WHERE kind = 'browser' AND member = $1 AND id <> $3 \
                       ORDER BY used_at DESC, id LIMIT $2)";
            let query = statement(sql).bind(&row.member).bind(BROWSERS_MAX - 1).bind(&row.id);
            self.changes_members |= query.execute(&mut self.tx).await? > 0;
        }
        Ok(())
    }

    /// Ends all sessions, API keys and unused login tokens, and returns the number of sessions and keys. A restored
    /// database may contain some that had ended after the backup.
    pub async fn end_all_sessions(&mut self) -> Result<u64> {
        let ended = statement("DELETE FROM sessions").execute(&mut self.tx).await?;
        let sql = "DELETE FROM tokens WHERE purpose = 'login'";
        statement(sql).execute(&mut self.tx).await?;
        self.changes_members = true;
        Ok(ended)
    }

    /// Number of a member's API keys that have not ended.
    pub async fn api_keys_of(&mut self, member: &str, now: Timestamp) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM sessions WHERE kind = 'api-key' AND member = $1 AND ends_at > $2";
        let query = statement(sql).bind(member).bind(now.0);
        Ok(query.fetch_one(&mut self.tx).await?.try_get(0)?)
    }

    /// Ends a session, and returns it. None: the reader sees no open session of this id and kind.
    pub async fn end_session(
        &mut self,
        filter: SessionFilter<'_>,
        kind: SessionKind,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<SessionRow>> {
        let sql = format!(
            "{SESSIONS} WHERE kind = $1 AND ends_at > $2 AND id = $3{}{}",
            filter.rows(4),
            self.kind.for_update()
        );
        let query = filter.bind(statement(sql).bind(kind.word()).bind(now.0).bind(id));
        let Some(row) = query.fetch_optional(&mut self.tx).await? else {
            return Ok(None);
        };
        let ended = session(&row)?;
        let query = statement("DELETE FROM sessions WHERE id = $1").bind(id);
        query.execute(&mut self.tx).await?;
        self.changes_members = true;
        Ok(Some(ended))
    }
}
