//! Logins at a provider on loopback, through all layers, without connections of browsers.

use rackwright_ground::testing::{TestCore, core_with};
use rackwright_store::{AuditFilter, MemberOrigin, Scope};
use tonic::service::Routes;
use tower::ServiceExt as _;

use super::*;
use crate::access::Refusals;
use crate::feature_tests::clusters::hall;
use crate::played_provider::{CLIENT, Fault, Provider as Fake};
use crate::tenancy::join;
use crate::{Layered, around, methods, routes};

const WHO: &str = "/rackwright.v1.AuthService/WhoAmI";

fn now_s() -> i64 {
    clock::now().0.div_euclid(1_000_000)
}

/// A web console with members that log in at a provider. "olga" is an invited operator.
struct Lab {
    core: TestCore,
    provider: Fake,
    services: Layered<Routes>,
    site: Arc<Site>,
    _secret: tempfile::NamedTempFile,
}

impl Lab {
    async fn new() -> Self {
        Self::with(false).await
    }

    /// With a site that has the customers acme and bolt.
    async fn with_site() -> Self {
        Self::with(true).await
    }

    async fn with(has_site: bool) -> Self {
        let provider = Fake::start(now_s).await;
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), format!("{}\n", CLIENT.1)).unwrap();
        let web = format!(
            "web: {{oidc: {{issuer: '{}', client_id: {}, client_secret_file: {}, name: the lab, members: [\
             {{group: night, role: viewer}}, {{group: ops, role: operator}}, \
             {{group: gone, role: customer-user, customer: gone}}, \
             {{group: acme, role: customer-admin, customer: acme}}]}}}}\n",
            provider.issuer,
            CLIENT.0,
            secret.path().display()
        );
        let core = match has_site {
            true => hall(2, &web).await,
            false => core_with(&web).await,
        };
        join(&core, "olga", "operator", "").await;
        let methods = methods().unwrap();
        let site = Site::new(&core).unwrap();
        let refusals = Refusals::new(core.metrics.calls_refused());
        let services = around(routes(&core), &core, (&refusals, &methods), Some(site.clone()));
        Self {
            core,
            provider,
            services,
            site,
            _secret: secret,
        }
    }

    async fn get(&self, path: &str, cookies: &str, from: &'static str) -> Response<Body> {
        let request = Request::get(path)
            .header("sec-fetch-site", from)
            .header(COOKIE, format!("theme=dark; {cookies}"))
            .header(USER_AGENT, "a browser");
        let response: Result<Response<Body>, Infallible> = self
            .services
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await;
        response.unwrap()
    }

    async fn call(&self, method: &str, cookie: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::post(method)
            .header(CONTENT_TYPE, "application/json")
            .header("sec-fetch-site", "same-origin")
            .header(COOKIE, cookie);
        let request = request.body(Body::new(axum::body::Body::from(body.to_string())));
        let response: Result<Response<Body>, Infallible> = self.services.clone().oneshot(request.unwrap()).await;
        let response = response.unwrap();
        let status = response.status();
        let bytes = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 20).await;
        (status, serde_json::from_slice(&bytes.unwrap()).unwrap_or(Value::Null))
    }

    /// A login as far as the provider's answer: the cookie of the browser, and the address to which it goes back.
    async fn begin(&self, claims: &Value, cookies: &str) -> (String, String) {
        let begun = self.get(BEGIN, cookies, "same-origin").await;
        assert_eq!(begun.status(), StatusCode::SEE_OTHER);
        let cookie = set(&begun, PENDING_NAME).unwrap();
        let (code, state) = self.provider.log_in(&location(&begun), claims);
        let back = format!("{CALLBACK}?code={code}&state={state}&iss={}", self.provider.issuer);
        (cookie, back)
    }

    async fn log_in(&self, claims: &Value) -> Response<Body> {
        let (cookie, back) = self.begin(claims, "").await;
        self.get(&back, &cookie, "cross-site").await
    }

    /// The code with which a login fails.
    async fn failure(&self, claims: &Value) -> String {
        failure_of(&self.log_in(claims).await)
    }

    async fn session(&self, claims: &Value) -> String {
        let response = self.log_in(claims).await;
        assert_eq!(location(&response), "/");
        set(&response, COOKIE_NAME).unwrap()
    }

    async fn who(&self, session: &str) -> (StatusCode, Value) {
        self.call(WHO, session, &json!({})).await
    }

    async fn kinds(&self, member: &str) -> Vec<String> {
        let events = self.core.store.events(&Scope::Site, 0, member, 99).await.unwrap();
        events.iter().map(|event| event.kind.to_string()).collect()
    }
}

fn location(response: &Response<Body>) -> String {
    response.headers()[LOCATION].to_str().unwrap().to_owned()
}

