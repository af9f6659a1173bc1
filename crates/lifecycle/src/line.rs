//! The order of the line for a resource.

use std::collections::BTreeMap;

use crate::ids::{CustomerId, NodeId};
use crate::time::Timestamp;

/// The first in line of one customer: its node that has waited longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueHead {
    pub node: NodeId,
    /// The customer that the node works for; empty: no customer, as while it is inspected.
    pub customer: CustomerId,
    /// An operator requested the power-on of this very machine.
    pub is_urgent: bool,
    /// The number of this customer's last turn in this line; 0: no turn yet.
    pub last_turn: i64,
    /// The start of the wait.
    pub asked_at: Timestamp,
}

/// The next in line: an operator's request first; else the node of the customer with the fewest permits of this resource;
/// else the node of the customer with the oldest last turn; else the node that has waited longest. `taken` counts the
/// permits of each customer.
///
/// Every node gets its turn: permits return within the deadline of their effect, so a customer's count falls to zero while
/// its nodes wait, and among customers with no permit each gets a turn before any gets a second. Without the turns, a
/// resource with one place would always serve the customer with the most requests.
#[must_use]
pub fn next<'a>(heads: &'a [QueueHead], taken: &BTreeMap<CustomerId, u32>) -> Option<&'a QueueHead> {
    heads.iter().min_by_key(|head| {
        let has = taken.get(&head.customer).copied().unwrap_or(0);
        (!head.is_urgent, has, head.last_turn, head.asked_at, &head.node)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn head(node: &str, customer: &str, asked_at: i64) -> QueueHead {
        QueueHead {
            node: NodeId::stored(node),
            customer: CustomerId::stored(customer),
            is_urgent: false,
            last_turn: 0,
            asked_at: Timestamp(asked_at),
        }
    }

    #[test]
    fn the_customer_with_fewest_permits_goes_first() {
        let mut heads = vec![head("a1", "a", 1), head("b1", "b", 5), head("c1", "c", 3)];
        let taken = |a, b| BTreeMap::from([("a".into(), a), ("b".into(), b)]);
        let first = |heads: &[QueueHead], taken: &BTreeMap<_, _>| next(heads, taken).map(|head| head.node.to_string());
        assert_eq!(first(&heads, &taken(0, 0)).as_deref(), Some("a1"));
        heads[0].last_turn = 7;
        assert_eq!(first(&heads, &taken(0, 0)).as_deref(), Some("c1"));
        assert_eq!(first(&heads, &taken(2, 1)).as_deref(), Some("c1"));
        heads.pop();
        assert_eq!(first(&heads, &taken(2, 1)).as_deref(), Some("b1"));
        heads[0].is_urgent = true;
        assert_eq!(first(&heads, &taken(2, 1)).as_deref(), Some("a1"));
        assert_eq!(first(&[], &taken(0, 0)), None);
    }

    /// A line with room for `room` permits, where each permit is held for some turns.
    #[derive(Default)]
    struct Line {
        room: usize,
        waiting: BTreeMap<CustomerId, VecDeque<QueueHead>>,
        /// Customer, and the turn in which it gives the permit back.
        taken: Vec<(CustomerId, i64)>,
        turns: BTreeMap<CustomerId, i64>,
        order: Vec<NodeId>,
    }

    impl Line {
        fn join(&mut self, head: QueueHead) {
            self.waiting.entry(head.customer.clone()).or_default().push_back(head);
        }

        fn turn(&mut self, now: i64, kept: i64) {
            self.taken.retain(|(_, until)| *until > now);
            while self.taken.len() < self.room {
                let firsts = self.waiting.values().filter_map(|line| line.front().cloned());
                let heads: Vec<QueueHead> = firsts
                    .map(|head| QueueHead {
                        last_turn: self.turns.get(&head.customer).copied().unwrap_or_default(),
                        ..head
                    })
                    .collect();
                let mut has = BTreeMap::new();
                for (customer, _) in &self.taken {
                    *has.entry(customer.clone()).or_insert(0) += 1;
                }
                let Some(head) = next(&heads, &has) else { return };
                self.waiting.get_mut(&head.customer).unwrap().pop_front();
                self.taken.push((head.customer.clone(), now + kept));
                self.order.push(head.node.clone());
                let number = i64::try_from(self.order.len()).unwrap();
                self.turns.insert(head.customer.clone(), number);
            }
        }

        fn place(&self, node: &str) -> Option<usize> {
            self.order.iter().position(|n| *n == *node)
        }
    }

    proptest! {
        #[test]
        fn no_node_starves_however_many_others_come(
            room in 1..5_usize,
            kept in 1..6_i64,
            customers in 1..5_usize,
            rush in 1..4_usize,
        ) {
            const JOINS: i64 = 5;
            let mut line = Line { room, ..Line::default() };
            let (mut before, mut own) = (0, 0);
            for turn in 0..3000_i64 {
                // Other nodes come faster than the line serves them, for ever.
                for n in 0..rush * room {
                    line.join(head(&format!("{turn}-{n}"), &format!("c{}", n % customers), turn));
                }
                if turn == JOINS {
                    own = line.waiting["c0"].len();
                    line.join(head("one", "small", turn));
                    line.join(head("another", "c0", turn));
                    before = line.order.len();
                }
                line.turn(turn, kept);
                if let (Some(_), Some(_)) = (line.place("one"), line.place("another")) {
                    break;
                }
            }
            // Among customers with no permit, each has a turn before any has another; a node behind others of its own
            // customer waits for those too.
            let (one, another) = (line.place("one"), line.place("another"));
            prop_assert!(one.is_some_and(|at| at <= before + customers), "{one:?} of {before}");
            let share = (own + 1 + room) * (customers + 1);
            prop_assert!(another.is_some_and(|at| at <= before + share), "{another:?} of {before} and {share}");
        }

        #[test]
        fn a_customer_with_few_nodes_is_served_despite_an_earlier_one_with_many(
            room in 1..9_usize,
            many in 10..60_usize,
            few in 1..9_usize,
        ) {
            let mut line = Line { room, ..Line::default() };
            (0..many).for_each(|n| line.join(head(&format!("m{n:03}"), "many", 0)));
            (0..few).for_each(|n| line.join(head(&format!("f{n:03}"), "few", 1)));
            for turn in 0..200 {
                line.turn(turn, 1);
            }
            prop_assert_eq!(line.order.len(), many + few);
            // Half of the places belong to the few customers as long as they want them.
            let last = line.order.iter().rposition(|node| node.as_str().starts_with('f')).unwrap();
            prop_assert!(last <= 2 * few, "{:?}", line.order);
        }
    }
}
