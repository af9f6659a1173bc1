//! Boots of nodes into the agent: which machine gets the boot plan, which agent may register, and which session counts.
//!
//! A boot has the id of the effect that switched the machine on. One boot has one registration: a kernel's boot id and a
//! key. A MAC address can be copied. When two machines answer for one boot, the daemon believes neither: the boot becomes
//! contested, the session ends, and the decisions power-cycle the node (`decide/contest.rs`). A machine that does not prove
//! itself by its TPM also contests its boot.
//!
//! Everything here happens in one change with the node locked, so that every replica reaches the same result.

mod refusals;

use std::net::IpAddr;

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_identity::TokenHash;
use rackwright_lifecycle::{BootFacts, EventKind, NodeId, Power, expected_boot};
use rackwright_store::{
    AgentBootRow, AgentSession, ContestKind, EffectRow, EventRow, NodeRecord, Scope, Store, StoreError, TokenRow,
    WriteTx,
};

use crate::attestation::{self, BY_ADDRESS, BY_BMC, BY_TPM, MachineIdentity, TpmEvidence};
use crate::bmc_secret;
use crate::boot::mint;
use crate::golden_firmware;
use crate::golden_firmware::components::ComponentReading;
use refusals::Refusals;

/// From the boot plan to the agent's registration. In between, the machine fetches and starts kernel and ramdisk.
const AGENT_TOKEN_S: i64 = 900;
/// Boot plans for one boot before an agent registers. The store keeps as many tokens of one MAC address.
const PLANS_MAX: i64 = 8;

/// Why a machine gets no plan, or why an agent is refused. Text for people; it holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A result of the rules, or a failure of the database.
pub type Answer<T> = Result<Result<T, Refused>, StoreError>;

fn refused<T>(why: impl Into<String>) -> Answer<T> {
    Ok(Err(Refused(why.into())))
}

/// The machine that sends a request: its MAC address and IP address, as far as known. Neither is proven.
#[derive(Debug, Clone, Copy)]
pub struct BootRequester<'a> {
    /// Lower case, with colons.
    pub mac: &'a str,
    /// Empty: unknown.
    pub address: &'a str,
}

impl std::fmt::Display for BootRequester<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            "" => write!(f, "{} (address not known)", self.mac),
            address => write!(f, "{} at {address}", self.mac),
        }
    }
}

/// An IP address as it is stored. An IPv4 client has the same text on an IPv4 socket and on a dual-stack socket.
#[must_use]
pub fn address_text(address: Option<IpAddr>) -> String {
    address.map(|a| a.to_canonical().to_string()).unwrap_or_default()
}

/// The boot, among the effects of the node's present state, from which the node's agent may come now.
#[must_use]
pub fn expected<'a>(record: &NodeRecord, rows: &'a [EffectRow]) -> Option<&'a EffectRow> {
    let attempts = rows.iter().map(|row| &row.attempt);
    expected_boot(record.node.state, attempts, &record.readings.power).map(|index| &rows[index])
}

/// The stored row if it is of this boot; else a fresh row that carries over what outlasts a boot.
fn row_of(before: Option<AgentBootRow>, record: &NodeRecord, boot: &EffectRow) -> AgentBootRow {
    let before = before.unwrap_or_default();
    if before.boot == boot.id {
        return before;
    }
    let took_us = before.registered_at.since(before.powered_on_at);
    let is_good = before.is_registered() && !before.is_contested();
    let mut row = AgentBootRow {
        node_id: record.id.clone(),
        boot: boot.id.clone(),
        state_since: record.node.since,
        powered_on_at: boot.attempt.started_at,
        usual_us: if is_good { took_us } else { before.usual_us },
        ..AgentBootRow::default()
    };
    if before.state_since == record.node.since {
        row.contests = before.contests;
        row.contested_at = before.contested_at;
        row.contested_why = before.contested_why;
        row.contest_kind = before.contest_kind;
    }
    row
}

