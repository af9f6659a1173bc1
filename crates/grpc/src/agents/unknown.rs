//! Agents of machines without a node, on sites that boot them (`boot_unknown`). Their reports are shown to people. Such
//! an agent gets no job, and its reports affect no node. Any host on the boot network can act as one, with invented MAC
//! addresses.

use std::sync::Arc;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_ground::agents::{QUEUE, Session, ToAgent, UNKNOWN_PREFIX};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_lifecycle::{EventKind, NodeId, Timestamp};
use rackwright_nodes::agent_session::{connected, stage};
use rackwright_nodes::boot::UnknownReports;
use rackwright_store::{AgentSession, EventRow, StoreError, UnknownMachineRow};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Incoming, next};

/// Most connections: as many as stored machines of this kind.
const CONNECTIONS_MAX: usize = 4096;
/// Largest inventory that is kept, in bytes.
const INVENTORY_MAX: usize = 256 << 10;

/// The name in the certificate of such a machine's agent.
pub(super) fn name_of(mac: &str) -> String {
    format!("{UNKNOWN_PREFIX}{}", mac.replace(':', ""))
}

/// The MAC address behind an agent's name; `None` for the agent of a node.
pub(super) fn mac_of(name: &str) -> Option<String> {
    crate::boot::mac(name.strip_prefix(UNKNOWN_PREFIX)?).ok()
}

/// Accepts a connection.
///
/// # Errors
/// The machine belongs to a node now, or there are too many connections.
pub(super) async fn connect(
    core: &Arc<Core>,
    mac: String,
    hello: v1::Hello,
    incoming: Incoming,
) -> Result<mpsc::Receiver<ToAgent>, ApiError> {
    if let Some(node) = core.store.node_of_mac(&mac).await? {
        let message =
            format!("this certificate was issued before {mac} belonged to node {node}: boot the machine again");
        return Err(ApiError::Unauthenticated(message));
    }
    if core.agents.count(UNKNOWN_PREFIX) >= CONNECTIONS_MAX {
        let message = format!("{CONNECTIONS_MAX} agents of unknown machines are connected already");
        return Err(ApiError::precondition(
            "agents",
            message,
            "enrol the machines, or set boot_unknown to false",
        ));
    }
    let (sender, receiver) = mpsc::channel(QUEUE);
    // This task owns the connection: when it ends, so does the state of the session.
    tokio::spawn(attend(core.clone(), mac, hello, sender, incoming));
    Ok(receiver)
}

async fn attend(core: Arc<Core>, mac: String, hello: v1::Hello, sender: mpsc::Sender<ToAgent>, incoming: Incoming) {
    let (name, now, end) = (NodeId::stored(name_of(&mac)), clock::now(), CancellationToken::new());
    let number = core.agents.next_number();
    let session = Session {
        number,
        of: AgentSession::default(),
        boot_id: hello.boot_id.clone(),
        booted_at: now,
        heard_at: now,
        sender,
        end: end.clone(),
    };
    core.agents.connected(&name, session);
    let served = async {
        if let Err(error) = listen(&core, &mac, &hello, incoming).await {
            tracing::error!(mac, %error, "a message of a machine that belongs to no node could not be stored");
        }
    };
    tokio::select! {
        () = served => {}
        () = end.cancelled() => {}
        () = core.stop.cancelled() => {}
    }
    core.agents.disconnected(&name, number);
}

/// Handles messages until the stream breaks or is silent for too long. One inventory per stream counts.
async fn listen(core: &Core, mac: &str, hello: &v1::Hello, mut incoming: Incoming) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    tx.add_boot_stage(&stage(mac, &connected(hello), hello.address.clone()))
        .await?;
    core.commit(tx).await?;
    let mut is_reported = false;
    while let Some(message) = next(mac, &mut incoming).await {
        if let Some(Message::Inventory(inventory)) = message.message
            && !is_reported
        {
            is_reported = true;
            report(core, mac, &inventory).await?;
        }
    }
    Ok(())
}

