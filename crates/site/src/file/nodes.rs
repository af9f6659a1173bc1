//! Section `nodes`.

use rackwright_yaml::{Key, Tree, Value};

use super::fields::{Cycle, Entry, Fields, NameCycle};
use super::guids::Guids;
use super::names::{self, fill};
use super::pattern::NameList;
use super::rooms::MAX_UNITS;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{DomainId, EthernetPort, Node, Plug, RackId, SkuId};
use crate::power::outlet_watts;
use crate::text::grouped;

/// Maximum number of PSUs of a node.
const MAX_PSUS: usize = 64;

pub(super) fn read(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("nodes") {
        match item_fields("nodes", *item, sink) {
            Some(fields) => read_nodes(draft, fields),
            None => draft.nodes.lost = true,
        }
    }
}

/// The individual values of the nodes of one entry.
struct Row {
    racks: NameCycle,
    units: Cycle<u32>,
    /// By PSU. An empty cycle: the PSU is not plugged in.
    psus: Option<Vec<NameCycle>>,
    bmcs: NameCycle,
    /// By HCA: the GUIDs of the nodes.
    guids: Vec<(String, Guids)>,
    /// By network card: `SWITCH/PORT`.
    ethernet: Vec<(String, NameCycle)>,
}

fn read_nodes(draft: &mut Draft, mut fields: Fields<'_, '_>) {
    let names = fields.own_names("name");
    let sku_names = fields.need_names("sku");
    let row = Row {
        racks: fields.need_names("rack"),
        units: fields.integers("unit", 1..=MAX_UNITS),
        psus: psus(&mut fields, draft.domains.len() > 0, &names),
        bmcs: bmcs(&mut fields, names.len()),
        guids: guids(&mut fields, names.len()),
        ethernet: ethernet(&mut fields, names.len()),
    };
    for (field, len) in [
        ("sku", sku_names.len()),
        ("rack", row.racks.len()),
        ("unit", row.units.len()),
    ] {
        fields.distributes(field, len, names.len());
    }
    let (sink, entry) = fields.finish_with_sink();
    let skus: Vec<SkuId> = (sku_names.iter())
        .map(|name| SkuId(draft.skus.find(sink, &entry, "sku", name)))
        .collect();
    let mut hcas = Vec::with_capacity(skus.len());
    for sku in &skus {
        hcas.push(hca_order(draft, *sku, &row, &entry, sink));
        check_psu_count(draft, *sku, &row, &entry, sink);
    }
    let (skus, hcas) = (Cycle::from(skus), Cycle::from(hcas));
    let number = draft.nodes.enter(entry);
    draft.nodes.lost |= names.is_empty();
    for (i, name) in names.iter().enumerate() {
        let entry = draft.nodes.entry_at(number);
        let rack_name = row.racks.get(i).unwrap_or("");
        let rack = match rack_name {
            "" => RackId::NONE,
            name => RackId(draft.racks.find(sink, entry, "rack", name)),
        };
        if !draft.nodes.add(sink, number, name) {
            continue;
        }
        let node = Node {
            name: name.into(),
            sku: skus.get(i).copied().unwrap_or(SkuId::NONE),
            rack,
            unit: row.units.get(i).copied().unwrap_or(0) as u16,
            psus: plugs(draft, &row, number, i, (name, rack_name, rack), sink),
            bmc: row.bmcs.get(i).map(|bmc| fill(bmc, name, rack_name).into()),
            port_guids: port_guids(draft, &row, hcas.get(i), number, i, sink),
            ethernet: ethernet_ports(draft, &row, number, i, (name, rack_name), sink),
        };
        place(draft, &node, number, sink);
        draft.site.nodes.push(node);
    }
}

/// The outlets of the PSUs. `None`: not given or unknown.
fn psus(fields: &mut Fields<'_, '_>, has_power: bool, names: &NameList) -> Option<Vec<NameCycle>> {
    let tree = fields.take("psus");
    if tree.is_none() && has_power {
        let what = match (names.first(), names.len()) {
            (None, _) => "`psus` is missing".to_owned(),
            (Some(name), 1) => format!("node {name} has no PSU plugged in"),
            (Some(_), many) => {
                let written = fields.written("name");
                format!("{} nodes ({written}) have no PSU plugged in", grouped(many))
            }
        };
        fields.lacks("psus", what, "add `psus`");
    }
    let tree = tree?;
    let trees = match &tree.value {
        Value::List(trees) if trees.len() <= MAX_PSUS => trees,
        _ => {
            fields.error(
                "psus",
                format!("this must be a list of at most {MAX_PSUS} outlets, one for each PSU"),
                "write `- PDU/OUTLET` lines",
            );
            return None;
        }
    };
    let mut psus = Vec::new();
    for (i, tree) in trees.iter().enumerate() {
        let field = format!("psus[{i}]");
        fields.part(&field, tree.at);
        if tree.value == Value::Null {
            psus.push(NameCycle::default());
            continue;
        }
        let outlets = fields.names_in(&field, tree);
        let outlets = fields.with_placeholders(&field, outlets, true);
        if outlets.len() == 0 || !fields.distributes(&field, outlets.len(), names.len()) {
            return None;
        }
        psus.push(outlets);
    }
    Some(psus)
}

