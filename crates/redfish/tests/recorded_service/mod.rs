//! A recorded BMC that answers a client, and the reduction of whole recordings to the small ones of this repository.

#[path = "../recordings/mod.rs"]
pub mod recordings;
pub mod reduce;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, Settings};
use rackwright_redfish_mockup::{Resources, key};
use serde_json::Value;

use super::server::{Answer, Request, Server};

/// A recording, served, with a client of it.
pub struct RecordedBmc {
    pub name: &'static str,
    pub tree: Resources,
    pub server: Server,
    pub client: BmcClient,
}

impl RecordedBmc {
    /// Serves the recording of a machine. `system` is given for machines that show several systems.
    pub async fn open(name: &'static str, system: Option<&str>) -> Self {
        let path = recordings::path(name);
        let tree = rackwright_redfish_mockup::read(&path).unwrap();
        assert!(tree.len() > 50, "{} holds no recording", path.display());
        if recordings::whole().is_some() && !reduce::is_wanted() {
            reduce::check(name, &tree);
        }
        let server = serve(tree.clone()).await;
        let client = connect(&server, system).await;
        Self {
            name,
            tree,
            server,
            client,
        }
    }

    /// Closes the client. With `UPDATE_RECORDINGS` the small recording gains the resources of this conversation, and those
    /// of `compared`, which the test compares without the client.
    pub async fn close(self, compared: impl Fn(&str, &Value) -> bool) {
        self.client.close().await.unwrap();
        if reduce::is_wanted() {
            let requests = self.server.requests();
            let requested = requests.iter().map(|request| key(&request.path));
            let compared = self.tree.iter().filter(|(path, body)| compared(path, body));
            let paths = requested.chain(compared.map(|(path, _)| path.clone()));
            reduce::add(self.name, &self.tree, paths.collect());
        }
    }
}

/// A client of a recorded BMC.
pub async fn connect(server: &Server, system: Option<&str>) -> BmcClient {
    let target = BmcTarget {
        address: server.url(),
        username: "admin".to_owned(),
        password: "password".into(),
        certificate_sha256: None,
        system: system.map(str::to_owned),
    };
    BmcClient::connect(target, Settings::default()).await.unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Serves resources; changes of them are kept.
pub async fn serve(tree: Resources) -> Server {
    let tree = Mutex::new(tree);
    let handler = move |request: &Request| {
        let mut tree = tree.lock().unwrap();
        let path = key(&request.path);
        match request.method.as_str() {
            "GET" => tree
                .get(&path)
                .map_or_else(|| Answer::status(404), |body| Answer::json(200, body)),
            "POST" if path.ends_with("/sessions") => Answer::status(201)
                .with("X-Auth-Token", "t")
                .with("Location", &format!("{}/1", request.path)),
            "POST" => Answer::status(204),
            "DELETE" => Answer::status(204),
            "PATCH" => match tree.get_mut(&path) {
                Some(body) => {
                    merge(body, &request.body);
                    Answer::status(204)
                }
                None => Answer::status(404),
            },
            _ => Answer::status(405),
        }
    };
    Server::start(None, Duration::ZERO, Arc::new(handler)).await
}
