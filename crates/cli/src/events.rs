//! `rackwright events`: all events in order, without losses or repetitions.

use clap::{Args, ValueEnum};
use prost_types::Timestamp;
use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::{Event, EventSeverity, StreamEventsRequest};
use rackwright_cli_context::client::{Client, is_transient, open_stream};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Paint, Tone, clean};
use rackwright_cli_context::retry::Backoff;
use rackwright_cli_context::{Cx, units};
use tokio_stream::StreamExt as _;

/// `rackwright events`
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Continue with new events as they happen
    #[arg(short, long)]
    follow: bool,
    /// Only events after this position (default: from the oldest stored event)
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
    /// Only new events
    #[arg(long, conflicts_with = "after", requires = "follow")]
    new: bool,
    /// Only events of this resource, such as nodes/gpu-001
    #[arg(long, value_name = "RESOURCE")]
    target: Option<String>,
    /// Only events of these kinds, such as power.on; security.* stands for all kinds with this beginning
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Only events of at least this severity
    #[arg(long, value_enum)]
    severity: Option<SeverityArg>,
    /// Only events at or after this time, such as 2026-12-31T18:00:00Z, or 2h for the last two hours
    #[arg(long, value_name = "TIME", value_parser = units::parse_past)]
    since: Option<Timestamp>,
    /// Only events before this time
    #[arg(long, value_name = "TIME", value_parser = units::parse_past, conflicts_with = "follow")]
    until: Option<Timestamp>,
    /// Begin with the newest N events, at most 10000
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000),
          conflicts_with_all = ["after", "new"])]
    tail: Option<i32>,
}

/// How severe an event is.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SeverityArg {
    Info,
    Warning,
    Error,
}

impl From<SeverityArg> for EventSeverity {
    fn from(argument: SeverityArg) -> Self {
        match argument {
            SeverityArg::Info => Self::Info,
            SeverityArg::Warning => Self::Warning,
            SeverityArg::Error => Self::Error,
        }
    }
}

/// The end of reading one connection's stream.
enum End {
    /// All wanted events were read.
    Enough,
    /// The connection is lost; continue after the last position.
    Lost,
}

/// The state of the reader.
struct Reader<'a> {
    cx: &'a Cx,
    client: &'a Client,
    args: &'a EventsArgs,
    /// The last position written, or the requested one.
    position: u64,
    /// False until the first event if only new events are wanted: there is no position to resume from yet.
    anchored: bool,
}

/// Writes events until there are no more (or endlessly with `--follow`).
pub async fn run(cx: &Cx, args: EventsArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let mut reader = Reader {
        cx,
        client: &client,
        args: &args,
        position: args.after.unwrap_or(0),
        anchored: !args.new,
    };
    let mut backoff = Backoff::for_long_work();
    loop {
        let before = reader.position;
        match reader.read().await {
            Ok(End::Enough) => return Ok(()),
            Ok(End::Lost) => {}
            // `read` has already tried for seconds; with `--follow` the server may be unavailable for longer.
            Err(error) if error.is_outage() && args.follow => {}
            Err(error) => return Err(error),
        }
        if reader.position > before {
            backoff = Backoff::for_long_work();
        }
        if !backoff.pause().await {
            return Err(CliError::TimedOut {
                what: "the reconnection to the server".to_owned(),
                after: "several minutes".to_owned(),
                hint: format!("continue later with `rackwright events --after {}`", reader.position),
            });
        }
    }
}

impl Reader<'_> {
    /// Reads one connection's stream.
    async fn read(&mut self) -> Result<End, CliError> {
        let doing = "read events";
        let request = StreamEventsRequest {
            after_position: self.position,
            only_new: !self.anchored,
            target: self.args.target.clone().unwrap_or_default(),
            until_now: !self.args.follow,
            kinds: self.args.kinds.clone(),
            min_severity: self
                .args
                .severity
                .map_or(0, |severity| EventSeverity::from(severity).into()),
            since_time: self.args.since,
            until_time: self.args.until,
            // A later connection goes on after the last event seen.
            newest: if self.position == 0 {
                self.args.tail.unwrap_or(0)
            } else {
                0
            },
        };
        let mut stream = open_stream!(self.client, EventServiceClient.stream_events, doing, request).await?;
        loop {
            match stream.next().await {
                Some(Ok(event)) => self.take(&event)?,
                Some(Err(status)) => {
                    let status = self.client.classify(status);
                    if !is_transient(&status) {
                        return Err(CliError::rpc(doing, status));
                    }
                    self.cx.ui.note(&format!(
                        "note: {}; continuing after position {}",
                        status.message(),
                        self.position
                    ));
                    return Ok(End::Lost);
                }
                None if self.args.follow => return Ok(End::Lost),
                None => return Ok(End::Enough),
            }
        }
    }

    /// Writes an event, once.
    fn take(&mut self, event: &Event) -> Result<(), CliError> {
        if self.anchored && event.position <= self.position {
            return Ok(());
        }
        self.cx.ui.element(event, |paint| line(event, paint))?;
        self.position = event.position;
        self.anchored = true;
        Ok(())
    }
}

/// Number of events on the page of a resource.
const NEWEST: i32 = 10;

/// The newest events of a resource, such as `nodes/gpu-001`, in order.
pub async fn newest(client: &Client, target: &str) -> Result<Vec<Event>, CliError> {
    let doing = "read events";
    let request = StreamEventsRequest {
        target: target.to_owned(),
        until_now: true,
        newest: NEWEST,
        ..StreamEventsRequest::default()
    };
    let mut stream = open_stream!(client, EventServiceClient.stream_events, doing, request).await?;
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event.map_err(|status| CliError::rpc(doing, client.classify(status)))?);
    }
    Ok(events)
}

/// The lines of events below a heading.
pub fn lines(events: &[Event], paint: Paint) -> String {
    events
        .iter()
        .map(|event| format!("  {}\n", line(event, paint)))
        .collect()
}

fn line(event: &Event, paint: Paint) -> String {
    let time = event.time.as_ref().map(units::stamp).unwrap_or_else(|| "-".to_owned());
    let mut attributes: Vec<_> = event
        .attributes
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    attributes.sort();
    let tail = if attributes.is_empty() {
        String::new()
    } else {
        format!("  {}", clean(&attributes.join(" ")))
    };
    let tone = match event.severity() {
        EventSeverity::Error => Tone::Bad,
        EventSeverity::Warning => Tone::Busy,
        EventSeverity::Info | EventSeverity::Unspecified => Tone::Strong,
    };
    format!(
        "{time} {:>6}  {}  {:<16}  {}{}",
        event.position,
        paint.tone(tone, &format!("{:<16}", clean(&event.kind))),
        clean(&event.target),
        clean(&event.message),
        paint.tone(Tone::Dim, &tail)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_coloured_by_their_severity() {
        for (severity, beginning) in [
            (EventSeverity::Error, "\x1b[1;31mfailed"),
            (EventSeverity::Warning, "\x1b[33mfailed"),
            (EventSeverity::Info, "\x1b[1mfailed"),
        ] {
            let event = Event {
                kind: "failed".into(),
                severity: severity.into(),
                ..Event::default()
            };
            assert!(line(&event, Paint(true)).contains(beginning), "{severity:?}");
        }
    }
}
