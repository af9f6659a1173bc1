//! Compact names: `gpu-[001-032]` stands for 32 names, `r[1-4]*8` for four names, each eight times.

/// Maximum number of names of one pattern.
pub(crate) const MAX_NAMES: usize = 1 << 20;

/// Maximum size of the names of one pattern together, in bytes.
pub(crate) const MAX_TEXT: usize = 128 << 20;

/// Why a pattern cannot be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pattern stands for too many names.
    TooMany,
    /// The names of the pattern are larger than [`MAX_TEXT`] together.
    TooLong,
    /// The pattern is invalid. The reason is a sentence.
    Unreadable(String),
}

/// A list of names, in one text: a site has millions of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameList {
    text: String,
    /// Where each name ends in the text.
    ends: Vec<usize>,
}

impl NameList {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The size of the names together, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let begin = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[begin..end])
    }

    pub(crate) fn first(&self) -> Option<&str> {
        self.get(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.text[begin..*end])
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Adds a name that consists of these parts.
    fn push<'p>(&mut self, parts: impl IntoIterator<Item = &'p str>) -> Result<(), Fault> {
        self.text.extend(parts);
        if self.text.len() > MAX_TEXT {
            return Err(Fault::TooLong);
        }
        self.ends.push(self.text.len());
        Ok(())
    }

    /// Adds all names of another list.
    pub(crate) fn append(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        let before = self.text.len();
        self.text.push_str(&other.text);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }
}

/// Replaces a list by all names of a pattern in order, at most `most`. The list's memory is used again.
///
/// Brackets hold comma-separated items. An item is a word or a range of numbers. The numbers have leading zeros if the
/// first number has some. With several brackets, the last varies fastest. `*N` at the end repeats each name N times.
///
/// # Errors
/// The pattern is invalid, has more than `most` names, or its names have more than [`MAX_TEXT`] bytes. Time and memory
/// stay bounded by both limits.
pub(crate) fn expand_into(text: &str, most: usize, names: &mut NameList) -> Result<(), Fault> {
    names.clear();
    let (body, times) = repeats(text)?;
    let mut parts = parts(body, most)?;
    let count = parts
        .iter()
        .try_fold(times, |n, part| n.checked_mul(part.len()))
        .filter(|n| *n <= most)
        .ok_or(Fault::TooMany)?;
    names.text.reserve(body.len().saturating_mul(count).min(MAX_TEXT));
    names.ends.reserve(count);
    loop {
        for _ in 0..times {
            names.push(parts.iter().map(Part::text))?;
        }
        if !parts.iter_mut().rev().any(Part::advance) {
            return Ok(());
        }
    }
}

/// The names of a pattern in a new list.
#[cfg(test)]
pub(crate) fn expand(text: &str, most: usize) -> Result<NameList, Fault> {
    let mut names = NameList::default();
    expand_into(text, most, &mut names)?;
    Ok(names)
}

/// A part of a pattern, at its present text.
enum Part<'a> {
    Literal(&'a str),
    Choice(Choice<'a>),
}

impl Part<'_> {
    /// The number of texts.
    fn len(&self) -> usize {
        match self {
            Self::Literal(_) => 1,
            Self::Choice(choice) => choice.len,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Literal(literal) => literal,
            Self::Choice(choice) => &choice.text,
        }
    }

    /// Goes on to the next text. False: the part is at its first text again.
    fn advance(&mut self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Choice(choice) => choice.advance(),
        }
    }
}

/// The items of a bracket, at their present text.
struct Choice<'a> {
    /// The first text of each item, and the number of its texts.
    items: Vec<(&'a str, usize)>,
    /// Number of texts of all items.
    len: usize,
    /// The present item.
    at: usize,
    /// Number of further texts of the present item.
    left: usize,
    text: String,
}

