//! Foreign entries on a BMC: read, removed, and read again.

use rackwright_ground::bmc::BmcError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::{NAME_MAX, SENTENCE_MAX, cut};
use rackwright_lifecycle::bmc_state::uefi::Baseline;
use rackwright_lifecycle::bmc_state::{
    BmcReading, BmcRules, Conclusion, Item, ItemState, Listed, Part, Verdict, conclude, judge,
};
use rackwright_lifecycle::{BootTarget, Effect, EventKind, Outcome, Reading, State, Timestamp};
use rackwright_redfish::{BmcClient, BmcState, ErrorKind, RedfishError, StateItem, StateListed, StatePart, StateScope};
use rackwright_store::{AgentSession, BmcStateLine, BmcStateRow, EventRow, NodeRecord, StoreError};

use super::bmc::{failed, through_bmc, turn};
use super::uefi::Against;
use crate::bmc_secret;
use crate::effect_result::{EffectResult, LearnedFact};

/// Most stored lines for one BMC.
const LINES_MAX: usize = 64;
/// Longest text of a BMC in one message, in bytes.
const WHY_MAX: usize = 200;

/// Reads and reports foreign entries; removes none. At an inspection, boot options and Secure Boot become the baseline for
/// later readings.
pub(super) async fn read(core: &Core, record: &NodeRecord) -> EffectResult {
    let rules = core.config.bmc_state.rules(record);
    let against = match Against::of(core, record).await {
        Ok(against) => against,
        Err(error) => return EffectResult::unread(&error),
    };
    let boot = match core.store.attempts(&record.id, record.node.since).await {
        Ok(rows) => bmc_secret::boot_of(record, &rows),
        Err(error) => return EffectResult::unread(&error),
    };
    through_bmc!(core, record, |client| {
        let state = seen(core, &client, scope(&rules, &against), boot.as_ref()).await?;
        let is_inspection = record.node.state == State::Inspecting;
        let (first, baseline) = if is_inspection {
            (plain_reading(&state), against.of_inspection(&state))
        } else {
            (reading(&state, &against), None)
        };
        let found = judge(&first, &rules);
        Ok(reported(core, record, &found, &state.boot_order, baseline).await)
    })
}

/// Removes foreign entries, and proves by a second reading that they are gone.
pub(super) async fn clean(core: &Core, record: &NodeRecord) -> EffectResult {
    let mut rules = core.config.bmc_state.rules(record);
    let against = match Against::of(core, record).await {
        Ok(against) => against,
        Err(error) => return EffectResult::unread(&error),
    };
    // Removed earlier in this state: shown as long as the last reading of the state.
    let earlier = match core.store.bmc_state(&record.id).await {
        Ok(row) => row.filter(|row| row.read_at >= record.node.since),
        Err(error) => return EffectResult::unread(&error),
    };
    let earlier = earlier.map(done_before).unwrap_or_default();
    let rows = match core.store.attempts(&record.id, record.node.since).await {
        Ok(rows) => rows,
        Err(error) => return EffectResult::unread(&error),
    };
    rules.starts_again = !rows.iter().any(|row| row.attempt.effect == Effect::PowerOn);
    let boot = bmc_secret::boot_of(record, &rows);
    through_bmc!(core, record, |client| {
        let before = seen(core, &client, scope(&rules, &against), boot.as_ref()).await?;
        let first = reading(&before, &against);
        let found = judge(&first, &rules);
        if found.foreign.is_empty() {
            let concluded = conclude(&record.id, &found, &[], &first, &rules);
            let baseline = against.first_seen(&before, &rules);
            return Ok(cleaned(record, concluded, earlier, before.boot_order, baseline));
        }
        // Reported before the removal, in case this process is killed in between.
        if let Err(error) = write_down(core, record, &found, &before.boot_order).await {
            return Ok(EffectResult::unread(&error));
        }
        let refused = remove(&client, &before, &found, &against).await?;
        let after = seen(core, &client, scope(&rules, &against), boot.as_ref()).await?;
        let last = reading(&after, &against);
        let concluded = conclude(&record.id, &found, &refused, &last, &rules);
        let is_boot_cleared = concluded
            .lines
            .iter()
            .any(|(held, part, _)| (*held, *part) == (ItemState::Removed, Part::BootOverride));
        let baseline = against.first_seen(&after, &rules);
        let done = cleaned(record, concluded, earlier, after.boot_order, baseline);
        Ok(if is_boot_cleared { boot_cleared(done) } else { done })
    })
}

