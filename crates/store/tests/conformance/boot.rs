//! Observations of booting machines: bounded, because any host on the network can fake them.

use rackwright_store::{BootStageRow, StoreError, UnknownMachineRow};

use super::support::{Lab, at, node};

fn stage(mac: &str, n: i64) -> BootStageRow {
    BootStageRow {
        mac: mac.into(),
        at: at(1000 - n),
        stage: "dhcp".into(),
        detail: format!("number {n}"),
        remote: "10.0.0.9".into(),
    }
}

fn unknown(mac: &str, us: i64) -> UnknownMachineRow {
    UnknownMachineRow {
        mac: mac.into(),
        first_seen: at(us),
        last_seen: at(us),
        architecture: format!("arch at {us}"),
        relay: String::new(),
        system_uuid: String::new(),
        inventory: None,
    }
}

#[tokio::test]
async fn of_each_mac_address_the_newest_200_stages_are_kept_in_order() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    tx.add_boot_stage(&stage("quiet", 0)).await.unwrap();
    for n in 0..250 {
        tx.add_boot_stage(&stage("loud", n)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let kept = lab.store.boot_stages("loud").await.unwrap();
    assert_eq!(kept, (50..250).map(|n| stage("loud", n)).collect::<Vec<_>>());
    assert_eq!(lab.store.boot_stages("quiet").await.unwrap(), [stage("quiet", 0)]);
    assert!(lab.store.boot_stages("nobody").await.unwrap().is_empty());
}

#[tokio::test]
async fn stages_are_dropped_by_age_and_number() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    // More than one statement drops, of machines that are never read again.
    for n in 0..6100 {
        let row = BootStageRow {
            at: at(n),
            ..stage(&format!("m{n}"), n)
        };
        tx.add_boot_stage(&row).await.unwrap();
    }
    tx.commit().await.unwrap();
    let is_kept = async |mac: &str| !lab.store.boot_stages(mac).await.unwrap().is_empty();
    assert_eq!(
        lab.store.forget_boot_stages(at(100), 6000).await.unwrap(),
        100,
        "by age"
    );
    assert!(!is_kept("m99").await && is_kept("m100").await);
    assert_eq!(
        lab.store.forget_boot_stages(at(100), 600).await.unwrap(),
        5400,
        "by number"
    );
    assert!(!is_kept("m5499").await && is_kept("m5500").await && is_kept("m6099").await);
    assert_eq!(lab.store.forget_boot_stages(at(100), 600).await.unwrap(), 0);
}

#[tokio::test]
async fn an_unknown_machine_is_reported_once_and_seen_again() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.record_unknown_machine(&unknown("m2", 100)).await.unwrap());
    assert!(tx.record_unknown_machine(&unknown("m1", 110)).await.unwrap());
    assert!(!tx.record_unknown_machine(&unknown("m2", 200)).await.unwrap());
    tx.commit().await.unwrap();
    let again = UnknownMachineRow {
        first_seen: at(100),
        ..unknown("m2", 200)
    };
    assert_eq!(lab.store.unknown_machines().await.unwrap(), [unknown("m1", 110), again]);
}

#[tokio::test]
async fn unknown_machines_are_found_by_their_uuid() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for (mac, us, uuid) in [
        ("m1", 100, "u1"),
        ("m2", 300, "u1"),
        ("m3", 200, "u1"),
        ("m4", 400, "u2"),
        ("m5", 500, ""),
    ] {
        let row = UnknownMachineRow {
            system_uuid: uuid.into(),
            ..unknown(mac, us)
        };
        tx.record_unknown_machine(&row).await.unwrap();
    }
    tx.commit().await.unwrap();
    let found = async |uuid: &str, limit| lab.store.unknown_macs_with_uuid(uuid, limit).await.unwrap();
    assert_eq!(found("u1", 9).await, ["m2", "m3", "m1"]);
    assert_eq!(found("u1", 2).await, ["m2", "m3"]);
    assert_eq!(found("u3", 9).await, [""; 0]);
}

