//! The checked datacenter: lists of objects that refer to each other by dense ids.
//!
//! [`crate::file::check`] returns a consistent [`Site`]: every id is valid, the power tree has no cycle, and no outlet,
//! rack unit or port is used twice. A site does not change.

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

use foldhash::quality::RandomState;

use serde::Serialize;

pub use cooling::{CoolingKind, CoolingLoop, CoolingUnit};
pub use diff::{Action, Change, FieldChange, diff};
pub use fabric::{Cable, Fabric, FabricPurpose, Port, Speed, Switch, SwitchRole};
pub use firmware::{FirmwareActivation, FirmwareOrder, WantedFirmware};
pub use ids::{
    CableId, CoolingUnitId, CustomerId, DomainId, FabricId, FeedId, LayoutId, LoopId, NodeId, RackId, RoomId, SkuId,
    SwitchId,
};
pub use node::{EthernetPort, Hca, Node, PowerProfile, Price, PsuProfile, Sku};
pub use power::{DomainKind, Outlet, OutletLayout, Phase, Phases, Plug, PowerDomain, Rating};
pub use settings::{
    SeenSecureBoot, SeenSettings, SettingRow, SettingStatus, WantedKey, WantedSettings, compare, description,
    is_as_wanted,
};
pub use summary::{FabricCount, FeedCapacity, SkuCount, Summary, SwitchCounts};

/// A hall, or a building that holds halls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Unique among rooms.
    pub name: Box<str>,
    /// The room that contains this one.
    pub parent: Option<RoomId>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rack {
    /// Unique among racks.
    pub name: Box<str>,
    /// The rack's room.
    pub room: RoomId,
    /// Number of rack units. They are numbered from 1 at the bottom.
    pub units: u16,
    /// Maximum weight for the rack and the floor, in kg.
    pub weight_limit_kg: Option<f64>,
    /// Maximum heat to air, in watts.
    pub air_heat_limit_watts: Option<f64>,
    /// Whether the rack has a liquid manifold.
    pub liquid: bool,
    /// The rack's liquid loop.
    pub cooling_loop: Option<LoopId>,
    /// The rack's rear door exchanger.
    pub rear_door: Option<CoolingUnitId>,
}

/// The promise to a customer about the loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Redundancy {
    /// No promise.
    #[serde(rename = "none")]
    None,
    /// Each node survives the loss of any one of its PSUs.
    #[serde(rename = "n+1-psu")]
    PsuLoss,
    /// Each node survives the loss of all feeds of any one letter.
    #[serde(rename = "feed-loss")]
    FeedLoss,
}

impl Redundancy {
    /// All promises.
    pub const ALL: [Self; 3] = [Self::None, Self::PsuLoss, Self::FeedLoss];

    /// The name in the site file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PsuLoss => "n+1-psu",
            Self::FeedLoss => "feed-loss",
        }
    }
}

/// A customer with the promises to that customer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Customer {
    /// Unique among customers.
    pub name: Box<str>,
    /// Maximum sum of the customer's reservations, in watts.
    pub contracted_watts: Option<f64>,
    /// The promise about the loss of power.
    pub redundancy: Redundancy,
    /// Whether the customer shares no circuit with others.
    pub dedicated_circuits: bool,
    /// Whether the customer shares no loop, rear door or (for nodes with neither) room air with others.
    pub dedicated_cooling: bool,
    /// Circuits reserved for this customer, used or not.
    pub circuits: Vec<DomainId>,
    /// Cooling units reserved for this customer, used or not.
    pub cooling_units: Vec<CoolingUnitId>,
}

/// A datacenter.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Site {
    /// The site's name.
    pub name: Box<str>,
    /// By [`RoomId`].
    pub rooms: Vec<Room>,
    /// By [`RackId`].
    pub racks: Vec<Rack>,
    /// Feed letters by [`FeedId`], in alphabetical order.
    pub feeds: Vec<Box<str>>,
    /// By [`DomainId`]. Parents come before their children.
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
    /// By [`FabricId`].
    pub fabrics: Vec<Fabric>,
    /// By [`SwitchId`].
    pub switches: Vec<Switch>,
    /// By [`CableId`].
    pub cables: Vec<Cable>,
    /// By [`CustomerId`].
    pub customers: Vec<Customer>,
    /// Ports of nodes that lead to storage fabrics: the node, and the HCA's index in its SKU. In order.
    #[serde(skip)]
    pub(crate) storage_ports: Vec<(NodeId, u8)>,
    /// Ids by name.
    #[serde(skip)]
    pub(crate) names: Names,
}

