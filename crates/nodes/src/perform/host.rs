//! Effects on the installed system, over SSH.

use std::net::IpAddr;
use std::time::Duration;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::deployment_keys::deployment_key_purpose;
use rackwright_ground::stored;
use rackwright_ground::text::chain;
use rackwright_identity::SshKeyPair;
use rackwright_lifecycle::{Claim, Effect, EventKind, ImageId, Outcome, is_interrupted};
use rackwright_store::{EventRow, NodeRecord, Proof, Scope};
use rackwright_validate::{
    Deployment, Expected, HandOver, HandOverError, ImagePatterns, PROBE_CHECK, ProbeError, Profile, SeedScrub,
    SshError, SshTarget, judge, judge_hardware, passed, wait_reachable,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::carried::carried_program;
use crate::effect_result::EffectResult;

/// Pause between two tries at a machine that does not answer yet.
const OUTSIDE_PAUSE: Duration = Duration::from_secs(2);

struct Host<'a> {
    claim: &'a Claim,
    deployment: Deployment,
    target: SshTarget,
}

/// Address and keys for a login. After the hand-over the provisioning private key is gone; any other key can still check
/// whether the right system answers.
async fn host<'a>(core: &Core, record: &'a NodeRecord) -> Result<Host<'a>, Box<EffectResult>> {
    let fail = |message: String| Box::new(EffectResult::failed_for_good("no-access", message));
    let claim = record
        .node
        .claim
        .as_ref()
        .ok_or_else(|| fail("the node has no claim".into()))?;
    let keys = core
        .store
        .deployment_keys(&record.id, claim.generation, claim.deployment)
        .await;
    let keys = keys.map_err(|e| Box::new(EffectResult::unread(&e)))?;
    let address: IpAddr = record.address.parse().map_err(|_| {
        fail(format!(
            "the machine's address is not known ({:?}); its agent has reported no address",
            record.address
        ))
    })?;
    let private_key = if keys.provision_private.is_empty() {
        let other = SshKeyPair::generate(core.rng.as_ref(), "nobody").map_err(|e| fail(e.to_string()))?;
        other.private_key().clone()
    } else {
        let purpose = deployment_key_purpose("provision", &record.id, claim.generation, claim.deployment);
        let opened = core.keys.sealer.open(&keys.provision_private, &purpose);
        opened.map_err(|e| fail(e.to_string()))?
    };
    let target = SshTarget {
        address,
        port: core.config.ssh_port,
        user: "root".into(),
        host_key: keys.host_public,
        private_key,
    };
    let deployment = Deployment {
        node: record.id.to_string(),
        generation: claim.generation,
        number: claim.deployment,
    };
    Ok(Host {
        claim,
        deployment,
        target,
    })
}

/// Address and keys for a login to a node's system, for callers other than effects.
///
/// # Errors
/// Its address or its keys are unknown; text for people.
pub async fn login_to(core: &Core, record: &NodeRecord) -> Result<SshTarget, String> {
    match host(core, record).await {
        Ok(host) => Ok(host.target),
        Err(done) => match done.outcome {
            Outcome::Failed { message, .. } => Err(message),
            other => Err(format!("{other:?}")),
        },
    }
}

/// The thresholds for a SKU.
///
/// # Errors
/// Its profile cannot be read; text for people.
pub async fn thresholds(core: &Core, sku: &str) -> Result<Profile, String> {
    profile(core, sku).await.map_err(|done| match done.outcome {
        Outcome::Failed { message, .. } => message,
        other => format!("{other:?}"),
    })
}

fn failed_ssh(error: &SshError) -> EffectResult {
    EffectResult::with_outcome(Outcome::Failed {
        code: "host-ssh".to_owned(),
        message: chain(error),
        retryable: error.is_retryable(),
    })
}

