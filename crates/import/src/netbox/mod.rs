//! Converts NetBox's tables into a site file.
//!
//! | NetBox | site file |
//! |---|---|
//! | sites, locations | rooms in rooms |
//! | racks | racks; units are counted from the bottom |
//! | power panel | `panel`; NetBox has no rating for it, so the sum of its feeds |
//! | power feed | `circuit`, with `max_utilization` as derate |
//! | power port of a rack PDU | `rack-pdu`, rated as its feed |
//! | power outlets, cabled power ports | outlets, `psus` of nodes |
//! | devices by role | nodes and switches |
//! | device type | SKU; its power comes from a SKU file |
//! | InfiniBand interfaces | HCAs and ports, their WWNs GUIDs |
//! | cables between such interfaces, also through patch panels | cables |

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
use rackwright_site::finding::{Sink, Spot};
use rackwright_site::model::SwitchRole;

/// Roles of NetBox's devices, by name or slug: `GPU Server` equals `gpu-server`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    /// Roles that become nodes.
    pub nodes: Vec<String>,
    /// Roles that become leaves.
    pub leaves: Vec<String>,
    /// Roles that become spines.
    pub spines: Vec<String>,
    /// Roles that become cores.
    pub cores: Vec<String>,
    /// Roles that become switches. The cables determine their level.
    pub switches: Vec<String>,
    /// Roles that become rack PDUs.
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

/// The options for importing NetBox.
#[derive(Debug, Clone)]
pub struct NetboxOptions<'a> {
    /// The options of every import.
    pub options: Options<'a>,
    /// The NetBox sites to import. Empty: all.
    pub sites: &'a [String],
    /// The mapping of device roles.
    pub roles: &'a Roles,
    /// SKU by device type, if the names differ.
    pub skus: &'a BTreeMap<String, String>,
    /// Feed letter by name pattern of a panel or power feed, in which `*` matches any text. The first match counts.
    pub feeds: &'a [(String, String)],
    /// Rating of panels by name, in watts.
    pub panels: &'a BTreeMap<String, f64>,
}

/// The class of a device in the site file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// The node at this index of the draft.
    Node(usize),
    /// The switch at this index of the draft.
    Switch(usize),
    /// A rack PDU.
    Pdu,
    /// Not imported: its role is not mapped, or its site is not selected.
    LeftOut,
}

/// A device of NetBox.
#[derive(Debug)]
struct Device<'a> {
    row: &'a Row,
    class: Class,
    /// The name of its type.
    kind: &'a str,
    /// The name of its rack in the site file.
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
    /// The part's device. `None` for power feeds.
    device: Option<usize>,
    name: &'a str,
}

struct Importer<'a> {
    tables: &'a Tables,
    options: &'a NetboxOptions<'a>,
    sink: Sink,
    draft: Draft,
    racks: Vec<RackInfo<'a>>,
    /// Indices of racks by NetBox's id.
    rack_ids: BTreeMap<&'a str, usize>,
    devices: Vec<Device<'a>>,
    /// Interfaces, power ports, outlets, power feeds, and ports of patch panels, by [`cables::PartKind`].
    parts: [Vec<Part<'a>>; 6],
    /// The part at the other end of each part's cable.
    peers: BTreeMap<Point, Point>,
    /// Labels of cables, by the lower end.
    labels: BTreeMap<Point, String>,
    /// Notes about cables, by the lower end.
    notes: BTreeMap<Point, String>,
    /// `PDU/OUTLET` in the site file, by index of the outlet.
    outlets: BTreeMap<usize, String>,
    /// Names of nodes and switches.
    names: Namer,
}

/// Imports NetBox's tables as a site file.
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
    importer.draft.name = Namer::default().unique_name(options.options.site, &["site"]);
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
        let what = "neither NetBox nor the cables show its role";
        switch.remarks.missing("role", what, "write leaf, spine or core");
    }
    shape::order(&mut draft);
    finish(&draft, &options.options, output, sink)
}

impl Importer<'_> {
    /// Whether a NetBox site is imported.
    fn takes(&self, site: &str) -> bool {
        let sites = self.options.sites;
        sites.is_empty() || sites.iter().any(|one| one == site || slug(one) == slug(site))
    }

    /// The kind for a NetBox role. `None`: the role is not mapped.
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

/// The place of findings about the whole import.
const TOP: Spot = Spot {
    file: 0,
    line: 1,
    column: 1,
};

/// The meaning of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Node,
    Switch(Option<SwitchRole>),
    Pdu,
}

/// Adds a comment if a name was changed.
fn renamed(remarks: &mut Remarks, name: &str, in_netbox: &str) {
    if name != in_netbox {
        remarks.comments.push(format!("{in_netbox:?} in NetBox"));
    }
}
