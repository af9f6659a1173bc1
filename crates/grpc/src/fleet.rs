//! Counts of nodes by what they have in common.

use std::collections::{BTreeMap, HashMap};

use rackwright_api::v1;
use rackwright_store::{NodeCount, Scope};

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
