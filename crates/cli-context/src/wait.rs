//! Follows operations until they are done: live lines with bar, rate and remaining time on a terminal, one line per
//! change elsewhere, and one closing line for each with its seconds.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use console::Term;
use rackwright_api::google::rpc;
use rackwright_api::v1::operation_service_client::OperationServiceClient;
use rackwright_api::v1::{Operation, WaitOperationRequest};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tonic::Code;

use crate::client::{Client, rpc};
use crate::error::CliError;
use crate::output::live::{self, Live};
use crate::output::{Ui, clean};
use crate::retry::Backoff;
use crate::{names, units};

/// Most operations that are followed concurrently.
const CONCURRENT_WAITS: usize = 64;

/// `--wait` and its limit.
#[derive(Debug, Clone, Copy, Args)]
pub struct WaitArgs {
    /// Wait until the work is done, and show its progress
    #[arg(long)]
    pub wait: bool,
    /// Time limit of the wait; the work continues after it
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, requires = "wait")]
    pub timeout: Option<Duration>,
}

/// Waits for all of them and returns their final forms, in the same order; some may have failed (see `verdict`).
///
/// # Errors
/// `TimedOut` after `limit`; the error of the calls if the server stays away for minutes.
pub async fn until_done(
    client: &Arc<Client>,
    ui: &Ui,
    operations: Vec<Operation>,
    limit: Option<Duration>,
) -> Result<Vec<Operation>, CliError> {
    let mut display = ProgressDisplay::new(ui, operations);
    let mut tasks = JoinSet::new();
    let (sender, mut changes) = mpsc::channel(CONCURRENT_WAITS);
    let permits = Arc::new(Semaphore::new(CONCURRENT_WAITS));
    let poll = Duration::from_millis(if display.live.enabled() { 500 } else { 2000 });
    for (index, operation) in display
        .operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| !operation.done)
    {
        let (client, sender, permits) = (client.clone(), sender.clone(), permits.clone());
        let name = operation.name.clone();
        tasks.spawn(async move {
            follow(client, name, poll, permits, index, sender)
                .await
                .map(|last| (index, last))
        });
    }
    drop(sender);
    let deadline = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(deadline);
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    loop {
        tokio::select! {
            biased;
            Some((index, operation)) = changes.recv() => display.update(index, operation),
            joined = tasks.join_next() => match joined {
                None => break,
                Some(Ok(Ok((index, last)))) => display.update(index, last),
                Some(Ok(Err(error))) => { display.live.clear(); return Err(error); }
                Some(Err(e)) => return Err(CliError::BadAnswer(format!("the wait ended unexpectedly: {e}"))),
            },
            _ = tick.tick(), if display.live.enabled() => {}
            () = &mut deadline => return Err(display.timed_out(limit.unwrap_or_default())),
        }
        display.draw();
    }
    display.live.clear();
    Ok(display.operations)
}

/// Polls the operation and reports every answer until the operation is done.
async fn follow(
    client: Arc<Client>,
    name: String,
    poll: Duration,
    permits: Arc<Semaphore>,
    index: usize,
    changes: mpsc::Sender<(usize, Operation)>,
) -> Result<Operation, CliError> {
    let mut backoff = Backoff::for_long_work();
    loop {
        let permit = permits.acquire().await;
        let request = WaitOperationRequest {
            name: name.clone(),
            timeout: Some(units::proto_duration(poll)),
        };
        let answer = rpc!(
            client,
            OperationServiceClient.wait_operation,
            format!("wait for {name}"),
            request
        )
        .await;
        drop(permit);
        match answer {
            Ok(operation) if operation.done => return Ok(operation),
            Ok(operation) => {
                backoff = Backoff::for_long_work();
                // The board is gone after the time limit; then this task is ended too.
                let _ = changes.send((index, operation)).await;
            }
            // The control plane may be restarted during the operation, which continues.
            Err(error) if error.is_outage() && backoff.pause().await => {}
            Err(error) => return Err(error),
        }
    }
}

/// One closing line for each, on stdout (none with `--quiet`), and an error for the failed ones.
pub fn verdict(ui: &Ui, operations: &[Operation]) -> Result<(), CliError> {
    let mut errors = Vec::new();
    for operation in operations {
        let took = units::between(operation.create_time.as_ref(), operation.end_time.as_ref());
        let after = units::duration(took.unwrap_or_default());
        match &operation.error {
            None => ui.say(&format!("{} done in {after}", title(operation)))?,
            Some(error) => errors.push(CliError::OperationFailed {
                what: title(operation),
                after,
                error: Box::new(rpc::Status {
                    message: clean(&error.message),
                    ..error.clone()
                }),
            }),
        }
    }
    CliError::gather(errors)
}

/// `gpu-001 deploy`
pub fn title(operation: &Operation) -> String {
    let target = match operation.target.split_once('/') {
        Some(("nodes" | "clusters", id)) => id.to_owned(),
        Some(("images", _)) => names::image_short(&operation.target),
        _ => operation.target.clone(),
    };
    clean(&format!("{target} {}", operation.kind))
}

