//! The display of `node watch`: one row per node, and below them the changes during the watch. No I/O here; the same
//! values drawn at the same moment give the same lines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rackwright_api::v1::{Node, NodeState, Operation, WatchNodesResponse};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{names, units, wait};

use super::{state_name, state_tone};

/// Lines of history that are stored.
const HISTORY: usize = 200;

/// A change of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Seconds since the epoch.
    pub time: f64,
    pub node: String,
    pub text: String,
    /// The current state, for the colour.
    pub state: i32,
}

impl Change {
    /// `2026-01-02T03:04:05Z  gpu-001  imaging -> rebooting after 12.3 s`
    pub fn line(&self, paint: Paint) -> String {
        let text = paint.tone(state_tone(self.state), &clean(&self.text));
        format!("{}  {}  {text}", units::stamp_seconds(self.time), clean(&self.node))
    }
}

#[derive(Debug, Default)]
struct Row {
    node: Node,
    /// The running operation, if it is known.
    operation: Option<Operation>,
    /// Whether the server has sent it since the last connection.
    seen: bool,
}

impl Row {
    fn state(&self) -> i32 {
        self.node.status.as_ref().map_or(0, |status| status.state)
    }
}

/// The known state of the watched nodes.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Only these ids; empty: all that the server sends.
    only: BTreeSet<String>,
    rows: BTreeMap<String, Row>,
    history: VecDeque<Change>,
    synced: bool,
}

