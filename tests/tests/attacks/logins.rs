//! Attacks on logins by an identity provider: answers of other logins, forged tokens, names of other members.

#[path = "../../../crates/oidc/tests/provider/mod.rs"]
pub mod provider;

use std::path::Path;

use rackwright_tests::web_console::{Console, OWN_PAGE};
use serde_json::{Value, json};

use self::provider::{CLIENT, Fault, Provider};

const BEGIN: &str = "/auth/oidc";
const WHO: &str = "/rackwright.v1.AuthService/WhoAmI";

pub fn now_s() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs().try_into().expect("in this era")
}

/// A control plane with members that log in at a provider of the test.
async fn start(dir: &Path) -> (Console, Provider) {
    let provider = Provider::start(now_s).await;
    let secret = dir.join("client-secret");
    std::fs::write(&secret, CLIENT.1).expect("a file");
    let oidc = format!(
        ", oidc: {{issuer: \"{}\", client_id: {}, client_secret_file: {}, members: [{{group: ops, role: operator}}]}}",
        provider.issuer,
        CLIENT.0,
        secret.display()
    );
    (Console::start(dir, &oidc).await, provider)
}

/// A browser: its file of cookies.
struct Browser<'a> {
    console: &'a Console,
    provider: &'a Provider,
    jar: String,
}

impl Browser<'_> {
    /// A request; the address to which the answer leads.
    fn go(&self, path: &str, from: &str) -> String {
        let header = format!("Sec-Fetch-Site: {from}");
        let arguments = [
            "--cookie",
            &self.jar,
            "--cookie-jar",
            &self.jar,
            "--header",
            &header,
            "--write-out",
            "\n%{redirect_url}",
        ];
        self.console.curl(&arguments, path).0
    }

    /// Begins a login that a person continues at the provider. Returns the path to which the provider sends the browser.
    fn begin(&self, claims: &Value) -> String {
        let url = self.go(BEGIN, "same-origin");
        let (code, state) = self.provider.log_in(&url, claims);
        format!(
            "{BEGIN}/callback?code={code}&state={state}&iss={}",
            self.provider.issuer
        )
    }

    fn is_logged_in(&self) -> bool {
        let call = [&OWN_PAGE[..], &["--cookie", &self.jar, "--json", "{}"]].concat();
        self.console.curl(&call, WHO).0.starts_with("200 ")
    }
}

fn browser<'a>((console, provider): &'a (Console, Provider), dir: &Path, name: &str) -> Browser<'a> {
    Browser {
        console,
        provider,
        jar: dir.join(name).display().to_string(),
    }
}

pub fn person(subject: &str, name: &str, groups: &[&str]) -> Value {
    json!({"sub": subject, "preferred_username": name, "groups": groups})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_another_login_opens_no_session() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = start(dir.path()).await;
    let again = format!("{}/login?failure=again", place.0.url);
    let (thief, victim) = (
        browser(&place, dir.path(), "thief"),
        browser(&place, dir.path(), "victim"),
    );
    // A page of another site neither begins a login, nor ends the thief's login in the victim's browser.
    assert_eq!(victim.go(BEGIN, "cross-site"), again);
    let own = thief.begin(&person("1", "mallory", &["ops"]));
    assert_eq!(victim.go(&own, "cross-site"), again, "without a login of its own");
    let good = victim.begin(&person("2", "ann", &["ops"]));
    assert_eq!(victim.go(&own, "cross-site"), again, "with one");
    assert!(!victim.is_logged_in());
    // The thief has seen the victim's answer. The wrong answer has ended the victim's login.
    assert_eq!(thief.go(&good, "cross-site"), again);
    assert_eq!(victim.go(&good, "cross-site"), again);
    assert!(!thief.is_logged_in() && !victim.is_logged_in());
    // An answer that was used, although the provider takes its code again, and with the cookie of then.
    place.1.set_fault(Fault::ReusableCode);
    let good = victim.begin(&person("2", "ann", &["ops"]));
    let cookies = std::fs::read(&victim.jar).expect("cookies");
    assert_eq!(victim.go(&good, "cross-site"), format!("{}/", place.0.url));
    assert!(victim.is_logged_in());
    std::fs::write(&thief.jar, cookies).expect("a file");
    assert_eq!(thief.go(&good, "cross-site"), again);
    assert!(!thief.is_logged_in());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_token_opens_no_session() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = start(dir.path()).await;
    let faults = [
        Fault::Unsigned,
        Fault::PublicKey,
        Fault::ForeignKey,
        Fault::Audience,
        Fault::Nonce,
    ];
    for fault in faults {
        place.1.set_fault(fault);
        let thief = browser(&place, dir.path(), &format!("{fault:?}"));
        let refused = thief.go(&thief.begin(&person("1", "ann", &["ops"])), "cross-site");
        assert_eq!(refused, format!("{}/login?failure=invalid", place.0.url), "{fault:?}");
        assert!(!thief.is_logged_in(), "{fault:?}");
    }
    let site = &place.0.plane.site;
    let audit = site.cli(["audit", "list", "--failed", "-o", "json"]);
    assert_eq!(
        audit.matches("SessionService/OpenSession").count(),
        faults.len(),
        "{audit}"
    );
    assert!(!site.cli(["member", "list", "-o", "name"]).contains("members/ann"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_of_the_provider_takes_over_no_member_and_loses_rights_with_the_group() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = start(dir.path()).await;
    let site = &place.0.plane.site;
    let one = browser(&place, dir.path(), "one");
    let log_in = |claims: &Value| {
        let end = one.go(&one.begin(claims), "cross-site");
        end.trim_start_matches(&place.0.url).to_owned()
    };
    // "operator" is the member that started this site.
    assert_eq!(log_in(&person("1", "operator", &["ops"])), "/login?failure=name-taken");
    assert_eq!(log_in(&person("1", "ann", &["ops"])), "/");
    assert!(one.is_logged_in());
    let other = browser(&place, dir.path(), "other");
    let refused = other.go(&other.begin(&person("2", "ann", &["ops"])), "cross-site");
    assert!(refused.ends_with("/login?failure=name-taken"), "{refused}");
    for words in [
        &["token", "create", "ann", "--role", "operator"][..],
        &["member", "set-role", "ann", "viewer"],
    ] {
        let refused = site.try_cli(words.iter().copied());
        assert!(!refused.status.success(), "{refused:?}");
    }
    assert_eq!(log_in(&person("1", "ann", &["guests"])), "/login?failure=no-group");
    assert!(!one.is_logged_in(), "the former session has ended too");
}
