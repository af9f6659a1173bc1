//! One change of a BMC's password, or the rest of one that was begun.
//!
//! | state | password of the BMC | action |
//! |---|---|---|
//! | nothing pending | the present password | log in, store the new one, set it, log in with it |
//! | pending | the present or the new one | try the new one, then the present one; if that works, set the new one again |
//! | pending, new one proven | the new one | the change that ends the effect makes it the present one |
//!
//! Each login that may be refused is stored before it is sent, so that crashes cannot lead to more tries than the BMC bears.

use std::time::Duration;

use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_ground::bmc::refused_event;
use rackwright_ground::clock;
use rackwright_ground::config::bmc_accounts::FormerAccount;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{EventKind, Outcome, Timestamp};
use rackwright_redfish::AccountPolicy;
use rackwright_store::{BmcAccount, EventRow, NodeRecord, PendingPassword, Spec, StoreError};
use secrecy::SecretString;

use super::bmc_access::{AccountError, BmcAccess, BmcSession};
use super::factory::{TryOutcome, candidates, try_candidates};
use super::{password, tries};
use crate::effect_result::{EffectResult, LearnedFact};

/// Most logins and settings of one effect: enough to set a password twice.
const ROUNDS: usize = 6;
/// After this many refusals of both passwords, neither is the BMC's.
const REFUSALS: u32 = 2;

/// The result of a change, stored with the end of its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountOutcome {
    /// The pending password works.
    Proven {
        /// The proven password.
        pending: PendingPassword,
        /// The BMC requires one more change before anything else.
        must_change: bool,
        /// The fingerprint of the BMC's certificate, to pin if none was given.
        certificate: Option<String>,
    },
    /// The BMC refused name and password.
    Refused {
        /// The spec that was tried.
        tried: Box<Spec>,
    },
}

impl AccountOutcome {
    /// Writes the result into a node's spec, unless its credential was changed meanwhile.
    pub fn apply(&self, spec: &mut Spec, now: Timestamp) {
        match self {
            Self::Refused { tried } => {
                super::mark_refused(spec, tried, now);
            }
            Self::Proven {
                pending,
                must_change,
                certificate,
            } => {
                let is_it = |kept: &PendingPassword| kept.password == pending.password;
                if !spec.account.pending.as_ref().is_some_and(is_it) {
                    return;
                }
                spec.bmc_username.clone_from(&pending.username);
                spec.bmc_password.clone_from(&pending.password);
                keep_certificate(spec, certificate.as_ref());
                spec.account = BmcAccount {
                    changed_at: (!must_change).then_some(now),
                    // The end of the operation clears this.
                    asked_at: spec.account.asked_at,
                    lockout: spec.account.lockout,
                    ..BmcAccount::default()
                };
            }
        }
    }
}

fn keep_certificate(spec: &mut Spec, seen: Option<&String>) {
    if let (true, Some(seen)) = (spec.bmc_certificate.is_empty(), seen) {
        spec.bmc_certificate.clone_from(seen);
    }
}

/// A change in progress.
struct Work<'a> {
    core: &'a Core,
    bmc_access: &'a dyn BmcAccess,
    /// The node as last stored.
    record: NodeRecord,
    /// The end of this effect's lease.
    due: Timestamp,
}

/// The error ends the effect.
type Step<T> = Result<T, EffectResult>;
/// The same for functions outside a boxed future.
type Boxed<T> = Result<T, Box<EffectResult>>;

impl From<Box<EffectResult>> for EffectResult {
    fn from(done: Box<EffectResult>) -> Self {
        *done
    }
}

/// Changes the password of a node's BMC through `bmc_access`, or finds the password that works.
pub async fn change_with(core: &Core, record: &NodeRecord, bmc_access: &dyn BmcAccess) -> EffectResult {
    let patience = Duration::from_secs(u64::from(core.config.policy.bmc_s));
    let Ok(Ok(_turn)) = tokio::time::timeout(patience, core.password_changes.acquire()).await else {
        // Other changes were first: the effect queues again.
        return EffectResult::with_outcome(Outcome::Interrupted);
    };
    let mut work = Work {
        core,
        bmc_access,
        record: record.clone(),
        due: record.due_at,
    };
    let ended = match (
        &record.spec.account.pending,
        rackwright_ground::bmc::is_unknown(&record.spec),
    ) {
        (Some(_), _) => work.resume().await,
        (None, true) => work.find().await,
        (None, false) => work.begin().await,
    };
    ended.unwrap_or_else(|done| done)
}

