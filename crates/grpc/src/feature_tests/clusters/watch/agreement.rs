//! A replaced adapter that agent, BMC and fabric agree about: the control plane reads a recorded BMC itself.

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use prost::Message as _;
use rackwright_api::v1;
use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_ground::core::Tasks;
use rackwright_lifecycle::seconds;
use rackwright_store::AuditFilter;
use serde_json::Value;

use super::*;

/// A machine with an iLO 5 and two InfiniBand adapters.
const RECORDING: &str = include_str!("../../../../../redfish/tests/recordings/hpe.json");
/// The port GUIDs in the recording.
const RECORDED: [&str; 2] = ["88e9:a4ff:ff87:42c8", "88e9:a4ff:ff80:9da2"];
/// The BMC writes this for an unknown GUID.
const NO_GUID: &str = "0000:0000:0000:0000";
/// Time after which a BMC is read again, in seconds.
const AGAIN_S: i64 = 900;

/// The recorded BMC.
struct Bmc {
    resources: BTreeMap<String, Value>,
    /// The port GUIDs of its two InfiniBand adapters, in the place of the recorded ones.
    ports: Mutex<[String; 2]>,
}

impl Bmc {
    /// With its address.
    async fn start() -> (Arc<Self>, String) {
        let bmc = Arc::new(Self {
            resources: serde_json::from_str(RECORDING).unwrap(),
            ports: Mutex::new(RECORDED.map(str::to_owned)),
        });
        let own = bmc.clone();
        let app = axum::Router::new().fallback(async move |request: Request| own.answer(&request));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (bmc, address)
    }

