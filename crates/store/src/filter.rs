//! Filters over rows, and their SQL.

use std::fmt;

use crate::NodeRecord;
use crate::database::Kind;

/// Clauses joined by AND.
pub type Filter = Vec<Clause>;

/// Terms joined by OR.
pub type Clause = Vec<Term>;

/// One term of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Name of a field of the filtered rows, or "labels.KEY".
    pub field: String,
    /// Compared as text. In the field "name", each `*` stands for any characters.
    pub value: String,
    /// True for `!=`.
    pub negated: bool,
}

impl Term {
    /// The clause `FIELD = VALUE`.
    #[must_use]
    pub fn is(field: &str, value: impl Into<String>) -> Clause {
        vec![Self {
            field: field.to_owned(),
            value: value.into(),
            negated: false,
        }]
    }

    /// The clause `FIELD != VALUE`.
    #[must_use]
    pub fn is_not(field: &str, value: impl Into<String>) -> Clause {
        let mut clause = Self::is(field, value);
        clause[0].negated = true;
        clause
    }
}

/// A column by which nodes are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeColumn {
    /// The state's name.
    State,
    /// When the node entered its state.
    StateSince,
    /// Class of the machine.
    Sku,
    /// The customer of the claim.
    Customer,
    /// When the node was enrolled.
    CreateTime,
    /// When the node was last changed.
    UpdateTime,
}

/// An order of nodes: by a column (`None`: none), then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeOrder {
    pub column: Option<NodeColumn>,
    /// The greatest values of the column first. The ids of equal values ascend nevertheless.
    pub descending: bool,
}

impl NodeOrder {
    /// The order of a text: a field, or a field and `desc`.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let column = match words.next() {
            None | Some("name") => None,
            Some("state") => Some(NodeColumn::State),
            Some("state_since") => Some(NodeColumn::StateSince),
            Some("sku") => Some(NodeColumn::Sku),
            Some("customer") => Some(NodeColumn::Customer),
            Some("create_time") => Some(NodeColumn::CreateTime),
            Some("update_time") => Some(NodeColumn::UpdateTime),
            Some(field) => {
                let known = "name, state, state_since, sku, customer, create_time, update_time";
                return Err(format!("nodes are not ordered by {field:?}, but by {known}"));
            }
        };
        let descending = match (words.next(), words.next()) {
            (None | Some("asc"), None) => false,
            (Some("desc"), None) if column.is_some() => true,
            (Some("desc"), None) => return Err("names have no descending order".to_owned()),
            _ => return Err("write a field, or a field and desc".to_owned()),
        };
        Ok(Self { column, descending })
    }

    /// Whether the values of the column are times.
    fn is_by_time(&self) -> bool {
        matches!(
            self.column,
            Some(NodeColumn::StateSince | NodeColumn::CreateTime | NodeColumn::UpdateTime)
        )
    }

    /// The value of a node's column, and its id: the place of the node in the order.
    #[must_use]
    pub fn place(&self, record: &NodeRecord) -> NodePlace {
        let value = match self.column {
            None => String::new(),
            Some(NodeColumn::State) => record.node.state.as_str().to_owned(),
            Some(NodeColumn::StateSince) => record.node.since.0.to_string(),
            Some(NodeColumn::Sku) => record.spec.sku.clone(),
            Some(NodeColumn::Customer) => record.customer().to_owned(),
            Some(NodeColumn::CreateTime) => record.created_at.0.to_string(),
            Some(NodeColumn::UpdateTime) => record.updated_at.0.to_string(),
        };
        NodePlace {
            value,
            id: record.id.to_string(),
        }
    }

    /// The SQL of the column.
    fn column(&self) -> Option<&'static str> {
        Some(match self.column? {
            NodeColumn::State => "n.state",
            NodeColumn::StateSince => "n.state_since",
            NodeColumn::Sku => "n.sku",
            NodeColumn::Customer => "n.customer",
            NodeColumn::CreateTime => "n.created_at",
            NodeColumn::UpdateTime => "n.updated_at",
        })
    }

    /// The condition of the rows after parameters `$1` (the value) and `$2` (the id), and the order of the rows. Without a
    /// place, all rows come.
    pub(crate) fn sql(&self, is_first: bool) -> (String, String) {
        let Some(column) = self.column() else {
            return ("$1 = '' AND n.id > $2".to_owned(), "n.id".to_owned());
        };
        let (beyond, word) = if self.descending { ("<", " DESC") } else { (">", "") };
        // Values of the place are texts; those of times are compared as numbers.
        let value = match self.is_by_time() {
            true => "CAST(NULLIF($1, '') AS BIGINT)",
            false => "$1",
        };
        let after = match is_first {
            true => "$1 = '' AND $2 = ''".to_owned(),
            false => format!("({column} {beyond} {value} OR {column} = {value} AND n.id > $2)"),
        };
        (after, format!("{column}{word}, n.id"))
    }
}

/// The place of a node in an order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlace {
    /// The value of the order's column; empty where the order has none.
    pub value: String,
    pub id: String,
}

impl NodePlace {
    /// The place of a text that `to_string` made. None: the text is not a place of this order.
    #[must_use]
    pub fn parse(order: NodeOrder, text: &str) -> Option<Self> {
        let (id, value) = text.split_once(' ').unwrap_or((text, ""));
        let fits = !order.is_by_time() || value.parse::<i64>().is_ok();
        fits.then(|| Self {
            value: value.to_owned(),
            id: id.to_owned(),
        })
    }
}

/// The id, and the value after a space. An id has no spaces.
impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.is_empty() {
            true => f.write_str(&self.id),
            false => write!(f, "{} {}", self.id, self.value),
        }
    }
}

