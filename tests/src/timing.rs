//! The use of time: for each phase of a node's life, the machine's time and ours.
//!
//! The machine's share is every moment of waiting for its BMC, firmware, kernel, network, disk or installed system: BMC
//! calls, boots, the agent's own work on the drives, the checks that run on the host. The rest of a phase is ours:
//! decisions, database writes, wake-ups, the agent's start from its first instruction to its first message, and the time
//! of a job beyond the agent's own measurement. The pauses of polling (SSH every 0.25 s, power every 0.5 s and more)
//! count as the machine's.

use rackwright_lifecycle::{Effect, NodeId, State, Timestamp};
use rackwright_store::{EventRow, HistoryRow, Scope, Store};

/// One phase of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    pub node: String,
    pub state: State,
    /// The time at which the node entered the state.
    pub since: Timestamp,
    /// Total seconds.
    pub total_s: f64,
    /// Seconds of waiting for the machine.
    pub machine_s: f64,
}

impl Phase {
    /// Our seconds.
    #[must_use]
    pub fn ours_s(&self) -> f64 {
        (self.total_s - self.machine_s).max(0.0)
    }
}

type Span = (i64, i64);

/// The phases with work in them, oldest first. `console`: the machine's serial output since its enrolment.
///
/// # Panics
/// If the database cannot be read.
pub async fn phases(store: &Store, node: &str, mac: &str, console: &str) -> Vec<Phase> {
    let mut history = store
        .history(&NodeId::stored(node), 1000)
        .await
        .expect("the history can be read");
    history.reverse();
    let mut waits = Vec::new();
    let mut switched_on = Vec::new();
    for effect in Effect::ALL {
        for row in store
            .tries_of(&NodeId::stored(node), *effect)
            .await
            .expect("tries can be read")
        {
            let Some(end) = row.attempt.ended_at else { continue };
            waits.push((row.attempt.started_at.0, end.0));
            if *effect == Effect::PowerOn {
                switched_on.push(end.0);
            }
        }
    }
    waits.extend(agent_boots(store, mac, &switched_on, &agent_starts(console)).await);
    let overhead = write_overheads(store, node).await;
    let mut phases = Vec::new();
    for row in &history {
        if let Some(phase) = phase(node, row, &waits, &overhead) {
            phases.push(phase);
        }
    }
    phases
}

/// One start of the agent's ramdisk, in seconds since its kernel started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgentStart {
    /// Its first program started.
    pub userspace_s: f64,
    /// The control plane accepted its stream.
    pub ready_s: f64,
}

/// The starts of the agent that a console shows, in order: each has a mark `userspace` and a mark `ready`.
#[must_use]
pub fn agent_starts(console: &str) -> Vec<AgentStart> {
    let mut starts = Vec::new();
    let mut userspace = None;
    for line in console.lines() {
        let Some((_, mark)) = line.split_once("MARK ") else {
            continue;
        };
        let mut words = mark.split_whitespace();
        let (name, seconds) = (words.next(), words.next().and_then(|s| s.parse().ok()));
        match (name, seconds) {
            (Some("userspace"), seconds) => userspace = seconds,
            (Some("ready"), Some(ready_s)) => {
                // Ready again after a lost connection is not a start.
                starts.extend(userspace.take().map(|userspace_s| AgentStart { userspace_s, ready_s }));
            }
            _ => {}
        }
    }
    starts
}

/// The spans from each power-on to the first program of the agent's ramdisk.
async fn agent_boots(store: &Store, mac: &str, switched_on: &[i64], starts: &[AgentStart]) -> Vec<Span> {
    let stages = store.boot_stages(mac).await.expect("boot stages can be read");
    let connected = stages
        .iter()
        .filter(|s| s.stage == "agent" && s.detail.starts_with("connected"));
    let mut last = None;
    // The first connection of each boot; a reconnection is not a boot.
    let connected = connected.filter_map(|s| {
        let on = *switched_on.iter().filter(|on| **on <= s.at.0).max()?;
        (last.replace(on) != Some(on)).then_some((on, s.at.0))
    });
    connected
        .enumerate()
        .map(|(n, (on, at))| {
            let start = starts.get(n).map_or(0.0, |s| s.ready_s - s.userspace_s);
            (on, at - (start * 1e6) as i64)
        })
        .collect()
}

