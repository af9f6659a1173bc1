//! `AgentService`: what the ramdisk's agent says and is told.

pub(crate) mod unknown;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_api::v1::agent_service_server::AgentService;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_identity::{ClientIdentity, TokenHash};
use rackwright_lifecycle::{Agent, EffectClass, Reading, seconds};
use rackwright_store::{BootStageRow, EffectRow, Scope, StoreError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::caller;
use super::connection::Peer;
use super::errors::ApiError;
use crate::agents::{QUEUE, Session, ToAgent};
use crate::clock;
use crate::core::Core;
use crate::perform;
use crate::text::{NAME_MAX, SENTENCE_MAX, cut};

/// How long an agent's certificate is good.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Seconds between heartbeats.
const HEARTBEAT_S: u32 = 5;
/// An inventory larger than this is refused.
const INVENTORY_MAX: usize = 4 << 20;

/// The service.
#[derive(Debug, Clone)]
pub struct Agents(pub Arc<Core>);

type Incoming = Streaming<v1::AgentMessage>;

fn stage(mac: &str, detail: &str, remote: String) -> BootStageRow {
    BootStageRow {
        mac: mac.to_owned(),
        at: clock::now(),
        stage: "agent".into(),
        detail: cut(detail, SENTENCE_MAX),
        remote,
    }
}

/// The agent's words about itself, at a length that can be kept and shown.
fn bounded(hello: v1::Hello) -> v1::Hello {
    v1::Hello {
        boot_id: cut(&hello.boot_id, NAME_MAX),
        address: cut(&hello.address, NAME_MAX),
        agent_version: cut(&hello.agent_version, NAME_MAX),
        ..hello
    }
}

/// Notes that somebody came with a token that is none. Anybody can do that, with any MAC address: only a node's is kept.
async fn note_refused(core: &Core, mac: &str, remote: String) -> Result<(), StoreError> {
    if core.store.node_of_mac(mac).await?.is_none() {
        tracing::debug!(
            mac,
            remote,
            "an agent's token was refused, and the MAC address is no node's"
        );
        return Ok(());
    }
    let row = BootStageRow {
        stage: "refused".into(),
        ..stage(mac, "an agent's token was refused", remote)
    };
    let mut tx = core.store.write().await?;
    tx.add_boot_stage(&row).await?;
    core.commit(tx).await
}

#[tonic::async_trait]
impl AgentService for Agents {
    type ConnectStream = Pin<Box<dyn Stream<Item = Result<v1::ControlMessage, Status>> + Send>>;

    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterResponse>, Status> {
        let peer = Peer::of(&request).cloned();
        let address = peer.as_ref().and_then(Peer::address);
        let remote = address.map(|a| a.to_string()).unwrap_or_default();
        let request = request.into_inner();
        let mac = super::boot::mac(&request.mac)?;
        let refuse = || ApiError::Unauthenticated("the boot token is not valid for this machine".into());
        let now = clock::now();
        let mut tx = self.0.store.write().await.map_err(ApiError::from)?;
        let hash = TokenHash::of(&request.token).map_err(|_| refuse())?.to_hex();
        // An agent that did not hear the answer asks again with the same request: for the same key, nothing is given twice.
        let who = blake3::hash(request.csr_pem.as_bytes()).to_hex();
        let used = tx
            .use_token_as(&hash, "agent", &who, now)
            .await
            .map_err(ApiError::from)?;
        let token = used.filter(|t| t.subject == mac);
        let Some(token) = token else {
            drop(tx);
            note_refused(&self.0, &mac, remote).await.map_err(ApiError::from)?;
            return Err(refuse().into());
        };
        let (name, generation) = if token.body.is_empty() {
            if self.0.store.node_of_mac(&mac).await.map_err(ApiError::from)?.is_some() {
                // A node's since it was booted: the next boot is that node's.
                return Err(refuse().into());
            }
            (unknown::name_of(&mac), 0)
        } else {
            let record = tx.node(&token.body).await.map_err(ApiError::from)?;
            (token.body, record.node.generation)
        };
        let (identity, answer) = credential(&self.0, &request.csr_pem, &name, generation)?;
        let detail = format!(
            "registered as {name}, version {}, boot {}",
            cut(&request.agent_version, NAME_MAX),
            cut(&request.boot_id, NAME_MAX)
        );
        tx.add_boot_stage(&stage(&mac, &detail, remote))
            .await
            .map_err(ApiError::from)?;
        self.0.commit(tx).await.map_err(ApiError::from)?;
        if let Some(peer) = peer {
            // Its stream may come on the same connection: the handshake for another one would show nothing new.
            peer.register(identity, now.plus(seconds(LIFETIME.as_secs().cast_signed())));
        }
        Ok(Response::new(answer))
    }

    async fn connect(&self, request: Request<Incoming>) -> Result<Response<Self::ConnectStream>, Status> {
        let (node, generation) = caller::agent(&request)?;
        let mut incoming = request.into_inner();
        let first = incoming.message().await?;
        let Some(Message::Hello(hello)) = first.and_then(|m| m.message) else {
            return Err(ApiError::invalid("message", "the first message must be hello").into());
        };
        if let Some(mac) = unknown::mac_of(&node) {
            let receiver = unknown::connect(&self.0, mac, bounded(hello), incoming).await?;
            return Ok(Response::new(Box::pin(
                ReceiverStream::new(receiver).map(|message| Ok(*message)),
            )));
        }
        let record = self.0.store.node(&Scope::Site, &node).await.map_err(ApiError::from)?;
        if record.node.generation != generation {
            let message = format!(
                "this certificate is of generation {generation} of {node}, which is at {}: boot the machine again",
                record.node.generation
            );
            return Err(ApiError::Unauthenticated(message).into());
        }
        let (sender, receiver) = mpsc::channel(QUEUE);
        // All of the connection is this task: whatever ends it, also ends what is remembered of it.
        tokio::spawn(attend(self.0.clone(), node, bounded(hello), sender, incoming));
        Ok(Response::new(Box::pin(
            ReceiverStream::new(receiver).map(|message| Ok(*message)),
        )))
    }
}

/// From an agent's hello to its end.
async fn attend(core: Arc<Core>, node: String, hello: v1::Hello, sender: mpsc::Sender<ToAgent>, incoming: Incoming) {
    let (node, end) = (node.as_str(), CancellationToken::new());
    // What happens once does not make what lasts larger.
    let (number, open) = match Box::pin(arrive(&core, node, &hello, sender.clone(), end.clone())).await {
        Ok(arrived) => arrived,
        Err(error) => {
            tracing::error!(node, %error, "an agent could not be taken up");
            return;
        }
    };
    let served = async {
        if let Err(error) = Box::pin(welcome(&core, node, &hello, open)).await {
            tracing::error!(node, %error, "an agent could not be taken up");
            return;
        }
        tokio::select! {
            () = listen(&core, node, number, incoming) => {}
            () = renew(&core, node, &hello.csr_pem, &sender) => {}
        }
    };
    tokio::select! {
        () = served => {}
        () = end.cancelled() => {}
        () = core.stop.cancelled() => {}
    }
    Box::pin(farewell(&core, node, number)).await;
}

/// Takes an agent's connection: stores that it is here, and makes what it was told to do ours, whoever told it. Answers
/// the connection's number and what is open.
///
/// From the change on the connection is this replica's to decide by. It is remembered before that is seen by anybody, and
/// while nobody else changes the node: what is begun from here on is sent to it.
pub(crate) async fn arrive(
    core: &Core,
    node: &str,
    hello: &v1::Hello,
    sender: mpsc::Sender<ToAgent>,
    end: CancellationToken,
) -> Result<(i64, Option<EffectRow>), StoreError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let mut readings = tx.node(node).await?.readings;
    let booted_at = match &readings.boot {
        Some((boot_id, first_seen)) if *boot_id == hello.boot_id => *first_seen,
        _ => now,
    };
    let number = tx.hold_agent(node, &core.replica).await?;
    let value = Agent::Present {
        boot_id: hello.boot_id.clone(),
        booted_at,
    };
    readings.agent = Reading::Known { value, at: now };
    readings.boot = Some((hello.boot_id.clone(), booted_at));
    tx.save_readings(node, &readings, now).await?;
    tx.save_address(node, &hello.address).await?;
    if let Ok(mac) = super::boot::mac(&hello.mac) {
        tx.add_boot_stage(&stage(&mac, &connected(hello), hello.address.clone()))
            .await?;
    }
    let open = tx.open_effect(node).await?;
    let open = open.filter(|o| o.attempt.effect.class() == EffectClass::Once);
    if let Some(open) = open.as_ref().filter(|o| o.owner != core.replica) {
        tx.adopt_effect(&open.id, &core.replica).await?;
    }
    let session = Session {
        number,
        boot_id: hello.boot_id.clone(),
        booted_at,
        heard_at: now,
        sender,
        end,
    };
    core.agents.connected(node, session);
    if let Err(error) = core.commit(tx).await {
        core.agents.disconnected(node, number);
        return Err(error);
    }
    tracing::info!(node, boot_id = %hello.boot_id, ready_s = hello.ready_uptime_s, "agent connected");
    Ok((number, open))
}

