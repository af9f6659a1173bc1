//! A client at a console: a running program, its output, and its input.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause between checks of the output.
const LOOK: Duration = Duration::from_millis(50);

/// A program and all of its output. Dropping it ends the program.
#[derive(Debug)]
pub struct Client {
    child: Child,
    input: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Client {
    /// Starts the program.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program starts");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let streams: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("it is piped")),
            Box::new(child.stderr.take().expect("it is piped")),
        ];
        for mut stream in streams {
            let shown = Arc::clone(&shown);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                    shown.extend_from_slice(&buffer[..count]);
                }
            });
        }
        let input = child.stdin.take().expect("it is piped");
        Self { child, input, shown }
    }

    /// The output so far.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits until the output contains `wanted`.
    ///
    /// # Panics
    /// If it does not within `limit`.
    pub async fn wait_for_text(&self, wanted: &str, limit: Duration) {
        self.wait_for_count(wanted, 1, limit).await;
    }

    /// Waits until the output contains `wanted` `times` times.
    ///
    /// # Panics
    /// If it does not within `limit`.
    pub async fn wait_for_count(&self, wanted: &str, times: usize, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.text().matches(wanted).count() < times {
            assert!(Instant::now() < deadline, "{wanted:?} is not shown: {}", self.text());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends `keys` to the program.
    ///
    /// # Panics
    /// If the program no longer reads its input.
    pub fn type_text(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).expect("it reads what is typed");
        self.input.flush().expect("it reads what is typed");
    }

    /// Waits for the program's own end and returns its exit status.
    ///
    /// # Panics
    /// If it does not end within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> Option<i32> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it continues: {}", self.text());
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
