//! Conversions from stored rows to messages.

use rackwright_api::google::rpc;
use rackwright_api::v1;
use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_lifecycle::{Agent, Outcome, Power, Reading, Severity, State, Timestamp, Wait};
use rackwright_spread::{AgentReport, RackReport, SpreadReport};
use rackwright_store::{BootStageRow, EffectRow, EventRow, HistoryRow, ImageRow, ImageVersionRow, NodeRecord};
use rackwright_store::{OperationRow, StoreError, UnknownMachineRow};

use super::health;

pub use rackwright_ground::clock::{of_proto as timestamp, to_proto as time};

fn span(us: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration {
        seconds: us / 1_000_000,
        nanos: i32::try_from((us % 1_000_000) * 1000).unwrap_or(0),
    })
}

/// A node's state.
#[must_use]
pub fn state(state: State) -> v1::NodeState {
    match state {
        State::Discovered => v1::NodeState::Discovered,
        State::Inspecting => v1::NodeState::Inspecting,
        State::Available => v1::NodeState::Available,
        State::Allocated => v1::NodeState::Allocated,
        State::Imaging => v1::NodeState::Imaging,
        State::Rebooting => v1::NodeState::Rebooting,
        State::Validating => v1::NodeState::Validating,
        State::Active => v1::NodeState::Active,
        State::Reclaiming => v1::NodeState::Reclaiming,
        State::Failed => v1::NodeState::Failed,
        State::Quarantined => v1::NodeState::Quarantined,
        State::Maintenance => v1::NodeState::Maintenance,
    }
}

/// A node. Without `inventory`, the message has none.
#[must_use]
pub fn node(core: &Core, record: &NodeRecord, inventory: Option<v1::Inventory>, now: Timestamp) -> v1::Node {
    v1::Node {
        name: format!("nodes/{}", record.id),
        spec: Some(v1::NodeSpec {
            bmc: Some(v1::Bmc {
                address: record.spec.bmc_address.clone(),
                username: record.spec.bmc_username.clone(),
                password: String::new(),
                certificate_sha256: record.spec.bmc_certificate.clone(),
                system: record.spec.bmc_system.clone(),
            }),
            sku: record.spec.sku.clone(),
            boot_macs: record.spec.boot_macs.clone(),
        }),
        status: Some(status(core, record, inventory, now)),
        metadata: Some(v1::Metadata {
            uid: record.uid.clone(),
            resource_version: record.version.to_string(),
            create_time: time(record.created_at),
            update_time: time(record.updated_at),
            labels: record.labels.clone().into_iter().collect(),
        }),
    }
}

fn status(core: &Core, record: &NodeRecord, inventory: Option<v1::Inventory>, now: Timestamp) -> v1::NodeStatus {
    let deadline = core.config.policy.state_deadline(record.node.state, record.node.since);
    let waits = record.wait_until > now && record.wait != Wait::Rest;
    let presence = core.agents.presence(record, now);
    let (health, health_reason) = health::health(record);
    v1::NodeStatus {
        state: state(record.node.state).into(),
        state_since: time(record.node.since),
        state_deadline: deadline.and_then(time),
        waiting_for: if waits { record.wait.to_string() } else { String::new() },
        waiting_until: if waits { time(record.wait_until) } else { None },
        reason: record.reason.clone(),
        claim: record.node.claim.as_ref().map(|c| v1::Claim {
            generation: c.generation,
            image_version: format!("{}/versions/{}", c.image_name, c.image_digest),
            hostname: c.hostname.clone(),
            ssh_authorized_keys: c.ssh_authorized_keys.clone(),
            release_requested: c.release_requested,
            customer: c.customer.to_string(),
            has_user_data: c.has_user_data || !c.plain_user_data.is_empty(),
        }),
        claim_generation: record.node.generation,
        power: health::power(record).to_owned(),
        health: health.into(),
        health_reason,
        agent_connected: matches!(
            presence,
            Reading::Known {
                value: Agent::Present { .. },
                ..
            }
        ),
        address: record.address.clone(),
        address_witness: record.address_witness.clone(),
        macs: record.identity.macs.clone(),
        inventory,
        image_written: record.node.evidence.image_digest.clone().unwrap_or_default(),
        bmc_password_change_time: record.spec.account.changed_at.and_then(time),
        doubt: record
            .node
            .doubt
            .as_ref()
            .map_or_else(String::new, |doubt| doubt.why.clone()),
        doubt_since: record.node.doubt.as_ref().and_then(|doubt| time(doubt.since)),
        identity: record.hold.identity.clone(),
        tpm_ek: record.spec.tpm_ek.clone(),
    }
}

/// The power as a word: "on", "off", ...
#[must_use]
pub fn power(reading: &Reading<Power>) -> &'static str {
    match reading {
        Reading::Known { value: Power::On, .. } => "on",
        Reading::Known { value: Power::Off, .. } => "off",
        Reading::Known {
            value: Power::Changing, ..
        } => "changing",
        Reading::Unknown { .. } | Reading::Never => "unknown",
    }
}

#[must_use]
pub fn operation(row: &OperationRow, progress: Option<v1::Progress>) -> v1::Operation {
    let failed = row.ended_at.is_some() && row.code != 0;
    v1::Operation {
        name: format!("operations/{}", row.id),
        kind: row.kind.to_string(),
        target: row.target.clone(),
        requested_by: row.requested_by.clone(),
        create_time: time(row.created_at),
        end_time: row.ended_at.and_then(time),
        deadline: time(row.deadline),
        done: row.ended_at.is_some(),
        error: failed.then(|| rpc::Status {
            code: row.code,
            message: row.message.clone(),
            details: Vec::new(),
        }),
        progress,
        cancel_requested: row.cancel_requested,
        metadata: Some(v1::Metadata {
            uid: row.id.to_string(),
            resource_version: row.version.to_string(),
            create_time: time(row.created_at),
            update_time: row.ended_at.and_then(time),
            ..v1::Metadata::default()
        }),
    }
}

