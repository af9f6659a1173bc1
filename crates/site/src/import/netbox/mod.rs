//! From NetBox's tables to a site file.
//!
//! | NetBox | site file |
//! |---|---|
//! | sites, locations | rooms in rooms |
//! | racks | racks; units are counted from the bottom |
//! | power panel | `panel`; NetBox has no rating of it, so what its feeds carry together |
//! | power feed | `circuit`, with `max_utilization` as derate |
//! | power port of a rack PDU | `rack-pdu`, rated as its feed |
//! | power outlets, cabled power ports | outlets, `psus` of nodes |
//! | devices by role | nodes and switches |
//! | device type | SKU; its power comes from a SKU file |
//! | InfiniBand interfaces | HCAs and ports, their WWNs GUIDs |
//! | cables between such interfaces, also by way of patch panels | cables |

mod cables;
mod devices;
mod panels;
mod places;
mod power;
mod skus;
mod tables;

use std::collections::BTreeMap;

pub use tables::{MAX_ROWS, Table, TableError, Tables};

use self::cables::Point;
use self::tables::Row;
use super::draft::{Draft, Remarks};
use super::names::{Namer, slug};
use super::{Imported, Options, finish, shape};
use crate::finding::{Sink, Spot};
use crate::model::SwitchRole;

/// Roles of NetBox's devices, by name or slug; `GPU Server` and `gpu-server` are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    /// What becomes a node.
    pub nodes: Vec<String>,
    /// What becomes a leaf.
    pub leaves: Vec<String>,
    /// What becomes a spine.
    pub spines: Vec<String>,
    /// What becomes a core.
    pub cores: Vec<String>,
    /// What becomes a switch whose level is told by the cables.
    pub switches: Vec<String>,
    /// What becomes a rack PDU.
    pub pdus: Vec<String>,
}

impl Default for Roles {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            nodes: list(&["gpu-server", "gpu-node", "compute-node", "compute"]),
            leaves: list(&["leaf", "leaf-switch", "ib-leaf", "infiniband-leaf"]),
            spines: list(&["spine", "spine-switch", "ib-spine", "infiniband-spine"]),
            cores: list(&["core", "core-switch", "ib-core", "infiniband-core"]),
            switches: list(&["ib-switch", "infiniband-switch"]),
            pdus: list(&["pdu", "rack-pdu"]),
        }
    }
}

/// What the import from NetBox wants to know.
#[derive(Debug, Clone)]
pub struct NetboxOptions<'a> {
    /// What every import wants to know.
    pub options: Options<'a>,
    /// Sites of NetBox that are taken; all where none is named.
    pub sites: &'a [String],
    /// What devices are.
    pub roles: &'a Roles,
    /// SKU by device type, where they have other names.
    pub skus: &'a BTreeMap<String, String>,
    /// Feed letter by the name of a panel or power feed, in which `*` stands for anything. The first that fits counts.
    pub feeds: &'a [(String, String)],
    /// Rating of panels by name, in watts.
    pub panels: &'a BTreeMap<String, f64>,
}

/// What a device becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// The node at this place of the draft.
    Node(usize),
    /// The switch at this place of the draft.
    Switch(usize),
    /// A rack PDU.
    Pdu,
    /// Nothing: its role is not mapped, or its site not taken.
    LeftOut,
}

/// A device of NetBox.
#[derive(Debug)]
struct Device<'a> {
    row: &'a Row,
    class: Class,
    /// The type's name.
    kind: &'a str,
    /// Its rack in the site file.
    rack: Option<String>,
}

/// A rack of NetBox.
#[derive(Debug)]
struct RackInfo<'a> {
    row: &'a Row,
    name: String,
    units: u16,
}

/// An interface, a power port, an outlet or a power feed.
#[derive(Debug)]
struct Part<'a> {
    row: &'a Row,
    /// Its device; none for power feeds.
    device: Option<usize>,
    name: &'a str,
}

