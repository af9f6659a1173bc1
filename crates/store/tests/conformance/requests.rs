//! Idempotency: a repeated request gets the first answer, another request with the same key is refused.

use rackwright_store::{RequestKey, StoreError};

use super::support::{Lab, at};

fn key(actor: &str, key: &str) -> RequestKey {
    RequestKey {
        actor: actor.into(),
        key: key.into(),
        method: "DeployNode".into(),
        digest: "d1".into(),
    }
}

async fn remember(lab: &Lab, key: &RequestKey, answer: &[u8], us: i64) {
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.replay(key).await.unwrap(), None);
    tx.remember(key, answer, at(us)).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn the_same_request_gets_the_first_answer() {
    let lab = Lab::new().await;
    remember(&lab, &key("ann", "k1"), &[0, 255, 1], 100).await;
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.replay(&key("ann", "k1")).await.unwrap(), Some(vec![0, 255, 1]));
    assert!(tx.remember(&key("ann", "k1"), b"another", at(200)).await.is_err());
    assert_eq!(tx.replay(&key("ann", "k1")).await.unwrap(), Some(vec![0, 255, 1]));
}

#[tokio::test]
async fn an_empty_answer_is_an_answer() {
    let lab = Lab::new().await;
    remember(&lab, &key("ann", "k1"), b"", 100).await;
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.replay(&key("ann", "k1")).await.unwrap(), Some(Vec::new()));
}

#[tokio::test]
async fn another_request_with_the_same_key_is_refused() {
    let lab = Lab::new().await;
    remember(&lab, &key("ann", "k1"), b"answer", 100).await;
    let mut other_digest = key("ann", "k1");
    other_digest.digest = "d2".into();
    let mut other_method = key("ann", "k1");
    other_method.method = "ReleaseNode".into();
    let mut tx = lab.store.write().await.unwrap();
    for other in [other_digest, other_method] {
        let refused = tx.replay(&other).await;
        assert!(
            matches!(&refused, Err(StoreError::KeyReused { key, method }) if key == "k1" && method == "DeployNode"),
            "{refused:?}"
        );
        assert!(!refused.unwrap_err().is_retryable());
    }
}

#[tokio::test]
async fn keys_belong_to_their_actor() {
    let lab = Lab::new().await;
    remember(&lab, &key("ann", "k1"), b"for ann", 100).await;
    let mut bobs = key("bob", "k1");
    bobs.digest = "d2".into();
    remember(&lab, &bobs, b"for bob", 100).await;
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.replay(&key("ann", "k1")).await.unwrap(), Some(b"for ann".to_vec()));
    assert_eq!(tx.replay(&bobs).await.unwrap(), Some(b"for bob".to_vec()));
}

#[tokio::test]
async fn an_answer_is_stored_with_its_change_and_deleted_in_time() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    tx.remember(&key("ann", "k0"), b"undone", at(100)).await.unwrap();
    drop(tx);
    remember(&lab, &key("ann", "k0"), b"done", 100).await;
    remember(&lab, &key("ann", "k1"), b"later", 200).await;
    assert_eq!(lab.store.forget_requests(at(200)).await.unwrap(), 1);
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.replay(&key("ann", "k0")).await.unwrap(), None);
    assert_eq!(tx.replay(&key("ann", "k1")).await.unwrap(), Some(b"later".to_vec()));
}
