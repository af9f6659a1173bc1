//! Measures the first plan of a cluster in the site of a generated file: where the time goes from the text to the names of
//! nodes and cables.
//!
//! The plan is the same each time, so the shortest time counts: the rest of a longer time went to other programs of the
//! machine. The time of the first plan is printed, too. The same for the command `rackwright cluster plan --site`: it also
//! reads the file, and prints the plan.

use std::time::Instant;

use rackwright_placement::{ClusterId, CustomerId, Request as Wish, SkuId};
use rackwright_planner::planner::Planner;
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::Redundancy;

use crate::Options;
use crate::command::{Folder, Runs};

/// The aim for 100,000 nodes, in seconds.
const AIM: f64 = 2.0;
/// Number of nodes of the cluster, at most half of the site.
const CLUSTER: u32 = 4096;

/// Number of plans, and of runs of the command.
const TRIES: usize = 3;

/// The steps of a plan, in milliseconds, and the plan's shape.
struct Taken {
    read: f64,
    hall: f64,
    place: f64,
    names: f64,
    fabrics: usize,
    cluster: usize,
}

impl Taken {
    fn total(&self) -> f64 {
        self.read + self.hall + self.place + self.names
    }
}

/// Plans a cluster and prints the time of each step. False: there is no plan, or an aim is missed.
pub fn run(options: Options) -> bool {
    crate::told(measure(options.nodes.unwrap_or(100_000)))
}

/// The generated file of a site with a customer.
pub fn site_text(nodes: u32) -> Result<String, String> {
    let request = Request {
        customers: vec![("acme".to_owned(), Redundancy::None, false)],
        ..Request::new(ReferenceSku::DgxH100, nodes as usize)
    };
    site_file(&request).map_err(|error| error.to_string())
}

fn size(nodes: u32) -> u32 {
    CLUSTER.min(nodes.div_ceil(2))
}

/// The file of clusters for a site of this number of nodes.
pub fn clusters(nodes: u32) -> String {
    format!(
        "clusters: [{{name: alpha, customer: acme, sku: dgx-h100, nodes: {}}}]\n",
        size(nodes)
    )
}

fn measure(nodes: u32) -> Result<bool, String> {
    let text = site_text(nodes)?;
    let plans = (0..TRIES).map(|_| plan(&text, size(nodes)));
    let plans: Vec<Taken> = plans.collect::<Result<_, String>>()?;
    let first = plans.first().map_or(0.0, Taken::total);
    let best = plans.iter().min_by(|one, other| one.total().total_cmp(&other.total()));
    let best = best.ok_or("no plan")?;
    let folder = Folder::new("plan")?;
    let (site, clusters) = (
        folder.write("site.yaml", &text)?,
        folder.write("clusters.yaml", &clusters(nodes))?,
    );
    let args = ["cluster", "plan", "-f", &clusters, "--site", &site, "-o", "json"];
    let runs = Runs::of(&args, TRIES)?;
    println!(
        "{{\"bench\":\"plan\",\"nodes\":{nodes},\"fabrics\":{},\"cluster\":{},\"read_ms\":{:.0},\"hall_ms\":{:.0},\
         \"place_ms\":{:.0},\"names_ms\":{:.0},\"total_ms\":{:.0},\"first_total_ms\":{first:.0},\"command_ms\":{:.0},\
         \"first_command_ms\":{:.0},\"command_peak_mib\":{}}}",
        best.fabrics,
        best.cluster,
        best.read,
        best.hall,
        best.place,
        best.names,
        best.total(),
        runs.best_ms,
        runs.first_ms,
        runs.peak_json()
    );
    let within = best.total().max(runs.best_ms) <= AIM * 1e3;
    Ok(within || nodes > 100_000)
}

/// Plans a first cluster of this number of nodes in the site of a file.
fn plan(text: &str, size: u32) -> Result<Taken, String> {
    let mut last = Instant::now();
    let mut step = || {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut last, now)).as_secs_f64() * 1e3
    };
    let name = "site.yaml";
    let site = check(&[Source { name, text }])
        .site
        .ok_or("the generated site has errors")?;
    let read = step();
    let mut planner = Planner::new(&site).map_err(|error| error.to_string())?;
    let hall = step();
    let placement = planner
        .place(Wish::plain(ClusterId(1), CustomerId(0), SkuId(0), size))
        .map_err(|refused| refused.to_string())?;
    let place = step();
    let named = planner.named(&placement);
    let names = step();
    Ok(Taken {
        read,
        hall,
        place,
        names,
        fabrics: planner.hall().spec().trees().count(),
        cluster: named.nodes.len(),
    })
}
