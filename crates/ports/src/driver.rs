//! What every driver of a switch can do.

use std::fmt;

use async_trait::async_trait;

use crate::error::PortsError;
use crate::model::{SwitchReading, Wishes};

/// A document that is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// At least one port had to be changed.
    pub changed: bool,
    /// All ports of the switch, read after the change.
    pub reading: SwitchReading,
}

/// A switch whose ports can be set and read.
#[async_trait]
pub trait PortDriver: fmt::Debug + Send + Sync {
    /// The name of the switch in the site.
    fn switch(&self) -> &str;

    /// Brings the document to the switch in one transaction, and reads its ports back. A dropped future leaves the switch
    /// as it was or as the document says.
    ///
    /// # Errors
    /// A port does not have what the document says, or is not known to have it.
    async fn apply(&self, wishes: &Wishes) -> Result<Applied, PortsError>;

    /// Reads every port of the switch.
    ///
    /// # Errors
    /// The switch cannot be read.
    async fn read(&self) -> Result<SwitchReading, PortsError>;
}
