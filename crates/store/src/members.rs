//! Members, one-time tokens and the keys of deployments.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Row, statement};
use crate::{Result, Store, StoreError, WriteTx};

/// A one-time token, known by its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Hash of the token.
    pub hash: String,
    /// "member", "boot", "agent" or "console".
    pub purpose: String,
    /// Whom it is for: a member, a MAC address.
    pub subject: String,
    /// More, as its user likes it.
    pub body: String,
    /// Good until then.
    pub expires_at: Timestamp,
}

const MEMBER: &str = "SELECT role, customer FROM members WHERE name = $1";

/// What a member may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    /// "operator", "viewer", "customer-admin", "customer-user".
    pub role: String,
    /// Whose member it is; empty: the site's.
    pub customer: String,
}

/// SSH keys of one deployment; private parts sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentKeys {
    /// The host's public key.
    pub host_public: String,
    /// The host's private key, sealed.
    pub host_private: Vec<u8>,
    /// Our public key.
    pub provision_public: String,
    /// Our private key, sealed.
    pub provision_private: Vec<u8>,
}

impl Store {
    /// What a member may do; none: there is no such member.
    ///
    /// # Errors
    /// The database failed.
    pub async fn member(&self, name: &str) -> Result<Option<MemberRow>> {
        let row = statement(MEMBER).bind(name).fetch_optional(&self.readers).await?;
        row.as_ref().map(member).transpose()
    }

    /// The keys of one deployment.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn deployment_keys(&self, node: &str, generation: u64, deployment: u32) -> Result<DeploymentKeys> {
        let sql = "SELECT host_public, host_private, provision_public, provision_private FROM deployment_keys \
                   WHERE node_id = $1 AND generation = $2 AND deployment = $3";
        let query = statement(sql)
            .bind(node)
            .bind(i64::try_from(generation).unwrap_or(i64::MAX));
        let row = query.bind(i64::from(deployment)).fetch_optional(&self.readers).await?;
        let row = row.ok_or_else(|| StoreError::NotFound {
            kind: "keys of deployment",
            id: node.to_owned(),
        })?;
        Ok(DeploymentKeys {
            host_public: row.try_get(0)?,
            host_private: row.try_get(1)?,
            provision_public: row.try_get(2)?,
            provision_private: row.try_get(3)?,
        })
    }

    /// Drops tokens that ended before `oldest`.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget_tokens(&self, oldest: Timestamp) -> Result<u64> {
        let query = statement("DELETE FROM tokens WHERE expires_at < $1")
            .bind(oldest.0)
            .aside();
        self.execute(query).await
    }
}

fn member(row: &Row) -> Result<MemberRow> {
    Ok(MemberRow {
        role: row.try_get("role")?,
        customer: row.try_get("customer")?,
    })
}

impl WriteTx {
    /// Adds a member or changes their role. False, and nothing is changed: the name is that of another customer's member, or
    /// of one of the site's own. Whoever holds a certificate of that name must not come to the rights of others by it.
    ///
    /// # Errors
    /// The database failed.
    pub async fn put_member(&mut self, name: &str, given: &MemberRow, now: Timestamp) -> Result<bool> {
        let sql = "INSERT INTO members (name, role, customer, created_at) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (name) DO UPDATE SET role = excluded.role WHERE members.customer = excluded.customer";
        let query = statement(sql).bind(name).bind(&given.role).bind(&given.customer);
        Ok(query.bind(now.0).execute(&mut self.tx).await? > 0)
    }

    /// What a member may do, as it is within this change.
    ///
    /// # Errors
    /// The database failed.
    pub async fn member(&mut self, name: &str) -> Result<Option<MemberRow>> {
        let row = statement(MEMBER).bind(name).fetch_optional(&mut self.tx).await?;
        row.as_ref().map(member).transpose()
    }

    /// How many members there are.
    ///
    /// # Errors
    /// The database failed.
    pub async fn member_count(&mut self) -> Result<i64> {
        Ok(statement("SELECT COUNT(*) FROM members")
            .fetch_one(&mut self.tx)
            .await?
            .try_get(0)?)
    }

    /// Adds a token. Of one purpose and subject only the newest few are kept: who asks often does not fill the table.
    ///
    /// # Errors
    /// The database failed.
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
    ///
    /// # Errors
    /// The database failed.
    pub async fn revoke_tokens(&mut self, purpose: &str, subject: &str) -> Result<()> {
        let query = statement("DELETE FROM tokens WHERE purpose = $1 AND subject = $2 AND used_at IS NULL");
        query.bind(purpose).bind(subject).execute(&mut self.tx).await?;
        Ok(())
    }

    /// A token and whether it was used, without using it.
    ///
    /// # Errors
    /// The database failed.
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

    /// Uses a token up. None when there is none, it was used, or it has ended: the caller learns no more than that.
    ///
    /// # Errors
    /// The database failed.
    pub async fn use_token(&mut self, hash: &str, purpose: &str, now: Timestamp) -> Result<Option<TokenRow>> {
        self.use_token_as(hash, purpose, "", now).await
    }

    /// The same, but whoever is known by `who` may use it again until it ends: an answer may be lost on the way. Nobody can
    /// where `who` is empty.
    ///
    /// # Errors
    /// The database failed.
    pub async fn use_token_as(
        &mut self,
        hash: &str,
        purpose: &str,
        who: &str,
        now: Timestamp,
    ) -> Result<Option<TokenRow>> {
        let sql = "UPDATE tokens SET used_at = COALESCE(used_at, $1), used_by = $4 WHERE hash = $2 AND purpose = $3 \
                   AND (used_at IS NULL OR used_by <> '' AND used_by = $4) AND expires_at > $1 \
                   RETURNING subject, body, expires_at";
        let query = statement(sql).bind(now.0).bind(hash).bind(purpose).bind(who);
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

    /// Forgets the private halves of a deployment's keys: what was handed over needs none of ours.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget_private_keys(&mut self, node: &str, generation: u64, deployment: u32) -> Result<()> {
        let sql = "UPDATE deployment_keys SET host_private = $4, provision_private = $4 \
                   WHERE node_id = $1 AND generation = $2 AND deployment = $3";
        let query = statement(sql)
            .bind(node)
            .bind(i64::try_from(generation).unwrap_or(i64::MAX));
        let nothing: &[u8] = &[];
        query
            .bind(i64::from(deployment))
            .bind(nothing)
            .execute(&mut self.tx)
            .await?;
        Ok(())
    }

    /// Forgets all keys of a node that was erased.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget_deployments(&mut self, node: &str) -> Result<()> {
        let query = statement("DELETE FROM deployment_keys WHERE node_id = $1").bind(node);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Keeps the keys of a deployment.
    ///
    /// # Errors
    /// `Exists`: keys of a deployment are never replaced.
    pub async fn put_deployment_keys(
        &mut self,
        node: &str,
        generation: u64,
        deployment: u32,
        keys: &DeploymentKeys,
    ) -> Result<()> {
        let sql = "INSERT INTO deployment_keys (node_id, generation, deployment, host_public, host_private, \
                   provision_public, provision_private) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
        let query = statement(sql)
            .bind(node)
            .bind(i64::try_from(generation).unwrap_or(i64::MAX));
        let query = query
            .bind(i64::from(deployment))
            .bind(&keys.host_public)
            .bind(&keys.host_private);
        let query = query.bind(&keys.provision_public).bind(&keys.provision_private);
        if query.execute(&mut self.tx).await? == 0 {
            return Err(StoreError::Exists {
                kind: "keys of deployment",
                id: node.to_owned(),
            });
        }
        Ok(())
    }
}