/// Waits until the installed system accepts the login, or until the node is wanted in another state.
pub(super) async fn await_host(core: &Core, record: &NodeRecord, nudge: &Notify) -> EffectResult {
    let host = match host(core, record).await {
        Ok(host) => host,
        Err(done) => return *done,
    };
    let cancel = CancellationToken::new();
    let limit = Duration::from_secs(core.config.policy.host_boot_s.into());
    let deadline = tokio::time::Instant::now() + limit.saturating_sub(Duration::from_millis(500));
    let wait = wait_reachable(&host.target, deadline, &cancel);
    tokio::select! {
        session = wait => match session {
            Ok(session) => {
                core.logins.keep(host.deployment, session).await;
                EffectResult::succeeded()
            }
            // Retryable: this effect is a wait, and a missing machine may come after another boot.
            Err(error) => {
                let EffectResult { outcome, .. } = failed_ssh(&error);
                match outcome {
                    Outcome::Failed { code, message, .. } => EffectResult::failed_for_now(&code, message),
                    other => EffectResult::with_outcome(other),
                }
            }
        },
        () = until_interrupted(core, record, nudge) => EffectResult::with_outcome(Outcome::Interrupted),
    }
}

/// Returns when the node is wanted in another state.
async fn until_interrupted(core: &Core, record: &NodeRecord, nudge: &Notify) {
    while !core
        .store
        .node(&Scope::Site, &record.id)
        .await
        .is_ok_and(|r| is_interrupted(&r.node))
    {
        nudge.notified().await;
    }
}

async fn profile(core: &Core, sku: &str) -> Result<Profile, Box<EffectResult>> {
    let fail = |message: String| Box::new(EffectResult::failed_for_good("profile", message));
    let Some(path) = core.config.profiles.get(sku) else {
        return Profile::embedded_default().map_err(|e| fail(e.to_string()));
    };
    let read = tokio::fs::read_to_string(path).await;
    let text = read.map_err(|e| fail(format!("{}: {e}", path.display())))?;
    Profile::parse(&path.display().to_string(), &text).map_err(|e| fail(e.to_string()))
}

/// Checks the installed system from within and stores the report.
pub(super) async fn validate(core: &Core, record: &NodeRecord, nudge: &Notify) -> EffectResult {
    tokio::select! {
        checked = checks(core, record) => checked.unwrap_or_else(|done| *done),
        () = until_interrupted(core, record, nudge) => EffectResult::with_outcome(Outcome::Interrupted),
    }
}

async fn checks(core: &Core, record: &NodeRecord) -> Result<EffectResult, Box<EffectResult>> {
    let host = host(core, record).await?;
    let profile = profile(core, &record.spec.sku).await?;
    let started = clock::now();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(core.config.policy.validate_s.into());
    let logins = &core.logins;
    let reading = logins
        .probe(&host.deployment, &host.target, (&profile).into(), deadline)
        .await;
    let reading = reading.map_err(|e| {
        Box::new(match e {
            ProbeError::Ssh(error) => failed_ssh(&error),
            other => EffectResult::failed_for_now("host-probe", chain(&other)),
        })
    })?;
    let expected_inventory = core
        .store
        .expected_inventory(&record.id)
        .await
        .and_then(|bytes| stored::inventory(record.id.as_str(), bytes.as_deref()))
        .map_err(|e| Box::new(EffectResult::unread(&e)))?;
    let expected = Expected {
        inventory: expected_inventory.unwrap_or_default(),
        former_boot_id: former_boot_id(core, record).await?,
        image_digest: host.claim.image_digest.clone(),
        claim_generation: host.claim.generation,
        hostname: host.claim.hostname.clone(),
        image_patterns: image_patterns(core, host.claim).await?,
    };
    let mut checks = judge(&profile, &expected, &reading.readings, &reading.clock);
    checks.extend(hardware(core, &host, &profile, deadline).await?);
    Ok(reported(core, record, host.claim, &profile, checks, started))
}

