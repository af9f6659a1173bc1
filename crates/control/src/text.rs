//! Cuts text from outside before it is stored or shown: agents, BMCs and machines can send anything.

/// The longest error code, in bytes.
pub const CODE_MAX: usize = 64;
/// The longest name, address or id from a machine, in bytes.
pub const NAME_MAX: usize = 128;
/// The longest sentence, in bytes.
pub const SENTENCE_MAX: usize = 600;

/// `text` in one line and at most `max` bytes: control characters become blanks, and "…" marks a cut.
#[must_use]
pub fn cut(text: &str, max: usize) -> String {
    const DOTS: &str = "…";
    let is_long = text.len() > max;
    let end = if is_long {
        text.floor_char_boundary(max.saturating_sub(DOTS.len()))
    } else {
        text.len()
    };
    // A control character of two bytes becomes a blank of one: the text never grows.
    let mut kept: String = text[..end]
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if is_long {
        kept.push_str(DOTS);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_short_and_one_line_and_still_text() {
        for (text, max, wanted) in [
            ("fine", 4, "fine"),
            ("", 4, ""),
            ("one\ntwo\u{1b}[31m\u{85}", 20, "one two [31m "),
            ("too long", 6, "too…"),
            ("äöüäöü", 8, "äö…"),
        ] {
            assert_eq!(cut(text, max), wanted);
        }
        assert!(cut(&"x".repeat(1 << 20), SENTENCE_MAX).len() <= SENTENCE_MAX);
    }
}
