//! The reader of this crate's data files: lines of fields between bars, comments after `#`.

use std::fmt;

/// A fault of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableError {
    /// The file's name.
    pub file: String,
    /// Line from 1.
    pub line: usize,
    /// The fault and its remedy.
    pub message: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for TableError {}

/// A line with fields.
pub(crate) struct Row<'a> {
    file: &'a str,
    line: usize,
    /// The fields, trimmed.
    pub fields: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// A fault of this row.
    pub fn wrong(&self, message: String) -> TableError {
        TableError {
            file: self.file.to_owned(),
            line: self.line,
            message,
        }
    }

    /// The fields, if there are exactly `N`.
    pub fn exactly<const N: usize>(&self) -> Result<[&'a str; N], TableError> {
        let fields: Result<[&'a str; N], _> = self.fields.clone().try_into();
        fields.map_err(|fields| self.wrong(format!("the row has {} fields instead of {N}", fields.len())))
    }
}

/// The rows of a file, in order.
pub(crate) fn rows<'a>(file: &'a str, text: &'a str) -> impl Iterator<Item = Row<'a>> {
    let lines = text.lines().enumerate();
    let filled = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    filled.map(move |(at, line)| Row {
        file,
        line: at + 1,
        fields: line.split('|').map(str::trim).collect(),
    })
}

/// A closed set of values with names.
pub(crate) fn named<T: Copy + fmt::Display>(row: &Row<'_>, what: &str, all: &[T], name: &str) -> Result<T, TableError> {
    let found = all.iter().find(|value| value.to_string() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        row.wrong(format!("there is no {what} {name:?}; use one of {}", names.join(", ")))
    })
}
