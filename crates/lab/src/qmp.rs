//! QEMU's control socket: JSON lines, commands answered in order, events in between.
//! Protocol: QEMU's `docs/interop/qmp-spec.rst`; commands and events: its `qapi/` schema.

use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const REPLY_DEADLINE: Duration = Duration::from_secs(30);

/// A connection to one QEMU process.
#[derive(Debug)]
pub(crate) struct Qmp {
    writer: OwnedWriteHalf,
    replies: mpsc::Receiver<Result<Value, String>>,
    shutdown: watch::Receiver<Option<String>>,
    reader: JoinHandle<()>,
}

impl Qmp {
    /// Performs the handshake over a connection that QEMU made.
    pub(crate) async fn open(stream: UnixStream) -> Result<Self, String> {
        let (reading, writer) = stream.into_split();
        let (reply, replies) = mpsc::channel(4);
        let (sender, shutdown) = watch::channel(None);
        let reader = tokio::spawn(read(reading, reply, sender));
        let mut qmp = Self {
            writer,
            replies,
            shutdown,
            reader,
        };
        qmp.execute("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Runs one command and returns its result, or QEMU's error text.
    pub(crate) async fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        let exchange = async {
            self.writer
                .write_all(line.as_bytes())
                .await
                .map_err(|error| format!("{command}: {error}"))?;
            self.replies
                .recv()
                .await
                .unwrap_or_else(|| Err("QEMU has ended".to_owned()))
        };
        match tokio::time::timeout(REPLY_DEADLINE, exchange).await {
            Ok(reply) => reply.map_err(|error| format!("{command}: {error}")),
            Err(_) => Err(format!(
                "{command}: no answer from QEMU within {} s",
                REPLY_DEADLINE.as_secs()
            )),
        }
    }

    /// Waits for the machine's shutdown and returns QEMU's `ShutdownCause` (`guest-shutdown`, `guest-reset`, …), or
    /// `None` when QEMU is gone. Cancel safe; an earlier shutdown is not missed.
    pub(crate) async fn shut_down(&mut self) -> Option<String> {
        self.shutdown.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl Drop for Qmp {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(
    stream: OwnedReadHalf,
    reply: mpsc::Sender<Result<Value, String>>,
    shutdown: watch::Sender<Option<String>>,
) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            tracing::warn!(line, "QEMU sent a line that is not JSON");
            continue;
        };
        if let Some(event) = message["event"].as_str() {
            if event == "SHUTDOWN" {
                let reason = message["data"]["reason"].as_str().unwrap_or("unknown");
                shutdown.send_replace(Some(reason.to_owned()));
            }
        } else if let Some(result) = message.get("return") {
            if reply.send(Ok(result.clone())).await.is_err() {
                return;
            }
        } else if let Some(error) = message.get("error") {
            let detail = error["desc"]
                .as_str()
                .unwrap_or("QEMU refused without a reason")
                .to_owned();
            if reply.send(Err(detail)).await.is_err() {
                return;
            }
        }
    }
}
