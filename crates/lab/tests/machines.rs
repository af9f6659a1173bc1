//! Real machines: firmware, network boot, overrides, media, faults.
#![allow(clippy::unwrap_used)]

mod common;

use common::guest::{Platform, Then, boot_sector, efi_application, efi_volume, iso};
use common::{CD, LONG, SYSTEM, one};
use rackwright_lab::{self as lab, DiskKind, Firmware, LabConfig, LabError, Machine, PowerState};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// iPXE's output when it is booted (its option ROM announces itself at every power-on).
const IPXE: &str = "Open Source Network Boot Firmware";

fn bios() -> LabConfig {
    LabConfig {
        firmware: Firmware::Bios,
        ..LabConfig::default()
    }
}

/// Writes a guest to the start of a machine's first drive.
fn install(machine: &Machine, guest: &[u8]) {
    let path = machine.disk_path(0).unwrap();
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all(guest)
        .unwrap();
}

#[test]
fn uefi_reaches_pxe() {
    lab::run_test("uefi_reaches_pxe", async |namespace| {
        let (_lab, machine, client) = one(&namespace, LabConfig::default()).await;
        // The drive is blank: the default order falls through to the network.
        client.reset("On").await;
        machine.wait_serial("Start PXE over IPv4", LONG).await.unwrap();
        assert_eq!(machine.view().boots, 1, "the firmware must not reset by itself");
    });
}

#[test]
fn bios_reaches_pxe() {
    lab::run_test("bios_reaches_pxe", async |namespace| {
        let (_lab, machine, client) = one(&namespace, bios()).await;
        client.reset("On").await;
        machine.wait_serial(IPXE, LONG).await.unwrap();
    });
}

#[test]
fn uefi_http_once_does_not_spoil_pxe_later() {
    lab::run_test("uefi_http_once_does_not_spoil_pxe_later", async |namespace| {
        let (_lab, machine, client) = one(&namespace, LabConfig::default()).await;
        client.boot("UefiHttp", "Once").await;
        client.reset("On").await;
        machine.wait_serial("Start HTTP Boot over IPv4", LONG).await.unwrap();
        assert!(!machine.serial_log().contains("Start PXE"));
        client.boot("Pxe", "Once").await;
        client.reset("ForceRestart").await;
        machine.wait_serial("Start PXE over IPv4", LONG).await.unwrap();
        assert_eq!(machine.serial_log().matches("Start HTTP Boot").count(), 1);
        assert_eq!(machine.view().fault, None);
    });
}

#[test]
fn an_override_for_one_boot_is_used_up_by_it() {
    lab::run_test("an_override_for_one_boot_is_used_up_by_it", async |namespace| {
        let (_lab, machine, client) = one(&namespace, bios()).await;
        install(&machine, &boot_sector("GUEST ON DISK", Then::Halt));
        client.boot("Pxe", "Once").await;
        assert_eq!(client.boot_now().await, ("Pxe".into(), "Once".into()));
        client.reset("On").await;
        machine.wait_serial(IPXE, LONG).await.unwrap();
        assert_eq!(client.boot_now().await, ("None".into(), "Disabled".into()));
        assert!(!machine.serial_log().contains("GUEST ON DISK"));
        client.reset("ForceRestart").await;
        machine.wait_serial("GUEST ON DISK", LONG).await.unwrap();

        // The other way round: set while the machine runs, then a reset.
        let before = machine.serial_log().matches(IPXE).count();
        client.boot("Pxe", "Continuous").await;
        client.reset("ForceRestart").await;
        poll(|| machine.serial_log().matches(IPXE).count() > before).await;
        assert_eq!(client.boot_now().await, ("Pxe".into(), "Continuous".into()));
        client.boot("None", "Disabled").await;
        assert_eq!(client.boot_now().await, ("None".into(), "Disabled".into()));
    });
}

#[test]
fn the_guests_own_reset_takes_the_override() {
    lab::run_test("the_guests_own_reset_takes_the_override", async |namespace| {
        let (_lab, machine, client) = one(&namespace, bios()).await;
        install(&machine, &boot_sector("GUEST RESETS", Then::Reset));
        client.reset("On").await;
        machine
            .wait_for("two resets by the guest", LONG, |view| view.boots >= 3)
            .await
            .unwrap();
        assert_eq!(machine.view().power, PowerState::On);
        client.boot("Pxe", "Once").await;
        machine.wait_serial(IPXE, LONG).await.unwrap();
        assert_eq!(client.boot_now().await, ("None".into(), "Disabled".into()));
    });
}

