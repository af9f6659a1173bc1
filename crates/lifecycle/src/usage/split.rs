//! Splits use into the part under a reserved term and the rest.
//!
//! In every second, the terms of a customer cover a number of nodes of one SKU. Of the nodes that the customer uses in this
//! second, those that have been in use longest are covered first. So the covered seconds of each node are known, the seconds
//! of a cluster's nodes can be summed, and a period gives the same result as the sum of its parts, however it is cut.

use std::collections::BTreeSet;

/// The use of one node in the seconds `[from_s, to_s)`, which may lie partly outside of the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// Orders uses that began in the same second: the smaller comes first. Positions are unique.
    pub position: i64,
    /// First second.
    pub from_s: i64,
    /// The second after the last one.
    pub to_s: i64,
}

/// A reserved term of that customer and SKU: `nodes` nodes in the seconds `[from_s, to_s)`. Terms of the same second add
/// up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// Number of nodes that the term covers.
    pub nodes: u32,
    /// First second.
    pub from_s: i64,
    /// The second after the last one.
    pub to_s: i64,
}

/// The seconds of one use within a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Seconds under a term.
    pub reserved_s: i64,
    /// Seconds under no term.
    pub on_demand_s: i64,
}

impl Share {
    /// Seconds of the use within the period.
    #[must_use]
    pub fn total_s(self) -> i64 {
        self.reserved_s + self.on_demand_s
    }
}

impl std::ops::AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.reserved_s += other.reserved_s;
        self.on_demand_s += other.on_demand_s;
    }
}

/// What happens in a second, in the order in which it is counted: nodes that leave make room for nodes that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SweepEvent {
    UseEnds(usize),
    UseBegins(usize),
    /// The change of the number of covered nodes.
    TermChange(i64),
}

/// The first second of a use, its position, and its index. The longest in use sorts first.
type Rank = (i64, i64, usize);

/// The state at one second, while the events of a period are counted in order.
#[derive(Default)]
struct Sweep {
    /// Number of nodes that the terms cover now.
    covered: i64,
    /// The uses that are covered now. They all sort before those of `on_demand`: a new use is the shortest in use.
    reserved: BTreeSet<Rank>,
    on_demand: BTreeSet<Rank>,
    /// By use: the second since which it is covered.
    since_s: Vec<i64>,
    shares: Vec<Share>,
}

impl Sweep {
    fn reserve(&mut self, rank: Rank, now_s: i64) {
        self.since_s[rank.2] = now_s;
        self.reserved.insert(rank);
    }

    /// Adds the seconds of a use that is no longer covered.
    fn settle(&mut self, rank: Rank, now_s: i64) {
        self.shares[rank.2].reserved_s += now_s - self.since_s[rank.2];
    }

    /// Covers as many uses as the terms allow, the longest in use first.
    fn balance(&mut self, now_s: i64) {
        let room = usize::try_from(self.covered).unwrap_or(0);
        while self.reserved.len() < room
            && let Some(first) = self.on_demand.pop_first()
        {
            self.reserve(first, now_s);
        }
        while self.reserved.len() > room
            && let Some(last) = self.reserved.pop_last()
        {
            self.settle(last, now_s);
            self.on_demand.insert(last);
        }
    }
}

/// The shares of `uses` in the seconds `[from_s, to_s)`, in their order. `uses` are all uses of one customer and SKU in the
/// period, and `terms` all terms of this customer and SKU.
#[must_use]
pub fn split(uses: &[InUse], terms: &[Reserved], from_s: i64, to_s: i64) -> Vec<Share> {
    let clip = |from: i64, to: i64| (from.clamp(from_s, to_s.max(from_s)), to.clamp(from_s, to_s.max(from_s)));
    let mut sweep = Sweep {
        since_s: vec![0; uses.len()],
        shares: vec![Share::default(); uses.len()],
        ..Sweep::default()
    };
    let mut events: Vec<(i64, SweepEvent)> = Vec::new();
    for (place, one) in uses.iter().enumerate() {
        let (from, to) = clip(one.from_s, one.to_s);
        if from < to {
            events.extend([(from, SweepEvent::UseBegins(place)), (to, SweepEvent::UseEnds(place))]);
        }
    }
    for term in terms {
        let (from, to) = clip(term.from_s, term.to_s);
        if from < to {
            let nodes = i64::from(term.nodes);
            events.extend([
                (from, SweepEvent::TermChange(nodes)),
                (to, SweepEvent::TermChange(-nodes)),
            ]);
        }
    }
    events.sort_unstable();
    let rank = |place: usize| (uses[place].from_s, uses[place].position, place);
    let mut events = events.into_iter().peekable();
    while let Some((now_s, event)) = events.next() {
        match event {
            SweepEvent::UseEnds(place) => {
                if sweep.reserved.remove(&rank(place)) {
                    sweep.settle(rank(place), now_s);
                } else {
                    sweep.on_demand.remove(&rank(place));
                }
            }
            SweepEvent::UseBegins(place) => {
                sweep.on_demand.insert(rank(place));
            }
            SweepEvent::TermChange(nodes) => sweep.covered += nodes,
        }
        if events.peek().is_none_or(|(next_s, _)| *next_s > now_s) {
            sweep.balance(now_s);
        }
    }
    for (share, one) in sweep.shares.iter_mut().zip(uses) {
        let (from, to) = clip(one.from_s, one.to_s);
        share.on_demand_s = to.saturating_sub(from).max(0) - share.reserved_s;
    }
    sweep.shares
}
