//! The agent's actions on a machine, from its ledger on the console, compared with the stored records.

use rackwright_lab::Machine;
use rackwright_lifecycle::{Effect, NodeId};
use rackwright_store::{EffectRow, Store};

use crate::site::Site;

/// The ledger's message when it allows a job to begin.
const BEGINS: &str = "job begins";
/// The ledger's message when a job has ended, in whatever way.
const ENDED: &str = "job ended";

/// Jobs that began on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedJobs {
    /// Image writes, complete or not.
    pub writes: usize,
    pub erases: usize,
}

/// The recorded attempts of an effect on a node.
///
/// # Panics
/// If the database cannot be read.
pub async fn tries(site: &Site, node: &str, effect: Effect) -> Vec<EffectRow> {
    let store = Store::open(&site.dir().join("data/rackwright.db"))
        .await
        .expect("the database opens");
    store
        .tries_of(&NodeId::stored(node), effect)
        .await
        .expect("tries can be read")
}

/// The jobs that began on a node's machine since the lab started.
///
/// # Panics
/// If an operation began twice, or began without a record.
pub async fn begun(site: &Site, machine: &Machine, node: &str) -> StartedJobs {
    let log = machine.serial_log();
    let lines: Vec<&str> = log.lines().filter(|l| l.contains(BEGINS)).collect();
    let count = async |effect| {
        let mut begun = 0;
        for row in tries(site, node, effect).await {
            let times = lines.iter().filter(|l| l.contains(&row.id)).count();
            assert!(times <= 1, "the agent began {} {times} times:\n{lines:#?}", row.id);
            begun += times;
        }
        begun
    };
    let begun = StartedJobs {
        writes: count(Effect::WriteImage).await,
        erases: count(Effect::EraseDrives).await,
    };
    assert_eq!(
        begun.writes + begun.erases,
        lines.len(),
        "the agent began work that is not stored:\n{lines:#?}"
    );
    begun
}

/// The number of jobs that began on the machine if the last one still runs.
#[must_use]
pub fn running_job(machine: &Machine) -> Option<usize> {
    let log = machine.serial_log();
    let (begun, ended) = (log.matches(BEGINS).count(), log.matches(ENDED).count());
    (begun > ended).then_some(begun)
}
