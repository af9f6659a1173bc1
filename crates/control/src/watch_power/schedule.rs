//! The time of each node's next look. Pure: time is an argument.

use std::collections::{BTreeSet, HashMap};

use rackwright_ground::config::power_watch::Settings;
use rackwright_ground::share::{Share, stable_hash};
use rackwright_lifecycle::{NodeId, Timestamp, seconds};

/// A node's id, shared by the schedule and the looks.
pub(super) type Id = NodeId;

/// Pause after a refusal: the login is rejected or the certificate differs. More tries would lock the account.
const REFUSED_S: u32 = 3600;
/// Pause when the BMC is busy with another of its machines, or the machine is between off and on.
const SOON_S: u32 = 5;
/// The watch may catch up on this many seconds without looks, on top of its even pace.
const CATCH_UP_S: i64 = 2;

/// Result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The power is unchanged.
    Same,
    /// The power is unchanged, and the BMC sends events about changes.
    Streamed,
    /// The power has changed.
    Changed,
    /// The BMC does not answer.
    Silent,
    /// The BMC refuses the login, or another failure makes retries pointless.
    Refused,
    /// The look has no result yet.
    Unsettled,
}

impl Look {
    /// Whether the BMC answered with on or off.
    pub(super) fn has_seen(self) -> bool {
        matches!(self, Self::Same | Self::Streamed | Self::Changed)
    }

    /// Label of the result in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Same | Self::Streamed => "same",
            Self::Changed => "changed",
            Self::Silent => "silent",
            Self::Refused => "refused",
            Self::Unsettled => "unsettled",
        }
    }
}

/// The schedule of one node.
#[derive(Debug)]
struct Entry {
    /// Time of the next look; `None` during a look.
    due: Option<Timestamp>,
    /// Looks since the last change or failure. Each doubles the pause, up to the normal interval.
    quiet_looks: u32,
    /// Looks in a row without an answer of the BMC.
    silent: u32,
    /// Looks in a row without a result. Each doubles the pause, too.
    unsettled: u32,
    looked_at: Timestamp,
    /// A look was requested while another was in progress.
    look_again: bool,
    /// The last round that found the node at rest.
    round: u64,
}

impl Entry {
    /// Counts a look by its result.
    fn note(&mut self, look: Look) {
        if look == Look::Unsettled {
            self.unsettled = self.unsettled.saturating_add(1);
            return;
        }
        self.unsettled = 0;
        let is_silent = matches!(look, Look::Silent | Look::Refused);
        if look == Look::Changed || is_silent && self.silent == 0 {
            self.quiet_looks = 0;
        }
        self.quiet_looks = self.quiet_looks.saturating_add(1);
        self.silent = if is_silent { self.silent.saturating_add(1) } else { 0 };
    }
}

/// The first pause, doubled `times` times, up to the longest.
fn doubled(first_s: u32, times: u32, longest_s: u32) -> u32 {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    first_s.saturating_mul(factor).min(longest_s)
}

/// The nodes that this replica watches.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Settings,
    nodes: HashMap<Id, Entry>,
    due: BTreeSet<(Timestamp, Id)>,
    round: u64,
    /// Looks that may begin, in thousandths.
    allowance: i64,
    refilled_at: Timestamp,
}

