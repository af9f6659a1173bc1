//! `rackwright site` and `rackwright power`: from files, without a server.

use crate::golden::Script;
use crate::program::Program;

const GOOD: &str = "\
site: {name: lab}
rooms:
- name: hall
racks:
- name: r[1-2]
  room: hall
  air_heat_limit_watts: 20 kW
outlet_layouts:
- name: c19
  outlets:
  - {name: '[1-4]', phase: [L1, L2, L3, L1], amps: 16}
power:
- {name: utility-a, kind: utility, feed: A, watts: 60 kW}
- {name: utility-b, kind: utility, feed: B, watts: 60 kW, measured_watts: 12.5 kW}
- name: circuit-a-r[1-2]
  kind: circuit
  parent: utility-a
  volts: 415
  amps: 32
  phases: 3
- name: circuit-b-r[1-2]
  kind: circuit
  parent: utility-b
  volts: 415
  amps: 32
  phases: 3
- name: pdu-[a,b]-r[1-2]
  kind: rack-pdu
  parent: circuit-[a,b]-r[1-2]
  rack: r[1-2]
  volts: 415
  amps: 32
  phases: 3
  outlets: c19
cooling_units:
- {name: crah, kind: crah, room: hall, watts: 60 kW}
skus:
- name: dgx-h100
  power: {max_watts: 10.2 kW}
  psus: {count: 4, watts: 3300, needed: 3}
  height_units: 8
  hcas: [mlx5_0, mlx5_3]
nodes:
- name: gpu-[1-2]
  sku: dgx-h100
  rack: r[1-2]
  unit: 3
  psus:
  - pdu-a-{rack}/1
  - pdu-a-{rack}/2
  - pdu-b-{rack}/1
  - pdu-b-{rack}/2
switches:
- {name: leaf-[0-1], role: leaf, ports: 64, rail: 0}
cables:
- {label: 'c[1-2]', a: 'gpu-[1-2]/mlx5_0', b: 'leaf-0/[1-2]'}
customers:
- {name: acme, redundancy: feed-loss, dedicated_circuits: true}
";

#[test]
fn a_good_site_is_summed_up_and_faults_are_printed_like_a_compilers() {
    let program = Program::new();
    // A flow mapping would parse the bracket as a list.
    let good = GOOD.replace(
        "{name: leaf-[0-1], role: leaf, ports: 64, rail: 0}",
        "{name: 'leaf-[0-1]', role: leaf, ports: 64, rail: [0, 1]}",
    );
    program.file("good.yaml", &good);
    program.file("split/a.yaml", good.split("skus:").next().unwrap());
    program.file("split/b.yml", format!("skus:{}", good.split("skus:").nth(1).unwrap()));
    let faulty = good
        .replace(
            "air_heat_limit_watts: 20 kW",
            "air_heat_limit_watts: 9 kW\n  weight_limit: 1 t",
        )
        .replace("parent: utility-b\n", "parent: utilty-b\n")
        .replace("  rack: r[1-2]\n  unit", "  rack: r[1-3]\n  unit")
        .replace("'leaf-0/[1-2]'", "'leaf-0/[64-65]'");
    program.file("faulty.yaml", &faulty);
    program.file("warm.yaml", good.replace("limit_watts: 20 kW", "limit_watts: 9 kW"));
    program.file("cut.yaml", good.replace("skus:", "skus: [[}"));
    program.file("empty.yaml", "# nothing\n");
    let mut script = Script::default();
    for path in [
        "good.yaml",
        "split",
        "faulty.yaml",
        "warm.yaml",
        "cut.yaml",
        "empty.yaml",
        "nowhere.yaml",
    ] {
        script.run(&program, &["site", "validate", path]);
    }
    script.run(&program, &["site", "validate", "warm.yaml", "-o", "json"]);
    script.check("site_validate", &program);
}

#[test]
fn a_file_that_is_not_utf_8_is_a_finding_with_its_place() {
    let program = Program::new();
    std::fs::write(program.home().join("latin.yaml"), b"site: {name: lab}\n# caf\xe9\n").unwrap();
    let validated = program.run(&["site", "validate", "latin.yaml", "-o", "json"]);
    assert_eq!(validated.code, 2, "{validated:?}");
    let shown: serde_json::Value = serde_json::from_str(&validated.stdout).unwrap();
    let finding = &shown["findings"][0];
    assert_eq!(finding["line"], 2, "{shown}");
    assert_eq!(finding["column"], 6, "{shown}");
    assert_eq!(finding["what"], "this is not UTF-8 text");
    assert_eq!(shown["errors"], 1, "{shown}");
    // Files that are sent are refused before a server is called.
    let planned = program.run(&["site", "plan", "latin.yaml"]);
    assert_eq!(planned.code, 2, "{planned:?}");
    assert!(
        planned.stderr.contains("latin.yaml:2:6: this is not UTF-8 text"),
        "{planned:?}"
    );
}

#[test]
fn a_generated_site_is_good_and_compared_with_another() {
    let program = Program::new();
    let mut script = Script::default();
    let small = ["site", "generate", "--sku", "gb200-nvl72", "--nodes", "2"];
    script.run(&program, &small);
    for (file, nodes) in [("128.yaml", "128"), ("129.yaml", "129")] {
        let arguments = [
            "site", "generate", "--sku", "dgx-h100", "--nodes", nodes, "--file", file, "--name", "lab",
        ];
        script.run(&program, &arguments);
        script.run(&program, &["site", "validate", file]);
    }
    script.run(&program, &["site", "diff", "128.yaml", "128.yaml"]);
    script.run(&program, &["site", "diff", "128.yaml", "129.yaml"]);
    let text = std::fs::read_to_string(program.home().join("128.yaml")).unwrap();
    program.file(
        "moved.yaml",
        text.replace("weight_limit_kg: 1500", "weight_limit_kg: 1600")
            .replace("name: lab", "name: lab-2"),
    );
    script.run(&program, &["site", "diff", "128.yaml", "moved.yaml"]);
    script.run(&program, &["site", "generate", "--sku", "dgx-h100", "--nodes", "0"]);
    script.check("site_generate", &program);
}

#[test]
fn the_power_path_of_a_node_is_explained() {
    let program = Program::new();
    program.file("site.yaml", GOOD.replace("{name: leaf-[0-1],", "{name: leaf-0,"));
    let mut script = Script::default();
    script.run(&program, &["power", "explain", "gpu-2", "--site", "site.yaml"]);
    script.run(&program, &["power", "explain", "nodes/gpu-3", "--site", "site.yaml"]);
    script.run(
        &program,
        &["power", "explain", "gpu-1", "--site", "site.yaml", "-o", "json"],
    );
    script.check("power_explain", &program);
}
