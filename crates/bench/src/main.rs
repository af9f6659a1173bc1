//! The `rackwright` program; its code is in the library of this crate.

fn main() -> std::process::ExitCode {
    rackwright_bench::main()
}
