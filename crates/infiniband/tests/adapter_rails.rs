//! Rails by agreement of nodes: never a wrong one, whatever the names and their order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rackwright_infiniband::adapter::{self, Scheme};
use rackwright_infiniband::rail::{Doubt, NodeRails, agree};

/// PCI addresses of eight adapters for GPUs, as machines have them: in no regular distance.
const PATHS: [&str; 8] = [
    "ibp24s0", "ibp64s0", "ibp79s0", "ibp94s0", "ibp154s0", "ibp192s0", "ibp206s0", "ibp220s0",
];

fn kernel(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(|number| format!("mlx5_{number}")).collect()
}

fn paths() -> Vec<String> {
    PATHS.map(str::to_owned).to_vec()
}

fn without(names: &[String], gone: &str) -> Vec<String> {
    names.iter().filter(|name| *name != gone).cloned().collect()
}

fn agreed(nodes: &[Vec<String>]) -> Vec<NodeRails<'_>> {
    let nodes: Vec<Vec<&str>> = nodes
        .iter()
        .map(|names| names.iter().map(String::as_str).collect())
        .collect();
    agree(&nodes)
}

fn rails(rails: &[u16]) -> Vec<Option<u16>> {
    rails.iter().copied().map(Some).collect()
}

#[test]
fn nodes_with_the_same_names_agree() {
    let dgx = kernel(&[0, 3, 4, 5, 6, 9, 10, 11]);
    let bonded = ["mlx5_bond_0", "mlx5_1", "mlx5_0"].map(str::to_owned).to_vec();
    let fixed = ["fabric-10", "fabric-9"].map(str::to_owned).to_vec();
    let nodes = [
        dgx.clone(),
        paths(),
        dgx,
        paths(),
        bonded.clone(),
        bonded,
        fixed.clone(),
        fixed,
    ];
    let found = agreed(&nodes);
    for at in 0..4 {
        assert_eq!(found[at].rails, rails(&[0, 1, 2, 3, 4, 5, 6, 7]), "{:?}", nodes[at]);
        assert!(found[at].are_known());
    }
    assert_eq!(found[4].rails, rails(&[2, 1, 0]));
    assert_eq!(found[7].rails, rails(&[1, 0]));
}

#[test]
fn a_node_that_lacks_an_adapter_keeps_the_rails_of_the_others() {
    let nodes = [paths(), paths(), without(&paths(), "ibp94s0")];
    let found = agreed(&nodes);
    assert_eq!(found[2].rails, rails(&[0, 1, 2, 4, 5, 6, 7]));
    assert_eq!((&*found[2].lacking, found[2].doubt), (&["ibp94s0"][..], None));
    // Half of the adapters are another kind of node.
    let nodes = [paths(), paths(), paths()[..4].to_vec()];
    assert_eq!(agreed(&nodes)[2].doubt, Some(Doubt::Alone));
}

