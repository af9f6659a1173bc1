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

#[cfg(test)]
mod tests {
    use rackwright_ground::testing::{self, TestCore};
    use rackwright_identity::identify;
    use rackwright_lifecycle::State;
    use rackwright_nodes::agent_session::admit_agent;
    use rackwright_nodes::attestation::TpmEvidence;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A certificate request, and the hash of its key.
    fn request() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        let csr = csr.pem().unwrap();
        let key = ClientKey::of_request(&csr).unwrap();
        let sha256 = key.sha256().to_owned();
        (csr, sha256)
    }

    /// A node with the session of its agent, and the ends of the session's queue.
    async fn session() -> (TestCore, AdmittedAgent, mpsc::Sender<ToAgent>, mpsc::Receiver<ToAgent>) {
        let core = testing::core().await;
        let mut node = testing::node("n1", State::Reclaiming, None);
        node.node.generation = 7;
        testing::add(&core, &node).await;
        let of = testing::booted(&core, "n1", "kernel").await;
        let agent = rackwright_nodes::testing::arriving_agent("n1", of, "kernel");
        let (sender, receiver) = mpsc::channel(9);
        let shown = TpmEvidence::Nothing(String::new());
        let admitted = admit_agent(&core, &agent, &shown, sender.clone(), CancellationToken::new()).await;
        (core, admitted.unwrap().unwrap().admitted_agent, sender, receiver)
    }

    /// The next message to the agent. `None`: its renewals ended.
    async fn next(
        core: &Core,
        agent: &AdmittedAgent,
        sender: &mpsc::Sender<ToAgent>,
        receiver: &mut mpsc::Receiver<ToAgent>,
    ) -> Option<Control> {
        let (csr, key_sha256) = request();
        tokio::select! {
            () = renew(core, agent, &key_sha256, &csr, sender) => None,
            message = receiver.recv() => message.and_then(|message| message.message),
        }
    }

    #[tokio::test]
    async fn a_session_is_renewed_for_its_own_generation_boot_and_key() {
        tokio::time::pause();
        let (core, agent, sender, mut receiver) = session().await;
        let Some(Control::Renewed(renewed)) = next(&core, &agent, &sender, &mut receiver).await else {
            panic!("no certificate");
        };
        let leaf = CertificateDer::from_pem_slice(renewed.certificate_pem.as_bytes()).unwrap();
        let of = ClientIdentity::agent_of_boot("n1", 7, &agent.of.boot).unwrap();
        assert_eq!(identify(&leaf).unwrap(), of);
        assert_eq!(renewed.claim_generation, 7);
        let ((csr, own), (_, other)) = (request(), request());
        assert!(super::renewed(&core, &agent, &own, &csr).is_some());
        assert!(super::renewed(&core, &agent, &other, &csr).is_none(), "another key");
    }

    #[tokio::test]
    async fn renewals_end_with_the_claim_generation_and_with_a_newer_session() {
        tokio::time::pause();
        // The change of this process ends the session; another process only stores its change.
        for is_ours in [true, false] {
            let (core, agent, sender, mut receiver) = session().await;
            let mut tx = core.store.write().await.unwrap();
            let mut record = tx.node(&agent.node).await.unwrap();
            record.node.generation += 1;
            tx.save_node(&mut record, clock::now()).await.unwrap();
            match is_ours {
                true => core.commit(tx).await.unwrap(),
                false => tx.commit().await.unwrap(),
            }
            assert_eq!(core.agents.session(&agent.node).is_none(), is_ours);
            assert_eq!(next(&core, &agent, &sender, &mut receiver).await, None);
        }
        let (core, first, sender, mut receiver) = session().await;
        let again = rackwright_nodes::testing::arriving_agent("n1", first.of.clone(), "kernel");
        let (newer, _receiver) = mpsc::channel(9);
        let shown = TpmEvidence::Nothing(String::new());
        let newer = admit_agent(&core, &again, &shown, newer, CancellationToken::new()).await;
        assert_ne!(newer.unwrap().unwrap().admitted_agent.number, first.number);
        assert_eq!(next(&core, &first, &sender, &mut receiver).await, None);
    }
}
