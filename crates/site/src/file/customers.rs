//! Section `customers`.

use std::collections::HashMap;

use super::fields::{Fields, NameCycle};
use super::quantity::Unit;
use super::table::Table;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{CoolingUnitId, Customer, CustomerId, DomainId, LayoutId, Redundancy};
use crate::power::capacity_watts;

pub(super) fn read(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("customers") {
        if let Some(fields) = item_fields("customers", *item, sink) {
            read_customer(draft, fields);
        }
    }
    check_circuits(draft, sink);
    check_units(draft, sink);
}

fn read_customer(draft: &mut Draft, mut fields: Fields<'_, '_>) {
    let names = fields.own_names("name");
    if names.len() > 1 {
        fields.error(
            "name",
            "an item describes only one customer",
            "write one item for each customer",
        );
    }
    let customer = Customer {
        name: names.first().map(Into::into).unwrap_or_default(),
        contracted_watts: fields.number("contracted_watts", Unit::Watts, 0.0..=1e10),
        redundancy: fields
            .choice("redundancy", &Redundancy::ALL, Redundancy::name)
            .unwrap_or(Redundancy::None),
        // An invalid value counts as true, so that the lists below give no findings.
        dedicated_circuits: fields
            .flag("dedicated_circuits")
            .unwrap_or(fields.has("dedicated_circuits")),
        dedicated_cooling: fields
            .flag("dedicated_cooling")
            .unwrap_or(fields.has("dedicated_cooling")),
        circuits: Vec::new(),
        cooling_units: Vec::new(),
    };
    let (circuits, units) = (fields.names("circuits"), fields.names("cooling_units"));
    for (field, flag, says_no) in [
        (
            "circuits",
            "dedicated_circuits",
            circuits.len() > 0 && !customer.dedicated_circuits,
        ),
        (
            "cooling_units",
            "dedicated_cooling",
            units.len() > 0 && !customer.dedicated_cooling,
        ),
    ] {
        if says_no {
            fields.error(
                field,
                format!("`{field}` is given, but `{flag}` is not true"),
                format!("write `{flag}: true`"),
            );
        }
    }
    let (sink, entry) = fields.finish_with_sink();
    let entry = draft.customers.enter(entry);
    let Some(name) = names.first() else { return };
    if draft.customers.add(sink, entry, name) {
        let circuits = resolve(&draft.domains, &draft.customers, entry, "circuits", &circuits, sink);
        let units = resolve(
            &draft.cooling_units,
            &draft.customers,
            entry,
            "cooling_units",
            &units,
            sink,
        );
        draft.site.customers.push(Customer {
            circuits: circuits.into_iter().map(DomainId).collect(),
            cooling_units: units.into_iter().map(CoolingUnitId).collect(),
            ..customer
        });
    }
}

fn resolve(
    table: &Table,
    customers: &Table,
    entry: usize,
    field: &str,
    names: &NameCycle,
    sink: &mut Sink,
) -> Vec<u32> {
    let entry = customers.entry_at(entry);
    let ids = names.iter().map(|name| table.find(sink, entry, field, name));
    ids.filter(|id| *id != super::table::NONE).collect()
}

fn check_circuits(draft: &Draft, sink: &mut Sink) {
    let mut owners: HashMap<DomainId, CustomerId> = HashMap::new();
    for (id, customer) in draft.site.customers.iter().enumerate() {
        for circuit in &customer.circuits {
            owners.entry(*circuit).or_insert(CustomerId::of(id));
        }
    }
    for (id, customer) in draft.site.customers.iter().enumerate() {
        let entry = draft.customers.entry(id as u32);
        for circuit in &customer.circuits {
            let domain = draft.site.domain(*circuit);
            let kind_is_unknown = domain.layout.is_some_and(LayoutId::is_none);
            if !domain.kind.is_dedicable() && !kind_is_unknown {
                let what = format!(
                    "{} is a {} and cannot be dedicated to a customer",
                    domain.name,
                    domain.kind.name()
                );
                entry.error(sink, "circuits", what, "name circuits, rack PDUs or power shelves");
            }
            let taken = above(draft, *circuit).find_map(|up| owners.get(&up).filter(|owner| owner.index() != id));
            if let Some(owner) = taken {
                let other = &draft.site.customer(*owner).name;
                let what = format!("{} is dedicated to {other} as well", domain.name);
                entry.error(
                    sink,
                    "circuits",
                    what,
                    "a circuit can be dedicated to only one customer",
                );
            }
        }
        let capacity: f64 = customer
            .circuits
            .iter()
            .map(|circuit| capacity_watts(draft.site.domain(*circuit)))
            .sum();
        if let Some(contracted) = customer.contracted_watts.filter(|watts| *watts > capacity)
            && !customer.circuits.is_empty()
        {
            let what = format!("{contracted:.0} W are contracted, but the dedicated circuits carry {capacity:.0} W");
            entry.error(
                sink,
                "contracted_watts",
                what,
                "dedicate more circuits or lower `contracted_watts`",
            );
        }
    }
}

/// A domain and its ancestors, up to the first that could not be read.
fn above(draft: &Draft, from: DomainId) -> impl Iterator<Item = DomainId> + '_ {
    std::iter::successors(Some(from), |id| {
        draft.site.domain(*id).parent.filter(|id| !id.is_none())
    })
}

fn check_units(draft: &Draft, sink: &mut Sink) {
    let mut owners: HashMap<CoolingUnitId, usize> = HashMap::new();
    for (id, customer) in draft.site.customers.iter().enumerate() {
        for unit in &customer.cooling_units {
            let first = *owners.entry(*unit).or_insert(id);
            if first != id {
                let other = &draft.site.customers[first].name;
                let what = format!(
                    "{} is dedicated to {other} as well",
                    draft.site.cooling_unit(*unit).name
                );
                let entry = draft.customers.entry(id as u32);
                entry.error(
                    sink,
                    "cooling_units",
                    what,
                    "a cooling unit can be dedicated to only one customer",
                );
            }
        }
    }
}
