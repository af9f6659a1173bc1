//! Tests of logins, sessions and API keys through all layers, without connections.

use std::time::Duration;

use rackwright_api::v1;
use rackwright_ground::testing::{TestCore, core_with};
use rackwright_store::Scope;
use tonic::codegen::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, IF_NONE_MATCH};
use tonic::service::Routes;
use tower::ServiceExt as _;

mod secrets;
mod streams;

use super::*;
use crate::access::Refusals;
use crate::tenancy::join;
use crate::{Layered, around, methods, routes};

const JSON: &str = "application/json";

/// The web console of a core with the operator "olga", the viewer "vera" and acme's admin "adam".
struct Lab {
    core: TestCore,
    site: Arc<Site>,
    services: Layered<Routes>,
}

impl Lab {
    async fn new() -> Self {
        let core = core_with("web: {}\n").await;
        join(&core, "olga", "operator", "").await;
        join(&core, "vera", "viewer", "").await;
        join(&core, "adam", "customer-admin", "acme").await;
        let methods = methods().unwrap();
        let site = Site::new(&core).unwrap();
        let refusals = Refusals::new(core.metrics.calls_refused());
        let services = around(routes(&core), &core, (&refusals, &methods), Some(site.clone()));
        Self { core, site, services }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        let response: Result<Response<Body>, Infallible> = self.services.clone().oneshot(request).await;
        response.unwrap()
    }

    /// The answer to a request of the console's own page: status and body.
    async fn page(&self, path: &str, cookie: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.send(of_page(path, cookie, body)).await).await
    }

    /// The answer to a call with an API key.
    async fn keyed(&self, method: &str, key: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::post(format!("/rackwright.v1.{method}"))
            .header(CONTENT_TYPE, JSON)
            .header(AUTHORIZATION, format!("Bearer {key}"));
        let request = request
            .body(Body::new(axum::body::Body::from(body.to_string())))
            .unwrap();
        answer(self.send(request).await).await
    }

    /// The answer to a call of a member with a certificate: the services without the web console.
    async fn certified(&self, member: &str, method: &str, body: &Value) -> (StatusCode, Value) {
        let methods = methods().unwrap();
        let refusals = Refusals::new(self.core.metrics.calls_refused());
        let services = around(routes(&self.core), &self.core, (&refusals, &methods), None);
        let request = Request::post(format!("/rackwright.v1.{method}"))
            .header(CONTENT_TYPE, JSON)
            .extension(ClientIdentity::member(member, 0).unwrap());
        let request = request
            .body(Body::new(axum::body::Body::from(body.to_string())))
            .unwrap();
        answer(services.oneshot(request).await.unwrap()).await
    }

    async fn login_token(&self, member: &str, key: &str) -> String {
        let request = json!({"mutation": {"idempotencyKey": key}});
        let (status, made) = self
            .certified(member, "SessionService/CreateLoginToken", &request)
            .await;
        assert_eq!(status, StatusCode::OK, "{made}");
        let url = made["url"].as_str().unwrap();
        let token = made["token"].as_str().unwrap().to_owned();
        assert_eq!(url, format!("https://localhost:7080/login#{token}"));
        token
    }

    /// Logs a member in. Returns the cookie.
    async fn log_in(&self, member: &str) -> String {
        let token = self.login_token(member, &format!("login-of-{member}")).await;
        let response = self.send(of_page(LOGIN, "", &json!({"token": token}))).await;
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        cookie(&response)
    }

    async fn api_key(&self, member: &str, role: Option<&str>) -> String {
        let mut request =
            json!({"label": "a program", "mutation": {"idempotencyKey": format!("key-of-{member}-{role:?}")}});
        if let Some(role) = role {
            request["role"] = role.into();
        }
        let (status, made) = self.certified(member, "SessionService/CreateApiKey", &request).await;
        assert_eq!(status, StatusCode::OK, "{made}");
        made["key"].as_str().unwrap().to_owned()
    }
}

fn of_page(path: &str, cookie: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path)
        .header(CONTENT_TYPE, JSON)
        .header("sec-fetch-site", "same-origin")
        .header(COOKIE, format!("theme=dark; {cookie}"));
    request
        .body(Body::new(axum::body::Body::from(body.to_string())))
        .unwrap()
}

