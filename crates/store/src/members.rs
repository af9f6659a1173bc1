//! Members, one-time tokens and the keys of deployments.

use rackwright_lifecycle::{CustomerId, NodeId, Timestamp};

use crate::sql::{Row, statement};
use crate::{MemberOrigin, Result, Scope, Store, StoreError, WriteTx};

/// A one-time token, stored by its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Hash of the token.
    pub hash: String,
    /// "member", "boot", "agent", "console", "login" or "oidc".
    pub purpose: String,
    /// The recipient: a member or a MAC address.
    pub subject: String,
    /// Further data, in the caller's encoding.
    pub body: String,
    /// The token expires at this time.
    pub expires_at: Timestamp,
}

pub(crate) const MEMBERS: &str =
    "SELECT name, role, customer, epoch, created_at, used_at, certificate_ends_at, issuer, subject FROM members";

/// A member's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    /// "operator", "viewer", "auditor", "customer-admin" or "customer-user".
    pub role: String,
    /// The member's customer; empty: a member of the site.
    pub customer: CustomerId,
}

/// A member as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecord {
    /// Unique name.
    pub name: String,
    /// Role and customer.
    pub given: MemberRow,
    /// Certificates and SSH keys of another epoch are invalid.
    pub epoch: u64,
    /// When the member first joined.
    pub created_at: Timestamp,
    /// The last use, to the hour; none: no call since this is recorded.
    pub used_at: Option<Timestamp>,
    /// The end of the newest certificate; none: it was issued before this is recorded.
    pub certificate_ends_at: Option<Timestamp>,
    /// The person of an OpenID Connect provider; none: the member joined by an invitation.
    pub origin: Option<MemberOrigin>,
}

/// Secrets of one deployment: SSH keys with sealed private parts, and the sealed cloud-config of its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentKeys {
    /// The host's public key.
    pub host_public: String,
    /// The host's private key, sealed.
    pub host_private: Vec<u8>,
    /// The public part of the provisioning key.
    pub provision_public: String,
    /// The private part of the provisioning key, sealed.
    pub provision_private: Vec<u8>,
    /// cloud-config of the node's users, sealed; empty: none was given, or the node is handed over.
    pub user_data: Vec<u8>,
}

impl Store {
    /// A member; none: there is no such member.
    pub async fn member(&self, name: &str) -> Result<Option<MemberRecord>> {
        let sql = format!("{MEMBERS} WHERE name = $1");
        let row = statement(sql).bind(name).fetch_optional(&self.readers).await?;
        row.as_ref().map(member).transpose()
    }

    /// Members by name after `after`, at most `limit`.
    pub async fn members(&self, scope: &Scope, after: &str, limit: i64) -> Result<Vec<MemberRecord>> {
        let sql = format!(
            "{MEMBERS} WHERE name > $1{} ORDER BY name LIMIT $2",
            scope.rows("customer", 3)
        );
        let query = scope.bind(statement(sql).bind(after).bind(limit));
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(member).collect()
    }

    /// Invited members with a newest certificate that ends after `now` and by `until`, if no event has warned of that end
    /// yet. Members of an identity provider have certificates for hours, and log in again.
    pub async fn ending_members(&self, now: Timestamp, until: Timestamp) -> Result<Vec<MemberRecord>> {
        let sql = format!(
            "{MEMBERS} WHERE certificate_ends_at > $1 AND certificate_ends_at <= $2 AND warned_of <> certificate_ends_at \
             AND issuer = '' ORDER BY name"
        );
        let query = statement(sql).bind(now.0).bind(until.0);
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(member).collect()
    }

