//! Password changes against simulated BMCs.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::credential_service_server::CredentialService as _;
use rackwright_api::v1::node_service_server::NodeService as _;
use rackwright_ground::bmc::{bmc_password_purpose, ipmi, is_unknown, target};
use rackwright_ground::clock::{self, simulated};
use rackwright_ground::keys::purposes::factory_password_purpose;
use rackwright_ground::testing::{self, TestCore};
use rackwright_identity::{ClientIdentity, KeyFiles, SystemRng};
use rackwright_lifecycle::{Outcome, State, Timestamp, seconds};
use rackwright_nodes::credentials::{
    AccountOutcome, ServiceRootFacts, account_of, candidates, change_with, forget_refusals, reveal,
};
use rackwright_store::{FactoryCredential, MemberRow, NodeRecord, Scope};
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{Code, Request, Status};

use super::fake_bmc::{Accounts, FakeBmcAccess, Lost};
use crate::credentials::Credentials;
use crate::nodes::Nodes;

const OLD: &str = "as it was enrolled";

/// A BMC, its node, and a control plane with a simulated clock.
struct Lab {
    core: TestCore,
    bmc_access: FakeBmcAccess,
    now: Timestamp,
}

impl Lab {
    async fn new(settings: &str) -> Self {
        let lab = Self {
            core: testing::core_with(settings).await,
            bmc_access: FakeBmcAccess::new(Accounts::new("root", OLD)),
            now: Timestamp(1_800_000_000_000_000),
        };
        simulated::set(lab.now);
        let mut record = testing::node("n1", State::Available, None);
        record.spec.bmc_address = "https://h".into();
        record.spec.bmc_username = "root".into();
        let sealer = &lab.core.keys.sealer;
        let sealed = sealer.seal(&SecretString::from(OLD), &bmc_password_purpose(&"n1".into()));
        record.spec.bmc_password = sealed.unwrap();
        testing::add(&lab.core, &record).await;
        lab
    }

    /// Resets the machine to its enrolment and the BMC to its factory state.
    async fn reset(&mut self) {
        self.bmc_access = FakeBmcAccess::new(Accounts::new("root", OLD));
        let mut record = self.record().await;
        let sealed = self
            .core
            .keys
            .sealer
            .seal(&OLD.into(), &bmc_password_purpose(&"n1".into()));
        record.spec.bmc_password = sealed.unwrap();
        record.spec.account = Default::default();
        let mut tx = self.core.store.write().await.unwrap();
        tx.save_node(&mut record, self.now).await.unwrap();
        tx.commit().await.unwrap();
    }

    fn advance(&mut self, s: i64) {
        self.now = self.now.plus(seconds(s));
        simulated::set(self.now);
    }

    async fn record(&self) -> NodeRecord {
        self.core.store.node(&Scope::Site, &"n1".into()).await.unwrap()
    }

    /// One effect. Its end is stored unless the process is killed before that.
    async fn change(&self, is_killed: bool) -> Outcome {
        let record = self.record().await;
        let done = change_with(&self.core, &record, &self.bmc_access).await;
        if !is_killed && let Some(learned) = &done.learned {
            let mut tx = self.core.store.write().await.unwrap();
            let mut record = tx.node(&"n1".into()).await.unwrap();
            learned.store(&mut tx, &mut record, clock::now()).await.unwrap();
            tx.commit().await.unwrap();
        }
        done.outcome
    }

    fn open(&self, sealed: &[u8]) -> String {
        let opened = self.core.keys.sealer.open(sealed, &bmc_password_purpose(&"n1".into()));
        opened.unwrap().expose_secret().to_owned()
    }

    /// Whether nothing is pending, and the stored password opens the BMC.
    async fn is_settled(&self) -> bool {
        let spec = self.record().await.spec;
        let password = self.open(&spec.bmc_password);
        spec.account.pending.is_none() && self.bmc_access.accounts().opens(&spec.bmc_username, &password)
    }