fn bmcs(fields: &mut Fields<'_, '_>, items: usize) -> NameCycle {
    let bmcs = addresses_with(
        fields,
        true,
        &["https://", "ipmi://"],
        "https://HOST[:PORT][/BASE] or ipmi://HOST[:PORT]?mac=MAC",
    );
    let filled = bmcs.iter().any(|bmc| bmc.contains("{name}"));
    if bmcs.len() > 0 && bmcs.len() != items && !filled {
        fields.error(
            "bmc",
            "several nodes have the same BMC address",
            "use `{name}` or a pattern in the address",
        );
    }
    bmcs
}

/// Addresses of services. Empty if one of them is invalid.
pub(super) fn addresses(fields: &mut Fields<'_, '_>, has_rack: bool) -> NameCycle {
    addresses_with(fields, has_rack, &["https://"], "https://HOST[:PORT][/BASE]")
}

fn addresses_with(fields: &mut Fields<'_, '_>, has_rack: bool, schemes: &[&str], example: &str) -> NameCycle {
    let bmcs = fields.names("bmc");
    let bmcs = fields.with_placeholders("bmc", bmcs, has_rack);
    let good = |bmc: &str| {
        let host = schemes
            .iter()
            .find_map(|scheme| bmc.strip_prefix(scheme))
            .unwrap_or_default();
        !host.is_empty() && !host.starts_with('/') && !host.chars().any(|c| c.is_whitespace() || c.is_control())
    };
    if let Some(bmc) = bmcs.iter().find(|bmc| !good(bmc)) {
        fields.error(
            "bmc",
            format!("`{bmc}` is not a BMC address"),
            format!("write it like {example}"),
        );
        return NameCycle::default();
    }
    bmcs
}

/// Reads `mlx5_0: 0xa088c20300000001`; for several nodes `mlx5_0: 0xa088c20300000001+0x100`, or a list.
fn guids(fields: &mut Fields<'_, '_>, items: usize) -> Vec<(String, Guids)> {
    let Some(tree) = fields.take("guids") else {
        return Vec::new();
    };
    let Some(nested) = fields.nested_in("guids", tree) else {
        return Vec::new();
    };
    let pairs: Vec<(&Key, &Tree)> = nested.pairs();
    let mut guids = Vec::new();
    for (key, tree) in pairs {
        let field = format!("guids.{}", key.name);
        fields.part(&field, tree.at);
        guids.extend(Guids::read(fields, &field, tree, items).map(|guids| (key.name.to_string(), guids)));
    }
    guids
}

/// Reads `eth0: leaf-1/swp[1-8]`.
fn ethernet(fields: &mut Fields<'_, '_>, items: usize) -> Vec<(String, NameCycle)> {
    let Some(tree) = fields.take("ethernet") else {
        return Vec::new();
    };
    let Some(nested) = fields.nested_in("ethernet", tree) else {
        return Vec::new();
    };
    let pairs: Vec<(&Key, &Tree)> = nested.pairs();
    let mut ports = Vec::new();
    for (key, tree) in pairs {
        let field = format!("ethernet.{}", key.name);
        fields.part(&field, tree.at);
        if let Some(what) = names::fault(&key.name) {
            fields.error(&field, what, names::FIX);
            continue;
        }
        let cycle = fields.names_in(&field, tree);
        let cycle = fields.with_placeholders(&field, cycle, true);
        if cycle.len() > 0 && fields.distributes(&field, cycle.len(), items) {
            ports.push((key.name.to_string(), cycle));
        }
    }
    ports
}

