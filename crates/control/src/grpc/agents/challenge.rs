//! The dialogue by which a machine shows its TPM, at the beginning of an agent's stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_api::v1::control_message::Message as Control;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Arriving, Incoming, MESSAGE_MAX, next};
use crate::agents::ToAgent;
use crate::attestation::{Pending, Shown};
use crate::core::Core;
use crate::measured_boot;

/// How long a TPM may take for its answer: firmware TPMs need seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that may come before the answer: the inventory, and reports of a job that runs.
const EARLY_MAX: usize = 64;

/// How the dialogue ended.
pub(super) struct Shows {
    pub(super) shown: Shown,
    /// What the agent said before its answer. It counts if the answer is taken.
    pub(super) early: Vec<v1::AgentMessage>,
}

/// Takes the keys that an agent shows out of its hello, which is kept as long as the session. None if no machine is asked for
/// them.
pub(super) fn keys(core: &Core, agent: &mut Arriving) -> Option<v1::TpmKeys> {
    agent.hello.tpm.take().filter(|_| core.config.identity.asks())
}

/// Challenges a machine and hears its answer. None: the stream ended before.
pub(super) async fn challenge(
    core: &Arc<Core>,
    agent: &Arriving,
    keys: &v1::TpmKeys,
    sender: &mpsc::Sender<ToAgent>,
    incoming: &mut Incoming,
) -> Option<Shows> {
    let mut early = Vec::new();
    let (pending, challenge) = match Pending::new(keys, &agent.node, &agent.of) {
        Ok(made) => made,
        Err(why) => {
            let shown = Shown::Wrong(why);
            return Some(Shows { shown, early });
        }
    };
    let message = Some(Control::Challenge(challenge));
    sender.send(Box::new(v1::ControlMessage { message })).await.ok()?;
    let answer = tokio::time::timeout(PATIENCE, answer(&agent.node, incoming, &mut early)).await;
    let shown = match answer {
        Ok(answer) => {
            let answer = answer?;
            let served = measured_boot::served(core).await;
            pending.judge(&answer, &served)
        }
        Err(_) => Shown::Wrong(format!("there was no answer within {} s", PATIENCE.as_secs())),
    };
    Some(Shows { shown, early })
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
                    tracing::warn!(node, "the agent says too much before it answers its challenge");
                    return None;
                }
                early.push(message);
            }
            Some(Message::Heartbeat(_) | Message::Hello(_)) | None => {}
        }
    }
}

/// What is sent to an agent, and at the end why its session was refused.
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
