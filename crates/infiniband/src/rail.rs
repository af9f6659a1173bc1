//! The rails of adapters, by agreement of nodes.
//!
//! The name of one adapter shows no rail: `mlx5_3` may serve any GPU, and `ibp24s0` is only a place. Nodes of one kind
//! have the same adapters at the same places. So the rail of an adapter is its position among the adapters of its kind,
//! in the order of [`adapter::in_order`]. Where nodes do not agree, the rails are unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::adapter::{self, Scheme};

/// Kinds with which a kind is compared at most.
const MAX_COMPARED: usize = 256;

/// The rails of a node's adapters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeRails<'a> {
    /// The rail of each adapter, from 0, in the order of the given names. `None`: unknown.
    ///
    /// With [`Doubt::Renumbered`] these are the rails that the names show if the doubt is unfounded.
    pub rails: Vec<Option<u16>>,
    /// The adapters that the other nodes of this kind have and this node has not, in the order of the rails.
    pub lacking: Vec<&'a str>,
    /// Why the rails are not certain. `None`: they are.
    pub doubt: Option<Doubt>,
}

impl NodeRails<'_> {
    /// Whether every adapter has a rail, and no doubt is left.
    pub fn are_known(&self) -> bool {
        self.doubt.is_none() && self.rails.iter().all(Option::is_some)
    }

    fn unknown(adapters: usize, doubt: Doubt) -> Self {
        Self {
            rails: vec![None; adapters],
            lacking: Vec::new(),
            doubt: Some(doubt),
        }
    }
}

/// Why the rails of a node are not certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// An adapter is named by a GUID, which shows no place.
    Guid,
    /// Two adapters have the same name.
    Twice,
    /// No other node has adapters with these names, or as many of them in the same order by PCI address.
    Alone,
    /// The adapters fit nodes of several kinds, or few of the adapters of a larger kind, with different rails.
    Several,
    /// One adapter, or the order, is another one than in nodes with as many adapters.
    Elsewhere,
    /// An adapter is missing or added, and the kernel may have numbered the others anew.
    Renumbered,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guid => "an adapter is named by its GUID, which shows no place",
            Self::Twice => "two adapters have the same name",
            Self::Alone => "no other node has adapters with these names",
            Self::Several => "the adapters fit nodes of several kinds",
            Self::Elsewhere => "an adapter is at another place than in nodes with as many adapters",
            Self::Renumbered => {
                "the node has not as many adapters as others, and the kernel may have numbered them anew"
            }
        })
    }
}

/// The rails of nodes, given the names of each node's adapters. The result has the order of the nodes.
///
/// Nodes of one kind have the same set of names. A node that lacks less than half of the names of a kind belongs to the
/// kind. A node with other names, all of them PCI addresses, has the rails in the order of these addresses, if another
/// node has as many adapters named in this way and no name that both have contradicts. In any other case the rails are
/// unknown. A single node with several adapters has no other to contradict: its rails are in the order of its names.
///
/// Takes time in proportion to n log n for n adapters, as long as there are few kinds of nodes.
pub fn agree<'a>(nodes: &[Vec<&'a str>]) -> Vec<NodeRails<'a>> {
    let mut answers: Vec<Option<NodeRails<'a>>> = vec![None; nodes.len()];
    let mut sets: BTreeMap<Vec<&'a str>, Vec<usize>> = BTreeMap::new();
    for (at, names) in nodes.iter().enumerate() {
        let mut set = names.clone();
        set.sort_unstable();
        sets.entry(set).or_default().push(at);
    }
    sets.retain(|set, of_set| {
        let doubt = obstacle(set);
        if let Some(doubt) = doubt {
            for node in of_set.iter() {
                answers[*node] = Some(NodeRails::unknown(set.len(), doubt));
            }
        }
        doubt.is_none()
    });
    let several = nodes.iter().filter(|names| names.len() > 1).count();
    let kinds = Kinds::of(sets);
    for (kind, at) in kinds.list.iter().zip(0..) {
        let own = kinds.ranks(at, several == 1);
        for part in &kind.parts {
            for node in &part.nodes {
                answers[*node] = Some(answer(&nodes[*node], kind, &own, part));
            }
        }
    }
    for node in kinds.several {
        answers[node] = Some(NodeRails::unknown(nodes[node].len(), Doubt::Several));
    }
    answers.into_iter().map(Option::unwrap_or_default).collect()
}

