//! The compact form of a site file describes the same site as single items.

use std::fmt::Debug;

use proptest::prelude::*;
use rackwright_infiniband::dump::{Limits, read};
use rackwright_infiniband::{Dump, FatTree, Plan};
use rackwright_site::model::{DomainKind, OutletLayout, Phase, Phases, PowerDomain, Site};

use super::*;
use crate::draft::{Cable, Domain, End, Node, Outlet, Psus, Rack, Rating, Room, Sku, Switch};
use crate::dump::draft;
use rackwright_site::model::SwitchRole;

fn options(skus: Option<&SkuFile>) -> Options<'_> {
    Options {
        site: "lab",
        output: "site.yaml",
        skus,
    }
}

fn written(draft: &Draft, form: Form, skus: Option<&SkuFile>) -> Imported {
    let sink = Sink::new(vec!["site.yaml".into()]);
    finish_as(draft, form, &options(skus), 0, sink, MAX_TOTAL_BYTES)
}

/// Fails with the first difference only: a site has thousands of objects.
fn same_list<T: PartialEq + Debug>(what: &str, compact: &[T], single: &[T]) {
    let pair = compact.iter().zip(single).find(|(a, b)| a != b);
    assert!(pair.is_none(), "{what}: {pair:#?}");
    assert_eq!(compact.len(), single.len(), "{what}");
}

/// Checks that two sites have the same objects in the same order.
fn same(compact: &Site, single: &Site) {
    assert_eq!(compact.name, single.name);
    same_list("rooms", &compact.rooms, &single.rooms);
    same_list("racks", &compact.racks, &single.racks);
    same_list("feeds", &compact.feeds, &single.feeds);
    same_list("skus", &compact.skus, &single.skus);
    same_list("nodes", &compact.nodes, &single.nodes);
    same_list("switches", &compact.switches, &single.switches);
    same_list("cables", &compact.cables, &single.cables);
    // The PDUs of an item have their outlets in common.
    let with_outlets = |site: &Site| -> Vec<(PowerDomain, Option<OutletLayout>)> {
        let of = |domain: &PowerDomain| {
            let layout = domain.layout.map(|layout| site.layout(layout).clone());
            let layout_id = None;
            let domain = PowerDomain {
                layout: layout_id,
                ..domain.clone()
            };
            (domain, layout)
        };
        site.domains.iter().map(of).collect()
    };
    same_list("power", &with_outlets(compact), &with_outlets(single));
}

fn of(imported: &Imported) -> &Site {
    let list = &imported.findings.list;
    imported
        .site
        .as_ref()
        .unwrap_or_else(|| panic!("{list:#?}\n{:.6000}", imported.text))
}

fn whats(imported: &Imported) -> Vec<&str> {
    imported.findings.list.iter().map(|finding| &*finding.what).collect()
}

/// Writes both forms, checks that they are the same site, and returns the compact text.
fn compared(draft: &Draft, skus: Option<&SkuFile>) -> String {
    let (compact, single) = (written(draft, Form::Compact, skus), written(draft, Form::Single, skus));
    same(of(&compact), of(&single));
    assert!(compact.text.len() <= single.text.len(), "{}", compact.text);
    compact.text
}

/// `None`: there is no such tree.
fn tree(hosts: u32, rails: u8, radix: u8, rail_optimised: bool) -> Option<Dump> {
    let tree = FatTree {
        rails,
        radix,
        rail_optimised,
        ..FatTree::rail_optimised(hosts)
    };
    let (devices, cables) = tree.plan().ok()?;
    let plan = Plan::new(&devices, &cables).unwrap();
    Some(Dump::of(plan.fabric().clone()))
}

fn skus(rails: u8) -> SkuFile {
    let names: Vec<String> = (0..rails).map(|hca| format!("mlx5_{hca}")).collect();
    let text = format!(
        "skus:\n- {{name: gpu, power: {{max_watts: 500}}, psus: {{count: 2, watts: 500, needed: 1}}, height_units: 1, \
         hcas: [{}]}}\n",
        names.join(", ")
    );
    SkuFile::read("skus.yaml", &text).unwrap()
}

fn drafted(dump: &Dump, skus: &SkuFile) -> Draft {
    let options = DumpOptions {
        options: options(Some(skus)),
        dump: "dump",
        room: "room",
        rack: "rack",
        sku: None,
    };
    draft(dump, &options).0
}

