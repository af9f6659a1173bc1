//! Runs external programs, bounded in time, output and number; a program is killed when its caller is dropped.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

/// Bytes kept of a program's standard error.
const MAX_ERROR_BYTES: usize = 2_000;

/// Settings of external programs.
#[derive(Debug, Clone)]
pub struct ToolSettings {
    /// Folder of the programs; none: the search path.
    pub folder: Option<PathBuf>,
    /// Working directory, where the programs may leave files; none: that of this process.
    pub directory: Option<PathBuf>,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
    /// The local port in the fabric that the tools of infiniband-diags read: the adapter, and the port number. `None`: the
    /// first port that is up.
    pub port: Option<(String, u8)>,
    /// Longest time for one run.
    pub timeout: Duration,
    /// Most bytes that one run may print.
    pub output_bytes: usize,
    /// Most concurrent runs.
    pub at_once: usize,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            folder: None,
            directory: None,
            environment: Vec::new(),
            port: None,
            timeout: Duration::from_secs(60),
            output_bytes: 512 << 20,
            at_once: 4,
        }
    }
}

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The program could not be started or waited for.
    #[error("{tool} cannot be run")]
    Start {
        /// Name of the program.
        tool: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program exceeded its time and was killed.
    #[error("{tool} was stopped after {} s", .after.as_secs_f64())]
    TimedOut {
        /// Name of the program.
        tool: String,
        /// The limit.
        after: Duration,
    },
    /// The program printed too much and was killed.
    #[error("{tool} was stopped after printing {bytes} bytes")]
    TooMuchOutput {
        /// Name of the program.
        tool: String,
        /// The limit in bytes.
        bytes: usize,
    },
    /// The program ended with a failure.
    #[error("{tool} failed ({status}): {error_output}")]
    Failed {
        /// Name of the program.
        tool: String,
        /// Its exit status.
        status: ExitStatus,
        /// The beginning of its standard error, and the error that a tool of infiniband-diags prints last.
        error_output: String,
    },
}

/// Runs external programs.
#[derive(Debug, Clone)]
pub struct Tools {
    settings: Arc<ToolSettings>,
    places: Arc<Semaphore>,
}

impl Tools {
    /// Runs programs with these settings.
    pub fn new(settings: ToolSettings) -> Self {
        let places = Arc::new(Semaphore::new(settings.at_once.max(1)));
        Self {
            settings: Arc::new(settings),
            places,
        }
    }

    /// Most concurrent runs.
    pub fn at_once(&self) -> usize {
        self.settings.at_once.max(1)
    }

    /// Runs a tool of infiniband-diags on the fabric of the local port (options `-C` and `-P`, which all of them have but
    /// `ibstat`).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_on_fabric(&self, tool: &str, arguments: &[&str]) -> Result<Vec<u8>, ToolError> {
        let Some((adapter, port)) = &self.settings.port else {
            return self.run(tool, arguments).await;
        };
        let port = port.to_string();
        let options = ["-C", adapter.as_str(), "-P", port.as_str()];
        self.run(tool, &[options.as_slice(), arguments].concat()).await
    }

    /// Runs a program to its end and returns its output.
    ///
    /// # Errors
    /// The program cannot be run, takes too long, prints too much, or fails.
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
            let (out, error_output) = tokio::join!(bounded(out, most), first_bytes(err));
            let out = out.map_err(start)?.ok_or_else(|| ToolError::TooMuchOutput {
                tool: tool.to_owned(),
                bytes: most,
            })?;
            let status = child.wait().await.map_err(start)?;
            if status.success() {
                return Ok(out);
            }
            let error_output = complaint(&error_output, &out);
            Err(ToolError::Failed {
                tool: tool.to_owned(),
                status,
                error_output,
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

/// The complaint of a failed program: its standard error, and the error that a tool of infiniband-diags prints last, on its
/// standard output.
fn complaint(error_output: &str, out: &[u8]) -> String {
    let text = String::from_utf8_lossy(out);
    let error = text
        .lines()
        .rev()
        .find_map(|line| Some(line.split_once("iberror: ")?.1));
    let parts = [error_output.trim(), error.unwrap_or_default().trim()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

/// All of a stream; none if it is longer than `most` bytes.
async fn bounded(stream: impl AsyncRead + Unpin, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    stream.take(limit).read_to_end(&mut read).await?;
    Ok((read.len() <= most).then_some(read))
}

/// The beginning of a stream; reads the stream to its end.
async fn first_bytes(mut stream: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer).await
        && read > 0
    {
        let room = MAX_ERROR_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
