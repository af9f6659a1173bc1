//! All objects of one kind during the reading of a site: their names and source entries.

use super::fields::Entry;
use super::names::{NO_PLACEHOLDERS, shown};
use super::suggestion::nearest;
use crate::finding::Sink;
use crate::model::Ids;

/// Stands for an object that could not be found.
pub(crate) const NONE: u32 = u32::MAX;

/// Maximum number of objects of one kind.
pub(super) const MAX_ITEMS: usize = 1 << 23;

#[derive(Debug)]
pub(crate) struct Table {
    /// The kind with its article, such as `a rack`.
    what: &'static str,
    ids: Ids,
    names: Vec<Box<str>>,
    entries: Vec<Entry>,
    /// The source entry of each object.
    from: Vec<u32>,
    /// Some names could not be read, so an unknown name gives no finding.
    pub(crate) lost: bool,
}

impl Table {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            ids: Ids::default(),
            names: Vec::new(),
            entries: Vec::new(),
            from: Vec::new(),
            lost: false,
        }
    }

    /// Adds an entry and returns its number.
    pub(crate) fn enter(&mut self, entry: Entry) -> usize {
        self.entries.push(entry);
        self.entries.len() - 1
    }

    /// Adds a named object from an entry. Returns false and adds a finding if the name is taken.
    pub(crate) fn add(&mut self, sink: &mut Sink, entry: usize, name: &str) -> bool {
        if let Some(first) = self.ids.get(name) {
            let place = sink.place(self.entry(*first).spot("name"));
            let what = format!("{} named {name} exists already, at {place}", self.what);
            self.entries[entry].error(sink, "name", what, "rename one of them");
            return false;
        }
        if self.names.len() >= MAX_ITEMS {
            self.entries[entry].error(sink, "", "there are too many items", "");
            return false;
        }
        self.ids.insert(name.into(), self.names.len() as u32);
        self.names.push(name.into());
        self.from.push(entry as u32);
        true
    }

    /// Adds an object without a valid name, which only takes a number.
    pub(crate) fn unnamed(&mut self) {
        self.names.push(Box::default());
        self.from.push(NONE);
    }

    /// The id of a name in a field of an entry, or `NONE` with a finding.
    pub(crate) fn find(&self, sink: &mut Sink, entry: &Entry, field: &str, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        if !self.lost {
            let fix = self.suggest(sink, name);
            let what = format!("there is no {} named `{}`", self.noun(), shown(name));
            entry.error(sink, field, what, fix);
        }
        NONE
    }

    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// As [`Self::get`]. Names in patterns often follow one another as objects do: `last` is the id that was found before.
    pub(crate) fn get_near(&self, name: &str, last: u32) -> Option<u32> {
        let is_it = |id: &u32| self.names.get(*id as usize).is_some_and(|other| **other == *name);
        let near = [last, last.wrapping_add(1)].into_iter().find(is_it);
        near.filter(|_| !name.is_empty()).or_else(|| self.get(name))
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The suggestion "did you mean ...?".
    fn suggest(&self, sink: &mut Sink, name: &str) -> String {
        if name.contains('{') {
            return NO_PLACEHOLDERS.to_owned();
        }
        match sink.may_search().then(|| nearest(name, self.names())).flatten() {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None if self.names.is_empty() => format!("the file describes no {}", self.noun()),
            None => format!("describe it, or name {} that exists", self.what),
        }
    }

    fn noun(&self) -> &'static str {
        self.what.split_once(' ').map_or(self.what, |(_, noun)| noun)
    }

    /// The source entry of an object.
    pub(crate) fn entry(&self, id: u32) -> &Entry {
        &self.entries[self.from[id as usize] as usize]
    }

    pub(crate) fn entry_at(&self, entry: usize) -> &Entry {
        &self.entries[entry]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Renumbers the objects: the new id is `new[id]`.
    pub(crate) fn renumber(&mut self, new: &[u32]) {
        self.ids.values_mut().for_each(|id| *id = new[*id as usize]);
        let old_names = std::mem::take(&mut self.names);
        let old_from = self.from.clone();
        self.names = vec![Box::default(); old_names.len()];
        for (old, name) in old_names.into_iter().enumerate() {
            let new = new[old] as usize;
            self.names[new] = name;
            self.from[new] = old_from[old];
        }
    }

    pub(crate) fn into_ids(self) -> Ids {
        self.ids
    }

    /// The ids by name, and the source entries.
    pub(crate) fn into_parts(self) -> (Ids, Origins) {
        let (entries, from) = (self.entries, self.from);
        (self.ids, Origins { entries, from })
    }
}

/// The source entry of each object of one kind.
#[derive(Debug)]
pub(crate) struct Origins {
    entries: Vec<Entry>,
    from: Vec<u32>,
}

impl Origins {
    pub(crate) fn of(&self, id: u32) -> Option<&Entry> {
        let entry = *self.from.get(id as usize)?;
        self.entries.get(entry as usize)
    }
}
