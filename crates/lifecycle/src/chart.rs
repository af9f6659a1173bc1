//! The state chart of a node. This table is the only place where edges are named; the diagram in
//! `docs/lifecycle.md` is generated from it.

use crate::names::names;

names! {
    /// The states of a node.
    State {
        /// Known by its BMC's address; nothing has been read yet.
        Discovered = "discovered",
        /// Being booted into the agent, which reports the inventory.
        Inspecting = "inspecting",
        /// Clean, known and free.
        Available = "available",
        /// Claimed; nothing has been written yet.
        Allocated = "allocated",
        /// An image is being written.
        Imaging = "imaging",
        /// Booting the written image.
        Rebooting = "rebooting",
        /// The installed system is being checked.
        Validating = "validating",
        /// Handed over.
        Active = "active",
        /// Being erased.
        Reclaiming = "reclaiming",
        /// A step gave up; the reason is stored.
        Failed = "failed",
        /// Not to be used until it has been erased.
        Quarantined = "quarantined",
        /// An operator took the node out of service.
        Maintenance = "maintenance",
    }
}

/// The properties of a node in a state. All code that treats states differently by a property reads them here, so a new
/// state has its properties in one row.
#[derive(Debug, Clone, Copy)]
struct Traits {
    /// Nothing happens to the node until an operator or a customer requests something.
    is_at_rest: bool,
    /// The control plane boots the agent on the node. In every other state an agent is ignored.
    boots_agent: bool,
    /// The control plane starts the machine.
    starts_machine: bool,
    /// No customer's system runs on the node, claimed or not.
    is_unused: bool,
    /// The customer may be using the node: in `active` always, in the others after a reimage.
    may_be_used: bool,
    /// First and last percent of the state's share of a deploy, an enrolment or a release.
    share: (u32, u32),
}

/// The base of every row: no property holds.
const NONE: Traits = Traits {
    is_at_rest: false,
    boots_agent: false,
    starts_machine: false,
    is_unused: false,
    may_be_used: false,
    share: (99, 100),
};

/// A node that waits for a request.
const AT_REST: Traits = Traits {
    is_at_rest: true,
    ..NONE
};

/// A node that runs the agent and no customer's system.
const WITH_AGENT: Traits = Traits {
    boots_agent: true,
    starts_machine: true,
    is_unused: true,
    share: (5, 95),
    ..NONE
};

/// A node that runs the written image.
const STARTED: Traits = Traits {
    starts_machine: true,
    may_be_used: true,
    ..NONE
};

impl State {
    const fn traits(self) -> Traits {
        match self {
            Self::Discovered => Traits { share: (0, 5), ..NONE },
            Self::Allocated => Traits {
                is_unused: true,
                share: (0, 5),
                ..NONE
            },
            Self::Inspecting | Self::Reclaiming => WITH_AGENT,
            Self::Imaging => Traits {
                may_be_used: true,
                share: (5, 60),
                ..WITH_AGENT
            },
            Self::Rebooting => Traits {
                share: (60, 90),
                ..STARTED
            },
            Self::Validating => Traits {
                share: (90, 99),
                ..STARTED
            },
            Self::Available => Traits {
                is_unused: true,
                ..AT_REST
            },
            Self::Active => Traits {
                may_be_used: true,
                ..AT_REST
            },
            Self::Failed | Self::Quarantined | Self::Maintenance => AT_REST,
        }
    }

    /// Nothing happens to the node until an operator or a customer requests something.
    #[must_use]
    pub const fn is_at_rest(self) -> bool {
        self.traits().is_at_rest
    }

    /// The control plane boots the agent on the node. In every other state an agent is ignored.
    #[must_use]
    pub const fn boots_agent(self) -> bool {
        self.traits().boots_agent
    }

    /// The control plane starts the machine, with the agent or with the written image.
    #[must_use]
    pub const fn starts_machine(self) -> bool {
        self.traits().starts_machine
    }