/// Stores whether the BMC brings the machine the secret of the present boot. Returns false when another boot has become the
/// present one.
pub async fn note_secret(core: &Core, node: &NodeId, boot: &str, secret: &str) -> Result<bool, StoreError> {
    let mut tx = core.store.write().await?;
    let record = tx.node(node).await?;
    let Some(mut row) = present_boot(&mut tx, &record).await?.filter(|row| row.boot == boot) else {
        return Ok(false);
    };
    row.bmc_secret = secret.to_owned();
    tx.put_agent_boot(&row).await?;
    core.commit(tx).await?;
    Ok(true)
}

/// The row of a node's last boot into the agent, read once for several decisions. A change that affects decisions makes the
/// node due, and the next decision reads the whole node again.
#[derive(Debug, Default)]
pub enum LastBoot {
    /// Not read.
    #[default]
    Unread,
    /// As it was read. `None`: the node has never booted into the agent.
    Read(Option<Box<AgentBootRow>>),
}

impl LastBoot {
    async fn row(&mut self, store: &Store, node: &NodeId) -> Result<Option<&AgentBootRow>, StoreError> {
        if matches!(self, Self::Unread) {
            *self = Self::Read(store.agent_boot(node).await?.map(Box::new));
        }
        Ok(match self {
            Self::Unread => None,
            Self::Read(row) => row.as_deref(),
        })
    }

    /// What a decision needs about the boots of a node's present state.
    pub async fn facts(
        &mut self,
        store: &Store,
        record: &NodeRecord,
        rows: &[EffectRow],
    ) -> Result<BootFacts, StoreError> {
        if !record.node.state.boots_agent() || rows.is_empty() {
            return Ok(BootFacts::default());
        }
        let Some(before) = self.row(store, &record.id).await? else {
            return Ok(BootFacts::default());
        };
        let row = match expected(record, rows) {
            Some(boot) if boot.id != before.boot => &row_of(Some(before.clone()), record, boot),
            _ => before,
        };
        let is_of_state = row.state_since == record.node.since && row.contests > 0;
        Ok(BootFacts {
            contests: if is_of_state { row.contests } else { 0 },
            contested: is_of_state.then(|| (row.contested_at, row.contested_why.clone())),
            is_unproven: is_of_state && row.contest_kind == ContestKind::Identity,
            usual_us: row.usual_us,
        })
    }
}

/// The boot from which the node's agent is expected, with its row. The node is locked.
async fn present_boot(tx: &mut WriteTx, record: &NodeRecord) -> Result<Option<AgentBootRow>, StoreError> {
    if !record.node.state.boots_agent() {
        return Ok(None);
    }
    let rows = tx.effects(&record.id, record.node.since).await?;
    match expected(record, &rows) {
        Some(boot) => Ok(Some(row_of(tx.agent_boot(&record.id).await?, record, boot))),
        None => Ok(None),
    }
}

fn not_expected(record: &NodeRecord) -> String {
    let (id, state) = (&record.id, record.node.state);
    if state.boots_agent() {
        format!("{id} is {state}, and was not switched on for the agent")
    } else {
        format!("{id} is {state}, and expects no agent")
    }
}

const CONTESTED: &str = "two machines answered for this boot of the node, or a machine did not prove its identity: the \
                         node is switched off and on again";

