//! Measures speed and CPU cost of writing images to a disk: this crate against other common methods. Prints one JSON
//! document. `make bench-image` runs it; `docs/image-format.md` explains the document.
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
//! `run` starts itself with the other three commands, so that the CPU time of each process can be measured.

mod arguments;
mod children;
mod disk;
mod methods;
mod run;
mod server;

use std::process::ExitCode;

use arguments::Arguments;

/// Any failure: the program prints it and ends.
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