/// Ids by name. The tables are never iterated, so their order has no effect.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) nodes: Ids,
    pub(crate) switches: Ids,
    pub(crate) domains: Ids,
    pub(crate) customers: Ids,
}

/// A table of ids by name.
pub(crate) type Ids = HashMap<Box<str>, u32, RandomState>;

/// Defines `$one(id)`, `$ids()` and, for kinds with a lookup by name, `$named(name)`.
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
    fabric fabric_ids fabrics FabricId Fabric;
    switch switch_ids switches SwitchId Switch;
    cable cable_ids cables CableId Cable;
    customer customer_ids customers CustomerId Customer;
}

impl Site {
    /// The node with this name.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.names.nodes.get(name).copied().map(NodeId)
    }

    /// The switch with this name.
    #[must_use]
    pub fn switch_named(&self, name: &str) -> Option<SwitchId> {
        self.names.switches.get(name).copied().map(SwitchId)
    }

    /// The purpose of a switch's fabric. `None`: the site file does not say.
    #[must_use]
    pub fn purpose_of(&self, switch: SwitchId) -> Option<FabricPurpose> {
        Some(self.fabric(self.switch(switch).fabric?).purpose)
    }

    /// Whether a port of a node leads to a storage fabric. `hca` is the HCA's index in the SKU.
    #[must_use]
    pub fn is_storage_port(&self, node: NodeId, hca: usize) -> bool {
        u8::try_from(hca).is_ok_and(|hca| self.storage_ports.binary_search(&(node, hca)).is_ok())
    }

    /// The cables between HCAs and switches: the node, the HCA's index in the SKU, the switch.
    pub fn cabled_hcas(&self) -> impl Iterator<Item = (NodeId, usize, SwitchId)> {
        self.cables.iter().filter_map(|cable| match (cable.a, cable.b) {
            (Port::Hca { node, hca }, Port::Switch { switch, .. })
            | (Port::Switch { switch, .. }, Port::Hca { node, hca }) => Some((node, hca.into(), switch)),
            _ => None,
        })
    }

    /// The HCAs of a node, each with its port GUID. HCAs that lead to a storage fabric are left out: clusters do not use
    /// them for traffic between nodes.
    pub fn compute_ports(&self, node: NodeId) -> impl Iterator<Item = (&Hca, Option<u64>)> {
        let guids = &self.node(node).port_guids;
        let hcas = self.sku_of(node).hcas.iter().enumerate();
        hcas.filter(move |(at, _)| !self.is_storage_port(node, *at))
            .map(move |(at, hca)| (hca, guids.get(at).copied().flatten()))
    }

    /// The power domain with this name.
    #[must_use]
    pub fn domain_named(&self, name: &str) -> Option<DomainId> {
        self.names.domains.get(name).copied().map(DomainId)
    }

    /// The customer with this name.
    #[must_use]
    pub fn customer_named(&self, name: &str) -> Option<CustomerId> {
        self.names.customers.get(name).copied().map(CustomerId)
    }

    /// The SKU of a node.
    #[must_use]
    pub fn sku_of(&self, node: NodeId) -> &Sku {
        self.sku(self.node(node).sku)
    }

    /// The ids of all feed letters.
    pub fn feed_ids(&self) -> impl DoubleEndedIterator<Item = FeedId> + ExactSizeIterator + use<> {
        (0..self.feeds.len()).map(FeedId::of)
    }

    /// A domain and its ancestors, bottom up.
    pub fn ancestors(&self, domain: DomainId) -> impl Iterator<Item = DomainId> + '_ {
        std::iter::successors(Some(domain), |id| self.domain(*id).parent)
    }

    /// One outlet of a rack PDU or power shelf. `None` for other domains and for indices beyond the layout.
    #[must_use]
    pub fn outlet(&self, plug: Plug) -> Option<&Outlet> {
        let layout = self.domain(plug.pdu).layout?;
        self.layout(layout).outlets.get(usize::from(plug.outlet))
    }

    /// The name of an outlet, such as `pdu-a-r01/7`.
    #[must_use]
    pub fn plug_name(&self, plug: Plug) -> String {
        let outlet = self.outlet(plug).map_or("?", |outlet| &*outlet.name);
        format!("{}/{outlet}", self.domain(plug.pdu).name)
    }

    /// The name of a port, such as `gpu-001/mlx5_0` or `leaf-01/7`.
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

serialize_as_number! {
    RoomId RackId DomainId LayoutId FeedId CoolingUnitId LoopId SkuId NodeId FabricId SwitchId CableId CustomerId
}
