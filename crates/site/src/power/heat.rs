//! Heat: to a rack's air, its rear door, its room and its loop.

use serde::Serialize;

use super::load::{MilliWatts, milliwatts, watts};
use super::loads::exceeds;
use super::refusal::Refusal;
use crate::model::{CoolingKind, CoolingUnit, LoopId, NodeId, RackId, RoomId, Site};

/// The destination of most of a node's heat. A customer with dedicated cooling does not share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// A liquid loop: nodes with liquid cooling.
    Loop(LoopId),
    /// A rear door: nodes in a rack with one.
    RearDoor(RackId),
    /// The air of a room: all other nodes.
    Room(RoomId),
}

impl Zone {
    /// The zone in words.
    #[must_use]
    pub fn words(self, site: &Site) -> String {
        match self {
            Self::Loop(id) => format!("loop {}", site.cooling_loop(id).name),
            Self::RearDoor(id) => format!("the rear door of rack {}", site.rack(id).name),
            Self::Room(id) => format!("the air of {}", site.room(id).name),
        }
    }
}

/// The zone that takes most of a node's heat.
#[must_use]
pub fn zone_of(site: &Site, node: NodeId) -> Zone {
    let rack_id = site.node(node).rack;
    let rack = site.rack(rack_id);
    match rack.cooling_loop {
        Some(id) if site.sku_of(node).liquid_share > 0.0 => Zone::Loop(id),
        _ if rack.rear_door.is_some() => Zone::RearDoor(rack_id),
        _ => Zone::Room(rack.room),
    }
}

/// The heat of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Heat {
    /// To air, in milliwatts.
    pub air: MilliWatts,
    /// To liquid, in milliwatts.
    pub liquid: MilliWatts,
    /// Required coolant, in millilitres a minute.
    pub flow: i64,
}

/// The heat of a node that draws this many watts.
#[must_use]
pub fn node_heat(site: &Site, node: NodeId, node_watts: f64) -> Heat {
    let sku = site.sku_of(node);
    let liquid = node_watts * sku.liquid_share;
    Heat {
        air: milliwatts(node_watts - liquid),
        liquid: milliwatts(liquid),
        // kW × L/min per kW = W × mL/min per W.
        flow: milliwatts(liquid * sku.flow_lpm_per_kw / 1000.0),
    }
}

/// The heat of all reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatLoads {
    rack_air: Vec<MilliWatts>,
    room_air: Vec<MilliWatts>,
    loop_heat: Vec<MilliWatts>,
    loop_flow: Vec<i64>,
    room_limit: Vec<Option<MilliWatts>>,
    loop_limit: Vec<MilliWatts>,
    loop_flow_limit: Vec<Option<i64>>,
    door: Vec<MilliWatts>,
}

impl HeatLoads {
    /// The heat that cooling units themselves give to the air.
    #[must_use]
    pub fn new(site: &Site) -> Self {
        let units = |room: RoomId| site.cooling_units.iter().filter(move |unit| unit.room == room);
        let crahs = |room| {
            let watts: f64 = units(room)
                .filter(|u| u.kind == CoolingKind::Crah)
                .map(|u| u.watts)
                .sum();
            (watts > 0.0).then(|| milliwatts(watts))
        };
        let feeders = |id: LoopId| site.cooling_loop(id).units.iter().map(|unit| site.cooling_unit(*unit));
        let flow = |id: LoopId| {
            let own = site.cooling_loop(id).flow_lpm;
            let units: Option<f64> = feeders(id).map(|unit: &CoolingUnit| unit.flow_lpm).sum();
            [own, units].into_iter().flatten().reduce(f64::min).map(milliwatts)
        };
        Self {
            rack_air: vec![0; site.racks.len()],
            room_air: site
                .room_ids()
                .map(|room| milliwatts(units(room).map(|u| u.loss_to_air_watts).sum()))
                .collect(),
            loop_heat: vec![0; site.loops.len()],
            loop_flow: vec![0; site.loops.len()],
            room_limit: site.room_ids().map(crahs).collect(),
            loop_limit: site
                .loop_ids()
                .map(|id| milliwatts(feeders(id).map(|unit| unit.watts).sum()))
                .collect(),
            loop_flow_limit: site.loop_ids().map(flow).collect(),
            door: site
                .racks
                .iter()
                .map(|rack| {
                    rack.rear_door
                        .map_or(0, |door| milliwatts(site.cooling_unit(door).watts))
                })
                .collect(),
        }
    }

