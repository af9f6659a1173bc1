//! Chooses the units into which a cluster grows: its own units, then as few others as possible.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::decide::SMALL;
use crate::links::Mask;
use crate::request::Placement;
use crate::shape::{self, Even};
use crate::view::{Effort, View};

/// Maximum number of units tried as the odd one in a big cluster.
const ODD: usize = 8;
/// Maximum number of candidates for new units, unless many are needed.
const POOL: usize = 256;
/// Maximum number of new units above the minimum to try.
const EXTRA_UNITS: usize = 4;

/// A placement with fewer than `below` new units, and the number of these units.
pub(super) fn seek(view: &View, effort: &mut Effort, first: Option<u32>, below: usize) -> Option<(usize, Placement)> {
    let own: Vec<u32> = (0..view.caps.len() as u32).filter(|&u| view.kept_in(u) != 0).collect();
    let mut seek = Seek {
        view,
        effort,
        pool: Vec::new(),
        found: None,
    };
    if below > 0 {
        // A unit without kept nodes is no better than any other.
        let enough = |u: &u32| own.contains(u) && room(view, *u) + view.kept_nodes() >= view.size;
        if let Some(first) = first.filter(enough) {
            seek.try_first_unit(&own, first);
        }
        if seek.found.is_none() {
            seek.try_units(&own);
        }
        if let Some(placement) = seek.found {
            return Some((0, placement));
        }
    }
    let room_at_home: u32 = own.iter().map(|&u| room(view, u)).sum();
    let needed = (view.size - view.kept_nodes()).saturating_sub(room_at_home);
    let fewest = seek.draw_pool(&own, needed)?;
    for count in fewest.max(1)..below.min(fewest + EXTRA_UNITS) {
        let done = seek.with_new(&own, count);
        if let Some(placement) = seek.found {
            return Some((count, placement));
        }
        done?;
    }
    None
}

/// Number of nodes that could join a unit.
fn room(view: &View, unit: u32) -> u32 {
    view.caps[unit as usize] - view.kept_in(unit).count_ones()
}

struct Seek<'v, 'a> {
    view: &'v View<'a>,
    effort: &'v mut Effort,
    /// Units without nodes of the cluster, best first.
    pool: Vec<u32>,
    found: Option<Placement>,
}

impl Seek<'_, '_> {
    /// Places all joining nodes in one unit.
    fn try_first_unit(&mut self, own: &[u32], first: u32) {
        let mut narrow = self.view.clone();
        for &unit in own.iter().filter(|&&u| u != first) {
            narrow.caps[unit as usize] = self.view.kept_in(unit).count_ones();
        }
        let mut there = Seek {
            view: &narrow,
            effort: self.effort,
            pool: Vec::new(),
            found: None,
        };
        there.try_units(own);
        self.found = there.found;
    }

    /// Places the cluster on exactly these units.
    fn try_units(&mut self, units: &[u32]) {
        let room: u32 = units.iter().map(|&u| self.view.caps[u as usize]).sum();
        if room < self.view.size {
            return;
        }
        for odd in self.odd_candidates(units) {
            let even: Vec<u32> = units.iter().copied().filter(|&u| u != odd).collect();
            self.try_on(&Even::of(self.view.hall, &even), odd);
            if self.found.is_some() || self.effort.step(units.len()).is_none() {
                return;
            }
        }
    }

    /// Candidates for the odd unit, the most likely first: few links, then few nodes.
    fn odd_candidates(&mut self, units: &[u32]) -> Vec<u32> {
        let key = |u: u32| {
            let links = self.view.hall.units[u as usize].counted.count_ones();
            (links, self.view.kept_in(u).count_ones(), u)
        };
        let mut odd = units.to_vec();
        odd.sort_by_key(|&u| key(u));
        if odd.len() > ODD {
            odd.truncate(ODD);
            self.effort.cut = true;
        }
        odd
    }

    fn try_on(&mut self, even: &Even, odd: u32) {
        let small = self.view.hall.spec.nodes.len() <= SMALL;
        let mut quick = Effort::new(if small { 2_000 } else { 0 });
        self.found = shape::on_units(self.view, &mut quick, even, odd);
        self.effort.cut |= quick.cut;
        self.effort.reached = self.effort.reached.max(quick.reached);
    }

