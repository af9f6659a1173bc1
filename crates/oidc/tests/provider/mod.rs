//! An OpenID Connect provider for tests, on loopback. It gives the tokens that a test asks for, also invalid ones.

#![allow(dead_code, reason = "each program of tests uses a part of it")]
#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use p256::SecretKey;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::elliptic_curve::sec1::ToSec1Point as _;
use serde_json::{Value, json};

/// The control plane's name and secret at the provider.
pub const CLIENT: (&str, &str) = ("rackwright", "a long secret");

/// What is wrong with a token or with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    Nonce,
    Audience,
    FurtherAudience,
    Issuer,
    Expired,
    Future,
    /// `alg: none`, without a signature.
    Unsigned,
    /// HS256 with the client's secret.
    ClientSecret,
    /// HS256 with the provider's public key.
    PublicKey,
    /// Another key under the name of the provider's.
    ForeignKey,
    /// A key that the provider does not publish.
    UnknownKey,
    /// A key that the provider publishes only now.
    NewKey,
    /// Claims are not in the token, but at the provider's `userinfo`.
    ThinToken,
    /// `userinfo` is about another person.
    OtherPerson,
    /// A code is valid more than once.
    ReusableCode,
    /// The answer has no identity token.
    NoToken,
    /// The provider gives no keys.
    NoKeys,
    /// The provider has no logins with a device code.
    NoDevices,
}

/// What the person does with a login by a device code.
#[derive(Debug, Clone)]
pub enum Decision {
    None,
    Denied,
    Expired,
    Allowed(Value),
}

#[derive(Debug)]
struct Grant {
    challenge: String,
    /// `None`: of a login with a device code.
    nonce: Option<String>,
    redirect: String,
    claims: Value,
}

#[derive(Debug)]
struct Shared {
    issuer: String,
    now_s: fn() -> i64,
    fault: Fault,
    keys: Vec<(String, u8)>,
    grants: HashMap<String, Grant>,
    /// Decisions by device code.
    devices: HashMap<String, Decision>,
    /// Fields that take the place of those of the answer to the begin of a login with a device code.
    device_answer: Value,
    is_slow: bool,
    claims: Value,
    fetches: HashMap<&'static str, usize>,
}

#[derive(Debug, Clone)]
pub struct Provider {
    pub issuer: String,
    shared: Arc<Mutex<Shared>>,
}

impl Provider {
    pub async fn start(now_s: fn() -> i64) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(Shared {
            issuer: issuer.clone(),
            now_s,
            fault: Fault::None,
            keys: vec![("first".into(), 7)],
            grants: HashMap::new(),
            devices: HashMap::new(),
            device_answer: json!({}),
            is_slow: false,
            claims: Value::Null,
            fetches: HashMap::new(),
        }));
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(description))
            .route("/jwks", get(keys))
            .route("/token", post(token))
            .route("/device", post(device))
            .route("/userinfo", get(userinfo))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { issuer, shared }
    }

    pub fn set_fault(&self, fault: Fault) {
        let mut shared = self.shared.lock().unwrap();
        shared.fault = fault;
        if fault == Fault::NewKey {
            shared.keys = vec![("second".into(), 9)];
        }
    }

    /// How often a path was asked for.
    pub fn fetches(&self, path: &str) -> usize {
        *self.shared.lock().unwrap().fetches.get(path).unwrap_or(&0)
    }

    /// A person with these claims logs in at the address where a login begins. Returns code and state.
    pub fn log_in(&self, url: &str, claims: &Value) -> (String, String) {
        let (path, query) = url.split_once('?').unwrap();
        assert_eq!(path, format!("{}/authorize", self.issuer));
        let fields = form(query.as_bytes());
        assert_eq!(fields["response_type"], "code");
        assert_eq!(fields["client_id"], CLIENT.0);
        assert_eq!(fields["code_challenge_method"], "S256");
        let mut shared = self.shared.lock().unwrap();
        let code = format!("code-{}", shared.grants.len());
        let grant = Grant {
            challenge: fields["code_challenge"].clone(),
            nonce: Some(fields["nonce"].clone()),
            redirect: fields["redirect_uri"].clone(),
            claims: claims.clone(),
        };
        shared.grants.insert(code.clone(), grant);
        (code, fields["state"].clone())
    }

    /// A person decides about the login with this code.
    pub fn decide(&self, user_code: &str, decision: Decision) {
        let mut shared = self.shared.lock().unwrap();
        let number = user_code.strip_prefix("CODE-").unwrap();
        let device = shared.devices.get_mut(&format!("device-{number}"));
        *device.unwrap() = decision;
    }

    /// Sets fields of the answer to the begin of a login with a device code.
    pub fn set_device_answer(&self, fields: Value) {
        self.shared.lock().unwrap().device_answer = fields;
    }

    /// Whether the provider asks for longer pauses.
    pub fn set_slow(&self, is_slow: bool) {
        self.shared.lock().unwrap().is_slow = is_slow;
    }
}

