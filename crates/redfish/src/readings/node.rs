//! Readings of a machine: power, temperatures, leaks and power supplies.

use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use serde::Serialize;
use serde_json::Value;

use crate::client::BmcClient;
use crate::inventory::{InventoryGap, Walk};
use crate::resource::Resource;
use crate::views::{Chassis, LeakDetector, PowerState, PowerSupply, Temperature};

/// Most resources of one reading.
const MAX_RESOURCES: usize = 160;
/// Most chassis of a machine that are read.
const MAX_CHASSIS: usize = 4;
/// Most sensors that are read one by one for their limits.
const MAX_SENSORS: usize = 48;
/// Most members of a list that are examined.
const MAX_MEMBERS: usize = 512;
/// Most power supplies.
const MAX_SUPPLIES: usize = 16;

/// A leak detector and its state.
pub type LeakReading = LeakDetector;
/// A power supply and its state.
pub type SupplyReading = PowerSupply;

/// The readings of a machine's sensors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeReadings {
    /// The machine's power state.
    pub power: PowerState,
    /// Power that the machine draws, in watts; none if the BMC does not report it.
    pub watts: Option<f64>,
    /// The temperature sensors in use.
    pub temperatures: Vec<Temperature>,
    /// Its leak detectors.
    pub leaks: Vec<LeakReading>,
    /// The power supplies; empty bays are left out.
    pub supplies: Vec<SupplyReading>,
    /// Resources that could not be read.
    pub gaps: Vec<InventoryGap>,
}

impl BmcClient {
    /// Reads power, temperatures, leak detectors and power supplies of the machine.
    ///
    /// # Errors
    /// Those of [`system`](Self::system), and faults of the whole BMC. Any other fault is a gap.
    pub async fn node_readings(&self) -> Result<NodeReadings, RedfishError> {
        let system = self.system().await?;
        let mut walk = Walk::of_at_most(self, MAX_RESOURCES);
        let mut links = system.chassis();
        if links.is_empty() {
            // The only chassis is unambiguous.
            let all = walk.member_links(self.service_root().await?.chassis()).await?;
            links.extend((all.len() == 1).then(|| all.into_iter().next()).flatten());
        }
        walk.cut(&mut links, MAX_CHASSIS);
        let mut found = NodeReadings {
            power: system.power_state(),
            watts: None,
            temperatures: Vec::new(),
            leaks: Vec::new(),
            supplies: Vec::new(),
            gaps: Vec::new(),
        };
        for chassis in walk.get_all(&links).await?.into_iter().map(Chassis::from) {
            walk.chassis(&chassis, &mut found).await?;
        }
        found.gaps = walk.gaps;
        Ok(found)
    }
}