#[tokio::test]
async fn an_enrolled_machine_is_no_longer_unknown() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.record_unknown_machine(&unknown("m1", 100)).await.unwrap();
    tx.record_unknown_machine(&unknown("m2", 100)).await.unwrap();
    tx.put_macs(&"n1".into(), &["m1".to_owned()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.unknown_machines().await.unwrap(), [unknown("m2", 100)]);
}

#[tokio::test]
async fn unknown_machines_are_bounded() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for n in 0..4096 {
        assert!(
            tx.record_unknown_machine(&unknown(&format!("m{n:04}"), 100))
                .await
                .unwrap()
        );
    }
    // A machine seen again is not dropped.
    assert!(!tx.record_unknown_machine(&unknown("m0000", 300)).await.unwrap());
    assert!(tx.record_unknown_machine(&unknown("one-more", 200)).await.unwrap());
    tx.commit().await.unwrap();
    let kept = lab.store.unknown_machines().await.unwrap();
    assert_eq!(kept.len(), 4096);
    assert_eq!((kept[0].mac.as_str(), kept[0].last_seen), ("m0000", at(300)));
    assert_eq!(kept[1].mac, "m0002", "seen longest ago, and of these the first");
    assert!(kept.iter().any(|m| m.mac == "one-more"));
}

#[tokio::test]
async fn data_of_unknown_machines_is_kept_with_them_and_bounded() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut tx = lab.store.write().await.unwrap();
    for n in 0..5 {
        tx.record_unknown_machine(&unknown(&format!("m{n}"), 100))
            .await
            .unwrap();
    }
    let third = vec![7; (32 << 20) / 3];
    for n in 0..4 {
        tx.save_unknown_inventory(&format!("m{n}"), &third, at(200 + n))
            .await
            .unwrap();
    }
    // A machine that was never seen is not created by this.
    tx.save_unknown_inventory("nobody", &third, at(900)).await.unwrap();
    // A machine seen again keeps its inventory.
    tx.record_unknown_machine(&unknown("m3", 300)).await.unwrap();
    tx.commit().await.unwrap();
    let kept = lab.store.unknown_machines().await.unwrap();
    let holding: Vec<bool> = kept.iter().map(|m| m.inventory.is_some()).collect();
    assert_eq!(holding, [false, true, true, true, false]);
    assert_eq!((kept[0].last_seen, kept[3].last_seen), (at(200), at(300)));

    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.unknown_machine("m3").await.unwrap().as_ref(), Some(&kept[3]));
    tx.put_macs(&"n1".into(), &["m3".to_owned()]).await.unwrap();
    assert_eq!(tx.unknown_machine("m3").await.unwrap(), None);
}

#[tokio::test]
async fn an_address_has_one_mac_and_a_mac_one_address() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    tx.assign_address("m1", "10.0.0.1", at(1)).await.unwrap();
    tx.assign_address("m1", "10.0.0.1", at(2)).await.unwrap();
    let refused = tx.assign_address("m2", "10.0.0.1", at(3)).await;
    assert!(
        matches!(&refused, Err(StoreError::Exists { kind: "address", id }) if id == "10.0.0.1"),
        "{refused:?}"
    );
    tx.assign_address("m1", "10.0.0.2", at(4)).await.unwrap();
    tx.assign_address("m2", "10.0.0.1", at(5)).await.unwrap();
    tx.commit().await.unwrap();
    let mut given = lab.store.addresses().await.unwrap();
    given.sort();
    let wanted = [("m1", "10.0.0.2"), ("m2", "10.0.0.1")];
    assert_eq!(given, wanted.map(|(mac, ip)| (mac.to_owned(), ip.to_owned())));
    assert_eq!(lab.store.address_of("m1").await.unwrap().as_deref(), Some("10.0.0.2"));
    assert_eq!(lab.store.address_of("m3").await.unwrap(), None);
}
