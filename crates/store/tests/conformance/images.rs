//! Images, their versions and uploads.

use rackwright_lifecycle::{Evidence, ImageId, NodeId, OperationId, State};
use rackwright_store::{ImageVersionBody, ImageVersionRow, OperationRow, StoreError, UploadBody, UploadRow};

use super::support::{Lab, at, claim, is_missing, node_in};

fn version(image: &'static str, digest: &str, us: i64) -> ImageVersionRow {
    ImageVersionRow {
        image_id: image.into(),
        digest: digest.into(),
        created_at: at(us),
        body: ImageVersionBody {
            logical_bytes: u64::MAX,
            chunks: 7,
            source_sha256: "ab".into(),
            source_format: "qcow2".into(),
            signed_by: "key 1".into(),
            ..ImageVersionBody::default()
        },
    }
}

async fn add(lab: &Lab, rows: &[ImageVersionRow]) {
    let mut tx = lab.store.write().await.unwrap();
    for row in rows {
        let uid = format!("uid-{}-{}", row.image_id, row.created_at.0);
        tx.add_image_version(row, &uid).await.unwrap();
    }
    tx.commit().await.unwrap();
}

async fn digests(lab: &Lab, image: &str) -> Vec<String> {
    let versions = lab.store.image_versions(&ImageId::stored(image)).await.unwrap();
    versions.into_iter().map(|v| v.digest).collect()
}

async fn delete(lab: &Lab, image: &str, digest: &str) -> Result<(), StoreError> {
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_image_version(&ImageId::stored(image), digest).await?;
    tx.commit().await
}

#[tokio::test]
async fn the_first_version_makes_the_image_and_the_newest_comes_first() {
    let lab = Lab::new().await;
    let first = version("noble", "b3-1", 100);
    add(&lab, &[first.clone(), version("noble", "b3-2", 200)]).await;
    let image = lab.store.image(&"noble".into()).await.unwrap();
    assert_eq!(
        (image.uid.as_str(), image.version, image.created_at, image.updated_at),
        ("uid-noble-100", 2, at(100), at(200))
    );
    assert_eq!(digests(&lab, "noble").await, ["b3-2", "b3-1"]);
    assert_eq!(lab.store.image_versions(&"noble".into()).await.unwrap()[1], first);

    // The same bytes again become the newest version, not another one.
    add(&lab, &[version("noble", "b3-1", 300)]).await;
    assert_eq!(digests(&lab, "noble").await, ["b3-1", "b3-2"]);
    assert_eq!(lab.store.image(&"noble".into()).await.unwrap().version, 3);
    assert!(is_missing(&lab.store.image(&"other".into()).await));
    assert!(digests(&lab, "other").await.is_empty());
}

#[tokio::test]
async fn an_image_is_deleted_with_its_last_version() {
    let lab = Lab::new().await;
    add(
        &lab,
        &[
            version("noble", "b3-1", 100),
            version("noble", "b3-2", 200),
            version("rocky", "b3-1", 100),
        ],
    )
    .await;
    assert!(is_missing(&delete(&lab, "noble", "b3-9").await));
    assert!(is_missing(&delete(&lab, "rocky", "b3-2").await));
    delete(&lab, "noble", "b3-1").await.unwrap();
    assert_eq!(digests(&lab, "noble").await, ["b3-2"]);
    assert_eq!(digests(&lab, "rocky").await, ["b3-1"], "another image's");
    assert_eq!(
        lab.store.image(&"noble".into()).await.unwrap().version,
        3,
        "it was changed"
    );
    delete(&lab, "noble", "b3-2").await.unwrap();
    assert!(is_missing(&lab.store.image(&"noble".into()).await));
    assert!(is_missing(&delete(&lab, "noble", "b3-2").await));
}

#[tokio::test]
async fn chunks_of_every_version_have_to_be_kept() {
    let lab = Lab::new().await;
    add(
        &lab,
        &[
            version("noble", "b3-1", 100),
            version("rocky", "b3-1", 100),
            version("rocky", "b3-2", 100),
        ],
    )
    .await;
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_image_version(&"rocky".into(), "b3-1").await.unwrap();
    let mut kept = tx.image_digests().await.unwrap();
    kept.sort();
    assert_eq!(kept, ["b3-1", "b3-2"], "as this change sees it");
}

