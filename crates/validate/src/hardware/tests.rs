use rackwright_health::facts::{BEGIN, END};

use super::*;

fn profile() -> Profile {
    Profile::embedded_default().unwrap()
}

fn reading(rows: &[&str]) -> HardwareReading {
    let done = ["host", "pci", "infiniband", "nvme", "memory", "log", "gpus"]
        .map(|name| format!("section\tms=5\tname={name}\tstate=done\n"))
        .concat();
    let text = format!("{BEGIN}\n{}\n{done}{END}\n", rows.join("\n"));
    HardwareReading {
        facts: Ok(Facts::parse(&text).unwrap()),
        left: None,
    }
}

/// A machine with a GPU, without its driver; its login may lock little memory.
const GPU: [&str; 2] = [
    "host\tarchitecture=x86_64\tmemlock=8388608\tuptime_s=60",
    "pci\taddress=0000:1b:00.0\tclass=0x030200\tvendor=0x10de\twidth=8\tmax_width=16\tspeed=32.0 GT/s\tmax_speed=32.0 GT/s",
];
const NO_LIBRARY: &str = "nvml\twhy=libnvidia-ml.so.1 cannot be loaded";

fn of<'a>(checks: &'a [Check], id: &str) -> &'a Check {
    checks.iter().find(|check| check.id == id).unwrap()
}

#[test]
fn a_fault_fails_and_the_rest_is_reported_by_the_profile() {
    let (mut profile, reading) = (profile(), reading(&[GPU[0], GPU[1], NO_LIBRARY]));
    let checks = judge_hardware(&profile, Ok(&reading));
    let ids: Vec<&str> = checks.iter().map(|check| check.id.as_str()).collect();
    assert_eq!(ids, hardware_checks().collect::<Vec<_>>());
    assert_eq!(of(&checks, PROBE_CHECK).verdict(), Verdict::Pass, "{checks:?}");
    let links = of(&checks, "pcie-links");
    assert_eq!(links.verdict(), Verdict::Fail);
    assert!(
        links
            .detail
            .starts_with("gpu 0000:1b:00.0: PCIe link at x8 32 GT/s of x16 32 GT/s"),
        "{links:?}"
    );
    for (id, words) in [
        ("gpu-presence", "not proven, because libnvidia-ml.so.1 cannot be loaded"),
        ("readiness-memlock", "not ready: system: a login may lock 8388608 bytes"),
    ] {
        let check = of(&checks, id);
        assert_eq!(check.verdict(), Verdict::NotApplicable, "{check:?}");
        assert!(check.detail.starts_with(words), "{check:?}");
    }
    (profile.unproven, profile.readiness) = (Unexpected::Fail, Unexpected::Fail);
    let checks = judge_hardware(&profile, Ok(&reading));
    for id in ["gpu-presence", "readiness-memlock"] {
        assert_eq!(of(&checks, id).verdict(), Verdict::Fail, "{id}");
    }
    profile.skip = vec!["pcie-links".into(), "gpu-presence".into()];
    let checks = judge_hardware(&profile, Ok(&reading));
    for id in ["pcie-links", "gpu-presence"] {
        assert_eq!(of(&checks, id).detail, "the profile skips this check");
    }
}

#[test]
fn a_machine_without_gpus_passes_and_states_why_little_applies() {
    let checks = judge_hardware(
        &profile(),
        Ok(&reading(&["host\tarchitecture=x86_64\tmemlock=8388608"])),
    );
    assert!(
        checks.iter().all(|check| check.verdict() != Verdict::Fail),
        "{checks:?}"
    );
    assert_eq!(of(&checks, "gpu-presence").detail, "no GPU");
    assert_eq!(of(&checks, "kernel-log").verdict(), Verdict::Pass);
    let memlock = of(&checks, "readiness-memlock");
    assert_eq!(
        (memlock.verdict(), memlock.measured.as_str()),
        (Verdict::NotApplicable, "8388608 bytes")
    );
}

#[test]
fn a_section_that_hangs_a_part_that_stays_and_a_missing_output_fail() {
    let rows = format!("{BEGIN}\nsection\tms=20000\tname=nvme\tstate=hung\n{END}\n");
    let hung = HardwareReading {
        facts: Ok(Facts::parse(&rows).unwrap()),
        left: None,
    };
    let left = HardwareReading {
        left: Some("/run/rackwright-probe-1 could not be removed".into()),
        ..reading(&[])
    };
    let silent = HardwareReading {
        facts: Err("/run: exit status 126; Permission denied".into()),
        left: None,
    };
    for (reading, words) in [
        (hung, "a driver hangs"),
        (left, "could not be removed"),
        (silent, "Permission denied"),
    ] {
        let checks = judge_hardware(&profile(), Ok(&reading));
        assert_eq!(checks[0].verdict(), Verdict::Fail, "{checks:?}");
        assert!(checks[0].detail.contains(words), "{checks:?}");
    }
}

#[test]
fn without_a_probe_one_row_says_why() {
    let checks = judge_hardware(&profile(), Err("hardware_probe.program is not set"));
    assert_eq!(checks.len(), 1);
    assert_eq!(
        (checks[0].verdict(), checks[0].measured.as_str()),
        (Verdict::NotApplicable, "not run")
    );
    let mut profile = profile();
    profile.skip = vec![PROBE_CHECK.into()];
    let checks = judge_hardware(&profile, Ok(&reading(&[])));
    assert_eq!(
        (checks.len(), checks[0].detail.as_str()),
        (1, "the profile skips this check")
    );
}
