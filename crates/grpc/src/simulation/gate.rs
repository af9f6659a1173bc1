//! The tasks of a simulated process wait here until the seed lets one continue. Only one runs at a time, so that a seed
//! always gives the same run.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_ground::core::{CrashPoint, CrashPoints};
use rackwright_lifecycle::Timestamp;
use tokio::sync::{Notify, oneshot};

/// A waiting task.
#[derive(Debug)]
pub struct Waiting {
    /// The point where it waits. `None`: it only waits for a time.
    pub point: Option<CrashPoint>,
    /// The earliest time to continue.
    pub until: Timestamp,
    go: oneshot::Sender<()>,
}

/// The gate of one process.
#[derive(Debug, Default)]
pub struct Gate {
    waiting: Mutex<Vec<Waiting>>,
    /// A task has come.
    pub came: Notify,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The waiting tasks: point and time.
    pub fn waiting(&self) -> Vec<(Option<CrashPoint>, Timestamp)> {
        self.lock().iter().map(|w| (w.point, w.until)).collect()
    }

    /// Lets the `index`-th task continue.
    pub fn release(&self, index: usize) {
        let waiting = self.lock().remove(index);
        let _ = waiting.go.send(());
    }

    /// Drops all tasks of an ended process.
    pub fn clear(&self) {
        self.lock().clear();
    }

    async fn wait(self: Arc<Self>, point: Option<CrashPoint>, until: Timestamp) {
        let (go, gone_on) = oneshot::channel();
        self.lock().push(Waiting { point, until, go });
        self.came.notify_one();
        if gone_on.await.is_err() {
            // The process ended here: none of its tasks continues.
            std::future::pending::<()>().await;
        }
    }

    /// Returns at `until`.
    pub async fn sleep_until(self: &Arc<Self>, until: Timestamp) {
        self.clone().wait(None, until).await;
    }
}

/// The gate as the control plane uses it.
#[derive(Debug)]
pub struct GatePoints(pub Arc<Gate>);

impl CrashPoints for GatePoints {
    fn reach(&self, point: CrashPoint) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.0.clone().wait(Some(point), Timestamp(0)))
    }
}
