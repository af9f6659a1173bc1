//! The errors of reading and changing a fabric.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rackwright_infiniband::dump::DumpError;
use rackwright_infiniband::partition::{ConfError, Difference, PartitionError};

use crate::manager::{Master, Reading};
use crate::tool::ToolError;
use crate::ufm::UfmError;

/// Most differences that an error lists.
const MAX_NAMED: usize = 5;

/// Why a fabric could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A tool failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The output of `ibnetdiscover` is not a valid dump.
    #[error("the fabric cannot be read")]
    Dump(#[from] DumpError),
    /// The output of a tool has an unexpected form.
    #[error("the output of {tool} is not understood: {text:?}")]
    Output {
        /// Name of the tool.
        tool: &'static str,
        /// The beginning of the output.
        text: String,
    },
    /// The wanted partitions cannot be expressed for a manager. Nothing was changed.
    #[error("the partitions cannot be applied")]
    Partitions(#[from] PartitionError),
    /// OpenSM would not read a partition file as it is meant. Nothing was changed.
    #[error("the partition file is invalid and was not given to OpenSM")]
    Conf(#[from] ConfError),
    /// A file could not be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// The attempted action.
        doing: &'static str,
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// OpenSM is not running, with the reason. A changed partition file stays in place, and OpenSM reads it at its start.
    #[error("{0}")]
    NoManager(String),
    /// No subnet manager answers, with the reason if it is known.
    #[error("{}no subnet manager answers; ports keep their keys", prefix(.0.as_ref()))]
    NoMaster(Option<String>),
    /// Another subnet manager is the master. The partition file is in place: OpenSM reads the file when it is the master
    /// again.
    #[error("{0} is the master and sets the keys of all ports; OpenSM of this machine is not")]
    ForeignMaster(Master),
    /// OpenSM did not finish a sweep within this time.
    #[error("OpenSM has not finished a sweep within {} s", .0.as_secs_f64())]
    NoSweep(Duration),
    /// OpenSM reports that it could not read its partitions, which opens all of them.
    #[error("OpenSM refused the partition file: {line}; {rolled_back}")]
    Refused {
        /// OpenSM's log line.
        line: String,
        /// The result of the rollback.
        rolled_back: RolledBack,
    },
    /// Ports have other keys than wanted.
    #[error("{} differ from the wanted partitions: {}; {rolled_back}", ports(.differences), first(.differences))]
    Mismatch {
        /// All differences.
        differences: Vec<Difference>,
        /// The result of the rollback.
        rolled_back: RolledBack,
    },
    /// UFM failed or refused.
    #[error(transparent)]
    Ufm(#[from] UfmError),
    /// The manager of one of several fabrics failed.
    #[error("fabric {fabric}")]
    OfFabric {
        /// The name of the fabric.
        fabric: String,
        /// The error of its manager.
        source: Box<FabricError>,
        /// The tables that the change of the other fabrics repaired, as in [`Applied::before`](crate::Applied::before).
        before: Option<Box<Reading>>,
    },
    /// This process must not change the fabric any more, with the reason. The change stopped before its next write and was
    /// not rolled back.
    #[error("the change of the partitions stopped: {0}")]
    Fenced(String),
    /// The manager's setup does not support the action.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl FabricError {
    /// Whether the change stopped because this process must not change the fabric any more.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        match self {
            Self::Fenced(_) => true,
            Self::OfFabric { source, .. } => source.is_fenced(),
            _ => false,
        }
    }

    /// Tables that a failed change repaired: with several fabrics, those of the fabrics without an error.
    #[must_use]
    pub fn repaired(&self) -> Option<&Reading> {
        match self {
            Self::OfFabric { before, .. } => before.as_deref(),
            _ => None,
        }
    }
}

/// The result of rolling back a failed change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolledBack {
    /// The former state is restored, and the manager has accepted it.
    Yes,
    /// There was no valid former state: all partitions are removed except the closed default one.
    ToClosed,
    /// The rollback failed, with the reason: an operator must look.
    Failed(String),
}

impl std::fmt::Display for RolledBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Yes => f.write_str("the former partitions are restored"),
            Self::ToClosed => {
                f.write_str("there were no valid partitions before: only the closed default partition is left")
            }
            Self::Failed(why) => write!(f, "the former partitions could NOT be restored: {why}"),
        }
    }
}

/// The reason, as the beginning of a sentence.
fn prefix(why: Option<&String>) -> String {
    why.map(|why| format!("{why}: ")).unwrap_or_default()
}

fn ports(differences: &[Difference]) -> String {
    match differences.len() {
        1 => "1 table entry".to_owned(),
        n => format!("{n} table entries"),
    }
}

fn first(differences: &[Difference]) -> String {
    let mut texts: Vec<String> = differences.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if differences.len() > MAX_NAMED {
        texts.push(format!("and {} more", differences.len() - MAX_NAMED));
    }
    texts.join("; ")
}
