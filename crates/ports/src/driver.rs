//! The interface of every switch driver.

use std::fmt;

use async_trait::async_trait;

use crate::error::PortsError;
use crate::model::{SwitchConfig, SwitchReading};

/// The result of applying a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// At least one port had to change.
    pub changed: bool,
    /// The switch reported that the ports of the document are in operation. `false`: it reports only its configuration.
    pub operational: bool,
    /// All ports of the switch, read after the change.
    pub reading: SwitchReading,
}

/// A switch with ports that can be set and read.
#[async_trait]
pub trait PortDriver: fmt::Debug + Send + Sync {
    /// The name of the switch in the site.
    fn switch(&self) -> &str;

    /// Applies the document to the switch in one transaction and reads the ports back. If the future is dropped, the
    /// switch has either its earlier state or that of the document.
    ///
    /// # Errors
    /// A port differs from the document or cannot be proven to match it.
    async fn apply(&self, config: &SwitchConfig) -> Result<Applied, PortsError>;

    /// Reads every port of the switch.
    ///
    /// # Errors
    /// The switch cannot be read.
    async fn read(&self) -> Result<SwitchReading, PortsError>;
}
