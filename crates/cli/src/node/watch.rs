//! `node watch`: the stream of nodes, drawn as a live timeline on a terminal and written as lines elsewhere.

use std::time::Duration;

use clap::Args;
use console::Term;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{NodeState, WatchNodesRequest, WatchNodesResponse};
use rackwright_cli_context::client::{Client, is_transient, open_stream};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::live::Live;
use rackwright_cli_context::output::{Format, Paint};
use rackwright_cli_context::retry::Backoff;
use rackwright_cli_context::{Cx, names, operation, units};
use tokio_stream::StreamExt as _;
use tonic::Status;

use super::targets::{Selection, state};
use super::timeline::{Change, Timeline};

/// Pause between two readings of the progress of running image writes and erases.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Pause between two drawings of the screen.
const REDRAW: Duration = Duration::from_millis(500);

/// Most nodes with progress. Further nodes show the cause of their wait instead.
const PROGRESS_NODES_MAX: usize = 32;

/// `rackwright node watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Only these nodes
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// End when all nodes are in this state; exit code 7 if a node fails or is quarantined instead
    #[arg(long, value_name = "STATE", value_parser = state)]
    until: Option<NodeState>,
    /// With --until: time limit
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, requires = "until")]
    timeout: Option<Duration>,
}

/// Watches until interrupted, or until all nodes are in the state of `--until`.
pub async fn run(cx: &Cx, args: WatchArgs) -> Result<(), CliError> {
    let ids: Vec<String> = args.ids.iter().map(|id| names::short("nodes", id).to_owned()).collect();
    let mut filter = args.selection.filter();
    if let ([only], true) = (ids.as_slice(), filter.is_empty()) {
        // The server selects one node by its name. A filter cannot name several nodes: the timeline selects them.
        filter = format!("name = \"{only}\"");
    }
    follow(cx, ids, filter, args.until, args.timeout).await
}

/// Follows nodes, and connects again after a lost connection.
pub async fn follow(
    cx: &Cx,
    ids: Vec<String>,
    filter: String,
    until: Option<NodeState>,
    timeout: Option<Duration>,
) -> Result<(), CliError> {
    let client = cx.client().await?;
    let mut watcher = Watcher {
        cx,
        client: &client,
        timeline: Timeline::new(ids),
        live: Live::new(Term::stdout(), cx.ui.live_results()),
        until,
    };
    let watching = watcher.watch(&filter);
    let outcome = match timeout {
        None => watching.await,
        Some(limit) => tokio::time::timeout(limit, watching).await.unwrap_or_else(|_| {
            Err(CliError::TimedOut {
                what: "the expected change".to_owned(),
                after: units::duration(limit.as_secs_f64()),
                hint: "`rackwright node explain ID` shows what a node waits for".to_owned(),
            })
        }),
    };
    // The last drawing stays on the screen.
    watcher.draw();
    outcome
}

struct Watcher<'a> {
    cx: &'a Cx,
    client: &'a Client,
    timeline: Timeline,
    live: Live,
    until: Option<NodeState>,
}

impl Watcher<'_> {
    async fn watch(&mut self, filter: &str) -> Result<(), CliError> {
        let mut backoff = Backoff::for_long_work();
        loop {
            match self.read(filter, &mut backoff).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.is_outage() => {}
                Err(error) => return Err(error),
            }
            if !backoff.pause().await {
                return Err(CliError::TimedOut {
                    what: "the reconnection to the server".to_owned(),
                    after: "several minutes".to_owned(),
                    hint: String::new(),
                });
            }
        }
    }

    /// Reads the stream of one connection. True: all nodes are in the state of `--until`. False: the connection is lost.
    async fn read(&mut self, filter: &str, backoff: &mut Backoff) -> Result<bool, CliError> {
        let doing = "watch nodes";
        let request = WatchNodesRequest {
            filter: filter.to_owned(),
        };
        let mut stream = open_stream!(self.client, NodeServiceClient.watch_nodes, doing, request).await?;
        self.timeline.begin();
        let mut progress = tokio::time::interval(PROGRESS_EVERY);
        let mut redraw = tokio::time::interval(REDRAW);
        loop {
            tokio::select! {
                next = stream.next() => match next {
                    Some(Ok(message)) => {
                        *backoff = Backoff::for_long_work();
                        self.take(message)?;
                        if self.reached()? {
                            return Ok(true);
                        }
                    }
                    Some(Err(status)) => {
                        let status = self.client.classify(status);
                        return if is_transient(&status) { Ok(false) } else { Err(CliError::rpc(doing, status)) };
                    }
                    None => return Ok(false),
                },
                _ = progress.tick() => self.read_progress().await?,
                _ = redraw.tick() => self.draw(),
            }
        }
    }

    fn take(&mut self, message: WatchNodesResponse) -> Result<(), CliError> {
        let resource = message.clone();
        let changes = self.timeline.take(message, units::now());
        if self.cx.ui.format() != Format::Table {
            let shown = resource.node.is_some() && !changes.is_empty();
            return if shown {
                self.cx.ui.element(&resource, |_| String::new())
            } else {
                Ok(())
            };
        }
        changes.iter().try_for_each(|change| self.write(change))
    }

    fn write(&self, change: &Change) -> Result<(), CliError> {
        if self.live.enabled() || self.cx.ui.format() != Format::Table {
            return Ok(());
        }
        self.cx.ui.line(&change.line(Paint::PLAIN))
    }

    fn draw(&mut self) {
        if self.live.enabled() {
            let lines = self
                .timeline
                .render(units::now(), self.live.size().0, self.cx.ui.paint());
            self.live.draw(&lines);
        }
    }

    async fn read_progress(&mut self) -> Result<(), CliError> {
        for node in self.timeline.working().into_iter().take(PROGRESS_NODES_MAX) {
            let filter = format!("target = \"{node}\" AND done = false");
            // An error needs no report here: the stream notices an outage too, and `watch` connects again.
            let Ok(operations) = operation::matching(self.client, &filter, 1).await else {
                continue;
            };
            let change = self
                .timeline
                .progress(&node, operations.into_iter().next(), units::now());
            if let Some(change) = change {
                self.write(&change)?;
            }
        }
        Ok(())
    }

    /// Whether all nodes are in the state of `--until`. A node that failed or is quarantined instead is an error.
    fn reached(&self) -> Result<bool, CliError> {
        if !self.timeline.synced() {
            return Ok(false);
        }
        let missing = self.timeline.missing();
        if !missing.is_empty() {
            let status = Status::not_found(format!("there is no node {}", missing.join(", ")));
            return Err(CliError::rpc("watch nodes", status));
        }
        let Some(until) = self.until else { return Ok(false) };
        if self.timeline.all_in(until) {
            return Ok(true);
        }
        match self.timeline.stuck() {
            Some((id, why)) if !matches!(until, NodeState::Failed | NodeState::Quarantined) => Err(CliError::Missed {
                what: format!("{id} is {why}"),
                hint: format!("`rackwright node explain {id}` shows the attempts and what to do"),
            }),
            _ => Ok(false),
        }
    }
}
