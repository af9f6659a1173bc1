//! One machine that passes every check, and one change for each case.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rackwright_api::v1::{Cpu, Drive, MemoryModule, Nic, PciDevice};

use super::*;
use crate::profile::Unexpected;
use crate::readings::{ClockReading, DiskRead, DriveReading, ImageMarker, NicReading, PciReading};

const GIB: u64 = 1 << 30;

struct Case {
    profile: Profile,
    expected: Expected,
    readings: Readings,
    clock: ClockSpan,
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_790_000_000) + Duration::from_millis(ms)
}

fn inventory() -> Inventory {
    let drive = |name: &str, serial: &str, size_bytes| Drive {
        name: name.into(),
        serial_number: serial.into(),
        size_bytes,
        ..Drive::default()
    };
    let pci = |address: &str, device_id| PciDevice {
        address: address.into(),
        vendor_id: 0x1af4,
        device_id,
        ..PciDevice::default()
    };
    Inventory {
        cpus: vec![
            Cpu {
                threads: 2,
                ..Cpu::default()
            },
            Cpu {
                threads: 2,
                ..Cpu::default()
            },
        ],
        memory_bytes: 8 * GIB,
        drives: vec![
            drive("vda", "A1", 10 * GIB),
            drive("vdb", "", 10 * GIB),
            Drive {
                removable: true,
                ..drive("sdz", "usb", GIB)
            },
        ],
        nics: vec![
            Nic {
                name: "eth0".into(),
                mac: "52:54:00:AA:BB:01".into(),
                ..Nic::default()
            },
            Nic {
                name: "ib0".into(),
                mac: "80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:aa".into(),
                ..Nic::default()
            },
        ],
        pci_devices: vec![
            pci("0000:00:02.0", 0x1000),
            pci("0000:00:03.0", 0x1001),
            pci("0000:00:04.0", 0x1001),
        ],
        ..Inventory::default()
    }
}

fn readings() -> Readings {
    let found = |name: &str, serial: &str, size_bytes| DriveReading {
        name: name.into(),
        size_bytes,
        removable: false,
        serial: serial.into(),
    };
    let seen = |address: &str, device_id| PciReading {
        address: address.into(),
        vendor_id: 0x1af4,
        device_id,
        virtual_function: false,
    };
    Readings {
        boot_id: "22222222-2222-4222-8222-222222222222".into(),
        kernel_release: "6.1.0-18-amd64".into(),
        hostname: "gpu-001".into(),
        cpus: Some(4),
        memory_bytes: Some(8 * GIB - 40 * (1 << 20)),
        drives: vec![found("vdb", "A1", 10 * GIB), found("vda", "B2", 10 * GIB)],
        nics: vec![NicReading {
            name: "ens3".into(),
            kind: 1,
            mac: "52:54:00:aa:bb:01".into(),
        }],
        pci_devices: vec![
            seen("0000:00:02.0", 0x1000),
            seen("0000:00:07.0", 0x1001),
            seen("0000:00:08.0", 0x1001),
        ],
        clock: Some(ClockReading {
            time: at(60),
            resolution: Duration::from_nanos(1),
        }),
        systemd_state: "running".into(),
        root_drive: "vda".into(),
        disk_read: Some(DiskRead {
            name: "vda".into(),
            bytes: 64 << 20,
            duration: Duration::from_millis(300),
            method: "direct".into(),
        }),
        image: ImageMarker {
            digest: "b3-aa".into(),
            generation: Some(7),
        },
        ..Readings::default()
    }
}

fn healthy() -> Case {
    Case {
        profile: Profile::embedded_default().unwrap(),
        expected: Expected {
            inventory: inventory(),
            former_boot_id: Some("11111111-1111-4111-8111-111111111111".into()),
            image_digest: "b3-aa".into(),
            claim_generation: 7,
            hostname: "gpu-001.rack.example".into(),
            image_patterns: ImagePatterns::default(),
        },
        readings: readings(),
        clock: ClockSpan {
            sent: at(0),
            received: at(100),
        },
    }
}

fn report(change: impl FnOnce(&mut Case)) -> Vec<Check> {
    let mut case = healthy();
    change(&mut case);
    judge(&case.profile, &case.expected, &case.readings, &case.clock)
}

