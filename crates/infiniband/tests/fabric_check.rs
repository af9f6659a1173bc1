//! Planned and discovered cabling: every fault is found and named, and no other.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rackwright_infiniband::check::{check, check_plan};
use rackwright_infiniband::{DeviceKind, FaultKind, Guid, Plan, PlannedCable, PlannedDevice, Speed, Width};

mod fabric_common;

use fabric_common::{Known, Lab, kinds};

#[test]
fn two_swapped_cables_are_one_finding_that_says_so() {
    let lab = Lab::new(64, 8, 64);
    let mut cables = lab.cables.clone();
    let (a, b) = (lab.cable_of("gpu0003 mlx5_3"), lab.cable_of("gpu0004 mlx5_4"));
    (cables[a].b, cables[b].b) = (cables[b].b, cables[a].b);
    for known in [Known::Guids, Known::Names] {
        let report = lab.checked(&cables, known);
        assert_eq!(kinds(&report), [FaultKind::Swapped]);
        assert_eq!(
            report.faults[0].text,
            "cable 0020 and cable 0029 are swapped: leaf-su01-r3 port 3 should go to HCA 3 of node gpu0003, goes to HCA 4 \
             of node gpu0004; leaf-su01-r4 port 4 should go to HCA 4 of node gpu0004, goes to HCA 3 of node gpu0003; an \
             adapter of rail 3 on the leaf of rail 4; an adapter of rail 4 on the leaf of rail 3"
        );
        assert_eq!(report.right, report.cables - 2);
    }
}

#[test]
fn three_cables_in_each_others_places_are_one_finding() {
    let lab = Lab::new(64, 8, 64);
    let mut cables = lab.cables.clone();
    let [a, b, c] = ["gpu0001 mlx5_0", "gpu0002 mlx5_1", "gpu0003 mlx5_2"].map(|name| lab.cable_of(name));
    (cables[a].b, cables[b].b, cables[c].b) = (cables[b].b, cables[c].b, cables[a].b);
    let report = lab.checked(&cables, Known::Guids);
    assert_eq!(kinds(&report), [FaultKind::Swapped]);
    assert_eq!(report.faults[0].cables.len(), 3);
}

#[test]
fn a_cable_that_goes_elsewhere_says_where() {
    let lab = Lab::new(64, 8, 64);
    let mut cables = lab.cables.clone();
    let (a, b) = (lab.cable_of("gpu0003 mlx5_3"), lab.cable_of("gpu0004 mlx5_4"));
    cables[a].b = cables[b].b;
    cables.remove(b);
    let report = lab.checked(&cables, Known::Names);
    assert_eq!(kinds(&report), [FaultKind::WrongDevice, FaultKind::WrongDevice]);
    assert_eq!(
        report.faults[0].text,
        "cable 0020: leaf-su01-r3 port 3 should go to HCA 3 of node gpu0003, goes to HCA 4 of node gpu0004; an adapter of \
         rail 4 on the leaf of rail 3"
    );
    // Moves a cable to another port of the same spine.
    let mut cables = lab.cables.clone();
    let spine = lab.device("spine-01");
    let up = cables.iter().position(|cable| cable.b == (spine, 1)).expect("a cable");
    let (freed, _) = (cables[up + 1].b, cables.remove(up + 1));
    cables[up].b = freed;
    let report = lab.checked(&cables, Known::Guids);
    assert_eq!(kinds(&report), [FaultKind::WrongPort, FaultKind::WrongPort]);
}

#[test]
fn machines_switches_and_single_adapters_that_are_gone_are_told_apart() {
    let lab = Lab::new(64, 8, 64);
    let without = |gone: &dyn Fn(&str) -> bool| -> Vec<PlannedCable> {
        let name = |end: (usize, u8)| lab.devices[end.0].name.as_str();
        lab.cables
            .iter()
            .filter(|cable| !gone(name(cable.a)) && !gone(name(cable.b)))
            .cloned()
            .collect()
    };
    let report = lab.checked(&without(&|name| name.starts_with("gpu0007 ")), Known::Names);
    assert_eq!(kinds(&report), [FaultKind::DeviceMissing]);
    assert!(
        report.faults[0]
            .text
            .starts_with("node gpu0007: none of its 8 adapters is seen"),
        "{}",
        report.faults[0]
    );
    assert_eq!(report.faults[0].cables.len(), 8);

    let report = lab.checked(&without(&|name| name == "gpu0007 mlx5_2"), Known::Guids);
    assert_eq!(kinds(&report), [FaultKind::Missing]);
    assert!(
        report.faults[0].text.contains("HCA 2 of node gpu0007 is not seen"),
        "{}",
        report.faults[0]
    );

    let report = lab.checked(&without(&|name| name == "leaf-su02-r5"), Known::Guids);
    assert_eq!(kinds(&report), [FaultKind::DeviceMissing]);
    assert!(
        report.faults[0].text.contains("nor are 32 adapters"),
        "{}",
        report.faults[0]
    );
    assert_eq!(report.right, report.cables - 64);
}