#[tokio::test]
async fn images_are_paged_by_name() {
    let lab = Lab::new().await;
    add(&lab, &["c", "a", "b"].map(|image| version(image, "b3-1", 100))).await;
    let page = |after: &'static str| {
        let store = lab.store.clone();
        async move {
            let rows = store.images(after, 2).await.unwrap();
            rows.into_iter().map(|i| i.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(page("").await, ["a", "b"]);
    assert_eq!(page("b").await, ["c"]);
    assert!(page("c").await.is_empty());
}

#[tokio::test]
async fn an_image_is_in_use_while_a_node_holds_it_or_is_given_it() {
    let mut given = node_in("given", State::Imaging);
    given.node.claim = Some(claim("b3-given"));
    let mut holding = node_in("holding", State::Quarantined);
    holding.node.evidence = Evidence {
        image_digest: Some("b3-held".into()),
        ..Evidence::default()
    };
    let mut talking = node_in("talking", State::Failed);
    talking.reason = "b3-said was not written".into();
    let lab = Lab::new().await.with(&[given, holding, talking]).await;
    let mut tx = lab.store.write().await.unwrap();
    for (digest, wanted) in [
        ("b3-given", Some("given")),
        ("b3-held", Some("holding")),
        ("b3-giv", None),
        ("b3-said", None),
        ("b3-free", None),
    ] {
        let node = tx.image_in_use(digest).await.unwrap();
        assert_eq!(node.as_ref().map(NodeId::as_str), wanted, "{digest}");
    }
    let mut record = tx.node(&"given".into()).await.unwrap();
    record.node.claim = None;
    tx.save_node(&mut record, at(200)).await.unwrap();
    assert_eq!(tx.image_in_use("b3-given").await.unwrap(), None);
}

fn upload(id: &str, owner: &str, key: &str, us: i64) -> UploadRow {
    UploadRow {
        id: id.into(),
        image_id: "noble".into(),
        owner: owner.into(),
        key: key.into(),
        body: UploadBody {
            size_bytes: u64::MAX,
            sha256: "cd".into(),
            format: String::new(),
            signature: "untrusted comment: x\nRWQ".into(),
            ..UploadBody::default()
        },
        operation: None,
        created_at: at(us),
    }
}

#[tokio::test]
async fn an_upload_is_found_by_its_owners_key() {
    let lab = Lab::new().await;
    let mine = upload("u1", "ann", "k1", 100);
    let mut tx = lab.store.write().await.unwrap();
    tx.insert_upload(&mine).await.unwrap();
    tx.insert_upload(&upload("u2", "bob", "k1", 100)).await.unwrap();
    assert!(tx.insert_upload(&upload("u3", "ann", "k1", 100)).await.is_err());
    assert_eq!(tx.upload_of_key("ann", "k1").await.unwrap().as_ref(), Some(&mine));
    assert_eq!(tx.upload_of_key("ann", "k2").await.unwrap(), None);
    assert_eq!(tx.upload_of_key("bob", "k1").await.unwrap().unwrap().id, "u2");
    tx.commit().await.unwrap();
    assert_eq!(lab.store.upload("u1").await.unwrap(), mine);
    assert!(is_missing(&lab.store.upload("u3").await));
}

#[tokio::test]
async fn imports_that_have_not_ended_are_found_again() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for id in ["begun", "ended", "never"] {
        tx.insert_upload(&upload(id, "ann", id, 100)).await.unwrap();
    }
    for id in ["begun", "ended"] {
        let row = OperationRow {
            id: OperationId::stored(format!("o-{id}")),
            ..OperationRow::default()
        };
        tx.insert_operation(&row).await.unwrap();
        tx.begin_import(id, &row.id).await.unwrap();
    }
    tx.end_operation(&"o-ended".into(), 0, "", at(200)).await.unwrap();
    tx.commit().await.unwrap();
    let wanted = UploadRow {
        operation: Some("o-begun".into()),
        ..upload("begun", "ann", "begun", 100)
    };
    assert_eq!(lab.store.unfinished_imports().await.unwrap(), [wanted]);
}

#[tokio::test]
async fn old_uploads_are_found_and_deleted() {
    let lab = Lab::new().await;
    let old = upload("old", "ann", "k1", 100);
    let mut tx = lab.store.write().await.unwrap();
    tx.insert_upload(&old).await.unwrap();
    tx.insert_upload(&upload("new", "ann", "k2", 200)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.old_uploads(at(200)).await.unwrap(), [old]);
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_upload("old").await.unwrap();
    tx.delete_upload("old").await.unwrap();
    tx.commit().await.unwrap();
    assert!(lab.store.old_uploads(at(200)).await.unwrap().is_empty());
    assert!(is_missing(&lab.store.upload("old").await));
    assert!(lab.store.upload("new").await.is_ok());
}
