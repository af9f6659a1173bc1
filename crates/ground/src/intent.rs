//! Which calls a node accepts in which state, and how their wishes are written into the node. No I/O.

use rackwright_api::v1::{self, Deployment, PowerAction};
use rackwright_lifecycle::{
    Claim, ClusterId, CustomerId, Edge, MaintenanceWindow, NodeId, PowerGoal, PowerRequest, Span, State, Timestamp,
    Weekly,
};
use rackwright_store::NodeRecord;

use crate::api_error::ApiError;
use crate::clock;

/// Most spans of a window.
const SPANS_MAX: usize = 64;
const DAY_MIN: u32 = 24 * 60;

/// A resolved image version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// "images/{image}"
    pub name: String,
    /// Digest of the version.
    pub digest: String,
}

fn state_text(record: &NodeRecord) -> String {
    let because = if record.reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", record.reason)
    };
    format!("{} is {}{because}", record.id, record.node.state)
}

/// The refusal of a call about a node: what the node is, and what helps.
#[must_use]
pub fn refused(record: &NodeRecord, what: &str, hint: &str) -> ApiError {
    let message = format!("{}: {what}", state_text(record));
    ApiError::precondition(format!("nodes/{}", record.id), message, hint)
}

/// The refusal of a call that erases data without the caller's confirmation.
fn unconfirmed(record: &NodeRecord, what: &str) -> ApiError {
    ApiError::Unconfirmed {
        subject: format!("nodes/{}", record.id),
        message: format!("{}: {what}", state_text(record)),
    }
}

/// The cluster that holds the node by its claim. Only the cluster changes its nodes.
fn cluster_of(record: &NodeRecord) -> Option<&ClusterId> {
    let claim = record.node.claim.as_ref().filter(|claim| !claim.release_requested)?;
    claim.cluster.as_ref().map(|cluster_claim| &cluster_claim.cluster)
}

/// How an operator frees a claimed node.
fn release_hint(record: &NodeRecord) -> String {
    match record.node.state {
        State::Quarantined => format!("`rackwright node readmit {}` erases it and frees it", record.id),
        State::Maintenance => format!(
            "`rackwright node resume {}` ends the hold; it can be released then",
            record.id
        ),
        _ => format!("`rackwright node release {}` ends the claim and erases it", record.id),
    }
}

/// Refuses every change of a doubted node except those that settle the doubt. `what` names the change.
///
/// # Errors
/// The node is doubted.
pub fn check_not_doubted(record: &NodeRecord, what: &str) -> Result<(), ApiError> {
    let Some(doubt) = &record.node.doubt else { return Ok(()) };
    if matches!(what, "readmit" | "hold" | "quarantine" | "change" | "believe") {
        return Ok(());
    }
    let id = &record.id;
    let erase = match record.node.claim {
        None => format!("`rackwright node readmit {id}` erases it and returns it to the pool, "),
        Some(_) => String::new(),
    };
    let hint = format!("{erase}`rackwright node believe {id}` confirms that its record is right");
    let message = format!("the record of {id} is doubted: {}", doubt.why);
    Err(ApiError::precondition(format!("nodes/{id}"), message, hint))
}

fn claim_of(deployment: &Deployment, image: Image, node: &NodeId, generation: u64, number: u32) -> Claim {
    let hostname = if deployment.hostname.is_empty() {
        node.to_string()
    } else {
        deployment.hostname.clone()
    };
    Claim {
        generation,
        deployment: number,
        image_digest: image.digest,
        image_name: image.name,
        hostname,
        ssh_authorized_keys: deployment.ssh_authorized_keys.clone(),
        has_user_data: !deployment.user_data.is_empty(),
        plain_user_data: String::new(),
        root_drive: deployment.root_drive.clone(),
        verify_whole_disk: deployment.verify_whole_disk,
        release_requested: false,
        handed_over: None,
        customer: CustomerId::named(&deployment.customer),
        cluster: None,
    }
}

/// As long as a label's value, in characters.
const CUSTOMER_MAX: usize = 63;