#[test]
fn numbers_of_the_kernel_are_doubted_where_the_last_one_is_missing() {
    let all = kernel(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let nodes = [
        all.clone(),
        all.clone(),
        without(&all, "mlx5_3"),
        without(&all, "mlx5_7"),
    ];
    let found = agreed(&nodes);
    assert_eq!((found[2].rails[3], found[2].doubt), (Some(4), None));
    assert_eq!(found[3].doubt, Some(Doubt::Renumbered));
    assert!(!found[3].are_known());
    // An adapter that is added may be before the others.
    let more = kernel(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let found_more = [all.clone(), all, more];
    assert_eq!(agreed(&found_more)[2].doubt, Some(Doubt::Renumbered));
}

#[test]
fn an_added_adapter_with_a_place_has_no_rail() {
    let mut more = paths();
    more.insert(1, "ibp41s0".to_owned());
    let nodes = [paths(), paths(), more];
    let found = agreed(&nodes);
    assert_eq!(found[2].rails[..3], [Some(0), None, Some(1)]);
    assert_eq!((found[2].doubt, found[2].are_known()), (None, false));
    assert_eq!(found[0].rails, rails(&[0, 1, 2, 3, 4, 5, 6, 7]));
}

#[test]
fn moved_buses_keep_the_order_and_one_other_adapter_does_not() {
    let moved: Vec<String> = [
        "ibp24s0", "ibp65s0", "ibp80s0", "ibp95s0", "ibp155s0", "ibp193s0", "ibp207s0", "ibp221s0",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut one_other = without(&paths(), "ibp64s0");
    one_other.push("ibp41s0".to_owned());
    // The same places are at other positions.
    let mut shifted = paths()[..6].to_vec();
    shifted.extend(["ibp3s0", "ibp4s0"].map(str::to_owned));
    let nodes = [paths(), paths(), moved, one_other, shifted];
    let found = agreed(&nodes);
    assert_eq!(found[2].rails, rails(&[0, 1, 2, 3, 4, 5, 6, 7]));
    assert!(found[2].are_known());
    assert_eq!(found[3].doubt, Some(Doubt::Elsewhere));
    assert_eq!(found[4].doubt, Some(Doubt::Elsewhere));
}

#[test]
fn without_agreement_rails_are_unknown() {
    let guids: Vec<String> = (0..8).map(|at| format!("ibx0002c9030008{at:04x}")).collect();
    let twice = ["mlx5_0", "mlx5_0"].map(str::to_owned).to_vec();
    let nodes = [
        guids.clone(),
        guids,
        twice,
        kernel(&[0, 1, 2, 3]),
        vec!["ib0".to_owned()],
    ];
    let doubts: Vec<Option<Doubt>> = agreed(&nodes).iter().map(|found| found.doubt).collect();
    let wanted = [Doubt::Guid, Doubt::Guid, Doubt::Twice, Doubt::Alone, Doubt::Alone];
    assert_eq!(doubts, wanted.map(Some));
    assert_eq!(agree(&[]), []);
    // One machine alone has nothing to contradict.
    assert_eq!(agreed(&[kernel(&[0, 3])])[0].rails, rails(&[0, 1]));
}

/// A place as udev and rdma-core write it.
fn path(technology: &str, domain: u32, bus: u32, slot: u32, function: Option<u32>) -> String {
    let domain = if domain > 0 {
        format!("P{domain}")
    } else {
        String::new()
    };
    let function = function.map_or_else(String::new, |function| format!("f{function}"));
    format!("{technology}{domain}p{bus}s{slot}{function}")
}

fn technology() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("ib"),
        Just("roce"),
        Just("iw"),
        Just("opa"),
        Just("rdma"),
        Just("usnic")
    ]
}

/// Names of all kinds, and others.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        (0u32..12).prop_map(|number| format!("mlx5_{number}")),
        (technology(), 0u32..2, 0u32..5, 0u32..3, proptest::option::of(0u32..2))
            .prop_map(|(technology, domain, bus, slot, function)| path(technology, domain, bus, slot, function)),
        (0u32..4).prop_map(|slot| format!("ibs{slot}")),
        (0u64..3).prop_map(|guid| format!("ibx{guid:016x}")),
        "[a-z0-9_]{0,6}",
    ]
}

fn nodes() -> impl Strategy<Value = Vec<Vec<String>>> {
    let sets = proptest::collection::vec(proptest::collection::vec(name(), 0..6), 1..4);
    let picks = proptest::collection::vec((0usize..100, any::<u16>()), 0..12);
    (sets, picks).prop_map(|(sets, picks)| {
        let pick = |(at, mask): (usize, u16)| -> Vec<String> {
            let set: &Vec<String> = &sets[at % sets.len()];
            let kept = set.iter().enumerate().filter(|(at, _)| mask & (3 << (2 * at)) != 0);
            kept.map(|(_, name)| name.clone()).collect()
        };
        picks.into_iter().map(pick).collect()
    })
}