async fn answer(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 20).await;
    let value = serde_json::from_slice(&bytes.unwrap()).unwrap_or(Value::Null);
    (status, value)
}

/// `NAME=SECRET` of the cookie that an answer sets.
fn cookie(response: &Response<Body>) -> String {
    let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; Max-Age=43200; Secure; HttpOnly; SameSite=Strict");
    pair.to_owned()
}

const WHO: &str = "/rackwright.v1.AuthService/WhoAmI";

#[tokio::test]
async fn a_login_token_opens_one_session_that_a_logout_ends() {
    let lab = Lab::new().await;
    let token = lab.login_token("olga", "k").await;
    let response = lab.send(of_page(LOGIN, "", &json!({"token": token}))).await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let session = cookie(&response);
    let again = lab.page(LOGIN, "", &json!({"token": token})).await;
    assert_eq!(
        (again.0, &again.1["code"]),
        (StatusCode::UNAUTHORIZED, &json!("unauthenticated"))
    );

    let (status, who) = lab.page(WHO, &session, &json!({})).await;
    assert_eq!(
        (status, &who["member"], &who["role"]),
        (StatusCode::OK, &json!("olga"), &json!("ROLE_OPERATOR"))
    );
    assert_eq!(
        lab.page(WHO, "", &json!({})).await.0,
        StatusCode::UNAUTHORIZED,
        "no cookie"
    );
    let (_, list) = lab
        .page("/rackwright.v1.SessionService/ListSessions", &session, &json!({}))
        .await;
    let listed = &list["sessions"][0];
    assert_eq!(
        (&listed["member"], &listed["current"]),
        (&json!("olga"), &json!(true)),
        "{list}"
    );
    assert!(!list.to_string().contains(session.split_once('=').unwrap().1));

    let out = lab.send(of_page(LOGOUT, &session, &json!({}))).await;
    assert_eq!(out.status(), StatusCode::NO_CONTENT);
    assert!(out.headers()[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(lab.page(WHO, &session, &json!({})).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(
        lab.page(LOGOUT, &session, &json!({})).await.0,
        StatusCode::NO_CONTENT,
        "once more"
    );
    let events = lab.core.store.events(&Scope::Site, 0, "members/olga", 9).await.unwrap();
    let kinds: Vec<String> = events.iter().map(|event| event.kind.to_string()).collect();
    assert_eq!(kinds, ["security.session-opened", "security.session-ended"]);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_the_cookie() {
    let lab = Lab::new().await;
    let session = lab.log_in("olga").await;
    let call = async |method: Method, headers: &[(&'static str, &str)]| {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(if method == Method::GET { "/v1/whoami" } else { WHO })
            .header(COOKIE, session.as_str());
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, JSON);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        lab.send(request.body(Body::empty()).unwrap()).await.status()
    };
    let host = ("host", "rack.example");
    for (headers, status) in [
        (vec![("sec-fetch-site", "same-origin")], StatusCode::OK),
        (vec![("sec-fetch-site", "cross-site")], StatusCode::FORBIDDEN),
        (vec![("sec-fetch-site", "same-site")], StatusCode::FORBIDDEN),
        (vec![("sec-fetch-site", "none")], StatusCode::FORBIDDEN),
        (vec![], StatusCode::FORBIDDEN),
        (vec![host], StatusCode::FORBIDDEN),
        (vec![host, ("origin", "https://rack.example")], StatusCode::OK),
        (vec![host, ("origin", "https://evil.example")], StatusCode::FORBIDDEN),
        (vec![host, ("origin", "http://rack.example")], StatusCode::FORBIDDEN),
        (vec![host, ("origin", "null")], StatusCode::FORBIDDEN),
    ] {
        assert_eq!(call(Method::POST, &headers).await, status, "{headers:?}");
    }
    assert_eq!(
        call(Method::GET, &[("sec-fetch-site", "none")]).await,
        StatusCode::OK,
        "typed"
    );
    assert_eq!(
        call(Method::GET, &[("sec-fetch-site", "cross-site")]).await,
        StatusCode::FORBIDDEN
    );
    // The paths of logins have the same check.
    for path in [LOGIN, LOGOUT] {
        let mut request = of_page(path, &session, &json!({}));
        request
            .headers_mut()
            .insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
        assert_eq!(lab.send(request).await.status(), StatusCode::FORBIDDEN, "{path}");
        let get = Request::get(path).body(Body::empty()).unwrap();
        assert_eq!(lab.send(get).await.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    assert_eq!(
        lab.page(WHO, &session, &json!({})).await.0,
        StatusCode::OK,
        "not logged out"
    );
}

#[tokio::test]
async fn a_session_has_the_members_present_rights_and_ends_with_them() {
    let lab = Lab::new().await;
    let session = lab.log_in("vera").await;
    let hold = json!({"name": "nodes/n1", "reason": "a fan", "mutation": {"idempotencyKey": "h"}});
    let hold = async || lab.page("/rackwright.v1.NodeService/HoldNode", &session, &hold).await.0;
    assert_eq!(hold().await, StatusCode::FORBIDDEN);
    join(&lab.core, "vera", "operator", "").await;
    assert_eq!(
        hold().await,
        StatusCode::NOT_FOUND,
        "an operator now, and there is no such node"
    );
    // A session gives no certificate and no other session.
    for method in ["AuthService/RenewCredential", "SessionService/CreateLoginToken"] {
        let request = json!({"mutation": {"idempotencyKey": "m"}});
        let request = if method.starts_with("Auth") { json!({}) } else { request };
        let (status, refused) = lab.page(&format!("/rackwright.v1.{method}"), &session, &request).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method}: {refused}");
    }
    let revoke = json!({"name": "members/vera", "mutation": {"idempotencyKey": "r"}});
    let (status, revoked) = lab.certified("olga", "AuthService/RevokeMember", &revoke).await;
    assert_eq!(status, StatusCode::OK, "{revoked}");
    assert_eq!(lab.page(WHO, &session, &json!({})).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_token_ends_with_the_rights_of_its_member() {
    let lab = Lab::new().await;
    let token = lab.login_token("vera", "k").await;
    let revoke = json!({"name": "members/vera", "mutation": {"idempotencyKey": "r"}});
    assert_eq!(
        lab.certified("olga", "AuthService/RevokeMember", &revoke).await.0,
        StatusCode::OK
    );
    assert_eq!(
        lab.page(LOGIN, "", &json!({"token": token})).await.0,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn a_session_without_a_call_for_an_hour_has_ended() {
    let lab = Lab::new().await;
    let now = clock::now();
    let put = async |id: &str, idle_s: i64| {
        let (secret, hash) = rackwright_identity::Token::mint(lab.core.rng.as_ref()).unwrap();
        let row = SessionRow {
            id: id.into(),
            kind: SessionKind::Browser,
            member: "olga".into(),
            epoch: 0,
            customer: "".into(),
            role: String::new(),
            label: String::new(),
            created_at: now.plus(-seconds(7200)),
            used_at: now.plus(-seconds(idle_s)),
            ends_at: now.plus(seconds(7200)),
            address: String::new(),
            client: String::new(),
        };
        let mut tx = lab.core.store.write().await.unwrap();
        tx.put_session(&hash.to_hex(), &row).await.unwrap();
        tx.commit().await.unwrap();
        use secrecy::ExposeSecret as _;
        format!("{COOKIE_NAME}={}", secret.expose_secret())
    };
    let (idle, used) = (put("idle", 3700).await, put("used", 3500).await);
    assert_eq!(lab.page(WHO, &idle, &json!({})).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(lab.page(WHO, &used, &json!({})).await.0, StatusCode::OK);
    // The call counts as a use.
    let is_noted = async || {
        let filter = rackwright_store::SessionFilter {
            scope: &Scope::Site,
            member: "olga",
        };
        let rows = lab.core.store.sessions(filter, SessionKind::Browser, now, ("", 9));
        let rows = rows.await.unwrap();
        rows.iter().any(|row| row.id == "used" && row.used_at >= now)
    };
    let noted = tokio::time::timeout(Duration::from_secs(5), async {
        while !is_noted().await {
            tokio::task::yield_now().await;
        }
    });
    noted.await.unwrap();
}

#[tokio::test]
async fn an_api_key_has_its_role_at_most_and_creates_no_access() {
    let lab = Lab::new().await;
    let (full, reader) = (
        lab.api_key("olga", None).await,
        lab.api_key("olga", Some("ROLE_VIEWER")).await,
    );
    assert!(full.starts_with("rwk_"));
    let hold = json!({"name": "nodes/n1", "reason": "a fan", "mutation": {"idempotencyKey": "h"}});
    let hold = async |key: &str| lab.keyed("NodeService/HoldNode", key, &hold).await.0;
    assert_eq!(hold(&full).await, StatusCode::NOT_FOUND, "there is no such node");
    assert_eq!(hold(&reader).await, StatusCode::FORBIDDEN);
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &reader, &json!({})).await.1["role"],
        "ROLE_VIEWER"
    );
    let mutation = json!({"idempotencyKey": "a"});
    for (method, request) in [
        ("AuthService/RenewCredential", json!({})),
        (
            "AuthService/CreateToken",
            json!({"member": "eve", "role": "ROLE_VIEWER", "mutation": mutation}),
        ),
        (
            "AuthService/SetMemberRole",
            json!({"name": "members/vera", "role": "ROLE_OPERATOR", "mutation": mutation}),
        ),
        ("SessionService/CreateLoginToken", json!({"mutation": mutation})),
        (
            "SessionService/CreateApiKey",
            json!({"label": "x", "mutation": mutation}),
        ),
        (
            "SessionService/DeleteApiKey",
            json!({"name": "apiKeys/other", "mutation": mutation}),
        ),
        (
            "SessionService/EndSession",
            json!({"name": "sessions/other", "mutation": mutation}),
        ),
        (
            "ConsoleService/AddSshKey",
            json!({"publicKey": "ssh-ed25519 AAAA", "mutation": mutation}),
        ),
        (
            "ConsoleService/CreateConsoleToken",
            json!({"node": "nodes/n1", "mutation": mutation}),
        ),
    ] {
        let (status, refused) = lab.keyed(method, &full, &request).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method}: {refused}");
    }
    // A key may end itself.
    let (_, keys) = lab.keyed("SessionService/ListApiKeys", &reader, &json!({})).await;
    let mut listed = keys["apiKeys"].as_array().unwrap().iter();
    let own = listed.find(|key| key["role"] == "ROLE_VIEWER").unwrap();
    let end = json!({"name": own["name"], "mutation": {"idempotencyKey": "own"}});
    assert_eq!(
        lab.keyed("SessionService/DeleteApiKey", &reader, &end).await.0,
        StatusCode::OK
    );
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &reader, &json!({})).await.0,
        StatusCode::UNAUTHORIZED
    );
    // The owner's rights shrink, and the key's with them.
    join(&lab.core, "olga", "viewer", "").await;
    assert_eq!(hold(&full).await, StatusCode::FORBIDDEN);
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &full, &json!({})).await.1["role"],
        "ROLE_VIEWER"
    );
    join(&lab.core, "olga", "auditor", "").await;
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &full, &json!({})).await.0,
        StatusCode::FORBIDDEN
    );
}

/// The status of a console that a key opens for typing.
async fn typing(lab: &Lab, key: &str) -> Status {
    let enter = v1::ConsoleEntry {
        node: "nodes/n1".into(),
        ..v1::ConsoleEntry::default()
    };
    let message = v1::AttachConsoleRequest {
        message: Some(v1::attach_console_request::Message::Enter(enter)),
    };
    let message = prost::Message::encode_to_vec(&message);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0][..], &length, &message].concat();
    let request = Request::post("/rackwright.v1.ConsoleService/AttachConsole")
        .header(CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .header(AUTHORIZATION, format!("Bearer {key}"));
    let request = request.body(Body::new(axum::body::Body::from(framed))).unwrap();
    let response = lab.send(request).await;
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok(""))
}

