//! `rackwright-probe run` prints all sections; the other commands are the processes that it starts.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rackwright_probe::sections::{self, Section};
use rackwright_probe::{FILE_SECTIONS, Root, nvml, read};

const USAGE: &str = "usage: rackwright-probe run [--root FOLDER] [--deadline-ms N] [--nvml FILE]\n       \
                     rackwright-probe section NAME [--root FOLDER]\n       \
                     rackwright-probe gpus [--nvml FILE]";
/// A driver that needs longer than this hangs.
const DEADLINE: Duration = Duration::from_secs(20);
/// Longest deadline.
const DEADLINE_MAX_MS: u64 = 600_000;

/// The options of all commands.
struct Options {
    words: Vec<String>,
    root: PathBuf,
    deadline: Duration,
    nvml: String,
}

impl Options {
    fn of(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            words: Vec::new(),
            root: PathBuf::from("/"),
            deadline: DEADLINE,
            nvml: nvml::LIBRARY.to_owned(),
        };
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} needs a value\n{USAGE}"))
            };
            match argument.as_str() {
                "--root" => options.root = value()?.into(),
                "--nvml" => options.nvml = value()?,
                "--deadline-ms" => {
                    let value = value()?;
                    let ms = value.parse().ok().filter(|ms| (1..=DEADLINE_MAX_MS).contains(ms));
                    let wrong = || format!("--deadline-ms {value}: must lie between 1 and {DEADLINE_MAX_MS}");
                    options.deadline = Duration::from_millis(ms.ok_or_else(wrong)?);
                }
                option if option.starts_with('-') => return Err(format!("unknown option {option}\n{USAGE}")),
                _ => options.words.push(argument),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    match Options::of(std::env::args().skip(1)).and_then(|options| done(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("rackwright-probe: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn done(options: &Options) -> Result<(), String> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match words[..] {
        ["run"] => run(options),
        ["section", name] => print(read(name, &Root::new(&options.root))?),
        ["gpus"] => print(nvml::rows(&options.nvml)),
        _ => Err(USAGE.to_owned()),
    }
}

fn print(rows: Vec<rackwright_health::facts::Row>) -> Result<(), String> {
    use std::io::Write as _;
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| error.to_string())
}

fn run(options: &Options) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let of_files = |name: &'static str| {
        let mut command = Command::new(&me);
        command.args(["section", name, "--root"]).arg(&options.root);
        Section { name, command }
    };
    let mut sections: Vec<Section> = FILE_SECTIONS.into_iter().map(of_files).collect();
    #[cfg(target_feature = "crt-static")]
    let carried = rackwright_probe::embedded::program();
    #[cfg(target_feature = "crt-static")]
    let program = match &carried {
        Ok(file) => PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))),
        // It prints why the library cannot be loaded.
        Err(_) => me.clone(),
    };
    #[cfg(not(target_feature = "crt-static"))]
    let program = me.clone();
    let mut command = Command::new(program);
    command.args(["gpus", "--nvml", &options.nvml]);
    sections.push(Section { name: "gpus", command });
    sections::run(sections, options.deadline, &mut std::io::stdout().lock()).map_err(|error| error.to_string())
}