    async fn events(&self) -> Vec<String> {
        let events = self.core.store.events(&Scope::Site, 0, "", 100).await.unwrap();
        events.into_iter().map(|event| event.kind.to_string()).collect()
    }
}

fn code(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { code, .. } => code,
        Outcome::Succeeded => "succeeded",
        _ => "open",
    }
}

#[tokio::test]
async fn a_password_is_changed_and_the_old_one_opens_nothing() {
    let lab = Lab::new("").await;
    assert_eq!(lab.change(false).await, Outcome::Succeeded);
    assert!(lab.is_settled().await);
    assert!(!lab.bmc_access.accounts().opens("root", OLD));
    let spec = lab.record().await.spec;
    assert_eq!(spec.account.changed_at, Some(lab.now));
    assert!(spec.bmc_certificate.starts_with("sha256:ab"));
    assert_eq!(lab.open(&spec.bmc_password).len(), 16);
    let body = format!("{spec:?}");
    assert!(!body.contains(&lab.open(&spec.bmc_password)));
}

/// Any exchange may be lost, before or after its arrival, and the process may be killed anywhere. In the end there is one
/// password, it is stored, and no account was ever locked.
#[tokio::test]
async fn lost_messages_leave_one_good_password() {
    let (mut most, mut lab) = (0, Lab::new("").await);
    for lost in 0..12 {
        for what in [Lost::Request, Lost::Answer] {
            for is_killed in [false, true] {
                lab.reset().await;
                lab.bmc_access.accounts().lost = Some((lost, what));
                let mut rounds = 0;
                let mut is_killed = is_killed;
                while rounds == 0 || !lab.is_settled().await || lab.record().await.spec.account.changed_at.is_none() {
                    let outcome = lab.change(is_killed).await;
                    is_killed = false;
                    rounds += 1;
                    assert!(rounds < 8, "{lost} {what:?}: {outcome:?}");
                    let closed = lab.record().await.spec.account.closed_until;
                    let wait = closed.map_or(1, |until| until.since(lab.now) / 1_000_000 + 1);
                    lab.advance(wait.max(1));
                }
                most = most.max(rounds);
                let accounts = lab.bmc_access.accounts().clone();
                assert_eq!(accounts.locked, 0, "{lost} {what:?}");
                assert!(!accounts.opens("root", OLD), "{lost} {what:?}");
            }
        }
    }
    assert!(most > 1, "nothing was ever lost");
}

#[tokio::test]
async fn an_account_of_our_own_takes_the_place_of_the_former_one() {
    let lab = Lab::new("bmc_accounts: {username: rackwright}").await;
    assert_eq!(lab.change(false).await, Outcome::Succeeded);
    assert!(lab.is_settled().await);
    assert_eq!(lab.record().await.spec.bmc_username, "rackwright");
    assert!(
        !lab.bmc_access.accounts().opens("root", OLD),
        "the former one is disabled"
    );
    let kept =
        Lab::new("bmc_accounts: {username: rackwright, former_account: keep}\nbmc_state: {keep_accounts: [root]}")
            .await;
    assert_eq!(kept.change(false).await, Outcome::Succeeded);
    assert!(kept.bmc_access.accounts().opens("root", OLD));
}

#[tokio::test]
async fn a_password_that_must_be_changed_is_changed_before_our_account_is_made() {
    let lab = Lab::new("bmc_accounts: {username: rackwright}").await;
    lab.bmc_access.accounts().must_change = true;
    assert_eq!(lab.change(false).await, Outcome::Succeeded);
    assert!(lab.is_settled().await);
    let record = lab.record().await;
    assert_eq!(record.spec.bmc_username, "root");
    assert!(
        account_of(&lab.core, &record).due(&record.node).is_some(),
        "ours is not made yet"
    );
    assert_eq!(lab.change(false).await, Outcome::Succeeded);
    assert_eq!(lab.record().await.spec.bmc_username, "rackwright");
    assert!(lab.is_settled().await);
}