impl Walk<'_> {
    async fn chassis(&mut self, chassis: &Chassis, found: &mut NodeReadings) -> Result<(), RedfishError> {
        let environment = self.one(chassis.environment_metrics()).await?;
        let measured = environment.as_ref().and_then(|one| one.reading(&["PowerWatts"]));
        let power = self.one(chassis.power()).await?;
        let supplies = self.supplies(chassis, power.as_ref()).await?;
        if !chassis.is_part() && found.watts.is_none() {
            let watts = measured.filter(|watts| *watts >= 0.0);
            found.watts = watts
                .or_else(|| power.as_ref().and_then(consumed))
                .or_else(|| drawn_by(&supplies).filter(|_| self.gaps.is_empty()));
        }
        found.supplies.extend(supplies);
        let thermal = self.one(chassis.thermal()).await?;
        let subsystem = self.one(chassis.thermal_subsystem()).await?;
        let temperatures = self.temperatures(thermal.as_ref(), subsystem.as_ref()).await?;
        found.temperatures.extend(temperatures);
        let detection = subsystem.as_ref().and_then(|one| one.link(&["LeakDetection"]));
        found
            .leaks
            .extend(self.leaks(detection, chassis.leak_detectors()).await?);
        Ok(())
    }

    /// The older resource has all readings and limits in one answer. The newer metrics have only readings, and each limit is
    /// with its sensor. So the older resource comes first on a BMC with both.
    async fn temperatures(
        &mut self,
        thermal: Option<&Resource>,
        subsystem: Option<&Resource>,
    ) -> Result<Vec<Temperature>, RedfishError> {
        let older = members(thermal, "Temperatures");
        let older: Vec<Temperature> = older.filter_map(Temperature::of_thermal).collect();
        if !older.is_empty() {
            return Ok(older);
        }
        let metrics = self
            .one(subsystem.and_then(|one| one.link(&["ThermalMetrics"])))
            .await?;
        let mut sensors = Vec::new();
        let mut bare = Vec::new();
        for excerpt in members(metrics.as_ref(), "TemperatureReadingsCelsius") {
            match json::text(excerpt, &["DataSourceUri"]).filter(|_| sensors.len() < MAX_SENSORS) {
                Some(link) => sensors.push(link),
                None => bare.extend(Temperature::of_metrics(excerpt)),
            }
        }
        let read = self.get_all(&sensors).await?;
        let mut found: Vec<Temperature> = read
            .iter()
            .filter_map(|one| Temperature::of_sensor(one.json()))
            .collect();
        found.extend(bare);
        Ok(found)
    }

    async fn supplies(
        &mut self,
        chassis: &Chassis,
        power: Option<&Resource>,
    ) -> Result<Vec<PowerSupply>, RedfishError> {
        let older: Vec<PowerSupply> = members(power, "PowerSupplies")
            .take(MAX_SUPPLIES)
            .filter_map(PowerSupply::of)
            .collect();
        if !older.is_empty() || chassis.is_part() {
            return Ok(older);
        }
        let Some(subsystem) = self.one(chassis.power_subsystem()).await? else {
            return Ok(Vec::new());
        };
        let mut links = self.member_links(subsystem.link(&["PowerSupplies"])).await?;
        self.cut(&mut links, MAX_SUPPLIES);
        let mut found = Vec::new();
        for supply in self.get_all(&links).await? {
            let Some(mut read) = PowerSupply::of(supply.json()) else {
                continue;
            };
            if read.watts.is_none()
                && let Some(metrics) = self.one(supply.link(&["Metrics"])).await?
            {
                read.watts = self.supply_watts(&metrics).await?;
            }
            found.push(read);
        }
        Ok(found)
    }

    /// The input power of a supply, or else its output power. Some excerpts have no reading but only a link to the
    /// sensor (DGX H100).
    async fn supply_watts(&mut self, metrics: &Resource) -> Result<Option<f64>, RedfishError> {
        for property in ["InputPowerWatts", "OutputPowerWatts"] {
            let mut watts = metrics.reading(&[property]);
            if watts.is_none() {
                let sensor = self.one(metrics.text(&[property, "DataSourceUri"])).await?;
                watts = sensor.and_then(|sensor| sensor.number(&["Reading"]));
            }
            if let Some(watts) = watts.filter(|watts| *watts >= 0.0) {
                return Ok(Some(watts));
            }
        }
        Ok(None)
    }
}

/// The members of an array of a resource, limited in number.
fn members<'a>(resource: Option<&'a Resource>, property: &str) -> impl Iterator<Item = &'a Value> {
    let list = resource.and_then(|one| one.at(&[property])).and_then(Value::as_array);
    list.into_iter().flatten().take(MAX_MEMBERS)
}

/// The whole machine's entry of `PowerControl`: the first one, unless another entry states that it is the chassis. The
/// reading of a disabled entry is meaningless.
fn consumed(power: &Resource) -> Option<f64> {
    let controls = || members(Some(power), "PowerControl");
    let of_chassis = |one: &&Value| json::text(one, &["PhysicalContext"]).as_deref() == Some("Chassis");
    let control = controls().find(of_chassis).or_else(|| controls().next())?;
    if !crate::views::is_in_use(control) {
        return None;
    }
    json::number(control, &["PowerConsumedWatts"]).filter(|watts| *watts >= 0.0)
}

/// The total power of all supplies; none if one of them does not report it.
fn drawn_by(supplies: &[PowerSupply]) -> Option<f64> {
    let drawn: Vec<f64> = supplies.iter().map_while(|one| one.watts).collect();
    (!drawn.is_empty() && drawn.len() == supplies.len()).then(|| drawn.iter().sum())
}
