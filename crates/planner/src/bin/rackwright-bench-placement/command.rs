//! Runs `rackwright` as operators do: as a process of its own that reads files and prints JSON.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A folder for the files of one benchmark. It is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder.
    pub fn new(name: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("rackwright-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// The path of a file of the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.path(name);
        std::fs::write(&path, text).map_err(|error| format!("{path}: {error}"))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What remains in the folder for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Several runs of the same command. Its output is the same each time.
pub struct Runs {
    /// The time of the first run, from the start of the process to its end, in milliseconds.
    pub first_ms: f64,
    /// The shortest time.
    pub best_ms: f64,
    /// The most memory that the process of the first run had had when its output began, in MiB. `None`: the process had
    /// ended before it was asked.
    pub peak_mib: Option<u64>,
    /// The output of the first run.
    pub output: String,
}

impl Runs {
    /// Runs a command of the `rackwright` beside this program this many times.
    pub fn of(args: &[&str], times: usize) -> Result<Self, String> {
        let program = beside()?;
        let (output, peak_mib, first_ms) = once(&program, args)?;
        let mut best_ms = first_ms;
        for _ in 1..times {
            best_ms = best_ms.min(once(&program, args)?.2);
        }
        Ok(Self {
            first_ms,
            best_ms,
            peak_mib,
            output,
        })
    }

    /// The memory as JSON.
    pub fn peak_json(&self) -> String {
        self.peak_mib.map_or_else(|| "null".to_owned(), |mib| mib.to_string())
    }
}

/// The program `rackwright` of the same build.
fn beside() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let program = own.with_file_name("rackwright");
    if program.exists() {
        Ok(program)
    } else {
        Err(format!(
            "there is no {}: build the crate rackwright-cli",
            program.display()
        ))
    }
}

/// Output, memory and time of one run.
fn once(program: &Path, args: &[&str]) -> Result<(String, Option<u64>, f64), String> {
    let failed = |error: std::io::Error| format!("rackwright {}: {error}", args.join(" "));
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut output = vec![0];
    let mut peak_mib = None;
    if let Some(mut pipe) = child.stdout.take() {
        // The work is done when the output begins.
        let begun = pipe.read(&mut output).map_err(failed)?;
        output.truncate(begun);
        peak_mib = crate::peak_mib(&format!("/proc/{}/status", child.id()));
        pipe.read_to_end(&mut output).map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    let taken = started.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        return Err(format!("rackwright {}: {status}", args.join(" ")));
    }
    let output = String::from_utf8(output).map_err(|error| error.to_string())?;
    Ok((output, peak_mib, taken))
}
