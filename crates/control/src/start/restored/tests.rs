//! A database that is older than the last one seen, and machines that know more than their records.

use rackwright_lifecycle::{State, seconds};
use rackwright_store::Scope;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::agent_session::admit_agent;
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
async fn a_database_that_grows_older_is_believed_and_one_that_is_set_back_is_not() {
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
async fn another_database_and_an_operators_word_raise_doubts_and_a_damaged_file_is_named() {
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
async fn a_machine_that_knows_a_newer_generation_is_doubted_and_given_out_above_that_later() {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
    let of = testing::booted(&core, "n1", "b1").await;
    let come = async |generation| {
        let (sender, end) = (mpsc::channel(1).0, CancellationToken::new());
        let mut agent = testing::arriving_agent("n1", of.clone(), "b1");
        agent.hello.claim_generation = generation;
        admit_agent(
            &core,
            &agent,
            &crate::attestation::TpmEvidence::Nothing(String::new()),
            sender,
            end,
        )
        .await
        .unwrap()
        .unwrap();
        core.store.node(&Scope::Site, &"n1".into()).await.unwrap()
    };
    assert_eq!(come(0).await.node.doubt, None);
    let doubted = come(7).await;
    let doubt = doubted.node.doubt.clone().unwrap();
    assert_eq!((doubt.cause, doubt.generation), (DoubtCause::Generation, 7));
    let again = come(7).await;
    assert_eq!(again.version, doubted.version, "the same again changes nothing");
    let mut higher = come(9).await;
    assert_eq!(higher.node.doubt.as_ref().unwrap().generation, 9);
    let events = core.store.events(&Scope::Site, 0, "nodes/n1", 9).await.unwrap();
    assert_eq!(events.iter().filter(|e| e.kind == "security.node-doubted").count(), 1);
    higher.node.believe();
    assert!(higher.node.generation > 9 && higher.node.doubt.is_none());
    // An absurd generation from a machine leaves the record within bounds.
    let mut liar = come(u64::MAX).await;
    liar.node.believe();
    assert!(liar.node.generation < 1 << 22, "{}", liar.node.generation);
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
    let asked = core.bmcs.client(&record, &core.keys.sealer).await.map(drop);
    assert!(matches!(asked, Err(crate::bmc::BmcError::Doubted(_))));
    assert!(record.due_at <= clock::now().plus(seconds(1)));
}
