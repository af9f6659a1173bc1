//! Names with numbers in them, and their patterns.

use std::fmt::Write as _;

use super::axis::{Axis, Cover, Grid, MAX_LIST};
use crate::file::MAX_PATTERN_NAMES;

/// The most digits of a number in a name. Longer ones are words.
const MAX_DIGITS: usize = 18;

/// What a text of an item may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A pattern that gives each item a name of its own.
    Own,
    /// A pattern that gives each item a text of its own, or one text with `{name}`.
    Each,
    /// A pattern. Its names repeat.
    Shared,
    /// Words for a reader, with patterns in them.
    Comment,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Word(Box<str>),
    /// A decimal number with at least this many digits.
    Number(Axis, usize),
    /// One ASCII letter.
    Letter(Axis),
}

/// A text and how it changes from item to item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    parts: Vec<Part>,
    rule: Rule,
    /// Whether the text contains `{name}`.
    is_named: bool,
}

impl Text {
    /// `None`: the text has characters that a pattern gives another meaning.
    pub(super) fn of(text: &str, rule: Rule) -> Option<Self> {
        if rule != Rule::Comment && text.contains(['[', ']', '*']) {
            return None;
        }
        Some(Self {
            parts: parts(text),
            rule,
            is_named: text.contains("{name}"),
        })
    }

    pub(super) fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.parts.iter().filter_map(|part| match part {
            Part::Word(_) => None,
            Part::Number(axis, _) | Part::Letter(axis) => Some(axis),
        })
    }

    pub(super) fn axes_mut(&mut self) -> impl Iterator<Item = &mut Axis> {
        self.parts.iter_mut().filter_map(|part| match part {
            Part::Word(_) => None,
            Part::Number(axis, _) | Part::Letter(axis) => Some(axis),
        })
    }

    /// Whether the texts differ only in their numbers and letters, and those change alike.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let like = |(a, b): (&Part, &Part)| match (a, b) {
            (Part::Word(a), Part::Word(b)) => a == b,
            (Part::Number(a, width), Part::Number(b, own)) => {
                a.is_like(b) && (width == own || number(b.first, *width) == number(b.first, *own))
            }
            (Part::Letter(a), Part::Letter(b)) => a.is_like(b),
            _ => false,
        };
        self.rule == other.rule
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(like)
    }

    /// Whether a pattern gives the texts of all items. `steps`: the steps along a new direction of the grid, by axis.
    pub(super) fn fits(&self, steps: &[i128], grid: &Grid) -> bool {
        let last = grid.directions().saturating_sub(1);
        let mut below: Option<Cover> = None;
        let mut top = None;
        for (axis, step) in self.axes().zip(steps) {
            let axis = axis.with(last, *step);
            if !axis.goes_up() {
                return false;
            }
            let Ok(cover) = axis.cover() else { return false };
            let Some(cover) = cover else { continue };
            let is_range = axis.even_step(cover, grid) == Some(1);
            if !is_range && cover.values(grid) > MAX_LIST {
                return false;
            }
            if self.rule == Rule::Comment {
                continue;
            }
            // The last bracket counts fastest.
            if below.is_some_and(|below| below.low != cover.high + 1) {
                return false;
            }
            below = Some(cover);
            top = top.or(Some(cover.high));
        }
        let is_full = below.is_some_and(|cover| cover.low == 0) && top == Some(last);
        let is_allowed = match self.rule {
            Rule::Own => is_full,
            Rule::Each => is_full || self.is_named,
            Rule::Shared | Rule::Comment => true,
        };
        is_allowed && grid.items() <= MAX_PATTERN_NAMES
    }

    /// Whether a number of the text does not go up by one.
    pub(super) fn leaps(&self, grid: &Grid) -> bool {
        self.axes().any(|axis| match axis.cover() {
            Ok(Some(cover)) => axis.even_step(cover, grid) != Some(1),
            Ok(None) => false,
            Err(_) => true,
        })
    }

    /// The pattern for all items of a grid that it fits.
    pub(super) fn pattern(&self, grid: &Grid) -> String {
        let mut out = String::new();
        let mut low = None;
        for part in &self.parts {
            let (axis, width) = match part {
                Part::Word(word) => {
                    out.push_str(word);
                    continue;
                }
                Part::Number(axis, width) => (axis, Some(*width)),
                Part::Letter(axis) => (axis, None),
            };
            let show = |value: i128| match width {
                Some(width) => number(value, width),
                None => letter(value),
            };
            match axis.cover() {
                Ok(Some(cover)) => {
                    low = Some(cover.low);
                    bracket(&mut out, axis, cover, grid, width.is_some(), show);
                }
                Ok(None) | Err(_) => out.push_str(&show(axis.first)),
            }
        }
        let times = low.map_or(1, |low| grid.product(0, low));
        if times > 1 && self.rule != Rule::Comment {
            // Writing to a string cannot fail.
            let _ = write!(out, "*{times}");
        }
        out
    }
}

/// Writes `[01-32]` or `[1,9,17,25]`.
fn bracket(out: &mut String, axis: &Axis, cover: Cover, grid: &Grid, is_number: bool, show: impl Fn(i128) -> String) {
    let count = cover.values(grid);
    if is_number && axis.even_step(cover, grid) == Some(1) {
        let last = axis.first + i128::try_from(count).unwrap_or(1) - 1;
        let _ = write!(out, "[{}-{}]", show(axis.first), show(last));
        return;
    }
    let values: Vec<String> = axis.values(cover, grid).into_iter().map(show).collect();
    let _ = write!(out, "[{}]", values.join(","));
}

fn number(value: i128, width: usize) -> String {
    format!("{value:0width$}")
}

fn letter(value: i128) -> String {
    let letter = u8::try_from(value).map_or('?', char::from);
    letter.to_string()
}

/// Splits a text into numbers, single letters and what is between them.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut word = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let taken = match (digits, letters) {
            (0, 0) => first.len_utf8(),
            (0, letters) => letters,
            (digits, _) => digits,
        };
        let (piece, after) = rest.split_at(taken);
        let part = match piece.as_bytes() {
            [one] if letters == 1 => Some(Part::Letter(Axis::new(i128::from(*one)))),
            _ if (1..=MAX_DIGITS).contains(&digits) => piece.parse().ok().map(|value| {
                // A range repeats the leading zeros of its first number.
                let width = if piece.starts_with('0') { digits } else { 0 };
                Part::Number(Axis::new(value), width)
            }),
            _ => None,
        };
        match part {
            Some(part) => {
                if !word.is_empty() {
                    parts.push(Part::Word(std::mem::take(&mut word).into()));
                }
                parts.push(part);
            }
            None => word.push_str(piece),
        }
        rest = after;
    }
    if !word.is_empty() {
        parts.push(Part::Word(word.into()));
    }
    parts
}