#[tokio::test]
async fn a_viewers_key_of_an_operator_does_not_type_at_consoles() {
    let lab = Lab::new().await;
    let node = rackwright_ground::testing::node("n1", rackwright_lifecycle::State::Available, None);
    rackwright_ground::testing::add(&lab.core, &node).await;
    let (full, reader) = (
        lab.api_key("olga", None).await,
        lab.api_key("olga", Some("ROLE_VIEWER")).await,
    );
    let refused = typing(&lab, &reader).await;
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("viewers may not type"), "{refused:?}");
    let let_in = typing(&lab, &full).await;
    assert_eq!(let_in.code(), Code::Ok, "{let_in:?}");
}

#[tokio::test]
async fn a_session_makes_no_certificate_for_a_member() {
    let lab = Lab::new().await;
    let session = lab.log_in("olga").await;
    let invite = async |member: &str| {
        let request = json!({"member": member, "role": "ROLE_OPERATOR", "mutation": {"idempotencyKey": member}});
        lab.page("/rackwright.v1.AuthService/CreateToken", &session, &request)
            .await
    };
    for member in ["olga", "vera"] {
        let (status, refused) = invite(member).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{member}: {refused}");
    }
    let (status, invited) = invite("eve").await;
    assert_eq!(status, StatusCode::OK, "{invited}");
}

