//! What an agent's connection changes in its node: arrival, ledger, messages, end. The transport is in `rackwright-grpc`.

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_ground::agents::{AdmittedAgent, Session, ToAgent};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::start::restored;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_lifecycle::{Agent, EffectClass, NodeId, Reading};
use rackwright_store::{AgentBootRow, AgentSession, BootStageRow, EffectRow, StoreError, WriteTx};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agent_boot::{self, Answer, MachineEvidence, Refused};
use crate::attestation::TpmEvidence;
use crate::bmc_secret;
use crate::ethernet::cabling;
use crate::golden_firmware::components::ComponentReading;
use crate::perform;

/// An inventory larger than this, in bytes, is refused.
pub const INVENTORY_MAX: usize = 4 << 20;

/// An agent that asks to be admitted.
pub struct ArrivingAgent {
    pub node: NodeId,
    /// The claim generation and the boot in its certificate.
    pub of: AgentSession,
    /// The address of its connection; empty: unknown.
    pub remote: String,
    /// Its first message.
    pub hello: v1::Hello,
    /// The firmware of the machine's components. `None`: its BMC offers no measurements.
    pub reading: Option<ComponentReading>,
    /// Its answer about the secret of its BMC. `None`: it was not asked.
    pub secret: Option<bmc_secret::Answer>,
}

pub struct AdmittedConnection {
    /// The agent.
    pub admitted_agent: AdmittedAgent,
    /// The open job.
    pub open: Option<EffectRow>,
    /// SHA-256 of the registered key.
    pub key_sha256: String,
}

