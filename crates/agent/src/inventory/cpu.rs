//! Processors, NUMA nodes and memory.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_api::v1::{Cpu, NumaNode};

use crate::root::SysRoot;
use crate::text;

#[derive(Default)]
struct Socket {
    model: String,
    microcode: String,
    cores: BTreeSet<String>,
    threads: u32,
    max_khz: u64,
    mhz_seen: f64,
}

/// Returns one entry per socket, from `/proc/cpuinfo` and cpufreq.
pub fn cpus(root: &SysRoot) -> Vec<Cpu> {
    let cpuinfo = text::or_empty(&root.proc.join("cpuinfo"));
    let mut sockets: BTreeMap<u32, Socket> = BTreeMap::new();
    for block in cpuinfo.split("\n\n") {
        let value = |key: &str| {
            block
                .lines()
                .find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == key))
                .map(|(_, value)| value.trim())
        };
        let Some(processor) = value("processor") else { continue };
        let socket = sockets
            .entry(value("physical id").and_then(|id| id.parse().ok()).unwrap_or(0))
            .or_default();
        socket.threads += 1;
        // Virtual machines and arm64 may not report core ids; then every thread counts as a core.
        socket
            .cores
            .insert(value("core id").map_or_else(|| format!("cpu{processor}"), str::to_owned));
        if socket.model.is_empty() {
            socket.model = value("model name").unwrap_or_default().to_owned();
            socket.microcode = value("microcode").unwrap_or_default().to_owned();
        }
        let mhz: f64 = value("cpu MHz").and_then(|mhz| mhz.parse().ok()).unwrap_or(0.0);
        socket.mhz_seen = socket.mhz_seen.max(mhz);
        let max = root
            .sys
            .join(format!("devices/system/cpu/cpu{processor}/cpufreq/cpuinfo_max_freq"));
        socket.max_khz = socket.max_khz.max(text::number(&max).unwrap_or(0));
    }
    let cpu = |(socket, found): (u32, Socket)| Cpu {
        socket,
        model: found.model,
        cores: found.cores.len() as u32,
        threads: found.threads,
        microcode: found.microcode,
        // Without cpufreq (virtual machines) the clock is fixed, so the current clock is the maximum.
        max_mhz: if found.max_khz > 0 {
            (found.max_khz / 1000) as u32
        } else {
            found.mhz_seen as u32
        },
    };
    sockets.into_iter().map(cpu).collect()
}

/// Reads `/sys/devices/system/node/node*`.
pub fn numa_nodes(root: &SysRoot) -> Vec<NumaNode> {
    let folder = root.sys.join("devices/system/node");
    let ids = text::names(&folder)
        .into_iter()
        .filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok());
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    let node = |id: u32| {
        let node = folder.join(format!("node{id}"));
        let meminfo = text::or_empty(&node.join("meminfo"));
        NumaNode {
            id,
            cpu_list: text::or_empty(&node.join("cpulist")),
            memory_bytes: mem_total(&meminfo),
        }
    };
    ids.into_iter().map(node).collect()
}

/// Memory available to the kernel in bytes.
pub fn memory_bytes(root: &SysRoot) -> u64 {
    mem_total(&text::or_empty(&root.proc.join("meminfo")))
}

/// Memory in bytes that programs can still take, by the kernel's estimate.
pub fn available_memory(root: &SysRoot) -> Option<u64> {
    memory_line(&text::or_empty(&root.proc.join("meminfo")), "MemAvailable:")
}

fn mem_total(meminfo: &str) -> u64 {
    memory_line(meminfo, "MemTotal:").unwrap_or(0)
}

/// Parses a line such as `MemTotal: N kB` of `/proc/meminfo` or of a node's file (there after `Node 0`). Returns bytes.
fn memory_line(meminfo: &str, name: &str) -> Option<u64> {
    let (_, rest) = meminfo.lines().find_map(|line| line.split_once(name))?;
    let kilobytes = rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(kilobytes.saturating_mul(1024))
}
