//! Measures the import of the dump of a large fabric, and the plan of a cluster in a site file in which each cable is an item
//! of its own: 100,000 nodes make a file of more than 64 MiB.

use std::fmt::Write as _;

use rackwright_infiniband::{Dump, FatTree, Plan};
use rackwright_site::file::{Source, check};
use rackwright_site::model::{Port, Site};

use crate::Options;
use crate::command::{Folder, Runs};
use crate::plan::{clusters, site_text};

/// Imports a dump and prints the results. False: the import is refused or incomplete.
pub fn run(options: Options) -> bool {
    crate::told(import(options.nodes.unwrap_or(100_000)))
}

/// Plans in a file of single items and prints the results. False: the file is refused, or the plan differs from the one in
/// the compact file of the same site.
pub fn run_single(options: Options) -> bool {
    crate::told(single(options.nodes.unwrap_or(100_000)))
}

/// The fabric of these nodes with as many rails as fit into three levels of the largest switches.
fn tree(nodes: u32) -> Result<(FatTree, Plan), String> {
    let of_rails = |rails| FatTree {
        rails,
        radix: 128,
        ..FatTree::rail_optimised(nodes)
    };
    let mut refused = String::new();
    for tree in [8, 4, 2, 1].map(of_rails) {
        match tree.plan() {
            Ok((devices, cables)) => {
                let plan = Plan::new(&devices, &cables).map_err(|faults| format!("{faults:?}"))?;
                return Ok((tree, plan));
            }
            Err(error) => refused = error.to_string(),
        }
    }
    Err(refused)
}

fn import(nodes: u32) -> Result<bool, String> {
    let folder = Folder::new("import")?;
    let (tree, plan) = tree(nodes)?;
    let counts = plan.fabric().counts();
    let dump = Dump::of(plan.fabric().clone()).write();
    drop(plan);
    let (dump_kib, dump) = (dump.len() >> 10, folder.write("fabric.ibnetdiscover", &dump)?);
    let names: Vec<String> = (0..tree.rails).map(|hca| format!("mlx5_{hca}")).collect();
    let skus = format!(
        "skus:\n- name: gpu\n  power: {{max_watts: 10.2 kW}}\n  psus: {{count: 6, watts: 3300, needed: 4}}\n  \
         height_units: 8\n  hcas: [{}]\n",
        names.join(", ")
    );
    let (skus, site) = (folder.write("skus.yaml", &skus)?, folder.path("site.yaml"));
    let args = [
        "site",
        "import",
        "fabric",
        &dump,
        "--sku-file",
        &skus,
        "-f",
        &site,
        "-o",
        "json",
    ];
    let runs = Runs::of(&args, 1)?;
    let text = std::fs::read_to_string(&site).map_err(|error| format!("{site}: {error}"))?;
    let name = "site.yaml";
    let site = check(&[Source { name, text: &text }]).site;
    let found = site.ok_or("the imported site has errors")?;
    println!(
        "{{\"bench\":\"import\",\"nodes\":{},\"rails\":{},\"switches\":{},\"cables\":{},\"dump_kib\":{dump_kib},\
         \"file_kib\":{},\"command_ms\":{:.0},\"command_peak_mib\":{}}}",
        found.nodes.len(),
        tree.rails,
        found.switches.len(),
        found.cables.len(),
        text.len() >> 10,
        runs.best_ms,
        runs.peak_json()
    );
    let wanted = (nodes as usize, counts.switches, counts.links);
    Ok((found.nodes.len(), found.switches.len(), found.cables.len()) == wanted)
}

fn single(nodes: u32) -> Result<bool, String> {
    let folder = Folder::new("single")?;
    let compact = site_text(nodes)?;
    let name = "site.yaml";
    let site = check(&[Source { name, text: &compact }]).site;
    let text = with_single_cables(&compact, &site.ok_or("the generated site has errors")?)?;
    let clusters = folder.write("clusters.yaml", &clusters(nodes))?;
    let plan = |file: &str, text: &str| {
        let site = folder.write(file, text)?;
        Runs::of(&["cluster", "plan", "-f", &clusters, "--site", &site, "-o", "json"], 1)
    };
    let (of_compact, of_single) = (plan("compact.yaml", &compact)?, plan("single.yaml", &text)?);
    let is_same = of_compact.output == of_single.output;
    println!(
        "{{\"bench\":\"single\",\"nodes\":{nodes},\"file_kib\":{},\"compact_file_kib\":{},\"command_ms\":{:.0},\
         \"command_peak_mib\":{},\"is_same_plan\":{is_same}}}",
        text.len() >> 10,
        compact.len() >> 10,
        of_single.best_ms,
        of_single.peak_json()
    );
    Ok(is_same)
}

/// A site file with each cable as an item of its own.
fn with_single_cables(compact: &str, site: &Site) -> Result<String, String> {
    let section = compact.split_once("\ncables:\n");
    let (before, cables) = section.ok_or("the generated site has no cables")?;
    let is_item = |line: &&str| line.starts_with("- ") || line.starts_with(' ');
    let mut text = format!("{before}\ncables:\n");
    let end = |port: Port| match port {
        Port::Hca { node, hca } => {
            format!(
                "{}/{}",
                site.node(node).name,
                site.sku_of(node).hcas[usize::from(hca)].name
            )
        }
        Port::Switch { switch, port } => format!("{}/{port}", site.switch(switch).name),
    };
    for cable in &site.cables {
        let (a, b) = (end(cable.a), end(cable.b));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {{label: '{}', a: '{a}', b: '{b}'}}", cable.label);
    }
    for line in cables.lines().skip_while(is_item) {
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}