#[tokio::test]
async fn a_refused_password_is_sent_once() {
    let lab = Lab::new("").await;
    lab.bmc_access.accounts().list[0].1 = "a third password".into();
    assert_eq!(code(&lab.change(false).await), "bmc-login-refused");
    assert_eq!(lab.bmc_access.accounts().logins, 1);
    let record = lab.record().await;
    assert_eq!(record.spec.account.refused_at, Some(lab.now));
    let refused = target(&"n1".into(), &record.spec, &lab.core.keys.sealer).unwrap_err();
    assert_eq!(refused.code(), ("bmc-login-refused", false));
    assert_eq!(account_of(&lab.core, &record).due(&record.node), None);
    assert_eq!(lab.events().await, ["security.bmc-login-refused"]);
    // Stored, so that other processes know it as well. An operator's request allows another try.
    let mut spec = record.spec.clone();
    forget_refusals(&mut spec);
    assert!(target(&"n1".into(), &spec, &lab.core.keys.sealer).is_ok());
}

#[tokio::test]
async fn two_wrong_passwords_lock_no_account() {
    let mut lab = Lab::new("").await;
    // The change is begun, its answer is lost, and a third password is set at the BMC.
    lab.bmc_access.accounts().lost = Some((3, Lost::Answer));
    assert_eq!(code(&lab.change(true).await), "bmc-unreachable");
    lab.bmc_access.accounts().list[0].1 = "a third password".into();
    let mut codes = Vec::new();
    while codes.last().is_none_or(|code| code == "bmc-lockout") {
        codes.push(code(&lab.change(false).await).to_owned());
        let record = lab.record().await;
        let until = account_of(&lab.core, &record).closed_until;
        lab.advance(until.map_or(1, |until| until.since(lab.now) / 1_000_000));
        assert!(codes.len() < 9, "{codes:?}");
    }
    assert_eq!(codes.last().unwrap(), "bmc-login-refused", "{codes:?}");
    assert!(codes.len() > 1, "it waited for the end of the lockout time");
    assert_eq!(lab.bmc_access.accounts().locked, 0);
    let record = lab.record().await;
    assert!(record.spec.account.pending.is_some(), "both are kept for an operator");
    assert_eq!(account_of(&lab.core, &record).due(&record.node), None);
}

#[tokio::test]
async fn a_bmc_that_takes_no_new_password_keeps_its_old_one() {
    let lab = Lab::new("").await;
    lab.bmc_access.accounts().is_stubborn = true;
    assert_eq!(code(&lab.change(false).await), "bmc-password-denied");
    assert!(lab.is_settled().await);
    assert!(target(&"n1".into(), &lab.record().await.spec, &lab.core.keys.sealer).is_ok());
}

#[tokio::test]
async fn a_password_that_an_operator_gives_during_a_change_counts() {
    let lab = Lab::new("").await;
    lab.bmc_access.accounts().lost = Some((2, Lost::Answer));
    lab.change(true).await;
    let pending = lab.record().await.spec.account.pending.unwrap();
    let mut record = lab.record().await;
    let sealer = &lab.core.keys.sealer;
    record.spec.bmc_password = sealer
        .seal(&"given".into(), &bmc_password_purpose(&"n1".into()))
        .unwrap();
    record.spec.account = Default::default();
    let given = record.spec.clone();
    let outcome = AccountOutcome::Proven {
        pending,
        must_change: false,
        certificate: None,
    };
    outcome.apply(&mut record.spec, lab.now);
    assert_eq!(record.spec, given);
}

/// A request of an operator.
async fn by_operator<T>(lab: &Lab, request: T) -> Request<T> {
    let row = MemberRow {
        role: "operator".into(),
        customer: "".into(),
    };
    let mut tx = lab.core.store.write().await.unwrap();
    tx.put_member("olga", &row, 0, lab.now).await.unwrap();
    tx.commit().await.unwrap();
    let mut request = Request::new(request);
    request
        .extensions_mut()
        .insert(ClientIdentity::member("olga", 0).unwrap());
    request
}

