//! Firmware plans: order, reasons, and termination.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::cmp::Ordering;

use proptest::prelude::*;
use rackwright_site::file::{Source, check};
use rackwright_site::firmware::{Installed, Verdict, compare, plan, same};
use rackwright_site::model::{FirmwareActivation, FirmwareOrder, WantedFirmware};

fn wanted(component: &str, version: &str) -> WantedFirmware {
    WantedFirmware {
        component: component.into(),
        id: None,
        name: None,
        software_id: None,
        version: version.into(),
        file: None,
        order: FirmwareOrder::guess(component),
        downgrade: false,
        activation: None,
    }
}

fn installed(id: &str, version: &str) -> Installed {
    Installed {
        id: id.into(),
        version: version.into(),
        ..Installed::default()
    }
}

fn some_file(_: &WantedFirmware) -> Option<Box<str>> {
    Some("sha256:00".into())
}

#[test]
fn reasons_and_order() {
    let wanted = [
        wanted("NIC", "28.39"),
        wanted("BIOS", "2.1"),
        wanted("CPLD", "5"),
        wanted("PSU", "1"),
        wanted("BMC", "1.74.5"),
        wanted("GPU", "96"),
    ];
    let mut nic = installed("nic", "28.38");
    nic.updateable = Some(true);
    let mut cpld = installed("CPLD", "4");
    cpld.updateable = Some(false);
    let there = [
        nic,
        cpld,
        installed("BIOS", "2.10"),
        installed("BMC", "1.74.4"),
        installed("GPU", " 96 "),
    ];
    let rows = plan(&wanted, &there, |one| {
        some_file(one).filter(|_| &*one.component != "NIC")
    });
    let reported: Vec<(&str, Verdict)> = rows.iter().map(|row| (&*row.component, row.verdict)).collect();
    assert_eq!(
        reported,
        [
            ("BMC", Verdict::Update),
            ("BIOS", Verdict::Newer),
            ("NIC", Verdict::NoFile),
            ("CPLD", Verdict::NotUpdateable),
            ("PSU", Verdict::NotListed),
            ("GPU", Verdict::UpToDate),
        ]
    );
}

#[test]
fn a_downgrade_is_asked_for_and_patterns_take_many() {
    let mut gpus = wanted("gpu", "96.00.89.00.01");
    gpus.id = Some("HGX_FW_GPU_SXM_?".into());
    gpus.downgrade = true;
    let there = [
        installed("HGX_FW_GPU_SXM_1", "96.00.A0.00.01"),
        installed("HGX_FW_GPU_SXM_2", "96.00.89.00.01"),
        installed("HGX_FW_BMC_0", "1"),
    ];
    let rows = plan(&[gpus], &there, some_file);
    let verdicts: Vec<Verdict> = rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::Update, Verdict::UpToDate]);
}

#[test]
fn versions_of_real_machines() {
    for (a, b, order) in [
        ("1.74.5", "1.74.10", Some(Ordering::Less)),
        ("20.31.10.14", "20.29.1016", Some(Ordering::Greater)),
        ("1.0b", "1.0a", Some(Ordering::Greater)),
        ("C27", "C9", Some(Ordering::Greater)),
        ("MPK7625Q", "HPG0", None),
        ("95.02.39.00.01", "95.02.39.00.01", Some(Ordering::Equal)),
        ("2.0", "2.0.1", Some(Ordering::Less)),
        ("00.02.0150.0000_n00", "00.02.0134.0000_n00", Some(Ordering::Greater)),
    ] {
        assert_eq!(compare(a, b), order, "{a} {b}");
    }
}

const SITE: &str = "site: {name: x}\nskus:\n- name: h100\n  power: {max_watts: 100}\n  psus: {count: 1, watts: 100, needed: 1}\n  height_units: 8\n  firmware:\n";

#[test]
fn a_site_file_says_what_is_wanted() {
    let text = format!(
        "{SITE}  - {{component: BMC, version: 1.74.5}}\n  - {{component: gpu, id: \"HGX_FW_GPU*\", version: \"96\", order: others, downgrade: true, activation: ac_cycle}}\n"
    );
    let checked = check(&[Source {
        name: "site.yaml",
        text: &text,
    }]);
    let site = checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list));
    let firmware = &site.skus[0].firmware;
    assert_eq!(firmware[0].order, FirmwareOrder::Bmc);
    assert_eq!(firmware[0].activation, None);
    assert_eq!(firmware[1].activation, Some(FirmwareActivation::AcCycle));
    assert!(firmware[1].downgrade && firmware[1].is_for("hgx_fw_gpu_sxm_8", "", ""));
}

#[test]
fn mistakes_are_named() {
    for (entry, word) in [
        ("{component: BMC}", "version"),
        ("{component: BMC, version: 1, file: md5}", "digest"),
        ("{component: BMC, version: 1, order: first}", "order"),
        ("{component: BMC, version: 1, activation: reboot}", "activation"),
        (
            "{component: BMC, version: 1}\n  - {component: BMC, version: 2}",
            "twice",
        ),
    ] {
        let text = format!("{SITE}  - {entry}\n");
        let checked = check(&[Source {
            name: "site.yaml",
            text: &text,
        }]);
        let reported = format!("{:?}", checked.findings.list);
        assert!(checked.site.is_none() && reported.contains(word), "{entry}: {reported}");
    }
}

proptest! {
    /// Installed firmware is not installed again: after each step, the plan has one step less, and the order holds.
    #[test]
    fn plans_end(
        versions in prop::collection::vec(("[A-C]{1,2}", "[0-9]{1,2}(\\.[0-9a-b]{1,2}){0,2}"), 1..6),
        there in prop::collection::vec(("[A-C]{1,2}", "[0-9]{1,2}(\\.[0-9a-b]{1,2}){0,2}"), 0..8),
        downgrade in any::<bool>(),
    ) {
        let wanted: Vec<_> = versions.iter().map(|(name, version)| {
            let mut one = wanted(name, version);
            one.downgrade = downgrade;
            one.order = FirmwareOrder::ALL[version.len() % 3];
            one
        }).collect();
        let mut there: Vec<_> = there.iter().map(|(id, version)| installed(id, version)).collect();
        let mut last = FirmwareOrder::Bmc;
        for _ in 0..=there.len() {
            let rows = plan(&wanted, &there, some_file);
            let Some(step) = rows.iter().find(|row| row.verdict == Verdict::Update) else {
                return Ok(());
            };
            prop_assert!(step.order >= last);
            last = step.order;
            prop_assert!(downgrade || compare(&step.installed, &step.wanted) != Some(Ordering::Greater));
            let entry = there.iter_mut().find(|one| one.id == step.id && same(&one.version, &step.installed)).unwrap();
            entry.version = step.wanted.to_string();
        }
        prop_assert!(false, "steps without end");
    }

    /// The comparison of two versions is symmetric.
    #[test]
    fn comparing_is_the_same_from_both_sides(a in "[0-9a-z.]{0,12}", b in "[0-9a-z.]{0,12}") {
        prop_assert_eq!(compare(&a, &b), compare(&b, &a).map(Ordering::reverse));
        prop_assert_eq!(compare(&a, &a), Some(Ordering::Equal));
    }
}
