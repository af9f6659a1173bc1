//! The process of an agent, seen from the benchmark.

use std::io;
use std::process::Stdio;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::agent::{Ended, Event};
use super::network::Namespace;

/// A running agent. Dropping it kills it.
#[derive(Debug)]
pub struct AgentProcess {
    child: Child,
    input: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
}

impl AgentProcess {
    /// Starts a program in the namespace, with its order as the first line of its input.
    pub async fn start(namespace: &Namespace, mut command: Command, order: &impl Serialize) -> io::Result<Self> {
        let runtime = Handle::current();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = namespace.enter(move || {
            let _runtime = runtime.enter();
            command.spawn()
        })?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the agent has no pipes"));
        };
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        input.write_all(&line).await?;
        Ok(Self {
            child,
            input,
            events: BufReader::new(output).lines(),
        })
    }

    /// Its process id; `None` after its end.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    async fn event(&mut self) -> io::Result<Event> {
        match self.events.next_line().await? {
            Some(line) => Ok(serde_json::from_str(&line)?),
            None => Err(io::Error::other(format!(
                "the agent ended: {}",
                self.child.wait().await?
            ))),
        }
    }

    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await
    }

    pub async fn ready(&mut self) -> io::Result<()> {
        match self.event().await? {
            Event::Ready => Ok(()),
            other => Err(io::Error::other(format!("the agent is not ready: {other:?}"))),
        }
    }

    /// Begins its job at this moment, and waits for its end. At `killed_at` the process is killed; `None` then.
    pub async fn work(&mut self, begin: Instant, killed_at: Option<Instant>) -> io::Result<Option<Ended>> {
        sleep_until(begin).await;
        self.say("go").await?;
        let killed = async {
            match killed_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.event() => match event? {
                Event::Ended(ended) if ended.error.is_empty() => Ok(Some(ended)),
                other => Err(io::Error::other(format!("the agent's job failed: {other:?}"))),
            },
            () = killed => {
                self.child.kill().await?;
                Ok(None)
            }
        }
    }

    /// Ends the process.
    pub async fn end(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Compares its drive with the image.
    pub async fn check(&mut self, chunks: u32) -> io::Result<()> {
        self.say("check").await?;
        match self.event().await? {
            Event::Checked(right) if right == chunks => Ok(()),
            other => Err(io::Error::other(format!(
                "wrong bytes on a drive: {other:?} of {chunks} chunks"
            ))),
        }
    }
}
