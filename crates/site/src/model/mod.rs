//! The checked datacenter: lists of things that refer to each other by dense ids.
//!
//! A [`Site`] comes out of [`crate::file::check`] and holds together: every id points at something, the power tree has
//! no cycle, no outlet, rack unit or port is used twice. Nothing in here changes it.

mod cooling;
mod diff;
mod fabric;
mod firmware;
mod ids;
mod node;
mod power;
mod settings;
mod summary;

use std::collections::HashMap;

use serde::Serialize;

pub use cooling::{CoolingKind, CoolingLoop, CoolingUnit};
pub use diff::{Action, Change, FieldChange, diff};
pub use fabric::{Cable, Port, Speed, Switch, SwitchRole};
pub use firmware::{FirmwareActivation, FirmwareOrder, WantedFirmware};
pub use ids::{
    CableId, CoolingUnitId, CustomerId, DomainId, FeedId, LayoutId, LoopId, NodeId, RackId, RoomId, SkuId, SwitchId,
};
pub use node::{EthernetPort, Hca, Node, PowerProfile, Price, PsuProfile, Sku};
pub use power::{DomainKind, Outlet, OutletLayout, Phase, Phases, Plug, PowerDomain, Rating};
pub use settings::{
    SeenSecureBoot, SeenSettings, SettingRow, Standing, WantedKey, WantedSettings, compare, is_as_wanted, told,
};
pub use summary::{FeedCapacity, SkuCount, Summary, SwitchCounts};

/// A hall, or a building that holds halls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Unique among rooms.
    pub name: Box<str>,
    /// What it is part of.
    pub parent: Option<RoomId>,
}

/// A rack.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rack {
    /// Unique among racks.
    pub name: Box<str>,
    /// Where it stands.
    pub room: RoomId,
    /// Rack units, which count from 1 at the bottom.
    pub units: u16,
    /// What it and the floor bear, in kg.
    pub weight_limit_kg: Option<f64>,
    /// Heat that may go to air, in watts.
    pub air_heat_limit_watts: Option<f64>,
    /// Whether it has a liquid manifold.
    pub liquid: bool,
    /// The loop it is on.
    pub cooling_loop: Option<LoopId>,
    /// Its rear door exchanger.
    pub rear_door: Option<CoolingUnitId>,
}

/// What a customer is promised about the loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Redundancy {
    /// Nothing.
    #[serde(rename = "none")]
    None,
    /// Each node survives the loss of any one of its PSUs.
    #[serde(rename = "n+1-psu")]
    PsuLoss,
    /// Each node survives the loss of everything with the same feed letter, whichever letter.
    #[serde(rename = "feed-loss")]
    FeedLoss,
}

impl Redundancy {
    /// All.
    pub const ALL: [Self; 3] = [Self::None, Self::PsuLoss, Self::FeedLoss];

    /// As the site file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PsuLoss => "n+1-psu",
            Self::FeedLoss => "feed-loss",
        }
    }
}

/// A customer and what was promised to them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Customer {
    /// Unique among customers.
    pub name: Box<str>,
    /// The most that all their reservations may sum to, in watts.
    pub contracted_watts: Option<f64>,
    /// What they are promised about the loss of power.
    pub redundancy: Redundancy,
    /// They share no circuit with others.
    pub dedicated_circuits: bool,
    /// They share no loop, rear door or (where nodes have neither) room air with others.
    pub dedicated_cooling: bool,
    /// Circuits that are theirs and nobody else's, used or not.
    pub circuits: Vec<DomainId>,
    /// Cooling units that are theirs and nobody else's, used or not.
    pub cooling_units: Vec<CoolingUnitId>,
}

/// A datacenter.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Site {
    /// Its name.
    pub name: Box<str>,
    /// By [`RoomId`].
    pub rooms: Vec<Room>,
    /// By [`RackId`].
    pub racks: Vec<Rack>,
    /// Feed letters by [`FeedId`], in alphabetical order.
    pub feeds: Vec<Box<str>>,
    /// By [`DomainId`]; parents before their children.
    pub domains: Vec<PowerDomain>,
    /// By [`LayoutId`].
    pub layouts: Vec<OutletLayout>,
    /// By [`CoolingUnitId`].
    pub cooling_units: Vec<CoolingUnit>,
    /// By [`LoopId`].
    pub loops: Vec<CoolingLoop>,
    /// By [`SkuId`].
    pub skus: Vec<Sku>,
    /// By [`NodeId`].
    pub nodes: Vec<Node>,
    /// By [`SwitchId`].
    pub switches: Vec<Switch>,
    /// By [`CableId`].
    pub cables: Vec<Cable>,
    /// By [`CustomerId`].
    pub customers: Vec<Customer>,
    /// Ids by name.
    #[serde(skip)]
    pub(crate) names: Names,
}