#[test]
fn another_adapter_in_the_place_of_one_is_a_replaced_device() {
    let mut lab = Lab::new(64, 8, 64);
    let plan = lab.plan(Known::Guids);
    let at = lab.device("gpu0009 mlx5_1");
    lab.devices[at].guid = Guid::new(0x1234);
    let report = check(&plan, &lab.discover(&lab.cables, Known::Guids));
    assert_eq!(kinds(&report), [FaultKind::DeviceReplaced]);
    assert!(
        report.faults[0]
            .text
            .starts_with("HCA 1 of node gpu0009: another channel adapter is in its place")
    );
    let replacement = rackwright_infiniband::check::Replacement {
        planned: "gpu0009 mlx5_1".to_owned(),
        guid: Guid::new(0x1234).expect("a GUID"),
        // This reading has no GUIDs of ports.
        ports: Vec::new(),
        in_place: BTreeSet::new(),
    };
    assert_eq!(report.faults[0].replacements, [replacement]);
}

#[test]
fn devices_and_links_that_nobody_planned_are_found() {
    let mut lab = Lab::new(48, 8, 64);
    let plan = lab.plan(Known::Guids);
    let mut cables = lab.cables.clone();
    lab.devices.push(PlannedDevice {
        guid: Guid::new(0x777),
        ..PlannedDevice::adapter("stranger mlx5_0", 0, 0)
    });
    let (leaf, other) = (lab.device("leaf-su02-r0"), lab.device("leaf-su02-r1"));
    let cable = |a, b| PlannedCable {
        name: String::new(),
        a,
        b,
        speed: Some(Speed::Ndr),
        width: Some(Width::X4),
    };
    cables.push(cable((leaf, 20), (lab.devices.len() - 1, 1)));
    cables.push(cable((leaf, 21), (other, 21)));
    let report = check(&plan, &lab.discover(&cables, Known::Guids));
    assert_eq!(kinds(&report), [FaultKind::DeviceUnknown, FaultKind::Extra]);
    assert!(
        report.faults[0]
            .text
            .ends_with("it is connected to leaf-su02-r0 port 20"),
        "{}",
        report.faults[0]
    );
}

#[test]
fn a_fabric_without_any_names_is_recognised_by_its_shape() {
    let lab = Lab::new(24, 4, 16);
    let mut bare = lab.clone();
    for (at, device) in bare.devices.iter_mut().enumerate() {
        device.guid = Guid::new(at as u64 * 7 + 1_000_003);
    }
    let mut plan = lab.clone();
    plan.devices.iter_mut().for_each(|device| device.guid = None);
    let plan = Plan::new(&plan.devices, &plan.cables).expect("a plan");
    let report = check(&plan, &bare.discover(&bare.cables, Known::Guids));
    assert_eq!(report.faults, []);
    assert_eq!(report.matched.by_place, lab.devices.len());
    // A cut link between switches does not disturb the recognition.
    let mut cables = bare.cables.clone();
    let cut = cables.pop().expect("a cable");
    let report = check(&plan, &bare.discover(&cables, Known::Guids));
    assert_eq!(kinds(&report), [FaultKind::Missing]);
    assert_eq!(report.faults[0].cables, [cut.name]);
}

#[test]
fn an_adapter_planned_on_the_leaf_of_another_rail_is_a_fault_of_the_plan() {
    let lab = Lab::new(8, 4, 16);
    assert_eq!(check_plan(&lab.plan(Known::Guids)), []);
    let mut crossed = lab.clone();
    let (a, b) = (lab.cable_of("gpu0001 mlx5_0"), lab.cable_of("gpu0001 mlx5_1"));
    (crossed.cables[a].b, crossed.cables[b].b) = (crossed.cables[b].b, crossed.cables[a].b);
    let faults = check_plan(&crossed.plan(Known::Guids));
    assert_eq!(
        faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
        [FaultKind::Rail, FaultKind::Rail]
    );
}

