use rackwright_lifecycle::Timestamp;
use rackwright_store::{
    ClusterRecord, ClusterSpec, DeploymentKeys, FactoryCredential, ReplicaKeys, SEAL_HEADER_BYTES, SealedColumn,
    SealedSecret, SealedUserData,
};

use super::support::{Lab, at, claim, node};

/// A secret under the key of this number: a header and a body.
fn under(key: u8, what: u8) -> Vec<u8> {
    let mut sealed = vec![1; SEAL_HEADER_BYTES];
    sealed[1..].fill(key);
    sealed.extend([what; 40]);
    sealed
}

fn header(key: u8) -> Vec<u8> {
    under(key, 0)[..SEAL_HEADER_BYTES].to_vec()
}

fn keys(key: u8) -> DeploymentKeys {
    DeploymentKeys {
        host_public: "h".into(),
        host_private: under(key, 1),
        provision_public: "p".into(),
        provision_private: under(key, 2),
        user_data: under(key, 3),
    }
}

fn cluster(id: &'static str, key: u8) -> ClusterRecord {
    let spec = ClusterSpec {
        user_data: Some(SealedUserData {
            build: 1,
            sealed: under(key, 4),
        }),
        ..ClusterSpec::default()
    };
    ClusterRecord::new(id.into(), format!("uid-{id}"), "acme".into(), spec, at(1))
}

#[tokio::test]
async fn secrets_under_another_key_are_found_wherever_they_are() {
    let lab = Lab::new().await;
    let mut records = [node("n1"), node("n2"), node("n3")];
    records[0].spec.bmc_password = under(1, 5);
    records[1].spec.bmc_password = under(2, 5);
    // It has no password, and therefore none under an older key.
    records[2].spec.bmc_password = Vec::new();
    let lab = lab.with(&records).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.put_deployment_keys(&"n1".into(), 1, 1, &keys(1)).await.unwrap();
    tx.put_deployment_keys(&"n2".into(), u64::MAX, 1, &keys(2))
        .await
        .unwrap();
    tx.insert_cluster(&cluster("alpha", 1)).await.unwrap();
    tx.insert_cluster(&cluster("beta", 2)).await.unwrap();
    tx.insert_cluster(&ClusterRecord::new(
        "gamma".into(),
        "g".into(),
        "acme".into(),
        ClusterSpec::default(),
        at(1),
    ))
    .await
    .unwrap();
    for (id, key) in [("f1", 1), ("f2", 2)] {
        let one = FactoryCredential {
            id: id.into(),
            pattern: "*".into(),
            username: "root".into(),
            password: under(key, 6),
            place: 1,
            created_by: "ann".into(),
            created_at: at(1),
        };
        tx.add_factory_credential(&one).await.unwrap();
    }
    tx.keep_sealed_key("door", &under(1, 7)).await.unwrap();
    // Three of n1's deployment, its password, a cluster, a factory credential, a key of the site.
    assert_eq!(tx.count_to_reseal(&header(2)).await.unwrap(), 7);
    assert_eq!(tx.count_to_reseal(&header(1)).await.unwrap(), 6);
    assert_eq!(tx.count_to_reseal(&header(3)).await.unwrap(), 13);
    tx.commit().await.unwrap();

    let store = &lab.store;
    assert_eq!(store.nodes_to_reseal(&header(2), "", 9).await.unwrap(), ["n1"]);
    assert_eq!(store.nodes_to_reseal(&header(3), "", 1).await.unwrap(), ["n1"]);
    assert_eq!(store.nodes_to_reseal(&header(3), "n1", 9).await.unwrap(), ["n2"]);
    assert_eq!(store.clusters_to_reseal(&header(2), "", 9).await.unwrap(), ["alpha"]);
    assert_eq!(
        store.clusters_to_reseal(&header(3), "alpha", 9).await.unwrap(),
        ["beta"]
    );
    let read = store
        .cluster(&rackwright_store::Scope::Site, &"alpha".into())
        .await
        .unwrap();
    assert_eq!(read.spec, cluster("alpha", 1).spec);

    let mut tx = store.write().await.unwrap();
    for column in SealedColumn::ALL {
        let mut found = tx.to_reseal(column, &header(2), 0, 9).await.unwrap();
        let Some(mut secret) = found.pop() else { continue };
        assert!(found.is_empty());
        assert_eq!(tx.to_reseal(column, &header(2), 1, 9).await.unwrap(), []);
        secret.sealed = under(2, 9);
        tx.put_sealed(column, &secret).await.unwrap();
        assert_eq!(tx.to_reseal(column, &header(2), 0, 9).await.unwrap(), []);
    }
    assert_eq!(tx.count_to_reseal(&header(2)).await.unwrap(), 2, "n1 and alpha");
    let far = tx.to_reseal(SealedColumn::HostKey, &header(1), 0, 9).await.unwrap();
    let places: Vec<Vec<String>> = far.into_iter().map(|secret| secret.key).collect();
    let max = i64::MAX.to_string();
    assert_eq!(places, [["n1", "1", "1"], ["n2", max.as_str(), "1"]]);
    let one = SealedSecret {
        key: vec!["n2".into(), max, "1".into()],
        sealed: under(5, 1),
    };
    tx.put_sealed(SealedColumn::HostKey, &one).await.unwrap();
    let no_number = SealedSecret {
        key: vec!["n2".into(), "many".into(), "1".into()],
        sealed: under(5, 2),
    };
    let error = tx.put_sealed(SealedColumn::HostKey, &no_number).await.unwrap_err();
    assert_eq!(error.to_string(), "key of a sealed secret \"many\" cannot be read back");
    tx.commit().await.unwrap();
    let read = store.deployment_keys(&"n2".into(), u64::MAX, 1).await.unwrap();
    assert_eq!(read.host_private, one.sealed);
}

