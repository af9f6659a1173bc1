//! `rackwright node explain`: all facts that explain the present state of a node.

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::bmc_state;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Agent, Bmc, BootTarget, Edge, NodeId, Reading, Scope as Line, State, Timestamp, Wait};
use rackwright_nodes::agent_boot::LastBoot;
use rackwright_nodes::attestation::AS_SERVED;
use rackwright_nodes::bmc_secret::INSERTED;
use rackwright_nodes::ethernet;
use rackwright_nodes::firmware_settings;
use rackwright_nodes::firmware_settings::WantedCache;
use rackwright_nodes::golden_firmware;
use rackwright_nodes::runner::{GatheredFacts, gather_facts};
use rackwright_site::model::description;
use rackwright_spread::Spreads;
use rackwright_store::{NodeRecord, Permit, Readings, Scope, StoreError};

use super::convert;
use super::health::health;

/// Most edges shown.
const HISTORY: i64 = 20;
/// Most attempts shown.
const ATTEMPTS: usize = 20;
/// Most network cards of no node that are suggested.
const CARDS: i64 = 4;

/// Explains a node.
///
/// # Errors
/// The node does not exist, or the database failed.
pub async fn explain(core: &Core, id: &NodeId) -> Result<v1::Explanation, ApiError> {
    let now = clock::now();
    let mut record = core.store.node(&Scope::Site, id).await?;
    let rows = core.store.attempts(&record.id, record.node.since).await?;
    let GatheredFacts { facts, permits } = gather_facts(core, &record, &rows, &mut LastBoot::Unread, now).await?;
    let mut line = String::new();
    if let Some(turn) = turn(core, &record, &permits, now).await? {
        (record.wait, line) = turn;
    }
    if let Some(at) = core.watch.seen_at(id) {
        seen_again(&mut record.readings, at);
    }
    let history = core.store.history(id, HISTORY).await?;
    let mut node = convert::node(core, &record, None, now);
    if let Some(status) = &mut node.status
        && facts.in_line_us > 0
    {
        let deadline = core.config.policy.state_deadline(record.node.state, record.node.since);
        status.state_deadline = deadline.and_then(|at| convert::time(at.plus(facts.in_line_us)));
    }
    if let Some(status) = &mut node.status
        && !status.waiting_for.is_empty()
    {
        status.waiting_for.push_str(&line);
    }
    let open = rows.iter().find(|r| r.attempt.ended_at.is_none());
    let progress = open.and_then(|r| core.agents.progress(&r.node_id, &r.id));
    let mut known = fact_lines(&record, &facts.agent);
    known.extend(firmware_settings(core, &record).await?);
    known.push(bmc_state(core, &record).await?);
    known.extend(uefi(core, &record).await?);
    known.extend(identity(core, &record).await?);
    known.extend(measured_boot(core, &record).await?);
    known.extend(golden_firmware::explain(core, &record).await?);
    let (value, at) = ethernet::explain::of_node(core, &record).await?;
    known.push(v1::FactLine {
        name: "network".to_owned(),
        value,
        time: at.and_then(convert::time),
    });
    let (value, at) = ethernet::cabling::explain(core, &record).await?;
    known.push(v1::FactLine {
        name: "cabling".to_owned(),
        value,
        time: at.and_then(convert::time),
    });
    known.extend(spread(core, &record));
    let begun_update = begun_update_hint(core, &record).await?;
    let mut hints = hints(&record, begun_update.is_some());
    hints.splice(0..0, begun_update);
    hints.splice(0..0, card_hints(core, &record).await?);
    Ok(v1::Explanation {
        summary: summary(&record, &line, progress.as_ref(), now),
        hints,
        history: history.iter().map(convert::transition).collect(),
        attempts: rows.iter().rev().take(ATTEMPTS).map(convert::attempt).collect(),
        facts: known,
        node: Some(node),
    })
}

/// The help of other agents in the node's present write; `None` if it writes no image, or without help.
fn spread(core: &Core, record: &NodeRecord) -> Option<v1::FactLine> {
    let claim = record.node.claim.as_ref()?;
    let own = core.feature::<Spreads>().report_of(&claim.image_digest, &record.id)?;
    let (image, held, chunks) = (&claim.image_name, own.held, own.chunks);
    let agents = match own.mates {
        1 => "1 other agent of its rack".to_owned(),
        mates => format!("{mates} other agents of its rack"),
    };
    let value = match own.is_alone {
        true => format!("writes {image} alone, with chunks from the image servers; has {held} of {chunks} chunks"),
        false => format!("writes {image} with {agents}; holds {held} of {chunks} chunks for others"),
    };
    Some(v1::FactLine {
        name: "chunks".to_owned(),
        value,
        time: None,
    })
}

