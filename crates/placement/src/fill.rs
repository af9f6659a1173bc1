//! Chooses the nodes of the chosen units, within the quota of each unit and every budget.

use super::bound;
use super::ledger::Trial;
use super::links::{Mask, lowest};
use super::profile::Profile;
use super::spec::DomainSpec;
use super::view::{Effort, View};

/// The minimum and maximum number of nodes from a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quota {
    pub unit: u32,
    pub least: u32,
    pub most: u32,
}

/// Hosts of one profile in one unit, and the number taken.
struct Item<'a> {
    quota: usize,
    profile: &'a Profile,
    hosts: Mask,
    taken: u32,
}

/// Chooses the hosts of each unit, including kept ones, in the order of the quotas. Error: the number found in each
/// unit.
pub(super) fn fill(view: &View, effort: &mut Effort, quotas: &[Quota]) -> Result<Vec<(u32, Mask)>, Vec<u32>> {
    let mut items = items(view, quotas);
    let kept: Vec<u32> = quotas.iter().map(|q| view.kept_in(q.unit).count_ones()).collect();
    let size = view.size - kept.iter().sum::<u32>();
    let mut trial = view.trial();
    let mut left = size;
    let mut found = kept.clone();
    for item in &mut items {
        let open = quotas[item.quota].most - found[item.quota];
        let wish = open.min(left).min(item.hosts.count_ones());
        if wish > 0 {
            item.taken = wish.min(trial.room(item.profile).nodes);
            trial.add(item.profile, item.taken);
            found[item.quota] += item.taken;
            left -= item.taken;
        }
    }
    let enough = left == 0 && quotas.iter().zip(&found).all(|(q, &f)| f >= q.least);
    if enough {
        return Ok(hosts(view, quotas, &items));
    }
    effort.reached = effort.reached.max(view.size - left);
    let mut search = Search {
        domains: &view.hall.spec.domains,
        trial: view.trial(),
        quotas,
        open: quotas.iter().zip(&kept).map(|(q, kept)| q.most - kept).collect(),
        effort,
    };
    items.iter_mut().for_each(|i| i.taken = 0);
    let done = search.search_from(&mut items, 0, size);
    if done == Some(true) {
        Ok(hosts(view, quotas, &items))
    } else {
        Err(found)
    }
}

/// Racks with the fewest free nodes come first, so that full racks stay whole.
fn items<'a>(view: &View<'a>, quotas: &[Quota]) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    for (at, quota) in quotas.iter().enumerate() {
        let mut groups: Vec<_> = view.groups(quota.unit).collect();
        groups.sort_by_key(|(_, hosts)| hosts.count_ones());
        items.extend(groups.into_iter().map(|(profile, hosts)| Item {
            quota: at,
            profile,
            hosts,
            taken: 0,
        }));
    }
    items
}

fn hosts(view: &View, quotas: &[Quota], items: &[Item]) -> Vec<(u32, Mask)> {
    let mut out: Vec<_> = quotas.iter().map(|q| (q.unit, view.kept_in(q.unit))).collect();
    for item in items {
        out[item.quota].1 |= lowest(item.hosts, item.taken);
    }
    out.retain(|(_, hosts)| *hosts != 0);
    out
}

/// Tries all ways to fill, fullest first.
struct Search<'a> {
    domains: &'a [DomainSpec],
    trial: Trial<'a>,
    quotas: &'a [Quota],
    /// The number of nodes that each unit may still give.
    open: Vec<u32>,
    effort: &'a mut Effort,
}

impl Search<'_> {
    /// `None`: the search was cut short.
    fn search_from(&mut self, items: &mut [Item], at: usize, left: u32) -> Option<bool> {
        self.effort.step(items.len() - at)?;
        if !self.may_fit(&items[at..], left) {
            return Some(false);
        }
        if at == items.len() {
            return Some(left == 0);
        }
        let (quota, profile) = (items[at].quota, items[at].profile);
        let most = items[at].hosts.count_ones().min(self.open[quota]).min(left);
        let most = most.min(self.trial.room(profile).nodes);
        for taken in (0..=most).rev() {
            self.trial.add(profile, taken);
            self.open[quota] -= taken;
            items[at].taken = taken;
            let done = self.search_from(items, at + 1, left - taken);
            if done != Some(false) {
                return done;
            }
            items[at].taken = 0;
            self.open[quota] += taken;
            self.trial.remove(profile, taken);
        }
        Some(false)
    }

    /// Whether `items` may give enough nodes, each bounded as if the others took nothing.
    fn may_fit(&self, items: &[Item], left: u32) -> bool {
        let mut more = vec![0; self.quotas.len()];
        let mut each = Vec::with_capacity(items.len());
        for item in items {
            let nodes = item.hosts.count_ones().min(self.trial.room(item.profile).nodes);
            more[item.quota] += nodes;
            each.push((item.profile, nodes.min(self.open[item.quota])));
        }
        let mut sum = 0;
        for ((quota, &open), more) in self.quotas.iter().zip(&self.open).zip(more) {
            if quota.most - open + more < quota.least {
                return false;
            }
            sum += more.min(open);
        }
        sum >= left && bound::most(&self.trial, self.domains, &each) >= left
    }
}