#[test]
fn a_guest_reset_changes_from_pxe_to_http() {
    lab::run_test("a_guest_reset_changes_from_pxe_to_http", async |namespace| {
        let (_lab, machine, client) = one(&namespace, LabConfig::default()).await;
        install(&machine, &efi_volume(&efi_application("EFI GUEST RESETS", Then::Reset)));
        client.reset("On").await;
        machine.wait_serial("EFI GUEST RESETS", LONG).await.unwrap();
        client.boot("UefiHttp", "Once").await;
        machine.wait_serial("Start HTTP Boot over IPv4", LONG).await.unwrap();
        assert!(!machine.serial_log().contains("Start PXE"));
    });
}

#[test]
fn a_guest_that_powers_off_is_seen() {
    lab::run_test("a_guest_that_powers_off_is_seen", async |namespace| {
        let (_lab, machine, client) = one(&namespace, bios()).await;
        install(&machine, &boot_sector("GUEST LEAVES", Then::PowerOff));
        client.reset("On").await;
        machine
            .wait_for("power-off by the guest", LONG, |view| {
                view.boots == 1 && view.power == PowerState::Off
            })
            .await
            .unwrap();
        machine.wait_serial("GUEST LEAVES", LONG).await.unwrap();
        assert_eq!(client.get(SYSTEM).await["PowerState"], "Off");
        assert_eq!(machine.view().fault, None);
        client.reset("On").await;
        machine
            .wait_for("a second life", LONG, |view| {
                view.boots == 2 && view.power == PowerState::Off
            })
            .await
            .unwrap();
    });
}

#[test]
fn bios_boots_virtual_media() {
    lab::run_test("bios_boots_virtual_media", async |namespace| {
        let (_lab, machine, client) = one(&namespace, bios()).await;
        install(&machine, &boot_sector("GUEST ON DISK", Then::Halt));
        let url = common::serve(iso(Platform::Bios, &boot_sector("GUEST ON CD", Then::Halt))).await;
        // Inserted while the machine is off, and for one boot.
        insert(&client, &url).await;
        client.boot("Cd", "Once").await;
        client.reset("On").await;
        machine.wait_serial("GUEST ON CD", LONG).await.unwrap();
        assert!(!machine.serial_log().contains("GUEST ON DISK"));
        client.reset("ForceRestart").await;
        machine.wait_serial("GUEST ON DISK", LONG).await.unwrap();

        let eject = format!("{CD}/Actions/VirtualMedia.EjectMedia");
        for _ in 0..2 {
            assert!(client.post(&eject, json!({})).await.status().is_success());
        }
        assert_eq!(client.get(CD).await["Inserted"], false);
        // Inserted while the machine runs.
        insert(&client, &url).await;
        client.boot("Cd", "Once").await;
        client.reset("ForceRestart").await;
        poll(|| machine.serial_log().matches("GUEST ON CD").count() == 2).await;
        assert_eq!(machine.view().boots, 3);
    });
}

async fn insert(client: &common::Client, url: &str) {
    let insert = format!("{CD}/Actions/VirtualMedia.InsertMedia");
    let response = client.post(&insert, json!({"Image": url, "Inserted": true})).await;
    assert!(response.status().is_success(), "{}", response.text().await.unwrap());
    let media = client.get(CD).await;
    assert_eq!((&media["Inserted"], &media["Image"]), (&json!(true), &json!(url)));
    let again = client.post(&insert, json!({"Image": url})).await;
    common::assert_error(again, reqwest::StatusCode::CONFLICT, "ResourceInUse").await;
}

#[test]
fn uefi_boots_virtual_media_and_nvme() {
    lab::run_test("uefi_boots_virtual_media_and_nvme", async |namespace| {
        let config = LabConfig {
            disk_kind: DiskKind::Nvme,
            ..LabConfig::default()
        };
        let (_lab, machine, client) = one(&namespace, config).await;
        install(
            &machine,
            &efi_volume(&efi_application("EFI GUEST ON NVME", Then::PowerOff)),
        );
        let volume = efi_volume(&efi_application("EFI GUEST ON CD", Then::PowerOff));
        insert(&client, &common::serve(iso(Platform::Efi, &volume)).await).await;
        client.boot("Cd", "Once").await;
        client.reset("On").await;
        machine.wait_serial("EFI GUEST ON CD", LONG).await.unwrap();
        machine.wait_power(PowerState::Off, LONG).await.unwrap();
        client.reset("On").await;
        machine.wait_serial("EFI GUEST ON NVME", LONG).await.unwrap();
    });
}

