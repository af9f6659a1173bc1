//! `rackwright cluster plan`

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use rackwright_site::model::{NodeId, Site};
use rackwright_site::placement::Placement;
use rackwright_site::planner::{Planner, Refused};
use serde_json::{Value, json};

use super::wanted::{self, Wanted};
use crate::args::Cx;
use crate::error::{CliError, plural};
use crate::output::{Format, Tone};
use crate::site::load;

/// Most names of nodes that a table shows.
const SHOWN: usize = 8;

/// `rackwright cluster plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The clusters: docs/placement.md
    #[arg(short = 'f', long = "file", value_name = "FILE|-")]
    file: PathBuf,
    /// File or directory (its *.yaml and *.yml) of the site; repeat it for several
    #[arg(long = "site", required = true, value_name = "FILE|DIR|-")]
    site: Vec<PathBuf>,
}

/// A cluster with its place.
struct Placed {
    placement: Placement,
    picture: String,
}

/// Plans the clusters in the order of the file; each leaves the later ones less.
pub fn run(cx: &Cx, args: &PlanArgs) -> Result<(), CliError> {
    let site = load::site(cx, &args.site)?;
    let text = load::read_file(&args.file)?;
    let wanted = wanted::read(&args.file, &text, &site)?;
    let hint = "clusters are placed in fat-trees in which all leaves of a pod are cabled alike";
    let mut planner = Planner::new(&site).map_err(|unfit| CliError::usage(unfit.to_string(), hint))?;
    let mut planned = Vec::new();
    for one in wanted {
        // Drawn at once: later clusters are not in its picture.
        let placed = planner.place(one.request.clone()).map(|placement| {
            let picture = planner.draw(&placement);
            Placed { placement, picture }
        });
        planned.push((one, placed));
    }
    let refused = planned.iter().filter(|(_, placed)| placed.is_err()).count();
    match cx.ui.format() {
        Format::Json | Format::Yaml => {
            let plans = planned.iter().map(|(one, placed)| to_json(&site, one, placed));
            cx.ui.value(&json!({"clusters": plans.collect::<Vec<_>>()}))?;
        }
        Format::Name => {
            let placed = planned.iter().filter(|(_, placed)| placed.is_ok());
            placed.map(|(one, _)| one).try_for_each(|one| cx.ui.line(&one.name))?;
        }
        Format::Table => {
            let told = planned.iter().map(|(one, placed)| words(cx, &site, one, placed));
            cx.ui.line(told.collect::<Vec<_>>().join("\n").trim_end())?;
        }
    }
    if refused > 0 {
        let message = format!("{} of {} cannot be placed", refused, plural(planned.len(), "cluster"));
        return Err(CliError::usage(
            message,
            "the plan says what is in the way of each, and what would fit",
        ));
    }
    Ok(())
}

fn words(cx: &Cx, site: &Site, one: &Wanted, placed: &Result<Placed, Refused>) -> String {
    let paint = cx.ui.paint();
    let Wanted {
        name,
        customer,
        sku,
        bandwidth,
        request,
    } = one;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} for {customer}: {} of {sku} and {}, {bandwidth}",
        paint.tone(Tone::Strong, name),
        plural(request.nodes as usize, "node"),
        plural(request.spares as usize, "spare"),
    );
    match placed {
        Err(refused) => {
            let _ = writeln!(out, "  {} {refused}", paint.tone(Tone::Bad, "refused:"));
        }
        Ok(Placed { placement, picture }) => {
            for line in picture.lines() {
                let _ = writeln!(out, "  {line}");
            }
            let names = listed(&names_of(site, &placement.nodes));
            let _ = writeln!(out, "  nodes: {names}");
            if !placement.spares.is_empty() {
                let _ = writeln!(out, "  spares: {}", listed(&names_of(site, &placement.spares)));
            }
            let _ = writeln!(out, "  power: {:.1} kW", kilowatts(site, placement));
        }
    }
    out
}

fn names_of<'a>(site: &'a Site, nodes: &[rackwright_site::placement::NodeId]) -> Vec<&'a str> {
    nodes.iter().map(|node| &*site.node(NodeId(node.0)).name).collect()
}

fn kilowatts(site: &Site, placement: &Placement) -> f64 {
    let nodes = placement.nodes.iter().chain(&placement.spares);
    nodes
        .map(|node| site.sku_of(NodeId(node.0)).power.max_watts)
        .sum::<f64>()
        / 1000.0
}

fn listed(names: &[&str]) -> String {
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn to_json(site: &Site, one: &Wanted, placed: &Result<Placed, Refused>) -> Value {
    let Wanted {
        name,
        customer,
        sku,
        bandwidth,
        request,
    } = one;
    let asked = json!({
        "name": name, "customer": customer, "sku": sku, "bandwidth": bandwidth,
        "wanted_nodes": request.nodes, "wanted_spares": request.spares,
    });
    let found = match placed {
        Err(refused) => json!({"refused": refused.to_string()}),
        Ok(Placed { placement, .. }) => json!({
            "nodes": names_of(site, &placement.nodes),
            "spares": names_of(site, &placement.spares),
            "units": placement.units.len(),
            "max_watts": kilowatts(site, placement) * 1000.0,
        }),
    };
    match (asked, found) {
        (Value::Object(mut asked), Value::Object(found)) => {
            asked.extend(found);
            Value::Object(asked)
        }
        (asked, _) => asked,
    }
}
