//! NetBox's exports as site files.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use rackwright_import::netbox::{NetboxOptions, Roles, Table, Tables, from_netbox};
use rackwright_import::{Imported, Options, SkuFile};
use rackwright_planner::cabling::plan;
use rackwright_planner::planner::Planner;
use rackwright_site::finding::Severity;
use rackwright_site::model::{DomainKind, NodeId, Redundancy, SwitchRole};
use rackwright_site::power::{capacity_watts, survival};

/// Two nodes in two racks with two rack PDUs each, two leaves and a spine, with the columns of NetBox's exports.
const EXPORTS: [(&str, &str); 11] = [
    ("sites.csv", include_str!("import_netbox/sites.csv")),
    ("locations.csv", include_str!("import_netbox/locations.csv")),
    ("racks.csv", include_str!("import_netbox/racks.csv")),
    ("device-types.csv", include_str!("import_netbox/device-types.csv")),
    ("devices.csv", include_str!("import_netbox/devices.csv")),
    ("power-panels.csv", include_str!("import_netbox/power-panels.csv")),
    ("power-feeds.csv", include_str!("import_netbox/power-feeds.csv")),
    ("power-ports.csv", include_str!("import_netbox/power-ports.csv")),
    ("power-outlets.csv", include_str!("import_netbox/power-outlets.csv")),
    ("interfaces.csv", include_str!("import_netbox/interfaces.csv")),
    ("cables.csv", include_str!("import_netbox/cables.csv")),
];
const SKUS: &str = include_str!("import_netbox/skus.yaml");

fn tables(change: impl Fn(&str, &str) -> String) -> Tables {
    let mut tables = Tables::default();
    for (file, text) in EXPORTS {
        let table = Table::of_file(file).unwrap();
        tables.add_csv(table, file, &change(file, text)).unwrap();
    }
    tables
}

fn unchanged(_: &str, text: &str) -> String {
    text.to_owned()
}

/// Imports with the roles, SKUs and sites of the exports.
fn import(tables: &Tables, skus: Option<&SkuFile>, feeds: &[(String, String)], panels: &[(&str, f64)]) -> Imported {
    let panels = panels
        .iter()
        .map(|(name, watts)| ((*name).to_owned(), *watts))
        .collect();
    from_netbox(
        tables,
        &NetboxOptions {
            options: Options {
                site: "lab",
                output: "site.yaml",
                skus,
            },
            sites: &["Ashburn 1".to_owned()],
            roles: &Roles::default(),
            skus: &BTreeMap::new(),
            feeds,
            panels: &panels,
        },
    )
}

fn skus() -> SkuFile {
    SkuFile::read("skus.yaml", SKUS).unwrap()
}

fn letters() -> Vec<(String, String)> {
    [("A", "Panel A"), ("B", "* B")]
        .map(|(letter, name)| (letter.to_owned(), name.to_owned()))
        .to_vec()
}

fn reported(imported: &Imported) -> Vec<String> {
    imported.findings.list.iter().map(ToString::to_string).collect()
}

