//! The account of a node's BMC, and factory credentials.

use rackwright_lifecycle::Timestamp;
use serde::{Deserialize, Serialize};

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// The state of a BMC's account, beside user name and password.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BmcAccount {
    /// When a password of the control plane was last proven; none: the password is the one from the enrolment.
    pub changed_at: Option<Timestamp>,
    /// When an operator requested a change.
    pub asked_at: Option<Timestamp>,
    /// A change that was begun and is not proven.
    pub pending: Option<PendingPassword>,
    /// When the BMC refused user name and password. They are not sent again until they change or an operator requests it.
    pub refused_at: Option<Timestamp>,
    /// No login is made before this time.
    pub closed_until: Option<Timestamp>,
    /// The BMC's lockout policy, as last reported.
    pub lockout: Option<Lockout>,
    /// Logins that may have been refused, oldest first; each is stored before it is tried.
    pub tries: Vec<Timestamp>,
    /// Factory credentials, by id, that this BMC refused.
    pub refused_factory: Vec<String>,
}

/// The next password, stored before it is sent to the BMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingPassword {
    /// User name of the account.
    pub username: String,
    /// Sealed, like the present one.
    pub password: Vec<u8>,
    /// When it was made.
    pub at: Timestamp,
    /// How often the BMC refused it.
    pub refused_new: u32,
    /// How often the BMC refused the previous password.
    pub refused_old: u32,
}

/// A BMC's lockout policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lockout {
    /// Refused logins that lock the account; 0: no lockout.
    pub threshold: u32,
    /// Seconds until the BMC forgets refused logins, or the lock.
    pub window_s: u32,
}

/// A factory user name and password of a kind of machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactoryCredential {
    /// Unique id, made when it was added.
    pub id: String,
    /// Matches vendor or product, with `*` and `?`.
    pub pattern: String,
    /// User name of the account.
    pub username: String,
    /// Sealed for this row.
    pub password: Vec<u8>,
    /// Lower numbers are tried first.
    pub place: i64,
    /// The operator who added it.
    pub created_by: String,
    /// When it was added.
    pub created_at: Timestamp,
}

const COLUMNS: &str = "SELECT id, pattern, username, password, place, created_by, created_at FROM factory_credentials";

fn from_row(row: &Row) -> Result<FactoryCredential> {
    Ok(FactoryCredential {
        id: row.try_get("id")?,
        pattern: row.try_get("pattern")?,
        username: row.try_get("username")?,
        password: row.try_get("password")?,
        place: row.try_get("place")?,
        created_by: row.try_get("created_by")?,
        created_at: Timestamp(row.try_get("created_at")?),
    })
}

impl Store {
    /// All factory credentials, in the order of the tries.
    pub async fn factory_credentials(&self) -> Result<Vec<FactoryCredential>> {
        let sql = format!("{COLUMNS} ORDER BY place, id");
        let rows = statement(sql).fetch_all(&self.readers).await?;
        rows.iter().map(from_row).collect()
    }
}

impl WriteTx {
    pub async fn add_factory_credential(&mut self, one: &FactoryCredential) -> Result<()> {
        let sql = "INSERT INTO factory_credentials (id, pattern, username, password, place, created_by, created_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let query = statement(sql).bind(&one.id).bind(&one.pattern).bind(&one.username);
        let query = query.bind(one.password.as_slice()).bind(one.place);
        let query = query.bind(&one.created_by).bind(one.created_at.0);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// Number of factory credentials.
    pub async fn count_factory_credentials(&mut self) -> Result<i64> {
        let row = statement("SELECT COUNT(*) AS n FROM factory_credentials");
        let row = row.fetch_optional(&mut self.tx).await?;
        row.map_or(Ok(0), |row| Ok(row.try_get("n")?))
    }

    /// Removes a factory credential; false: no credential has that id.
    pub async fn remove_factory_credential(&mut self, id: &str) -> Result<bool> {
        let query = statement("DELETE FROM factory_credentials WHERE id = $1").bind(id);
        Ok(query.execute(&mut self.tx).await? > 0)
    }
}
