//! What the probe program reads on a machine, as lines of text: one row a line, fields between tabs. The program
//! (`crates/probe`) writes it, and the control plane parses it with limits: the machine may be broken or hostile.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// The first line.
pub const BEGIN: &str = "begin=rackwright-hardware-1";
/// The last line.
pub const END: &str = "end=rackwright-hardware-1";
/// Most rows.
const ROWS_MAX: usize = 8192;
/// Most characters of a value.
const TEXT_MAX: usize = 512;

/// A row: a key and fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// What the row describes: `pci`, `gpu`, `log` and so on.
    pub key: String,
    fields: BTreeMap<String, String>,
}

impl Row {
    /// An empty row.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            fields: BTreeMap::new(),
        }
    }

    /// With a field. Control characters become spaces; an empty value is left out.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl fmt::Display) -> Self {
        let mut text = String::new();
        let _ = write!(text, "{value}");
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = text.trim().chars().map(clean).take(TEXT_MAX).collect();
        if !text.is_empty() {
            self.fields.insert(field.to_owned(), text);
        }
        self
    }

    /// With a field, if there is a value.
    #[must_use]
    pub fn with_some(self, field: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(field, value),
            None => self,
        }
    }

    /// The text of a field. `None`: not readable.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    /// The text of a field; empty: not readable.
    #[must_use]
    pub fn text(&self, field: &str) -> &str {
        self.get(field).unwrap_or_default()
    }

    /// The number in a field.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, field: &str) -> Option<T> {
        self.get(field)?.parse().ok()
    }

    /// The fields with names that begin with the prefix, by the rest of the name.
    pub fn all<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let fields = self.fields.iter();
        fields.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        self.fields
            .iter()
            .try_for_each(|(name, value)| write!(f, "\t{name}={value}"))
    }
}

/// Why an output is unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactsError {
    /// It does not begin like the output of the program.
    NoBegin,
    /// It was cut off, or has too many rows.
    NoEnd(usize),
}

impl fmt::Display for FactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBegin => f.write_str("the output does not begin like the output of the hardware probe"),
            Self::NoEnd(rows) => write!(f, "the output was cut off after {rows} rows"),
        }
    }
}

impl std::error::Error for FactsError {}

/// All rows of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    rows: Vec<Row>,
}

impl Facts {
    /// Parses an output; text before its begin is skipped.
    ///
    /// # Errors
    /// The output is not complete.
    pub fn parse(text: &str) -> Result<Self, FactsError> {
        let mut lines = text.lines().skip_while(|line| *line != BEGIN);
        lines.next().ok_or(FactsError::NoBegin)?;
        let mut rows = Vec::new();
        for line in lines {
            if line == END {
                return Ok(Self { rows });
            }
            if rows.len() >= ROWS_MAX {
                break;
            }
            let mut parts = line.split('\t');
            let mut row = Row::new(parts.next().unwrap_or_default());
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                row = row.with(name, value);
            }
            rows.push(row);
        }
        Err(FactsError::NoEnd(rows.len()))
    }

    /// The rows of a key, in their order.
    pub fn rows<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.key == key)
    }

    /// The first row of a key.
    #[must_use]
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == key)
    }

    /// Why a section of the program has no result. `None`: it was read.
    #[must_use]
    pub fn missing(&self, section: &str) -> Option<String> {
        let row = self.rows("section").find(|row| row.get("name") == Some(section));
        match row.map(|row| (row.text("state"), row)) {
            Some(("done", _)) => None,
            Some(("hung", row)) => Some(format!(
                "reading {section} did not end within {} ms, so its process was killed; a driver hangs",
                row.text("ms")
            )),
            Some((_, row)) => Some(format!("reading {section} failed: {}", row.text("why"))),
            None => Some(format!("the probe did not read {section}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_and_read_back() {
        let row = Row::new("gpu")
            .with("name", "NVIDIA\tH100\n80GB")
            .with("serial", "")
            .with("links", 18);
        let text = format!("Welcome\n{BEGIN}\n{row}\nsection\tname=gpus\tstate=hung\tms=500\n{END}\n");
        let facts = Facts::parse(&text).unwrap();
        let gpu = facts.row("gpu").unwrap();
        assert_eq!(
            (gpu.text("name"), gpu.number::<u32>("links")),
            ("NVIDIA H100 80GB", Some(18))
        );
        assert_eq!((gpu.get("serial"), gpu.number::<u32>("name")), (None, None));
        assert!(facts.missing("gpus").unwrap().contains("did not end within 500 ms"));
        assert_eq!(facts.missing("pci").unwrap(), "the probe did not read pci");
    }

    #[test]
    fn a_part_of_an_output_is_no_output() {
        assert_eq!(Facts::parse("pci\taddress=1\n"), Err(FactsError::NoBegin));
        assert_eq!(Facts::parse(&format!("{BEGIN}\npci\n")), Err(FactsError::NoEnd(1)));
        let many = format!("{BEGIN}\n{}{END}\n", "pci\n".repeat(ROWS_MAX + 1));
        assert_eq!(Facts::parse(&many), Err(FactsError::NoEnd(ROWS_MAX)));
    }
}