#[tokio::test]
async fn a_login_is_judged_in_json_whatever_the_browser_sends() {
    let lab = Lab::new().await;
    let never = json!({"token": format!("rw1_{}", "0".repeat(64))});
    for kind in [
        "application/grpc",
        "application/proto",
        "application/connect+json",
        "application/connect+proto",
        "text/plain",
    ] {
        let mut request = of_page(LOGIN, "", &never);
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        assert_eq!(lab.send(request).await.status(), StatusCode::UNAUTHORIZED, "{kind}");
    }
    let status = lab.page(LOGIN, "", &never).await.0;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "all five were counted");
}

#[tokio::test]
async fn a_second_login_of_a_browser_ends_its_first_session() {
    let lab = Lab::new().await;
    let first = lab.log_in("vera").await;
    let token = lab.login_token("olga", "k").await;
    let response = lab.send(of_page(LOGIN, &first, &json!({"token": token}))).await;
    let second = cookie(&response);
    assert_eq!(lab.page(WHO, &second, &json!({})).await.1["member"], "olga");
    assert_eq!(lab.page(WHO, &first, &json!({})).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_audit_has_the_key_of_a_call_and_refused_keys() {
    let lab = Lab::new().await;
    let key = lab.api_key("olga", None).await;
    let hold = json!({"name": "nodes/n1", "reason": "a fan", "mutation": {"idempotencyKey": "h"}});
    lab.keyed("NodeService/HoldNode", &key, &hold).await;
    let never = format!("rwk_{}", "0".repeat(64));
    lab.keyed("NodeService/HoldNode", &never, &hold).await;
    let filter = rackwright_store::AuditFilter::default();
    let records = lab.core.store.audit(&filter, 0, 99).await.unwrap();
    let text = format!("{records:?}");
    assert!(text.contains("via apiKeys/"), "{text}");
    assert!(text.contains("the API key is not valid"), "{text}");
    assert!(!text.contains(&key) && !text.contains(&never));
}

#[tokio::test]
async fn secrets_work_only_in_their_own_form_and_until_they_are_deleted() {
    let lab = Lab::new().await;
    let (key, session) = (lab.api_key("adam", None).await, lab.log_in("adam").await);
    let secret = session.split_once('=').unwrap().1;
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &key, &json!({})).await.1["customer"],
        "acme"
    );
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", secret, &json!({})).await.0,
        StatusCode::UNAUTHORIZED
    );
    let as_cookie = format!("{COOKIE_NAME}={key}");
    assert_eq!(lab.page(WHO, &as_cookie, &json!({})).await.0, StatusCode::UNAUTHORIZED);
    let never = format!("rwk_{}", "0".repeat(64));
    for bad in ["", "rwk_", "x", &never] {
        assert_eq!(
            lab.keyed("AuthService/WhoAmI", bad, &json!({})).await.0,
            StatusCode::UNAUTHORIZED,
            "{bad}"
        );
    }
    // The paths without a certificate on the listener of the API need a login here.
    for path in [
        "AuthService/BeginDeviceLogin",
        "AuthService/FinishDeviceLogin",
        "AuthService/RedeemToken",
        "AgentService/Register",
        "SessionService/OpenSession",
    ] {
        let answer = lab
            .page(&format!("/rackwright.v1.{path}"), "", &json!({"token": "rw1_"}))
            .await;
        assert_eq!(answer.0, StatusCode::UNAUTHORIZED, "{path}");
        assert!(
            answer.1["message"].as_str().unwrap().starts_with("log in"),
            "{answer:?}"
        );
    }
    let (_, keys) = lab
        .page("/rackwright.v1.SessionService/ListApiKeys", &session, &json!({}))
        .await;
    let name = &keys["apiKeys"][0]["name"];
    assert!(!keys.to_string().contains(&key));
    let delete = json!({"name": name, "mutation": {"idempotencyKey": "d"}});
    let (status, refused) = lab.certified("vera", "SessionService/DeleteApiKey", &delete).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "a viewer sees only its own: {refused}");
    assert_eq!(
        lab.page("/rackwright.v1.SessionService/DeleteApiKey", &session, &delete)
            .await
            .0,
        StatusCode::OK
    );
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &key, &json!({})).await.0,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn a_key_with_too_many_calls_waits() {
    let lab = Lab::new().await;
    let (key, other) = (lab.api_key("vera", None).await, lab.api_key("olga", None).await);
    let filter = rackwright_store::SessionFilter {
        scope: &Scope::Site,
        member: "vera",
    };
    let keys = lab
        .core
        .store
        .sessions(filter, SessionKind::ApiKey, clock::now(), ("", 9));
    let id = keys.await.unwrap().remove(0).id;
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &key, &json!({})).await.0,
        StatusCode::OK
    );
    // On a busy computer the key may earn a call before the next one comes.
    let mut refused = None;
    for _ in 0..100 {
        while lab.site.calls.allows(&id) {}
        let (status, answer) = lab.keyed("AuthService/WhoAmI", &key, &json!({})).await;
        if status == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(answer);
            break;
        }
    }
    assert_eq!(refused.expect("a refused call")["code"], "resource_exhausted");
    assert_eq!(
        lab.keyed("AuthService/WhoAmI", &other, &json!({})).await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn refused_logins_are_slowed_and_stored_as_one_event() {
    let lab = Lab::new().await;
    let never = json!({"token": format!("rw1_{}", "0".repeat(64))});
    for _ in 0..5 {
        assert_eq!(lab.page(LOGIN, "", &never).await.0, StatusCode::UNAUTHORIZED);
    }
    let response = lab.send(of_page(LOGIN, "", &never)).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key(RETRY_AFTER));
    let events = lab.core.store.events(&Scope::Site, 0, "web", 9).await.unwrap();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.kind, "security.logins-refused");
    assert!(event.message.starts_with("5 logins"), "{}", event.message);
}

