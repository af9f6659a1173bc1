//! Converts the dump of a fabric into a site file: switches, nodes with their HCAs, and cables.
//!
//! Nodes are identified by their descriptions, all other devices by GUID. A dump has no rooms, racks, power or SKUs.
//! Ports that were down have no cable in it.

use std::collections::BTreeMap;

use super::draft::{Cable, Draft, End, Node, Rack, Remarks, Room, Switch};
use super::kinds::{self, Kinds, Seen};
use super::names::Namer;
use super::{Imported, Options, finish, shape, site_speed};
use rackwright_infiniband::adapter;
use rackwright_infiniband::name::{self, natural};
use rackwright_infiniband::rail::{self, NodeRails};
use rackwright_infiniband::{Device, DeviceIx, DeviceKind, Dump, Fabric, PortRef};
use rackwright_infiniband::{Speed as LaneSpeed, structure};
use rackwright_site::finding::{Sink, Spot};
use rackwright_site::model::Speed;

/// The options for importing a dump.
#[derive(Debug, Clone)]
pub struct DumpOptions<'a> {
    /// The options of every import.
    pub options: Options<'a>,
    /// The dump's name in findings.
    pub dump: &'a str,
    /// The room of the rack.
    pub room: &'a str,
    /// The rack for all devices.
    pub rack: &'a str,
    /// The SKU of all hosts that have most of its HCAs, or as many HCAs with other names and known rails. `None`: the SKU
    /// with the same HCAs in the SKU file.
    pub sku: Option<&'a str>,
}

/// Imports a dump as a site file.
#[must_use]
pub fn from_dump(dump: &Dump, options: &DumpOptions<'_>) -> Imported {
    let (draft, sink) = draft(dump, options);
    finish(&draft, &options.options, 1, sink)
}

/// The site of a dump, and the findings about the dump. The written file is the second file of the sink.
pub(super) fn draft(dump: &Dump, options: &DumpOptions<'_>) -> (Draft, Sink) {
    let mut sink = Sink::new(vec![options.dump.into(), options.options.output.into()]);
    for finding in &dump.findings {
        let at = Spot {
            file: 0,
            line: finding.line,
            column: 1,
        };
        sink.warning(
            at,
            "",
            finding.text.as_str(),
            "the unreadable part is not in the site file",
        );
    }
    let mut reader = Reader {
        fabric: &dump.fabric,
        options,
        sink: &mut sink,
        draft: Draft::default(),
        names: Namer::default(),
        ends: BTreeMap::new(),
    };
    reader.places();
    let switches = reader.switches();
    reader.nodes();
    reader.cables(&switches);
    let mut draft = reader.draft;
    draft.title = format!("Imported from the dump {}.", options.dump);
    shape::fill(&mut draft, options.options.skus);
    for switch in draft.switches.iter_mut().filter(|switch| switch.role.is_none()) {
        let what = "the cables do not show its role: it has no path to a node, or there are more than three levels";
        switch.remarks.missing("role", what, "write leaf, spine or core");
    }
    shape::order(&mut draft);
    (draft, sink)
}

/// An adapter with its name in its machine.
struct Adapter {
    name: String,
    ix: DeviceIx,
}

/// A machine by the descriptions of its adapters.
struct Machine {
    name: String,
    /// Whether the descriptions name the host. Otherwise the name is made from a GUID.
    is_named: bool,
    /// In the order of their names.
    adapters: Vec<Adapter>,
}

struct Reader<'a, 's> {
    fabric: &'a Fabric,
    options: &'a DumpOptions<'a>,
    sink: &'s mut Sink,
    draft: Draft,
    /// Names of nodes and switches.
    names: Namer,
    /// The position of each adapter port in the draft.
    ends: BTreeMap<PortRef, (usize, String)>,
}

impl Reader<'_, '_> {
    fn places(&mut self) {
        let mut names = Namer::default();
        let room = names.unique_name(self.options.room, &["room"]);
        let rack = Namer::default().unique_name(self.options.rack, &["rack"]);
        self.draft.name = Namer::default().unique_name(self.options.options.site, &["site"]);
        self.draft.rooms.push(Room {
            name: room.clone(),
            parent: None,
        });
        let mut remarks = Remarks::default();
        let what = format!("a dump has no racks: all devices are put into rack {rack}");
        remarks.assumed(
            "name",
            what,
            "add the racks, and give nodes and switches their `rack` and `unit`",
        );
        self.draft.racks.push(Rack {
            name: rack,
            room,
            remarks,
            ..Rack::default()
        });
    }

    fn rack(&self) -> Option<String> {
        self.draft.racks.first().map(|rack| rack.name.clone())
    }

