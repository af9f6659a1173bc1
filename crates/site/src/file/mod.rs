//! The site file: reads YAML and returns a checked [`Site`] or all faults.
//!
//! Reading has three steps: text to a tree with places (`yaml`), the tree to fields (`fields`), the fields to the model
//! (one module per section). A fault invalidates only its own value. The reader continues with a substitute that passes
//! all later checks, so that one mistake gives one finding.

mod cooling;
mod customers;
mod fabric;
mod fields;
mod firmware;
mod limits;
mod nodes;
mod pattern;
mod power;
mod quantity;
mod rooms;
mod settings;
mod skus;
mod suggestion;
mod table;

use std::collections::HashSet;

use rackwright_yaml::{Tree, Value};

use self::fields::Fields;
use self::suggestion::nearest;
use self::table::Table;
pub use crate::finding::Limits;
use crate::finding::{Findings, Sink, Spot};
use crate::model::{Names, Plug, Site};

/// Maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Maximum size of all files together, in bytes.
pub const MAX_TOTAL_BYTES: usize = 256 << 20;

/// One file of a site.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file's name in findings.
    pub name: &'a str,
    /// The file's text.
    pub text: &'a str,
}

/// The result of a check.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The site. `None`: there are errors.
    pub site: Option<Site>,
    /// All findings.
    pub findings: Findings,
}

/// Sections of a document, in reading order: each refers only to earlier ones.
const SECTIONS: [&str; 12] = [
    "site",
    "rooms",
    "racks",
    "outlet_layouts",
    "power",
    "cooling_units",
    "cooling_loops",
    "skus",
    "nodes",
    "switches",
    "cables",
    "customers",
];

