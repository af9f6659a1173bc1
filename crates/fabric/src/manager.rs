//! The interface of every fabric manager.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use async_trait::async_trait;
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::{Dump, Guid, Partitions, Tables};

use crate::error::FabricError;
use crate::fence::Fence;

/// The source of P_Key tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The ports themselves, by subnet management packets: proves isolation, and that a key is gone.
    Ports,
    /// The manager's own records: they prove nothing about a port.
    Manager,
}

/// The master subnet manager of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Master {
    /// The GUID of its port.
    pub port: Guid,
    /// Its priority: the one with the highest priority becomes the master.
    pub priority: u8,
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the subnet manager at port {} (priority {})",
            self.port, self.priority
        )
    }
}

/// Why the manager that this program controls does not set the keys of the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagerFault {
    /// No subnet manager answers, in words. Ports could not be read.
    Absent(String),
    /// Another subnet manager is the master.
    Foreign {
        /// That subnet manager.
        master: Master,
        /// The fabric, where there are several.
        fabric: Option<String>,
    },
}

/// P_Key tables of a fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The table of each port.
    pub tables: Tables,
    /// Ports of subnet managers, without a foreign one.
    pub managers: BTreeSet<Guid>,
    /// The source of the tables.
    pub proof: Proof,
}

/// The partition file of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionFile {
    /// The file's path.
    pub path: PathBuf,
    /// The fabric of the file's partitions, where there are several.
    pub fabric: Option<String>,
    /// The content. `None`: there is no such file.
    pub content: Option<Vec<u8>>,
    /// Only root and the user of this process may write the file. True if there is no file.
    pub is_protected: bool,
    /// The owner and the permissions, for people: `user 0, mode 0644`.
    pub owner: String,
}

/// A check without a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The partition file of each subnet manager that has one.
    pub files: Vec<PartitionFile>,
    /// The fault of the subnet manager. Always `None` without requested ports.
    pub manager: Option<ManagerFault>,
    /// The tables of the requested ports, without the keys of partitions that this program does not manage. Without
    /// requested ports nothing is read, and there are no managers either.
    pub reading: Reading,
    /// Why one of several fabrics could not be inspected.
    pub problem: Option<String>,
}

/// A successful change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The fabric was changed; false: it was as wanted.
    pub changed: bool,
    /// Tables that differed although the manager had the wanted partitions, of active ports; the change repaired them.
    pub before: Option<Reading>,
    /// Members that are not in the fabric now: they get their keys when they join.
    pub absent: BTreeSet<Guid>,
    /// The tables read back after the change.
    pub reading: Reading,
}

/// A fabric manager.
///
/// Changes to one fabric must come from one place at a time; an implementation queues them. Dropping the future of a change
/// midway leaves the fabric between two states: run a change to its end, in its own task.
#[async_trait]
pub trait FabricManager: fmt::Debug + Send + Sync {
    /// The manager's name for people.
    fn name(&self) -> &'static str;

    /// Devices and links at present.
    ///
    /// # Errors
    /// The fabric cannot be read.
    async fn topology(&self) -> Result<Dump, FabricError>;

    /// Sets exactly these partitions, reads back every port, and undoes the change if a port differs. Calls `fence` right
    /// before each write.
    ///
    /// # Errors
    /// [`FabricError::Partitions`] and [`FabricError::Conf`]: nothing was changed. [`FabricError::Mismatch`] and
    /// [`FabricError::Refused`] have the result of the rollback. [`FabricError::NoManager`] and
    /// [`FabricError::ForeignMaster`]: no port was changed, and the manager gets the partitions when it starts, or is the
    /// master again. [`FabricError::Fenced`]: the fence refused a write, and nothing is undone.
    async fn apply(&self, wanted: &Partitions, fence: &dyn Fence) -> Result<Applied, FabricError>;

    /// The P_Key table of every end port.
    ///
    /// # Errors
    /// The fabric cannot be read. Single unreadable ports are listed in the reading.
    async fn tables(&self) -> Result<Reading, FabricError>;

    /// Reads the partition file and the P_Key tables of these ports, and changes nothing.
    ///
    /// # Errors
    /// The file cannot be read, or a tool cannot be run. Single unreadable ports are listed in the reading.
    async fn inspect(&self, ports: &BTreeSet<Guid>) -> Result<Inspection, FabricError>;

    /// Those of these unexpected tables that count. A port that has just come up has the table of its power-on until the
    /// subnet manager sets the table and makes the port active.
    ///
    /// # Errors
    /// The fabric cannot be read.
    async fn confirm(&self, unexpected: &Tables) -> Result<Tables, FabricError>;

    /// The state of the fabric's own protections.
    ///
    /// # Errors
    /// The fabric cannot be read.
    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError>;
}
