//! Section `cables`.
//!
//! A site of 100,000 nodes has millions of cables. So labels are stored once, and a bit marks each port that has a cable.

use std::collections::{HashMap, HashSet};

use super::fabric::{check_pair, end};
use super::fields::{Entry, Fields};
use super::table::{MAX_ITEMS, NameIndex};
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{Cable, FabricId, FabricPurpose, Port, Switch, SwitchId};

/// The cables of a site during the reading of the files.
#[derive(Debug, Default)]
struct Cables {
    entries: Vec<Entry>,
    /// The source entry of each cable of the site.
    from: Vec<u32>,
    labels: NameIndex,
    used: UsedPorts,
    /// Ends at ports that have a cable already.
    second: Vec<End>,
}

/// One end of a cable, as read. Ordered by port, then by position in the file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    port: Port,
    cable: u32,
    field: &'static str,
    entry: u32,
}

/// Ports that have a cable, one bit each.
#[derive(Debug, Default)]
struct UsedPorts {
    /// By node.
    hcas: Vec<[u64; 4]>,
    /// By switch. Empty before the first cable.
    switches: Vec<Vec<u64>>,
}

impl UsedPorts {
    /// Marks a port of a device in the draft. Returns false if the port is marked already.
    fn mark(&mut self, draft: &Draft, port: Port) -> bool {
        let (words, number): (&mut [u64], usize) = match port {
            Port::Hca { node, hca } => {
                self.hcas.resize(draft.site.nodes.len(), [0; 4]);
                (self.hcas[node.index()].as_mut_slice(), usize::from(hca))
            }
            Port::Switch { switch, port } => {
                self.switches.resize(draft.site.switches.len(), Vec::new());
                let words = &mut self.switches[switch.index()];
                if words.is_empty() {
                    *words = vec![0; usize::from(draft.site.switch(switch).ports) / 64 + 1];
                }
                (words.as_mut_slice(), usize::from(port))
            }
        };
        let (word, bit) = (&mut words[number / 64], 1_u64 << (number % 64));
        let free = *word & bit == 0;
        *word |= bit;
        free
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
    let mut cables = Cables::default();
    for item in sections.of("cables") {
        if let Some(fields) = item_fields("cables", *item, sink) {
            cables.read(draft, fields);
        }
    }
    cables.join_fabrics(draft, sink);
    cables.check_second(draft, sink);
}

impl Cables {
    fn read(&mut self, draft: &mut Draft, mut fields: Fields<'_, '_>) {
        let labels = fields.own_names("label");
        let (a, b) = (fields.need_names("a"), fields.need_names("b"));
        for (field, len) in [("a", a.len()), ("b", b.len())] {
            fields.distributes(field, len, labels.len());
        }
        let (sink, entry) = fields.finish_with_sink();
        let count = if labels.is_empty() {
            a.len().max(b.len())
        } else {
            labels.len()
        };
        let mut labels = labels.into_iter();
        for i in 0..count {
            let one = a.get(i).and_then(|text| end(draft, &entry, "a", text, sink));
            let other = b.get(i).and_then(|text| end(draft, &entry, "b", text, sink));
            let (cable, from) = (self.from.len() as u32, self.entries.len() as u32);
            for (field, port) in [("a", one), ("b", other)] {
                if let Some(port) = port.filter(|port| !self.used.mark(draft, *port)) {
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
            let Some(label) = labels.next() else { continue };
            if self.is_new(draft, &entry, &label, sink) {
                self.from.push(from);
                // A cable with an invalid end keeps its place, so that ids and names stay in step.
                let nowhere = Port::Switch {
                    switch: SwitchId::NONE,
                    port: 0,
                };
                draft.site.cables.push(Cable {
                    label: label.into(),
                    a: one.unwrap_or(nowhere),
                    b: other.unwrap_or(nowhere),
                });
            }
        }
        self.entries.push(entry);
    }

    /// Enters a label into the index. Returns false and adds a finding if the label is taken.
    fn is_new(&mut self, draft: &Draft, entry: &Entry, label: &str, sink: &mut Sink) -> bool {
        let cables = &draft.site.cables;
        if cables.len() >= MAX_ITEMS {
            entry.error(sink, "", "there are too many items", "");
            return false;
        }
        let label_at = |cable: u32| &*cables[cable as usize].label;
        let Some(first) = self.labels.add(label, cables.len() as u32, label_at) else {
            return true;
        };
        let first = self.entries.get(self.from[first as usize] as usize).unwrap_or(entry);
        let place = sink.place(first.spot("name"));
        let what = format!("a cable named {label} exists already, at {place}");
        entry.error(sink, "name", what, "rename one of them");
        false
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