/// Why sorted names show no rails, whatever other nodes have.
fn obstacle(sorted: &[&str]) -> Option<Doubt> {
    let is_guid = |name: &&str| adapter::place(name).is_some_and(|place| place.scheme == Scheme::Guid);
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        Some(Doubt::Twice)
    } else {
        sorted.iter().any(is_guid).then_some(Doubt::Guid)
    }
}

/// The rails of a kind's names, by position, or why there are none.
type Ranks = Result<Vec<Option<u16>>, Doubt>;

fn answer<'a>(names: &[&'a str], kind: &Kind<'a>, ranks: &Ranks, part: &Part<'a>) -> NodeRails<'a> {
    let ranks = match ranks {
        Ok(ranks) => ranks,
        Err(doubt) => return NodeRails::unknown(names.len(), *doubt),
    };
    let rail = |name: &&str| ranks[kind.position(name)?];
    NodeRails {
        rails: names.iter().map(rail).collect(),
        lacking: part.lacking.clone(),
        doubt: part.is_renumbered.then_some(Doubt::Renumbered),
    }
}

/// Nodes with the same set of names.
struct Part<'a> {
    nodes: Vec<usize>,
    /// Names of the kind that these nodes have not.
    lacking: Vec<&'a str>,
    is_renumbered: bool,
}

/// Nodes with a set of names or most of them.
struct Kind<'a> {
    /// In the order of the rails.
    names: Vec<&'a str>,
    positions: BTreeMap<&'a str, usize>,
    parts: Vec<Part<'a>>,
}

impl<'a> Kind<'a> {
    fn support(&self) -> usize {
        self.parts.iter().map(|part| part.nodes.len()).sum()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    fn is_path(&self) -> bool {
        let is_path = |name: &&str| adapter::place(name).is_some_and(|place| place.scheme == Scheme::Path);
        self.names.iter().all(is_path)
    }

    /// Whether the last name is a number of the kernel. Where an adapter is gone, this one is.
    fn is_counted(&self) -> bool {
        let last = self.names.last().and_then(|name| adapter::place(name));
        last.is_some_and(|place| matches!(place.scheme, Scheme::Kernel | Scheme::Bond))
    }

    /// The positions of a smaller set, if less than half of the kind is not in it.
    fn positions_of(&self, set: &[&str]) -> Option<Vec<usize>> {
        if set.len() >= self.names.len() || set.len() * 2 <= self.names.len() {
            return None;
        }
        set.iter().map(|name| self.position(name)).collect()
    }

    /// Adds nodes that have only the names at these positions.
    fn add(&mut self, positions: &[usize], nodes: Vec<usize>) {
        let has: BTreeSet<usize> = positions.iter().copied().collect();
        let lacking = (0..self.names.len()).filter(|at| !has.contains(at));
        let part = Part {
            nodes,
            lacking: lacking.map(|at| self.names[at]).collect(),
            is_renumbered: self.is_counted() && !has.contains(&(self.names.len() - 1)),
        };
        self.parts.push(part);
    }
}

struct Kinds<'a> {
    list: Vec<Kind<'a>>,
    /// Kinds with a name.
    with: BTreeMap<&'a str, Vec<usize>>,
    /// Nodes that fit several kinds.
    several: Vec<usize>,
}

