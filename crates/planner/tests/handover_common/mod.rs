//! Sites, clusters and readers for the tests of hand-over packs. The readers share no code with the writers.

#![allow(dead_code)]

use std::collections::BTreeMap;

use granit_parser::{Event, Parser};
use rackwright_infiniband::{Guid, Membership, PKey};
use rackwright_planner::handover::{Cluster, Format, Member, PackFile, PartitionPort, PartitionSheet, pack};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{CustomerId, NodeId, Site};
use rackwright_site::power::{Ledger, Reservation};

/// Two scalable units of two nodes with two rails. Racks r1 and r2 are on two feeds and a liquid loop, and r2 has a
/// rear door.
pub const SMALL: &str = "
site: {name: lab}
rooms:
- name: hall
racks:
- {name: r1, room: hall, liquid: true, air_heat_limit_watts: 12 kW}
- {name: r2, room: hall, liquid: true}
cooling_units:
- {name: crah-1, kind: crah, room: hall, watts: 20 kW}
- {name: door-r2, kind: rear-door, rack: r2, watts: 10 kW}
- {name: cdu-1, kind: cdu, room: hall, watts: 40 kW, flow_lpm: 90}
cooling_loops:
- {name: loop-1, units: cdu-1, racks: 'r[1-2]'}
power:
- {name: utility-a, kind: utility, feed: A, watts: 60 kW}
- {name: utility-b, kind: utility, feed: B, watts: 60 kW}
- {name: 'circuit-[a,b]-r[1-2]', kind: circuit, parent: 'utility-[a,b]*2', volts: 415, amps: 32, phases: 3}
- name: 'pdu-[a,b]-r[1-2]'
  kind: rack-pdu
  parent: 'circuit-[a,b]-r[1-2]'
  rack: 'r[1-2]'
  volts: 415
  amps: 32
  phases: 3
  outlets:
  - {name: '[1-2]', phase: [L1, L2]}
skus:
- name: small
  power: {typical_watts: 1000, max_watts: 2000}
  psus: {count: 2, watts: 2500, needed: 1}
  height_units: 4
  gpus: 4
  hcas: [mlx5_0, mlx5_3]
  liquid_share: 0.5
  inventory: {cpu: 2, gpu: 4, memory_gib: 512}
nodes:
- name: 'n[1-4]'
  sku: small
  rack: 'r[1-2]*2'
  unit: [1, 5, 1, 5]
  psus: ['pdu-a-{rack}/[1-2]', 'pdu-b-{rack}/[1-2]']
  guids: {mlx5_0: '0xa088c20000000000+0x100', mlx5_3: '0xa088c20000000001+0x100'}
switches:
- {name: 'leaf-su[1-2]-r[0-1]', role: leaf, ports: 64, rail: [0, 1], scalable_unit: [1, 1, 2, 2]}
- {name: 'spine-[1-2]', role: spine, ports: 64}
cables:
- {label: 'c[01-04]', a: 'n[1-2]/[mlx5_0,mlx5_3]', b: [leaf-su1-r0/1, leaf-su1-r1/1, leaf-su1-r0/2, leaf-su1-r1/2]}
- {label: 'c[05-08]', a: 'n[3-4]/[mlx5_0,mlx5_3]', b: [leaf-su2-r0/1, leaf-su2-r1/1, leaf-su2-r0/2, leaf-su2-r1/2]}
- {label: 'c[09-16]', a: 'leaf-su[1-2]-r[0-1]/[33-34]', b: [spine-1/1, spine-2/1, spine-1/2, spine-2/2, spine-1/3, spine-2/3, spine-1/4, spine-2/4]}
customers:
- {name: acme, redundancy: feed-loss}
";

/// The site of a text without errors.
pub fn site(text: &str) -> Site {
    let checked = check(&[Source { name: "site", text }]);
    let errors: Vec<String> = checked.findings.list.iter().map(ToString::to_string).collect();
    checked.site.unwrap_or_else(|| panic!("{errors:#?}"))
}

/// A generated site with the customer `acme`.
pub fn generated(nodes: usize) -> Site {
    let text = site_file(&Request::new(ReferenceSku::DgxH100, nodes)).unwrap();
    site(&format!("{text}---\ncustomers:\n- {{name: acme}}\n"))
}