/// Gives a machine of `node` the plan of the present boot: the token of its agent. It replaces an earlier plan of this
/// boot. The caller commits the change in either case: a refusal may have contested the boot.
pub async fn give_plan(core: &Core, tx: &mut WriteTx, node: &NodeId, requester: BootRequester<'_>) -> Answer<String> {
    let record = tx.node(node).await?;
    if record.node.doubt.is_some() {
        return refused(format!(
            "the record of {node} is doubted: the machine may belong to a customer now"
        ));
    }
    let Some(mut row) = present_boot(tx, &record).await? else {
        return refused(not_expected(&record));
    };
    if row.is_contested() {
        return refused(CONTESTED);
    }
    // The machine is still off, so this request comes from another host.
    if row.bmc_secret.is_empty() && core.config.identity.of(&record.spec.sku).asks_bmc(&record) {
        return refused(format!(
            "the BMC of {node} has not inserted the virtual medium of this boot yet"
        ));
    }
    if row.is_registered() || row.plans >= PLANS_MAX {
        let what = if row.is_registered() {
            format!(
                "{} registered, and then {requester} requested the boot plan again",
                plan_holder(&row)
            )
        } else {
            format!(
                "{} boot plans were requested in one boot, the last by {requester}",
                row.plans + 1
            )
        };
        contest(tx, &record, row, what, requester).await?;
        return refused(CONTESTED);
    }
    let body = format!("{node}/{}", row.boot);
    let (shown, token) = mint(core, "agent", requester.mac, &body, AGENT_TOKEN_S)?;
    tx.put_token(&token).await?;
    row.mac = requester.mac.to_owned();
    row.address = requester.address.to_owned();
    row.token_hash = token.hash;
    row.plans += 1;
    tx.put_agent_boot(&row).await?;
    Ok(Ok(shown))
}

/// The machine that has the plan of a boot, as text for people.
fn plan_holder(row: &AgentBootRow) -> String {
    let requester = BootRequester {
        mac: &row.mac,
        address: &row.address,
    };
    requester.to_string()
}

/// Whether firmware of `node` that looks for something to boot is sent to the agent. If firmware looks again after an agent
/// registered in the same boot, it belongs to a second machine, or the first machine was reset: the boot becomes contested.
pub async fn looks_for_boot(
    core: &Core,
    record: &NodeRecord,
    mac: &str,
    is_firmware: bool,
) -> Result<bool, StoreError> {
    if !record.node.state.boots_agent() || record.node.doubt.is_some() {
        return Ok(false);
    }
    let rows = core.store.attempts(&record.id, record.node.since).await?;
    let Some(boot) = expected(record, &rows) else {
        return Ok(false);
    };
    let row = row_of(core.store.agent_boot(&record.id).await?, record, boot);
    if row.is_contested() {
        return Ok(false);
    }
    if !row.is_registered() {
        return Ok(true);
    }
    if is_firmware {
        let mut tx = core.store.write().await?;
        let record = tx.node(&record.id).await?;
        let now_present = present_boot(&mut tx, &record).await?;
        if let Some(now_present) = now_present.filter(|now| *now == row) {
            let requester = BootRequester { mac, address: "" };
            let what = format!(
                "{} registered, and then firmware with MAC address {mac} requested a boot by DHCP",
                plan_holder(&row)
            );
            contest(&mut tx, &record, now_present, what, requester).await?;
            core.commit(tx).await?;
        }
    }
    Ok(false)
}

/// Marks a boot as contested. Its session ends, every credential of this boot becomes invalid, and the node becomes due:
/// its decisions do the rest.
async fn put_contest(
    tx: &mut WriteTx,
    record: &NodeRecord,
    row: &mut AgentBootRow,
    kind: ContestKind,
    what: &str,
) -> Result<(), StoreError> {
    let (now, id) = (clock::now(), &record.id);
    row.contests += 1;
    row.contested_at = now;
    row.contested_why = what.to_owned();
    row.contest_kind = kind;
    tx.put_agent_boot(row).await?;
    tx.disconnect_agent(id, record.hold.session, now).await?;
    for mac in &record.identity.macs {
        tx.revoke_tokens("boot", mac).await?;
        tx.revoke_tokens("agent", mac).await?;
    }
    tx.wake(id, now).await
}

/// The evidence that a machine showed in one session.
#[derive(Clone, Copy)]
pub struct MachineEvidence<'a> {
    /// The answer about its TPM.
    pub shown: &'a TpmEvidence,
    /// The firmware of its components. `None`: the BMC offers no measurements.
    pub reading: Option<&'a ComponentReading>,
    /// The answer about the secret of its BMC. `None`: the agent was not asked.
    pub secret: Option<&'a bmc_secret::Answer>,
}

