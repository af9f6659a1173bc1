//! Names of objects: their form, and how a finding shows them.

use std::borrow::Cow;

use super::suggestion::nearest;

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 63;
/// Maximum length of a text that a finding shows whole, in characters.
const SHOWN_WHOLE: usize = 80;
/// Length of the beginning of a longer text, in characters.
const SHOWN_START: usize = 40;

/// The remedy for a text that is not a name.
pub(super) const FIX: &str = "use 1 to 63 letters, digits and `-_.:`, with a letter or digit first";

/// Why a text is not a name. `None`: it has 1 to 63 letters, digits and `-_.:`, with a letter or digit first.
pub(super) fn fault(name: &str) -> Option<String> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    if name.len() <= MAX_NAME && name.bytes().all(is_usual) && name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let Some(first) = name.chars().next() else {
        return Some("the name is empty".to_owned());
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if let Some(wrong) = name.chars().find(|c| !is_part(*c)) {
        return Some(format!("the name `{}` contains {wrong:?}", shown(name)));
    }
    if name.len() > MAX_NAME {
        return Some(format!("the name `{}` has {} characters", shown(name), name.len()));
    }
    (!first.is_ascii_alphanumeric()).then(|| format!("the name `{name}` begins with {first:?}"))
}

/// A text as a finding shows it: the beginning of a long one.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().nth(SHOWN_WHOLE).is_none() {
        return Cow::Borrowed(text);
    }
    let start: String = text.chars().take(SHOWN_START).collect();
    Cow::Owned(format!("{start}..."))
}

/// The placeholders of a name: the name of the item, and the name of its rack.
const PLACEHOLDERS: [&str; 2] = ["name", "rack"];

/// The remedy for a placeholder in a field that has none.
pub(super) const NO_PLACEHOLDERS: &str =
    "`{name}` and `{rack}` stand for names only in `parent`, `psus`, `bmc` and `ethernet`";

/// The fault of a placeholder in a name, and the remedy. `None`: all of them exist. `has_rack`: the item has a rack.
pub(super) fn placeholder_fault(text: &str, has_rack: bool) -> Option<(String, String)> {
    let exist = "the placeholders are `{name}` and `{rack}`";
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('{') {
        let Some((word, after)) = after.split_once('}') else {
            return Some((format!("`{}` has `{{` without `}}`", shown(text)), exist.to_owned()));
        };
        rest = after;
        match word {
            "rack" if !has_rack => {
                let fix = "add `rack:`, or write the name of the rack";
                return Some((
                    "`{rack}` stands for the rack, but this item has none".to_owned(),
                    fix.to_owned(),
                ));
            }
            "name" | "rack" => {}
            _ => {
                let fix = match nearest(word, PLACEHOLDERS) {
                    Some(meant) => format!("did you mean `{{{meant}}}`? {exist}"),
                    None => exist.to_owned(),
                };
                return Some((format!("there is no placeholder `{{{}}}`", shown(word)), fix));
            }
        }
    }
    None
}

/// Replaces `{name}` and `{rack}` in a name.
pub(super) fn fill<'a>(text: &'a str, name: &str, rack: &str) -> Cow<'a, str> {
    let Some((before, mut rest)) = text.split_once('{') else {
        return Cow::Borrowed(text);
    };
    let mut filled = String::with_capacity(text.len() + name.len().max(rack.len()));
    filled.push_str(before);
    loop {
        let (value, after) = if let Some(after) = rest.strip_prefix("name}") {
            (name, after)
        } else if let Some(after) = rest.strip_prefix("rack}") {
            (rack, after)
        } else {
            ("{", rest)
        };
        filled.push_str(value);
        let Some((between, next)) = after.split_once('{') else {
            filled.push_str(after);
            return Cow::Owned(filled);
        };
        filled.push_str(between);
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_exist_or_are_named() {
        for good in ["pdu-1", "pdu-{rack}/1", "https://{name}.{rack}"] {
            assert_eq!(placeholder_fault(good, true), None, "{good}");
        }
        assert_eq!(placeholder_fault("bmc-{name}", false), None);
        let exist = "the placeholders are `{name}` and `{rack}`";
        for (text, what, fix) in [
            (
                "pdu-{rak}/1",
                "there is no placeholder `{rak}`",
                format!("did you mean `{{rack}}`? {exist}"),
            ),
            ("{unit}", "there is no placeholder `{unit}`", exist.to_owned()),
            ("{name", "`{name` has `{` without `}`", exist.to_owned()),
        ] {
            assert_eq!(placeholder_fault(text, true), Some((what.to_owned(), fix)), "{text}");
        }
        let (what, _) = placeholder_fault("c-{rack}", false).unwrap();
        assert_eq!(what, "`{rack}` stands for the rack, but this item has none");
    }

    #[test]
    fn placeholders_are_replaced() {
        let filled = |text| fill(text, "gpu-1", "r7").into_owned();
        for (text, expected) in [
            ("plain", "plain"),
            ("{name}", "gpu-1"),
            ("{rack}-pdu-{name}/1", "r7-pdu-gpu-1/1"),
            ("{rack}{rack}", "r7r7"),
            ("a{unit}{", "a{unit}{"),
            ("", ""),
        ] {
            assert_eq!(filled(text), expected, "{text}");
        }
    }

    #[test]
    fn names_have_a_form() {
        for good in ["a", "7", "gpu-001", "a.b_c:d-e", &"x".repeat(63)] {
            assert_eq!(fault(good), None, "{good}");
        }
        let name = "x".repeat(300);
        let long = format!("the name `{}...` has 300 characters", "x".repeat(40));
        for (bad, why) in [
            ("", "the name is empty"),
            ("a/b", "the name `a/b` contains '/'"),
            ("a b", "the name `a b` contains ' '"),
            ("h\u{f6}he", "the name `h\u{f6}he` contains '\u{f6}'"),
            ("-a", "the name `-a` begins with '-'"),
            (name.as_str(), long.as_str()),
        ] {
            assert_eq!(fault(bad).as_deref(), Some(why), "{bad}");
        }
        assert_eq!(shown(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(shown(&"\u{e9}".repeat(81)), format!("{}...", "\u{e9}".repeat(40)));
    }
}