    fn answer(&self, request: &Request) -> Response {
        let path = request.uri().path().trim_end_matches('/').to_lowercase();
        if *request.method() == Method::POST {
            let session = [
                ("x-auth-token", "recorded".to_owned()),
                ("location", format!("{path}/1")),
            ];
            return (StatusCode::CREATED, session, "{}").into_response();
        }
        let Some(body) = self.resources.get(&path) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let mut body = body.to_string();
        for (recorded, port) in RECORDED.iter().zip(&*self.ports.lock().unwrap()) {
            body = body.replace(recorded, port);
        }
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// A port GUID as this BMC writes it.
fn spelled(port: Guid) -> String {
    let raw = port.get();
    let groups = [48, 32, 16, 0].map(|shift| format!("{:04x}", raw >> shift & 0xffff));
    groups.join(":")
}

impl Stage {
    /// Gives the node the recorded BMC.
    async fn with_bmc(&self, node: &str) -> Arc<Bmc> {
        let (bmc, address) = Bmc::start().await;
        let core = &self.core;
        let purpose = bmc_password_purpose(&NodeId::stored(node));
        let password = core.keys.sealer.seal(&"secret".to_owned().into(), &purpose).unwrap();
        put(core, node, |record| {
            record.spec.bmc_address = address;
            record.spec.bmc_username = "root".into();
            record.spec.bmc_password = password;
        })
        .await;
        bmc
    }

    /// Lets a comparison read the BMC again, and waits for the end of the reading.
    async fn read_bmc(&self) {
        clock::simulated::set(clock::now().plus(seconds(AGAIN_S)));
        assert_eq!(disagreement(self).await, "the adapters of the BMC are not read yet");
        let mut running = std::mem::take(&mut *self.core.tasks.as_ref().unwrap().lock().unwrap());
        assert_eq!(running.len(), 1);
        running.join_next().await.unwrap().unwrap();
    }

    /// The words after a new reading of the BMC.
    async fn disagreement_of_bmc(&self) -> String {
        self.read_bmc().await;
        disagreement(self).await
    }
}

/// The agent's report of one adapter, accepted by an inspection or new since the last boot of the agent.
async fn report(stage: &Stage, node: &str, port: Guid, is_accepted: bool) {
    let inventory = v1::Inventory {
        hcas: vec![v1::Hca {
            pci_address: "0000:17:00.0".into(),
            ports: vec![v1::HcaPort {
                port_guid: port.to_string(),
                ..v1::HcaPort::default()
            }],
            ..v1::Hca::default()
        }],
        ..v1::Inventory::default()
    };
    let node = NodeId::stored(node);
    let mut tx = stage.core.store.write().await.unwrap();
    tx.save_inventory(&node, &inventory.encode_to_vec()).await.unwrap();
    if is_accepted {
        tx.expect_inventory(&node).await.unwrap();
    }
    let mut readings = tx.node(&node).await.unwrap().readings;
    let now = clock::now();
    readings.boot = Some(("boot".into(), now));
    readings.inventory = rackwright_lifecycle::Reading::Known { value: (), at: now };
    tx.save_readings(&node, &readings, now).await.unwrap();
    tx.commit().await.unwrap();
}

/// The words after the comparison: why the replaced adapter of the cluster's node is not confirmed.
async fn disagreement(stage: &Stage) -> String {
    stage.look(&[]).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Degraded);
    let Wait::LinkFault { fault, .. } = cluster(&stage.core, "alpha").await.wait else {
        panic!("another wait");
    };
    let (_, why) = fault.split_once("; not confirmed by agreement: ").unwrap();
    why.to_owned()
}

#[tokio::test]
async fn a_replaced_adapter_that_agent_bmc_and_fabric_agree_about_needs_no_site_file() {
    clock::simulated::set(clock::now());
    let mut stage = Stage::with_settings("adapters: {confirm: agreement}, ").await;
    stage.core.parts().tasks = Some(Tasks::default());
    let core = &stage.core;
    build(core, "alpha", "bolt", 1).await;
    let node = first(core, "alpha").await;
    let id = stage.site.node_named(&node).unwrap();
    let hca = stage.site.sku_of(id).hcas[3].name.to_string();
    let (_, other) = with_other_ports(&hca);
    let guid = |site: &Site| site.node(id).port_guids[3].and_then(Guid::new).unwrap();
    let (former, new) = (guid(&stage.site), guid(&other));
    let (version, _) = core.sites.current(&core.store).await.unwrap().unwrap();
    *stage.played.replaced.lock().unwrap() = Some(other);

    // The fabric alone is no agreement, nor is it with the agent alone.
    let no_slot = format!("no inspection has accepted the former port {former}, so its PCI slot is unknown");
    assert_eq!(disagreement(&stage).await, no_slot);
    report(&stage, &node, former, true).await;
    let still = format!("the agent still reports the former port {former}");
    assert_eq!(disagreement(&stage).await, still);
    report(&stage, &node, new, false).await;

    // Nor is it with a BMC that cannot be read, or that lists other ports.
    let unread = "the adapters of the BMC could not be read: BMC : the sealed BMC password cannot be opened";
    let why = stage.disagreement_of_bmc().await;
    assert!(why.starts_with(unread), "{why}");
    let bmc = stage.with_bmc(&node).await;
    let [silent, recorded] = [[NO_GUID; 2], RECORDED].map(|guids| guids.map(str::to_owned));
    for (listed, words) in [
        (silent, "the BMC lists no port GUIDs, which is no agreement".to_owned()),
        (recorded.clone(), format!("the BMC does not list port {new}")),
        (
            [spelled(former), spelled(new)],
            format!("the BMC still lists the former port {former}"),
        ),
    ] {
        *bmc.ports.lock().unwrap() = listed;
        assert_eq!(stage.disagreement_of_bmc().await, words);
    }
    assert_eq!(core.store.site_version().await.unwrap(), version);

    let [other, _] = recorded;
    *bmc.ports.lock().unwrap() = [other, spelled(new)];
    stage.read_bmc().await;
    stage.look(&[]).await;
    let (confirmed, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    assert_eq!((confirmed, guid(&site)), (version + 1, new));
    let message =
        format!("node {node}: port {new} of {hca} is confirmed in place of {former}: agent, BMC and fabric agree");
    let events = stage.events().await;
    let confirmations = events.iter().filter(|(kind, _)| kind == "fabric.adapter-confirmed");
    assert_eq!(
        confirmations.map(|(_, message)| message).collect::<Vec<_>>(),
        [&message]
    );
    let audit = core.store.audit(&AuditFilter::default(), 0, 1000).await.unwrap();
    let record = audit.iter().find(|row| row.method == "local/confirm-adapters").unwrap();
    assert!(record.record.contains(&message), "{}", record.record);

    // The cluster is degraded until the port has the key.
    stage.look(&[]).await;
    assert_eq!(step(core, "alpha").await, State::Degraded);
    assert_eq!(cluster(core, "alpha").await.wait, Wait::Partition);
    let events = core.store.events(&Scope::Site, 0, "clusters/alpha", 100).await.unwrap();
    let words = format!("the partition of alpha gets the ports of the site: {node}: port {new} of {hca} ");
    let change = events.iter().find(|event| event.kind == "cluster.ports").unwrap();
    assert!(change.message.starts_with(&words), "{}", change.message);
    prove(core).await;
    assert_eq!(step(core, "alpha").await, State::Ready);

    // The operator's files still have the former port: the confirmation holds.
    apply_site(core, "again", &format!("{}# as before\n", super::site(NODES)))
        .await
        .unwrap();
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    assert_eq!(guid(&site), new);
    assert_eq!(step(core, "alpha").await, State::Ready);
}