fn failure_of(response: &Response<Body>) -> String {
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(set(response, COOKIE_NAME), None, "no session");
    let location = location(response);
    location.strip_prefix("/login?failure=").unwrap().to_owned()
}

/// `NAME=VALUE` of a cookie that an answer sets, with a value.
fn set(response: &Response<Body>, name: &str) -> Option<String> {
    let cookies = response.headers().get_all(SET_COOKIE).into_iter();
    let of_name = |cookie: &&str| cookie.starts_with(&format!("{name}=")) && !cookie.contains("Max-Age=0;");
    let found = cookies.map(|cookie| cookie.to_str().unwrap()).find(of_name)?;
    let (pair, attributes) = found.split_once("; ").unwrap();
    let wanted = match name {
        COOKIE_NAME => "Path=/; Max-Age=43200; Secure; HttpOnly; SameSite=Strict",
        _ => "Path=/; Max-Age=600; Secure; HttpOnly; SameSite=Lax",
    };
    assert_eq!(attributes, wanted);
    Some(pair.to_owned())
}

fn person(subject: &str, name: &str, groups: &[&str]) -> Value {
    json!({"sub": subject, "preferred_username": name, "groups": groups})
}

#[tokio::test]
async fn a_person_of_a_group_logs_in_and_becomes_a_member() {
    let lab = Lab::new().await;
    let (cookie, back) = lab.begin(&person("1", "ann", &["guests", "ops"]), "").await;
    let response = lab.get(&back, &cookie, "cross-site").await;
    assert_eq!(
        (response.status(), location(&response)),
        (StatusCode::SEE_OTHER, "/".into())
    );
    let session = set(&response, COOKIE_NAME).unwrap();
    let (status, who) = lab.who(&session).await;
    assert_eq!(
        (status, &who["member"], &who["role"]),
        (StatusCode::OK, &json!("ann"), &json!("ROLE_OPERATOR"))
    );
    let ann = lab.core.store.member("ann").await.unwrap().unwrap();
    let origin = MemberOrigin {
        issuer: lab.provider.issuer.clone(),
        subject: "1".into(),
    };
    assert_eq!((ann.origin, ann.certificate_ends_at), (Some(origin), None));
    let (_, sessions) = lab
        .call("/rackwright.v1.SessionService/ListSessions", &session, &json!({}))
        .await;
    assert_eq!(sessions["sessions"][0]["client"], "a browser", "{sessions}");
    assert_eq!(
        lab.kinds("members/ann").await,
        ["security.member-joined", "security.session-opened"]
    );

    // The same answer again, in the same browser, and once more although the provider would take the code again.
    assert_eq!(failure_of(&lab.get(&back, &cookie, "cross-site").await), "invalid");
    lab.provider.set_fault(Fault::ReusableCode);
    let (cookie, back) = lab.begin(&person("1", "ann", &["ops"]), "").await;
    assert_eq!(location(&lab.get(&back, &cookie, "cross-site").await), "/");
    assert_eq!(failure_of(&lab.get(&back, &cookie, "cross-site").await), "again");
    let methods = lab.get(METHODS, "", "same-origin").await;
    let bytes = axum::body::to_bytes(axum::body::Body::new(methods.into_body()), 999).await;
    assert_eq!(bytes.unwrap(), json!({"oidc": {"name": "the lab"}}).to_string());
}

