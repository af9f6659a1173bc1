use proptest::prelude::*;

use super::*;
use crate::chart::CHART;
use crate::chart::State;
use crate::node::{ClusterClaim, Evidence, Wanted};
use crate::outcome::apply;

fn claim(customer: &'static str, cluster: Option<&'static str>) -> Claim {
    Claim {
        generation: 1,
        deployment: 1,
        image_digest: "b3-0".into(),
        image_name: "images/some".into(),
        hostname: "n1".into(),
        ssh_authorized_keys: Vec::new(),
        has_user_data: false,
        plain_user_data: String::new(),
        root_drive: String::new(),
        verify_whole_disk: false,
        release_requested: false,
        handed_over: None,
        customer: customer.into(),
        cluster: cluster.map(|cluster| ClusterClaim {
            cluster: cluster.into(),
            let_go: None,
            build: 0,
        }),
    }
}

fn node(state: State, customer: &'static str) -> Node {
    Node {
        state,
        since: Timestamp(0),
        generation: 1,
        claim: Some(claim(customer, Some("alpha"))),
        wanted: Wanted::default(),
        evidence: Evidence::default(),
        doubt: None,
    }
}

fn holder(customer: &'static str) -> Holder {
    Holder {
        customer: customer.into(),
        cluster: Some("alpha".into()),
    }
}

/// Applies effects as the store does.
#[derive(Debug, Default, Clone, PartialEq)]
struct Book {
    running: Option<Holder>,
    begun: usize,
    ended: usize,
}

impl Book {
    fn write(&mut self, effect: Option<Effect>) {
        let (begins, goes_on) = match effect {
            None => return,
            Some(Effect::Begin(holder)) => (Some(holder.clone()), Some(holder)),
            Some(Effect::Keep(holder)) => (None, Some(holder)),
            Some(Effect::End) => (None, None),
        };
        if self.running.is_some() && self.running != goes_on {
            self.running = None;
            self.ended += 1;
        }
        if let Some(holder) = begins
            && self.running.is_none()
        {
            self.running = Some(holder);
            self.begun += 1;
        }
    }
}

fn take(edge: Edge, before: &Node) -> (Node, Option<Effect>) {
    let after = apply(before, edge, Timestamp(1)).expect("the chart has it");
    let effect = effect_of(edge, before, &after);
    (after, effect)
}

#[test]
fn a_node_is_in_use_from_its_hand_over_on() {
    let (_, effect) = take(Edge::Validated, &node(State::Validating, "acme"));
    assert_eq!(effect, Some(Effect::Begin(holder("acme"))));
    let mut alone = node(State::Validating, "");
    alone.claim = Some(claim("", None));
    let (_, effect) = take(Edge::Validated, &alone);
    assert_eq!(effect, Some(Effect::Begin(Holder::default())));
}

#[test]
fn every_exit_from_active_but_a_reimage_ends_the_use_once() {
    let mut exits = 0;
    for row in CHART.iter().filter(|row| row.from.contains(&State::Active)) {
        let (_, effect) = take(row.edge, &node(State::Active, "acme"));
        let mut book = Book {
            running: Some(holder("acme")),
            ..Book::default()
        };
        book.write(effect);
        let goes_on = row.edge == Edge::Reimaged;
        assert_eq!(
            (book.running.is_some(), book.ended),
            (goes_on, usize::from(!goes_on)),
            "{}",
            row.edge
        );
        exits += 1;
    }
    assert_eq!(exits, 4, "reimaged, released, condemned, held");
}

#[test]
fn a_reimage_for_another_customer_ends_the_use_of_the_former() {
    let (_, effect) = take(Edge::Reimaged, &node(State::Active, "bolt"));
    let mut book = Book {
        running: Some(holder("acme")),
        ..Book::default()
    };
    book.write(effect);
    assert_eq!((book.running, book.ended), (None, 1));
}

