//! The serial console over the network (Serial over LAN).
//!
//! `ipmitool sol activate` copies its input to the machine and the machine's output to its own output. After an end of
//! line, an escape character starts a command for `ipmitool` itself. This module chooses a character that users do not
//! type. If the input has the character after an end of line, this module doubles it, which `ipmitool` reads as the
//! character itself (`processSolUserInput` in `lib/ipmi_sol.c`). So all bytes pass.

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
/// The line that `ipmitool` prints when the console is open.
const OPEN: &[u8] = b"[SOL Session operational.";
/// Time limit until the console is open or refused.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// Maximum length of the text before the console is open, in bytes.
const PREFACE_MAX: usize = 4096;
/// Time limit for `ipmitool` to close the session at the BMC, which takes a few packets.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of bytes encoded at once.
const CHUNK: usize = 1024;

/// An open serial console. Reads return the machine's output, writes are typed input. Dropping the console closes it at
/// the BMC, too. An empty read means the end: the BMC closed the console or stopped answering. Not every BMC reports
/// that another client closed it.
#[derive(Debug)]
pub struct SerialConsole {
    ipmi: Ipmi,
    child: Option<Child>,
    input: Option<ChildStdin>,
    output: ChildStdout,
    typed: Typed,
    /// Encoded bytes that the program has not taken yet.
    pending: Vec<u8>,
}

/// The position within a line, which decides about the escape character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typed {
    /// At the beginning of a line: an escape character has effect.
    Line,
    /// Within a line.
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
    /// Opens the machine's serial console. Needs a tokio runtime, also when the console is dropped.
    ///
    /// # Errors
    /// The BMC or the connection failed; [`IpmiError::Busy`]: another client has the console open.
    pub async fn console(&self) -> Result<SerialConsole, IpmiError> {
        let place = self.place();
        let opened = {
            // The turn ends once the console is open, because power commands must run meanwhile.
            let _turn = self.limiter().permit(&place).await;
            self.limiter().check(&place, self.account_id())?;
            tokio::time::timeout(OPEN_LIMIT, self.activate()).await
        };
        let Ok(opened) = opened else {
            return Err(IpmiError::TimedOut {
                bmc: place,
                command: "sol activate".to_owned(),
                limit_s: OPEN_LIMIT.as_secs(),
            });
        };
        let console = opened.map_err(|error| tool::record_error(error, self.limiter(), self.account_id()))?;
        self.limiter().record_success(&place);
        Ok(console)
    }

    /// Closes the console, whichever client has it open.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn close_console(&self) -> Result<(), IpmiError> {
        match self.ask(&["sol", "deactivate"]).await {
            // No client has the console open.
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
        let (input, output, mut error_output) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
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
            return Err(self.refused(child, error_output.take()).await);
        };
        // Later messages are discarded, so that they cannot fill the pipe.
        if let Some(mut error_output) = error_output {
            tokio::spawn(async move { tokio::io::copy(&mut error_output, &mut tokio::io::sink()).await });
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

    /// The reason why the console was not opened.
    async fn refused(&self, mut child: Child, error_output: Option<ChildStderr>) -> IpmiError {
        let mut error_text = Vec::new();
        if let Some(error_output) = error_output {
            // An unreadable message counts as empty.
            let _ = error_output.take(PREFACE_MAX as u64).read_to_end(&mut error_text).await;
        }
        let _ = child.kill().await;
        let error_text = String::from_utf8_lossy(&error_text);
        // stdbuf starts the program, so stdbuf reports the missing program.
        if error_text.contains("No such file or directory") && error_text.contains("stdbuf") {
            return IpmiError::NotInstalled;
        }
        tool::known_error(&error_text, "sol activate", self.address()).unwrap_or_else(|| IpmiError::Failed {
            bmc: self.place(),
            command: "sol activate".to_owned(),
            words: tool::last_lines(&error_text, &[]),
        })
    }
}

/// Reads to the end of the line that reports the open console, and no further. Returns `None` if the line never comes.
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

    /// Closes the console and waits until the BMC has ended the session.
    ///
    /// # Errors
    /// The BMC did not receive the command. It ends the session by itself after about a minute.
    pub async fn close(mut self) -> Result<(), IpmiError> {
        self.input = None;
        match self.child.take() {
            Some(child) => end(child, self.ipmi.clone()).await,
            None => Ok(()),
        }
    }
}

/// Without input the program closes the console and exits. A program that does not exit is killed, and another one
/// closes the console.
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
        // Without a runtime the child is killed on drop, and the BMC notices after a while.
        if let (Some(child), Ok(runtime)) = (self.child.take(), tokio::runtime::Handle::try_current()) {
            let ipmi = self.ipmi.clone();
            runtime.spawn(async move {
                if let Err(error) = end(child, ipmi).await {
                    tracing::debug!(%error, "cannot close a serial console; the BMC closes it later");
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
        // The next call or a flush takes the rest.
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

    /// Decodes input as `ipmitool` does.
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
