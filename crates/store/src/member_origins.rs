//! Members who log in by an OpenID Connect provider.

use rackwright_lifecycle::Timestamp;

use crate::members::{MEMBERS, integer, member};
use crate::sql::statement;
use crate::{MemberRecord, MemberRow, Result, WriteTx};

/// The person behind a member, in the words of an OpenID Connect provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOrigin {
    /// The provider.
    pub issuer: String,
    /// The provider's name for the person. The provider never gives it to another person.
    pub subject: String,
}

impl WriteTx {
    /// The member of a person, locked until the change ends.
    pub async fn member_of(&mut self, origin: &MemberOrigin) -> Result<Option<MemberRecord>> {
        let sql = format!(
            "{MEMBERS} WHERE issuer = $1 AND issuer <> '' AND subject = $2{}",
            self.kind.for_update()
        );
        let query = statement(sql).bind(&origin.issuer).bind(&origin.subject);
        let row = query.fetch_optional(&mut self.tx).await?;
        row.as_ref().map(member).transpose()
    }

    /// Adds the member of a person. False: a member has this name, or the person is a member under another name.
    pub async fn add_member_of(
        &mut self,
        origin: &MemberOrigin,
        name: &str,
        given: &MemberRow,
        epoch: u64,
        now: Timestamp,
    ) -> Result<bool> {
        let sql = "INSERT INTO members (name, role, customer, epoch, created_at, issuer, subject) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(name).bind(&given.role).bind(&given.customer);
        let query = query.bind(integer(epoch)).bind(now.0);
        let query = query.bind(&origin.issuer).bind(&origin.subject);
        let is_added = query.execute(&mut self.tx).await? > 0;
        self.changes_members |= is_added;
        Ok(is_added)
    }

    /// Gives a member another role and another customer. When the customer changes, end the member's accesses too: they
    /// carry the customer.
    pub async fn set_member_rights(&mut self, name: &str, given: &MemberRow) -> Result<()> {
        let query = statement("UPDATE members SET role = $2, customer = $3 WHERE name = $1");
        let query = query.bind(name).bind(&given.role).bind(&given.customer);
        query.execute(&mut self.tx).await?;
        self.changes_members = true;
        Ok(())
    }

    /// Notes the use of a secret that is stored nowhere before its use. False: it was used before.
    pub async fn use_once(&mut self, hash: &str, purpose: &str, expires_at: Timestamp, now: Timestamp) -> Result<bool> {
        let sql = "INSERT INTO tokens (hash, purpose, subject, body, expires_at, used_at) \
                   VALUES ($1, $2, '', '', $3, $4) ON CONFLICT DO NOTHING";
        let query = statement(sql).bind(hash).bind(purpose).bind(expires_at.0).bind(now.0);
        Ok(query.execute(&mut self.tx).await? > 0)
    }
}