fn credential(
    core: &Core,
    csr_pem: &str,
    name: &str,
    generation: u64,
) -> Result<(ClientIdentity, v1::RegisterResponse), ApiError> {
    let internal = |e: &dyn std::fmt::Display| ApiError::invalid("csr_pem", e.to_string());
    let identity = ClientIdentity::agent(name, generation).map_err(|e| internal(&e))?;
    let now = clock::system_time(clock::now());
    let issued = core
        .keys
        .authority
        .issue_client(csr_pem, &identity, now, LIFETIME)
        .map_err(|e| internal(&e))?;
    let answer = v1::RegisterResponse {
        certificate_pem: issued.certificate_pem,
        expire_time: Some(issued.validity.not_after.into()),
        node: unknown::mac_of(name).map_or_else(|| format!("nodes/{name}"), |mac| format!("machines/{mac}")),
        claim_generation: generation,
        heartbeat_s: HEARTBEAT_S,
    };
    Ok((identity, answer))
}

/// A connection, for the boot trace.
fn connected(hello: &v1::Hello) -> String {
    format!("connected {:.1} s after its kernel started", hello.ready_uptime_s)
}

/// Compares an agent's ledger with the job that is open.
pub(crate) async fn welcome(
    core: &Core,
    node: &str,
    hello: &v1::Hello,
    open: Option<EffectRow>,
) -> Result<(), StoreError> {
    for job in &hello.jobs {
        perform::job_ended(core, node, job).await?;
        let is_open = open.as_ref().is_some_and(|o| o.id == job.operation);
        if job.state() == v1::JobState::Running && !is_open {
            // Given up meanwhile: it stands in the way of what comes next.
            perform::cancel_job(core, node, &job.operation).await;
        }
    }
    let unknown_to_agent = open.filter(|o| {
        o.attempt.boot_id.as_deref() == Some(hello.boot_id.as_str()) && hello.jobs.iter().all(|j| j.operation != o.id)
    });
    if let Some(open) = unknown_to_agent {
        // Written down, but the agent may never have heard of it: the same operation id again.
        perform::send_job(core, node, &open).await;
    }
    core.wake(node).await;
    Ok(())
}

