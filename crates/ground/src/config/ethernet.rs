//! The `ethernet` section of the configuration: VLANs and switches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rackwright_lifecycle::Network;
use rackwright_ports::{Access, Address, OpenVSwitch, OvsSettings, PortDriver};
use serde::Deserialize;

/// Valid VLANs of a port: 0 and 4095 are reserved (IEEE 802.1Q).
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// As written in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// An operator separates the networks by hand: the control plane neither sets nor reads ports.
    pub by_hand: bool,
    /// VLAN of the network on which machines boot and are erased.
    provisioning: Option<u16>,
    /// VLAN without access to any other machine.
    quarantine: Option<u16>,
    /// Range of VLANs for clusters and customers, `FIRST-LAST`.
    customers: Option<String>,
    /// VLAN of the BMCs' network. No port of a node is ever moved there.
    bmc: Option<u16>,
    /// Machines on the provisioning network reach the control plane but not each other.
    isolate_provisioning: Option<bool>,
    /// Seconds between two readings of every port.
    proof_s: Option<u32>,
    /// The longest time for one change or reading of a switch, in seconds.
    timeout_s: Option<u32>,
    /// Consequence for a node with cables that differ from the site file.
    pub cabling: Cabling,
    /// By their names in the site file.
    switches: BTreeMap<String, SwitchSettings>,
}

/// The values of `ethernet.cabling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cabling {
    /// The difference is shown and added as an event.
    #[default]
    Recorded,
    /// In addition, the node is not imaged and not booted into its image until the cable is right.
    Hold,
}

/// An entry of `ethernet.switches`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchSettings {
    /// Address of the OVSDB server: `tcp:HOST:PORT` or `unix:/PATH`.
    ovsdb: String,
    /// The bridge with the ports.
    #[serde(default = "default_bridge")]
    bridge: String,
    /// System Name or Chassis ID that the switch sends by LLDP; `None`: its name in the site file.
    #[serde(default)]
    lldp_name: Option<String>,
}

fn default_bridge() -> String {
    "br0".into()
}

/// Checked settings of a site where the control plane sets the ports.
#[derive(Debug, Clone, Copy)]
pub struct Managed<'a> {
    settings: &'a Settings,
    provisioning: u16,
    quarantine: u16,
    customers: (u16, u16),
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub fn check(&self, faults: &mut Vec<String>) {
        // Cables are also compared if the ports are set by hand.
        let cabling = self.cabling;
        let is_only = |base: Self| *self == Self { cabling, ..base };
        if self.by_hand && !is_only(Self::by_hand()) {
            let rest = "`cabling` is the only other field of ethernet that may be set with by_hand";
            faults.push(format!("ethernet.by_hand: {rest}"));
        }
        if self.by_hand || is_only(Self::default()) {
            return;
        }
        for (field, vlan) in self.single() {
            match vlan {
                Some(vlan) if !VLANS.contains(&vlan) => {
                    faults.push(format!("ethernet.{field}: {vlan} is not a VLAN; write 1 to 4094"));
                }
                None if field != "bmc" => faults.push(format!("ethernet.{field}: the VLAN of that network is missing")),
                _ => {}
            }
        }
        match self.range() {
            Ok((first, last)) => {
                for (field, vlan) in self.single() {
                    if vlan.is_some_and(|vlan| (first..=last).contains(&vlan)) {
                        faults.push(format!("ethernet.customers: {first}-{last} contains ethernet.{field}"));
                    }
                }
            }
            Err(fault) => faults.push(format!("ethernet.customers: {fault}")),
        }
        let single = self.single();
        for (index, (field, vlan)) in single.iter().enumerate() {
            let same = single[..index]
                .iter()
                .find(|(_, other)| vlan.is_some() && other == vlan);
            if let Some((other, _)) = same {
                faults.push(format!("ethernet.{field}: is also the VLAN of ethernet.{other}"));
            }
        }
        for (field, seconds) in [("proof_s", self.proof_s), ("timeout_s", self.timeout_s)] {
            if seconds == Some(0) {
                faults.push(format!("ethernet.{field}: must be at least 1"));
            }
        }
        if self.switches.is_empty() {
            faults.push("ethernet.switches: must name at least one switch, so that ports can be set".into());
        }
        for (name, switch) in &self.switches {
            if let Err(fault) = switch.ovsdb.parse::<Address>() {
                faults.push(format!("ethernet.switches.{name}.ovsdb: {fault}"));
            }
            if switch.lldp_name.as_deref() == Some("") {
                faults.push(format!(
                    "ethernet.switches.{name}.lldp_name: write the name, or leave the field out"
                ));
            }
        }
    }

    fn by_hand() -> Self {
        Self {
            by_hand: true,
            ..Self::default()
        }
    }

    fn single(&self) -> [(&'static str, Option<u16>); 3] {
        [
            ("provisioning", self.provisioning),
            ("quarantine", self.quarantine),
            ("bmc", self.bmc),
        ]
    }

    fn range(&self) -> Result<(u16, u16), String> {
        let text = self.customers.as_deref().ok_or("the VLANs of customers are missing")?;
        let parts = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse().ok().filter(|vlan| VLANS.contains(vlan));
        match (number(parts.0), number(parts.1)) {
            (Some(first), Some(last)) if first <= last => Ok((first, last)),
            _ => Err(format!("{text:?} is not a range of VLANs; write it like 100-199")),
        }
    }

    /// The settings of the switches; `None` if the control plane sets no ports.
    #[must_use]
    pub fn managed(&self) -> Option<Managed<'_>> {
        let (Some(provisioning), Some(quarantine), Ok(customers)) = (self.provisioning, self.quarantine, self.range())
        else {
            return None;
        };
        Some(Managed {
            settings: self,
            provisioning,
            quarantine,
            customers,
        })
    }

    /// The name of a switch in LLDP frames.
    #[must_use]
    pub fn lldp_name<'a>(&'a self, switch: &'a str) -> &'a str {
        let given = self.switches.get(switch).and_then(|switch| switch.lldp_name.as_deref());
        given.unwrap_or(switch)
    }

    /// A warning for a site without network settings; `None` if `ethernet` is set.
    #[must_use]
    pub fn warning(&self) -> Option<&'static str> {
        (!self.by_hand && self.managed().is_none()).then_some(
            "the separation of the Ethernet networks is unknown: nodes may share a network with their former customers, \
             with BMCs and with each other. Name the switches under `ethernet` in the settings, or set `ethernet: \
             {by_hand: true}` if the networks are separated by hand",
        )
    }
}

