//! SKUs (classes of nodes) and nodes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::WantedFirmware;
use super::fabric::Speed;
use super::ids::{RackId, SkuId};
use super::power::Plug;
use super::settings::WantedSettings;

/// The power draw of a node, in watts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PowerProfile {
    /// Draw at idle.
    pub idle_watts: f64,
    /// Draw under the usual load.
    pub typical_watts: f64,
    /// Maximum sustained draw. This value is reserved.
    pub max_watts: f64,
    /// Peak draw during the start.
    pub boot_peak_watts: f64,
}

/// The power supplies of a node. The working ones share the load evenly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PsuProfile {
    /// Number of PSUs.
    pub count: u8,
    /// Rated output of one PSU, in watts.
    pub watts: f64,
    /// Number of PSUs that must work at any load.
    pub needed: u8,
}

/// A host channel adapter with one port. A dual-port adapter appears to the host as two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hca {
    /// The host's name for the adapter, such as `mlx5_0`.
    pub name: Box<str>,
    /// The adapter's rail, from 0.
    pub rail: u8,
}

/// A class of identical nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sku {
    /// Unique among SKUs.
    pub name: Box<str>,
    /// The power draw of a node.
    pub power: PowerProfile,
    /// The power supplies of a node.
    pub psus: PsuProfile,
    /// Share of the heat that goes to liquid, 0 to 1. The rest goes to air.
    pub liquid_share: f64,
    /// Required coolant, in litres a minute for each kW of heat to liquid.
    pub flow_lpm_per_kw: f64,
    /// Number of occupied rack units.
    pub height_units: u16,
    /// Weight of a node, in kg.
    pub weight_kg: f64,
    /// Number of GPUs of a node.
    pub gpus: u16,
    /// The HCAs, in the order of the file.
    pub hcas: Vec<Hca>,
    pub hca_speed: Speed,
    /// The parts that an inspection must find: count by kind of part.
    pub inventory: BTreeMap<String, u32>,
    /// The name of the validation profile.
    pub validation_profile: Option<Box<str>>,
    /// The price of a node for its customer.
    pub price: Option<Price>,
    /// The wanted settings of the firmware.
    #[serde(skip_serializing_if = "WantedSettings::is_empty")]
    pub settings: WantedSettings,
    /// The wanted firmware versions.
    pub firmware: Vec<WantedFirmware>,
}

/// The price of a node for each second of use. The decimal digits are stored as written, because money is not rounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Price {
    /// The amount, such as `0.0125`.
    pub per_second: Box<str>,
    /// The currency code of ISO 4217, such as `USD`.
    pub currency: Box<str>,
}

impl Price {
    /// Maximum number of digits before and after the point.
    const DIGITS: usize = 12;

    /// Parses a price such as `0.0125 USD`. `None`: the text is not a price.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (amount, currency) = text.trim().split_once(' ')?;
        let currency = currency.trim();
        let (whole, part) = amount.split_once('.').unwrap_or((amount, "0"));
        let digits = |text: &str| (1..=Self::DIGITS).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        let plain = whole == "0" || !whole.starts_with('0');
        let named = currency.len() == 3 && currency.bytes().all(|c| c.is_ascii_uppercase());
        (digits(whole) && digits(part) && plain && named).then(|| Self {
            per_second: amount.into(),
            currency: currency.into(),
        })
    }
}

impl std::fmt::Display for Price {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.per_second, self.currency)
    }
}

impl Sku {
    /// Number of rails: the highest rail of an HCA plus one.
    #[must_use]
    pub fn rails(&self) -> u8 {
        self.hcas
            .iter()
            .map(|hca| hca.rail.saturating_add(1))
            .max()
            .unwrap_or(0)
    }
}

/// A network card and the Ethernet switch port that it is connected to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EthernetPort {
    /// The host's name for the network card.
    pub nic: Box<str>,
    /// The name of the switch.
    pub switch: Box<str>,
    /// The switch's name for the port.
    pub port: Box<str>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Unique among nodes and switches.
    pub name: Box<str>,
    /// The node's SKU.
    pub sku: SkuId,
    /// The node's rack.
    pub rack: RackId,
    /// The lowest occupied rack unit, from 1. 0: unknown.
    pub unit: u16,
    /// The outlet of each PSU. As many entries as the SKU has PSUs.
    pub psus: Box<[Option<Plug>]>,
    /// The address of the node's BMC.
    pub bmc: Option<Box<str>>,
    /// Port GUIDs by HCA of the SKU. Empty, or as many as the SKU has.
    pub port_guids: Box<[Option<u64>]>,
    /// The node's ports on Ethernet switches, by network card.
    #[serde(skip_serializing_if = "<[EthernetPort]>::is_empty")]
    pub ethernet: Box<[EthernetPort]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_digits_and_a_currency_and_are_not_rounded() {
        for good in ["0.0125 USD", "3 EUR", "0 USD", "123456789012.000000000001 JPY"] {
            let price = Price::parse(good).unwrap();
            assert_eq!(price.to_string(), good);
        }
        for bad in [
            "",
            "1",
            "1 usd",
            "1 US",
            "-1 USD",
            "1e3 USD",
            "1. USD",
            ".5 USD",
            "01 USD",
            "1,5 USD",
            "1.0000000000001 USD",
            "1 USD EUR",
        ] {
            assert_eq!(Price::parse(bad), None, "{bad}");
        }
    }
}
