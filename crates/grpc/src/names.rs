//! Resource names, filters, pages and field masks, according to the AIPs.

use rackwright_api::v1::Node;
use rackwright_ground::api_error::ApiError;
use rackwright_lifecycle::{ClusterId, ImageId, InvalidId, NodeId, OperationId, State, Timestamp, ids};
use rackwright_store::Filter;

/// Default and largest page size.
const PAGE_DEFAULT: i32 = 50;
const PAGE_MAX: i32 = 1000;

/// The id in `collection/{id}`.
///
/// # Errors
/// The name has another form.
pub fn id_of<'a>(field: &str, name: &'a str, collection: &str) -> Result<&'a str, ApiError> {
    let id = name.strip_prefix(collection).and_then(|rest| rest.strip_prefix('/'));
    id.filter(|id| !id.is_empty() && !id.contains('/'))
        .ok_or_else(|| ApiError::invalid(field, format!("{name:?} is not {collection}/ID")))
}

/// The id in `operations/{id}`.
///
/// # Errors
/// The name has another form.
pub fn operation_id(field: &str, name: &str) -> Result<OperationId, ApiError> {
    id_of(field, name, "operations").map(OperationId::named)
}

/// The id in `images/{id}`.
///
/// # Errors
/// The name has another form.
pub fn image_id(field: &str, name: &str) -> Result<ImageId, ApiError> {
    id_of(field, name, "images").map(ImageId::named)
}

/// The id in `nodes/{id}`.
///
/// # Errors
/// The name has another form.
pub fn node_id(field: &str, name: &str) -> Result<NodeId, ApiError> {
    id_of(field, name, "nodes").map(NodeId::named)
}

/// The id in `clusters/{id}`.
///
/// # Errors
/// The name has another form.
pub fn cluster_id(field: &str, name: &str) -> Result<ClusterId, ApiError> {
    id_of(field, name, "clusters").map(ClusterId::named)
}

/// The id that a caller chose for a new object.
///
/// # Errors
/// The text is no id.
pub fn chosen<T>(field: &str, parsed: Result<T, InvalidId>) -> Result<T, ApiError> {
    parsed.map_err(|fault| ApiError::invalid(field, fault.to_string()))
}

/// Checks an id that a caller chooses: 1 to 63 of a-z 0-9 '-', with a letter or digit first and last.
///
/// # Errors
/// The id has another form.
pub fn check_id(field: &str, id: &str) -> Result<(), ApiError> {
    chosen(field, ids::check(id))
}

/// The page size for a request.
///
/// # Errors
/// A negative number.
pub fn page_size(asked: i32) -> Result<i64, ApiError> {
    match asked {
        0 => Ok(i64::from(PAGE_DEFAULT)),
        n if n < 0 => Err(ApiError::invalid("page_size", "must not be negative")),
        n => Ok(i64::from(n.min(PAGE_MAX))),
    }
}

/// One list of a request. Its page tokens are only valid for it: each contains a check value over the method and the
/// filter or parent.
#[derive(Debug, Clone, Copy)]
pub struct Pages<'a> {
    /// The method.
    pub list: &'a str,
    /// Filter or parent.
    pub narrowed: &'a str,
    /// Rows of a page.
    pub limit: i64,
}

impl Pages<'_> {
    fn check(&self, last: &str) -> String {
        let text = format!("{}\n{}\n{last}", self.list, self.narrowed.trim());
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }

    /// The id at the end of the previous page; empty for the first page.
    ///
    /// # Errors
    /// The token is malformed, or belongs to another list.
    pub fn after<'t>(&self, token: &'t str) -> Result<&'t str, ApiError> {
        if token.is_empty() {
            return Ok("");
        }
        let last = token.split_once('.').filter(|(check, last)| *check == self.check(last));
        let fault = "is not a page token of this list with this filter; begin again without a page token";
        last.map(|(_, last)| last)
            .ok_or_else(|| ApiError::invalid("page_token", fault))
    }

    /// The token of the page after one with `rows` rows that ended with the id `last`; empty if that page was not full.
    #[must_use]
    pub fn token(&self, rows: usize, last: Option<String>) -> String {
        let is_full = i64::try_from(rows).unwrap_or(0) == self.limit;
        let last = last.filter(|_| is_full);
        last.map(|last| self.token_after(&last)).unwrap_or_default()
    }

    /// The token of the page after one that ended with the id `last`.
    #[must_use]
    pub fn token_after(&self, last: &str) -> String {
        format!("{}.{last}", self.check(last))
    }
}