/// The result for a BMC that shows none of this.
pub(super) fn hidden(core: &Core, record: &NodeRecord) -> EffectResult {
    let rules = core.config.bmc_state.rules(record);
    let hidden: BmcReading = vec![(Part::Accounts, Listed::NotOffered)];
    let concluded = conclude(&record.id, &judge(&hidden, &rules), &[], &hidden, &rules);
    cleaned(record, concluded, Vec::new(), Vec::new(), None)
}

/// The removed lines, and the lines that wait for a start.
fn done_before(row: BmcStateRow) -> Vec<BmcStateLine> {
    let is_done = |held: ItemState| matches!(held, ItemState::Removed | ItemState::Waiting);
    row.lines.into_iter().filter(|line| is_done(line.held)).collect()
}

/// Splits the lines that waited for a start from the other earlier lines, if their parts are now as wished. This reading
/// itself reports parts that still differ.
fn new_lines(earlier: Vec<BmcStateLine>, concluded: &Conclusion) -> (Vec<BmcStateLine>, Vec<BmcStateLine>) {
    let (waited, mut rest): (Vec<_>, Vec<_>) = earlier.into_iter().partition(|line| line.held == ItemState::Waiting);
    let is_open = |held: ItemState| matches!(held, ItemState::Foreign | ItemState::Waiting | ItemState::Unknown);
    let is_otherwise = |part: Part| {
        concluded
            .lines
            .iter()
            .any(|(held, of, _)| *of == part && is_open(*held))
    };
    let corrected = waited.into_iter().filter(|line| !is_otherwise(line.part));
    let corrected: Vec<BmcStateLine> = corrected
        .map(|line| BmcStateLine {
            held: ItemState::Removed,
            ..line
        })
        .collect();
    rest.retain(|line| !corrected.contains(line));
    (corrected, rest)
}

/// Reads the BMC. Leaves out the medium of a boot into the agent while that boot lasts; later the medium is foreign like
/// any other.
async fn seen(
    core: &Core,
    client: &BmcClient,
    scope: StateScope<'_>,
    boot: Option<&AgentSession>,
) -> Result<BmcState, RedfishError> {
    let mut state = client.bmc_state(scope).await?;
    for (_, listed) in &mut state.parts {
        if let (StateListed::Whole(items), Some(_)) = (listed, boot) {
            items.retain(|item| item.part != StatePart::Media || !bmc_secret::is_ours(core, &item.detail));
        }
    }
    Ok(state)
}

fn scope<'a>(rules: &'a BmcRules, against: &Against) -> StateScope<'a> {
    StateScope {
        own: &rules.own,
        in_band: rules.close_in_band,
        uefi: against.is_read,
    }
}

fn part(part: StatePart) -> Part {
    match part {
        StatePart::Accounts => Part::Accounts,
        StatePart::Directories => Part::Directories,
        StatePart::Keys => Part::Keys,
        StatePart::Subscriptions => Part::Subscriptions,
        StatePart::Sessions => Part::Sessions,
        StatePart::Media => Part::Media,
        StatePart::BootOverride => Part::BootOverride,
        StatePart::HostInterfaces => Part::HostInterfaces,
        StatePart::Kcs => Part::Kcs,
    }
}

fn item(seen: &StateItem) -> Item {
    Item {
        part: part(seen.part),
        name: seen.name.clone(),
        detail: cut(&seen.detail, NAME_MAX),
        path: seen.path.clone(),
        user: seen.user.clone(),
        is_open: seen.is_open,
    }
}

/// The reading, with the differences of boot options and Secure Boot.
fn reading(state: &BmcState, against: &Against) -> BmcReading {
    let mut all = plain_reading(state);
    all.extend(against.differences(state));
    all
}