proptest! {
    /// Any walk over the chart, whatever holder a reimage is for: the node is in use exactly while it is active, and after
    /// a reimage until it is active again or leaves that way.
    #[test]
    fn use_continues_while_active_and_through_a_reimage(
        steps in proptest::collection::vec((any::<proptest::sample::Index>(), any::<bool>()), 1..200)
    ) {
        let mut node = node(State::Available, "acme");
        let (mut book, mut wanted) = (Book::default(), false);
        for (pick, is_other) in steps {
            let open: Vec<Edge> = CHART.iter().filter(|r| r.from.contains(&node.state)).map(|r| r.edge).collect();
            let edge = open[pick.index(open.len())];
            let customer = if is_other { "bolt" } else { "acme" };
            let was = (node.state, book.clone());
            match edge {
                Edge::Claimed => node.claim = Some(claim(customer, Some("alpha"))),
                Edge::Reimaged if node.claim.is_some() => node.claim = Some(claim(customer, Some("alpha"))),
                // A node without a claim cannot be handed over.
                Edge::Started | Edge::Retried | Edge::Revalidate if node.claim.is_none() => continue,
                _ => {}
            }
            let (after, effect) = take(edge, &node);
            book.write(effect);
            wanted = match (edge, after.state) {
                (_, State::Active) => true,
                (Edge::Reimaged, _) => was.1.running == Some(Holder::of(after.claim.as_ref())),
                (_, State::Rebooting | State::Validating) if edge != Edge::Revalidate => wanted,
                _ => false,
            };
            prop_assert_eq!(book.running.is_some(), wanted, "{} from {}", edge, was.0);
            if book.running.is_some() {
                prop_assert_eq!(book.running.as_ref(), Some(&Holder::of(after.claim.as_ref())));
            }
            prop_assert_eq!(book.begun, book.ended + usize::from(wanted));
            node = after;
        }
    }

    /// Moments in order give seconds in order, also before 1970.
    #[test]
    fn seconds_keep_the_order(a in -5_000_000i64..5_000_000, b in -5_000_000i64..5_000_000) {
        let (a, b) = (a.min(b), a.max(b));
        prop_assert!(second_of(Timestamp(a)) <= second_of(Timestamp(b)));
        prop_assert!(second_of(Timestamp(a)) * 1_000_000 <= a);
        prop_assert!((second_of(Timestamp(a)) + 1) * 1_000_000 > a);
    }

    /// Compares with the rule, second by second.
    #[test]
    fn the_longest_in_use_are_reserved(uses in uses(), terms in terms(), from in 0i64..60, to in 0i64..60) {
        let shares = split(&uses, &terms, from, to);
        let mut wanted = vec![Share::default(); uses.len()];
        for second in from..to {
            let is_in = |from_s: i64, to_s: i64| from_s <= second && second < to_s;
            let covered: usize = terms.iter().filter(|t| is_in(t.from_s, t.to_s)).map(|t| t.nodes as usize).sum();
            let mut places: Vec<usize> = (0..uses.len()).filter(|p| is_in(uses[*p].from_s, uses[*p].to_s)).collect();
            places.sort_by_key(|p| (uses[*p].from_s, uses[*p].position));
            for (rank, place) in places.into_iter().enumerate() {
                if rank < covered {
                    wanted[place].reserved_s += 1;
                } else {
                    wanted[place].on_demand_s += 1;
                }
            }
        }
        prop_assert_eq!(shares, wanted);
    }

    /// For each interval, a period is the sum of its parts, wherever it is cut.
    #[test]
    fn parts_of_a_period_sum_to_it(
        uses in uses(), terms in terms(), from in 0i64..60, to in 0i64..60,
        cuts in proptest::collection::vec(0i64..60, 0..6),
    ) {
        let (from, to) = (from.min(to), from.max(to));
        let mut edges: Vec<i64> = cuts.into_iter().filter(|cut| (from..to).contains(cut)).collect();
        edges.extend([from, to]);
        edges.sort_unstable();
        let mut sum = vec![Share::default(); uses.len()];
        for pair in edges.windows(2) {
            for (sum, part) in sum.iter_mut().zip(split(&uses, &terms, pair[0], pair[1])) {
                *sum += part;
            }
        }
        let whole = split(&uses, &terms, from, to);
        let clipped = |one: &InUse| (one.to_s.min(to) - one.from_s.max(from)).max(0);
        prop_assert_eq!(
            whole.iter().map(|share| share.total_s()).sum::<i64>(),
            uses.iter().map(clipped).sum::<i64>()
        );
        prop_assert_eq!(sum, whole);
    }
}

fn uses() -> impl Strategy<Value = Vec<InUse>> {
    proptest::collection::vec((0i64..60, 0i64..30), 0..12).prop_map(|all| {
        let of = |(position, (from_s, long)): (usize, (i64, i64))| InUse {
            position: position as i64,
            from_s,
            to_s: from_s + long,
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn terms() -> impl Strategy<Value = Vec<Reserved>> {
    let one = (0u32..5, 0i64..60, 0i64..40).prop_map(|(nodes, from_s, long)| Reserved {
        nodes,
        from_s,
        to_s: from_s + long,
    });
    proptest::collection::vec(one, 0..4)
}

#[test]
fn a_month_of_a_hundred_thousand_nodes_is_split_at_once() {
    let uses: Vec<InUse> = (0..100_000)
        .map(|n| InUse {
            position: n,
            from_s: n,
            to_s: 2_678_400,
        })
        .collect();
    let term = Reserved {
        nodes: 60_000,
        from_s: 0,
        to_s: i64::MAX,
    };
    let shares = split(&uses, &[term], 200_000, 2_678_400);
    assert!(shares[..60_000].iter().all(|share| share.on_demand_s == 0));
    assert!(shares[60_000..].iter().all(|share| share.reserved_s == 0));
}
