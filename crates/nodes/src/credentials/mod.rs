//! Accounts and passwords of BMCs. Rackwright's own passwords are generated, proven, and changed after some time and at
//! reclaim. Factory passwords are kept sealed and tried without locking accounts.
//!
//! A change survives a crash at any point: the new password is stored, sealed, before the BMC receives it. The old one is
//! deleted only after a new login with the new one. In between, no other request goes to the BMC, and both are tried, but
//! never often enough to lock the account. A refused credential is not sent again before it is changed or an operator asks.

pub mod bmc_access;
mod change;
mod factory;
pub mod password;
pub mod reveal;
mod tries;

use rackwright_ground::bmc::{self, BmcError, is_unknown, refused_event};
use rackwright_ground::clock;
use rackwright_ground::config::bmc_accounts::Settings;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Account, AccountRules, NodeId, Outcome, Timestamp};
use rackwright_store::{NodeRecord, Spec, StoreError};

use crate::effect_result::EffectResult;

pub use bmc_access::{BmcAccess, ServiceRootFacts};
pub use change::{AccountOutcome, change_with};
pub use factory::{Candidate, TryOutcome, candidates, try_candidates};

/// Rules skip nodes with this label: their operators manage the password themselves.
pub const KEEP_LABEL: (&str, &str) = ("rackwright.bmc-password", "keep");

/// The facts that decide whether a node's password is due.
#[must_use]
pub fn account_of(core: &Core, record: &NodeRecord) -> Account {
    let settings = core.config.bmc_accounts.as_ref();
    let account = &record.spec.account;
    let wanted = settings.and_then(|settings| settings.username.as_ref());
    let digest = blake3::hash(record.id.as_str().as_bytes());
    let place = u16::from_le_bytes([digest.as_bytes()[0], digest.as_bytes()[1]]);
    Account {
        rules: settings.map_or(AccountRules::default(), Settings::rules),
        // Accounts are changed over Redfish only.
        is_kept: bmc::is_ipmi(&record.spec)
            || record
                .labels
                .get(KEEP_LABEL.0)
                .is_some_and(|value| value == KEEP_LABEL.1),
        is_unknown: is_unknown(&record.spec),
        is_other: wanted.is_some_and(|name| *name != record.spec.bmc_username),
        changed_at: account.changed_at,
        asked_at: account.asked_at,
        is_pending: account.pending.is_some(),
        is_refused: account.refused_at.is_some(),
        closed_until: account.closed_until,
        spread: place % 1000,
    }
}

/// Changes the password of a node's BMC, or finds the password that works.
pub async fn change(core: &Core, record: &NodeRecord) -> EffectResult {
    if bmc::is_ipmi(&record.spec) {
        let why = "Rackwright changes no passwords over IPMI; change the password at the BMC, then set it with \
                   `rackwright node update`";
        return EffectResult::failed_for_good("bmc-no-redfish", why.to_owned());
    }
    let target = match bmc::target_without_login(&record.spec) {
        Ok(target) => target,
        Err(error) => {
            let (code, retryable) = error.code();
            return EffectResult::with_outcome(Outcome::Failed {
                code: code.to_owned(),
                message: error.description(&record.spec.bmc_address),
                retryable,
            });
        }
    };
    let bmc_access = bmc_access::Redfish::new(target, core.config.bmc_quirks.clone());
    let done = change_with(core, record, &bmc_access).await;
    // Its session may have been opened with the former password.
    core.bmcs.forget(&record.id).await;
    done
}

/// Notes that a BMC refused the name and password of `tried`, unless they were changed since: they are not sent again.
/// Returns true if the refusal is new.
pub fn mark_refused(spec: &mut Spec, tried: &Spec, now: Timestamp) -> bool {
    let is_same = (&spec.bmc_username, &spec.bmc_password) == (&tried.bmc_username, &tried.bmc_password);
    if !is_same || spec.account.pending.is_some() || spec.account.refused_at.is_some() {
        return false;
    }
    spec.account.refused_at = Some(now);
    true
}

/// Stores that a BMC refused the login, with an event, for callers outside an effect.
pub async fn store_refusal(core: &Core, node: &NodeId, tried: &Spec, error: &BmcError) -> Result<(), StoreError> {
    if !error.is_refusal() {
        return Ok(());
    }
    // A starting BMC may refuse a good login, and this one is being restarted or updated.
    let work = core.store.bmc_log(node).await?;
    let is_starting = work.is_some_and(|work| work.wanted == "ac-cycle");
    if is_starting || core.store.firmware_update(node).await?.is_some() {
        return Ok(());
    }
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let mut record = match tx.node(node).await {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    if !mark_refused(&mut record.spec, tried, now) {
        return Ok(());
    }
    tx.save_node(&mut record, now).await?;
    tx.add_event(&refused_event(node, &error.description(&tried.bmc_address), now))
        .await?;
    core.commit(tx).await
}

/// Allows a refused credential to be tried again, after an operator has acted on it.
pub fn forget_refusals(spec: &mut Spec) {
    let account = &mut spec.account;
    account.refused_at = None;
    account.refused_factory.clear();
    if let Some(pending) = &mut account.pending {
        (pending.refused_new, pending.refused_old) = (0, 0);
    }
}
