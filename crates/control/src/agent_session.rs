//! What the connection of an agent changes in its node: arrival, ledger, messages, end. The transport is in `grpc`.

use prost::Message as _;
use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message;
use rackwright_lifecycle::{Agent, EffectClass, Reading};
use rackwright_store::{AgentBootRow, AgentSession, BootStageRow, EffectRow, StoreError, WriteTx};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agent_boot::{self, Answer, Refused, Showing};
use crate::agents::{Session, Speaker, ToAgent};
use crate::attestation::Shown;
use crate::bmc_secret;
use crate::clock;
use crate::core::Core;
use crate::ethernet::cabling;
use crate::golden_firmware::components::ComponentReading;
use crate::perform;
use crate::start::restored;
use crate::text::{SENTENCE_MAX, cut};

/// An inventory larger than this is refused.
pub(crate) const INVENTORY_MAX: usize = 4 << 20;

/// An agent that wants to be taken.
pub(crate) struct Arriving {
    pub(crate) node: String,
    /// What its certificate says.
    pub(crate) of: AgentSession,
    /// The address of its connection; empty: not known.
    pub(crate) remote: String,
    pub(crate) hello: v1::Hello,
    /// What the machine's components say of their firmware; none: its BMC offers nothing of the kind.
    pub(crate) reading: Option<ComponentReading>,
    /// What it answered when it was asked for the secret of its BMC; none: it was not asked.
    pub(crate) secret: Option<bmc_secret::Answer>,
}

/// A connection that was taken.
pub(crate) struct Arrived {
    pub(crate) speaker: Speaker,
    /// The job that is open.
    pub(crate) open: Option<EffectRow>,
    /// SHA-256 of the key that was registered.
    pub(crate) key_sha256: String,
}

/// Takes an agent's connection, if its certificate and its kernel are those that registered in the node's present boot, and
/// the machine has shown what the settings ask for: stores that it is here, and makes what it was told to do ours, whoever
/// told it.
///
/// From the change on the connection is this replica's to decide by. It is remembered before that is seen by anybody, and
/// while nobody else changes the node: what is begun from here on is sent to it.
pub(crate) async fn arrive(
    core: &Core,
    agent: &Arriving,
    shown: &Shown,
    sender: mpsc::Sender<ToAgent>,
    end: CancellationToken,
) -> Answer<Arrived> {
    let Arriving {
        node,
        of,
        hello,
        secret,
        ..
    } = agent;
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let mut record = match tx.node(node).await {
        Err(StoreError::NotFound { .. }) => return Ok(Err(Refused(format!("{node} is no node of this site")))),
        other => other?,
    };
    if of.generation > record.node.generation {
        drop(tx);
        restored::doubt_by_certificate(core, node, of.generation).await?;
        return Ok(Err(Refused(format!(
            "the certificate is of claim generation {}, and the record of {node} is older",
            of.generation
        ))));
    };
    let boot = match agent_boot::admit(&mut tx, &record, of, &hello.boot_id).await? {
        Ok(boot) => boot,
        Err(why) => return Ok(Err(why)),
    };
    let showing = Showing {
        shown,
        reading: agent.reading.as_ref(),
        secret: secret.as_ref(),
    };
    let identity = match agent_boot::identify(core, &mut tx, &record, boot.clone(), of, showing).await? {
        Ok(known) => known.identity,
        Err(why) => {
            core.commit(tx).await?;
            return Ok(Err(why));
        }
    };
    restored::compare_generation(&mut tx, &mut record, hello.claim_generation).await?;
    let mut readings = record.readings;
    let booted_at = boot.registered_at;
    let number = tx.hold_agent(node, &core.replica, of, identity).await?;
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
    tracing::info!(node, boot_id, ready_s = hello.ready_uptime_s, "agent connected");
    let speaker = Speaker {
        node: node.clone(),
        number,
        of: of.clone(),
        boot_id,
    };
    Ok(Ok(Arrived {
        speaker,
        open,
        key_sha256: boot.key_sha256,
    }))
}

/// Keeps where the node is reached: the address that our DHCP gave to the MAC address that booted; where another server gives
/// addresses, the one that the plan and the registration of this boot came from. Never what the agent says.
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

/// A connection, for the boot trace.
pub(crate) fn connected(hello: &v1::Hello) -> String {
    format!("connected {:.1} s after its kernel started", hello.ready_uptime_s)
}

/// Compares an agent's ledger with the job that is open.
pub(crate) async fn welcome(
    core: &Core,
    speaker: &Speaker,
    hello: &v1::Hello,
    open: Option<EffectRow>,
) -> Result<(), StoreError> {
    let node = speaker.node.as_str();
    for job in &hello.jobs {
        perform::job_ended(core, speaker, job).await?;
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

/// Takes what an agent says.
pub(crate) async fn heard(core: &Core, speaker: &Speaker, message: v1::AgentMessage) -> Result<(), StoreError> {
    core.metrics.agent_said();
    let node = speaker.node.as_str();
    match message.message {
        Some(Message::Inventory(mut inventory)) => {
            for nic in &mut inventory.nics {
                // What was heard comes in a message of its own.
                nic.neighbour.clear();
            }
            let bytes = inventory.encode_to_vec();
            if bytes.len() > INVENTORY_MAX {
                tracing::warn!(node, bytes = bytes.len(), "an inventory is too large and was dropped");
                return Ok(());
            }
            let now = clock::now();
            let mut tx = core.store.write().await?;
            let record = tx.node(node).await?;
            if record.hold.session != speaker.number {
                // Said on a connection that is over, or that another has followed, of another boot perhaps.
                return Ok(());
            }
            let mut readings = record.readings;
            readings.inventory = Reading::Known { value: (), at: now };
            tx.save_readings(node, &readings, now).await?;
            tx.save_inventory(node, &bytes).await?;
            core.commit(tx).await?;
            core.is_due(node);
        }
        Some(Message::Neighbours(said)) => cabling::heard(core, speaker, said).await?,
        Some(Message::Job(report)) => perform::job_ended(core, speaker, &report).await?,
        Some(Message::Heartbeat(_) | Message::Hello(_) | Message::Attestation(_)) | None => {}
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

/// A stage of the boot trace.
pub(crate) fn stage(mac: &str, detail: &str, remote: String) -> BootStageRow {
    BootStageRow {
        mac: mac.to_owned(),
        at: clock::now(),
        stage: "agent".into(),
        detail: cut(detail, SENTENCE_MAX),
        remote,
    }
}