/// Stores a machine's inventory and adds an event, unless it is unchanged or the machine belongs to a node now.
async fn report(core: &Core, mac: &str, inventory: &v1::Inventory) -> Result<(), StoreError> {
    let bytes = inventory.encode_to_vec();
    if bytes.len() > INVENTORY_MAX {
        tracing::warn!(mac, bytes = bytes.len(), "an inventory is too large and was dropped");
        return Ok(());
    }
    let now = clock::now();
    let mut tx = core.store.write().await?;
    if core.store.node_of_mac(mac).await?.is_some() {
        return Ok(());
    }
    let row = match tx.unknown_machine(mac).await? {
        Some(row) => row,
        None => {
            let row = row(mac, inventory, now);
            tx.record_unknown_machine(&row).await?;
            row
        }
    };
    if stored::inventory(mac, row.inventory.as_deref())?.as_ref() == Some(inventory) {
        return Ok(());
    }
    tx.save_unknown_inventory(mac, &bytes, now).await?;
    let may_tell = core.feature::<UnknownReports>().try_take(now);
    if may_tell {
        tx.add_event(&event(mac, inventory, now)).await?;
    }
    core.commit(tx).await
}

/// The row of a machine that was dropped since it requested a boot, because newer machines took its place.
fn row(mac: &str, inventory: &v1::Inventory, now: Timestamp) -> UnknownMachineRow {
    let uuid = inventory.dmi.as_ref().map(|dmi| cut(&dmi.uuid, NAME_MAX));
    UnknownMachineRow {
        mac: mac.to_owned(),
        first_seen: now,
        last_seen: now,
        architecture: String::new(),
        relay: String::new(),
        system_uuid: uuid.unwrap_or_default(),
        inventory: None,
    }
}

fn event(mac: &str, inventory: &v1::Inventory, now: Timestamp) -> EventRow {
    let dmi = inventory.dmi.clone().unwrap_or_default();
    let [vendor, model, serial] =
        [dmi.system_vendor, dmi.product_name, dmi.serial_number].map(|text| cut(&text, NAME_MAX));
    let message = format!(
        "a machine with MAC address {mac}, which belongs to no node, booted the agent: {vendor} {model}, \
         serial number {serial}"
    );
    let attributes = [("vendor", vendor), ("model", model), ("serial_number", serial)];
    EventRow {
        at: now,
        kind: EventKind::BootUnknownMachineReported,
        target: format!("machines/{mac}"),
        message,
        attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into(),
        ..EventRow::default()
    }
}

#[cfg(test)]
mod tests {
    use rackwright_api::v1::agent_service_server::AgentService as _;
    use rackwright_ground::testing;
    use rackwright_identity::{ClientIdentity, Token, identify};
    use rackwright_lifecycle::{State, seconds};
    use rackwright_store::{Scope, TokenRow};
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    use secrecy::ExposeSecret as _;
    use tonic::{Code, Request, Response, Status};

    use super::*;
    use crate::agents::Agents;
    use crate::names::check_id;

    const MAC: &str = "52:54:00:77:00:01";

    fn inventory(serial: &str) -> v1::Inventory {
        let dmi = v1::Dmi {
            system_vendor: "Acme".into(),
            product_name: "Box".into(),
            serial_number: serial.into(),
            ..v1::Dmi::default()
        };
        v1::Inventory {
            dmi: Some(dmi),
            firmware_versions: (0..20).map(|n| (n.to_string(), "1".to_owned())).collect(),
            ..v1::Inventory::default()
        }
    }

    async fn reports(core: &Core) -> usize {
        let events = core.store.events(&Scope::Site, 0, "", 2000).await.unwrap();
        events
            .iter()
            .filter(|e| e.kind == "boot.unknown-machine-reported")
            .count()
    }

