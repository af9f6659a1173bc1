//! The budgets of a trial as rows of an integer program.

use std::collections::BTreeMap;

use super::Trial;
use crate::profile::Profile;

/// A budget that items share. An item is a number of nodes of one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// What is left of the budget, in watts or in nodes.
    pub left: u64,
    /// The index of an item, and what each of its nodes takes. Each item occurs once.
    pub terms: Vec<(u32, u64)>,
}

impl Row {
    /// Whether the budget suffices for these numbers of nodes of each item.
    pub fn suffices(&self, most: &[u32]) -> bool {
        let take = |&(item, each): &(u32, u64)| each.saturating_mul(u64::from(most[item as usize]));
        let all = self
            .terms
            .iter()
            .map(take)
            .fold(0, |sum: u64, more| sum.saturating_add(more));
        all <= self.left
    }
}

/// What the items take from one power domain.
struct Drawn {
    domain: u32,
    /// Item and watts, with all feeds alive.
    watts: Vec<(u32, u64)>,
    /// Feed, item and the watts that its loss adds.
    rises: Vec<(u32, u32, u64)>,
}

impl Trial<'_> {
    /// The budgets that do not suffice for all of these items: the profile of each, and its number of nodes.
    pub(crate) fn rows(&self, items: &[(&Profile, u32)]) -> Vec<Row> {
        let most: Vec<u32> = items.iter().map(|item| item.1).collect();
        let mut rows = Vec::new();
        for drawn in self.drawn(items) {
            self.power_rows(&drawn, &mut rows);
        }
        self.heat_rows(items, &mut rows);
        self.label_rows(items, &mut rows);
        rows.retain(|row| !row.suffices(&most));
        rows
    }

    fn drawn(&self, items: &[(&Profile, u32)]) -> Vec<Drawn> {
        // For each domain, its index in `out` plus one. 0: no entry.
        let mut slots = vec![0u32; self.ledger.domains.len()];
        let mut out: Vec<Drawn> = Vec::new();
        for (item, (profile, _)) in (0u32..).zip(items).filter(|(_, (_, nodes))| *nodes > 0) {
            for &(domain, watts) in profile.tight.loads.iter().filter(|load| load.1 > 0) {
                let slot = &mut slots[domain as usize];
                if *slot == 0 {
                    out.push(Drawn {
                        domain,
                        watts: Vec::new(),
                        rises: Vec::new(),
                    });
                    *slot = out.len() as u32;
                }
                out[*slot as usize - 1].watts.push((item, watts));
            }
            for rise in &profile.tight.rises {
                let slot = slots[rise.domain as usize];
                if slot > 0 && self.counts_losses(rise.domain) {
                    out[slot as usize - 1].rises.push((rise.feed, item, rise.watts));
                }
            }
        }
        out
    }

    /// Whether a domain must hold its load without each single feed.
    fn counts_losses(&self, domain: u32) -> bool {
        self.promised || self.ledger.domains[domain as usize].promised > 0
    }

    /// One row for each feed, if the loss of the feed raises the draw of an item. Another row, for the worst of the other
    /// states, is needed only where that state is worse than the normal one, or where no feed has a row: the load with
    /// all feeds alive is part of every row.
    fn power_rows(&self, drawn: &Drawn, rows: &mut Vec<Row>) {
        let known = &self.ledger.domains[drawn.domain as usize];
        let extra = self.extra(drawn.domain);
        let used = known.used + extra.map_or(0, |e| e.watts);
        let risen = |feed: u32| {
            let more = self.rises_of(extra).find(|rise| rise.0 == feed);
            known.rise(feed) + more.map_or(0, |rise| rise.1)
        };
        let left = |risen: u64| known.capacity.saturating_sub(used + risen);
        let mut by_feed: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        for &(feed, item, watts) in &drawn.rises {
            by_feed.entry(feed).or_default().insert(item, watts);
        }
        let mut others = 0;
        if self.counts_losses(drawn.domain) {
            let feeds = known.rises.iter().map(|rise| rise.0);
            let feeds = feeds.chain(self.rises_of(extra).map(|rise| rise.0));
            let feeds = feeds.filter(|feed| !by_feed.contains_key(feed));
            others = feeds.map(risen).max().unwrap_or(0);
        }
        if by_feed.is_empty() || others > 0 {
            rows.push(Row {
                left: left(others),
                terms: drawn.watts.clone(),
            });
        }
        for (feed, rises) in by_feed {
            let with_rise = |&(item, watts): &(u32, u64)| (item, watts + rises.get(&item).copied().unwrap_or(0));
            rows.push(Row {
                left: left(risen(feed)),
                terms: drawn.watts.iter().map(with_rise).collect(),
            });
        }
    }

    fn heat_rows(&self, items: &[(&Profile, u32)], rows: &mut Vec<Row>) {
        let mut units: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for (item, (profile, _)) in (0u32..).zip(items).filter(|(_, (_, nodes))| *nodes > 0) {
            for &(unit, watts) in profile.tight.heat.iter().filter(|heat| heat.1 > 0) {
                units.entry(unit).or_default().push((item, watts));
            }
        }
        for (unit, terms) in units {
            let known = &self.ledger.heat[unit as usize];
            let used = known.used + self.heat_of(unit);
            let left = known.capacity.saturating_sub(used);
            rows.push(Row { left, terms });
        }
    }

    fn label_rows(&self, items: &[(&Profile, u32)], rows: &mut Vec<Row>) {
        if self.spread.is_empty() {
            return;
        }
        let mut labels: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for (item, (profile, _)) in (0u32..).zip(items).filter(|(_, (_, nodes))| *nodes > 0) {
            for &label in profile
                .labels
                .iter()
                .filter(|label| self.spread.most(**label).is_some())
            {
                labels.entry(label).or_default().push((item, 1));
            }
        }
        for (label, terms) in labels {
            let left = u64::from(self.label_room(label).unwrap_or(u32::MAX));
            rows.push(Row { left, terms });
        }
    }
}
