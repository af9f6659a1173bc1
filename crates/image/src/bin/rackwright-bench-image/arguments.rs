//! Parses `command --name value --flag`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Failure;

const FLAGS: [&str; 4] = ["--all", "--pwrite", "--verify", "--keep"];

/// The arguments after the command.
pub(crate) struct Arguments(HashMap<String, String>);

impl Arguments {
    /// Returns the command and its arguments. The default command is `run`.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<(String, Self), Failure> {
        let mut words = words.peekable();
        let command = words
            .next_if(|word| !word.starts_with('-'))
            .unwrap_or_else(|| "run".to_owned());
        let mut found = HashMap::new();
        while let Some(name) = words.next() {
            let value = match FLAGS.contains(&name.as_str()) {
                true => String::new(),
                false => words.next().ok_or_else(|| format!("{name} needs a value"))?,
            };
            found.insert(name, value);
        }
        Ok((command, Self(found)))
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        self.text(name)
            .map(PathBuf::from)
            .ok_or_else(|| format!("{name} is missing").into())
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| format!("{name}: {text:?} is not a number").into())
        };
        self.text(name).map_or(Ok(default), parse)
    }
}
