use super::*;
use crate::time::seconds;

const BYTES: u64 = 1_920_383_410_176;

fn known(name: &str, serial: &str, model: &str, size: u64) -> KnownDrive {
    KnownDrive {
        name: name.into(),
        serial: serial.into(),
        model: model.into(),
        size_bytes: (size > 0).then_some(size),
        protocol: "nvme".into(),
        key: serial.into(),
        ..KnownDrive::default()
    }
}

fn list(source: Source, drives: &[KnownDrive]) -> DriveList {
    DriveList {
        source,
        at: Timestamp(seconds(1_795_499_220)),
        by: "ann".into(),
        drives: drives.to_vec(),
    }
}

fn two() -> [KnownDrive; 2] {
    [
        known("nvme0n1", "S6C1NA0TA04222", "SAMSUNG MZXLR6T4HALA-000H3", BYTES),
        known("nvme1n1", "S6C1NA0TA01511", "SAMSUNG MZXLR6T4HALA-000H3", BYTES),
    ]
}

fn reported(drives: &[KnownDrive]) -> Vec<ReportedDrive> {
    drives.iter().map(ReportedDrive::from).collect()
}

/// The differences of a changed report from the inspection's list, in words.
fn differences(change: impl FnOnce(&mut Vec<ReportedDrive>)) -> Vec<String> {
    let mut report = reported(&two());
    change(&mut report);
    let verdict = judge(&[list(Source::Inspection, &two())], &report);
    verdict.differences.iter().map(ToString::to_string).collect()
}

#[test]
fn an_honest_report_is_confirmed_by_every_source_that_has_the_drive() {
    let mut bmc = two();
    bmc[0].model = "MZXLR6T4HALA-000H3".into();
    bmc[0].serial += "      ";
    bmc[1].size_bytes = None;
    let lists = [list(Source::Inspection, &two()), list(Source::Bmc, &bmc)];
    let mut report = reported(&two());
    report.reverse();
    let verdict = judge(&lists, &report);
    assert_eq!(verdict.differences, []);
    let witnesses: Vec<Vec<_>> = verdict.witnesses.iter().map(|w| w.iter().copied().collect()).collect();
    assert_eq!(witnesses, [vec!["inspection"], vec!["bmc", "inspection"]]);
}

#[test]
fn each_difference_from_the_inspection_is_named_with_its_source_and_date() {
    let by = "by the inspection on 2026-11-24 05:47 UTC";
    let first = "drive nvme0n1 (serial number S6C1NA0TA04222)";
    assert_eq!(differences(|_| {}), [""; 0]);
    assert_eq!(
        differences(|report| report[0].size_bytes = 1_100_000_000_000),
        [format!(
            "{first}: size 1920383410176 bytes recorded {by}, 1100000000000 bytes reported"
        )]
    );
    assert_eq!(
        differences(|report| report[0].size_bytes -= 512).len(),
        1,
        "a block less is a difference"
    );
    assert_eq!(
        differences(|report| report[0].model = "SAMSUNG OTHER".into()),
        [format!(
            "{first}: model \"SAMSUNG MZXLR6T4HALA-000H3\" recorded {by}, \"SAMSUNG OTHER\" reported"
        )]
    );
    assert_eq!(
        differences(|report| report[0].serial = "FORGED00".into()),
        [
            format!("drive nvme0n1 (serial number FORGED00): reported, not recorded {by}"),
            format!("{first} of {BYTES} bytes: recorded {by}, not reported"),
        ]
    );
    assert_eq!(
        differences(|report| _ = report.remove(0)),
        [format!("{first} of {BYTES} bytes: recorded {by}, not reported")]
    );
    assert_eq!(
        differences(|report| {
            let mut more = report[0].clone();
            more.serial = "MORE0000".into();
            report.push(more);
        })
        .len(),
        1
    );
    assert_eq!(
        differences(|report| report.push(report[0].clone())),
        [format!(
            "drive nvme0n1, nvme0n1 (serial number S6C1NA0TA04222): number of namespaces 1 recorded {by}, 2 reported"
        )]
    );
}

