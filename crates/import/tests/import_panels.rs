//! NetBox's cables through patch panels.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::collections::BTreeMap;

use rackwright_import::netbox::{NetboxOptions, Roles, Table, Tables, from_netbox};
use rackwright_import::{Imported, Options};

const RACKS: &str = "Name,Site,Height\nr1,s,48\n";
const DEVICES: &str = "Name,Site,Rack,Position,Role,Type,Status\n\
                       gpu-1,s,r1,1,Compute,DGX,Active\ngpu-2,s,r1,9,Compute,DGX,Active\n\
                       leaf-1,s,r1,40,Leaf,QM,Active\npp-1,s,r1,45,Patch Panel,MPO,Active\n\
                       pp-2,s,r1,46,Patch Panel,MPO,Active\n";
const INTERFACES: &str = "Name,Device,Type\nmlx5_0,gpu-1,NDR\nmlx5_0,gpu-2,NDR\n1,leaf-1,NDR\n2,leaf-1,NDR\n";
const FRONT: &str = "Name,Device,Rear Port,Rear Port Position\n\
                     F1,pp-1,R,1\nF2,pp-1,R,2\nF1,pp-2,R,1\nF2,pp-2,R,2\n";
const REAR: &str = "Name,Device,Positions\nR,pp-1,2\nR,pp-2,2\n";
/// Crossed on purpose: a signal that enters at F2 leaves at F2.
const CABLES: &str = "ID,Label,Termination A,Termination B,Device A,Device B\n\
                      1,A1,mlx5_0,F1,gpu-1,pp-1\n2,A2,F2,mlx5_0,pp-1,gpu-2\n3,TRUNK,R,R,pp-1,pp-2\n\
                      4,B1,F1,2,pp-2,leaf-1\n5,B2,1,F2,leaf-1,pp-2\n";

fn import(files: &[(&str, &str)]) -> Imported {
    let mut tables = Tables::default();
    for (file, text) in files {
        tables.add_csv(Table::of_file(file).unwrap(), file, text).unwrap();
    }
    let roles = Roles::default();
    from_netbox(
        &tables,
        &NetboxOptions {
            options: Options {
                site: "lab",
                output: "site.yaml",
                skus: None,
            },
            sites: &[],
            roles: &roles,
            skus: &BTreeMap::new(),
            feeds: &[],
            panels: &BTreeMap::new(),
        },
    )
}

fn files<'a>(front: &'a str, rear: &'a str, cables: &'a str) -> [(&'static str, &'a str); 6] {
    [
        ("racks.csv", RACKS),
        ("devices.csv", DEVICES),
        ("interfaces.csv", INTERFACES),
        ("front-ports.csv", front),
        ("rear-ports.csv", rear),
        ("cables.csv", cables),
    ]
}

/// The lines of the cables.
fn cables(imported: &Imported) -> Vec<String> {
    let from = imported.text.find("\ncables:\n").map_or("", |at| &imported.text[at..]);
    from.lines().map(str::to_owned).collect()
}

fn reported(imported: &Imported) -> Vec<String> {
    let all = imported.findings.list.iter().map(ToString::to_string);
    all.filter(|one| one.contains("patch panels is left out")).collect()
}

#[test]
fn cables_that_meet_in_panels_are_one_with_a_note() {
    let imported = import(&files(FRONT, REAR, CABLES));
    let lines = cables(&imported).join("\n");
    for words in [
        "# cables A1, TRUNK, B1 by way of pp-1 F1, pp-2 R",
        "a: gpu-1/mlx5_0\n  b: leaf-1/2",
        "# cables A2, TRUNK, B2 by way of pp-1 F2, pp-2 R",
        "a: gpu-2/mlx5_0\n  b: leaf-1/1",
    ] {
        assert!(lines.contains(words), "{words}: {}", imported.text);
    }
    assert_eq!(lines.matches("label").count(), 2, "{lines}");
    assert!(
        lines.contains("A1:TRUNK:B1") && lines.contains("A2:TRUNK:B2"),
        "{lines}"
    );
    assert_eq!(reported(&imported), Vec::<String>::new());
}