/// Judges a machine's evidence in the boot in which it registered, and stores how it is known. A refused machine has
/// contested its boot. The caller commits the change in either case.
pub async fn identify(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    mut row: AgentBootRow,
    of: &AgentSession,
    MachineEvidence { shown, reading, secret }: MachineEvidence<'_>,
) -> Answer<MachineIdentity> {
    let policy = core.config.identity.of(&record.spec.sku);
    let has_secret = bmc_secret::judge(core, record, &row, of, secret);
    let known = has_secret.and_then(|has| attestation::identify(policy, record, &row, of, shown, has));
    let known = match known {
        Ok(known) => {
            let judged = golden_firmware::judge(core, tx, record, &known, shown, reading).await?;
            judged.map(|()| known)
        }
        Err(why) => Err(why),
    };
    let why = match known {
        Ok(known) => {
            if (row.identity.as_str(), &row.tpm_ek, &row.measured) != (known.identity, &known.ek, &known.measured) {
                row.identity = known.identity.to_owned();
                row.tpm_ek.clone_from(&known.ek);
                row.measured.clone_from(&known.measured);
                tx.put_agent_boot(&row).await?;
            }
            if let TpmEvidence::Tpm(proof) = shown {
                tx.put_agent_quote(&record.id, &proof.quote_sha256).await?;
            }
            return Ok(Ok(known));
        }
        Err(why) => why,
    };
    let id = &record.id;
    put_contest(tx, record, &mut row, ContestKind::Identity, &why).await?;
    let follows = if row.contests > 1 {
        "This is the second time in this state: the node is given up"
    } else {
        "The node is switched off and on for a new boot, and given up if this happens again"
    };
    let event = EventRow {
        at: row.contested_at,
        kind: EventKind::SecurityAttestationRefused,
        target: format!("nodes/{id}"),
        message: format!("a machine that answered for {id} was refused: {why}. {follows}"),
        attributes: [("mac", &row.mac), ("address", &row.address)]
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .into(),
        ..EventRow::default()
    };
    tx.add_event(&event).await?;
    refused(why)
}

/// How the machine of an effect was known, and the SHA-256 of its last quote. Empty: no TPM identified it.
pub async fn identity_of(store: &Store, effect: &EffectRow) -> Result<(&'static str, String), StoreError> {
    let row = store.agent_boot(&effect.node_id).await?;
    let row = row.filter(|row| {
        let is_same_boot = effect.attempt.boot_id.as_ref() == Some(&row.kernel_boot_id);
        is_same_boot && !row.is_contested()
    });
    Ok(match row.as_ref().map(|row| row.identity.as_str()) {
        Some(BY_TPM) => (BY_TPM, store.agent_quote(&effect.node_id).await?),
        Some(BY_BMC) => (BY_BMC, String::new()),
        _ => (BY_ADDRESS, String::new()),
    })
}

/// Enrols the TPM of a machine after its inspection is accepted, if none is enrolled yet.
pub async fn enrol_tpm(tx: &mut WriteTx, inspected: &NodeRecord, next: &mut NodeRecord) -> Result<(), StoreError> {
    // Locks the node: what a machine shows is also stored under this lock.
    tx.node(&inspected.id).await?;
    let row = tx.agent_boot(&inspected.id).await?;
    let Some(ek) = row.and_then(|row| attestation::tpm_to_enrol(inspected, &row)) else {
        return Ok(());
    };
    let id = &inspected.id;
    let event = EventRow {
        at: clock::now(),
        kind: EventKind::SecurityTpmEnrolled,
        target: format!("nodes/{id}"),
        message: format!("the TPM of {id} is enrolled and identifies the node from now on: {ek}"),
        attributes: [("tpm_ek".to_owned(), ek.clone())].into(),
        ..EventRow::default()
    };
    next.spec.tpm_ek = ek;
    tx.add_event(&event).await
}