/// Ids by name. Looked up, never walked, so the order of the tables shows nowhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) nodes: HashMap<Box<str>, u32>,
    pub(crate) switches: HashMap<Box<str>, u32>,
    pub(crate) domains: HashMap<Box<str>, u32>,
    pub(crate) customers: HashMap<Box<str>, u32>,
}

/// `$one(id)`, `$ids()` and, where things are looked up by name, `$named(name)`.
macro_rules! lists {
    ($($one:ident $ids:ident $field:ident $id:ident $kind:ident;)*) => {
        impl Site {$(
            #[doc = concat!("What a [`", stringify!($id), "`] points at. Ids of another site may panic.")]
            #[must_use]
            pub fn $one(&self, id: $id) -> &$kind {
                &self.$field[id.index()]
            }

            #[doc = concat!("Every [`", stringify!($id), "`], in order.")]
            pub fn $ids(&self) -> impl DoubleEndedIterator<Item = $id> + ExactSizeIterator + use<> {
                (0..self.$field.len()).map($id::of)
            }
        )*}
    };
}

lists! {
    room room_ids rooms RoomId Room;
    rack rack_ids racks RackId Rack;
    domain domain_ids domains DomainId PowerDomain;
    layout layout_ids layouts LayoutId OutletLayout;
    cooling_unit cooling_unit_ids cooling_units CoolingUnitId CoolingUnit;
    cooling_loop loop_ids loops LoopId CoolingLoop;
    sku sku_ids skus SkuId Sku;
    node node_ids nodes NodeId Node;
    switch switch_ids switches SwitchId Switch;
    cable cable_ids cables CableId Cable;
    customer customer_ids customers CustomerId Customer;
}

impl Site {
    /// The node of that name.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.names.nodes.get(name).copied().map(NodeId)
    }

    /// The switch of that name.
    #[must_use]
    pub fn switch_named(&self, name: &str) -> Option<SwitchId> {
        self.names.switches.get(name).copied().map(SwitchId)
    }

    /// The power domain of that name.
    #[must_use]
    pub fn domain_named(&self, name: &str) -> Option<DomainId> {
        self.names.domains.get(name).copied().map(DomainId)
    }

    /// The customer of that name.
    #[must_use]
    pub fn customer_named(&self, name: &str) -> Option<CustomerId> {
        self.names.customers.get(name).copied().map(CustomerId)
    }

    /// The class of a node.
    #[must_use]
    pub fn sku_of(&self, node: NodeId) -> &Sku {
        self.sku(self.node(node).sku)
    }

    /// Feed letters.
    pub fn feed_ids(&self) -> impl DoubleEndedIterator<Item = FeedId> + ExactSizeIterator + use<> {
        (0..self.feeds.len()).map(FeedId::of)
    }

    /// A domain and all above it, from the bottom up.
    pub fn ancestors(&self, domain: DomainId) -> impl Iterator<Item = DomainId> + '_ {
        std::iter::successors(Some(domain), |id| self.domain(*id).parent)
    }

    /// One outlet of a rack PDU or power shelf; `None` for other domains and indices beyond its layout.
    #[must_use]
    pub fn outlet(&self, plug: Plug) -> Option<&Outlet> {
        let layout = self.domain(plug.pdu).layout?;
        self.layout(layout).outlets.get(usize::from(plug.outlet))
    }

    /// `pdu-a-r01/7`
    #[must_use]
    pub fn plug_name(&self, plug: Plug) -> String {
        let outlet = self.outlet(plug).map_or("?", |outlet| &*outlet.name);
        format!("{}/{outlet}", self.domain(plug.pdu).name)
    }

    /// `gpu-001/mlx5_0` or `leaf-01/7`.
    #[must_use]
    pub fn port_name(&self, port: Port) -> String {
        match port {
            Port::Hca { node, hca } => {
                let name = self
                    .sku_of(node)
                    .hcas
                    .get(usize::from(hca))
                    .map_or("?", |hca| &*hca.name);
                format!("{}/{name}", self.node(node).name)
            }
            Port::Switch { switch, port } => format!("{}/{port}", self.switch(switch).name),
        }
    }
}

macro_rules! serialize_as_number {
    ($($id:ident)*) => {$(
        impl Serialize for $id {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u32(self.0)
            }
        }
    )*};
}

serialize_as_number! { RoomId RackId DomainId LayoutId FeedId CoolingUnitId LoopId SkuId NodeId SwitchId CableId CustomerId }
