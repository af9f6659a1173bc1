//! Tests of the pages, over a generated hall.

use rackwright_api::v1::TopologyKind;
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_store::SiteFile;

use super::*;

/// The reference site of 64 nodes.
fn site() -> Site {
    let text = site_file(&Request::new(ReferenceSku::DgxH100, 64)).unwrap();
    let file = SiteFile {
        name: "site.yaml".into(),
        text,
    };
    rackwright_ground::hall::read(&[file]).site.unwrap()
}

fn request(kind: TopologyKind, parent: &str) -> v1::GetTopologyRequest {
    v1::GetTopologyRequest {
        kind: kind.into(),
        parent: parent.into(),
        page_size: 1000,
        page_token: String::new(),
    }
}

#[test]
fn racks_hold_every_machine_once_from_the_bottom() {
    let (site, faulty) = (site(), HashSet::new());
    let topology = Topology {
        site: &site,
        faulty: &faulty,
    };
    let page = topology.page(&request(TopologyKind::Racks, "")).unwrap();
    assert_eq!(
        (page.racks.len(), page.total),
        (site.racks.len(), number(site.racks.len()))
    );
    let machines = page.racks.iter().flat_map(|rack| &rack.machines);
    let nodes: BTreeSet<&str> = machines.filter_map(|one| one.name.strip_prefix("nodes/")).collect();
    assert_eq!(nodes.len(), 64);
    for rack in &page.racks {
        assert!(rack.machines.is_sorted_by_key(|one| one.unit), "{rack:?}");
        let top = rack
            .machines
            .iter()
            .map(|one| one.unit + one.height_units.max(1) - 1)
            .max();
        assert!(top.unwrap_or_default() <= rack.units, "{rack:?}");
    }
    let with_nodes = page
        .racks
        .iter()
        .find(|rack| rack.machines.iter().any(|one| one.kind == "dgx-h100"));
    let feeds: BTreeSet<&str> = with_nodes.unwrap().pdus.iter().map(|pdu| pdu.feed.as_str()).collect();
    assert!(feeds.len() >= 2, "{feeds:?}");

    let room = &page.racks[0].room;
    let of_room = topology.page(&request(TopologyKind::Racks, room)).unwrap();
    assert!(of_room.racks.iter().all(|rack| rack.room == *room) && !of_room.racks.is_empty());
    assert!(topology.page(&request(TopologyKind::Racks, "no-room")).is_err());
    assert!(topology.page(&request(TopologyKind::Unspecified, "")).is_err());
}

#[test]
fn bundles_count_every_cable_between_switches_once() {
    let site = site();
    let faulty = HashSet::from([site
        .cables
        .iter()
        .find(|cable| is_between_switches(cable))
        .unwrap()
        .label
        .to_string()]);
    let topology = Topology {
        site: &site,
        faulty: &faulty,
    };
    let page = topology.page(&request(TopologyKind::Bundles, "")).unwrap();
    let sum = |of: fn(&v1::TopologyBundle) -> u32| page.bundles.iter().map(of).sum::<u32>();
    let between = site.cables.iter().filter(|cable| is_between_switches(cable)).count();
    assert_eq!(sum(|bundle| bundle.cables), number(between));
    assert_eq!(sum(|bundle| bundle.faulty_cables), 1);
    assert!(page.bundles.iter().all(|bundle| bundle.labels.is_empty()));

    let switches = topology.page(&request(TopologyKind::Switches, "")).unwrap().switches;
    assert_eq!(switches.len(), site.switches.len());
    assert_eq!(
        switches.iter().map(|switch| switch.faulty_cables).sum::<u32>(),
        2,
        "at both ends"
    );
    for switch in &switches {
        let of = topology.page(&request(TopologyKind::Bundles, &switch.name)).unwrap();
        let cables: u32 = of.bundles.iter().map(|bundle| bundle.cables).sum();
        assert_eq!(cables, switch.down_cables + switch.up_cables, "{}", switch.name);
        assert!(
            of.bundles
                .iter()
                .all(|bundle| bundle.a == switch.name && !bundle.labels.is_empty())
        );
    }
    assert!(topology.page(&request(TopologyKind::Bundles, "no-switch")).is_err());
    assert!(topology.page(&request(TopologyKind::Switches, "no-fabric")).is_err());
}

fn is_between_switches(cable: &Cable) -> bool {
    [cable.a, cable.b].iter().all(|end| matches!(end, Port::Switch { .. }))
}

#[test]
fn pages_join_to_the_whole() {
    let (site, faulty) = (site(), HashSet::new());
    let topology = Topology {
        site: &site,
        faulty: &faulty,
    };
    let whole = topology.page(&request(TopologyKind::Bundles, "")).unwrap().bundles;
    let (mut joined, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = topology.page(&v1::GetTopologyRequest {
            page_size: 7,
            page_token,
            ..request(TopologyKind::Bundles, "")
        });
        let page = page.unwrap();
        joined.extend(page.bundles);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(joined, whole);
}