/// Checks with another verdict than on the healthy machine, as `id: verdict: detail`.
fn differences(change: impl FnOnce(&mut Case)) -> Vec<String> {
    let healthy = report(|_| {});
    report(change)
        .iter()
        .zip(&healthy)
        .filter(|(check, usual)| check.verdict != usual.verdict)
        .map(|(check, _)| format!("{}: {:?}: {}", check.id, check.verdict(), check.detail))
        .collect()
}

/// Asserts that the change alters the verdict of exactly one check, and that its sentence contains `says`.
#[track_caller]
fn alters(id: &str, verdict: Verdict, says: &str, change: impl FnOnce(&mut Case)) {
    let found = differences(change);
    let expected = format!("{id}: {verdict:?}: ");
    assert!(
        matches!(found.as_slice(), [one] if one.starts_with(&expected) && one.contains(says)),
        "wanted {expected}…{says}…, got {found:?}"
    );
}

#[track_caller]
fn fails(id: &str, says: &str, change: impl FnOnce(&mut Case)) {
    alters(id, Verdict::Fail, says, change);
}

#[track_caller]
fn same(change: impl FnOnce(&mut Case)) {
    assert_eq!(differences(change), Vec::<String>::new());
}

#[test]
fn a_healthy_machine_passes_every_check() {
    let checks = report(|_| {});
    assert_eq!(checks.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), CHECKS);
    for check in &checks {
        let expected = if check.id == "os" {
            Verdict::NotApplicable
        } else {
            Verdict::Pass
        };
        assert_eq!(check.verdict(), expected, "{check:?}");
        assert!(!check.source.is_empty() && !check.measured.is_empty());
    }
    assert!(passed(&checks));
    assert!(!passed(&[]), "nothing judged is not passed");
}

#[test]
fn boot_image_and_name() {
    fails("boot-id-changed", "not rebooted", |c| {
        c.readings.boot_id = c.expected.former_boot_id.clone().unwrap().to_uppercase();
    });
    fails("boot-id-changed", "no /proc", |c| c.readings.boot_id.clear());
    alters(
        "boot-id-changed",
        Verdict::NotApplicable,
        "boot id before the reboot is unknown",
        |c| c.expected.former_boot_id = None,
    );
    fails("image-marker", "did not read its seed", |c| {
        c.readings.image = ImageMarker::default()
    });
    fails("image-marker", "another installation", |c| {
        c.readings.image.digest = "b3-bb".into()
    });
    fails("image-marker", "another installation", |c| {
        c.readings.image.generation = Some(6)
    });
    fails("image-marker", "another installation", |c| {
        c.readings.image.generation = None
    });
    fails("hostname", "seed", |c| c.readings.hostname = "localhost".into());
    same(|c| c.readings.hostname = "gpu-001.rack.example".into());
}

#[test]
fn os_and_kernel() {
    alters("os", Verdict::Pass, "", |c| c.readings.os.id = "debian".into());
    fails("os", "ID is \"debian\"", |c| {
        c.profile.os_id = Some("ubuntu".into());
        c.readings.os.id = "debian".into();
    });
    fails("os", "VERSION_ID is \"\"", |c| {
        c.profile.os_version_id = Some("12".into())
    });
    fails("kernel", "another kernel", |c| c.profile.kernel = Some("5.*".into()));
    same(|c| c.profile.kernel = Some("6.1.*-amd64".into()));
    alters("kernel", Verdict::NotApplicable, "reports no value", |c| {
        c.readings.kernel_release.clear()
    });
}

/// The healthy machine with Debian 12, as its image states.
fn debian(change: impl FnOnce(&mut Case)) -> Vec<Check> {
    let mut checks = report(|c| {
        c.readings.os.id = "debian".into();
        c.readings.os.version_id = "12".into();
        c.expected.image_patterns = ImagePatterns {
            os_id: Some("debian".into()),
            os_version_id: Some("12*".into()),
            kernel: Some("6.1.*".into()),
        };
        change(c);
    });
    checks.retain(|c| c.id == "os" || c.id == "kernel");
    checks
}

#[track_caller]
fn judged(checks: &[Check], id: &str, verdict: Verdict, threshold: &str, source: &str) {
    let check = checks.iter().find(|c| c.id == id).unwrap();
    let verdict_row = (check.verdict(), check.threshold.as_str(), check.source.as_str());
    assert_eq!(verdict_row, (verdict, threshold, source), "{check:?}");
}