fn check_customer(deployment: &Deployment) -> Result<(), ApiError> {
    let customer = &deployment.customer;
    if customer.chars().count() > CUSTOMER_MAX || customer.chars().any(char::is_control) {
        let fault = format!("must have at most {CUSTOMER_MAX} characters and no control characters");
        return Err(ApiError::invalid("deployment.customer", fault));
    }
    if deployment.root_drive.chars().any(char::is_control) {
        let fault = "must have no control characters";
        return Err(ApiError::invalid("deployment.root_drive", fault));
    }
    Ok(())
}

/// True for an available node that has no claim and is not doubted.
pub fn is_free(record: &NodeRecord) -> bool {
    record.node.claim.is_none() && record.node.state == State::Available && record.node.doubt.is_none()
}

/// Claims a free node. Returns the generation and the deployment for which keys are needed.
///
/// # Errors
/// The node is not free.
pub fn deploy(record: &mut NodeRecord, deployment: &Deployment, image: Image) -> Result<(u64, u32), ApiError> {
    if record.node.claim.is_some() {
        let hint = format!(
            "`rackwright node reimage {}` writes another image, `node release` frees it",
            record.id
        );
        return Err(refused(record, "it is claimed already", &hint));
    }
    if record.node.state != State::Available {
        let hint = format!("`rackwright node explain {}` shows the reason for the wait", record.id);
        return Err(refused(record, "only an available node can be deployed", &hint));
    }
    check_customer(deployment)?;
    check_not_doubted(record, "deploy")?;
    record.node.generation += 1;
    let generation = record.node.generation;
    record.node.claim = Some(claim_of(deployment, image, &record.id, generation, 1));
    Ok((generation, 1))
}

/// Refuses to deploy a node with a begun firmware update of unknown outcome: its machine may be in the middle of a flash.
///
/// # Errors
/// An update has begun and has not ended.
pub fn check_no_begun_update(record: &NodeRecord, is_begun: bool) -> Result<(), ApiError> {
    if !is_begun {
        return Ok(());
    }
    let hint = format!(
        "`rackwright node firmware {0}` shows the update, `rackwright node firmware update {0} --wait` finishes it",
        record.id
    );
    let what = "a firmware update has begun on it and has not ended; it can be deployed when the outcome is known";
    Err(refused(record, what, &hint))
}

/// The refusal for a node that a cluster still holds.
pub fn leaves_cluster(record: &NodeRecord, cluster: &ClusterId) -> ApiError {
    let hint = format!("`rackwright cluster explain {cluster}` shows its progress");
    refused(
        record,
        &format!("it is a node of cluster {cluster}, or about to leave it"),
        &hint,
    )
}

/// Requests another image on a claimed node. Empty host name, keys and drive keep their former values, and the customer
/// stays. User data are not kept: a new system gets the user data of this call.
///
/// # Errors
/// The node has no claim, belongs to a cluster or another customer, or is being worked on.
pub fn reimage(record: &mut NodeRecord, deployment: &Deployment, image: Image) -> Result<(u64, u32), ApiError> {
    let state = record.node.state;
    let Some(former) = record.node.claim.clone().filter(|c| !c.release_requested) else {
        let hint = format!("`rackwright node deploy {}` claims a free node", record.id);
        return Err(refused(record, "only a claimed node can be reimaged", &hint));
    };
    if let Some(cluster_claim) = &former.cluster {
        let cluster = &cluster_claim.cluster;
        let hint = format!("`rackwright cluster reimage {cluster}` writes another image to its nodes");
        return Err(refused(record, &format!("it is a node of cluster {cluster}"), &hint));
    }
    if !deployment.customer.is_empty() && former.customer != *deployment.customer {
        let has_it = match former.customer.as_str() {
            "" => "it is claimed for no customer".to_owned(),
            customer => format!("customer {customer} has it"),
        };
        let hint = format!("{}; {} can have it then", release_hint(record), deployment.customer);
        let what = format!(
            "{has_it}, and a reimage keeps the customer: release the node first; the release erases it for another customer"
        );
        return Err(refused(record, &what, &hint));
    }
    if !matches!(state, State::Active | State::Failed) {
        let hint = format!(
            "`rackwright node watch {}` shows when it is active or failed",
            record.id
        );
        return Err(refused(record, "work on it is under way", &hint));
    }
    check_customer(deployment)?;
    let mut whole = deployment.clone();
    if whole.hostname.is_empty() {
        whole.hostname = former.hostname;
    }
    if whole.ssh_authorized_keys.is_empty() {
        whole.ssh_authorized_keys = former.ssh_authorized_keys;
    }
    if whole.root_drive.is_empty() {
        whole.root_drive = former.root_drive;
    }
    whole.customer = former.customer.to_string();
    rewrite(record, &whole, image).ok_or_else(|| refused(record, "work on it is under way", ""))
}