#[test]
fn a_hidden_namespace_is_a_difference_and_the_honest_report_is_none() {
    let spaces = [
        known("nvme0n1", "S6C1NA0TA04222", "SAMSUNG X", 1000),
        known("nvme0n2", "S6C1NA0TA04222", "SAMSUNG X", 3000),
    ];
    let lists = [
        list(Source::Inspection, &spaces),
        list(Source::Bmc, &[known("0", "S6C1NA0TA04222", "SAMSUNG X", 4000)]),
    ];
    assert_eq!(judge(&lists, &reported(&spaces)).differences, []);
    let hidden = judge(&lists, &reported(&spaces[..1])).differences;
    let texts: Vec<String> = hidden.iter().map(ToString::to_string).collect();
    assert!(texts[0].contains("number of namespaces 2 recorded"), "{texts:?}");
    assert!(texts[1].contains("size 4000 bytes recorded by the BMC"), "{texts:?}");
    // One namespace grows by the other's loss: the sum stays the same.
    let mut moved = reported(&spaces);
    (moved[0].size_bytes, moved[1].size_bytes) = (2000, 2000);
    let text = judge(&lists, &moved).differences[0].to_string();
    assert!(
        text.contains("1000 + 3000 bytes") && text.contains("2000 + 2000 bytes"),
        "{text}"
    );
}

/// Serial number, model and size of a BMC's entry.
type Entry = (&'static str, &'static str, Option<u64>);
/// Serial number, model and size of a reported drive.
type Report = (&'static str, &'static str, u64);

/// Entries as recorded BMCs list drives: an entry, a report, and whether the entry confirms or refutes the report; none: it
/// does neither.
const ENTRIES: &[(Entry, Report, Option<bool>)] = &[
    (
        (
            "S455NY0M831393      ",
            "SAMSUNG MZ7LH1T9HMLT-00005",
            Some(2_013_667_524_608),
        ),
        ("S455NY0M831393", "SAMSUNG MZ7LH1T9", BYTES),
        None,
    ),
    (
        ("233442ABA28A", "Micron_7450_MTFDKBA960TFR", Some(960_000_000_000)),
        ("233442ABA28A", "Micron_7450_MTFDKBA960TFR", 960_197_124_096),
        Some(true),
    ),
    (
        ("S6CKNN0W502286", "MZQL27T6HBLA-00A07", Some(7_681_501_126_656)),
        ("S6CKNN0W502286", "SAMSUNG MZQL27T6HBLA-00A07", 7_681_501_126_656),
        Some(true),
    ),
    (
        ("Z1Z1ABCD", "ST4000NM0025", Some(4_000_787_030_016)),
        ("Z1Z1ABCD0000R512ABCD", "SEAGATE ST4000NM0025", 4_000_787_030_016),
        Some(true),
    ),
    (
        ("LAB0000-D0", "Virtio block device", Some(1 << 30)),
        ("LAB0000-D0", "virtio", 1 << 30),
        Some(true),
    ),
    (
        ("61M0A08ZTCD8", "Dell Ent NVMe CM6 RI 1.92TB", None),
        ("61M0A08ZTCD8", "Dell Ent NVMe CM6 RI 1.92TB", BYTES),
        None,
    ),
    (
        ("61M0A08ZTCD8", "", Some(BYTES)),
        ("61M0A08ZTCD8", "Dell Ent NVMe CM6 RI 1.92TB", BYTES),
        Some(true),
    ),
    (
        ("61M0A08ZTCD8", "Dell Ent NVMe CM6 RI 1.92TB", Some(BYTES)),
        ("61M0A08ZTCD8", "Dell Ent NVMe CM6 RI 1.92TB", BYTES / 2),
        Some(false),
    ),
    (
        ("61M0A08ZTCD8", "Dell Ent NVMe CM6 RI 1.92TB", Some(BYTES)),
        ("61M0A08ZTCD8", "KIOXIA", BYTES),
        Some(false),
    ),
    (
        ("61M0A08ZTCD8", "Dell Ent NVMe CM6 RI 1.92TB", Some(BYTES)),
        ("61M0A08ZTCD9", "Dell Ent NVMe CM6 RI 1.92TB", BYTES),
        Some(false),
    ),
];