    /// No customer's system runs on the node, claimed or not: a restart is harmless.
    #[must_use]
    pub const fn is_unused(self) -> bool {
        self.traits().is_unused
    }

    /// The customer may be using the node: in `active` always, in the other states after a reimage.
    #[must_use]
    pub const fn may_be_used(self) -> bool {
        self.traits().may_be_used
    }

    /// First and last percent of the state's share of a deploy, an enrolment or a release.
    #[must_use]
    pub const fn share(self) -> (u32, u32) {
        self.traits().share
    }
}

names! {
    /// The only ways from one state to another, named as past events.
    Edge {
        /// The BMC answered and named its machine.
        Enrolled = "enrolled",
        /// The inventory was reported.
        Inspected = "inspected",
        /// A claim was made.
        Claimed = "claimed",
        /// The claim was withdrawn before anything was written.
        Unclaimed = "unclaimed",
        /// Work on the image began.
        Started = "started",
        /// The image is on the drive.
        Written = "written",
        /// The installed system answers.
        HostUp = "hostup",
        /// Every check passed and the provisioning key is gone.
        Validated = "validated",
        /// Another image is wanted under the same claim.
        Reimaged = "reimaged",
        /// The claim ended.
        Released = "released",
        /// Every drive was erased, with proof.
        Erased = "erased",
        /// A step gave up.
        Failed = "failed",
        /// Sent back to inspection.
        Reinspect = "reinspect",
        /// Sent back to imaging.
        Retried = "retried",
        /// No longer trusted.
        Condemned = "condemned",
        /// Taken out of service.
        Held = "held",
        /// Returned to service with its claim, to be checked again.
        Revalidate = "revalidate",
        /// Returned to service by way of an erase.
        Readmitted = "readmitted",
    }
}

/// One row of the chart: an edge, the states it leaves, the state it enters and the guard in words.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub edge: Edge,
    /// States that the edge may leave.
    pub from: &'static [State],
    /// The state it enters.
    pub to: State,
    /// The further condition in `decide`; empty: none.
    pub guard: &'static str,
    /// One of the states in `from`, and its own further condition.
    pub guard_of_state: Option<(State, &'static str)>,
}

use State::{
    Active, Allocated, Available, Discovered, Failed, Imaging, Inspecting, Maintenance, Quarantined, Rebooting,
    Reclaiming, Validating,
};

/// All edges between the states of a node.
pub const CHART: &[Row] = &[
    row(Edge::Enrolled, &[Discovered], Inspecting, ""),
    row(
        Edge::Inspected,
        &[Inspecting],
        Available,
        "evidence newer than the last write",
    ),
    row(Edge::Claimed, &[Available], Allocated, ""),
    row(Edge::Unclaimed, &[Allocated], Available, "nothing written yet"),
    row(Edge::Started, &[Allocated], Imaging, ""),
    row(Edge::Written, &[Imaging], Rebooting, ""),
    row(Edge::HostUp, &[Rebooting], Validating, ""),
    row(Edge::Validated, &[Validating], Active, ""),
    row(Edge::Reimaged, &[Active], Imaging, "same claim, new image"),
    row(
        Edge::Released,
        &[Imaging, Rebooting, Validating, Active, Failed],
        Reclaiming,
        "",
    )
    .guarded(Failed, "claimed"),
    row(Edge::Erased, &[Reclaiming], Available, ""),
    row(Edge::Failed, &[Inspecting, Imaging, Rebooting, Validating], Failed, ""),
    row(
        Edge::Reinspect,
        &[Failed, Maintenance, Available],
        Inspecting,
        "unclaimed and clean",
    ),
    row(Edge::Retried, &[Failed], Imaging, "still claimed, not handed over"),
    row(
        Edge::Condemned,
        &[
            Discovered, Inspecting, Available, Allocated, Imaging, Rebooting, Validating, Active, Reclaiming, Failed,
        ],
        Quarantined,
        "",
    ),
    row(
        Edge::Held,
        &[Discovered, Inspecting, Available, Active, Failed],
        Maintenance,
        "",
    ),
    row(Edge::Revalidate, &[Maintenance, Failed], Validating, "claimed").guarded(Failed, "handed over"),
    row(
        Edge::Readmitted,
        &[Quarantined, Failed, Maintenance, Available],
        Reclaiming,
        "",
    )
    .guarded(Available, "doubted"),
];