#[test]
fn the_mapping_of_later_releases_is_read_too() {
    let front = "Name,Device,Mappings\nF1,pp-1,R:1\nF2,pp-1,R:2\nF1,pp-2,R:1\nF2,pp-2,R:2\n";
    let imported = import(&files(front, REAR, CABLES));
    assert!(
        imported.text.contains("a: gpu-1/mlx5_0\n  b: leaf-1/2"),
        "{}",
        imported.text
    );
    // With ids, as in the API.
    let mut tables = Tables::default();
    for (file, text) in &files(FRONT, REAR, CABLES)[..3] {
        tables.add_csv(Table::of_file(file).unwrap(), file, text).unwrap();
    }
    let field = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    let mut add = |table: Table, id: u32, pairs: &[(&str, &str)]| {
        let mut fields = field(pairs);
        fields.push(("id".to_owned(), id.to_string()));
        tables.add_object(table, "api", id, &fields).unwrap();
    };
    // The same name on both sides. Type and id distinguish them.
    add(
        Table::RearPorts,
        7,
        &[("name", "1"), ("device", "pp-1"), ("positions", "1")],
    );
    add(
        Table::FrontPorts,
        9,
        &[
            ("name", "1"),
            ("device", "pp-1"),
            ("rear_port_id", "7"),
            ("rear_port_position", "1"),
        ],
    );
    add(
        Table::Cables,
        1,
        &[
            ("termination_a", "mlx5_0"),
            ("device_a", "gpu-1"),
            ("termination_b", "1"),
            ("device_b", "pp-1"),
            ("side_b_type", "dcim.frontport"),
            ("termination_b_id", "9"),
        ],
    );
    add(
        Table::Cables,
        2,
        &[
            ("termination_a", "1"),
            ("device_a", "pp-1"),
            ("side_a_type", "dcim.rearport"),
            ("termination_a_id", "7"),
            ("termination_b", "1"),
            ("device_b", "leaf-1"),
        ],
    );
    let roles = Roles::default();
    let imported = from_netbox(
        &tables,
        &NetboxOptions {
            options: Options {
                site: "lab",
                output: "site.yaml",
                skus: None,
            },
            sites: &[],
            roles: &roles,
            skus: &BTreeMap::new(),
            feeds: &[],
            panels: &BTreeMap::new(),
        },
    );
    assert!(
        imported.text.contains("# cables cable-1, cable-2 by way of pp-1 1"),
        "{}",
        imported.text
    );
    assert!(
        imported.text.contains("a: gpu-1/mlx5_0\n  b: leaf-1/1"),
        "{}",
        imported.text
    );
}

#[test]
fn a_way_that_does_not_end_is_told_with_where_it_breaks_off() {
    let without_trunk = CABLES.replace("3,TRUNK,R,R,pp-1,pp-2\n", "");
    let straight = CABLES.replace(
        "3,TRUNK,R,R,pp-1,pp-2\n4,B1,F1,2,pp-2,leaf-1\n",
        "3,TRUNK,R,2,pp-1,leaf-1\n",
    );
    let no_front = FRONT.replace("F1,pp-2,R,1\n", "");
    let circle = CABLES
        .replace("3,TRUNK,R,R,pp-1,pp-2\n", "3,TRUNK,R,F1,pp-1,pp-2\n")
        .replace("4,B1,F1,2,pp-2,leaf-1\n", "");
    for (front, cables, words) in [
        (FRONT, without_trunk.as_str(), "no cable is at pp-1 R"),
        (&no_front, CABLES, "pp-2 R has no front port at position 1"),
        (FRONT, &straight, "pp-1 R has 2 positions, but no position is given"),
        (FRONT, &circle, "no cable is at pp-2 R"),
    ] {
        let imported = import(&files(front, REAR, cables));
        let reported = reported(&imported);
        assert!(reported.iter().any(|one| one.contains(words)), "{words}: {reported:?}");
    }
}
