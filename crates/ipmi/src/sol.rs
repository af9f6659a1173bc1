//! The serial console over the network (Serial over LAN).
//!
//! `ipmitool sol activate` copies its input to the machine and what the machine prints to its output, but takes an escape
//! character behind an end of line for a command of its own. Ours is a character that nobody types, and where it comes all
//! the same it is doubled, which `ipmitool` takes for the character itself (`processSolUserInput` in `lib/ipmi_sol.c`): all
//! bytes pass.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::client::Ipmi;
use crate::error::IpmiError;
use crate::tool;

/// ASCII "unit separator": control and underscore.
const ESCAPE: u8 = 0x1f;
/// What `ipmitool` prints when the console is open; a line.
const OPEN: &[u8] = b"[SOL Session operational.";
/// It is open, or refused, within this.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// Longest text before it is open.
const PREFACE_MAX: usize = 4096;
/// Once told to end, it tells the BMC, which takes a few packets.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Bytes that are taken at once.
const CHUNK: usize = 1024;

/// An open serial console: what is read is what the machine prints, what is written is typed. Dropping it closes it at the
/// BMC, too. A read of nothing says that it ended: the BMC closed it (not every BMC tells when somebody else made it do so), or answers no
/// more.
#[derive(Debug)]
pub struct SerialConsole {
    ipmi: Ipmi,
    child: Option<Child>,
    input: Option<ChildStdin>,
    output: ChildStdout,
    typed: Typed,
    /// Encoded and not yet taken by the program.
    pending: Vec<u8>,
}

/// Whether an escape character would be taken for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typed {
    /// Nothing yet, or an end of line.
    Line,
    /// Anything else.
    Within,
}

impl Typed {
    fn encode(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        for byte in bytes {
            if *self == Self::Line && *byte == ESCAPE {
                into.push(ESCAPE);
            }
            into.push(*byte);
            *self = if matches!(byte, b'\r' | b'\n') {
                Self::Line
            } else {
                Self::Within
            };
        }
    }
}

impl Ipmi {
    /// Opens the machine's serial console. Needs a tokio runtime also when it is dropped.
    ///
    /// # Errors
    /// The BMC, or the way there; [`IpmiError::Busy`] when somebody else has it open.
    pub async fn console(&self) -> Result<SerialConsole, IpmiError> {
        let place = self.place();
        let opened = {
            // The turn ends when it is open: power has to be switched meanwhile.
            let _turn = self.manners().turn(&place).await;
            self.manners().check(&place, self.account_mark())?;
            tokio::time::timeout(OPEN_LIMIT, self.activate()).await
        };
        let Ok(opened) = opened else {
            return Err(IpmiError::TimedOut {
                bmc: place,
                command: "sol activate".to_owned(),
                limit_s: OPEN_LIMIT.as_secs(),
            });
        };
        let console = opened.map_err(|error| tool::judged(error, self.manners(), self.account_mark()))?;
        self.manners().admitted(&place);
        Ok(console)
    }

    /// Closes the console of whoever has it open.
    ///
    /// # Errors
    /// The BMC, or the way there.
    pub async fn close_console(&self) -> Result<(), IpmiError> {
        match self.ask(&["sol", "deactivate"]).await {
            // Nobody has.
            Err(IpmiError::Failed { words, .. }) if words.contains("already de-activated") => Ok(()),
            other => other.map(drop),
        }
    }

