//! Cables: the connections between parts, and the fabric.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::{Row, Table};
use super::{Class, Importer, Part};
use crate::draft::{Cable, End};
use crate::names::Namer;
use crate::site_speed;
use rackwright_infiniband::name::natural;
use rackwright_infiniband::{Guid, Speed as LaneSpeed};

/// Kinds of parts, by their index in `parts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartKind {
    Interface,
    PowerPort,
    Outlet,
    Feed,
    FrontPort,
    RearPort,
}

impl PartKind {
    const ALL: [Self; 6] = [
        Self::Interface,
        Self::PowerPort,
        Self::Outlet,
        Self::Feed,
        Self::FrontPort,
        Self::RearPort,
    ];

    /// The name in NetBox's API and import forms.
    fn object_type(self) -> &'static str {
        match self {
            Self::Interface => "dcim.interface",
            Self::PowerPort => "dcim.powerport",
            Self::Outlet => "dcim.poweroutlet",
            Self::Feed => "dcim.powerfeed",
            Self::FrontPort => "dcim.frontport",
            Self::RearPort => "dcim.rearport",
        }
    }

    fn goes_with(self, other: Self) -> bool {
        use PartKind::{Feed, FrontPort, Interface, Outlet, PowerPort, RearPort};
        matches!(
            (self, other),
            (Interface | FrontPort | RearPort, Interface | FrontPort | RearPort)
                | (PowerPort, Outlet | Feed)
                | (Outlet | Feed, PowerPort)
        )
    }
}

/// A part, by kind and index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) kind: PartKind,
    pub(super) at: usize,
}

