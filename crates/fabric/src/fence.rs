//! The right of a process to change a fabric, checked right before each write to its manager.

use std::fmt;

use async_trait::async_trait;

/// Whether this process may still change the fabric. A process that stood still may have lost the right to another one, and
/// would overwrite newer partitions with its own.
#[async_trait]
pub trait Fence: fmt::Debug + Send + Sync {
    /// Called right before each write to a manager. After an error nothing more is written.
    ///
    /// # Errors
    /// Why this process must not write, as a sentence.
    async fn check(&self) -> Result<(), String>;
}

/// No other process changes the fabric.
#[derive(Debug, Clone, Copy)]
pub struct Unshared;

#[async_trait]
impl Fence for Unshared {
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
