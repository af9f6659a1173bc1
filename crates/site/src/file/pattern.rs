//! Compact names: `gpu-[001-032]` is 32 names, `r[1-4]*8` each of four names eight times.

/// Most names that one pattern may stand for.
pub(crate) const MAX_NAMES: usize = 1 << 20;

/// All names of a pattern, in order.
///
/// Brackets hold items separated by commas; an item is a word or a range of numbers, which has leading zeros where its
/// first number has some. Of several brackets the last counts fastest. `*N` at the end repeats each name N times.
///
/// # Errors
/// A sentence that says what is wrong with the pattern.
pub(crate) fn expand(text: &str) -> Result<Vec<String>, String> {
    let (body, times) = repeats(text)?;
    let parts = parts(body)?;
    let count = parts
        .iter()
        .try_fold(times, |n, part| n.checked_mul(part.len()))
        .filter(|n| *n <= MAX_NAMES)
        .ok_or_else(|| format!("`{text}` stands for more than {MAX_NAMES} names"))?;
    let mut names: Vec<String> = Vec::with_capacity(count);
    names.push(String::new());
    for part in &parts {
        names = match part {
            Part::Literal(literal) => {
                names.iter_mut().for_each(|name| name.push_str(literal));
                names
            }
            Part::Choice(choice) => names
                .iter()
                .flat_map(|name| choice.iter().map(move |item| format!("{name}{item}")))
                .collect(),
        };
    }
    if times == 1 {
        return Ok(names);
    }
    Ok(names
        .iter()
        .flat_map(|name| std::iter::repeat_n(name, times))
        .cloned()
        .collect())
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
}

fn repeats(text: &str) -> Result<(&str, usize), String> {
    match text.rsplit_once('*') {
        None => Ok((text, 1)),
        Some((body, times)) => match times.parse::<usize>() {
            Ok(times) if (1..=MAX_NAMES).contains(&times) => Ok((body, times)),
            _ => Err(format!("`*{times}` does not say how often each name is repeated")),
        },
    }
}

fn parts(body: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = body;
    while let Some((literal, after)) = rest.split_once('[') {
        let (inner, after) = after
            .split_once(']')
            .ok_or_else(|| format!("`{body}` has `[` without `]`"))?;
        if literal.contains(']') {
            break;
        }
        parts.push(Part::Literal(literal));
        parts.push(Part::Choice(choice(inner)?));
        rest = after;
    }
    if rest.contains(']') {
        return Err(format!("`{body}` has `]` without `[`"));
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

fn choice(inner: &str) -> Result<Vec<String>, String> {
    let mut items = Vec::new();
    for item in inner.split(',').map(str::trim) {
        if item.is_empty() || item.contains('[') {
            return Err(format!("`[{inner}]` is no list of numbers, ranges or words"));
        }
        match item.split_once('-') {
            Some((first, last)) if is_number(first) && is_number(last) => range(first, last, &mut items)?,
            _ => items.push(item.to_owned()),
        }
        if items.len() > MAX_NAMES {
            return Err(format!("`[{inner}]` stands for more than {MAX_NAMES} names"));
        }
    }
    Ok(items)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn range(first: &str, last: &str, items: &mut Vec<String>) -> Result<(), String> {
    let number = |text: &str| {
        text.parse::<usize>()
            .map_err(|_| format!("{text} is too large a number"))
    };
    let (from, to) = (number(first)?, number(last)?);
    if from > to {
        return Err(format!("the range {first}-{last} goes down"));
    }
    if to - from >= MAX_NAMES {
        return Err(format!(
            "the range {first}-{last} stands for more than {MAX_NAMES} names"
        ));
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
        let list = |text| expand(text).map(|names| names.join(" "));
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
            assert!(expand(text).is_err(), "{text}");
        }
    }
}
