//! The connections of a server, and its end: at its deadline, or after a time without a client or a sign that the test goes
//! on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Most connections; further ones are closed. Below 1024, the usual limit of open files for a process.
const CONNECTIONS_MAX: usize = 960;
/// Most connections that have not shown the token yet.
const UNKNOWN_MAX: usize = 256;
/// A server ends after this time without a connection that has shown the token, and without a sign from the test's
/// initiator.
pub const IDLE: Duration = Duration::from_secs(60);
/// File next to the program; the test's initiator rewrites it while the test goes on.
const ALIVE: &str = "alive";
/// Interval between two checks.
const POLL_PAUSE: Duration = Duration::from_millis(500);

/// The connections of a server.
#[derive(Debug)]
pub struct Connections {
    unknown: AtomicUsize,
    known: AtomicUsize,
    /// When a client with the token or a sign of the test was last seen.
    last: Mutex<Instant>,
}

impl Connections {
    /// No connections yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            unknown: AtomicUsize::new(0),
            known: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
        })
    }

    /// Admits another connection, if there is room.
    pub fn admit(self: &Arc<Self>) -> Option<Connection> {
        let unknown = self.unknown.fetch_add(1, Ordering::SeqCst);
        // Without room it is dropped, which decrements the count again.
        let connection = Connection {
            connections: Arc::clone(self),
            is_authenticated: false,
        };
        let is_room = unknown < UNKNOWN_MAX && unknown + self.known.load(Ordering::SeqCst) < CONNECTIONS_MAX;
        is_room.then_some(connection)
    }

    /// Stores that the test goes on.
    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle(&self) -> Duration {
        match self.known.load(Ordering::SeqCst) {
            0 => self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed(),
            _ => Duration::ZERO,
        }
    }
}

/// One connection; dropping it frees its place.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    is_authenticated: bool,
}

impl Connection {
    /// The client has shown the token.
    pub fn authenticate(&mut self) {
        if !self.is_authenticated {
            self.is_authenticated = true;
            self.connections.known.fetch_add(1, Ordering::SeqCst);
            self.connections.unknown.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_authenticated {
            self.connections.touch();
            self.connections.known.fetch_sub(1, Ordering::SeqCst);
        } else {
            self.connections.unknown.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Returns at the deadline, or after `idle` without a client or a sign.
pub fn wait_for_end(connections: &Connections, folder: Option<&Path>, deadline: Duration, idle: Duration) {
    let begun = Instant::now();
    let alive = || -> Option<SystemTime> { folder?.join(ALIVE).metadata().ok()?.modified().ok() };
    let mut seen = alive();
    while begun.elapsed() < deadline && connections.idle() < idle {
        #[expect(clippy::disallowed_methods, reason = "the thread of the watch does nothing else")]
        std::thread::sleep(POLL_PAUSE.min(idle / 4));
        let now = alive();
        // Any other time counts: the machine's clock may be set meanwhile.
        if now != seen {
            seen = now;
            connections.touch();
        }
    }
}

/// The folder that was made only for this program, if the program runs from such a folder.
pub fn own_folder() -> Option<PathBuf> {
    let folder = std::env::current_exe()
        .ok()
        .and_then(|program| folder_made_for(&program));
    // The embedded program runs from memory under the original name.
    folder.or_else(|| folder_made_for(Path::new(&std::env::args_os().next()?)))
}

fn folder_made_for(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let is_ours = program.file_name()? == "program" && folder.file_name()?.to_str()?.starts_with("rackwright-traffic-");
    is_ours.then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_server_ends_after_a_time_without_authenticated_clients() {
        let begun = Instant::now();
        let connections = Connections::new();
        let _silent = connections.admit().unwrap();
        wait_for_end(&connections, None, LONG, SHORT);
        let mut known = connections.admit().unwrap();
        known.authenticate();
        wait_for_end(&connections, None, 4 * SHORT, SHORT);
        assert!(begun.elapsed() >= 5 * SHORT, "a running test was ended");
        drop(known);
        wait_for_end(&connections, None, LONG, SHORT);
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn the_alive_file_keeps_a_server_running() {
        let dir = tempfile::tempdir().unwrap();
        let alive = dir.path().join(ALIVE);
        let connections = Connections::new();
        let begun = Instant::now();
        let keeper = std::thread::spawn(move || {
            for round in 0..10 {
                std::fs::write(&alive, round.to_string()).unwrap();
                std::thread::sleep(SHORT);
            }
        });
        wait_for_end(&connections, Some(dir.path()), LONG, 8 * SHORT);
        assert!(begun.elapsed() >= 10 * SHORT, "{:?}", begun.elapsed());
        keeper.join().unwrap();
    }

    #[test]
    fn unauthenticated_connections_are_limited() {
        let connections = Connections::new();
        let mut strangers: Vec<Connection> = std::iter::from_fn(|| connections.admit()).collect();
        assert_eq!(strangers.len(), UNKNOWN_MAX);
        strangers[0].authenticate();
        assert!(connections.admit().is_some());
        drop(strangers);
        let mut known = Vec::new();
        while let Some(mut connection) = connections.admit() {
            connection.authenticate();
            known.push(connection);
        }
        assert_eq!(known.len(), CONNECTIONS_MAX);
    }

    #[test]
    fn only_a_folder_of_its_own_is_removed() {
        let of = |path: &str| folder_made_for(Path::new(path));
        let folder = "/run/rackwright-traffic-1";
        assert_eq!(of("/run/rackwright-traffic-1/program"), Some(PathBuf::from(folder)));
        for other in [
            "/usr/bin/rackwright-traffic",
            "/run/program",
            "/run/rackwright-traffic-1/sh",
            "program",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
