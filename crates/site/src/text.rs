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
            // Escaped, because the reader takes the character itself for bytes that are not UTF-8.
            char::REPLACEMENT_CHARACTER => quoted.push_str("\\ufffd"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A YAML scalar for a pattern such as `gpu-[1-4]/{rack}`, without quotes where a line holds nothing else.
#[must_use]
pub fn plain(pattern: &str) -> String {
    let is_mark = |c: char| "[]{},*".contains(c);
    let starts = pattern.starts_with(|c: char| c.is_ascii_alphanumeric());
    let bare: String = pattern.chars().filter(|c| !is_mark(*c)).collect();
    if starts && pattern.contains(is_mark) && !pattern.ends_with(':') && scalar(&format!("x{bare}x")).starts_with('x') {
        return pattern.to_owned();
    }
    scalar(pattern)
}

/// A YAML scalar of a line for use between `{` and `}` or `[` and `]`: quoted if it has such characters itself.
#[must_use]
pub fn in_flow(yaml: &str) -> String {
    if yaml.starts_with('"') || !yaml.contains(['[', ']', '{', '}', ',', '*']) {
        return yaml.to_owned();
    }
    format!("\"{yaml}\"")
}

/// A number with a comma before each group of three digits.
#[must_use]
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Text for a comment: one line, without control characters. A question mark stands for U+FFFD, which would make the file
/// unreadable: the reader takes this character for bytes that are not UTF-8.
#[must_use]
pub fn comment(text: &str) -> String {
    let shown = |c: char| match c {
        char::REPLACEMENT_CHARACTER => '?',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(shown).collect()
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
            ("a\u{fffd}", "\"a\\ufffd\""),
        ] {
            assert_eq!(scalar(text), wanted, "{text:?}");
        }
        assert_eq!(comment("a\u{fffd}\n"), "a? ");
    }

    #[test]
    fn digits_are_in_groups_of_three() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn patterns_are_quoted_where_yaml_would_take_them_for_lists() {
        for (text, line, flow) in [
            ("gpu-[1-4]/mlx5_0", "gpu-[1-4]/mlx5_0", "\"gpu-[1-4]/mlx5_0\""),
            ("[A,B]-{rack}", "\"[A,B]-{rack}\"", "\"[A,B]-{rack}\""),
            ("pdu-{rack}-A/1", "pdu-{rack}-A/1", "\"pdu-{rack}-A/1\""),
            ("r[1-2]*4", "r[1-2]*4", "\"r[1-2]*4\""),
            (
                "https://10.0.0.[1-9]",
                "https://10.0.0.[1-9]",
                "\"https://10.0.0.[1-9]\"",
            ),
            ("a b[1-2]", "\"a b[1-2]\"", "\"a b[1-2]\""),
            ("gpu-1", "gpu-1", "gpu-1"),
            ("null", "\"null\"", "\"null\""),
        ] {
            assert_eq!(plain(text), line);
            assert_eq!(in_flow(&plain(text)), flow);
        }
    }
}