    /// Adds a node.
    pub fn add(&mut self, site: &Site, node: NodeId, watts: f64) {
        self.change(site, node, node_heat(site, node, watts), 1);
    }

    /// Removes a node that was added with the same arguments.
    pub fn remove(&mut self, site: &Site, node: NodeId, watts: f64) {
        self.change(site, node, node_heat(site, node, watts), -1);
    }

    fn change(&mut self, site: &Site, node: NodeId, heat: Heat, sign: i64) {
        let rack = site.node(node).rack;
        let (r, room) = (rack.index(), site.rack(rack).room.index());
        let beyond_door = |air: MilliWatts, door: MilliWatts| (air - door).max(0);
        let before = beyond_door(self.rack_air[r], self.door[r]);
        self.rack_air[r] += sign * heat.air;
        self.room_air[room] += beyond_door(self.rack_air[r], self.door[r]) - before;
        if let Some(id) = site.rack(rack).cooling_loop {
            self.loop_heat[id.index()] += sign * heat.liquid;
            self.loop_flow[id.index()] += sign * heat.flow;
        }
    }

    /// Checks whether a node's rack, room and loop can take their present heat.
    pub fn check(&self, site: &Site, node: NodeId) -> Vec<Refusal> {
        let rack_id = site.node(node).rack;
        let rack = site.rack(rack_id);
        let mut refusals = Vec::new();
        let load_watts = watts(self.rack_air[rack_id.index()]);
        if let Some(limit_watts) = rack.air_heat_limit_watts.filter(|limit| exceeds(load_watts, *limit)) {
            refusals.push(Refusal::RackHeat {
                rack: rack_id,
                load_watts,
                limit_watts,
            });
        }
        let room = rack.room;
        let load_watts = watts(self.room_air[room.index()]);
        if let Some(limit) = self.room_limit[room.index()].filter(|limit| exceeds(load_watts, watts(*limit))) {
            refusals.push(Refusal::RoomHeat {
                room,
                load_watts,
                limit_watts: watts(limit),
            });
        }
        let Some(id) = rack.cooling_loop else { return refusals };
        let (load_watts, limit_watts) = (watts(self.loop_heat[id.index()]), watts(self.loop_limit[id.index()]));
        if exceeds(load_watts, limit_watts) {
            refusals.push(Refusal::LoopHeat {
                cooling_loop: id,
                load_watts,
                limit_watts,
            });
        }
        let load_lpm = watts(self.loop_flow[id.index()]);
        if let Some(limit) = self.loop_flow_limit[id.index()].filter(|limit| exceeds(load_lpm, watts(*limit))) {
            refusals.push(Refusal::LoopFlow {
                cooling_loop: id,
                load_lpm,
                limit_lpm: watts(limit),
            });
        }
        refusals
    }

    /// Heat to the air of a rack, in watts.
    #[must_use]
    pub fn rack_air_watts(&self, rack: RackId) -> f64 {
        watts(self.rack_air[rack.index()])
    }

    /// Heat to the air of a room and the capacity of its CRAHs, in watts. `None`: the room has no CRAHs.
    #[must_use]
    pub fn room_air_watts(&self, room: RoomId) -> (f64, Option<f64>) {
        (
            watts(self.room_air[room.index()]),
            self.room_limit[room.index()].map(watts),
        )
    }

    /// Heat to a loop and the capacity of its CDUs, in watts.
    #[must_use]
    pub fn loop_watts(&self, id: LoopId) -> (f64, f64) {
        (watts(self.loop_heat[id.index()]), watts(self.loop_limit[id.index()]))
    }

    /// Required flow of a loop and its maximum, in L/min. `None`: unknown.
    #[must_use]
    pub fn loop_flow_lpm(&self, id: LoopId) -> (f64, Option<f64>) {
        (
            watts(self.loop_flow[id.index()]),
            self.loop_flow_limit[id.index()].map(watts),
        )
    }
}
