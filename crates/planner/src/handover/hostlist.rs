//! Slurm's compact form of a list of names: `gpu-[001-032,040],login1`.

use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of digits to compress. Slurm stores the numbers in 32 bits.
const MAX_DIGITS: usize = 9;

/// Compresses names into Slurm's form, without duplicates. Empty if there are no names. A name must not contain `[`,
/// `]`, `,` or white space.
///
/// The last number of a name is compressed. `[099-101]` uses the number of digits of its first number. Names with and
/// without leading zeros share a range only if that gives the same names.
#[must_use]
pub fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut numbered: BTreeMap<&str, BTreeSet<(u32, usize)>> = BTreeMap::new();
    let mut plain: BTreeSet<&str> = BTreeSet::new();
    for name in names {
        match split(name) {
            Some((prefix, number, digits)) => _ = numbered.entry(prefix).or_default().insert((number, digits)),
            None => _ = plain.insert(name),
        }
    }
    let mut parts: Vec<(&str, String)> = plain.into_iter().map(|name| (name, name.to_owned())).collect();
    parts.extend(
        numbered
            .iter()
            .map(|(prefix, numbers)| (*prefix, short(prefix, numbers))),
    );
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

/// A sort key that puts `gpu-2` before `gpu-10`.
pub(super) fn natural(name: &str) -> (&str, u32, &str) {
    split(name).map_or((name, 0, name), |(prefix, number, _)| (prefix, number, name))
}

/// Splits a name into its prefix, the number at its end, and the number of digits. A name of digits only is not split,
/// because a list must not begin with a bracket.
fn split(name: &str) -> Option<(&str, u32, usize)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = name.get(prefix.len()..)?;
    if prefix.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    Some((prefix, digits.parse().ok()?, digits.len()))
}

/// Such as `gpu-[001-032,040]`: numbers with one prefix, each with its number of digits.
fn short(prefix: &str, numbers: &BTreeSet<(u32, usize)>) -> String {
    let mut ranges: Vec<(u32, u32, usize)> = Vec::new();
    for (number, digits) in numbers.iter().copied() {
        match ranges.last_mut() {
            Some((_, last, width))
                if last.checked_add(1) == Some(number) && digits_of(number).max(*width) == digits =>
            {
                *last = number;
            }
            _ => ranges.push((number, number, digits)),
        }
    }
    let words: Vec<String> = ranges
        .iter()
        .map(|(first, last, width)| match first == last {
            true => format!("{first:0width$}"),
            false => format!("{first:0width$}-{last:0width$}"),
        })
        .collect();
    match ranges.as_slice() {
        [(first, last, _)] if first == last => format!("{prefix}{}", words[0]),
        _ => format!("{prefix}[{}]", words.join(",")),
    }
}

/// Number of digits without leading zeros.
fn digits_of(number: u32) -> usize {
    number.max(1).ilog10() as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_as_slurm_reads_them() {
        for (names, short) in [
            (&["gpu-1"][..], "gpu-1"),
            (&["gpu-001", "gpu-002", "gpu-003"], "gpu-[001-003]"),
            (&["gpu-099", "gpu-100", "gpu-101"], "gpu-[099-101]"),
            (&["gpu-8", "gpu-9", "gpu-10"], "gpu-[8-10]"),
            (&["gpu-9", "gpu-010"], "gpu-[9,010]"),
            (&["gpu-1", "gpu-01"], "gpu-[1,01]"),
            (&["b2", "a1", "a3", "a2", "login", "a2"], "a[1-3],b2,login"),
            (&["7", "8"], "7,8"),
            (&["n12345678901"], "n12345678901"),
            (&["n999999999", "n1000000000"], "n999999999,n1000000000"),
            (&["r1-n1", "r2-n1", "r1-n2"], "r1-n[1-2],r2-n1"),
            (&["n0", "n00", "n1"], "n[0,00,1]"),
            (&[], ""),
        ] {
            assert_eq!(compress(names.iter().copied()), short);
        }
    }
}