fn mutation(lab: &Lab) -> Option<v1::Mutation> {
    Some(v1::Mutation {
        idempotency_key: lab.core.new_id(),
        ..v1::Mutation::default()
    })
}

/// `UpdateNode` with a password, and an address if one is given: without a certificate, because IPMI has none.
async fn update(lab: &Lab, address: &str, password: &str) -> Result<(), Status> {
    let fields = [("spec.bmc.address", address), ("spec.bmc.password", password)];
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    let mut paths: Vec<String> = given.map(|(path, _)| (*path).to_owned()).collect();
    if !address.is_empty() {
        paths.push("spec.bmc.certificate_sha256".into());
    }
    let bmc = v1::Bmc {
        address: address.into(),
        password: password.into(),
        ..v1::Bmc::default()
    };
    let request = v1::UpdateNodeRequest {
        node: Some(v1::Node {
            name: "nodes/n1".into(),
            spec: Some(v1::NodeSpec {
                bmc: Some(bmc),
                ..v1::NodeSpec::default()
            }),
            ..v1::Node::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths }),
        mutation: mutation(lab),
    };
    let nodes = Nodes(Arc::clone(&lab.core));
    nodes.update_node(by_operator(lab, request).await).await.map(|_| ())
}

/// A change with a stored new password and a lost end.
async fn half_changed(has_new: bool) -> Lab {
    let lab = Lab::new("").await;
    lab.bmc_access.accounts().lost = Some((3, Lost::Answer));
    assert_eq!(code(&lab.change(true).await), "bmc-unreachable");
    assert!(lab.record().await.spec.account.pending.is_some());
    if !has_new {
        lab.bmc_access.accounts().list[0].1 = OLD.into();
    }
    lab
}

#[tokio::test]
async fn a_password_that_an_operator_gives_while_a_change_is_pending_locks_no_account() {
    for has_new in [true, false] {
        let mut lab = half_changed(has_new).await;
        // Without pauses for the BMC's counter to reset.
        for given in ["wrong", "wrong as well", "and again"] {
            if lab.is_settled().await {
                break;
            }
            update(&lab, "", given).await.unwrap();
            lab.change(false).await;
            assert_eq!(lab.bmc_access.accounts().locked, 0, "{given}");
        }
        assert_eq!(lab.is_settled().await, has_new);
        if !has_new {
            update(&lab, "", OLD).await.unwrap();
        }
        let mut rounds = 0;
        while !lab.is_settled().await {
            let outcome = lab.change(false).await;
            assert_eq!(lab.bmc_access.accounts().locked, 0, "{outcome:?}");
            let closed = lab.record().await.spec.account.closed_until;
            lab.advance(closed.map_or(1, |until| until.since(lab.now) / 1_000_000 + 1));
            rounds += 1;
            assert!(rounds < 8, "{outcome:?}");
        }
        assert!(!lab.bmc_access.accounts().opens("root", OLD), "the change was ended");
    }
}

#[tokio::test]
async fn a_half_changed_bmc_over_ipmi_takes_a_password_of_the_operator() {
    const IPMI: &str = "ipmi://10.0.0.7?mac=52:54:00:12:34:56";
    let lab = half_changed(true).await;
    let refused = update(&lab, IPMI, "").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("cannot test the old and the new password"),
        "{refused}"
    );
    let refused = update(&lab, IPMI, "longer than the twenty").await.unwrap_err();
    assert!(refused.message().contains("at most 20 bytes over IPMI"), "{refused}");
    assert_eq!(lab.record().await.spec.bmc_address, "https://h", "nothing was changed");

    update(&lab, IPMI, "good").await.unwrap();
    let record = lab.record().await;
    assert!(record.spec.account.pending.is_none());
    assert_eq!(account_of(&lab.core, &record).due(&record.node), None);
    ipmi(&"n1".into(), &record.spec, &lab.core.keys.sealer, &lab.core.ipmi).unwrap();
    let request = v1::RotateBmcPasswordRequest {
        name: "nodes/n1".into(),
        mutation: mutation(&lab),
    };
    let credentials = Credentials(Arc::clone(&lab.core));
    let refused = credentials.rotate_bmc_password(by_operator(&lab, request).await).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("changes no passwords over IPMI"),
        "{refused}"
    );
}

