//! The site file: reads YAML and returns a checked [`Site`] or all faults.
//!
//! Reading has three steps: text to a tree with places (`yaml`), the tree to fields (`fields`), the fields to the model
//! (one module per section). A fault invalidates only its own value. The reader continues with a substitute that passes
//! all later checks, so that one mistake gives one finding.

mod cables;
mod cooling;
mod currency;
mod customers;
mod fabric;
mod fields;
mod firmware;
mod guids;
mod limits;
mod names;
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

use foldhash::quality::RandomState;

use rackwright_yaml::{Tree, Value};

use self::fields::Fields;
pub(crate) use self::pattern::MAX_NAMES as MAX_PATTERN_NAMES;
use self::suggestion::nearest;
use self::table::{Origins, Table};
pub use crate::finding::Limits;
use crate::finding::{Findings, Sink, Spot};
use crate::model::{Names, NodeId, Plug, Site, SwitchId};

/// Maximum size of all files of a site together, in bytes. One file may have as much.
pub const MAX_TOTAL_BYTES: usize = 256 << 20;

/// The files of a site are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the site description is too large: {} of at most {}", mebibytes(*bytes), mebibytes(*limit))]
pub struct TooLarge {
    /// Size of all files together, in bytes.
    pub bytes: u64,
    /// The limit, in bytes.
    pub limit: u64,
}

impl TooLarge {
    /// The remedy.
    pub const FIX: &str = "write items in regular order as one item with a pattern such as gpu-[0001-1000], as \
                           `rackwright site import` does";

    /// Compares the size of all files of a site, in bytes, with [`MAX_TOTAL_BYTES`].
    ///
    /// # Errors
    /// The files are larger.
    pub fn check(bytes: u64) -> Result<(), Self> {
        Self::check_within(bytes, MAX_TOTAL_BYTES as u64)
    }

    /// Compares a size with another limit.
    ///
    /// # Errors
    /// The size is above the limit.
    pub fn check_within(bytes: u64, limit: u64) -> Result<(), Self> {
        if bytes > limit {
            return Err(Self { bytes, limit });
        }
        Ok(())
    }
}

/// The size in MiB, rounded up to a tenth.
fn mebibytes(bytes: u64) -> String {
    let tenths = u128::from(bytes).saturating_mul(10).div_ceil(1 << 20);
    match tenths % 10 {
        0 => format!("{} MiB", tenths / 10),
        part => format!("{}.{part} MiB", tenths / 10),
    }
}

/// One file of a site.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file's name in findings.
    pub name: &'a str,
    /// The file's text. U+FFFD stands for bytes that are not UTF-8, which is an error.
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
const SECTIONS: [&str; 13] = [
    "site",
    "rooms",
    "racks",
    "outlet_layouts",
    "power",
    "cooling_units",
    "cooling_loops",
    "skus",
    "nodes",
    "fabrics",
    "switches",
    "cables",
    "customers",
];

/// Checks whether a text can be the name of an object of a site.
///
/// # Errors
/// Why it cannot, and what to write.
pub fn check_name(text: &str) -> Result<(), String> {
    match names::fault(text) {
        Some(fault) => Err(format!("{fault}: {}", names::FIX)),
        None => Ok(()),
    }
}

