//! Dumps as site files: the file describes the dumped fabric.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rackwright_import::{DumpOptions, Imported, Options, SkuFile, from_dump};
use rackwright_infiniband::dump::{Limits, read};
use rackwright_infiniband::{Dump, Fabric, FatTree, Plan, Role, check};
use rackwright_planner::cabling::plan;
use rackwright_planner::hall::hall;
use rackwright_site::model::{Site, SwitchRole};

fn sku_file(hcas: usize) -> SkuFile {
    let names: Vec<String> = (0..hcas).map(|hca| format!("mlx5_{hca}")).collect();
    let text = format!(
        "skus:\n- name: gpu\n  power: {{max_watts: 10.2 kW}}\n  psus: {{count: 6, watts: 3300, needed: 4}}\n  \
         height_units: 8\n  hcas: [{}]\n",
        names.join(", ")
    );
    SkuFile::read("skus.yaml", &text).unwrap()
}

fn import(dump: &Dump, skus: Option<&SkuFile>) -> Imported {
    from_dump(
        dump,
        &DumpOptions {
            options: Options {
                site: "lab",
                output: "site.yaml",
                skus,
            },
            dump: "dump",
            room: "room",
            rack: "rack",
            sku: None,
        },
    )
}

/// Errors and warnings, without the three that every dump gives.
fn told(imported: &Imported) -> Vec<String> {
    let always = ["racks[0].name", "cables", "power"];
    let list = imported.findings.list.iter();
    list.filter(|finding| !always.contains(&&*finding.path))
        .map(ToString::to_string)
        .collect()
}

/// Every link between switches and adapters, as GUIDs and ports.
fn links(fabric: &Fabric) -> BTreeSet<[(u64, u8); 2]> {
    let ends = fabric.links().filter_map(|(_, link)| {
        let mut ends = [link.a, link.b].map(|end| {
            let device = fabric.device(end.device);
            let own = fabric.port(end).and_then(|port| port.guid);
            let guid = if device.is_switch() {
                device.guid
            } else {
                own.or(device.guid)
            };
            (guid.map_or(0, |guid| guid.get()), end.port)
        });
        ends.sort_unstable();
        let kept = [link.a, link.b].iter().all(|end| {
            let device = fabric.device(end.device);
            device.is_switch() || device.is_adapter()
        });
        kept.then_some(ends)
    });
    ends.collect()
}

/// Checks that a site's plan and a fabric are the same, cable by cable.
fn same(site: &Site, fabric: &Fabric) {
    let plan = plan(site).unwrap();
    let report = check(&plan, fabric);
    let faults: Vec<&String> = report.faults.iter().map(|fault| &fault.text).take(5).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!(report.right, report.cables);
    assert_eq!(
        (report.matched.by_name, report.matched.by_place),
        (0, 0),
        "all have GUIDs"
    );
    assert_eq!(links(plan.fabric()), links(fabric));
}

fn trees() -> Vec<FatTree> {
    let small = FatTree {
        radix: 8,
        rails: 2,
        ..FatTree::rail_optimised(1)
    };
    vec![
        FatTree::rail_optimised(2),
        FatTree::rail_optimised(40),
        FatTree {
            hosts: 3,
            ..small.clone()
        },
        // Three levels.
        FatTree {
            hosts: 64,
            ..small.clone()
        },
        FatTree {
            hosts: 9,
            rail_optimised: false,
            ..small
        },
    ]
}

fn dumped(tree: &FatTree) -> (Plan, Dump) {
    let (devices, cables) = tree.plan().unwrap();
    let plan = Plan::new(&devices, &cables).unwrap();
    let text = Dump::of(plan.fabric().clone()).write();
    (plan, read(text.as_bytes(), Limits::default()).unwrap())
}