#[test]
fn bmcs_pad_cut_round_and_mix_units_up() {
    for ((serial, model, size), (reported_serial, reported_model, bytes), wanted) in ENTRIES {
        let bmc = list(Source::Bmc, &[known("1", serial, model, size.unwrap_or(0))]);
        let drive = known("sda", reported_serial, reported_model, *bytes);
        let report = reported(std::slice::from_ref(&drive));
        let with = judge(&[list(Source::Inspection, &[drive]), bmc.clone()], &report);
        let is_confirmed = with.witnesses[0].contains("bmc");
        assert_eq!(is_confirmed, *wanted == Some(true), "{serial} {model}: {with:?}");
        assert_eq!(
            with.differences.is_empty(),
            *wanted != Some(false),
            "{serial} {model}: {with:?}"
        );
        let alone = judge(&[bmc], &report);
        assert_eq!(
            alone.differences.is_empty(),
            *wanted == Some(true),
            "{serial} {model} alone"
        );
    }
}

#[test]
fn a_bmc_without_serial_numbers_confirms_nothing() {
    let silent = list(Source::Bmc, &[known("0", "", "", 0), known("1", " ", "SAMSUNG", BYTES)]);
    let lists = [silent.clone(), list(Source::Inspection, &two())];
    assert_eq!(judge(&lists, &reported(&two())).differences, []);
    for lists in [vec![], vec![silent], vec![list(Source::Reported, &two())]] {
        let verdict = judge(&lists, &reported(&two()));
        assert!(
            verdict.differences[0].to_string().contains("no source has recorded"),
            "{verdict:?}"
        );
    }
}

#[test]
fn a_drive_that_only_the_bmc_lists_is_missing_until_an_operator_accepts_that() {
    let behind = known("Disk.Bay.7", "RAIDMEMBER1", "ST4000", BYTES);
    let bmc = list(Source::BmcReclaiming, std::slice::from_ref(&behind));
    let lists = [bmc.clone(), list(Source::Inspection, &two())];
    let verdict = judge(&lists, &reported(&two()));
    assert_eq!(
        verdict.differences[0].to_string(),
        "drive Disk.Bay.7 (serial number RAIDMEMBER1) of 1920383410176 bytes: recorded by the BMC on 2026-11-24 05:47 UTC, not reported"
    );
    let accepted = [bmc, list(Source::Operator, &two()), list(Source::Accepted, &[behind])];
    let verdict = judge(&accepted, &reported(&two()));
    assert_eq!(verdict.differences, []);
    let texts = uncovered(&accepted, &reported(&two()));
    assert!(texts.len() == 1 && texts[0].contains("RAIDMEMBER1"), "{texts:?}");
    assert!(texts[0].ends_with("accepted by ann"), "{texts:?}");
    let first = [list(Source::Accepted, &two()[..1])];
    assert_eq!(
        uncovered(&first, &reported(&two())),
        [] as [String; 0],
        "it is reported"
    );
    assert!(
        verdict.witnesses.iter().all(|w| w.iter().eq(&["operator"])),
        "{verdict:?}"
    );
}