fn ethernet_ports(
    draft: &mut Draft,
    row: &Row,
    number: usize,
    i: usize,
    (name, rack_name): (&str, &str),
    sink: &mut Sink,
) -> Box<[EthernetPort]> {
    let mut ports = Vec::with_capacity(row.ethernet.len());
    for (nic, cycle) in &row.ethernet {
        let Some(text) = cycle.get(i).map(|text| fill(text, name, rack_name)) else {
            continue;
        };
        let entry = draft.nodes.entry_at(number);
        let field = format!("ethernet.{nic}");
        let parts = text
            .split_once('/')
            .filter(|(switch, port)| !switch.is_empty() && !port.is_empty());
        let Some((switch, port)) = parts else {
            let what = format!("`{text}` is not a port of a switch");
            entry.error(sink, &field, what, "write SWITCH/PORT, such as eth-leaf-1/swp7");
            continue;
        };
        if !draft.ethernet.insert(text.to_string()) {
            let what = format!("port {text} is given twice");
            entry.error(
                sink,
                &field,
                what,
                "a port takes one cable; for several nodes use a pattern",
            );
        }
        ports.push(EthernetPort {
            nic: nic.as_str().into(),
            switch: switch.into(),
            port: port.into(),
        });
    }
    ports.into()
}

/// The SKU's index of each HCA with GUIDs.
fn hca_order(draft: &Draft, sku: SkuId, row: &Row, entry: &Entry, sink: &mut Sink) -> Vec<Option<usize>> {
    if sku.is_none() {
        return vec![None; row.guids.len()];
    }
    let sku = draft.site.sku(sku);
    let find = |name: &String| {
        let found = sku.hcas.iter().position(|hca| *hca.name == **name);
        if found.is_none() && !draft.hcas_lost {
            let what = format!("{} has no HCA named {name}", sku.name);
            entry.error(sink, &format!("guids.{name}"), what, hca_names(sku));
        }
        found
    };
    row.guids.iter().map(|(name, _)| name).map(find).collect()
}

pub(super) fn hca_names(sku: &crate::model::Sku) -> String {
    let names: Vec<&str> = sku.hcas.iter().map(|hca| &*hca.name).collect();
    match names.is_empty() {
        true => "the SKU has no HCA".to_owned(),
        false => format!("the SKU has {}", names.join(", ")),
    }
}

fn check_psu_count(draft: &Draft, sku: SkuId, row: &Row, entry: &Entry, sink: &mut Sink) {
    let Some(psus) = &row.psus else { return };
    if sku.is_none() {
        return;
    }
    let sku = draft.site.sku(sku);
    let count = usize::from(sku.psus.count);
    if count > 0 && psus.len() != count {
        let what = format!("{} PSUs are listed, but {} has {count}", psus.len(), sku.name);
        entry.error(
            sink,
            "psus",
            what,
            "write one line for each PSU; `~` for a PSU that is not plugged in",
        );
    }
}

fn plugs(
    draft: &mut Draft,
    row: &Row,
    number: usize,
    i: usize,
    (name, rack_name, rack): (&str, &str, RackId),
    sink: &mut Sink,
) -> Box<[Option<Plug>]> {
    let psus = row.psus.as_deref().unwrap_or_default();
    let mut plugs = Vec::with_capacity(psus.len());
    for (psu, outlets) in psus.iter().enumerate() {
        let entry = draft.nodes.entry_at(number);
        let Some(outlet) = outlets.get(i) else {
            plugs.push(None);
            continue;
        };
        // A consequence of the missing rack, so no finding.
        if outlet.contains("{rack}") && rack.is_none() {
            plugs.push(None);
            continue;
        }
        let outlet = fill(outlet, name, rack_name);
        let field = || format!("psus[{psu}]");
        let before = draft
            .site
            .nodes
            .last()
            .and_then(|node| node.psus.get(psu).copied().flatten());
        let plug = find_outlet(draft, entry, field, (&outlet, before), sink);
        if let Some(plug) = plug {
            if !draft.plugs.insert(plug) {
                let what = format!("outlet {outlet} is in use already");
                entry.error(sink, &field(), what, "each outlet feeds one PSU");
            }
            let at = draft.site.domain(plug.pdu).rack;
            if at.is_some_and(|at| at != rack && !at.is_none() && !rack.is_none()) {
                let what = format!("{} is in another rack than the node", draft.site.domain(plug.pdu).name);
                entry.warning(sink, &field(), what, "check whether this is the right PDU");
            }
        }
        plugs.push(plug);
    }
    plugs.into()
}