const fn row(edge: Edge, from: &'static [State], to: State, guard: &'static str) -> Row {
    Row {
        edge,
        from,
        to,
        guard,
        guard_of_state: None,
    }
}

impl Row {
    const fn guarded(self, state: State, guard: &'static str) -> Self {
        Self {
            guard_of_state: Some((state, guard)),
            ..self
        }
    }
}

impl Edge {
    /// The edge's row in the chart.
    #[must_use]
    pub fn row(self) -> &'static Row {
        // The test `every_edge_has_one_row` proves that the row exists.
        CHART.iter().find(|r| r.edge == self).unwrap_or(&CHART[0])
    }

    /// The state that the edge enters from `state`, if the chart allows it.
    #[must_use]
    pub fn target(self, state: State) -> Option<State> {
        let row = self.row();
        row.from.contains(&state).then_some(row.to)
    }
}

/// The chart as a Mermaid state diagram.
#[must_use]
pub fn mermaid() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> discovered\n");
    for row in CHART {
        for from in row.from {
            let of_state = row.guard_of_state.filter(|(state, _)| state == from);
            let guards = [
                Some(row.guard).filter(|guard| !guard.is_empty()),
                of_state.map(|(_, guard)| guard),
            ];
            let guards: Vec<&str> = guards.into_iter().flatten().collect();
            let guard = if guards.is_empty() {
                String::new()
            } else {
                format!(" [{}]", guards.join(", "))
            };
            text.push_str(&format!("    {from} --> {}: {}{guard}\n", row.to, row.edge));
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
    fn states_have_the_properties_that_the_machines_of_their_nodes_have() {
        let all = |is: fn(State) -> bool| State::ALL.iter().copied().filter(|s| is(*s)).collect::<Vec<_>>();
        assert_eq!(
            all(State::is_at_rest),
            [Available, Active, Failed, Quarantined, Maintenance]
        );
        assert_eq!(all(State::boots_agent), [Inspecting, Imaging, Reclaiming]);
        assert_eq!(
            all(State::starts_machine),
            [Inspecting, Imaging, Rebooting, Validating, Reclaiming]
        );
        assert_eq!(
            all(State::is_unused),
            [Inspecting, Available, Allocated, Imaging, Reclaiming]
        );
        assert_eq!(all(State::may_be_used), [Imaging, Rebooting, Validating, Active]);
        for state in State::ALL {
            let (from, to) = state.share();
            assert!(from < to && to <= 100, "{state}: {from} to {to}");
        }
    }

    #[test]
    fn every_state_can_be_left_and_reached() {
        for state in State::ALL {
            assert!(CHART.iter().any(|r| r.from.contains(state)), "{state} has no exit");
            assert!(
                *state == State::Discovered || CHART.iter().any(|r| r.to == *state),
                "{state} is never entered"
            );
        }
    }

    #[test]
    fn quarantine_is_left_only_by_an_erase() {
        let exits: Vec<_> = CHART
            .iter()
            .filter(|r| r.from.contains(&State::Quarantined))
            .map(|r| r.to)
            .collect();
        assert_eq!(exits, [State::Reclaiming]);
    }

    #[test]
    fn available_is_reached_from_inspection_erase_or_an_unused_claim() {
        let edges: Vec<_> = CHART
            .iter()
            .filter(|r| r.to == State::Available)
            .map(|r| r.edge)
            .collect();
        assert_eq!(edges, [Edge::Inspected, Edge::Unclaimed, Edge::Erased]);
    }

    #[test]
    fn names_parse_back() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(*state));
        }
        assert_eq!(Edge::parse("nonsense"), None);
    }
}