fn plain_reading(state: &BmcState) -> BmcReading {
    let listed = |listed: &StateListed| match listed {
        StateListed::Whole(items) => Listed::Whole(items.iter().map(item).collect()),
        StateListed::NotOffered => Listed::NotOffered,
        StateListed::Unread(why) => Listed::Unread(cut(why, WHY_MAX)),
    };
    state.parts.iter().map(|(one, it)| (part(*one), listed(it))).collect()
}

/// Removes each foreign entry: accounts before their open sessions. Returns the BMC's refusals, in its words.
async fn remove(
    client: &BmcClient,
    state: &BmcState,
    found: &Verdict,
    against: &Against,
) -> Result<Vec<(Item, String)>, RedfishError> {
    let all = state.parts.iter().filter_map(|(_, listed)| match listed {
        StateListed::Whole(items) => Some(items),
        StateListed::NotOffered | StateListed::Unread(_) => None,
    });
    let all: Vec<&StateItem> = all.flatten().collect();
    let mut refused = Vec::new();
    for part in Part::ALL {
        let of_part: Vec<&StateItem> = all
            .iter()
            .copied()
            .filter(|seen| self::part(seen.part) == part && found.foreign.contains(&item(seen)))
            .collect();
        for seen in of_part {
            note(item(seen), client.remove_foreign(seen).await, &mut refused)?;
        }
        if !part.is_of_firmware() {
            continue;
        }
        // From the last to the first: some BMCs renumber the rest.
        for item in found.foreign.iter().rev().filter(|item| item.part == part) {
            note(item.clone(), against.restore(client, state, item).await, &mut refused)?;
        }
    }
    Ok(refused)
}

/// Notes the refusal of one entry. A fault of the whole BMC ends the removal.
fn note(item: Item, outcome: Result<(), RedfishError>, refused: &mut Vec<(Item, String)>) -> Result<(), RedfishError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(failure) if is_of_the_bmc(&failure) => Err(failure),
        Err(failure) => {
            refused.push((item, cut(&failure.to_string(), WHY_MAX)));
            Ok(())
        }
    }
}

/// Whether the BMC is silent or not to be trusted: further entries would fail, too.
fn is_of_the_bmc(failure: &RedfishError) -> bool {
    use RedfishError::{Broken, Suspended, TimedOut, Unreachable};
    let is_silent = matches!(
        failure,
        Unreachable { .. } | Broken { .. } | TimedOut { .. } | Suspended { .. }
    );
    is_silent || matches!(failure.kind(), ErrorKind::Security | ErrorKind::Bug)
}

fn lines(concluded: &Conclusion) -> Vec<BmcStateLine> {
    let line = |(held, part, words): &(ItemState, Part, String)| BmcStateLine {
        held: *held,
        part: *part,
        words: cut(words, SENTENCE_MAX),
    };
    concluded.lines.iter().take(LINES_MAX).map(line).collect()
}

fn event(record: &NodeRecord, kind: EventKind, message: String, part: Part, now: Timestamp) -> EventRow {
    EventRow {
        at: now,
        kind,
        target: format!("nodes/{}", record.id),
        message: cut(&message, SENTENCE_MAX),
        attributes: [("part".to_owned(), part.plural().to_owned())].into(),
        ..EventRow::default()
    }
}

fn found_event(record: &NodeRecord, words: &str, part: Part, now: Timestamp) -> EventRow {
    let message = if part.is_of_firmware() {
        format!("{words} on {} is not as wanted", record.id)
    } else {
        format!("{words} on the BMC of {} was not set up by Rackwright", record.id)
    };
    event(record, EventKind::SecurityBmcForeign, message, part, now)
}

