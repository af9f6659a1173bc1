//! The client against `sushy-emulator`, with its fake driver and with libvirt's test driver: a BMC of independent origin,
//! over TLS and with a password.
//!
//! `RACKWRIGHT_SUSHY` may name a `sushy-emulator`, with its `python` in the same folder. Otherwise `tests/venv.sh` makes a
//! virtual environment below the target folder. That needs `python3` with `venv`, a package index, and for libvirt Debian's
//! `python3-libvirt`; without them these tests fail.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod emulator;
mod support_page;

use rackwright_redfish::{
    BmcClient, BmcState, BootMode, BootTarget, CertificateFingerprint, FirmwareEntry, FirmwareImage, KeysReset,
    MediaKind, Persistence, PowerChange, PowerGoal, PowerState, RedfishError, Settings, Shown, StateListed, StatePart,
    StateScope,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use emulator::{Driver, Emulator, PASSWORD, WAIT_LIMIT};

/// Serves one file to all clients, like the server of an installation image.
async fn serve_image() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tiny.iso", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntiny ISO";
            let _ = stream.write_all(answer).await;
        }
    });
    url
}

#[tokio::test]
async fn an_independent_bmc_emulator() {
    let mut emulator = Emulator::start(Driver::Fake).await;
    let client = emulator.connect().await;

    certificates_and_passwords(&emulator, &client).await;
    identity(&client).await;
    support_page::check("sushy-emulator, fake driver", &client.probe().await.unwrap());
    power(&client).await;
    boot(&client).await;
    media(&client).await;
    bmc_state(&client).await;
    readings(&client).await;
    firmware(&client).await;

    client.close().await.unwrap();
    emulator.stop().await;
}

/// The fake driver has Secure Boot, which can be set and reset, and no BIOS settings.
async fn firmware(client: &BmcClient) {
    assert_eq!(
        client.bios().await.unwrap(),
        None,
        "its link leads to what is not implemented"
    );
    let is_on = async || client.secure_boot().await.unwrap().unwrap().enabled;
    let before = is_on().await;
    assert!(before.is_some());
    for wanted in [before != Some(true), before == Some(true)] {
        assert!(client.set_secure_boot(wanted).await.unwrap());
        assert_eq!(is_on().await, Some(wanted));
        assert!(!client.set_secure_boot(wanted).await.unwrap(), "it is so already");
    }
    assert_eq!(client.secure_boot_certificates().await.unwrap(), None);
    let failure = client.reset_secure_boot_keys(KeysReset::ToDefault).await.unwrap_err();
    assert!(matches!(failure, RedfishError::NotOffered { .. }), "{failure}");
}

async fn certificates_and_passwords(emulator: &Emulator, client: &BmcClient) {
    assert_eq!(client.observed_fingerprint(), Some(emulator.fingerprint));
    let pinned = BmcClient::connect(
        emulator.target(PASSWORD, Some(emulator.fingerprint)),
        Settings::default(),
    )
    .await;
    pinned.unwrap().system().await.unwrap();
    let wrong = Some(CertificateFingerprint([7; 32]));
    let failure = BmcClient::connect(emulator.target(PASSWORD, wrong), Settings::default())
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::CertificateChanged { .. }), "{failure}");
    // The emulator has no sessions, so the password is first sent with the first resource.
    let stranger = BmcClient::connect(emulator.target("wrong-password", None), Settings::default())
        .await
        .unwrap();
    let failure = stranger.system().await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::Unauthorized { status: 401, .. }),
        "{failure}"
    );
}

async fn identity(client: &BmcClient) {
    let identity = client.identity().await.unwrap();
    assert_eq!(identity.manufacturer.as_deref(), Some("Sushy Emulator"));
    assert_eq!(identity.uuid.as_deref(), Some("27946b59-9e44-4fa7-8e91-f3527a1ef094"));
    assert_eq!(identity.profiles, ["sushy-emulator"]);
    assert!(identity.manager_path.is_some());
    let macs = client.macs().await.unwrap();
    assert_eq!(
        macs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["00:5c:52:31:3a:9c"]
    );
    let inventory = client.inventory().await.unwrap();
    assert_eq!(inventory.nics.len(), 1);
    // The fake driver links memory and storage that do not exist: the inventory reports them as gaps.
    assert!(
        inventory.gaps.iter().any(|gap| gap.path.ends_with("/Memory")),
        "{:?}",
        inventory.gaps
    );
}

