//! Calls that wait for the end of an operation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_lifecycle::OperationId;
use tokio::sync::Notify;

/// Calls that wait in this process. The end of an operation here wakes the calls that wait for it, and no others.
#[derive(Debug, Default)]
pub struct Waits {
    waiting: Mutex<HashMap<OperationId, (usize, Arc<Notify>)>>,
}

/// One waiting call. Dropping it ends the wait.
#[derive(Debug)]
pub struct Wait<'a> {
    waits: &'a Waits,
    operation: OperationId,
    /// Notified when the operation has ended in this process.
    pub ended: Arc<Notify>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, HashMap<OperationId, (usize, Arc<Notify>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a wait for an operation.
    #[must_use]
    pub fn of(&self, operation: &OperationId) -> Wait<'_> {
        let mut waiting = self.lock();
        let (count, ended) = waiting.entry(operation.clone()).or_default();
        *count += 1;
        Wait {
            waits: self,
            operation: operation.clone(),
            ended: ended.clone(),
        }
    }

    /// Number of operations with waiting calls.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Wakes the waiting calls after the end of an operation is stored.
    pub fn ended(&self, operation: &OperationId) {
        if let Some((_, ended)) = self.lock().get(operation) {
            ended.notify_waiters();
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waits.lock();
        if let Some((count, _)) = waiting.get_mut(&self.operation) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.operation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test]
    async fn the_end_of_an_operation_wakes_only_its_waiters() {
        let waits = Waits::default();
        let [a, b, other_id] = ["a", "b", "nobody's"].map(OperationId::stored);
        let (first, second, other) = (waits.of(&a), waits.of(&a), waits.of(&b));
        assert_eq!(waits.count(), 2);
        let heard = [&first, &second, &other].map(|wait| wait.ended.clone());
        let (mut woken, mut too) = (pin!(heard[0].notified()), pin!(heard[1].notified()));
        let mut not = pin!(heard[2].notified());
        assert!(!woken.as_mut().enable() && !too.as_mut().enable() && !not.as_mut().enable());
        waits.ended(&a);
        waits.ended(&other_id);
        woken.await;
        too.await;
        assert!(timeout(Duration::from_millis(1), not).await.is_err());
        drop(first);
        assert_eq!(waits.count(), 2, "one still waits for it");
        drop((second, other));
        assert_eq!(waits.count(), 0);
    }
}
