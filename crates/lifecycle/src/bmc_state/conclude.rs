//! What came of cleaning a BMC.

use serde::{Deserialize, Serialize};

use super::{BmcReading, Item, Part, Unknown, Verdict, Wish, judge};

/// About as many things go into one sentence.
const NAMED_MAX: usize = 4;

/// How one thing or part of a BMC stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// Removed, and a second reading proves it.
    Removed,
    /// Not the control plane's, and still there.
    Foreign,
    /// Not the control plane's, and kept by the site.
    Kept,
    /// Not known.
    Unknown,
}

/// What came of it: each thing, and why the node is held back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// Each thing that is worth telling.
    pub lines: Vec<(Held, Part, String)>,
    /// Why the node must not go on, in words for the operator. None: the BMC is as wished.
    pub refusal: Option<String>,
    /// The same again may help.
    pub retryable: bool,
}

/// Concludes from what was found, what the BMC refused to remove (with its words), and what the last reading shows.
///
/// `last` is the reading after the removals; the first one where nothing had to be removed.
#[must_use]
pub fn conclude(node: &str, found: &Verdict, refused: &[(Item, String)], last: &BmcReading, wish: &Wish) -> Conclusion {
    let left = judge(last, wish);
    let mut done = Conclusion::default();
    let is_left = |item: &Item| left.foreign.iter().any(|other| is_same(other, item));
    let is_judged = |part: Part| !left.unknown.iter().any(|unknown| unknown.part == part);
    for item in &found.foreign {
        if !is_left(item) && is_judged(item.part) {
            done.lines.push((Held::Removed, item.part, item.words()));
        }
    }
    let mut named = Vec::new();
    for item in &left.foreign {
        let why = refused
            .iter()
            .find(|(other, _)| is_same(other, item))
            .map(|(_, why)| why);
        let words = match why {
            Some(why) => format!("{} at {}: {why}", item.words(), item.path),
            None => format!(
                "{} at {}: it came back after the BMC had said that it was gone",
                item.words(),
                item.path
            ),
        };
        done.lines.push((Held::Foreign, item.part, words.clone()));
        // The boot into the agent sets the override anyway.
        if item.part != Part::BootOverride {
            named.push(words);
        }
    }
    for item in &left.kept {
        done.lines.push((Held::Kept, item.part, item.words()));
    }
    for unknown in &left.unknown {
        let words = format!("{}: {}", unknown.part.plural(), unknown.why);
        done.lines.push((Held::Unknown, unknown.part, words));
    }
    let unknown: Vec<&Unknown> = left.unknown.iter().filter(|_| !wish.allow_unknown).collect();
    done.refusal = refusal(node, &named, &unknown);
    done.retryable = !named.is_empty() || unknown.iter().any(|unknown| unknown.may_pass);
    done
}

/// The same thing in two readings. Slots are used again, so the path alone is not enough.
fn is_same(a: &Item, b: &Item) -> bool {
    (a.part, &a.path, &a.name) == (b.part, &b.path, &b.name)
}

fn refusal(node: &str, foreign: &[String], unknown: &[&Unknown]) -> Option<String> {
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
            "the BMC keeps what is not ours: {named}{more}. Remove it at the BMC, or name it under `bmc_state` in the \
             settings if it is the site's, {readmit}"
        ));
    }
    let first = unknown.first()?;
    Some(format!(
        "it cannot be proven that nobody else can use the BMC; {}: {}. Check the BMC by hand, {readmit}; if this BMC never \
         shows them, `bmc_state: {{unknown: allow}}` in the settings or the label rackwright.bmc-state=unknown-allowed on \
         the node lets it pass",
        first.part.plural(),
        first.why
    ))
}
