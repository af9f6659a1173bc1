//! What the agent did to a machine, as its ledger tells on the console, held against what was written down.

use rackwright_lifecycle::Effect;
use rackwright_sim::lab::Machine;
use rackwright_store::{EffectRow, Store};

use crate::site::Site;

/// What the ledger says when it lets a job begin.
const BEGINS: &str = "job begins";
/// What it says when a job has ended, however.
const ENDED: &str = "job ended";

/// Jobs that were begun on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Images that were written, wholly or not.
    pub writes: usize,
    /// Erases.
    pub erases: usize,
}

/// The tries of an effect on a node, as they were written down.
///
/// # Panics
/// When the database cannot be read.
pub async fn tries(site: &Site, node: &str, effect: Effect) -> Vec<EffectRow> {
    let store = Store::open(&site.dir().join("data/rackwright.db"))
        .await
        .expect("the database opens");
    store.tries_of(node, effect).await.expect("tries can be read")
}

/// What was begun on the machine of a node since the lab started.
///
/// # Panics
/// When an operation was begun twice, or one that was never written down.
pub async fn begun(site: &Site, machine: &Machine, node: &str) -> Begun {
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
    let begun = Begun {
        writes: count(Effect::WriteImage).await,
        erases: count(Effect::EraseDrives).await,
    };
    assert_eq!(
        begun.writes + begun.erases,
        lines.len(),
        "the agent began what nobody wrote down:\n{lines:#?}"
    );
    begun
}

/// How many jobs were begun on the machine, and whether the last one still runs.
#[must_use]
pub fn job_at_work(machine: &Machine) -> Option<usize> {
    let log = machine.serial_log();
    let (begun, ended) = (log.matches(BEGINS).count(), log.matches(ENDED).count());
    (begun > ended).then_some(begun)
}