struct Importer<'a> {
    tables: &'a Tables,
    options: &'a NetboxOptions<'a>,
    sink: Sink,
    draft: Draft,
    racks: Vec<RackInfo<'a>>,
    /// Places of racks by NetBox's id.
    rack_ids: BTreeMap<&'a str, usize>,
    devices: Vec<Device<'a>>,
    /// Interfaces, power ports, outlets, power feeds, and ports of patch panels; by [`cables::PartKind`].
    parts: [Vec<Part<'a>>; 6],
    /// The other end of the cable in each.
    peers: BTreeMap<Point, Point>,
    /// Labels of cables, by the end that comes first.
    labels: BTreeMap<Point, String>,
    /// What there is to say of a cable, by the end that comes first.
    notes: BTreeMap<Point, String>,
    /// `PDU/OUTLET` in the site file, by place of the outlet.
    outlets: BTreeMap<usize, String>,
    /// Names of nodes and switches.
    names: Namer,
}

/// Writes the site file of a NetBox.
#[must_use]
pub fn from_netbox(tables: &Tables, options: &NetboxOptions<'_>) -> Imported {
    let mut files = tables.files.clone();
    let output = u32::try_from(files.len()).unwrap_or(u32::MAX);
    files.push(options.options.output.into());
    let mut importer = Importer {
        tables,
        options,
        sink: Sink::new(files),
        draft: Draft::default(),
        racks: Vec::new(),
        rack_ids: BTreeMap::new(),
        devices: Vec::new(),
        parts: Default::default(),
        peers: BTreeMap::new(),
        labels: BTreeMap::new(),
        notes: BTreeMap::new(),
        outlets: BTreeMap::new(),
        names: Namer::default(),
    };
    importer.draft.title = "Imported from NetBox.".to_owned();
    importer.draft.name = Namer::default().give(options.options.site, &["site"]);
    importer.places();
    importer.devices();
    importer.parts();
    importer.join();
    importer.power();
    importer.skus();
    importer.plug_in();
    importer.fabric();
    let Importer { mut draft, sink, .. } = importer;
    shape::fill(&mut draft, options.options.skus);
    for switch in draft.switches.iter_mut().filter(|switch| switch.role.is_none()) {
        let what = "neither its role in NetBox nor the cables tell what it is for";
        switch.remarks.missing("role", what, "write leaf, spine or core");
    }
    shape::order(&mut draft);
    finish(&draft, &options.options, output, sink)
}

impl Importer<'_> {
    /// Whether a site of NetBox is taken.
    fn takes(&self, site: &str) -> bool {
        let sites = self.options.sites;
        sites.is_empty() || sites.iter().any(|one| one == site || slug(one) == slug(site))
    }

    /// What a role of NetBox becomes: none for nothing, else the level of a switch.
    fn role(&self, role: &str) -> Option<Kind> {
        let is = |list: &[String]| list.iter().any(|one| slug(one) == slug(role));
        let roles = self.options.roles;
        let level = |role| Some(Kind::Switch(Some(role)));
        match () {
            () if is(&roles.nodes) => Some(Kind::Node),
            () if is(&roles.leaves) => level(SwitchRole::Leaf),
            () if is(&roles.spines) => level(SwitchRole::Spine),
            () if is(&roles.cores) => level(SwitchRole::Core),
            () if is(&roles.switches) => Some(Kind::Switch(None)),
            () if is(&roles.pdus) => Some(Kind::Pdu),
            () => None,
        }
    }
}

/// Where findings about all of it stand.
const TOP: Spot = Spot {
    file: 0,
    line: 1,
    column: 1,
};

/// What a role stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Node,
    Switch(Option<SwitchRole>),
    Pdu,
}

/// Adds a comment where a name had to be changed.
fn renamed(remarks: &mut Remarks, name: &str, in_netbox: &str) {
    if name != in_netbox {
        remarks.comments.push(format!("{in_netbox:?} in NetBox"));
    }
}