impl<'a> Kinds<'a> {
    /// Takes sets of names. The largest come first, so that a set that lacks names finds the one that has them.
    fn of(sets: BTreeMap<Vec<&'a str>, Vec<usize>>) -> Self {
        let mut sets: Vec<(Vec<&'a str>, Vec<usize>)> = sets.into_iter().collect();
        sets.sort_by_key(|(names, nodes)| (usize::MAX - names.len(), usize::MAX - nodes.len()));
        let mut kinds = Self {
            list: Vec::new(),
            with: BTreeMap::new(),
            several: Vec::new(),
        };
        for (names, nodes) in sets {
            // Few nodes with an adapter more than many others are the exception, not their kind.
            let fits = |kind: &&usize| kinds.list[**kind].support() * 2 > nodes.len();
            let with = names.first().and_then(|name| kinds.with.get(name));
            let candidates = with.into_iter().flatten().take(MAX_COMPARED).filter(fits);
            let found: Vec<(usize, Vec<usize>)> = candidates
                .filter_map(|kind| Some((*kind, kinds.list[*kind].positions_of(&names)?)))
                .collect();
            match found.split_first() {
                None => kinds.new_kind(names, nodes),
                Some(((kind, positions), others)) => {
                    if others.iter().all(|(_, other)| other == positions) {
                        kinds.list[*kind].add(positions, nodes);
                    } else {
                        kinds.several.extend(nodes);
                    }
                }
            }
        }
        kinds
    }

    fn new_kind(&mut self, mut names: Vec<&'a str>, nodes: Vec<usize>) {
        names.sort_by(|a, b| adapter::in_order(a, b));
        for name in &names {
            self.with.entry(name).or_default().push(self.list.len());
        }
        let whole = Part {
            nodes,
            lacking: Vec::new(),
            is_renumbered: false,
        };
        self.list.push(Kind {
            positions: names.iter().copied().zip(0..).collect(),
            names,
            parts: vec![whole],
        });
    }

    /// The rails of a kind. With `only`, no other node has several adapters.
    fn ranks(&self, at: usize, only: bool) -> Ranks {
        let kind = &self.list[at];
        let in_order = || (0..kind.names.len()).map(|rank| u16::try_from(rank).ok()).collect();
        if let Some(ranks) = self.of_smaller(kind) {
            return ranks;
        }
        if self.is_in_larger(at) {
            return Err(Doubt::Several);
        }
        if kind.support() > 1 || (only && kind.names.len() > 1) {
            return Ok(in_order());
        }
        let others = self.list.iter().enumerate().filter(|(other, there)| {
            *other != at && there.names.len() == kind.names.len() && kind.names.len() > 1 && there.is_path()
        });
        let mut others: Vec<&Kind<'_>> = others.map(|(_, other)| other).take(MAX_COMPARED).collect();
        // Nodes that agree among each other count, and single ones only without these.
        if others.iter().any(|other| other.support() > 1) {
            others.retain(|other| other.support() > 1);
        }
        if !kind.is_path() || others.is_empty() {
            return Err(Doubt::Alone);
        }
        let alike = |other: &&Kind<'_>| {
            let mut shared = 0;
            let same_places = kind.names.iter().enumerate().all(|(rank, name)| {
                let there = other.position(name);
                shared += usize::from(there.is_some());
                there.is_none_or(|there| there == rank)
            });
            // Where a single adapter differs, another adapter may be in its place.
            same_places && shared + 1 != kind.names.len()
        };
        if others.iter().all(alike) {
            Ok(in_order())
        } else {
            Err(Doubt::Elsewhere)
        }
    }

    /// Whether all names are at other positions of a kind with at least twice as many names. Then the nodes may lack most
    /// of its adapters, or may be another kind.
    fn is_in_larger(&self, at: usize) -> bool {
        let names = &self.list[at].names;
        let with = names.first().and_then(|name| self.with.get(name));
        let larger = with
            .into_iter()
            .flatten()
            .take(MAX_COMPARED)
            .map(|other| &self.list[*other]);
        let mut positions = larger
            .filter(|other| other.names.len() >= names.len() * 2)
            .filter_map(|other| {
                let positions = names.iter().map(|name| other.position(name));
                positions.collect::<Option<Vec<usize>>>()
            });
        positions.any(|positions| positions.iter().enumerate().any(|(rank, position)| rank != *position))
    }

    /// The rails of few nodes that have all names of a kind of many nodes, and others. These have no rail.
    fn of_smaller(&self, kind: &Kind<'a>) -> Option<Ranks> {
        let mut near: BTreeSet<usize> = BTreeSet::new();
        near.extend(kind.names.iter().filter_map(|name| self.with.get(name)).flatten());
        let smaller = near.into_iter().take(MAX_COMPARED).map(|other| &self.list[other]);
        let is_many = |other: &&Kind<'_>| other.support() >= kind.support() * 2;
        let mut smaller = smaller.filter(|other| is_many(other) && kind.positions_of(&other.names).is_some());
        let first = smaller.next()?;
        if smaller.next().is_some() {
            return Some(Err(Doubt::Several));
        }
        let rank = |name: &&str| first.position(name).and_then(|rank| u16::try_from(rank).ok());
        let ranks: Vec<Option<u16>> = kind.names.iter().map(rank).collect();
        let added_last = ranks.last().is_none_or(Option::is_none);
        Some(match kind.is_counted() && added_last {
            true => Err(Doubt::Renumbered),
            false => Ok(ranks),
        })
    }
}
