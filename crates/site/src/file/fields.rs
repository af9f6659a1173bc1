//! Reads the fields of one mapping one by one. Unread fields are unknown, and every finding names the place.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use rackwright_yaml::{Key, Tree, Value};

use super::names;
use super::pattern::{self, Fault, NameList};
use super::quantity::{self, Unit};
use super::suggestion::nearest;
use crate::finding::{Sink, Spot};

/// The places of an item's fields, kept after the item is read.
#[derive(Debug)]
pub(crate) struct Entry {
    path: Box<str>,
    at: Spot,
    spots: Vec<(Cow<'static, str>, Spot)>,
}

impl Entry {
    /// The place of a field, or of the item if it has no such field.
    pub(crate) fn spot(&self, field: &str) -> Spot {
        self.spots
            .iter()
            .find(|(name, _)| name == field)
            .map_or(self.at, |(_, at)| *at)
    }

    pub(crate) fn path(&self, field: &str) -> String {
        join(&self.path, field)
    }

    pub(crate) fn error(&self, sink: &mut Sink, field: &str, what: impl Into<String>, fix: impl Into<String>) {
        sink.error(self.spot(field), self.path(field), what, fix);
    }

    pub(crate) fn warning(&self, sink: &mut Sink, field: &str, what: impl Into<String>, fix: impl Into<String>) {
        sink.warning(self.spot(field), self.path(field), what, fix);
    }
}

fn join(path: &str, field: &str) -> String {
    match (path, field) {
        ("", field) => field.to_owned(),
        (path, "") => path.to_owned(),
        (path, field) => format!("{path}.{field}"),
    }
}

/// Values for the items of one entry. Item `i` gets value `i`, and the values repeat when they run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cycle<T>(Vec<T>);

impl<T> From<Vec<T>> for Cycle<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T> Cycle<T> {
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn get(&self, i: usize) -> Option<&T> {
        self.0.get(i.checked_rem(self.0.len())?)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

/// Names for the items of one entry, which repeat as in [`Cycle`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameCycle(NameList);

impl NameCycle {
    pub(crate) fn get(&self, i: usize) -> Option<&str> {
        self.0.get(i.checked_rem(self.0.len())?)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter()
    }
}

fn common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor.max(1) * b
}

/// One mapping during its reading.
pub(crate) struct Fields<'t, 's> {
    pub(crate) sink: &'s mut Sink,
    path: String,
    at: Spot,
    pairs: &'t [(Key, Tree)],
    taken: Vec<bool>,
    known: Vec<&'static str>,
    missing: Vec<(&'static str, String, String)>,
    spots: Vec<(Cow<'static, str>, Spot)>,
    /// Number of items of the entry. 0: the names are not read.
    items: usize,
    /// The present turn of [`Self::turns`]. `None`: a field has one value for all items.
    turn: Option<usize>,
    /// Number of turns after which all lists of values repeat. It divides the number of items.
    period: usize,
}

impl<'t, 's> Fields<'t, 's> {
    /// Starts to read a mapping. `None`: the value is not a mapping, which adds a finding.
    pub(crate) fn of(tree: &'t Tree, path: String, sink: &'s mut Sink) -> Option<Self> {
        match &tree.value {
            Value::Map(pairs) => Some(Self {
                at: pairs.first().map_or(tree.at, |(key, _)| key.at),
                taken: vec![false; pairs.len()],
                sink,
                path,
                pairs,
                known: Vec::new(),
                missing: Vec::new(),
                spots: Vec::with_capacity(pairs.len()),
                items: 0,
                turn: None,
                period: 1,
            }),
            Value::Broken => None,
            _ => {
                sink.error(tree.at, path, "this must be a mapping", "write `name: value` lines");
                None
            }
        }
    }

    /// The value of a field. `None`: the field is missing or empty.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<&'t Tree> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let mut found: Option<&'t (Key, Tree)> = None;
        for (i, pair) in self.pairs.iter().enumerate() {
            if *pair.0.name != *name {
                continue;
            }
            self.taken[i] = true;
            if found.is_some() {
                let path = join(&self.path, name);
                self.sink.error(
                    pair.0.at,
                    path,
                    format!("`{name}` is given twice"),
                    "remove one of them",
                );
            } else {
                found = Some(pair);
            }
        }
        let (_, tree) = found?;
        if self.is_first_turn() {
            self.spots.push((Cow::Borrowed(name), tree.at));
        }
        (tree.value != Value::Null).then_some(tree)
    }

    /// Like [`Self::take`], with a finding if the field is missing.
    pub(crate) fn need(&mut self, name: &'static str) -> Option<&'t Tree> {
        let tree = self.take(name);
        if tree.is_none() {
            self.lacks(name, format!("`{name}` is missing"), format!("add `{name}:`"));
        }
        tree
    }

    /// Adds a finding, unless an unknown field turns out to be a misspelling of this one.
    pub(crate) fn lacks(&mut self, name: &'static str, what: impl Into<String>, fix: impl Into<String>) {
        if self.is_first_turn() {
            self.missing.push((name, what.into(), fix.into()));
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.pairs
            .iter()
            .any(|(key, tree)| *key.name == *name && tree.value != Value::Null)
    }

    /// The text of a field as the file has it. Empty if the field is missing or no text.
    pub(crate) fn written(&self, field: &str) -> &'t str {
        let mut pairs = self.pairs.iter().filter(|(key, _)| *key.name == *field);
        match pairs.next() {
            Some((
                _,
                Tree {
                    value: Value::Text(text),
                    ..
                },
            )) => text,
            _ => "",
        }
    }

    pub(crate) fn error(&mut self, field: &str, what: impl Into<String>, fix: impl Into<String>) {
        let at = self
            .spots
            .iter()
            .find(|(name, _)| name == field)
            .map_or(self.at, |(_, at)| *at);
        self.sink.error(at, join(&self.path, field), what, fix);
    }

    /// Remembers the place of a part of a field and returns its path.
    pub(crate) fn part(&mut self, field: &str, at: Spot) -> String {
        if self.is_first_turn() {
            self.spots.push((Cow::Owned(field.to_owned()), at));
        }
        join(&self.path, field)
    }

    fn is_first_turn(&self) -> bool {
        matches!(self.turn, None | Some(0))
    }

    /// What `read` gives for each item of the entry. In `read`, a field with a list of values has the value of one item.
    /// `read` is called until all lists repeat.
    pub(crate) fn turns<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> Cycle<T> {
        let mut all = Vec::new();
        while all.is_empty() || all.len() < self.period {
            self.turn = Some(all.len());
            all.push(read(self));
        }
        self.turn = None;
        Cycle(all)
    }

    /// The value of a field for the item of this turn.
    fn value(&mut self, name: &str, tree: &'t Tree) -> &'t Tree {
        let (Value::List(values), Some(turn)) = (&tree.value, self.turn) else {
            return tree;
        };
        if values.is_empty() || self.items == 1 {
            return tree;
        }
        if self.distributes(name, values.len(), self.items) && self.items > 0 {
            self.period = common_multiple(self.period, values.len());
        }
        &values[turn % values.len()]
    }

    fn scalar(&mut self, name: &str, tree: &'t Tree) -> Option<&'t str> {
        match &tree.value {
            Value::Text(text) => Some(text),
            Value::Null => Some(""),
            Value::Broken => None,
            Value::List(_) | Value::Map(_) => {
                self.sink
                    .error(tree.at, join(&self.path, name), "this must be a single value", "");
                None
            }
        }
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<&'t str> {
        let tree = self.take(name)?;
        let tree = self.value(name, tree);
        self.scalar(name, tree)
    }

    pub(crate) fn need_text(&mut self, name: &'static str) -> Option<&'t str> {
        let tree = self.need(name)?;
        let tree = self.value(name, tree);
        self.scalar(name, tree)
    }

    /// `None` if the field is missing, NaN if it is invalid. No comparison with NaN is true.
    pub(crate) fn number(&mut self, name: &'static str, unit: Unit, range: RangeInclusive<f64>) -> Option<f64> {
        let tree = self.take(name)?;
        Some(self.number_in(name, tree, unit, &range))
    }

    /// NaN if the field is missing or invalid.
    pub(crate) fn need_number(&mut self, name: &'static str, unit: Unit, range: RangeInclusive<f64>) -> f64 {
        match self.need(name) {
            Some(tree) => self.number_in(name, tree, unit, &range),
            None => f64::NAN,
        }
    }

    fn number_in(&mut self, name: &str, tree: &'t Tree, unit: Unit, range: &RangeInclusive<f64>) -> f64 {
        let tree = self.value(name, tree);
        let Some(text) = self.scalar(name, tree) else {
            return f64::NAN;
        };
        let (what, fix) = match quantity::parse(text, unit) {
            Ok(quantity) if range.contains(&quantity.value) => {
                if let Some(spelling) = quantity.spelling {
                    let path = join(&self.path, name);
                    let what = format!("`{text}` is read as {spelling}");
                    self.sink.warning(tree.at, path, what, format!("write `{spelling}`"));
                }
                return quantity.value;
            }
            Ok(_) => {
                let (from, to) = (unit.number(*range.start()), unit.number(*range.end()));
                (
                    format!("`{text}` is out of range"),
                    format!("write a number from {from} to {to}"),
                )
            }
            Err(fault) => fault,
        };
        self.sink.error(tree.at, join(&self.path, name), what, fix);
        f64::NAN
    }

    pub(crate) fn integer(&mut self, name: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let tree = self.take(name)?;
        let tree = self.value(name, tree);
        self.integer_in(name, tree, &range)
    }

    pub(crate) fn need_integer(&mut self, name: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let tree = self.need(name)?;
        let tree = self.value(name, tree);
        self.integer_in(name, tree, &range)
    }

    pub(crate) fn integer_in(&mut self, name: &str, tree: &'t Tree, range: &RangeInclusive<u32>) -> Option<u32> {
        let text = self.scalar(name, tree)?;
        let (from, to) = (range.start(), range.end());
        let what = match text.parse::<u32>() {
            Ok(value) if range.contains(&value) => return Some(value),
            Ok(_) => format!("`{text}` is out of range"),
            Err(_) => format!("`{text}` is not a whole number"),
        };
        let fix = format!("write a whole number from {from} to {to}");
        self.sink.error(tree.at, join(&self.path, name), what, fix);
        None
    }

    /// A number for each item of the entry: a single value, or a list that repeats.
    pub(crate) fn integers(&mut self, name: &'static str, range: RangeInclusive<u32>) -> Cycle<u32> {
        let trees: &[Tree] = match self.take(name) {
            None => &[],
            Some(Tree {
                value: Value::List(items),
                ..
            }) => items,
            Some(tree) => std::slice::from_ref(tree),
        };
        let numbers: Option<Vec<u32>> = trees.iter().map(|tree| self.integer_in(name, tree, &range)).collect();
        Cycle(numbers.unwrap_or_default())
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Option<bool> {
        let text = self.text(name)?;
        match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.error(
                    name,
                    format!("`{text}` is neither true nor false"),
                    "write true or false",
                );
                None
            }
        }
    }

    /// One of the given words.
    pub(crate) fn choice<T: Copy>(&mut self, name: &'static str, all: &[T], word: fn(T) -> &'static str) -> Option<T> {
        let text = self.text(name)?;
        self.one_of(name, text, all, word)
    }

    pub(crate) fn need_choice<T: Copy>(
        &mut self,
        name: &'static str,
        all: &[T],
        word: fn(T) -> &'static str,
    ) -> Option<T> {
        let text = self.need_text(name)?;
        self.one_of(name, text, all, word)
    }

    /// Like [`Self::choice`]. False: a value is given, but is not known.
    pub(crate) fn choice_or<T: Copy>(
        &mut self,
        name: &'static str,
        all: &[T],
        word: fn(T) -> &'static str,
        usual: T,
    ) -> (T, bool) {
        let is_given = self.has(name);
        match self.choice(name, all, word) {
            Some(value) => (value, true),
            None => (usual, !is_given),
        }
    }

    fn one_of<T: Copy>(&mut self, name: &str, text: &str, all: &[T], word: fn(T) -> &'static str) -> Option<T> {
        let found = all.iter().find(|one| word(**one) == text).copied();
        if found.is_none() {
            let words: Vec<&str> = all.iter().map(|one| word(*one)).collect();
            let fix = match nearest(text, words.iter().copied()) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => format!("write one of {}", words.join(", ")),
            };
            self.error(name, format!("`{text}` is not a known value"), fix);
        }
        found
    }

    /// The names of the entry's items. Empty if they are missing or invalid.
    pub(crate) fn own_names(&mut self, name: &'static str) -> NameList {
        let mut names = NameList::default();
        self.own_names_into(name, &mut names);
        names
    }

    /// As [`Self::own_names`], into a list whose former names go.
    pub(crate) fn own_names_into(&mut self, name: &'static str, names: &mut NameList) {
        names.clear();
        let Some(text) = self.need_text(name) else { return };
        self.expand_into(name, text, names);
        if self.are_names(name, names.iter()) {
            self.items = names.len();
        } else {
            names.clear();
        }
    }

    /// Whether all texts of a field are names. Adds a finding if not.
    pub(crate) fn are_names<'n>(&mut self, field: &str, texts: impl IntoIterator<Item = &'n str>) -> bool {
        let fault = texts.into_iter().find_map(names::fault);
        match fault {
            Some(what) => {
                self.error(field, what, names::FIX);
                false
            }
            None => true,
        }
    }

    /// The names of a pattern, into a list whose former names go. Empty if the pattern is invalid.
    fn expand_into(&mut self, field: &str, text: &str, names: &mut NameList) {
        names.clear();
        let Some(left) = self.sink.names_left() else { return };
        let (what, fix) = match pattern::expand_into(text, left.min(pattern::MAX_NAMES), names) {
            Ok(()) => {
                self.sink.take_names(Some(names.len()));
                return;
            }
            Err(Fault::Unreadable(why)) => (why, "patterns look like gpu-[001-032] or rack-[1-4]*8".to_owned()),
            Err(Fault::TooLong) => (
                format!(
                    "`{text:.80}` gives names of more than {} MiB together",
                    pattern::MAX_TEXT >> 20
                ),
                "write shorter names, or correct the numbers of the pattern".to_owned(),
            ),
            Err(Fault::TooMany) if left < pattern::MAX_NAMES => {
                self.sink.take_names(None);
                let all = self.sink.limits().names;
                (
                    format!("with `{text:.80}`, the patterns of this site give more than {all} names"),
                    "look for a pattern that gives too many names".to_owned(),
                )
            }
            Err(Fault::TooMany) => (
                format!("`{text:.80}` gives more than {} names", pattern::MAX_NAMES),
                "divide this pattern into several, or correct its numbers".to_owned(),
            ),
        };
        names.clear();
        self.error(field, what, fix);
    }

    /// Names of other objects, as one pattern or a list of patterns.
    pub(crate) fn names(&mut self, name: &'static str) -> NameCycle {
        match self.take(name) {
            Some(tree) => self.names_in(name, tree),
            None => NameCycle::default(),
        }
    }

    pub(crate) fn need_names(&mut self, name: &'static str) -> NameCycle {
        let mut names = NameCycle::default();
        self.need_names_into(name, &mut names);
        names
    }

    /// As [`Self::need_names`], into a list whose former names go.
    pub(crate) fn need_names_into(&mut self, name: &'static str, names: &mut NameCycle) {
        names.0.clear();
        if let Some(tree) = self.need(name) {
            self.names_in_into(name, tree, &mut names.0);
        }
    }

    pub(crate) fn names_in(&mut self, name: &str, tree: &'t Tree) -> NameCycle {
        let mut names = NameList::default();
        self.names_in_into(name, tree, &mut names);
        NameCycle(names)
    }

    fn names_in_into(&mut self, name: &str, tree: &'t Tree, all: &mut NameList) {
        let Value::List(trees) = &tree.value else {
            match self.scalar(name, tree) {
                Some(text) => self.expand_into(name, text, all),
                None => all.clear(),
            }
            return;
        };
        all.clear();
        let mut names = NameList::default();
        for tree in trees {
            names.clear();
            if let Some(text) = self.scalar(name, tree) {
                self.expand_into(name, text, &mut names);
            }
            if names.is_empty() {
                all.clear();
                return;
            }
            if all.len() + names.len() > pattern::MAX_NAMES || all.bytes() + names.bytes() > pattern::MAX_TEXT {
                let (most, mebibytes) = (pattern::MAX_NAMES, pattern::MAX_TEXT >> 20);
                let what =
                    format!("this list gives more than {most} names, or names of more than {mebibytes} MiB together");
                self.error(name, what, "give fewer names");
                all.clear();
                return;
            }
            all.append(&names);
        }
    }

    /// The texts of a field with placeholders. Empty if one of the placeholders does not exist, which adds a finding.
    pub(crate) fn with_placeholders(&mut self, field: &str, texts: NameCycle, has_rack: bool) -> NameCycle {
        let fault = texts.iter().find_map(|text| names::placeholder_fault(text, has_rack));
        match fault {
            Some((what, fix)) => {
                self.error(field, what, fix);
                NameCycle::default()
            }
            None => texts,
        }
    }

    /// Whether the values divide evenly among the items. Adds a finding if not.
    pub(crate) fn distributes(&mut self, field: &str, values: usize, items: usize) -> bool {
        let fits = values == 0 || items == 0 || items.is_multiple_of(values);
        if !fits {
            self.error(
                field,
                format!("{values} values cannot be distributed over {items} items"),
                format!("give 1 value, {items} values, or a number of values that divides {items}"),
            );
        }
        fits
    }

    /// A nested mapping such as `example`, with a finding if it is missing or is none.
    pub(crate) fn need_nested(&mut self, name: &'static str, example: &str) -> Option<Fields<'t, '_>> {
        let tree = self.need(name)?;
        if matches!(tree.value, Value::Text(_) | Value::List(_)) {
            self.error(name, "this must be a mapping", format!("write `{name}: {example}`"));
            return None;
        }
        Fields::of(tree, join(&self.path, name), self.sink)
    }

    /// A mapping inside a list of this mapping.
    pub(crate) fn nested_in(&mut self, path: &str, tree: &'t Tree) -> Option<Fields<'t, '_>> {
        Fields::of(tree, join(&self.path, path), self.sink)
    }

    /// The items of a list. Empty if it is missing or not a list.
    pub(crate) fn list(&mut self, name: &'static str) -> &'t [Tree] {
        match self.take(name) {
            None => &[],
            Some(tree) => self.list_in(name, tree),
        }
    }

    pub(crate) fn list_in(&mut self, name: &str, tree: &'t Tree) -> &'t [Tree] {
        match &tree.value {
            Value::List(items) => items,
            Value::Broken => &[],
            _ => {
                self.sink.error(
                    tree.at,
                    join(&self.path, name),
                    "this must be a list",
                    "write `- item` lines",
                );
                &[]
            }
        }
    }

    /// All pairs of a mapping with free keys. Duplicate keys add a finding.
    pub(crate) fn pairs(mut self) -> Vec<(&'t Key, &'t Tree)> {
        let mut pairs: Vec<(&Key, &Tree)> = Vec::new();
        let all = self.pairs;
        for (key, tree) in all {
            if pairs.iter().any(|(other, _)| other.name == key.name) {
                let what = format!("`{}` is given twice", key.name);
                let path = self.part(&key.name, key.at);
                self.sink.error(key.at, path, what, "remove one of them");
            } else {
                pairs.push((key, tree));
            }
        }
        pairs
    }

    /// [`Self::finish`], for callers that add more findings.
    pub(crate) fn finish_with_sink(mut self) -> (&'s mut Sink, Entry) {
        let entry = self.close();
        (self.sink, entry)
    }

    pub(crate) fn finish(mut self) -> Entry {
        self.close()
    }

    /// Adds findings for unknown and missing fields. A missing field and its misspelling give one finding.
    fn close(&mut self) -> Entry {
        let mut meant = Vec::new();
        for (i, (key, _)) in self.pairs.iter().enumerate() {
            if self.taken[i] {
                continue;
            }
            let open = self
                .known
                .iter()
                .filter(|name| !self.pairs.iter().any(|(key, _)| *key.name == ***name));
            let suggestion = nearest(&key.name, open.copied());
            let fix = match suggestion {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => format!("known fields are {}", self.known.join(", ")),
            };
            meant.extend(suggestion);
            let path = join(&self.path, &key.name);
            self.sink
                .error(key.at, path, format!("the field `{}` is unknown", key.name), fix);
        }
        for (name, what, fix) in std::mem::take(&mut self.missing) {
            if !meant.contains(&name) {
                self.sink.error(self.at, join(&self.path, name), what, fix);
            }
        }
        Entry {
            path: self.path.as_str().into(),
            at: self.at,
            spots: std::mem::take(&mut self.spots),
        }
    }
}
