//! The rows that a reader may see.
//!
//! Each query omits the rows outside the scope, so that they look like missing ones. Every function that a
//! customer can reach takes a scope, so that no caller can forget it.

use rackwright_lifecycle::CustomerId;

use crate::sql::Query;

/// The reader of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Members of the site and internal work: every row.
    Site,
    /// Members of a customer: the customer's present resources, and actions on them since the customer has them. An empty
    /// name matches no row, although rows without a customer have an empty name.
    Customer(CustomerId),
}

impl Scope {
    /// The customer; none: the site.
    #[must_use]
    pub fn customer(&self) -> Option<&CustomerId> {
        match self {
            Self::Site => None,
            Self::Customer(name) => Some(name),
        }
    }

    /// An SQL condition to append: `column` has the row's customer, and `$place` is the next parameter. Empty for the site.
    pub(crate) fn rows(&self, column: &str, place: usize) -> String {
        match self {
            Self::Site => String::new(),
            Self::Customer(_) => format!(" AND {column} = ${place} AND {column} <> ''"),
        }
    }

    /// As `rows`, where the column `target` names a node or a cluster, and `at` is the time of the action. Another customer
    /// may have had the node before, or a former cluster of the same name.
    pub(crate) fn targets(&self, at: &str, place: usize) -> String {
        match self {
            Self::Site => String::new(),
            Self::Customer(_) => format!(
                " AND ${place} <> '' AND (SUBSTR(target, 1, 6) = 'nodes/' AND EXISTS (SELECT 1 FROM nodes own \
                 WHERE own.id = SUBSTR(target, 7) AND own.customer = ${place} AND own.customer_since <= {at}) \
                 OR SUBSTR(target, 1, 9) = 'clusters/' AND EXISTS (SELECT 1 FROM clusters own \
                 WHERE own.id = SUBSTR(target, 10) AND own.customer = ${place} AND own.created_at <= {at}))"
            ),
        }
    }

    /// Binds the parameter of the condition, if it has one.
    pub(crate) fn bind<'a>(&'a self, query: Query<'a>) -> Query<'a> {
        match self {
            Self::Site => query,
            // Only a few of many rows may match.
            Self::Customer(name) => query.bind(name).blocking(),
        }
    }
}
