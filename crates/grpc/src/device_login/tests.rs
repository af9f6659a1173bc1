//! Logins with a device code at a provider on loopback, through all layers, without connections.

use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::session_service_client::SessionServiceClient;
use rackwright_ground::testing::TestCore;
use rackwright_identity::{ClientIdentity, Validity};
use rackwright_lifecycle::seconds;
use rackwright_store::{AuditFilter, Scope};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tonic::Code;
use tonic::service::Routes;
use tonic_types::StatusExt as _;

use super::*;
use crate::access::Refusals;
use crate::feature_tests::clusters::hall;
use crate::played_provider::{CLIENT, Decision, Fault, Provider as Fake};
use crate::tenancy::{as_identity, join, mutation};
use crate::{Layered, around, methods, routes};

/// A control plane with logins by device codes. "olga" is an invited operator.
struct Lab {
    core: TestCore,
    provider: Fake,
    services: Layered<Routes>,
    _secret: tempfile::NamedTempFile,
}

impl Lab {
    async fn new() -> Self {
        Self::with("device_login: true, ").await
    }

    async fn with(settings: &str) -> Self {
        let provider = Fake::start(|| clock::now().0.div_euclid(1_000_000)).await;
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), CLIENT.1).unwrap();
        let web = format!(
            "web: {{session_hours: 2, oidc: {{{settings}issuer: '{}', client_id: {}, client_secret_file: {}, name: the lab, \
             members: [{{group: night, role: viewer}}, {{group: ops, role: operator}}, \
             {{group: acme, role: customer-admin, customer: acme}}]}}}}\n",
            provider.issuer,
            CLIENT.0,
            secret.path().display()
        );
        let core = hall(2, &web).await;
        join(&core, "olga", "operator", "").await;
        let refusals = Refusals::new(core.metrics.calls_refused());
        let services = around(routes(&core), &core, (&refusals, &methods().unwrap()), None);
        Self {
            core,
            provider,
            services,
            _secret: secret,
        }
    }

    async fn begin(&self, csr_pem: &str) -> Result<v1::BeginDeviceLoginResponse, Status> {
        let request = v1::BeginDeviceLoginRequest {
            csr_pem: csr_pem.into(),
        };
        let begun = AuthServiceClient::new(self.services.clone())
            .begin_device_login(request)
            .await;
        begun.map(tonic::Response::into_inner)
    }

    async fn finish(&self, login: &str) -> Result<v1::FinishDeviceLoginResponse, Status> {
        let request = v1::FinishDeviceLoginRequest { login: login.into() };
        let ended = AuthServiceClient::new(self.services.clone())
            .finish_device_login(request)
            .await;
        ended.map(tonic::Response::into_inner)
    }

    /// A login of a person with these claims.
    async fn log_in(&self, claims: Value) -> Result<v1::Credential, Status> {
        let begun = self.begin(&new_key().1).await?;
        self.provider.decide(&begun.user_code, Decision::Allowed(claims));
        let ended = self.finish(&begun.login).await?;
        Ok(ended.credential.expect("a certificate"))
    }

    async fn who(&self, credential: &v1::Credential) -> Result<v1::WhoAmIResponse, Status> {
        let caller = as_identity(&self.core, identity(credential));
        let who = AuthServiceClient::new(caller).who_am_i(v1::WhoAmIRequest {}).await;
        who.map(tonic::Response::into_inner)
    }

    async fn kinds(&self, target: &str) -> Vec<String> {
        let events = self.core.store.events(&Scope::Site, 0, target, 99).await.unwrap();
        events.iter().map(|event| event.kind.to_string()).collect()
    }

    async fn recorded(&self, method: &str) -> Vec<String> {
        let filter = AuditFilter {
            method: format!("AuthService/{method}"),
            ..AuditFilter::default()
        };
        let records = self.core.store.audit(&filter, 0, 99).await.unwrap();
        records.into_iter().map(|record| record.outcome).collect()
    }
}

fn person(subject: &str, name: &str, groups: &[&str]) -> Value {
    json!({"sub": subject, "preferred_username": name, "groups": groups})
}

fn new_key() -> (rcgen::KeyPair, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    (key, request.pem().unwrap())
}

fn certificate(credential: &v1::Credential) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap()
}

fn identity(credential: &v1::Credential) -> ClientIdentity {
    rackwright_identity::identify(&certificate(credential)).unwrap()
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, words: &str) {
    let status = answer.unwrap_err();
    assert!(status.code() == code && status.message().contains(words), "{status:?}");
}

