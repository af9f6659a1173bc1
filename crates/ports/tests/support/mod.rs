//! Namespaces of a test.

use std::path::Path;
use std::process::{Command, Stdio};

const INSIDE: &str = "RACKWRIGHT_INSIDE_NAMESPACES";

/// Runs this test again in namespaces of its own, and the work there. `prepare` runs before, with the network of this
/// machine.
pub fn in_namespaces(name: &str, prepare: impl FnOnce(), work: impl AsyncFnOnce(&Path)) {
    if std::env::var_os(INSIDE).is_some() {
        let dir = tempfile::tempdir().expect("it works");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("it works");
        return runtime.block_on(work(dir.path()));
    }
    prepare();
    let program = std::env::current_exe().expect("it works");
    let status = Command::new("unshare")
        .args([
            "--map-root-user",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .status();
    assert!(status.expect("unshare (Debian package util-linux) runs").success());
}
