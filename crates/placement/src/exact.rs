//! The exact search: all sets of even units and all odd units, the fewest units first.

use super::bound;
use super::hall::Hall;
use super::links::Mask;
use super::pack::{Packed, pack};
use super::request::Placement;
use super::shape::{self, Even};
use super::spec::MOST;
use super::view::{Effort, View};

/// Searches placements with at least `from` and fewer than `below` units. `None`: there is none, or the effort ran out.
pub(super) fn search(view: &View, effort: &mut Effort, from: usize, below: usize) -> Option<Placement> {
    let mut units: Vec<u32> = (0..view.caps.len() as u32)
        .filter(|&u| view.caps[u as usize] > 0)
        .collect();
    let pod_and_links = |u: u32| (view.hall.units[u as usize].pod, view.hall.units[u as usize].counted);
    units.sort_by_key(|&u| (std::cmp::Reverse(view.caps[u as usize]), pod_and_links(u), u));
    // A placement on more units shows that the budgets suffice.
    let some_known = below <= units.len();
    let below = below.min(units.len() + 1);
    let binds = may_bind(view, &units);
    if binds && !some_known {
        let share = effort.steps / 4;
        let mut budgets = Effort::new(share);
        if at_best(view, &units, &mut budgets).bound < view.size {
            return None;
        }
        effort.steps -= share - budgets.steps;
    }
    let alike = classes(view, &units, binds);
    let mut search = Search {
        view,
        effort,
        chosen: vec![false; units.len()],
        units,
        alike,
        count: 0,
        found: None,
    };
    for count in from.max(1)..below {
        search.count = count;
        let more = search.search_from(&Even::none(), 0);
        if search.found.is_some() || more.is_none() {
            break;
        }
    }
    search.found
}

struct Search<'v, 'a> {
    view: &'v View<'a>,
    effort: &'v mut Effort,
    /// Biggest units first.
    units: Vec<u32>,
    /// For each unit, the index of the next one that differs.
    alike: Vec<usize>,
    /// Whether each unit is an even one.
    chosen: Vec<bool>,
    count: usize,
    found: Option<Placement>,
}

/// For each unit, the index of the next one that differs in a relevant property. If budgets may bind, all units differ.
fn classes(view: &View, units: &[u32], binds: bool) -> Vec<usize> {
    let key = |u: u32| {
        let unit = &view.hall.units[u as usize];
        (unit.pod, unit.counted, view.caps[u as usize])
    };
    let next = |i: usize| {
        let same = |j: &usize| !binds && key(units[*j]) == key(units[i]);
        (i + 1..units.len()).take_while(same).last().map_or(i + 1, |j| j + 1)
    };
    (0..units.len()).map(next).collect()
}

/// The most nodes of these units within the budgets, regardless of links.
pub(super) fn at_best(view: &View, units: &[u32], effort: &mut Effort) -> Packed {
    let groups = units.iter().flat_map(|&unit| view.groups(unit));
    let items: Vec<_> = groups.map(|(profile, hosts)| (profile, hosts.count_ones())).collect();
    let trial = view.trial();
    let kept = view.kept_nodes();
    let most = items.iter().map(|item| item.1).collect();
    let mut packed = pack(most, trial.rows(&items), view.size - kept, effort);
    if !packed.whole {
        packed.bound = packed.bound.min(bound::most(&trial, &view.hall.spec.domains, &items));
    }
    packed.bound += kept;
    packed.found += kept;
    packed
}

/// Whether some budget does not have room for all admitted nodes.
fn may_bind(view: &View, units: &[u32]) -> bool {
    if !view.is_tight() {
        return false;
    }
    let mut trial = view.trial();
    for &unit in units {
        for (profile, hosts) in view.groups(unit) {
            if trial.room(profile).nodes < hosts.count_ones() {
                return true;
            }
            trial.add(profile, hosts.count_ones());
        }
    }
    false
}

