use rackwright_ground::testing::{self, TestCore};
use rackwright_lifecycle::{OperationKind, Timestamp};
use rackwright_store::OperationRow;
use tokio::net::TcpListener;

use super::look::LookResult;
use super::spec::{Target, TargetSpec};
use super::*;

const LIMIT: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(5);

/// A discovery of these addresses that this replica began long ago.
async fn begun(core: &TestCore, addresses: &[String]) -> DiscoveryRow {
    let target = |address: &String| TargetSpec {
        address: address.clone(),
        ..TargetSpec::default()
    };
    let spec = DiscoverySpec {
        targets: addresses.iter().map(target).collect(),
        ..DiscoverySpec::default()
    };
    let secrets = serde_json::to_string(&Secrets::default()).unwrap();
    let row = DiscoveryRow {
        id: "d1".into(),
        created_at: clock::now(),
        phase: "looking".into(),
        spec: serde_json::to_string(&spec).unwrap(),
        heard: "{}".into(),
        secrets: core
            .keys
            .sealer
            .seal(&secrets.into(), &secrets_purpose(&"d1".into()))
            .unwrap(),
        total: addresses.len() as i64,
        ..DiscoveryRow::default()
    };
    let operation = OperationRow {
        id: "d1".into(),
        kind: OperationKind::Discover,
        target: "discoveries/d1".into(),
        created_at: clock::now(),
        deadline: clock::now().plus(seconds(3600)),
        ..OperationRow::default()
    };
    let mut tx = core.store.write().await.unwrap();
    tx.insert_discovery(&row, 5).await.unwrap();
    tx.insert_operation(&operation).await.unwrap();
    tx.commit().await.unwrap();
    let (now, until) = (Timestamp(1), Timestamp(2));
    assert!(
        core.store
            .lease_discovery(&"d1".into(), &core.replica, now, until)
            .await
            .unwrap()
    );
    core.store.discovery(&"d1".into()).await.unwrap()
}

#[tokio::test]
async fn the_lease_is_renewed_while_findings_are_judged_for_long() {
    let core = testing::core().await;
    let mut row = begun(&core, &[]).await;
    // Takes until two renewals are seen in the database.
    let judging = async {
        let mut until = Timestamp(2);
        for _ in 0..2 {
            let before = until;
            while until <= before {
                until = core.store.discovery(&"d1".into()).await?.lease_until;
                tokio::time::sleep(EVERY).await;
            }
        }
        Ok(until)
    };
    let judged = tokio::time::timeout(LIMIT, with_renewed_lease(&core, &mut row, EVERY, judging)).await;
    let until = judged.expect("the lease is renewed").unwrap().expect("it is ours");
    assert!(until > clock::now(), "no other replica takes it up");
}

#[tokio::test]
async fn a_discovery_lost_to_another_replica_is_not_judged() {
    let core = testing::core().await;
    let mut row = begun(&core, &[]).await;
    let (now, until) = (clock::now(), clock::now().plus(seconds(60)));
    assert!(
        core.store
            .lease_discovery(&"d1".into(), "another", now, until)
            .await
            .unwrap()
    );
    let for_ever = std::future::pending::<Result<(), StoreError>>();
    let judged = tokio::time::timeout(LIMIT, with_renewed_lease(&core, &mut row, EVERY, for_ever)).await;
    assert_eq!(judged.expect("it is given up").unwrap(), None);
    assert_eq!(core.store.discovery(&"d1".into()).await.unwrap().owner, "another");
}

/// A server that closes each connection, and counts them.
async fn closing_server() -> (String, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *counted.lock().unwrap() += 1;
            drop(stream);
        }
    });
    (address, count)
}