async fn power(client: &BmcClient) {
    assert_eq!(client.power().await.unwrap(), PowerState::Off);
    assert!(
        client
            .reset_types()
            .await
            .unwrap()
            .unwrap()
            .contains(&"ForceOn".to_owned())
    );
    let change = client.set_power(PowerGoal::On).await.unwrap();
    assert_eq!(
        change,
        PowerChange::Accepted {
            reset_type: "On".to_owned()
        }
    );
    client.wait_power(PowerGoal::On, WAIT_LIMIT).await.unwrap();
    assert_eq!(
        client.set_power(PowerGoal::On).await.unwrap(),
        PowerChange::AlreadyThere
    );
    client.power_cycle(WAIT_LIMIT).await.unwrap();
    assert_eq!(client.power().await.unwrap(), PowerState::On);
    client.set_power(PowerGoal::GracefulOff).await.unwrap();
    client.wait_power(PowerGoal::Off, WAIT_LIMIT).await.unwrap();
}

async fn boot(client: &BmcClient) {
    let once = client
        .set_boot(BootTarget::Pxe, Persistence::Once, Some(BootMode::Uefi))
        .await
        .unwrap();
    assert_eq!(once.after.target.as_deref(), Some("Pxe"));
    let deviations: Vec<_> = once
        .deviations
        .iter()
        .map(|one| (one.wanted.as_str(), one.seen.as_str()))
        .collect();
    assert_eq!(
        deviations,
        [("Once", "Continuous")],
        "known, so reported and not an error"
    );
    let disk = client
        .set_boot(BootTarget::Disk, Persistence::Continuous, None)
        .await
        .unwrap();
    assert_eq!((disk.after.target.as_deref(), disk.deviations.len()), (Some("Hdd"), 0));
    assert!(
        !client
            .set_boot(BootTarget::Disk, Persistence::Continuous, None)
            .await
            .unwrap()
            .changed
    );
    let legacy = client
        .set_boot(BootTarget::Pxe, Persistence::Continuous, Some(BootMode::Legacy))
        .await
        .unwrap();
    assert_eq!(legacy.after.mode.as_deref(), Some("Legacy"));
    let http = client
        .set_boot(BootTarget::UefiHttp, Persistence::Once, Some(BootMode::Uefi))
        .await;
    let failure = http.unwrap_err();
    assert!(
        failure.to_string().contains("does not offer boot target UefiHttp"),
        "only in UEFI mode: {failure}"
    );
    client
        .set_boot(BootTarget::Pxe, Persistence::Continuous, Some(BootMode::Uefi))
        .await
        .unwrap();
    let http = client
        .set_boot(BootTarget::UefiHttp, Persistence::Continuous, None)
        .await
        .unwrap();
    assert_eq!(http.deviations[0].seen, "Pxe", "without a URI the emulator falls back");
    let view = client.boot().await.unwrap();
    assert_eq!(view.allowed_targets, ["Pxe", "Cd", "Hdd", "UefiHttp"]);
}

async fn media(client: &BmcClient) {
    let image = serve_image().await;
    let drives = client.virtual_media().await.unwrap();
    assert_eq!(
        drives.iter().map(|drive| drive.id()).collect::<Vec<_>>(),
        ["Cd", "Floppy"]
    );
    let drive = client.insert_media(&image, MediaKind::Cd).await.unwrap();
    assert_eq!(drive.image().as_deref(), Some(image.as_str()));
    client.set_boot(BootTarget::Cd, Persistence::Once, None).await.unwrap();
    let again = client.insert_media(&image, MediaKind::Cd).await.unwrap();
    let drive = client.eject_media(&again).await.unwrap();
    assert!(!drive.is_inserted() && drive.image().is_none());
    let usb = client.insert_media(&image, MediaKind::Usb).await.unwrap();
    assert_eq!(usb.id(), "Floppy");
    client.eject_media(&usb).await.unwrap();
    let failure = client
        .insert_media("http://127.0.0.1:9/nothing.iso", MediaKind::Cd)
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("nothing.iso"),
        "the emulator's own message: {failure}"
    );
}

