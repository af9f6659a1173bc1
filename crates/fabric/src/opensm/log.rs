//! Follows OpenSM's log by inotify, for two events: the end of a sweep, and a refused partition file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe::Receiver;

use super::file::failed;
use super::folder;
use crate::error::FabricError;

/// Bytes of new log that one step reads.
const CHUNK_BYTES: u64 = 1 << 20;
/// Longest line; the rest of a longer line is ignored.
const LINE_BYTES: usize = 4_096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogEvent {
    /// The end of a sweep that changed something.
    SubnetUp,
    /// The partition file could not be read, and every partition is open now; the log line.
    Refused(String),
}

/// Follows a log from its present end.
pub(super) struct Follower {
    path: PathBuf,
    /// Wake-ups by inotify; only their arrival matters, not their content.
    notices: Receiver,
    at: u64,
    line: Vec<u8>,
    seen: Vec<LogEvent>,
}

impl Follower {
    pub(super) fn start(path: &Path) -> Result<Self, FabricError> {
        let fail = |source| failed("follow", path, source);
        // Watches the folder, so that a log that is created anew is followed too.
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(|e| fail(e.into()))?;
        let flags = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        inotify.add_watch(folder(path), flags).map_err(|e| fail(e.into()))?;
        let at = match std::fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(fail(source)),
        };
        Ok(Self {
            path: path.to_owned(),
            notices: inotify
                .as_fd()
                .try_clone_to_owned()
                .and_then(Receiver::from_owned_fd_unchecked)
                .map_err(fail)?,
            at,
            line: Vec::new(),
            seen: Vec::new(),
        })
    }

    /// The next event of the log. Several ends of sweeps since the last call count as one.
    pub(super) async fn next(&mut self) -> Result<LogEvent, FabricError> {
        loop {
            self.catch_up().map_err(|source| failed("follow", &self.path, source))?;
            if let Some(at) = self.seen.iter().position(|seen| matches!(seen, LogEvent::Refused(_))) {
                return Ok(self.seen.swap_remove(at));
            }
            if !self.seen.is_empty() {
                self.seen.clear();
                return Ok(LogEvent::SubnetUp);
            }
            self.notices
                .readable()
                .await
                .map_err(|source| failed("follow", &self.path, source))?;
            let mut notices = [0; 4096];
            match self.notices.try_read(&mut notices) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => return Err(failed("follow", &self.path, source)),
            }
        }
    }

    fn catch_up(&mut self) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() < self.at {
            // The log was created anew.
            self.at = 0;
            self.line.clear();
        }
        file.seek(SeekFrom::Start(self.at))?;
        loop {
            let mut chunk = Vec::new();
            let read = (&file).take(CHUNK_BYTES).read_to_end(&mut chunk)?;
            if read == 0 {
                return Ok(());
            }
            self.at += read as u64;
            self.lines(&chunk);
        }
    }

    fn lines(&mut self, chunk: &[u8]) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
                self.line.clear();
                self.seen.extend(parse_line(&line));
            }
        }
    }
}

fn parse_line(line: &str) -> Option<LogEvent> {
    let (_, entry) = line.split_once("-> ").unwrap_or(("", line));
    let refused =
        entry.contains("Partition configuration in error") || entry.contains("Partition configuration was not fully");
    if refused || (entry.starts_with("parse_part_conf") && entry.contains("PARSE ERROR")) {
        return Some(LogEvent::Refused(entry.to_owned()));
    }
    entry.contains("SUBNET UP").then_some(LogEvent::SubnetUp)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn only_new_lines_are_reported_even_of_a_new_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("osm.log");
        std::fs::write(&path, "x -> SUBNET UP\n").expect("a log");
        let mut follower = Follower::start(&path).expect("a follower");
        let append = |text: &str| {
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .expect("the log");
            file.write_all(text.as_bytes()).expect("written");
        };
        let none = tokio::time::timeout(Duration::from_millis(20), follower.next()).await;
        assert!(none.is_err(), "older lines are reported");
        append("Nov 22 20:22:44 084613 [C6] 0x02 -> SUBNET");
        let none = tokio::time::timeout(Duration::from_millis(20), follower.next()).await;
        assert!(none.is_err(), "half a line is reported");
        append(" UP\nn -> noise\n");
        assert_eq!(follower.next().await.expect("seen"), LogEvent::SubnetUp);
        append("a -> SUBNET UP\na -> parse_part_conf: PARSE ERROR: line 3: bad\n");
        assert_eq!(
            follower.next().await.expect("seen"),
            LogEvent::Refused("parse_part_conf: PARSE ERROR: line 3: bad".into())
        );
        assert_eq!(follower.next().await.expect("seen"), LogEvent::SubnetUp);
        std::fs::write(&path, "").expect("a new log");
        let none = tokio::time::timeout(Duration::from_millis(20), follower.next()).await;
        assert!(none.is_err(), "an empty log tells something");
        append("b -> SUBNET UP\n");
        assert_eq!(follower.next().await.expect("seen"), LogEvent::SubnetUp);
    }
}
