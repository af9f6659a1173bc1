//! Section `cables`.
//!
//! A site of 100,000 nodes has millions of cables. So labels are stored once, and a bit marks each port that has a cable.

use std::collections::HashSet;
use std::collections::hash_map::{self, HashMap};
use std::hash::BuildHasher as _;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use foldhash::quality::RandomState;

use super::fabric::{LastDevice, check_pair, end};
use super::fields::{Entry, Fields, NameCycle};
use super::pattern::NameList;
use super::table::MAX_ITEMS;
use super::{Draft, Item, Sections, item_fields};
use crate::finding::{Limits, Sink};
use crate::model::{Cable, FabricId, FabricPurpose, Port, Site, Switch, SwitchId};

/// Fewest items for which further threads are worth their start.
const ITEMS_OF_A_THREAD: usize = 500;
/// Most threads that read cables.
const MOST_THREADS: usize = 8;

/// The cables of a site during the reading of the files.
#[derive(Debug, Default)]
struct Cables {
    entries: Vec<Entry>,
    cables: Vec<Cable>,
    /// The source entry of each cable.
    from: Vec<u32>,
    /// The hash of each label.
    hashes: Vec<u64>,
    hasher: RandomState,
    /// Ends at ports that have a cable already.
    second: Vec<End>,
    names: ItemNames,
}

/// The names of the present item. Their memory is used for all items.
#[derive(Debug, Default)]
struct ItemNames {
    labels: NameList,
    a: NameCycle,
    b: NameCycle,
}

/// One end of a cable, as read. Ordered by port, then by position in the file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    port: Port,
    cable: u32,
    field: &'static str,
    entry: u32,
}

/// Ports that have a cable, one bit each. Several threads may mark ports.
struct UsedPorts {
    /// By node.
    hcas: Vec<[AtomicU64; 4]>,
    /// By switch. Empty before the first cable.
    switches: Vec<OnceLock<Box<[AtomicU64]>>>,
}

