//! What takes the heat away.

use serde::Serialize;

use super::ids::{CoolingUnitId, LoopId, RackId, RoomId};

/// What a cooling unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoolingKind {
    /// A computer room air handler: cools the air of a room.
    Crah,
    /// A heat exchanger in the rear door of one rack: cools that rack's air before it reaches the room.
    RearDoor,
    /// A coolant distribution unit: cools a liquid loop.
    Cdu,
}

impl CoolingKind {
    /// All.
    pub const ALL: [Self; 3] = [Self::Crah, Self::RearDoor, Self::Cdu];

    /// As the site file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crah => "crah",
            Self::RearDoor => "rear-door",
            Self::Cdu => "cdu",
        }
    }
}

/// A unit that takes heat away.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoolingUnit {
    /// Unique among cooling units.
    pub name: Box<str>,
    /// What it is.
    pub kind: CoolingKind,
    /// The room it is in; of a rear door, the room of its rack.
    pub room: RoomId,
    /// The rack of a rear door.
    pub rack: Option<RackId>,
    /// The loop of a CDU.
    pub cooling_loop: Option<LoopId>,
    /// Heat that it takes away, in watts.
    pub watts: f64,
    /// Coolant that it moves, in litres a minute.
    pub flow_lpm: Option<f64>,
    /// Temperature of what it supplies, in °C.
    pub supply_celsius: Option<f64>,
    /// Above this it supplies too hot, in °C.
    pub supply_max_celsius: Option<f64>,
    /// Below this it moves too little, in litres a minute.
    pub flow_min_lpm: Option<f64>,
    /// Address of the service that reads it.
    pub bmc: Option<Box<str>>,
    /// Heat that it gives to the room's air itself, in watts (Redfish: `RatedThermalLossToAirWatts`).
    pub loss_to_air_watts: f64,
}

/// A liquid loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoolingLoop {
    /// Unique among loops.
    pub name: Box<str>,
    /// The CDUs that feed it.
    pub units: Vec<CoolingUnitId>,
    /// The racks on it.
    pub racks: Vec<RackId>,
    /// Coolant that its pipes carry, in litres a minute; `None`: what its units move.
    pub flow_lpm: Option<f64>,
}