/// The checks of hardware. Without a program they have one row, with the reason.
async fn hardware(
    core: &Core,
    host: &Host<'_>,
    profile: &Profile,
    until: tokio::time::Instant,
) -> Result<Vec<v1::Check>, Box<EffectResult>> {
    let settings = &core.config.hardware_probe;
    let path = match settings.file() {
        Ok(_) if profile.skip.iter().any(|id| id == PROBE_CHECK) => return Ok(judge_hardware(profile, Err(""))),
        Ok(path) => path,
        Err(why) => return Ok(judge_hardware(profile, Err(&why))),
    };
    let program = carried_program(&path, "the hardware probe").await;
    let program = program.map_err(|why| Box::new(EffectResult::failed_for_good("hardware-probe", why)))?;
    let (deployment, target) = (&host.deployment, &host.target);
    let reading = core
        .logins
        .hardware(deployment, target, &program, settings.deadline(), until);
    let reading = reading.await.map_err(|error| Box::new(failed_ssh(&error)))?;
    Ok(judge_hardware(profile, Ok(&reading)))
}

/// The image's description of the system in it.
async fn image_patterns(core: &Core, claim: &Claim) -> Result<ImagePatterns, Box<EffectResult>> {
    let id = ImageId::stored(claim.image_name.trim_start_matches("images/"));
    let versions = core.store.image_versions(&id).await;
    let versions = versions.map_err(|e| Box::new(EffectResult::unread(&e)))?;
    let version = versions.into_iter().find(|v| v.digest == claim.image_digest);
    let body = version.map(|v| v.body).unwrap_or_default();
    let given = |pattern: String| Some(pattern).filter(|p| !p.is_empty());
    Ok(ImagePatterns {
        os_id: given(body.os_id),
        os_version_id: given(body.os_version),
        kernel: given(body.kernel),
    })
}

/// The boot id of the agent that wrote the image: the installed system must run under another.
async fn former_boot_id(core: &Core, record: &NodeRecord) -> Result<Option<String>, Box<EffectResult>> {
    let tries = core.store.tries_of(&record.id, Effect::WriteImage).await;
    let tries = tries.map_err(|e| Box::new(EffectResult::unread(&e)))?;
    let last = tries
        .into_iter()
        .rev()
        .find(|t| t.attempt.outcome == Outcome::Succeeded);
    Ok(last.and_then(|t| t.attempt.boot_id))
}

fn reported(
    core: &Core,
    record: &NodeRecord,
    claim: &Claim,
    profile: &Profile,
    checks: Vec<v1::Check>,
    started: rackwright_lifecycle::Timestamp,
) -> EffectResult {
    let id = core.new_id();
    let good = passed(&checks);
    let failed: Vec<String> = checks
        .iter()
        .filter(|c| c.verdict() == v1::Verdict::Fail)
        .map(|c| format!("{}: {} (wanted {})", c.id, c.measured, c.threshold))
        .collect();
    let report = v1::Report {
        name: format!("nodes/{}/reports/{id}", record.id),
        claim_generation: claim.generation,
        start_time: clock::to_proto(started),
        end_time: clock::to_proto(clock::now()),
        passed: good,
        profile: profile.name.clone(),
        checks,
    };
    let mut done = if good {
        EffectResult::succeeded()
    } else {
        let message = format!(
            "{} of {} checks failed: {}",
            failed.len(),
            report.checks.len(),
            failed.join("; ")
        );
        EffectResult::failed_for_good("check-failed", message)
    };
    done.events.push(EventRow {
        at: clock::now(),
        kind: if good {
            EventKind::ValidationPassed
        } else {
            EventKind::ValidationFailed
        },
        target: format!("nodes/{}", record.id),
        message: format!(
            "{} of {} checks passed",
            report.checks.len() - failed.len(),
            report.checks.len()
        ),
        attributes: [("report".to_owned(), report.name.clone())].into(),
        ..EventRow::default()
    });
    done.proofs.push((Proof::Report, id, report.encode_to_vec()));
    done
}

