//! The identity of a machine by a secret that only its BMC delivers: the secret of each boot, the address where the BMC
//! fetches the medium with it, and the judgement of a machine's answer.
//!
//! Secret and address are derived from the site's sealing key, the node, its claim generation and the boot. Neither is
//! stored, so any replica can answer. `docs/machine-identity.md` has the message flow.

use std::net::IpAddr;

use rackwright_ground::core::Core;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_lifecycle::{Effect, NodeId};
use rackwright_redfish::BmcAddress;
use rackwright_store::{AgentBootRow, AgentSession, EffectRow, NodeRecord, Scope, StoreError};
use rackwright_tpm::medium::{self, Session};
use secrecy::{ExposeSecret as _, SecretBox};

use crate::agent_boot;

/// The value in the boot's row after the BMC took the medium.
pub const INSERTED: &str = "inserted";

/// The key purposes of secrets and of addresses.
const SECRETS: &str = "bmc-secrets";
const ADDRESSES: &str = "bmc-secret-addresses";
/// Prefix and file name of each medium's address. The name comes last: some BMCs check the file extension.
const PATH: &str = "/medium/v1";
const NAME: &str = "rackwright.iso";

fn derived(core: &Core, purpose: &str, node: &NodeId, of: &AgentSession) -> SecretBox<[u8; 32]> {
    let key = core.keys.sealer.derive(purpose);
    // No id contains a line feed.
    let text = format!("{node}\n{}\n{}", of.generation, of.boot);
    SecretBox::init_with_mut(|secret: &mut [u8; 32]| {
        secret.copy_from_slice(blake3::keyed_hash(key.expose_secret(), text.as_bytes()).as_bytes());
    })
}

fn seal(core: &Core, node: &NodeId, of: &AgentSession) -> String {
    let seal = derived(core, ADDRESSES, node, of);
    seal.expose_secret()[..20]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Prefix of the addresses of all media. `None`: this process runs no boot services.
fn base(core: &Core) -> Option<String> {
    let network = &core.config.boot.as_ref()?.network;
    // A BMC leaves out the default port when it reads the address as a URL.
    let port = match network.http_port {
        80 => String::new(),
        port => format!(":{port}"),
    };
    Some(format!("http://{}{port}{PATH}/", network.server_ip))
}

/// The address at which a node's BMC fetches the medium of a boot. `None`: this process runs no boot services.
#[must_use]
pub fn url(core: &Core, node: &NodeId, of: &AgentSession) -> Option<String> {
    Some(format!("{}{node}/{}/{NAME}", base(core)?, seal(core, node, of)))
}

/// Whether a medium with this address is served by this process.
#[must_use]
pub fn is_ours(core: &Core, medium_url: &str) -> bool {
    base(core).is_some_and(|base| medium_url.starts_with(&base))
}

/// The boot into the agent for which a node was, or is being, switched on.
#[must_use]
pub fn boot_of(record: &NodeRecord, rows: &[EffectRow]) -> Option<AgentSession> {
    let boot = agent_boot::expected(record, rows).filter(|row| row.attempt.effect == Effect::PowerOn)?;
    Some(AgentSession {
        generation: record.node.generation,
        boot: boot.id.clone(),
    })
}

/// The medium for this part of an address. `None`: the node expects no such boot, or the request does not come from its
/// BMC's address.
///
/// # Errors
/// The database failed.
pub async fn medium(core: &Core, node: &NodeId, given: &str, remote: IpAddr) -> Result<Option<Vec<u8>>, StoreError> {
    let record = match core.store.node(&Scope::Site, node).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    if !core.config.identity.of(&record.spec.sku).asks_bmc(&record) || !is_of_bmc(&record, remote) {
        return Ok(None);
    }
    let rows = core.store.attempts(&record.id, record.node.since).await?;
    let Some(of) = boot_of(&record, &rows) else {
        return Ok(None);
    };
    let row = core.store.agent_boot(&record.id).await?;
    if row.is_some_and(|row| row.boot == of.boot && row.is_contested()) {
        return Ok(None);
    }
    // The hashes are compared, so that timing does not reveal how many characters agree.
    let is_same = blake3::hash(seal(core, &record.id, &of).as_bytes()) == blake3::hash(given.as_bytes());
    Ok(is_same.then(|| medium::image(derived(core, SECRETS, &record.id, &of).expose_secret())))
}

/// Whether an address may be the address of the node's BMC. A host name is not resolved: it always may.
fn is_of_bmc(record: &NodeRecord, remote: IpAddr) -> bool {
    let address = BmcAddress::parse(&record.spec.bmc_address).ok();
    match address.and_then(|address| address.ip()) {
        Some(ip) => ip.to_canonical() == remote.to_canonical(),
        None => true,
    }
}

/// A machine's answer about the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The random bytes of the challenge.
    pub nonce: Vec<u8>,
    /// The proof; empty: the machine has none.
    pub proof: Vec<u8>,
    /// Why there is no proof.
    pub fault: String,
}

/// Whether the machine of a session has the secret of its boot. False: its BMC was not asked to deliver one, or does not.
///
/// # Errors
/// The BMC took the medium, and the machine does not know the secret on it: a sentence for an operator.
pub fn judge(
    core: &Core,
    record: &NodeRecord,
    boot: &AgentBootRow,
    of: &AgentSession,
    answer: Option<&Answer>,
) -> Result<bool, String> {
    if boot.bmc_secret != INSERTED {
        return Ok(false);
    }
    let id = &record.id;
    let Some(answer) = answer else {
        return Err(format!(
            "the BMC of {id} delivers the secret of this boot, and the session was not asked for the secret"
        ));
    };
    let session = Session {
        nonce: &answer.nonce,
        node: id.as_str(),
        generation: of.generation,
        boot: &of.boot,
        key_sha256: &boot.key_sha256,
    };
    if session.proves(derived(core, SECRETS, id, of).expose_secret(), &answer.proof) {
        return Ok(true);
    }
    let sku = &record.spec.sku;
    Err(if answer.proof.is_empty() {
        let fault = match answer.fault.as_str() {
            "" => "its agent gives no reason",
            fault => fault,
        };
        format!(
            "the BMC of {id} has the medium with the boot's secret in its virtual drive, and the machine that answered \
             has not read the medium: {}. If the machine's system does not see the drive, set identity.bmc_skus for SKU \
             {sku} to none",
            cut(fault, SENTENCE_MAX)
        )
    } else {
        format!("the machine that answered for {id} does not know the secret that the node's BMC delivers in this boot")
    })
}

#[cfg(test)]
mod tests;