#[test]
fn a_regular_fabric_is_one_item_for_each_leaf_and_each_row_of_spines() {
    let skus = skus(8);
    let text = compared(&drafted(&tree(64, 8, 64, true).unwrap(), &skus), Some(&skus));
    let wanted = "
nodes:
- name: gpu[0001-0064]
  sku: gpu
  rack: rack
  guids:
    mlx5_0: 0xa088c20300000000+0x100
    mlx5_1: 0xa088c20300000010+0x100
    mlx5_2: 0xa088c20300000020+0x100
    mlx5_3: 0xa088c20300000030+0x100
    mlx5_4: 0xa088c20300000040+0x100
    mlx5_5: 0xa088c20300000050+0x100
    mlx5_6: 0xa088c20300000060+0x100
    mlx5_7: 0xa088c20300000070+0x100

switches:
- name: leaf-su01-r[0-7]
  role: leaf
  ports: 64
  speed: NDR
  rail: [0, 1, 2, 3, 4, 5, 6, 7]
  scalable_unit: 1
  rack: rack
  guid: 0xfc6a1c0300000000+0x40
";
    assert!(text.contains(wanted), "{text}");
    let cables = "
cables:
- label: c[0001-0032]
  a: gpu[0001-0032]/mlx5_0
  b: leaf-su01-r0/[1-32]
- label: c[0033-0064]
  a: gpu[0001-0032]/mlx5_1
  b: leaf-su01-r1/[1-32]
";
    assert!(text.contains(cables), "{text}");
    let up = "  a: leaf-su01-r0/[33-64]\n  b: spine-[01-08]/[1-4]\n";
    assert!(text.contains(up), "{text}");
    assert!(text.lines().count() < 200, "{text}");
}

/// A site of racks with nodes and two rack PDUs each, and a leaf for each rack.
struct Hall {
    racks: usize,
    nodes: usize,
    /// How names are formed.
    style: usize,
    /// Whether GUIDs, addresses and labels are in order.
    is_regular: bool,
}

impl Hall {
    fn draft(&self) -> Draft {
        let mut draft = Draft {
            title: "A hall.".into(),
            name: "lab".into(),
            rooms: vec![Room {
                name: "hall".into(),
                parent: None,
            }],
            skus: vec![Sku {
                name: "gpu".into(),
                max_watts: Some(500.0),
                psus: Some(Psus {
                    count: 2,
                    watts: 500.0,
                    needed: 1,
                }),
                height_units: Some(2),
                hcas: vec!["mlx5_0".into(), "mlx5_1".into()],
                ..Sku::default()
            }],
            ..Draft::default()
        };
        for feed in ["A", "B"] {
            let panel = format!("panel-{feed}");
            draft
                .domains
                .push(power(panel.clone(), DomainKind::Panel, None, Some(feed)));
            for rack in 0..self.racks {
                let (circuit, parent) = (format!("{feed}-{}", self.rack_name(rack)), Some(panel.clone()));
                draft.domains.push(power(circuit, DomainKind::Circuit, parent, None));
            }
        }
        for rack in 0..self.racks {
            self.rack(&mut draft, rack);
        }
        draft
    }

    /// A number that is in order, or not.
    fn mixed(&self, number: usize) -> usize {
        if self.is_regular {
            number
        } else {
            number * 7919 % 10_007
        }
    }

    fn rack_name(&self, number: usize) -> String {
        match self.style {
            0 => format!("r{:03}", number + 1),
            1 => format!("R{}", number + 8),
            _ => format!("{}-{}", char::from(b'A' + (number / 4) as u8), number % 4 + 1),
        }
    }