#[tokio::test]
async fn a_person_of_a_group_gets_a_certificate_for_the_hours_of_a_session() {
    let lab = Lab::new().await;
    let (key, csr_pem) = new_key();
    let begun = lab.begin(&csr_pem).await.unwrap();
    assert_eq!(
        (begun.provider.as_str(), begun.user_code.as_str()),
        ("the lab", "CODE-0")
    );
    assert_eq!(begun.interval.unwrap().seconds, 5);
    assert!(begun.verification_url.starts_with(&lab.provider.issuer));
    assert!(!begun.login.contains("device-0"));
    for is_slow in [false, true] {
        lab.provider.set_slow(is_slow);
        assert_eq!(lab.finish(&begun.login).await.unwrap(), pending(is_slow));
    }
    lab.provider.set_slow(false);
    assert_eq!(lab.core.store.member("ann").await.unwrap(), None);

    let ann = Decision::Allowed(person("1", "ann", &["guests", "ops"]));
    lab.provider.decide(&begun.user_code, ann);
    let credential = lab.finish(&begun.login).await.unwrap().credential.unwrap();
    assert_eq!(
        (credential.member.as_str(), credential.role()),
        ("ann", v1::Role::Operator)
    );
    let leaf = certificate(&credential);
    assert!(contains(&leaf, key.public_key_raw()), "for the key of the program");
    let now = clock::system_time(clock::now());
    let left = Validity::of(&leaf).unwrap().not_after.duration_since(now).unwrap();
    let minutes = left.as_secs() / 60;
    assert!((118..=120).contains(&minutes), "web.session_hours is 2: {minutes}");
    assert_eq!(lab.who(&credential).await.unwrap().member, "ann");
    assert_eq!(
        lab.kinds("members/ann").await,
        ["security.member-joined", "security.session-opened"]
    );
    assert_eq!(lab.recorded("BeginDeviceLogin").await, ["OK"]);
    assert_eq!(
        lab.recorded("FinishDeviceLogin").await,
        ["OK"],
        "not the questions before"
    );
}

#[tokio::test]
async fn a_login_gives_one_certificate_and_only_for_its_own_key() {
    let lab = Lab::new().await;
    let ((own, own_csr), (thief, thiefs_csr)) = (new_key(), new_key());
    let begun = lab.begin(&own_csr).await.unwrap();
    let of_thief = lab.begin(&thiefs_csr).await.unwrap();
    lab.provider.set_fault(Fault::ReusableCode);
    let ann = Decision::Allowed(person("1", "ann", &["ops"]));
    lab.provider.decide(&begun.user_code, ann);
    // The thief's own login is not the one that was allowed, and a mixed text is none.
    assert_eq!(lab.finish(&of_thief.login).await.unwrap(), pending(false));
    let (half, of_half) = (begun.login.len() / 2, of_thief.login.len() / 2);
    let mixed = format!("{}{}", &begun.login[..half], &of_thief.login[of_half..]);
    refused(lab.finish(&mixed).await, Code::Unauthenticated, "not known");
    // A thief of the sealed text gets a certificate for the key of the program that began.
    let credential = lab.finish(&begun.login).await.unwrap().credential.unwrap();
    let leaf = certificate(&credential);
    assert!(contains(&leaf, own.public_key_raw()) && !contains(&leaf, thief.public_key_raw()));
    // The provider would give the token again.
    refused(lab.finish(&begun.login).await, Code::Unauthenticated, "used before");
    lab.provider.set_fault(Fault::None);
    lab.finish(&begun.login).await.unwrap_err();
}

#[tokio::test]
async fn a_login_that_was_refused_changed_or_is_too_old_gives_nothing() {
    let lab = Lab::new().await;
    for (decision, code, words) in [
        (Decision::Denied, Code::PermissionDenied, "refused on the page"),
        (Decision::Expired, Code::Unauthenticated, "not allowed in time"),
    ] {
        let begun = lab.begin(&new_key().1).await.unwrap();
        lab.provider.decide(&begun.user_code, decision);
        refused(lab.finish(&begun.login).await, code, words);
    }
    // Sealed by this control plane, with an earlier end. The provider is not asked.
    let device = DeviceLogin {
        device_code: "device-0".to_owned().into(),
        user_code: String::new(),
        url: String::new(),
        complete_url: None,
        valid_s: 60,
        interval_s: 5,
    };
    let questions = lab.provider.fetches("questions");
    let past = clock::now().plus(-seconds(60));
    let old = DevicePending::new(lab.core.rng.as_ref(), past, &device, new_key().1).unwrap();
    let old = old.seal(&lab.core.keys.sealer).unwrap();
    refused(lab.finish(&old).await, Code::Unauthenticated, "not allowed in time");
    let other = Lab::new().await;
    let of_other = other.begin(&new_key().1).await.unwrap().login;
    for wrong in ["", "rw1_", &of_other] {
        refused(lab.finish(wrong).await, Code::Unauthenticated, "not known");
    }
    assert_eq!(lab.provider.fetches("questions"), questions);
}

