//! The key figures of a site.

use std::fmt;

use serde::Serialize;

use super::{FabricPurpose, Port, Site, SwitchRole};
use crate::power::capacity_watts;

/// Number of switches by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SwitchCounts {
    /// Number of leaves.
    pub leaves: usize,
    /// Number of spines.
    pub spines: usize,
    /// Number of cores.
    pub cores: usize,
}

/// The size of a named fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FabricCount {
    /// Name of the fabric.
    pub fabric: Box<str>,
    /// The use of the fabric.
    pub purpose: FabricPurpose,
    /// Number of switches.
    pub switches: usize,
    /// Number of nodes with a cable to one of these switches.
    pub nodes: usize,
}

/// The number of nodes of a SKU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkuCount {
    /// Name of the SKU.
    pub sku: Box<str>,
    /// Number of nodes.
    pub count: usize,
}

/// The capacity at the top of a feed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeedCapacity {
    /// The feed letter.
    pub feed: Box<str>,
    /// The capacity, in watts.
    pub watts: f64,
}

/// The key figures of a site.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The site's name.
    pub name: Box<str>,
    /// Number of rooms.
    pub rooms: usize,
    /// Number of racks.
    pub racks: usize,
    /// Nodes of each SKU, in the order of the SKUs.
    pub nodes: Vec<SkuCount>,
    /// Number of GPUs of all nodes.
    pub gpus: usize,
    /// Number of HCAs of all nodes.
    pub hcas: usize,
    /// Number of switches by role.
    pub switches: SwitchCounts,
    /// The named fabrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fabrics: Vec<FabricCount>,
    /// Number of cables.
    pub cables: usize,
    /// Number of power domains.
    pub power_domains: usize,
    /// The capacity at the top of each feed, in watts. Roots without a letter do not count.
    pub feeds: Vec<FeedCapacity>,
    /// Sum of the maximum draw of all nodes, in watts.
    pub max_watts: f64,
    /// Capacity of CRAHs and rear doors, in watts.
    pub air_cooling_watts: f64,
    /// Capacity of CDUs, in watts.
    pub liquid_cooling_watts: f64,
    /// Number of customers.
    pub customers: usize,
}

impl Site {
    /// Computes the key figures.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let role = |role| self.switches.iter().filter(|switch| switch.role == role).count();
        let mut counts = vec![0; self.skus.len()];
        for node in &self.nodes {
            counts[node.sku.index()] += 1;
        }
        let of_all = |each: &dyn Fn(&super::Sku) -> f64| -> f64 {
            self.skus
                .iter()
                .zip(&counts)
                .fold(0.0, |sum, (sku, count)| sum + each(sku) * *count as f64)
        };
        let none = |feed| FeedCapacity { feed, watts: 0.0 };
        let mut feeds: Vec<FeedCapacity> = self.feeds.iter().cloned().map(none).collect();
        for domain in &self.domains {
            let above = domain.parent.and_then(|parent| self.domain(parent).feed);
            if let (Some(feed), None) = (domain.feed, above) {
                feeds[feed.index()].watts += capacity_watts(domain);
            }
        }
        let cooling = |liquid: bool| {
            let units = self.cooling_units.iter();
            units
                .filter(|unit| (unit.kind == super::CoolingKind::Cdu) == liquid)
                .fold(0.0, |sum, unit| sum + unit.watts)
        };
        Summary {
            name: self.name.clone(),
            rooms: self.rooms.len(),
            racks: self.racks.len(),
            gpus: of_all(&|sku| f64::from(sku.gpus)) as usize,
            hcas: of_all(&|sku| sku.hcas.len() as f64) as usize,
            max_watts: of_all(&|sku| sku.power.max_watts),
            nodes: self
                .skus
                .iter()
                .zip(counts)
                .map(|(sku, count)| SkuCount {
                    sku: sku.name.clone(),
                    count,
                })
                .collect(),
            switches: SwitchCounts {
                leaves: role(SwitchRole::Leaf),
                spines: role(SwitchRole::Spine),
                cores: role(SwitchRole::Core),
            },
            fabrics: self.fabric_counts(),
            cables: self.cables.len(),
            power_domains: self.domains.len(),
            feeds,
            air_cooling_watts: cooling(false),
            liquid_cooling_watts: cooling(true),
            customers: self.customers.len(),
        }
    }

    fn fabric_counts(&self) -> Vec<FabricCount> {
        if self.fabrics.is_empty() {
            return Vec::new();
        }
        let count = |fabric: &super::Fabric| FabricCount {
            fabric: fabric.name.clone(),
            purpose: fabric.purpose,
            switches: 0,
            nodes: 0,
        };
        let mut counts: Vec<FabricCount> = self.fabrics.iter().map(count).collect();
        for fabric in self.switches.iter().filter_map(|switch| switch.fabric) {
            counts[fabric.index()].switches += 1;
        }
        let mut cabled = Vec::new();
        for cable in &self.cables {
            if let (Port::Hca { node, .. }, Port::Switch { switch, .. })
            | (Port::Switch { switch, .. }, Port::Hca { node, .. }) = (cable.a, cable.b)
                && let Some(fabric) = self.switch(switch).fabric
            {
                cabled.push((fabric, node));
            }
        }
        cabled.sort_unstable();
        cabled.dedup();
        for (fabric, _) in cabled {
            counts[fabric.index()].nodes += 1;
        }
        counts
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kw = |watts: f64| format!("{:.1} kW", watts / 1000.0);
        let nodes: usize = self.nodes.iter().map(|sku| sku.count).sum();
        let by_sku: Vec<String> = self
            .nodes
            .iter()
            .map(|one| format!("{} {}", one.count, one.sku))
            .collect();
        let feeds: Vec<String> = self
            .feeds
            .iter()
            .map(|one| format!("{} {}", one.feed, kw(one.watts)))
            .collect();
        let SwitchCounts { leaves, spines, cores } = self.switches;
        writeln!(f, "site       {}", self.name)?;
        writeln!(f, "rooms      {}, racks {}", self.rooms, self.racks)?;
        writeln!(
            f,
            "nodes      {nodes} ({}), GPUs {}, HCAs {}",
            by_sku.join(", "),
            self.gpus,
            self.hcas
        )?;
        writeln!(
            f,
            "switches   {} (leaf {leaves}, spine {spines}, core {cores}), cables {}",
            leaves + spines + cores,
            self.cables
        )?;
        if !self.fabrics.is_empty() {
            let fabric = |one: &FabricCount| {
                let purpose = match one.purpose {
                    FabricPurpose::Compute => "",
                    FabricPurpose::Storage => ", storage",
                };
                format!("{} ({} nodes{purpose})", one.fabric, one.nodes)
            };
            let fabrics: Vec<String> = self.fabrics.iter().map(fabric).collect();
            writeln!(f, "fabrics    {}", fabrics.join(", "))?;
        }
        writeln!(
            f,
            "power      {} domains, feeds {}, nodes draw at most {}",
            self.power_domains,
            if feeds.is_empty() {
                "none".to_owned()
            } else {
                feeds.join(", ")
            },
            kw(self.max_watts)
        )?;
        writeln!(
            f,
            "cooling    air {}, liquid {}",
            kw(self.air_cooling_watts),
            kw(self.liquid_cooling_watts)
        )?;
        write!(f, "customers  {}", self.customers)
    }
}