/// What to do about a free node that is given to no customer, because a firmware update has begun and has not ended.
async fn begun_update_hint(core: &Core, record: &NodeRecord) -> Result<Option<String>, StoreError> {
    if !rackwright_ground::intent::is_free(record) || core.store.firmware_update(&record.id).await?.is_none() {
        return Ok(None);
    }
    Ok(Some(format!(
        "rackwright node firmware update {}: finishes the firmware update that has begun; no customer gets the node before \
         the outcome is known",
        record.id
    )))
}

/// What to do about network cards of no node that asked to boot with the UUID of this machine, while it is not inspected.
async fn card_hints(core: &Core, record: &NodeRecord) -> Result<Vec<String>, StoreError> {
    let (id, uuid) = (&record.id, &record.identity.uuid);
    let may_ask = matches!(record.node.state, State::Discovered | State::Inspecting | State::Failed);
    if uuid.is_empty() || !may_ask || record.node.claim.is_some() {
        return Ok(Vec::new());
    }
    let cards = core.store.unknown_macs_with_uuid(uuid, CARDS).await?;
    let hint = |card: &String| {
        let all = record.spec.boot_macs.iter().chain([card]);
        let options: String = all.map(|mac| format!(" --boot-mac {mac}")).collect();
        format!(
            "rackwright node update {id}{options}: if the machine boots from {card}, a network card of no node that asked to \
             boot with the UUID of {id}. Any host on the boot network can send this UUID: compare the address with the \
             machine's label or its firmware's setup first"
        )
    };
    Ok(cards.iter().map(hint).collect())
}

/// Other accounts with access to the BMC, as of the last reading.
async fn bmc_state(core: &Core, record: &NodeRecord) -> Result<v1::FactLine, StoreError> {
    let row = core.store.bmc_state(&record.id).await?;
    Ok(v1::FactLine {
        name: "bmc accounts".to_owned(),
        value: row
            .as_ref()
            .map_or_else(|| "never read".to_owned(), bmc_state::description),
        time: row.and_then(|row| convert::time(row.read_at)),
    })
}

/// The baseline of boot options and Secure Boot; `None` if it was never read.
async fn uefi(core: &Core, record: &NodeRecord) -> Result<Option<v1::FactLine>, StoreError> {
    let baseline = core.store.uefi_baseline(&record.id).await?;
    Ok(baseline.map(|baseline| v1::FactLine {
        name: "boot options and keys".to_owned(),
        value: bmc_state::describe_baseline(&baseline),
        time: convert::time(baseline.read_at),
    }))
}

/// The identification of the machine at its last boot into the agent, and the reason if its BMC provided no secret.
/// `None` if no session was accepted yet and no BMC was tried.
async fn identity(core: &Core, record: &NodeRecord) -> Result<Option<v1::FactLine>, StoreError> {
    let row = core.store.agent_boot(&record.id).await?;
    let row = row.filter(|row| !row.identity.is_empty() || !row.bmc_secret.is_empty());
    Ok(row.map(|row| {
        let known = match row.identity.as_str() {
            "" => "not known yet in this boot",
            known => known,
        };
        let secret = match row.bmc_secret.as_str() {
            "" => String::new(),
            INSERTED => "; its BMC has the medium with the boot's secret".to_owned(),
            why => format!("; its BMC delivers no secret: {why}"),
        };
        v1::FactLine {
            name: "identity at boot".to_owned(),
            value: format!("{known}{secret}"),
            time: convert::time(row.registered_at.max(row.powered_on_at)),
        }
    }))
}

/// The TPM's measurements of the last boot into the agent; `None` without measurements.
async fn measured_boot(core: &Core, record: &NodeRecord) -> Result<Option<v1::FactLine>, StoreError> {
    let row = core.store.agent_boot(&record.id).await?;
    let row = row.filter(|row| !row.measured.is_empty());
    Ok(row.map(|row| v1::FactLine {
        name: "measured boot".to_owned(),
        value: match row.measured.as_str() {
            AS_SERVED => "the programs, kernel, ramdisk and command line that were served".to_owned(),
            why => format!("not proven: {why}"),
        },
        time: convert::time(row.registered_at),
    }))
}

