//! The power sheet of a pack matches the ledger and does not reveal other customers' data.

#![allow(clippy::unwrap_used)]

mod handover_common;

use std::collections::BTreeMap;

use handover_common::{cluster, members, site};
use rackwright_planner::handover::{Format, pack};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{CustomerId, NodeId, Site};
use rackwright_site::power::{Ledger, Reservation, headroom};

fn hall() -> Site {
    let text = site_file(&Request::new(ReferenceSku::DgxH100, 40)).unwrap();
    site(&format!(
        "{text}---\ncustomers:\n- {{name: acme, redundancy: feed-loss}}\n- {{name: other}}\n"
    ))
}

fn sheet(site: &Site, ledger: &Ledger, nodes: &[NodeId]) -> String {
    let files = pack(&cluster(site, ledger, members(site, nodes)), &[Format::Power]).unwrap();
    files.into_iter().find(|file| file.name == "power.md").unwrap().text
}

/// The rows of the table below a heading, by first cell.
fn rows<'a>(text: &'a str, heading: &str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let (_, below) = text.split_once(heading).unwrap();
    let lines = below.lines().skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |line: &'a str| -> Vec<&'a str> { line.trim_matches('|').split('|').map(str::trim).collect() };
    table.map(|line| (cells(line)[0], cells(line))).collect()
}

fn reserve(site: &Site, ledger: &mut Ledger, customer: u32, nodes: &[NodeId]) {
    let one = |node: &NodeId| Reservation::full(site, *node, CustomerId(customer));
    let wanted: Vec<Reservation> = nodes.iter().map(one).collect();
    ledger.reserve(site, &wanted).unwrap();
}

#[test]
fn domains_carry_what_the_ledger_has() {
    let site = hall();
    let nodes: Vec<NodeId> = (0..10).map(NodeId).collect();
    let mut ledger = Ledger::new(&site);
    reserve(&site, &mut ledger, 0, &nodes);
    let text = sheet(&site, &ledger, &nodes);
    let domains = rows(&text, "## Domains");
    let report = headroom(&site, &ledger);
    let used: Vec<_> = report.iter().filter(|row| row.reserved_watts > 0.0).collect();
    assert!(used.len() > 15);
    assert_eq!(domains.len(), used.len());
    for row in used {
        let cells = &domains[&*site.domain(row.domain).name];
        let kw = |watts: f64| format!("{:.1} kW", watts / 1000.0);
        assert_eq!(cells[3], kw(row.capacity_watts));
        assert_eq!(cells[4].split(" (").next(), Some(&*kw(row.reserved_watts)), "{cells:?}");
        assert_eq!(cells[5].split(" (").next(), Some(&*kw(row.worst_watts)), "{cells:?}");
    }
    assert!(text.contains("Reserved: 102.0 kW for 10 nodes."));
    assert!(text.contains("To air: 102.0 kW, to liquid: 0.0 kW."));
    assert_eq!(rows(&text, "## Loss of a feed").len(), 3);
    for psu in 1..=6 {
        let way = rows(&text, "## Power paths").len();
        assert_eq!(way, 10);
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("| gpu-01 | {psu} | pdu-")));
        assert!(line.unwrap().contains("| 1.7 kW | utility-"), "{line:?}");
    }
}

#[test]
fn what_others_have_changes_nothing() {
    let site = hall();
    let nodes: Vec<NodeId> = (0..6).map(NodeId).collect();
    let others: Vec<NodeId> = (6..9).map(NodeId).collect();
    let mut ledger = Ledger::new(&site);
    reserve(&site, &mut ledger, 0, &nodes);
    let alone = sheet(&site, &ledger, &nodes);
    reserve(&site, &mut ledger, 1, &others);
    assert_eq!(sheet(&site, &ledger, &nodes), alone);
}

/// A node without a working PSU goes down and is named.
#[test]
fn nodes_that_a_feed_takes_with_it_are_named() {
    let text = site_file(&Request {
        feeds: 2,
        ..Request::new(ReferenceSku::DgxH100, 4)
    })
    .unwrap();
    let site = site(&format!("{text}---\ncustomers:\n- {{name: acme}}\n"));
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let mut ledger = Ledger::new(&site);
    reserve(&site, &mut ledger, 0, &nodes);
    let text = sheet(&site, &ledger, &nodes);
    let losses = rows(&text, "## Loss of a feed");
    // Three of six PSUs work, and four are needed.
    for feed in ["A", "B"] {
        assert_eq!(losses[feed], [feed, "12", "0", "4", "gpu-\\[1-4\\]"]);
    }
}
