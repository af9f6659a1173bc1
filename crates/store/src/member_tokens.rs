//! One-time tokens for new members, as members see them: without the secret and without its hash.

use rackwright_lifecycle::{CustomerId, Timestamp};

use crate::sql::{Row, statement};
use crate::{MemberRow, Result, Scope, Store, TokenRow, WriteTx};

/// The purpose of these tokens in the common token table.
const PURPOSE: &str = "member";

/// The first 16 hex digits of the hash are the token's id. The hash is over 256 random bits, so the id reveals nothing
/// about the token.
const TOKENS: &str = "SELECT SUBSTR(hash, 1, 16) AS id, subject, body, expires_at, made_by FROM tokens \
                      WHERE purpose = $1 AND used_at IS NULL AND expires_at > $2";

/// An unused token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberTokenRow {
    /// Id of the token; not secret.
    pub id: String,
    /// The new member.
    pub member: String,
    /// The member's role and customer.
    pub given: MemberRow,
    /// The token expires at this time.
    pub expires_at: Timestamp,
    /// The member who created it; empty: created on the control plane's own host.
    pub made_by: String,
}

impl MemberRow {
    /// The stored form: the role, and after a slash the customer.
    #[must_use]
    pub fn to_body(&self) -> String {
        match self.customer.as_str() {
            "" => self.role.clone(),
            customer => format!("{}/{customer}", self.role),
        }
    }

    /// Parses the stored form.
    #[must_use]
    pub fn of_body(body: &str) -> Self {
        let (role, customer) = body.split_once('/').unwrap_or((body, ""));
        Self {
            role: role.to_owned(),
            customer: CustomerId::stored(customer),
        }
    }
}

fn token(row: &Row) -> Result<MemberTokenRow> {
    Ok(MemberTokenRow {
        id: row.try_get("id")?,
        member: row.try_get("subject")?,
        given: MemberRow::of_body(&row.try_get::<String>("body")?),
        expires_at: Timestamp(row.try_get("expires_at")?),
        made_by: row.try_get("made_by")?,
    })
}

impl Store {
    /// Unused tokens that are valid at `now`, by id after `after`, at most `limit`.
    pub async fn member_tokens(
        &self,
        scope: &Scope,
        now: Timestamp,
        after: &str,
        limit: i64,
    ) -> Result<Vec<MemberTokenRow>> {
        let sql = format!(
            "{TOKENS} AND SUBSTR(hash, 1, 16) > $3{} ORDER BY hash LIMIT $4",
            scope.rows("customer", 5)
        );
        let query = statement(sql).bind(PURPOSE).bind(now.0).bind(after).bind(limit);
        let rows = scope.bind(query).fetch_all(&self.readers).await?;
        rows.iter().map(token).collect()
    }
}

impl WriteTx {
    /// Adds a token for a new member, with the member who created it.
    pub async fn put_member_token(
        &mut self,
        hash: &str,
        member: &str,
        given: &MemberRow,
        expires_at: Timestamp,
        made_by: &str,
    ) -> Result<()> {
        let row = TokenRow {
            hash: hash.to_owned(),
            purpose: PURPOSE.to_owned(),
            subject: member.to_owned(),
            body: given.to_body(),
            expires_at,
        };
        self.put_token(&row).await?;
        let sql = "UPDATE tokens SET customer = $2, made_by = $3 WHERE hash = $1";
        let query = statement(sql).bind(hash).bind(&given.customer).bind(made_by);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Ends an unused token. None: there is no unused token of this id within the scope.
    pub async fn delete_member_token(
        &mut self,
        scope: &Scope,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<MemberTokenRow>> {
        let sql = format!(
            "{TOKENS} AND SUBSTR(hash, 1, 16) = $3{}{}",
            scope.rows("customer", 4),
            self.kind.for_update()
        );
        let query = scope.bind(statement(sql).bind(PURPOSE).bind(now.0).bind(id));
        let Some(row) = query.fetch_optional(&mut self.tx).await? else {
            return Ok(None);
        };
        let found = token(&row)?;
        let sql = "DELETE FROM tokens WHERE purpose = $1 AND SUBSTR(hash, 1, 16) = $2 AND used_at IS NULL";
        statement(sql).bind(PURPOSE).bind(id).execute(&mut self.tx).await?;
        Ok(Some(found))
    }
}