impl Search<'_, '_> {
    /// `None`: the search was cut short.
    fn search_from(&mut self, even: &Even, at: usize) -> Option<()> {
        self.effort.step(0)?;
        if even.units.len() + 1 == self.count {
            return self.finish(even);
        }
        let mut i = at;
        while i < self.units.len() {
            self.effort.step(self.units.len())?;
            if !self.may_fit(even, i) {
                break;
            }
            let next = even.with(self.view.hall, self.units[i]);
            if next.common != 0 {
                self.chosen[i] = true;
                self.search_from(&next, i + 1)?;
                self.chosen[i] = false;
                if self.found.is_some() {
                    return Some(());
                }
            }
            // Units like the rejected one are skipped.
            i = self.alike[i];
        }
        Some(())
    }

    fn finish(&mut self, even: &Even) -> Option<()> {
        let view = self.view;
        let of_even: u32 = even.units.iter().map(|&unit| view.caps[unit as usize]).sum();
        let missing = view.size.saturating_sub(of_even);
        // Units that are too small come last. The first of them gives the most.
        let big_enough = self.units.partition_point(|&unit| view.caps[unit as usize] >= missing);
        for i in 0..self.units.len().min(big_enough + 1) {
            let odd = self.units[i];
            // Of units that are alike, the first that is no even one stands for all.
            if self.chosen[i] || (i > 0 && self.alike[i - 1] > i && !self.chosen[i - 1]) {
                continue;
            }
            self.effort.step(0)?;
            if !even.units.is_empty() {
                let most = shape::most(view, even, odd).min(view.size);
                self.effort.reached = self.effort.reached.max(most);
            }
            if i == big_enough {
                break;
            }
            self.found = shape::on_units(self.view, self.effort, even, odd);
            if self.found.is_some() {
                return Some(());
            }
            if self.effort.cut {
                return None;
            }
        }
        Some(())
    }

    /// Whether the chosen units and those from `at` on can give enough nodes: each as many as its common links allow,
    /// and one unit all it has.
    fn may_fit(&self, even: &Even, at: usize) -> bool {
        let view = self.view;
        let hall: &Hall = view.hall;
        // The nodes of a unit on these links, and the further nodes that it has.
        let of = |unit: u32, links: Mask| {
            let cap = view.caps[unit as usize];
            let gives = view.request.bandwidth.nodes(links.count_ones()).min(cap);
            (gives, cap - gives)
        };
        let fabric = even.units.first().map(|&first| hall.fabric_of(first));
        let counted = |unit: &u32| match fabric.is_none_or(|fabric| hall.fabric_of(*unit) == fabric) {
            true => of(*unit, even.common & hall.units[*unit as usize].counted),
            false => (0, 0),
        };
        let (mut sure, mut widest) = (0, 0);
        for &unit in &even.units {
            let (gives, more) = of(unit, even.common);
            sure += gives;
            // Any one unit may be the big one.
            widest = widest.max(more);
        }
        // The odd unit may be an earlier unit.
        let mut odd = None;
        let earlier = self.units[..at]
            .iter()
            .zip(&self.chosen)
            .filter(|(_, chosen)| !**chosen);
        for (gives, more) in earlier.map(|(unit, _)| counted(unit)) {
            odd = odd.max(Some(gives));
            widest = widest.max(more);
        }
        // Number of units by the nodes that each gives.
        let mut numbers = [0usize; MOST + 1];
        for (gives, more) in self.units[at..].iter().map(counted) {
            numbers[(gives as usize).min(MOST)] += 1;
            widest = widest.max(more);
        }
        let wanted = self.count - even.units.len();
        let best = best_of(&numbers, wanted);
        let with_odd = odd.map_or(0, |odd| odd + best_of(&numbers, wanted - 1));
        sure + best.max(with_odd) + widest >= view.size
    }
}

/// The nodes of the `wanted` units that give the most. `numbers[n]` units give `n` nodes.
fn best_of(numbers: &[usize; MOST + 1], wanted: usize) -> u32 {
    let (mut left, mut sum) = (wanted, 0);
    for (gives, &units) in numbers.iter().enumerate().rev() {
        let taken = units.min(left);
        sum += taken * gives;
        left -= taken;
        if left == 0 {
            break;
        }
    }
    sum as u32
}
