//! `rackwright site diff`

use std::collections::HashMap;
use std::path::Path;

use rackwright_site::model::{Action, Change, diff};

use super::load;
use crate::args::Cx;
use crate::error::CliError;
use crate::output::{Format, Tone};

/// Names that are shown in a line.
const SHOWN: usize = 6;

/// Lines about things of one kind to which one thing happened.
const LINES: usize = 20;

/// Shows what is different.
pub fn run(cx: &Cx, old: &Path, new: &Path) -> Result<(), CliError> {
    let before = load::site(cx, &[old.to_owned()])?;
    let after = load::site(cx, &[new.to_owned()])?;
    let changes = diff(&before, &after);
    match cx.ui.format() {
        Format::Json | Format::Yaml => {
            let value = serde_json::to_value(&changes)
                .map_err(|e| CliError::usage(format!("cannot write the changes as JSON: {e}"), ""))?;
            cx.ui.value(&value)
        }
        Format::Name => changes.iter().try_for_each(|change| cx.ui.line(&change.name)),
        Format::Table if changes.is_empty() => cx.ui.say("no difference"),
        Format::Table => lines(&changes).into_iter().try_for_each(|(tone, line)| {
            let mark = line.split_at(1);
            cx.ui.line(&format!("{}{}", cx.ui.paint().tone(tone, mark.0), mark.1))
        }),
    }
}

/// Things of one kind to which the same happened are in one line.
fn lines(changes: &[Change]) -> Vec<(Tone, String)> {
    let mut lines = Vec::new();
    for group in changes.chunk_by(|a, b| a.kind == b.kind && mark(a) == mark(b)) {
        let (tone, sign, word) = mark(&group[0]);
        let mut by_words: Vec<(String, Vec<&str>)> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        for change in group {
            let place = *index.entry(words(change)).or_insert_with_key(|words| {
                by_words.push((words.clone(), Vec::new()));
                by_words.len() - 1
            });
            by_words[place].1.push(&change.name);
        }
        let more = by_words.len().saturating_sub(LINES);
        for (words, names) in by_words.into_iter().take(LINES) {
            let colon = if words.is_empty() {
                word.to_owned()
            } else {
                format!("{word}: {words}")
            };
            lines.push((tone, format!("{sign} {} {} {colon}", group[0].kind, listed(&names))));
        }
        if more > 0 {
            lines.push((tone, format!("{sign} and {more} more, which -o json shows")));
        }
    }
    lines
}

/// `a, b, c`, and the last of many.
fn listed(names: &[&str]) -> String {
    match names {
        [first @ .., last] if names.len() > SHOWN => {
            format!("{}, ..., {last} ({})", first[..SHOWN - 1].join(", "), names.len())
        }
        _ => names.join(", "),
    }
}

fn mark(change: &Change) -> (Tone, char, &'static str) {
    match change.action {
        Action::Added => (Tone::Good, '+', "added"),
        Action::Removed => (Tone::Bad, '-', "removed"),
        Action::Changed(_) => (Tone::Busy, '~', "changed"),
    }
}

fn words(change: &Change) -> String {
    let Action::Changed(fields) = &change.action else {
        return String::new();
    };
    let fields: Vec<String> = fields
        .iter()
        .map(|f| format!("{} from {} to {}", f.field, f.from, f.to))
        .collect();
    fields.join("; ")
}
