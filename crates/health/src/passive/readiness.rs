//! Settings of the host that GPUs and adapters need to reach their rated speed together. Each fault has a remedy.

use std::collections::BTreeSet;

use super::pcie::{Device, Role};
use super::{Fault, Finding, State, plural};
use crate::component::{Component, Kind};
use crate::errors::Severity;
use crate::facts::{Facts, Row};

const SOURCE: &str = "NVIDIA, GPUDirect";
/// The size of read requests that adapters need, in bytes.
const READ_REQUEST: u32 = 4096;
/// Bits of PCI Express Access Control Services (ACS), P2P Request Redirect and P2P Completion Redirect: traffic between
/// devices goes through the root complex.
const REDIRECT: u16 = 0x04 | 0x08;
/// The checks of this module.
const CHECKS: [&str; 6] = [
    "readiness-iommu",
    "readiness-acs",
    "readiness-read-request",
    "readiness-memlock",
    "readiness-governor",
    "readiness-numa",
];

/// Checks the settings. Without GPUs and adapters every check is "not applicable".
pub(super) fn judge(facts: &Facts, devices: &[Device<'_>]) -> Vec<Finding> {
    let of = |role: Role| -> Vec<Device<'_>> {
        devices
            .iter()
            .filter(|device| device.role == role && !device.is_emulated())
            .copied()
            .collect()
    };
    let (gpus, hcas) = (of(Role::Gpu), of(Role::Hca));
    let host = facts.row("host");
    let missing = facts.missing("pci").or_else(|| facts.missing("host"));
    let (Some(host), None) = (host, &missing) else {
        let why = missing.unwrap_or_else(|| "the probe did not read the host".to_owned());
        let not_read = |check: &&'static str| Finding::without(check, State::NotProven(why.clone()), "not read");
        return CHECKS.iter().map(not_read).collect();
    };
    let findings = vec![
        iommu(host),
        acs(devices),
        read_request(&hcas),
        memlock(host),
        governor(host),
        numa(&gpus, &hcas),
    ];
    if !gpus.is_empty() || !hcas.is_empty() {
        return findings;
    }
    // The findings show the values, without a judgement.
    let idle = |finding: Finding| {
        let why = "neither a GPU nor an InfiniBand or RoCE adapter needs it".to_owned();
        Finding::without(finding.check, State::NotApplicable(why), finding.measured)
    };
    findings.into_iter().map(idle).collect()
}

fn system(words: String, remedy: impl Into<String>) -> Vec<Fault> {
    vec![Fault {
        component: Component::new(Kind::System, ""),
        severity: Severity::Degraded,
        remedy: remedy.into(),
        words,
    }]
}

/// x86 needs an IOMMU that does not translate (none, or passthrough). Grace (aarch64) needs translation for its links.
fn iommu(host: &Row) -> Finding {
    const CHECK: &str = "readiness-iommu";
    let types: BTreeSet<&str> = host.all("iommu_type_").map(|(kind, _)| kind).collect();
    let translated = types.iter().any(|kind| kind.starts_with("DMA"));
    let measured = match types.len() {
        0 => "no IOMMU".to_owned(),
        _ => types.iter().copied().collect::<Vec<_>>().join(", "),
    };
    if host.get("architecture") == Some("aarch64") {
        let faults = if translated {
            Vec::new()
        } else {
            system(
                format!("the IOMMU is {measured}"),
                "remove iommu.passthrough=1 from the kernel's command line",
            )
        };
        return Finding::of(CHECK, measured, "translated", SOURCE, faults);
    }
    let faults = if translated {
        let words = "the IOMMU translates the addresses of devices, so that data between them goes through the root";
        system(
            words.to_owned(),
            "add iommu=pt to the kernel's command line and restart",
        )
    } else {
        Vec::new()
    };
    Finding::of(CHECK, measured, "no IOMMU, or identity (passthrough)", SOURCE, faults)
}