/// Requests another image on a claimed node, exactly as `deployment` describes it. `None`: the node's state does not allow
/// it now.
pub fn rewrite(record: &mut NodeRecord, deployment: &Deployment, image: Image) -> Option<(u64, u32)> {
    let state = record.node.state;
    let former = record.node.claim.as_ref().filter(|claim| !claim.release_requested)?;
    if !matches!(state, State::Active | State::Failed) {
        return None;
    }
    let (generation, number) = (former.generation, former.deployment + 1);
    let mut claim = claim_of(deployment, image, &record.id, generation, number);
    claim.cluster.clone_from(&former.cluster);
    // A claim keeps its customer for life, whatever the request names.
    claim.customer.clone_from(&former.customer);
    record.node.claim = Some(claim);
    record.node.wanted.retry = state == State::Failed;
    Some((generation, number))
}

/// Ends a claim.
///
/// # Errors
/// The node has no claim, or a cluster holds it.
pub fn release(record: &mut NodeRecord) -> Result<(), ApiError> {
    if let Some(cluster_claim) = record.node.claim.as_ref().and_then(|claim| claim.cluster.as_ref()) {
        let cluster = &cluster_claim.cluster;
        let hint = format!(
            "`rackwright cluster release {cluster}` releases the cluster, `cluster replace {cluster} {}` replaces the node",
            record.id
        );
        return Err(refused(record, &format!("it is a node of cluster {cluster}"), &hint));
    }
    let state = record.node.state;
    let can = Edge::Released.target(state).or(Edge::Unclaimed.target(state)).is_some() || state == State::Available;
    let hint = match state {
        State::Quarantined | State::Maintenance => release_hint(record),
        _ => format!("`rackwright node explain {}` shows its state", record.id),
    };
    match &mut record.node.claim {
        Some(claim) if can => {
            claim.release_requested = true;
            Ok(())
        }
        Some(_) => Err(refused(record, "it cannot be released from this state", &hint)),
        None => Err(refused(record, "it has no claim to release", &hint)),
    }
}

/// Takes a node out of service.
///
/// # Errors
/// The node is being worked on.
pub fn hold(record: &mut NodeRecord, reason: &str) -> Result<(), ApiError> {
    if Edge::Held.target(record.node.state).is_none() {
        let hint = format!("wait until it is at rest: `rackwright node watch {}`", record.id);
        return Err(refused(record, "it cannot be held from this state", &hint));
    }
    let claim = record.node.claim.as_ref();
    if matches!(record.node.state, State::Available | State::Active)
        && claim.is_some_and(|c| record.node.evidence.deployment != Some(c.deployment))
    {
        let hint = format!(
            "wait until it is active or failed: `rackwright node watch {}`",
            record.id
        );
        return Err(refused(record, "a deployment of it is about to begin", &hint));
    }
    record.node.wanted.hold = Some(checked_text("reason", reason)?);
    Ok(())
}

/// Whether the end of a hold begins the erase: the claim of the held node ended during the hold, because its cluster was
/// released or has replaced the node.
pub fn is_erased_by_resume(record: &NodeRecord) -> bool {
    let is_released = record.node.claim.as_ref().is_some_and(|claim| claim.release_requested);
    record.node.state == State::Maintenance && is_released
}

