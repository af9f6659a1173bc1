//! `rackwright cluster plan`: in a site from files, or by the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{ClusterPlan, PlanClusterRequest};
use rackwright_cli_context::Cx;
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::names::{self, listed};
use rackwright_cli_context::output::{Format, Paint, Tone, clean};
use rackwright_cli_site::site::load;
use rackwright_placement::Placement;
use rackwright_planner::planner::{NamedPlacement, Planner};
use rackwright_site::model::{NodeId, Port, Site};
use serde_json::{Map, Value, json};

use super::wanted::{self, ClusterRequest, PlacementRequest};

/// `rackwright cluster plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// File with clusters: docs/placement.md
    #[arg(short = 'f', long = "file", value_name = "FILE|-")]
    file: PathBuf,
    /// File or directory (its *.yaml and *.yml files) of a site with all nodes free; repeat the option for several (default:
    /// the server's site with its reservations)
    #[arg(long = "site", value_name = "FILE|DIR|-")]
    site: Vec<PathBuf>,
}

/// A request and its result.
struct Planned {
    name: String,
    customer: String,
    sku: String,
    bandwidth: String,
    nodes: u32,
    spares: u32,
    /// The place, or the obstacle and a possible alternative.
    found: Result<Found, String>,
}

/// A place for a cluster.
struct Found {
    nodes: Vec<String>,
    spares: Vec<String>,
    /// None: a plan of the control plane, which reports no links.
    wiring: Option<Wiring>,
    watts: f64,
    picture: String,
}

/// The units of a cluster and its links, for programs.
struct Wiring {
    units: Value,
    links: Value,
}

/// Plans the clusters of the file.
pub async fn run(cx: &Cx, args: &PlanArgs) -> Result<(), CliError> {
    let text = load::read_file(&args.file)?;
    if !args.site.is_empty() {
        let site = load::site(cx, &args.site)?;
        let wanted = wanted::read(&args.file, &text, &site)?;
        return show(cx, &in_files(&site, wanted)?);
    }
    let cluster_requests = wanted::cluster_requests(&args.file, &text)?;
    let client = cx.client().await?;
    let (mut planned, mut errors) = (Vec::new(), Vec::new());
    for one in cluster_requests {
        match ask(&client, one).await {
            Ok(one) => planned.push(one),
            // Without a server the other calls would only fail in the same way, slowly.
            Err(error) if error.is_outage() => {
                errors.push(error);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    if planned.len() > 1 {
        cx.ui.note(
            "note: each cluster is planned beside the existing clusters, not beside the other clusters of the file",
        );
    }
    if let Err(error) = show(cx, &planned) {
        errors.push(error);
    }
    CliError::gather(errors)
}

/// Places the clusters in turn; each leaves less for the later ones.
fn in_files(site: &Site, wanted: Vec<PlacementRequest>) -> Result<Vec<Planned>, CliError> {
    let hint = "a scalable unit has at most 128 nodes";
    let mut planner = Planner::new(site).map_err(|unfit| CliError::usage(unfit.to_string(), hint))?;
    let plan = |one: PlacementRequest| {
        // Drawn at once, so that the picture does not contain later clusters.
        let placed = planner.place(one.request.clone()).map(|placement| {
            let named = planner.named(&placement);
            Found {
                wiring: Some(wiring(site, &planner, &placement, &named)),
                watts: watts(site, &placement),
                picture: planner.draw(&placement),
                nodes: named.nodes,
                spares: named.spares,
            }
        });
        Planned {
            name: one.name,
            customer: one.customer,
            sku: one.sku,
            bandwidth: one.bandwidth,
            nodes: one.request.nodes,
            spares: one.request.spares,
            found: placed.map_err(|refused| refused.to_string()),
        }
    };
    let planned = wanted.into_iter().map(plan).collect();
    // The program ends soon: to free the plan of a site of 100,000 nodes piece by piece would only take time.
    std::mem::forget(planner);
    Ok(planned)
}

/// Asks the control plane for a plan.
async fn ask(client: &Client, one: ClusterRequest) -> Result<Planned, CliError> {
    let request = PlanClusterRequest {
        cluster_id: one.name.clone(),
        spec: Some(one.spec.clone()),
    };
    let doing = format!("plan cluster {}", one.name);
    let plan = rpc!(client, ClusterServiceClient.plan_cluster, doing, request).await?;
    Ok(Planned {
        name: one.name,
        customer: one.spec.customer,
        sku: one.spec.sku,
        bandwidth: one.spec.bandwidth,
        nodes: one.spec.nodes,
        spares: one.spec.spares,
        found: found(plan),
    })
}

fn found(plan: ClusterPlan) -> Result<Found, String> {
    if !plan.fits {
        return Err(clean(&plan.refusal));
    }
    let short = |nodes: Vec<String>| {
        let short = nodes.iter().map(|node| clean(names::short("nodes", node)));
        short.collect()
    };
    Ok(Found {
        nodes: short(plan.nodes),
        spares: short(plan.spares),
        wiring: None,
        watts: plan.reserved_watts,
        picture: plan.picture,
    })
}

fn show(cx: &Cx, planned: &[Planned]) -> Result<(), CliError> {
    match cx.ui.format() {
        Format::Json | Format::Yaml => {
            let plans: Vec<Value> = planned.iter().map(to_json).collect();
            cx.ui.value(&json!({"clusters": plans}))?;
        }
        Format::Name => {
            let placed = planned.iter().filter(|one| one.found.is_ok());
            placed.map(|one| &one.name).try_for_each(|name| cx.ui.line(name))?;
        }
        Format::Table if planned.is_empty() => {}
        Format::Table => {
            let lines = planned.iter().map(|one| planned_text(one, cx.ui.paint()));
            cx.ui.line(lines.collect::<Vec<_>>().join("\n").trim_end())?;
        }
    }
    let refused = planned.iter().filter(|one| one.found.is_err()).count();
    if refused == 0 {
        return Ok(());
    }
    Err(CliError::usage(
        format!("{} of {} cannot be placed", refused, plural(planned.len(), "cluster")),
        "the plan shows why each cluster is refused, and what would fit",
    ))
}

fn planned_text(one: &Planned, paint: Paint) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} for {}: {} of {} and {}, {}",
        paint.tone(Tone::Strong, &one.name),
        one.customer,
        plural(one.nodes as usize, "node"),
        one.sku,
        plural(one.spares as usize, "spare"),
        one.bandwidth,
    );
    match &one.found {
        Err(refused) => {
            let _ = writeln!(out, "  {} {refused}", paint.tone(Tone::Bad, "refused:"));
        }
        Ok(found) => {
            for line in found.picture.lines() {
                let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                let _ = writeln!(out, "  {line}");
            }
            let _ = writeln!(out, "  nodes: {}", listed(&found.nodes));
            if !found.spares.is_empty() {
                let _ = writeln!(out, "  spares: {}", listed(&found.spares));
            }
            let _ = writeln!(out, "  power: {:.1} kW", found.watts / 1000.0);
        }
    }
    out
}