/// The state: `running`, `done`, `failed`, `cancelled`, `cancelling`.
pub fn state(operation: &Operation) -> &'static str {
    match (&operation.error, operation.done) {
        (Some(error), _) if error.code == Code::Cancelled as i32 => "cancelled",
        (Some(_), _) => "failed",
        (None, true) => "done",
        (None, false) if operation.cancel_requested => "cancelling",
        (None, false) => "running",
    }
}

/// `[#####---]  45%  writing the image, 1.0 GB of 4.0 GB, 300.0 MB/s, 10.0 s left`
pub fn progress_text(operation: &Operation) -> String {
    let progress = operation.progress.clone().unwrap_or_default();
    let mut text = live::bar(progress.percent);
    for part in [clean(&progress.step), live::amounts(&progress)]
        .iter()
        .filter(|part| !part.is_empty())
    {
        text.push_str(if text.ends_with('%') { "  " } else { ", " });
        text.push_str(part);
    }
    text
}

/// The known state of every operation, and the part of it on the screen.
struct ProgressDisplay<'a> {
    ui: &'a Ui,
    live: Live,
    operations: Vec<Operation>,
    /// The last line of each where nothing can be redrawn: the step and tens of percent.
    noted: Vec<(String, u32)>,
}

impl<'a> ProgressDisplay<'a> {
    fn new(ui: &'a Ui, operations: Vec<Operation>) -> Self {
        let noted = vec![(String::new(), 0); operations.len()];
        Self {
            ui,
            live: Live::new(Term::stderr(), ui.live_progress()),
            operations,
            noted,
        }
    }

    fn update(&mut self, index: usize, operation: Operation) {
        if self.operations[index].done {
            // A late answer from before the end.
            return;
        }
        let progress = operation.progress.clone().unwrap_or_default();
        let mark = (progress.step.clone(), progress.percent / 10);
        if !self.live.enabled() && !operation.done && self.noted[index] != mark {
            let now = units::stamp_seconds(units::now());
            let step = clean(&progress.step);
            self.ui
                .note(&format!("{now} {}: {}% {step}", title(&operation), progress.percent));
            self.noted[index] = mark;
        }
        self.operations[index] = operation;
    }

    fn draw(&mut self) {
        if !self.live.enabled() {
            return;
        }
        let now = units::now();
        // Running operations last: they are the watched ones.
        let (done, running): (Vec<_>, Vec<_>) = self.operations.iter().partition(|operation| operation.done);
        let lines: Vec<String> = running
            .iter()
            .map(|operation| {
                let elapsed = operation
                    .create_time
                    .as_ref()
                    .map_or(0.0, |time| units::since(time, now));
                format!(
                    "{}  {}  ({})",
                    title(operation),
                    progress_text(operation),
                    units::duration(elapsed)
                )
            })
            .chain((!done.is_empty()).then(|| format!("{} of {} ended", done.len(), self.operations.len())))
            .collect();
        self.live.draw(&lines);
    }

    fn timed_out(&mut self, limit: Duration) -> CliError {
        self.live.clear();
        let running: Vec<_> = self.operations.iter().filter(|operation| !operation.done).collect();
        let titles: Vec<_> = running.iter().map(|operation| title(operation)).collect();
        let ids: Vec<_> = running.iter().map(|operation| names::last(&operation.name)).collect();
        CliError::TimedOut {
            what: titles.join(", "),
            after: units::duration(limit.as_secs_f64()),
            hint: format!(
                "the work continues; wait for it with `rackwright operation wait {}`",
                ids.join(" ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackwright_api::v1::Progress;

    #[test]
    fn states_and_titles() {
        let mut operation = Operation {
            kind: "deploy".into(),
            target: "nodes/gpu-001".into(),
            ..Default::default()
        };
        assert_eq!(
            (title(&operation).as_str(), state(&operation)),
            ("gpu-001 deploy", "running")
        );
        operation.cancel_requested = true;
        assert_eq!(state(&operation), "cancelling");
        operation.done = true;
        assert_eq!(state(&operation), "done");
        operation.error = Some(rpc::Status {
            code: Code::Cancelled as i32,
            ..Default::default()
        });
        assert_eq!(state(&operation), "cancelled");
        operation.error = Some(rpc::Status {
            code: Code::Internal as i32,
            ..Default::default()
        });
        assert_eq!(state(&operation), "failed");
        operation.target = "images/debian/versions/b3-0123456789abcdef".into();
        assert_eq!(title(&operation), "debian@b3-0123456789ab deploy");
    }

    #[test]
    fn progress_in_one_line() {
        let mut operation = Operation::default();
        assert_eq!(progress_text(&operation), "[--------------------]   0%");
        operation.progress = Some(Progress {
            step: "writing the image".into(),
            percent: 45,
            ..Default::default()
        });
        assert_eq!(
            progress_text(&operation),
            "[#########-----------]  45%  writing the image"
        );
        operation.progress = Some(Progress {
            step: "writing the image".into(),
            percent: 45,
            logical_bytes: 1_000_000,
            logical_bytes_total: 3_000_000,
            bytes_per_second: 1_000_000,
            ..Default::default()
        });
        assert_eq!(
            progress_text(&operation),
            "[#########-----------]  45%  writing the image, 1.0 MB of 3.0 MB, 1.0 MB/s, 2.0 s left"
        );
    }
}