/// The state of the firmware settings; `None` if no settings are wanted.
async fn firmware_settings(core: &Core, record: &NodeRecord) -> Result<Option<v1::FactLine>, StoreError> {
    let Some(wanted) = core.feature::<WantedCache>().of(core, record).await? else {
        return Ok(None);
    };
    let row = core.store.node_settings(&record.id).await?;
    let known = row
        .as_ref()
        .map(|row| firmware_settings::rows_of(&record.id, &row.body))
        .transpose()?
        .unwrap_or_default();
    let rows = firmware_settings::rejudge(&wanted, &known);
    let read: Vec<_> = rows
        .iter()
        .filter(|(_, is_read)| *is_read)
        .map(|(row, _)| row.clone())
        .collect();
    let (value, at) = match (&row, description(&read)) {
        (None, _) => ("wanted, never read".to_owned(), None),
        (Some(row), stray) if !stray.is_empty() => (stray, row.drifted_at.or(Some(row.read_at))),
        (Some(row), _) if read.len() < rows.len() => (
            "the wanted settings changed after the last reading".to_owned(),
            Some(row.read_at),
        ),
        (Some(row), _) => match row.verified_at {
            Some(at) => ("as wanted, proven by a start".to_owned(), Some(at)),
            None => ("as wanted, not proven by a start yet".to_owned(), Some(row.read_at)),
        },
    };
    Ok(Some(v1::FactLine {
        name: "firmware settings".to_owned(),
        value,
        time: at.and_then(convert::time),
    }))
}

/// The present reason why a node waits for a permit: the occupancy, and the nodes before it.
async fn turn(
    core: &Core,
    record: &NodeRecord,
    permits: &[Permit],
    now: Timestamp,
) -> Result<Option<(Wait, String)>, StoreError> {
    let Some(permit) = permits.iter().find(|permit| !permit.is_taken) else {
        return Ok(None);
    };
    if let Line::Alarm(node) = &permit.resource.scope {
        let alarms = core.store.alarms_of(node).await?;
        let description = alarms.iter().filter(|alarm| alarm.blocks);
        let description: Vec<String> = description
            .map(|alarm| format!("{} ({})", alarm.message, alarm.advice))
            .collect();
        return Ok((!description.is_empty()).then(|| {
            let why = description.join("; ");
            (Wait::Alarm { why }, String::new())
        }));
    }
    let queue = core.store.queue(&permit.resource, now).await?;
    let before = core.store.count_ahead(&permit.resource, &record.id).await?;
    let wait = Wait::Turn {
        resource: permit.resource.clone(),
        taken: queue.taken,
        room: queue.room,
    };
    let line = format!(
        ", {} in the queue, {before} of them queued earlier; customers take turns",
        queue.waiting
    );
    Ok(Some((wait, line)))
}

/// Updates the times of readings that the watch over nodes at rest confirmed; such confirmations are not stored.
fn seen_again(readings: &mut Readings, seen_at: Timestamp) {
    if let Reading::Known { at, .. } = &mut readings.power {
        *at = seen_at.max(*at);
    }
    if let Reading::Known {
        value: Bmc::Identified,
        at,
    } = &mut readings.bmc
    {
        *at = seen_at.max(*at);
    }
}

fn words(us: i64) -> String {
    let s = us / 1_000_000;
    match s {
        ..0 => "no time".into(),
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86400),
    }
}

fn summary(record: &NodeRecord, line: &str, progress: Option<&v1::JobProgress>, now: Timestamp) -> String {
    let mut text = format!(
        "{} has been {} for {}",
        record.id,
        record.node.state,
        words(now.since(record.node.since))
    );
    if record.wait_until > now && record.wait != Wait::Rest {
        text.push_str(&format!(", waiting for {}{line}", record.wait));
        if !record.wait.is_open_ended() {
            let left = words(record.wait_until.since(now));
            text.push_str(&format!(", for another {left} at most"));
        }
    }
    if let Some(p) = progress.filter(|p| p.logical_bytes_total > 0) {
        let percent = p.logical_bytes.saturating_mul(100) / p.logical_bytes_total;
        text.push_str(&format!(
            "; {} is {percent} % done at {} MB/s",
            p.step,
            p.bytes_per_second / 1_000_000
        ));
    }
    if let Some(doubt) = &record.node.doubt {
        text.push_str(&format!(
            ". Its record is doubted; no operation runs on it before an operator settles the doubt: {}",
            doubt.why
        ));
    }
    if !record.reason.is_empty() {
        text.push_str(&format!(". Reason: {}", record.reason));
    }
    text
}

