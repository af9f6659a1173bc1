//! Section `skus`.

use std::collections::BTreeMap;

use rackwright_yaml::{Tree, Value};

use super::currency::CODES;
use super::fields::Fields;
use super::names::shown;
use super::quantity::Unit;
use super::rooms::MAX_UNITS;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{Hca, PowerProfile, Price, PsuProfile, Sku, Speed};

/// Maximum number of HCAs of a node.
const MAX_HCAS: usize = 64;

/// Coolant for a temperature rise of 10 °C, in litres a minute for each kW.
const DEFAULT_FLOW_LPM_PER_KW: f64 = 1.5;

pub(super) fn read(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("skus") {
        let Some(mut fields) = item_fields("skus", *item, sink) else {
            draft.skus.lost = true;
            continue;
        };
        let names = fields.own_names("name");
        let skus = fields.turns(sku);
        for (_, lost) in skus.iter() {
            draft.hcas_lost |= lost.hcas;
            draft.speeds_lost |= lost.speed;
        }
        let entry = draft.skus.enter(fields.finish());
        draft.skus.lost |= names.is_empty();
        for (i, name) in names.iter().enumerate() {
            let Some((sku, _)) = skus.get(i) else { continue };
            if draft.skus.add(sink, entry, name) {
                draft.site.skus.push(Sku {
                    name: name.into(),
                    ..sku.clone()
                });
            }
        }
    }
}

/// The values of a SKU that could not be read.
struct Lost {
    hcas: bool,
    speed: bool,
}

fn sku(fields: &mut Fields<'_, '_>) -> (Sku, Lost) {
    let power = power(fields);
    let psus = psus(fields, power.max_watts);
    let hcas = hcas(fields);
    let (hca_speed, is_known) = fields.choice_or("hca_speed", &Speed::ALL, Speed::name, Speed::Ndr);
    let lost = Lost {
        hcas: hcas.is_none(),
        speed: !is_known,
    };
    let sku = Sku {
        name: Box::default(),
        power,
        psus,
        liquid_share: fields.number("liquid_share", Unit::None, 0.0..=1.0).unwrap_or(0.0),
        flow_lpm_per_kw: fields
            .number("flow_lpm_per_kw", Unit::LitresPerMinutePerKw, 0.1..=20.0)
            .unwrap_or(DEFAULT_FLOW_LPM_PER_KW),
        height_units: fields.need_integer("height_units", 1..=MAX_UNITS).unwrap_or(0) as u16,
        weight_kg: fields
            .number("weight_kg", Unit::Kilograms, 0.0..=10_000.0)
            .unwrap_or(0.0),
        gpus: fields.integer("gpus", 0..=256).unwrap_or(0) as u16,
        hcas: hcas.unwrap_or_default(),
        hca_speed,
        inventory: inventory(fields),
        validation_profile: fields.text("validation_profile").map(Into::into),
        price: price(fields),
        settings: super::settings::read(fields),
        firmware: super::firmware::read(fields),
    };
    (sku, lost)
}

fn price(fields: &mut Fields<'_, '_>) -> Option<Price> {
    let text = fields.text("price_per_second")?;
    let Some(price) = Price::parse(text) else {
        let fix =
            "write an amount and an ISO 4217 currency, as `0.0125 USD`; at most 12 digits before and after the point";
        fields.error("price_per_second", format!("`{}` is not a price", shown(text)), fix);
        return None;
    };
    if !CODES.contains(&&*price.currency) {
        let what = format!("ISO 4217 has no currency {}", price.currency);
        let fix = format!("write the code of the currency, as `{} USD`", price.per_second);
        fields.error("price_per_second", what, fix);
    }
    Some(price)
}

fn power(fields: &mut Fields<'_, '_>) -> PowerProfile {
    let nothing = PowerProfile {
        idle_watts: 0.0,
        typical_watts: 0.0,
        max_watts: f64::NAN,
        boot_peak_watts: f64::NAN,
    };
    let Some(mut power) = fields.need_nested("power", "{max_watts: 10.2 kW}") else {
        return nothing;
    };
    let range = 1.0..=1e6;
    let max_watts = power.need_number("max_watts", Unit::Watts, range.clone());
    let profile = PowerProfile {
        max_watts,
        idle_watts: power.number("idle_watts", Unit::Watts, 0.0..=1e6).unwrap_or(0.0),
        typical_watts: power
            .number("typical_watts", Unit::Watts, 0.0..=1e6)
            .unwrap_or(max_watts),
        boot_peak_watts: power.number("boot_peak_watts", Unit::Watts, range).unwrap_or(max_watts),
    };
    for (field, watts) in [
        ("idle_watts", profile.idle_watts),
        ("typical_watts", profile.typical_watts),
    ] {
        if watts > max_watts {
            power.error(
                field,
                format!("{watts} W is more than the maximum of {max_watts} W"),
                "correct this value or `max_watts`",
            );
        }
    }
    power.finish();
    profile
}

