//! Measures traffic between two machines: `serve` on one, `run` on the other.
//!
//! It is copied to machines without any other software of Rackwright, runs once and is removed: one static program, no
//! configuration, and no files except its folder, which the server removes when it ends by itself. RDMA needs the system's
//! own library: where there is an adapter, the static program executes an embedded dynamic one (`carried`), and uses TCP
//! where that fails. A client without the token that both sides were given gets no data.

// A test may read clocks and files, and wait for what it started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod args;
#[cfg(target_feature = "crt-static")]
mod carried;
mod client;
mod guests;
mod lanes;
mod rdma;
mod report;
mod server;
mod tcp_info;
mod wire;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = Command::of(&words).and_then(|command| {
        #[cfg(target_feature = "crt-static")]
        carried::go_on(&words);
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
        Command::Run(order) => client::run(&order),
        Command::Verbs => rdma::available(),
    }
}