/// A filter as SQL conditions, with the values of their parameters.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// ` AND (...)` for each clause.
    pub sql: String,
    /// The values, from the first parameter on.
    pub values: Vec<String>,
    /// Number of the first parameter.
    first: usize,
}

impl Conditions {
    /// The conditions of a filter. `condition` gives the SQL of a term that is not negated; [`Conditions::place`] places its
    /// values. The parameters begin with number `first`.
    pub(crate) fn of(filter: &Filter, first: usize, condition: impl Fn(&mut Self, &Term) -> String) -> Self {
        let mut made = Self {
            first,
            ..Self::default()
        };
        for clause in filter {
            let terms: Vec<String> = clause
                .iter()
                .map(|term| {
                    let not = if term.negated { "NOT " } else { "" };
                    let condition = condition(&mut made, term);
                    format!("{not}({condition})")
                })
                .collect();
            made.sql.push_str(&format!(" AND ({})", terms.join(" OR ")));
        }
        made
    }

    /// The parameter of a value.
    pub(crate) fn place(&mut self, value: &str) -> String {
        self.values.push(value.to_owned());
        format!("${}", self.first + self.values.len() - 1)
    }

    /// Compares a column with the value of a term.
    pub(crate) fn equal(&mut self, column: &str, term: &Term) -> String {
        format!("{column} = {}", self.place(&term.value))
    }

    /// As `equal`; each `*` in the value stands for any characters.
    pub(crate) fn like(&mut self, column: &str, term: &Term) -> String {
        if !term.value.contains('*') {
            return self.equal(column, term);
        }
        let escaped = term.value.replace('!', "!!").replace('%', "!%").replace('_', "!_");
        format!("{column} LIKE {} ESCAPE '!'", self.place(&escaped.replace('*', "%")))
    }
}

/// The SQL of a node's health in words, as in `rackwright_grpc::health`: the fault that an operator has to settle first.
pub(crate) fn health(kind: Kind) -> String {
    let (refused, bmc) = match kind {
        Kind::Sqlite => (
            "json_extract(n.body, '$.spec.account.refused_at')",
            "json_extract(n.readings, '$.bmc.known.value')",
        ),
        Kind::Postgres => (
            // PostgreSQL refuses to read JSON with an escaped NUL, wherever it is.
            "CASE WHEN STRPOS(n.body, '\\u0000') = 0 THEN n.body::json #>> '{spec,account,refused_at}' END",
            "CASE WHEN STRPOS(n.readings, '\\u0000') = 0 THEN n.readings::json #>> '{bmc,known,value}' END",
        ),
    };
    format!(
        "CASE WHEN n.doubt_cause <> '' THEN 'doubted' WHEN ({refused}) IS NOT NULL THEN 'login-refused' \
         WHEN ({bmc}) = 'identified' THEN 'ok' WHEN ({bmc}) IS NOT NULL THEN 'unreachable' ELSE 'unknown' END"
    )
}

/// The SQL of a node's power in words. A reading from before the BMC became unreachable does not count.
pub(crate) fn power(kind: Kind) -> String {
    let power = match kind {
        Kind::Sqlite => "json_extract(n.readings, '$.power.known.value')",
        Kind::Postgres => {
            "CASE WHEN STRPOS(n.readings, '\\u0000') = 0 THEN n.readings::json #>> '{power,known,value}' END"
        }
    };
    let health = health(kind);
    format!("CASE WHEN {health} = 'unreachable' THEN 'unknown' ELSE COALESCE({power}, 'unknown') END")
}

/// The SQL of a term over nodes `n`.
pub(crate) fn of_node(kind: Kind, made: &mut Conditions, term: &Term) -> String {
    if let Some(label) = term.field.strip_prefix("labels.") {
        let (name, value) = (made.place(label), made.place(&term.value));
        return format!(
            "EXISTS (SELECT 1 FROM node_labels l WHERE l.node_id = n.id AND l.name = {name} AND l.value = {value})"
        );
    }
    match term.field.as_str() {
        "state" => made.equal("n.state", term),
        "sku" => made.equal("n.sku", term),
        "customer" => made.equal("n.customer", term),
        "wait" => made.equal("n.wait_kind", term),
        "health" => made.equal(&format!("({})", health(kind)), term),
        "power" => made.equal(&format!("({})", power(kind)), term),
        "agent" => made.equal("CASE WHEN n.agent_holder = '' THEN 'no' ELSE 'yes' END", term),
        "cluster" if term.value.is_empty() => {
            "NOT EXISTS (SELECT 1 FROM cluster_nodes c WHERE c.node_id = n.id)".to_owned()
        }
        "cluster" => {
            let id = made.place(&term.value);
            format!("EXISTS (SELECT 1 FROM cluster_nodes c WHERE c.node_id = n.id AND c.cluster_id = {id})")
        }
        "image" => {
            let digest = "COALESCE(NULLIF(n.claimed_image, ''), n.held_image)";
            match term.value.split_once('@') {
                _ if term.value.is_empty() => format!("{digest} = ''"),
                Some((image, version)) => {
                    let (image, version) = (made.place(image), made.place(version));
                    format!(
                        "{digest} = {version} AND EXISTS (SELECT 1 FROM image_versions v \
                         WHERE v.image_id = {image} AND v.digest = {version})"
                    )
                }
                None => {
                    let image = made.place(&term.value);
                    format!(
                        "EXISTS (SELECT 1 FROM image_versions v WHERE v.image_id = {image} AND v.digest = {digest})"
                    )
                }
            }
        }
        _ => made.like("n.id", term),
    }
}