#[tokio::test]
async fn addresses_that_a_former_process_finished_are_not_probed_again() {
    let core = testing::core().await;
    let (first, second) = (closing_server().await, closing_server().await);
    let row = begun(&core, &[first.0.clone(), second.0.clone()]).await;
    let target = TargetSpec {
        address: first.0.clone(),
        ..TargetSpec::default()
    };
    let place = Target::parse(target).unwrap().place;
    let finding = FindingRow {
        discovery: "d1".into(),
        place: place.clone(),
        address: first.0.clone(),
        state: "login-refused".into(),
        tries: 2,
        body: "{}".into(),
        ..FindingRow::default()
    };
    // The finding was stored but the progress was not, as when a later look ends sooner.
    let mut tx = core.store.write().await.unwrap();
    tx.put_findings(&[finding]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(row.reached, 0);
    tokio::time::timeout(LIMIT, work(&core, &"d1".into(), Unstored::default()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(*first.1.lock().unwrap(), 0, "its logins were tried already");
    assert!(*second.1.lock().unwrap() > 0);
    let row = core.store.discovery(&"d1".into()).await.unwrap();
    assert_eq!((row.phase.as_str(), row.reached), ("done", 2));
    let kept = core.store.findings(&"d1".into(), "*", "", 10).await.unwrap();
    let kept = kept.iter().find(|row| row.place == place).expect("it is kept");
    assert_eq!(kept.tries, 2);
}

fn found(place: &str) -> LookResult {
    LookResult::Found(Box::new(FindingRow {
        discovery: "d1".into(),
        place: place.into(),
        address: format!("https://{place}"),
        state: "login-refused".into(),
        body: "{}".into(),
        ..FindingRow::default()
    }))
}

/// A scan of a discovery without targets.
fn scan(core: &TestCore, row: DiscoveryRow, unstored: Unstored) -> Scan {
    let looker = Looker {
        core: Arc::clone(core),
        discovery: "d1".into(),
        logins: Box::new(GivenLogins(Secrets::default())),
        tries: 1,
        tried: HashMap::new(),
        nodes: HashSet::new(),
        turns: Semaphore::new(1),
    };
    let plan = Plan::new(&DiscoverySpec::default(), &SourceResults::default(), 10);
    Scan::new(Arc::clone(core), row, plan, looker, HashSet::new(), unstored)
}

/// Places of the stored findings.
async fn stored_places(core: &TestCore) -> Vec<String> {
    let stored = core.store.findings(&"d1".into(), "*", "", 10).await.unwrap();
    stored.into_iter().map(|row| row.place).collect()
}

#[tokio::test]
async fn findings_before_a_panic_are_stored() {
    async fn panics() -> (u64, LookResult) {
        panic!("an answer that no test expected")
    }
    let core = testing::core().await;
    let row = begun(&core, &[]).await;
    let mut scan = scan(&core, row, Unstored::default());
    let mut looks = JoinSet::new();
    let end = scan.take(Ok((0, found("a"))), 3, &mut looks).await.unwrap();
    assert!(end.is_none(), "{end:?}");
    // A look that has ended and was not taken yet, and one that panicked.
    looks.spawn(async { (1, found("b")) });
    let mut others = JoinSet::new();
    others.spawn(panics());
    let panicked = others.join_next().await.unwrap();
    let end = scan.take(panicked, 3, &mut looks).await.unwrap();
    assert!(matches!(end, Some(ScanEnd::Failed(_))), "{end:?}");
    assert_eq!(stored_places(&core).await, ["a", "b"]);
}

#[tokio::test]
async fn a_discovery_that_panicked_has_failed_and_keeps_its_findings_and_no_place() {
    async fn panics(mut scan: Scan) {
        let end = scan.take(Ok((0, found("a"))), 3, &mut JoinSet::new()).await.unwrap();
        assert!(end.is_none(), "{end:?}");
        panic!("an answer that no test expected")
    }
    let core = testing::core().await;
    let row = begun(&core, &[]).await;
    assert!(core.feature::<Discoveries>().begin(&"d1".into()));
    let mut tasks = Tasks::default();
    let unstored = Unstored::default();
    let task = tasks.running.spawn(panics(scan(&core, row, unstored.clone())));
    let running = Running {
        id: "d1".into(),
        found: unstored.clone(),
    };
    tasks.discoveries.insert(task.id(), running);
    let ended = tasks.running.join_next_with_id().await.expect("it ends");
    assert_eq!(unstored.copy().len(), 1);
    assert_eq!(stored_places(&core).await, [""; 0], "the task stored nothing");
    tasks.ended(&core, ended).await;
    assert!(
        core.feature::<Discoveries>().begin(&"d1".into()),
        "its place is free again"
    );
    assert_eq!(stored_places(&core).await, ["a"]);
    let row = core.store.discovery(&"d1".into()).await.unwrap();
    assert_eq!(row.phase, "done");
    assert!(
        row.message.contains("an internal fault of the control plane"),
        "{}",
        row.message
    );
}
