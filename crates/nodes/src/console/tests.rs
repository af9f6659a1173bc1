//! Tests of access to consoles, of writers, and of the owners of recordings.

use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::rights::{Caller, of_member};
use rackwright_ground::testing;
use rackwright_lifecycle::{NodeId, State, Timestamp, seconds};
use rackwright_serial::Entry;
use rackwright_serial::record::{Holder, Recorder};
use rackwright_store::{MemberRow, NodeRecord, Scope};
use secrecy::{ExposeSecret as _, SecretString};

use super::AttachRefused;
use super::access::{ConsoleAccess, claimant, holder};
use super::hub::{Hub, LineState};
use super::{log, token};
use crate::console::Consoles;

fn claimed(state: State, customer: &'static str, generation: u64) -> NodeRecord {
    let mut record = testing::node("n1", state, Some("digest"));
    let claim = record.node.claim.as_mut().unwrap();
    claim.customer = customer.into();
    claim.generation = generation;
    claim.handed_over = Some(claim.deployment);
    record.node.generation = generation;
    record
}

fn customer_holder(customer: &str, generation: u64) -> Holder {
    Holder {
        held: true,
        customer: customer.into(),
        generation,
    }
}

async fn member(core: &Core, name: &str, role: &str, customer: &'static str) -> Caller {
    let row = MemberRow {
        role: role.into(),
        customer: customer.into(),
    };
    let mut tx = core.store.write().await.unwrap();
    assert!(tx.put_member(name, &row, 0, clock::now()).await.unwrap().is_some());
    tx.commit().await.unwrap();
    of_member(core, name, 0).await.unwrap()
}

#[test]
fn a_console_belongs_to_the_holder_outside_of_our_work() {
    let acme = customer_holder("acme", 3);
    for state in [State::Active, State::Maintenance] {
        assert_eq!(holder(&claimed(state, "acme", 3)), acme);
    }
    for state in [
        State::Imaging,
        State::Rebooting,
        State::Validating,
        State::Failed,
        State::Quarantined,
    ] {
        let record = claimed(state, "acme", 3);
        assert_eq!(holder(&record), Holder::default(), "{state:?}");
        assert_eq!(claimant(&record), acme, "the customer's recording is kept: {state:?}");
    }
    let mut released = claimed(State::Active, "acme", 3);
    released.node.claim.as_mut().unwrap().release_requested = true;
    for record in [
        claimed(State::Reclaiming, "acme", 3),
        released,
        testing::node("n1", State::Available, None),
    ] {
        assert_eq!(
            (holder(&record), claimant(&record)),
            (Holder::default(), Holder::default())
        );
    }
    let mut early = claimed(State::Active, "acme", 3);
    early.node.claim.as_mut().unwrap().handed_over = None;
    assert_eq!(holder(&early), Holder::default());
}

#[tokio::test]
async fn a_typist_is_notified_of_a_takeover() {
    let hub = Hub::new(&"n1".into());
    let mut ann = hub.attach(Entry::Write, "ann").unwrap();
    assert!(ann.types() && hub.is_wanted());
    assert_eq!(hub.attach(Entry::Write, "bob").err().as_deref(), Some("ann"));
    let mut eve = hub.attach(Entry::ReadOnly, "eve").unwrap();
    assert!(!eve.types() && eve.displaced().is_none());
    let bob = hub.attach(Entry::TakeOver, "bob").unwrap();
    assert_eq!(ann.displaced().as_deref(), Some("bob"));
    assert!(!ann.types() && ann.displaced().is_none(), "reported once");
    // A displaced client leaves, and the seat of the other client stays.
    drop(ann);
    assert_eq!(hub.attach(Entry::Write, "ann").err().as_deref(), Some("bob"));
    drop(bob);
    let ann = hub.attach(Entry::Write, "ann").unwrap();
    drop((ann, eve));
    assert!(!hub.is_wanted());
}