/// `field` names the field for a finding, `before` is the outlet of the same PSU of the node before.
fn find_outlet(
    draft: &Draft,
    entry: &Entry,
    field: impl Fn() -> String,
    (text, before): (&str, Option<Plug>),
    sink: &mut Sink,
) -> Option<Plug> {
    let Some((pdu, outlet)) = text.rsplit_once('/') else {
        entry.error(sink, &field(), format!("`{text}` is not an outlet"), "write PDU/OUTLET");
        return None;
    };
    let last = before.map_or(0, |before| before.pdu.0);
    let Some(pdu) = draft.domains.get_near(pdu, last).map(DomainId) else {
        // Adds the finding.
        draft.domains.find(sink, entry, &field(), pdu);
        return None;
    };
    let domain = draft.site.domain(pdu);
    let Some(layout) = domain.layout else {
        // A PDU without outlets already has its own finding.
        if !domain.kind.has_outlets() {
            let what = format!("{} is a {} and has no outlets", domain.name, domain.kind.name());
            entry.error(sink, &field(), what, "connect the PSU to a rack-pdu or a power-shelf");
        }
        return None;
    };
    if layout.is_none() {
        return None;
    }
    let outlets = &draft.site.layout(layout).outlets;
    if let Some(index) = outlets.iter().position(|one| *one.name == *outlet) {
        return Some(Plug {
            pdu,
            outlet: index as u16,
        });
    }
    if let (Some(first), Some(last)) = (outlets.first(), outlets.last()) {
        let what = format!("{} has no outlet {outlet}", domain.name);
        entry.error(
            sink,
            &field(),
            what,
            format!(
                "there are {} outlets, from {} to {}",
                outlets.len(),
                first.name,
                last.name
            ),
        );
    }
    None
}

fn port_guids(
    draft: &mut Draft,
    row: &Row,
    hcas: Option<&Vec<Option<usize>>>,
    number: usize,
    i: usize,
    sink: &mut Sink,
) -> Box<[Option<u64>]> {
    let hcas = hcas.map_or(&[][..], Vec::as_slice);
    let count = hcas.iter().flatten().max().map_or(0, |last| last + 1);
    let mut guids = vec![None; count];
    for ((name, of_hca), hca) in row.guids.iter().zip(hcas) {
        let value = of_hca.of(i);
        let entry = draft.nodes.entry_at(number);
        let field = || format!("guids.{name}");
        match (value, hca) {
            (None, _) => entry.error(sink, &field(), "the GUID exceeds 64 bits", "use a smaller step"),
            (Some(value), Some(hca)) => {
                if !draft.guids.insert(value) {
                    entry.error(
                        sink,
                        &field(),
                        format!("GUID {value:#018x} is given twice"),
                        "give each port its own GUID",
                    );
                }
                guids[*hca] = Some(value);
            }
            (Some(_), None) => {}
        }
    }
    guids.into()
}

/// Checks rack units, liquid and outlets.
fn place(draft: &mut Draft, node: &Node, number: usize, sink: &mut Sink) {
    if node.sku.is_none() || node.rack.is_none() {
        return;
    }
    let height = draft.site.sku(node.sku).height_units;
    let taken = draft.take_units(node.rack, node.unit, height);
    let entry = draft.nodes.entry_at(number);
    if let Err(what) = taken {
        let fix = format!(
            "a {} needs {height} units, starting at `unit`",
            draft.site.sku(node.sku).name
        );
        entry.error(sink, "unit", what, fix);
    }
    let (sku, rack) = (draft.site.sku(node.sku), draft.site.rack(node.rack));
    if sku.liquid_share > 0.0 && !rack.liquid {
        let what = format!("{} needs liquid cooling, but rack {} has none", sku.name, rack.name);
        entry.error(
            sink,
            "rack",
            what,
            "write `liquid: true` at the rack if it has a manifold",
        );
    } else if sku.liquid_share > 0.0 && rack.cooling_loop.is_none() && !draft.loops.lost {
        let what = format!(
            "rack {} belongs to no cooling loop, but {} needs one",
            rack.name, sku.name
        );
        draft
            .racks
            .entry(node.rack.0)
            .error(sink, "liquid", what, "add the rack to a cooling loop");
    }
    if sku.psus.count == 0 {
        // The number of PSUs could not be read, so their draw is unknown.
        return;
    }
    let share = sku.power.max_watts / f64::from(sku.psus.count);
    for (psu, plug) in node.psus.iter().enumerate() {
        let Some(plug) = plug else { continue };
        if outlet_watts(&draft.site, *plug).is_some_and(|watts| share > watts) {
            let what = format!(
                "a PSU draws up to {share:.0} W, more than outlet {}",
                draft.site.plug_name(*plug)
            );
            entry.error(
                sink,
                &format!("psus[{psu}]"),
                what,
                "use an outlet with a higher rating",
            );
        }
    }
}
