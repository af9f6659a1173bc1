//! Simulated machines, and clients that send requests for them all the time.

use std::io::Read as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost_types::FieldMask;
use rackwright_api::v1;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::operation_service_client::OperationServiceClient;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::program;
use serde_json::Value;
use tonic::{Code, Status};

use crate::client::Client;

/// Time limit for all requested operations after the last disturbance: a lease and the time until a replica counts as
/// dead, a minute each, and the work itself.
const ENDS: Duration = Duration::from_secs(240);

/// The process of the machines' BMCs. Dropping it ends them.
pub struct Fleet {
    process: Child,
    /// Closing it ends the process.
    _input: ChildStdin,
    pub machines: Vec<(String, v1::Bmc)>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Fleet {
    pub fn start(machines: usize) -> Self {
        Self::start_with(machines, |_| {})
    }

    /// Starts with further arguments.
    pub fn start_with(machines: usize, further: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(program("rackwright-sim"));
        further(&mut command);
        let mut process = command
            .args(["--nodes", &machines.to_string(), "--format", "json"])
            .args(["--listen", &format!("0.0.0.0:{}", free_port())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("rackwright-sim can be started");
        let input = process.stdin.take().expect("it has one");
        let mut text = String::new();
        let mut output = process.stdout.take().expect("it has one");
        output.read_to_string(&mut text).expect("it describes its machines");
        let description: Value = serde_json::from_str(&text).expect("its output is JSON");
        let machines = description["nodes"]
            .as_array()
            .expect("a list")
            .iter()
            .map(machine)
            .collect();
        Self {
            process,
            _input: input,
            machines,
        }
    }
}

fn machine(entry: &Value) -> (String, v1::Bmc) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bmc = &entry["bmc"];
    let bmc = v1::Bmc {
        address: text(&bmc["address"]),
        username: text(&bmc["username"]),
        password: text(&bmc["password"]),
        certificate_sha256: text(&bmc["certificate_sha256"]),
        ..v1::Bmc::default()
    };
    (text(&entry["id"]), bmc)
}

/// The acknowledged requests for one machine.
#[derive(Debug, Default)]
pub struct Account {
    pub id: String,
    /// Operations that began.
    pub operations: Vec<String>,
    /// Number of label writes; the last written label holds this number.
    label: u32,
    /// The newest version in an answer.
    version: u64,
    /// Acknowledged holds.
    pub holds: u64,
}

impl Account {
    fn record_node(&mut self, node: &v1::Node) {
        let version = node.metadata.as_ref().and_then(|m| m.resource_version.parse().ok());
        let version = version.expect("a version is a number");
        assert!(
            version >= self.version,
            "{} went back from version {} to {version}",
            self.id,
            self.version
        );
        self.version = version;
    }
}

/// A refusal because of the node's current state is a valid answer.
fn unless_refused<A>(answer: Result<A, Status>) -> Option<A> {
    match answer {
        Ok(answer) => Some(answer),
        Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::Aborted) => None,
        Err(status) => panic!("{status:?}"),
    }
}

/// Enrols a machine and sends one request after another until `end`. Its agent never comes: the inspection fails, and is
/// requested again.
pub async fn live(client: Arc<Client>, id: String, bmc: v1::Bmc, end: Instant) -> Account {
    let mut account = Account {
        id: id.clone(),
        ..Account::default()
    };
    let enrolment = v1::EnrollNodeRequest {
        node_id: id.clone(),
        spec: Some(v1::NodeSpec {
            bmc: Some(bmc),
            ..v1::NodeSpec::default()
        }),
        mutation: client.fresh(),
        ..v1::EnrollNodeRequest::default()
    };
    let enrolled = client.call(enrolment, async |channel, request| {
        NodeServiceClient::new(channel).enroll_node(request).await
    });
    account.operations.push(enrolled.await.expect("a new node").name);
    let mut turn: u32 = id.bytes().map(u32::from).sum();
    while Instant::now() < end {
        turn += 1;
        want(&client, &mut account, turn).await;
        tokio::time::sleep(Duration::from_millis(u64::from(50 + turn * 37 % 250))).await;
    }
    account
}

async fn want(client: &Client, account: &mut Account, turn: u32) {
    let name = format!("nodes/{}", account.id);
    match turn % 5 {
        0 => {
            let request = v1::RetryNodeRequest {
                name,
                mutation: client.fresh(),
            };
            let answer = client.call(request, async |channel, request| {
                NodeServiceClient::new(channel).retry_node(request).await
            });
            account.operations.extend(unless_refused(answer.await).map(|o| o.name));
        }
        1 => {
            let request = v1::HoldNodeRequest {
                name,
                reason: "a look at it".into(),
                mutation: client.fresh(),
            };
            let answer = client.call(request, async |channel, request| {
                NodeServiceClient::new(channel).hold_node(request).await
            });
            if let Some(node) = unless_refused(answer.await) {
                account.holds += 1;
                account.record_node(&node);
            }
        }
        2 => {
            let actions = [v1::PowerAction::On, v1::PowerAction::Off, v1::PowerAction::Cycle];
            let request = v1::SetNodePowerRequest {
                name,
                action: actions[turn as usize / 5 % 3].into(),
                mutation: client.fresh(),
            };
            let answer = client.call(request, async |channel, request| {
                NodeServiceClient::new(channel).set_node_power(request).await
            });
            account.operations.extend(unless_refused(answer.await).map(|o| o.name));
        }
        3 => {
            let request = v1::ResumeNodeRequest {
                name,
                mutation: client.fresh(),
                confirm_erase: false,
            };
            let answer = client.call(request, async |channel, request| {
                NodeServiceClient::new(channel).resume_node(request).await
            });
            account.operations.extend(unless_refused(answer.await).map(|o| o.name));
        }
        _ => label(client, account, turn).await,
    }
}

async fn label(client: &Client, account: &mut Account, turn: u32) {
    let metadata = v1::Metadata {
        labels: [("turn".to_owned(), turn.to_string())].into(),
        ..v1::Metadata::default()
    };
    let request = v1::UpdateNodeRequest {
        node: Some(v1::Node {
            name: format!("nodes/{}", account.id),
            metadata: Some(metadata),
            ..v1::Node::default()
        }),
        update_mask: Some(FieldMask {
            paths: vec!["metadata.labels".into()],
        }),
        mutation: client.fresh(),
    };
    let answer = client.call(request, async |channel, request| {
        NodeServiceClient::new(channel).update_node(request).await
    });
    let node = answer.await.expect("labels can be written at any time");
    account.record_node(&node);
    account.label = turn;
}

async fn get(client: &Client, id: &str) -> v1::Node {
    let request = v1::GetNodeRequest {
        name: format!("nodes/{id}"),
        read_mask: None,
    };
    let answer = client.call(request, async |channel, request| {
        NodeServiceClient::new(channel).get_node(request).await
    });
    answer.await.expect("the node is there")
}

/// Every acknowledged request is stored and ends, and the node still accepts operations.
pub async fn settle(client: Arc<Client>, mut account: Account) -> Account {
    let begun = Instant::now();
    for name in &account.operations {
        loop {
            let request = v1::WaitOperationRequest {
                name: name.clone(),
                timeout: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
            };
            let waited = client
                .call(request, async |channel, request| {
                    OperationServiceClient::new(channel).wait_operation(request).await
                })
                .await;
            if waited.as_ref().expect("it was acknowledged").done {
                break;
            }
            let node = get(&client, &account.id).await;
            assert!(begun.elapsed() < ENDS, "{waited:?} does not end: {node:?}");
        }
    }
    let node = get(&client, &account.id).await;
    let metadata = node.metadata.clone().unwrap_or_default();
    if account.label != 0 {
        let kept = metadata.labels.get("turn").map(String::as_str);
        assert_eq!(
            kept,
            Some(account.label.to_string().as_str()),
            "{}: the last label is lost",
            account.id
        );
    }
    account.record_node(&node);
    until_held(&client, &mut account).await;
    account
}

async fn until_held(client: &Client, account: &mut Account) {
    let begun = Instant::now();
    loop {
        let node = get(client, &account.id).await;
        let status = node.status.unwrap_or_default();
        if status.state() == v1::NodeState::Maintenance {
            return;
        }
        assert!(begun.elapsed() < ENDS, "{} is stuck: {status:?}", account.id);
        // Odd numbers of the five kinds: a hold.
        want(client, account, 1).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
