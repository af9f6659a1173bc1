//! The differences between two sites. Objects with the same kind and name are the same object.

use std::collections::HashMap;

use serde::Serialize;

use super::{CoolingUnit, Customer, Node, OutletLayout, PowerDomain, Rack, Rating, Site, Sku, Switch};

/// The change of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The object is only in the new site.
    Added,
    /// The object is only in the old site.
    Removed,
    /// The object is in both sites with different fields.
    Changed(Vec<FieldChange>),
}

/// A field with two values. `-`: not set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// The field's name in the site file.
    pub field: &'static str,
    /// The value in the old site.
    pub from: String,
    /// The value in the new site.
    pub to: String,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The kind of the object, such as `rack`, `node`, `cable`.
    pub kind: &'static str,
    /// The object's name.
    pub name: Box<str>,
    /// The change.
    pub action: Action,
}

/// All differences, by kind in the order of a site file's sections: removed, added, changed.
#[must_use]
pub fn diff(old: &Site, new: &Site) -> Vec<Change> {
    let mut changes = Vec::new();
    if old.name != new.name {
        let action = Action::Changed(vec![FieldChange {
            field: "name",
            from: old.name.to_string(),
            to: new.name.to_string(),
        }]);
        changes.push(Change {
            kind: "site",
            name: new.name.clone(),
            action,
        });
    }
    for kind in KINDS {
        compare(*kind, old, new, &mut changes);
    }
    changes
}

type Fields = Vec<(&'static str, String)>;

/// How to list the objects of a kind.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    names: for<'a> fn(&'a Site) -> Vec<&'a str>,
    fields: fn(&Site, usize) -> Fields,
}

macro_rules! kinds {
    ($($name:literal $list:ident $key:ident $fields:expr;)*) => {
        &[$(Kind {
            name: $name,
            names: |site| site.$list.iter().map(|one| &*one.$key).collect(),
            fields: |site, index| $fields(site, &site.$list[index]),
        }),*]
    };
}

const KINDS: &[Kind] = kinds! {
    "room" rooms name |site: &Site, room: &super::Room| {
        vec![("parent", or_dash(room.parent.map(|id| &site.room(id).name)))]
    };
    "rack" racks name rack;
    "outlet layout" layouts name |_: &Site, layout: &OutletLayout| vec![("outlets", outlets(layout))];
    "power domain" domains name domain;
    "cooling unit" cooling_units name cooling_unit;
    "cooling loop" loops name |site: &Site, one: &super::CoolingLoop| vec![
        ("units", list(one.units.iter().map(|id| &*site.cooling_unit(*id).name))),
        ("racks", list(one.racks.iter().map(|id| &*site.rack(*id).name))),
        ("flow_lpm", or_dash(one.flow_lpm)),
    ];
    "SKU" skus name sku;
    "node" nodes name node;
    "fabric" fabrics name |_: &Site, fabric: &super::Fabric| vec![("purpose", fabric.purpose.name().to_owned())];
    "switch" switches name switch;
    "cable" cables label |site: &Site, cable: &super::Cable| vec![
        ("a", site.port_name(cable.a)),
        ("b", site.port_name(cable.b)),
    ];
    "customer" customers name customer;
};

fn compare(kind: Kind, old: &Site, new: &Site, changes: &mut Vec<Change>) {
    let (before, after) = ((kind.names)(old), (kind.names)(new));
    let index = |names: &[&str]| -> HashMap<String, usize> {
        names
            .iter()
            .enumerate()
            .map(|(i, name)| ((*name).to_owned(), i))
            .collect()
    };
    let (was, is) = (index(&before), index(&after));
    let mut push = |name: &str, action| {
        changes.push(Change {
            kind: kind.name,
            name: name.into(),
            action,
        })
    };
    // A layout without a name belongs to a PDU, which shows its difference.
    for name in before
        .iter()
        .filter(|name| !name.is_empty() && !is.contains_key(**name))
    {
        push(name, Action::Removed);
    }
    for name in after
        .iter()
        .filter(|name| !name.is_empty() && !was.contains_key(**name))
    {
        push(name, Action::Added);
    }
    for (name, to) in after
        .iter()
        .enumerate()
        .map(|(to, name)| (*name, to))
        .filter(|(name, _)| !name.is_empty())
    {
        let Some(from) = was.get(name) else { continue };
        let fields = (kind.fields)(old, *from).into_iter().zip((kind.fields)(new, to));
        let changed: Vec<FieldChange> = fields
            .filter(|((_, from), (_, to))| from != to)
            .map(|((field, from), (_, to))| FieldChange { field, from, to })
            .collect();
        if !changed.is_empty() {
            push(name, Action::Changed(changed));
        }
    }
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn firmware(sku: &Sku) -> String {
    let all: Vec<String> = sku
        .firmware
        .iter()
        .map(|one| format!("{} {}", one.component, one.version))
        .collect();
    list(all.iter().map(String::as_str))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(", ")
    }
}