#[test]
fn a_netbox_becomes_a_whole_site() {
    let imported = import(
        &tables(unchanged),
        Some(&skus()),
        &letters(),
        &[("Panel A", 60e3), ("Panel B", 60e3)],
    );
    let site = imported
        .site
        .clone()
        .unwrap_or_else(|| panic!("{:#?}\n{}", reported(&imported), imported.text));
    let names = |names: Vec<&str>| names.join(" ");
    assert_eq!(
        names(site.rooms.iter().map(|room| &*room.name).collect()),
        "Ashburn-1 Hall-1"
    );
    assert_eq!(names(site.racks.iter().map(|rack| &*rack.name).collect()), "R1 R2");
    assert_eq!((site.racks[0].units, site.racks[0].weight_limit_kg), (48, Some(1500.0)));
    assert_eq!(
        names(site.nodes.iter().map(|node| &*node.name).collect()),
        "gpu-2 gpu-10"
    );
    assert_eq!(
        names(site.switches.iter().map(|switch| &*switch.name).collect()),
        "leaf-1 leaf-2 spine-1"
    );
    let node = site.node(site.node_named("gpu-10").unwrap());
    assert_eq!((node.unit, node.bmc.as_deref()), (3, Some("https://10.0.0.10")));
    assert_eq!(node.port_guids.first().copied().flatten(), Some(0xa088_c203_0000_0102));
    let plugs: Vec<Option<String>> = node
        .psus
        .iter()
        .map(|plug| plug.map(|plug| site.plug_name(plug)))
        .collect();
    let plugs: Vec<&str> = plugs.iter().map(|plug| plug.as_deref().unwrap_or("~")).collect();
    assert_eq!(names(plugs), "pdu-R2-A/1 pdu-R2-A/2 pdu-R2-A/3 pdu-R2-B/1 pdu-R2-B/2 ~");
    let way: Vec<(DomainKind, &str)> = site
        .ancestors(site.domain_named("pdu-R2-B").unwrap())
        .map(|id| (site.domain(id).kind, &*site.domain(id).name))
        .collect();
    assert_eq!(
        way,
        [
            (DomainKind::RackPdu, "pdu-R2-B"),
            (DomainKind::Circuit, "B-R2"),
            (DomainKind::Panel, "Panel-B")
        ]
    );
    assert_eq!(
        capacity_watts(site.domain(site.domain_named("B-R2").unwrap())).round(),
        18_401.0
    );
    // Three PSUs of 3.3 kW on each feed do not suffice without the other feed.
    assert!(survival(&site, NodeId(0), 10_200.0, Redundancy::FeedLoss).is_err());
}

#[test]
fn the_fabric_of_a_netbox_is_cabled_as_there() {
    let site = import(&tables(unchanged), Some(&skus()), &letters(), &[]).site.unwrap();
    let roles: Vec<SwitchRole> = site.switches.iter().map(|switch| switch.role).collect();
    assert_eq!(roles, [SwitchRole::Leaf, SwitchRole::Leaf, SwitchRole::Spine]);
    let rails: Vec<Option<u8>> = site.switches.iter().map(|switch| switch.rail).collect();
    assert_eq!(rails, [Some(0), Some(1), None]);
    assert_eq!((site.switches[0].ports, site.cables.len()), (8, 8));
    let ends: Vec<String> = site
        .cables
        .iter()
        .map(|cable| {
            format!(
                "{} {} {}",
                cable.label,
                site.port_name(cable.a),
                site.port_name(cable.b)
            )
        })
        .collect();
    assert_eq!(ends[0], "IB-001 gpu-2/mlx5_0 leaf-1/1");
    assert!(ends.contains(&"cable-17 gpu-2/mlx5_3 leaf-2/1".to_owned()), "{ends:?}");
    assert!(ends.contains(&"UP-2-1 leaf-2/7 spine-1/3".to_owned()), "{ends:?}");
    assert!(plan(&site).is_ok() && Planner::new(&site).is_ok());
}

/// Every assumption and omission is reported.
#[test]
fn what_netbox_does_not_know_is_told() {
    let imported = import(&tables(unchanged), Some(&skus()), &[], &[]);
    assert!(imported.site.is_some());
    let reported = reported(&imported);
    for part in [
        "cables.csv:26:13: warning: b: storage-leaf 1 is not imported",
        "devices.csv:11:45:",
        "role: devices of role Management Switch are left out: 1",
        "power[0].watts: NetBox has no rating of panels",
        "power[1].feed: NetBox has no feed letters: A is assumed, because this feed's type is primary; and 3 more \
         like it",
        "volts: NetBox has no rating of rack PDUs: the rating of its feed is assumed; and 3 more like it",
        "power-ports.csv:11:1: warning: name: a power port is cabled to no outlet",
        "nodes[0].sku: interfaces that are not HCAs of its SKU are left out: mlx5_10; and 1 more",
    ] {
        assert!(
            reported.iter().any(|line| line.contains(part)),
            "{part}\nis not in\n{reported:#?}"
        );
    }
    // Two circuits of a panel are one item, and so are the PDUs.
    let text = &imported.text;
    assert_eq!(text.matches("# ASSUMED feed: ").count(), 2);
    assert_eq!(text.matches("# ASSUMED volts: ").count(), 1);
}