/// Checks a system after the hand-over: it has to show the generated host key and to refuse the daemon's key. It may have
/// just been switched on, so the check is repeated until its time is up.
pub(super) async fn validate_from_outside(core: &Core, record: &NodeRecord, nudge: &Notify) -> EffectResult {
    let host = match host(core, record).await {
        Ok(host) => host,
        Err(done) => return *done,
    };
    let limit = Duration::from_secs(core.config.policy.host_boot_s.into());
    let deadline = tokio::time::Instant::now() + limit.saturating_sub(Duration::from_secs(1));
    tokio::select! {
        done = answers_from_outside(&host.target, deadline) => done,
        () = until_interrupted(core, record, nudge) => EffectResult::with_outcome(Outcome::Interrupted),
    }
}

async fn answers_from_outside(target: &SshTarget, deadline: tokio::time::Instant) -> EffectResult {
    loop {
        let begun = tokio::time::Instant::now();
        match rackwright_validate::Session::connect(target).await {
            // The host key was checked before the refusal of the login, so this is the system that was handed over.
            Err(SshError::AuthRefused { .. }) => return EffectResult::succeeded(),
            Ok(session) => {
                session.close().await;
                let message = "the control plane's key still opens a machine that was handed over; remove the key";
                return EffectResult::failed_for_good("key-still-there", message);
            }
            Err(error) if error.is_retryable() && begun + OUTSIDE_PAUSE < deadline => {
                tokio::time::sleep_until(begun + OUTSIDE_PAUSE).await;
            }
            Err(error) => return failed_ssh(&error),
        }
    }
}

/// Removes the provisioning key from the machine and proves that it no longer opens the machine.
pub(super) async fn hand_over(core: &Core, record: &NodeRecord) -> EffectResult {
    let host = match host(core, record).await {
        Ok(host) => host,
        Err(done) => return *done,
    };
    match core.logins.hand_over(&host.deployment, &host.target, &[]).await {
        Ok(outcome) => handed_over(record, &outcome),
        Err(error) => EffectResult::failed_for_now("hand-over", hand_over_message(&error)),
    }
}

/// The result of a hand-over. A seed that still contains the public key is harmless, because the private key is deleted at
/// the hand-over; an event reports it.
fn handed_over(record: &NodeRecord, outcome: &HandOver) -> EffectResult {
    let mut done = EffectResult::succeeded();
    if let SeedScrub::Failed(why) = &outcome.seed {
        let why: String = why.chars().take(200).collect();
        done.events.push(EventRow {
            at: clock::now(),
            kind: EventKind::SecuritySeedNotScrubbed,
            target: format!("nodes/{}", record.id),
            message: format!("the control plane's public key is still in the seed partition: {why}"),
            ..EventRow::default()
        });
    }
    done
}

fn hand_over_message(error: &HandOverError) -> String {
    format!(
        "the control plane's key could not be removed from the machine: {}",
        chain(error)
    )
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::State;
    use rackwright_store::DeploymentKeys;

    use super::*;

    #[tokio::test]
    async fn the_system_is_looked_for_where_the_agent_was_and_on_the_sites_port() {
        for (further, port) in [("", 22), ("ssh_port: 8022\n", 8022)] {
            let dir = tempfile::tempdir().unwrap();
            let config = testing::config(dir.path(), further);
            let core = testing::open(config).await.unwrap();
            let mut record = testing::node("n1", State::Validating, Some("b3-1"));
            record.address = "127.128.0.2".into();
            testing::add(&core, &record).await;
            let keys = DeploymentKeys {
                host_public: "ssh-ed25519 AAAA host".into(),
                host_private: Vec::new(),
                provision_public: String::new(),
                provision_private: Vec::new(),
                user_data: Vec::new(),
            };
            let mut tx = core.store.write().await.unwrap();
            tx.put_deployment_keys(&"n1".into(), 0, 1, &keys).await.unwrap();
            tx.commit().await.unwrap();
            let Ok(host) = host(&core, &record).await else {
                panic!("there is an address and a key")
            };
            let SshTarget {
                address, port: found, ..
            } = host.target;
            assert_eq!((address.to_string(), found), ("127.128.0.2".to_owned(), port));
            assert_eq!(host.target.host_key, keys.host_public);
        }
    }
}