/// The nodes of a cluster in one unit, with the leaves that they are cabled to.
#[derive(Default)]
struct Unit<'a> {
    /// Rail and name.
    leaves: BTreeSet<(Option<u8>, &'a str)>,
    nodes: Vec<&'a str>,
    spares: Vec<&'a str>,
}

fn wiring(site: &Site, planner: &Planner<'_>, placement: &Placement, named: &NamedPlacement) -> Wiring {
    let of_hall = &planner.hall().spec().nodes;
    let mut units: BTreeMap<u32, Unit<'_>> = BTreeMap::new();
    // By node. A site has millions of cables: each looks here.
    let mut placed: Vec<Option<u32>> = vec![None; site.nodes.len()];
    for (nodes, is_spare) in [(&placement.nodes, false), (&placement.spares, true)] {
        for node in nodes {
            let (id, name) = (NodeId(node.0), &*site.node(NodeId(node.0)).name);
            let Some(unit) = of_hall[id.index()].unit else { continue };
            let of_unit = units.entry(unit.0).or_default();
            if is_spare {
                of_unit.spares.push(name);
            } else {
                of_unit.nodes.push(name);
            }
            placed[id.index()] = Some(unit.0);
        }
    }
    for cable in &site.cables {
        if let (Port::Hca { node, .. }, Port::Switch { switch, .. })
        | (Port::Switch { switch, .. }, Port::Hca { node, .. }) = (cable.a, cable.b)
            && let Some(unit) = placed[node.index()].and_then(|unit| units.get_mut(&unit))
        {
            let leaf = site.switch(switch);
            unit.leaves.insert((leaf.rail, &*leaf.name));
        }
    }
    let unit = |unit: &Unit<'_>| {
        let leaves: Vec<&str> = unit.leaves.iter().map(|(_, name)| *name).collect();
        json!({"leaves": leaves, "nodes": unit.nodes, "spares": unit.spares})
    };
    Wiring {
        units: units.values().map(unit).collect(),
        links: json!({"uplinks": named.uplinks, "cores": named.cores}),
    }
}

fn watts(site: &Site, placement: &Placement) -> f64 {
    let nodes = placement.nodes.iter().chain(&placement.spares);
    nodes.map(|node| site.sku_of(NodeId(node.0)).power.max_watts).sum()
}

fn to_json(one: &Planned) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("name", json!(one.name));
    put("customer", json!(one.customer));
    put("sku", json!(one.sku));
    put("bandwidth", json!(one.bandwidth));
    put("wanted_nodes", json!(one.nodes));
    put("wanted_spares", json!(one.spares));
    match &one.found {
        Err(refused) => {
            put("refused", json!(refused));
        }
        Ok(found) => {
            put("nodes", json!(found.nodes));
            put("spares", json!(found.spares));
            if let Some(wiring) = &found.wiring {
                put("units", wiring.units.clone());
                put("links", wiring.links.clone());
            }
            put("max_watts", json!(found.watts));
        }
    }
    Value::Object(object)
}
