//! `KEEP=1`: a demo goes on running after its end, so that a person can look around.

use std::io::{BufRead as _, Write as _};
use std::path::Path;

use tokio::sync::mpsc;

use crate::site::Site;

/// Whether the environment asks for it.
#[must_use]
pub fn is_wanted() -> bool {
    std::env::var_os("KEEP").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Prints the commands that let another terminal use the CLI of a site.
pub fn print_commands(config: &Path) {
    println!("  export RACKWRIGHT_CONFIG={}", config.display());
    let program = std::env::current_exe().ok();
    if let Some(bin) = program.as_deref().and_then(Path::parent) {
        println!("  export PATH={}:$PATH", bin.display());
    }
    println!("  rackwright node list");
}

/// Prints how to use the CLI and a login to the web console, and another login at each Enter, until Ctrl-C. `before` are
/// commands that another terminal needs first.
pub async fn with_logins(site: &Site, before: &[String]) {
    println!("\nKEEP=1: everything goes on running until Ctrl-C. To use the CLI in another terminal:");
    for command in before {
        println!("  {command}");
    }
    print_commands(&site.dir().join("cli"));
    println!("\nThe browser warns of the certificate, which the authority of this demo has issued.");
    let (sender, mut enters) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines() {
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    loop {
        println!("{}", site.cli(["console", "open", "--print"]).trim_end());
        print!("Press Enter for another login. ");
        let _ = std::io::stdout().flush();
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return,
            // Without a terminal there is no Enter.
            Some(()) = enters.recv() => {}
        }
    }
}