/// A filter over nodes; see [`parse_filter_of`].
///
/// # Errors
/// The error names the place of the fault.
pub fn parse_filter(text: &str, fields: &[&str]) -> Result<Filter, ApiError> {
    let check = |field: &str, value: &str| match field {
        "state" => check_known(
            value,
            &State::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>(),
            "state",
        ),
        "health" => check_known(value, &HEALTHS, "health"),
        "power" => check_known(value, &["on", "off", "changing", "unknown"], "power"),
        "agent" => check_known(value, &["yes", "no"], "value"),
        _ => Ok(()),
    };
    let mut filter = parse_filter_of(text, fields, check)?;
    let readings = filter
        .iter()
        .flatten()
        .filter(|term| matches!(term.field.as_str(), "health" | "power"));
    if readings.count() > READINGS_MAX {
        let fault = format!("must have at most {READINGS_MAX} terms about health and power");
        return Err(ApiError::invalid("filter", fault));
    }
    for term in filter.iter_mut().flatten() {
        let collection = match term.field.as_str() {
            "name" => "nodes/",
            "cluster" => "clusters/",
            "image" => "images/",
            _ => continue,
        };
        if let Some(id) = term.value.strip_prefix(collection) {
            term.value = id.replace("/versions/", "@");
        }
    }
    Ok(filter)
}

/// Most terms of a filter that need the last readings of each node.
const READINGS_MAX: usize = 8;
/// Words of a node's health in filters and counts; `NodeHealth` has the same names.
pub const HEALTHS: [&str; 5] = ["ok", "unknown", "unreachable", "login-refused", "doubted"];

/// Refuses a value that is not one of the known ones.
///
/// # Errors
/// The fault in words.
pub fn check_known(value: &str, known: &[&str], what: &str) -> Result<(), String> {
    match known.contains(&value) {
        true => Ok(()),
        false => Err(format!("{value:?} is not a {what}; known: {}", known.join(", "))),
    }
}

