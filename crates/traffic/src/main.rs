//! Measures traffic between two machines: `serve` on one, `run` on the other.
//!
//! It is copied to machines without any other software of Rackwright, runs once and is removed: one static program, no
//! configuration, and no files except its folder, which the server removes when it ends by itself. RDMA needs the system's
//! own library: where there is an adapter, the static program executes an embedded dynamic one (`embedded`), and uses TCP
//! where that fails. A client without the token that both sides were given gets no data.

// A test may read clocks and files, and wait for what it started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod args;
mod client;
mod connections;
#[cfg(target_feature = "crt-static")]
mod embedded;
mod lanes;
mod rdma;
mod report;
mod server;
mod tcp_info;
mod wire;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = Command::of(&arguments).and_then(|command| {
        #[cfg(target_feature = "crt-static")]
        embedded::exec_embedded(&arguments);
        done(command)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("rackwright-traffic: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn done(command: Command) -> Result<(), String> {
    match command {
        Command::Serve { deadline, port } => server::start(deadline, port),
        Command::Listen { deadline, port } => server::listen(deadline, port),
        Command::Run(request) => client::run(&request),
        Command::Verbs => rdma::available(),
    }
}