#[test]
fn secure_boot_refuses_unsigned_programs() {
    lab::run_test("secure_boot_refuses_unsigned_programs", async |namespace| {
        let config = LabConfig {
            firmware: Firmware::UefiSecureBoot,
            ..LabConfig::default()
        };
        let (_lab, machine, client) = one(&namespace, config).await;
        install(&machine, &efi_volume(&efi_application("UNSIGNED GUEST", Then::Halt)));
        client.reset("On").await;
        machine.wait_serial("Access Denied", LONG).await.unwrap();
        assert!(!machine.serial_log().contains("UNSIGNED GUEST"));
        assert_eq!(
            client.get("/redfish/v1/Systems/1/SecureBoot").await["SecureBootEnable"],
            true
        );
    });
}

#[test]
fn a_machine_that_hangs_is_on_but_never_boots() {
    lab::run_test("a_machine_that_hangs_is_on_but_never_boots", async |namespace| {
        let (_lab, machine, client) = one(&namespace, bios()).await;
        install(&machine, &boot_sector("GUEST ALIVE", Then::Halt));
        machine.boot_hang(true).await.unwrap();
        client.reset("On").await;
        machine.wait_power(PowerState::On, LONG).await.unwrap();
        let quiet = machine.wait_serial("GUEST ALIVE", Duration::from_secs(5)).await;
        assert!(matches!(quiet, Err(LabError::Deadline { .. })), "{quiet:?}");
        assert_eq!(machine.serial_log(), "");
        machine.boot_hang(false).await.unwrap();
        machine.wait_serial("GUEST ALIVE", LONG).await.unwrap();
    });
}

#[test]
fn drives_are_swapped_and_pulled_only_while_off() {
    lab::run_test("drives_are_swapped_and_pulled_only_while_off", async |namespace| {
        let config = LabConfig {
            disk_kind: DiskKind::Both,
            ..bios()
        };
        let (_lab, machine, client) = one(&namespace, config).await;
        let storage = "/redfish/v1/Systems/1/Storage/1";
        client.reset("On").await;
        machine.wait_power(PowerState::On, LONG).await.unwrap();
        assert!(matches!(
            machine.swap_disk(0, 1 << 20).await,
            Err(LabError::MachineIsOn { .. })
        ));
        machine.power_cut().await.unwrap();
        assert_eq!(machine.view().power, PowerState::Off);

        machine.swap_disk(0, 1 << 20).await.unwrap();
        assert_eq!(
            client.get(&format!("{storage}/Drives/0")).await["CapacityBytes"],
            1 << 20
        );
        machine.remove_disk(0).await.unwrap();
        assert_eq!(client.get(storage).await["Drives"].as_array().unwrap().len(), 1);
        assert_eq!(client.get(&format!("{storage}/Drives/0")).await["Protocol"], "NVMe");
        assert!(matches!(machine.remove_disk(1).await, Err(LabError::Config { .. })));
        client.reset("On").await;
        machine.wait_power(PowerState::On, LONG).await.unwrap();
        assert_eq!(machine.view().fault, None);
    });
}

#[test]
fn a_machine_with_a_tpm_and_no_cable_starts() {
    lab::run_test("a_machine_with_a_tpm_and_no_cable_starts", async |namespace| {
        let (lab, machine, client) = one(
            &namespace,
            LabConfig {
                tpm: true,
                ..LabConfig::default()
            },
        )
        .await;
        install(&machine, &efi_volume(&efi_application("EFI GUEST", Then::PowerOff)));
        machine.network_cut(true).unwrap();
        for boots in 1..=2 {
            client.reset("On").await;
            let off = |view: &lab::MachineView| view.boots == boots && view.power == PowerState::Off;
            machine.wait_for("power-off by the guest", LONG, off).await.unwrap();
        }
        assert_eq!(machine.serial_log().matches("EFI GUEST").count(), 2);
        assert_eq!(machine.view().fault, None);
        // Another lab can start in the namespace afterwards.
        lab.stop().await.unwrap();
        let (_lab, machine, _) = one(&namespace, bios()).await;
        assert_eq!(machine.view().power, PowerState::Off);
    });
}

/// Polls until `done`, at most [`LONG`].
async fn poll(mut done: impl FnMut() -> bool) {
    let polling = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, polling)
        .await
        .expect("did not happen in time");
}
