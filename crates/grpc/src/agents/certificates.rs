//! Certificates of agents: at the registration, and renewals well before the present one ends.

use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_ground::agents::{AdmittedAgent, ToAgent};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_identity::{ClientIdentity, ClientKey};
use rackwright_store::{AgentSession, Scope};
use tokio::sync::mpsc;

use super::{HEARTBEAT_S, unknown};

/// Lifetime of an agent's certificate.
pub(super) const LIFETIME: Duration = Duration::from_secs(3600);

/// Issues a certificate for an agent. Also returns the hash of the authority that signed it.
pub(super) fn credential(
    core: &Core,
    key: &ClientKey,
    name: &str,
    of: &AgentSession,
) -> Result<(ClientIdentity, v1::RegisterResponse, String), ApiError> {
    let internal = |e: &dyn std::fmt::Display| ApiError::invalid("csr_pem", e.to_string());
    let identity = if of.boot.is_empty() {
        ClientIdentity::agent(name, of.generation)
    } else {
        ClientIdentity::agent_of_boot(name, of.generation, &of.boot)
    };
    let identity = identity.map_err(|e| internal(&e))?;
    let now = clock::system_time(clock::now());
    let issued = core
        .keys
        .authority
        .issue_client(key, &identity, now, LIFETIME)
        .map_err(|e| internal(&e))?;
    let answer = v1::RegisterResponse {
        certificate_pem: issued.certificate_pem,
        expire_time: Some(issued.validity.not_after.into()),
        node: unknown::mac_of(name).map_or_else(|| format!("nodes/{name}"), |mac| format!("machines/{mac}")),
        claim_generation: of.generation,
        heartbeat_s: HEARTBEAT_S,
        ca_certificate_pem: core.keys.authority.ca_pem(),
    };
    Ok((identity, answer, issued.authority))
}

/// Sends the agent new certificates for its registered key, well before the present one ends and after a change of the
/// signing authority. Generation and boot stay the same. Ends when the session is no longer valid or the agent is
/// unreachable.
pub(super) async fn renew(
    core: &Core,
    admitted_agent: &AdmittedAgent,
    key_sha256: &str,
    csr_pem: &str,
    sender: &mpsc::Sender<ToAgent>,
) {
    let node = &admitted_agent.node;
    let mut authority = core.authority_changes.watch();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LIFETIME * 2 / 3) => {}
            // Cannot fail: the sender lives as long as the core.
            _ = authority.changed() => {}
        }
        match Box::pin(core.store.node(&Scope::Site, node)).await {
            Ok(record)
                if core
                    .agents
                    .held(&record)
                    .is_some_and(|s| s.number == admitted_agent.number) => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(node = node.as_str(), %error, "the agent's certificate could not be renewed");
                continue;
            }
        }
        let Some((renewed, signed_by)) = renewed(core, admitted_agent, key_sha256, csr_pem) else {
            continue;
        };
        let message = v1::ControlMessage {
            message: Some(Control::Renewed(renewed)),
        };
        if sender.send(Box::new(message)).await.is_err() {
            return;
        }
        if let Err(error) = core.store.record_renewal(node, &signed_by).await {
            tracing::warn!(node = node.as_str(), %error, "the authority of the agent's certificate could not be stored");
        }
    }
}

/// A new certificate for the session's generation, boot and key, and the authority that signed it.
fn renewed(
    core: &Core,
    admitted_agent: &AdmittedAgent,
    key_sha256: &str,
    csr_pem: &str,
) -> Option<(v1::RegisterResponse, String)> {
    let node = &admitted_agent.node;
    let key = ClientKey::of_request(csr_pem).ok();
    let Some(key) = key.filter(|key| key.sha256() == key_sha256) else {
        tracing::warn!(
            node = node.as_str(),
            "the agent requests a certificate for a key other than its registered key; the request is refused"
        );
        return None;
    };
    match credential(core, &key, node.as_str(), &admitted_agent.of) {
        Ok((_, renewed, authority)) => Some((renewed, authority)),
        Err(error) => {
            tracing::warn!(node = node.as_str(), %error, "the agent's certificate could not be renewed");
            None
        }
    }
}