    fn switches(&mut self) -> BTreeMap<DeviceIx, usize> {
        let fabric = self.fabric;
        let mut found: Vec<(DeviceIx, &Device)> = fabric.devices().filter(|(_, device)| device.is_switch()).collect();
        found.sort_by(|(_, a), (_, b)| {
            natural(name::proper(&a.name), name::proper(&b.name))
                .then_with(|| (&a.name, a.guid).cmp(&(&b.name, b.guid)))
        });
        let mut places = BTreeMap::new();
        for (ix, device) in found {
            let by_guid = device
                .guid
                .map_or_else(|| "switch".to_owned(), |guid| format!("switch-{:016x}", guid.get()));
            let own = name::proper(&device.name);
            let wanted = if name::is_generic(&device.name) { &*by_guid } else { own };
            let mut remarks = Remarks::default();
            let name = self.names.unique_name(wanted, &[&by_guid]);
            if name != own {
                remarks.comments.push(format!("has the description {:?}", device.name));
            }
            let speed = self.speed(ix, "speed", &mut remarks);
            places.insert(ix, self.draft.switches.len());
            self.draft.switches.push(Switch {
                name,
                ports: u16::from(cable_ports(fabric, ix, device)),
                speed,
                rack: self.rack(),
                guid: device.guid.map(|guid| guid.get()),
                remarks,
                ..Switch::default()
            });
        }
        places
    }

    /// The most frequent link speed of a device. Speeds too slow for a site file become its slowest one.
    fn speed(&self, ix: DeviceIx, field: &'static str, remarks: &mut Remarks) -> Option<Speed> {
        let mut counts: BTreeMap<LaneSpeed, u32> = BTreeMap::new();
        for (_, _, link) in self.fabric.neighbours(ix) {
            if let Some(rate) = self.fabric.link_rate(link) {
                *counts.entry(rate.speed).or_default() += 1;
            }
        }
        let Some((most, _)) = counts.into_iter().max_by_key(|(speed, count)| (*count, *speed)) else {
            let what = "the dump has no speed of its links: the default of a site file is NDR";
            remarks.assumed(field, what, "write EDR, HDR, NDR or XDR");
            return None;
        };
        Some(site_speed(most, field, remarks))
    }

    fn nodes(&mut self) {
        let machines = self.machines();
        // Hosts without a name agree with no other host.
        let names_of = machines.iter().map(|machine| {
            let adapters = machine.adapters.iter().filter(|_| machine.is_named);
            adapters.map(|adapter| adapter.name.as_str()).collect::<Vec<&str>>()
        });
        let names: Vec<Vec<&str>> = names_of.collect();
        let agreed = rail::agree(&names);
        let mut kinds = Kinds::new(self.options.options.skus, self.options.sku);
        for (machine, rails) in machines.iter().zip(&agreed) {
            self.node(machine, rails, &mut kinds);
        }
        self.draft.skus = kinds.list;
    }

    fn machines(&self) -> Vec<Machine> {
        let fabric = self.fabric;
        let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
        for (ix, device) in fabric.devices().filter(|(_, device)| device.is_adapter()) {
            let host = device.host();
            let (name, adapter) = match host {
                Some(host) => (host.machine.to_owned(), host.adapter.to_owned()),
                None => {
                    let guid = device.system.or(device.guid).map_or(0, |guid| guid.get());
                    (format!("node-{guid:016x}"), "hca-1".to_owned())
                }
            };
            let machine = machines.entry(name::key(&name)).or_insert_with(|| Machine {
                name,
                is_named: true,
                adapters: Vec::new(),
            });
            machine.is_named &= host.is_some();
            machine.adapters.push(Adapter { name: adapter, ix });
        }
        let mut machines: Vec<Machine> = machines.into_values().collect();
        machines.sort_by(|a, b| natural(&a.name, &b.name).then_with(|| a.name.cmp(&b.name)));
        let guid = |adapter: &Adapter| fabric.device(adapter.ix).guid;
        for machine in &mut machines {
            let adapters = &mut machine.adapters;
            adapters.sort_by(|a, b| adapter::in_order(&a.name, &b.name).then_with(|| guid(a).cmp(&guid(b))));
        }
        machines
    }