fn acs(devices: &[Device<'_>]) -> Finding {
    const CHECK: &str = "readiness-acs";
    let bridges: Vec<&Device<'_>> = devices.iter().filter(|device| device.role == Role::Bridge).collect();
    let control = |device: &&&Device<'_>| {
        let text = device.row.get("acs")?;
        u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    let with = bridges.iter().filter(|bridge| control(bridge).is_some()).count();
    let redirecting = bridges
        .iter()
        .filter(|bridge| control(bridge).is_some_and(|bits| bits & REDIRECT != 0));
    let faults: Vec<Fault> = redirecting
        .map(|bridge| Fault {
            component: Component::new(Kind::System, format!("bridge {}", bridge.address())),
            severity: Severity::Degraded,
            remedy: format!(
                "setpci -s {} ECAP_ACS+6.w=0000, or the firmware's setting of ACS",
                bridge.address()
            ),
            words: format!(
                "access control {} redirects data between devices to the root",
                bridge.row.text("acs")
            ),
        })
        .collect();
    let measured = format!(
        "{}, {with} with access control, {} redirect",
        plural(bridges.len(), "bridge"),
        faults.len()
    );
    let hidden: Vec<&str> = bridges
        .iter()
        .filter(|bridge| bridge.row.get("config") == Some("short"))
        .map(|bridge| bridge.address())
        .collect();
    let mut finding = Finding::of(CHECK, measured, "no bridge redirects", SOURCE, faults);
    if finding.faults.is_empty() && !hidden.is_empty() {
        let why = format!("the kernel hides the extended configuration of {}", hidden.join(", "));
        finding.state = State::NotProven(why);
    }
    finding
}

fn read_request(hcas: &[Device<'_>]) -> Finding {
    const CHECK: &str = "readiness-read-request";
    let size = |hca: &Device<'_>| hca.row.number::<u32>("read_request");
    let mut faults = Vec::new();
    for hca in hcas {
        if let Some(bytes) = size(hca).filter(|bytes| *bytes < READ_REQUEST) {
            faults.push(Fault {
                component: Component::new(Kind::System, format!("adapter {}", hca.address())),
                severity: Severity::Degraded,
                remedy: format!("setpci -s {} CAP_EXP+8.w=5000:7000", hca.address()),
                words: format!("reads at most {bytes} bytes in a request"),
            });
        }
    }
    let sizes: BTreeSet<u32> = hcas.iter().filter_map(size).collect();
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    let measured = match sizes.len() {
        0 => plural(hcas.len(), "adapter"),
        _ => format!("{}, {} bytes", plural(hcas.len(), "adapter"), sizes.join(" and ")),
    };
    if hcas.is_empty() {
        return Finding::without(CHECK, State::NotApplicable("there is no adapter".to_owned()), measured);
    }
    let mut finding = Finding::of(CHECK, measured, &format!("{READ_REQUEST} bytes"), SOURCE, faults);
    if finding.faults.is_empty() && hcas.iter().any(|hca| size(hca).is_none()) {
        finding.state = State::NotProven("the configuration of an adapter is not readable".to_owned());
    }
    finding
}

fn memlock(host: &Row) -> Finding {
    const CHECK: &str = "readiness-memlock";
    let Some(limit) = host.get("memlock") else {
        let why = "the limit of locked memory is not readable".to_owned();
        return Finding::without(CHECK, State::NotProven(why), "not read");
    };
    let faults = if limit == "unlimited" {
        Vec::new()
    } else {
        let remedy =
            "set `* - memlock unlimited` in /etc/security/limits.d and DefaultLimitMEMLOCK=infinity in systemd";
        system(
            format!("a login may lock {limit} bytes; adapters need locked memory"),
            remedy,
        )
    };
    let measured = if faults.is_empty() {
        limit.to_owned()
    } else {
        format!("{limit} bytes")
    };
    Finding::of(CHECK, measured, "unlimited", "libibverbs, memory regions", faults)
}

fn governor(host: &Row) -> Finding {
    const CHECK: &str = "readiness-governor";
    let found: Vec<(&str, &str)> = host.all("governor_").collect();
    if found.is_empty() {
        let why = "the kernel does not control the processor's frequency".to_owned();
        return Finding::without(CHECK, State::NotApplicable(why), "no governor");
    }
    let words: Vec<String> = found
        .iter()
        .map(|(name, count)| format!("{name} on {count} processors"))
        .collect();
    let faults = if found.iter().all(|(name, _)| *name == "performance") {
        Vec::new()
    } else {
        system(words.join(", "), "cpupower frequency-set -g performance")
    };
    Finding::of(
        CHECK,
        words.join(", "),
        "performance",
        "NVIDIA, DGX performance settings",
        faults,
    )
}

/// Each GPU has an adapter on its NUMA node.
fn numa(gpus: &[Device<'_>], hcas: &[Device<'_>]) -> Finding {
    const CHECK: &str = "readiness-numa";
    let node = |device: &Device<'_>| device.row.number::<i32>("numa").filter(|node| *node >= 0);
    let words = |devices: &[Device<'_>]| -> String {
        let nodes = devices
            .iter()
            .map(|device| node(device).map_or("?".to_owned(), |node| node.to_string()));
        nodes.collect::<Vec<_>>().join(" ")
    };
    let measured = format!("GPUs on nodes {}, adapters on nodes {}", words(gpus), words(hcas));
    if gpus.is_empty() || hcas.is_empty() {
        let why = "there is no pair of GPU and adapter".to_owned();
        let measured = format!("{}, {}", plural(gpus.len(), "GPU"), plural(hcas.len(), "adapter"));
        return Finding::without(CHECK, State::NotApplicable(why), measured);
    }
    if gpus.iter().chain(hcas).any(|device| node(device).is_none()) {
        let why = "the firmware states no NUMA node for some devices".to_owned();
        return Finding::without(CHECK, State::NotProven(why), measured);
    }
    let near: BTreeSet<Option<i32>> = hcas.iter().map(node).collect();
    let far = gpus.iter().filter(|gpu| !near.contains(&node(gpu)));
    let faults: Vec<Fault> = far
        .map(|gpu| Fault {
            component: Component::new(Kind::Slot, gpu.address()),
            severity: Severity::Degraded,
            remedy: "compare the slots with the maker's plan".to_owned(),
            words: "no adapter is on the NUMA node of this GPU".to_owned(),
        })
        .collect();
    Finding::of(
        CHECK,
        measured,
        "each GPU has an adapter on its NUMA node",
        SOURCE,
        faults,
    )
}