#[test]
fn without_skus_they_are_made_of_what_netbox_has_and_marked() {
    let imported = import(&tables(unchanged), None, &[], &[]);
    let site = imported
        .site
        .clone()
        .unwrap_or_else(|| panic!("{:#?}", reported(&imported)));
    let sku = site.sku_of(NodeId(0));
    assert_eq!(
        (&*sku.name, sku.psus.count, sku.psus.needed, sku.height_units),
        ("dgx-h100", 6, 6, 8)
    );
    assert_eq!((sku.power.max_watts, sku.weight_kg), (10_200.0, 130.45));
    let hcas: Vec<&str> = sku.hcas.iter().map(|hca| &*hca.name).collect();
    assert_eq!(hcas, ["mlx5_0", "mlx5_3", "mlx5_10"]);
    for field in ["psus", "power", "hcas"] {
        let path = format!("skus[0].{field}");
        assert!(
            imported.findings.list.iter().any(|finding| finding.path == path),
            "{path}"
        );
        assert!(imported.text.contains(&format!("# ASSUMED {field}: ")), "{field}");
    }
    // Without draws, there are no numbers.
    let silent = tables(|file, text| match file {
        "power-ports.csv" => text.replace(",3300,1700,", ",,,"),
        _ => text.to_owned(),
    });
    let imported = import(&silent, None, &[], &[]);
    assert!(imported.site.is_none());
    let errors: Vec<&str> = imported
        .findings
        .list
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| finding.path.as_str())
        .collect();
    assert_eq!(errors, ["skus[0].power", "skus[0].psus"]);
}

/// Import forms and the API have other column names with the same meaning.
#[test]
fn columns_of_import_forms_give_the_same_site() {
    let first = import(&tables(unchanged), Some(&skus()), &[], &[]).text;
    let other = tables(|file, text| {
        let (header, rest) = text.split_once('\n').unwrap();
        let header = match file {
            "racks.csv" => header.replace("Height", "u_height").replace("Max Weight", "max_weight"),
            "cables.csv" => header
                .replace("Termination A", "side_a_name")
                .replace("Termination B", "side_b_name")
                .replace("Device A", "side_a_device")
                .replace("Device B", "side_b_device"),
            "devices.csv" => header.replace("Type", "device_type"),
            _ => header.to_lowercase(),
        };
        format!("{header}\n{rest}")
    });
    assert_eq!(import(&other, Some(&skus()), &[], &[]).text, first);
}

/// Two sites with a rack and a node of the same names in each, and a switch connected to both.
fn twins() -> Tables {
    let mut tables = Tables::default();
    let mut add = |table, id: u32, fields: &[(&str, &str)]| {
        let mut fields: Vec<(String, String)> =
            fields.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        fields.push(("id".to_owned(), id.to_string()));
        tables.add_object(table, "api", id, &fields).unwrap();
    };
    for (id, site) in [(1, "a"), (2, "b")] {
        add(
            Table::Racks,
            id,
            &[
                ("name", "r1"),
                ("site", site),
                ("u_height", "10"),
                ("desc_units", "true"),
            ],
        );
        let rack = id.to_string();
        add(
            Table::Devices,
            id,
            &[
                ("name", "gpu"),
                ("role", "gpu-server"),
                ("device_type", "x"),
                ("site", site),
                ("rack", "r1"),
                ("rack_id", &rack),
                ("position", "3"),
            ],
        );
        add(
            Table::Interfaces,
            id,
            &[
                ("name", "mlx5_0"),
                ("device", "gpu"),
                ("device_id", &rack),
                ("type", "infiniband-hdr"),
            ],
        );
    }
    add(Table::DeviceTypes, 1, &[("model", "x"), ("u_height", "2")]);
    add(
        Table::Devices,
        3,
        &[
            ("name", "sw"),
            ("role", "ib-switch"),
            ("device_type", "y"),
            ("site", "a"),
            ("rack", "r1"),
            ("rack_id", "1"),
        ],
    );
    for (id, gpu) in [(11, "1"), (12, "2")] {
        let name = (id - 10).to_string();
        add(
            Table::Interfaces,
            id,
            &[
                ("name", &name),
                ("device", "sw"),
                ("device_id", "3"),
                ("type", "infiniband-hdr"),
            ],
        );
        let port = id.to_string();
        let ends = [
            ("termination_a_id", gpu),
            ("termination_b_id", &port),
            ("side_a_type", "dcim.interface"),
        ];
        let mut fields = ends.to_vec();
        fields.extend([
            ("side_b_type", "dcim.interface"),
            ("device_a", "gpu"),
            ("device_b", "sw"),
        ]);
        add(Table::Cables, id, &fields);
    }
    tables
}

