//! Reads the recording of a console.

use std::io::Write as _;

use clap::Args;
use rackwright_api::v1::console_service_client::ConsoleServiceClient;
use rackwright_api::v1::{ReadConsoleLogRequest, ReadConsoleLogResponse};
use rackwright_cli_context::client::open_stream;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::Format;
use rackwright_cli_context::{Cx, names, units};
use tokio_stream::StreamExt as _;

use super::plain::Plain;

/// `rackwright node console log`
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The node
    id: String,
    /// Only one boot: -1 is the last boot, -2 the boot before, 1 the oldest recorded boot
    #[arg(
        long,
        value_name = "N",
        allow_hyphen_values = true,
        default_value_t = 0,
        hide_default_value = true
    )]
    boot: i32,
    /// Only output since this time: a duration before now (8h), or a time (2026-12-31T18:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = past)]
    since: Option<prost_types::Timestamp>,
    /// Only output before this time, in the same form
    #[arg(long, value_name = "TIME", value_parser = past)]
    until: Option<prost_types::Timestamp>,
    /// Continue with new output
    #[arg(short, long)]
    follow: bool,
    /// Put the time before each line
    #[arg(short, long)]
    timestamps: bool,
    /// Write the bytes of the machine unchanged, including escape sequences
    #[arg(long, conflicts_with = "timestamps")]
    raw: bool,
}

/// A time, or a duration before now.
fn past(text: &str) -> Result<prost_types::Timestamp, String> {
    match units::parse_duration(text) {
        Ok(ago) => {
            let seconds = units::now() - ago.as_secs_f64();
            Ok(prost_types::Timestamp {
                seconds: seconds as i64,
                nanos: 0,
            })
        }
        Err(_) => units::parse_moment(text).map_err(|_| {
            format!("`{text}` is not a duration before now such as 8h or a time such as 2026-12-31T18:00:00Z")
        }),
    }
}

/// Writes a recording.
pub async fn run(cx: &Cx, args: LogArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = names::short("nodes", &args.id);
    let doing = format!("read the console recording of {id}");
    let request = ReadConsoleLogRequest {
        node: names::full("nodes", id),
        since_time: args.since,
        until_time: args.until,
        boot: args.boot,
        follow: args.follow,
    };
    let mut stream = open_stream!(client, ConsoleServiceClient.read_console_log, &doing, request).await?;
    let mut writer = Writer::new(cx, &args);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|status| CliError::rpc(&doing, client.classify(status)))?;
        writer.take(piece)?;
    }
    writer.end()
}

/// Writes pieces as lines, or unchanged.
struct Writer<'a> {
    cx: &'a Cx,
    args: &'a LogArgs,
    plain: Plain,
    boot: Option<Option<prost_types::Timestamp>>,
}

impl<'a> Writer<'a> {
    fn new(cx: &'a Cx, args: &'a LogArgs) -> Self {
        Self {
            cx,
            args,
            plain: Plain::default(),
            boot: None,
        }
    }

    fn take(&mut self, piece: ReadConsoleLogResponse) -> Result<(), CliError> {
        if self.cx.ui.format() != Format::Table {
            return self.cx.ui.element(&piece, |_| String::new());
        }
        if self.args.raw {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(&piece.output).and_then(|()| out.flush());
            return written.map_err(|source| CliError::io("write to the terminal", source));
        }
        if self.boot != Some(piece.boot_time) {
            self.end()?;
            self.boot = Some(piece.boot_time);
            let began = match &piece.boot_time {
                Some(time) => format!("--- switched on at {} ---", units::stamp(time)),
                None => "--- before the first recorded power-on ---".to_owned(),
            };
            self.cx.ui.line(&began)?;
        }
        let stamp = piece.time.as_ref().filter(|_| self.args.timestamps).map(units::stamp);
        let mut lines = Vec::new();
        self.plain.read(&piece.output, &mut |line| lines.push(line.to_owned()));
        lines
            .into_iter()
            .try_for_each(|line| self.line(stamp.as_deref(), &line))
    }

    fn line(&self, stamp: Option<&str>, line: &str) -> Result<(), CliError> {
        match stamp {
            Some(stamp) => self.cx.ui.line(&format!("{stamp}  {line}")),
            None => self.cx.ui.line(line),
        }
    }

    fn end(&mut self) -> Result<(), CliError> {
        let mut lines = Vec::new();
        self.plain.end(&mut |line| lines.push(line.to_owned()));
        lines.into_iter().try_for_each(|line| self.line(None, &line))
    }
}