/// Ends a hold.
///
/// # Errors
/// The node is not held; it is unclaimed and not erased; or it would be erased and the caller did not confirm that.
pub fn resume(record: &mut NodeRecord, confirm_erase: bool) -> Result<(), ApiError> {
    if record.node.state != State::Maintenance {
        return Err(refused(
            record,
            "only a held node can be resumed",
            "`rackwright node hold` holds a node",
        ));
    }
    if record.node.claim.is_none() && !record.node.evidence.is_untouched() {
        let hint = format!("`rackwright node readmit {}` erases it first", record.id);
        return Err(refused(record, "it holds data that was written and not erased", &hint));
    }
    if is_erased_by_resume(record) && !confirm_erase {
        let what = "its claim ended while it was held, so the end of the hold erases everything on its drives";
        return Err(unconfirmed(record, what));
    }
    record.node.wanted.resume = true;
    Ok(())
}

/// Puts a node in quarantine.
///
/// # Errors
/// The node is quarantined or held.
pub fn quarantine(record: &mut NodeRecord, reason: &str) -> Result<(), ApiError> {
    if Edge::Condemned.target(record.node.state).is_none() {
        let hint = match &record.node.claim {
            Some(_) => release_hint(record),
            None => format!(
                "`rackwright node readmit {}` erases it and returns it to the pool",
                record.id
            ),
        };
        return Err(refused(record, "it cannot be quarantined from this state", &hint));
    }
    record.node.wanted.condemn = Some(checked_text("reason", reason)?);
    Ok(())
}

/// Erases a node and returns it to the pool.
///
/// # Errors
/// The node is in service, claimed, or in a cluster; or the caller did not confirm the erase.
pub fn readmit(record: &mut NodeRecord, confirm_erase: bool) -> Result<(), ApiError> {
    let is_in_pool = record.node.state == State::Available && record.node.doubt.is_none();
    if is_in_pool || Edge::Readmitted.target(record.node.state).is_none() {
        let hint = format!(
            "`rackwright node release {}` ends a claim, `node quarantine` takes a node out of service",
            record.id
        );
        return Err(refused(
            record,
            "only a quarantined, failed or held node can be readmitted",
            &hint,
        ));
    }
    if record.node.claim.is_some() && record.node.state != State::Quarantined {
        let hint = release_hint(record);
        return Err(refused(
            record,
            "it is claimed, and readmitting would destroy its owner's data",
            &hint,
        ));
    }
    if let Some(cluster) = cluster_of(record) {
        let hint = format!(
            "`rackwright cluster replace {cluster} {0}` or `cluster resize {cluster} --leave {0}` takes it out first",
            record.id
        );
        return Err(refused(record, &format!("it is a node of cluster {cluster}"), &hint));
    }
    if !confirm_erase {
        let what = match record.node.claim {
            Some(_) => "readmitting it ends its claim and erases everything on its drives, its owner's data too",
            None => "readmitting it erases everything on its drives",
        };
        return Err(unconfirmed(record, what));
    }
    record.node.wanted.readmit = true;
    Ok(())
}

/// Tries a failed node again.
///
/// # Errors
/// The node has not failed, or it is unclaimed and not erased.
pub fn retry(record: &mut NodeRecord) -> Result<(), ApiError> {
    if record.node.state != State::Failed {
        let hint = format!("`rackwright node explain {}` shows its state", record.id);
        return Err(refused(record, "only a failed node can be retried", &hint));
    }
    if record.node.claim.is_none() && !record.node.evidence.is_untouched() {
        let hint = format!("`rackwright node readmit {}` erases it first", record.id);
        return Err(refused(record, "it holds data that was written and not erased", &hint));
    }
    record.node.wanted.retry = true;
    Ok(())
}

