//! A database that is older than the last one seen, and machines that know more than their records.

use rackwright_lifecycle::{State, seconds};
use rackwright_store::Scope;

use super::*;
use crate::testing;

async fn doubts(core: &Core) -> i64 {
    core.store.doubted_nodes().await.unwrap()
}

async fn set_age(core: &Core, age: i64) {
    let mut tx = core.store.write().await.unwrap();
    tx.put_database_age(age).await.unwrap();
    tx.commit().await.unwrap();
}

fn seen(core: &Core) -> DatabaseAge {
    read(&core.config.data_dir.join(FILE)).unwrap().unwrap()
}

#[tokio::test]
async fn a_database_that_ages_is_trusted_and_one_that_is_set_back_is_not() {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    let first = seen(&core);
    for age in 1..4 {
        advance(&core, false).await.unwrap();
        assert_eq!(seen(&core).age, first.age + age);
    }
    // A replica that was away for a long time has seen a lower age.
    set_age(&core, 500).await;
    advance(&core, false).await.unwrap();
    assert_eq!((doubts(&core).await, seen(&core).age), (0, 501));
    set_age(&core, 499).await;
    advance(&core, false).await.unwrap();
    assert_eq!(doubts(&core).await, 1);
    assert!(
        seen(&core).age > 501 + AGE_JUMP / 2,
        "above every age of the lost database"
    );
    let events = core.store.events(&Scope::Site, 0, "site", 9).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.to_string()).collect();
    assert_eq!(kinds, ["security.database-restored"], "one event for all nodes");
    advance(&core, false).await.unwrap();
    assert_eq!(core.store.events(&Scope::Site, 0, "site", 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn another_database_and_an_operators_call_raise_doubts_and_a_damaged_file_is_named() {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    let file = core.config.data_dir.join(FILE);
    write(
        &file,
        &DatabaseAge {
            id: "other".into(),
            age: 0,
        },
    )
    .unwrap();
    advance(&core, false).await.unwrap();
    assert_eq!(doubts(&core).await, 1);
    let declared = testing::core().await;
    testing::add(&declared, &testing::node("n1", State::Available, None)).await;
    advance(&declared, true).await.unwrap();
    assert_eq!(doubts(&declared).await, 1);
    std::fs::write(&file, "nonsense\n").unwrap();
    let failed = advance(&core, false).await.unwrap_err().to_string();
    assert!(
        failed.contains("database-age") && failed.contains("--restored"),
        "{failed}"
    );
}

#[tokio::test]
async fn a_certificate_of_ours_that_is_newer_than_the_record_is_a_doubt() {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    doubt_by_certificate(&core, &"n1".into(), 0).await.unwrap();
    assert_eq!(doubts(&core).await, 0);
    doubt_by_certificate(&core, &"n1".into(), 3).await.unwrap();
    assert_eq!(doubts(&core).await, 1);
    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let connected = core.bmcs.client(&record, &core.keys.sealer).await.map(drop);
    assert!(matches!(connected, Err(crate::bmc::BmcError::Doubted(_))));
    assert!(record.due_at <= clock::now().plus(seconds(1)));
}