impl UsedPorts {
    fn none(site: &Site) -> Self {
        Self {
            hcas: site.nodes.iter().map(|_| Default::default()).collect(),
            switches: site.switches.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Marks a port. Returns false if the port is marked already.
    fn mark(&self, site: &Site, port: Port) -> bool {
        let (words, number): (&[AtomicU64], usize) = match port {
            Port::Hca { node, hca } => (&self.hcas[node.index()], usize::from(hca)),
            Port::Switch { switch, port } => {
                let words = usize::from(site.switch(switch).ports) / 64 + 1;
                let none = || (0..words).map(|_| AtomicU64::new(0)).collect();
                (self.switches[switch.index()].get_or_init(none), usize::from(port))
            }
        };
        let bit = 1_u64 << (number % 64);
        words[number / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// Connected switches, and the fabric of each set of them.
struct Connected {
    /// By switch: another switch of its set, or itself.
    above: Vec<usize>,
    /// The fabric of a set, at the switch that stands for the set.
    fabrics: Vec<Option<FabricId>>,
}

impl Connected {
    /// Every switch in a set of its own.
    fn of(switches: &[Switch]) -> Self {
        Self {
            above: (0..switches.len()).collect(),
            fabrics: switches.iter().map(|switch| switch.fabric).collect(),
        }
    }

    /// The switch that stands for the set.
    fn first(&mut self, switch: usize) -> usize {
        let mut first = switch;
        while self.above[first] != first {
            self.above[first] = self.above[self.above[first]];
            first = self.above[first];
        }
        first
    }

    /// Joins the sets of two switches. Error: the sets are of these two fabrics.
    fn join(&mut self, a: usize, b: usize) -> Result<(), [FabricId; 2]> {
        let (a, b) = (self.first(a), self.first(b));
        let fabric = match (self.fabrics[a], self.fabrics[b]) {
            (Some(one), Some(other)) if one != other => return Err([one.min(other), one.max(other)]),
            (one, other) => one.or(other),
        };
        self.above[a.max(b)] = a.min(b);
        self.fabrics[a.min(b)] = fabric;
        Ok(())
    }
}

pub(super) fn read_cables(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    let items = sections.of("cables");
    let threads = (items.len() / ITEMS_OF_A_THREAD).min(MOST_THREADS);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(threads);
    let together = (threads > 1).then(|| Cables::read_together(draft, items, threads, sink));
    let mut cables = together
        .flatten()
        .unwrap_or_else(|| Cables::read_in_order(draft, items, sink));
    draft.site.cables = std::mem::take(&mut cables.cables);
    cables.join_fabrics(draft, sink);
    cables.check_labels(draft, sink);
    cables.check_second(draft, sink);
}

impl Cables {
    fn read_in_order(draft: &Draft, items: &[Item<'_>], sink: &mut Sink) -> Self {
        let (mut cables, used) = (Self::default(), UsedPorts::none(&draft.site));
        for item in items {
            if let Some(fields) = item_fields("cables", *item, sink) {
                cables.read(draft, &used, fields);
            }
        }
        cables
    }

    /// Reads with several threads. `None`: something is wrong or a limit is near, so that the order of the items matters.
    fn read_together(draft: &Draft, items: &[Item<'_>], threads: usize, sink: &mut Sink) -> Option<Self> {
        let left = sink.names_left()?;
        let (used, hasher, stop) = (
            UsedPorts::none(&draft.site),
            RandomState::default(),
            AtomicBool::new(false),
        );
        let read = |part: usize, items: &[Item<'_>]| {
            // The first part takes in the others.
            let times = if part == 0 { 16 * threads } else { 16 };
            let mut sink = Sink::within(Vec::new(), Limits { names: left });
            let mut cables = Self {
                hasher: hasher.clone(),
                ..Self::default()
            };
            for (i, item) in items.iter().enumerate() {
                if i > 0 && i == items.len() / 16 {
                    cables.reserve_as_before(times);
                }
                if let Some(fields) = item_fields("cables", *item, &mut sink) {
                    cables.read(draft, &used, fields);
                }
                if !sink.is_empty() || !cables.second.is_empty() || stop.load(Ordering::Relaxed) {
                    stop.store(true, Ordering::Relaxed);
                    return None;
                }
            }
            Some((cables, left - sink.names_left()?))
        };
        let read = &read;
        let parts: Option<Vec<(Self, usize)>> = thread::scope(|scope| {
            let parts = items.chunks(items.len().div_ceil(threads)).enumerate();
            let readers: Vec<_> = parts
                .map(|(part, items)| scope.spawn(move || read(part, items)))
                .collect();
            readers.into_iter().map(|reader| reader.join().ok().flatten()).collect()
        });
        let mut parts = parts?.into_iter();
        let (mut all, mut names) = parts.next()?;
        for (part, of_part) in parts {
            names += of_part;
            let before = all.entries.len() as u32;
            all.from.extend(part.from.iter().map(|entry| before + entry));
            all.entries.extend(part.entries);
            all.cables.extend(part.cables);
            all.hashes.extend(part.hashes);
        }
        if names > left || all.cables.len() > MAX_ITEMS {
            return None;
        }
        sink.take_names(Some(names));
        Some(all)
    }

    /// Takes memory for this many times the cables so far: lists that grow step by step are copied.
    fn reserve_as_before(&mut self, times: usize) {
        let cables = self.cables.len().saturating_mul(times);
        self.cables.reserve(cables);
        self.from.reserve(cables);
        self.hashes.reserve(cables);
    }

    fn read(&mut self, draft: &Draft, used: &UsedPorts, mut fields: Fields<'_, '_>) {
        let mut names = std::mem::take(&mut self.names);
        fields.own_names_into("label", &mut names.labels);
        fields.need_names_into("a", &mut names.a);
        fields.need_names_into("b", &mut names.b);
        let ItemNames { labels, a, b } = &names;
        for (field, len) in [("a", a.len()), ("b", b.len())] {
            fields.distributes(field, len, labels.len());
        }
        let (sink, entry) = fields.finish_with_sink();
        let count = if labels.is_empty() {
            a.len().max(b.len())
        } else {
            labels.len()
        };
        let mut last = [LastDevice::default(); 2];
        for i in 0..count {
            let one = a
                .get(i)
                .and_then(|text| end(draft, &entry, "a", text, &mut last[0], sink));
            let other = b
                .get(i)
                .and_then(|text| end(draft, &entry, "b", text, &mut last[1], sink));
            let (cable, from) = (self.from.len() as u32, self.entries.len() as u32);
            for (field, port) in [("a", one), ("b", other)] {
                if let Some(port) = port.filter(|port| !used.mark(&draft.site, *port)) {
                    self.second.push(End {
                        port,
                        cable,
                        field,
                        entry: from,
                    });
                }
            }
            if let (Some(one), Some(other)) = (one, other) {
                check_pair(draft, &entry, one, other, sink);
            }
            let Some(label) = labels.get(i) else { continue };
            if self.cables.len() >= MAX_ITEMS {
                entry.error(sink, "", "there are too many items", "");
                break;
            }
            self.from.push(from);
            self.hashes.push(self.hasher.hash_one(label));
            // A cable with an invalid end keeps its place, so that ids and names stay in step.
            let nowhere = Port::Switch {
                switch: SwitchId::NONE,
                port: 0,
            };
            self.cables.push(Cable {
                label: label.into(),
                a: one.unwrap_or(nowhere),
                b: other.unwrap_or(nowhere),
            });
        }
        self.entries.push(entry);
        self.names = names;
    }

    /// Reports labels that several cables have.
    fn check_labels(&mut self, draft: &Draft, sink: &mut Sink) {
        // One sort of hashes is faster than a map of labels. Equal hashes are rare unless labels are equal.
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.sort_unstable();
        let several: HashSet<u64> = hashes
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
            .collect();
        drop(hashes);
        if several.is_empty() {
            return;
        }
        let mut first: HashMap<&str, u32> = HashMap::new();
        for (cable, from) in draft.site.cables.iter().zip(&self.from) {
            let label = &*cable.label;
            if !several.contains(&self.hasher.hash_one(label)) {
                continue;
            }
            match first.entry(label) {
                hash_map::Entry::Vacant(free) => {
                    free.insert(*from);
                }
                hash_map::Entry::Occupied(first) => {
                    let place = sink.place(self.entries[*first.get() as usize].spot("label"));
                    let what = format!("a cable named {label} exists already, at {place}");
                    self.entries[*from as usize].error(sink, "label", what, "rename one of them");
                }
            }
        }
    }

    /// Gives each switch without a fabric the fabric of the switches that it is connected to, reports cables between two
    /// fabrics, and notes the ports that lead to storage.
    fn join_fabrics(&self, draft: &mut Draft, sink: &mut Sink) {
        if draft.site.fabrics.is_empty() {
            return;
        }
        let site = &mut draft.site;
        let mut connected = Connected::of(&site.switches);
        let mut reported = HashSet::new();
        for (cable, from) in site.cables.iter().zip(&self.from) {
            let (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) = (cable.a, cable.b) else {
                continue;
            };
            if a.is_none() || b.is_none() {
                continue;
            }
            if let Err(fabrics) = connected.join(a.index(), b.index())
                && reported.insert(fabrics)
            {
                let [one, other] = fabrics.map(|fabric| &*site.fabrics[fabric.index()].name);
                let what = format!("cable {} connects the fabrics {one} and {other}", cable.label);
                let fix = "correct the cable, or `fabric` of its switches";
                self.entries[*from as usize].error(sink, "b", what, fix);
            }
        }
        for (at, switch) in site.switches.iter_mut().enumerate() {
            let first = connected.first(at);
            switch.fabric = connected.fabrics[first];
        }
        let storage = |switch: SwitchId| {
            let fabric = site.switches.get(switch.index()).and_then(|switch| switch.fabric);
            fabric.is_some_and(|fabric| site.fabrics[fabric.index()].purpose == FabricPurpose::Storage)
        };
        let cabled = site.cabled_hcas();
        let ports =
            cabled.filter_map(|(node, hca, switch)| Some((node, storage(switch).then_some(u8::try_from(hca).ok()?)?)));
        let mut ports: Vec<_> = ports.collect();
        ports.sort_unstable();
        site.storage_ports = ports;
    }

    /// Reports ports with several cables.
    fn check_second(mut self, draft: &Draft, sink: &mut Sink) {
        if self.second.is_empty() {
            return;
        }
        self.second.sort_unstable();
        let mut first: HashMap<Port, Option<&Cable>> = self.second.iter().map(|end| (end.port, None)).collect();
        for cable in &draft.site.cables {
            for port in [cable.a, cable.b] {
                if let Some(known) = first.get_mut(&port) {
                    known.get_or_insert(cable);
                }
            }
        }
        for end in &self.second {
            let label = first[&end.port].map_or("this cable", |cable| &*cable.label);
            let what = format!("{} already has a cable, {label}", draft.site.port_name(end.port));
            let entry = &self.entries[end.entry as usize];
            entry.error(sink, end.field, what, "a port takes one cable");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Draft, Sections, Source, fabric, nodes, read_trees, rooms, skus};
    use super::*;

    const HALL: &str = "\
site: {name: test}
rooms: [{name: hall}]
racks: [{name: r1, room: hall, units: 100}]
skus: [{name: gpu, rated_watts: 700, height_units: 1, psus: {count: 1, needed: 1}, hcas: [mlx5_0]}]
nodes: [{name: 'gpu-[01-40]', sku: gpu, rack: r1, unit: '[1-40]', psus: [~]}]
switches: [{name: 'leaf-[1-2]', role: leaf, ports: 40}, {name: spine, role: spine, ports: 40}]
cables:
";

    /// The cables of a hall, read by three threads or in order, with all findings.
    fn read(cables: &str, together: bool) -> (Option<Cables>, Vec<String>) {
        let text = format!("{HALL}{cables}");
        let mut sink = Sink::new(vec!["site.yaml".into()]);
        let trees = read_trees(
            &[Source {
                name: "site.yaml",
                text: &text,
            }],
            &mut sink,
        );
        let mut sections = Sections::default();
        for tree in &trees.documents {
            sections.collect(tree, &mut sink);
        }
        let mut draft = Draft::new(trees.whole, &sections);
        rooms::read_rooms(&mut draft, &sections, &mut sink);
        rooms::read_racks(&mut draft, &sections, &mut sink);
        skus::read(&mut draft, &sections, &mut sink);
        nodes::read(&mut draft, &sections, &mut sink);
        fabric::read_switches(&mut draft, &sections, &mut sink);
        assert_eq!((draft.site.nodes.len(), draft.site.switches.len()), (40, 3));
        let mut sink = Sink::new(vec!["site.yaml".into()]);
        let items = sections.of("cables");
        let read = match together {
            true => Cables::read_together(&draft, items, 3, &mut sink),
            false => Some(Cables::read_in_order(&draft, items, &mut sink)),
        };
        let read = read.map(|mut cables| {
            draft.site.cables.clone_from(&cables.cables);
            cables.check_labels(&draft, &mut sink);
            cables
        });
        let findings = sink.finish().list.iter().map(ToString::to_string).collect();
        (read, findings)
    }

    fn items(numbers: std::ops::RangeInclusive<u32>) -> String {
        let item = |n| format!("- {{label: c{n}, a: gpu-{n:02}/mlx5_0, b: leaf-1/{n}}}\n");
        numbers.map(item).collect()
    }

    #[test]
    fn several_threads_read_what_one_reads() {
        let text = items(1..=30) + "- {label: 'u[1-2]', a: 'leaf-[1-2]/40', b: 'spine/[1-2]'}\n" + &items(31..=39);
        let (one, findings) = read(&text, false);
        let (several, findings_of_several) = read(&text, true);
        assert_eq!((findings, findings_of_several), (Vec::new(), Vec::new()));
        let (one, several) = (one.unwrap(), several.unwrap());
        assert_eq!(one.cables.len(), 41);
        assert_eq!((&one.cables, &one.from), (&several.cables, &several.from));
        assert_eq!(one.entries.len(), several.entries.len());
    }

    #[test]
    fn a_fault_is_left_to_one_thread() {
        for (wrong, finding) in [
            (
                "- {label: x, a: gpu-40/mlx5_0, b: leaf-2/99}\n",
                "leaf-2 has no port 99",
            ),
            (
                "- {label: x, a: gpu-40/mlx5_0, b: leaf-3/1}\n",
                "there is no node or switch named `leaf-3`",
            ),
            ("- {label: x, a: gpu-40/mlx5_0}\n", "`b` is missing"),
        ] {
            let text = items(1..=20) + wrong + &items(21..=30);
            assert!(read(&text, true).0.is_none(), "{wrong}");
            let (_, findings) = read(&text, false);
            assert!(findings.len() == 1 && findings[0].contains(finding), "{findings:?}");
        }
        // A port that is used twice, by cables that different threads read.
        let twice = items(1..=30) + "- {label: x, a: gpu-40/mlx5_0, b: leaf-1/1}\n";
        assert!(read(&twice, true).0.is_none());
        assert_eq!(read(&twice, false).0.unwrap().second.len(), 1);
    }

    #[test]
    fn a_label_that_two_cables_have_is_named_with_both_places() {
        let text = items(1..=20) + "- {label: c7, a: gpu-30/mlx5_0, b: leaf-1/30}\n" + &items(21..=29);
        for together in [false, true] {
            let (_, findings) = read(&text, together);
            assert_eq!(
                findings,
                ["site.yaml:28:11: error: cables[20].label: a cable named c7 exists already, at site.yaml:14"]
            );
        }
    }
}