/// Notes that two machines answered for one boot.
async fn contest(
    tx: &mut WriteTx,
    record: &NodeRecord,
    mut row: AgentBootRow,
    what: String,
    second: BootRequester<'_>,
) -> Result<(), StoreError> {
    let (now, id) = (clock::now(), &record.id);
    put_contest(tx, record, &mut row, ContestKind::SecondMachine, &what).await?;
    let follows = if row.contests > 1 {
        "This is the second time in this state: the node is quarantined"
    } else {
        "Neither machine is accepted: the node is switched off and on for a new boot, and quarantined if this happens \
         again"
    };
    let message = format!(
        "two machines answered for one boot of {id}: {what}. {follows}. If the machine did not reset by itself, find the \
         second machine in the MAC address tables of the switches and remove it from the boot network"
    );
    let attributes = [
        ("mac", row.mac.as_str()),
        ("address", &row.address),
        ("second_mac", second.mac),
        ("second_address", second.address),
    ];
    let event = EventRow {
        at: now,
        kind: EventKind::SecurityBootContested,
        target: format!("nodes/{id}"),
        message,
        attributes: attributes
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..EventRow::default()
    };
    tx.add_event(&event).await
}

/// Notes that a boot token came back from another address than `given`, the only one it was sent to.
pub async fn note_second_address(
    tx: &mut WriteTx,
    node: &NodeId,
    requester: BootRequester<'_>,
    given: &str,
) -> Result<(), StoreError> {
    let record = tx.node(node).await?;
    let Some(row) = present_boot(tx, &record).await?.filter(|row| !row.is_contested()) else {
        return Ok(());
    };
    let what = format!("the boot token of {} at {given} was used by {requester}", requester.mac);
    contest(tx, &record, row, what, requester).await
}

/// An agent that registers.
#[derive(Debug, Clone, Copy)]
pub struct Registration<'a> {
    /// Its machine.
    pub requester: BootRequester<'a>,
    pub kernel_boot_id: &'a str,
    /// SHA-256 of the public key.
    pub key_sha256: &'a str,
}

impl Registration<'_> {
    fn is_repeated(&self, row: &AgentBootRow) -> bool {
        (row.kernel_boot_id.as_str(), row.key_sha256.as_str()) == (self.kernel_boot_id, self.key_sha256)
    }

    fn has_other_address(&self, row: &AgentBootRow) -> bool {
        let family = |text: &str| text.parse::<IpAddr>().ok().map(|address| address.is_ipv4());
        // A dual-stacked machine may boot by IPv4 and register by IPv6.
        family(self.requester.address) == family(&row.address) && self.requester.address != row.address
    }
}

/// Registers the agent of a node with the token of a plan. The same registration may be repeated, because its answer may be
/// lost. The caller commits the change in either case: a refusal may have contested the boot.
pub async fn register(tx: &mut WriteTx, token: &TokenRow, agent: Registration<'_>) -> Answer<(NodeId, AgentSession)> {
    let over = "the boot of this token has ended: boot the machine again";
    let Some((node, boot)) = token.body.split_once('/') else {
        return refused(over);
    };
    let record = match tx.node(&NodeId::stored(node)).await {
        Err(StoreError::NotFound { .. }) => return refused(over),
        other => other?,
    };
    let now = clock::now();
    let Some(mut row) = present_boot(tx, &record).await?.filter(|row| row.boot == boot) else {
        return refused(over);
    };
    if row.is_contested() {
        return refused(CONTESTED);
    }
    let requester = agent.requester;
    let fault = if agent.has_other_address(&row) {
        Some(format!(
            "{} received the boot plan, and {requester} used its token",
            plan_holder(&row)
        ))
    } else if row.token_hash != token.hash {
        Some(format!(
            "{requester} used an old boot plan: {} had already requested a newer plan",
            plan_holder(&row)
        ))
    } else if row.is_registered() && !agent.is_repeated(&row) {
        Some(format!(
            "{} registered, and then {requester} registered with another key or another kernel",
            plan_holder(&row)
        ))
    } else {
        None
    };
    if let Some(what) = fault {
        contest(tx, &record, row, what, requester).await?;
        return refused(CONTESTED);
    }
    let session = AgentSession {
        generation: record.node.generation,
        boot: row.boot.clone(),
    };
    if !row.is_registered() {
        if token.expires_at <= now || agent.kernel_boot_id.is_empty() {
            return refused("the boot token has expired, or the agent sent no boot id: boot the machine again");
        }
        tx.use_token_as(&token.hash, "agent", agent.key_sha256, now).await?;
        row.kernel_boot_id = agent.kernel_boot_id.to_owned();
        row.key_sha256 = agent.key_sha256.to_owned();
        row.registered_at = now;
        tx.put_agent_boot(&row).await?;
    }
    Ok(Ok((record.id, session)))
}

