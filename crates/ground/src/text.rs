//! Cuts text from outside before it is stored or shown: agents, BMCs and machines can send anything. Counts with a noun.

use std::fmt::Display;

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

/// The causes of an error, from the nearest on. Leaves out a cause that the error or an earlier cause already quotes.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> Vec<String> {
    let mut full_text = error.to_string();
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !full_text.contains(&text) {
            full_text = format!("{full_text}: {text}");
            causes.push(text);
        }
        next = cause.source();
    }
    causes
}

/// An error with all its [`causes`], in one sentence.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        text.push_str(": ");
        text.push_str(&cause);
    }
    text
}

/// `1 node`, `2 nodes`.
#[must_use]
pub fn counted<N: Display + PartialEq + From<bool>>(count: N, noun: &str) -> String {
    if count == N::from(true) {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rackwright_identity::{AuditChainError, AuditFault};

    use super::*;
    use crate::audit::verify::VerifyError;

    #[test]
    fn a_cause_that_the_error_quotes_is_not_repeated() {
        let broken = VerifyError::from(AuditChainError {
            position: 7,
            fault: AuditFault::Columns,
        });
        assert_eq!(causes(&broken), [""; 0]);
        assert_eq!(chain(&broken), broken.to_string());
        let file = VerifyError::File {
            path: "/keys/head".into(),
            source: io::Error::other("the disk is gone"),
        };
        assert_eq!(chain(&file), "/keys/head: the disk is gone");
    }

    #[test]
    fn every_cause_that_no_error_quotes_is_shown() {
        #[derive(Debug, thiserror::Error)]
        #[error("the copy failed")]
        struct CopyFailed(#[source] VerifyError);
        let error = CopyFailed(VerifyError::File {
            path: "/keys/head".into(),
            source: io::Error::other("the disk is gone"),
        });
        assert_eq!(causes(&error), ["/keys/head: the disk is gone"]);
        assert_eq!(chain(&error), "the copy failed: /keys/head: the disk is gone");
    }

    #[test]
    fn one_thing_is_named_in_the_singular() {
        assert_eq!(counted(1_u32, "node"), "1 node");
        assert_eq!(counted(0_usize, "node"), "0 nodes");
        assert_eq!(counted(2_i64, "node"), "2 nodes");
    }

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
