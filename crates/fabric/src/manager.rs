//! What every fabric manager can do.

use std::collections::BTreeSet;
use std::fmt;

use async_trait::async_trait;
use rackwright_site::fabric::partition::HealthCheck;
use rackwright_site::fabric::{Dump, Guid, Partitions, Tables};

use crate::error::FabricError;

/// Where tables come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// From the ports themselves, by subnet management packets: proves isolation, and that a key is gone.
    Ports,
    /// From the manager, which believes that ports are so. Proves nothing about a port.
    Manager,
}

/// P_Key tables of a fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The tables.
    pub tables: Tables,
    /// Ports of subnet managers.
    pub managers: BTreeSet<Guid>,
    /// How sure they are.
    pub proof: Proof,
}

/// A change that worked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Whether anything had to be changed.
    pub changed: bool,
    /// Members that are not in the fabric now: they get their keys when they come.
    pub absent: BTreeSet<Guid>,
    /// What was read back.
    pub reading: Reading,
}

/// Something that manages a fabric.
///
/// Changes to one fabric must come from one place at a time; an implementation queues them. A change whose future is
/// dropped midway leaves the fabric between two states: run it to its end, in a task of its own.
#[async_trait]
pub trait FabricManager: fmt::Debug + Send + Sync {
    /// What it is, for people.
    fn name(&self) -> &'static str;

    /// Devices and links as they are now.
    ///
    /// # Errors
    /// The fabric cannot be read.
    async fn topology(&self) -> Result<Dump, FabricError>;

    /// Makes the partitions these and no others, reads back every port, and undoes the change if that shows anything else.
    ///
    /// # Errors
    /// [`FabricError::Partitions`] and [`FabricError::Conf`] before anything was changed; [`FabricError::Mismatch`] and
    /// [`FabricError::Refused`] say what became of the former state.
    async fn apply(&self, wanted: &Partitions) -> Result<Applied, FabricError>;

    /// Every end port's table.
    ///
    /// # Errors
    /// The fabric cannot be read. Single ports that cannot are noted in the reading.
    async fn tables(&self) -> Result<Reading, FabricError>;

    /// Whether the fabric's own guards are up.
    ///
    /// # Errors
    /// The fabric cannot be read.
    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError>;
}