fn outlets(layout: &OutletLayout) -> String {
    let outlet = |one: &super::Outlet| {
        let amps = one.amps.map(|amps| format!(" {amps} A")).unwrap_or_default();
        format!("{} {}{amps}", one.name, one.phase.name())
    };
    let all: Vec<String> = layout.outlets.iter().map(outlet).collect();
    list(all.iter().map(String::as_str))
}

fn rack(site: &Site, rack: &Rack) -> Fields {
    vec![
        ("room", site.room(rack.room).name.to_string()),
        ("units", rack.units.to_string()),
        ("weight_limit_kg", or_dash(rack.weight_limit_kg)),
        ("air_heat_limit_watts", or_dash(rack.air_heat_limit_watts)),
        ("liquid", rack.liquid.to_string()),
    ]
}

fn domain(site: &Site, domain: &PowerDomain) -> Fields {
    let rating = match domain.rating {
        Rating::Watts(watts) => format!("{watts} W"),
        Rating::Electrical { volts, amps, phases } => {
            let phases = if phases == super::Phases::Single { 1 } else { 3 };
            format!("{volts} V {amps} A, phases {phases}")
        }
    };
    let layout = domain.layout.map(|id| site.layout(id));
    vec![
        ("kind", domain.kind.name().to_owned()),
        ("parent", or_dash(domain.parent.map(|id| &site.domain(id).name))),
        ("feed", or_dash(domain.feed.map(|id| &site.feeds[id.index()]))),
        ("rating", rating),
        ("derate", domain.derate.to_string()),
        ("phase", domain.phase.name().to_owned()),
        ("rack", or_dash(domain.rack.map(|id| &site.rack(id).name))),
        ("outlets", or_dash(layout.map(outlets))),
        ("other_watts", domain.other_watts.to_string()),
        ("measured_watts", or_dash(domain.measured_watts)),
        ("bmc", or_dash(domain.bmc.as_ref())),
    ]
}

fn cooling_unit(site: &Site, unit: &CoolingUnit) -> Fields {
    vec![
        ("kind", unit.kind.name().to_owned()),
        ("room", site.room(unit.room).name.to_string()),
        ("rack", or_dash(unit.rack.map(|id| &site.rack(id).name))),
        ("watts", unit.watts.to_string()),
        ("flow_lpm", or_dash(unit.flow_lpm)),
        ("supply_celsius", or_dash(unit.supply_celsius)),
        ("supply_max_celsius", or_dash(unit.supply_max_celsius)),
        ("flow_min_lpm", or_dash(unit.flow_min_lpm)),
        ("bmc", or_dash(unit.bmc.as_ref())),
        ("loss_to_air_watts", unit.loss_to_air_watts.to_string()),
    ]
}

/// The next-to-last line of a PEM text.
fn tail(pem: &str) -> &str {
    pem.lines().rev().nth(1).unwrap_or(pem)
}