proptest! {
    #[test]
    fn a_place_is_read_as_it_is_written(
        technology in technology(), a in (0u32..20, 0u32..256, 0u32..32), b in (0u32..20, 0u32..256, 0u32..32),
        function in proptest::option::of(0u32..8),
    ) {
        let name = |(domain, bus, slot)| path(technology, domain, bus, slot, function);
        let (first, second) = (name(a), name(b));
        prop_assert_eq!(adapter::place(&first).map(|place| place.scheme), Some(Scheme::Path));
        prop_assert_eq!(adapter::in_order(&first, &second), a.cmp(&b));
    }

    #[test]
    fn the_order_of_names_is_total(a in name(), b in name(), c in name()) {
        use std::cmp::Ordering::{Equal, Less};
        prop_assert_eq!(adapter::in_order(&a, &b), adapter::in_order(&b, &a).reverse());
        prop_assert_eq!(adapter::in_order(&a, &b) == Equal, a == b);
        if adapter::in_order(&a, &b) == Less && adapter::in_order(&b, &c) == Less {
            prop_assert_eq!(adapter::in_order(&a, &c), Less);
        }
    }

    /// Any nodes: no two adapters of a node share a rail, nodes with the same names have the same rails, and the rails of
    /// a node follow the order of its names.
    #[test]
    fn rails_are_consistent(nodes in nodes()) {
        let found = agreed(&nodes);
        prop_assert_eq!(found.len(), nodes.len());
        let mut by_set: BTreeMap<BTreeSet<&String>, BTreeMap<&String, Option<u16>>> = BTreeMap::new();
        for (names, node) in nodes.iter().zip(&found) {
            prop_assert_eq!(names.len(), node.rails.len());
            let rails: BTreeMap<&String, Option<u16>> = names.iter().zip(node.rails.iter().copied()).collect();
            let known: Vec<u16> = node.rails.iter().filter_map(|rail| *rail).collect();
            let distinct: BTreeSet<&u16> = known.iter().collect();
            prop_assert_eq!(distinct.len(), known.len(), "{:?}", names);
            let mut ordered: Vec<&String> = names.iter().collect();
            ordered.sort_by(|a, b| adapter::in_order(a, b));
            let in_order: Vec<u16> = ordered.iter().filter_map(|name| rails[name]).collect();
            prop_assert!(in_order.is_sorted(), "{:?} {:?}", ordered, in_order);
            let set: BTreeSet<&String> = names.iter().collect();
            if set.len() < names.len() {
                prop_assert_eq!(node.doubt, Some(Doubt::Twice));
            } else if let Some(other) = by_set.insert(set, rails.clone()) {
                prop_assert_eq!(other, rails);
            }
        }
    }

    /// The order of nodes, and of the adapters in a node, does not matter.
    #[test]
    fn the_order_of_the_input_does_not_matter(nodes in nodes(), turn in 0usize..12) {
        let mut turned: Vec<Vec<String>> = nodes.iter().map(|names| names.iter().rev().cloned().collect()).collect();
        let turn = if nodes.is_empty() { 0 } else { turn % nodes.len() };
        turned.rotate_left(turn);
        let mut expected = agreed(&nodes);
        expected.rotate_left(turn);
        for (mut before, after) in expected.into_iter().zip(agreed(&turned)) {
            before.rails.reverse();
            prop_assert_eq!(before, after);
        }
    }

    /// Nodes of one kind of which each may lack adapters, and a card without power makes the kernel number the others
    /// anew: an adapter with a certain rail is on this rail.
    #[test]
    fn a_certain_rail_is_right(
        adapters in 4usize..9,
        gone in proptest::collection::vec(proptest::option::of(0usize..9), 2..12),
        by_path in any::<bool>(),
    ) {
        // Half of the nodes are whole.
        let half = gone.len().div_ceil(2);
        let gone: Vec<Option<usize>> = gone.iter().enumerate().map(|(at, gone)| gone.filter(|_| at >= half)).collect();
        let present = |gone: Option<usize>| (0..adapters).filter(move |at| Some(*at) != gone.map(|gone| gone % adapters));
        let nodes: Vec<Vec<String>> = gone
            .iter()
            .map(|gone| {
                let numbered = present(*gone).enumerate();
                let name = |(number, rail): (usize, usize)| match by_path {
                    true => PATHS[rail].to_owned(),
                    false => format!("mlx5_{number}"),
                };
                numbered.map(name).collect()
            })
            .collect();
        for (node, gone) in agreed(&nodes).iter().zip(&gone) {
            if node.are_known() {
                let right: Vec<Option<u16>> = present(*gone).map(|rail| u16::try_from(rail).ok()).collect();
                prop_assert_eq!(&node.rails, &right);
                prop_assert_eq!(node.lacking.len(), usize::from(gone.is_some()));
            }
            prop_assert!(node.are_known() || (!by_path && gone.is_some()));
        }
    }
}
