//! Readings of a coolant distribution unit.

use rackwright_redfish_wire::error::RedfishError;
use serde::Serialize;

use super::LeakReading;
use crate::client::BmcClient;
use crate::inventory::{InventoryGap, Walk};
use crate::views::{ConnectorSide, CoolantConnector, CoolingUnit};

/// Most resources of one reading.
const MAX_RESOURCES: usize = 160;
/// Most connectors of one side.
const MAX_CONNECTORS: usize = 32;

/// A pair of connectors to one loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConnectorReading {
    /// The connectors' name.
    pub name: String,
    /// Towards the building or towards the racks.
    pub side: ConnectorSide,
    /// Supply temperature, in °C.
    pub supply_celsius: Option<f64>,
    /// Return temperature, in °C.
    pub return_celsius: Option<f64>,
    /// Flow, in litres a minute.
    pub flow_lpm: Option<f64>,
}

/// The readings of a coolant distribution unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CduReadings {
    /// The connectors in use.
    pub connectors: Vec<ConnectorReading>,
    /// Its leak detectors.
    pub leaks: Vec<LeakReading>,
    /// Resources that could not be read.
    pub gaps: Vec<InventoryGap>,
}

impl BmcClient {
    /// Reads the coolant distribution unit behind this address: the only one, or the one named `name`.
    ///
    /// # Errors
    /// No such unit, or a fault of the whole service. Any other fault is a gap.
    pub async fn cdu_readings(&self, name: &str) -> Result<CduReadings, RedfishError> {
        let mut walk = Walk::of_at_most(self, MAX_RESOURCES);
        let units = self
            .units(&mut walk, self.service_root().await?.thermal_equipment(), "CDUs")
            .await?;
        let units: Vec<CoolingUnit> = units.into_iter().map(CoolingUnit::from).collect();
        let named = units.iter().map(|one| (one.id(), one.labels()));
        let unit = &units[self.chosen("cooling unit", name, named.collect())?];
        let mut connectors = Vec::new();
        for side in [ConnectorSide::Primary, ConnectorSide::Secondary] {
            let mut links = walk.member_links(unit.connectors(side)).await?;
            walk.cut(&mut links, MAX_CONNECTORS);
            let read = walk.get_all(&links).await?.into_iter().map(CoolantConnector::from);
            let in_use = read.filter(CoolantConnector::is_in_use);
            connectors.extend(in_use.map(|one| ConnectorReading {
                name: one.name(),
                side,
                supply_celsius: one.supply_celsius(),
                return_celsius: one.return_celsius(),
                flow_lpm: one.flow_lpm(),
            }));
        }
        let leaks = walk.leaks(unit.leak_detection(), None).await?;
        Ok(CduReadings {
            connectors,
            leaks,
            gaps: walk.gaps,
        })
    }
}