    async fn activate(&self) -> Result<SerialConsole, IpmiError> {
        let mut command = tool::unbuffered(self.program(), self.address(), self.account());
        let escape = char::from(ESCAPE).to_string();
        command.stdin(std::process::Stdio::piped());
        let mut child = command
            .args(["-e", &escape, "sol", "activate"])
            .spawn()
            .map_err(tool::not_run)?;
        let (input, output, mut complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let Some(mut output) = output else {
            return Err(IpmiError::NotRun {
                source: io::Error::other("it has no output"),
            });
        };
        let preface = preface(&mut output)
            .await
            .map_err(|source| IpmiError::NotRun { source })?;
        let Some(()) = preface else {
            drop(input);
            return Err(self.refused(child, complaints.take()).await);
        };
        // What it says later is not read: it must not fill a pipe that nobody empties.
        if let Some(mut complaints) = complaints {
            tokio::spawn(async move { tokio::io::copy(&mut complaints, &mut tokio::io::sink()).await });
        }
        Ok(SerialConsole {
            ipmi: self.clone(),
            child: Some(child),
            input,
            output,
            typed: Typed::Line,
            pending: Vec::new(),
        })
    }

    /// Why it was not opened.
    async fn refused(&self, mut child: Child, complaints: Option<ChildStderr>) -> IpmiError {
        let mut said = Vec::new();
        if let Some(complaints) = complaints {
            // What cannot be read was not said.
            let _ = complaints.take(PREFACE_MAX as u64).read_to_end(&mut said).await;
        }
        let _ = child.kill().await;
        let said = String::from_utf8_lossy(&said);
        // The missing program is told by stdbuf, which starts it.
        if said.contains("No such file or directory") && said.contains("stdbuf") {
            return IpmiError::NotInstalled;
        }
        tool::complaint(&said, "sol activate", self.address()).unwrap_or_else(|| IpmiError::Failed {
            bmc: self.place(),
            command: "sol activate".to_owned(),
            words: tool::last_words(&said, &[]),
        })
    }
}

/// Reads up to the end of the line that says that the console is open, and no byte of the console; none if it never came.
async fn preface(output: &mut ChildStdout) -> io::Result<Option<()>> {
    let mut line = Vec::new();
    for _ in 0..PREFACE_MAX {
        let mut byte = [0];
        if output.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        if byte != [b'\n'] {
            line.extend(byte);
        } else if line.starts_with(OPEN) {
            return Ok(Some(()));
        } else {
            line.clear();
        }
    }
    Ok(None)
}

impl SerialConsole {
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let Some(input) = self.input.as_mut() else {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            };
            let taken = ready!(Pin::new(input).poll_write(cx, &self.pending))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.drain(..taken);
        }
        Poll::Ready(Ok(()))
    }

    /// Closes it, and waits until the BMC knows.
    ///
    /// # Errors
    /// The BMC was not told; it ends the session after a minute or so by itself.
    pub async fn close(mut self) -> Result<(), IpmiError> {
        self.input = None;
        match self.child.take() {
            Some(child) => end(child, self.ipmi.clone()).await,
            None => Ok(()),
        }
    }
}

/// Without input the program closes the console and ends; one that does not is ended, and the console closed by another.
async fn end(mut child: Child, ipmi: Ipmi) -> Result<(), IpmiError> {
    if tokio::time::timeout(CLOSE_LIMIT, child.wait()).await.is_ok() {
        return Ok(());
    }
    let _ = child.kill().await;
    ipmi.close_console().await
}

impl Drop for SerialConsole {
    fn drop(&mut self) {
        self.input = None;
        // Without a runtime the child is killed as it is dropped, and the BMC notices after a while.
        if let (Some(child), Ok(runtime)) = (self.child.take(), tokio::runtime::Handle::try_current()) {
            let ipmi = self.ipmi.clone();
            runtime.spawn(async move {
                if let Err(error) = end(child, ipmi).await {
                    tracing::debug!(%error, "a serial console could not be closed; the BMC will do that");
                }
            });
        }
    }
}

impl AsyncRead for SerialConsole {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(cx, into)
    }
}

impl AsyncWrite for SerialConsole {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        let bytes = bytes.get(..bytes.len().min(CHUNK)).unwrap_or_default();
        let (mut typed, mut encoded) = (self.typed, Vec::with_capacity(bytes.len() + 1));
        typed.encode(bytes, &mut encoded);
        self.typed = typed;
        self.pending = encoded;
        // What is not taken now is taken by the next call or by a flush.
        if let Poll::Ready(Err(error)) = self.poll_pending(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        match self.input.as_mut() {
            Some(input) => Pin::new(input).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.input = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What `ipmitool` makes of its input.
    fn decoded(bytes: &[u8]) -> Vec<u8> {
        let (mut is_escaped, mut is_line, mut out) = (false, true, Vec::new());
        for byte in bytes {
            if is_escaped {
                is_escaped = false;
                if *byte != ESCAPE {
                    out.push(b'!');
                }
                out.push(*byte);
            } else if is_line && *byte == ESCAPE {
                is_escaped = true;
                continue;
            } else {
                out.push(*byte);
            }
            is_line = matches!(byte, b'\r' | b'\n');
        }
        out
    }

    proptest! {
        #[test]
        fn all_bytes_pass(parts in prop::collection::vec(prop::collection::vec(prop_oneof![Just(ESCAPE), Just(b'\r'), any::<u8>()], 0..20), 0..8)) {
            let (mut typed, mut encoded) = (Typed::Line, Vec::new());
            for part in &parts {
                typed.encode(part, &mut encoded);
            }
            prop_assert_eq!(decoded(&encoded), parts.concat());
        }
    }
}