    /// Orders the units without nodes of the cluster and returns the minimum number required. `None`: all together do
    /// not suffice.
    fn draw_pool(&mut self, own: &[u32], needed: u32) -> Option<usize> {
        let view = self.view;
        let pods: BTreeSet<u32> = own.iter().map(|&u| view.hall.units[u as usize].pod).collect();
        // All units of a cluster are in one fabric.
        let fabric = own.first().map(|&u| view.hall.fabric_of(u));
        let mut pool: Vec<u32> = (0..view.caps.len() as u32)
            .filter(|&u| view.caps[u as usize] > 0 && view.kept_in(u) == 0)
            .filter(|&u| fabric.is_none_or(|fabric| view.hall.fabric_of(u) == fabric))
            .collect();
        let key = |&u: &u32| {
            let (unit, cap) = (&view.hall.units[u as usize], view.caps[u as usize]);
            let far = !pods.contains(&unit.pod);
            // The smallest sufficient unit, preferably one in use. Among insufficient units, the biggest.
            let fit = if cap >= needed { (0, cap) } else { (1, u32::MAX - cap) };
            (far, fit.0, unit.taken == 0, fit.1, u)
        };
        pool.sort_by_cached_key(key);
        let mut caps: Vec<u32> = pool.iter().map(|&u| view.caps[u as usize]).collect();
        caps.sort_unstable_by_key(|&c| Reverse(c));
        let mut sum = 0;
        let fewest = caps.iter().take_while(|&&cap| {
            let short = sum < needed;
            sum += cap;
            short
        });
        let fewest = fewest.count();
        if caps.iter().sum::<u32>() < needed || caps.is_empty() {
            return None;
        }
        if pool.len() > POOL.max(fewest * 4) {
            pool.truncate(POOL.max(fewest * 4));
            self.effort.cut = true;
        }
        self.pool = pool;
        Some(fewest)
    }

    /// Tries `count` units of the pool. `None`: the search was cut short.
    fn with_new(&mut self, own: &[u32], count: usize) -> Option<()> {
        let hall = self.view.hall;
        self.search_from(&Even::of(hall, own), None, 0, count)?;
        for odd in self.odd_candidates(own) {
            if self.found.is_some() {
                break;
            }
            let even: Vec<u32> = own.iter().copied().filter(|&u| u != odd).collect();
            self.search_from(&Even::of(hall, &even), Some(odd), 0, count)?;
        }
        Some(())
    }

    /// Adds `left` units. One of them is the odd one if `odd` is `None`. Returns `None` if the search was cut short.
    fn search_from(&mut self, even: &Even, odd: Option<u32>, at: usize, left: usize) -> Option<()> {
        self.effort.step(even.units.len() + self.pool.len())?;
        if let (0, Some(odd)) = (left, odd) {
            self.try_on(even, odd);
            return Some(());
        }
        if !self.may_fit(even, odd, at, left) {
            return Some(());
        }
        // The odd unit may be anywhere in the pool. Even units are chosen in order.
        if let (1, None) = (left, odd) {
            for i in 0..self.pool.len() {
                let unit = self.pool[i];
                if even.units.contains(&unit) {
                    continue;
                }
                self.effort.step(even.units.len())?;
                self.try_on(even, unit);
                if self.found.is_some() {
                    break;
                }
            }
            return Some(());
        }
        for i in at..self.pool.len() {
            let next = even.with(self.view.hall, self.pool[i]);
            if next.common != 0 {
                self.search_from(&next, odd, i + 1, left - 1)?;
            }
            if self.found.is_some() {
                break;
            }
        }
        Some(())
    }

    /// Whether the chosen units and `left` of the pool can give enough nodes: each unit as many as its common links
    /// allow, and one unit all it has. Kept nodes must already have their links.
    fn may_fit(&self, even: &Even, odd: Option<u32>, at: usize, left: usize) -> bool {
        let view = self.view;
        let bandwidth = view.request.bandwidth;
        let gives = |u: u32, links: Mask| {
            let cap = view.caps[u as usize];
            (bandwidth.nodes(links.count_ones()).min(cap), cap)
        };
        let counted = |u: u32| even.links_with(view.hall, u);
        let chosen = even.units.iter().map(|&u| (u, gives(u, even.common)));
        let chosen: Vec<_> = chosen.chain(odd.map(|u| (u, gives(u, counted(u))))).collect();
        let too_big = chosen
            .iter()
            .filter(|(u, g)| view.kept_in(*u).count_ones() > g.0)
            .count();
        let from = if odd.is_some() { at } else { 0 };
        let mut others: Vec<(u32, u32)> = self.pool[from..].iter().map(|&u| gives(u, counted(u))).collect();
        others.sort_unstable_by_key(|g| Reverse(g.0));
        let slack = chosen.iter().map(|(_, g)| g).chain(&others).map(|g| g.1 - g.0).max();
        let sum: u32 = chosen.iter().map(|(_, g)| g.0).sum();
        let more: u32 = others.iter().take(left).map(|g| g.0).sum();
        too_big <= 1 && sum + more + slack.unwrap_or(0) >= view.size
    }
}
