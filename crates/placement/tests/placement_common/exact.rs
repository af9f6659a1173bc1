//! Halls and requests in the form that `tests/placement-solver.py` reads, and the verdict of the exact solver on them.
//!
//! HiGHS is a Python package in a virtual environment that `tests/venv.sh` creates in the target folder. Without
//! `python3`, its `venv` and a package index these tests fail.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use rackwright_placement::*;

/// The answer of placement to a request. `Ok`: number of units of the cluster. `Err`: whether the refusal is proven.
pub type Answer = Result<usize, bool>;

/// One line for the solver: the hall before the request, the request, and the answer of placement.
pub fn instance(seed: u64, hall: &Hall, wish: &Request, answer: Answer) -> String {
    let (answer, proven) = match answer {
        Ok(units) => (units.to_string(), true),
        Err(proven) => ("null".to_owned(), proven),
    };
    let (hall, request) = (hall_as_json(hall), request_as_json(wish));
    format!("{{\"seed\":{seed},\"hall\":{hall},\"request\":{request},\"answer\":{answer},\"proven\":{proven}}}\n")
}

/// Compares the answers with the solver's. Panics with the words of the solver if a request was refused that fits, if an
/// answer is better than the optimum, or if the answers have over 1 % more units than the optimum. `folder` is the
/// temporary folder of the test, and `name` a file in the folder.
pub fn compare(folder: &Path, name: &str, instances: &[String]) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let requirements = tests.join("../crates/placement/tests/placement_requirements.txt");
    let file = folder.join(name);
    std::fs::write(&file, instances.concat()).unwrap();
    let made = Command::new(tests.join("venv.sh"))
        .arg(folder.parent().unwrap().join("venv-highs"))
        .arg(requirements)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "cannot make the environment of HiGHS: {words}");
    let python = Path::new(String::from_utf8(made.stdout).unwrap().trim()).join("python");
    let solved = Command::new(python)
        .arg(tests.join("placement-solver.py"))
        .arg(&file)
        .output()
        .unwrap();
    let verdict = String::from_utf8_lossy(&solved.stdout);
    let words = String::from_utf8_lossy(&solved.stderr);
    println!("{verdict}");
    assert!(solved.status.success(), "{verdict}{words}");
    let counted = format!("\"instances\": {}", instances.len());
    assert!(verdict.contains(&counted), "{verdict}");
}

fn list<T>(of: impl IntoIterator<Item = T>, each: impl Fn(T) -> String) -> String {
    let items: Vec<_> = of.into_iter().map(each).collect();
    format!("[{}]", items.join(","))
}

fn hall_as_json(hall: &Hall) -> String {
    let spec = hall.spec();
    assert!(spec.more_fabrics.is_empty(), "the solver knows one fabric");
    let mut out = String::from("{");
    let tree = spec.tree;
    let Wirings { spines, cores } = hall.wirings(PodId(0));
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
        // A node without a unit is not free, so the solver does not read its unit.
        let (unit, sku, impaired) = (n.unit.map_or(0, |unit| unit.0), n.sku.0, n.impaired);
        format!(
            "{{\"unit\":{unit},\"sku\":{sku},\"psus\":{psus},\"cooling\":{cooling},\"labels\":{labels},\"impaired\":{impaired}}}"
        )
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
    let core_links = list(0..spec.pods.len() as u32, |pod| {
        list(0..spines.peers, |spine| {
            let free = hall.free_core_links(PodId(pod), spine);
            list(0..cores.peers, |core| cores.count(free, core).to_string())
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
