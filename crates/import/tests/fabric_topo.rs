//! Topology files: accepted and refused input, and the round trip of a fabric.

use rackwright_import::{DumpOptions, Options, from_dump};
use rackwright_infiniband::check::check;
use rackwright_infiniband::topo::{is_topo, write};
use rackwright_infiniband::{DeviceKind, Dump, FatTree, Plan, Speed, Width};

const SMALL: &str = "\
# two hosts below two switches
MTS2400 SL1-1
\t P1 -4x-5G-> MT23108 H-1 P1
\t P2 -> MT23108 H-1 P2
\t P24 -4X-25G-> MTS2400 SL2-1 P1

MTS2400 SL2-1
   P1 -> MTS2400 SL1-1 P24
   P2 -> HOST gpu7 mlx5_3/P1
   P3 -12x-> HOST gpu7 U2/P1
";

#[test]
fn systems_ports_and_rates_are_read_and_a_cable_that_both_ends_tell_is_one() {
    assert!(is_topo(SMALL));
    let plan = Plan::from_topo(SMALL).unwrap();
    let fabric = plan.fabric();
    let devices: Vec<_> = fabric
        .devices()
        .map(|(_, d)| (&*d.name, d.kind, d.port_count))
        .collect();
    let (switch, adapter) = (DeviceKind::Switch, DeviceKind::ChannelAdapter);
    assert_eq!(
        devices,
        [
            ("SL1-1", switch, 24),
            ("H-1 HCA-1", adapter, 2),
            ("SL2-1", switch, 3),
            ("gpu7 mlx5_3", adapter, 1),
            ("gpu7 HCA-2", adapter, 1),
        ]
    );
    assert_eq!(fabric.links().len(), 5);
    let rates: Vec<_> = fabric.links().map(|(ix, _)| fabric.link_rate(ix)).collect();
    let rate = rates[0].unwrap();
    assert_eq!((rate.width, rate.speed), (Width::X4, Speed::Ddr));
    assert_eq!(rates[1], None);
    let rate = rates[2].unwrap();
    assert_eq!(
        (rate.width, rate.speed),
        (Width::X4, Speed::Edr),
        "the first line names it"
    );
}

#[test]
fn every_fault_has_its_line() {
    let of = |text: &str| -> Vec<(u32, String)> {
        let faults = Plan::from_topo(text).expect_err(text);
        faults.into_iter().map(|fault| (fault.line, fault.text)).collect()
    };
    for (text, line, words) in [
        ("P1 -> HOST a P1\n", 1, "without a system"),
        ("SW s1\n P1 -> HOST a\n", 2, "PORT -> TYPE NAME PORT"),
        ("SW s1\n P1 -4y-> HOST a P1\n", 2, "is not an arrow"),
        ("SW s1\n P1 -4x-26G-> HOST a P1\n", 2, "is not an arrow"),
        ("SW s1\n P0 -> HOST a P1\n", 2, "is not a port"),
        ("SW s1\n P255 -> HOST a P1\n", 2, "is not a port"),
        ("SW s1\n L1/P3 -> HOST a P1\n", 2, "several boards"),
        ("SW s1\n P1 -> SW s1 P1\n", 2, "to itself"),
        (
            "SW s1\n P1 -> HOST a P1\n P2 -> HOST a P1\n",
            3,
            "a already has a cable, in line 2",
        ),
        (
            "SW s1\n P1 -> HOST a P1\nHOST a\n P1 -> SW s1 P2\n",
            4,
            "already has a cable",
        ),
        (
            "SW s1\n P1 -> HOST a P1\nHCA a\n",
            3,
            "is a HCA here and a HOST elsewhere",
        ),
        ("MTS9600 big CFG: leaf3=R\n", 1, "has boards"),
        ("one two three\n", 1, "neither a system"),
        ("SW s1\n", 0, "no cable"),
    ] {
        let faults = of(text);
        let found = faults
            .iter()
            .any(|(at, reported)| *at == line && reported.contains(words.trim_start_matches("a ")));
        assert!(found, "{text:?}: {faults:?}");
    }
    let many = "x y z\n".repeat(1000);
    assert_eq!(of(&many).len(), 100, "the limit of findings");
    let long = format!("SW {}\n", "x".repeat(2000));
    assert!(of(&long)[0].1.contains("the line has"));
}

