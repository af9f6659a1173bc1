//! `rackwright cluster watch`: shows the changes of a cluster until the cluster is ready, released or failed. On a terminal
//! the command draws a live view; elsewhere it writes one line for each change.
//!
//! The output comes from readings of the cluster. An event only triggers the next reading, so the output is correct even if
//! a broken connection loses events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use console::Term;
use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::{Cluster, ClusterState, StreamEventsRequest};
use rackwright_cli_context::client::{Client, open_stream};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::live::Live;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_cli_context::retry::Backoff;
use rackwright_cli_context::{Cx, names, units};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::Code;

use super::changes::{self, Change};
use super::show::{partition_cell, standings_text, wanted_text};
use super::{get, parse_state, short, state_cell, state_name, state_tone};
use crate::node;

/// Pause between readings without an event. Some progress of nodes causes no event.
const PAUSE: Duration = Duration::from_secs(2);

/// Pause between readings on a live terminal.
const LIVE_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of changes that the live view shows.
const HISTORY_MAX: usize = 12;

/// `rackwright cluster watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The cluster
    name: String,
    /// End when the cluster is in this state; exit code 7 if the cluster fails or is released before (default: ready,
    /// released or failed)
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    until: Option<ClusterState>,
    /// Time limit
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    timeout: Option<Duration>,
}

/// Watches until the cluster is in the state of `--until`; without `--until`, until it is ready, released or failed.
pub async fn run(cx: &Cx, args: WatchArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let mut watcher = Watcher {
        cx,
        name: short(&args.name).to_owned(),
        until: args.until,
        live: Live::new(Term::stdout(), cx.ui.live_results()),
        last: None,
        history: VecDeque::new(),
    };
    let watching = watcher.watch(&client);
    let outcome = match args.timeout {
        None => watching.await,
        Some(limit) => tokio::time::timeout(limit, watching).await.unwrap_or_else(|_| {
            Err(CliError::TimedOut {
                what: "the expected change".to_owned(),
                after: units::duration(limit.as_secs_f64()),
                hint: format!(
                    "`rackwright cluster explain {}` shows what the cluster waits for",
                    short(&args.name)
                ),
            })
        }),
    };
    // The last live view stays on the screen.
    watcher.draw();
    outcome
}

struct Watcher<'a> {
    cx: &'a Cx,
    name: String,
    until: Option<ClusterState>,
    live: Live,
    /// The last reading.
    last: Option<Cluster>,
    /// The lines of past changes, newest first; only for the live view.
    history: VecDeque<String>,
}