/// Commands that may help. `is_updated`: a firmware update has begun, and no customer gets the node before its end.
fn hints(record: &NodeRecord, is_updated: bool) -> Vec<String> {
    let id = &record.id;
    let claim = record.node.claim.as_ref();
    let claimed = claim.is_some();
    let handed_over = claim.is_some_and(|c| c.handed_over == Some(c.deployment));
    let untouched = record.node.evidence.is_untouched();
    let health = health(record).0;
    let is_silent = health == v1::NodeHealth::Unreachable;
    if record.node.doubt.is_some() {
        return doubt_hints(record);
    }
    let list: &[(&str, &str)] = match record.node.state {
        // A deploy would wait for the BMC, or for the update.
        State::Available if is_silent || is_updated || health == v1::NodeHealth::LoginRefused => &[],
        State::Discovered => &[
            (
                "get",
                "check the BMC's address; `node update` or `apply -f` changes it and the password",
            ),
            ("quarantine", "takes it out of service"),
        ],
        State::Inspecting | State::Imaging | State::Reclaiming => &[
            ("watch", "shows progress"),
            ("quarantine", "stops the work and takes the node out of service"),
        ],
        State::Allocated | State::Rebooting | State::Validating => {
            &[("watch", "shows progress"), ("release", "gives the node back")]
        }
        State::Available if claimed => &[("watch", "shows progress")],
        State::Available => &[("deploy", "--image IMAGE puts an image on it")],
        State::Active => &[
            ("reimage", "--image IMAGE writes another image"),
            ("release", "erases it and frees it"),
        ],
        State::Failed if handed_over => &[
            ("retry", "checks it again from outside; nothing on it is touched"),
            ("reimage", "--image IMAGE writes another image"),
            ("release", "erases it and frees it"),
        ],
        State::Failed if claimed => &[
            ("retry", "writes the image again"),
            ("release", "erases it and frees it"),
            ("reports", "shows the checks"),
        ],
        State::Failed if untouched => &[("retry", "inspects it again"), ("readmit", "erases it first")],
        State::Failed | State::Quarantined => &[("readmit", "erases it and returns it to the pool")],
        State::Maintenance if rackwright_ground::intent::is_erased_by_resume(record) => {
            &[("resume", "erases it: its claim ended while it was held; needs --yes")]
        }
        State::Maintenance if claimed => &[("resume", "puts it back into service; it can be released then")],
        State::Maintenance if untouched => &[("resume", "puts it back into service"), ("readmit", "erases it first")],
        State::Maintenance => &[("readmit", "erases it and returns it to the pool")],
    };
    let mut hints: Vec<_> = list
        .iter()
        .map(|(verb, what)| format!("rackwright node {verb} {id}: {what}"))
        .collect();
    if record.spec.account.refused_at.is_some() {
        let description = [
            format!(
                "rackwright node update {id} --user USER --password-file FILE: sets the password that the BMC accepts"
            ),
            format!("rackwright node bmc-password rotate {id}: tries the stored passwords again and changes them"),
        ];
        hints.splice(0..0, description);
    }
    if is_silent {
        hints.insert(
            0,
            format!(
                "the BMC at {} does not answer, so nothing can be done to {id}: look at its power, its cable and its address \
                 (`rackwright node update {id}` changes it)",
                record.spec.bmc_address
            ),
        );
    }
    if let Some(mac) = record.identity.macs.first()
        && record.wait.is_for_a_boot()
    {
        hints.push(format!(
            "rackwright boot trace {mac}: shows the progress of its network boot"
        ));
    }
    hints
}

/// Commands that settle a doubt, safest first.
fn doubt_hints(record: &NodeRecord) -> Vec<String> {
    let id = &record.id;
    let mut hints = Vec::new();
    let is_erasable = Edge::Readmitted.target(record.node.state).is_some();
    match (&record.node.claim, is_erasable) {
        (None, true) => hints.push(format!(
            "rackwright node readmit {id}: erases it and returns it to the pool; check first that no customer has it"
        )),
        (None, false) => hints.push(format!(
            "rackwright node hold {id}: takes it out of service for a readmit"
        )),
        (Some(_), _) => {}
    }
    hints.push(format!(
        "rackwright node believe {id} --reason TEXT: confirms that its record is right; operations run on it again"
    ));
    if record.node.claim.is_some() {
        hints.push(format!(
            "rackwright node quarantine {id}: takes it out of service, if its record is wrong; a readmit erases it then"
        ));
    }
    hints
}