impl Timeline {
    pub fn new(only: impl IntoIterator<Item = String>) -> Self {
        Self {
            only: only.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Handles a new connection: the server sends everything again.
    pub fn begin(&mut self) {
        self.synced = false;
        self.rows.values_mut().for_each(|row| row.seen = false);
    }

    /// Whether the initial state was sent completely.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// Applies one message; returns the changes.
    pub fn take(&mut self, message: WatchNodesResponse, now: f64) -> Vec<Change> {
        if message.synced {
            self.synced = true;
            return self.drop_unseen(now);
        }
        let Some(node) = message.node else { return Vec::new() };
        let id = names::short("nodes", &node.name).to_owned();
        if !self.only.is_empty() && !self.only.contains(&id) {
            return Vec::new();
        }
        let changes = if message.deleted {
            let gone = self.rows.remove(&id);
            gone.map(|row| change(&id, now, "is gone".to_owned(), row.state()))
                .into_iter()
                .collect()
        } else {
            self.replace(id, node, now)
        };
        self.remember(&changes);
        changes
    }

    fn drop_unseen(&mut self, now: f64) -> Vec<Change> {
        let unseen: Vec<String> = self
            .rows
            .iter()
            .filter(|(_, row)| !row.seen)
            .map(|(id, _)| id.clone())
            .collect();
        let changes: Vec<Change> = unseen
            .iter()
            .filter_map(|id| {
                self.rows
                    .remove(id)
                    .map(|row| change(id, now, "is gone".to_owned(), row.state()))
            })
            .collect();
        self.remember(&changes);
        changes
    }

    fn replace(&mut self, id: String, node: Node, now: f64) -> Vec<Change> {
        let status = node.status.clone().unwrap_or_default();
        let since = status.state_since;
        let at = since.as_ref().map_or(now, units::seconds);
        let first = !self.rows.contains_key(&id);
        let row = self.rows.entry(id.clone()).or_default();
        let before = std::mem::replace(&mut row.node, node).status.unwrap_or_default();
        row.seen = true;
        if first {
            let text = format!("is {}{}", state_name(status.state), because(&status.reason));
            return vec![change(&id, at, text, status.state)];
        }
        if (before.state, before.state_since) == (status.state, since) {
            if before.waiting_for == status.waiting_for || status.waiting_for.is_empty() {
                return Vec::new();
            }
            return vec![change(
                &id,
                now,
                format!("waits for {}", status.waiting_for),
                status.state,
            )];
        }
        row.operation = None;
        let spent = units::between(before.state_since.as_ref(), since.as_ref()).unwrap_or_default();
        let text = format!(
            "{} -> {} after {}{}",
            state_name(before.state),
            state_name(status.state),
            units::duration(spent),
            because(&status.reason)
        );
        vec![change(&id, at, text, status.state)]
    }

    fn remember(&mut self, changes: &[Change]) {
        for change in changes {
            self.history.push_front(change.clone());
        }
        self.history.truncate(HISTORY);
    }

    /// Nodes with an operation that reports progress: an image is being written, or the drives are being erased.
    pub fn working(&self) -> Vec<String> {
        let works = |row: &&Row| {
            let state = NodeState::try_from(row.state());
            matches!(state, Ok(NodeState::Imaging | NodeState::Reclaiming))
        };
        self.rows
            .values()
            .filter(works)
            .map(|row| row.node.name.clone())
            .collect()
    }

    /// Updates the operation of a node. Returns a change at every ten percent.
    pub fn progress(&mut self, node: &str, operation: Option<Operation>, now: f64) -> Option<Change> {
        let id = names::short("nodes", node);
        let row = self.rows.get_mut(id)?;
        let tens = |operation: &Option<Operation>| {
            let progress = operation.as_ref().and_then(|operation| operation.progress.as_ref());
            progress.map(|progress| (progress.percent / 10, progress.step.clone()))
        };
        let before = tens(&row.operation);
        row.operation = operation;
        let after = tens(&row.operation)?;
        if Some(&after) == before.as_ref() {
            return None;
        }
        let text = row.operation.as_ref().map(wait::progress_text).unwrap_or_default();
        Some(change(id, now, text, row.state()))
    }

    /// Requested nodes that do not exist.
    pub fn missing(&self) -> Vec<&str> {
        self.only
            .iter()
            .filter(|id| !self.rows.contains_key(*id))
            .map(String::as_str)
            .collect()
    }

    /// Whether there are nodes and all are in this state.
    pub fn all_in(&self, state: NodeState) -> bool {
        !self.rows.is_empty() && self.rows.values().all(|row| row.state() == state as i32)
    }

    /// The first node that has failed or was quarantined, with the reason.
    pub fn stuck(&self) -> Option<(&str, String)> {
        self.rows.iter().find_map(|(id, row)| {
            let state = NodeState::try_from(row.state()).ok()?;
            let reason = row
                .node
                .status
                .as_ref()
                .map(|status| because(&status.reason))
                .unwrap_or_default();
            let stuck = matches!(state, NodeState::Failed | NodeState::Quarantined);
            stuck.then(|| (id.as_str(), clean(&format!("{}{reason}", state_name(state as i32)))))
        })
    }

    /// The screen: nodes first, changing ones before idle ones, then the history, newest first.
    pub fn render(&self, now: f64, rows: usize, paint: Paint) -> Vec<String> {
        let mut lines = self.node_lines(now, paint);
        let most = rows.saturating_sub(6).max(3);
        if lines.len() > most {
            let more = lines.len() - most;
            lines.truncate(most);
            lines.push(format!("and {more} more"));
        }
        let left = rows.saturating_sub(lines.len() + 2);
        if !self.history.is_empty() && left > 0 {
            lines.push(String::new());
            lines.extend(self.history.iter().take(left).map(|change| change.line(paint)));
        }
        lines
    }

    fn node_lines(&self, now: f64, paint: Paint) -> Vec<String> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(id, row)| (at_rest(row.state()), id.as_str()));
        let mut table = Table::new(&["NODE", "STATE", "FOR", "NOW"]);
        for (id, row) in rows {
            let status = row.node.status.clone().unwrap_or_default();
            let elapsed = status
                .state_since
                .as_ref()
                .map(|since| units::duration(units::since(since, now)));
            let text = match &row.operation {
                Some(operation) if operation.progress.is_some() => wait::progress_text(operation),
                _ if !status.reason.is_empty() => status.reason,
                _ => status.waiting_for,
            };
            table.row([
                id.into(),
                Cell::toned(state_name(status.state), state_tone(status.state)),
                elapsed.unwrap_or_default().into(),
                text.into(),
            ]);
        }
        table.render(paint, None).lines().map(str::to_owned).collect()
    }
}

fn at_rest(state: i32) -> bool {
    !matches!(state_tone(state), Tone::Busy | Tone::Bad)
}

fn because(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    }
}

