//! Concurrent equal requests: the work is done once, or each gets its own result.

use std::collections::BTreeSet;

use rackwright_lifecycle::NodeId;
use rackwright_store::{ImageVersionBody, ImageVersionRow, RequestKey, Scope, Store, StoreError, WriteTx};

use super::support::{Lab, at, node};

/// Number of concurrent callers.
const CLIENTS: usize = 8;

/// Runs the same action by all callers at once, each with its own store.
async fn at_once<T, F>(lab: &Lab, act: impl Fn(Store, usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..CLIENTS {
        clients.spawn(act(lab.other().await, n));
    }
    clients.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_that_is_sent_many_times_at_once_is_done_once() {
    let lab = Lab::new().await;
    let answers = at_once(&lab, |store, n| async move {
        let key = RequestKey {
            actor: "ann".into(),
            key: "k1".into(),
            method: "EnrollNode".into(),
            digest: "d".into(),
        };
        let mut tx = store.write().await.unwrap();
        if let Some(answer) = tx.replay(&key).await.unwrap() {
            return answer;
        }
        tx.insert_node(&node(&format!("n{n}"))).await.unwrap();
        let answer = format!("made n{n}").into_bytes();
        tx.remember(&key, &answer, at(1)).await.unwrap();
        tx.commit().await.unwrap();
        answer
    })
    .await;
    assert_eq!(answers.iter().collect::<BTreeSet<_>>().len(), 1, "{answers:?}");
    assert_eq!(
        lab.store.nodes(&Scope::Site, &Vec::new(), "", 99).await.unwrap().len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_mac_address_that_many_nodes_claim_at_once_is_given_to_one() {
    let records: Vec<_> = (0..CLIENTS).map(|n| node(&format!("n{n}"))).collect();
    let lab = Lab::new().await.with(&records).await;
    let claimed = at_once(&lab, |store, n| async move {
        // Half of them list the addresses in reverse.
        let mut macs = vec!["m1".to_owned(), "m2".to_owned()];
        if n % 2 == 0 {
            macs.reverse();
        }
        let mut tx = store.write().await?;
        tx.put_macs(&NodeId::stored(format!("n{n}")), &macs).await?;
        tx.commit().await
    })
    .await;
    let taken = |r: &Result<(), StoreError>| matches!(r, Err(StoreError::MacTaken { .. }));
    assert_eq!(claimed.iter().filter(|r| r.is_ok()).count(), 1, "{claimed:?}");
    assert_eq!(claimed.iter().filter(|r| taken(r)).count(), CLIENTS - 1, "{claimed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_that_many_machines_ask_for_at_once_is_given_to_one() {
    let lab = Lab::new().await;
    let given = at_once(&lab, |store, n| async move {
        let mut tx = store.write().await.unwrap();
        match tx.assign_address(&format!("m{n}"), "10.0.0.1", at(1)).await {
            Ok(()) => tx.commit().await.map(|()| true).unwrap(),
            Err(StoreError::Exists { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    assert_eq!(given.iter().filter(|is_given| **is_given).count(), 1);
    assert_eq!(lab.store.addresses().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readings_that_come_at_once_are_all_kept() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    at_once(&lab, |store, n| async move {
        let mut tx = store.write().await.unwrap();
        let mut readings = tx.node(&"n1".into()).await.unwrap().readings;
        let (seen, since) = readings.boot.unwrap_or_default();
        readings.boot = Some((format!("{seen}{n}"), since));
        tx.save_readings(&"n1".into(), &readings, at(300)).await.unwrap();
        tx.commit().await.unwrap();
    })
    .await;
    let boot = lab
        .store
        .node(&Scope::Site, &"n1".into())
        .await
        .unwrap()
        .readings
        .boot
        .unwrap()
        .0;
    assert_eq!(boot.len(), CLIENTS, "{boot}");
}

fn version(digest: &str) -> ImageVersionRow {
    ImageVersionRow {
        image_id: "noble".into(),
        digest: digest.into(),
        created_at: at(1),
        body: ImageVersionBody::default(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_version_that_is_added_while_the_last_one_is_deleted_stays() {
    let lab = Lab::new().await;
    let add = async |tx: &mut WriteTx, digest: &str| tx.add_image_version(&version(digest), "uid").await;
    let mut tx = lab.store.write().await.unwrap();
    add(&mut tx, "b3-old").await.unwrap();
    tx.commit().await.unwrap();

    let other = lab.other().await;
    let mut tx = lab.store.write().await.unwrap();
    add(&mut tx, "b3-new").await.unwrap();
    let deleting = tokio::spawn(async move {
        let mut tx = other.write().await?;
        tx.delete_image_version(&"noble".into(), "b3-old").await?;
        tx.commit().await
    });
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    tx.commit().await.unwrap();
    deleting.await.unwrap().unwrap();
    let left = lab.store.image_versions(&"noble".into()).await.unwrap();
    assert_eq!(left.iter().map(|v| v.digest.as_str()).collect::<Vec<_>>(), ["b3-new"]);
}
