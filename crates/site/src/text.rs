//! Writes the text of a site file line by line, for the generator and the imports.

use std::fmt::Write as _;

/// A site file being written.
#[derive(Debug, Default)]
pub struct Writer {
    text: String,
    lines: u32,
}

impl Writer {
    /// Appends one or more complete lines.
    pub fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        let breaks = line.bytes().filter(|byte| *byte == b'\n').count();
        self.lines = self.lines.saturating_add(u32::try_from(breaks + 1).unwrap_or(u32::MAX));
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Begins a section, after an empty line.
    pub fn section(&mut self, name: &str) {
        self.line(format!("\n{name}:"));
    }

    /// Appends one item of a section. Values are YAML. The caller writes further lines after an empty value.
    pub fn item(&mut self, fields: &[(&str, String)]) {
        for (i, (name, value)) in fields.iter().enumerate() {
            let start = if i == 0 { "- " } else { "  " };
            let gap = if value.is_empty() { "" } else { " " };
            self.line(format!("{start}{name}:{gap}{value}"));
        }
    }

    /// The number of the next line, from 1.
    #[must_use]
    pub fn next_line(&self) -> u32 {
        self.lines.saturating_add(1)
    }

    /// The text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }
}

/// A YAML scalar that the site file reads as this text. Quoted if it would be read as something else.
#[must_use]
pub fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let word = !matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off"
    );
    if starts && word && !text.ends_with(':') && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Text for a comment: one line, without control characters.
#[must_use]
pub fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted() {
        let mut text = Writer::default();
        text.line("site:");
        text.section("rooms");
        assert_eq!(text.next_line(), 4);
        text.item(&[("name", "a".to_owned()), ("outlets", String::new())]);
        assert_eq!(text.next_line(), 6);
        assert_eq!(text.finish(), "site:\n\nrooms:\n- name: a\n  outlets:\n");
    }

    #[test]
    fn what_yaml_would_take_for_something_else_is_quoted() {
        assert_eq!(scalar("https://10.0.0.1:443"), "https://10.0.0.1:443");
        for (text, wanted) in [
            ("", "\"\""),
            ("null", "\"null\""),
            ("a b", "\"a b\""),
            ("a: b", "\"a: b\""),
            ("- a", "\"- a\""),
            ("a:", "\"a:\""),
            ("a\"\\\n", "\"a\\\"\\\\ \""),
            ("~", "\"~\""),
            ("#1", "\"#1\""),
        ] {
            assert_eq!(scalar(text), wanted, "{text:?}");
        }
    }
}
