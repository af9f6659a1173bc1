//! An upper bound on the number of nodes within the budgets, computed for each tree. The bound ends searches early.

use std::collections::BTreeMap;

use super::ledger::Trial;
use super::profile::Profile;
use super::spec::{DomainId, DomainSpec};

/// The minimum load of a node on a domain: with all feeds alive, and after the loss of each feed.
#[derive(Default)]
struct Takes {
    profiles: u32,
    watts: u64,
    /// By feed: the number of profiles with a load that rises at its loss, and the minimum of these risen loads.
    risen: BTreeMap<u32, (u32, u64)>,
}

/// An upper bound on the number of nodes that can be added from these items of (profile, number).
///
/// The supplies of a node lead through domains to a root, one path for each strip. With one path per node, the domains
/// form trees. A tree's bound is the lesser of its own limit and the sum of its branches' bounds.
pub(super) fn most(trial: &Trial, domains: &[DomainSpec], items: &[(&Profile, u32)]) -> u32 {
    let limits = limits(trial, items);
    let all: u32 = items.iter().map(|i| i.1).sum();
    let strips = items.iter().map(|i| i.0.strips.len()).max().unwrap_or(0);
    let by_strip = (0..strips).map(|strip| in_trees(domains, &limits, items, strip));
    let by_strip = by_strip.min().unwrap_or(all);
    by_strip.min(by_cooling(trial, items)).min(by_label(trial, items))
}

/// For each domain: the maximum number of further nodes.
fn limits(trial: &Trial, items: &[(&Profile, u32)]) -> BTreeMap<u32, u32> {
    let mut takes: BTreeMap<u32, Takes> = BTreeMap::new();
    for (profile, _) in items.iter().filter(|i| i.1 > 0) {
        for &(domain, watts) in &profile.loads {
            let known = takes.entry(domain).or_insert_with(|| Takes {
                watts,
                ..Takes::default()
            });
            known.profiles += 1;
            known.watts = watts.min(known.watts);
            for rise in profile.rises.iter().filter(|r| r.domain == domain) {
                let load = watts + rise.watts;
                let (profiles, least) = known.risen.entry(rise.feed).or_insert((0, load));
                *profiles += 1;
                *least = load.min(*least);
            }
        }
    }
    let limit = |(domain, takes): (u32, Takes)| {
        let risen = takes.risen.iter().map(|(&feed, &(profiles, load))| {
            // A node without a risen load takes its present load.
            (
                feed,
                if profiles == takes.profiles {
                    load.max(takes.watts)
                } else {
                    takes.watts
                },
            )
        });
        (domain, trial.domain_room(domain, takes.watts, risen))
    };
    takes.into_iter().map(limit).collect()
}

fn in_trees(domains: &[DomainSpec], limits: &BTreeMap<u32, u32>, items: &[(&Profile, u32)], strip: usize) -> u32 {
    let depth = |at: u32| {
        let up = |d: &DomainId| domains[d.at()].parent;
        std::iter::successors(Some(DomainId(at)), up).count()
    };
    let mut sums: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    let mut out = 0;
    for &(profile, nodes) in items {
        match profile.strips.get(strip).or(profile.strips.first()) {
            Some(&at) => *sums.entry((depth(at), at)).or_default() += nodes,
            None => out += nodes,
        }
    }
    // Deepest domains first, so that all branches of a domain come before it.
    while let Some(((depth, at), nodes)) = sums.pop_last() {
        let nodes = nodes.min(limits.get(&at).copied().unwrap_or(u32::MAX));
        match domains[at as usize].parent {
            Some(parent) => *sums.entry((depth - 1, parent.0)).or_default() += nodes,
            None => out += nodes,
        }
    }
    out
}

fn by_cooling(trial: &Trial, items: &[(&Profile, u32)]) -> u32 {
    let mut units: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let mut out = 0;
    for &(profile, nodes) in items.iter().filter(|i| i.1 > 0) {
        match profile.heat.first() {
            Some(&(unit, watts)) => {
                let known = units.entry(unit).or_insert((0, watts));
                *known = (known.0 + nodes, known.1.min(watts));
            }
            None => out += nodes,
        }
    }
    let bound = |(unit, (nodes, watts)): (u32, (u32, u64))| nodes.min(trial.cooling_room(unit, watts));
    // A node that heats several units counts for the first only. The others can only lower the number.
    out + units.into_iter().map(bound).sum::<u32>()
}

fn by_label(trial: &Trial, items: &[(&Profile, u32)]) -> u32 {
    let mut labels: BTreeMap<u32, u32> = BTreeMap::new();
    let mut out = 0;
    for &(profile, nodes) in items {
        match profile.labels.iter().find(|&&l| trial.label_room(l).is_some()) {
            Some(&label) => *labels.entry(label).or_default() += nodes,
            None => out += nodes,
        }
    }
    let bound = |(label, nodes): (u32, u32)| nodes.min(trial.label_room(label).unwrap_or(nodes));
    out + labels.into_iter().map(bound).sum::<u32>()
}