#[test]
fn other_files_are_not_taken_for_topologies() {
    for text in [
        "",
        "# nothing\n",
        "cable,device_a,port_a,device_b,port_b\n1,a -> b,1,c,2\n",
        "vendid=0x2c9\ndevid=0x1\nSwitch 36 \"S-1\"\n[1] \"H-1\"[1] -> x\n",
        "#\n# Topology file: generated on Tue Jun  5 14:15:10 2007\n#\nvendid=0x8f1\n",
    ] {
        assert!(!is_topo(text), "{text:?}");
    }
}

#[test]
fn what_is_written_reads_as_the_same_fabric() {
    let (devices, cables) = FatTree::rail_optimised(64).plan().unwrap();
    let plan = Plan::new(&devices, &cables).unwrap();
    let text = write(plan.fabric(), "a tree");
    assert!(
        text.starts_with("# a tree\n\nHOST gpu0001\n    mlx5_0/P1 -4x-100G-> SW64 leaf-"),
        "{}",
        &text[..200]
    );
    assert!(is_topo(&text));
    let back = Plan::from_topo(&text).unwrap();
    assert_eq!(write(back.fabric(), "a tree").len(), text.len());
    // Names alone identify the devices, and there is no fault in either direction.
    let report = check(&plan, back.fabric());
    assert_eq!(report.faults, []);
    assert_eq!(report.right, cables.len());
    assert_eq!(check(&back, plan.fabric()).faults, []);
    // Without a cable's line on both sides, the cable is missing.
    let line = text.lines().find(|line| line.contains("-> SW64 spine")).unwrap();
    let far = line.split_whitespace().collect::<Vec<_>>();
    let (port, name, far_port) = (far[0], far[3], far[4]);
    let section = text[..text.find(line).unwrap()]
        .lines()
        .rev()
        .find(|line| !line.starts_with(' '))
        .unwrap();
    let own = section.split_whitespace().nth(1).unwrap();
    let mut at = "";
    let kept = text.lines().filter(|one| {
        if !one.starts_with(' ') {
            at = one.split_whitespace().nth(1).unwrap_or("");
        }
        let words: Vec<_> = one.split_whitespace().collect();
        let is = |system: &str, from: &str, to: &str, end: &str| {
            at == system && words.len() == 5 && words[0] == from && words[3] == to && words[4] == end
        };
        !is(own, port, name, far_port) && !is(name, far_port, own, port)
    });
    let without = kept.collect::<Vec<_>>().join("\n");
    let report = check(&plan, Plan::from_topo(&without).unwrap().fabric());
    assert_eq!(report.faults.len(), 1, "{:?}", report.faults);
    assert_eq!(report.faults[0].kind.word(), "missing");
}

#[test]
fn a_site_file_is_made_of_one() {
    let (devices, cables) = FatTree::rail_optimised(2).plan().unwrap();
    let plan = Plan::new(&devices, &cables).unwrap();
    let text = write(plan.fabric(), "a tree");
    let dump = Dump::of(Plan::from_topo(&text).unwrap().fabric().clone());
    let options = DumpOptions {
        options: Options {
            site: "lab",
            output: "site.yaml",
            skus: None,
        },
        dump: "lab.topo",
        room: "room",
        rack: "rack",
        sku: None,
    };
    let imported = from_dump(&dump, &options);
    for name in [
        "gpu[0001-0002]",
        "leaf-su01-r[0-7]",
        "gpu[0001-0002]/mlx5_0",
        "leaf-su01-r0/[1-2]",
    ] {
        assert!(imported.text.contains(name), "{name}: {}", imported.text);
    }
}