async fn add_factory(lab: &Lab, id: &str, pattern: &str, password: &str, place: i64) {
    let sealed = lab
        .core
        .keys
        .sealer
        .seal(&password.into(), &factory_password_purpose(id));
    let one = FactoryCredential {
        id: id.into(),
        pattern: pattern.into(),
        username: "root".into(),
        password: sealed.unwrap(),
        place,
        created_by: "ann".into(),
        created_at: lab.now,
    };
    let mut tx = lab.core.store.write().await.unwrap();
    tx.add_factory_credential(&one).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn factory_passwords_that_fit_are_tried_in_order_and_never_too_often() {
    let mut lab = Lab::new("").await;
    add_factory(&lab, "other", "Zenith*", "z", 1).await;
    add_factory(&lab, "last", "*", OLD, 90).await;
    for (id, place) in [("a", 10), ("b", 20), ("c", 30)] {
        add_factory(&lab, id, "acme*", id, place).await;
    }
    let mut record = lab.record().await;
    (record.spec.bmc_username, record.spec.bmc_password) = (String::new(), Vec::new());
    let mut tx = lab.core.store.write().await.unwrap();
    tx.save_node(&mut record, lab.now).await.unwrap();
    tx.commit().await.unwrap();
    let mut rounds = 0;
    while is_unknown(&lab.record().await.spec) {
        let outcome = lab.change(rounds % 2 == 1).await;
        let until = lab.record().await.spec.account.closed_until;
        lab.advance(until.map_or(1, |until| until.since(lab.now) / 1_000_000));
        rounds += 1;
        assert!(rounds < 9, "{outcome:?}");
    }
    assert!(lab.is_settled().await);
    let accounts = lab.bmc_access.accounts().clone();
    assert_eq!(
        (accounts.locked, accounts.logins),
        (0, 4),
        "a, b, c and the one that is good"
    );
    assert!(rounds > 1, "it waited between");
    let facts = ServiceRootFacts {
        vendor: "Zenith".into(),
        product: String::new(),
    };
    let fitting = candidates(&lab.core.store, &facts).await.unwrap();
    let ids: Vec<&str> = fitting.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["other", "last"]);
}

#[tokio::test]
async fn revealing_a_password_is_recorded() {
    let lab = Lab::new("").await;
    let (store, sealer) = (&lab.core.store, &lab.core.keys.sealer);
    let revealed = reveal::reveal_from(store, sealer, &"n1".into(), "the control plane is down")
        .await
        .unwrap();
    assert!(revealed.lines().contains(OLD) && revealed.pending.is_none());
    assert!(!format!("{revealed:?}").contains(OLD));
    assert_eq!(lab.events().await, ["security.bmc-password-shown"]);
    lab.bmc_access.accounts().lost = Some((2, Lost::Answer));
    lab.change(true).await;
    let revealed = reveal::reveal_from(store, sealer, &"n1".into(), "again").await.unwrap();
    assert!(revealed.pending.is_some(), "one of the two is good");
}

#[tokio::test]
async fn a_missing_database_is_named_and_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let config = testing::config(dir.path(), "");
    let now = clock::system_time(clock::now());
    KeyFiles::load_or_create(&config.data_dir, "Rackwright test", now, Arc::new(SystemRng)).unwrap();
    let file = config.database.file().unwrap();
    let refused = reveal::reveal(&config, &"n1".into(), "a test").await.unwrap_err();
    let message = refused.to_string();
    assert!(message.contains(&file.display().to_string()), "{message}");
    assert!(message.contains("contains no site"), "{message}");
    assert!(!file.exists());
}
