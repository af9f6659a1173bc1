//! The emulator with a machine of libvirt's test driver, which exists only in the emulator's memory and is on at first.
//! Debian's `python3-libvirt` includes the driver and its Python binding.

use std::collections::BTreeMap;

use rackwright_redfish::capabilities::{Capability, Outcome};
use rackwright_redfish::{
    BootMode, BootTarget, FirmwareImage, Persistence, PowerChange, PowerGoal, PowerState, RedfishError, UpdateLook,
};

use super::{Driver, Emulator, WAIT_LIMIT};
use crate::support_page;

/// UUID of the machine that libvirt's test driver always has (`src/test/test_driver.c` there).
const UUID: &str = "6695eb01-f6a4-8304-79aa-97f2502e193f";

#[tokio::test]
async fn a_machine_of_libvirt_behind_it() {
    let mut emulator = Emulator::start(Driver::LibvirtTest).await;
    let client = emulator.connect().await;

    let identity = client.identity().await.unwrap();
    assert_eq!(identity.uuid.as_deref(), Some(UUID));
    assert_eq!(identity.profiles, ["sushy-emulator"]);
    let macs = client.macs().await.unwrap();
    assert_eq!(
        macs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["aa:bb:cc:dd:ee:ff"]
    );
    let report = client.probe().await.unwrap();
    support_page::check("sushy-emulator, libvirt test driver", &report);

    // The report lists the BIOS settings; they are read here.
    assert_eq!(report.finding(Capability::Bios).unwrap().outcome, Outcome::Pass);
    let system = client.system().await.unwrap();
    let bios = client.get(&format!("{}/BIOS", system.path())).await.unwrap();
    assert_eq!(bios.json()["Attributes"]["BootMode"], "Uefi");

    assert_eq!(client.power().await.unwrap(), PowerState::On);
    let off = client.set_power(PowerGoal::Off).await.unwrap();
    assert!(matches!(off, PowerChange::Accepted { .. }), "{off:?}");
    client.wait_power(PowerGoal::Off, WAIT_LIMIT).await.unwrap();
    assert_eq!(client.power().await.unwrap(), PowerState::Off);

    let network = client.set_boot(BootTarget::Pxe, Persistence::Once, None).await.unwrap();
    assert_eq!(network.after.target.as_deref(), Some("Pxe"));
    client.set_power(PowerGoal::On).await.unwrap();
    client.wait_power(PowerGoal::On, WAIT_LIMIT).await.unwrap();
    // libvirt keeps the override; "once" is accepted without effect.
    assert_eq!(client.boot().await.unwrap().target.as_deref(), Some("Pxe"));
    let disk = client
        .set_boot(BootTarget::Disk, Persistence::Continuous, None)
        .await
        .unwrap();
    assert_eq!((disk.after.target.as_deref(), disk.deviations.len()), (Some("Hdd"), 0));
    client.power_cycle(WAIT_LIMIT).await.unwrap();
    assert_eq!(client.power().await.unwrap(), PowerState::On);

    // The firmware offers no choice of modes, so no mode is written.
    let mode = client
        .set_boot(BootTarget::Pxe, Persistence::Once, Some(BootMode::Uefi))
        .await
        .unwrap();
    assert_eq!(mode.after.mode, None);
    assert_eq!(mode.after.target.as_deref(), Some("Pxe"));
    client.close().await.unwrap();
    emulator.stop().await;
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// libvirt stores the settings in the machine's description, so a start does not lose them.
#[tokio::test]
async fn settings_are_written_and_stay_after_a_start() {
    let mut emulator = Emulator::start(Driver::LibvirtTest).await;
    let client = emulator.connect().await;
    let before = client.bios().await.unwrap().unwrap();
    assert_eq!(before.current["ProcTurboMode"].to_string(), "Enabled");
    assert_eq!(
        (before.settings_path.as_str(), before.can_reset),
        (&*format!("{}/Settings", before.path), true)
    );

    let failure = client
        .set_bios(&before, &settings(&[("NumCores", "8"), ("EmbeddedSata", "Nonsense")]))
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, RedfishError::UnfitSettings { faults, .. } if faults.len() == 2),
        "the one is read-only, the other takes no such word: {failure}"
    );
    assert_eq!(client.bios().await.unwrap().unwrap(), before);
    let wanted = settings(&[
        ("ProcTurboMode", "Disabled"),
        ("EmbeddedSata", "Ahci"),
        ("BootMode", "Uefi"),
    ]);
    let change = client.set_bios(&before, &wanted).await.unwrap();
    let written: Vec<&String> = change.written.keys().collect();
    assert_eq!(written, ["EmbeddedSata", "ProcTurboMode"], "the third was so");
    client.power_cycle(WAIT_LIMIT).await.unwrap();

    let after = client.bios().await.unwrap().unwrap();
    for (name, value) in &before.current {
        let expected = wanted.get(name).cloned().unwrap_or_else(|| value.to_string());
        assert_eq!(after.current[name].to_string(), expected, "{name}");
    }
    assert!(after.pending.is_empty());
    let again = client.set_bios(&after, &wanted).await.unwrap();
    assert!(again.written.is_empty(), "{again:?}");
    client.reset_bios().await.unwrap();
    client.power_cycle(WAIT_LIMIT).await.unwrap();
    assert_eq!(client.bios().await.unwrap().unwrap().current, before.current);
    client.close().await.unwrap();
    emulator.stop().await;
}

/// Only `SimpleUpdate` raises the version, although the emulator lists a push URI. It fetches no file.
#[tokio::test]
async fn an_update_raises_the_version_of_the_bios() {
    let mut emulator = Emulator::start(Driver::LibvirtTest).await;
    let client = emulator.connect().await;
    let state = client.firmware().await.unwrap();
    assert!(state.gaps.is_empty(), "{:?}", state.gaps);
    let entry = state.entries.iter().find(|entry| entry.id == "BIOS").unwrap();
    assert_eq!(entry.version, "1.0.0");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bios.bin");
    std::fs::write(&file, "bios").unwrap();
    let image = FirmwareImage {
        file,
        bytes: 4,
        name: "bios.bin".to_owned(),
        url: Some("http://127.0.0.1:9/bios.bin".to_owned()),
    };
    let ticket = client.start_update(entry, &image).await.unwrap();
    let look = client.look_at_update(&ticket).await.unwrap();
    assert!(matches!(look, UpdateLook::Done(_)), "{look:?} of {ticket:?}");
    assert_eq!(client.firmware_entry(&entry.path).await.unwrap().version, "1.1.0");
    client.power_cycle(WAIT_LIMIT).await.unwrap();
    let state = client.firmware().await.unwrap();
    let versions: Vec<_> = state
        .entries
        .iter()
        .map(|e| (e.id.as_str(), e.version.as_str()))
        .collect();
    assert!(versions.contains(&("BIOS", "1.1.0")), "{versions:?}");
    client.close().await.unwrap();
    emulator.stop().await;
}
