//! The intermediate form between another system's data and the text of a site file.

use rackwright_site::model::{DomainKind, Phase, Phases, Speed, SwitchRole};

/// A value that the other system does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// The path of the field within the item.
    pub(super) field: &'static str,
    pub(super) what: String,
    pub(super) fix: String,
    /// False: a safe value was written instead.
    pub(super) missing: bool,
}

/// Notes about an item for the operator who completes the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Remarks {
    pub(super) comments: Vec<String>,
    pub(super) gaps: Vec<Gap>,
}

impl Remarks {
    /// Records a required field without a value.
    pub(super) fn missing(&mut self, field: &'static str, what: impl Into<String>, fix: impl Into<String>) {
        let (what, fix) = (what.into(), fix.into());
        self.comments.push(format!("MISSING {field}: {what}"));
        self.gaps.push(Gap {
            field,
            what,
            fix,
            missing: true,
        });
    }

    /// Records a field with an assumed value.
    pub(super) fn assumed(&mut self, field: &'static str, what: impl Into<String>, fix: impl Into<String>) {
        let (what, fix) = (what.into(), fix.into());
        self.comments.push(format!("ASSUMED {field}: {what}"));
        self.gaps.push(Gap {
            field,
            what,
            fix,
            missing: false,
        });
    }
}

#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) name: String,
    pub(super) parent: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Rack {
    pub(super) name: String,
    pub(super) room: String,
    pub(super) units: Option<u16>,
    pub(super) weight_limit_kg: Option<f64>,
    pub(super) remarks: Remarks,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rating {
    Electrical { volts: f64, amps: f64, phases: Phases },
    Watts(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outlet {
    pub(super) name: String,
    pub(super) phase: Phase,
    pub(super) amps: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) kind: DomainKind,
    pub(super) parent: Option<String>,
    pub(super) feed: Option<String>,
    pub(super) rating: Option<Rating>,
    pub(super) derate: Option<f64>,
    pub(super) rack: Option<String>,
    pub(super) outlets: Vec<Outlet>,
    pub(super) remarks: Remarks,
}

/// A SKU that no SKU file describes.
#[derive(Debug, Default)]
pub(super) struct Sku {
    pub(super) name: String,
    pub(super) max_watts: Option<f64>,
    pub(super) psus: Option<Psus>,
    pub(super) height_units: Option<u16>,
    pub(super) weight_kg: Option<f64>,
    pub(super) hcas: Vec<String>,
    /// Whether the order of the HCAs is not that of the rails.
    pub(super) has_unknown_rails: bool,
    pub(super) speed: Option<Speed>,
    pub(super) remarks: Remarks,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Psus {
    pub(super) count: usize,
    pub(super) watts: f64,
    pub(super) needed: usize,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) sku: String,
    pub(super) rack: Option<String>,
    pub(super) unit: Option<u16>,
    /// By PSU. `None`: not plugged in.
    pub(super) psus: Option<Vec<Option<String>>>,
    pub(super) bmc: Option<String>,
    pub(super) guids: Vec<(String, u64)>,
    pub(super) remarks: Remarks,
}

#[derive(Debug, Default)]
pub(super) struct Switch {
    pub(super) name: String,
    pub(super) role: Option<SwitchRole>,
    pub(super) ports: u16,
    pub(super) speed: Option<Speed>,
    pub(super) rack: Option<String>,
    pub(super) unit: Option<u16>,
    pub(super) height_units: Option<u16>,
    pub(super) rail: Option<u8>,
    pub(super) scalable_unit: Option<usize>,
    pub(super) pod: Option<usize>,
    pub(super) guid: Option<u64>,
    pub(super) remarks: Remarks,
}

/// One end of a cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// An HCA by name, of the node at this index of the list.
    Hca(usize, String),
    /// A port of the switch at this index of the list.
    Port(usize, u16),
}

#[derive(Debug, Clone)]
pub(super) struct Cable {
    pub(super) label: String,
    pub(super) a: End,
    pub(super) b: End,
    /// A comment above the cable. Empty: no comment.
    pub(super) note: String,
}

/// The whole site.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) title: String,
    pub(super) name: String,
    pub(super) rooms: Vec<Room>,
    pub(super) racks: Vec<Rack>,
    pub(super) domains: Vec<Domain>,
    pub(super) skus: Vec<Sku>,
    pub(super) nodes: Vec<Node>,
    pub(super) switches: Vec<Switch>,
    pub(super) cables: Vec<Cable>,
}