#[test]
fn a_list_of_cables_is_a_plan() {
    let text = "cable,device_a,port_a,device_b,port_b,speed,width\n\
                c1,leaf-1,1,gpu-1,mlx5_0,NDR,4x\n\
                c2,leaf-1,2,gpu-1 mlx5_1,1,NDR,4x\n\
                \"c,3\",leaf-1,33,spine-1,1,,\n";
    let plan = Plan::from_csv(text).expect("a plan");
    assert_eq!(plan.fabric().counts().adapters, 2);
    let spine = plan
        .fabric()
        .devices()
        .find(|(_, device)| &*device.name == "spine-1")
        .expect("the spine")
        .1;
    assert_eq!(spine.kind, DeviceKind::Switch);
    assert_eq!(check(&plan, plan.fabric()).faults, []);

    let broken = "cable,device_a,port_a,device_b,port_b,speed\nc1,leaf-1,0,x,1,NDR\nc2,leaf-1,1,y,1,WARP\nc3,leaf-1,2,y,1\n\
                  c4,leaf-1,2,z,1\nc5,,1,z,1\nc6,\"a,1,z,1\n";
    let faults = Plan::from_csv(broken).expect_err("faults");
    let lines: Vec<u32> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [2, 3, 5, 6, 7]);
    assert!(
        Plan::from_csv("a,b\n").expect_err("no columns")[0]
            .text
            .contains("no column")
    );
}

#[test]
fn names_of_udev_are_ports_in_a_list() {
    let text = "cable,device_a,port_a,device_b,port_b\n\
                c1,leaf-1,1,gpu-1,ibp24s0\n\
                c2,leaf-1,2,gpu-1,rocep25s0f1/2\n";
    let plan = Plan::from_csv(text).expect("a plan");
    let adapters = plan.fabric().devices().filter(|(_, device)| device.is_adapter());
    let adapters: Vec<(&str, u8)> = adapters.map(|(_, device)| (&*device.name, device.port_count)).collect();
    assert_eq!(adapters, [("gpu-1 ibp24s0", 1), ("gpu-1 rocep25s0f1", 2)]);
}

#[test]
fn adapters_with_other_names_than_planned_are_paired_by_rail_or_by_place() {
    const PATHS: [&str; 8] = [
        "ibp24s0", "ibp64s0", "ibp79s0", "ibp94s0", "ibp154s0", "ibp192s0", "ibp206s0", "ibp220s0",
    ];
    let lab = Lab::new(64, 8, 64);
    let plan = lab.plan(Known::Names);
    let named = |of_rail: &dyn Fn(usize, u8) -> String| {
        lab.describe(&lab.cables, |at| {
            let device = &lab.devices[at];
            match (device.rail, device.name.split_once(' ')) {
                (Some(rail), Some((machine, _))) => format!("{machine} {}", of_rail(at, rail)),
                _ => device.name.clone(),
            }
        })
    };
    let report = check(&plan, &named(&|_, rail| PATHS[usize::from(rail)].to_owned()));
    assert_eq!(report.faults, []);
    assert_eq!(
        (report.matched.by_name, report.matched.by_place),
        (lab.devices.len(), 0)
    );
    // GUIDs in the reverse order of the rails.
    let report = check(&plan, &named(&|at, _| format!("ibx{:016x}", 10_000 - at)));
    assert_eq!(report.faults, []);
    assert_eq!(report.matched.by_place, 64 * 8);
}

#[test]
fn every_further_cable_of_a_port_names_the_line_of_the_first() {
    let faults = |rows: &str| -> Vec<String> {
        let text = format!("cable,device_a,port_a,device_b,port_b,guid_a\n{rows}");
        let faults = Plan::from_csv(&text).expect_err("faults");
        faults.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        faults("c1,leaf-1,1,leaf-2,1,\nc2,leaf-1,1,leaf-2,1,\nc3,leaf-2,1,leaf-1,1,\n"),
        [
            r#"line 3: "leaf-1" port 1 already has a cable, in line 2; "leaf-2" port 1 already has a cable, in line 2"#,
            r#"line 4: "leaf-2" port 1 already has a cable, in line 2; "leaf-1" port 1 already has a cable, in line 2"#,
        ]
    );
    assert_eq!(
        faults("c1,leaf-1,1,leaf-2,1,\nc2,leaf-1,1,leaf-2,2,\nc3,leaf-2,2,leaf-3,1,\n"),
        [
            r#"line 3: "leaf-1" port 1 already has a cable, in line 2"#,
            r#"line 4: "leaf-2" port 2 already has a cable, in line 3"#,
        ],
        "the second cable has its other end too"
    );
    assert_eq!(
        faults("c1,leaf-1,1,leaf-1,1,\n"),
        [r#"line 2: "leaf-1" port 1 is cabled to itself"#]
    );
    let (first, second) = ("0x0002c90300000001", "0x0002c90300000002");
    let rows = format!("c1,leaf-1,1,leaf-2,1,{first}\nc2,leaf-1,2,leaf-2,2,{second}\nc3,leaf-1,3,leaf-2,3,{first}\n");
    let found = faults(&rows);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("line 3: ") && found[0].contains("in another line"),
        "{found:?}"
    );
}

