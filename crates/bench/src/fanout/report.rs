//! The lines of the benchmark: one JSON object for each case.

use serde::Serialize;

use super::case::{Case, Outcome, Way};
use crate::report::thousandths;

/// One agent without others.
#[derive(Debug, Clone, Copy)]
pub struct Alone {
    pub seconds: f64,
    /// Bytes on its link: one copy of the image.
    pub bytes: u64,
}

impl Alone {
    pub fn of(outcome: &Outcome) -> Self {
        let seconds = outcome.ends.first().map_or(f64::NAN, |(_, ended)| ended.seconds);
        Self {
            seconds,
            bytes: outcome.first.down.max(1),
        }
    }
}

/// Largest values that are aimed at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Aims {
    pub ratio: Option<f64>,
    /// Copies from the image server.
    pub origin: Option<f64>,
    /// Copies over each leaf uplink.
    pub uplink: Option<f64>,
}

/// The rate of one TCP stream.
#[derive(Debug, Serialize)]
pub struct LinkReport {
    /// Always "link".
    case: &'static str,
    cap_mbit: f64,
    #[serde(serialize_with = "thousandths")]
    stream_mbit: f64,
    #[serde(serialize_with = "thousandths")]
    ratio: f64,
    /// Least ratio.
    aim: f64,
    is_met: bool,
}

impl LinkReport {
    pub fn new(cap: u64, rate: f64, aim: f64) -> Self {
        let ratio = rate / cap as f64;
        Self {
            case: "link",
            cap_mbit: mbit(cap),
            stream_mbit: rate / 1e6,
            ratio,
            aim,
            is_met: ratio >= aim,
        }
    }
}

/// A case that this computer cannot run.
#[derive(Debug, Serialize)]
pub struct NotAvailable {
    case: &'static str,
    why: &'static str,
}

impl NotAvailable {
    pub fn new(case: &'static str, why: &'static str) -> Self {
        Self { case, why }
    }
}

#[derive(Debug, Serialize)]
pub struct CaseReport {
    case: &'static str,
    way: &'static str,
    agents: u32,
    racks: u32,
    chunks: u32,
    frame_kib: u64,
    cap_mbit: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink_mbit: Option<f64>,
    #[serde(skip_serializing_if = "is_zero", serialize_with = "thousandths")]
    starts_over_s: f64,
    /// Agents that were to be killed.
    killed: usize,
    /// Agents with slow links. Those that have not ended with the last of the others are not waited for.
    slow: usize,
    /// Drives that were compared with the image, and are right.
    right: usize,
    /// Of the slowest agent, without those with a slow link.
    #[serde(serialize_with = "thousandths")]
    seconds: f64,
    #[serde(serialize_with = "thousandths")]
    mean_seconds: f64,
    /// Of one agent without others, from the image server.
    #[serde(serialize_with = "thousandths")]
    alone_seconds: f64,
    #[serde(serialize_with = "thousandths")]
    ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<f64>,
    /// Whether all aims are met.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_met: Option<bool>,
    /// Chunks from the image server, in copies of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_copies: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_aim: Option<f64>,
    /// Bytes on the image server's link, with indexes and handshakes, divided by the bytes that one agent without others
    /// receives.
    #[serde(serialize_with = "thousandths")]
    origin_link_copies: f64,
    /// Chunks that the agents of each rack took from outside, in copies of the image. Killed agents are not counted.
    rack_copies: Vec<f64>,
    /// Bytes from the spine to each leaf, divided as those on the image server's link. They contain what TCP sends again.
    uplink_copies: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink_aim: Option<f64>,
    /// Chunks of all agents by source.
    chunks_from_servers: u64,
    chunks_from_rack: u64,
    chunks_from_other_racks: u64,
    /// Jobs that did not go as planned, with the first reason.
    remarks: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
    wrong_bytes_reports: usize,
    #[serde(serialize_with = "thousandths")]
    agents_cpu_s: f64,
    /// Of the computer, with everything else on it.
    #[serde(serialize_with = "thousandths")]
    cores_busy: f64,
}

