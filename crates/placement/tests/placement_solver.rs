//! Thousands of small random halls compared with an exact solver: no refusal if a placement exists, and the fewest
//! units.
//!
//! HiGHS is a Python package in a virtual environment that `tests/venv.sh` creates in the target folder. Without
//! `python3`, its `venv` and a package index this test fails. `RACKWRIGHT_HALLS` is the number of halls.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use placement_common::{Size, TINY, request, used_hall};
use rackwright_placement::*;

const HALLS: u64 = 3000;

#[test]
fn nothing_is_refused_that_fits_and_no_unit_is_wasted() {
    let halls = std::env::var("RACKWRIGHT_HALLS").map_or(HALLS, |n| n.parse().unwrap());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("placement-instances.jsonl");
    let lines: String = (0..halls).map(instance).collect();
    std::fs::write(&file, lines).unwrap();

    let made = Command::new(here.join("../../tests/venv.sh"))
        .arg(folder.parent().unwrap().join("venv-highs"))
        .arg(here.join("tests/placement_requirements.txt"))
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "cannot make the environment of HiGHS: {words}");
    let python = Path::new(String::from_utf8(made.stdout).unwrap().trim()).join("python");
    let solved = Command::new(python)
        .arg(here.join("../../tests/placement-solver.py"))
        .arg(&file)
        .output()
        .unwrap();
    let (told, words) = (
        String::from_utf8_lossy(&solved.stdout),
        String::from_utf8_lossy(&solved.stderr),
    );
    println!("{told}");
    assert!(solved.status.success(), "{told}{words}");
    let counted = format!("\"instances\": {halls}");
    assert!(told.contains(&counted), "{told}");
}

fn instance(seed: u64) -> String {
    // Every third hall has fewer pods with more and wider units.
    let wide = Size {
        pods: (1, 2),
        units: (3, 6),
        hosts: (3, 8),
        parallel: 2,
    };
    let (hall, mut dice) = used_hall(seed, if seed.is_multiple_of(3) { wide } else { TINY });
    let wish = request(&mut dice, hall.spec(), 100);
    let (answer, proven) = match plan(&hall, &wish) {
        Ok(placement) => (placement.units.len().to_string(), true),
        Err(refusal) => ("null".to_owned(), refusal.proven),
    };
    let (hall, request) = (hall_as_json(&hall), request_as_json(&wish));
    format!("{{\"seed\":{seed},\"hall\":{hall},\"request\":{request},\"answer\":{answer},\"proven\":{proven}}}\n")
}

fn list<T>(of: impl IntoIterator<Item = T>, each: impl Fn(T) -> String) -> String {
    let items: Vec<_> = of.into_iter().map(each).collect();
    format!("[{}]", items.join(","))
}

fn hall_as_json(hall: &Hall) -> String {
    let spec = hall.spec();
    let mut out = String::from("{");
    let tree = spec.tree;
    let (spines, cores) = (hall.wirings().spines, hall.wirings().cores);
    let _ = write!(
        out,
        "\"tree\":{{\"spines\":{},\"links_per_spine\":{},\"cores_per_spine\":{}}}",
        tree.spines, tree.links_per_spine, tree.cores_per_spine
    );
    let pods = spec.pods.iter().enumerate();
    let pod_of: Vec<usize> = pods.flat_map(|(i, p)| p.units.iter().map(move |_| i)).collect();
    let _ = write!(out, ",\"pod_of\":{}", list(&pod_of, ToString::to_string));
    let skus = list(&spec.skus, |s| {
        format!("{{\"watts\":{},\"psus_needed\":{}}}", s.watts, s.psus_needed)
    });
    let domains = list(&spec.domains, |d| {
        let parent = d.parent.map_or("null".to_owned(), |p| p.0.to_string());
        let (capacity, other, feed, circuit) = (d.capacity_w, d.other_w, d.feed, d.circuit);
        format!(
            "{{\"parent\":{parent},\"capacity_w\":{capacity},\"other_w\":{other},\"feed\":{feed},\"circuit\":{circuit}}}"
        )
    });
    let cooling = list(&spec.cooling, |c| {
        format!("{{\"capacity_w\":{},\"other_w\":{}}}", c.capacity_w, c.other_w)
    });
    let nodes = list(&spec.nodes, |n| {
        let psus = list(&n.psus, |p| p.0.to_string());
        let cooling = list(&n.cooling, |(c, w)| format!("[{},{w}]", c.0));
        let labels = list(&n.labels, |l| l.0.to_string());
        let (unit, sku) = (n.unit.0, n.sku.0);
        format!("{{\"unit\":{unit},\"sku\":{sku},\"psus\":{psus},\"cooling\":{cooling},\"labels\":{labels}}}")
    });
    let kinds = list(&spec.labels, |l| l.kind.0.to_string());
    let free = (0..spec.nodes.len() as u32).filter(|&n| hall.node_status(NodeId(n)) == Some(NodeStatus::Free));
    let free = list(free, |n| n.to_string());
    let clusters = list(hall.clusters().values(), |p| {
        let r = &p.request;
        let nodes = list(p.nodes.iter().chain(&p.spares), |n| n.0.to_string());
        let (customer, survives, circuits, cooling) =
            (r.customer.0, r.survives_feed_loss, r.own_circuits, r.own_cooling);
        format!(
            "{{\"customer\":{customer},\"survives\":{survives},\"own_circuits\":{circuits},\"own_cooling\":{cooling},\"nodes\":{nodes}}}"
        )
    });
    let uplinks = list(0..pod_of.len() as u32, |u| {
        list(0..spines.peers, |s| {
            spines.count(hall.free_uplinks(UnitId(u)), s).to_string()
        })
    });
    let held = |pod: usize, spine: u32, core: u32| {
        let shares = hall.clusters().values().flat_map(|p| &p.cores);
        let here = shares.filter(|s| s.pod.at() == pod && s.spine == spine);
        here.map(|s| cores.count(s.links, core)).sum::<u32>()
    };
    let core_links = list(0..spec.pods.len(), |p| {
        list(0..spines.peers, |s| {
            list(0..cores.peers, |c| (cores.parallel - held(p, s, c)).to_string())
        })
    });
    let _ = write!(
        out,
        ",\"skus\":{skus},\"domains\":{domains},\"cooling\":{cooling},\"nodes\":{nodes},\"label_kinds\":{kinds},\"free\":{free}"
    );
    let contracts = list(&spec.contracts, |(customer, watts)| format!("[{},{watts}]", customer.0));
    let _ = write!(out, ",\"contracts\":{contracts}");
    let _ = write!(
        out,
        ",\"clusters\":{clusters},\"uplinks\":{uplinks},\"core_links\":{core_links}}}"
    );
    out
}

fn request_as_json(r: &Request) -> String {
    let ratio = match r.bandwidth {
        Bandwidth::Ratio { down, up } => format!("[{down},{up}]"),
        Bandwidth::BestEffort => "[1000,1]".to_owned(),
    };
    let avoid = list(&r.affinity.avoid, |l| l.0.to_string());
    let spread = list(&r.affinity.spread, |(kind, most)| format!("[{},{most}]", kind.0));
    let (customer, sku, size) = (r.customer.0, r.sku.0, r.size());
    let (survives, circuits, cooling) = (r.survives_feed_loss, r.own_circuits, r.own_cooling);
    format!(
        "{{\"customer\":{customer},\"sku\":{sku},\"size\":{size},\"ratio\":{ratio},\"avoid\":{avoid},\"spread\":{spread},\"survives\":{survives},\"own_circuits\":{circuits},\"own_cooling\":{cooling}}}"
    )
}