fn change(id: &str, time: f64, text: String, state: i32) -> Change {
    Change {
        time,
        node: id.to_owned(),
        text,
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Timestamp;
    use rackwright_api::v1::{NodeStatus, Progress};

    const START: i64 = 1_767_323_045;

    fn message(id: &str, state: NodeState, since: i64, waiting_for: &str) -> WatchNodesResponse {
        let status = NodeStatus {
            state: state as i32,
            state_since: Some(Timestamp {
                seconds: START + since,
                nanos: 0,
            }),
            waiting_for: waiting_for.to_owned(),
            ..NodeStatus::default()
        };
        let node = Node {
            name: format!("nodes/{id}"),
            status: Some(status),
            ..Node::default()
        };
        WatchNodesResponse {
            node: Some(node),
            ..WatchNodesResponse::default()
        }
    }

    fn synced() -> WatchNodesResponse {
        WatchNodesResponse {
            synced: true,
            ..WatchNodesResponse::default()
        }
    }

    fn at(seconds: f64) -> f64 {
        START as f64 + seconds
    }

    #[test]
    fn phases_become_lines_with_the_seconds_they_took() {
        let mut timeline = Timeline::default();
        let first = timeline.take(message("a", NodeState::Imaging, 0, "the agent"), at(1.0));
        assert_eq!(first[0].line(Paint::PLAIN), "2026-01-02T03:04:05Z  a  is imaging");
        assert!(
            timeline
                .take(message("a", NodeState::Imaging, 0, "the agent"), at(2.0))
                .is_empty()
        );
        let waits = timeline.take(message("a", NodeState::Imaging, 0, "the write"), at(3.0));
        assert_eq!(waits[0].text, "waits for the write");
        let next = timeline.take(message("a", NodeState::Rebooting, 83, ""), at(84.0));
        assert_eq!(next[0].text, "imaging -> rebooting after 1m 23s");
        let gone = WatchNodesResponse {
            deleted: true,
            ..message("a", NodeState::Unspecified, 0, "")
        };
        assert_eq!(timeline.take(gone, at(90.0))[0].text, "is gone");
    }

    #[test]
    fn a_new_connection_repeats_nothing_and_drops_deleted_nodes() {
        let mut timeline = Timeline::default();
        timeline.take(message("a", NodeState::Active, 0, ""), at(1.0));
        timeline.take(message("b", NodeState::Active, 0, ""), at(1.0));
        timeline.take(synced(), at(1.0));
        timeline.begin();
        assert!(!timeline.synced());
        assert!(
            timeline
                .take(message("a", NodeState::Active, 0, ""), at(9.0))
                .is_empty()
        );
        let changes = timeline.take(synced(), at(9.0));
        assert_eq!((changes.len(), changes[0].node.as_str()), (1, "b"));
    }

    #[test]
    fn only_the_wanted_nodes_are_shown_and_missing_ones_are_known() {
        let mut timeline = Timeline::new(["a".to_owned(), "c".to_owned()]);
        timeline.take(message("a", NodeState::Active, 0, ""), at(1.0));
        assert!(
            timeline
                .take(message("b", NodeState::Active, 0, ""), at(1.0))
                .is_empty()
        );
        assert_eq!(timeline.missing(), ["c"]);
        assert!(timeline.all_in(NodeState::Active));
        timeline.take(message("c", NodeState::Failed, 0, ""), at(1.0));
        assert!(!timeline.all_in(NodeState::Active));
        assert_eq!(timeline.stuck(), Some(("c", "failed".to_owned())));
    }

    #[test]
    fn the_screen_shows_moving_nodes_first_with_their_progress() {
        let mut timeline = Timeline::default();
        timeline.take(message("a", NodeState::Active, 0, ""), at(5.0));
        timeline.take(message("b", NodeState::Imaging, 10, "the write"), at(12.0));
        assert_eq!(timeline.working(), ["nodes/b"]);
        let progress = Progress {
            step: "writing".into(),
            percent: 45,
            ..Progress::default()
        };
        let operation = Operation {
            progress: Some(progress),
            ..Operation::default()
        };
        assert!(
            timeline
                .progress("nodes/b", Some(operation.clone()), at(13.0))
                .is_some()
        );
        assert!(
            timeline.progress("nodes/b", Some(operation), at(14.0)).is_none(),
            "the same tenth is no change"
        );
        assert_eq!(
            timeline.render(at(20.0), 24, Paint::PLAIN),
            [
                "NODE  STATE    FOR     NOW",
                "b     imaging  10.0 s  [#########-----------]  45%  writing",
                "a     active   20.0 s  -",
                "",
                "2026-01-02T03:04:15Z  b  is imaging",
                "2026-01-02T03:04:05Z  a  is active",
            ]
        );
    }

    #[test]
    fn a_screen_that_is_too_small_shows_a_message() {
        let mut timeline = Timeline::default();
        for index in 0..50 {
            timeline.take(message(&format!("n{index:02}"), NodeState::Active, 0, ""), at(1.0));
        }
        let lines = timeline.render(at(2.0), 20, Paint::PLAIN);
        assert!(lines.len() < 20, "{lines:?}");
        assert!(lines.contains(&"and 37 more".to_owned()), "{lines:?}");
    }
}