/// Parts, by the names and ids that cables use.
pub(super) struct Index<'a> {
    devices: BTreeMap<&'a str, Vec<usize>>,
    pub(super) by_id: BTreeMap<(PartKind, &'a str), usize>,
    pub(super) by_name: BTreeMap<(PartKind, Option<usize>, &'a str), Vec<usize>>,
}

impl<'a> Index<'a> {
    pub(super) fn of(importer: &Importer<'a>) -> Self {
        let mut index = Self {
            devices: BTreeMap::new(),
            by_id: BTreeMap::new(),
            by_name: BTreeMap::new(),
        };
        for (at, device) in importer.devices.iter().enumerate() {
            index.devices.entry(device.row.get("name")).or_default().push(at);
        }
        for (kind, parts) in PartKind::ALL.into_iter().zip(&importer.parts) {
            for (at, part) in parts.iter().enumerate() {
                let id = part.row.get("id");
                if !id.is_empty() {
                    index.by_id.insert((kind, id), at);
                }
                index
                    .by_name
                    .entry((kind, part.device, part.name))
                    .or_default()
                    .push(at);
            }
        }
        index
    }

    /// The parts that may be meant by an end of a cable.
    fn points(&self, row: &Row, side: Side) -> Vec<Point> {
        let (name, device) = (row.get(side.name), row.get(side.device));
        let (said, id) = (row.get(side.kind), row.get(side.id));
        let mut found = Vec::new();
        for kind in PartKind::ALL {
            if !said.is_empty() && said != kind.object_type() {
                continue;
            }
            if !id.is_empty() {
                found.extend(self.by_id.get(&(kind, id)).map(|at| Point { kind, at: *at }));
                continue;
            }
            let devices: &[usize] = self.devices.get(device).map_or(&[], Vec::as_slice);
            let holders: Vec<Option<usize>> = match kind {
                PartKind::Feed if device.is_empty() => vec![None],
                PartKind::Feed => Vec::new(),
                _ => devices.iter().map(|device| Some(*device)).collect(),
            };
            for holder in holders {
                let places = self.by_name.get(&(kind, holder, name)).into_iter().flatten();
                found.extend(places.map(|at| Point { kind, at: *at }));
            }
        }
        found
    }
}

/// The columns of one end.
#[derive(Clone, Copy)]
struct Side {
    name: &'static str,
    device: &'static str,
    kind: &'static str,
    id: &'static str,
}

const A: Side = Side {
    name: "a",
    device: "device_a",
    kind: "type_a",
    id: "id_a",
};

const B: Side = Side {
    name: "b",
    device: "device_b",
    kind: "type_b",
    id: "id_b",
};

impl<'a> Importer<'a> {
    pub(super) fn part(&self, point: Point) -> Option<&Part<'a>> {
        self.parts.get(point.kind as usize)?.get(point.at)
    }

    /// Resolves the two ends of each cable.
    pub(super) fn join(&mut self) {
        let (tables, index) = (self.tables, Index::of(self));
        let mut labels = Namer::default();
        for row in tables.rows(Table::Cables) {
            let (a, b) = (index.points(row, A), index.points(row, B));
            let pairs: Vec<(Point, Point)> = a
                .iter()
                .flat_map(|a| b.iter().map(move |b| (*a, *b)))
                .filter(|(a, b)| a != b && a.kind.goes_with(b.kind))
                .collect();
            match pairs.as_slice() {
                [(a, b)] => self.connect(row, *a, *b, &mut labels),
                [] if a.is_empty() == b.is_empty() => {}
                [] => self.loose(row, &a, &b),
                _ => {
                    let what = format!("{} and {} each name several ports", words(row, A), words(row, B));
                    let fix = "give them different names, or import by the API, which has their ids";
                    self.sink.error(row.spot("a"), "termination_a", what, fix);
                }
            }
        }
        self.follow_panels(&mut labels);
    }

    /// A cable with only one known end.
    fn loose(&mut self, row: &Row, a: &[Point], b: &[Point]) {
        let (known, side) = if a.is_empty() { (b, A) } else { (a, B) };
        // Interfaces other than InfiniBand may be connected to anything.
        let ours = |point: &Point| {
            let part = self.part(*point);
            point.kind != PartKind::Interface || part.is_some_and(|part| signal(part.row.get("type")).is_some())
        };
        if known.iter().any(ours) {
            let what = format!("{} is not imported: the cable is left out", words(row, side));
            let fix = "import its table, or map the role of its device; cables through patch panels need their \
                       front-ports and rear-ports";
            self.sink.warning(row.spot(side.name), side.name, what, fix);
        }
    }

    fn connect(&mut self, row: &Row, a: Point, b: Point, labels: &mut Namer) {
        for (point, side) in [(a, A), (b, B)] {
            if self.peers.contains_key(&point) {
                let what = format!("{} already has a cable", words(row, side));
                self.sink
                    .error(row.spot(side.name), side.name, what, "a port takes one cable");
                return;
            }
        }
        self.peers.insert(a, b);
        self.peers.insert(b, a);
        let (label, id) = (row.get("label"), row.get("id"));
        let label = match (label, id) {
            ("", "") => return,
            ("", id) => labels.unique_name(&format!("cable-{id}"), &[]),
            (label, id) => labels.unique_name(label, &[&format!("{label}-{id}")]),
        };
        self.labels.insert(a.min(b), label);
    }

    /// Collects switch ports, node GUIDs, and the cables between them.
    pub(super) fn fabric(&mut self) {
        let mut ends: BTreeMap<usize, End> = BTreeMap::new();
        for device in 0..self.devices.len() {
            match self.devices.get(device).map(|device| device.class) {
                Some(Class::Node(node)) => self.hcas(device, node, &mut ends),
                Some(Class::Switch(switch)) => self.ports(device, switch, &mut ends),
                _ => {}
            }
        }
        for (from, to) in &self.peers {
            if from.kind != PartKind::Interface || to < from {
                continue;
            }
            let (Some(a), Some(b)) = (ends.get(&from.at), ends.get(&to.at)) else {
                continue;
            };
            let label = self.labels.get(from).cloned().unwrap_or_default();
            let (a, b) = match (a, b) {
                (End::Port(..), End::Hca(..)) => (b.clone(), a.clone()),
                _ => (a.clone(), b.clone()),
            };
            let note = self.notes.get(from).cloned().unwrap_or_default();
            self.draft.cables.push(Cable { label, a, b, note });
        }
    }

    /// The InfiniBand interfaces of a device, in natural order.
    pub(super) fn interfaces(&self, device: usize) -> impl Iterator<Item = (usize, &Part<'a>, LaneSpeed)> {
        let parts = &self.parts[PartKind::Interface as usize];
        let first = parts.partition_point(|part| part.device < Some(device));
        let own = parts.iter().enumerate().skip(first);
        let own = own.take_while(move |(_, part)| part.device == Some(device));
        own.filter_map(|(at, part)| Some((at, part, signal(part.row.get("type"))?)))
    }

    /// The HCA names of a device's interfaces.
    pub(super) fn hca_names(&self, device: usize) -> Vec<(usize, String)> {
        let mut names = Namer::default();
        self.interfaces(device)
            .map(|(at, part, _)| (at, names.unique_name(part.name, &[])))
            .collect()
    }

    fn hcas(&mut self, device: usize, node: usize, ends: &mut BTreeMap<usize, End>) {
        let known: BTreeSet<String> = self.hcas_of(node);
        let (mut left_out, mut guids) = (Vec::new(), Vec::new());
        let mut bad = Vec::new();
        for (at, name) in self.hca_names(device) {
            if !known.contains(&name) {
                left_out.push(name);
                continue;
            }
            ends.insert(at, End::Hca(node, name.clone()));
            let kind = PartKind::Interface;
            let Some(part) = self.part(Point { kind, at }) else {
                continue;
            };
            match part.row.get("wwn") {
                "" => {}
                text => match text.parse::<Guid>() {
                    Ok(guid) => guids.push((name, guid.get())),
                    Err(error) => bad.push((part.row.spot("wwn"), error.to_string())),
                },
            }
        }
        for (at, what) in bad {
            self.sink.warning(at, "wwn", what, "the GUID is left out");
        }
        if let Some(node) = self.draft.nodes.get_mut(node) {
            node.guids = guids;
            if !left_out.is_empty() {
                let what = format!(
                    "interfaces that are not HCAs of its SKU are left out: {}",
                    left_out.join(", ")
                );
                node.remarks
                    .assumed("sku", what, "add them to the SKU if they belong to the fabric");
            }
        }
    }

    fn ports(&mut self, device: usize, switch: usize, ends: &mut BTreeMap<usize, End>) {
        let found: Vec<(usize, Option<u16>, LaneSpeed)> = self
            .interfaces(device)
            .map(|(at, part, speed)| (at, port_number(part.name), speed))
            .collect();
        let said: BTreeSet<u16> = found.iter().filter_map(|(_, number, _)| *number).collect();
        let by_name = said.len() == found.len();
        let mut last = 0;
        for (place, (at, number, _)) in (1_u16..=4096).zip(&found) {
            let number = number.filter(|_| by_name).unwrap_or(place);
            last = last.max(number);
            ends.insert(*at, End::Port(switch, number));
        }
        let speed = most(found.iter().map(|(_, _, speed)| *speed));
        let Some(switch) = self.draft.switches.get_mut(switch) else {
            return;
        };
        switch.ports = last;
        switch.speed = speed.map(|speed| site_speed(speed, "speed", &mut switch.remarks));
        if found.is_empty() {
            let what = "NetBox has no InfiniBand interface of this switch";
            switch
                .remarks
                .missing("ports", what, "add its interfaces in NetBox, or write its ports");
        } else if !by_name {
            switch
                .remarks
                .comments
                .push("ports are counted in the natural order of their names".to_owned());
        }
    }
}