impl Managed<'_> {
    /// VLANs of customers, first and last.
    #[must_use]
    pub fn customers(&self) -> (u16, u16) {
        self.customers
    }

    /// Seconds between two readings of every port.
    #[must_use]
    pub fn proof_s(&self) -> u32 {
        self.settings.proof_s.unwrap_or(300)
    }

    /// The VLAN of a network that all nodes share; `None` for networks per customer.
    #[must_use]
    pub fn vlan_of(&self, network: Network) -> Option<u16> {
        match network {
            Network::Quarantine => Some(self.quarantine),
            Network::Provisioning => Some(self.provisioning),
            Network::Customer => None,
        }
    }

    /// The access that a port in a network must have.
    #[must_use]
    pub fn access(&self, network: Network, vlan: u16) -> Access {
        let isolated = match network {
            Network::Quarantine => true,
            Network::Provisioning => self.settings.isolate_provisioning.unwrap_or(true),
            Network::Customer => false,
        };
        Access { vlan, isolated }
    }

    /// A driver for each switch, by name.
    pub fn drivers(self) -> BTreeMap<String, Arc<dyn PortDriver>> {
        let timeout = Duration::from_secs(self.settings.timeout_s.unwrap_or(20).into());
        let driver = |(name, switch): (&String, &SwitchSettings)| {
            let settings = OvsSettings {
                switch: name.clone(),
                address: switch.ovsdb.parse().ok()?,
                bridge: switch.bridge.clone(),
                timeout,
            };
            Some((
                name.clone(),
                Arc::new(OpenVSwitch::new(settings)) as Arc<dyn PortDriver>,
            ))
        };
        self.settings.switches.iter().filter_map(driver).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"provisioning": 10, "quarantine": 20, "bmc": 30, "customers": "100-199",
        "switches": {"leaf-1": {"ovsdb": "tcp:10.0.0.2:6640"}}}"#;

    fn faults(text: &str) -> Vec<String> {
        let settings: Settings = serde_json::from_str(text).unwrap();
        let mut faults = Vec::new();
        settings.check(&mut faults);
        faults
    }

    #[test]
    fn faulty_settings_are_named() {
        assert_eq!(faults(GOOD), [""; 0]);
        assert_eq!(faults("{}"), [""; 0]);
        for good in [
            r#"{"by_hand": true}"#,
            r#"{"by_hand": true, "cabling": "hold"}"#,
            r#"{"cabling": "recorded"}"#,
        ] {
            assert_eq!(faults(good), [""; 0]);
        }
        assert!(serde_json::from_str::<Settings>(r#"{"cabling": "stop"}"#).is_err());
        for (good, bad, word) in [
            ("\"provisioning\": 10, ", "", "provisioning"),
            ("\"quarantine\": 20", "\"quarantine\": 4095", "quarantine"),
            (
                "\"quarantine\": 20",
                "\"quarantine\": 10",
                "quarantine: is also the VLAN of ethernet.provisioning",
            ),
            ("\"bmc\": 30", "\"bmc\": 150", "contains ethernet.bmc"),
            ("100-199", "199-100", "customers"),
            ("tcp:10.0.0.2:6640", "10.0.0.2", "switches.leaf-1.ovsdb"),
            ("6640\"", "6640\", \"lldp_name\": \"\"", "switches.leaf-1.lldp_name"),
            ("\"bmc\": 30", "\"by_hand\": true", "by_hand"),
        ] {
            let found = faults(&GOOD.replace(good, bad));
            assert!(found.len() == 1 && found[0].contains(word), "{bad}: {found:?}");
        }
    }

    #[test]
    fn a_site_without_network_settings_is_warned() {
        let parse = |text: &str| serde_json::from_str::<Settings>(text).unwrap();
        assert!(Settings::default().warning().unwrap().contains("by_hand"));
        assert_eq!(parse(r#"{"by_hand": true}"#).warning(), None);
        assert_eq!(parse(GOOD).warning(), None);
    }
}