    fn rack(&self, draft: &mut Draft, number: usize) {
        let rack = self.rack_name(number);
        draft.racks.push(Rack {
            name: rack.clone(),
            room: "hall".into(),
            units: Some(48),
            ..Rack::default()
        });
        for feed in ["A", "B"] {
            let circuit = format!("{feed}-{rack}");
            let phases = [Phase::L1, Phase::L2, Phase::L3];
            let outlet = |(place, phase): (usize, &Phase)| Outlet {
                name: (place + 1).to_string(),
                phase: *phase,
                amps: Some(16.0),
            };
            draft.domains.push(Domain {
                rack: Some(rack.clone()),
                outlets: phases.iter().cycle().take(12).enumerate().map(outlet).collect(),
                ..power(format!("pdu-{rack}-{feed}"), DomainKind::RackPdu, Some(circuit), None)
            });
        }
        let leaf = draft.switches.len();
        draft.switches.push(Switch {
            name: format!("leaf-{rack}"),
            role: Some(SwitchRole::Leaf),
            ports: 64,
            rack: Some(rack.clone()),
            unit: Some(48),
            scalable_unit: Some(number / 2 + 1),
            guid: Some(0xfc6a_1c00_0000_0040 + 0x40 * self.mixed(number) as u64),
            ..Switch::default()
        });
        for place in 0..self.nodes {
            self.node(draft, &rack, (number, place), leaf);
        }
    }

    fn node(&self, draft: &mut Draft, rack: &str, (number, place): (usize, usize), leaf: usize) {
        let at = draft.nodes.len();
        let name = match self.style {
            0 => format!("gpu-{:04}", at + 1),
            1 => format!("{rack}-gpu{}", place + 1),
            _ => format!("gpu{}", at + 97),
        };
        let mut remarks = Remarks::default();
        if self.style == 1 {
            remarks.comments.push(format!("\"GPU {}\" in NetBox", at + 1));
        }
        if self.style == 2 && place == 0 {
            remarks.assumed("sku", "it is not known", "look");
        }
        let guid = |hca: usize| 0xa088_c203_0000_0000 + (self.mixed(at) * 0x100 + hca + 1) as u64;
        let outlet = |feed: &str| Some(format!("pdu-{rack}-{feed}/{}", place * 2 + 1));
        let hcas = ["mlx5_0", "mlx5_1"].into_iter().map(String::from);
        draft.nodes.push(Node {
            name,
            sku: "gpu".into(),
            rack: Some(rack.to_owned()),
            unit: Some(place as u16 * 4 + 1),
            psus: Some(vec![outlet("A"), outlet("B").filter(|_| self.is_regular || place != 2)]),
            bmc: Some(format!("https://10.{number}.0.{}", self.mixed(place) % 250 + 1)),
            guids: hcas.clone().enumerate().map(|(hca, name)| (name, guid(hca))).collect(),
            remarks,
        });
        for (hca, adapter) in hcas.enumerate() {
            let note = if self.style == 1 {
                format!("by way of pp-{number} {}", place + 1)
            } else {
                String::new()
            };
            draft.cables.push(Cable {
                label: format!("c{:05}", self.mixed(draft.cables.len())),
                a: End::Hca(at, adapter),
                b: End::Port(leaf, (hca * 32 + place + 1) as u16),
                note,
            });
        }
    }
}

fn power(name: String, kind: DomainKind, parent: Option<String>, feed: Option<&str>) -> Domain {
    let rating = Rating::Electrical {
        volts: 415.0,
        amps: 6300.0,
        phases: Phases::Three,
    };
    Domain {
        name,
        kind,
        parent,
        feed: feed.map(str::to_owned),
        rating: Some(rating),
        derate: None,
        rack: None,
        outlets: Vec::new(),
        remarks: Remarks::default(),
    }
}

#[test]
fn racks_with_their_power_and_nodes_are_a_few_items() {
    let hall = Hall {
        racks: 40,
        nodes: 4,
        style: 0,
        is_regular: true,
    };
    let text = compared(&hall.draft(), None);
    for wanted in [
        "- name: r[001-040]\n  room: hall\n",
        "- name: A-r[001-040]\n  kind: circuit\n  parent: panel-A\n",
        "- name: pdu-r[001-040]-[A,B]\n  kind: rack-pdu\n  parent: \"[A,B]-{rack}\"\n  rack: r[001-040]*2\n",
        "- name: gpu-[0001-0160]\n  sku: gpu\n  rack: r[001-040]*4\n  unit: [1, 5, 9, 13]\n",
        "  bmc: https://10.[0-39].0.[1-4]\n",
        "  - pdu-{rack}-A/[1,3,5,7]\n  - pdu-{rack}-B/[1,3,5,7]\n",
        "  - {name: \"[1-12]\", phase: \"L[1-3]\", amps: 16}\n",
    ] {
        assert!(text.contains(wanted), "{wanted}\nis not in\n{text}");
    }
}

