//! All output to the operator: formats, colours, and the two streams.
//!
//! Results go to stdout, everything else (progress, notes, questions, errors) to stderr, so that `-o json`
//! always stays machine-readable.

pub mod columns;
pub mod json;
pub mod live;
pub mod table;

use std::io::{self, IsTerminal as _, Write as _};

use console::Term;
use serde_json::Value;
use serde_json_path::JsonPath;

use crate::error::CliError;

pub use crate::paint::{Paint, Tone};
pub use columns::{Column, SortArgs};
pub use json::Resource;
pub use table::Table;

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people
    Table,
    /// JSON with the API's field names; streams write one object per line
    Json,
    /// The same content in YAML
    Yaml,
    /// Resource names only, one per line
    Name,
}

/// Destination and style of the output.
#[derive(Debug, Clone)]
pub struct Ui {
    format: Format,
    /// The values to show of each JSON document.
    path: Option<JsonPath>,
    /// Tables with all columns, and with whole lines.
    wide: bool,
    quiet: bool,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    colour: bool,
}

impl Ui {
    /// Reads the state of the two streams and `NO_COLOR` (<https://no-color.org>: any value that is not empty).
    pub fn new(format: Format, quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            format,
            path: None,
            wide: false,
            quiet,
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            colour: !dumb && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// The same, with wide tables.
    pub fn with_wide(self, wide: bool) -> Self {
        Self { wide, ..self }
    }

    /// The same, with only the values at this path of each JSON document.
    pub fn with_path(self, path: Option<JsonPath>) -> Self {
        Self { path, ..self }
    }

    /// Whether tables have all their columns.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// The same, with the effect of `--quiet`.
    pub fn silenced(&self) -> Self {
        Self {
            quiet: true,
            ..self.clone()
        }
    }

    /// Whether stdout may be redrawn: a terminal, and the table format.
    pub fn live_results(&self) -> bool {
        self.stdout_is_terminal && self.format == Format::Table
    }

    /// Whether progress may be redrawn on stderr.
    pub fn live_progress(&self) -> bool {
        self.stderr_is_terminal && !self.quiet
    }

    /// Whether a question can be asked and answered.
    pub fn can_ask(&self) -> bool {
        self.stderr_is_terminal && io::stdin().is_terminal()
    }

    /// Asks for consent to the action in `does`; without a terminal, `--yes` is required.
    ///
    /// # Errors
    /// `Usage` if no question can be asked, and for every answer but `yes`; the terminal could not be read.
    pub fn consent(&self, does: &str, question: &str) -> Result<(), CliError> {
        self.consent_or(does, question, "give --yes to confirm")
    }

    /// Like [`consent`](Self::consent), with other advice for the case without a terminal.
    ///
    /// # Errors
    /// Those of [`consent`](Self::consent).
    pub fn consent_or(&self, does: &str, question: &str, advice: &str) -> Result<(), CliError> {
        if self.can_ask() {
            return self.confirm(question);
        }
        Err(CliError::usage(
            format!("{does}; confirmation is required, and there is no terminal"),
            advice,
        ))
    }

    /// Asks on the terminal, and continues only after a typed `yes`.
    fn confirm(&self, question: &str) -> Result<(), CliError> {
        let term = Term::stderr();
        let written = term.write_str(&format!("{question} Type yes to continue: "));
        let answer = written
            .and_then(|()| term.read_line())
            .map_err(|e| CliError::io("ask", e))?;
        if answer.trim() == "yes" {
            Ok(())
        } else {
            Err(CliError::usage("not confirmed; nothing was done", ""))
        }
    }

    pub fn paint(&self) -> Paint {
        Paint(self.colour && self.stdout_is_terminal)
    }

    pub fn paint_errors(&self) -> Paint {
        Paint(self.colour && self.stderr_is_terminal)
    }

    /// Columns of the terminal for results; `None` for a file or pipe, and for wide tables, which have no limit.
    pub fn width(&self) -> Option<usize> {
        let is_limited = self.stdout_is_terminal && !self.wide;
        is_limited.then(|| usize::from(Term::stdout().size().1))
    }

    /// A line of result on stdout.
    pub fn line(&self, text: &str) -> Result<(), CliError> {
        write_out(&format!("{text}\n"))
    }

    /// A line on stdout that only confirms an action to a person; not written with `--quiet`.
    pub fn say(&self, text: &str) -> Result<(), CliError> {
        if self.quiet { Ok(()) } else { self.line(text) }
    }

    /// A line on stderr about the progress; not written with `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // A closed stderr is ignored.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// A text on stderr that asks a person for something without which the command cannot go on; written with `--quiet` too.
    pub fn request(&self, text: &str) {
        // A closed stderr is ignored.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// One resource in the chosen format; `human` makes the table.
    pub fn item<T: Resource>(&self, item: &T, human: impl FnOnce(Paint) -> String) -> Result<(), CliError> {
        match self.format {
            Format::Table => write_out(&human(self.paint())),
            Format::Name => self.line(&item.resource_name()),
            Format::Json | Format::Yaml => self.value(&json::to_value(item)?),
        }
    }

    /// Any number of resources.
    pub fn list<T: Resource>(&self, items: &[T], human: impl FnOnce(Paint) -> String) -> Result<(), CliError> {
        match self.format {
            Format::Table => write_out(&human(self.paint())),
            Format::Name => items.iter().try_for_each(|item| self.line(&item.resource_name())),
            Format::Json | Format::Yaml => {
                let values = items.iter().map(json::to_value).collect::<Result<Vec<_>, _>>()?;
                self.value(&Value::Array(values))
            }
        }
    }

    /// The answer of a command for several targets: one object for one target, a list for more.
    pub fn items<T: Resource>(&self, items: &[T], human: impl FnOnce(Paint) -> String) -> Result<(), CliError> {
        match items {
            [only] => self.item(only, human),
            _ => self.list(items, human),
        }
    }

    /// One element of a stream: a line of JSON, a YAML document, a name, or the line for people.
    pub fn element<T: Resource>(&self, item: &T, human: impl FnOnce(Paint) -> String) -> Result<(), CliError> {
        match self.format {
            Format::Table => self.line(&human(self.paint())),
            Format::Name => self.line(&item.resource_name()),
            Format::Json if self.path.is_some() => self.value(&json::to_value(item)?),
            Format::Json => self.line(&json::to_value(item)?.to_string()),
            Format::Yaml => write_out(&format!("---\n{}", yaml(&json::to_value(item)?)?)),
        }
    }

    /// A value as YAML if that format is chosen, otherwise as JSON, or its parts at the chosen path.
    pub fn value(&self, value: &Value) -> Result<(), CliError> {
        if let Some(path) = &self.path {
            let found = texts_at(path, value);
            // A text from a machine can contain anything.
            let shown = |text: &String| {
                self.line(&if self.stdout_is_terminal {
                    clean(text)
                } else {
                    text.clone()
                })
            };
            return found.iter().try_for_each(shown);
        }
        match self.format {
            Format::Yaml => write_out(&yaml(value)?),
            _ => self.line(&format!("{value:#}")),
        }
    }
}

/// The values at a path: strings as they are, other values as JSON in one line.
fn texts_at(path: &JsonPath, value: &Value) -> Vec<String> {
    let found = path.query(value).all();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    found.into_iter().map(text).collect()
}

fn yaml(value: &Value) -> Result<String, CliError> {
    // Long strings stay on one line, so that text search finds them.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(value, options)
        .map_err(|e| CliError::BadAnswer(format!("the answer cannot be written as YAML: {e}")))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

fn write_out(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| CliError::io("write to standard output", e))
}

/// Text from the server or a machine, made safe for a terminal: control characters become spaces.
pub fn clean(text: &str) -> String {
    text.trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{9b}d"), "a [2Jb c d");
    }

    #[test]
    fn a_path_finds_strings_as_they_are_and_other_values_as_json() {
        let value = serde_json::json!([
            { "name": "nodes/a", "macs": ["m1", "m2"], "state": 5 },
            { "name": "nodes/b", "macs": [], "state": 8 },
        ]);
        let at = |path: &str| texts_at(&JsonPath::parse(path).unwrap(), &value);
        assert_eq!(at("$[*].name"), ["nodes/a", "nodes/b"]);
        assert_eq!(at("$[*].macs"), [r#"["m1","m2"]"#, "[]"]);
        assert_eq!(at("$[?@.state > 5].name"), ["nodes/b"]);
        assert_eq!(at("$..state"), ["5", "8"]);
        assert_eq!(at("$[?match(@.name, '.*a')].macs[-1]"), ["m2"]);
        assert!(at("$.nothing").is_empty());
    }
}
