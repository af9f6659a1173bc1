//! Checks of the clusters of an irregular site, for several tests.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::collections::BTreeMap;

use rackwright_placement::Placement;
use rackwright_planner::planner::Planner;
use rackwright_site::file::{Source, check};
use rackwright_site::model::{Port, Site, SwitchId};

use crate::placement_common::judge;

/// The site of one file.
pub fn read(text: &str) -> Site {
    let name = "site.yaml";
    let checked = check(&[Source { name, text }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list))
}

/// Number of cables of each pair of switches.
fn cables(site: &Site) -> BTreeMap<[SwitchId; 2], u32> {
    let mut cables = BTreeMap::new();
    for cable in &site.cables {
        if let (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) = (cable.a, cable.b) {
            *cables.entry([a.min(b), a.max(b)]).or_default() += 1;
        }
    }
    cables
}

/// Links of a cluster that are not in the site: too many to one switch, or all to a switch without a cable.
fn missing(planner: &Planner<'_>, site: &Site, placement: &Placement) -> Vec<String> {
    let cables = cables(site);
    let named = planner.named(placement);
    let uplinks = named.uplinks.iter();
    let uplinks = uplinks.flat_map(|one| one.leaves.iter().map(move |leaf| (leaf, &one.cables)));
    let cores = named.cores.iter().map(|one| (&one.spine, &one.cables));
    let mut missing = Vec::new();
    for (low, links) in uplinks.chain(cores) {
        for link in links {
            let (high, number) = link.split_once('#').unwrap_or((link, "1"));
            let (a, b) = (site.switch_named(low).unwrap(), site.switch_named(high).unwrap());
            let there = cables.get(&[a.min(b), a.max(b)]).copied().unwrap_or(0);
            if number.parse::<u32>().unwrap() > there {
                missing.push(format!("{low} to {link}"));
            }
        }
    }
    missing
}

/// Checks a hall with its clusters: budgets and routes by the judge, links against the cables of the site.
pub fn sound(planner: &Planner<'_>, site: &Site) {
    assert_eq!(judge(planner.hall()), Vec::<String>::new());
    for placement in planner.hall().clusters().values() {
        assert_eq!(missing(planner, site, placement), Vec::<String>::new());
    }
}