#[tokio::test]
async fn plain_user_data_of_older_versions_is_found_and_an_empty_one_is_none() {
    let lab = Lab::new().await;
    let plain = |id: &str, text: &str| {
        let mut record = node(id);
        let mut claim = claim("b3-1");
        claim.plain_user_data = text.into();
        record.node.claim = Some(claim);
        // A text from outside that looks like it.
        record.reason = "\"user_data\":\"x\"".into();
        record
    };
    let lab = lab
        .with(&[
            plain("n1", "#cloud-config\n"),
            plain("n2", ""),
            plain("n3", "\""),
            node("n4"),
        ])
        .await;
    assert_eq!(lab.store.nodes_with_plain_user_data(9).await.unwrap(), ["n1", "n3"]);
    assert_eq!(lab.store.nodes_with_plain_user_data(1).await.unwrap(), ["n1"]);
    let mut old = cluster("alpha", 1);
    old.spec.user_data = None;
    old.former = Some(rackwright_store::FormerSpec {
        build: 1,
        spec: ClusterSpec {
            plain_user_data: "#!/bin/sh\n".into(),
            ..ClusterSpec::default()
        },
    });
    let mut tx = lab.store.write().await.unwrap();
    tx.insert_cluster(&old).await.unwrap();
    tx.insert_cluster(&cluster("beta", 1)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.clusters_with_plain_user_data(9).await.unwrap(), ["alpha"]);
}

#[tokio::test]
async fn replicas_report_their_sealing_keys() {
    let lab = Lab::new().await;
    let store = &lab.store;
    store.begin_replica("r1", at(100), 10).await.unwrap();
    store.record_heartbeat("r2", at(50)).await.unwrap();
    let own = ReplicaKeys {
        replica: "r1".into(),
        keys: vec!["bb".into(), "aa".into()],
        seals_with: "aa".into(),
        authorities: vec!["ca1".into(), "ca2".into()],
        issues_with: "ca2".into(),
    };
    store.put_replica_keys(&own).await.unwrap();
    assert_eq!(store.replica_keys(at(60)).await.unwrap(), std::slice::from_ref(&own));
    let none = ReplicaKeys {
        replica: "r2".into(),
        ..ReplicaKeys::default()
    };
    assert_eq!(store.replica_keys(Timestamp(0)).await.unwrap(), [own, none]);

    assert_eq!(
        store.required_sealing_key().await.unwrap(),
        "",
        "the site is not known yet"
    );
    store.site_authority("ca").await.unwrap();
    assert_eq!(store.required_sealing_key().await.unwrap(), "");
    let mut tx = store.write().await.unwrap();
    tx.require_sealing_key("bb").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.required_sealing_key().await.unwrap(), "bb");
    assert_eq!(store.site_authority("ca").await.unwrap(), "ca");
}