    /// Number of invited members that have called since `used_since`, and whose newest certificate ends after `now` and by
    /// `until`.
    pub async fn count_ending_in_use(&self, now: Timestamp, until: Timestamp, used_since: Timestamp) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM members WHERE certificate_ends_at > $1 AND certificate_ends_at <= $2 \
                   AND used_at >= $3 AND issuer = ''";
        let query = statement(sql).bind(now.0).bind(until.0).bind(used_since.0);
        Ok(query.fetch_one(&self.readers).await?.try_get(0)?)
    }

    /// Stores that a member has called, unless a call at or after `since` is stored already.
    pub async fn record_use(&self, name: &str, epoch: u64, now: Timestamp, since: Timestamp) -> Result<bool> {
        let sql = "UPDATE members SET used_at = $1 WHERE name = $2 AND epoch = $3 AND used_at < $4";
        let query = statement(sql).bind(now.0).bind(name).bind(integer(epoch)).bind(since.0);
        Ok(self.execute(query).await? > 0)
    }

    /// The keys of one deployment.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the deployment has no keys.
    pub async fn deployment_keys(&self, node: &NodeId, generation: u64, deployment: u32) -> Result<DeploymentKeys> {
        let sql = "SELECT host_public, host_private, provision_public, provision_private, user_data \
                   FROM deployment_keys WHERE node_id = $1 AND generation = $2 AND deployment = $3";
        let query = statement(sql)
            .bind(node)
            .bind(i64::try_from(generation).unwrap_or(i64::MAX));
        let row = query.bind(i64::from(deployment)).fetch_optional(&self.readers).await?;
        let row = row.ok_or_else(|| no_keys(node))?;
        Ok(DeploymentKeys {
            host_public: row.try_get(0)?,
            host_private: row.try_get(1)?,
            provision_public: row.try_get(2)?,
            provision_private: row.try_get(3)?,
            user_data: row.try_get::<Option<Vec<u8>>>(4)?.unwrap_or_default(),
        })
    }

    /// Whether there is a token with this hash, used or not.
    pub async fn has_token(&self, hash: &str, purpose: &str) -> Result<bool> {
        let query = statement("SELECT 1 FROM tokens WHERE hash = $1 AND purpose = $2");
        let row = query.bind(hash).bind(purpose).fetch_optional(&self.readers).await?;
        Ok(row.is_some())
    }

    /// Deletes tokens that expired before `oldest`.
    pub async fn forget_tokens(&self, oldest: Timestamp) -> Result<u64> {
        let query = statement("DELETE FROM tokens WHERE expires_at < $1")
            .bind(oldest.0)
            .blocking();
        self.execute(query).await
    }
}

fn no_keys(node: &NodeId) -> StoreError {
    StoreError::NotFound {
        kind: "keys of deployment",
        id: node.to_string(),
    }
}

pub(crate) fn integer(epoch: u64) -> i64 {
    i64::try_from(epoch).unwrap_or(i64::MAX)
}

pub(crate) fn member(row: &Row) -> Result<MemberRecord> {
    let known = |at: i64| (at != 0).then_some(Timestamp(at));
    let origin = MemberOrigin {
        issuer: row.try_get("issuer")?,
        subject: row.try_get("subject")?,
    };
    let name: String = row.try_get("name")?;
    Ok(MemberRecord {
        epoch: row.unsigned("epoch", "member", &name)?,
        name,
        given: MemberRow {
            role: row.try_get("role")?,
            customer: row.id("customer")?,
        },
        created_at: Timestamp(row.try_get("created_at")?),
        used_at: known(row.try_get("used_at")?),
        certificate_ends_at: known(row.try_get("certificate_ends_at")?),
        origin: (!origin.issuer.is_empty()).then_some(origin),
    })
}

