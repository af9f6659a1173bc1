//! The text of filters.

use crate::filter::{Clause, Filter, Term};

/// Most terms of a filter.
const TERMS_MAX: usize = 32;

/// Parses an AIP-160 filter: clauses joined by AND, each of terms joined by OR. `FIELD = VALUE OR FIELD != VALUE AND ...`:
/// OR binds closer than AND (<https://google.aip.dev/160>); a clause may stand in parentheses. Values may be quoted.
/// `check` returns the fault of a field's value.
///
/// # Errors
/// The fault, with its place.
pub fn parse_filter(
    text: &str,
    fields: &[&str],
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<Filter, String> {
    let at = |rest: &str, fault: String| format!("at character {}: {fault}", text.len() - rest.len() + 1);
    let mut filter = Filter::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (clause, after) = parse_clause(rest, fields, &check).map_err(|(rest, fault)| at(rest, fault))?;
        filter.push(clause);
        rest = after.trim_start();
        if rest.is_empty() {
            break;
        }
        let next = rest.strip_prefix("AND ").map(str::trim_start);
        rest = next.ok_or_else(|| at(rest, "AND or OR expected".into()))?;
    }
    match filter.iter().map(Vec::len).sum::<usize>() > TERMS_MAX {
        true => Err(format!("must have at most {TERMS_MAX} terms")),
        false => Ok(filter),
    }
}

/// The terms joined by OR at the beginning of a text, and the text after them.
///
/// # Errors
/// The place of a fault, and the fault.
fn parse_clause<'a>(
    text: &'a str,
    fields: &[&str],
    check: &impl Fn(&str, &str) -> Result<(), String>,
) -> Result<(Clause, &'a str), (&'a str, String)> {
    let (is_grouped, mut rest) = match text.strip_prefix('(') {
        Some(inner) => (true, inner.trim_start()),
        None => (false, text),
    };
    let mut clause = Clause::new();
    loop {
        let (term, after) = parse_term(rest, fields, check, is_grouped).map_err(|fault| (rest, fault))?;
        clause.push(term);
        rest = after.trim_start();
        match rest.strip_prefix("OR ") {
            Some(after) => rest = after.trim_start(),
            None => break,
        }
    }
    if is_grouped {
        let fault = match rest.starts_with("AND ") {
            true => "a group in parentheses joins terms by OR; write AND outside of groups",
            false => "OR or ) expected",
        };
        rest = rest.strip_prefix(')').ok_or((rest, fault.to_owned()))?;
    }
    Ok((clause, rest))
}

fn parse_term<'a>(
    text: &'a str,
    fields: &[&str],
    check: &impl Fn(&str, &str) -> Result<(), String>,
    is_grouped: bool,
) -> Result<(Term, &'a str), String> {
    let end = text.find(['=', '!', ' ']).unwrap_or(text.len());
    let (field, rest) = text.split_at(end);
    let is_label = field.strip_prefix("labels.").is_some_and(|key| !key.is_empty());
    let known = if is_label { "labels" } else { field };
    let known = fields.contains(&known) && field != "labels";
    if !known {
        return Err(format!("unknown field {field:?}; known: {}", fields.join(", ")));
    }
    let rest = rest.trim_start();
    let (negated, rest) = match (rest.strip_prefix("!="), rest.strip_prefix('=')) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("= or != expected".into()),
    };
    let rest = rest.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => {
            let end = quoted.find('"').ok_or("closing \" missing")?;
            (&quoted[..end], &quoted[end + 1..])
        }
        None => {
            let ends = |c: char| c == ' ' || is_grouped && c == ')';
            rest.split_at(rest.find(ends).unwrap_or(rest.len()))
        }
    };
    if value.chars().any(char::is_control) {
        return Err(format!("{value:?} has control characters"));
    }
    check(field, value)?;
    Ok((
        Term {
            field: field.to_owned(),
            value: value.to_owned(),
            negated,
        },
        rest,
    ))
}
