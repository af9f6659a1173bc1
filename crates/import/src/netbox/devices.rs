//! Imports devices as nodes, switches and rack PDUs, by role.

use std::collections::BTreeMap;

use super::cables::PartKind;
use super::tables::{Row, Table};
use super::{Class, Device, Importer, Kind, Part, TOP, renamed};
use crate::draft::{Node, Remarks, Switch};
use rackwright_infiniband::name::natural;

/// States of devices that are not installed.
const GONE: [&str; 2] = ["inventory", "decommissioning"];

impl<'a> Importer<'a> {
    pub(super) fn devices(&mut self) {
        let tables = self.tables;
        let mut rows: Vec<&'a Row> = tables.rows(Table::Devices).iter().collect();
        rows.sort_by(|a, b| {
            let key = |row: &Row| ["name", "site", "id"].map(|column| row.get(column).to_owned());
            natural(a.get("name"), b.get("name")).then_with(|| key(a).cmp(&key(b)))
        });
        let mut other: BTreeMap<&str, (usize, &Row)> = BTreeMap::new();
        for row in rows {
            let class = self.device(row, &mut other);
            let rack = self.rack_of(row).map(|rack| rack.name.clone());
            self.devices.push(Device {
                row,
                class,
                kind: row.get("type"),
                rack,
            });
        }
        if self.draft.nodes.is_empty() {
            let found: Vec<&str> = other.keys().copied().collect();
            let what = format!("no device has a role of nodes; roles are {}", words(&found));
            let at = other.values().map(|(_, row)| row.spot("role")).min().unwrap_or(TOP);
            self.sink
                .error(at, "role", what, "give the roles of nodes (--node-role)");
            return;
        }
        for (role, (count, row)) in other {
            let what = format!("devices of role {role} are left out: {count}");
            let fix = "if they are nodes, switches or rack PDUs, map their role";
            self.sink.warning(row.spot("role"), "role", what, fix);
        }
    }

    fn device(&mut self, row: &'a Row, other: &mut BTreeMap<&'a str, (usize, &'a Row)>) -> Class {
        let status = row.get("status").to_ascii_lowercase();
        let site = row.get("site");
        if (!site.is_empty() && !self.takes(site)) || GONE.contains(&&*status) {
            return Class::LeftOut;
        }
        match self.role(row.get("role")) {
            Some(Kind::Node) => self.add_node(row),
            Some(Kind::Switch(role)) => {
                let (name, rack, remarks) = self.rack_position(row);
                let unit = self.unit(row, 1.0);
                self.draft.switches.push(Switch {
                    name,
                    role,
                    rack,
                    unit,
                    height_units: self.height(row.get("type")).map(|units| units.ceil() as u16),
                    remarks,
                    ..Switch::default()
                });
                Class::Switch(self.draft.switches.len() - 1)
            }
            Some(Kind::Pdu) => Class::Pdu,
            None => {
                let role = row.get("role");
                other.entry(role).or_insert((0, row)).0 += 1;
                Class::LeftOut
            }
        }
    }

    fn add_node(&mut self, row: &'a Row) -> Class {
        let (name, rack, mut remarks) = self.rack_position(row);
        if rack.is_none() {
            let what = match row.get("rack") {
                "" => "NetBox has no rack of this device".to_owned(),
                rack => format!("rack {rack} is not among the racks, or several racks have this name"),
            };
            remarks.missing("rack", what, "set its rack in NetBox, or here");
        }
        let unit = self.unit(row, 1.0);
        let bmc = self.bmc(row);
        self.draft.nodes.push(Node {
            name,
            rack,
            unit,
            bmc,
            remarks,
            ..Node::default()
        });
        Class::Node(self.draft.nodes.len() - 1)
    }

    fn rack_position(&mut self, row: &Row) -> (String, Option<String>, Remarks) {
        let own = row.get("name");
        let site = row.get("site");
        let name = self.names.unique_name(own, &[&format!("{site}-{own}")]);
        let mut remarks = Remarks::default();
        renamed(&mut remarks, &name, own);
        (name, self.rack_of(row).map(|rack| rack.name.clone()), remarks)
    }

    /// The lowest unit of a device. `None`: NetBox has no position.
    fn unit(&mut self, row: &Row, usual_height: f64) -> Option<u16> {
        let position = row.number("position")?;
        let height = self.height(row.get("type")).unwrap_or(usual_height);
        let unit = self.rack_of(row)?.unit(position, height);
        if unit.is_none() {
            let what = format!("position {position} is not a whole unit of the rack");
            let fix = "a site file counts whole units from the bottom; the position is left out";
            self.sink.warning(row.spot("position"), "position", what, fix);
        }
        unit
    }

    /// Height of a device type, in rack units.
    pub(super) fn height(&self, kind: &str) -> Option<f64> {
        self.device_type(kind)?.number("units").filter(|units| *units > 0.0)
    }

    pub(super) fn device_type(&self, kind: &str) -> Option<&'a Row> {
        let tables = self.tables;
        tables
            .rows(Table::DeviceTypes)
            .iter()
            .find(|row| row.get("model") == kind)
    }