/// Inspects an unclaimed node again, which writes its firmware settings and verifies them.
///
/// # Errors
/// The node is claimed, is being worked on, or holds data.
pub fn apply_settings(record: &mut NodeRecord) -> Result<(), ApiError> {
    if record.node.claim.is_some() {
        let hint = format!(
            "the settings of a claimed machine are only read; they are written after its release. {}",
            release_hint(record)
        );
        return Err(refused(record, "it is claimed", &hint));
    }
    if !matches!(record.node.state, State::Available | State::Failed) {
        let hint = match record.node.state {
            State::Maintenance => format!(
                "`rackwright node resume {}` inspects it again, which writes them",
                record.id
            ),
            _ => format!("`rackwright node explain {}` shows its state", record.id),
        };
        return Err(refused(
            record,
            "settings are written to available and failed nodes",
            &hint,
        ));
    }
    if !record.node.evidence.is_untouched() {
        let hint = format!(
            "`rackwright node readmit {}` erases it first, and writes them on the way",
            record.id
        );
        return Err(refused(record, "it holds data that was written and not erased", &hint));
    }
    record.node.wanted.reinspect = true;
    Ok(())
}

/// Requests a power change of a node at rest.
///
/// # Errors
/// The node is being worked on, or the call names no action.
pub fn power(record: &mut NodeRecord, action: PowerAction, now: Timestamp) -> Result<(), ApiError> {
    let goal = match action {
        PowerAction::On => PowerGoal::On,
        PowerAction::Off => PowerGoal::Off,
        PowerAction::Cycle => PowerGoal::Cycle,
        PowerAction::Unspecified => return Err(ApiError::invalid("action", "must be on, off or cycle")),
    };
    if !record.node.state.is_at_rest() {
        let hint = "the work under way switches the power itself; wait for its end, or hold the node first";
        return Err(refused(record, "work on it is under way and controls its power", hint));
    }
    record.node.wanted.power = Some(PowerRequest { goal, at: now });
    Ok(())
}

/// Members of a customer may only restart a machine that was handed over to them.
///
/// # Errors
/// The action is another one, or the node is not handed over.
pub fn check_power_of_customer(record: &NodeRecord, action: PowerAction) -> Result<(), ApiError> {
    if matches!(action, PowerAction::On | PowerAction::Off) {
        let message = "members of a customer may only power-cycle a node; the action must be POWER_ACTION_CYCLE";
        return Err(ApiError::Forbidden(message.into()));
    }
    if record.node.state != State::Active {
        let hint = "wait until it is handed over";
        return Err(refused(
            record,
            "it is not handed over, so its power is not yours to change",
            hint,
        ));
    }
    if record
        .node
        .wanted
        .power
        .as_ref()
        .is_some_and(|wanted| wanted.goal == PowerGoal::Off)
    {
        let hint = "ask the site's operators";
        return Err(refused(record, "the site's operators have switched it off", hint));
    }
    Ok(())
}

/// Requests that the firmware of a node at rest matches the wish of its SKU. On a claimed machine, the update waits for the
/// customer's window.
///
/// # Errors
/// The node is neither available, active nor held.
pub fn firmware(record: &mut NodeRecord, now: Timestamp) -> Result<(), ApiError> {
    if !matches!(record.node.state, State::Available | State::Active | State::Maintenance) {
        let hint =
            "the update is automatic on the way into the pool; otherwise hold the node, or wait until it is at rest";
        return Err(refused(record, "its firmware cannot be updated in this state", hint));
    }
    record.node.wanted.firmware = Some(now);
    Ok(())
}

/// The MAC addresses by which a machine is known: those that its BMC reports and those that an operator gives; without
/// any, those that its boot options had.
#[must_use]
pub fn known_macs(reported: &[String], given: &[String], in_options: &[String]) -> Vec<String> {
    let mut macs: Vec<String> = Vec::new();
    for mac in reported.iter().chain(given) {
        if !macs.contains(mac) {
            macs.push(mac.clone());
        }
    }
    if macs.is_empty() {
        macs.extend_from_slice(in_options);
    }
    macs
}

