//! The exact search: all sets of even units and all odd units, the fewest units first.

use super::bound;
use super::hall::Hall;
use super::links::Mask;
use super::request::Placement;
use super::shape::{self, Even};
use super::view::{Effort, View};

/// Searches placements with at least `from` and fewer than `below` units. `None`: there is none, or the effort ran out.
pub(super) fn search(view: &View, effort: &mut Effort, from: usize, below: usize) -> Option<Placement> {
    let mut units: Vec<u32> = (0..view.caps.len() as u32)
        .filter(|&u| view.caps[u as usize] > 0)
        .collect();
    let pod_and_links = |u: u32| (view.hall.units[u as usize].pod, view.hall.units[u as usize].counted);
    units.sort_by_key(|&u| (std::cmp::Reverse(view.caps[u as usize]), pod_and_links(u), u));
    let below = below.min(units.len() + 1);
    let binds = may_bind(view, &units);
    if binds && !enough_at_best(view, &units) {
        return None;
    }
    let alike = classes(view, &units, binds);
    let mut search = Search {
        view,
        effort,
        units,
        alike,
        count: 0,
        found: None,
    };
    for count in from.max(1)..below {
        search.count = count;
        let more = search.search_from(&Even::new(view.hall), 0);
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

/// Whether the budgets may allow enough nodes, regardless of links.
fn enough_at_best(view: &View, units: &[u32]) -> bool {
    let groups = units.iter().flat_map(|&u| view.groups(u));
    let items: Vec<_> = groups.map(|(profile, hosts)| (profile, hosts.count_ones())).collect();
    bound::most(&view.trial(), &view.hall.spec.domains, &items) >= view.size
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
        self.effort.step(self.units.len())?;
        if even.units.len() + 1 == self.count {
            return self.finish(even);
        }
        let mut i = at;
        while i < self.units.len() {
            if !self.may_fit(even, i) {
                break;
            }
            let next = even.with(self.view.hall, self.units[i]);
            if next.common != 0 {
                self.search_from(&next, i + 1)?;
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
        for i in 0..self.units.len() {
            let odd = self.units[i];
            if even.units.contains(&odd) || (i > 0 && self.alike[i - 1] > i && !even.units.contains(&self.units[i - 1]))
            {
                continue;
            }
            self.effort.step(0)?;
            if !even.units.is_empty() {
                self.effort.reached = self
                    .effort
                    .reached
                    .max(shape::most(self.view, even, odd).min(self.view.size));
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
        let of = |u: u32, links: Mask| {
            let cap = view.caps[u as usize];
            (view.request.bandwidth.nodes(links.count_ones()).min(cap), cap)
        };
        let hall: &Hall = view.hall;
        let mut big = 0;
        let mut add = |(gives, cap): (u32, u32)| {
            big = big.max(cap - gives);
            gives
        };
        let sure: u32 = even.units.iter().map(|&u| add(of(u, even.common))).sum();
        let counted = |&u: &u32| of(u, even.common & hall.units[u as usize].counted);
        // The odd unit may be any unit.
        let mut others: Vec<_> = self.units[at..].iter().map(counted).collect();
        let earlier = self.units[..at].iter().filter(|u| !even.units.contains(u)).map(counted);
        let widest_earlier = earlier.clone().map(|o| o.1 - o.0).max().unwrap_or(0);
        let odd = earlier.max();
        others.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = self.count - even.units.len();
        let best: u32 = others.iter().take(wanted).map(|&o| add(o)).sum();
        let with_odd: u32 = match odd {
            Some(odd) => add(odd) + others.iter().take(wanted - 1).map(|&o| add(o)).sum::<u32>(),
            None => 0,
        };
        // Any one unit may be the big one.
        let widest = others.iter().map(|o| o.1 - o.0).max().unwrap_or(0).max(widest_earlier);
        sure + best.max(with_odd) + big.max(widest) >= view.size
    }
}
