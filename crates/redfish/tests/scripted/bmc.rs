//! The tests' BMC: a tree of resources, sessions, and hooks by which a test changes its behaviour.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, Environment, RedfishError, Settings};
use serde_json::{Value, json};

use crate::server::{Answer, Request, Server};

pub const PASSWORD: &str = "correct horse battery";
pub const SYSTEM: &str = "/redfish/v1/Systems/1";
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
pub const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";

/// Virtual time: a sleep returns at once and is recorded.
#[derive(Debug, Default)]
pub struct TestEnvironment {
    state: Mutex<(Duration, Vec<Duration>)>,
}

impl TestEnvironment {
    /// The virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now()
    }

    /// Lets virtual time pass, as a BMC's answer does.
    pub fn advance(&self, duration: Duration) {
        self.state.lock().unwrap().0 += duration;
    }

    pub fn sleeps_ms(&self) -> Vec<u64> {
        self.state
            .lock()
            .unwrap()
            .1
            .iter()
            .map(|pause| pause.as_millis() as u64)
            .collect()
    }
}

#[async_trait::async_trait]
impl Environment for TestEnvironment {
    fn now(&self) -> Duration {
        self.state.lock().unwrap().0
    }

    async fn sleep(&self, duration: Duration) {
        {
            let mut state = self.state.lock().unwrap();
            state.0 += duration;
            state.1.push(duration);
        }
        tokio::task::yield_now().await;
    }

    fn jitter(&self) -> f64 {
        0.5
    }
}

pub struct State {
    pub tree: BTreeMap<String, Value>,
    /// ETags by path; a resource that is not listed has none.
    pub etags: BTreeMap<String, String>,
    pub tokens: Vec<String>,
    logins: usize,
    /// Number of calls of the hook so far, for hooks that count.
    pub n: usize,
}

pub struct Bmc {
    pub server: Server,
    pub state: Arc<Mutex<State>>,
    pub environment: Arc<TestEnvironment>,
}

pub fn standard_tree() -> BTreeMap<String, Value> {
    let link = |path: &str| json!({"@odata.id": path});
    let entries = [
        (
            "/redfish/v1",
            json!({
                "@odata.id": "/redfish/v1/", "Vendor": "Acme", "Product": "Acme BMC", "RedfishVersion": "1.15.0",
                "Systems": link("/redfish/v1/Systems"), "Managers": link("/redfish/v1/Managers"),
                "Links": {"Sessions": link(SESSIONS)}
            }),
        ),
        ("/redfish/v1/Systems", json!({"Members": [link(SYSTEM)]})),
        (
            SYSTEM,
            json!({
                "@odata.id": SYSTEM, "Id": "1", "Manufacturer": "Acme", "Model": "A1", "SerialNumber": "S-1",
                "SKU": "K-1", "UUID": "6173ECEC-6EF5-11EE-834A-0A8FC3A58A71", "PowerState": "Off",
                "Boot": {
                    "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None",
                    "BootSourceOverrideMode": "UEFI",
                    "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "Cd", "UefiHttp"]
                },
                "Actions": {"#ComputerSystem.Reset": {
                    "target": RESET,
                    "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"]
                }},
                "Links": {"ManagedBy": [link("/redfish/v1/Managers/BMC")]}
            }),
        ),
        (
            "/redfish/v1/Managers",
            json!({"Members": [link("/redfish/v1/Managers/BMC")]}),
        ),
        (
            "/redfish/v1/Managers/BMC",
            json!({"@odata.id": "/redfish/v1/Managers/BMC", "Id": "BMC", "Model": "M1", "FirmwareVersion": "1.2.3"}),
        ),
    ];
    entries
        .into_iter()
        .map(|(path, body)| (path.to_owned(), body))
        .collect()
}

impl Bmc {
    pub async fn start(hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static) -> Self {
        Self::start_with(standard_tree(), Duration::ZERO, hook).await
    }

    pub async fn plain() -> Self {
        Self::start(|_, _| None).await
    }