/// A ledger with reservations for exactly these nodes.
pub fn ledger(site: &Site, nodes: &[NodeId]) -> Ledger {
    let mut ledger = Ledger::new(site);
    let wanted: Vec<Reservation> = nodes
        .iter()
        .map(|node| Reservation::full(site, *node, CustomerId(0)))
        .collect();
    let refused = ledger.reserve(site, &wanted).err().unwrap_or_default();
    let refused: Vec<String> = refused.iter().map(|one| one.words(site)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    ledger
}

/// Nodes as members with their names in the site.
pub fn members(site: &Site, nodes: &[NodeId]) -> Vec<Member> {
    let member = |node: &NodeId| Member {
        node: *node,
        hostname: site.node(*node).name.to_string(),
        address: None,
        spare: false,
    };
    nodes.iter().map(member).collect()
}

/// A cluster without a partition and a report.
pub fn cluster<'a>(site: &'a Site, ledger: &'a Ledger, members: Vec<Member>) -> Cluster<'a> {
    Cluster {
        site,
        name: "alpha",
        customer: "acme",
        members,
        ledger,
        processors: BTreeMap::new(),
        partition: None,
        report: Vec::new(),
    }
}

/// The partition with all ports of the members and the GUIDs of the site.
pub fn partition(site: &Site, members: &[Member]) -> PartitionSheet {
    let ports = members.iter().flat_map(|member| {
        let guids = site.node(member.node).port_guids.iter().enumerate();
        guids.map(|(hca, guid)| PartitionPort {
            node: member.node,
            hca: u8::try_from(hca).unwrap(),
            guid: Guid::new(guid.unwrap()).unwrap(),
            membership: Membership::Full,
        })
    });
    PartitionSheet {
        name: "tenant-alpha".to_owned(),
        key: PKey::new(0x101).unwrap(),
        index: 0,
        ports: ports.collect(),
    }
}

/// All files of the pack, by name.
pub fn files(cluster: &Cluster<'_>) -> BTreeMap<String, String> {
    let files = pack(cluster, &Format::ALL).unwrap_or_else(|refused| panic!("{refused}"));
    files.into_iter().map(|PackFile { name, text }| (name, text)).collect()
}

/// The faults of the cluster, one line each.
pub fn faults(cluster: &Cluster<'_>, formats: &[Format]) -> Vec<String> {
    let refused = pack(cluster, formats).err();
    refused.map_or_else(Vec::new, |refused| {
        refused.faults.iter().map(ToString::to_string).collect()
    })
}

/// The names of a Slurm list, in order.
pub fn expand(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        let (prefix, after) = rest.split_at(end);
        let Some(inner) = after.strip_prefix('[') else {
            names.push(prefix.to_owned());
            rest = after.strip_prefix(',').unwrap_or(after);
            continue;
        };
        let (ranges, after) = inner.split_once(']').unwrap();
        for range in ranges.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let width = low.len();
            let (low, high): (u64, u64) = (low.parse().unwrap(), high.parse().unwrap());
            assert!(low <= high, "{list}");
            names.extend((low..=high).map(|number| format!("{prefix}{number:0width$}")));
        }
        assert!(after.is_empty() || after.starts_with(','), "{list}");
        rest = after.trim_start_matches(',');
    }
    names
}

/// A topology.conf: the nodes and the switches below each switch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub nodes: BTreeMap<String, Vec<String>>,
    pub switches: BTreeMap<String, Vec<String>>,
}

impl Topology {
    pub fn of_conf(text: &str) -> Self {
        let mut topology = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, below) = line.split_once(' ').unwrap();
            let name = name.strip_prefix("SwitchName=").unwrap();
            let (map, list) = match below.strip_prefix("Nodes=") {
                Some(list) => (&mut topology.nodes, list),
                None => (&mut topology.switches, below.strip_prefix("Switches=").unwrap()),
            };
            assert!(map.insert(name.to_owned(), expand(list)).is_none(), "{name} twice");
        }
        topology
    }

    pub fn of_yaml(text: &str) -> Self {
        let mut topology = Self::default();
        let tree = &yaml(text)[0];
        for switch in tree.at(0).get("tree").get("switches").items() {
            let name = switch.get("switch").text().to_owned();
            if let Some(nodes) = switch.find("nodes") {
                topology.nodes.insert(name, expand(nodes.text()));
            } else {
                topology.switches.insert(name, expand(switch.get("children").text()));
            }
        }
        topology
    }

    /// Checks that every node occurs once and every switch except roots is below one other. Returns the number of
    /// roots.
    pub fn check(&self, hosts: &[String]) -> usize {
        let mut named: Vec<&String> = self.nodes.values().flatten().collect();
        named.sort();
        let mut wanted: Vec<&String> = hosts.iter().collect();
        wanted.sort();
        assert_eq!(named, wanted, "each member once");
        let mut children: Vec<&String> = self.switches.values().flatten().collect();
        children.sort();
        let count = children.len();
        children.dedup();
        assert_eq!(children.len(), count, "a switch below two others");
        let known = |name: &String| self.nodes.contains_key(name) || self.switches.contains_key(name);
        assert!(children.iter().all(|name| known(name)), "{children:?}");
        self.nodes.len() + self.switches.len() - count
    }
}

/// YAML as a tree with unique keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Yaml {
    Text(String),
    List(Vec<Yaml>),
    Map(BTreeMap<String, Yaml>),
}

impl Yaml {
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }

    pub fn items(&self) -> &[Yaml] {
        match self {
            Self::List(items) => items,
            other => panic!("no list: {other:?}"),
        }
    }

    pub fn map(&self) -> &BTreeMap<String, Yaml> {
        match self {
            Self::Map(map) => map,
            other => panic!("no mapping: {other:?}"),
        }
    }

    pub fn at(&self, index: usize) -> &Yaml {
        &self.items()[index]
    }

    pub fn find(&self, key: &str) -> Option<&Yaml> {
        self.map().get(key)
    }

    pub fn get(&self, key: &str) -> &Yaml {
        self.find(key).unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }
}

/// All documents of a text.
pub fn yaml(text: &str) -> Vec<Yaml> {
    let mut parser = Parser::new_from_str(text);
    let mut events = std::iter::from_fn(|| {
        loop {
            match parser.next()?.unwrap_or_else(|error| panic!("{error}\n{text}")).0 {
                Event::Comment(..) => {}
                event => return Some(event),
            }
        }
    });
    let mut documents = Vec::new();
    while let Some(event) = events.next() {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => {}
            event => documents.push(tree(event, &mut events)),
        }
    }
    documents
}

fn tree<'a>(event: Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Yaml {
    match event {
        Event::Scalar(text, ..) => Yaml::Text(text.to_string()),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match events.next().unwrap() {
                    Event::SequenceEnd => return Yaml::List(items),
                    event => items.push(tree(event, events)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut map = BTreeMap::new();
            loop {
                let key = match events.next().unwrap() {
                    Event::MappingEnd => return Yaml::Map(map),
                    event => tree(event, events).text().to_owned(),
                };
                let event = events.next().unwrap();
                let value = tree(event, events);
                assert!(map.insert(key.clone(), value).is_none(), "{key} twice");
            }
        }
        event => panic!("{event:?}"),
    }
}
