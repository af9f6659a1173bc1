use rackwright_ground::testing;
use rackwright_lifecycle::{DoubtCause, State};
use rackwright_store::Scope;

use super::*;

#[tokio::test]
async fn a_machine_with_a_newer_generation_is_doubted_and_later_claimed_above_it() {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
    let of = testing::booted(&core, "n1", "b1").await;
    let come = async |generation| {
        let (sender, end) = (mpsc::channel(1).0, CancellationToken::new());
        let mut agent = crate::testing::arriving_agent("n1", of.clone(), "b1");
        agent.hello.claim_generation = generation;
        admit_agent(&core, &agent, &TpmEvidence::Nothing(String::new()), sender, end)
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