#[test]
fn claims_of_the_image_are_compared_with_the_profile() {
    let same = debian(|_| {});
    let os = "ID=debian (image), VERSION_ID=12* (image)";
    judged(&same, "os", Verdict::Pass, os, "image");
    judged(&same, "kernel", Verdict::Pass, "6.1.* (image)", "image");

    let other = debian(|c| {
        c.readings.os.version_id = "11".into();
        c.readings.kernel_release = "5.10.0-30-amd64".into();
    });
    judged(&other, "os", Verdict::Fail, os, "image");
    assert!(other[0].detail.contains("VERSION_ID is \"11\""), "{other:?}");
    judged(&other, "kernel", Verdict::Fail, "6.1.* (image)", "image");
    assert!(other[1].detail.contains("than the image expects"), "{other:?}");

    // Both patterns must hold, and the report names the source of the one that fails.
    let both = debian(|c| {
        c.profile.os_id = Some("ubuntu".into());
        c.profile.kernel = Some("6.*".into());
    });
    let threshold = format!("{os}, ID=ubuntu (profile default)");
    judged(&both, "os", Verdict::Fail, &threshold, "image, profile default");
    assert!(
        both[0].detail.contains("the profile default expects ubuntu"),
        "{both:?}"
    );
    assert!(!both[0].detail.contains("the image expects"), "{both:?}");
    let kernels = "6.1.* (image), 6.* (profile default)";
    judged(&both, "kernel", Verdict::Pass, kernels, "image, profile default");

    // A system without os-release does not match the image's patterns.
    let silent = debian(|c| {
        c.readings.os = Default::default();
        c.readings.kernel_release.clear();
    });
    assert!(
        silent
            .iter()
            .all(|c| c.verdict() == Verdict::Fail && c.measured == "unreadable")
    );
}

/// A reimage to another OS: the same SKU and profile, but other statements of the image.
#[test]
fn another_image_is_judged_by_its_own_claims() {
    let to_ubuntu = |says: &str| {
        let says = Some(says.to_owned());
        debian(move |c| {
            c.readings.os.id = "ubuntu".into();
            c.expected.image_patterns = ImagePatterns {
                os_id: says,
                ..ImagePatterns::default()
            };
        })
    };
    judged(&to_ubuntu("ubuntu"), "os", Verdict::Pass, "ID=ubuntu (image)", "image");
    judged(&to_ubuntu("debian"), "os", Verdict::Fail, "ID=debian (image)", "image");
}

#[test]
fn processors_and_memory() {
    fails("cpu-count", "missing", |c| c.readings.cpus = Some(3));
    fails("cpu-count", "more", |c| c.readings.cpus = Some(8));
    fails("cpu-count", "not readable", |c| c.readings.cpus = None);
    alters("cpu-count", Verdict::NotApplicable, "", |c| {
        c.expected.inventory.cpus.clear()
    });
    fails("memory", "6.2 % less", |c| {
        c.readings.memory_bytes = Some(8 * GIB - GIB / 2)
    });
    fails("memory", "6.2 % more", |c| {
        c.readings.memory_bytes = Some(8 * GIB + GIB / 2)
    });
    fails("memory", "not readable", |c| c.readings.memory_bytes = None);
    same(|c| {
        c.readings.memory_bytes = Some(8 * GIB - GIB / 2);
        c.profile.memory_tolerance_percent = 6.25;
    });
    fails("memory", "less", |c| c.profile.memory_tolerance_percent = 0.0);
    alters("memory", Verdict::NotApplicable, "", |c| {
        c.expected.inventory.memory_bytes = 0
    });
}

/// 24 modules of 32 GiB; the agent's kernel can use all except 1.6 %.
fn of_24_modules(case: &mut Case) {
    let module = MemoryModule {
        size_bytes: 32 * GIB,
        ..MemoryModule::default()
    };
    case.expected.inventory.memory_modules = vec![module; 24];
    case.expected.inventory.memory_bytes = 756 * GIB;
    case.readings.memory_modules = vec![32 * GIB; 24];
    case.readings.memory_bytes = Some(755 * GIB);
}