/// The result of a cleaning. `earlier` was removed before in the same state.
fn cleaned(
    record: &NodeRecord,
    concluded: Conclusion,
    earlier: Vec<BmcStateLine>,
    boot_order: Vec<String>,
    baseline: Option<Box<Baseline>>,
) -> EffectResult {
    let now = clock::now();
    let is_known = |held: ItemState| !matches!(held, ItemState::Unknown | ItemState::Waiting);
    let is_known = concluded.lines.iter().all(|(held, ..)| is_known(*held));
    let mut done = match &concluded.refusal {
        None => EffectResult::succeeded(),
        Some(why) => EffectResult::with_outcome(Outcome::Failed {
            code: "bmc-not-clean".to_owned(),
            message: cut(why, SENTENCE_MAX),
            retryable: concluded.retryable,
        }),
    };
    let (new_lines, earlier) = new_lines(earlier, &concluded);
    let mut all = lines(&concluded);
    all.extend(new_lines);
    for line in all.iter().filter(|line| line.held == ItemState::Removed) {
        let (words, part) = (&line.words, line.part);
        let message = if part.is_of_firmware() {
            format!("{words} on {} was corrected; a second reading proves it", record.id)
        } else {
            format!(
                "{words} was removed from the BMC of {}; a second reading proves it",
                record.id
            )
        };
        done.events
            .push(event(record, EventKind::SecurityBmcForeignRemoved, message, part, now));
    }
    let earlier = earlier
        .into_iter()
        .filter(|line| !all.contains(line))
        .collect::<Vec<_>>();
    all.extend(earlier);
    all.truncate(LINES_MAX);
    let row = BmcStateRow {
        read_at: now,
        proven_at: (concluded.refusal.is_none() && is_known).then_some(now),
        lines: all,
        boot_order,
    };
    done.learned = Some(LearnedFact::BmcState(row, baseline));
    done
}

fn boot_cleared(done: EffectResult) -> EffectResult {
    done.seen(|readings, now| {
        readings.boot_target = Reading::Known {
            value: BootTarget::Disk,
            at: now,
        };
    })
}

/// The state before the removal.
fn as_found(found: &Verdict, boot_order: &[String]) -> BmcStateRow {
    let foreign = found
        .foreign
        .iter()
        .map(|item| (ItemState::Foreign, item.part, item.description()));
    let kept = found
        .kept
        .iter()
        .map(|item| (ItemState::Kept, item.part, item.description()));
    let unknown = found.unknown.iter().map(|unknown| {
        let words = format!("{}: {}", unknown.part.plural(), unknown.why);
        (ItemState::Unknown, unknown.part, words)
    });
    let concluded = Conclusion {
        lines: foreign.chain(kept).chain(unknown).collect(),
        ..Conclusion::default()
    };
    BmcStateRow {
        read_at: clock::now(),
        proven_at: None,
        lines: lines(&concluded),
        boot_order: boot_order.to_vec(),
    }
}

/// Stores the findings, with an event for each foreign entry.
async fn write_down(
    core: &Core,
    record: &NodeRecord,
    found: &Verdict,
    boot_order: &[String],
) -> Result<(), StoreError> {
    let row = as_found(found, boot_order);
    let mut tx = core.store.write().await?;
    tx.put_bmc_state(&record.id, &row).await?;
    for item in found.foreign.iter().take(LINES_MAX) {
        let event = found_event(record, &item.description(), item.part, row.read_at);
        tx.add_event(&event).await?;
    }
    core.commit(tx).await
}

/// The result of a reading without removal. Entries that were reported before give no event.
async fn reported(
    core: &Core,
    record: &NodeRecord,
    found: &Verdict,
    boot_order: &[String],
    baseline: Option<Box<Baseline>>,
) -> EffectResult {
    let before = match core.store.bmc_state(&record.id).await {
        Ok(before) => before.map(|row| row.lines).unwrap_or_default(),
        Err(error) => return EffectResult::unread(&error),
    };
    let row = as_found(found, boot_order);
    let mut done = EffectResult::succeeded();
    let fresh = row
        .lines
        .iter()
        .filter(|line| line.held == ItemState::Foreign && !before.contains(line));
    done.events = fresh
        .map(|line| found_event(record, &line.words, line.part, row.read_at))
        .collect();
    done.learned = Some(LearnedFact::BmcState(row, baseline));
    done
}
