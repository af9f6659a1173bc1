//! Classes of nodes, and the nodes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::WantedFirmware;
use super::fabric::Speed;
use super::ids::{RackId, SkuId};
use super::power::Plug;
use super::settings::WantedSettings;

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
    /// What a node costs its customer.
    pub price: Option<Price>,
    /// Settings of the firmware.
    #[serde(skip_serializing_if = "WantedSettings::is_empty")]
    pub settings: WantedSettings,
    /// Firmware that its nodes shall have.
    pub firmware: Vec<WantedFirmware>,
}

/// A price of a node for each second that it is in use. Decimal digits, as they were written: money is not rounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Price {
    /// `0.0125`
    pub per_second: Box<str>,
    /// ISO 4217: `USD`.
    pub currency: Box<str>,
}

impl Price {
    /// Most digits before and after the point.
    const DIGITS: usize = 12;

    /// Reads `0.0125 USD`. None: it is something else.
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

/// A network card and the port of an Ethernet switch that it is cabled to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EthernetPort {
    /// The network card, as the host names it.
    pub nic: Box<str>,
    /// The switch.
    pub switch: Box<str>,
    /// The port, as the switch names it.
    pub port: Box<str>,
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
    /// Its ports on Ethernet switches, by network card.
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