/// A fault to create.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Swap(usize, usize),
    Cut(usize),
    Move(usize),
    Slow(usize),
    Narrow(usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    let any = 0usize..10_000;
    prop_oneof![
        (any.clone(), any.clone()).prop_map(|(a, b)| Harm::Swap(a, b)),
        any.clone().prop_map(Harm::Cut),
        any.clone().prop_map(Harm::Move),
        any.clone().prop_map(Harm::Slow),
        any.prop_map(Harm::Narrow),
    ]
}

/// Switch ports without a cable.
fn spare(lab: &Lab) -> Vec<(usize, u8)> {
    let used: BTreeSet<(usize, u8)> = lab.cables.iter().flat_map(|cable| [cable.a, cable.b]).collect();
    let switches = lab
        .devices
        .iter()
        .enumerate()
        .filter(|(_, device)| device.kind == DeviceKind::Switch);
    let ports = switches.flat_map(|(at, device)| (1..=device.port_count).map(move |port| (at, port)));
    ports.filter(|end| !used.contains(end)).collect()
}

proptest! {
    #[test]
    fn every_fault_is_found_and_no_other(
        harms in proptest::collection::vec(harm(), 0..8),
        hosts in 5u32..20,
        // Of two rails, two swapped cables may be two exchanged nodes.
        rails in 3u8..6,
        names in any::<bool>(),
    ) {
        let lab = Lab::new(hosts, rails, 16);
        let known = if names { Known::Names } else { Known::Guids };
        let mut cables: Vec<Option<PlannedCable>> = lab.cables.iter().cloned().map(Some).collect();
        let (mut touched, mut swaps, mut spare) = (BTreeSet::new(), BTreeSet::new(), spare(&lab));
        for harm in harms {
            let of = |at: usize| at % lab.cables.len();
            let (Harm::Swap(first, _) | Harm::Cut(first) | Harm::Move(first) | Harm::Slow(first) | Harm::Narrow(first)) = harm;
            let first = of(first);
            if !touched.insert(first) {
                continue;
            }
            let Some(cable) = cables[first].as_mut() else { continue };
            match harm {
                Harm::Swap(_, second) => {
                    let second = of(second);
                    if !touched.insert(second) {
                        touched.remove(&first);
                        continue;
                    }
                    let end = cable.b;
                    let other = cables[second].as_mut().expect("an untouched cable");
                    let end = std::mem::replace(&mut other.b, end);
                    cables[first].as_mut().expect("this cable").b = end;
                    swaps.insert(BTreeSet::from([lab.cables[first].name.clone(), lab.cables[second].name.clone()]));
                }
                Harm::Cut(_) => cables[first] = None,
                Harm::Move(_) => match spare.pop() {
                    Some(end) if end.0 != cable.a.0 => cable.b = end,
                    _ => { touched.remove(&first); }
                },
                Harm::Slow(_) => cable.speed = Some(Speed::Hdr),
                Harm::Narrow(_) => cable.width = Some(Width::X1),
            }
        }
        let cables: Vec<PlannedCable> = cables.into_iter().flatten().collect();
        let report = lab.checked(&cables, known);
        let named: BTreeSet<String> = report.faults.iter().flat_map(|fault| fault.cables.clone()).collect();
        let wanted: BTreeSet<String> = touched.iter().map(|at| lab.cables[*at].name.clone()).collect();
        prop_assert_eq!(&named, &wanted, "{:#?}", report.faults);
        let reported: BTreeSet<BTreeSet<String>> = report.faults.iter()
            .filter(|fault| fault.kind == FaultKind::Swapped)
            .map(|fault| fault.cables.iter().cloned().collect())
            .collect();
        prop_assert_eq!(reported, swaps);
        prop_assert_eq!(report.right, report.cables - wanted.len());
        let odd = report.faults.iter().find(|fault| matches!(fault.kind, FaultKind::Extra | FaultKind::DeviceUnknown));
        prop_assert!(odd.is_none(), "{:#?}", odd);
        let mentions: usize = report.faults.iter().map(|fault| fault.cables.len()).sum();
        prop_assert_eq!(mentions, wanted.len(), "a cable is in two findings: {:#?}", report.faults);
    }
}
