//! Consoles: SSH keys of members, pinned host keys of BMCs, the site's own host key.

use rackwright_lifecycle::Timestamp;

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// Most SSH keys of one member.
pub const SSH_KEYS_MAX: i64 = 32;

/// A member's SSH key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKeyRow {
    /// `SHA256:` and base64.
    pub fingerprint: String,
    /// Name of the member.
    pub member: String,
    /// In OpenSSH's form, without a comment.
    pub public_key: String,
    /// When it was registered.
    pub created_at: Timestamp,
    /// The member's epoch at that time: a key of an older epoch is invalid.
    pub epoch: u64,
}

const KEY: &str = "SELECT fingerprint, member, public_key, created_at, epoch FROM member_ssh_keys";

fn key(row: &Row) -> Result<SshKeyRow> {
    let fingerprint: String = row.try_get("fingerprint")?;
    Ok(SshKeyRow {
        epoch: row.unsigned("epoch", "SSH key", &fingerprint)?,
        fingerprint,
        member: row.try_get("member")?,
        public_key: row.try_get("public_key")?,
        created_at: Timestamp(row.try_get("created_at")?),
    })
}

impl Store {
    /// A key and its member; none: the key is not registered.
    pub async fn ssh_key(&self, fingerprint: &str) -> Result<Option<SshKeyRow>> {
        let sql = format!("{KEY} WHERE fingerprint = $1");
        let row = statement(sql).bind(fingerprint).fetch_optional(&self.readers).await?;
        row.as_ref().map(key).transpose()
    }

    /// A member's keys, oldest first.
    pub async fn ssh_keys(&self, member: &str) -> Result<Vec<SshKeyRow>> {
        let sql = format!("{KEY} WHERE member = $1 ORDER BY created_at, fingerprint");
        let rows = statement(sql).bind(member).fetch_all(&self.readers).await?;
        rows.iter().map(key).collect()
    }

    /// The host key pinned for the console of an enrolled node at an address; none: not pinned yet.
    pub async fn console_pin(&self, node_uid: &str, address: &str) -> Result<Option<String>> {
        let sql = "SELECT host_key FROM console_pins WHERE node_uid = $1 AND address = $2";
        let query = statement(sql).bind(node_uid).bind(address);
        let row = query.fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get("host_key")).transpose()?)
    }

    /// A sealed private key of the site; none: there is none yet.
    pub async fn sealed_key(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT sealed FROM sealed_keys WHERE name = $1";
        let row = statement(sql).bind(name).fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get("sealed")).transpose()?)
    }
}

impl WriteTx {
    /// Registers a key. Returns false and changes nothing if it is registered already, or the member has the most keys
    /// allowed.
    pub async fn add_ssh_key(&mut self, row: &SshKeyRow) -> Result<bool> {
        let sql = "INSERT INTO member_ssh_keys (fingerprint, member, public_key, created_at, epoch) \
                   SELECT $1, $2, $3, $4, $6 WHERE (SELECT COUNT(*) FROM member_ssh_keys WHERE member = $2) < $5 \
                   ON CONFLICT (fingerprint) DO NOTHING";
        let query = statement(sql)
            .bind(&row.fingerprint)
            .bind(&row.member)
            .bind(&row.public_key);
        let query = query.bind(row.created_at.0).bind(SSH_KEYS_MAX);
        let query = query.bind(i64::try_from(row.epoch).unwrap_or(i64::MAX));
        Ok(query.execute(&mut self.tx).await? > 0)
    }

    /// Removes a key: only of this member, or of any member where none is given. False: there is no such key.
    pub async fn remove_ssh_key(&mut self, fingerprint: &str, member: Option<&str>) -> Result<bool> {
        let sql = "DELETE FROM member_ssh_keys WHERE fingerprint = $1 AND (member = $2 OR $2 = '')";
        let query = statement(sql).bind(fingerprint).bind(member.unwrap_or_default());
        Ok(query.execute(&mut self.tx).await? > 0)
    }

    /// Pins the host key for an address; empty: the next key that the BMC shows is pinned.
    pub async fn set_console_pin(&mut self, node_uid: &str, address: &str, host_key: &str) -> Result<()> {
        let sql = "DELETE FROM console_pins WHERE node_uid = $1 AND address = $2";
        let query = statement(sql).bind(node_uid).bind(address);
        query.execute(&mut self.tx).await?;
        if !host_key.is_empty() {
            self.keep_console_pin(node_uid, address, host_key).await?;
        }
        Ok(())
    }

    /// Pins the first host key seen. False: one is pinned already, and stays.
    pub async fn keep_console_pin(&mut self, node_uid: &str, address: &str, host_key: &str) -> Result<bool> {
        let sql = "INSERT INTO console_pins (node_uid, address, host_key) VALUES ($1, $2, $3) \
                   ON CONFLICT (node_uid, address) DO NOTHING";
        let query = statement(sql).bind(node_uid).bind(address).bind(host_key);
        Ok(query.execute(&mut self.tx).await? > 0)
    }

    /// Stores a sealed private key of the site. False: there is one already, and it stays.
    pub async fn keep_sealed_key(&mut self, name: &str, sealed: &[u8]) -> Result<bool> {
        let sql = "INSERT INTO sealed_keys (name, sealed) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
        Ok(statement(sql).bind(name).bind(sealed).execute(&mut self.tx).await? > 0)
    }
}