#[tokio::test]
async fn the_groups_decide_at_each_login() {
    let lab = Lab::new().await;
    for groups in [&[][..], &["guests"], &["OPS"]] {
        let refusal = lab.log_in(person("1", "ann", groups)).await;
        refused(refusal, Code::PermissionDenied, "in no group that may log in");
    }
    assert_eq!(lab.core.store.member("ann").await.unwrap(), None);
    let operator = lab.log_in(person("1", "ann", &["ops"])).await.unwrap();
    // Fewer rights: the earlier certificate has them too.
    let viewer = lab.log_in(person("1", "ann", &["night", "ops"])).await.unwrap();
    for credential in [&operator, &viewer] {
        assert_eq!(lab.who(credential).await.unwrap().role(), v1::Role::Viewer);
    }
    let of_acme = lab.log_in(person("1", "ann", &["acme"])).await.unwrap();
    assert_eq!(
        (of_acme.role(), of_acme.customer.as_str()),
        (v1::Role::CustomerAdmin, "acme")
    );
    refused(lab.who(&operator).await, Code::Unauthenticated, "");
    // No group any more: the next login is refused, and ends what is left.
    limits(&lab.core).refused.note_accepted("an unknown address");
    let gone = lab.log_in(person("1", "ann", &["guests"])).await;
    refused(gone, Code::PermissionDenied, "in no group that may log in");
    refused(lab.who(&of_acme).await, Code::Unauthenticated, "");
    // The name of a member who was invited.
    let taken = lab.log_in(person("2", "olga", &["ops"])).await;
    refused(taken, Code::AlreadyExists, "another login");
}

#[tokio::test]
async fn a_removed_member_has_no_certificate_any_more() {
    let lab = Lab::new().await;
    let mut olga = AuthServiceClient::new(as_identity(&lab.core, ClientIdentity::member("olga", 0).unwrap()));
    let first = lab.log_in(person("1", "ann", &["ops"])).await.unwrap();
    let revoke = v1::RevokeMemberRequest {
        name: "members/ann".into(),
        mutation: mutation("r"),
    };
    olga.revoke_member(revoke).await.unwrap();
    refused(lab.who(&first).await, Code::Unauthenticated, "");
    let begun = lab.begin(&new_key().1).await.unwrap();
    let second = lab.log_in(person("1", "ann", &["ops"])).await.unwrap();
    assert_eq!(lab.who(&second).await.unwrap().member, "ann", "a group still allows it");
    let delete = v1::DeleteMemberRequest {
        name: "members/ann".into(),
        mutation: mutation("d"),
    };
    olga.delete_member(delete).await.unwrap();
    refused(lab.who(&second).await, Code::Unauthenticated, "");
    // A login that was under way makes a new member: the earlier certificates stay without effect.
    let ann = Decision::Allowed(person("1", "ann", &["night"]));
    lab.provider.decide(&begun.user_code, ann);
    let third = lab.finish(&begun.login).await.unwrap().credential.unwrap();
    assert_eq!(lab.who(&third).await.unwrap().role(), v1::Role::Viewer);
    refused(lab.who(&first).await, Code::Unauthenticated, "");
    refused(lab.who(&second).await, Code::Unauthenticated, "");
}

#[tokio::test]
async fn a_certificate_of_the_provider_cannot_prolong_itself() {
    let lab = Lab::new().await;
    let ann = lab.log_in(person("1", "ann", &["ops"])).await.unwrap();
    let caller = || as_identity(&lab.core, identity(&ann));
    let renew = v1::RenewCredentialRequest { csr_pem: new_key().1 };
    let refusal = AuthServiceClient::new(caller())
        .renew_credential(renew)
        .await
        .unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}");
    let hint = refusal.get_details_localized_message().unwrap().message;
    assert!(hint.contains("rackwright login --oidc"), "{hint}");
    let token = v1::CreateLoginTokenRequest {
        mutation: mutation("t"),
    };
    let token = SessionServiceClient::new(caller()).create_login_token(token).await;
    refused(token, Code::FailedPrecondition, "logs in by the identity provider");
    // It does not count as the login of an operator either: the last invited one stays.
    let delete = v1::DeleteMemberRequest {
        name: "members/olga".into(),
        mutation: mutation("d"),
    };
    let last = AuthServiceClient::new(caller()).delete_member(delete).await;
    refused(last, Code::FailedPrecondition, "last operator");
}