fn mbit(bits: u64) -> f64 {
    bits as f64 / 1e6
}

/// Copies of the image that a rack took from outside.
fn rack_copies(case: &Case, outcome: &Outcome, rack: u32) -> f64 {
    let of_rack = outcome
        .ends
        .iter()
        .filter(|(agent, _)| agent % case.layout.racks == rack);
    let chunks = of_rack.map(|(_, ended)| ended.from_servers + ended.from_other_racks);
    let copies = chunks.sum::<u64>() as f64 / f64::from(case.image.content.chunks);
    (copies * 1e3).round() / 1e3
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl CaseReport {
    pub fn new(case: &Case, outcome: &Outcome, alone: &Alone, aims: Aims) -> Self {
        let (layout, image) = (&case.layout, &case.image);
        let counted = outcome.ends.iter().filter(|(number, _)| !layout.slow.contains(number));
        let times: Vec<f64> = counted.map(|(_, ended)| ended.seconds).collect();
        let seconds = times.iter().copied().fold(f64::NAN, f64::max);
        let ratio = seconds / alone.seconds;
        let origin_copies = outcome.origin_chunk_bytes as f64 / image.frame_bytes.max(1) as f64;
        let copies = |bytes: u64| bytes as f64 / alone.bytes as f64;
        let uplink_copies: Vec<f64> = outcome.uplinks.iter().map(|crossed| copies(crossed.down)).collect();
        let is_below = |value: f64, aim: Option<f64>| aim.is_none_or(|aim| value <= aim);
        let is_met = is_below(ratio, aims.ratio)
            && is_below(origin_copies, aims.origin)
            && uplink_copies.iter().all(|copies| is_below(*copies, aims.uplink));
        let has_aim = aims.ratio.or(aims.origin).or(aims.uplink).is_some();
        let sum = |of: fn(&super::agent::Ended) -> u64| outcome.ends.iter().map(|(_, ended)| of(ended)).sum();
        let remarks = outcome.ends.iter().map(|(_, ended)| &ended.step);
        let mut remarks = remarks.filter(|step| step.contains("other agents"));
        let remark = remarks.next().cloned();
        Self {
            case: case.name,
            way: case.way.name(),
            agents: layout.agents,
            racks: layout.racks,
            chunks: image.content.chunks,
            frame_kib: (image.frame_bytes / u64::from(image.content.chunks)) >> 10,
            cap_mbit: mbit(layout.cap),
            uplink_mbit: layout.uplink.map(mbit),
            starts_over_s: case.starts_over.as_secs_f64(),
            killed: case.killed.len(),
            slow: layout.slow.len(),
            right: outcome.ends.len(),
            seconds,
            mean_seconds: times.iter().sum::<f64>() / times.len() as f64,
            alone_seconds: alone.seconds,
            ratio,
            aim: aims.ratio,
            is_met: has_aim.then_some(is_met),
            origin_copies: (case.way != Way::BitTorrent).then_some((origin_copies * 1e3).round() / 1e3),
            origin_aim: aims.origin,
            origin_link_copies: copies(outcome.origin.up),
            rack_copies: (0..layout.racks).map(|rack| rack_copies(case, outcome, rack)).collect(),
            uplink_copies: uplink_copies
                .iter()
                .map(|copies| (copies * 1e3).round() / 1e3)
                .collect(),
            uplink_aim: aims.uplink,
            chunks_from_servers: sum(|ended| ended.from_servers),
            chunks_from_rack: sum(|ended| ended.from_rack),
            chunks_from_other_racks: sum(|ended| ended.from_other_racks),
            remarks: usize::from(remark.is_some()) + remarks.count(),
            remark,
            wrong_bytes_reports: outcome.reports,
            agents_cpu_s: outcome.agents_cpu_s,
            cores_busy: outcome.cores_busy,
        }
    }
}