impl Watcher<'_> {
    async fn watch(&mut self, client: &Arc<Client>) -> Result<(), CliError> {
        let signal = Arc::new(Notify::new());
        // The task is aborted when this function returns.
        let mut listening = JoinSet::new();
        listening.spawn(listen(
            client.clone(),
            names::full("clusters", &self.name),
            signal.clone(),
        ));
        let pause = if self.live.enabled() { LIVE_PAUSE } else { PAUSE };
        let mut backoff = Backoff::for_long_work();
        loop {
            match get(client, &self.name).await {
                Ok(cluster) => {
                    backoff = Backoff::for_long_work();
                    self.record(cluster)?;
                    if self.reached()? {
                        return Ok(());
                    }
                }
                Err(error) if error.code() == Some(Code::NotFound) && self.last.is_some() => {
                    return self.cx.ui.say(&format!("{} was deleted", self.name));
                }
                // The cluster continues to exist while the control plane restarts.
                Err(error) if error.is_outage() && backoff.pause().await => continue,
                Err(error) => return Err(error),
            }
            self.draw();
            tokio::select! {
                () = signal.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Writes the changes since the last reading and stores this reading.
    fn record(&mut self, cluster: Cluster) -> Result<(), CliError> {
        let now = units::now();
        let new = match &self.last {
            None => changes::first(&cluster),
            Some(last) => changes::between(last, &cluster),
        };
        for change in &new {
            self.write_change(change, now)?;
        }
        if !new.is_empty() && self.cx.ui.format() != Format::Table {
            self.cx.ui.element(&cluster, |_| String::new())?;
        }
        self.last = Some(cluster);
        Ok(())
    }

    fn write_change(&mut self, change: &Change, now: f64) -> Result<(), CliError> {
        let line = change.line(&self.name, now);
        if self.live.enabled() {
            self.history.push_front(line);
            self.history.truncate(HISTORY_MAX);
            return Ok(());
        }
        match self.cx.ui.format() {
            Format::Table => self.cx.ui.line(&line),
            _ => Ok(()),
        }
    }

    /// Draws the live view; does nothing if there is none.
    fn draw(&mut self) {
        if let Some(cluster) = &self.last
            && self.live.enabled()
        {
            let mut lines = live_view(cluster, self.cx.ui.paint(), units::now());
            lines.extend(self.history.iter().cloned());
            self.live.draw(&lines);
        }
    }

    /// True if the cluster is in the wanted state. An error if the cluster stays in another state until a further request.
    fn reached(&self) -> Result<bool, CliError> {
        let status = self
            .last
            .as_ref()
            .and_then(|cluster| cluster.status.clone())
            .unwrap_or_default();
        let state = ClusterState::try_from(status.state).unwrap_or_default();
        if self.until == Some(state) {
            return Ok(true);
        }
        // A failed cluster is released or retried only by a request. This command does not wait for a retry. The state
        // `released` is final.
        let is_end = match state {
            ClusterState::Ready => return Ok(self.until.is_none()),
            ClusterState::Released if self.until.is_none() => return Ok(true),
            ClusterState::Released => true,
            ClusterState::Failed => !matches!(self.until, Some(ClusterState::Releasing | ClusterState::Released)),
            _ => false,
        };
        if !is_end {
            return Ok(false);
        }
        let because = if status.reason.is_empty() {
            String::new()
        } else {
            format!(": {}", clean(&status.reason))
        };
        Err(CliError::Missed {
            what: format!("{} is {}{because}", self.name, state_name(status.state)),
            hint: format!(
                "`rackwright cluster explain {}` shows the history and what to do",
                self.name
            ),
        })
    }
}

/// Sends a signal for each event of the cluster, and connects again after a lost connection. Without this task the readings
/// follow each other at the usual pause.
async fn listen(client: Arc<Client>, target: String, signal: Arc<Notify>) {
    let mut backoff = Backoff::for_long_work();
    loop {
        let request = StreamEventsRequest {
            only_new: true,
            target: target.clone(),
            ..StreamEventsRequest::default()
        };
        if let Ok(mut stream) = open_stream!(client, EventServiceClient.stream_events, "read events", request).await {
            while let Some(Ok(_)) = stream.next().await {
                backoff = Backoff::for_long_work();
                signal.notify_one();
            }
        }
        if !backoff.pause().await {
            return;
        }
    }
}

/// The lines of the live view, without the history.
fn live_view(cluster: &Cluster, paint: Paint, now: f64) -> Vec<String> {
    let spec = cluster.spec.clone().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let since = status.state_since.as_ref().map(|time| units::since(time, now));
    let mut lines = vec![format!(
        "{}  {} for {}  {}",
        paint.tone(Tone::Strong, &clean(short(&cluster.name))),
        paint.tone(state_tone(status.state), &state_name(status.state)),
        units::duration(since.unwrap_or_default()),
        clean(&wanted_text(&spec)),
    )];
    let mut table = Table::pairs().indented(2);
    table.row(["state".into(), state_cell(status.state)]);
    table.row(["waits for".into(), (&status.waiting_for).into()]);
    table.row(["nodes".into(), standings_text(&status.members).into()]);
    table.row(["node states".into(), node_states(cluster).into()]);
    table.row(["partition".into(), partition_cell(status.partition.as_ref(), now)]);
    lines.extend(table.render(paint, None).lines().map(str::to_owned));
    lines.push(String::new());
    lines
}

/// The number of members in each node state: `30 imaging, 18 active`.
fn node_states(cluster: &Cluster) -> String {
    let members = cluster.status.as_ref().map_or(&[][..], |status| &status.members);
    let mut counts = std::collections::BTreeMap::new();
    for member in members {
        *counts.entry(member.state).or_insert(0_usize) += 1;
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|(state, count)| format!("{count} {}", node::state_name(*state)))
        .collect();
    parts.join(", ")
}