/// A hall with gaps in the numbers of its nodes, numbers of other widths, nodes unlike their neighbours, cables without
/// order, notes and an assumption.
fn irregular() -> Draft {
    let hall = Hall {
        racks: 6,
        nodes: 4,
        style: 0,
        is_regular: true,
    };
    let mut draft = hall.draft();
    draft.skus.push(Sku {
        name: "spare".into(),
        hcas: draft.skus[0].hcas.clone(),
        max_watts: Some(400.0),
        psus: draft.skus[0].psus,
        height_units: Some(2),
        ..Sku::default()
    });
    for (at, node) in draft.nodes.iter_mut().enumerate() {
        node.name = match at {
            0..7 => format!("gpu-{}", at + 8),
            7..13 => format!("gpu-{}", at + 13),
            13..20 => format!("gpu-{}", at + 87),
            _ => format!("gpu-{at:04}"),
        };
    }
    draft.nodes[3].remarks.comments.push("\"GPU 3\" in NetBox".into());
    draft.nodes[5].sku = "spare".into();
    draft.nodes[10].guids.truncate(1);
    draft.nodes[14].remarks.assumed("bmc", "it is not known", "look");
    draft.nodes[17].psus = Some(vec![Some("pdu-r005-A/3".into()), None]);
    draft.nodes[18].unit = Some(20);
    draft.cables[20].label = "SPARE-7".into();
    draft.cables[31].note = "by way of pp-1 7".into();
    draft.cables.remove(9);
    draft
}

#[test]
fn an_irregular_hall_keeps_its_objects_its_comments_and_its_marks() {
    let draft = irregular();
    let (compact, single) = (
        written(&draft, Form::Compact, None),
        written(&draft, Form::Single, None),
    );
    let site = of(&compact);
    same(site, of(&single));
    let names: Vec<&str> = site.nodes.iter().map(|node| &*node.name).collect();
    let wanted: Vec<&str> = draft.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, wanted);
    let labels: Vec<&str> = site.cables.iter().map(|cable| &*cable.label).collect();
    let wanted: Vec<&str> = draft.cables.iter().map(|cable| cable.label.as_str()).collect();
    assert_eq!(labels, wanted);
    let node = |name: &str| site.node(site.node_named(name).unwrap());
    assert_eq!(&*site.sku(node("gpu-13").sku).name, "spare");
    assert_eq!(node("gpu-23").port_guids.iter().flatten().count(), 1);
    assert_eq!(node("gpu-104").psus.iter().flatten().count(), 1);
    assert_eq!((node("gpu-105").unit, node("gpu-106").unit), (20, 13));
    for text in [&compact.text, &single.text] {
        for item in [
            "# \"GPU 3\" in NetBox\n- name: gpu-11\n",
            "- name: gpu-13\n  sku: spare\n",
            "# ASSUMED bmc: it is not known\n- name: gpu-101\n",
            "# by way of pp-1 7\n- label: c00031\n",
            "- label: SPARE-7\n",
        ] {
            assert!(text.contains(item), "{item}\nis not in\n{text}");
        }
    }
    // The findings point to the item.
    for imported in [&compact, &single] {
        let finding = imported
            .findings
            .list
            .iter()
            .find(|finding| finding.what == "it is not known")
            .unwrap();
        let line = imported.text.lines().nth(finding.line as usize - 1);
        assert_eq!(line, Some("- name: gpu-101"), "{finding}");
        let items = imported.text.split_once("\nnodes:\n").unwrap().1;
        let before = items
            .split_once("- name: gpu-101\n")
            .unwrap()
            .0
            .matches("- name: ")
            .count();
        assert_eq!(finding.path, format!("nodes[{before}].bmc"));
    }
    // Around them, neighbours are one item.
    for item in ["- name: gpu-[8-10]\n", "- name: gpu-[0020-0023]\n"] {
        assert!(compact.text.contains(item), "{item}\nis not in\n{}", compact.text);
    }
}

#[test]
fn comments_of_joined_items_have_patterns() {
    let hall = Hall {
        racks: 2,
        nodes: 2,
        style: 1,
        is_regular: true,
    };
    let text = compared(&hall.draft(), None);
    assert!(
        text.contains("# \"GPU [1-4]\" in NetBox\n- name: R[8-9]-gpu[1-2]\n"),
        "{text}"
    );
}