/// Sets the MAC addresses that an operator gives for the machine. They count at once, or after the first identification. A
/// removed address that the BMC reports as well is back after the next identification.
///
/// # Errors
/// An identified machine would be left without an address.
pub fn boot_macs(record: &mut NodeRecord, given: Vec<String>) -> Result<(), ApiError> {
    let former = std::mem::replace(&mut record.spec.boot_macs, given);
    if record.identity.macs.is_empty() {
        return Ok(());
    }
    let in_options = &record.identity.boot_option_macs;
    let is_reported = |mac: &&String| !former.contains(mac) && !in_options.contains(mac);
    let reported: Vec<String> = record.identity.macs.iter().filter(is_reported).cloned().collect();
    let macs = known_macs(&reported, &record.spec.boot_macs, in_options);
    if macs.is_empty() {
        let what = "no other MAC address of its machine is known, so its network boot would not be recognised";
        return Err(refused(
            record,
            what,
            "give the addresses of the network cards that it boots from",
        ));
    }
    record.identity.macs = macs;
    Ok(())
}

/// Checks that a node may be deleted.
///
/// # Errors
/// The node is claimed or being worked on.
pub fn delete(record: &NodeRecord) -> Result<(), ApiError> {
    let resting = matches!(
        record.node.state,
        State::Discovered | State::Available | State::Failed | State::Maintenance | State::Quarantined
    );
    if record.node.claim.is_some() || !resting {
        let hint = release_hint(record);
        return Err(refused(record, "it is in use", &hint));
    }
    Ok(())
}

/// The spans of a maintenance window in a call.
///
/// # Errors
/// Too many spans, or spans that are no times: each with its field.
pub fn maintenance_window(window: &v1::MaintenanceWindow) -> Result<MaintenanceWindow, ApiError> {
    if window.weekly.len() + window.once.len() > SPANS_MAX {
        return Err(ApiError::invalid(
            "window",
            format!("must have at most {SPANS_MAX} spans"),
        ));
    }
    let mut faults = Vec::new();
    let mut checked = MaintenanceWindow::default();
    for (i, one) in window.weekly.iter().enumerate() {
        if one.day > 6 || one.start_minute >= DAY_MIN || !(1..=DAY_MIN).contains(&one.minutes) {
            let fault =
                "must have day 0 (Monday) to 6, start 0 to 1439 minutes after midnight UTC, 1 to 1440 minutes long";
            faults.push((format!("window.weekly[{i}]"), fault.to_owned()));
            continue;
        }
        checked.weekly.push(Weekly {
            day: one.day as u8,
            start_min: one.start_minute as u16,
            minutes: one.minutes as u16,
        });
    }
    for (i, one) in window.once.iter().enumerate() {
        let span = Span {
            from: clock::of_proto(one.start_time.as_ref()),
            to: clock::of_proto(one.end_time.as_ref()),
        };
        if span.to <= span.from {
            faults.push((
                format!("window.once[{i}]"),
                "its end must be after its start".to_owned(),
            ));
        }
        checked.once.push(span);
    }
    match faults.is_empty() {
        true => Ok(checked),
        false => Err(ApiError::Invalid(faults)),
    }
}

/// The trimmed text of a field for people: 1 to 1000 characters, no control characters.
///
/// # Errors
/// The field, with another text.
pub fn checked_text(field: &str, text: &str) -> Result<String, ApiError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > 1000 || text.chars().any(char::is_control) {
        return Err(ApiError::invalid(
            field,
            "must have 1 to 1000 characters and no control characters",
        ));
    }
    Ok(text.to_owned())
}

/// Ends the doubt about a node: an operator confirms its record.
///
/// # Errors
/// The node is not doubted.
pub fn end_doubt(record: &mut NodeRecord, reason: &str) -> Result<(), ApiError> {
    checked_text("reason", reason)?;
    if record.node.doubt.is_none() {
        let hint = format!("`rackwright node explain {}` shows its state", record.id);
        return Err(refused(record, "its record is not doubted", &hint));
    }
    record.node.believe();
    Ok(())
}

/// Checks the form of an idempotency key.
///
/// # Errors
/// The key is missing, too long, or not printable ASCII.
pub fn check_key(key: &str) -> Result<(), ApiError> {
    if key.is_empty() || key.len() > 128 || !key.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        let fault = "must be 1 to 128 printable ASCII characters, different for every new request";
        return Err(ApiError::invalid("mutation.idempotency_key", fault));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