impl Work<'_> {
    /// Changes the node's spec, unless its credential was changed meanwhile.
    async fn write_down(&mut self, events: &[EventRow], change: impl FnOnce(&mut Spec)) -> Step<()> {
        let written = self.try_write(events, change).await;
        match written {
            Ok(true) => Ok(()),
            Ok(false) => Err(EffectResult::with_outcome(Outcome::Interrupted)),
            Err(error) => Err(EffectResult::unread(&error)),
        }
    }

    async fn try_write(&mut self, events: &[EventRow], change: impl FnOnce(&mut Spec)) -> Result<bool, StoreError> {
        let mut tx = self.core.store.write().await?;
        let mut next = tx.node(&self.record.id).await?;
        let (used, stored) = (&self.record.spec, &next.spec);
        if (&used.bmc_username, &used.bmc_password, &used.account.pending)
            != (&stored.bmc_username, &stored.bmc_password, &stored.account.pending)
        {
            return Ok(false);
        }
        change(&mut next.spec);
        tx.save_node(&mut next, clock::now()).await?;
        for event in events {
            tx.add_event(event).await?;
        }
        tx.put_due(&self.record.id, self.due).await?;
        self.core.commit(tx).await?;
        self.record = next;
        Ok(true)
    }

    fn open(&self, sealed: &[u8]) -> Boxed<SecretString> {
        let opened = self
            .core
            .keys
            .sealer
            .open(sealed, &bmc_password_purpose(&self.record.id));
        opened.map_err(|error| Box::new(EffectResult::failed_for_good("bmc-credential", error.to_string())))
    }

    fn seal(&self, password: &SecretString) -> Boxed<Vec<u8>> {
        let sealed = self
            .core
            .keys
            .sealer
            .seal(password, &bmc_password_purpose(&self.record.id));
        sealed.map_err(|error| Box::new(EffectResult::failed_for_now("bmc-credential", error.to_string())))
    }

    /// Changes a known password to a generated one.
    async fn begin(&mut self) -> Step<EffectResult> {
        let present = self.open(&self.record.spec.bmc_password)?;
        let username = self.record.spec.bmc_username.clone();
        let session = match self.bmc_access.enter(&username, &present).await {
            Ok(session) => session,
            Err(AccountError::Refused(text)) => return self.refused(&text).await,
            Err(account_error) => return Err(failed(&account_error)),
        };
        let begun = self.begin_with_session(session.as_ref(), &username).await;
        session.leave().await;
        match begun {
            Ok(()) => self.resume().await,
            Err(done) => Err(done),
        }
    }

    async fn begin_with_session(&mut self, session: &dyn BmcSession, username: &str) -> Step<()> {
        let policy = match session.policy().await {
            Ok(policy) => policy,
            // Some BMCs do not show it before the password is changed.
            Err(_) if session.must_change() => AccountPolicy::default(),
            Err(account_error) => return Err(failed(&account_error)),
        };
        let made = password::generate(self.core.rng.as_ref(), &policy);
        let new = made.map_err(|error| EffectResult::failed_for_now("no-randomness", error.to_string()))?;
        let settings = self.core.config.bmc_accounts.as_ref();
        // First the account that requires a change. The next change makes the account of this site.
        let wanted = settings
            .and_then(|settings| settings.username.clone())
            .filter(|_| !session.must_change());
        let pending = PendingPassword {
            username: wanted.unwrap_or_else(|| username.to_owned()),
            password: self.seal(&new)?,
            at: clock::now(),
            refused_new: 0,
            refused_old: 0,
        };
        let certificate = session.fingerprint();
        let lockout = (!session.must_change()).then(|| tries::lockout_of(&policy));
        self.write_down(&[], |spec| {
            spec.account.pending = Some(pending);
            spec.account.tries.clear();
            spec.account.lockout = lockout.or(spec.account.lockout);
            keep_certificate(spec, certificate.as_ref());
        })
        .await?;
        self.set(session, &new).await
    }

    /// Sets the pending password. A login checks every result except a definite refusal.
    async fn set(&mut self, session: &dyn BmcSession, new: &SecretString) -> Step<()> {
        let pending = self.pending()?;
        let is_own = pending.username == self.record.spec.bmc_username;
        let set = if is_own {
            session.set_own(new).await
        } else {
            session.put(&pending.username, new).await
        };
        let Err(AccountError::Denied(why)) = set else {
            return Ok(());
        };
        // If an earlier unanswered request succeeded, its repetition looks like a refusal, too. So the present password
        // decides.
        let present = self.open(&self.record.spec.bmc_password)?;
        let username = self.record.spec.bmc_username.clone();
        if self
            .enter(PasswordChoice::Present, &username, &present)
            .await?
            .is_none()
        {
            return Ok(());
        }
        self.write_down(&[], |spec| {
            spec.account.pending = None;
            spec.account.tries.clear();
        })
        .await?;
        let message = format!("the BMC rejects the new password and keeps its present password: {why}");
        Err(EffectResult::failed_for_good("bmc-password-denied", message))
    }

    fn pending(&self) -> Boxed<PendingPassword> {
        let pending = self.record.spec.account.pending.clone();
        pending.ok_or_else(|| Box::new(EffectResult::failed_for_good("bug", "no password is pending")))
    }

    /// Finds out which of the two passwords works, and continues from there.
    async fn resume(&mut self) -> Step<EffectResult> {
        for _ in 0..ROUNDS {
            let pending = self.pending()?;
            if pending.refused_new >= REFUSALS && pending.refused_old >= REFUSALS {
                let text =
                    "the BMC refuses both the former and the new password; the password was changed outside Rackwright";
                return self.refused(text).await;
            }
            if pending.refused_new <= pending.refused_old {
                let new = self.open(&pending.password)?;
                if let Some(session) = self.enter(PasswordChoice::New, &pending.username, &new).await? {
                    return Ok(self.proven(session.as_ref(), pending).await);
                }
                continue;
            }
            let present = self.open(&self.record.spec.bmc_password)?;
            let username = self.record.spec.bmc_username.clone();
            let Some(session) = self.enter(PasswordChoice::Present, &username, &present).await? else {
                continue;
            };
            let set = self.set_again(session.as_ref(), &pending).await;
            session.leave().await;
            set?;
        }
        let message =
            "the BMC reported that it accepted the new password, but a login works only with the old password";
        Err(EffectResult::failed_for_now("bmc-password-not-taken", message))
    }

    async fn set_again(&mut self, session: &dyn BmcSession, pending: &PendingPassword) -> Step<()> {
        let policy = session.policy().await.ok();
        self.write_down(&[], |spec| {
            spec.account.tries.clear();
            if let Some(pending) = &mut spec.account.pending {
                (pending.refused_new, pending.refused_old) = (0, 0);
            }
            spec.account.lockout = policy.as_ref().map(tries::lockout_of).or(spec.account.lockout);
        })
        .await?;
        let new = self.open(&pending.password)?;
        self.set(session, &new).await
    }

    /// One login that may be refused. `None`: it was refused.
    async fn enter(
        &mut self,
        which: PasswordChoice,
        username: &str,
        password: &SecretString,
    ) -> Step<Option<Box<dyn BmcSession>>> {
        let now = clock::now();
        if let Some(until) = tries::closed_until(&self.record.spec.account, now) {
            self.write_down(&[], |spec| spec.account.closed_until = Some(until))
                .await?;
            let s = until.since(now) / 1_000_000;
            let message = format!("one more refused login might lock the BMC's account; the next login is in {s} s");
            return Err(EffectResult::failed_for_now("bmc-lockout", message));
        }
        self.write_down(&[], |spec| tries::note(&mut spec.account, now)).await?;
        match self.bmc_access.enter(username, password).await {
            Ok(session) => Ok(Some(session)),
            Err(AccountError::Refused(_)) => {
                self.write_down(&[], |spec| {
                    if let Some(pending) = &mut spec.account.pending {
                        match which {
                            PasswordChoice::New => pending.refused_new += 1,
                            PasswordChoice::Present => pending.refused_old += 1,
                        }
                    }
                })
                .await?;
                Ok(None)
            }
            Err(account_error) => {
                if matches!(account_error, AccountError::Unreached(_)) {
                    // The request did not arrive, so it does not count.
                    self.write_down(&[], |spec| {
                        spec.account.tries.pop();
                    })
                    .await?;
                }
                Err(failed(&account_error))
            }
        }
    }

    /// The result after a login with the new password. Takes care of the former account. The end of the effect makes the
    /// new password the present one.
    async fn proven(&self, session: &dyn BmcSession, pending: PendingPassword) -> EffectResult {
        let (id, former) = (&self.record.id, &self.record.spec.bmc_username);
        let now = clock::now();
        let event = |kind: EventKind, message: String| EventRow {
            at: now,
            kind,
            target: format!("nodes/{id}"),
            message,
            ..EventRow::default()
        };
        let mut done = EffectResult::succeeded();
        done.events.push(event(
            EventKind::BmcPasswordChanged,
            format!("the BMC of {id} has a new password for {}", pending.username),
        ));
        let settings = self.core.config.bmc_accounts.as_ref();
        let is_disabled = settings.is_some_and(|settings| settings.former_account == FormerAccount::Disable);
        if *former != pending.username && is_disabled {
            match session.disable(former).await {
                Ok(()) => {
                    let message = format!("the account {former} of the BMC of {id} is disabled");
                    done.events.push(event(EventKind::BmcAccountDisabled, message));
                }
                Err(account_error) => {
                    let message = format!(
                        "the account {former} of the BMC of {id} could not be disabled and still has its password: {}",
                        account_error.text()
                    );
                    done.events.push(event(EventKind::SecurityBmcAccountLeft, message));
                }
            }
        }
        done.learned = Some(LearnedFact::Account(AccountOutcome::Proven {
            pending,
            must_change: session.must_change(),
            certificate: session.fingerprint(),
        }));
        session.leave().await;
        done
    }

    /// Stores that no known password works: no further login until the credential is changed or an operator asks.
    async fn refused(&mut self, text: &str) -> Step<EffectResult> {
        let now = clock::now();
        let message = format!("BMC {}: {text}", self.record.spec.bmc_address);
        let event = refused_event(&self.record.id, &message, now);
        self.write_down(&[event], |spec| spec.account.refused_at = Some(now))
            .await?;
        Err(EffectResult::failed_for_good("bmc-login-refused", message))
    }

    /// Finds the working factory credential.
    async fn find(&mut self) -> Step<EffectResult> {
        let facts = self
            .bmc_access
            .facts()
            .await
            .map_err(|account_error| failed(&account_error))?;
        let all = candidates(&self.core.store, &facts).await;
        let mut all = all.map_err(|error| EffectResult::unread(&error))?;
        all.retain(|one| !self.record.spec.account.refused_factory.contains(&one.id));
        if all.is_empty() {
            let message = format!(
                "no password is set for this BMC ({} {}), and the factory list has no untried password for it; \
                 `rackwright bmc credentials add` extends the list, `rackwright node update` sets the password of the node",
                facts.vendor, facts.product
            );
            return Err(EffectResult::failed_for_now("bmc-no-credential", message));
        }
        for candidate in all {
            let now = clock::now();
            if let Some(until) = tries::closed_until(&self.record.spec.account, now) {
                self.write_down(&[], |spec| spec.account.closed_until = Some(until))
                    .await?;
                let message = "the next password of the factory list is tried later, so that no account is locked";
                return Err(EffectResult::failed_for_now("bmc-lockout", message));
            }
            self.write_down(&[], |spec| tries::note(&mut spec.account, now)).await?;
            let id = candidate.id.clone();
            match try_candidates(self.bmc_access, &self.core.keys.sealer, &[candidate], 1).await {
                TryOutcome::Found(found, session) => {
                    let password = found.password(&self.core.keys.sealer);
                    let password =
                        password.map_err(|e| EffectResult::failed_for_good("bmc-credential", e.to_string()))?;
                    let sealed = self.seal(&password)?;
                    let certificate = session.fingerprint();
                    session.leave().await;
                    self.write_down(&[], |spec| {
                        (spec.bmc_username, spec.bmc_password) = (found.username, sealed);
                        spec.account.tries.clear();
                        keep_certificate(spec, certificate.as_ref());
                    })
                    .await?;
                    return Ok(EffectResult::succeeded());
                }
                TryOutcome::Refused { .. } => {
                    self.write_down(&[], |spec| spec.account.refused_factory.push(id))
                        .await?;
                }
                TryOutcome::AccountError(account_error) => return Err(failed(&account_error)),
            }
        }
        let message = "the BMC refused every password that the factory list has for it";
        Err(EffectResult::failed_for_now("bmc-no-credential", message))
    }
}

/// Which of the two passwords of a change.
#[derive(Debug, Clone, Copy)]
enum PasswordChoice {
    New,
    Present,
}

fn failed(account_error: &AccountError) -> EffectResult {
    let text = account_error.text();
    match account_error {
        AccountError::Unreached(_) | AccountError::Unclear(_) => EffectResult::failed_for_now("bmc-unreachable", text),
        AccountError::Refused(_) => EffectResult::failed_for_good("bmc-login-refused", text),
        AccountError::Denied(_) => EffectResult::failed_for_good("bmc-refused", text),
    }
}
