//! Cooling units and liquid loops.

use serde::Serialize;

use super::ids::{CoolingUnitId, LoopId, RackId, RoomId};

/// The kind of a cooling unit.
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
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Crah, Self::RearDoor, Self::Cdu];

    /// The name in the site file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crah => "crah",
            Self::RearDoor => "rear-door",
            Self::Cdu => "cdu",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoolingUnit {
    /// Unique among cooling units.
    pub name: Box<str>,
    pub kind: CoolingKind,
    /// The unit's room. For a rear door, the room of its rack.
    pub room: RoomId,
    /// The rack of a rear door.
    pub rack: Option<RackId>,
    /// The loop of a CDU.
    pub cooling_loop: Option<LoopId>,
    /// Cooling capacity, in watts.
    pub watts: f64,
    /// Coolant flow, in litres a minute.
    pub flow_lpm: Option<f64>,
    /// Supply temperature, in °C.
    pub supply_celsius: Option<f64>,
    /// Maximum supply temperature, in °C. Above it the unit is too hot.
    pub supply_max_celsius: Option<f64>,
    /// Minimum coolant flow, in litres a minute. Below it the flow is too low.
    pub flow_min_lpm: Option<f64>,
    /// Address of the service that reads the unit.
    pub bmc: Option<Box<str>>,
    /// Heat that the unit itself gives to the room's air, in watts (Redfish: `RatedThermalLossToAirWatts`).
    pub loss_to_air_watts: f64,
}

/// A liquid loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoolingLoop {
    /// Unique among loops.
    pub name: Box<str>,
    /// The CDUs of the loop.
    pub units: Vec<CoolingUnitId>,
    /// The racks on the loop.
    pub racks: Vec<RackId>,
    /// Coolant capacity of the pipes, in litres a minute. `None`: the flow of its units.
    pub flow_lpm: Option<f64>,
}