#[test]
fn one_module_of_24_is_missed() {
    same(of_24_modules);
    // Both kernels report less, and the table has one module less.
    fails(
        "memory",
        "4.4 % less than the inventory; the memory modules differ",
        |c| {
            of_24_modules(c);
            c.readings.memory_modules.pop();
            c.readings.memory_bytes = Some(723 * GIB);
        },
    );
    // The firmware lists a module, but the kernel may not use it.
    fails("memory", "4.4 % less", |c| {
        of_24_modules(c);
        c.readings.memory_bytes = Some(723 * GIB);
    });
    // An image that cannot read the table.
    fails("memory", "4.4 % less", |c| {
        of_24_modules(c);
        c.readings.memory_modules.clear();
        c.readings.memory_bytes = Some(723 * GIB);
    });
    // A generous tolerance does not matter: modules are equal or they are not.
    let halved = |c: &mut Case| {
        of_24_modules(c);
        c.profile.memory_tolerance_percent = 50.0;
        c.readings.memory_modules[7] = 16 * GIB;
    };
    fails(
        "memory",
        "the memory modules differ from the memory modules of the inventory",
        halved,
    );
    let memory = report(halved).into_iter().find(|c| c.id == "memory").unwrap();
    assert!(memory.measured.contains("in 24 modules") && memory.threshold.contains("in 24 modules"));
    // The agent could not read the table: nothing is compared.
    same(|c| {
        of_24_modules(c);
        c.expected.inventory.memory_modules.clear();
    });
}

#[test]
fn drives_by_serial_and_size() {
    fails("drives", "missing: vda (A1", |c| {
        c.readings.drives[0].serial = "other".into()
    });
    fails("drives", "missing", |c| {
        c.readings.drives.pop();
    });
    fails("drives", "missing: vda (A1, 10737418240 bytes)", |c| {
        c.readings.drives[0].size_bytes -= 512
    });
    fails("drives", "not in the inventory: sdx (Z", |c| {
        c.readings.drives.push(DriveReading {
            name: "sdx".into(),
            size_bytes: GIB,
            removable: false,
            serial: "Z".into(),
        });
    });
    let with_stranger = |c: &mut Case| {
        c.readings.drives.push(DriveReading {
            name: "sdx".into(),
            size_bytes: GIB,
            ..DriveReading::default()
        });
    };
    same(|c| {
        with_stranger(c);
        c.profile.unexpected_drives = Unexpected::Allow;
    });
    same(|c| {
        with_stranger(c);
        c.readings.drives[2].removable = true;
    });
    // A kernel without serial numbers: the sizes must do.
    same(|c| c.readings.drives.iter_mut().for_each(|d| d.serial.clear()));
    alters("drives", Verdict::NotApplicable, "no drives", |c| {
        c.expected.inventory.drives.clear()
    });
}

#[test]
fn a_nameless_drive_does_not_take_the_place_of_a_named_one() {
    same(|c| {
        c.expected.inventory.drives.reverse();
        c.readings.drives.reverse();
    });
}

#[test]
fn interfaces_by_mac() {
    fails("nics", "missing: 52:54:00:aa:bb:01 (eth0)", |c| c.readings.nics.clear());
    fails("nics", "missing", |c| {
        c.readings.nics[0].mac = "52:54:00:aa:bb:02".into()
    });
    let with_usb = |c: &mut Case| {
        c.readings.nics.push(NicReading {
            name: "usb0".into(),
            kind: 1,
            mac: "02:00:00:00:00:01".into(),
        });
    };
    same(with_usb);
    let mentioned = report(with_usb).into_iter().find(|c| c.id == "nics").unwrap();
    assert!(mentioned.detail.contains("02:00:00:00:00:01 (usb0)"));
    fails("nics", "not in the inventory", |c| {
        with_usb(c);
        c.profile.unexpected_nics = Unexpected::Fail;
    });
}