#[tokio::test]
async fn views_are_the_page_and_all_answers_have_the_headers() {
    let lab = Lab::new().await;
    let get = async |path: &str, headers: &[(tonic::codegen::http::HeaderName, &str)]| {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        lab.send(request.body(Body::empty()).unwrap()).await
    };
    for (path, status, kind) in [
        ("/", StatusCode::OK, "text/html; charset=utf-8"),
        ("/nodes/gpu-001", StatusCode::OK, "text/html; charset=utf-8"),
        ("/login", StatusCode::OK, "text/html; charset=utf-8"),
        ("/app.js", StatusCode::OK, "text/javascript; charset=utf-8"),
        ("/none.js", StatusCode::NOT_FOUND, ""),
        ("/../Cargo.toml", StatusCode::NOT_FOUND, ""),
        ("/v1/nodes", StatusCode::UNAUTHORIZED, JSON),
        ("/openapi.json", StatusCode::UNAUTHORIZED, JSON),
    ] {
        let response = get(path, &[]).await;
        assert_eq!(response.status(), status, "{path}");
        let headers = response.headers();
        let found = headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
        assert_eq!(found, kind, "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert!(
            headers["content-security-policy"]
                .to_str()
                .unwrap()
                .starts_with("default-src 'self'")
        );
        assert!(headers.contains_key("cache-control"), "{path}");
    }
    let plain = get("/app.css", &[]).await;
    let tag = plain.headers()[ETAG].to_str().unwrap().to_owned();
    let zipped = get("/app.css", &[(ACCEPT_ENCODING, "br, gzip")]).await;
    assert_eq!(zipped.headers()[CONTENT_ENCODING], "gzip");
    let known = get("/app.css", &[(IF_NONE_MATCH, &tag)]).await;
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    let post = Request::post("/nodes").body(Body::empty()).unwrap();
    assert_eq!(lab.send(post).await.status(), StatusCode::METHOD_NOT_ALLOWED);
}
