//! A plain Redfish client for the tests of the simulated BMC, which the crates `sim` and `lab` have with their machines.
#![allow(dead_code)] // each test binary uses its part

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// At least five times the usual duration on an idle machine.
pub const LONG: Duration = Duration::from_secs(120);

pub const SYSTEM: &str = "/redfish/v1/Systems/1";
pub const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// A client of one machine's BMC.
pub struct Client {
    pub http: reqwest::Client,
    url: String,
    user: String,
    password: String,
}

impl Client {
    /// A client of the BMC at a URL. With a certificate it trusts only this certificate.
    pub fn at(url: String, user: &str, password: &str, certificate: Option<reqwest::Certificate>) -> Self {
        let mut http = reqwest::Client::builder().no_proxy().timeout(LONG);
        if let Some(certificate) = certificate {
            http = http.tls_certs_only([certificate]);
        }
        Self {
            http: http.build().unwrap(),
            url,
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    /// A request without credentials.
    pub fn anonymous(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// A request with Basic credentials.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.anonymous(method, path)
            .basic_auth(&self.user, Some(&self.password))
    }

    pub fn login(&self) -> Value {
        json!({"UserName": self.user, "Password": self.password})
    }

    pub async fn get(&self, path: &str) -> Value {
        let response = self.request(Method::GET, path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "GET {path}");
        response.json().await.unwrap()
    }

    /// Follows every link from the root; returns the paths that it found.
    pub async fn crawl(&self) -> BTreeSet<String> {
        let mut known = BTreeSet::from(["/redfish/v1".to_owned()]);
        let mut open: Vec<String> = known.iter().cloned().collect();
        while let Some(path) = open.pop() {
            let document = self.get(&path).await;
            assert!(
                document["@odata.type"].is_string() && document["@odata.id"] == path.as_str(),
                "{document}"
            );
            let mut found = Vec::new();
            links(&document, &mut found);
            open.extend(found.into_iter().filter(|path| known.insert(path.clone())));
        }
        known
    }

    pub async fn post(&self, path: &str, body: Value) -> Response {
        self.request(Method::POST, path).json(&body).send().await.unwrap()
    }

    pub async fn patch(&self, path: &str, body: Value) -> Response {
        self.request(Method::PATCH, path).json(&body).send().await.unwrap()
    }

    /// Sends a reset and expects the BMC to accept it.
    pub async fn reset(&self, kind: &str) {
        let response = self.post(RESET, json!({"ResetType": kind})).await;
        let status = response.status();
        assert_eq!(
            status,
            StatusCode::NO_CONTENT,
            "{kind}: {}",
            response.text().await.unwrap()
        );
    }

    /// Sets the boot override and expects the BMC to accept it.
    pub async fn boot(&self, target: &str, enabled: &str) {
        let boot = json!({"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": enabled});
        let response = self.patch(SYSTEM, json!({"Boot": boot})).await;
        let status = response.status();
        assert_eq!(
            status,
            StatusCode::NO_CONTENT,
            "{target}: {}",
            response.text().await.unwrap()
        );
    }

    /// Override target and whether it is enabled, as read back.
    pub async fn boot_now(&self) -> (String, String) {
        let boot = self.get(SYSTEM).await["Boot"].clone();
        let text = |name: &str| boot[name].as_str().unwrap().to_owned();
        (text("BootSourceOverrideTarget"), text("BootSourceOverrideEnabled"))
    }
}

/// Collects every `@odata.id` in a document.
fn links(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("@odata.id").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|value| links(value, found));
        }
        Value::Array(array) => array.iter().for_each(|value| links(value, found)),
        _ => {}
    }
}

/// Asserts status and message id of a Redfish error.
pub async fn assert_error(response: Response, status: StatusCode, id: &str) {
    let got = response.status();
    let body: Value = response.json().await.unwrap();
    assert_eq!(
        (got, body["error"]["code"].as_str()),
        (status, Some(format!("Base.1.13.{id}").as_str())),
        "{body}"
    );
    assert!(
        body["error"]["@Message.ExtendedInfo"][0]["Message"].is_string(),
        "{body}"
    );
}
