//! The frame of a program: a runtime for its command, and an exit code for the outcome.

use std::future::Future;
use std::process::ExitCode;

use crate::Cx;
use crate::error::CliError;

/// Runs a command to its end, and shows its error.
pub fn run(cx: &Cx, command: impl Future<Output = Result<(), CliError>>) -> ExitCode {
    // Fails only if a provider is installed already, which is equally good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(source) => return fail(cx, &CliError::io("start the program", source)),
    };
    let outcome = runtime.block_on(command);
    // Blocking reads (standard input) must not keep a finished program alive.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(cx, &error),
    }
}

/// Shows an error; the exit code for it.
pub fn fail(cx: &Cx, error: &CliError) -> ExitCode {
    if !error.is_silent() {
        eprint!("{}", error.render(cx.ui.paint_errors()));
    }
    ExitCode::from(error.exit_code())
}