    pub async fn start_with(
        tree: BTreeMap<String, Value>,
        delay: Duration,
        hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            tree,
            etags: BTreeMap::new(),
            tokens: Vec::new(),
            logins: 0,
            n: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let for_server = Arc::clone(&state);
        let server = Server::start(
            None,
            delay,
            Arc::new(move |request| {
                let mut state = for_server.lock().unwrap();
                hook(request, &mut state).unwrap_or_else(|| answer(request, &mut state))
            }),
        )
        .await;
        Self {
            server,
            state,
            environment: Arc::default(),
        }
    }

    pub fn target(&self) -> BmcTarget {
        BmcTarget {
            address: self.server.url(),
            username: "admin".to_owned(),
            password: PASSWORD.into(),
            certificate_sha256: None,
            system: None,
        }
    }

    /// Settings with virtual time.
    pub fn settings(&self) -> Settings {
        Settings {
            environment: self.environment.clone(),
            ..Settings::default()
        }
    }

    pub async fn connect(&self) -> BmcClient {
        self.try_connect().await.unwrap()
    }

    pub async fn try_connect(&self) -> Result<BmcClient, RedfishError> {
        BmcClient::connect(self.target(), self.settings()).await
    }

    /// Changes a property: `set("/redfish/v1/Systems/1", "/PowerState", json!("On"))`.
    pub fn set(&self, path: &str, pointer: &str, value: Value) {
        self.state.lock().unwrap().set(path, pointer, value);
    }

    /// Bodies of all requests of this method to this path.
    pub fn bodies(&self, method: &str, path: &str) -> Vec<Value> {
        self.server
            .requests()
            .into_iter()
            .filter(|r| r.is(method, path))
            .map(|r| r.body)
            .collect()
    }
}

impl State {
    pub fn set(&mut self, path: &str, pointer: &str, value: Value) {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let resource = self.tree.get_mut(path).unwrap();
        resource.pointer_mut(parent).unwrap()[name] = value;
    }

    pub fn power(&mut self, state: &str) {
        self.set(SYSTEM, "/PowerState", json!(state));
    }
}

fn answer(request: &Request, state: &mut State) -> Answer {
    if request.is("POST", SESSIONS) {
        return log_in(request, state);
    }
    let path = request.path.trim_end_matches('/');
    let token = request.header("x-auth-token");
    let basic = request.header("authorization") == Some("Basic YWRtaW46Y29ycmVjdCBob3JzZSBiYXR0ZXJ5");
    let is_known = basic || token.is_some_and(|token| state.tokens.iter().any(|one| one == token));
    if path != "/redfish/v1" && !is_known {
        return Answer::error(401, "Base.1.8.NoValidSession", "log in first");
    }
    match request.method.as_str() {
        "GET" => match state.tree.get(path) {
            Some(body) => {
                let etag = state.etags.get(path).cloned();
                let answer = Answer::json(200, body);
                etag.iter().fold(answer, |answer, etag| answer.with("ETag", etag))
            }
            None => Answer::error(404, "Base.1.8.ResourceMissingAtURI", "no such resource"),
        },
        "DELETE" if path.starts_with(SESSIONS) => {
            state.tokens.retain(|one| Some(one.as_str()) != token);
            Answer::status(204)
        }
        "PATCH" => match state.tree.get_mut(path) {
            Some(resource) => {
                merge(resource, &request.body);
                Answer::status(204)
            }
            None => Answer::status(404),
        },
        "POST" if path == RESET => {
            state.power(if request.body["ResetType"] == "ForceOff" {
                "Off"
            } else {
                "On"
            });
            Answer::status(204)
        }
        _ => Answer::status(405),
    }
}

fn log_in(request: &Request, state: &mut State) -> Answer {
    if request.body != json!({"UserName": "admin", "Password": PASSWORD}) {
        let echo = format!(
            "The password {} is wrong",
            request.body["Password"].as_str().unwrap_or_default()
        );
        return Answer::error(401, "Base.1.8.InvalidLogin", &echo);
    }
    state.logins += 1;
    let token = format!("token-{}", state.logins);
    let location = format!("https://10.9.8.7{SESSIONS}/{}", state.logins);
    state.tokens.push(token.clone());
    Answer::json(201, &json!({"Id": "1"}))
        .with("X-Auth-Token", &token)
        .with("Location", &location)
}

pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