/// An edge that a node has taken.
#[must_use]
pub fn transition(row: &HistoryRow) -> v1::Transition {
    v1::Transition {
        edge: row.edge.clone(),
        from_state: state(row.from).into(),
        to_state: state(row.to).into(),
        time: time(row.at),
        reason: row.reason.clone(),
        time_in_former_state: span(row.spent_us),
    }
}

/// An attempt of an effect.
#[must_use]
pub fn attempt(row: &EffectRow) -> v1::Attempt {
    let (outcome, detail) = match &row.attempt.outcome {
        Outcome::Open => ("running", String::new()),
        Outcome::Succeeded => ("succeeded", String::new()),
        Outcome::Interrupted => ("interrupted", "the control plane or an operator ended it".to_owned()),
        Outcome::Failed { code, message, .. } => ("failed", format!("{code}: {message}")),
    };
    v1::Attempt {
        operation: row.id.clone(),
        effect: row.attempt.effect.as_str().to_owned(),
        number: u32::try_from(row.number).unwrap_or(u32::MAX),
        start_time: time(row.attempt.started_at),
        end_time: row.attempt.ended_at.and_then(time),
        outcome: outcome.to_owned(),
        detail,
    }
}

#[must_use]
pub fn event(row: EventRow) -> v1::Event {
    v1::Event {
        position: u64::try_from(row.position).unwrap_or(0),
        time: time(row.at),
        kind: row.kind.to_string(),
        severity: match row.kind.severity() {
            Severity::Info => v1::EventSeverity::Info,
            Severity::Warning => v1::EventSeverity::Warning,
            Severity::Error => v1::EventSeverity::Error,
        }
        .into(),
        target: row.target,
        message: row.message,
        attributes: row.attributes.into_iter().collect(),
    }
}

/// An image with its versions.
#[must_use]
pub fn image(row: &ImageRow, versions: &[ImageVersionRow]) -> v1::Image {
    v1::Image {
        name: format!("images/{}", row.id),
        versions: versions.iter().map(image_version).collect(),
        metadata: Some(v1::Metadata {
            uid: row.uid.clone(),
            resource_version: row.version.to_string(),
            create_time: time(row.created_at),
            update_time: time(row.updated_at),
            ..v1::Metadata::default()
        }),
    }
}

/// The spread of an image version.
pub fn version_spread(name: String, report: &SpreadReport) -> v1::VersionSpread {
    let agent = |agent: &AgentReport| v1::SpreadAgent {
        node: format!("nodes/{}", agent.node),
        held_chunks: agent.held,
        grants: agent.grants,
        is_alone: agent.is_alone,
        begin_time: time(agent.since),
    };
    let rack = |rack: &RackReport| v1::RackSpread {
        rack: rack.name.clone(),
        held_chunks: rack.held,
        grants: rack.agents.iter().map(|agent| agent.grants).sum(),
        alone: rack.agents.iter().map(|agent| u32::from(agent.is_alone)).sum(),
        agents: rack.agents.iter().map(agent).collect(),
    };
    v1::VersionSpread {
        name,
        chunks: report.chunks,
        server_chunks: report.origin.chunks,
        server_chunks_again: report.origin.again,
        server_chunks_alone: report.origin.for_alone,
        racks: report.racks.iter().map(rack).collect(),
    }
}

fn image_version(row: &ImageVersionRow) -> v1::ImageVersion {
    v1::ImageVersion {
        name: format!("images/{}/versions/{}", row.image_id, row.digest),
        create_time: time(row.created_at),
        logical_bytes: row.body.logical_bytes,
        data_bytes: row.body.data_bytes,
        compressed_bytes: row.body.compressed_bytes,
        chunks: row.body.chunks,
        source_sha256: row.body.source_sha256.clone(),
        source_format: image_format(&row.body.source_format).into(),
        signed_by: row.body.signed_by.clone(),
        os_id: row.body.os_id.clone(),
        os_version: row.body.os_version.clone(),
        kernel: row.body.kernel.clone(),
    }
}

fn image_format(name: &str) -> v1::ImageFormat {
    match name {
        "raw" => v1::ImageFormat::Raw,
        "zstd" => v1::ImageFormat::Zstd,
        "gzip" => v1::ImageFormat::Gzip,
        "xz" => v1::ImageFormat::Xz,
        "qcow2" => v1::ImageFormat::Qcow2,
        _ => v1::ImageFormat::Unspecified,
    }
}

#[must_use]
pub fn boot_stage(row: BootStageRow) -> v1::BootStage {
    v1::BootStage {
        time: time(row.at),
        stage: row.stage,
        detail: row.detail,
        remote: row.remote,
    }
}

/// A machine without a node.
///
/// # Errors
/// The stored inventory is unreadable.
pub fn unknown_machine(row: UnknownMachineRow) -> Result<v1::UnknownMachine, StoreError> {
    let inventory = stored::inventory(&row.mac, row.inventory.as_deref())?;
    Ok(v1::UnknownMachine {
        mac: row.mac,
        first_seen: time(row.first_seen),
        last_seen: time(row.last_seen),
        architecture: row.architecture,
        relay: row.relay,
        system_uuid: row.system_uuid,
        inventory,
    })
}
