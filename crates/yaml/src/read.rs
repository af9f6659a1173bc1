//! YAML into a type.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::tree::{FaultKind, documents};

/// Maximum size of a text.
pub const MAX_BYTES: usize = 16 << 20;
/// Maximum number of characters of a quoted line.
const MAX_LINE: usize = 80;

/// Whether an error quotes the lines around the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// The error quotes the lines.
    Lines,
    /// The error quotes nothing: a line may hold a secret.
    Nothing,
}

/// The reason why a text was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    line: u64,
    brief: String,
    whole: String,
}

impl ReadError {
    fn new(line: u64, column: u32, brief: String) -> Self {
        let whole = match line {
            0 => brief.clone(),
            line => format!("{brief} at line {line}, column {column}"),
        };
        Self { line, brief, whole }
    }

    /// The line of the fault, from 1. 0: the fault is of the whole text.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The fault without its place, and the text of its line, because the parser does not always name the field.
    #[must_use]
    pub fn quoting(&self, text: &str) -> String {
        let line = usize::try_from(self.line).ok();
        let shown = line.and_then(|line| text.lines().nth(line.checked_sub(1)?));
        match shown {
            Some(shown) => {
                let shown: String = shown.trim().chars().take(MAX_LINE).collect();
                format!("{}: {shown}", self.brief)
            }
            None => self.brief.clone(),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.whole)
    }
}

impl std::error::Error for ReadError {}

/// Reads a text of one document.
///
/// # Errors
/// The text breaks a rule of this crate, is not YAML, or has not the form of the type.
pub fn read<T: DeserializeOwned>(text: &str, quote: Quote) -> Result<T, ReadError> {
    if text.len() > MAX_BYTES {
        let brief = format!("the text is larger than {} MiB: split it", MAX_BYTES >> 20);
        return Err(ReadError::new(0, 0, brief));
    }
    check(text)?;
    let options = serde_saphyr::options! { with_snippet: quote == Quote::Lines };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let brief = error.without_snippet().to_string();
        ReadError {
            line: error.location().map_or(0, |place| place.line()),
            brief: brief.split(" at line ").next().unwrap_or(&brief).to_owned(),
            whole: error.to_string(),
        }
    })
}

/// Refuses what the rules of this crate refuse, and a quote without an end: the reading into a type does not name the place
/// at which the quote was opened. That reading finds the other faults and describes them better.
fn check(text: &str) -> Result<(), ReadError> {
    let mut first = None;
    documents(0, text, |fault| {
        let is_refused = matches!(
            fault.kind,
            FaultKind::Anchor | FaultKind::Alias | FaultKind::Tag | FaultKind::Depth | FaultKind::Quote(_)
        );
        if first.is_none() && is_refused {
            first = Some(fault);
        }
    });
    match first {
        Some(fault) => {
            let brief = format!("{}: {}", fault.kind, fault.kind.fix());
            Err(ReadError::new(fault.at.line.into(), fault.at.column, brief))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::{MAX_DEPTH, Spanned};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        port: u16,
        title: Option<Spanned<String>>,
        #[serde(default)]
        names: Vec<String>,
    }

    fn fault(text: &str) -> ReadError {
        read::<Settings>(text, Quote::Nothing).unwrap_err()
    }

    #[test]
    fn values_have_their_line() {
        let settings: Settings = read("# first\nport: 1\nnames: [a, 'null']\ntitle: x\n", Quote::Lines).unwrap();
        let title = settings.title.unwrap();
        assert_eq!((title.value.as_str(), title.referenced.line()), ("x", 4));
        assert_eq!(settings.port, 1);
        assert_eq!(settings.names, ["a", "null"]);
    }

    #[test]
    fn faults_name_their_line() {
        for (text, line, words) in [
            ("port: 1\nprot: 2\n", 2, "prot"),
            ("port: 1\nport: 2\n", 2, "port"),
            ("names: [a]\nport: soon\n", 2, "soon"),
            (
                "port: 1\nnames: &n [a]\n",
                2,
                "anchors are not supported: write the value out",
            ),
            ("port: 1\nnames: [!!str a]\n", 2, "tags are not supported"),
            (
                "port: 1\ntitle: \"x\nnames: []\n",
                2,
                "the quote that is opened here goes on to line 3, column 1: close the quote",
            ),
        ] {
            let error = fault(text);
            assert_eq!(error.line(), line, "{text}: {error}");
            assert!(error.quoting(text).contains(words), "{text}: {error}");
            let shown = text.lines().nth(1).unwrap_or_default();
            assert!(error.quoting(text).ends_with(shown), "{text}: {error}");
        }
    }

    #[test]
    fn secrets_are_quoted_on_request_only() {
        let text = "port: 1\nnames: {secret: x}\nprot: 2\n";
        let shown = read::<Settings>(text, Quote::Lines).unwrap_err().to_string();
        assert!(shown.contains("secret"), "{shown}");
        assert!(!fault(text).to_string().contains("secret"));
    }

    #[test]
    fn texts_that_grow_and_deep_and_large_texts_are_refused() {
        type Any = BTreeMap<String, serde::de::IgnoredAny>;
        let refused = |text: &str| read::<Any>(text, Quote::Nothing).unwrap_err().to_string();
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
        let error = refused(bomb);
        assert!(error.starts_with("anchors are not supported"), "{error}");
        assert!(error.contains(" at line 1, column "), "{error}");
        let deep = format!("a: {}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
        assert!(refused(&deep).starts_with("this is nested too deeply"), "{deep}");
        assert!(refused(&"#".repeat(MAX_BYTES + 1)).contains("larger than 16 MiB"));
    }
}