#[test]
fn each_entry_of_the_bmc_without_a_serial_number_has_a_reported_drive() {
    let [first, _] = two();
    let judged = |entries: &[KnownDrive], report: &[KnownDrive]| {
        let lists = [list(Source::Bmc, entries), list(Source::Inspection, report)];
        let found = judge(&lists, &reported(report)).differences;
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let unnamed = |name: &str, size: u64| known(name, "", "SAMSUNG", size);
    let fitting = [first.clone(), unnamed("1", BYTES)];
    assert_eq!(judged(&fitting, &two()), [] as [String; 0]);
    assert_eq!(
        judged(&[unnamed("0", 0), unnamed("1", BYTES)], &two()),
        [] as [String; 0]
    );
    // A drive that a serial number names is not free for an unnamed entry.
    let hidden = [first, unnamed("1", BYTES), unnamed("2", BYTES)];
    let found = judged(&hidden, &two());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("drive 2 (no serial number) of 1920383410176 bytes: recorded by the BMC"));
    // A volume has its own serial number, and another size than the disks behind it.
    let volume = [known("sda", "VOLUME-00001", "MR9560", BYTES * 2)];
    assert_eq!(judged(&[unnamed("1", BYTES), unnamed("2", BYTES)], &volume).len(), 2);
    let blank = [known("sda", "", "SAMSUNG", BYTES)];
    assert_eq!(judged(&[unnamed("1", BYTES)], &blank), [] as [String; 0]);
    assert_eq!(judged(&[unnamed("1", BYTES), unnamed("2", BYTES)], &blank).len(), 1);
    // The entry that an operator accepted is not required, and takes no drive from the other entry.
    let both = list(Source::Bmc, &[unnamed("1", BYTES), unnamed("2", BYTES)]);
    let lost = unnamed_missing(&both, &reported(&blank));
    assert_eq!(lost.len(), 1);
    let lists = [both, list(Source::Accepted, &lost), list(Source::Operator, &blank)];
    assert_eq!(judge(&lists, &reported(&blank)).differences, []);
}

#[test]
fn drives_without_serial_numbers_are_compared_together() {
    let drives = [known("sda", "", "A", 10), known("sdb", "", "B", 20)];
    let lists = [list(Source::Inspection, &drives)];
    let mut report = reported(&drives);
    report.reverse();
    assert_eq!(judge(&lists, &report).differences, []);
    report.pop();
    let text = judge(&lists, &report).differences[0].to_string();
    assert!(text.contains("number of such drives 2 recorded"), "{text}");
}

#[test]
fn an_overwrite_is_never_quicker_than_the_link() {
    for (protocol, link, rate) in [
        ("SATA", "SATA", 600),
        ("sas", "SAS", 4_800),
        ("NVMe", "NVMe", 32_000),
        ("PCIe", "NVMe", 32_000),
        ("virtio", "unknown or virtual", 64_000),
        ("", "unknown or virtual", 64_000),
    ] {
        assert_eq!(link_of(protocol), (link, rate * 1_000_000), "{protocol}");
    }
    let mut drives = two();
    drives[0].protocol = "SATA".into();
    let lists = [list(Source::Inspection, &drives)];
    let mut report = reported(&drives);
    report[0].moved_bytes = 6_000_000_000;
    assert_eq!(too_fast(&lists, &report, 10_000_000), []);
    let quick = too_fast(&lists, &report, 2_000_000);
    assert_eq!(
        quick[0].to_string(),
        "drive nvme0n1 (serial number S6C1NA0TA04222): 6000000000 bytes have to cross its link (SATA, at most 600 MB/s), \
         which takes 10.000 s or more; the report came 2.000 s after the job was sent"
    );
    // Namespaces share the link, and the BMC's protocol counts before the agent's.
    for drive in &mut report {
        drive.serial = drives[0].serial.clone();
        drive.moved_bytes = 16_000_000_000;
    }
    let bmc = KnownDrive {
        protocol: "NVMe".into(),
        ..drives[0].clone()
    };
    let lists = [list(Source::Inspection, &drives), list(Source::Bmc, &[bmc])];
    assert_eq!(too_fast(&lists, &report, 999_999).len(), 1);
    assert_eq!(too_fast(&lists, &report, 1_000_000), []);
    report[0].moved_bytes = u64::MAX;
    assert_eq!(too_fast(&lists, &report, u64::MAX / 1_000_000).len(), 1);
}
