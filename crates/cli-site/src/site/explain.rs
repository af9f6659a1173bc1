//! `rackwright power explain --site`: how a node is fed, from site files without a server.

use std::fmt::Write as _;
use std::path::PathBuf;

use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::{Format, Table};
use rackwright_cli_context::{Cx, names};
use rackwright_site::model::Site;
use rackwright_site::power::{Explanation, Loads, LossOutcome, PsuPath, Step, explain};
use serde_json::{Value, json};

use super::load;

/// Shows the power domains from the utility to each PSU, and what the node survives.
pub fn run(cx: &Cx, node: &str, files: &[PathBuf]) -> Result<(), CliError> {
    let site = load::site(cx, files)?;
    let name = names::short("nodes", node);
    let Some(node) = site.node_named(name) else {
        let hint = match site.customer_named(names::short("customers", name)) {
            Some(_) => "this is a customer: only the server knows the customer's nodes; leave out --site",
            None => {
                "`rackwright site validate` counts the nodes of the site; only the server knows the nodes of clusters"
            }
        };
        return Err(CliError::usage(format!("the site has no node named {name}"), hint));
    };
    let explanation = explain(&site, &Loads::of_all_nodes(&site), node);
    match cx.ui.format() {
        Format::Json | Format::Yaml => cx.ui.value(&to_json(&site, &explanation)),
        Format::Name => cx.ui.line(&names::full("nodes", name)),
        Format::Table => cx.ui.line(to_text(cx, &site, &explanation).trim_end()),
    }
}

fn kilowatts(watts: f64) -> String {
    format!("{:.1} kW", watts / 1000.0)
}

fn to_text(cx: &Cx, site: &Site, explanation: &Explanation) -> String {
    let mut out = String::new();
    let Explanation {
        node,
        sku,
        rack,
        max_watts,
        psus_needed,
        psus,
        ..
    } = explanation;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{node}, a {sku} in rack {rack}, draws at most {}; {psus_needed} of its {} must work.",
        kilowatts(*max_watts),
        plural(psus.len(), "PSU")
    );
    for group in groups_by_path(psus) {
        let _ = writeln!(out);
        for psu in &group {
            let _ = writeln!(out, "{}", psu_text(psu));
        }
        out.push_str(&path_table(cx, site, group[0]));
    }
    let _ = writeln!(out);
    for loss in &explanation.losses {
        let _ = writeln!(out, "{}", loss_text(loss));
    }
    let _ = writeln!(out, "Any one PSU lost: {}.", fate(explanation.survives_psu_loss));
    out
}

/// The PSUs in groups with one path: PSUs on one PDU, or PSUs that are not plugged in.
fn groups_by_path(psus: &[PsuPath]) -> Vec<Vec<&PsuPath>> {
    let mut groups: Vec<Vec<&PsuPath>> = Vec::new();
    for psu in psus {
        match groups.iter_mut().find(|group| has_same_path(group[0], psu)) {
            Some(group) => group.push(psu),
            None => groups.push(vec![psu]),
        }
    }
    groups
}

/// Whether two paths end in the same domain: each domain has one path from the utility.
fn has_same_path(a: &PsuPath, b: &PsuPath) -> bool {
    let last_domain = |psu: &PsuPath| psu.steps.last().map(|step| step.domain);
    last_domain(a) == last_domain(b)
}

fn fate(survives: bool) -> &'static str {
    match survives {
        true => "the node stays on",
        false => "the node goes down",
    }
}

fn psu_text(psu: &PsuPath) -> String {
    let Some(outlet) = &psu.outlet else {
        return format!("PSU {} is not plugged in", psu.psu);
    };
    let phase = psu
        .phase
        .filter(|phase| *phase != "all")
        .map(|phase| format!(", {phase}"))
        .unwrap_or_default();
    let limit = psu
        .outlet_watts
        .map(|watts| format!(", carries {}", kilowatts(watts)))
        .unwrap_or_default();
    format!(
        "PSU {} draws {} from outlet {outlet}{phase}{limit}",
        psu.psu,
        kilowatts(psu.psu_watts)
    )
}

/// The table of the domains from the utility to a PSU; empty if the PSU is not plugged in.
fn path_table(cx: &Cx, site: &Site, psu: &PsuPath) -> String {
    let mut table = Table::new(&[
        "KIND",
        "NAME",
        "FEED",
        "CARRIES",
        "ALL NODES",
        "USED",
        "THIS NODE",
        "MEASURED",
    ])
    .indented(2);
    for step in &psu.steps {
        let domain = site.domain(step.domain);
        let feed = domain.feed.map_or("", |feed| &*site.feeds[feed.index()]);
        table.row([
            domain.kind.name().into(),
            (&*domain.name).into(),
            feed.into(),
            kilowatts(step.capacity_watts).into(),
            kilowatts(step.load_watts).into(),
            format!("{:.0} %", 100.0 * step.load_watts / step.capacity_watts).into(),
            kilowatts(step.node_watts).into(),
            step.measured_watts.map(kilowatts).unwrap_or_default().into(),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    table.render(cx.ui.paint(), cx.ui.width())
}

fn loss_text(loss: &LossOutcome) -> String {
    let LossOutcome {
        feed,
        live,
        live_watts,
        psu_watts,
        survives,
    } = loss;
    let fate = fate(*survives);
    match live {
        0 => format!("Feed {feed} lost: no PSU remains, {fate}."),
        1 => format!(
            "Feed {feed} lost: 1 PSU remains and supplies {}, it draws {}: {fate}.",
            kilowatts(*live_watts),
            kilowatts(*psu_watts)
        ),
        _ => format!(
            "Feed {feed} lost: {live} PSUs remain and supply {}, each draws {}: {fate}.",
            kilowatts(*live_watts),
            kilowatts(*psu_watts)
        ),
    }
}

fn to_json(site: &Site, explanation: &Explanation) -> Value {
    let step = |step: &Step| {
        let domain = site.domain(step.domain);
        json!({
            "kind": domain.kind.name(),
            "name": domain.name,
            "feed": domain.feed.map(|feed| &site.feeds[feed.index()]),
            "capacity_watts": step.capacity_watts,
            "all_nodes_watts": step.load_watts,
            "node_watts": step.node_watts,
            "measured_watts": step.measured_watts,
        })
    };
    let psus: Vec<Value> = explanation
        .psus
        .iter()
        .map(|psu| {
            json!({
                "psu": psu.psu,
                "outlet": psu.outlet,
                "phase": psu.phase,
                "outlet_watts": psu.outlet_watts,
                "psu_watts": psu.psu_watts,
                "steps": psu.steps.iter().map(step).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "node": explanation.node,
        "sku": explanation.sku,
        "rack": explanation.rack,
        "max_watts": explanation.max_watts,
        "psus_needed": explanation.psus_needed,
        "psus": psus,
        "feed_losses": explanation.losses,
        "survives_psu_loss": explanation.survives_psu_loss,
    })
}
