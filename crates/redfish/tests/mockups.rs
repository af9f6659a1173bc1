//! The client against recorded services of real BMCs.
//!
//! Only with `RACKWRIGHT_MOCKUPS=DIR`, a folder that holds one folder for each recording, with
//! `…/redfish/v1/…/index.json` (or `…/index.json`) as the BMC answered it. The recordings are not part of this
//! project, so that without the variable there is nothing to test.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

#[path = "scripted/server.rs"]
#[allow(dead_code)]
mod server;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, BootTarget, Persistence, PowerGoal, Settings};
use serde_json::Value;
use server::{Answer, Request, Server};

/// What the recording of a machine must yield: counted in the recording by other means than this client's.
struct Expected {
    recording: &'static str,
    system: Option<&'static str>,
    model: &'static str,
    serial: &'static str,
    profile: &'static str,
    processors: usize,
    memory: usize,
    drives: usize,
    macs: usize,
    boot_written_to: &'static str,
}

type Tree = BTreeMap<String, Value>;

/// Reads a recording; paths are kept in lower case because links and files differ in it.
fn read_tree(root: &Path) -> Tree {
    let base = if root.join("redfish/v1").is_dir() {
        root.join("redfish/v1")
    } else {
        root.to_owned()
    };
    let mut tree = Tree::new();
    let mut folders = vec![base.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name == "index.json") {
                let relative = folder.strip_prefix(&base).unwrap().to_str().unwrap().to_owned();
                // What is no JSON in a recording stays away, as a 404.
                if let Ok(value) = serde_json::from_slice(&std::fs::read(&path).unwrap()) {
                    tree.insert(key(&format!("/redfish/v1/{relative}")), value);
                }
            }
        }
    }
    assert!(tree.len() > 100, "{} holds no recording", root.display());
    tree
}

fn key(path: &str) -> String {
    path.trim_end_matches('/').to_lowercase()
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

async fn serve(tree: Tree) -> Server {
    let tree = std::sync::Mutex::new(tree);
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

async fn check(folder: &Path, expected: &Expected) {
    let name = expected.recording;
    let server = serve(read_tree(&folder.join(name))).await;
    let target = BmcTarget {
        address: server.url(),
        username: "admin".to_owned(),
        password: "password".into(),
        certificate_sha256: None,
        system: expected.system.map(str::to_owned),
    };
    let client = BmcClient::connect(target, Settings::default()).await.unwrap();
    let identity = client.identity().await.unwrap();
    println!("{name}: {identity:?}");
    assert_eq!(identity.model.as_deref(), Some(expected.model), "{name}");
    assert_eq!(identity.serial.as_deref(), Some(expected.serial), "{name}");
    assert!(identity.uuid.is_some(), "{name}");
    assert!(
        identity.profiles.iter().any(|one| one == expected.profile) || expected.profile.is_empty(),
        "{name}"
    );
    let found = client.inventory().await.unwrap();
    for gap in &found.gaps {
        println!("{name}: gap {} {}", gap.path, gap.why);
    }
    let counts = [
        found.processors.len(),
        found.memory.len(),
        found.drives.len(),
        client.macs().await.unwrap().len(),
    ];
    println!("{name}: {counts:?} in {} requests", server.requests().len());
    assert_eq!(
        counts,
        [expected.processors, expected.memory, expected.drives, expected.macs],
        "{name}"
    );
    let types = client.reset_types().await.unwrap().unwrap();
    assert!(types.iter().any(|one| one == "ForceOff"), "{name}: {types:?}");
    client.set_power(PowerGoal::Off).await.unwrap();
    let outcome = client.set_boot(BootTarget::Pxe, Persistence::Once, None).await.unwrap();
    assert_eq!(outcome.written_to, expected.boot_written_to, "{name}");
    let drives = client.virtual_media().await.unwrap();
    println!(
        "{name}: {} virtual drives, {types:?}, {:?}",
        drives.len(),
        outcome.deviations
    );
    client.close().await.unwrap();
    assert!(server.most_at_once() <= 2, "{name}");
}

fn recordings() -> Vec<Expected> {
    let make =
        |recording, system, model, serial, profile, [processors, memory, drives, macs]: [usize; 4], boot_written_to| {
            Expected {
                recording,
                system,
                model,
                serial,
                profile,
                processors,
                memory,
                drives,
                macs,
                boot_written_to,
            }
        };
    vec![
        make(
            "dell",
            None,
            "PowerEdge R750",
            "F54P1G3",
            "dell-idrac",
            [3, 16, 3, 7],
            "/redfish/v1/Systems/System.Embedded.1",
        ),
        make(
            "hpe",
            None,
            "ProLiant DL385 Gen10 Plus v2",
            "MXQ302099S",
            "hpe-ilo",
            [2, 16, 18, 9],
            "/redfish/v1/Systems/1",
        ),
        make(
            "lenovo",
            None,
            "ThinkSystem SR670 V2",
            "J105958B",
            "",
            [10, 16, 4, 5],
            "/redfish/v1/Systems/1",
        ),
        make(
            "supermicro",
            None,
            "SYS-821GE-TNHR",
            "S889914X3710910",
            "supermicro",
            [2, 32, 8, 12],
            "/redfish/v1/Systems/1",
        ),
        make(
            "gigabyte",
            None,
            "H262-Z63-00",
            "GJG9NF512A000302",
            "ami-megarac",
            [2, 16, 1, 2],
            "/redfish/v1/Systems/Self",
        ),
        make(
            "nvidia_viking",
            Some("DGX"),
            "DGXH100",
            "1662923610124",
            "ami-megarac",
            [2, 32, 15, 5],
            "/redfish/v1/Systems/DGX/SD",
        ),
    ]
}

#[tokio::test]
async fn recorded_services() {
    let Some(folder) = std::env::var_os("RACKWRIGHT_MOCKUPS").map(PathBuf::from) else {
        println!("SKIPPED recorded services: RACKWRIGHT_MOCKUPS is not set");
        return;
    };
    for expected in recordings() {
        check(&folder, &expected).await;
    }
}
