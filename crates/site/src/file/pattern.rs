//! Compact names: `gpu-[001-032]` stands for 32 names, `r[1-4]*8` for four names, each eight times.

/// Maximum number of names of one pattern.
pub(crate) const MAX_NAMES: usize = 1 << 20;

/// Why a pattern cannot be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pattern stands for too many names.
    TooMany,
    /// The pattern is invalid. The reason is a sentence.
    Unreadable(String),
}

/// All names of a pattern in order, at most `most`.
///
/// Brackets hold comma-separated items. An item is a word or a range of numbers. The numbers have leading zeros if the
/// first number has some. With several brackets, the last varies fastest. `*N` at the end repeats each name N times.
///
/// # Errors
/// The pattern is invalid or has more than `most` names. Time and memory stay bounded by `most` names.
pub(crate) fn expand(text: &str, most: usize) -> Result<Vec<String>, Fault> {
    let (body, times) = repeats(text)?;
    let parts = parts(body, most)?;
    let count = parts
        .iter()
        .try_fold(times, |n, part| n.checked_mul(part.len()))
        .filter(|n| *n <= most)
        .ok_or(Fault::TooMany)?;
    let mut names: Vec<String> = Vec::with_capacity(count);
    let mut chosen = vec![0_usize; parts.len()];
    loop {
        let items = || parts.iter().zip(&chosen).map(|(part, at)| part.item(*at));
        let mut name = String::with_capacity(items().map(str::len).sum());
        items().for_each(|item| name.push_str(item));
        names.extend(std::iter::repeat_n(name, times));
        let raised = parts.iter().zip(&mut chosen).rev().any(|(part, at)| {
            *at = if *at + 1 < part.len() { *at + 1 } else { 0 };
            *at > 0
        });
        if !raised {
            return Ok(names);
        }
    }
}

enum Part<'a> {
    Literal(&'a str),
    Choice(Vec<String>),
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Literal(_) => 1,
            Self::Choice(items) => items.len(),
        }
    }

    fn item(&self, at: usize) -> &str {
        match self {
            Self::Literal(literal) => literal,
            Self::Choice(items) => &items[at],
        }
    }
}

fn unreadable(why: String) -> Fault {
    Fault::Unreadable(why)
}

fn repeats(text: &str) -> Result<(&str, usize), Fault> {
    let Some((body, times)) = text.rsplit_once('*') else {
        return Ok((text, 1));
    };
    match times.parse::<usize>() {
        Ok(0) | Err(_) => Err(unreadable(format!(
            "`*{times}` must give the number of repetitions, 1 or more"
        ))),
        Ok(times) => Ok((body, times)),
    }
}

fn parts(body: &str, most: usize) -> Result<Vec<Part<'_>>, Fault> {
    let mut parts = Vec::new();
    let mut rest = body;
    let mut names = 1_usize;
    while let Some((literal, after)) = rest.split_once('[') {
        let (inner, after) = after
            .split_once(']')
            .ok_or_else(|| unreadable(format!("`{body}` has `[` without `]`")))?;
        if literal.contains(']') {
            break;
        }
        let items = choice(inner, most / names)?;
        names *= items.len();
        parts.push(Part::Literal(literal));
        parts.push(Part::Choice(items));
        rest = after;
    }
    if rest.contains(']') {
        return Err(unreadable(format!("`{body}` has `]` without `[`")));
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

/// The items of one bracket: at least one, at most `most`.
fn choice(inner: &str, most: usize) -> Result<Vec<String>, Fault> {
    let mut items = Vec::new();
    for item in inner.split(',').map(str::trim) {
        if item.is_empty() || item.contains('[') {
            return Err(unreadable(format!(
                "`[{inner}]` is not a list of numbers, ranges or words"
            )));
        }
        match item.split_once('-') {
            Some((first, last)) if is_number(first) && is_number(last) => {
                range(first, last, most.saturating_sub(items.len()), &mut items)?;
            }
            _ => items.push(item.to_owned()),
        }
        if items.len() > most {
            return Err(Fault::TooMany);
        }
    }
    Ok(items)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn range(first: &str, last: &str, most: usize, items: &mut Vec<String>) -> Result<(), Fault> {
    let number = |text: &str| {
        text.parse::<usize>()
            .map_err(|_| unreadable(format!("the number {text} is too large")))
    };
    let (from, to) = (number(first)?, number(last)?);
    if from > to {
        return Err(unreadable(format!("the range {first}-{last} must go up")));
    }
    if to - from >= most {
        return Err(Fault::TooMany);
    }
    let width = if first.starts_with('0') { first.len() } else { 0 };
    items.extend((from..=to).map(|n| format!("{n:0width$}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_expanded() {
        let list = |text| expand(text, 100).map(|names| names.join(" "));
        assert_eq!(list("gpu-[008-011]").unwrap(), "gpu-008 gpu-009 gpu-010 gpu-011");
        assert_eq!(list("[1,3,7-8]").unwrap(), "1 3 7 8");
        assert_eq!(list("l[1-2]-r[0-1]").unwrap(), "l1-r0 l1-r1 l2-r0 l2-r1");
        assert_eq!(list("r[1-2]*3").unwrap(), "r1 r1 r1 r2 r2 r2");
        assert_eq!(list("pdu-[a,b]").unwrap(), "pdu-a pdu-b");
        assert_eq!(list("plain").unwrap(), "plain");
        assert_eq!(list("x*2").unwrap(), "x x");
    }

    #[test]
    fn broken_and_huge_patterns_are_refused() {
        for text in [
            "a[1-",
            "a]1",
            "a[]",
            "a[1,,2]",
            "a[9-1]",
            "a[1-99999999]",
            "a[1-9999][1-9999][1-9999]",
            "a*",
            "a*0",
            "a*99999999999",
            "a[[1]]",
            "a[1-99999999999999999999999]",
            "a[1-1000000,1-1000000]",
            "a]b[1]",
        ] {
            assert!(expand(text, MAX_NAMES).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_stands_for_no_more_names_than_it_may() {
        for text in ["a[1-4]", "a[1-2][1-2]", "a[1,2]*2", "a*4", "a[1,2,3,4]"] {
            assert_eq!(expand(text, 3), Err(Fault::TooMany), "{text}");
            assert_eq!(expand(text, 4).unwrap().len(), 4, "{text}");
        }
        assert_eq!(expand("a", 0), Err(Fault::TooMany));
    }

    #[test]
    fn brackets_cost_no_more_than_their_names_may() {
        let wide = "[1-1000000]".repeat(100_000);
        assert_eq!(expand(&wide, MAX_NAMES), Err(Fault::TooMany));
    }
}