#[tokio::test]
async fn an_invalid_token_logs_no_one_in_and_is_recorded() {
    for fault in [
        Fault::Nonce,
        Fault::Audience,
        Fault::Issuer,
        Fault::Expired,
        Fault::Unsigned,
        Fault::ClientSecret,
        Fault::PublicKey,
        Fault::UnknownKey,
    ] {
        let lab = Lab::new().await;
        lab.provider.set_fault(fault);
        assert_eq!(lab.failure(&person("1", "ann", &["ops"])).await, "invalid", "{fault:?}");
        assert_eq!(lab.core.store.member("ann").await.unwrap(), None, "{fault:?}");
    }
    let lab = Lab::new().await;
    lab.provider.set_fault(Fault::Nonce);
    for _ in 0..5 {
        assert_eq!(lab.failure(&person("1", "ann", &["ops"])).await, "invalid");
    }
    assert_eq!(lab.kinds("web").await, ["security.logins-refused"]);
    let begun = lab.get(BEGIN, "", "same-origin").await;
    assert_eq!(location(&begun), "/login?failure=wait");
    let filter = AuditFilter {
        method: "SessionService/OpenSession".into(),
        only_failed: true,
        ..AuditFilter::default()
    };
    let refused = lab.core.store.audit(&filter, 0, 99).await.unwrap();
    assert_eq!(refused.len(), 5);
    assert!(
        refused.iter().all(|record| record.outcome == "UNAUTHENTICATED"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn only_the_browser_that_began_a_login_ends_it() {
    let lab = Lab::new().await;
    let ann = person("1", "ann", &["ops"]);
    let (cookie, back) = lab.begin(&ann, "").await;
    let (other, _) = lab.begin(&ann, "").await;
    let (head, value) = cookie.split_at(cookie.len() / 2);
    let changed = format!(
        "{head}{}{}",
        if value.starts_with('A') { 'B' } else { 'A' },
        &value[1..]
    );
    let without_state = back.replace("state=", "other=");
    let repeated = format!("{back}&state=rw1_x");
    for (cookies, path) in [
        ("", &back),
        (other.as_str(), &back),
        (changed.as_str(), &back),
        (cookie.as_str(), &without_state),
        (cookie.as_str(), &repeated),
        (cookie.as_str(), &CALLBACK.to_owned()),
    ] {
        assert_eq!(
            failure_of(&lab.get(path, cookies, "cross-site").await),
            "again",
            "{path}"
        );
    }
    let elsewhere = back.replace(&lab.provider.issuer, "https://evil.example");
    assert_eq!(failure_of(&lab.get(&elsewhere, &cookie, "cross-site").await), "invalid");
    let refused = back.replace("code=", "error=access_denied&code=");
    assert_eq!(failure_of(&lab.get(&refused, &cookie, "cross-site").await), "denied");
    let failed = back.replace("code=", "error=server_error&error_description=Hello&code=");
    assert_eq!(
        failure_of(&lab.get(&failed, &cookie, "cross-site").await),
        "unavailable"
    );
    // None of them has used the code.
    assert_eq!(location(&lab.get(&back, &cookie, "cross-site").await), "/");
}

#[tokio::test]
async fn another_site_cannot_begin_a_login() {
    let lab = Lab::new().await;
    for from in ["cross-site", "same-site"] {
        let response = lab.get(BEGIN, "", from).await;
        assert_eq!(failure_of(&response), "again", "{from}");
        assert_eq!(set(&response, PENDING_NAME), None);
    }
    assert!(location(&lab.get(BEGIN, "", "none").await).starts_with(&lab.provider.issuer));
    for path in [BEGIN, CALLBACK, METHODS] {
        let (status, _) = lab.call(path, "", &json!({})).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
}

#[tokio::test]
async fn a_login_takes_the_place_of_the_browsers_former_session() {
    let lab = Lab::new().await;
    let first = lab.session(&person("1", "ann", &["ops"])).await;
    let (cookie, back) = lab.begin(&person("2", "ben", &["night"]), &first).await;
    assert!(!cookie.contains(first.split_once('=').unwrap().1));
    let response = lab.get(&back, &cookie, "cross-site").await;
    let second = set(&response, COOKIE_NAME).unwrap();
    assert_eq!(lab.who(&first).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(lab.who(&second).await.1["role"], "ROLE_VIEWER");
}

#[tokio::test]
async fn a_login_takes_over_no_other_member() {
    let lab = Lab::new().await;
    assert_eq!(lab.failure(&person("1", "olga", &["ops"])).await, "name-taken");
    assert_eq!(lab.core.store.member("olga").await.unwrap().unwrap().origin, None);
    let ann = lab.session(&person("1", "ann", &["ops"])).await;
    assert_eq!(lab.failure(&person("2", "ann", &["ops"])).await, "name-taken");
    // The person's name at the provider has changed; the member is the same.
    let renamed = lab.session(&person("1", "anna", &["ops"])).await;
    assert_eq!(lab.who(&renamed).await.1["member"], "ann");
    for name in ["", "a b", "../x", "ann/ops"] {
        assert_eq!(lab.failure(&person("3", name, &["ops"])).await, "no-name", "{name:?}");
        lab.site.logins.note_accepted("an unknown address");
    }
    // No invitation gives a certificate of a person's member, and no one changes its role here.
    for (method, request) in [
        (
            "CreateToken",
            json!({"member": "ann", "role": "ROLE_VIEWER", "mutation": {"idempotencyKey": "a"}}),
        ),
        (
            "SetMemberRole",
            json!({"name": "members/ann", "role": "ROLE_VIEWER", "mutation": {"idempotencyKey": "b"}}),
        ),
    ] {
        let (status, refused) = lab
            .call(&format!("/rackwright.v1.AuthService/{method}"), &ann, &request)
            .await;
        assert!(status.is_client_error(), "{method}: {refused}");
    }
    assert_eq!(lab.who(&ann).await.1["role"], "ROLE_OPERATOR");
}

#[tokio::test]
async fn each_login_gives_the_rights_of_the_groups() {
    let lab = Lab::new().await;
    assert_eq!(lab.failure(&person("1", "ann", &["guests"])).await, "no-group");
    assert_eq!(lab.core.store.member("ann").await.unwrap(), None);
    let first = lab.session(&person("1", "ann", &["ops"])).await;
    let key = json!({"label": "a program", "mutation": {"idempotencyKey": "k"}});
    let (status, made) = lab
        .call("/rackwright.v1.SessionService/CreateApiKey", &first, &key)
        .await;
    assert_eq!(status, StatusCode::OK, "{made}");

    // Fewer rights: present sessions have them too.
    lab.session(&person("1", "ann", &["night", "ops"])).await;
    assert_eq!(lab.who(&first).await.1["role"], "ROLE_VIEWER");
    // Another customer: what carries the former one ends.
    let third = lab.session(&person("1", "ann", &["acme"])).await;
    let (_, who) = lab.who(&third).await;
    assert_eq!(
        (&who["role"], &who["customer"]),
        (&json!("ROLE_CUSTOMER_ADMIN"), &json!("acme"))
    );
    assert_eq!(lab.who(&first).await.0, StatusCode::UNAUTHORIZED);
    let (_, keys) = lab
        .call("/rackwright.v1.SessionService/ListApiKeys", &third, &json!({}))
        .await;
    assert_eq!(keys["apiKeys"].as_array().map_or(0, Vec::len), 0, "{keys}");
    // No group any more: the next login is refused, and ends what is left.
    assert_eq!(lab.failure(&person("1", "ann", &[])).await, "no-group");
    assert_eq!(lab.who(&third).await.0, StatusCode::UNAUTHORIZED);
    assert!(
        lab.kinds("members/ann")
            .await
            .contains(&"security.member-revoked".to_owned())
    );
}

#[tokio::test]
async fn names_of_customers_members_end_with_the_customer() {
    let lab = Lab::with_site().await;
    for (subject, claimed, member) in [
        ("1", "ann", "ann@acme"),
        ("2", "bob@bolt", "bob@acme"),
        ("3", "cy@acme", "cy@acme"),
        ("4", "dan@example.com", "dan@acme"),
    ] {
        let session = lab.session(&person(subject, claimed, &["acme"])).await;
        assert_eq!(lab.who(&session).await.1["member"], member, "{claimed}");
    }
    // The name tells nothing of members elsewhere.
    lab.session(&person("5", "olga", &["acme"])).await;
    assert_eq!(lab.failure(&person("6", "@acme", &["acme"])).await, "no-name");
    assert_eq!(lab.failure(&person("7", "eve@bolt", &["ops"])).await, "name-taken");
    let eve = lab.session(&person("7", "eve@example.com", &["ops"])).await;
    assert_eq!(lab.who(&eve).await.1["member"], "eve@example.com");
}

#[tokio::test]
async fn a_row_for_an_unknown_customer_gives_nothing_and_ends_what_was() {
    let lab = Lab::with_site().await;
    let session = lab.session(&person("1", "ann", &["ops"])).await;
    assert_eq!(lab.failure(&person("1", "ann", &["gone"])).await, "no-group");
    assert_eq!(lab.who(&session).await.0, StatusCode::UNAUTHORIZED);
    let kinds = lab.kinds("members/ann").await;
    assert!(kinds.contains(&"security.member-revoked".to_owned()), "{kinds:?}");
}

#[tokio::test]
async fn an_operator_of_the_provider_can_always_be_revoked() {
    let lab = Lab::new().await;
    let (ann, rogue) = (
        lab.session(&person("1", "ann", &["ops"])).await,
        lab.session(&person("2", "rogue", &["ops"])).await,
    );
    // The one invited operator has no valid certificate any more.
    let mut tx = lab.core.store.write().await.unwrap();
    tx.revoke_member("olga", 7).await.unwrap();
    tx.commit().await.unwrap();
    let request = json!({"name": "members/rogue", "mutation": {"idempotencyKey": "r"}});
    let (status, answer) = lab
        .call("/rackwright.v1.AuthService/RevokeMember", &ann, &request)
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(lab.who(&rogue).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_file_of_authorities_without_a_certificate_is_a_fault_at_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let web = format!(
        "web: {{oidc: {{issuer: 'https://login.example', client_id: a, ca_file: {}, members: [{{group: ops, role: operator}}]}}}}\n",
        file.path().display()
    );
    let core = core_with(&web).await;
    let error = login_provider::check_files(&core).await.unwrap_err().to_string();
    let place = format!("web.oidc.ca_file: {}: ", file.path().display());
    assert!(
        error.starts_with(&place) && error.ends_with("has no certificate"),
        "{error}"
    );
    let core = core_with("web: {}\n").await;
    assert!(login_provider::check_files(&core).await.is_ok());
}
