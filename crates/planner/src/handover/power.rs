//! Power and cooling of the cluster. The files show this cluster's draw and the capacity of its domains. The draw of
//! other customers is confidential.

use std::collections::BTreeMap;

use super::facts::{ClusterNode, Facts};
use super::fault::Faults;
use super::hostlist::compress;
use super::text::{cell, kw, table};
use super::{PackFile, file};
use rackwright_site::model::{DomainId, Redundancy, Site};
use rackwright_site::power::{Explanation, Scenario, capacity_watts, explain, node_heat, node_loads, watts};

/// The input of all tables: the power paths of each node, in the order of `facts.cluster_nodes`.
struct Sheet<'a> {
    facts: &'a Facts<'a>,
    fed: Vec<Explanation>,
}

pub(super) fn files(facts: &Facts<'_>, faults: &mut Faults) -> Vec<PackFile> {
    for cluster_node in &facts.cluster_nodes {
        // A ledger accepts any number, but a sheet with an invalid one would be worthless.
        if !cluster_node.reservation.watts.is_finite() || cluster_node.reservation.watts < 0.0 {
            faults.add(
                format!("node {}", cluster_node.name),
                "its power reservation is not a number",
            );
        }
    }
    let loads = facts.cluster.ledger.loads();
    let fed = facts
        .cluster_nodes
        .iter()
        .map(|cluster_node| explain(facts.site, loads, cluster_node.node))
        .collect();
    let sheet = Sheet { facts, fed };
    let total: f64 = facts
        .cluster_nodes
        .iter()
        .map(|cluster_node| cluster_node.reservation.watts)
        .sum();
    let text = format!(
        "# Power and cooling\n\nReserved: {} for {} nodes. PSUs share a node's load evenly; when a feed is lost, the \
         remaining PSUs carry all of it.\n\n## Nodes\n\n{}\n## Loss of a feed\n\n{}\n## Domains\n\n{}\n## \
         Heat\n\n{}\n## Power paths from the utility to each PSU\n\n{}",
        kw(total),
        facts.cluster_nodes.len(),
        sheet.nodes(),
        sheet.losses(),
        sheet.domains(),
        heat(facts),
        sheet.paths()
    );
    vec![file("power.md", text)]
}

impl Sheet<'_> {
    fn pairs(&self) -> impl Iterator<Item = (&ClusterNode<'_>, &Explanation)> {
        self.facts.cluster_nodes.iter().zip(&self.fed)
    }

    fn nodes(&self) -> String {
        let rows = self.pairs().map(|(cluster_node, fed)| {
            let needs = format!("{} of {}", fed.psus_needed, fed.psus.len());
            let lives = if fed.survives_psu_loss { "survives" } else { "goes down" };
            vec![
                cell(cluster_node.host),
                cell(cluster_node.name),
                cell(&cluster_node.sku.name),
                cell(&cluster_node.rack.name),
                kw(cluster_node.reservation.watts),
                cluster_node.reservation.redundancy.name().to_owned(),
                needs,
                lives.to_owned(),
            ]
        });
        let head = [
            "host",
            "node",
            "class",
            "rack",
            "reserved",
            "promised",
            "PSUs needed",
            "one PSU lost",
        ];
        table(&head, rows)
    }

    /// By feed: the nodes that survive its loss and those that go down. Assumes nodes at their maximum, and checks
    /// their own PSUs and outlets.
    fn losses(&self) -> String {
        let site = self.facts.site;
        if site.feeds.is_empty() {
            return "The site has no feed letters.\n".to_owned();
        }
        let rows = site.feed_ids().map(|feed| {
            let survives = |fed: &Explanation| fed.losses.get(feed.index()).is_some_and(|loss| loss.survives);
            let hosts = |lives: bool| {
                let these = self.pairs().filter(|(_, fed)| survives(fed) == lives);
                these.map(|(cluster_node, _)| cluster_node.host).collect::<Vec<&str>>()
            };
            let psus: usize = self
                .fed
                .iter()
                .filter_map(|fed| Some(fed.psus.len() - fed.losses.get(feed.index())?.live.min(fed.psus.len())))
                .sum();
            vec![
                cell(&site.feeds[feed.index()]),
                psus.to_string(),
                hosts(true).len().to_string(),
                hosts(false).len().to_string(),
                cell(&compress(hosts(false))),
            ]
        });
        let head = [
            "feed",
            "PSUs without power",
            "nodes that survive",
            "nodes that go down",
            "names",
        ];
        table(&head, rows)
    }

    fn domains(&self) -> String {
        let site = self.facts.site;
        let drawn = ReservedLoad::of(self.facts);
        if drawn.by_domain.is_empty() {
            return "The site has no power domains.\n".to_owned();
        }
        let rows = drawn.by_domain.iter().map(|(id, by_scenario)| {
            let domain = site.domain(*id);
            let capacity = capacity_watts(domain);
            let share = |watts: f64| match capacity > 0.0 {
                true => format!("{} ({:.0} %)", kw(watts), 100.0 * watts / capacity),
                false => kw(watts),
            };
            let normal = watts(by_scenario.first().copied().unwrap_or(0));
            let states = Scenario::all(site).zip(by_scenario).skip(1);
            let worst = states
                .filter(|(scenario, _)| drawn.promised.contains(id) && !scenario.kills(domain.feed))
                .map(|(_, load)| watts(*load))
                .reduce(f64::max);
            vec![
                cell(&domain.name),
                domain.kind.name().to_owned(),
                domain
                    .feed
                    .map_or_else(|| "-".to_owned(), |feed| cell(&site.feeds[feed.index()])),
                kw(capacity),
                share(normal),
                worst.map_or_else(|| "-".to_owned(), |worst| share(worst.max(normal))),
            ]
        });
        let head = [
            "domain",
            "kind",
            "feed",
            "capacity",
            "reserved by this cluster",
            "reserved when another feed is lost",
        ];
        table(&head, rows)
    }

    fn paths(&self) -> String {
        let site = self.facts.site;
        let rows = self.pairs().flat_map(|(cluster_node, fed)| {
            fed.psus.iter().map(move |psu| {
                let way: Vec<&str> = psu.steps.iter().map(|step| &*site.domain(step.domain).name).collect();
                let share = match psu.outlet {
                    Some(_) if fed.max_watts > 0.0 => psu.psu_watts * cluster_node.reservation.watts / fed.max_watts,
                    _ => 0.0,
                };
                vec![
                    cell(cluster_node.host),
                    psu.psu.to_string(),
                    psu.outlet.as_deref().map_or_else(|| "not plugged in".to_owned(), cell),
                    psu.phase.unwrap_or("-").to_owned(),
                    kw(share),
                    cell(&way.join(" / ")),
                ]
            })
        });
        table(&["host", "PSU", "outlet", "phase", "draws", "path"], rows)
    }
}