/// Admits an agent's connection if its certificate and its kernel registered in the node's present boot and the machine has
/// shown what the settings require. Stores that the agent is present, and takes over its open job, whichever replica began
/// that job.
///
/// From the commit on, this replica decides by the connection. The connection is remembered before the commit, while the
/// node is locked: every effect that begins from here on is sent to it.
pub async fn admit_agent(
    core: &Core,
    agent: &ArrivingAgent,
    shown: &TpmEvidence,
    sender: mpsc::Sender<ToAgent>,
    end: CancellationToken,
) -> Answer<AdmittedConnection> {
    let ArrivingAgent {
        node,
        of,
        hello,
        secret,
        ..
    } = agent;
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let mut record = match tx.node(node).await {
        Err(StoreError::NotFound { .. }) => return Ok(Err(Refused(format!("this site has no node {node}")))),
        other => other?,
    };
    if of.generation > record.node.generation {
        drop(tx);
        restored::doubt_by_certificate(core, node, of.generation).await?;
        return Ok(Err(Refused(format!(
            "the certificate is for claim generation {}, and the record of {node} has an older generation",
            of.generation
        ))));
    };
    let boot = match agent_boot::admit(&mut tx, &record, of, &hello.boot_id).await? {
        Ok(boot) => boot,
        Err(why) => return Ok(Err(why)),
    };
    let evidence = MachineEvidence {
        shown,
        reading: agent.reading.as_ref(),
        secret: secret.as_ref(),
    };
    let identity = match agent_boot::identify(core, &mut tx, &record, boot.clone(), of, evidence).await? {
        Ok(known) => known.identity,
        Err(why) => {
            core.commit(tx).await?;
            return Ok(Err(why));
        }
    };
    restored::compare_generation(&mut tx, &mut record, hello.claim_generation).await?;
    let mut readings = record.readings;
    let booted_at = boot.registered_at;
    let number = tx.connect_agent(node, &core.replica, of, identity).await?;
    let boot_id = hello.boot_id.clone();
    let value = Agent::Present {
        boot_id: boot_id.clone(),
        booted_at,
    };
    readings.agent = Reading::Known { value, at: now };
    readings.boot = Some((boot_id.clone(), booted_at));
    tx.save_readings(node, &readings, now).await?;
    save_address(core, &mut tx, &boot).await?;
    tx.add_boot_stage(&stage(&boot.mac, &connected(hello), boot.address.clone()))
        .await?;
    let open = tx.open_effect(node).await?;
    let open = open.filter(|o| o.attempt.effect.class() == EffectClass::Once);
    if let Some(open) = open.as_ref().filter(|o| o.owner != core.replica) {
        tx.adopt_effect(&open.id, &core.replica).await?;
    }
    let session = Session {
        number,
        of: of.clone(),
        boot_id: boot_id.clone(),
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
    tracing::info!(
        node = node.as_str(),
        boot_id,
        ready_s = hello.ready_uptime_s,
        "agent connected"
    );
    let admitted_agent = AdmittedAgent {
        node: node.clone(),
        number,
        of: of.clone(),
        boot_id,
    };
    Ok(Ok(AdmittedConnection {
        admitted_agent,
        open,
        key_sha256: boot.key_sha256,
    }))
}

/// Stores the node's address: the address that this site's DHCP gave to the MAC address that booted. Where another server
/// gives addresses, it is the address that the plan and the registration of this boot came from. The agent's own statement
/// is never used.
async fn save_address(core: &Core, tx: &mut WriteTx, boot: &AgentBootRow) -> Result<(), StoreError> {
    if boot.address.is_empty() {
        return Ok(());
    }
    let given = core.store.address_of(&boot.mac).await?;
    let witness = if given.as_ref() == Some(&boot.address) {
        "dhcp"
    } else {
        "connection"
    };
    tx.save_address(&boot.node_id, &boot.address, witness).await
}

/// The text about a connection in the boot trace.
#[must_use]
pub fn connected(hello: &v1::Hello) -> String {
    format!("connected {:.1} s after its kernel started", hello.ready_uptime_s)
}

/// Compares an agent's ledger with the open job.
pub async fn compare_ledger(
    core: &Core,
    admitted_agent: &AdmittedAgent,
    hello: &v1::Hello,
    open: Option<EffectRow>,
) -> Result<(), StoreError> {
    let node = &admitted_agent.node;
    for job in &hello.jobs {
        perform::job_ended(core, admitted_agent, job).await?;
        let is_open = open.as_ref().is_some_and(|o| o.id == job.operation);
        if job.state() == v1::JobState::Running && !is_open {
            // Given up meanwhile: the old job would block the next one.
            perform::cancel_job(core, node, &job.operation).await;
        }
    }
    let unknown_to_agent = open.filter(|o| {
        o.attempt.boot_id.as_deref() == Some(hello.boot_id.as_str()) && hello.jobs.iter().all(|j| j.operation != o.id)
    });
    if let Some(open) = unknown_to_agent {
        // The job is stored, but the agent may never have received it: send it again with the same operation id.
        perform::send_job(core, node, &open).await;
    }
    core.wake(node).await;
    Ok(())
}

/// Handles a message of an agent.
pub async fn heard(core: &Core, admitted_agent: &AdmittedAgent, message: v1::AgentMessage) -> Result<(), StoreError> {
    core.metrics.note_agent_message();
    let node = &admitted_agent.node;
    match message.message {
        Some(Message::Inventory(mut inventory)) => {
            for nic in &mut inventory.nics {
                // The neighbours come in a message of their own.
                nic.neighbour.clear();
            }
            let bytes = inventory.encode_to_vec();
            if bytes.len() > INVENTORY_MAX {
                tracing::warn!(
                    node = node.as_str(),
                    bytes = bytes.len(),
                    "an inventory is too large and was dropped"
                );
                return Ok(());
            }
            let now = clock::now();
            let mut tx = core.store.write().await?;
            let record = tx.node(node).await?;
            if record.hold.session != admitted_agent.number {
                // The message came on a connection that is over or was replaced, perhaps of another boot.
                return Ok(());
            }
            let mut readings = record.readings;
            readings.inventory = Reading::Known { value: (), at: now };
            tx.save_readings(node, &readings, now).await?;
            tx.save_inventory(node, &bytes).await?;
            core.commit(tx).await?;
            core.notify_due(node);
        }
        Some(Message::Neighbours(neighbours)) => cabling::heard(core, admitted_agent, neighbours).await?,
        Some(Message::Job(report)) => perform::job_ended(core, admitted_agent, &report).await?,
        Some(Message::Heartbeat(_) | Message::Hello(_) | Message::Attestation(_)) | None => {}
    }
    Ok(())
}

/// Notes that a connection is gone, unless a newer one has replaced it.
pub async fn note_disconnect(core: &Core, node: &NodeId, number: i64) {
    core.agents.disconnected(node, number);
    let stored = async {
        let mut tx = core.store.write().await?;
        let is_gone = tx.disconnect_agent(node, number, clock::now()).await?;
        core.commit(tx).await?;
        Ok::<_, StoreError>(is_gone)
    };
    match stored.await {
        Ok(true) => {
            tracing::info!(node = node.as_str(), "agent disconnected");
            core.notify_due(node);
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(node = node.as_str(), %error, "the end of an agent's connection is not stored yet")
        }
    }
}

/// A stage of the boot trace.
#[must_use]
pub fn stage(mac: &str, detail: &str, remote: String) -> BootStageRow {
    BootStageRow {
        mac: mac.to_owned(),
        at: clock::now(),
        stage: "agent".into(),
        detail: cut(detail, SENTENCE_MAX),
        remote,
    }
}

#[cfg(test)]
mod tests;
