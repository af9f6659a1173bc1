//! Measures how fast, and at what cost in CPU, images get onto a disk: ours against what is in use elsewhere. Prints
//! one JSON document. `make bench-image` runs it; `docs/image-format.md` says how to read it.
//!
//! ```text
//! rackwright-bench-image run [--folder DIR] [--target loop|file|/dev/DRIVE] [--gib 4] [--rounds 5] [--keep]
//!                              [--ways ours,ours_every_byte,...]
//! rackwright-bench-image import --store DIR --source FILE [--threads N] [--level N]
//! rackwright-bench-image write (--url URL | --store DIR) --image b3-… --target PATH [--threads N] [--budget-mib N]
//!                              [--all] [--pwrite] [--verify]
//! rackwright-bench-image serve --store DIR --files DIR
//! ```
//!
//! `run` starts itself as the other three, so that each is a process whose CPU time can be told.

mod arguments;
mod children;
mod disk;
mod rivals;
mod run;
mod server;

use std::process::ExitCode;

use arguments::Arguments;

/// Any failure: it is told and ends the program.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let outcome = Arguments::parse(std::env::args().skip(1)).and_then(|(command, arguments)| match command.as_str() {
        "run" => run::run(&arguments),
        "import" => children::import(&arguments),
        "write" => children::write(&arguments),
        "serve" => server::serve(&arguments),
        other => Err(format!("unknown command {other:?}: give run, import, write or serve").into()),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rackwright-bench-image: {error}");
            ExitCode::FAILURE
        }
    }
}