/// The fields of a query or a form.
pub fn form(bytes: &[u8]) -> HashMap<String, String> {
    let url = reqwest::Url::parse(&format!("http://a/?{}", String::from_utf8_lossy(bytes))).unwrap();
    url.query_pairs().into_owned().collect()
}

type Place = State<Arc<Mutex<Shared>>>;

async fn description(State(shared): Place) -> Json<Value> {
    let mut shared = shared.lock().unwrap();
    *shared.fetches.entry("description").or_default() += 1;
    let issuer = &shared.issuer;
    let device = (shared.fault != Fault::NoDevices).then(|| format!("{issuer}/device"));
    Json(json!({
        "issuer": issuer,
        "device_authorization_endpoint": device,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "userinfo_endpoint": format!("{issuer}/userinfo"),
        "jwks_uri": format!("{issuer}/jwks"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "authorization_response_iss_parameter_supported": true,
    }))
}

async fn keys(State(shared): Place) -> Result<Json<Value>, StatusCode> {
    let mut shared = shared.lock().unwrap();
    *shared.fetches.entry("keys").or_default() += 1;
    if shared.fault == Fault::NoKeys {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let keys: Vec<Value> = shared.keys.iter().map(|(name, seed)| public(name, *seed)).collect();
    Ok(Json(json!({"keys": keys})))
}

fn secret(seed: u8) -> SecretKey {
    SecretKey::from_slice(&[seed; 32]).unwrap()
}

fn public(name: &str, seed: u8) -> Value {
    let point = secret(seed).public_key().to_sec1_point(false);
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = (part(point.x().unwrap()), part(point.y().unwrap()));
    json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": name, "x": x, "y": y})
}

async fn userinfo(State(shared): Place, headers: HeaderMap) -> Result<Json<Value>, StatusCode> {
    let shared = shared.lock().unwrap();
    if headers
        .get("authorization")
        .is_none_or(|value| value != "Bearer access")
    {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let mut claims = shared.claims.clone();
    if shared.fault == Fault::OtherPerson {
        claims["sub"] = "another".into();
    }
    Ok(Json(claims))
}

fn is_client(headers: &HeaderMap) -> bool {
    let basic = STANDARD.encode(format!("{}:{}", CLIENT.0, CLIENT.1.replace(' ', "+")));
    headers
        .get("authorization")
        .is_some_and(|value| *value == format!("Basic {basic}"))
}

async fn device(State(shared): Place, headers: HeaderMap, body: axum::body::Bytes) -> (StatusCode, Json<Value>) {
    let mut shared = shared.lock().unwrap();
    *shared.fetches.entry("device").or_default() += 1;
    if !is_client(&headers) {
        return (StatusCode::UNAUTHORIZED, Json(json!({"error": "invalid_client"})));
    }
    assert!(form(&body)["scope"].starts_with("openid profile "));
    let number = shared.devices.len();
    shared.devices.insert(format!("device-{number}"), Decision::None);
    let issuer = &shared.issuer;
    let mut answer = json!({
        "device_code": format!("device-{number}"),
        "user_code": format!("CODE-{number}"),
        "verification_uri": format!("{issuer}/activate"),
        "verification_uri_complete": format!("{issuer}/activate?user_code=CODE-{number}"),
        "expires_in": 600,
    });
    for (name, value) in shared.device_answer.as_object().unwrap() {
        answer[name] = value.clone();
    }
    (StatusCode::OK, Json(answer))
}

/// The tokens of a login with a device code.
fn device_token(shared: &mut Shared, code: &str) -> (StatusCode, Json<Value>) {
    *shared.fetches.entry("questions").or_default() += 1;
    let refused = |why: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": why})));
    let decision = shared.devices.get(code).cloned();
    let claims = match decision {
        None => return refused("invalid_grant"),
        Some(_) if shared.is_slow => return refused("slow_down"),
        Some(Decision::None) => return refused("authorization_pending"),
        Some(Decision::Denied) => return refused("access_denied"),
        Some(Decision::Expired) => return refused("expired_token"),
        Some(Decision::Allowed(claims)) => claims,
    };
    if shared.fault != Fault::ReusableCode {
        shared.devices.remove(code);
    }
    let grant = Grant {
        challenge: String::new(),
        nonce: None,
        redirect: String::new(),
        claims,
    };
    (StatusCode::OK, Json(tokens(shared, &grant)))
}

async fn token(State(shared): Place, headers: HeaderMap, body: axum::body::Bytes) -> (StatusCode, Json<Value>) {
    let mut shared = shared.lock().unwrap();
    let fields = form(&body);
    let refused = |why: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": why})));
    if !is_client(&headers) {
        return refused("invalid_client");
    }
    if fields["grant_type"] == "urn:ietf:params:oauth:grant-type:device_code" {
        return device_token(&mut shared, &fields["device_code"]);
    }
    let grant = match shared.fault {
        Fault::ReusableCode => shared.grants.get(&fields["code"]).map(|grant| Grant {
            challenge: grant.challenge.clone(),
            nonce: grant.nonce.clone(),
            redirect: grant.redirect.clone(),
            claims: grant.claims.clone(),
        }),
        _ => shared.grants.remove(&fields["code"]),
    };
    let Some(grant) = grant else {
        return refused("invalid_grant");
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, fields["code_verifier"].as_bytes());
    let is_bound = URL_SAFE_NO_PAD.encode(digest) == grant.challenge && fields["redirect_uri"] == grant.redirect;
    if !is_bound || fields["grant_type"] != "authorization_code" {
        return refused("invalid_grant");
    }
    (StatusCode::OK, Json(tokens(&mut shared, &grant)))
}

/// The answer with the tokens of a grant.
fn tokens(shared: &mut Shared, grant: &Grant) -> Value {
    shared.claims = grant.claims.clone();
    let mut answer = json!({"access_token": "access", "token_type": "Bearer", "expires_in": 300});
    if shared.fault != Fault::NoToken {
        answer["id_token"] = signed(shared, grant).into();
    }
    answer
}

/// The token, with the fault.
fn signed(shared: &Shared, grant: &Grant) -> String {
    let (fault, now) = (shared.fault, (shared.now_s)());
    let mut claims = grant.claims.clone();
    if matches!(fault, Fault::ThinToken | Fault::OtherPerson) {
        claims = json!({"sub": claims["sub"]});
    }
    claims["iss"] = match fault {
        Fault::Issuer => "https://evil.example".into(),
        _ => shared.issuer.as_str().into(),
    };
    claims["aud"] = match fault {
        Fault::Audience => "another".into(),
        Fault::FurtherAudience => json!([CLIENT.0, "another"]),
        _ => CLIENT.0.into(),
    };
    if let Some(nonce) = &grant.nonce {
        claims["nonce"] = match fault {
            Fault::Nonce => "another".into(),
            _ => nonce.as_str().into(),
        };
    }
    let (issued, expires) = match fault {
        Fault::Expired => (now - 700, now - 100),
        Fault::Future => (now + 600, now + 900),
        _ => (now, now + 300),
    };
    claims["iat"] = issued.into();
    claims["exp"] = expires.into();
    let (name, seed) = &shared.keys[0];
    let (algorithm, name, seed) = match fault {
        Fault::Unsigned => ("none", name.as_str(), *seed),
        Fault::ClientSecret | Fault::PublicKey => ("HS256", name.as_str(), *seed),
        Fault::ForeignKey => ("ES256", name.as_str(), 11),
        Fault::UnknownKey => ("ES256", "unknown", 11),
        _ => ("ES256", name.as_str(), *seed),
    };
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"alg": algorithm, "kid": name, "typ": "JWT"});
    let text = format!("{}.{}", part(&header), part(&claims));
    let shared_key = |key: &[u8]| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
        ring::hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
    };
    let signature = match fault {
        Fault::Unsigned => Vec::new(),
        Fault::ClientSecret => shared_key(CLIENT.1.as_bytes()),
        Fault::PublicKey => shared_key(public(name, seed).to_string().as_bytes()),
        _ => {
            let signature: Signature = SigningKey::from(secret(seed)).sign(text.as_bytes());
            signature.to_bytes().to_vec()
        }
    };
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}
