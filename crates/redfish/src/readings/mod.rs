//! Readings of meters and sensors: of a machine, a rack PDU or a coolant distribution unit.
//!
//! The standard's newer resources come first; the older ones come first where one answer contains more: a poll of every BMC
//! of a hall every few minutes must be a handful of requests. An unreadable resource is a gap and a missing value is
//! absent: neither counts as good or bad.

mod cooling;
mod node;
mod pdu;

pub use cooling::{CduReadings, ConnectorReading};
pub use node::{LeakReading, NodeReadings, SupplyReading};
pub use pdu::{CircuitReading, OutletReading, PduReadings};

use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use serde_json::Value;

use crate::inventory::{InventoryGap, Walk};
use crate::views::LeakDetector;

/// Most leak detectors that are read per device.
const MAX_DETECTORS: usize = 64;

impl Walk<'_> {
    /// One resource, if there is a link to it.
    async fn one(&mut self, link: Option<String>) -> Result<Option<crate::resource::Resource>, RedfishError> {
        let links: Vec<String> = link.into_iter().collect();
        Ok(self.get_all(&links).await?.pop())
    }

    /// The leak detectors behind a `LeakDetection` or a collection of detectors. A detector that is listed but unreadable is
    /// a gap.
    async fn leaks(
        &mut self,
        detection: Option<String>,
        collection: Option<String>,
    ) -> Result<Vec<LeakDetector>, RedfishError> {
        let detection = self.one(detection).await?;
        let mut found: Vec<LeakDetector> = Vec::new();
        // A group holds the states of all its detectors: one answer for all.
        if let Some(Value::Array(groups)) = detection.as_ref().and_then(|one| one.at(&["LeakDetectorGroups"])) {
            let members = groups
                .iter()
                .filter_map(|group| json::at(group, &["Detectors"])?.as_array());
            let mut members = members.flatten();
            found.extend(members.by_ref().take(MAX_DETECTORS).filter_map(LeakDetector::of));
            if members.next().is_some() {
                let path = detection.as_ref().map_or("", |one| one.path()).to_owned();
                let why = format!("more than {MAX_DETECTORS} leak detectors, the rest was not read");
                self.gaps.push(InventoryGap { path, why });
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let collection = collection.or_else(|| detection.as_ref()?.link(&["LeakDetectors"]));
        let mut links = self.member_links(collection).await?;
        self.cut(&mut links, MAX_DETECTORS);
        let detectors = self.get_all(&links).await?;
        Ok(detectors
            .iter()
            .filter_map(|one| LeakDetector::of(one.json()))
            .collect())
    }
}