fn sku(_: &Site, sku: &Sku) -> Fields {
    let hcas: Vec<String> = sku
        .hcas
        .iter()
        .map(|hca| format!("{} rail {}", hca.name, hca.rail))
        .collect();
    let inventory: Vec<String> = sku
        .inventory
        .iter()
        .map(|(part, count)| format!("{part} {count}"))
        .collect();
    let settings = &sku.settings;
    let bios: Vec<String> = settings
        .bios
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let state = settings
        .secure_boot
        .map(|on| if on { "enabled" } else { "disabled" }.to_owned());
    // Certificates are long, so a fingerprint or the end stands for each.
    let keys = settings.keys.iter().map(|key| {
        let which = key.pem.as_deref().filter(|_| key.sha256.is_empty());
        format!("{} {}", key.database, which.map_or(&*key.sha256, tail))
    });
    let secure_boot: Vec<String> = state.into_iter().chain(keys).collect();
    vec![
        ("power.idle_watts", sku.power.idle_watts.to_string()),
        ("power.typical_watts", sku.power.typical_watts.to_string()),
        ("power.max_watts", sku.power.max_watts.to_string()),
        ("power.boot_peak_watts", sku.power.boot_peak_watts.to_string()),
        ("psus.count", sku.psus.count.to_string()),
        ("psus.watts", sku.psus.watts.to_string()),
        ("psus.needed", sku.psus.needed.to_string()),
        ("liquid_share", sku.liquid_share.to_string()),
        ("flow_lpm_per_kw", sku.flow_lpm_per_kw.to_string()),
        ("height_units", sku.height_units.to_string()),
        ("weight_kg", sku.weight_kg.to_string()),
        ("gpus", sku.gpus.to_string()),
        ("hcas", list(hcas.iter().map(String::as_str))),
        ("hca_speed", sku.hca_speed.name().to_owned()),
        ("inventory", list(inventory.iter().map(String::as_str))),
        ("validation_profile", or_dash(sku.validation_profile.as_ref())),
        (
            "price_per_second",
            sku.price.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        ),
        ("bios", list(bios.iter().map(String::as_str))),
        ("secure_boot", list(secure_boot.iter().map(String::as_str))),
        ("firmware", firmware(sku)),
    ]
}

fn node(site: &Site, node: &Node) -> Fields {
    let psus: Vec<String> = node
        .psus
        .iter()
        .map(|plug| or_dash(plug.map(|plug| site.plug_name(plug))))
        .collect();
    let guids: Vec<String> = node
        .port_guids
        .iter()
        .map(|guid| or_dash(guid.map(|guid| format!("{guid:#018x}"))))
        .collect();
    let ethernet = node.ethernet.iter();
    let ethernet: Vec<String> = ethernet
        .map(|port| format!("{}={}/{}", port.nic, port.switch, port.port))
        .collect();
    vec![
        ("sku", site.sku(node.sku).name.to_string()),
        ("rack", site.rack(node.rack).name.to_string()),
        ("unit", node.unit.to_string()),
        ("psus", list(psus.iter().map(String::as_str))),
        ("bmc", or_dash(node.bmc.as_ref())),
        ("guids", list(guids.iter().map(String::as_str))),
        ("ethernet", list(ethernet.iter().map(String::as_str))),
    ]
}

fn switch(site: &Site, switch: &Switch) -> Fields {
    vec![
        ("role", switch.role.name().to_owned()),
        ("ports", switch.ports.to_string()),
        ("speed", switch.speed.name().to_owned()),
        ("rack", or_dash(switch.rack.map(|id| &site.rack(id).name))),
        ("unit", switch.unit.to_string()),
        ("height_units", switch.height_units.to_string()),
        ("rail", or_dash(switch.rail)),
        ("scalable_unit", or_dash(switch.scalable_unit)),
        ("pod", or_dash(switch.pod)),
        ("fabric", or_dash(switch.fabric.map(|id| &site.fabric(id).name))),
        ("guid", or_dash(switch.guid.map(|guid| format!("{guid:#018x}")))),
    ]
}

fn customer(site: &Site, customer: &Customer) -> Fields {
    vec![
        ("contracted_watts", or_dash(customer.contracted_watts)),
        ("redundancy", customer.redundancy.name().to_owned()),
        ("dedicated_circuits", customer.dedicated_circuits.to_string()),
        ("dedicated_cooling", customer.dedicated_cooling.to_string()),
        (
            "circuits",
            list(customer.circuits.iter().map(|id| &*site.domain(*id).name)),
        ),
        (
            "cooling_units",
            list(customer.cooling_units.iter().map(|id| &*site.cooling_unit(*id).name)),
        ),
    ]
}