    async fn token(core: &Core) -> String {
        let (shown, hash) = Token::mint(core.rng.as_ref()).unwrap();
        let row = TokenRow {
            hash: hash.to_hex(),
            purpose: "agent".into(),
            subject: MAC.into(),
            body: String::new(),
            expires_at: clock::now().plus(seconds(60)),
        };
        let mut tx = core.store.write().await.unwrap();
        tx.put_token(&row).await.unwrap();
        tx.commit().await.unwrap();
        shown.expose_secret().to_owned()
    }

    async fn register(core: &testing::TestCore) -> Result<v1::RegisterResponse, Status> {
        let token = token(core).await;
        let key = rcgen::KeyPair::generate().unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        let request = v1::RegisterRequest {
            token,
            mac: MAC.into(),
            csr_pem: csr.pem().unwrap(),
            ..v1::RegisterRequest::default()
        };
        let answer = Agents((*core).clone()).register(Request::new(request)).await;
        answer.map(Response::into_inner)
    }

    #[test]
    fn its_name_is_no_nodes_and_no_nodes_name_is_one() {
        let name = name_of(MAC);
        assert_eq!(
            (name.as_str(), mac_of(&name).as_deref()),
            ("unknown.525400770001", Some(MAC))
        );
        assert!(ClientIdentity::agent(&name, 0).is_ok());
        assert!(check_id("node_id", &name).is_err() && check_id("node_id", UNKNOWN_PREFIX).is_err());
        for node in [
            "unknown",
            "unknown-525400770001",
            "525400770001",
            "unknown.",
            "unknown.n1",
        ] {
            assert_eq!(mac_of(node), None, "{node}");
        }
    }

    #[tokio::test]
    async fn it_registers_as_nobody_until_it_is_a_nodes() {
        let core = testing::core().await;
        let answer = register(&core).await.unwrap();
        assert_eq!(
            (answer.node.as_str(), answer.claim_generation),
            ("machines/52:54:00:77:00:01", 0)
        );
        let certificate = CertificateDer::from_pem_slice(answer.certificate_pem.as_bytes()).unwrap();
        let identity = identify(&certificate).unwrap();
        assert_eq!(identity, ClientIdentity::agent("unknown.525400770001", 0).unwrap());
        assert_eq!(core.store.boot_stages(MAC).await.unwrap()[0].stage, "agent");

        testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
        let mut tx = core.store.write().await.unwrap();
        tx.put_macs(&"n1".into(), &[MAC.to_owned()]).await.unwrap();
        tx.commit().await.unwrap();
        let refused = register(&core).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    }

    #[tokio::test]
    async fn what_it_holds_is_told_once_and_of_no_node() {
        let core = testing::core().await;
        for _ in 0..3 {
            report(&core, MAC, &inventory("S1")).await.unwrap();
        }
        assert_eq!(reports(&core).await, 1);
        report(&core, MAC, &inventory("S2")).await.unwrap();
        assert_eq!(reports(&core).await, 2);
        let huge = v1::Inventory {
            kernel_release: "x".repeat(INVENTORY_MAX),
            ..inventory("S3")
        };
        report(&core, MAC, &huge).await.unwrap();
        let kept = core.store.unknown_machines().await.unwrap();
        assert_eq!(
            crate::convert::unknown_machine(kept[0].clone()).unwrap().inventory,
            Some(inventory("S2"))
        );
        for n in 0..300 {
            report(&core, MAC, &inventory(&n.to_string())).await.unwrap();
        }
        assert_eq!(reports(&core).await, 256, "events of one hour");

        testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
        let mut tx = core.store.write().await.unwrap();
        tx.put_macs(&"n1".into(), &[MAC.to_owned()]).await.unwrap();
        tx.commit().await.unwrap();
        report(&core, MAC, &inventory("S4")).await.unwrap();
        assert!(core.store.unknown_machines().await.unwrap().is_empty());
        assert_eq!(core.store.inventory(&"n1".into()).await.unwrap(), None);
    }
}