impl WriteTx {
    /// Adds a member with the epoch `epoch`, or changes the role of an existing member, who keeps the epoch. Returns the
    /// member's epoch. Returns None and changes nothing if the name belongs to a member of another customer or of the site,
    /// or to a member who logs in by an OpenID Connect provider.
    pub async fn put_member(
        &mut self,
        name: &str,
        given: &MemberRow,
        epoch: u64,
        now: Timestamp,
    ) -> Result<Option<u64>> {
        let sql = "INSERT INTO members (name, role, customer, epoch, created_at) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (name) DO UPDATE SET role = excluded.role \
                   WHERE members.customer = excluded.customer AND members.issuer = '' RETURNING epoch";
        let query = statement(sql).bind(name).bind(&given.role).bind(&given.customer);
        let query = query.bind(integer(epoch)).bind(now.0);
        let row = query.fetch_optional(&mut self.tx).await?;
        self.changes_members = true;
        let epoch = row.map(|row| row.try_get::<i64>("epoch")).transpose()?;
        Ok(epoch.map(|epoch| u64::try_from(epoch).unwrap_or(0)))
    }

    /// A member within this change, locked until the change ends.
    pub async fn member(&mut self, name: &str) -> Result<Option<MemberRecord>> {
        let sql = format!("{MEMBERS} WHERE name = $1{}", self.kind.for_update());
        let row = statement(sql).bind(name).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(member).transpose()
    }

    /// A member within the scope, and all operators, locked until the change ends. If two operators delete each other at
    /// the same time, the second change finds its target to be the last operator.
    pub async fn member_and_operators(
        &mut self,
        scope: &Scope,
        name: &str,
    ) -> Result<(Option<MemberRecord>, Vec<MemberRecord>)> {
        let sql = format!(
            "{MEMBERS} WHERE name = $1{} OR role = 'operator' AND customer = '' ORDER BY name{}",
            scope.rows("customer", 2),
            self.kind.for_update()
        );
        let rows = scope.bind(statement(sql).bind(name)).fetch_all(&mut self.tx).await?;
        let all = rows.iter().map(member).collect::<Result<Vec<_>>>()?;
        let is_shown = |one: &MemberRecord| scope.customer().is_none_or(|customer| *customer == one.given.customer);
        let found = all.iter().find(|one| one.name == name && is_shown(one)).cloned();
        let is_operator = |one: &MemberRecord| one.given.role == "operator" && one.given.customer.is_empty();
        Ok((found, all.into_iter().filter(is_operator).collect()))
    }

    /// Gives a member another role.
    pub async fn set_member_role(&mut self, name: &str, role: &str) -> Result<()> {
        let query = statement("UPDATE members SET role = $2 WHERE name = $1");
        query.bind(name).bind(role).execute(&mut self.tx).await?;
        self.changes_members = true;
        Ok(())
    }

    /// Ends every access of a member: certificates, by the new epoch, SSH keys, sessions, API keys, and unused tokens,
    /// including those that the member created for others. The member remains, and can return with a new token.
    pub async fn revoke_member(&mut self, name: &str, epoch: u64) -> Result<()> {
        let sql = "UPDATE members SET epoch = $2, certificate_ends_at = 0 WHERE name = $1";
        let query = statement(sql).bind(name).bind(integer(epoch));
        query.execute(&mut self.tx).await?;
        self.end_credentials(name).await
    }

    /// Deletes a member, and ends the same accesses as `revoke_member`.
    pub async fn delete_member(&mut self, name: &str) -> Result<()> {
        let query = statement("DELETE FROM members WHERE name = $1").bind(name);
        query.execute(&mut self.tx).await?;
        self.end_credentials(name).await
    }

    async fn end_credentials(&mut self, name: &str) -> Result<()> {
        for sql in [
            "DELETE FROM member_ssh_keys WHERE member = $1",
            "DELETE FROM sessions WHERE member = $1",
            "DELETE FROM tokens WHERE purpose IN ('member', 'console', 'login') AND subject = $1 AND used_at IS NULL",
            "DELETE FROM tokens WHERE purpose = 'member' AND made_by = $1 AND used_at IS NULL",
        ] {
            statement(sql).bind(name).execute(&mut self.tx).await?;
        }
        self.changes_members = true;
        Ok(())
    }

