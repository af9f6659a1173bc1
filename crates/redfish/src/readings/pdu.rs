//! Readings of a rack PDU.

use rackwright_redfish_wire::address::last_segment;
use rackwright_redfish_wire::error::RedfishError;
use serde::Serialize;

use crate::client::BmcClient;
use crate::inventory::{InventoryGap, Walk};
use crate::views::{Breaker, Circuit, Outlet, PowerDistribution};

/// Most resources of one reading: a PDU has some 50 outlets.
const MAX_RESOURCES: usize = 400;
/// Most circuits of one side.
const MAX_CIRCUITS: usize = 48;
/// Most PDUs behind one address: in a chain the first PDU may manage the others.
const MAX_UNITS: usize = 32;

/// A circuit that feeds a PDU, or a branch of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CircuitReading {
    pub id: String,
    /// The circuit's name.
    pub name: String,
    pub breaker: Breaker,
    /// Power through it, in watts.
    pub watts: Option<f64>,
    /// Current of the most loaded wire, in amps.
    pub amps: Option<f64>,
    /// Rated current, in amps.
    pub rated_amps: Option<f64>,
    /// Highest voltage of its wires, in volts.
    pub volts: Option<f64>,
    /// Ids of its outlets, if the PDU reports them.
    pub outlets: Vec<String>,
}

/// An outlet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutletReading {
    pub id: String,
    /// The outlet's name.
    pub name: String,
    /// The label that a person gave it.
    pub label: Option<String>,
    /// Whether it is switched on.
    pub is_on: Option<bool>,
    /// Power that it delivers, in watts.
    pub watts: Option<f64>,
    /// Current, in amps.
    pub amps: Option<f64>,
    /// Id of its branch, if the PDU reports it.
    pub branch: Option<String>,
}

/// The readings of a rack PDU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PduReadings {
    /// Power that the whole PDU draws, in watts.
    pub watts: Option<f64>,
    /// The circuits that feed it.
    pub mains: Vec<CircuitReading>,
    /// Its branches, each behind a breaker.
    pub branches: Vec<CircuitReading>,
    pub outlets: Vec<OutletReading>,
    /// Resources that could not be read.
    pub gaps: Vec<InventoryGap>,
}

impl From<Circuit> for CircuitReading {
    fn from(circuit: Circuit) -> Self {
        let segment = |link: &String| last_segment(link).to_owned();
        Self {
            id: circuit.id(),
            name: circuit.name(),
            breaker: circuit.breaker(),
            watts: circuit.watts(),
            amps: circuit.amps(),
            rated_amps: circuit.rated_amps(),
            volts: circuit.volts(),
            outlets: circuit.outlets().iter().take(512).map(segment).collect(),
        }
    }
}

impl From<Outlet> for OutletReading {
    fn from(outlet: Outlet) -> Self {
        Self {
            id: outlet.id(),
            name: outlet.name(),
            label: outlet.label(),
            is_on: outlet.is_on(),
            watts: outlet.watts(),
            amps: outlet.amps(),
            branch: outlet.branch().map(|link| last_segment(&link).to_owned()),
        }
    }
}

impl BmcClient {
    /// Reads the rack PDU behind this address: the only one, or the one named `name` of several.
    ///
    /// # Errors
    /// No such PDU, or a fault of the whole service. Any other fault is a gap.
    pub async fn pdu_readings(&self, name: &str) -> Result<PduReadings, RedfishError> {
        let mut walk = Walk::of_at_most(self, MAX_RESOURCES);
        let units = self
            .units(&mut walk, self.service_root().await?.power_equipment(), "RackPDUs")
            .await?;
        let units: Vec<PowerDistribution> = units.into_iter().map(PowerDistribution::from).collect();
        let named = units.iter().map(|one| (one.id(), one.labels()));
        let unit = &units[self.chosen("rack PDU", name, named.collect())?];
        let metrics = walk.one(unit.metrics()).await?;
        let mains = walk.circuits(unit.mains()).await?;
        // If some circuits could not be read, the sum of the others is too low.
        let carried = summed(&mains).filter(|_| walk.gaps.is_empty());
        let branches = walk.circuits(unit.branches()).await?;
        let outlets = walk.members(unit.outlets()).await?.into_iter();
        let outlets = outlets.map(|one| Outlet::from(one).into()).collect();
        let whole = metrics.as_ref().and_then(|one| one.reading(&["PowerWatts"]));
        Ok(PduReadings {
            watts: whole.filter(|watts| *watts >= 0.0).or(carried),
            mains,
            branches,
            outlets,
            gaps: walk.gaps,
        })
    }

    /// The members of one kind of equipment.
    pub(super) async fn units(
        &self,
        walk: &mut Walk<'_>,
        equipment: Option<String>,
        kind: &'static str,
    ) -> Result<Vec<crate::resource::Resource>, RedfishError> {
        let missing = |path: &str, property| RedfishError::MissingProperty {
            bmc: self.address(),
            path: path.to_owned(),
            property,
            consequence: "there are no readings",
        };
        let Some(link) = equipment else {
            return Err(missing("/redfish/v1", kind));
        };
        let Some(equipment) = walk.one(Some(link.clone())).await? else {
            return Err(missing(&link, kind));
        };
        let mut links = walk.member_links(equipment.link(&[kind])).await?;
        links.truncate(MAX_UNITS);
        walk.get_all(&links).await
    }

    /// The index of the only unit, or of the unit of this name.
    pub(super) fn chosen(
        &self,
        what: &'static str,
        name: &str,
        units: Vec<(String, Vec<String>)>,
    ) -> Result<usize, RedfishError> {
        let is_called = |(id, labels): &(String, Vec<String>)| id == name || labels.iter().any(|label| label == name);
        if let Some(index) = units.iter().position(is_called) {
            return Ok(index);
        }
        if units.len() == 1 {
            return Ok(0);
        }
        Err(RedfishError::NoSuchUnit {
            bmc: self.address(),
            what,
            wanted: name.to_owned(),
            members: units.into_iter().map(|(id, _)| id).collect(),
        })
    }
}

impl Walk<'_> {
    async fn circuits(&mut self, collection: Option<String>) -> Result<Vec<CircuitReading>, RedfishError> {
        let mut links = self.member_links(collection).await?;
        self.cut(&mut links, MAX_CIRCUITS);
        let found = self.get_all(&links).await?.into_iter();
        Ok(found.map(|one| Circuit::from(one).into()).collect())
    }
}

/// The total power of all circuits; none if one of them does not report it.
fn summed(circuits: &[CircuitReading]) -> Option<f64> {
    let each: Vec<f64> = circuits.iter().map_while(|one| one.watts).collect();
    (!each.is_empty() && each.len() == circuits.len()).then(|| each.iter().sum())
}