/// The cluster's draw from each domain, in milliwatts by scenario, and the domains of nodes that were promised to
/// survive the loss of a feed.
struct ReservedLoad {
    by_domain: BTreeMap<DomainId, Vec<i64>>,
    promised: std::collections::BTreeSet<DomainId>,
}

impl ReservedLoad {
    fn of(facts: &Facts<'_>) -> Self {
        let mut drawn = Self {
            by_domain: BTreeMap::new(),
            promised: std::collections::BTreeSet::new(),
        };
        let scenarios: Vec<Scenario> = Scenario::all(facts.site).collect();
        for cluster_node in &facts.cluster_nodes {
            let (watts, redundancy) = (cluster_node.reservation.watts, cluster_node.reservation.redundancy);
            for (at, scenario) in scenarios.iter().enumerate() {
                for (domain, load) in node_loads(facts.site, cluster_node.node, watts, redundancy, *scenario) {
                    let slots = drawn
                        .by_domain
                        .entry(domain)
                        .or_insert_with(|| vec![0; scenarios.len()]);
                    slots[at] += load.total;
                    if redundancy == Redundancy::FeedLoss {
                        drawn.promised.insert(domain);
                    }
                }
            }
        }
        drawn
    }
}

/// Heat to the air of racks and to loops: the cluster's heat, and the cooling capacity.
fn heat(facts: &Facts<'_>) -> String {
    let site = facts.site;
    let mut air: BTreeMap<_, f64> = BTreeMap::new();
    let mut loops: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    let (mut to_air, mut to_liquid) = (0.0, 0.0);
    for cluster_node in &facts.cluster_nodes {
        let heat = node_heat(site, cluster_node.node, cluster_node.reservation.watts);
        to_air += watts(heat.air);
        to_liquid += watts(heat.liquid);
        *air.entry(site.node(cluster_node.node).rack).or_default() += watts(heat.air);
        if let Some(id) = cluster_node.rack.cooling_loop {
            let (heat_watts, flow) = loops.entry(id).or_default();
            *heat_watts += watts(heat.liquid);
            // From millilitres a minute.
            *flow += heat.flow as f64 / 1000.0;
        }
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let racks = air.into_iter().map(|(id, heat_watts)| {
        let rack = site.rack(id);
        let door = rack.rear_door.map(|door| site.cooling_unit(door));
        vec![
            cell(&rack.name),
            cell(&site.room(rack.room).name),
            kw(heat_watts),
            or_dash(rack.air_heat_limit_watts.map(kw)),
            or_dash(door.map(|door| format!("{}, {}", cell(&door.name), kw(door.watts)))),
        ]
    });
    let mut text = format!(
        "To air: {}, to liquid: {}.\n\n{}",
        kw(to_air),
        kw(to_liquid),
        table(&["rack", "room", "to air", "rack limit", "rear door capacity"], racks)
    );
    let rows: Vec<Vec<String>> = loops.into_iter().map(|(id, heat)| loop_row(site, id, heat)).collect();
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&table(
            &["loop", "to liquid", "capacity of its CDUs", "coolant required"],
            rows,
        ));
    }
    text
}

fn loop_row(site: &Site, id: rackwright_site::model::LoopId, (heat_watts, flow_lpm): (f64, f64)) -> Vec<String> {
    let one = site.cooling_loop(id);
    let takes: f64 = one.units.iter().map(|unit| site.cooling_unit(*unit).watts).sum();
    vec![
        cell(&one.name),
        kw(heat_watts),
        kw(takes),
        format!("{flow_lpm:.1} L/min"),
    ]
}