fn psus(fields: &mut Fields<'_, '_>, max_watts: f64) -> PsuProfile {
    // A count of zero stands for an unknown one.
    let unknown = PsuProfile {
        count: 0,
        watts: f64::NAN,
        needed: 0,
    };
    let Some(mut psus) = fields.need_nested("psus", "{count: 6, watts: 3300, needed: 4}") else {
        return unknown;
    };
    let count = psus.need_integer("count", 1..=64);
    let watts = psus.need_number("watts", Unit::Watts, 1.0..=1e6);
    let needed = psus.need_integer("needed", 1..=64);
    if let (Some(count), Some(needed)) = (count, needed) {
        if needed > count {
            let what = format!("{needed} PSUs are needed, but there are {count}");
            psus.error("needed", what, "`needed` must be at most `count`");
        } else if f64::from(count) * watts < max_watts {
            let what = format!("{count} PSUs of {watts} W give less than the node's maximum of {max_watts} W");
            psus.error("watts", what, "correct the PSUs or power.max_watts");
        }
    }
    psus.finish();
    PsuProfile {
        count: count.unwrap_or(0) as u8,
        watts,
        needed: needed.unwrap_or(0) as u8,
    }
}

/// Names in the order of the rails, or items with a name and a rail. `None`: they could not be read, which has a finding.
fn hcas(fields: &mut Fields<'_, '_>) -> Option<Vec<Hca>> {
    let mut hcas: Vec<Hca> = Vec::new();
    let mut rails = Vec::new();
    let Some(tree) = fields.take("hcas") else {
        return Some(hcas);
    };
    let trees = fields.list_in("hcas", tree);
    let mut broken = !matches!(tree.value, Value::List(_));
    for (i, tree) in trees.iter().enumerate() {
        let path = format!("hcas[{i}]");
        let at = fields.part(&path, tree.at);
        let named = hca(fields, &path, tree);
        broken |= named.is_empty();
        for (name, rail) in named {
            if hcas.iter().any(|hca| *hca.name == *name) {
                fields.sink.error(
                    tree.at,
                    &at,
                    format!("there are two HCAs named {name}"),
                    "rename one of them",
                );
                continue;
            }
            let rail = rail.unwrap_or(hcas.len() as u32);
            hcas.push(Hca {
                name: name.into(),
                rail: u8::try_from(rail).unwrap_or(u8::MAX),
            });
            rails.push((tree.at, at.clone(), rail));
        }
    }
    if hcas.len() > MAX_HCAS {
        let fix = format!("a node has at most {MAX_HCAS} HCAs: give fewer names");
        fields.error("hcas", format!("there are more than {MAX_HCAS} HCAs"), fix);
        return None;
    }
    if broken {
        return None;
    }
    for (at, path, rail) in rails {
        if rail as usize >= hcas.len() {
            let what = format!(
                "rail {rail} does not exist: there are {} HCAs, and rails count from 0",
                hcas.len()
            );
            fields.sink.error(
                at,
                format!("{path}.rail"),
                what,
                "there are at most as many rails as HCAs",
            );
        }
    }
    Some(hcas)
}

fn hca<'t>(fields: &mut Fields<'t, '_>, path: &str, tree: &'t Tree) -> Vec<(String, Option<u32>)> {
    if let Value::Text(_) = &tree.value {
        let names = fields.names_in(path, tree);
        if !fields.are_names(path, names.iter()) {
            return Vec::new();
        }
        return names.iter().map(|name| (name.to_owned(), None)).collect();
    }
    let Some(mut hca) = fields.nested_in(path, tree) else {
        return Vec::new();
    };
    let names = hca.own_names("name");
    let rail = hca.need_integer("rail", 0..=255);
    hca.finish();
    names.iter().map(|name| (name.to_owned(), rail.or(Some(0)))).collect()
}

fn inventory(fields: &mut Fields<'_, '_>) -> BTreeMap<String, u32> {
    let mut inventory = BTreeMap::new();
    let Some(tree) = fields.take("inventory") else {
        return inventory;
    };
    let Some(nested) = fields.nested_in("inventory", tree) else {
        return inventory;
    };
    for (key, tree) in nested.pairs() {
        let path = format!("inventory.{}", key.name);
        if let Some(count) = fields.integer_in(&path, tree, &(0..=1_000_000)) {
            inventory.insert(key.name.to_string(), count);
        }
    }
    inventory
}
