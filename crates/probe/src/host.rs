//! The system as a whole: IOMMU, limits, processors.

use std::collections::BTreeMap;

use rackwright_health::facts::Row;

use crate::root::{Root, names, text};

pub(crate) fn row(root: &Root) -> Row {
    let uptime = root.text("proc/uptime");
    let uptime = uptime.as_deref().and_then(|text| text.split(' ').next());
    let row = Row::new("host")
        .with("architecture", std::env::consts::ARCH)
        .with_some("uptime_s", uptime)
        .with_some("memlock", memlock(root.text("proc/self/limits").as_deref()));
    let row = counted(row, "iommu_type_", iommu_types(root));
    counted(row, "governor_", governors(root))
}

/// A field for each value, with the number of its occurrences.
fn counted(row: Row, prefix: &str, values: Vec<String>) -> Row {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let with = |row: Row, (value, count): (String, usize)| row.with(&format!("{prefix}{value}"), count);
    counts.into_iter().fold(row, with)
}

/// `Max locked memory   8388608   8388608   bytes`: the first number, in bytes.
fn memlock(limits: Option<&str>) -> Option<String> {
    let line = limits?.lines().find(|line| line.starts_with("Max locked memory"))?;
    line.split_whitespace().nth(3).map(str::to_owned)
}

fn iommu_types(root: &Root) -> Vec<String> {
    let folder = root.at("sys/kernel/iommu_groups");
    let kind = |group: &String| text(&folder.join(group).join("type"));
    names(&folder).iter().filter_map(kind).collect()
}

fn governors(root: &Root) -> Vec<String> {
    let folder = root.at("sys/devices/system/cpu");
    let governor = |cpu: &String| text(&folder.join(cpu).join("cpufreq/scaling_governor"));
    names(&folder).iter().filter_map(governor).collect()
}
