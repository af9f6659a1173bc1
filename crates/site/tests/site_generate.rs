//! Generated sites are valid and have the number of switches in NVIDIA's tables.

#![allow(clippy::unwrap_used)]

use rackwright_site::file::{Checked, MAX_TOTAL_BYTES, Source, TooLarge, check};
use rackwright_site::generate::{MAX_NODES, ReferenceSku, Request, site_file};
use rackwright_site::model::Site;

fn read(text: &str) -> Checked {
    check(&[Source {
        name: "site.yaml",
        text,
    }])
}

fn generate(request: &Request) -> Site {
    let text = site_file(request).unwrap();
    let Checked { site, findings } = read(&text);
    let found: Vec<String> = findings
        .list
        .iter()
        .take(5)
        .map(|f| format!("{f} ({})", f.fix))
        .collect();
    assert!(found.is_empty(), "{request:?}: {found:#?}");
    site.unwrap()
}

#[test]
fn switches_are_as_many_as_in_nvidias_tables() {
    // SuperPOD H100 reference architecture: nodes, leaves, spines, cores.
    for (nodes, leaves, spines, cores) in [(32, 8, 4, 0), (64, 16, 8, 0), (128, 32, 16, 0), (1024, 256, 256, 128)] {
        let site = generate(&Request::new(ReferenceSku::DgxH100, nodes));
        let switches = site.summary().switches;
        assert_eq!(
            (switches.leaves, switches.spines, switches.cores),
            (leaves, spines, cores),
            "{nodes}"
        );
        assert_eq!(site.nodes.len(), nodes);
    }
}

#[test]
fn every_port_that_a_tree_of_full_units_uses_is_cabled_once() {
    let site = generate(&Request::new(ReferenceSku::DgxH100, 1024));
    assert_eq!(site.cables.len(), 24_576);
    let labels: std::collections::BTreeSet<_> = site.cables.iter().map(|cable| &cable.label).collect();
    assert_eq!(labels.len(), site.cables.len());
}

#[test]
fn sites_of_any_size_have_no_finding() {
    let mut sizes: Vec<usize> = (1..=40).collect();
    sizes.extend([64, 65, 127, 128, 129, 255, 256, 257, 288, 289, 513, 1025, 2047, 2048]);
    for sku in ReferenceSku::ALL {
        for nodes in &sizes {
            generate(&Request::new(sku, *nodes));
        }
    }
}

#[test]
fn any_number_of_feeds_has_no_finding() {
    for sku in ReferenceSku::ALL {
        for feeds in 1..=4 {
            let site = generate(&Request {
                feeds,
                ..Request::new(sku, 100)
            });
            assert_eq!(site.feeds.len(), feeds);
        }
    }
}

#[test]
fn the_same_request_gives_the_same_text_and_another_seed_other_guids() {
    let request = Request::new(ReferenceSku::DgxH100, 40);
    assert_eq!(site_file(&request), site_file(&request));
    let guids = |seed| {
        let site = generate(&Request {
            seed,
            ..request.clone()
        });
        let nodes = site
            .nodes
            .iter()
            .flat_map(|node| node.port_guids.iter().flatten().copied());
        let switches = site.switches.iter().filter_map(|switch| switch.guid);
        nodes.chain(switches).collect::<std::collections::BTreeSet<u64>>()
    };
    let (one, other) = (guids(1), guids(2));
    assert_eq!(one.len(), 40 * 8 + 16 + 8);
    assert!(one.is_disjoint(&other));
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (nodes, feeds) in [(0, 3), (1_000_000, 3), (1, 0), (1, 5)] {
        let request = Request {
            feeds,
            ..Request::new(ReferenceSku::DgxH100, nodes)
        };
        assert!(site_file(&request).is_err());
    }
}

/// Nodes beyond three levels of 64-port switches get several fabrics.
#[test]
fn beyond_three_levels_there_are_several_fabrics() {
    let site = generate(&Request::new(ReferenceSku::DgxH100, 8200));
    assert!(site.switch_named("f1-core-g01-01").is_some());
    assert!(site.switch_named("f2-spine-01").is_some());
}

/// A file is never generated that the reader refuses for its size.
#[test]
fn the_largest_site_is_well_within_the_size_of_a_site() {
    for sku in ReferenceSku::ALL {
        let text = site_file(&Request::new(sku, MAX_NODES)).unwrap();
        assert!(text.len() < MAX_TOTAL_BYTES / 4, "{sku:?}: {} bytes", text.len());
    }
}

#[test]
fn a_size_above_the_limit_is_named_with_the_limit_and_the_remedy() {
    let refused = |bytes| TooLarge::check(bytes).map_err(|error| error.to_string());
    assert_eq!(refused(MAX_TOTAL_BYTES as u64), Ok(()));
    let words = |size| {
        Err(format!(
            "the site description is too large: {size} MiB of at most 256 MiB"
        ))
    };
    assert_eq!(refused(MAX_TOTAL_BYTES as u64 + 1), words("256.1"));
    assert_eq!(refused(390 << 20), words("390"));
    assert!(TooLarge::FIX.contains("gpu-[0001-1000]"));
}
