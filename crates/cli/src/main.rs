//! The `rackwright` program; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    rackwright_cli::main()
}
