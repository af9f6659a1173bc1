//! `rackwright cluster plan`: from files, without a server.

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

#[test]
fn clusters_are_placed_one_after_another_and_a_refusal_says_what_fits() {
    let program = Program::new();
    let mut script = Script::default();
    script.run(
        &program,
        &[
            "site",
            "generate",
            "--sku",
            "dgx-h100",
            "--nodes",
            "64",
            "--file",
            "site.yaml",
        ],
    );
    program.file("customers.yaml", CUSTOMERS);
    program.file("clusters.yaml", CLUSTERS);
    program.file(
        "wrong.yaml",
        "clusters:\n- {name: a, customer: acmee, sku: dgx, nodes: 0, bandwidth: fast}\n- {name: a, customer: zeta, sku: dgx-h100, nodes: 1}\n",
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