    fn node(&mut self, machine: &Machine, rails: &NodeRails<'_>, kinds: &mut Kinds<'_>) {
        let adapters = &machine.adapters;
        let device = |adapter: &Adapter| self.fabric.device(adapter.ix);
        let mut remarks = Remarks::default();
        if let Some(one) = adapters.iter().find(|adapter| device(adapter).host().is_none()) {
            let what = format!(
                "its adapter has the description {:?}, which names no host",
                device(one).name
            );
            remarks.assumed("name", what, "give the node its name, here and in the cables");
        }
        let at = self.draft.nodes.len();
        let (mut names, ports) = self.hcas(adapters);
        let mut sku_remarks = Remarks::default();
        let speed = adapters
            .first()
            .and_then(|adapter| self.speed(adapter.ix, "hca_speed", &mut sku_remarks));
        let own: Vec<&str> = adapters.iter().map(|adapter| adapter.name.as_str()).collect();
        let rails = Some(rails).filter(|_| machine.is_named);
        if let Some(renamed) = kinds.given().and_then(|sku| kinds::by_rail((&own, &names), rails, sku)) {
            let what = format!(
                "its adapters {} are taken for the HCAs of the SKU, in the order of the rails",
                own.join(", ")
            );
            remarks.assumed("guids", what, "give the SKU's HCAs the names of the adapters");
            names = renamed;
        }
        let seen = Seen {
            adapters: &own,
            rails,
            hcas: &names,
            speed,
        };
        let sku = kinds.sku_of(&seen, &mut remarks, sku_remarks);
        let mut guids = Vec::new();
        for ((port, guid), name) in ports.into_iter().zip(&names) {
            guids.extend(guid.map(|guid| (name.clone(), guid)));
            self.ends.insert(port, (at, name.clone()));
        }
        let rack = self.rack();
        let name = self.names.unique_name(&machine.name, &[]);
        if name != machine.name {
            remarks.comments.push(format!("has the description {:?}", machine.name));
        }
        self.draft.nodes.push(Node {
            name,
            sku,
            rack,
            guids,
            remarks,
            ..Node::default()
        });
    }

    /// The names of the HCAs of a machine: one for each used port, with its GUID.
    fn hcas(&self, adapters: &[Adapter]) -> (Vec<String>, Vec<(PortRef, Option<u64>)>) {
        let mut hcas = Namer::default();
        let (mut names, mut ports) = (Vec::new(), Vec::new());
        for adapter in adapters {
            let own = hcas.unique_name(&adapter.name, &[]);
            for (port, guid) in self.used_ports(adapter.ix) {
                let name = if port == 1 {
                    own.clone()
                } else {
                    hcas.unique_name(&format!("{own}:{port}"), &[])
                };
                let device = adapter.ix;
                ports.push((PortRef { device, port }, guid));
                names.push(name);
            }
        }
        (names, ports)
    }

    /// The linked ports of an adapter with their GUIDs. If none is linked, the first port.
    fn used_ports(&self, ix: DeviceIx) -> Vec<(u8, Option<u64>)> {
        let own = self.fabric.device(ix).guid.map(|guid| guid.get());
        let linked = self.fabric.ports(ix).iter().filter(|port| port.link.is_some());
        let mut ports: Vec<(u8, Option<u64>)> = linked
            .map(|port| (port.number, port.guid.map(|guid| guid.get())))
            .collect();
        if let [(_, guid @ None)] = ports.as_mut_slice() {
            *guid = own;
        }
        if ports.is_empty() {
            ports.push((1, own));
        }
        ports
    }

    fn cables(&mut self, switches: &BTreeMap<DeviceIx, usize>) {
        let fabric = self.fabric;
        let mut left_out = 0;
        for (_, link) in fabric.links() {
            let ends = [link.a, link.b].map(|end| match switches.get(&end.device) {
                Some(switch) => Some(End::Port(*switch, u16::from(end.port))),
                None => self.ends.get(&end).map(|(node, hca)| End::Hca(*node, hca.clone())),
            });
            let [Some(a), Some(b)] = ends else {
                left_out += 1;
                continue;
            };
            // A node comes first, otherwise the switch with the lower index.
            let (a, b) = match (&a, &b) {
                (End::Port(..), End::Hca(..)) => (b, a),
                (End::Port(x, p), End::Port(y, q)) if (y, q) < (x, p) => (b, a),
                _ => (a, b),
            };
            let label = String::new();
            let note = String::new();
            self.draft.cables.push(Cable { label, a, b, note });
        }
        // A finding about the whole dump.
        let at = Spot {
            file: 0,
            line: 1,
            column: 1,
        };
        if left_out > 0 {
            let what = format!("{left_out} links go to SHARP aggregation nodes or routers and are left out");
            self.sink.warning(at, "links", what, "");
        }
        let what = "a dump has no power feeds of nodes: the file has no power, and clusters cannot be placed in it";
        self.sink
            .warning(at, "power", what, "add `power`, and `psus` to the nodes");
        if !self.draft.cables.is_empty() {
            let what = "a dump has no labels of cables: they are numbered";
            self.sink.warning(
                at,
                "cables",
                what,
                "write the labels of the cables, if the cables have labels",
            );
        }
    }
}

/// The number of ports for cables. A last port that makes a large number odd belongs to the aggregation node.
fn cable_ports(fabric: &Fabric, ix: DeviceIx, device: &Device) -> u8 {
    let count = device.port_count;
    let last = PortRef {
        device: ix,
        port: count,
    };
    let cabled = fabric.far_end(last).is_some_and(|far| {
        let kind = fabric.device(far.device).kind;
        structure::LinkClass::of(DeviceKind::Switch, kind) != structure::LinkClass::Other
    });
    if count % 2 == 1 && count > 36 && !cabled {
        count - 1
    } else {
        count
    }
}