impl Choice<'_> {
    fn advance(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            count_up(&mut self.text);
            return true;
        }
        self.at = (self.at + 1) % self.items.len().max(1);
        self.begin();
        self.at > 0
    }

    /// Goes to the first text of the present item.
    fn begin(&mut self) {
        self.text.clear();
        if let Some((first, count)) = self.items.get(self.at) {
            self.left = count - 1;
            self.text.push_str(first);
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
        let choice = choice(inner, most / names)?;
        names *= choice.len;
        parts.push(Part::Literal(literal));
        parts.push(Part::Choice(choice));
        rest = after;
    }
    if rest.contains(']') {
        return Err(unreadable(format!("`{body}` has `]` without `[`")));
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

/// The items of one bracket: at least one text, at most `most`.
fn choice(inner: &str, most: usize) -> Result<Choice<'_>, Fault> {
    let (mut items, mut len) = (Vec::new(), 0_usize);
    for item in inner.split(',').map(str::trim) {
        if item.is_empty() || item.contains('[') {
            return Err(unreadable(format!(
                "`[{inner}]` is not a list of numbers, ranges or words"
            )));
        }
        let (first, count) = match item.split_once('-') {
            Some((first, last)) if is_number(first) && is_number(last) => (first, range(first, last)?),
            _ => (item, 1),
        };
        len = len.saturating_add(count);
        if len > most {
            return Err(Fault::TooMany);
        }
        items.push((first, count));
    }
    let (at, left, text) = (0, 0, String::new());
    let mut choice = Choice {
        items,
        len,
        at,
        left,
        text,
    };
    choice.begin();
    Ok(choice)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The number of numbers in a range.
fn range(first: &str, last: &str) -> Result<usize, Fault> {
    let number = |text: &str| {
        text.parse::<usize>()
            .map_err(|_| unreadable(format!("the number {text} is too large")))
    };
    let (from, to) = (number(first)?, number(last)?);
    if from > to {
        return Err(unreadable(format!("the range {first}-{last} must go up")));
    }
    Ok((to - from).saturating_add(1))
}

/// Adds one to a decimal number. Leading zeros stay, so numbers have at least as many digits as the first one.
fn count_up(digits: &mut String) {
    let mut nines = 0;
    let raised = loop {
        match digits.pop() {
            Some('9') => nines += 1,
            Some(digit) => break char::from(digit as u8 + 1),
            None => break '1',
        }
    };
    digits.push(raised);
    digits.extend(std::iter::repeat_n('0', nines));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_expanded() {
        let list = |text| expand(text, 100).map(|names| names.iter().collect::<Vec<_>>().join(" "));
        assert_eq!(list("gpu-[008-011]").unwrap(), "gpu-008 gpu-009 gpu-010 gpu-011");
        assert_eq!(list("[1,3,7-8]").unwrap(), "1 3 7 8");
        assert_eq!(list("l[1-2]-r[0-1]").unwrap(), "l1-r0 l1-r1 l2-r0 l2-r1");
        assert_eq!(list("r[1-2]*3").unwrap(), "r1 r1 r1 r2 r2 r2");
        assert_eq!(list("pdu-[a,b]").unwrap(), "pdu-a pdu-b");
        assert_eq!(list("plain").unwrap(), "plain");
        assert_eq!(list("x*2").unwrap(), "x x");
        assert_eq!(list("[8-11]").unwrap(), "8 9 10 11");
        assert_eq!(list("n[098-101]").unwrap(), "n098 n099 n100 n101");
        assert_eq!(list("n[09-10]").unwrap(), "n09 n10");
        assert_eq!(list("[0-1][99-100]").unwrap(), "099 0100 199 1100");
    }

    #[test]
    fn names_are_found_by_their_position() {
        let mut names = expand("a[9-10]", 100).unwrap();
        assert_eq!(
            (names.get(0), names.get(1), names.get(2)),
            (Some("a9"), Some("a10"), None)
        );
        names.append(&expand("", 100).unwrap());
        names.append(&expand("b*2", 100).unwrap());
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a9", "a10", "", "b", "b"]);
        assert_eq!((names.len(), names.first()), (5, Some("a9")));
        assert!(NameList::default().is_empty());
    }

    #[test]
    fn long_names_take_no_more_memory_than_they_may() {
        let long = "x".repeat(1 << 20);
        for text in [
            format!("{long}[1-1000]"),
            format!("{long}*1000"),
            format!("[{long},{long}]*1000"),
        ] {
            assert_eq!(expand(&text, MAX_NAMES), Err(Fault::TooLong));
        }
        assert_eq!(expand(&format!("{long}[1-9]"), MAX_NAMES).unwrap().len(), 9);
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