/// The time of each write beyond the agent's own measurement, with the time of its end.
async fn write_overheads(store: &Store, node: &str) -> Vec<(i64, i64)> {
    let events = store
        .events(&Scope::Site, 0, &format!("nodes/{node}"), 100_000)
        .await
        .expect("events can be read");
    let writes = store
        .tries_of(&NodeId::stored(node), Effect::WriteImage)
        .await
        .expect("tries can be read");
    let took_us = |event: &EventRow| -> Option<i64> {
        let seconds: f64 = event.attributes.get("duration_s")?.parse().ok()?;
        Some((seconds * 1e6) as i64)
    };
    let written: Vec<i64> = events
        .iter()
        .filter(|e| e.kind == "image.written")
        .filter_map(took_us)
        .collect();
    let ended = writes
        .iter()
        .filter(|w| w.attempt.outcome == rackwright_lifecycle::Outcome::Succeeded);
    ended
        .zip(written)
        .filter_map(|(row, took)| {
            let end = row.attempt.ended_at?;
            Some((end.0, (end.since(row.attempt.started_at) - took).max(0)))
        })
        .collect()
}

fn phase(node: &str, row: &HistoryRow, waits: &[Span], overhead: &[(i64, i64)]) -> Option<Phase> {
    if row.from.is_at_rest() || row.from == State::Discovered {
        return None;
    }
    let (begin, end) = (row.at.0 - row.spent_us, row.at.0);
    let ours: i64 = overhead
        .iter()
        .filter(|(at, _)| (begin..=end).contains(at))
        .map(|(_, us)| us)
        .sum();
    let machine = (covered(waits, begin, end) - ours).max(0);
    Some(Phase {
        node: node.to_owned(),
        state: row.from,
        since: Timestamp(begin),
        total_s: row.spent_us as f64 / 1e6,
        machine_s: machine as f64 / 1e6,
    })
}

/// Microseconds of `begin..end` that at least one of the spans covers.
fn covered(spans: &[Span], begin: i64, end: i64) -> i64 {
    let mut clipped: Vec<Span> = spans
        .iter()
        .map(|(a, b)| ((*a).max(begin), (*b).min(end)))
        .filter(|(a, b)| a < b)
        .collect();
    clipped.sort_unstable();
    let (mut sum, mut upto) = (0, begin);
    for (a, b) in clipped {
        sum += (b - a.max(upto)).max(0);
        upto = upto.max(b);
    }
    sum
}

/// The phases as a Markdown table.
#[must_use]
pub fn table(phases: &[Phase]) -> String {
    let mut text =
        String::from("| node | phase | seconds | firmware, kernel, network, disk | ours |\n|---|---|---:|---:|---:|\n");
    for p in phases {
        text.push_str(&format!(
            "| {} | {} | {:.2} | {:.2} | {:.2} |\n",
            p.node,
            p.state,
            p.total_s,
            p.machine_s,
            p.ours_s()
        ));
    }
    text
}

/// Our seconds of each deploy or reimage of a node: from the claim, or the request for another image, to the hand-over.
#[must_use]
pub fn deploys(phases: &[Phase]) -> Vec<f64> {
    let mut deploys = Vec::new();
    let mut sum = None;
    for p in phases {
        match p.state {
            State::Allocated => sum = Some(p.ours_s()),
            State::Imaging => sum = Some(sum.unwrap_or(0.0) + p.ours_s()),
            State::Rebooting => sum = sum.map(|s| s + p.ours_s()),
            State::Validating => {
                deploys.extend(sum.take().map(|s| s + p.ours_s()));
            }
            _ => sum = None,
        }
    }
    deploys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_waits_count_once() {
        assert_eq!(covered(&[(0, 10), (5, 15), (20, 30), (22, 25)], 2, 28), 13 + 8);
        assert_eq!(covered(&[], 0, 10), 0);
    }

    #[test]
    fn the_consoles_marks_show_the_starts_of_the_agent() {
        let console = "[    1.9] x\r\nMARK userspace 2.00\r\nMARK network 2.6\r\nMARK ready 3.25\r\nMARK ready 90.1\r\n\
                       MARK userspace nonsense\r\nMARK ready 4\r\nlog MARK userspace 1.5\r\nMARK ready 2.5\r\n";
        let start = |userspace_s, ready_s| AgentStart { userspace_s, ready_s };
        assert_eq!(agent_starts(console), [start(2.0, 3.25), start(1.5, 2.5)]);
    }

    #[test]
    fn a_deploy_runs_from_the_claim_to_the_hand_over() {
        let phase = |state, total_s: f64| Phase {
            node: "n".into(),
            state,
            since: Timestamp::default(),
            total_s,
            machine_s: 0.0,
        };
        let list = [
            phase(State::Inspecting, 9.0),
            phase(State::Allocated, 0.25),
            phase(State::Imaging, 1.0),
            phase(State::Rebooting, 0.5),
            phase(State::Validating, 0.25),
            phase(State::Imaging, 3.0),
            phase(State::Rebooting, 0.5),
            phase(State::Validating, 0.5),
            phase(State::Reclaiming, 7.0),
        ];
        assert_eq!(deploys(&list), [2.0, 4.0]);
    }
}
