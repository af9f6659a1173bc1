//! `rackwright-agent`: PID 1 of the ramdisk; with `run`, the agent proper on a running machine.

use std::fs;
use std::io::{BufRead as _, stdin};
use std::process::ExitCode;

use rackwright_agent::cmdline::{self, Settings};
use rackwright_agent::machine::Machine;
use rackwright_agent::{agent, console, init};

const USAGE: &str = "usage: rackwright-agent run [--cmdline FILE] [--modules-on-stdin]
Reads its settings from FILE in the form of a kernel command line (default /proc/cmdline).
As PID 1 it takes no arguments.";

struct Arguments {
    cmdline: String,
    modules_on_stdin: bool,
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::run();
    }
    console::install();
    let started = arguments().and_then(|arguments| {
        let text = fs::read_to_string(&arguments.cmdline).map_err(|error| format!("{}: {error}", arguments.cmdline))?;
        Ok((
            cmdline::parse(&text).map_err(|error| error.to_string())?,
            arguments.modules_on_stdin,
        ))
    });
    let why = match started {
        Ok((settings, modules_on_stdin)) => run(settings, modules_on_stdin),
        Err(why) => why,
    };
    eprintln!("rackwright-agent: {why}");
    ExitCode::from(init::EXIT_FATAL)
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments {
        cmdline: "/proc/cmdline".to_owned(),
        modules_on_stdin: false,
    };
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some("run") {
        return Err(USAGE.to_owned());
    }
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--cmdline" => found.cmdline = arguments.next().ok_or(USAGE)?,
            "--modules-on-stdin" => found.modules_on_stdin = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(found)
}

/// Runs the agent. Returns the reason for its end.
fn run(settings: Settings, modules_on_stdin: bool) -> String {
    // A build of the whole workspace contains two cryptography providers for rustls: choose one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return format!("starting the runtime: {error}"),
    };
    let modules_loaded = async move {
        if modules_on_stdin {
            // If this panics, the agent only reads the drives too early.
            let _ = tokio::task::spawn_blocking(wait_for_modules).await;
        }
    };
    let Err(error) = runtime.block_on(agent::run(settings, Machine::real(), modules_loaded));
    error.to_string()
}

/// Waits until PID 1 closes the pipe, after it has loaded all modules. PID 1 writes a line for each failed module.
fn wait_for_modules() {
    for fault in stdin().lock().lines().map_while(Result::ok) {
        tracing::warn!("module not loaded: {fault}");
    }
}
