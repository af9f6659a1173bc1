//! Counts of nodes by what they have in common, and orders of nodes.

use std::collections::{BTreeMap, HashMap};

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_store::{NodeColumn, NodeCount, NodeOrder, NodePlace, Scope};

/// The order of a list of nodes, from a text such as "state_since desc".
///
/// # Errors
/// The text names no field by which the caller may order nodes.
pub fn order(scope: &Scope, text: &str) -> Result<NodeOrder, ApiError> {
    let order = NodeOrder::parse(text).map_err(|fault| ApiError::invalid("order_by", fault))?;
    match (order.column, scope) {
        (Some(NodeColumn::Customer), Scope::Customer(_)) => Err(ApiError::invalid(
            "order_by",
            "members of a customer do not order by customer",
        )),
        _ => Ok(order),
    }
}

/// The place in a page token; none: the first page.
///
/// # Errors
/// The place does not belong to this order.
pub fn place(order: NodeOrder, text: &str) -> Result<Option<NodePlace>, ApiError> {
    let fault = || ApiError::invalid("page_token", "is not a page token of this list in this order");
    match text.is_empty() {
        true => Ok(None),
        false => NodePlace::parse(order, text).map(Some).ok_or_else(fault),
    }
}

/// A value of one field, as a filter has it; empty: not counted.
type Field = fn(&NodeCount) -> &str;

/// The summary of counts, in the view of `scope`.
#[must_use]
pub fn summary(scope: &Scope, counts: &[NodeCount]) -> v1::FleetSummary {
    let by = |field: Field| count_by(counts, field);
    let for_site = |field: Field| match scope {
        Scope::Site => by(field),
        Scope::Customer(_) => Vec::new(),
    };
    v1::FleetSummary {
        nodes: counts.iter().map(|count| count.nodes).sum(),
        agents: counts.iter().filter(|c| c.has_agent).map(|c| c.nodes).sum(),
        states: by(|count| &count.state),
        healths: for_site(|count| &count.health),
        powers: by(|count| &count.power),
        waits: for_site(|count| &count.wait),
        skus: by(|count| &count.sku),
        customers: for_site(|count| &count.customer),
    }
}

/// The counts of one field, by its values.
fn count_by(counts: &[NodeCount], field: Field) -> Vec<v1::FleetCount> {
    let mut found: BTreeMap<&str, HashMap<String, i64>> = BTreeMap::new();
    for count in counts.iter().filter(|count| !field(count).is_empty()) {
        let states = found.entry(field(count)).or_default();
        *states.entry(count.state.clone()).or_default() += count.nodes;
    }
    found
        .into_iter()
        .map(|(value, states)| v1::FleetCount {
            value: value.to_owned(),
            nodes: states.values().sum(),
            states,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(state: &str, health: &str, customer: &str, nodes: i64) -> NodeCount {
        NodeCount {
            state: state.into(),
            health: health.into(),
            customer: customer.into(),
            has_agent: state == "imaging",
            nodes,
            ..NodeCount::default()
        }
    }

    #[test]
    fn orders_are_read_and_places_return_from_page_tokens() {
        let order = |text: &str| order(&Scope::Site, text);
        assert_eq!(order("").unwrap(), NodeOrder::default());
        assert_eq!(order("name").unwrap(), NodeOrder::default());
        let since = order(" state_since  desc ").unwrap();
        assert_eq!((since.column, since.descending), (Some(NodeColumn::StateSince), true));
        for wrong in ["colour", "state down", "state desc, sku", "name desc", "desc"] {
            assert!(order(wrong).is_err(), "{wrong}");
        }
        assert!(super::order(&Scope::Customer("acme".into()), "customer").is_err());
        for (id, value) in [("a", ""), ("a", "h100 sxm"), ("a-1", " x")] {
            let at = NodePlace {
                value: value.into(),
                id: id.into(),
            };
            let by_sku = super::order(&Scope::Site, "sku").unwrap();
            assert_eq!(place(by_sku, &at.to_string()).unwrap(), Some(at));
        }
        assert_eq!(place(since, "").unwrap(), None);
        assert!(place(since, "a 17").unwrap().is_some());
        assert!(place(since, "a x").is_err() && place(since, "a").is_err());
    }

    #[test]
    fn counts_are_summed_by_value_and_state() {
        let counts = [
            count("active", "ok", "acme", 3),
            count("active", "unreachable", "acme", 1),
            count("imaging", "ok", "bolt", 2),
            count("available", "ok", "", 5),
        ];
        let found = summary(&Scope::Site, &counts);
        assert_eq!((found.nodes, found.agents), (11, 2));
        let values = |counts: &[v1::FleetCount]| -> Vec<(String, i64)> {
            counts.iter().map(|c| (c.value.clone(), c.nodes)).collect()
        };
        assert_eq!(values(&found.healths), [("ok".into(), 10), ("unreachable".into(), 1)]);
        assert_eq!(values(&found.customers), [("acme".into(), 4), ("bolt".into(), 2)]);
        assert_eq!(found.healths[0].states["available"], 5);
        assert!(found.waits.is_empty(), "no node waits");

        let theirs = summary(&Scope::Customer("acme".into()), &counts[..2]);
        assert_eq!(values(&theirs.states), [("active".into(), 4)]);
        assert!(theirs.healths.is_empty() && theirs.waits.is_empty() && theirs.customers.is_empty());
    }
}
