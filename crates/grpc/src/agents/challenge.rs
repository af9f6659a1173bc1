//! The dialogue at the beginning of an agent's stream, in which a machine proves its TPM or the secret of its BMC.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_ground::agents::ToAgent;
use rackwright_ground::core::Core;
use rackwright_ground::measured_boot;
use rackwright_nodes::agent_session::ArrivingAgent;
use rackwright_nodes::attestation::{self, Pending, TpmEvidence};
use rackwright_nodes::bmc_secret::{Answer, INSERTED};
use rackwright_store::StoreError;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Incoming, MESSAGE_MAX, next};

/// Longest time for a machine's answer. Firmware TPMs need seconds, and so do virtual drives before their medium is
/// ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages accepted before the answer: the inventory, and reports of a running job.
const EARLY_MAX: usize = 64;

/// Result of the dialogue.
pub(super) struct DialogueOutcome {
    pub(super) shown: TpmEvidence,
    /// Messages before the answer. They count if the session is accepted.
    pub(super) early: Vec<v1::AgentMessage>,
}

/// Challenges the machine, if it has to prove anything. The answer for its BMC's secret is stored in `agent`. `open`
/// opens the stream before a challenge. `None`: the stream ended.
pub(super) async fn dialogue(
    core: &Arc<Core>,
    agent: &mut ArrivingAgent,
    sender: &mpsc::Sender<ToAgent>,
    incoming: &mut Incoming,
    open: impl FnOnce(),
) -> Result<Option<DialogueOutcome>, StoreError> {
    let keys = keys(core, agent);
    let asks_secret = asks_secret(core, agent).await?;
    if keys.is_none() && !asks_secret {
        return Ok(Some(DialogueOutcome {
            shown: TpmEvidence::Nothing(agent.hello.tpm_fault.clone()),
            early: Vec::new(),
        }));
    }
    open();
    Ok(challenge(core, agent, keys.as_ref(), asks_secret, sender, incoming).await)
}

/// Takes the TPM keys out of an agent's hello, because the hello is kept for the whole session. `None` if the settings
/// do not use TPMs.
fn keys(core: &Core, agent: &mut ArrivingAgent) -> Option<v1::TpmKeys> {
    agent.hello.tpm.take().filter(|_| core.config.identity.asks())
}

/// Whether the BMC of the agent's node provides a secret in this boot.
async fn asks_secret(core: &Core, agent: &ArrivingAgent) -> Result<bool, StoreError> {
    if !core.config.identity.asks_any_bmc() {
        return Ok(false);
    }
    let row = core.store.agent_boot(&agent.node).await?;
    Ok(row.is_some_and(|row| row.boot == agent.of.boot && row.bmc_secret == INSERTED))
}

/// Challenges a machine and judges its answer. `None`: the stream ended.
async fn challenge(
    core: &Arc<Core>,
    agent: &mut ArrivingAgent,
    keys: Option<&v1::TpmKeys>,
    asks_secret: bool,
    sender: &mpsc::Sender<ToAgent>,
    incoming: &mut Incoming,
) -> Option<DialogueOutcome> {
    let mut early = Vec::new();
    let made = match keys {
        Some(keys) => Pending::new(keys, &agent.node, &agent.of).map(|(pending, challenge)| (Some(pending), challenge)),
        None => attestation::challenge(&agent.node, &agent.of).map(|challenge| (None, challenge)),
    };
    let (pending, mut challenge) = match made {
        Ok(made) => made,
        Err(why) => {
            let shown = TpmEvidence::Wrong(why);
            return Some(DialogueOutcome { shown, early });
        }
    };
    challenge.bmc_secret = asks_secret;
    let nonce = challenge.nonce.clone();
    let message = Some(Control::Challenge(challenge));
    sender.send(Box::new(v1::ControlMessage { message })).await.ok()?;
    let answer = tokio::time::timeout(PATIENCE, answer(agent.node.as_str(), incoming, &mut early)).await;
    let answer = match answer {
        Ok(answer) => answer?,
        Err(_) => {
            let fault = format!("the agent did not answer within {} s", PATIENCE.as_secs());
            agent.secret = asks_secret.then(|| Answer {
                nonce,
                proof: Vec::new(),
                fault: fault.clone(),
            });
            let shown = TpmEvidence::Wrong(fault);
            return Some(DialogueOutcome { shown, early });
        }
    };
    let shown = match pending {
        Some(pending) => {
            let served = measured_boot::served(core).await;
            pending.judge(&answer, &served)
        }
        None => TpmEvidence::Nothing(agent.hello.tpm_fault.clone()),
    };
    agent.secret = asks_secret.then_some(Answer {
        nonce,
        proof: answer.bmc_proof,
        fault: answer.bmc_fault,
    });
    Some(DialogueOutcome { shown, early })
}

async fn answer(node: &str, incoming: &mut Incoming, early: &mut Vec<v1::AgentMessage>) -> Option<v1::Attestation> {
    let mut bytes = 0;
    loop {
        let message = next(node, incoming).await?;
        match message.message {
            Some(Message::Attestation(answer)) => return Some(answer),
            Some(Message::Inventory(_) | Message::Job(_) | Message::Neighbours(_)) => {
                bytes += message.encoded_len();
                if early.len() >= EARLY_MAX || bytes > MESSAGE_MAX {
                    tracing::warn!(
                        node,
                        "the agent sends too many messages before it answers its challenge"
                    );
                    return None;
                }
                early.push(message);
            }
            Some(Message::Heartbeat(_) | Message::Hello(_)) | None => {}
        }
    }
}

/// Messages to an agent, and at the end the reason if its session was refused.
pub(super) struct Outgoing {
    pub(super) messages: ReceiverStream<ToAgent>,
    pub(super) refusal: Option<oneshot::Receiver<Status>>,
}

impl Stream for Outgoing {
    type Item = Result<v1::ControlMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let message = std::task::ready!(Pin::new(&mut self.messages).poll_next(cx));
        if let Some(message) = message {
            return Poll::Ready(Some(Ok(*message)));
        }
        let Some(refusal) = self.refusal.as_mut() else {
            return Poll::Ready(None);
        };
        let refusal = std::task::ready!(Pin::new(refusal).poll(cx));
        self.refusal = None;
        Poll::Ready(refusal.ok().map(Err))
    }
}
