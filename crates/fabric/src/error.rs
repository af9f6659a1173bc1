//! Everything that can go wrong between us and a fabric.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rackwright_site::fabric::dump::DumpError;
use rackwright_site::fabric::partition::{ConfError, Difference, PartitionError};

use crate::tool::ToolError;
use crate::ufm::UfmError;

/// Differences that an error names at most.
const MAX_NAMED: usize = 5;

/// Why a fabric could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A tool did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// What `ibnetdiscover` printed is no dump.
    #[error("the fabric cannot be read")]
    Dump(#[from] DumpError),
    /// What a tool printed has not the form that it should have.
    #[error("{tool} printed something that is not understood: {text:?}")]
    Output {
        /// The tool.
        tool: &'static str,
        /// The beginning of it.
        text: String,
    },
    /// The partitions that are wanted cannot be told to a manager. Nothing was changed.
    #[error("the partitions cannot be applied")]
    Partitions(#[from] PartitionError),
    /// A file of partitions is not one that OpenSM would read as it is meant. Nothing was changed.
    #[error("the partition file is refused before OpenSM sees it")]
    Conf(#[from] ConfError),
    /// A file could not be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// OpenSM is not running where it should.
    #[error("OpenSM cannot be told to read its files: {0}")]
    NoManager(String),
    /// OpenSM did not end a sweep in time.
    #[error("OpenSM has not finished a sweep within {} s", .0.as_secs_f64())]
    NoSweep(Duration),
    /// OpenSM says that it could not read its partitions, which opens them all.
    #[error("OpenSM refused the partition file: {line}; {rolled_back}")]
    Refused {
        /// Its words.
        line: String,
        /// What was done then.
        rolled_back: RolledBack,
    },
    /// Ports have other keys than wanted.
    #[error("{} differ from what is wanted: {}; {rolled_back}", ports(.differences), first(.differences))]
    Mismatch {
        /// All of them.
        differences: Vec<Difference>,
        /// What was done then.
        rolled_back: RolledBack,
    },
    /// UFM did not do as asked.
    #[error(transparent)]
    Ufm(#[from] UfmError),
    /// This manager cannot do that as it is set up.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// What became of a change that did not work out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolledBack {
    /// The former state is back, and the manager has taken it.
    Yes,
    /// There was no sound former state: all partitions but the closed default one are gone.
    ToClosed,
    /// It could not be brought back, and why: somebody must look.
    Failed(String),
}

impl std::fmt::Display for RolledBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Yes => f.write_str("the former partitions are back"),
            Self::ToClosed => {
                f.write_str("there were no sound partitions before: only the closed default partition is left")
            }
            Self::Failed(why) => write!(f, "the former partitions could NOT be brought back: {why}"),
        }
    }
}

fn ports(differences: &[Difference]) -> String {
    match differences.len() {
        1 => "1 table entry".to_owned(),
        n => format!("{n} table entries"),
    }
}

fn first(differences: &[Difference]) -> String {
    let mut words: Vec<String> = differences.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if differences.len() > MAX_NAMED {
        words.push(format!("and {} more", differences.len() - MAX_NAMED));
    }
    words.join("; ")
}
