//! Dumps as site files: the file describes the dumped fabric.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rackwright_import::{DumpOptions, Imported, Options, SkuFile, from_dump};
use rackwright_infiniband::dump::{Limits, read};
use rackwright_infiniband::{Dump, Fabric, FatTree, Guid, Plan, PlannedCable, PlannedDevice, Role, check};
use rackwright_placement::{ClusterId, CustomerId, Request, SkuId};
use rackwright_planner::cabling::plan;
use rackwright_planner::hall::{hall, irregularities};
use rackwright_planner::planner::Planner;
use rackwright_site::model::{Site, Speed, SwitchRole};

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
fn finding_texts(imported: &Imported) -> Vec<String> {
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
        assert_eq!(finding_texts(&imported), Vec::<String>::new(), "{tree:?}");
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
        let spec = hall(&site);
        assert_eq!(spec.nodes.len(), tree.hosts as usize);
    }
}

/// The import of a hall of 100,000 nodes fits into a site file with much room: the text grows by its items, and 32 nodes
/// have an item for each rail. The largest fabric of this test has the 256 leaves of 1,024 nodes.
#[test]
fn an_import_of_a_hundred_thousand_nodes_is_far_below_the_limit() {
    let skus = sku_file(8);
    let size = |hosts: u32| {
        let imported = import(&dumped(&FatTree::rail_optimised(hosts)).1, Some(&skus));
        assert_eq!(imported.site.map(|site| site.nodes.len()), Some(hosts as usize));
        imported.text.len()
    };
    let (some, many) = (size(512), size(1024));
    let each = (many - some).div_ceil(512);
    let most = many + each * 100_000;
    println!("512 nodes: {some} bytes, 1,024 nodes: {many} bytes, 100,000 nodes: about {most} bytes");
    assert!(
        most < rackwright_site::file::MAX_TOTAL_BYTES / 4,
        "{each} bytes for each further node"
    );
}

