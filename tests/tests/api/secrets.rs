//! Secrets that must not appear in answers, in logs or in the database's files.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_lab::{self as lab, PowerState};
use rackwright_tests::bridge_host::{CARD, ip};
use rackwright_tests::neighbour::{Lease, lease, mac_bytes, on_the_bridge};
use rackwright_tests::site::Site;
use tonic::transport::Identity;
use tonic::{Code, Status};

use crate::access::new_key;
use crate::client::{Api, TEST_LIMIT, authority, enrolment, events, methods, refused, start, until_state};

/// The kind of a secret and its text.
type Secret = (&'static str, String);

/// Whether the daemon runs while its files are read.
#[derive(Clone, Copy, PartialEq)]
enum Daemon {
    Runs,
    IsStopped,
}

#[test]
fn secrets_are_not_found_again() {
    lab::run_test("secrets::secrets_are_not_found_again", async |namespace| {
        let (lab, site, api) = start(&namespace).await;
        let machine = lab.machine(0);
        machine.boot_hang(true).await.expect("the machine hangs");
        site.enroll("n1", machine);
        machine
            .wait_power(PowerState::On, TEST_LIMIT)
            .await
            .expect("the machine is switched on");
        until_state(&api, "n1", v1::NodeState::Inspecting).await;

        let (boot_token, agent_token, address) = boot_as(machine.mac());
        // A registration is valid only from the address that fetched the plan.
        ip(&format!("addr add {address}/32 dev lo"));
        let ca = authority(&site.dir().join("cli"));
        let agent = an_agent_registers_once(
            [
                &Api::connect_from(Some(address), &ca, None),
                &Api::connect_from(Some(address), &ca, None),
            ],
            &agent_token,
            machine.mac(),
        )
        .await;
        an_agent_is_no_member(&Api::connect(&ca, Some(agent))).await;
        let bootstrap = printed_token(&site);
        let invited = site.json(["token", "create", "guest", "--role", "viewer"]);
        let invited = invited["token"].as_str().expect("the answer holds it").to_owned();
        let password = machine.bmc().password().to_owned();
        failures_keep_quiet(&api, &password).await;

        let secrets: Vec<Secret> = vec![
            ("BMC password", password),
            ("BMC password of a refused request", REFUSED.to_owned()),
            ("bootstrap token", bootstrap),
            ("member's token", invited),
            ("boot token", boot_token),
            ("agent's token", agent_token),
        ];
        answers_keep_quiet(&api, &secrets).await;
        files_keep_quiet(site.dir(), Daemon::Runs, &secrets);
        let dir = site.dir().to_owned();
        site.stop().await;
        files_keep_quiet(&dir, Daemon::IsStopped, &secrets);
        lab.stop().await.expect("the lab ends");
    });
}

fn printed_token(site: &Site) -> String {
    let printed = std::fs::read_to_string(site.dir().join("rackwrightd.out")).expect("rackwrightd has printed");
    let token = printed
        .split("--token ")
        .nth(1)
        .and_then(|t| t.split_whitespace().next());
    token.expect("the first token was printed").to_owned()
}

const REFUSED: &str = "a-password-that-was-refused";

/// A refusal does not repeat the secret of the request.
async fn failures_keep_quiet(api: &Api, password: &str) {
    let mut request = enrolment("Not-An-Id", &[]);
    request
        .spec
        .get_or_insert_default()
        .bmc
        .get_or_insert_default()
        .password = REFUSED.into();
    let status = refused(api.nodes().enroll_node(request.clone()).await, Code::InvalidArgument);
    is_quiet("a failure", &bytes_of(&status), REFUSED);
    request.node_id = "n1".into();
    request
        .spec
        .get_or_insert_default()
        .bmc
        .get_or_insert_default()
        .password = password.to_owned();
    let status = refused(api.nodes().enroll_node(request).await, Code::AlreadyExists);
    is_quiet("a failure", &bytes_of(&status), password);
}

fn bytes_of(status: &Status) -> Vec<u8> {
    [status.message().as_bytes(), status.details()].concat()
}

#[track_caller]
fn is_quiet(place: &str, bytes: &[u8], secret: &str) {
    assert!(secret.len() >= 12, "too short to be looked for");
    let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
    assert!(!found, "{place} holds it");
}

/// All readable answers, as bytes.
async fn answers_keep_quiet(api: &Api, secrets: &[Secret]) {
    let name = || "nodes/n1".to_owned();
    let requests = [
        (
            "GetNode",
            v1::GetNodeRequest {
                name: name(),
                read_mask: None,
            }
            .encode_to_vec(),
        ),
        ("ExplainNode", v1::ExplainNodeRequest { name: name() }.encode_to_vec()),
        (
            "ListReports",
            v1::ListReportsRequest {
                parent: name(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
    ];
    let mut read = 0;
    for method in methods().iter().filter(|m| !m.is_mutation) {
        let request = requests.iter().find(|(name, _)| *name == method.name);
        let request = request.map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let answer = match api.call(&method.path(), request).await {
            Ok(bytes) => {
                read += usize::from(!bytes.is_empty());
                bytes
            }
            Err(status) => bytes_of(&status),
        };
        for (what, secret) in secrets {
            is_quiet(&format!("{what}: the answer of {}", method.name), &answer, secret);
        }
    }
    assert!(read >= 6, "only {read} methods answered anything");
    let trace: Vec<u8> = events(api, 0).await.iter().flat_map(|e| e.encode_to_vec()).collect();
    assert!(trace.len() > 200, "there are events");
    for (what, secret) in secrets {
        is_quiet(&format!("{what}: the events"), &trace, secret);
    }
}

/// Logs, and every file of the data folder, including the write-ahead log.
fn files_keep_quiet(dir: &Path, runs: Daemon, secrets: &[Secret]) {
    let mut paths = vec![dir.join("rackwrightd.log"), dir.join("rackwrightd.out")];
    let mut folders = vec![dir.join("data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path)
            } else {
                paths.push(path)
            }
        }
    }
    assert!(paths.iter().any(|p| p.ends_with("rackwright.db")), "{paths:?}");
    for path in &paths {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            // The running daemon may rename or remove a file after the folder was listed. The search after the stop reads
            // what the file became.
            Err(error) if runs == Daemon::Runs && error.kind() == ErrorKind::NotFound => continue,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        for (what, secret) in secrets {
            // Standard output, and nothing else, shows the token: the operator must see it.
            if *what == "bootstrap token" && path.ends_with("rackwrightd.out") {
                let text = String::from_utf8_lossy(&bytes);
                assert_eq!(text.matches(secret.as_str()).count(), 1, "printed once");
                continue;
            }
            is_quiet(&format!("{what}: {}", path.display()), &bytes, secret);
        }
    }
    // The search works: it finds the node's name in the database.
    let database = std::fs::read(dir.join("data/rackwright.db")).expect("the database reads");
    let log = std::fs::read(dir.join("data/rackwright.db-wal")).unwrap_or_default();
    let found = [database, log].concat().windows(8).any(|w| w == b"nodes/n1");
    assert!(found, "the database is not what is read here");
}

/// The agents' stream, and the calls that need no certificate or belong to agents.
const CONNECT: &str = "/rackwright.v1.AgentService/Connect";
const OPEN: &[&str] = &[
    "Connect",
    "ClaimChunks",
    "Register",
    "BeginDeviceLogin",
    "FinishDeviceLogin",
    "RedeemToken",
    "ProveDatabase",
    "OpenSession",
];

/// The only agents' call without a certificate, with the token of the boot script.
async fn an_agent_registers_once([anonymous, another]: [&Api; 2], token: &str, mac: &str) -> Identity {
    let (key, csr_pem) = new_key();
    let request = |token: &str, mac: &str| v1::RegisterRequest {
        token: token.to_owned(),
        csr_pem: csr_pem.clone(),
        mac: mac.to_owned(),
        boot_id: "of-this-boot".into(),
        ..Default::default()
    };
    let opens = async |api: &Api, method: &str| {
        let opened = api.call(method, Vec::new()).await;
        opened.expect_err("an empty request").code()
    };
    assert_eq!(opens(anonymous, CONNECT).await, Code::Unauthenticated);
    let other = anonymous.agent().register(request(token, "52:54:00:77:00:99")).await;
    let status = refused(other, Code::Unauthenticated);
    is_quiet("a failure", &bytes_of(&status), token);
    let never = format!("rw1_{}", "0".repeat(64));
    refused(
        anonymous.agent().register(request(&never, mac)).await,
        Code::Unauthenticated,
    );
    let registered = anonymous
        .agent()
        .register(request(token, mac))
        .await
        .expect("the token is good")
        .into_inner();
    assert_eq!(registered.node, "nodes/n1");
    // An identical request means that the first answer was lost.
    let again = anonymous.agent().register(request(token, mac)).await;
    assert_eq!(again.expect("the same again is answered").into_inner().node, "nodes/n1");
    // The same token with another key means a second machine: then neither of the two is trusted.
    let stolen = v1::RegisterRequest {
        csr_pem: new_key().1,
        ..request(token, mac)
    };
    refused(anonymous.agent().register(stolen).await, Code::Unauthenticated);
    refused(
        anonymous.agent().register(request(token, mac)).await,
        Code::Unauthenticated,
    );
    // The connection of the registration may open the agent's stream and nothing else; no other connection may.
    assert_eq!(
        opens(anonymous, CONNECT).await,
        Code::InvalidArgument,
        "the first message must be hello"
    );
    assert_eq!(opens(another, CONNECT).await, Code::Unauthenticated);
    for method in methods().iter().filter(|method| !OPEN.contains(&method.name.as_str())) {
        assert_eq!(
            opens(anonymous, &method.path()).await,
            Code::PermissionDenied,
            "{}",
            method.name
        );
    }

    Identity::from_pem(registered.certificate_pem, key.serialize_pem())
}

/// An agent's certificate opens only the agents' stream.
async fn an_agent_is_no_member(agent: &Api) {
    for method in methods() {
        let status = agent
            .call(&method.path(), Vec::new())
            .await
            .expect_err("an empty request");
        let wanted = match method.name.as_str() {
            "Connect" | "Register" => Code::InvalidArgument,
            // The settings turn them off.
            "BeginDeviceLogin" | "FinishDeviceLogin" | "ClaimChunks" => Code::FailedPrecondition,
            "RedeemToken" | "ProveDatabase" | "OpenSession" => Code::Unauthenticated,
            _ => Code::PermissionDenied,
        };
        assert_eq!(status.code(), wanted, "{}: {status:?}", method.name);
    }
}

/// The value after `name=` in a text.
fn value(text: &str, name: &str) -> String {
    let at = text.find(name).unwrap_or_else(|| panic!("{name} is not in: {text}")) + name.len();
    let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text[at..].split(end).next().expect("a value follows").to_owned()
}

/// Boots like the machine, from a separate host on the lab's bridge: returns the tokens of the script and of the agent, and
/// the leased address.
fn boot_as(mac: &str) -> (String, String, IpAddr) {
    let mac = mac_bytes(mac);
    on_the_bridge(move || {
        let Lease { address, script: url } = lease(mac);
        ip(&format!("addr add {address}/24 dev {CARD}"));
        let fetched = Command::new("curl")
            .args(["-sf", "--interface", &address.to_string(), &url])
            .output();
        let script = String::from_utf8(fetched.expect("curl runs").stdout).expect("a script is text");
        let tokens = (value(&url, "token="), value(&script, "rackwright.token="));
        (tokens.0, tokens.1, address.into())
    })
}
