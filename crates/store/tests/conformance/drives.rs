//! Drive lists by source.

use rackwright_lifecycle::NodeId;
use rackwright_lifecycle::drives::{DriveList, KnownDrive, Source};

use super::support::{Lab, at, node};

fn list(source: Source, serial: &str, when: i64) -> DriveList {
    DriveList {
        source,
        at: at(when),
        by: "ann".into(),
        drives: vec![KnownDrive {
            serial: serial.into(),
            size_bytes: Some(u64::MAX),
            ..KnownDrive::default()
        }],
    }
}

#[tokio::test]
async fn each_source_has_one_list_of_a_node_that_ends_with_the_node() {
    let lab = Lab::new().await.with(&[node("n1"), node("n2")]).await;
    let mut tx = lab.store.write().await.unwrap();
    for (of, source, serial, when) in [
        ("n1", Source::Inspection, "A", 1),
        ("n1", Source::Bmc, "A", 2),
        ("n2", Source::Bmc, "Z", 3),
        ("n1", Source::Inspection, "B", 4),
    ] {
        tx.put_drive_list(&NodeId::stored(of), &list(source, serial, when))
            .await
            .unwrap();
    }
    let wanted = [list(Source::Bmc, "A", 2), list(Source::Inspection, "B", 4)];
    assert_eq!(tx.drive_lists(&"n1".into()).await.unwrap(), wanted);
    tx.commit().await.unwrap();
    assert_eq!(lab.store.drive_lists(&"n1".into()).await.unwrap(), wanted);

    let mut tx = lab.store.write().await.unwrap();
    for source in Source::ALL {
        tx.put_drive_list(&"n2".into(), &list(*source, "Y", 5)).await.unwrap();
    }
    tx.delete_drive_list(&"n1".into(), Source::Bmc).await.unwrap();
    tx.delete_drive_list(&"n1".into(), Source::Operator).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.drive_lists(&"n1".into()).await.unwrap(), wanted[1..]);
    assert_eq!(
        lab.store.drive_lists(&"n2".into()).await.unwrap().len(),
        Source::ALL.len()
    );

    let mut tx = lab.store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    tx.delete_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.drive_lists(&"n1".into()).await.unwrap(), []);
}
