use super::simulation::{Figures, SeededRandom, Simulated};
use super::{Culprit, Element, Outcome, Search};

/// Seeds of each simulated case.
const SEEDS: u64 = 1000;

#[test]
fn a_healthy_cluster_is_proven_in_two_rounds_and_with_noise_in_three() {
    let quiet = Figures::of(232, 32, 0, 0.0, 1);
    assert_eq!((&quiet.tests[..], &quiet.rounds[..]), (&[31][..], &[2][..]));
    let noisy = Figures::of(232, 32, 0, 0.01, SEEDS);
    assert!(
        Figures::share_up_to(&noisy.rounds, 3) >= 0.95,
        "{:?}",
        Figures::quantile(&noisy.rounds, 0.95)
    );
    assert_eq!((noisy.wrong, noisy.unresolved), (0, 0));
}

#[test]
fn five_bad_nodes_are_found_in_sixty_tests() {
    let quiet = Figures::of(232, 32, 5, 0.0, SEEDS);
    assert_eq!((quiet.wrong, quiet.missed, quiet.unresolved), (0, 0, 0));
    assert!(Figures::quantile(&quiet.tests, 1.0) <= 60, "{:?}", quiet.tests.last());
    let noisy = Figures::of(232, 32, 5, 0.01, SEEDS);
    assert!(
        noisy.precision() >= 0.99 && noisy.recall() >= 0.99,
        "{} {}",
        noisy.precision(),
        noisy.recall()
    );
    assert!(
        Figures::quantile(&noisy.tests, 0.95) <= 60,
        "{}",
        Figures::quantile(&noisy.tests, 0.95)
    );
    // The tests name the faulty element too.
    assert!(
        noisy.right_element * 100 >= noisy.right * 99,
        "{} of {}",
        noisy.right_element,
        noisy.right
    );
}

#[test]
fn precision_and_recall_hold_in_other_clusters() {
    for (nodes, per_leaf, bad) in [
        (232, 29, 5),
        (232, 4, 5),
        (232, 32, 10),
        (1024, 32, 5),
        (64, 16, 3),
        (16, 4, 1),
    ] {
        let figures = Figures::of(nodes, per_leaf, bad, 0.01, SEEDS / 4);
        let (precision, recall) = (figures.precision(), figures.recall());
        assert!(
            precision >= 0.99 && recall >= 0.99,
            "{nodes} {per_leaf} {bad}: {precision} {recall}"
        );
    }
}

#[test]
fn a_faulty_leaf_is_named_instead_of_its_nodes() {
    for seed in 0..200 {
        let mut cluster = Simulated::cluster(232, 32, 0.0);
        let leaf = (seed % 7) as usize;
        cluster.bad_leaves = vec![leaf];
        let found = cluster.search(&mut SeededRandom::new(seed));
        assert_eq!(found.culprits, [Culprit::Leaf(leaf)], "{seed}");
        assert!(found.tests <= 40, "{seed}: {}", found.tests);
    }
}

#[test]
fn a_fault_across_leaves_is_left_to_the_tests_of_pairs() {
    let mut cluster = Simulated::cluster(232, 32, 0.0);
    cluster.bad_uplinks = Some(3);
    let found = cluster.search(&mut SeededRandom::new(1));
    assert_eq!(found.culprits, [Culprit::Across]);
    assert_eq!(found.rounds, 2);
}

#[test]
fn two_bad_nodes_of_one_group_are_both_named() {
    let mut cluster = Simulated::cluster(232, 32, 0.0);
    cluster.bad = vec![(33, Element::Gpu(2)), (40, Element::Hca(1)), (41, Element::Hca(7))];
    let found = cluster.search(&mut SeededRandom::new(7));
    let nodes: Vec<(usize, Option<Element>)> = found
        .culprits
        .iter()
        .map(|culprit| match culprit {
            Culprit::Node { node, element, .. } => (*node, *element),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        nodes,
        [
            (33, Some(Element::Gpu(2))),
            (40, Some(Element::Hca(1))),
            (41, Some(Element::Hca(7)))
        ]
    );
}

/// Runs a search. A rule decides which tests fail.
fn by_rule(leaves: &[Option<usize>], fails: impl Fn(&[usize], usize) -> Option<Outcome>) -> super::Conclusion {
    let mut search = Search::new(leaves);
    let mut round = 0;
    loop {
        let tests = search.next_round();
        if tests.is_empty() {
            return search.conclusion();
        }
        let outcomes: Vec<Outcome> = tests
            .iter()
            .map(|test| fails(&test.nodes, round).unwrap_or(Outcome::Passed))
            .collect();
        search.record(&outcomes);
        round += 1;
        assert!(round < 100, "the search does not end");
    }
}

#[test]
fn a_group_that_fails_once_is_transient() {
    let leaves = vec![Some(0); 16];
    let found = by_rule(&leaves, |nodes, round| {
        (round == 0 && nodes.contains(&5)).then_some(Outcome::Slow(None))
    });
    assert_eq!((found.culprits.len(), found.transient, found.rounds), (0, 1, 3));
}

#[test]
fn slow_and_crashed_nodes_are_different_culprits() {
    let leaves: Vec<Option<usize>> = (0..16).map(|node| Some(node / 4)).collect();
    for (outcome, wanted) in [(Outcome::Slow(None), false), (Outcome::Crashed(None), true)] {
        let found = by_rule(&leaves, |nodes, _| nodes.contains(&9).then(|| outcome.clone()));
        let node = Culprit::Node {
            node: 9,
            crashed: wanted,
            element: None,
        };
        assert_eq!(found.culprits, [node]);
    }
}

#[test]
fn without_known_good_nodes_no_single_node_is_named() {
    let found = by_rule(&[Some(0), Some(0)], |_, _| Some(Outcome::Crashed(None)));
    assert_eq!(found.culprits, [Culprit::OneOf(vec![0, 1])]);
    let found = by_rule(&[None; 9], |_, _| Some(Outcome::Slow(None)));
    assert!(
        found
            .culprits
            .iter()
            .all(|culprit| matches!(culprit, Culprit::OneOf(_) | Culprit::Across)),
        "{found:?}"
    );
    assert!(!found.culprits.is_empty());
    // One node has no partner, and no test.
    assert_eq!(by_rule(&[Some(0)], |_, _| Some(Outcome::Slow(None))).tests, 0);
}

#[test]
fn a_missing_outcome_is_a_failure() {
    let mut search = Search::new(&[Some(0); 16]);
    let tests = search.next_round();
    assert!(!tests.is_empty());
    search.record(&[]);
    let _ = search.next_round();
    search.record(&vec![Outcome::Passed; 16]);
    assert!(
        !search.next_round().is_empty(),
        "groups without an outcome are tested again"
    );
}