fn words(row: &Row, side: Side) -> String {
    match (row.get(side.device), row.get(side.name)) {
        ("", name) => name.to_owned(),
        (device, name) => format!("{device} {name}"),
    }
}

/// The most frequent speed. On a tie, the faster one.
pub(super) fn most(speeds: impl Iterator<Item = LaneSpeed>) -> Option<LaneSpeed> {
    let mut counts: BTreeMap<LaneSpeed, usize> = BTreeMap::new();
    speeds.for_each(|speed| *counts.entry(speed).or_default() += 1);
    counts
        .into_iter()
        .max_by_key(|(speed, count)| (*count, *speed))
        .map(|(speed, _)| speed)
}

/// The signalling of an InfiniBand interface, from `infiniband-ndr` or `NDR (100 Gbps)`. `None` for other interfaces.
pub(super) fn signal(kind: &str) -> Option<LaneSpeed> {
    let mut words = kind.split(|c: char| !c.is_ascii_alphanumeric());
    words.find_map(|word| word.parse().ok())
}

/// The number 7 from `7`, `ib7` or `Port 7`. `None` if there is more than one number.
fn port_number(name: &str) -> Option<u16> {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().ok().filter(|number| (1..=4096).contains(number))
}

/// Natural order, with ties broken by plain order.
pub(super) fn in_order(a: &str, b: &str) -> std::cmp::Ordering {
    natural(a, b).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_infiniband_are_known_by_their_type() {
        for (kind, speed) in [
            ("infiniband-ndr", Some(LaneSpeed::Ndr)),
            ("NDR (100 Gbps)", Some(LaneSpeed::Ndr)),
            ("XDR 4X (800 Gbps)", Some(LaneSpeed::Xdr)),
            ("infiniband-fdr10", Some(LaneSpeed::Fdr10)),
            ("1000base-t", None),
            ("400gbase-x-osfp", None),
            ("", None),
        ] {
            assert_eq!(signal(kind), speed, "{kind}");
        }
    }

    #[test]
    fn ports_are_numbered_by_their_names() {
        let numbers = ["7", "ib7", "Port 7", "1/2", "0", "9999", "x"].map(port_number);
        assert_eq!(numbers, [Some(7), Some(7), Some(7), None, None, None, None]);
    }
}
