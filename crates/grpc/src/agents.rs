//! `AgentService`: messages from and to the ramdisk's agent.

mod certificates;
mod challenge;
mod components;
pub(crate) mod unknown;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_api::v1::agent_service_server::AgentService;
use rackwright_ground::agents::{AdmittedAgent, QUEUE, ToAgent};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::call;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::{NAME_MAX, SENTENCE_MAX, cut};
use rackwright_identity::ClientKey;
use rackwright_lifecycle::{NodeId, seconds};
use rackwright_nodes::agent_boot::{self, BootRequester, Refused, Registration, address_text};
use rackwright_nodes::agent_session::{
    ArrivingAgent, INVENTORY_MAX, admit_agent, compare_ledger, heard, note_disconnect, stage,
};
use rackwright_spread::Asking;
use rackwright_store::{AgentSession, BootStageRow, StoreError, TokenRow, WriteTx};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use self::certificates::{LIFETIME, credential, renew};
use self::challenge::{DialogueOutcome, Outgoing};
use super::caller;
use super::connection::{Peer, address_of};

/// Seconds between heartbeats.
const HEARTBEAT_S: u32 = 5;
/// Largest message from an agent in bytes: an inventory and its envelope.
pub(super) const MESSAGE_MAX: usize = INVENTORY_MAX + (64 << 10);

/// Implements `AgentService`.
#[derive(Debug, Clone)]
pub struct Agents(pub Arc<Core>);

type Incoming = Streaming<v1::AgentMessage>;

/// The agent's hello with its texts cut to the lengths that are stored and shown.
fn bounded(hello: v1::Hello) -> v1::Hello {
    v1::Hello {
        boot_id: cut(&hello.boot_id, NAME_MAX),
        address: cut(&hello.address, NAME_MAX),
        agent_version: cut(&hello.agent_version, NAME_MAX),
        tpm_fault: cut(&hello.tpm_fault, SENTENCE_MAX),
        ..hello
    }
}

fn not_valid() -> ApiError {
    ApiError::Unauthenticated("the boot token is not valid for this machine".into())
}