#[test]
fn a_generated_fabric_comes_back_cable_by_cable() {
    for tree in trees() {
        let (planned, dump) = dumped(&tree);
        assert_eq!(dump.findings, []);
        let skus = sku_file(usize::from(tree.rails));
        let imported = import(&dump, Some(&skus));
        assert_eq!(told(&imported), Vec::<String>::new(), "{tree:?}");
        assert_eq!((imported.findings.errors, imported.findings.warnings), (0, 3));
        let site = imported.site.unwrap();
        same(&site, planned.fabric());
        same(&site, &dump.fabric);
        assert_eq!(site.nodes.len(), tree.hosts as usize);
        for (_, device) in planned.fabric().devices().filter(|(_, device)| device.is_switch()) {
            let switch = site.switch(site.switch_named(&device.name).unwrap());
            let role = match device.role {
                Role::Leaf => SwitchRole::Leaf,
                Role::Spine => SwitchRole::Spine,
                Role::Core => SwitchRole::Core,
                Role::Unknown => panic!("the tree has no other roles"),
            };
            assert_eq!(
                (switch.role, switch.rail),
                (role, device.rail),
                "{} of {tree:?}",
                device.name
            );
        }
    }
}

#[test]
fn placement_can_work_with_what_was_imported() {
    for tree in trees().into_iter().take(4) {
        let skus = sku_file(usize::from(tree.rails));
        let site = import(&dumped(&tree).1, Some(&skus)).site.unwrap();
        let spec = hall(&site).unwrap_or_else(|unfit| panic!("{tree:?}: {unfit}"));
        assert_eq!(spec.nodes.len(), tree.hosts as usize);
    }
}

#[test]
fn what_a_dump_does_not_say_is_told_where_it_is_to_be_filled_in() {
    let (_, dump) = dumped(&FatTree::rail_optimised(2));
    let imported = import(&dump, None);
    assert!(imported.site.is_none());
    let line = imported.text.lines().position(|line| line == "- name: hcas-8").unwrap() + 1;
    let told = told(&imported);
    let wanted: Vec<String> = ["height_units", "power", "psus"]
        .iter()
        .map(|field| format!("site.yaml:{line}:3: error: skus[0].{field}: a dump has no `{field}` of nodes"))
        .collect();
    assert_eq!(told, wanted);
    let above: Vec<&str> = imported.text.lines().skip(line - 4).take(3).collect();
    assert!(above.iter().all(|line| line.starts_with("# MISSING ")), "{above:?}");
}

#[test]
fn the_same_dump_gives_the_same_file_whatever_the_order_of_its_blocks() {
    let (_, dump) = dumped(&FatTree::rail_optimised(3));
    let text = dump.write();
    let mut blocks: Vec<&str> = text.split("\n\n").collect();
    let skus = sku_file(8);
    let first = import(&dump, Some(&skus)).text;
    blocks.reverse();
    let turned = read(format!("\n{}\n", blocks.join("\n\n")).as_bytes(), Limits::default()).unwrap();
    assert_eq!(turned.findings, []);
    assert_eq!(import(&turned, Some(&skus)).text, first);
}

const ODD: &str = r#"switchguid=0xb0(b0)
Switch	65 "S-00000000000000b0"		# "MF0;leaf 1:MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]	"H-00000000000000c0"[1](c1) 		# "gpu 1 mlx5_0" lid 5 4xNDR
[2]	"H-00000000000000c0"[2](c2) 		# "gpu 1 mlx5_0" lid 6 4xNDR
[3]	"H-00000000000000d0"[1](d0) 		# "localhost mlx5_0" lid 7 4xNDR
[65]	"H-00000000000000b8"[1](b8) 		# "Mellanox Technologies Aggregation Node" lid 4 4xHDR

caguid=0xc0
Ca	2 "H-00000000000000c0"		# "gpu 1 mlx5_0"
[1](c1) 	"S-00000000000000b0"[1]		# lid 5 lmc 0 "MF0;leaf 1:MQM9700/U1" lid 3 4xNDR
[2](c2) 	"S-00000000000000b0"[2]		# lid 6 lmc 0 "MF0;leaf 1:MQM9700/U1" lid 3 4xNDR

caguid=0xd0
Ca	1 "H-00000000000000d0"		# "localhost mlx5_0"
[1](d0) 	"S-00000000000000b0"[3]		# lid 7 lmc 0 "MF0;leaf 1:MQM9700/U1" lid 3 4xNDR

vendid=0x2c9
devid=0xcf00
sysimgguid=0xb0
caguid=0xb8
Ca	1 "H-00000000000000b8"		# "Mellanox Technologies Aggregation Node"
[1](b8) 	"S-00000000000000b0"[65]		# lid 4 lmc 0 "MF0;leaf 1:MQM9700/U1" lid 3 4xHDR

