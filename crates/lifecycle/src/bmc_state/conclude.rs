//! The result of cleaning a BMC.

use serde::{Deserialize, Serialize};

use super::{BmcReading, BmcRules, Item, Listed, Part, Unknown, Verdict, judge};
use crate::ids::NodeId;

/// Most things that one sentence names.
const NAMED_MAX: usize = 4;

/// The state of one thing or part of a BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemState {
    /// Removed, with a second reading as proof.
    Removed,
    /// Foreign, and still there.
    Foreign,
    /// Foreign, and kept by the site's rules.
    Kept,
    /// Unknown: the part could not be judged.
    Unknown,
    /// Foreign, and gone after the machine's next start: the BMC accepted the change.
    Waiting,
}

/// The result: each reportable thing, and why the node is held back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// Each reportable thing: its state, its part, its words.
    pub lines: Vec<(ItemState, Part, String)>,
    /// Why the node must not go on, in words for the operator. None: the BMC is as wanted.
    pub refusal: Option<String>,
    /// A retry may help.
    pub retryable: bool,
}

/// Concludes from the things found, the things that the BMC refused to remove (with its messages), and the last reading.
///
/// `last` is the reading after the removals, or the first reading where nothing had to be removed.
#[must_use]
pub fn conclude(
    node: &NodeId,
    found: &Verdict,
    refused: &[(Item, String)],
    last: &BmcReading,
    rules: &BmcRules,
) -> Conclusion {
    let left = judge(last, rules);
    let mut done = Conclusion::default();
    let is_left = |item: &Item| left.foreign.iter().any(|other| is_same(other, item));
    let is_judged = |part: Part| !left.unknown.iter().any(|unknown| unknown.part == part);
    for item in &found.foreign {
        if !is_left(item) && is_judged(item.part) {
            done.lines.push((ItemState::Removed, item.part, item.description()));
        }
    }
    let (mut named, mut options) = (Vec::new(), Vec::new());
    for item in &left.foreign {
        let why = refused
            .iter()
            .find(|(other, _)| is_same(other, item))
            .map(|(_, why)| why);
        let (held, words) = judge_remaining(item, why, rules);
        done.lines.push((held, item.part, words.clone()));
        if held == ItemState::Foreign && item.part == Part::BootOptions {
            options.push(words);
        } else if held == ItemState::Foreign && item.part != Part::BootOverride {
            // A remaining override is harmless: each boot into the agent sets it anew.
            named.push(words);
        }
    }
    // A boot option behind those of the inspection starts nothing; a wrong order is named as an item of its own.
    if !is_order_read(last) {
        named.append(&mut options);
    }
    for item in &left.kept {
        done.lines.push((ItemState::Kept, item.part, item.description()));
    }
    for unknown in &left.unknown {
        let words = format!("{}: {}", unknown.part.plural(), unknown.why);
        done.lines.push((ItemState::Unknown, unknown.part, words));
    }
    let unknown: Vec<&Unknown> = left.unknown.iter().filter(|_| !rules.allow_unknown).collect();
    done.refusal = refusal(node, &named, &unknown);
    done.retryable = !named.is_empty() || unknown.iter().any(|unknown| unknown.may_pass);
    done
}

/// The state of a thing that remained after all removals, with the BMC's refusal if there is one.
fn judge_remaining(item: &Item, refusal: Option<&String>, rules: &BmcRules) -> (ItemState, String) {
    let place = format!("{} at {}", item.description(), item.path);
    match refusal {
        Some(why) => (ItemState::Foreign, format!("{place}: {why}")),
        None if item.part.is_of_firmware() && rules.starts_again => (ItemState::Waiting, item.description()),
        None if item.part.is_of_firmware() => (
            ItemState::Foreign,
            format!("{place}: the BMC accepted the change but does not show it; the machine may need another start"),
        ),
        None => (
            ItemState::Foreign,
            format!("{place}: it came back after the BMC had reported its removal"),
        ),
    }
}

fn is_order_read(reading: &BmcReading) -> bool {
    let is_it = |(part, listed): &(Part, Listed)| *part == Part::BootOrder && matches!(listed, Listed::Whole(_));
    reading.iter().any(is_it)
}

/// True for the same thing in two readings. BMCs reuse slots, so the path alone is not enough.
fn is_same(a: &Item, b: &Item) -> bool {
    (a.part, &a.path, &a.name) == (b.part, &b.path, &b.name)
}

fn refusal(node: &NodeId, foreign: &[String], unknown: &[&Unknown]) -> Option<String> {
    let readmit = format!("then `rackwright node readmit {node}`");
    if !foreign.is_empty() {
        let more = foreign.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        let named = foreign.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
        return Some(format!(
            "the BMC keeps settings that do not belong to Rackwright: {named}{more}. Remove them at the BMC, or list \
             them under `bmc_state` in the settings if they belong to the site, {readmit}"
        ));
    }
    let first = unknown.first()?;
    let what = if first.part.is_of_firmware() {
        "which programs the machine starts"
    } else {
        "that no other user can use the BMC"
    };
    Some(format!(
        "it cannot be proven {what}; {}: {}. Check the BMC by hand, {readmit}; if this BMC never shows them, allow \
         this by `bmc_state: {{unknown: allow}}` in the settings or by the label rackwright.bmc-state=unknown-allowed \
         on the node",
        first.part.plural(),
        first.why
    ))
}