    /// Stores the end of a certificate that is issued to a member, and the hash of the authority that signed it. Returns
    /// false and changes nothing if the member has another epoch or does not exist.
    pub async fn record_member_cert(
        &mut self,
        name: &str,
        epoch: u64,
        ends_at: Timestamp,
        authority: &str,
    ) -> Result<bool> {
        let sql = "UPDATE members SET certificate_ends_at = $3, authority = $4 WHERE name = $1 AND epoch = $2";
        let query = statement(sql).bind(name).bind(integer(epoch)).bind(ends_at.0);
        Ok(query.bind(authority).execute(&mut self.tx).await? > 0)
    }

    /// Stores that an event warns of the end of a member's certificate. False: one has done so, or the certificate was
    /// renewed.
    pub async fn mark_end_warned(&mut self, name: &str, ends_at: Timestamp) -> Result<bool> {
        let sql = "UPDATE members SET warned_of = $2 WHERE name = $1 AND certificate_ends_at = $2 AND warned_of <> $2";
        let query = statement(sql).bind(name).bind(ends_at.0);
        Ok(query.execute(&mut self.tx).await? > 0)
    }

    /// Whether this change alters a member's rights, or ends a session.
    #[must_use]
    pub fn changes_members(&self) -> bool {
        self.changes_members
    }

    /// Number of members.
    pub async fn member_count(&mut self) -> Result<i64> {
        Ok(statement("SELECT COUNT(*) FROM members")
            .fetch_one(&mut self.tx)
            .await?
            .try_get(0)?)
    }

