//! The connections of a server, and its end: at its deadline, or after a time without a client or a sign that the test goes
//! on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Most connections; further ones are closed. Below 1024, the usual limit of open files for a process.
const MOST: usize = 960;
/// Most connections that have not shown the token yet.
const MOST_UNKNOWN: usize = 256;
/// A server ends after this time without a connection that has shown the token, and without a sign from the test's
/// initiator.
pub const IDLE: Duration = Duration::from_secs(60);
/// File next to the program; the test's initiator rewrites it while the test goes on.
const ALIVE: &str = "alive";
/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(500);

/// The connections of a server.
#[derive(Debug)]
pub struct Guests {
    unknown: AtomicUsize,
    known: AtomicUsize,
    /// When a client with the token or a sign of the test was last seen.
    last: Mutex<Instant>,
}

impl Guests {
    /// No connections yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            unknown: AtomicUsize::new(0),
            known: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
        })
    }

    /// Admits another connection, if there is room.
    pub fn admit(self: &Arc<Self>) -> Option<Guest> {
        let unknown = self.unknown.fetch_add(1, Ordering::SeqCst);
        // Without room it is dropped, which decrements the count again.
        let guest = Guest {
            guests: Arc::clone(self),
            is_known: false,
        };
        let is_room = unknown < MOST_UNKNOWN && unknown + self.known.load(Ordering::SeqCst) < MOST;
        is_room.then_some(guest)
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
pub struct Guest {
    guests: Arc<Guests>,
    is_known: bool,
}

impl Guest {
    /// The client has shown the token.
    pub fn know(&mut self) {
        if !self.is_known {
            self.is_known = true;
            self.guests.known.fetch_add(1, Ordering::SeqCst);
            self.guests.unknown.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if self.is_known {
            self.guests.touch();
            self.guests.known.fetch_sub(1, Ordering::SeqCst);
        } else {
            self.guests.unknown.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Returns at the deadline, or after `idle` without a client or a sign.
pub fn wait_for_end(guests: &Guests, folder: Option<&Path>, deadline: Duration, idle: Duration) {
    let begun = Instant::now();
    let alive = || -> Option<SystemTime> { folder?.join(ALIVE).metadata().ok()?.modified().ok() };
    let mut seen = alive();
    while begun.elapsed() < deadline && guests.idle() < idle {
        #[expect(clippy::disallowed_methods, reason = "the thread of the watch does nothing else")]
        std::thread::sleep(LOOK.min(idle / 4));
        let now = alive();
        // Any other time counts: the machine's clock may be set meanwhile.
        if now != seen {
            seen = now;
            guests.touch();
        }
    }
}

/// The folder that was made only for this program, if the program runs from such a folder.
pub fn own_folder() -> Option<PathBuf> {
    let lies = std::env::current_exe().ok().and_then(|program| made_for(&program));
    // The embedded program runs from memory under the original name.
    lies.or_else(|| made_for(Path::new(&std::env::args_os().next()?)))
}

fn made_for(program: &Path) -> Option<PathBuf> {
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
    fn a_server_ends_when_nobody_who_knows_the_token_was_there_for_a_while() {
        let begun = Instant::now();
        let guests = Guests::new();
        let _silent = guests.admit().unwrap();
        wait_for_end(&guests, None, LONG, SHORT);
        let mut known = guests.admit().unwrap();
        known.know();
        wait_for_end(&guests, None, 4 * SHORT, SHORT);
        assert!(begun.elapsed() >= 5 * SHORT, "a test that goes on was ended");
        drop(known);
        wait_for_end(&guests, None, LONG, SHORT);
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn a_sign_of_whoever_began_the_test_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let alive = dir.path().join(ALIVE);
        let guests = Guests::new();
        let begun = Instant::now();
        let keeper = std::thread::spawn(move || {
            for round in 0..10 {
                std::fs::write(&alive, round.to_string()).unwrap();
                std::thread::sleep(SHORT);
            }
        });
        wait_for_end(&guests, Some(dir.path()), LONG, 8 * SHORT);
        assert!(begun.elapsed() >= 10 * SHORT, "{:?}", begun.elapsed());
        keeper.join().unwrap();
    }

    #[test]
    fn strangers_have_few_places_and_leave_some_to_those_who_know_the_token() {
        let guests = Guests::new();
        let mut strangers: Vec<Guest> = std::iter::from_fn(|| guests.admit()).collect();
        assert_eq!(strangers.len(), MOST_UNKNOWN);
        strangers[0].know();
        assert!(guests.admit().is_some());
        drop(strangers);
        let mut known = Vec::new();
        while let Some(mut guest) = guests.admit() {
            guest.know();
            known.push(guest);
        }
        assert_eq!(known.len(), MOST);
    }

    #[test]
    fn only_a_folder_of_its_own_is_removed() {
        let of = |path: &str| made_for(Path::new(path));
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