/// Parses a filter; `check` returns the fault of a field's value. See [`rackwright_store::parse_filter`].
///
/// # Errors
/// The error names the place of the fault.
pub fn parse_filter_of(
    text: &str,
    fields: &[&str],
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<Filter, ApiError> {
    rackwright_store::parse_filter(text, fields, check).map_err(|fault| ApiError::invalid("filter", fault))
}

/// A time of a request.
///
/// # Errors
/// It is outside of the times that can be stored.
pub fn given_time(field: &str, time: Option<&prost_types::Timestamp>) -> Result<Option<Timestamp>, ApiError> {
    let Some(time) = time else { return Ok(None) };
    let micros = time.seconds.checked_mul(1_000_000);
    let micros = micros.and_then(|us| us.checked_add(i64::from(time.nanos) / 1000));
    let micros = micros.ok_or_else(|| ApiError::invalid(field, "is not a valid time"))?;
    Ok(Some(Timestamp(micros)))
}

/// Keeps only the fields in the mask; an empty mask keeps all.
///
/// # Errors
/// The mask contains an unknown path.
pub fn mask_node(node: Node, mask: Option<&prost_types::FieldMask>) -> Result<Node, ApiError> {
    let paths: Vec<&str> = mask
        .map(|m| m.paths.iter().map(String::as_str).collect())
        .unwrap_or_default();
    if paths.is_empty() || paths == ["*"] {
        return Ok(node);
    }
    let mut masked = Node::default();
    for path in paths {
        match path {
            "name" => masked.name.clone_from(&node.name),
            "spec" => masked.spec.clone_from(&node.spec),
            "status" => masked.status.clone_from(&node.status),
            "metadata" => masked.metadata.clone_from(&node.metadata),
            "status.inventory" => {
                masked.status.get_or_insert_default().inventory =
                    node.status.as_ref().and_then(|s| s.inventory.clone());
            }
            other => {
                let fault = format!("{other:?} is not one of name, spec, status, status.inventory, metadata");
                return Err(ApiError::invalid("read_mask", fault));
            }
        }
    }
    Ok(masked)
}

/// The fields of a node that an update changes: the fields in the mask; with `*` all changeable fields; without a mask
/// the fields that are set. An unset password stays unchanged under `*`, because a client cannot read it.
///
/// # Errors
/// The request names no field and sets none.
pub fn update_paths(node: &Node, mask: Option<&prost_types::FieldMask>) -> Result<Vec<String>, ApiError> {
    let named = mask.map(|m| m.paths.clone()).unwrap_or_default();
    let is_all = named == ["*"];
    if !named.is_empty() && !is_all {
        return Ok(named);
    }
    let spec = node.spec.clone().unwrap_or_default();
    let bmc = spec.bmc.unwrap_or_default();
    let has_labels = node.metadata.as_ref().is_some_and(|m| !m.labels.is_empty());
    let paths: Vec<String> = [
        ("metadata.labels", is_all || has_labels),
        ("spec.sku", is_all || !spec.sku.is_empty()),
        ("spec.boot_macs", is_all || !spec.boot_macs.is_empty()),
        ("spec.bmc.address", is_all || !bmc.address.is_empty()),
        ("spec.bmc.username", is_all || !bmc.username.is_empty()),
        ("spec.bmc.password", !bmc.password.is_empty()),
        (
            "spec.bmc.certificate_sha256",
            is_all || !bmc.certificate_sha256.is_empty(),
        ),
        ("spec.bmc.system", is_all || !bmc.system.is_empty()),
    ]
    .into_iter()
    .filter(|(_, is_ipmi)| *is_ipmi)
    .map(|(path, _)| path.to_owned())
    .collect();
    if paths.is_empty() {
        let fault = "name the fields to change, or set them: metadata.labels, spec.sku, spec.bmc.address, ...";
        return Err(ApiError::invalid("update_mask", fault));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use rackwright_store::Term;

    use super::*;

    const FIELDS: &[&str] = &["state", "sku", "name", "labels"];

    #[test]
    fn filters_are_clauses_joined_by_and() {
        let short = |text: &str| {
            let filter = parse_filter(text, FIELDS).unwrap();
            let term = |t: &Term| format!("{}{}{}", t.field, if t.negated { "!=" } else { "=" }, t.value);
            let clauses = filter
                .iter()
                .map(|clause| clause.iter().map(term).collect::<Vec<_>>().join("|"));
            clauses.collect::<Vec<_>>().join(" ")
        };
        for (text, read) in [
            (
                "state = active AND labels.rack!=\"r 1\" AND name=nodes/a",
                "state=active labels.rack!=r 1 name=a",
            ),
            (
                "state=active OR state = failed AND sku=a",
                "state=active|state=failed sku=a",
            ),
            ("sku=a AND ( state=active OR name = b* )", "sku=a state=active|name=b*"),
            ("(name=a)AND sku=\"\"", "name=a sku="),
            ("(name=a OR name=b) ", "name=a|name=b"),
        ] {
            assert_eq!(short(text), read, "{text}");
        }
        assert!(parse_filter("", FIELDS).unwrap().is_empty());
    }

    #[test]
    fn faults_name_their_place() {
        for (text, word) in [
            ("colour=red", "unknown field"),
            ("labels=red", "unknown field"),
            ("labels.=red", "unknown field"),
            ("state=sleeping", "is not a state"),
            ("state=active, sku=a", "is not a state"),
            ("state=active and sku=a", "AND or OR expected"),
            ("(state=active AND sku=a)", "write AND outside"),
            ("(state=active sku=a)", "OR or )"),
            ("(state=active", "OR or )"),
            ("sku \"a\"", "= or !="),
            ("sku=\"a", "closing"),
        ] {
            let error = parse_filter(text, FIELDS).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("character"), "{text}: {error}");
        }
    }
}
