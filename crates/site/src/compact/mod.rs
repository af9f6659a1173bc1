//! Compact notation: items that follow each other regularly become one item.
//!
//! [`Folder`] takes the items of a section one by one, each with its fields, and gives them back in the same order, with
//! patterns for what changes: `gpu-1`, `gpu-2` and `gpu-3` become `gpu-[1-3]`. The site file with the patterns describes
//! the same objects in the same order as the one with single items. What has no order stays as it is.
//!
//! A number in a name is regular if it grows by a fixed step, from item to item or from group to group of equal size: four
//! nodes in each of three racks become one item with `rack: r[1-3]*4` and `unit: [1, 11, 21, 31]`. Memory is bounded,
//! whatever the number of items.

mod axis;
mod group;
#[cfg(test)]
mod tests;
mod text;

use std::borrow::Cow;

use self::axis::DIRECTIONS;
use self::group::{Group, Run};

/// A field of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// YAML that is the same for all items of a group.
    Same(String),
    /// The item's own name or label.
    Name(String),
    /// A text that several items may share, such as the name of a rack.
    Shared(String),
    /// A text in which `{name}` and `{rack}` stand for the item's own name and rack.
    Filled {
        /// The text of this item.
        text: String,
        /// The same with `{name}` and `{rack}`, see [`template`].
        template: String,
        /// Whether no two items may have the same text.
        is_own: bool,
    },
    /// A whole number.
    Number(u32),
    /// A GUID. 0 is invalid and stays as it is.
    Guid(u64),
}

/// A field with the beginning of its line, such as `- name: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// What is before the value, with spaces.
    pub lead: Cow<'static, str>,
    pub value: Value,
}

impl Field {
    /// A field of one line.
    #[must_use]
    pub fn new(lead: impl Into<Cow<'static, str>>, value: Value) -> Self {
        Self {
            lead: lead.into(),
            value,
        }
    }
}

/// An item of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<T> {
    /// Comments above the item. Their numbers become ranges like those of names.
    pub comments: Vec<String>,
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// What else the items of a group have in common.
    pub tag: T,
}

/// An item to write, for one row or for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item<T> {
    /// Comments above the item.
    pub comments: Vec<String>,
    /// The beginning of each line, and its value in YAML.
    pub lines: Vec<(Cow<'static, str>, String)>,
    /// Number of rows.
    pub count: usize,
    /// The tag of each of the rows.
    pub tag: T,
}

/// Joins the items of a section.
#[derive(Debug)]
pub struct Folder<T> {
    /// Each level joins the groups of the one before.
    levels: [Option<Run<T>>; DIRECTIONS],
}

impl<T> Default for Folder<T> {
    fn default() -> Self {
        Self {
            levels: [const { None }; DIRECTIONS],
        }
    }
}

impl<T: PartialEq> Folder<T> {
    /// Takes the next item of the section, and gives the items that no later one can join.
    pub fn push(&mut self, row: Row<T>, mut write: impl FnMut(Item<T>)) {
        self.pass(0, Group::of(row), &mut write);
    }

    /// Gives the remaining items.
    pub fn finish(mut self, mut write: impl FnMut(Item<T>)) {
        for level in 0..DIRECTIONS {
            if let Some(run) = self.levels.get_mut(level).and_then(Option::take) {
                self.pass(level + 1, run.close(), &mut write);
            }
        }
    }

    /// Gives a group to the levels from this one on. The last one writes it.
    fn pass(&mut self, from: usize, group: Group<T>, write: &mut impl FnMut(Item<T>)) {
        let mut group = group;
        for level in self.levels.iter_mut().skip(from) {
            let Some(run) = level else {
                *level = Some(Run::of(group));
                return;
            };
            let Some(next) = run.extend(group) else { return };
            group = std::mem::replace(run, Run::of(next)).close();
        }
        group.emit(write);
    }
}

/// The patterns of a list of names, in order, and how many names each pattern stands for.
#[must_use]
pub fn patterns<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<(String, usize)> {
    let mut folder = Folder::default();
    let mut patterns = Vec::new();
    let mut add = |item: Item<()>| {
        let of_item = item.lines.iter().map(|(_, yaml)| yaml.trim_matches('"').to_owned());
        patterns.extend(of_item.map(|pattern| (pattern, item.count)));
    };
    for name in names {
        let row = Row {
            comments: Vec::new(),
            fields: vec![Field::new("", Value::Name(name.to_owned()))],
            tag: (),
        };
        folder.push(row, &mut add);
    }
    folder.finish(&mut add);
    patterns
}

/// Replaces an item's own name and rack in a text by `{name}` and `{rack}`. Parts of longer words stay.
#[must_use]
pub fn template(text: &str, name: &str, rack: &str) -> String {
    if text.contains(['{', '}']) {
        return text.to_owned();
    }
    let text = replaced(text, name, "{name}");
    match text.split_once("{name}") {
        Some((before, after)) => format!("{}{{name}}{}", replaced(before, rack, "{rack}"), after),
        None => replaced(&text, rack, "{rack}"),
    }
}

/// Replaces the first occurrence of a word.
fn replaced(text: &str, word: &str, by: &str) -> String {
    let is_apart = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(word)).map(|at| from + at) {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        if !word.is_empty() && is_apart(before.chars().next_back()) && is_apart(after.chars().next()) {
            return format!("{before}{by}{after}");
        }
        from = at + text[at..].chars().next().map_or(1, char::len_utf8);
    }
    text.to_owned()
}