/// Gives the agent new certificates well before its present one ends. Ends only when the agent cannot be told.
async fn renew(core: &Core, node: &str, csr_pem: &str, sender: &mpsc::Sender<ToAgent>) {
    loop {
        tokio::time::sleep(LIFETIME * 2 / 3).await;
        let generation = match Box::pin(core.store.node(&Scope::Site, node)).await {
            Ok(record) => record.node.generation,
            Err(error) => {
                tracing::warn!(node, %error, "the agent's certificate could not be renewed");
                continue;
            }
        };
        match credential(core, csr_pem, node, generation) {
            Ok((_, renewed)) => {
                let message = v1::ControlMessage {
                    message: Some(Control::Renewed(renewed)),
                };
                if sender.send(Box::new(message)).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(node, %error, "the agent's certificate could not be renewed"),
        }
    }
}

/// What an agent says next; none when its stream breaks or it is silent for too long.
async fn next(of: &str, incoming: &mut Incoming) -> Option<v1::AgentMessage> {
    let silence = Duration::from_secs(u64::from(HEARTBEAT_S) * 3);
    match tokio::time::timeout(silence, incoming.message()).await {
        Err(_) => {
            tracing::warn!(of, "the agent was silent for {} s", silence.as_secs());
            None
        }
        Ok(Err(status)) => {
            tracing::info!(of, %status, "the agent's stream broke");
            None
        }
        Ok(Ok(message)) => message,
    }
}

/// Hears an agent until it says nothing more.
async fn listen(core: &Core, node: &str, number: i64, mut incoming: Incoming) {
    while let Some(message) = next(node, &mut incoming).await {
        core.agents.heard(node, number, clock::now());
        // What happens now and then does not make what lasts larger.
        if let Err(error) = Box::pin(heard(core, node, number, message)).await {
            tracing::error!(node, %error, "an agent's message could not be stored");
            return;
        }
    }
}

/// Takes what an agent says.
pub(crate) async fn heard(core: &Core, node: &str, number: i64, message: v1::AgentMessage) -> Result<(), StoreError> {
    core.metrics.agent_said();
    match message.message {
        Some(Message::Inventory(inventory)) => {
            let bytes = inventory.encode_to_vec();
            if bytes.len() > INVENTORY_MAX {
                tracing::warn!(node, bytes = bytes.len(), "an inventory is too large and was dropped");
                return Ok(());
            }
            let now = clock::now();
            let mut tx = core.store.write().await?;
            let record = tx.node(node).await?;
            if record.hold.session != number {
                // Said on a connection that another has followed, of another boot perhaps.
                return Ok(());
            }
            let mut readings = record.readings;
            readings.inventory = Reading::Known { value: (), at: now };
            tx.save_readings(node, &readings, now).await?;
            tx.save_inventory(node, &bytes).await?;
            core.commit(tx).await?;
            core.is_due(node);
        }
        Some(Message::Job(report)) => perform::job_ended(core, node, &report).await?,
        Some(Message::Heartbeat(_) | Message::Hello(_)) | None => {}
    }
    Ok(())
}

/// Notes that a connection is gone, unless another has taken its place.
pub(crate) async fn farewell(core: &Core, node: &str, number: i64) {
    core.agents.disconnected(node, number);
    let stored = async {
        let mut tx = core.store.write().await?;
        let is_gone = tx.release_agent(node, number, clock::now()).await?;
        core.commit(tx).await?;
        Ok::<_, StoreError>(is_gone)
    };
    match stored.await {
        Ok(true) => {
            tracing::info!(node, "agent gone");
            core.is_due(node);
        }
        Ok(false) => {}
        Err(error) => tracing::warn!(node, %error, "that the agent is gone is stored a little later"),
    }
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::State;

    use super::*;
    use crate::testing;

    fn registering(mac: &str) -> Request<v1::RegisterRequest> {
        Request::new(v1::RegisterRequest {
            token: format!("rw1_{}", "0".repeat(64)),
            mac: mac.into(),
            ..v1::RegisterRequest::default()
        })
    }

    #[tokio::test]
    async fn a_refused_registration_is_kept_of_nodes_alone() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
        let (known, forged) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
        let mut tx = core.store.write().await.unwrap();
        tx.put_macs("n1", &[known.to_owned()]).await.unwrap();
        tx.commit().await.unwrap();
        let service = Agents(core.clone());
        for mac in [known, forged] {
            let refused = service.register(registering(mac)).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::Unauthenticated);
        }
        let kept = core.store.boot_stages(known).await.unwrap();
        assert_eq!((kept.len(), kept[0].stage.as_str()), (1, "refused"));
        assert!(core.store.boot_stages(forged).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_an_agent_says_of_itself_is_kept_short_and_in_one_line() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
        let hello = bounded(v1::Hello {
            boot_id: "b\n".repeat(10_000),
            address: "10.0.0.9\r".repeat(10_000),
            mac: "52:54:00:00:00:01".into(),
            ready_uptime_s: f64::MAX,
            ..v1::Hello::default()
        });
        let (sender, end) = (mpsc::channel(1).0, CancellationToken::new());
        arrive(&core, "n1", &hello, sender, end).await.unwrap();
        let record = core.store.node(&Scope::Site, "n1").await.unwrap();
        let stages = core.store.boot_stages(&hello.mac).await.unwrap();
        let boot = record.readings.boot.unwrap().0;
        for text in [&record.address, &boot, &stages[0].remote, &stages[0].detail] {
            assert!(
                text.len() <= SENTENCE_MAX && !text.contains(char::is_control),
                "{text:?}"
            );
        }
        assert!(record.address.len() <= NAME_MAX && boot.len() <= NAME_MAX);
    }
}
