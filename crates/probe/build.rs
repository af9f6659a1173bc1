//! Copies the program in `RACKWRIGHT_PROBE_DYNAMIC` to where `src/embedded.rs` includes it; without the variable the file is
//! empty.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=RACKWRIGHT_PROBE_DYNAMIC");
    let place = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("carried");
    match std::env::var_os("RACKWRIGHT_PROBE_DYNAMIC").filter(|path| !path.is_empty()) {
        None => std::fs::write(place, [])?,
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            std::fs::copy(&path, place).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}
