//! The account by which a node's BMC is entered, and names and passwords that machines come with.

use rackwright_lifecycle::Timestamp;
use serde::{Deserialize, Serialize};

use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// What is known of a BMC's account beside its name and password.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BmcAccount {
    /// When a password of ours was proven last; none: it is the one that the node was enrolled with.
    pub changed_at: Option<Timestamp>,
    /// When an operator asked for a change.
    pub asked_at: Option<Timestamp>,
    /// A change that was begun, and is not proven.
    pub pending: Option<PendingPassword>,
    /// When the BMC refused name and password. They are not sent again before they are changed or somebody asks.
    pub refused_at: Option<Timestamp>,
    /// Nobody logs in before then.
    pub closed_until: Option<Timestamp>,
    /// When the BMC locks an account, as it said last.
    pub lockout: Option<Lockout>,
    /// Logins that may have been refused, oldest first: written down before they are tried.
    pub tries: Vec<Timestamp>,
    /// Factory credentials, by id, that this BMC refused.
    pub refused_factory: Vec<String>,
}

/// A password that is to follow, written down before the BMC is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingPassword {
    /// The account's name.
    pub username: String,
    /// Sealed as the present one is.
    pub password: Vec<u8>,
    /// When it was made.
    pub at: Timestamp,
    /// How often the BMC refused it.
    pub refused_new: u32,
    /// How often the BMC refused the one before it.
    pub refused_old: u32,
}

/// When a BMC locks an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lockout {
    /// Refused logins that lock it; 0: none does.
    pub threshold: u32,
    /// Until refused logins, or the lock, are forgotten, in seconds.
    pub window_s: u32,
}

/// Name and password that machines of a kind come with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactoryCredential {
    /// Made when it was added.
    pub id: String,
    /// Of vendor or product, with `*` and `?`.
    pub pattern: String,
    /// The account's name.
    pub username: String,
    /// Sealed for this row.
    pub password: Vec<u8>,
    /// Lower ones are tried first.
    pub place: i64,
    /// Who added it.
    pub created_by: String,
    /// When.
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
    /// All factory credentials, in the order in which they are tried.
    ///
    /// # Errors
    /// The database failed.
    pub async fn factory_credentials(&self) -> Result<Vec<FactoryCredential>> {
        let sql = format!("{COLUMNS} ORDER BY place, id");
        let rows = statement(sql).fetch_all(&self.readers).await?;
        rows.iter().map(from_row).collect()
    }
}

impl WriteTx {
    /// Adds one.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add_factory_credential(&mut self, one: &FactoryCredential) -> Result<()> {
        let sql = "INSERT INTO factory_credentials (id, pattern, username, password, place, created_by, created_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let query = statement(sql).bind(&one.id).bind(&one.pattern).bind(&one.username);
        let query = query.bind(one.password.as_slice()).bind(one.place);
        let query = query.bind(&one.created_by).bind(one.created_at.0);
        query.execute(&mut self.tx).await?;
        Ok(())
    }

    /// How many there are.
    ///
    /// # Errors
    /// The database failed.
    pub async fn count_factory_credentials(&mut self) -> Result<i64> {
        let row = statement("SELECT COUNT(*) AS n FROM factory_credentials");
        let row = row.fetch_optional(&mut self.tx).await?;
        row.map_or(Ok(0), |row| Ok(row.try_get("n")?))
    }

    /// Takes one away; false when there is none of that id.
    ///
    /// # Errors
    /// The database failed.
    pub async fn remove_factory_credential(&mut self, id: &str) -> Result<bool> {
        let query = statement("DELETE FROM factory_credentials WHERE id = $1").bind(id);
        Ok(query.execute(&mut self.tx).await? > 0)
    }
}
