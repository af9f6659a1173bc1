//! Where the tasks of a simulated process wait until the seed lets one of them go on. Only one runs at a time, so that
//! a seed always gives the same run.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_lifecycle::Timestamp;
use tokio::sync::{Notify, oneshot};

use crate::core::{Point, Points};

/// A task that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Where; none: for a time only.
    pub point: Option<Point>,
    /// Not before.
    pub until: Timestamp,
    go: oneshot::Sender<()>,
}

/// The gate of one process.
#[derive(Debug, Default)]
pub struct Gate {
    waiting: Mutex<Vec<Waiting>>,
    /// Somebody came.
    pub came: Notify,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who waits: where, and until when.
    pub fn waiting(&self) -> Vec<(Option<Point>, Timestamp)> {
        self.lock().iter().map(|w| (w.point, w.until)).collect()
    }

    /// Lets the `index`-th go on.
    pub fn release(&self, index: usize) {
        let waiting = self.lock().remove(index);
        let _ = waiting.go.send(());
    }

    /// The process is gone.
    pub fn clear(&self) {
        self.lock().clear();
    }

    async fn wait(self: Arc<Self>, point: Option<Point>, until: Timestamp) {
        let (go, gone_on) = oneshot::channel();
        self.lock().push(Waiting { point, until, go });
        self.came.notify_one();
        if gone_on.await.is_err() {
            // The process ended here: nothing of it goes on.
            std::future::pending::<()>().await;
        }
    }

    /// Returns at `until`.
    pub async fn sleep_until(self: &Arc<Self>, until: Timestamp) {
        self.clone().wait(None, until).await;
    }
}

/// The gate as the control plane sees it.
#[derive(Debug)]
pub struct Doors(pub Arc<Gate>);

impl Points for Doors {
    fn reach(&self, point: Point, _: &str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.0.clone().wait(Some(point), Timestamp(0)))
    }
}
