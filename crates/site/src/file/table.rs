//! All objects of one kind during the reading of a site: their names and source entries.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::fields::Entry;
use super::names::{NO_PLACEHOLDERS, shown};
use super::suggestion::nearest;
use crate::finding::Sink;

/// Stands for an object that could not be found.
pub(crate) const NONE: u32 = u32::MAX;

/// Maximum number of objects of one kind.
pub(super) const MAX_ITEMS: usize = 1 << 23;

#[derive(Debug)]
pub(crate) struct Table {
    /// The kind with its article, such as `a rack`.
    what: &'static str,
    ids: HashMap<Box<str>, u32>,
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
            ids: HashMap::new(),
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

    pub(crate) fn into_ids(self) -> HashMap<Box<str>, u32> {
        self.ids
    }

    /// The ids by name, and the source entries.
    pub(crate) fn into_parts(self) -> (HashMap<Box<str>, u32>, Origins) {
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

/// The positions of names in a list that holds the names. It takes a few bytes for each, unlike a map with names of its
/// own.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    /// Positions, each at or after the place that its tag gives. The length is a power of two.
    slots: Vec<Slot>,
    used: usize,
    hasher: RandomState,
}

/// The position of a name. The tag is the lower half of the name's hash: names with different tags need no comparison, and
/// a wider table needs no names.
#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u32,
    /// `NONE`: the slot is free.
    position: u32,
}

const FREE: Slot = Slot { tag: 0, position: NONE };

impl NameIndex {
    /// Adds the position of a name. If the name has a position already, returns it and adds nothing. `name_at` is the
    /// name at a position.
    pub(crate) fn add<'n>(&mut self, name: &str, position: u32, name_at: impl Fn(u32) -> &'n str) -> Option<u32> {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let wider = vec![FREE; (self.slots.len() * 2).max(16)];
            let before = std::mem::replace(&mut self.slots, wider);
            for known in before.into_iter().filter(|known| known.position != NONE) {
                let place = self.place(known.tag, |_| false);
                self.slots[place] = known;
            }
        }
        let tag = self.hasher.hash_one(name) as u32;
        let place = self.place(tag, |known| name_at(known) == name);
        match self.slots[place].position {
            NONE => {
                self.slots[place] = Slot { tag, position };
                self.used += 1;
                None
            }
            known => Some(known),
        }
    }

    /// The place of a name with this tag: that of its position, or the free place for it. At least one place is free.
    fn place(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> usize {
        let last = self.slots.len() - 1;
        let mut place = tag as usize & last;
        while self.slots[place].position != NONE && !(self.slots[place].tag == tag && is_it(self.slots[place].position))
        {
            place = (place + 1) & last;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::NameIndex;

    #[test]
    fn each_name_has_the_position_that_it_was_added_with() {
        let names: Vec<String> = (0..1000).map(|number| format!("c{number}")).collect();
        let name_at = |position: u32| names[position as usize].as_str();
        let mut index = NameIndex::default();
        for (position, name) in (0..).zip(&names) {
            assert_eq!(index.add(name, position, name_at), None, "{name}");
            assert_eq!(index.add(name, 7, name_at), Some(position), "{name}");
        }
        for (position, name) in (0..).zip(&names) {
            assert_eq!(index.add(name, 7, name_at), Some(position), "{name}");
        }
    }
}
