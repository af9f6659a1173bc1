//! `rackwright fabric show`

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone};
use rackwright_infiniband::structure::{LinkClass, Rails, SwitchView, called};
use rackwright_infiniband::{Dump, Role, Structure};
use serde_json::{Value, json};

use super::{ShowArgs, bytes, note_findings, read_dump};

/// Hosts that are no nodes, shown by name at most.
const MAX_HOSTS: usize = 8;

pub(super) fn run(cx: &Cx, args: &ShowArgs) -> Result<(), CliError> {
    let dump = read_dump(&args.dump, &bytes(&args.dump)?)?;
    note_findings(cx, &args.dump, &dump.findings, dump.more_findings);
    let shape = Structure::of(&dump.fabric);
    match cx.ui.format() {
        Format::Table => cx.ui.line(render(&dump, &shape, cx.ui.paint()).trim_end()),
        Format::Name => shape
            .switches
            .iter()
            .try_for_each(|view| cx.ui.line(&called(&dump.fabric, view.device))),
        Format::Json | Format::Yaml => cx.ui.value(&value(&dump, &shape)),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Leaf => "leaf",
        Role::Spine => "spine",
        Role::Core => "core",
        Role::Unknown => "-",
    }
}

fn rails(rails: Rails) -> String {
    match rails {
        Rails::Unknown => "unknown: descriptions do not name the nodes, or not the places of their adapters".to_owned(),
        Rails::NotOptimised => "not rail-optimised".to_owned(),
        Rails::Optimised(rails) => format!("rail-optimised, {rails} rails"),
    }
}

fn class(class: LinkClass) -> &'static str {
    match class {
        LinkClass::Access => "to adapters",
        LinkClass::Trunk => "between switches",
        LinkClass::Other => "other",
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}:1"))
}

fn summary(dump: &Dump, shape: &Structure) -> Table {
    let counts = shape.counts;
    let mut table = Table::pairs();
    let mut pair = |name: &str, value: String| {
        table.row([Cell::toned(name, Tone::Dim), Cell::from(value)]);
    };
    let roles = [Role::Leaf, Role::Spine, Role::Core, Role::Unknown].map(|of| (role(of), shape.of_role(of).count()));
    let roles: Vec<String> = roles
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(of, n)| format!("{n} {}", if *of == "-" { "of unknown level" } else { of }))
        .collect();
    pair("switches", format!("{} ({})", counts.switches, roles.join(", ")));
    pair("adapters", counts.adapters.to_string());
    pair("aggregation nodes", counts.aggregation_nodes.to_string());
    pair("links", counts.links.to_string());
    pair("levels", shape.levels.to_string());
    pair("units", shape.units.len().to_string());
    let others = shape.units.iter().flat_map(|unit| &unit.others);
    let named: Vec<&str> = others.clone().take(MAX_HOSTS).map(String::as_str).collect();
    if !named.is_empty() {
        let more = others.count() - named.len();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        pair("other hosts", format!("{}{more}", named.join(", ")));
    }
    pair("pods", shape.pods.len().to_string());
    pair("rails", rails(shape.rails));
    pair("worst leaf", ratio(shape.worst_leaf()));
    for pod in &shape.pods {
        if let (Some(over), Some(first)) = (shape.pod_oversubscription(pod), pod.leaves.first()) {
            pair(
                "pod",
                format!(
                    "{} leaves from {}: {}",
                    pod.leaves.len(),
                    called(&dump.fabric, *first),
                    ratio(Some(over))
                ),
            );
        }
    }
    for ((of, rate), count) in &shape.rates {
        pair("rate", format!("{} {} at {rate}", plural(*count, "link"), class(*of)));
    }
    table
}

fn render(dump: &Dump, shape: &Structure, paint: Paint) -> String {
    let mut out = summary(dump, shape).render(paint, None);
    out.push('\n');
    let mut table = Table::new(&[
        "SWITCH",
        "ROLE",
        "UNIT",
        "RAIL",
        "POD",
        "ADAPTERS",
        "DOWN",
        "UP",
        "OVER",
        "SPARE PORTS",
    ]);
    let number = |at: Option<usize>| at.map_or_else(String::new, |at| (at + 1).to_string());
    for view in &shape.switches {
        table.row([
            Cell::from(called(&dump.fabric, view.device)),
            Cell::from(role(view.role)),
            Cell::from(number(view.unit)),
            Cell::from(view.rail.map_or_else(String::new, |rail| rail.to_string())),
            Cell::from(number(view.pod)),
            Cell::from(view.adapters.to_string()),
            Cell::from(view.down.to_string()),
            Cell::from(view.uplinks().to_string()),
            Cell::from(ratio(view.oversubscription())),
            Cell::from(view.spare_ports.to_string()),
        ]);
    }
    out.push_str(&table.render(paint, None));
    if !shape.is_regular() {
        out.push('\n');
        let mut table = Table::new(&["IRREGULARITY"]);
        for odd in &shape.oddities {
            table.row([Cell::from(&odd.text)]);
        }
        out.push_str(&table.render(paint, None));
        if shape.more_oddities > 0 {
            out.push_str(&format!("and {} more\n", shape.more_oddities));
        }
    }
    out
}

fn value(dump: &Dump, shape: &Structure) -> Value {
    let name = |device| called(&dump.fabric, device);
    let names = |devices: &[_]| devices.iter().map(|device| name(*device)).collect::<Vec<_>>();
    let switch = |view: &SwitchView| {
        json!({
            "name": name(view.device),
            "guid": dump.fabric.device(view.device).guid,
            "role": view.role,
            "level": view.level,
            "unit": view.unit,
            "pod": view.pod,
            "rail": view.rail,
            "adapters": view.adapters,
            "downlinks": view.down,
            "uplinks": view.uplinks(),
            "down_gbps": view.down_gbps,
            "up_gbps": view.up_gbps,
            "oversubscription": view.oversubscription(),
            "spare_ports": view.spare_ports,
        })
    };
    let rates = shape
        .rates
        .iter()
        .map(|((class, rate), links)| json!({"class": class, "rate": rate.to_string(), "links": links}));
    json!({
        "counts": shape.counts,
        "levels": shape.levels,
        "rails": shape.rails,
        "worst_leaf_oversubscription": shape.worst_leaf(),
        "switches": shape.switches.iter().map(switch).collect::<Vec<_>>(),
        "units": shape.units.iter().map(|unit| json!({
            "leaves": names(&unit.leaves),
            "nodes": unit.nodes,
            "other_hosts": unit.others,
        })).collect::<Vec<_>>(),
        "pods": shape.pods.iter().map(|pod| json!({
            "leaves": names(&pod.leaves),
            "spines": names(&pod.spines),
            "oversubscription": shape.pod_oversubscription(pod),
        })).collect::<Vec<_>>(),
        "spine_groups": shape.groups.iter().map(|group| names(group)).collect::<Vec<_>>(),
        "rates": rates.collect::<Vec<_>>(),
        "oddities": shape.oddities,
        "more_oddities": shape.more_oddities,
        "findings": dump.findings,
    })
}
