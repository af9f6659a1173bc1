//! The recordings of real BMCs that tests use; `README.md` in this folder names their origin and licences.
//!
//! `RACKWRIGHT_MOCKUPS=DIR` takes the whole recordings from `DIR/NAME` in place of the small ones in this folder.

use std::path::{Path, PathBuf};

/// A file for each machine, `NAME.json`.
pub const NAMES: [&str; 6] = ["dell", "gigabyte", "hpe", "lenovo", "nvidia_viking", "supermicro"];

/// The folder of the whole recordings; none: tests use the small ones.
pub fn whole() -> Option<PathBuf> {
    std::env::var_os("RACKWRIGHT_MOCKUPS").map(PathBuf::from)
}

/// The small recording of a machine. Tests of several crates use this module.
pub fn small(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = here
        .ancestors()
        .map(|folder| folder.join("crates/redfish/tests/recordings"));
    let folder = folders.into_iter().find(|folder| folder.is_dir());
    folder
        .expect("crates/redfish/tests/recordings")
        .join(format!("{name}.json"))
}

/// The recording of a machine that this run uses.
pub fn path(name: &str) -> PathBuf {
    whole().map_or_else(|| small(name), |folder| folder.join(name))
}
