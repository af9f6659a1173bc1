//! The state chart of a cluster; its diagram in `docs/lifecycle.md` is generated from it.

use crate::names::names;

names! {
    /// The states of a cluster.
    State {
        /// Nodes, power, cooling, links and partition key are reserved for it.
        Reserved = "reserved",
        /// Nodes are imaged and checked, and the partition is set up.
        Building = "building",
        /// Every node is checked and the partition proven: the whole cluster is handed over.
        Validating = "validating",
        /// In use by its customer.
        Ready = "ready",
        /// In use, and one of its nodes is lost, has a faulty link, or has a port without the key.
        Degraded = "degraded",
        /// In use, and nodes join or leave it.
        Resizing = "resizing",
        /// In use, and its nodes get another image, some at a time.
        Reimaging = "reimaging",
        /// Nodes are erased, and the partition's key is removed from the ports.
        Releasing = "releasing",
        /// Only its history remains.
        Released = "released",
        /// The build missed its deadline; the cluster holds its reservation until it is released.
        Failed = "failed",
    }
}

names! {
    /// The only ways from one state to another, named as past events.
    Edge {
        /// Work on its nodes began.
        Started = "started",
        /// Every node is checked and the partition proven.
        Built = "built",
        /// A part of it must be built again before the hand-over.
        Rebuilt = "rebuilt",
        /// Every node is handed over to its customer.
        HandedOver = "handedover",
        /// One of its nodes is lost, has a faulty link, or has a port without the key.
        Degraded = "degraded",
        /// A request adds nodes or gives nodes back.
        Resized = "resized",
        /// A reimage of its nodes was requested.
        Reimaged = "reimaged",
        /// All its nodes are in order again.
        Restored = "restored",
        /// An operator, the customer or the lease's end releases it.
        Released = "released",
        /// All nodes are free and no port has its partition's key.
        Freed = "freed",
        /// The build missed its deadline.
        Failed = "failed",
        /// The build starts once more.
        Retried = "retried",
    }
}

/// One row of the chart: an edge, the states it leaves and the state it enters.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub edge: Edge,
    /// States that the edge may leave.
    pub from: &'static [State],
    /// The state it enters.
    pub to: State,
}

use State::{Building, Degraded, Failed, Ready, Reimaging, Released, Releasing, Reserved, Resizing, Validating};

/// All edges between the states of a cluster.
pub const CHART: &[Row] = &[
    row(Edge::Started, &[Reserved], Building),
    row(Edge::Built, &[Building], Validating),
    row(Edge::Rebuilt, &[Validating], Building),
    row(Edge::HandedOver, &[Validating], Ready),
    row(Edge::Degraded, &[Ready], Degraded),
    row(Edge::Resized, &[Ready], Resizing),
    row(Edge::Reimaged, &[Ready, Degraded, Resizing], Reimaging),
    row(Edge::Restored, &[Degraded, Resizing, Reimaging], Ready),
    row(
        Edge::Released,
        &[
            Reserved, Building, Validating, Ready, Degraded, Resizing, Reimaging, Failed,
        ],
        Releasing,
    ),
    row(Edge::Freed, &[Releasing], Released),
    row(Edge::Failed, &[Building, Validating], Failed),
    row(Edge::Retried, &[Failed], Building),
];

const fn row(edge: Edge, from: &'static [State], to: State) -> Row {
    Row { edge, from, to }
}

impl Edge {
    /// The state that the edge enters from `state`, if the chart allows it.
    #[must_use]
    pub fn target(self, state: State) -> Option<State> {
        let row = CHART.iter().find(|row| row.edge == self && row.from.contains(&state));
        row.map(|row| row.to)
    }
}

/// The chart as a Mermaid state diagram.
#[must_use]
pub fn mermaid() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> reserved\n");
    for row in CHART {
        for from in row.from {
            text.push_str(&format!("    {from} --> {}: {}\n", row.to, row.edge));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_has_one_row() {
        for edge in Edge::ALL {
            assert_eq!(CHART.iter().filter(|r| r.edge == *edge).count(), 1, "{edge}");
        }
    }

    #[test]
    fn every_state_can_be_reached_and_all_but_the_last_left() {
        for state in State::ALL {
            let has_exit = CHART.iter().any(|row| row.from.contains(state));
            assert_eq!(has_exit, *state != Released, "{state}");
            assert!(
                *state == Reserved || CHART.iter().any(|row| row.to == *state),
                "{state}"
            );
        }
    }

    #[test]
    fn only_a_releasing_cluster_becomes_released() {
        let sources: Vec<_> = CHART
            .iter()
            .filter(|row| row.to == Released)
            .map(|row| row.from)
            .collect();
        assert_eq!(sources, [&[Releasing]]);
    }
}
