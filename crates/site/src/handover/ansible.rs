//! An Ansible inventory: the facts of each node, and groups by rack, leaf, unit, pod and SKU.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::facts::{Facts, Seat};
use super::fault::Faults;
use super::text::yaml;
use super::{PackFile, file, names};

/// Groups by name: a description, and the hosts in the order of the fabric.
type Groups<'a> = BTreeMap<String, (String, Vec<&'a str>)>;

pub(super) fn files(facts: &Facts<'_>, faults: &mut Faults) -> Vec<PackFile> {
    let groups = groups(facts, faults);
    for seat in &facts.seats {
        let why = if let Err(why) = names::slurm(seat.host) {
            why
        } else if groups.contains_key(seat.host) || seat.host == "ungrouped" {
            "this is the name of a group"
        } else {
            continue;
        };
        let why = format!("host name `{}`: {why}", seat.host.escape_debug());
        faults.add(format!("node {}", seat.name), why);
    }
    let mut text = String::from("all:\n  hosts:\n");
    // Writing to a string cannot fail.
    for seat in &facts.seats {
        let _ = writeln!(text, "    {}:", yaml(seat.host));
        for (key, value) in variables(facts, seat) {
            let _ = writeln!(text, "      {key}: {value}");
        }
    }
    text.push_str("  children:\n");
    for (group, (_, hosts)) in &groups {
        let _ = writeln!(text, "    {group}:\n      hosts:");
        for host in hosts {
            let _ = writeln!(text, "        {}: {{}}", yaml(host));
        }
    }
    vec![file("ansible/inventory.yaml", text)]
}

/// The variables of a host, as YAML.
fn variables(facts: &Facts<'_>, seat: &Seat<'_>) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    if let Some(address) = seat.member.address {
        variables.push(("ansible_host", yaml(&address.to_string())));
    }
    let hcas: Vec<String> = seat.sku.hcas.iter().map(|hca| yaml(&hca.name)).collect();
    variables.extend([
        ("rackwright_node", yaml(seat.name)),
        ("rackwright_sku", yaml(&seat.sku.name)),
        ("rackwright_room", yaml(&seat.room.name)),
        ("rackwright_rack", yaml(&seat.rack.name)),
    ]);
    let unit = facts.site.node(seat.node).unit;
    if unit > 0 {
        variables.push(("rackwright_rack_unit", unit.to_string()));
    }
    let tiers = facts.tiers(seat);
    let keys = ["rackwright_unit", "rackwright_pod"];
    variables.extend(keys.into_iter().zip(tiers).map(|(key, name)| (key, yaml(name))));
    variables.extend([
        ("rackwright_gpus", seat.sku.gpus.to_string()),
        ("rackwright_hcas", format!("[{}]", hcas.join(", "))),
        ("rackwright_spare", seat.member.spare.to_string()),
    ]);
    variables
}

fn groups<'a>(facts: &'a Facts<'_>, faults: &mut Faults) -> Groups<'a> {
    let mut groups = Groups::new();
    let mut put = |kind: &str, name: &str, host: &'a str| {
        let group = names::group(kind, name);
        let (first, hosts) = groups
            .entry(group.clone())
            .or_insert_with(|| (name.to_owned(), Vec::new()));
        if first != name {
            let why = format!("`{}` and it would both be the group {group}", first.escape_debug());
            faults.add(format!("{kind} {name}"), why);
        }
        hosts.push(host);
    };
    for seat in &facts.seats {
        put("cluster", facts.cluster.name, seat.host);
        put("nodes", if seat.member.spare { "spare" } else { "in_use" }, seat.host);
        put("sku", &seat.sku.name, seat.host);
        put("rack", &seat.rack.name, seat.host);
        for (kind, name) in ["unit", "pod"].into_iter().zip(facts.tiers(seat)) {
            put(kind, name, seat.host);
        }
        let mut leaves: Vec<_> = facts.uplinks(seat).iter().map(|link| link.leaf).collect();
        leaves.sort_unstable();
        leaves.dedup();
        for leaf in leaves {
            put("leaf", &facts.site.switch(leaf).name, seat.host);
        }
    }
    groups
}
