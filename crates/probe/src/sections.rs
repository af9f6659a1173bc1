//! The sections of an output, each read by a process of its own: one that hangs in a driver is killed at the deadline, and
//! the output says so. A process that the kernel cannot end is left alone; it holds nothing of this program.

use std::io::{self, Read as _, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rackwright_health::facts::{BEGIN, END, Row};

/// Most bytes of a section.
const SECTION_BYTES: u64 = 1 << 20;
/// Most characters of an error.
const WHY_MAX: usize = 300;

/// A section and the command that prints its rows.
#[derive(Debug)]
pub struct Section {
    /// Name, as the control plane knows it.
    pub name: &'static str,
    /// The process to start.
    pub command: Command,
}

/// What a process printed.
struct Printed {
    section: usize,
    rows: String,
    error: String,
    took: Duration,
}

struct Running {
    name: &'static str,
    child: Option<Child>,
    printed: Option<Printed>,
    why: String,
}

/// Reads all sections at once, and writes the output.
///
/// # Errors
/// The output cannot be written.
pub fn run(sections: Vec<Section>, deadline: Duration, out: &mut impl Write) -> io::Result<()> {
    let began = Instant::now();
    let (sender, printed) = mpsc::channel();
    let started = sections.into_iter().enumerate();
    let mut running: Vec<Running> = started
        .map(|(at, section)| start(at, section, began, &sender))
        .collect();
    drop(sender);
    while running
        .iter()
        .any(|section| section.child.is_some() && section.printed.is_none())
    {
        match printed.recv_timeout(deadline.saturating_sub(began.elapsed())) {
            Ok(printed) => {
                let at = printed.section;
                running[at].printed = Some(printed);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    writeln!(out, "{BEGIN}")?;
    for section in &mut running {
        write_section(section, deadline, out)?;
    }
    writeln!(out, "{END}")?;
    out.flush()
}

fn start(at: usize, mut section: Section, began: Instant, sender: &Sender<Printed>) -> Running {
    let command = section
        .command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = Running {
        name: section.name,
        child: None,
        printed: None,
        why: String::new(),
    };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            running.why = format!("its process does not start: {error}");
            return running;
        }
    };
    let (stdout, stderr, sender) = (child.stdout.take(), child.stderr.take(), sender.clone());
    running.child = Some(child);
    // Ends with the process, or stays until this program ends.
    std::thread::spawn(move || {
        let rows = stdout.map(text).unwrap_or_default();
        let error = stderr.map(text).unwrap_or_default();
        let took = began.elapsed();
        let _ = sender.send(Printed {
            section: at,
            rows,
            error,
            took,
        });
    });
    running
}

fn text(pipe: impl io::Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error counts.
    let _ = pipe.take(SECTION_BYTES).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn write_section(section: &mut Running, deadline: Duration, out: &mut impl Write) -> io::Result<()> {
    let row = Row::new("section").with("name", section.name);
    let Some(mut child) = section.child.take() else {
        return writeln!(out, "{}", row.with("state", "failed").with("why", &section.why));
    };
    let Some(printed) = section.printed.take() else {
        // No wait: a process in a driver may not end for hours.
        let _ = child.kill();
        return writeln!(out, "{}", row.with("state", "hung").with("ms", deadline.as_millis()));
    };
    // Its output has ended, so it ends.
    let ended = child.wait();
    let row = row.with("ms", printed.took.as_millis());
    if ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
        out.write_all(printed.rows.as_bytes())?;
        return writeln!(out, "{}", row.with("state", "done"));
    }
    let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    let message: String = printed.error.trim().chars().take(WHY_MAX).collect();
    let why = if message.is_empty() { status } else { message };
    writeln!(out, "{}", row.with("state", "failed").with("why", why))
}

#[cfg(test)]
mod tests {
    use rackwright_health::facts::Facts;

    use super::*;

    fn section(name: &'static str, script: &str) -> Section {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Section { name, command }
    }

    #[test]
    fn a_section_that_hangs_fails_or_does_not_start_costs_only_itself() {
        let sections = vec![
            section("pci", "printf 'pci\\taddress=0000:00:00.0\\n'"),
            section("gpus", "printf 'gpu\\tindex=0\\n'; exec sleep 600"),
            section("nvme", "echo no such drive >&2; exit 3"),
            section("memory", "kill -9 $$"),
            Section {
                name: "log",
                command: Command::new("/no/such/program"),
            },
        ];
        let (began, mut out) = (Instant::now(), Vec::new());
        run(sections, Duration::from_millis(1500), &mut out).unwrap();
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the section that hangs was awaited"
        );
        let facts = Facts::parse(&String::from_utf8(out).unwrap()).unwrap();
        assert_eq!(facts.rows("pci").count(), 1);
        assert_eq!(facts.missing("pci"), None);
        assert_eq!(
            facts.rows("gpu").count(),
            0,
            "rows of a section that hangs are left out"
        );
        let why = |name| facts.missing(name).unwrap();
        assert!(why("gpus").contains("did not end within 1500 ms"), "{}", why("gpus"));
        assert!(why("nvme").contains("no such drive"), "{}", why("nvme"));
        assert!(why("memory").contains("signal"), "{}", why("memory"));
        assert!(why("log").contains("does not start"), "{}", why("log"));
    }
}