impl Schedule {
    pub(super) fn new(pace: Settings, now: Timestamp) -> Self {
        Self {
            pace,
            nodes: HashMap::new(),
            due: BTreeSet::new(),
            round: 0,
            allowance: 0,
            refilled_at: now,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a node at rest. The first look at a new node is at a random moment of the next interval, which spreads many
    /// new nodes.
    pub(super) fn found(&mut self, node: &NodeId, now: Timestamp) {
        let round = self.round;
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.round = round;
            return;
        }
        let id = node.clone();
        let within = (seconds(self.pace.interval_s.into()) as f64 * fraction(node, now)) as i64;
        let due = now.plus(within);
        let entry = Entry {
            due: Some(due),
            quiet_looks: u32::MAX,
            silent: 0,
            unsettled: 0,
            looked_at: Timestamp::default(),
            look_again: false,
            round,
        };
        self.nodes.insert(id.clone(), entry);
        self.due.insert((due, id));
    }

    /// Drops the nodes outside `share`. Returns their ids.
    pub(super) fn retain_share(&mut self, share: &Share) -> Vec<Id> {
        let gone: Vec<Id> = self
            .nodes
            .keys()
            .filter(|id| !share.has(id.as_str()))
            .cloned()
            .collect();
        gone.iter().for_each(|id| self.forget(id));
        gone
    }

    /// Ends a round: nodes that the round did not find are not at rest any more or belong to another replica. Returns
    /// their ids.
    pub(super) fn end_round(&mut self) -> Vec<Id> {
        let round = self.round;
        let gone: Vec<Id> = self
            .nodes
            .iter()
            .filter(|(_, entry)| entry.round != round)
            .map(|(id, _)| id.clone())
            .collect();
        gone.iter().for_each(|id| self.forget(id));
        self.round += 1;
        gone
    }

    /// Drops a node until it is found again.
    pub(super) fn forget(&mut self, node: &Id) {
        if let Some(Entry { due: Some(due), .. }) = self.nodes.remove(node) {
            self.due.remove(&(due, node.clone()));
        }
    }

    /// Nodes that are due now, at most `limit`, longest overdue first. However many are due, the rate stays within twice
    /// the even pace.
    pub(super) fn take(&mut self, now: Timestamp, limit: usize) -> Vec<Id> {
        self.refill(now);
        let mut taken = Vec::new();
        while taken.len() < limit
            && self.allowance >= 1000
            && let Some((due, _)) = self.due.first()
            && *due <= now
        {
            let Some((_, id)) = self.due.pop_first() else { break };
            if let Some(entry) = self.nodes.get_mut(&id) {
                entry.due = None;
                self.allowance -= 1000;
                taken.push(id);
            }
        }
        taken
    }

    fn refill(&mut self, now: Timestamp) {
        let passed_us = now.since(self.refilled_at).clamp(0, seconds(CATCH_UP_S));
        let nodes = i64::try_from(self.nodes.len()).unwrap_or(i64::MAX).max(1);
        // In thousandths of a look per second; at least one look per second.
        let rate = (nodes.saturating_mul(2000) / i64::from(self.pace.interval_s)).max(1000);
        let room = rate.saturating_mul(CATCH_UP_S);
        let gained = rate.saturating_mul(passed_us) / 1_000_000;
        if gained > 0 || now < self.refilled_at {
            self.refilled_at = now;
        }
        self.allowance = self.allowance.saturating_add(gained).min(room);
    }

    /// Looks in a row that the node's BMC refused or did not answer.
    pub(super) fn silent(&self, node: &Id) -> u32 {
        self.nodes.get(node).map_or(0, |entry| entry.silent)
    }

    /// Notes the result of a look and schedules the next one. Returns false if the node is not watched any more.
    pub(super) fn looked(&mut self, node: &Id, look: Look, now: Timestamp) -> bool {
        let pace = self.pace;
        let Some(entry) = self.nodes.get_mut(node) else {
            return false;
        };
        entry.note(look);
        entry.looked_at = now;
        let pause_s = match look {
            Look::Refused => REFUSED_S.max(pace.interval_s),
            Look::Unsettled => doubled(SOON_S.min(pace.recheck_s), entry.unsettled - 1, pace.interval_s),
            Look::Streamed => doubled(pace.recheck_s, entry.quiet_looks - 1, pace.streamed_s),
            Look::Same | Look::Changed | Look::Silent => {
                doubled(pace.recheck_s, entry.quiet_looks - 1, pace.interval_s)
            }
        };
        let jitter = 0.9 + 0.2 * fraction(node, now);
        let pause = (seconds(pause_s.into()) as f64 * jitter) as i64;
        let pause = if std::mem::take(&mut entry.look_again) {
            pause.min(seconds(SOON_S.into()))
        } else {
            pause
        };
        let due = now.plus(pause);
        entry.due = Some(due);
        self.due.insert((due, node.clone()));
        true
    }

    /// Schedules a look now, or after the current look, but at most one within a few seconds. Returns false if the node
    /// is not watched.
    pub(super) fn look_now(&mut self, node: &NodeId, now: Timestamp) -> bool {
        let Some(entry) = self.nodes.get_mut(node) else {
            return false;
        };
        let soon = seconds(SOON_S.min(self.pace.recheck_s).into());
        let at = now.max(entry.looked_at.plus(soon));
        match entry.due {
            Some(due) if due <= at => {}
            Some(due) => {
                entry.due = Some(at);
                let id = node.clone();
                self.due.remove(&(due, id.clone()));
                self.due.insert((at, id));
            }
            None => entry.look_again = true,
        }
        true
    }

    /// Schedules a look soon after the node's stream ended, at a random moment, because many streams may end together.
    pub(super) fn look_soon(&mut self, node: &NodeId, now: Timestamp) {
        let within = seconds(self.pace.recheck_s.into()) as f64 * fraction(node, now);
        let at = now.plus(within as i64);
        if self.nodes.get(node).is_some_and(|entry| entry.due > Some(at)) {
            self.look_now(node, at);
        }
    }

    /// How long the most overdue node has been due, in microseconds.
    pub(super) fn lag_us(&self, now: Timestamp) -> i64 {
        self.due.first().map_or(0, |(due, _)| now.since(*due).max(0))
    }
}

/// A number from 0 to 1 that depends on the node and the moment.
fn fraction(node: &NodeId, now: Timestamp) -> f64 {
    stable_hash([node.as_str().as_bytes(), &now.0.to_le_bytes()]) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Settings = Settings {
        interval_s: 300,
        recheck_s: 60,
        streamed_s: 3600,
        streams: 10,
        at_once: 64,
    };

    fn at(s: i64) -> Timestamp {
        Timestamp(0).plus(seconds(1_000_000 + s))
    }

    fn of(nodes: usize) -> Schedule {
        let mut schedule = Schedule::new(PACE, at(0));
        (0..nodes).for_each(|n| schedule.found(&NodeId::stored(format!("n{n}")), at(0)));
        schedule
    }

    /// The pause after a look, in seconds.
    fn pause(schedule: &mut Schedule, look: Look, now: Timestamp) -> f64 {
        let id: Id = "n0".into();
        schedule.look_now(&id, now);
        assert!(schedule.take(now, 9).contains(&id), "one node is looked at each second");
        assert!(schedule.looked(&id, look, now));
        schedule.due.first().unwrap().0.since(now) as f64 / 1e6
    }

    #[test]
    fn the_interval_follows_the_last_readings() {
        use Look::{Changed, Refused, Same, Silent, Streamed, Unsettled};
        for looks in [
            vec![(Same, 300), (Same, 300)],
            vec![(Changed, 60), (Same, 120), (Same, 240), (Same, 300), (Same, 300)],
            vec![
                (Silent, 60),
                (Silent, 120),
                (Silent, 240),
                (Silent, 300),
                (Same, 300),
                (Silent, 60),
            ],
            vec![(Silent, 60), (Changed, 60)],
            vec![
                (Streamed, 3600),
                (Same, 300),
                (Changed, 60),
                (Streamed, 120),
                (Streamed, 240),
                (Streamed, 480),
            ],
            vec![(Refused, 3600), (Refused, 3600), (Same, 240)],
            vec![
                (Unsettled, 5),
                (Unsettled, 10),
                (Unsettled, 20),
                (Same, 300),
                (Unsettled, 5),
            ],
        ] {
            let mut schedule = of(1);
            for (n, (look, expected_s)) in looks.iter().enumerate() {
                let pause = pause(&mut schedule, *look, at(5000 * (n as i64 + 1)));
                let expected = f64::from(*expected_s);
                assert!((0.9..=1.1).contains(&(pause / expected)), "{looks:?}, {n}: {pause}");
            }
        }
    }

    #[test]
    fn a_node_that_never_settles_is_polled_no_more_often_than_others() {
        let mut schedule = of(1);
        let pauses: Vec<f64> = (1..100)
            .map(|n| pause(&mut schedule, Look::Unsettled, at(5000 * n)))
            .collect();
        assert!(pauses[10..].iter().all(|pause| *pause >= 270.0), "{pauses:?}");
    }

    #[test]
    fn many_nodes_that_come_at_once_are_spread_over_the_interval() {
        let mut schedule = of(3000);
        let mut counts = Vec::new();
        for second in 0..=300 {
            counts.push(schedule.take(at(second), usize::MAX).len());
        }
        assert_eq!(counts.iter().sum::<usize>(), 3000);
        assert!(
            counts.iter().all(|n| *n <= 25),
            "ten a second are an even pace: {counts:?}"
        );
    }

    #[test]
    fn missed_polls_are_made_up_at_twice_the_rate_longest_overdue_first() {
        let mut schedule = of(3000);
        assert_eq!(schedule.take(at(600), usize::MAX).len(), 40, "two seconds' worth");
        assert_eq!(schedule.take(at(601), usize::MAX).len(), 20);
        assert_eq!(schedule.take(at(601), usize::MAX).len(), 0);
        assert_eq!(schedule.take(at(602), 7).len(), 7, "as many as there is room for");
        let rest = schedule.due.first().unwrap().0;
        assert_eq!(schedule.lag_us(at(602)), at(602).since(rest));
        // A clock that is set back does not stop the watch.
        schedule.take(at(0), 1);
        schedule.look_now(&"n1".into(), at(0));
        assert!(!schedule.take(at(2), 1).is_empty());
    }

    #[test]
    fn a_few_nodes_are_polled_without_a_rate_limit() {
        let mut schedule = of(2);
        schedule.take(at(300), 9);
        for n in 1..4 {
            let now = at(300 + 10 * n);
            let id: Id = "n0".into();
            schedule.looked(&id, Look::Same, now);
            assert!(schedule.look_now(&"n0".into(), now));
            let soon = now.plus(seconds(SOON_S.into()));
            assert!(
                schedule.take(at(304 + 10 * n), 9).is_empty(),
                "not twice within seconds"
            );
            assert_eq!(schedule.take(soon, 9), [id]);
        }
    }

    #[test]
    fn a_request_for_a_poll_during_a_poll_is_kept() {
        let mut schedule = of(1);
        let id: Id = "n0".into();
        assert_eq!(schedule.take(at(300), 9).len(), 1);
        assert!(schedule.look_now(&"n0".into(), at(300)));
        assert_eq!(schedule.take(at(301), 9).len(), 0, "one look at a time");
        schedule.looked(&id, Look::Same, at(302));
        assert_eq!(schedule.take(at(307), 9).len(), 1);
        schedule.looked(&id, Look::Same, at(308));
        assert_eq!(schedule.take(at(315), 9).len(), 0);
        assert!(!schedule.look_now(&"nobody".into(), at(303)));
    }

    #[test]
    fn nodes_that_lose_their_streams_together_are_polled_soon_and_spread() {
        let mut schedule = of(100);
        let ids: Vec<Id> = (0..100).map(|n| NodeId::stored(format!("n{n}"))).collect();
        for second in 0..400 {
            schedule.take(at(second), 9);
        }
        for id in &ids {
            schedule.looked(id, Look::Streamed, at(400));
        }
        ids.iter().for_each(|id| schedule.look_soon(id, at(500)));
        let due_times: Vec<i64> = schedule
            .due
            .iter()
            .map(|(due, _)| due.since(at(500)) / 1_000_000)
            .collect();
        assert!(due_times.iter().all(|due| (0..=60).contains(due)), "{due_times:?}");
        assert!(
            due_times.first() < Some(&10) && due_times.last() > Some(&50),
            "{due_times:?}"
        );
    }

    #[test]
    fn a_node_that_a_round_does_not_find_is_removed_even_during_its_poll() {
        let mut schedule = of(3);
        assert!(schedule.end_round().is_empty());
        schedule.take(at(300), 1);
        schedule.found(&"n1".into(), at(300));
        let mut gone = schedule.end_round();
        gone.sort();
        assert_eq!(gone, ["n0".into(), "n2".into()] as [Id; 2]);
        assert_eq!(schedule.len(), 1);
        assert!(!schedule.looked(&"n0".into(), Look::Same, at(301)));
        assert!(schedule.due.len() <= 1);
        let kept = Share::new("a", ["b".to_owned()]);
        let mut schedule = of(100);
        let gone = schedule.retain_share(&kept);
        assert_eq!(gone.len() + schedule.len(), 100);
        assert!(gone.iter().all(|id| !kept.has(id.as_str())) && schedule.nodes.keys().all(|id| kept.has(id.as_str())));
        assert_eq!(schedule.due.len(), schedule.len());
    }
}
