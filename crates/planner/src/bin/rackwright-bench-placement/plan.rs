//! Measures the first plan of a cluster in the site of a generated file: where the time goes from the text to the names of
//! nodes and cables.

use std::time::Instant;

use rackwright_placement::{ClusterId, CustomerId, Request as Wish, SkuId};
use rackwright_planner::planner::Planner;
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::Redundancy;

use crate::Options;

/// The aim for 100,000 nodes, in seconds.
const AIM: f64 = 2.0;
/// Number of nodes of the cluster, at most half of the site.
const CLUSTER: u32 = 4096;

/// Plans a cluster and prints the time of each step. False: there is no plan, or the aim is missed.
pub fn run(options: Options) -> bool {
    let nodes = options.nodes.unwrap_or(100_000);
    let request = Request {
        customers: vec![("acme".to_owned(), Redundancy::None, false)],
        ..Request::new(ReferenceSku::DgxH100, nodes as usize)
    };
    let text = match site_file(&request) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("rackwright-bench-placement: {error}");
            return false;
        }
    };
    let started = Instant::now();
    let mut last = started;
    let mut step = || {
        let now = Instant::now();
        let ms = now.duration_since(std::mem::replace(&mut last, now)).as_secs_f64() * 1e3;
        ms.round()
    };
    let name = "site.yaml";
    let Some(site) = check(&[Source { name, text: &text }]).site else {
        eprintln!("rackwright-bench-placement: the generated site has errors");
        return false;
    };
    let read = step();
    let mut planner = match Planner::new(&site) {
        Ok(planner) => planner,
        Err(error) => {
            eprintln!("rackwright-bench-placement: {error}");
            return false;
        }
    };
    let hall = step();
    let size = CLUSTER.min(nodes.div_ceil(2));
    let placement = match planner.place(Wish::plain(ClusterId(1), CustomerId(0), SkuId(0), size)) {
        Ok(placement) => placement,
        Err(refused) => {
            eprintln!("rackwright-bench-placement: {refused}");
            return false;
        }
    };
    let place = step();
    let named = planner.named(&placement);
    let names = step();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{{\"bench\":\"plan\",\"nodes\":{nodes},\"fabrics\":{},\"cluster\":{},\"read_ms\":{read},\"hall_ms\":{hall},\
         \"place_ms\":{place},\"names_ms\":{names},\"total_ms\":{:.0}}}",
        planner.hall().spec().trees().count(),
        named.nodes.len(),
        seconds * 1e3
    );
    seconds <= AIM || nodes > 100_000
}