    /// The BMC's address: NetBox's out-of-band IP without its prefix length.
    fn bmc(&mut self, row: &Row) -> Option<String> {
        let text = row.get("oob");
        let address = text.split('/').next().filter(|address| !address.is_empty())?;
        if address.parse::<std::net::Ipv4Addr>().is_ok() {
            return Some(format!("https://{address}"));
        }
        let what = format!("`{text}` is not an IPv4 address");
        self.sink.warning(
            row.spot("oob"),
            "oob_ip",
            what,
            "write `bmc` by hand; the brackets of an IPv6 address are a pattern there",
        );
        None
    }

    /// Interfaces, power ports, outlets and power feeds of imported devices.
    pub(super) fn parts(&mut self) {
        let tables = self.tables;
        let by_id: BTreeMap<&str, usize> = self
            .devices
            .iter()
            .enumerate()
            .map(|(i, d)| (d.row.get("id"), i))
            .collect();
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, device) in self.devices.iter().enumerate() {
            by_name.entry(device.row.get("name")).or_default().push(i);
        }
        let lists = [
            (PartKind::Interface, Table::Interfaces),
            (PartKind::PowerPort, Table::PowerPorts),
            (PartKind::Outlet, Table::PowerOutlets),
            (PartKind::FrontPort, Table::FrontPorts),
            (PartKind::RearPort, Table::RearPorts),
        ];
        for (kind, table) in lists {
            for row in tables.rows(table) {
                let (id, name) = (row.get("device_id"), row.get("device"));
                let device = match by_name.get(name).map(Vec::as_slice) {
                    _ if !id.is_empty() => by_id.get(id).copied(),
                    Some([one]) => Some(*one),
                    Some([_, _, ..]) => {
                        let what = format!("several devices are named {name}");
                        let fix = "give them different names, or import by the API, which has their ids";
                        self.sink.error(row.spot("device"), "device", what, fix);
                        continue;
                    }
                    _ => None,
                };
                let taken = |at: &usize| {
                    // Patch panels do not appear in a site file, but cables pass through them.
                    let is_panel = matches!(kind, PartKind::FrontPort | PartKind::RearPort);
                    let device = self.devices.get(*at);
                    device.is_some_and(|device| is_panel || device.class != Class::LeftOut)
                };
                if let Some(device) = device.filter(taken) {
                    self.parts[kind as usize].push(Part {
                        row,
                        device: Some(device),
                        name: row.get("name"),
                    });
                }
            }
        }
        for row in tables.rows(Table::PowerFeeds) {
            self.parts[PartKind::Feed as usize].push(Part {
                row,
                device: None,
                name: row.get("name"),
            });
        }
        for parts in &mut self.parts {
            parts.sort_by(|a, b| {
                let key = |part: &Part<'_>| (part.name.to_owned(), part.row.get("panel").to_owned());
                a.device
                    .cmp(&b.device)
                    .then_with(|| natural(a.name, b.name))
                    .then_with(|| key(a).cmp(&key(b)))
            });
        }
    }
}

fn words(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().take(20).copied().collect::<Vec<_>>().join(", "),
    }
}
