//! Whose rows a reader may see.
//!
//! What is not theirs is left out by the query itself, so that it cannot be told from what does not exist. Every function by
//! which a customer can reach something takes a scope: nobody forgets to say for whom they read.

use crate::sql::Query;

/// For whom something is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The site's own people and its own work: everything.
    Site,
    /// Members of a customer: what the customer has now, and what was done with it since they have it. Under an empty name
    /// nothing is found, although nodes that are nobody's carry that.
    Customer(String),
}

impl Scope {
    /// The customer; none for the site.
    #[must_use]
    pub fn customer(&self) -> Option<&str> {
        match self {
            Self::Site => None,
            Self::Customer(name) => Some(name),
        }
    }

    /// A condition to be joined on, where `column` says whose a row is and `$place` is the next parameter. Empty for the site.
    pub(crate) fn rows(&self, column: &str, place: usize) -> String {
        match self {
            Self::Site => String::new(),
            Self::Customer(_) => format!(" AND {column} = ${place} AND {column} <> ''"),
        }
    }

    /// The same where `target` names a node or a cluster, and `at` is when something was done with it. A node was others'
    /// before, and the name of a cluster may have been another's.
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

    /// Gives the parameter of the condition, as the next one; where there is none, nothing.
    pub(crate) fn bind<'a>(&'a self, query: Query<'a>) -> Query<'a> {
        match self {
            Self::Site => query,
            // Among many rows only some are theirs.
            Self::Customer(name) => query.bind(name).aside(),
        }
    }
}
