//! `rackwright site diff`

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use rackwright_api::v1::SiteChange;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Format, Paint, Tone, clean};
use rackwright_site::model::{Action, Change, diff};

use super::load;

/// Names in a line.
const SHOWN: usize = 6;

/// Most lines about one kind of thing with one kind of difference.
const LINES: usize = 20;

/// Shows the differences.
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
        Format::Table => {
            let differences: Vec<Difference<'_>> = changes.iter().map(Difference::from).collect();
            cx.ui.line(text(&differences, cx.ui.paint()).trim_end())
        }
    }
}

/// The differences of one thing, from any source.
pub struct Difference<'a> {
    kind: &'a str,
    name: &'a str,
    tone: Tone,
    sign: char,
    /// `added`, `removed`, or `changed` and the fields.
    words: String,
}

impl<'a> Difference<'a> {
    fn new(kind: &'a str, name: &'a str, action: &str) -> Self {
        let (tone, sign) = match action {
            "added" => (Tone::Good, '+'),
            "removed" => (Tone::Bad, '-'),
            _ => (Tone::Busy, '~'),
        };
        Self {
            kind,
            name,
            tone,
            sign,
            words: action.to_owned(),
        }
    }

    fn with_fields(mut self, fields: impl Iterator<Item = String>) -> Self {
        let fields: Vec<String> = fields.collect();
        if !fields.is_empty() {
            self.words = format!("{}: {}", self.words, fields.join("; "));
        }
        self
    }
}

impl<'a> From<&'a Change> for Difference<'a> {
    fn from(change: &'a Change) -> Self {
        let (action, fields) = match &change.action {
            Action::Added => ("added", &[][..]),
            Action::Removed => ("removed", &[][..]),
            Action::Changed(fields) => ("changed", fields.as_slice()),
        };
        let words = fields
            .iter()
            .map(|f| format!("{} from {} to {}", f.field, f.from, f.to));
        Self::new(change.kind, &change.name, action).with_fields(words)
    }
}

impl<'a> From<&'a SiteChange> for Difference<'a> {
    fn from(change: &'a SiteChange) -> Self {
        let fields = change.fields.iter();
        let words = fields.map(|f| format!("{} from {} to {}", f.field, f.from, f.to));
        Self::new(&change.kind, &change.name, &change.action).with_fields(words)
    }
}

/// One line for each kind of things with the same difference.
pub fn text(differences: &[Difference<'_>], paint: Paint) -> String {
    let mut text = String::new();
    for group in differences.chunk_by(|a, b| a.kind == b.kind && a.sign == b.sign) {
        let Difference { kind, tone, sign, .. } = group[0];
        let sign = paint.tone(tone, &sign.to_string());
        let mut by_words: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        for Difference { name, words, .. } in group {
            let place = *index.entry(words).or_insert_with(|| {
                by_words.push((words, Vec::new()));
                by_words.len() - 1
            });
            by_words[place].1.push(name);
        }
        // Writing to a string cannot fail.
        for (words, names) in by_words.iter().take(LINES) {
            let _ = writeln!(text, "{sign} {}", clean(&format!("{kind} {} {words}", listed(names))));
        }
        let more = by_words.len().saturating_sub(LINES);
        if more > 0 {
            let _ = writeln!(text, "{sign} and {more} more (see -o json)");
        }
    }
    text
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
