//! Attaches to a console.

use std::io::{IsTerminal as _, Read as _, Write as _};

use clap::Args;
use rackwright_api::v1::attach_console_request::Message as ClientMessage;
use rackwright_api::v1::attach_console_response::Message as ServerMessage;
use rackwright_api::v1::console_service_client::ConsoleServiceClient;
use rackwright_api::v1::{AttachConsoleRequest, AttachConsoleResponse, ConsoleEntry};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::clean;
use rackwright_cli_context::{Cx, names};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use super::escape::{Escape, Keys};
use super::terminal::Raw;

/// Most messages of input that wait to be sent.
const AHEAD: usize = 64;
/// The output of `~?`.
const HELP: &str = "at the beginning of a line: ~. leaves the console, ~~ sends ~, ~? shows this help";

/// `rackwright node console`
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The node
    #[arg(required = true)]
    id: Option<String>,
    /// Only read, send no input
    #[arg(long)]
    read_only: bool,
    /// Take over the input; the former writer gets a notice and can then only read
    #[arg(long, conflicts_with = "read_only")]
    take_over: bool,
}

/// The end of a session.
enum End {
    /// By `~.`, a signal, or the end of the input.
    Left,
    /// By the server.
    Ended(Option<tonic::Status>),
}

/// Runs the console until `~.`, a signal, or the server's end.
pub async fn run(cx: &Cx, args: AttachArgs) -> Result<(), CliError> {
    let id = args.id.unwrap_or_default();
    let id = names::short("nodes", &id);
    let client = cx.client().await?;
    let doing = format!("attach to the console of {id}");
    let (channel, _) = client.channel(&doing).await?;
    let (keys, requests) = mpsc::channel(AHEAD);
    let enter = AttachConsoleRequest {
        message: Some(ClientMessage::Enter(ConsoleEntry {
            node: names::full("nodes", id),
            read_only: args.read_only,
            take_over: args.take_over,
        })),
    };
    // The channel has room: this is its first message.
    let _ = keys.send(enter).await;
    let request = Request::new(ReceiverStream::new(requests));
    let opened = ConsoleServiceClient::new(channel).attach_console(request).await;
    let output = opened.map_err(|status| CliError::rpc(&doing, client.classify(status)))?;
    if std::io::stdin().is_terminal() {
        cx.ui.note(&format!("attached to the console of {id}; {HELP}"));
    }
    let raw = Raw::enter().map_err(|source| CliError::io("use the terminal", source))?;
    let is_raw = raw.is_some();
    let end = relay(output.into_inner(), keys, is_raw).await;
    drop(raw);
    match end? {
        End::Left => {
            cx.ui.note("left the console");
            Ok(())
        }
        End::Ended(None) => Ok(()),
        End::Ended(Some(status)) => Err(CliError::rpc(&doing, client.classify(status))),
    }
}

async fn relay(
    mut output: Streaming<AttachConsoleResponse>,
    keys: mpsc::Sender<AttachConsoleRequest>,
    is_raw: bool,
) -> Result<End, CliError> {
    let listen = |source| CliError::io("listen to signals", source);
    let mut terminate = signal(SignalKind::terminate()).map_err(listen)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(listen)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(listen)?;
    let mut input = keyboard();
    let (mut escape, mut is_typing) = (Escape::default(), true);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(End::Left),
            _ = hang_up.recv() => return Ok(End::Left),
            _ = interrupt.recv() => return Ok(End::Left),
            response = output.message() => match response {
                Ok(Some(response)) => show(response, is_raw)?,
                Ok(None) => return Ok(End::Ended(None)),
                Err(status) => return Ok(End::Ended(Some(status))),
            },
            read = input.recv(), if is_typing => {
                let Some(read) = read else {
                    // The piped input is sent; the output is shown until the user ends it.
                    is_typing = false;
                    continue;
                };
                let read = read.map_err(|source| CliError::io("read the input", source))?;
                let (typed, leaves, wants_help) = match escape.read(&read) {
                    Keys::Type(typed) => (typed, false, false),
                    Keys::Leave(typed) => (typed, true, false),
                    Keys::Help(typed) => (typed, false, true),
                };
                if wants_help {
                    notice(HELP, is_raw);
                }
                if !typed.is_empty() {
                    let message = Some(ClientMessage::Input(typed));
                    // If this fails, the end of the stream gives the reason.
                    let _ = keys.send(AttachConsoleRequest { message }).await;
                }
                if leaves {
                    return Ok(End::Left);
                }
            }
        }
    }
}

/// Standard input, read by a separate thread: the thread ends with the program, even while it waits.
fn keyboard() -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let (mut input, mut buffer) = (std::io::stdin(), vec![0; 4096]);
        loop {
            let read = match input.read(&mut buffer) {
                Ok(0) => return,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map(|count| buffer[..count].to_vec()),
            };
            let is_end = read.is_err();
            #[expect(clippy::disallowed_methods, reason = "this thread only reads the terminal")]
            let is_sent = sender.blocking_send(read).is_ok();
            if !is_sent || is_end {
                return;
            }
        }
    });
    receiver
}

/// Raw, as the machine printed it: the output goes from a terminal line to a terminal.
fn show(response: AttachConsoleResponse, is_raw: bool) -> Result<(), CliError> {
    match response.message {
        Some(ServerMessage::Output(bytes)) => {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(&bytes).and_then(|()| out.flush());
            written.map_err(|source| CliError::io("write to the terminal", source))
        }
        Some(ServerMessage::Notice(text)) => {
            notice(&clean(&text), is_raw);
            Ok(())
        }
        None => Ok(()),
    }
}

fn notice(text: &str, is_raw: bool) {
    let line = if is_raw { "\r\n" } else { "\n" };
    eprint!("{line}[rackwright: {text}]{line}");
}