/// The registration that belongs to the session `of` and to this kernel boot id. The node is locked.
pub async fn admit(
    tx: &mut WriteTx,
    record: &NodeRecord,
    of: &AgentSession,
    kernel_boot_id: &str,
) -> Answer<AgentBootRow> {
    let id = &record.id;
    if record.node.generation != of.generation {
        return refused(format!(
            "this certificate is for claim generation {} of {id}, and the present generation is {}: boot the machine \
             again",
            of.generation, record.node.generation
        ));
    }
    let Some(row) = present_boot(tx, record).await? else {
        return refused(format!(
            "{}: the node is booted again when it needs an agent",
            not_expected(record)
        ));
    };
    if row.is_contested() {
        return refused(CONTESTED);
    }
    if row.boot != of.boot || !row.is_registered() || row.kernel_boot_id != kernel_boot_id {
        return refused(format!(
            "this agent did not register in the present boot of {id}: boot the machine again"
        ));
    }
    Ok(Ok(row))
}

/// The digest of the image that the agent of this session may read now. `None`: it may read no image.
pub async fn readable_image(store: &Store, node: &NodeId, of: &AgentSession) -> Result<Option<String>, StoreError> {
    let record = match store.node(&Scope::Site, node).await {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    let Some(claim) = record
        .node
        .claim
        .as_ref()
        .filter(|_| record.node.generation == of.generation)
    else {
        return Ok(None);
    };
    if record.node.state != rackwright_lifecycle::State::Imaging {
        return Ok(None);
    }
    let rows = store.attempts(node, record.node.since).await?;
    let is_expected = expected(&record, &rows).is_some_and(|boot| boot.id == of.boot);
    let row = store
        .agent_boot(node)
        .await?
        .filter(|row| is_expected && row.boot == of.boot);
    let counts = row.is_some_and(|row| row.is_registered() && !row.is_contested());
    Ok(counts.then(|| claim.image_digest.clone()))
}

/// The hash under which an agent's token is stored.
///
/// # Errors
/// The text is not a token.
pub fn token_hash(shown: &str) -> Result<String, Refused> {
    let hash = TokenHash::of(shown).map_err(|_| Refused("the boot token is not valid for this machine".into()))?;
    Ok(hash.to_hex())
}

/// Reports a refused agent that has a certificate of this site: one event an hour for each node. An agent that is still
/// running after its work is done gives no event, because its machine is switched off within moments.
pub async fn report_refusal(core: &Core, node: &NodeId, of: &AgentSession, address: &str, why: &Refused) {
    tracing::info!(node = node.as_str(), address, %why, "an agent's session was refused");
    let Ok(record) = core.store.node(&Scope::Site, node).await else {
        return;
    };
    let now = clock::now();
    let is_off = record.readings.power.last() == Some(&Power::Off);
    let is_late = now >= record.node.since.plus(core.config.policy.agent_grace_us());
    let is_stale = is_off || is_late || record.node.generation != of.generation;
    if !is_stale || !core.feature::<Refusals>().may_report(node, now) {
        return;
    }
    let state = record.node.state;
    let message = format!(
        "an agent of {node} was refused, from {}: {why}. {node} is {state}. If the node is off, another machine holds \
         its certificate: find the address in the MAC address tables of the switches",
        if address.is_empty() {
            "an unknown address"
        } else {
            address
        }
    );
    core.event(EventKind::SecurityAgentRefused, &format!("nodes/{node}"), &message)
        .await;
}

#[cfg(test)]
mod tests;