/// With ids, as in the API, two devices and two racks may have the same name.
#[test]
fn ids_tell_apart_what_has_one_name() {
    let tables = twins();
    let skus = SkuFile::read(
        "s",
        "skus:\n- {name: x, power: {max_watts: 9}, psus: {count: 1, watts: 9, needed: 1}, height_units: 2, hcas: [mlx5_0], hca_speed: HDR}\n",
    )
    .unwrap();
    let imported = from_netbox(
        &tables,
        &NetboxOptions {
            options: Options {
                site: "lab",
                output: "site.yaml",
                skus: Some(&skus),
            },
            sites: &[],
            roles: &Roles::default(),
            skus: &BTreeMap::new(),
            feeds: &[],
            panels: &BTreeMap::new(),
        },
    );
    let site = imported
        .site
        .clone()
        .unwrap_or_else(|| panic!("{:#?}\n{}", reported(&imported), imported.text));
    let racks: Vec<&str> = site.nodes.iter().map(|node| &*site.rack(node.rack).name).collect();
    assert_eq!(racks, ["r1", "b-r1"]);
    // NetBox counts from the top: units 3 and 4 from the top are 7 and 8 from the bottom.
    assert_eq!(site.nodes[0].unit, 7);
    let ends: Vec<String> = site
        .cables
        .iter()
        .map(|cable| format!("{}/{}", site.port_name(cable.a), site.port_name(cable.b)))
        .collect();
    assert_eq!(ends, ["gpu/mlx5_0/sw/1", "b-gpu/mlx5_0/sw/2"]);
    assert_eq!(site.switches[0].role, SwitchRole::Leaf);
}

#[test]
fn contradictions_are_told_with_file_line_and_column() {
    let broken = tables(|file, text| match file {
        "cables.csv" => format!("{text}90,,mlx5_0,1/3/1,gpu-2,leaf-2,Connected,\n"),
        "racks.csv" => text.replace("48U", "480U"),
        "power-feeds.csv" => text.replace("A-R1,Panel A", "A-R1,Panel Z"),
        "interfaces.csv" => text.replace("A0:88:C2:03:00:00:01:02", "A0:8Z"),
        "devices.csv" => text.replace("gpu-2,Active,,Ashburn 1,Hall 1,R1", "gpu-2,Active,,Ashburn 1,Hall 1,R7"),
        _ => text.to_owned(),
    });
    let imported = import(&broken, Some(&skus()), &[], &[]);
    assert!(imported.site.is_none());
    let reported = reported(&imported);
    for part in [
        "cables.csv:27:5: error: a: gpu-2 mlx5_0 already has a cable",
        "racks.csv:2:31: error: units: the rack has 480 units",
        "power-feeds.csv:2:6: error: power_panel: there is no power panel named Panel Z",
        "interfaces.csv:3:42: warning: wwn: \"A0:8Z\" is not a GUID",
        "nodes[0].rack: rack R7 is not among the racks",
    ] {
        assert!(
            reported.iter().any(|line| line.contains(part)),
            "{part}\nis not in\n{reported:#?}"
        );
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    /// Damaged tables cause only findings.
    #[test]
    fn damaged_tables_give_findings(
        edits in proptest::collection::vec((0usize..11, 0usize..4000, 0u8..128), 0..20)
    ) {
        let mut texts: Vec<Vec<u8>> = EXPORTS.iter().map(|(_, text)| text.as_bytes().to_vec()).collect();
        for (file, at, byte) in edits {
            let text = &mut texts[file];
            let at = at % text.len();
            text[at] = byte;
        }
        let mut tables = Tables::default();
        for ((file, _), text) in EXPORTS.iter().zip(&texts) {
            let text = String::from_utf8_lossy(text);
            if let Err(error) = tables.add_csv(Table::of_file(file).unwrap(), file, &text) {
                proptest::prop_assert!(error.line > 0 && error.column > 0 && !error.what.is_empty());
            }
        }
        let imported = import(&tables, Some(&skus()), &letters(), &[]);
        proptest::prop_assert_eq!(imported.site.is_none(), imported.findings.errors > 0);
        for finding in &imported.findings.list {
            proptest::prop_assert!(finding.line > 0 && finding.column > 0, "{}", finding);
        }
    }
}
