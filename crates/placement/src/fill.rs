//! Chooses the nodes of the chosen units, within the quota of each unit and every budget.

use super::ledger::Row;
use super::links::{Mask, lowest};
use super::pack::pack;
use super::profile::Profile;
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

/// Chooses the hosts of each unit, including kept ones, in the order of the quotas. `None`: they are too few, or the
/// effort ran out.
pub(super) fn fill(view: &View, effort: &mut Effort, quotas: &[Quota]) -> Option<Vec<(u32, Mask)>> {
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
        return Some(hosts(view, quotas, &items));
    }
    effort.reached = effort.reached.max(view.size - left);
    spare_budgets(view, effort, &mut items, &ranges(quotas, &kept, size)?, size)?;
    Some(hosts(view, quotas, &items))
}

/// The minimum and maximum number of nodes that each unit gives in addition to kept ones. `None`: the minimum of a unit
/// exceeds the size.
fn ranges(quotas: &[Quota], kept: &[u32], size: u32) -> Option<Vec<(u32, u32)>> {
    let range = |(quota, kept): (&Quota, &u32)| (quota.least.saturating_sub(*kept), quota.most - kept);
    let ranges: Vec<(u32, u32)> = quotas.iter().zip(kept).map(range).collect();
    ranges.iter().all(|range| range.0 <= size).then_some(ranges)
}

/// Racks with the fewest free nodes come first, so that racks with only free nodes stay free.
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

/// Chooses nodes that cost little of the scarce budgets. `None`: too few nodes fit, or the effort ran out.
fn spare_budgets(view: &View, effort: &mut Effort, items: &mut [Item], ranges: &[(u32, u32)], size: u32) -> Option<()> {
    let most: Vec<u32> = items
        .iter()
        .map(|item| item.hosts.count_ones().min(ranges[item.quota].1))
        .collect();
    let profiles: Vec<(&Profile, u32)> = items
        .iter()
        .zip(&most)
        .map(|(item, &nodes)| (item.profile, nodes))
        .collect();
    let mut rows = view.trial().rows(&profiles);
    for (quota, &(least, most)) in ranges.iter().enumerate() {
        rows.push(nodes_of(items, most, |item| item.quota == quota));
        if least > 0 {
            // A unit gives its minimum if the others give no more than the rest.
            rows.push(nodes_of(items, size - least, |item| item.quota != quota));
        }
    }
    let packed = pack(most, rows, size, effort);
    if packed.found < size {
        effort.reached = effort.reached.max(view.size - size + packed.found);
        effort.cut |= packed.bound >= size;
        return None;
    }
    let mut surplus = packed.found - size;
    for (item, &taken) in items.iter_mut().zip(&packed.taken) {
        item.taken = taken;
    }
    // Units with a minimum give back last.
    for with_minimum in [false, true] {
        let last_first = items.iter_mut().rev();
        for item in last_first.filter(|item| (ranges[item.quota].0 > 0) == with_minimum) {
            let back = surplus.min(item.taken);
            item.taken -= back;
            surplus -= back;
        }
    }
    Some(())
}

/// A limit on the number of nodes of some items.
fn nodes_of(items: &[Item], left: u32, of: impl Fn(&Item) -> bool) -> Row {
    let some = (0u32..).zip(items).filter(|(_, item)| of(item));
    Row {
        left: u64::from(left),
        terms: some.map(|(at, _)| (at, 1)).collect(),
    }
}
