//! The BMC's list of drives: recorded, and compared with the agent's inventory during an inspection.

use rackwright_ground::bmc::BmcError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::State;
use rackwright_lifecycle::drives::{DriveList, KnownDrive, ReportedDrive, Source, judge};
use rackwright_redfish::RedfishError;
use rackwright_store::NodeRecord;

use super::bmc::{failed, through_bmc, turn};
use crate::drives::{self, DIFFER, DRIVES_MAX};
use crate::effect_result::{EffectResult, LearnedFact};

/// Reads the BMC's list.
pub(super) async fn read(core: &Core, record: &NodeRecord) -> EffectResult {
    through_bmc!(core, record, |client| {
        let (found, gaps) = client.drives().await?;
        for gap in gaps.iter().take(3) {
            tracing::info!(node = %record.id, path = %gap.path, why = %gap.why, "drives of the BMC could not be read");
        }
        let found = found.iter().take(DRIVES_MAX).map(drives::known_to_bmc).collect();
        Ok(recorded(core, record, found).await)
    })
}

/// Records the BMC's list. The inventory of an inspection has to agree with it: otherwise the node would become available
/// with drives that no erase certificate could cover.
pub async fn recorded(core: &Core, record: &NodeRecord, found: Vec<KnownDrive>) -> EffectResult {
    let now = clock::now();
    let list = |source, drives| DriveList {
        source,
        at: now,
        by: String::new(),
        drives,
    };
    if record.node.state != State::Inspecting {
        let mut done = EffectResult::succeeded();
        done.learned = Some(LearnedFact::Drives(vec![list(Source::BmcReclaiming, found)]));
        return done;
    }
    let (inventory, lists) = match seen(core, record).await {
        Ok(seen) => seen,
        Err(error) => return EffectResult::unread(&error),
    };
    if inventory.len() > DRIVES_MAX {
        let message = format!(
            "the agent lists {} drives; at most {DRIVES_MAX} are kept",
            inventory.len()
        );
        return EffectResult::failed_for_good(DIFFER, message);
    }
    let drives: Vec<ReportedDrive> = inventory.iter().map(ReportedDrive::from).collect();
    let mut compared: Vec<DriveList> = lists.into_iter().filter(|l| l.source == Source::Accepted).collect();
    compared.push(list(Source::Inspection, inventory.clone()));
    compared.push(list(Source::Bmc, found.clone()));
    let differences = judge(&compared, &drives).differences;
    let mut done = if differences.is_empty() {
        EffectResult::succeeded()
    } else {
        let mut done = EffectResult::failed_for_good(DIFFER, drives::refusal(&record.id, &differences));
        done.events.push(drives::differ_event(&record.id, &differences, now));
        done
    };
    done.learned = Some(LearnedFact::Drives(vec![
        list(Source::Bmc, found),
        list(Source::Reported, inventory),
    ]));
    done
}

/// The drives of the inventory, and the recorded lists.
async fn seen(
    core: &Core,
    record: &NodeRecord,
) -> Result<(Vec<KnownDrive>, Vec<DriveList>), rackwright_store::StoreError> {
    let inventory = drives::of_node(core, &record.id).await?;
    let lists = core.store.drive_lists(&record.id).await?;
    Ok((inventory.drives.iter().map(drives::known).collect(), lists))
}
