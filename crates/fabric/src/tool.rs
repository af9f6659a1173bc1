//! Running programs of others: bounded in time, in output and in number, and killed when nobody waits for them any more.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

/// Bytes of a program's complaints that are kept.
const MAX_COMPLAINT_BYTES: usize = 2_000;

/// How programs are run.
#[derive(Debug, Clone)]
pub struct ToolSettings {
    /// Where they are; none for the search path.
    pub folder: Option<PathBuf>,
    /// Where they run, and leave what they leave; none for where this process does.
    pub directory: Option<PathBuf>,
    /// Variables beside those of this process.
    pub environment: Vec<(String, String)>,
    /// Longest time for one run.
    pub timeout: Duration,
    /// Bytes that one run may print.
    pub output_bytes: usize,
    /// Runs at the same time.
    pub at_once: usize,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            folder: None,
            directory: None,
            environment: Vec::new(),
            timeout: Duration::from_secs(60),
            output_bytes: 512 << 20,
            at_once: 4,
        }
    }
}

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It could not be started or waited for.
    #[error("{tool} cannot be run")]
    Start {
        /// The program.
        tool: String,
        /// Why not.
        source: io::Error,
    },
    /// It took too long and was killed.
    #[error("{tool} was stopped after {} s", .after.as_secs_f64())]
    TimedOut {
        /// The program.
        tool: String,
        /// How long it had.
        after: Duration,
    },
    /// It printed too much and was killed.
    #[error("{tool} was stopped after printing {bytes} bytes")]
    TooMuch {
        /// The program.
        tool: String,
        /// The limit.
        bytes: usize,
    },
    /// It ended with a failure.
    #[error("{tool} failed ({status}): {complaint}")]
    Failed {
        /// The program.
        tool: String,
        /// Its exit status.
        status: ExitStatus,
        /// The beginning of what it said about that.
        complaint: String,
    },
}

/// Runs programs.
#[derive(Debug, Clone)]
pub struct Tools {
    settings: Arc<ToolSettings>,
    places: Arc<Semaphore>,
}

impl Tools {
    /// With these settings.
    pub fn new(settings: ToolSettings) -> Self {
        let places = Arc::new(Semaphore::new(settings.at_once.max(1)));
        Self {
            settings: Arc::new(settings),
            places,
        }
    }

    /// How many run at the same time.
    pub fn at_once(&self) -> usize {
        self.settings.at_once.max(1)
    }

    /// Runs a program to its end and answers with what it printed.
    ///
    /// # Errors
    /// It cannot be run, takes too long, prints too much, or fails.
    pub async fn run(&self, tool: &str, arguments: &[&str]) -> Result<Vec<u8>, ToolError> {
        let start = |source| ToolError::Start {
            tool: tool.to_owned(),
            source,
        };
        // The semaphore is never closed.
        let _place = self
            .places
            .acquire()
            .await
            .map_err(|closed| start(io::Error::other(closed)))?;
        let program = match &self.settings.folder {
            Some(folder) => folder.join(tool),
            None => PathBuf::from(tool),
        };
        let mut command = Command::new(program);
        if let Some(directory) = &self.settings.directory {
            command.current_dir(directory);
        }
        let mut child = command
            .args(arguments)
            .envs(self.settings.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(start)?;
        let missing = || start(io::Error::other("no pipe"));
        let (out, err) = (
            child.stdout.take().ok_or_else(missing)?,
            child.stderr.take().ok_or_else(missing)?,
        );
        let most = self.settings.output_bytes;
        let whole = async {
            let (out, complaint) = tokio::join!(bounded(out, most), beginning(err));
            let out = out.map_err(start)?.ok_or_else(|| ToolError::TooMuch {
                tool: tool.to_owned(),
                bytes: most,
            })?;
            let status = child.wait().await.map_err(start)?;
            if status.success() {
                return Ok(out);
            }
            let complaint = complaint.trim().to_owned();
            Err(ToolError::Failed {
                tool: tool.to_owned(),
                status,
                complaint,
            })
        };
        let after = self.settings.timeout;
        tokio::time::timeout(after, whole).await.unwrap_or_else(|_| {
            Err(ToolError::TimedOut {
                tool: tool.to_owned(),
                after,
            })
        })
    }
}

/// All of a stream; none if it is longer than that.
async fn bounded(stream: impl AsyncRead + Unpin, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    stream.take(limit).read_to_end(&mut read).await?;
    Ok((read.len() <= most).then_some(read))
}

/// The beginning of a stream, which is read to its end.
async fn beginning(mut stream: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer).await
        && read > 0
    {
        let room = MAX_COMPLAINT_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
