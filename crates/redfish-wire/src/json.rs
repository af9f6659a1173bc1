//! Reads properties. A missing, null or wrongly typed property yields no value and no failure.

use serde_json::Value;

use crate::settings::Limits;

/// Strings that BMCs use for "no value".
const PLACEHOLDERS: [&str; 9] = [
    "",
    "null",
    "none",
    "n/a",
    "na",
    "unknown",
    "not available",
    "not specified",
    "to be filled by o.e.m.",
];

/// The value at a path of property names; null counts as absent.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let found = path.iter().try_fold(value, |value, name| value.get(name))?;
    (!found.is_null()).then_some(found)
}

/// A trimmed, non-empty string; a number is converted to text. The zeros with which some BMCs fill up a serial number are
/// trimmed too.
pub fn text(value: &Value, path: &[&str]) -> Option<String> {
    let is_filling = |c: char| c.is_whitespace() || c == '\0';
    match at(value, path)? {
        Value::String(text) => Some(text.trim_matches(is_filling).to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Like [`text`], but placeholders such as "N/A" count as absent.
pub fn fact(value: &Value, path: &[&str]) -> Option<String> {
    text(value, path).filter(|text| !PLACEHOLDERS.contains(&text.to_ascii_lowercase().as_str()))
}

/// A whole number, zero or more; fractions are cut off and numbers in strings are parsed.
pub fn whole(value: &Value, path: &[&str]) -> Option<u64> {
    match at(value, path)? {
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            (float >= 0.0 && float < u64::MAX as f64).then_some(float as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A finite number, also in a string.
pub fn number(value: &Value, path: &[&str]) -> Option<f64> {
    let number = match at(value, path)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number: &f64| number.is_finite())
}

/// The reading of a sensor: bare, or in the excerpt that newer schemas copy into other resources (`{"Reading": …}`).
pub fn reading(value: &Value, path: &[&str]) -> Option<f64> {
    match at(value, path)? {
        excerpt @ Value::Object(_) => number(excerpt, &["Reading"]),
        bare => number(bare, &[]),
    }
}

/// A boolean, also in a string.
pub fn flag(value: &Value, path: &[&str]) -> Option<bool> {
    match at(value, path)? {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// The strings of an array; values of other types are left out. A single string counts as an array of one.
pub fn texts(value: &Value, path: &[&str]) -> Vec<String> {
    match at(value, path) {
        Some(Value::Array(list)) => list.iter().filter_map(|item| text(item, &[])).collect(),
        Some(Value::String(one)) if !one.trim().is_empty() => vec![one.trim().to_owned()],
        _ => Vec::new(),
    }
}

/// The target of a link: `{"@odata.id": …}`, the older `{"href": …}`, or a bare string.
pub fn link(value: &Value, path: &[&str]) -> Option<String> {
    let found = at(value, path)?;
    match found {
        Value::String(_) => text(found, &[]),
        Value::Object(_) => text(found, &["@odata.id"]).or_else(|| text(found, &["href"])),
        _ => None,
    }
}

/// The targets of an array of links, or of a single link in place of an array. Invalid members are left out.
pub fn links(value: &Value, path: &[&str]) -> Vec<String> {
    match at(value, path) {
        Some(Value::Array(list)) => list.iter().filter_map(|item| link(item, &[])).collect(),
        Some(other) => link(other, &[]).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Why a text was refused as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Parsing would cost too much.
    TooCostly(String),
    /// The text is not JSON.
    NotJson(String),
}

/// Parses a BMC's answer within limits. If an object has a name twice, the last value counts (RFC 8259, section 4, calls
/// that unpredictable; most parsers do the same).
pub(crate) fn parse(text: &str, limits: &Limits) -> Result<Value, Refused> {
    // serde_json itself refuses a depth over 128.
    check_cost(text, limits.depth.min(127), limits.values).map_err(Refused::TooCostly)?;
    serde_json::from_str(text)
        .map_err(|fault| Refused::NotJson(not_a_number(text, &fault).unwrap_or(fault.to_string())))
}

/// A message for a number that JSON does not have, such as NaN; some BMCs write floats that way.
fn not_a_number(text: &str, fault: &serde_json::Error) -> Option<String> {
    const TOKENS: [&str; 3] = ["nan", "infinity", "inf"];
    let line = text.lines().nth(fault.line().checked_sub(1)?)?.as_bytes();
    let (read, rest) = line.split_at_checked(fault.column())?;
    // The parser stops one or two letters into the token.
    let is_part = |byte: &&u8| byte.is_ascii_alphabetic();
    let begin = read.len() - read.iter().rev().take_while(is_part).count();
    let end = read.len() + rest.iter().take_while(is_part).count();
    let token = std::str::from_utf8(line.get(begin..end)?).ok()?;
    let (line, column) = (fault.line(), fault.column());
    TOKENS
        .contains(&token.to_ascii_lowercase().as_str())
        .then(|| format!("{token} is no number in JSON, at line {line} column {column}"))
}

/// Refuses a text that would cost too much to parse: nesting beyond `max_depth` or more than `max_values` values.
pub fn check_cost(text: &str, max_depth: usize, max_values: usize) -> Result<(), String> {
    let (mut depth, mut values) = (0_usize, 1_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                values += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth > max_depth {
            return Err(format!("nested deeper than {max_depth} levels"));
        }
        if values > max_values {
            return Err(format!("more than {max_values} values"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unexpected_types_are_absent_not_errors() {
        let value = json!({
            "Text": " On ", "Filled": "S1\0\0", "Null": null, "Num": 5, "Float": 2.9, "NumText": " 17 ", "Neg": -4, "Flag": "True",
            "List": ["a", null, 3, {"x": 1}], "NA": "N/A", "Link": {"@odata.id": "/a"}, "Old": {"href": "/b"},
            "Links": [{"@odata.id": "/a"}, null, {}, "/c", 7], "One": {"@odata.id": "/d"}
        });
        assert_eq!(text(&value, &["Text"]).as_deref(), Some("On"));
        assert_eq!(text(&value, &["Filled"]).as_deref(), Some("S1"));
        assert_eq!(text(&value, &["Null"]), None);
        assert_eq!(text(&value, &["Num"]).as_deref(), Some("5"));
        assert_eq!(text(&value, &["List"]), None);
        assert_eq!(fact(&value, &["NA"]), None);
        assert_eq!(whole(&value, &["Float"]), Some(2));
        assert_eq!(whole(&value, &["NumText"]), Some(17));
        assert_eq!(whole(&value, &["Neg"]), None);
        assert_eq!(
            (number(&value, &["Neg"]), number(&value, &["Text"])),
            (Some(-4.0), None)
        );
        assert_eq!(reading(&json!({"Reading": "21.5"}), &[]), Some(21.5));
        assert_eq!(reading(&json!({"Reading": "Out of range"}), &[]), None);
        assert_eq!((reading(&value, &["Num"]), reading(&value, &["NA"])), (Some(5.0), None));
        assert_eq!((number(&json!("inf"), &[]), number(&json!("NaN"), &[])), (None, None));
        assert_eq!(flag(&value, &["Flag"]), Some(true));
        assert_eq!(texts(&value, &["List"]), ["a", "3"]);
        assert_eq!(link(&value, &["Old"]).as_deref(), Some("/b"));
        assert_eq!(links(&value, &["Links"]), ["/a", "/c"]);
        assert_eq!(links(&value, &["One"]), ["/d"]);
        assert_eq!(at(&value, &["Text", "deeper"]), None);
    }

    #[test]
    fn numbers_that_json_does_not_have_are_refused_by_name() {
        let why = |text: &str| match parse(text, &Limits::default()) {
            Err(Refused::NotJson(why)) => why,
            other => panic!("{text}: {other:?}"),
        };
        for (text, words) in [
            ("{\"Reading\": NaN}", "NaN is no number in JSON, at line 1"),
            ("{\n \"a\": [1, nan]}", "nan is no number in JSON, at line 2"),
            ("{\"Reading\": Infinity}", "Infinity is no number in JSON"),
            ("{\"Reading\": -Infinity}", "Infinity is no number in JSON"),
            ("{\"Reading\": -inf}", "inf is no number in JSON"),
            ("NaN", "NaN is no number in JSON"),
        ] {
            assert!(why(text).contains(words), "{text}: {}", why(text));
        }
        for text in [
            "{\"NaN\": nul}",
            "{NaN: 1",
            "\"Infinity",
            "{\"a\": Nano}",
            "[\u{e4}NaN",
            "",
        ] {
            assert!(!why(text).is_empty(), "{text}");
        }
        assert!(
            parse("{\"NaN\": \"Infinity\"}", &Limits::default()).is_ok(),
            "words are words"
        );
    }

    #[test]
    fn of_two_values_of_one_name_the_last_counts() {
        let read = parse(
            "{\"Power\": \"On\", \"a\": {\"b\": 1, \"b\": null}, \"Power\": \"Off\", \"P\\u006fwer\": \"PoweringOn\"}",
            &Limits::default(),
        );
        assert_eq!(read, Ok(json!({"Power": "PoweringOn", "a": {"b": null}})));
    }

    #[test]
    fn cost_is_bounded_before_parsing() {
        assert!(check_cost(r#"{"a":["[[[[",{"b":"\"[[["}]}"#, 3, 10).is_ok());
        assert!(check_cost(&"[".repeat(100), 64, 1000).is_err());
        assert!(check_cost(&format!("[{}0]", "0,".repeat(2000)), 64, 1000).is_err());
    }
}
