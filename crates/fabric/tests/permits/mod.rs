//! The right to change a fabric that ends after a number of writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use rackwright_fabric::Fence;

/// Permits some writes, and then none.
#[derive(Debug)]
pub struct Permits(pub AtomicUsize);

#[async_trait]
impl Fence for Permits {
    async fn check(&self) -> Result<(), String> {
        let left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(|_| ()).map_err(|_| "another replica has the lease".to_owned())
    }
}