#[test]
fn what_is_assumed_is_counted_by_object_and_marked_by_item() {
    let mut hall = Hall {
        racks: 8,
        nodes: 3,
        style: 0,
        is_regular: true,
    }
    .draft();
    for node in &mut hall.nodes {
        node.remarks.assumed("bmc", "it is not known", "look");
    }
    for form in [Form::Compact, Form::Single] {
        let imported = written(&hall, form, None);
        let whats = whats(&imported);
        assert!(
            whats.contains(&"it is not known; and 23 more like it, marked ASSUMED"),
            "{whats:?}"
        );
        let marks = imported.text.matches("# ASSUMED bmc: it is not known\n").count();
        assert_eq!(marks == 24, form == Form::Single, "{}", imported.text);
    }
}

/// The import writes no file that the reader refuses for its size.
#[test]
fn a_file_above_the_limit_is_not_written() {
    let hall = Hall {
        racks: 4,
        nodes: 3,
        style: 0,
        is_regular: false,
    }
    .draft();
    let size = written(&hall, Form::Compact, None).text.len();
    let within = |limit| {
        let sink = Sink::new(vec!["site.yaml".into()]);
        finish_as(&hall, Form::Compact, &options(None), 0, sink, limit)
    };
    assert_eq!(within(size).text.len(), size);
    let refused = within(size - 1);
    assert!(refused.text.is_empty() && refused.site.is_none());
    let whats = whats(&refused);
    assert_eq!(whats.len(), 1, "{whats:?}");
    assert!(
        whats[0].starts_with("the site description is too large: 0."),
        "{whats:?}"
    );
    assert_eq!(refused.findings.errors, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_hall_is_the_same_site_in_both_forms(
        racks in 1usize..14,
        nodes in 1usize..6,
        style in 0usize..3,
        is_regular in any::<bool>(),
        edits in proptest::collection::vec((0usize..200, 0usize..6), 0..8),
    ) {
        let mut draft = Hall { racks, nodes, style, is_regular }.draft();
        for (at, what) in edits {
            let (nodes, cables) = (draft.nodes.len(), draft.cables.len());
            match what {
                0 => draft.nodes[at % nodes].name = format!("odd-{at}-{nodes}"),
                1 => draft.nodes[at % nodes].guids.truncate(1),
                2 => draft.nodes[at % nodes].bmc = None,
                3 => draft.nodes[at % nodes].remarks.comments.push(format!("seen {at}")),
                4 if cables > 1 => { draft.cables.remove(at % cables); }
                _ if cables > 1 => draft.cables.swap(at % cables, (at + 1) % cables),
                _ => {}
            }
        }
        // Two edits may give two nodes one name.
        let mut names: Vec<&str> = draft.nodes.iter().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        prop_assume!(names.windows(2).all(|pair| pair[0] != pair[1]));
        compared(&draft, None);
    }

    #[test]
    fn a_dump_is_the_same_site_in_both_forms(
        hosts in 1u32..70,
        rails in 1u8..5,
        radix in 4u8..9,
        is_rail_optimised in any::<bool>(),
        lost in proptest::collection::vec(0usize..400, 0..5),
        renamed in proptest::collection::vec(1u32..70, 0..5),
    ) {
        let radix = radix * 2;
        let Some(dump) = tree(hosts, rails, radix, is_rail_optimised || rails > radix / 2) else {
            return Err(TestCaseError::reject("there is no such tree"));
        };
        let mut text = dump.write();
        for host in renamed {
            text = text.replace(&format!("gpu{host:04} "), &format!("x{}-node ", host * 31 % 70));
        }
        // A lost line is a link that only one end has, or a device without a name.
        let lines: Vec<&str> = text.lines().enumerate().filter(|(n, _)| !lost.contains(n)).map(|(_, line)| line).collect();
        let dump = read(lines.join("\n").as_bytes(), Limits::default()).unwrap();
        let skus = skus(rails);
        let draft = drafted(&dump, &skus);
        let (compact, single) = (written(&draft, Form::Compact, Some(&skus)), written(&draft, Form::Single, Some(&skus)));
        match (&compact.site, &single.site) {
            (Some(compact), Some(single)) => same(compact, single),
            (compact, single) => prop_assert!(
                compact.is_none() && single.is_none(),
                "{:#?}\n{:#?}\n{}", compact, single, text
            ),
        }
    }
}
