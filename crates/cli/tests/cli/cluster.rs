//! `rackwright cluster plan`: from files, without a server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::golden::Script;
use crate::program::Program;

const CUSTOMERS: &str = "\
customers:
- {name: acme, redundancy: feed-loss, dedicated_circuits: true}
- {name: zeta}
";

const CLUSTERS: &str = "\
clusters:
- {name: alpha, customer: acme, sku: dgx-h100, nodes: 30, spares: 1}
- {name: beta, customer: zeta, sku: dgx-h100, nodes: 20, bandwidth: best-effort}
- {name: gamma, customer: zeta, sku: dgx-h100, nodes: 40}
";

fn items(list: &Value) -> &[Value] {
    list.as_array().unwrap()
}

/// The texts of a list.
fn texts(list: &Value) -> Vec<&str> {
    items(list).iter().map(|item| item.as_str().unwrap()).collect()
}

/// Writes a site of two units.
const GENERATE: [&str; 8] = [
    "site",
    "generate",
    "--sku",
    "dgx-h100",
    "--nodes",
    "64",
    "--file",
    "site.yaml",
];

#[test]
fn a_plan_for_programs_has_units_and_links() {
    let program = Program::new();
    assert_eq!(program.run(&GENERATE).code, 0);
    program.file("customers.yaml", CUSTOMERS);
    program.file(
        "clusters.yaml",
        "clusters:\n- {name: wide, customer: zeta, sku: dgx-h100, nodes: 40, spares: 1}\n\
         - {name: small, customer: zeta, sku: dgx-h100, nodes: 2}\n",
    );
    let plan = ["cluster", "plan", "-f", "clusters.yaml", "-o", "json"];
    let sites = ["--site", "site.yaml", "--site", "customers.yaml"];
    let planned = program.run(&[&plan[..], &sites].concat());
    assert_eq!(planned.code, 0, "{planned:?}");
    let plans: Value = serde_json::from_str(&planned.stdout).unwrap();
    let wide = &plans["clusters"][0];
    let units = wide["units"].as_array().unwrap();
    assert_eq!(units.len(), 2, "{wide}");
    let uplinks = wide["links"]["uplinks"].as_array().unwrap();
    assert_eq!(uplinks.len(), 2, "{wide}");
    let count = |field: &str| units.iter().map(|unit| texts(&unit[field]).len()).collect::<Vec<_>>();
    let (nodes, spares) = (count("nodes"), count("spares"));
    assert_eq!((nodes.iter().sum::<usize>(), spares.iter().sum::<usize>()), (40, 1));
    for (unit, uplink) in units.iter().zip(uplinks) {
        assert_eq!(texts(&unit["leaves"]).len(), 8, "{unit}");
        assert_eq!(unit["leaves"], uplink["leaves"]);
        // Non-blocking: as many links as nodes that talk to the other unit at once.
        let least = nodes.iter().min().unwrap();
        assert!(texts(&uplink["cables"]).len() >= *least, "{uplink}");
    }
    let nodes: Vec<&str> = units.iter().flat_map(|unit| texts(&unit["nodes"])).collect();
    assert_eq!(nodes, texts(&wide["nodes"]));
    assert_eq!(wide["links"]["cores"], serde_json::json!([]), "there is one pod");
    let small = &plans["clusters"][1];
    assert_eq!(texts(&small["units"][0]["nodes"]), texts(&small["nodes"]));
    assert_eq!(small["links"]["uplinks"], serde_json::json!([]), "{small}");
}

/// 300 nodes are in three pods, of which the largest have 128.
#[test]
fn a_plan_over_pods_has_the_links_between_spines_and_cores() {
    let program = Program::new();
    let generate = [
        "site",
        "generate",
        "--sku",
        "dgx-h100",
        "--nodes",
        "300",
        "--file",
        "site.yaml",
    ];
    assert_eq!(program.run(&generate).code, 0);
    program.file("customers.yaml", CUSTOMERS);
    let wide = "clusters:\n- {name: wide, customer: zeta, sku: dgx-h100, nodes: 150}\n";
    program.file("clusters.yaml", wide);
    let plan = ["cluster", "plan", "-f", "clusters.yaml", "-o", "json"];
    let sites = ["--site", "site.yaml", "--site", "customers.yaml"];
    let planned = program.run(&[&plan[..], &sites].concat());
    assert_eq!(planned.code, 0, "{planned:?}");
    let plans: Value = serde_json::from_str(&planned.stdout).unwrap();
    let wide = &plans["clusters"][0];
    // Units of one pod have uplinks to the same spines.
    let (mut nodes_of_pod, mut links_of_pod) = (BTreeMap::new(), BTreeMap::new());
    let spine_of = |cable: &str| cable.split('#').next().unwrap().to_owned();
    let mut pod_of_spine = BTreeMap::new();
    for (unit, uplink) in items(&wide["units"]).iter().zip(items(&wide["links"]["uplinks"])) {
        assert_eq!(unit["leaves"], uplink["leaves"]);
        let spines: BTreeSet<String> = texts(&uplink["cables"]).into_iter().map(spine_of).collect();
        let pod = spines.iter().find_map(|spine| pod_of_spine.get(spine).cloned());
        let pod: String = pod.unwrap_or_else(|| spines.first().unwrap().clone());
        *nodes_of_pod.entry(pod.clone()).or_insert(0) += texts(&unit["nodes"]).len();
        pod_of_spine.extend(spines.into_iter().map(|spine| (spine, pod.clone())));
    }
    assert_eq!(
        (nodes_of_pod.len(), nodes_of_pod.values().sum::<usize>()),
        (2, 150),
        "{wide}"
    );
    for share in items(&wide["links"]["cores"]) {
        let pod = &pod_of_spine[share["spine"].as_str().unwrap()];
        let cables = texts(&share["cables"]);
        assert!(
            !cables.is_empty() && cables.iter().all(|cable| cable.starts_with("core-")),
            "{share}"
        );
        *links_of_pod.entry(pod.clone()).or_insert(0) += cables.len();
    }
    // Non-blocking: as many links of a rail as nodes that talk to the other pod at once.
    let least = nodes_of_pod.values().min().unwrap();
    assert!(
        links_of_pod.len() == 2 && links_of_pod.values().all(|links| links >= least),
        "{links_of_pod:?}"
    );
}

#[test]
fn clusters_are_placed_one_after_another_and_a_refusal_names_a_size_that_fits() {
    let program = Program::new();
    let mut script = Script::default();
    script.run(&program, &GENERATE);
    program.file("customers.yaml", CUSTOMERS);
    program.file("clusters.yaml", CLUSTERS);
    program.file(
        "wrong.yaml",
        "clusters:\n- {name: a, customer: acmee, sku: dgx, nodes: 0, bandwidth: fast}\n\
         - {name: a, customer: zeta, sku: dgx-h100, nodes: 1}\n\
         - {name: a/b, customer: zeta, sku: dgx-h100, nodes: 1, lease_end: yesterday}\n",
    );
    program.file("unknown.yaml", "clusters:\n- {name: a, customr: acme}\n");
    let plan = |file| {
        [
            "cluster",
            "plan",
            "-f",
            file,
            "--site",
            "site.yaml",
            "--site",
            "customers.yaml",
        ]
    };
    script.run(&program, &plan("clusters.yaml"));
    script.run(&program, &plan("wrong.yaml"));
    script.run(&program, &plan("unknown.yaml"));
    script.run(
        &program,
        &["cluster", "plan", "-f", "clusters.yaml", "--site", "site.yaml"],
    );
    script.check("cluster_plan", &program);
}
