//! Classes of nodes, and the nodes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::fabric::Speed;
use super::ids::{RackId, SkuId};
use super::power::Plug;

/// What a node draws, in watts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PowerProfile {
    /// Doing nothing.
    pub idle_watts: f64,
    /// Under the usual load.
    pub typical_watts: f64,
    /// The most it draws for longer than a moment. What is reserved.
    pub max_watts: f64,
    /// The peak while it starts.
    pub boot_peak_watts: f64,
}

/// The power supplies of a node; load is shared evenly among those that live.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PsuProfile {
    /// How many there are.
    pub count: u8,
    /// What one can give, in watts.
    pub watts: f64,
    /// How many must live, whatever the load.
    pub needed: u8,
}

/// A host channel adapter with one port. (What the vendor sells as a dual-port adapter appears to the host as two.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hca {
    /// As the host names it: `mlx5_0`.
    pub name: Box<str>,
    /// The rail it belongs to, from 0.
    pub rail: u8,
}

/// A class of identical nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sku {
    /// Unique among SKUs.
    pub name: Box<str>,
    /// What a node draws.
    pub power: PowerProfile,
    /// Its power supplies.
    pub psus: PsuProfile,
    /// Share of its heat that goes to liquid, 0 to 1; the rest goes to air.
    pub liquid_share: f64,
    /// Coolant that it needs, in litres a minute for each kW that goes to liquid.
    pub flow_lpm_per_kw: f64,
    /// Rack units that it takes.
    pub height_units: u16,
    /// Its weight in kg.
    pub weight_kg: f64,
    /// GPUs.
    pub gpus: u16,
    /// In the order of the file.
    pub hcas: Vec<Hca>,
    /// Of its HCAs.
    pub hca_speed: Speed,
    /// What an inspection must find: count by kind of part.
    pub inventory: BTreeMap<String, u32>,
    /// Name of the validation profile.
    pub validation_profile: Option<Box<str>>,
}

impl Sku {
    /// Rails: the highest of its HCAs and one.
    #[must_use]
    pub fn rails(&self) -> u8 {
        self.hcas
            .iter()
            .map(|hca| hca.rail.saturating_add(1))
            .max()
            .unwrap_or(0)
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Unique among nodes and switches.
    pub name: Box<str>,
    /// Its class.
    pub sku: SkuId,
    /// Where it stands.
    pub rack: RackId,
    /// The lowest rack unit it takes, from 1; 0: not said.
    pub unit: u16,
    /// By PSU: where it is plugged in. As many as the SKU has.
    pub psus: Box<[Option<Plug>]>,
    /// Address of its BMC.
    pub bmc: Option<Box<str>>,
    /// Port GUIDs by HCA of the SKU; empty, or as many as the SKU has.
    pub port_guids: Box<[Option<u64>]>,
}
