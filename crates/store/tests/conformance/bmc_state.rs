//! Stored readings of nodes' BMCs.

use rackwright_lifecycle::State;
use rackwright_lifecycle::bmc_state::uefi::{Baseline, Shown, Uefi};
use rackwright_lifecycle::bmc_state::{ItemState, Part};
use rackwright_store::{BmcStateLine, BmcStateRow};

use super::support::{Lab, at, node_in};

#[tokio::test]
async fn a_reading_that_proves_nothing_keeps_the_last_proof() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Available)]).await;
    assert_eq!(lab.store.bmc_state(&"n1".into()).await.unwrap(), None);
    let put = async |state: &BmcStateRow| {
        let mut tx = lab.store.write().await.unwrap();
        tx.put_bmc_state(&"n1".into(), state).await.unwrap();
        tx.commit().await.unwrap();
    };
    let proven = BmcStateRow {
        read_at: at(10),
        proven_at: Some(at(10)),
        lines: Vec::new(),
        boot_order: vec!["Boot0001".into()],
    };
    put(&proven).await;
    assert_eq!(lab.store.bmc_state(&"n1".into()).await.unwrap(), Some(proven.clone()));
    let foreign = BmcStateRow {
        read_at: at(20),
        proven_at: None,
        lines: vec![BmcStateLine {
            held: ItemState::Foreign,
            part: Part::Accounts,
            words: "account \"evil\"".into(),
        }],
        ..proven.clone()
    };
    put(&foreign).await;
    let read = lab.store.bmc_state(&"n1".into()).await.unwrap().unwrap();
    assert_eq!((read.read_at, read.proven_at), (at(20), Some(at(10))));
    assert_eq!(read.lines, foreign.lines);
    let mut tx = lab.store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    tx.delete_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.bmc_state(&"n1".into()).await.unwrap(), None);
}

#[tokio::test]
async fn a_baseline_is_replaced_as_a_whole_and_deleted_with_its_node() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Available)]).await;
    assert_eq!(lab.store.uefi_baseline(&"n1".into()).await.unwrap(), None);
    for (order, is_late) in [(vec!["Boot0001".to_owned()], false), (Vec::new(), true)] {
        let baseline = Baseline {
            read_at: at(10),
            is_late,
            seen: Uefi {
                order: Shown::Known(order),
                keys: Shown::Unread("500".into()),
                ..Uefi::default()
            },
        };
        let mut tx = lab.store.write().await.unwrap();
        tx.put_uefi_baseline(&"n1".into(), &baseline).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(lab.store.uefi_baseline(&"n1".into()).await.unwrap(), Some(baseline));
    }
    let mut tx = lab.store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    tx.delete_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.uefi_baseline(&"n1".into()).await.unwrap(), None);
}
