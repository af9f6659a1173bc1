//! The agent's own code on the drives of a fleet's machines.
#![allow(clippy::unwrap_used)]

use rackwright_agent::drives::Drives;
use rackwright_agent::erase::{EraseFailure, erase};
use rackwright_agent::jobs::control::{JobControl, StopReason};
use rackwright_api::v1::{EraseDrives, EraseDrivesResult, EraseMethod};
use rackwright_sim::fleet::{Fleet, FleetConfig, Profile, Script, SimNode};

async fn machine(faults: &str) -> (Fleet, SimNode) {
    let config = FleetConfig {
        profile: Profile::DgxH100,
        faults: Script::parse("faults.yaml", &format!("faults: [{faults}]"), 1).unwrap(),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.unwrap();
    let node = fleet.node(0);
    (fleet, node)
}

fn erase_all(node: &SimNode, control: &JobControl) -> Result<EraseDrivesResult, EraseFailure> {
    let job = EraseDrives {
        samples: 256,
        ..EraseDrives::default()
    };
    erase(&node.drives(), &job, control)
}

#[tokio::test]
async fn terabytes_are_erased_with_proof() {
    let (_fleet, node) = machine("").await;
    let drives = node.drives();
    assert_eq!(drives.list().len(), 10);
    assert_eq!(drives.list()[9].drive.size_bytes, 3_840_755_982_336);
    drives.all().iter().for_each(|drive| drive.fill_with_data());
    let erased = erase_all(&node, &JobControl::without_listener()).unwrap();
    assert_eq!(erased.drives.len(), 10);
    for (drive, erased) in drives.all().iter().zip(&erased.drives) {
        assert_eq!(erased.serial_number, drive.serial());
        assert_eq!(erased.method(), EraseMethod::NvmeSanitizeCrypto);
        assert!(erased.samples >= 256 && erased.rejected_methods.is_empty());
    }
    // A second time, with only noise on the drives; they are the same drives as before.
    erase_all(&node, &JobControl::without_listener()).unwrap();
    assert_eq!(node.drives().all()[0].serial(), drives.all()[0].serial());
}

#[tokio::test]
async fn drives_that_do_not_erase_are_not_called_erased() {
    for (fault, code, words) in [
        ("erase-unsupported", "erase-unsupported", "invalid command opcode"),
        ("erase-ignored", "erase-not-proven", "the drive reported success"),
        ("disk-errors", "erase-not-proven", "reading samples"),
    ] {
        let (_fleet, node) = machine(&format!("{{fault: {fault}}}")).await;
        node.drives().all().iter().for_each(|drive| drive.fill_with_data());
        let failure = erase_all(&node, &JobControl::without_listener()).unwrap_err();
        assert_eq!(failure.error.code, code, "{fault}: {}", failure.error.message);
        assert!(
            failure.error.message.contains(words),
            "{fault}: {}",
            failure.error.message
        );
        assert!(failure.erased.drives.is_empty());
    }
}

#[tokio::test]
async fn a_cancelled_erase_ends() {
    let (_fleet, node) = machine("").await;
    let control = JobControl::without_listener();
    control.stop(StopReason::Cancelled);
    assert_eq!(erase_all(&node, &control).unwrap_err().error.code, "cancelled");
}

#[tokio::test]
async fn a_missing_drive_is_missing_for_the_agent_too() {
    let (_fleet, node) = machine("{fault: wrong-inventory, missing: drive}").await;
    assert_eq!(node.drives().list().len(), 9);
}