#[test]
fn pci_by_kind_and_number() {
    fails("pci-devices", "missing: 1× 1af4:1001", |c| {
        c.readings.pci_devices.pop();
    });
    let more = |virtual_function, address: &str| PciReading {
        address: address.into(),
        vendor_id: 0x15b3,
        device_id: 0x101e,
        virtual_function,
    };
    fails("pci-devices", "not in the inventory: 1× 15b3:101e", |c| {
        c.readings.pci_devices.push(more(false, "0000:3b:00.1"));
    });
    same(|c| c.readings.pci_devices.push(more(true, "0000:3b:00.1")));
    same(|c| c.readings.pci_devices.push(more(false, "10000:01:00.0")));
    fails("pci-devices", "1af4:1000", |c| {
        c.readings.pci_devices[0].device_id = 0x1001
    });
}

#[test]
fn a_long_list_is_cut() {
    let check = report(|c| c.readings.nics.clear());
    assert!(passed(&report(|_| {})) && !passed(&check));
    let many = report(|c| {
        c.expected.inventory.nics = (0..20)
            .map(|n| Nic {
                name: format!("e{n}"),
                mac: format!("02:00:00:00:00:{n:02x}"),
                ..Nic::default()
            })
            .collect();
    });
    let nics = many.iter().find(|c| c.id == "nics").unwrap();
    assert!(nics.detail.contains("and 12 more"), "{}", nics.detail);
}

#[test]
fn clock_offsets() {
    let set = |ms: u64| {
        move |c: &mut Case| {
            c.readings.clock = Some(ClockReading {
                time: at(ms),
                resolution: Duration::from_nanos(1),
            })
        }
    };
    same(set(2_599));
    fails("clock-offset", "ahead", set(2_601));
    fails("clock-offset", "behind", |c| {
        c.clock = ClockSpan {
            sent: at(10_000),
            received: at(10_100),
        };
        c.readings.clock = Some(ClockReading {
            time: at(7_499),
            resolution: Duration::from_nanos(1),
        });
    });
    // A clock of whole seconds: the true time may be up to 0.9 s later.
    same(|c| {
        c.clock = ClockSpan {
            sent: at(3_400),
            received: at(3_500),
        };
        c.readings.clock = Some(ClockReading {
            time: at(0),
            resolution: Duration::from_secs(1),
        });
    });
    fails("clock-offset", "behind", |c| {
        c.clock = ClockSpan {
            sent: at(3_600),
            received: at(3_700),
        };
        c.readings.clock = Some(ClockReading {
            time: at(0),
            resolution: Duration::from_secs(1),
        });
    });
    fails("clock-offset", "too slowly", |c| c.clock.received = at(6_000));
    fails("clock-offset", "no time", |c| c.readings.clock = None);
}

#[test]
fn read_rates() {
    fails("disk-read-rate", "too slowly", |c| {
        c.profile.disk_read_min_mb_per_s = 224.0
    });
    same(|c| c.profile.disk_read_min_mb_per_s = 223.0);
    fails("disk-read-rate", "no readable drive", |c| c.readings.disk_read = None);
    fails("disk-read-rate", "dd said no", |c| {
        c.readings.disk_read = None;
        c.readings.disk_read_error = "dd said no".into();
    });
}

#[test]
fn service_manager() {
    same(|c| c.readings.systemd_state = "none".into());
    fails("systemd-state", "failed units: a.service, b.service", |c| {
        c.readings.systemd_state = "degraded".into();
        c.readings.failed_units = vec!["a.service".into(), "b.service".into()];
    });
    same(|c| {
        c.readings.systemd_state = "degraded".into();
        c.readings.failed_units = vec!["a.service".into()];
        c.profile.ignored_failed_units = vec!["a.*".into()];
    });
    fails("systemd-state", "names no failed unit", |c| {
        c.readings.systemd_state = "degraded".into();
        c.profile.ignored_failed_units = vec!["*".into()];
    });
    fails("systemd-state", "still starting after 180 s", |c| {
        c.readings.systemd_state = "starting".into()
    });
    fails("systemd-state", "systemd is maintenance", |c| {
        c.readings.systemd_state = "maintenance".into()
    });
    fails("systemd-state", "no state", |c| c.readings.systemd_state.clear());
}

#[test]
fn skipped_checks_are_marked() {
    alters("nics", Verdict::NotApplicable, "skips", |c| {
        c.readings.nics.clear();
        c.profile.skip = vec!["nics".into()];
    });
    let all = report(|c| c.profile.skip = CHECKS.iter().map(|id| (*id).into()).collect());
    assert!(!passed(&all), "a profile that skips everything passes nothing");
}
