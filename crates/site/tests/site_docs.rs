//! Checks the statements of `docs/site.md`.

#![allow(clippy::unwrap_used)]

use rackwright_site::file::{Source, check};
use rackwright_site::model::{NodeId, Redundancy};
use rackwright_site::power::{Loads, explain, survival};

const DOCS: &str = include_str!("../../../docs/site.md");

/// The indented block below a heading.
fn block(heading: &str) -> String {
    let (_, rest) = DOCS.split_once(heading).unwrap();
    let lines = rest.lines().skip_while(|line| !line.starts_with("    "));
    lines
        .map_while(|line| line.strip_prefix("    "))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn the_small_site_is_good_and_is_as_the_text_says() {
    let text = block("## A small site");
    let checked = check(&[Source {
        name: "docs",
        text: &text,
    }]);
    assert!(checked.findings.list.is_empty(), "{:#?}", checked.findings);
    let site = checked.site.unwrap();
    assert!(survival(&site, NodeId(0), 10_200.0, Redundancy::FeedLoss).is_err());
    let losses = explain(&site, &Loads::of_all_nodes(&site), NodeId(0)).losses;
    assert!(
        losses
            .iter()
            .all(|loss| loss.live == 3 && (loss.live_watts - 9900.0).abs() < 1e-6)
    );
}

/// Every field that the reader knows is described. The reader lists its fields when one is misspelled.
#[test]
fn every_field_is_described() {
    let sections = [
        "rooms",
        "racks",
        "outlet_layouts",
        "power",
        "cooling_units",
        "cooling_loops",
        "skus",
        "nodes",
        "fabrics",
        "switches",
        "cables",
        "customers",
    ];
    for section in sections {
        let text = format!("site: {{name: s}}\n{section}:\n- {{kind: circuit, zzzzzzzz: 1}}\n");
        let findings = check(&[Source { name: "x", text: &text }]).findings;
        let known = findings
            .list
            .iter()
            .find_map(|finding| finding.fix.strip_prefix("known fields are "))
            .unwrap();
        let (_, described) = DOCS.split_once(&format!("### `{section}`\n")).unwrap();
        let described = described.split("\n#").next().unwrap();
        for field in known.split(", ") {
            assert!(described.contains(field), "{section}.{field} is not described");
        }
    }
}