fn line<T>(name: &str, reading: &Reading<T>, show: impl Fn(&T) -> String) -> v1::FactLine {
    let (value, at) = match reading {
        Reading::Never => ("never read".to_owned(), Timestamp::default()),
        Reading::Unknown { since } => ("unknown since then".to_owned(), *since),
        Reading::Known { value, at } => (show(value), *at),
    };
    v1::FactLine {
        name: name.to_owned(),
        value,
        time: convert::time(at),
    }
}

/// The state of the BMC's password, and its time; `None` if it is unchanged since the enrolment.
fn password_line(record: &NodeRecord) -> Option<(&'static str, Option<Timestamp>)> {
    let account = &record.spec.account;
    Some(match (&account.pending, account.refused_at, account.changed_at) {
        (_, Some(at), _) => (
            "refused by the BMC; not sent again before the password changes or an operator requests a try",
            Some(at),
        ),
        (Some(pending), ..) => (
            "being changed; both the old and the new password are stored",
            Some(pending.at),
        ),
        (None, None, Some(at)) => ("set by Rackwright, proven by a login", Some(at)),
        (None, None, None) if rackwright_ground::bmc::is_unknown(&record.spec) => {
            ("not known; the factory list is tried", None)
        }
        (None, None, None) => return None,
    })
}

/// The identification of the machine in the last agent session.
fn identity_words(record: &NodeRecord) -> String {
    let known = record.hold.identity.as_str();
    match (known, record.spec.tpm_ek.as_str()) {
        ("", "") => "not known yet".to_owned(),
        ("", ek) => format!("not known yet; the enrolled TPM is {ek}"),
        ("tpm", ek) => format!("tpm, {ek}"),
        (known, "") => format!("{known}: another machine with its MAC address would be accepted as this node"),
        (known, ek) => format!("{known} in the last session; the enrolled TPM is {ek}"),
    }
}

fn fact_lines(record: &NodeRecord, agent: &Reading<Agent>) -> Vec<v1::FactLine> {
    let readings = &record.readings;
    let plain = |name: &str, value: String, at: Option<Timestamp>| v1::FactLine {
        name: name.to_owned(),
        value,
        time: at.and_then(convert::time),
    };
    let evidence = &record.node.evidence;
    let customer = record.node.claim.iter().map(|claim| claim.customer.clone());
    let customer = customer.filter(|name| !name.is_empty());
    let mut lines = vec![
        line("bmc", &readings.bmc, |b| match b {
            Bmc::Identified => "answers".to_owned(),
            Bmc::Unreachable(why) => why.clone(),
        }),
        v1::FactLine {
            value: convert::power(&readings.power).into(),
            ..line("power", &readings.power, |_| String::new())
        },
        line("boot target", &readings.boot_target, |t| match t {
            BootTarget::Network => "network, once".to_owned(),
            BootTarget::Disk => "its own boot order, disk first".to_owned(),
        }),
        line("agent", agent, |a| match a {
            Agent::Present { boot_id, .. } => format!("connected, boot {boot_id}"),
            Agent::Absent => "not connected".to_owned(),
        }),
        plain("identity", identity_words(record), None),
        line("inventory", &readings.inventory, |()| "reported".to_owned()),
        plain(
            "image on disk",
            evidence.image_digest.clone().unwrap_or_else(|| "none".into()),
            evidence.written_at,
        ),
        plain(
            "data",
            if evidence.is_untouched() {
                "none written by Rackwright, or erased with proof"
            } else {
                "written, not erased"
            }
            .into(),
            if evidence.is_untouched() {
                evidence.erased_at.or(evidence.clean_at)
            } else {
                evidence.written_at
            },
        ),
    ];
    let password = password_line(record);
    lines.extend(password.map(|(description, at)| plain("bmc password", description.into(), at)));
    lines.extend(customer.map(|name| plain("customer", name.to_string(), None)));
    lines
}

#[cfg(test)]
mod tests;