    /// Adds a token. Only the newest few of one purpose and subject are kept, so that repeated requests cannot fill the
    /// table.
    pub async fn put_token(&mut self, row: &TokenRow) -> Result<()> {
        let sql = "INSERT INTO tokens (hash, purpose, subject, body, expires_at) VALUES ($1, $2, $3, $4, $5)";
        let query = statement(sql)
            .bind(&row.hash)
            .bind(&row.purpose)
            .bind(&row.subject)
            .bind(&row.body);
        query.bind(row.expires_at.0).execute(&mut self.tx).await?;
        let sql = "DELETE FROM tokens WHERE purpose = $1 AND subject = $2 AND hash NOT IN (SELECT hash FROM tokens \
                   WHERE purpose = $1 AND subject = $2 ORDER BY position DESC LIMIT 8)";
        let query = statement(sql).bind(&row.purpose).bind(&row.subject);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Ends all unused tokens of a purpose and subject.
    pub async fn revoke_tokens(&mut self, purpose: &str, subject: &str) -> Result<()> {
        let query = statement("DELETE FROM tokens WHERE purpose = $1 AND subject = $2 AND used_at IS NULL");
        query.bind(purpose).bind(subject).execute(&mut self.tx).await?;
        Ok(())
    }

    /// A token, and whether it was used; does not use it.
    pub async fn token(&mut self, hash: &str, purpose: &str) -> Result<Option<(TokenRow, bool)>> {
        let sql = "SELECT subject, body, expires_at, used_at FROM tokens WHERE hash = $1 AND purpose = $2";
        let Some(row) = statement(sql)
            .bind(hash)
            .bind(purpose)
            .fetch_optional(&mut self.tx)
            .await?
        else {
            return Ok(None);
        };
        let token = TokenRow {
            hash: hash.to_owned(),
            purpose: purpose.to_owned(),
            subject: row.try_get("subject")?,
            body: row.try_get("body")?,
            expires_at: Timestamp(row.try_get("expires_at")?),
        };
        Ok(Some((token, row.try_get::<Option<i64>>("used_at")?.is_some())))
    }

    /// Uses a token. None: it does not exist, was used, or has expired; the caller cannot tell which.
    pub async fn use_token(&mut self, hash: &str, purpose: &str, now: Timestamp) -> Result<Option<TokenRow>> {
        self.use_token_as(hash, purpose, "", now).await
    }

    /// As `use_token`, but a caller with the same non-empty `who` may use the token again until it expires, because an
    /// answer may be lost.
    pub async fn use_token_as(
        &mut self,
        hash: &str,
        purpose: &str,
        user: &str,
        now: Timestamp,
    ) -> Result<Option<TokenRow>> {
        let sql = "UPDATE tokens SET used_at = COALESCE(used_at, $1), used_by = $4 WHERE hash = $2 AND purpose = $3 \
                   AND (used_at IS NULL OR used_by <> '' AND used_by = $4) AND expires_at > $1 \
                   RETURNING subject, body, expires_at";
        let query = statement(sql).bind(now.0).bind(hash).bind(purpose).bind(user);
        let Some(row) = query.fetch_optional(&mut self.tx).await? else {
            return Ok(None);
        };
        Ok(Some(TokenRow {
            hash: hash.to_owned(),
            purpose: purpose.to_owned(),
            subject: row.try_get("subject")?,
            body: row.try_get("body")?,
            expires_at: Timestamp(row.try_get("expires_at")?),
        }))
    }

    /// Deletes the private keys and user data of a node's deployments. They are not needed after a hand-over or a release.
    pub async fn forget_private_keys(&mut self, node: &NodeId) -> Result<()> {
        let sql = "UPDATE deployment_keys SET host_private = $2, provision_private = $2, user_data = NULL \
                   WHERE node_id = $1";
        let empty: &[u8] = &[];
        statement(sql).bind(node).bind(empty).execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores sealed user data of a deployment, moved from where an older version kept them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the deployment has no keys.
    pub async fn put_user_data(
        &mut self,
        node: &NodeId,
        generation: u64,
        deployment: u32,
        sealed: &[u8],
    ) -> Result<()> {
        let sql =
            "UPDATE deployment_keys SET user_data = $4 WHERE node_id = $1 AND generation = $2 AND deployment = $3";
        let query = statement(sql)
            .bind(node)
            .bind(i64::try_from(generation).unwrap_or(i64::MAX));
        let query = query.bind(i64::from(deployment)).bind(sealed);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(no_keys(node));
        }
        Ok(())
    }

    /// Deletes all keys of an erased node.
    pub async fn forget_deployments(&mut self, node: &NodeId) -> Result<()> {
        let query = statement("DELETE FROM deployment_keys WHERE node_id = $1").bind(node);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Stores the keys and user data of a deployment, and deletes those of the node's earlier deployments.
    ///
    /// # Errors
    /// `Exists`: keys of a deployment are never replaced.
    pub async fn put_deployment_keys(
        &mut self,
        node: &NodeId,
        generation: u64,
        deployment: u32,
        keys: &DeploymentKeys,
    ) -> Result<()> {
        let sql = "INSERT INTO deployment_keys (node_id, generation, deployment, host_public, host_private, \
                   provision_public, provision_private, user_data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
                   ON CONFLICT DO NOTHING";
        let query = statement(sql)
            .bind(node)
            .bind(i64::try_from(generation).unwrap_or(i64::MAX));
        let query = query
            .bind(i64::from(deployment))
            .bind(&keys.host_public)
            .bind(&keys.host_private);
        let query = query.bind(&keys.provision_public).bind(&keys.provision_private);
        let query = query.bind((!keys.user_data.is_empty()).then_some(keys.user_data.as_slice()));
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Exists {
                kind: "keys of deployment",
                id: node.to_string(),
            });
        }
        let sql = "UPDATE deployment_keys SET host_private = $4, provision_private = $4, user_data = NULL \
                   WHERE node_id = $1 AND (generation <> $2 OR deployment <> $3)";
        let query = statement(sql)
            .bind(node)
            .bind(i64::try_from(generation).unwrap_or(i64::MAX));
        let empty: &[u8] = &[];
        let query = query.bind(i64::from(deployment)).bind(empty);
        query.execute(&mut self.tx).await?;
        Ok(())
    }
}