/// Reads the files of one site. The order of files, documents and sections affects only the order of ids.
#[must_use]
pub fn check(sources: &[Source<'_>]) -> Checked {
    check_within(sources, Limits::default())
}

/// Reads the files of one site as [`check`] does, within the caller's limits.
#[must_use]
pub fn check_within(sources: &[Source<'_>], limits: Limits) -> Checked {
    check_also(sources, limits, |_, _, _| ())
}

/// Reads the files of one site as [`check_within`] does, and gives a site without errors to `also`, which may add
/// warnings.
#[must_use]
pub fn check_also(sources: &[Source<'_>], limits: Limits, also: impl FnOnce(&Site, &Places, &mut Sink)) -> Checked {
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
    fabric::read_fabrics(&mut draft, &sections, &mut sink);
    fabric::read_switches(&mut draft, &sections, &mut sink);
    cables::read_cables(&mut draft, &sections, &mut sink);
    fabric::check_fabrics(&draft, &mut sink);
    customers::read(&mut draft, &sections, &mut sink);
    limits::check(&draft, &mut sink);
    let (site, places) = (!sink.has_errors()).then(|| draft.finish()).unzip();
    if let (Some(site), Some(places)) = (&site, &places) {
        also(site, places, &mut sink);
    }
    Checked {
        site,
        findings: sink.finish(),
    }
}

/// The places of a site, its nodes and its switches in the files.
#[derive(Debug)]
pub struct Places {
    site: Spot,
    nodes: Origins,
    switches: Origins,
}

impl Places {
    /// The place and the path of the site's description.
    #[must_use]
    pub fn site(&self) -> (Spot, String) {
        (self.site, "site".to_owned())
    }

    /// The place and the path of a field of a node's item. If the item has no such field, the place of the item.
    #[must_use]
    pub fn node(&self, node: NodeId, field: &str) -> (Spot, String) {
        self.of(&self.nodes, node.0, field)
    }

    /// The same for a switch.
    #[must_use]
    pub fn switch(&self, switch: SwitchId, field: &str) -> (Spot, String) {
        self.of(&self.switches, switch.0, field)
    }

    fn of(&self, origins: &Origins, id: u32, field: &str) -> (Spot, String) {
        match origins.of(id) {
            Some(entry) => (entry.spot(field), entry.path(field)),
            None => self.site(),
        }
    }
}

/// The names of a pattern, for tests of what is written. `None`: the reader refuses the pattern.
#[cfg(test)]
pub(crate) fn expand_pattern(text: &str) -> Option<Vec<String>> {
    let names = pattern::expand(text, MAX_PATTERN_NAMES).ok()?;
    Some(names.iter().map(str::to_owned).collect())
}

/// The beginning of the first file.
const START: Spot = Spot {
    file: 0,
    line: 1,
    column: 1,
};

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
    let total = sources.iter().map(|source| source.text.len() as u64).sum();
    if let Err(error) = TooLarge::check(total) {
        sink.error(START, "", error.to_string(), TooLarge::FIX);
        trees.whole = false;
        return trees;
    }
    for (file, source) in sources.iter().enumerate() {
        let file = file as u32;
        if let Some(at) = undecoded(file, source.text) {
            let fix = "save the file as UTF-8; this file was not checked";
            sink.error(at, "", "this is not UTF-8 text", fix);
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

/// The place of the first U+FFFD.
fn undecoded(file: u32, text: &str) -> Option<Spot> {
    let before = &text[..text.find(char::REPLACEMENT_CHARACTER)?];
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    let from_1 = |number: usize| u32::try_from(number + 1).unwrap_or(u32::MAX);
    Some(Spot {
        file,
        line: from_1(before.matches('\n').count()),
        column: from_1(column),
    })
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
            (None, Some(own)) => name = Some((entry.spot(""), own.into())),
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
    fabrics: Table,
    switches: Table,
    customers: Table,
    /// Outlets in use.
    plugs: HashSet<Plug, RandomState>,
    /// Positions of the domains before sorting.
    domain_order: Vec<u32>,
    /// GUIDs in use.
    guids: HashSet<u64, RandomState>,
    /// Ports of Ethernet switches in use, as `SWITCH/PORT`.
    ethernet: HashSet<String>,
    /// Occupied rack units, one bit each.
    taken_units: Vec<[u64; 2]>,
    /// The HCAs of some SKU could not be read, so an unknown HCA gives no finding.
    hcas_lost: bool,
    /// Some speed could not be read, so different speeds of the ends of a cable give no finding.
    speeds_lost: bool,
    /// The place of the section `site`.
    place: Spot,
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
            fabrics: table("fabrics", "a fabric"),
            switches: table("switches", "a switch"),
            customers: table("customers", "a customer"),
            plugs: HashSet::default(),
            domain_order: Vec::new(),
            guids: HashSet::default(),
            ethernet: HashSet::new(),
            taken_units: Vec::new(),
            hcas_lost: false,
            speeds_lost: false,
            place: sections.of("site").first().map_or(START, |item| item.tree.at),
        }
    }

    fn finish(self) -> (Site, Places) {
        let (node_ids, nodes) = self.nodes.into_parts();
        let (switch_ids, switches) = self.switches.into_parts();
        let site = Site {
            names: Names {
                nodes: node_ids,
                switches: switch_ids,
                domains: self.domains.into_ids(),
                customers: self.customers.into_ids(),
            },
            ..self.site
        };
        let places = Places {
            site: self.place,
            nodes,
            switches,
        };
        (site, places)
    }
}

/// The fields of an item of a list section.
fn item_fields<'t, 's>(section: &str, item: Item<'t>, sink: &'s mut Sink) -> Option<Fields<'t, 's>> {
    Fields::of(item.tree, format!("{section}[{}]", item.index), sink)
}