switchguid=0xe0(e0)
Switch	36 "S-00000000000000e0"		# "Quantum Mellanox Technologies" enhanced port 0 lid 9 lmc 0
"#;

#[test]
fn odd_names_second_ports_and_lonely_switches_are_told() {
    let dump = read(ODD.as_bytes(), Limits::default()).unwrap();
    let imported = import(&dump, None);
    let text = &imported.text;
    for part in [
        "# has the description \"MF0;leaf 1:MQM9700/U1\"\n- name: leaf-1\n  role: leaf\n  ports: 64\n",
        "- name: gpu-1\n",
        "    mlx5_0: 0x00000000000000c1\n    mlx5_0:2: 0x00000000000000c2\n",
        "- name: node-00000000000000d0\n",
        "  a: gpu-1/mlx5_0:2\n  b: leaf-1/2\n",
        "- name: switch-00000000000000e0\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    let paths: BTreeMap<&str, usize> = imported
        .findings
        .list
        .iter()
        .fold(BTreeMap::new(), |mut paths, finding| {
            *paths.entry(&*finding.path).or_default() += 1;
            paths
        });
    for (path, count) in [
        ("switches[1].role", 1),
        ("switches[1].speed", 1),
        ("nodes[1].name", 1),
        ("links", 1),
    ] {
        assert_eq!(paths.get(path), Some(&count), "{path} in {paths:?}");
    }
}

#[test]
fn a_real_fabric_comes_back_cable_by_cable() {
    let Some(folder) = std::env::var_os("RACKWRIGHT_FABRICS") else {
        eprintln!("not run: set RACKWRIGHT_FABRICS to a folder with *.ibnetdiscover");
        return;
    };
    let mut dumps = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ibnetdiscover") {
            continue;
        }
        dumps += 1;
        let dump = read(&std::fs::read(&path).unwrap(), Limits::default()).unwrap();
        // Without SKUs, only the SKUs are missing. With them filled in, the file is complete.
        let imported = import(&dump, None);
        let errors: Vec<String> = told(&imported)
            .into_iter()
            .filter(|line| line.contains(": error:"))
            .collect();
        assert!(errors.iter().all(|error| error.contains("skus[")), "{errors:#?}");
        let filled =
            "  power: {max_watts: 500}\n  psus: {count: 2, watts: 500, needed: 1}\n  height_units: 1\n  hcas: [";
        let text = imported.text.replace("  hcas: [", filled);
        let source = rackwright_site::file::Source {
            name: "site.yaml",
            text: &text,
        };
        let checked = rackwright_site::file::check(&[source]);
        assert_eq!(checked.findings.errors, 0, "{:#?}", checked.findings.list);
        let site = checked.site.unwrap();
        let plan = plan(&site).unwrap();
        assert_eq!(links(plan.fabric()), links(&dump.fabric), "{}", path.display());
        let counts = dump.fabric.counts();
        assert_eq!(site.switches.len(), counts.switches);
    }
    assert!(dumps > 0, "no *.ibnetdiscover in RACKWRIGHT_FABRICS");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any damaged dump, the import itself reports every fault of the file.
    #[test]
    fn a_damaged_dump_makes_a_file_in_which_only_what_is_unknown_is_missing(
        edits in proptest::collection::vec((0usize..3000, any::<u8>(), 0u8..3), 0..12)
    ) {
        let mut bytes = ODD.as_bytes().to_vec();
        for (at, byte, how) in edits {
            let at = at % bytes.len().max(1);
            match how {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => bytes.insert(at, byte),
            }
        }
        if let Ok(dump) = read(&bytes, Limits::default()) {
            let imported = import(&dump, None);
            for finding in &imported.findings.list {
                if finding.severity == rackwright_site::finding::Severity::Error {
                    let gap = finding.path.ends_with(".role") || finding.path.starts_with("skus[")
                        || finding.what.contains("GUID") || finding.what.contains("cable");
                    prop_assert!(gap, "{finding}\n{}", imported.text);
                }
            }
        }
    }
}