#[tokio::test]
async fn a_token_with_a_fault_gives_no_certificate() {
    for fault in [
        Fault::Audience,
        Fault::Issuer,
        Fault::Expired,
        Fault::Unsigned,
        Fault::ClientSecret,
        Fault::PublicKey,
        Fault::UnknownKey,
        Fault::NoToken,
    ] {
        let lab = Lab::new().await;
        let begun = lab.begin(&new_key().1).await.unwrap();
        lab.provider.set_fault(fault);
        let ann = Decision::Allowed(person("1", "ann", &["ops"]));
        lab.provider.decide(&begun.user_code, ann);
        refused(
            lab.finish(&begun.login).await,
            Code::Unauthenticated,
            "begin another login",
        );
        assert_eq!(lab.core.store.member("ann").await.unwrap(), None, "{fault:?}");
    }
}

#[tokio::test]
async fn without_the_setting_or_a_provider_there_are_no_such_logins() {
    let off = Lab::with("").await;
    let none = Lab {
        core: hall(2, "web: {}\n").await,
        ..Lab::with("").await
    };
    let refusals = Refusals::new(none.core.metrics.calls_refused());
    let services = around(routes(&none.core), &none.core, (&refusals, &methods().unwrap()), None);
    let none = Lab { services, ..none };
    let on = Lab::new().await;
    let begun = on.begin(&new_key().1).await.unwrap();
    for lab in [&off, &none] {
        let words = "no logins with a device code";
        refused(lab.begin(&new_key().1).await, Code::FailedPrecondition, words);
        refused(lab.finish(&begun.login).await, Code::FailedPrecondition, words);
        assert_eq!(lab.provider.fetches("device") + lab.provider.fetches("questions"), 0);
    }
    // A provider without device codes: the reason is in the log.
    on.provider.set_fault(Fault::NoDevices);
    let fresh = Lab::new().await;
    fresh.provider.set_fault(Fault::NoDevices);
    refused(
        fresh.begin(&new_key().1).await,
        Code::FailedPrecondition,
        "begins no login",
    );
    for csr_pem in ["", "no request"] {
        refused(on.begin(csr_pem).await, Code::InvalidArgument, "csr_pem");
    }
}

#[tokio::test]
async fn an_address_cannot_try_without_end() {
    let lab = Lab::new().await;
    for _ in 0..5 {
        refused(lab.finish("a guess").await, Code::Unauthenticated, "not known");
    }
    assert_eq!(lab.kinds("web").await, ["security.logins-refused"]);
    // Some more: now the address waits for a minute.
    for _ in 0..6 {
        limits(&lab.core).refused.note_refused("an unknown address");
    }
    let words = "try again in";
    refused(lab.finish("a guess").await, Code::ResourceExhausted, words);
    refused(lab.begin(&new_key().1).await, Code::ResourceExhausted, words);
    limits(&lab.core).refused.note_accepted("an unknown address");

    let mut begun = Vec::new();
    let refusal = loop {
        match lab.begin(&new_key().1).await {
            Ok(login) => begun.push(login),
            Err(refusal) => break refusal,
        }
        assert!(begun.len() < 100, "without a limit");
    };
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
    assert!((20..=30).contains(&begun.len()), "{}", begun.len());
    // Questions beyond the limit do not reach the provider.
    assert_eq!(lab.finish(&begun[0].login).await.unwrap(), pending(false));
    tokio::time::pause();
    let mut allowed = 0;
    while limits(&lab.core).questions.allows("an unknown address") {
        allowed += 1;
    }
    assert!((50..=60).contains(&allowed), "{allowed}");
    assert_eq!(lab.finish(&begun[0].login).await.unwrap(), pending(true));
    assert_eq!(lab.provider.fetches("questions"), 1);
}

#[tokio::test]
async fn questions_that_wait_for_the_provider_are_limited() {
    let lab = Lab::new().await;
    let begun = lab.begin(&new_key().1).await.unwrap();
    let provider = login_provider::of(&lab.core).unwrap();
    let all = u32::try_from(provider.device_exchanges.available_permits()).unwrap();
    let turns = provider.device_exchanges.acquire_many(all).await.unwrap();
    assert_eq!(lab.finish(&begun.login).await.unwrap(), pending(true), "it asks later");
    refused(lab.begin(&new_key().1).await, Code::ResourceExhausted, "at once");
    assert_eq!(provider.exchanges.available_permits(), 16, "browsers are not held up");
    drop(turns);
    assert_eq!(lab.finish(&begun.login).await.unwrap(), pending(false));
}