/// The emulator has no account service, event service or host interfaces. Its virtual drives are read and emptied.
async fn bmc_state(client: &BmcClient) {
    let scope = StateScope {
        own: "admin",
        in_band: true,
        uefi: true,
    };
    let image = serve_image().await;
    client.insert_media(&image, MediaKind::Cd).await.unwrap();
    let before = client.bmc_state(scope).await.unwrap();
    println!("sushy-emulator: {:?}", before.parts);
    let listed = |state: &BmcState, part: StatePart| {
        let found = state.parts.iter().find(|(one, _)| *one == part);
        found.unwrap().1.clone()
    };
    // The emulator has a Secure Boot switch, but no boot options, boot order or key databases.
    let uefi = before.uefi.as_ref().unwrap();
    println!("sushy-emulator: {uefi:?}");
    assert_eq!(uefi.options, Shown::NotOffered);
    assert_eq!(uefi.order, Shown::NotOffered);
    assert_eq!(uefi.keys, Shown::NotOffered);
    let Shown::Known(secure) = &uefi.secure_boot else {
        panic!("{uefi:?}");
    };
    assert_eq!(
        (secure.enabled.is_some(), secure.mode.as_deref()),
        (true, Some("DeployedMode"))
    );
    for part in [
        StatePart::Accounts,
        StatePart::Subscriptions,
        StatePart::HostInterfaces,
        StatePart::Kcs,
    ] {
        assert_eq!(listed(&before, part), StateListed::NotOffered, "{part:?}");
    }
    let StateListed::Whole(media) = listed(&before, StatePart::Media) else {
        panic!("{:?}", before.parts);
    };
    assert_eq!(media.len(), 1);
    client.remove_foreign(&media[0]).await.unwrap();
    let after = client.bmc_state(scope).await.unwrap();
    assert_eq!(listed(&after, StatePart::Media), StateListed::Whole(Vec::new()));
}

/// The emulator's chassis has a thermal resource of the older kind, and no meter.
async fn readings(client: &BmcClient) {
    let read = client.node_readings().await.unwrap();
    println!("sushy-emulator: {read:?}");
    assert!(read.gaps.is_empty(), "{:?}", read.gaps);
    assert_eq!((read.watts, read.leaks.len()), (None, 0));
    let refused = client.pdu_readings("pdu-1").await.unwrap_err();
    assert!(matches!(refused, RedfishError::MissingProperty { .. }), "{refused}");
}

/// The update service accepts only `SimpleUpdate`, although it lists a push URI, and the fake driver has no firmware: the
/// client finds the way and passes on the error. With libvirt the same call raises the BIOS version.
#[tokio::test]
async fn the_update_service_of_the_emulator_is_used_by_its_offered_method() {
    let mut emulator = Emulator::start(Driver::Fake).await;
    let client = emulator.connect().await;
    let state = client.firmware().await.unwrap();
    assert!(state.offer.push.is_some() && state.offer.simple.is_some(), "{state:?}");
    assert_eq!(state.offer.protocols, ["HTTP", "HTTPS"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bios.bin");
    std::fs::write(&file, "bios").unwrap();
    let system = client.system().await.unwrap();
    let entry = FirmwareEntry {
        path: system.path().to_owned(),
        id: "BIOS".to_owned(),
        ..FirmwareEntry::default()
    };
    let image = FirmwareImage {
        file,
        bytes: 4,
        name: "bios.bin".to_owned(),
        url: Some("http://127.0.0.1:9/bios.bin".to_owned()),
    };
    let failure = client.start_update(&entry, &image).await.unwrap_err();
    assert_eq!(failure.status(), Some(500), "{failure}\n{}", emulator.log());
    assert!(failure.to_string().contains("BIOS"), "{failure}");
    client.close().await.unwrap();
}
