//! Splits use into the part under a reserved term and the rest.
//!
//! In every second, the terms of that second cover a number of the nodes that a customer uses of one SKU. Those that have
//! been in use longest are covered first. So each interval has a part of its own, the parts of clusters can be summed, and
//! a period gives the same result as the sum of its parts, however it is cut.

use std::collections::BTreeSet;

/// A node in use, all of one customer and SKU: seconds `[from_s, to_s)`, not clipped to the period.
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
    /// Nodes.
    pub nodes: u32,
    /// First second.
    pub from_s: i64,
    /// The second after the last one.
    pub to_s: i64,
}

/// Node-seconds of one interval within a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Seconds under a term.
    pub reserved_s: i64,
    /// Seconds under no term.
    pub on_demand_s: i64,
}

impl Share {
    /// The sum of both.
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

/// An event of a second. The order within one second: leaving nodes make room before new ones are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SweepEvent {
    UseEnds(usize),
    UseBegins(usize),
    TermChange(i64),
}

/// The longest in use sorts first.
type Rank = (i64, i64, usize);

#[derive(Default)]
struct Sweep {
    covered: i64,
    reserved: BTreeSet<Rank>,
    waiting: BTreeSet<Rank>,
    /// The start of the present cover of each use.
    since_s: Vec<i64>,
    shares: Vec<Share>,
}

impl Sweep {
    fn reserve(&mut self, rank: Rank, now_s: i64) {
        self.since_s[rank.2] = now_s;
        self.reserved.insert(rank);
    }

    fn settle(&mut self, rank: Rank, now_s: i64) {
        self.shares[rank.2].reserved_s += now_s - self.since_s[rank.2];
    }

    /// Covers the longest in use, up to the terms' number of nodes.
    fn balance(&mut self, now_s: i64) {
        let room = usize::try_from(self.covered).unwrap_or(0);
        while self.reserved.len() < room
            && let Some(first) = self.waiting.pop_first()
        {
            self.reserve(first, now_s);
        }
        while self.reserved.len() > room
            && let Some(last) = self.reserved.pop_last()
        {
            self.settle(last, now_s);
            self.waiting.insert(last);
        }
        // A new arrival may have been in use for longer than a covered node: the period began meanwhile.
        while let (Some(last), Some(first)) = (self.reserved.last().copied(), self.waiting.first().copied())
            && first < last
        {
            self.reserved.remove(&last);
            self.settle(last, now_s);
            self.waiting.remove(&first);
            self.waiting.insert(last);
            self.reserve(first, now_s);
        }
    }
}

/// The shares of `uses` in the seconds `[from_s, to_s)`, in their order. All must be of one customer and SKU, and every use
/// within the period must be given.
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
                    sweep.waiting.remove(&rank(place));
                }
            }
            SweepEvent::UseBegins(place) => {
                sweep.waiting.insert(rank(place));
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
