//! YAML scalars, Markdown cells, and numbers.

use std::fmt::Write as _;

/// Words that some YAML readers do not read as text.
const YAML_WORDS: [&str; 11] = [
    "true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf",
];

/// Writes a text as a YAML scalar: plain if every reader reads it as text, otherwise in double quotes.
pub(super) fn yaml(text: &str) -> String {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    let plain = text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && text.bytes().all(inner)
        && !YAML_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    if plain {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            // Writing to a string cannot fail.
            _ => _ = write!(quoted, "\\U{:08x}", u32::from(c)),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes a text as a Markdown table cell: on one line, without markup.
pub(super) fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => cell.push_str("&amp;"),
            '<' => cell.push_str("&lt;"),
            '>' => cell.push_str("&gt;"),
            '|' | '\\' | '`' | '*' | '[' | ']' | '~' | '#' | '!' => cell.extend(['\\', c]),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => cell.push(' '),
            c => cell.push(c),
        }
    }
    cell.trim().to_owned()
}

/// A Markdown table of finished cells.
pub(super) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// A cell of a CSV file (RFC 4180).
pub(super) fn csv(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Such as `10.2 kW`.
pub(super) fn kw(watts: f64) -> String {
    format!("{:.1} kW", watts / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        for (text, scalar) in [
            ("gpu-001", "gpu-001"),
            ("001", "\"001\""),
            ("no", "\"no\""),
            ("a: b", "\"a: b\""),
            ("", "\"\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
            ("a\nb", "\"a\\U0000000ab\""),
            ("gpu-[1-2]", "\"gpu-[1-2]\""),
        ] {
            assert_eq!(yaml(text), scalar);
        }
        assert_eq!(cell("a|b\n<i>*[x](y)"), "a\\|b &lt;i&gt;\\*\\[x\\](y)");
        assert_eq!(csv("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(kw(10_200.0), "10.2 kW");
    }
}
