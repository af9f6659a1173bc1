//! Patterns of names and values.
//!
//! A pattern fits a text as a whole: `6.1` does not fit `6.1.0`, and `6.1*` does. `*` stands for any text, also for none;
//! `?` stands for exactly one character. Every other character stands for itself, and no character escapes another. The
//! empty pattern fits only the empty text.
//!
//! Operators write patterns in several places, and the places differ in their rules:
//!
//! | function | `*` | `?` | letter case |
//! |---|---|---|---|
//! | [`fits`] | any text | one character | counts |
//! | [`fits_any_case`] | any text | one character | is ignored |
//! | [`fits_stars`] | any text | itself | counts |
//! | [`fits_beginning`] | any text, but only at the end of the pattern | itself | counts |
//!
//! [`fits`] is for the checks of an installed system: its versions and units. [`fits_any_case`] is for what BMCs report:
//! vendors, products, ids of parts and of firmware. [`fits_stars`] is for names in NetBox, which may contain `?`.
//! [`fits_beginning`] is for settings that list exact names: links, boot options, subscriptions.
//!
//! The cost of a call is at most the length of the pattern times the length of the text, whatever the pattern: it is
//! linear in the text. No call allocates memory.

use std::str::Chars;

/// Whether a pattern fits a text. `*` stands for any text, `?` for one character.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    walk(pattern, text, |wanted, found| wanted == '?' || wanted == found)
}

/// Whether a pattern fits a text in any letter case. `*` stands for any text, `?` for one character.
#[must_use]
pub fn fits_any_case(pattern: &str, text: &str) -> bool {
    walk(pattern, text, |wanted, found| {
        wanted == '?' || wanted == found || wanted.to_lowercase().eq(found.to_lowercase())
    })
}

/// Whether a pattern without `?` fits a text. `*` stands for any text; a question mark stands for itself.
#[must_use]
pub fn fits_stars(pattern: &str, text: &str) -> bool {
    walk(pattern, text, |wanted, found| wanted == found)
}

/// Whether a text is the pattern or, with a pattern that ends in `*`, begins as the pattern does. No other character of
/// the pattern stands for anything but itself.
#[must_use]
pub fn fits_beginning(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => text.starts_with(beginning),
        None => pattern == text,
    }
}

/// Compares from left to right. After a difference, only the last `*` takes one more character: what an earlier one
/// takes more, the last one can take as well.
fn walk(pattern: &str, text: &str, mut is_same: impl FnMut(char, char) -> bool) -> bool {
    let (mut wanted, mut left) = (pattern.chars(), text.chars());
    // The pattern behind the last star, and the text behind what that star takes.
    let mut star: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let (mut next_wanted, mut next_left) = (wanted.clone(), left.clone());
        match (next_wanted.next(), next_left.next()) {
            (Some('*'), _) => {
                star = Some((next_wanted.clone(), left.clone()));
                wanted = next_wanted;
            }
            (None, None) => return true,
            (Some(_), None) => return false,
            (Some(one), Some(other)) if is_same(one, other) => (wanted, left) = (next_wanted, next_left),
            (_, Some(_)) => {
                let Some((behind, taken)) = &mut star else {
                    return false;
                };
                taken.next();
                (wanted, left) = (behind.clone(), taken.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_the_whole_text() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("debian", "debian", true),
            ("debian", "debian2", false),
            ("debian2", "debian", false),
            ("6.1.*", "6.1.0-18-cloud-amd64", true),
            ("6.1.*", "6.10", false),
            ("6.1.*-amd64", "6.1.0-18-arm64", false),
            ("*", "", true),
            ("**", "", true),
            ("***", "a", true),
            ("?", "", false),
            ("?", "ä", true),
            ("??", "ä", false),
            ("?*", "", false),
            ("*?", "a", true),
            ("a?c*", "abc", true),
            ("*.service", "a.service.service", true),
            ("a*a", "a", false),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "acb", false),
            ("a*?b", "ab", false),
            ("a*?b", "aXb", true),
            ("Dell*", "DELL Inc.", false),
            (r"a\*", "a*", false),
            (r"a\*", r"a\b", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn letter_case_is_ignored_on_request() {
        for (pattern, text, expected) in [
            ("Dell*", "DELL Inc.", true),
            ("Dell", "Dell Inc.", false),
            ("*gb300*", "NVIDIA GB300 NVL72", true),
            ("SYS-?21*", "sys-821GE-TNHR", true),
            ("SYS-?21*", "SYS-822GA", false),
            ("GRÖSSE?", "größe1", false),
            ("GRÖẞE?", "größe1", true),
            ("a*b", "ab ", false),
        ] {
            assert_eq!(fits_any_case(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_question_mark_is_literal_where_only_stars_are_special() {
        for (pattern, text, expected) in [
            ("Panel ?", "Panel ?", true),
            ("Panel ?", "Panel 1", false),
            ("Panel *", "Panel 1", true),
            ("*-A-*", "r1-A-2", true),
            ("*-A-*", "r1-A", false),
            ("*A", "r1-A", true),
            ("*a", "r1-A", false),
        ] {
            assert_eq!(fits_stars(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_beginning_ends_in_a_star() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("GPU_*", "GPU_1", true),
            ("GPU_*", "gpu_1", false),
            ("GPU_?", "GPU_1", false),
            ("GPU", "GPU_1", false),
            ("*_1", "GPU_1", false),
            ("*_1*", "*_12", true),
        ] {
            assert_eq!(fits_beginning(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// All patterns and texts of few characters, against the definition.
    #[test]
    fn short_patterns_fit_as_defined() {
        fn defined(pattern: &[char], text: &[char]) -> bool {
            match pattern.split_first() {
                None => text.is_empty(),
                Some(('*', rest)) => (0..=text.len()).any(|taken| defined(rest, &text[taken..])),
                Some((one, rest)) => text
                    .split_first()
                    .is_some_and(|(other, left)| (*one == '?' || one == other) && defined(rest, left)),
            }
        }
        let words = |letters: &[char], longest: usize| {
            let mut all = vec![String::new()];
            let mut last = all.clone();
            for _ in 0..longest {
                last = last
                    .iter()
                    .flat_map(|word| letters.iter().map(move |letter| format!("{word}{letter}")))
                    .collect();
                all.extend(last.iter().cloned());
            }
            all
        };
        let texts = words(&['a', 'b'], 5);
        for pattern in words(&['a', 'b', '*', '?'], 5) {
            let characters: Vec<char> = pattern.chars().collect();
            for text in &texts {
                let expected = defined(&characters, &text.chars().collect::<Vec<char>>());
                assert_eq!(fits(&pattern, text), expected, "{pattern} {text}");
            }
        }
    }

    #[test]
    fn hostile_patterns_cost_no_more_than_a_comparison_of_each_pair() {
        let compared = |pattern: &str, text: &str| {
            let mut comparisons = 0;
            let is_same = |wanted: char, found: char| {
                comparisons += 1;
                wanted == '?' || wanted == found
            };
            assert!(!walk(pattern, text, is_same), "{pattern}");
            comparisons
        };
        for (pattern, length) in [
            ("*a".repeat(200), 75),
            ("*a".repeat(200) + "b", 4_000),
            ("*".to_owned() + &"a".repeat(200) + "b", 4_000),
            ("*".to_owned() + &"?".repeat(200) + "b", 4_000),
            ("*".repeat(4_000) + "b", 4_000),
        ] {
            for length in [length, 2 * length] {
                let comparisons = compared(&pattern, &"a".repeat(length));
                assert!(comparisons <= pattern.len() * length, "{comparisons}");
            }
        }
    }
}