/// Stores a registration with an invalid token, if its MAC address belongs to a node. Any host can send such a registration
/// with any MAC address, so the others are only logged.
async fn note_refused(core: &Core, mac: &str, remote: String) -> Result<(), StoreError> {
    if core.store.node_of_mac(mac).await?.is_none() {
        tracing::debug!(
            mac,
            remote,
            "an agent's token was refused, and its MAC address belongs to no node"
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
    type ClaimChunksStream = Pin<Box<dyn Stream<Item = Result<v1::GrantMessage, Status>> + Send>>;

    async fn claim_chunks(
        &self,
        request: Request<Streaming<v1::ChunkMessage>>,
    ) -> Result<Response<Self::ClaimChunksStream>, Status> {
        let (node, of) = caller::agent(&request)?;
        let asking = Asking {
            node: NodeId::stored(node),
            of,
            address: address_of(&request),
        };
        let receiver = Box::pin(rackwright_spread::claim(&self.0, asking, request.into_inner())).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterResponse>, Status> {
        let peer = Peer::of(&request).cloned();
        let remote = address_text(peer.as_ref().and_then(Peer::address));
        let request = request.into_inner();
        let mac = super::boot::mac(&request.mac)?;
        let hash = agent_boot::token_hash(&request.token).map_err(|r| ApiError::Unauthenticated(r.0))?;
        let mut tx = self.0.store.write().await.map_err(ApiError::from)?;
        let token = tx.token(&hash, "agent").await.map_err(ApiError::from)?;
        let Some((token, _)) = token.filter(|(t, _)| t.subject == mac) else {
            drop(tx);
            note_refused(&self.0, &mac, remote).await.map_err(ApiError::from)?;
            return Err(not_valid().into());
        };
        let key = ClientKey::of_request(&request.csr_pem).map_err(|e| ApiError::invalid("csr_pem", e.to_string()))?;
        let (name, of) = match self
            .registered(&mut tx, &token, &request, (key.sha256(), &remote))
            .await?
        {
            Ok(registered) => registered,
            Err(why) => {
                self.0.commit(tx).await.map_err(ApiError::from)?;
                tracing::warn!(mac, remote, %why, "a registration was refused");
                return Err(ApiError::Unauthenticated(why.0).into());
            }
        };
        call::note_agent(name.as_str());
        let (identity, answer, authority) = credential(&self.0, &key, name.as_str(), &of)?;
        tx.record_agent_cert(&name, &authority).await.map_err(ApiError::from)?;
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
            // The agent's stream may use the same connection: another handshake would prove nothing new.
            peer.register(identity, clock::now().plus(seconds(LIFETIME.as_secs().cast_signed())));
        }
        Ok(Response::new(answer))
    }

    async fn connect(&self, request: Request<Incoming>) -> Result<Response<Self::ConnectStream>, Status> {
        let (node, of) = caller::agent(&request)?;
        let remote = address_text(Peer::of(&request).and_then(Peer::address));
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
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (admitted, answer) = oneshot::channel();
        let (refuse, refusal) = oneshot::channel();
        // This task owns the stream and does not depend on this call, which only waits for the answer. The state of the
        // session ends with the task.
        let agent = ArrivingAgent {
            node: NodeId::stored(node),
            of,
            remote,
            hello: bounded(hello),
            reading: None,
            secret: None,
        };
        let gate = Gate {
            admitted: Some(admitted),
            refuse: Some(refuse),
        };
        tokio::spawn(attend(self.0.clone(), agent, sender, incoming, gate));
        let answer = answer.await;
        answer.unwrap_or_else(|_| Err(ApiError::Internal("the agent could not be admitted".into())))?;
        Ok(Response::new(Box::pin(Outgoing {
            messages: ReceiverStream::new(receiver),
            refusal: Some(refusal),
        })))
    }
}

impl Agents {
    /// Registers an agent with a token for its MAC address. Returns the name for the certificate and the session that the
    /// certificate is bound to. The caller commits the transaction also if the registration is refused.
    async fn registered(
        &self,
        tx: &mut WriteTx,
        token: &TokenRow,
        request: &v1::RegisterRequest,
        (key, remote): (&str, &str),
    ) -> Result<Result<(NodeId, AgentSession), Refused>, ApiError> {
        let mac = &token.subject;
        if !token.body.is_empty() {
            let requester = BootRequester { mac, address: remote };
            let kernel_boot_id = cut(&request.boot_id, NAME_MAX);
            let who = Registration {
                requester,
                kernel_boot_id: &kernel_boot_id,
                key_sha256: key,
            };
            return Ok(agent_boot::register(tx, token, who).await?);
        }
        // An agent that missed the answer repeats the request: for the same key the token counts as used once.
        let used = tx.use_token_as(&token.hash, "agent", key, clock::now()).await?;
        if used.is_none() || self.0.store.node_of_mac(mac).await?.is_some() {
            // The token was used with another key, or the machine was enrolled as a node after its boot. Its next boot
            // belongs to that node.
            return Err(not_valid());
        }
        Ok(Ok((NodeId::stored(unknown::name_of(mac)), AgentSession::default())))
    }
}

/// Reports to an agent whether its session is accepted: in the answer to its call, or later at the end of its stream.
struct Gate {
    admitted: Option<oneshot::Sender<Result<(), ApiError>>>,
    refuse: Option<oneshot::Sender<Status>>,
}

impl Gate {
    /// Opens the stream. A client that has gone away is noticed when its stream ends.
    fn open(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            let _ = admitted.send(Ok(()));
        }
    }

    fn refuse(mut self, error: ApiError) {
        if let Some(admitted) = self.admitted.take() {
            let _ = admitted.send(Err(error));
        } else if let Some(refuse) = self.refuse.take() {
            let _ = refuse.send(error.into());
        }
    }
}

/// Handles an agent from its hello to its end. A machine with a TPM, or with a secret from its BMC, has to prove itself
/// before its messages count.
async fn attend(
    core: Arc<Core>,
    mut agent: ArrivingAgent,
    sender: mpsc::Sender<ToAgent>,
    mut incoming: Incoming,
    mut gate: Gate,
) {
    let end = CancellationToken::new();
    let dialogue = challenge::dialogue(&core, &mut agent, &sender, &mut incoming, || gate.open());
    let shows = tokio::select! {
        shows = Box::pin(dialogue) => shows,
        () = core.stop.cancelled() => return,
    };
    let DialogueOutcome { shown, early } = match shows {
        Ok(Some(shows)) => shows,
        Ok(None) => return,
        Err(error) => return gate.refuse(error.into()),
    };
    if let Err(error) = Box::pin(components::read(&core, &mut agent, &mut gate)).await {
        gate.refuse(error.into());
        return;
    }
    // Boxed, so that this one-time step does not enlarge the long-lived future.
    let arrived = match Box::pin(admit_agent(&core, &agent, &shown, sender.clone(), end.clone())).await {
        Ok(Ok(arrived)) => arrived,
        Ok(Err(why)) => {
            let ArrivingAgent { node, of, remote, .. } = &agent;
            Box::pin(agent_boot::report_refusal(&core, node, of, remote, &why)).await;
            gate.refuse(ApiError::Unauthenticated(why.0));
            return;
        }
        Err(error) => {
            tracing::error!(node = agent.node.as_str(), %error, "an agent could not be admitted");
            gate.refuse(error.into());
            return;
        }
    };
    gate.open();
    let (node, admitted_agent) = (&agent.node, &arrived.admitted_agent);
    let served = async {
        if let Err(error) = Box::pin(compare_ledger(&core, admitted_agent, &agent.hello, arrived.open)).await {
            tracing::error!(node = node.as_str(), %error, "an agent could not be admitted");
            return;
        }
        for message in early {
            if let Err(error) = Box::pin(heard(&core, admitted_agent, message)).await {
                tracing::error!(node = node.as_str(), %error, "an agent's message could not be stored");
                return;
            }
        }
        tokio::select! {
            () = listen(&core, admitted_agent, incoming) => {}
            () = renew(&core, admitted_agent, &arrived.key_sha256, &agent.hello.csr_pem, &sender) => {}
        }
    };
    tokio::select! {
        () = served => {}
        () = end.cancelled() => {}
        () = core.stop.cancelled() => {}
    }
    Box::pin(note_disconnect(&core, node, admitted_agent.number)).await;
}

/// The next message of an agent; `None` when its stream breaks or it is silent for too long.
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

/// Handles an agent's messages until its stream ends.
async fn listen(core: &Core, admitted_agent: &AdmittedAgent, mut incoming: Incoming) {
    let node = &admitted_agent.node;
    while let Some(message) = next(node.as_str(), &mut incoming).await {
        core.agents.heard(node, admitted_agent.number, clock::now());
        // Boxed, so that this rare step does not enlarge the long-lived future.
        if let Err(error) = Box::pin(heard(core, admitted_agent, message)).await {
            tracing::error!(node = node.as_str(), %error, "an agent's message could not be stored");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::State;
    use rackwright_nodes::attestation::TpmEvidence;
    use rackwright_store::Scope;

    use super::*;

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
        tx.put_macs(&"n1".into(), &[known.to_owned()]).await.unwrap();
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
    async fn what_an_agent_says_of_itself_is_kept_short_and_its_address_is_not_believed() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
        let hello = bounded(v1::Hello {
            boot_id: "b\n".repeat(10_000),
            address: "10.66.6.6".into(),
            mac: "52:54:00:00:00:66".into(),
            ready_uptime_s: f64::MAX,
            ..v1::Hello::default()
        });
        let of = testing::booted(&core, "n1", &hello.boot_id).await;
        let agent = ArrivingAgent {
            hello,
            ..rackwright_nodes::testing::arriving_agent("n1", of, "")
        };
        let (sender, end) = (mpsc::channel(1).0, CancellationToken::new());
        admit_agent(&core, &agent, &TpmEvidence::Nothing(String::new()), sender, end)
            .await
            .unwrap()
            .unwrap();
        let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        assert_eq!((&*record.address, &*record.address_witness), ("10.0.0.9", "connection"));
        assert!(core.store.boot_stages(&agent.hello.mac).await.unwrap().is_empty());
        let stages = core.store.boot_stages("52:54:00:00:00:01").await.unwrap();
        let boot = record.readings.boot.unwrap().0;
        for text in [&boot, &stages[0].remote, &stages[0].detail] {
            assert!(
                text.len() <= SENTENCE_MAX && !text.contains(char::is_control),
                "{text:?}"
            );
        }
        assert!(boot.len() <= NAME_MAX);
    }
}