#[test]
fn what_a_dump_does_not_say_is_told_where_it_is_to_be_filled_in() {
    let (_, dump) = dumped(&FatTree::rail_optimised(2));
    let imported = import(&dump, None);
    assert!(imported.site.is_none());
    let line = imported.text.lines().position(|line| line == "- name: hcas-8").unwrap() + 1;
    let texts = finding_texts(&imported);
    let wanted: Vec<String> = ["height_units", "power", "psus"]
        .iter()
        .map(|field| format!("site.yaml:{line}:3: error: skus[0].{field}: a dump has no `{field}` of nodes"))
        .collect();
    assert_eq!(texts, wanted);
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

const PATHS: [&str; 8] = [
    "ibp24s0", "ibp64s0", "ibp79s0", "ibp94s0", "ibp154s0", "ibp192s0", "ibp206s0", "ibp220s0",
];

/// The dump of a fabric where the adapter of rail r has name r, without the devices that are gone.
fn renamed(tree: &FatTree, names: &[&str], gone: impl Fn(&str) -> bool, more: &[(&str, &str, u8)]) -> Dump {
    let (mut devices, mut cables) = tree.plan().unwrap();
    let at = |devices: &[PlannedDevice], name: &str| devices.iter().position(|device| device.name == name).unwrap();
    for (name, leaf, port) in more {
        let a = (at(&devices, leaf), *port);
        devices.push(PlannedDevice {
            rail: None,
            guid: Guid::new(0x7000 + devices.len() as u64),
            ..PlannedDevice::adapter(*name, 0, 0)
        });
        cables.push(PlannedCable {
            a,
            b: (devices.len() - 1, 1),
            ..cables[0].clone()
        });
    }
    cables.retain(|cable| !gone(&devices[cable.a.0].name) && !gone(&devices[cable.b.0].name));
    for device in &mut devices {
        if let (Some(rail), Some((machine, _))) = (device.rail, device.name.split_once(' ')) {
            device.name = format!("{machine} {}", names[usize::from(rail)]);
        }
    }
    let text = Dump::of(Plan::new(&devices, &cables).unwrap().fabric().clone()).write();
    // A dump has no devices without a link.
    let blocks: Vec<&str> = text
        .split("\n\n")
        .filter(|block| block.contains("\n[") || !block.contains("guid="))
        .collect();
    read(blocks.join("\n\n").as_bytes(), Limits::default()).unwrap()
}

/// The site of a file in which only the SKUs of the dump lack values.
fn with_whole_skus(text: &str) -> Site {
    let whole = "  power: {max_watts: 500}\n  psus: {count: 2, watts: 500, needed: 1}\n  height_units: 1\n";
    let lines = text.lines().map(|line| {
        let more = if line.starts_with("- name: hcas-") { whole } else { "" };
        format!("{line}\n{more}")
    });
    read_site(&lines.collect::<String>())
}

/// Checks the leaf of a unit and a rail.
fn is_leaf_of_rail(site: &Site, unit: u16, rail: u8) {
    let name = format!("leaf-su{unit:02}-r{rail}");
    let id = site.switch_named(&name).unwrap_or_else(|| panic!("there is no {name}"));
    let leaf = site.switch(id);
    assert_eq!(
        (leaf.role, leaf.ports, leaf.speed, leaf.rail, leaf.scalable_unit),
        (SwitchRole::Leaf, 64, Speed::Ndr, Some(rail), Some(unit)),
        "{name}"
    );
}

#[test]
fn names_of_udev_become_one_sku_with_the_rails_in_order() {
    let tree = FatTree::rail_optimised(3);
    let imported = import(&renamed(&tree, &PATHS, |_| false, &[]), None);
    let text = &imported.text;
    let wanted = format!(
        "# ASSUMED hcas: the rails are in the order of the places in the adapters' names\n- name: hcas-8\n  hcas: [{}]\n",
        PATHS.join(", ")
    );
    assert!(text.contains(&wanted), "{text}");
    assert_eq!(text.matches("- name: hcas-").count(), 1);
    let leaves =
        "- name: leaf-su01-r[0-7]\n  role: leaf\n  ports: 64\n  speed: NDR\n  rail: [0, 1, 2, 3, 4, 5, 6, 7]\n";
    assert!(text.contains(leaves), "{text}");
    let site = with_whole_skus(text);
    for rail in 0..8 {
        is_leaf_of_rail(&site, 1, rail);
    }
}

#[test]
fn adapters_with_other_names_are_taken_for_the_hcas_of_the_given_sku_by_rail() {
    let tree = FatTree::rail_optimised(3);
    let dump = renamed(&tree, &PATHS, |_| false, &[]);
    let skus = sku_file(8);
    let options = |sku| DumpOptions {
        options: Options {
            site: "lab",
            output: "site.yaml",
            skus: Some(&skus),
        },
        dump: "dump",
        room: "room",
        rack: "rack",
        sku,
    };
    let imported = from_dump(&dump, &options(Some("gpu")));
    let texts = finding_texts(&imported);
    assert_eq!(texts.len(), 1, "{texts:#?}");
    assert!(
        texts[0].contains("ibp220s0 are taken for the HCAs of the SKU"),
        "{texts:#?}"
    );
    let site = imported.site.unwrap();
    same(&site, &dump.fabric);
    let leaf = site.switch(site.switch_named("leaf-su01-r5").unwrap());
    assert_eq!(leaf.rail, Some(5));
    // Without the option no SKU is assumed.
    assert!(from_dump(&dump, &options(None)).text.contains("sku: hcas-8\n"));
}

#[test]
fn a_node_without_one_adapter_is_of_the_sku_of_its_kind_and_marked() {
    let tree = FatTree::rail_optimised(3);
    let gone = |name: &str| name == "gpu0002 mlx5_3";
    let dump = renamed(&tree, &PATHS, gone, &[]);
    let imported = import(&dump, None);
    let wanted =
        "# ASSUMED sku: 7 of the 8 HCAs of its kind are in the dump, ibp94s0 not\n- name: gpu0002\n  sku: hcas-8\n";
    assert!(imported.text.contains(wanted), "{}", imported.text);
    let skus = sku_file(8);
    let names: Vec<String> = (0..8).map(|hca| format!("mlx5_{hca}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let imported = import(&renamed(&tree, &names, gone, &[]), Some(&skus));
    let texts = finding_texts(&imported);
    assert_eq!(texts.len(), 1, "{texts:#?}");
    assert!(
        texts[0].contains("7 of the 8 HCAs of gpu are in the dump, mlx5_3 not"),
        "{texts:#?}"
    );
    let site = imported.site.unwrap();
    let leaf = |rail: u8| {
        site.switch(site.switch_named(&format!("leaf-su01-r{rail}")).unwrap())
            .rail
    };
    assert_eq!(
        (0..8).map(leaf).collect::<Vec<_>>(),
        (0..8).map(Some).collect::<Vec<_>>()
    );
}

#[test]
fn a_leaf_that_is_off_does_not_change_the_rails_of_others() {
    let tree = FatTree::rail_optimised(40);
    for names in [
        PATHS,
        [
            "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7",
        ],
    ] {
        let imported = import(&renamed(&tree, &names, |name| name == "leaf-su02-r2", &[]), None);
        let text = &imported.text;
        assert_eq!(text.matches("- name: hcas-").count(), 1, "{text}");
        let site = with_whole_skus(text);
        assert_eq!(site.switch_named("leaf-su02-r2"), None);
        let on = (0..8).flat_map(|rail| [(1, rail), (2, rail)]);
        for (unit, rail) in on.filter(|leaf| *leaf != (2, 2)) {
            is_leaf_of_rail(&site, unit, rail);
        }
    }
}

#[test]
fn hosts_of_subnet_managers_and_unknown_hosts_are_no_nodes_of_the_sku() {
    let tree = FatTree::rail_optimised(3);
    let more = [
        ("ufm mlx5_0", "leaf-su01-r5", 20),
        ("store mlx5_0", "leaf-su01-r2", 21),
        ("store mlx5_1", "leaf-su01-r3", 21),
        ("MT4129 ConnectX7 Mellanox Technologies", "leaf-su01-r6", 22),
    ];
    let names: Vec<String> = (0..8).map(|hca| format!("mlx5_{hca}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let skus = sku_file(8);
    let dump = renamed(&tree, &names, |_| false, &more);
    let given = DumpOptions {
        options: Options {
            site: "lab",
            output: "site.yaml",
            skus: Some(&skus),
        },
        dump: "dump",
        room: "room",
        rack: "rack",
        sku: Some("gpu"),
    };
    for imported in [import(&dump, Some(&skus)), from_dump(&dump, &given)] {
        let text = &imported.text;
        let site = with_whole_skus(text);
        let of_sku = |name: &str| -> Vec<String> {
            let nodes = site.nodes.iter().filter(|node| *site.sku(node.sku).name == *name);
            nodes.map(|node| node.name.to_string()).collect()
        };
        assert_eq!(of_sku("gpu"), ["gpu0001", "gpu0002", "gpu0003"]);
        assert_eq!(of_sku("hcas-1-2"), ["ufm"]);
        assert_eq!(of_sku("hcas-2"), ["store"]);
        assert!(
            text.contains("# ASSUMED name: its adapter has the description \"MT4129"),
            "{text}"
        );
        for rail in 0..8 {
            is_leaf_of_rail(&site, 1, rail);
        }
    }
    let text = from_dump(&dump, &given).text;
    assert_eq!(
        text.matches("# ASSUMED sku: it has not most of the HCAs of gpu")
            .count(),
        3,
        "{text}"
    );
}

fn read_site(text: &str) -> Site {
    let source = rackwright_site::file::Source {
        name: "site.yaml",
        text,
    };
    let checked = rackwright_site::file::check(&[source]);
    checked.site.unwrap_or_else(|| panic!("{:#?}", checked.findings.list))
}

/// The same site with a power shelf for each node.
fn powered(text: &str) -> Site {
    let lines = text.lines().map(|line| {
        if line.starts_with("  sku: ") {
            format!("{line}\n  psus: [\"shelf-{{name}}/1\", ~]\n")
        } else {
            format!("{line}\n")
        }
    });
    let mut powered: String = lines.collect();
    powered.push_str(
        "---\noutlet_layouts:\n- {name: one, outlets: [{name: 1}]}\n\
         power:\n- {name: utility, kind: utility, feed: A, watts: 1 MW}\n\
         - {name: circuit, kind: circuit, parent: utility, watts: 1 MW}\n",
    );
    for node in read_site(text).nodes {
        let name = node.name;
        powered.push_str(&format!(
            "- {{name: 'shelf-{name}', kind: power-shelf, parent: circuit, rack: rack, watts: 1 MW, outlets: one}}\n"
        ));
    }
    powered.push_str("customers:\n- {name: acme}\n");
    read_site(&powered)
}

/// Clusters get nodes in a fabric that is no even fat-tree, within one unit and over several.
fn takes_clusters(site: &Site) {
    let spec = hall(site);
    assert!(spec.nodes.iter().any(|node| node.unit.is_some()));
    let mut planner = Planner::new(site).unwrap();
    let mut placed = 0;
    for number in 0..12 {
        let sku = SkuId(number % u32::try_from(site.skus.len()).unwrap());
        let nodes = [4, 26, 1][number as usize % 3];
        let wish = Request::plain(ClusterId(u64::from(number)), CustomerId(0), sku, nodes);
        placed += u32::from(planner.place(wish).is_ok());
    }
    assert!(placed > 0, "{:#?}", irregularities(site));
}

#[test]
#[ignore = "needs a dump of a real fabric, in the folder RACKWRIGHT_FABRICS"]
fn a_real_fabric_comes_back_cable_by_cable() {
    let folder = std::env::var_os("RACKWRIGHT_FABRICS").expect("RACKWRIGHT_FABRICS: a folder with *.ibnetdiscover");
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
        let errors: Vec<String> = finding_texts(&imported)
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
        takes_clusters(&powered(&text));
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