#[tokio::test]
async fn customers_reach_only_consoles_that_they_hold() {
    let core = testing::core_with("console: {record: always}\n").await;
    testing::add(&core, &claimed(State::Active, "acme", 1)).await;
    let ann = member(&core, "ann", "customer-user", "acme").await;
    let bob = member(&core, "bob", "customer-user", "bolt").await;
    let vera = member(&core, "vera", "viewer", "").await;
    let access = ConsoleAccess::new(&core, ann.clone(), &"n1".into(), true)
        .await
        .unwrap();
    access.recheck(&core, true).await.unwrap();
    let refused = ConsoleAccess::new(&core, bob, &"n1".into(), false).await.unwrap_err();
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert!(matches!(
        ConsoleAccess::new(&core, vera.clone(), &"n1".into(), true).await,
        Err(ApiError::Forbidden(_))
    ));
    ConsoleAccess::new(&core, vera, &"n1".into(), false).await.unwrap();

    // The same customer holds the node again under another claim: the former session's permission ends.
    let mut tx = core.store.write().await.unwrap();
    let mut record = access.record.clone();
    record.node.claim.as_mut().unwrap().generation = 2;
    tx.save_node(&mut record, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(
        access
            .recheck(&core, true)
            .await
            .unwrap_err()
            .contains("owner of the node has changed")
    );
    let mut tx = core.store.write().await.unwrap();
    record.node.state = State::Reclaiming;
    tx.save_node(&mut record, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(
        access
            .recheck(&core, false)
            .await
            .unwrap_err()
            .contains("not handed over")
    );
    assert!(matches!(
        ConsoleAccess::new(&core, ann, &"n1".into(), false).await,
        Err(ApiError::Precondition { .. })
    ));
}

#[tokio::test]
async fn recordings_are_read_by_their_holder_and_go_with_the_claim() {
    let core = testing::core_with("console: {record: always}\n").await;
    let record = claimed(State::Active, "acme", 2);
    testing::add(&core, &record).await;
    let folder = core.feature::<Consoles>().folder(&record.uid);
    let bounds = core.feature::<Consoles>().settings().bounds();
    for (at, boot, holder) in [
        (10, 10, Holder::default()),
        (20, 20, customer_holder("bolt", 1)),
        (30, 30, customer_holder("acme", 1)),
        (40, 40, customer_holder("acme", 2)),
    ] {
        let mut recorder = Recorder::new(folder.clone(), bounds, holder);
        recorder.boot(boot);
        recorder.write(clock::now().0 + at, b"some words").unwrap();
    }
    let boots_of = async |name: &str, role: &str, customer: &'static str| -> Vec<i64> {
        let caller = member(&core, name, role, customer).await;
        let access = ConsoleAccess::new(&core, caller, &"n1".into(), false).await.unwrap();
        let boots = log::list(&core, &access).await.unwrap();
        boots.iter().map(|boot| boot.boot_us).collect()
    };
    assert_eq!(boots_of("ann", "customer-user", "acme").await, [40]);
    assert_eq!(boots_of("olga", "operator", "").await, [10, 20, 30, 40]);
    let kept = [1, 2, 3].map(|boot_us| rackwright_serial::record::Boot {
        boot_us,
        first_us: 0,
        bytes: 0,
    });
    let number = |number| log::numbered(&kept, number).map(|boot| boot.boot_us).ok();
    assert_eq!(
        [1, 3, -1, -3, 4, -4, 0].map(number),
        [Some(1), Some(3), Some(3), Some(1), None, None, None]
    );

    // A step of the runner reports the node: recordings of other claims are removed, and the others with the release.
    core.feature::<Consoles>().seen(&record);
    until(async || boots_of("olga", "operator", "").await == [10, 40]).await;
    let mut released = record;
    released.node.state = State::Reclaiming;
    core.feature::<Consoles>().seen(&released);
    until(async || boots_of("olga", "operator", "").await == [10]).await;
}

async fn until(mut wanted: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if wanted().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it does not come about");
}

#[tokio::test]
async fn consoles_are_recorded_as_configured() {
    let core = testing::core_with("console: {record: booting, at_once: 1}\n").await;
    core.feature::<Consoles>()
        .seen(&testing::node("n1", State::Inspecting, None));
    core.feature::<Consoles>()
        .seen(&testing::node("n2", State::Inspecting, None));
    core.feature::<Consoles>()
        .seen(&testing::node("n3", State::Available, None));
    assert_eq!(core.feature::<Consoles>().count(), (1, 1), "one at once");
    core.feature::<Consoles>()
        .seen(&testing::node("n1", State::Available, None));
    assert_eq!(core.feature::<Consoles>().count().1, 0);
    let silent = testing::core().await;
    silent
        .feature::<Consoles>()
        .seen(&testing::node("n1", State::Inspecting, None));
    assert_eq!(silent.feature::<Consoles>().count(), (0, 0));
}

#[tokio::test]
async fn only_operators_see_why_a_line_broke() {
    let broken = LineState::Broken("BMC https://10.0.0.9 refuses admin".into());
    let shown_notice = |is_site| match super::session::line_notice(&broken, is_site, &mut None) {
        Some(rackwright_serial::ConsoleOutput::Notice(notice)) => notice,
        _ => panic!("there is no notice"),
    };
    assert!(shown_notice(true).contains("10.0.0.9"));
    assert!(!shown_notice(false).contains("10.0.0.9") && shown_notice(false).contains("cannot be reached"));
}

#[tokio::test]
async fn a_line_to_the_former_bmc_is_not_shown() {
    let core = testing::core_with("console: {record: always}\n").await;
    let mut record = claimed(State::Active, "acme", 1);
    testing::add(&core, &record).await;
    let former = core
        .feature::<Consoles>()
        .attach(&record, Entry::ReadOnly, "ann")
        .unwrap();
    // The line's opening notes the machine.
    core.feature::<Consoles>().inner().hubs["n1"].set_machine(Some(super::Machine::of(&record)));
    core.feature::<Consoles>()
        .attach(&record, Entry::ReadOnly, "ann")
        .unwrap();
    record.spec.bmc_address = "https://10.99.0.1".into();
    let refused = core.feature::<Consoles>().attach(&record, Entry::Write, "bob").err();
    assert_eq!(refused, Some(AttachRefused::BmcChanged));
    drop(former);
}

#[tokio::test]
async fn watchers_see_a_change_of_holder_without_recording() {
    let core = testing::core().await;
    let mut record = claimed(State::Active, "acme", 1);
    let attached = core
        .feature::<Consoles>()
        .attach(&record, Entry::ReadOnly, "ann")
        .unwrap();
    assert_eq!(attached.demand.borrow().holder, customer_holder("acme", 1));
    record.node.state = State::Reclaiming;
    core.feature::<Consoles>().seen(&record);
    assert_eq!(attached.demand.borrow().holder, Holder::default());
}

#[tokio::test]
async fn a_stale_record_does_not_undo_a_step() {
    let core = testing::core_with("console: {record: booting}\n").await;
    let mut record = testing::node("n1", State::Inspecting, None);
    core.feature::<Consoles>().seen(&record);
    let former = record.clone();
    (record.version, record.node.state) = (record.version + 1, State::Available);
    core.feature::<Consoles>().seen(&record);
    core.feature::<Consoles>().seen(&former);
    assert_eq!(core.feature::<Consoles>().count().1, 0);
}

#[tokio::test]
async fn a_refused_login_is_held_until_it_is_another() {
    let mut refusals = super::Refusals::default();
    let mut record = testing::node("n1", State::Active, None);
    refusals.keep(&record, "refused".into());
    assert_eq!(refusals.find(&record).as_deref(), Some("refused"));
    record.spec.bmc_password = b"another".to_vec();
    assert_eq!(refusals.find(&record), None);
}

/// A token of a member for the console of n1, valid for ten minutes.
async fn token_of(core: &Core, name: &str) -> SecretString {
    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = core.store.write().await.unwrap();
    let ends = clock::now().plus(seconds(600));
    let caller = Caller {
        name: name.to_owned(),
        role: rackwright_api::v1::Role::Operator,
        scope: Scope::Site,
        epoch: 7,
    };
    let token = token::make(core, &mut tx, &caller, &record, ends).await.unwrap();
    tx.commit().await.unwrap();
    token
}

#[tokio::test]
async fn a_token_opens_one_console_once_and_in_time() {
    let core = testing::core().await;
    let start = Timestamp(1_800_000_000_000_000);
    clock::simulated::set(start);
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    testing::add(&core, &testing::node("n2", State::Available, None)).await;
    let redeem = async |node: &str, token: &SecretString| {
        let shown = token.expose_secret();
        token::redeem(&core, &NodeId::stored(node), shown).await.unwrap()
    };
    let token = token_of(&core, "ann").await;
    assert_eq!(redeem("n2", &token).await, None, "of another console");
    assert_eq!(redeem("n3", &token).await, None, "of none");
    assert_eq!(redeem("n1", &"rw1_".into()).await, None);
    assert_eq!(
        redeem("n1", &token).await,
        Some(("ann".into(), 7)),
        "it was not used up"
    );
    assert_eq!(redeem("n1", &token).await, None, "once");

    let late = token_of(&core, "ann").await;
    clock::simulated::set(start.plus(seconds(600)));
    assert_eq!(redeem("n1", &late).await, None, "too old");
    let former = token_of(&core, "ann").await;
    let mut tx = core.store.write().await.unwrap();
    let mut record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    tx.delete_node(&record).await.unwrap();
    record.uid = "another".into();
    tx.insert_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(redeem("n1", &former).await, None, "of the machine that it was");
}

#[tokio::test]
async fn a_token_for_joining_opens_no_console() {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Available, None)).await;
    let row = MemberRow {
        role: "operator".into(),
        customer: "".into(),
    };
    let mut tx = core.store.write().await.unwrap();
    let ends = clock::now().plus(seconds(600));
    let joins = rackwright_ground::rights::new_member_token(core.rng.as_ref(), &mut tx, "ann", &row, ends, "")
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(token::redeem(&core, &"n1".into(), &joins).await.unwrap(), None);
}
