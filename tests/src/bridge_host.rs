//! A separate host on the lab's bridge, for example an attacker: a network namespace of its own with one network card.
//!
//! ```text
//! lab's namespace: br0 ── hostN ═══ veth pair ═══ card0 ── namespace of the host
//! ```

use std::net::Ipv4Addr;
use std::panic::resume_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use rackwright_lab::BRIDGE;
use tokio::runtime::{Builder, Handle};

/// The name of a host's network card.
pub const CARD: &str = "card0";
/// Time for the tasks of a host to end.
const END: Duration = Duration::from_secs(5);

/// Runs `ip` with these arguments.
///
/// # Panics
/// If it fails.
pub fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().expect("ip runs");
    assert!(
        done.status.success(),
        "ip {words}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A host. Dropping it unplugs it and ends what runs on it.
#[derive(Debug)]
pub struct BridgeHost {
    runtime: Handle,
    /// The end of its cable at the bridge.
    port: String,
    /// Its drop ends the host.
    running: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BridgeHost {
    /// Starts a host and plugs it into the bridge, with a MAC address if one is given, and without an IP address.
    ///
    /// # Panics
    /// If the host cannot be made.
    #[must_use]
    pub fn plug_in(mac: Option<&str>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let port = format!("host{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (ready, started) = mpsc::channel();
        let (running, end) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace for the host");
            // The runtime's threads are in the namespace of the thread that starts them.
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.expect("a runtime for the host");
            ready
                .send((gettid(), runtime.handle().clone()))
                .expect("the test waits");
            // Ends with an error when the sender is dropped.
            let _ = end.recv();
            runtime.shutdown_timeout(END);
        });
        let (id, runtime) = started.recv().expect("the host starts");
        ip(&format!("link add {port} type veth peer name {CARD} netns {id}"));
        let host = Self {
            runtime,
            port,
            running: Some(running),
            thread: Some(thread),
        };
        if let Some(mac) = mac {
            host.ip(&format!("link set {CARD} address {mac}"));
        }
        host.ip("link set lo up");
        host.ip(&format!("link set {CARD} up"));
        ip(&format!("link set {} master {BRIDGE} up", host.port));
        host
    }

    /// Starts a host with an address of the lab's network.
    ///
    /// # Panics
    /// If the host cannot be made.
    #[must_use]
    pub fn with_address(address: Ipv4Addr) -> Self {
        let host = Self::plug_in(None);
        host.ip(&format!("addr add {address}/24 dev {CARD}"));
        host
    }

    /// Runs `ip` on the host.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, words: &str) {
        let words = words.to_owned();
        self.call(move || ip(&words));
    }

    /// Runs a function on the host.
    ///
    /// # Panics
    /// If the function panics.
    pub fn call<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::channel();
        self.runtime.spawn(async move {
            // The caller waits below.
            let _ = sender.send(work());
        });
        result.recv().expect("the host does its work; see the panic above")
    }

    /// Runs a task on the host, with all that it starts.
    ///
    /// # Panics
    /// If the task panics.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        match self.runtime.spawn(work).await {
            Ok(done) => done,
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
}

impl Drop for BridgeHost {
    fn drop(&mut self) {
        // First, so that no frame of the host follows. The pair disappears at the latest with the host's namespace.
        let _ = Command::new("ip").args(["link", "del", &self.port]).output();
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