/// Reads the files of one site. The order of files, documents and sections affects only the order of ids.
#[must_use]
pub fn check(sources: &[Source<'_>]) -> Checked {
    check_within(sources, Limits::default())
}

/// Reads the files of one site as [`check`] does, within the caller's limits.
#[must_use]
pub fn check_within(sources: &[Source<'_>], limits: Limits) -> Checked {
    let mut sink = Sink::within(sources.iter().map(|source| source.name.into()).collect(), limits);
    let trees = read_trees(sources, &mut sink);
    let mut sections = Sections::default();
    for tree in &trees.documents {
        sections.collect(tree, &mut sink);
    }
    let mut draft = Draft::new(trees.whole, &sections);
    draft.site.name = site_name(&sections, &trees, &mut sink);
    rooms::read_rooms(&mut draft, &sections, &mut sink);
    rooms::read_racks(&mut draft, &sections, &mut sink);
    power::read(&mut draft, &sections, &mut sink);
    cooling::read_units(&mut draft, &sections, &mut sink);
    cooling::read_loops(&mut draft, &sections, &mut sink);
    skus::read(&mut draft, &sections, &mut sink);
    nodes::read(&mut draft, &sections, &mut sink);
    fabric::read_switches(&mut draft, &sections, &mut sink);
    fabric::read_cables(&mut draft, &sections, &mut sink);
    customers::read(&mut draft, &sections, &mut sink);
    limits::check(&draft, &mut sink);
    let site = (!sink.has_errors()).then(|| draft.finish());
    Checked {
        site,
        findings: sink.finish(),
    }
}

struct Trees {
    documents: Vec<Tree>,
    /// Whether all text could be read.
    whole: bool,
}

fn read_trees(sources: &[Source<'_>], sink: &mut Sink) -> Trees {
    let mut trees = Trees {
        documents: Vec::new(),
        whole: true,
    };
    let mut total = 0;
    for (file, source) in sources.iter().enumerate() {
        let file = file as u32;
        let at = Spot {
            file,
            line: 1,
            column: 1,
        };
        total += source.text.len();
        if source.text.len() > MAX_FILE_BYTES || total > MAX_TOTAL_BYTES {
            let (one, all) = (MAX_FILE_BYTES >> 20, MAX_TOTAL_BYTES >> 20);
            let fix = format!("a file may have at most {one} MiB, all files together {all} MiB; use patterns");
            sink.error(at, "", "the site description is too large", fix);
            trees.whole = false;
            continue;
        }
        let (mut documents, whole) = rackwright_yaml::documents(file, source.text, |fault| {
            sink.error(fault.at, "", fault.kind.to_string(), fault.kind.fix());
        });
        trees.documents.append(&mut documents);
        trees.whole &= whole;
    }
    trees
}

fn site_name(sections: &Sections<'_>, trees: &Trees, sink: &mut Sink) -> Box<str> {
    let mut name: Option<(Spot, Box<str>)> = None;
    for item in sections.of("site") {
        let Some(mut fields) = Fields::of(item.tree, "site".to_owned(), sink) else {
            continue;
        };
        let own = fields.own_names("name");
        let entry = fields.finish();
        match (&name, own.first()) {
            (Some((first, _)), _) => {
                let what = format!("the site is described twice, first at {}", sink.place(*first));
                entry.error(sink, "", what, "remove one of them");
            }
            (None, Some(own)) => name = Some((entry.spot(""), own.as_str().into())),
            (None, None) => {}
        }
    }
    if sections.of("site").is_empty() && trees.whole && !sections.lost.contains("site") {
        let at = trees.documents.first().map_or(
            Spot {
                file: 0,
                line: 1,
                column: 1,
            },
            |tree| tree.at,
        );
        sink.error(
            at,
            "site",
            "`site` is missing",
            "add `site: {name: ...}` to one of the documents",
        );
    }
    name.map(|(_, name)| name).unwrap_or_default()
}

/// One item of a section.
#[derive(Clone, Copy)]
struct Item<'t> {
    /// Index in the item's list.
    index: usize,
    tree: &'t Tree,
}

/// The items of all documents, by section.
#[derive(Default)]
struct Sections<'t> {
    items: [Vec<Item<'t>>; SECTIONS.len()],
    /// Sections with parts that could not be read.
    lost: HashSet<&'static str>,
}

impl<'t> Sections<'t> {
    fn of(&self, section: &str) -> &[Item<'t>] {
        let index = SECTIONS.iter().position(|name| *name == section);
        index.map_or(&[], |index| &self.items[index])
    }

    fn collect(&mut self, tree: &'t Tree, sink: &mut Sink) {
        let pairs = match &tree.value {
            Value::Map(pairs) => pairs,
            Value::Broken => return,
            _ => {
                sink.error(
                    tree.at,
                    "",
                    "a document must be a mapping of sections",
                    "begin with a section such as `racks:`",
                );
                return;
            }
        };
        let mut seen = HashSet::new();
        for (key, tree) in pairs {
            let Some(index) = SECTIONS.iter().position(|name| *name == &*key.name) else {
                let suggestion = nearest(&key.name, SECTIONS);
                let fix = match suggestion {
                    Some(suggestion) => format!("did you mean `{suggestion}`?"),
                    None => format!("known sections are {}", SECTIONS.join(", ")),
                };
                self.lost
                    .extend(SECTIONS.iter().filter(|name| suggestion == Some(**name)));
                sink.error(
                    key.at,
                    &*key.name,
                    format!("the section `{}` is unknown", key.name),
                    fix,
                );
                continue;
            };
            if !seen.insert(index) {
                let what = format!("the section `{}` is given twice in this document", key.name);
                sink.error(key.at, &*key.name, what, "put all items into one of them");
            }
            match &tree.value {
                Value::Null => {}
                _ if index == 0 => self.items[0].push(Item { index: 0, tree }),
                Value::List(items) => {
                    let items = items.iter().enumerate();
                    self.items[index].extend(items.map(|(index, tree)| Item { index, tree }));
                }
                Value::Broken => {
                    self.lost.insert(SECTIONS[index]);
                }
                Value::Text(_) | Value::Map(_) => {
                    self.lost.insert(SECTIONS[index]);
                    sink.error(tree.at, &*key.name, "this must be a list", "write `- name: ...` items");
                }
            }
        }
    }
}

/// A site during its reading. Unresolved ids are `NONE`, unreadable numbers NaN.
struct Draft {
    site: Site,
    rooms: Table,
    racks: Table,
    layouts: Table,
    domains: Table,
    cooling_units: Table,
    loops: Table,
    skus: Table,
    nodes: Table,
    switches: Table,
    cables: Table,
    customers: Table,
    /// Outlets in use.
    plugs: HashSet<Plug>,
    /// Positions of the domains before sorting.
    domain_order: Vec<u32>,
    /// GUIDs in use.
    guids: HashSet<u64>,
    /// Ports of Ethernet switches in use, as `SWITCH/PORT`.
    ethernet: HashSet<String>,
    /// Occupied rack units, one bit each.
    taken_units: Vec<[u64; 2]>,
}

impl Draft {
    fn new(whole: bool, sections: &Sections<'_>) -> Self {
        let table = |section: &'static str, what| {
            let mut table = Table::new(what);
            table.lost = !whole || sections.lost.contains(section);
            table
        };
        Self {
            site: Site::default(),
            rooms: table("rooms", "a room"),
            racks: table("racks", "a rack"),
            layouts: table("outlet_layouts", "an outlet layout"),
            domains: table("power", "a power domain"),
            cooling_units: table("cooling_units", "a cooling unit"),
            loops: table("cooling_loops", "a cooling loop"),
            skus: table("skus", "a SKU"),
            nodes: table("nodes", "a node"),
            switches: table("switches", "a switch"),
            cables: table("cables", "a cable"),
            customers: table("customers", "a customer"),
            plugs: HashSet::new(),
            domain_order: Vec::new(),
            guids: HashSet::new(),
            ethernet: HashSet::new(),
            taken_units: Vec::new(),
        }
    }

    fn finish(self) -> Site {
        Site {
            names: Names {
                nodes: self.nodes.into_ids(),
                switches: self.switches.into_ids(),
                domains: self.domains.into_ids(),
                customers: self.customers.into_ids(),
            },
            ..self.site
        }
    }
}

/// The fields of an item of a list section.
fn item_fields<'t, 's>(section: &str, item: Item<'t>, sink: &'s mut Sink) -> Option<Fields<'t, 's>> {
    Fields::of(item.tree, format!("{section}[{}]", item.index), sink)
}
