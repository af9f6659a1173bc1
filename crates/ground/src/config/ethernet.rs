//! The `ethernet` section of the configuration: VLANs and switches.

mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rackwright_lifecycle::Network;
use rackwright_ports::{Access, OwnCertificate, PortDriver};
use serde::Deserialize;
use switch::SwitchSettings;

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
    /// PEM file of the certificate that switches with an address `ssl:` may require.
    certificate_file: Option<PathBuf>,
    /// PEM file of its private key.
    key_file: Option<PathBuf>,
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
        self.check_own_certificate(faults);
        let isolated = self.isolated();
        for (name, switch) in &self.switches {
            for (field, fault) in switch.faults(&isolated) {
                faults.push(format!("ethernet.switches.{name}.{field}: {fault}"));
            }
        }
    }

    fn check_own_certificate(&self, faults: &mut Vec<String>) {
        let files = [
            ("certificate_file", &self.certificate_file),
            ("key_file", &self.key_file),
        ];
        let uses_tls = self.switches.values().any(SwitchSettings::uses_tls);
        for (index, (field, file)) in files.into_iter().enumerate() {
            let (other, other_file) = files[1 - index];
            match file {
                Some(_) if !uses_tls => {
                    faults.push(format!(
                        "ethernet.{field}: has no effect without a switch with an address ssl:"
                    ));
                }
                Some(file) if !file.is_file() => {
                    faults.push(format!("ethernet.{field}: {} is not a file", file.display()));
                }
                None if other_file.is_some() => {
                    faults.push(format!("ethernet.{field}: must be set with ethernet.{other}"));
                }
                _ => {}
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

    /// The VLANs with ports that do not reach each other.
    fn isolated(&self) -> BTreeSet<u16> {
        let provisioning = self.provisioning.filter(|_| self.isolate_provisioning.unwrap_or(true));
        self.quarantine.into_iter().chain(provisioning).collect()
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

    /// What the settings leave without a proof, as sentences. Empty if the control plane proves the networks, or a person
    /// separates them by hand.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        if self.by_hand {
            return Vec::new();
        }
        if self.managed().is_none() {
            return vec![
                "the separation of the Ethernet networks is unknown: nodes may share a network with their former \
                 customers, with BMCs and with each other. Name the switches under `ethernet` in the settings, or set \
                 `ethernet: {by_hand: true}` if the networks are separated by hand"
                    .to_owned(),
            ];
        }
        let plain = self.switches.iter().filter(|(_, switch)| switch.is_unprotected());
        let names: Vec<&str> = plain.map(|(name, _)| name.as_str()).collect();
        match names.as_slice() {
            [] => Vec::new(),
            names => vec![format!(
                "these switches are reached without encryption and authentication, so another host may move ports or \
                 forge readings: {}. Use `ssl:` for their `ovsdb` in the settings",
                names.join(", ")
            )],
        }
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
        let files = (&self.settings.certificate_file, &self.settings.key_file);
        let own = match files {
            (Some(certificate), Some(key)) => Some(OwnCertificate {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            _ => None,
        };
        let isolated = self.settings.isolated();
        let driver = |(name, switch): (&String, &SwitchSettings)| {
            let driver = switch.driver(name, own.clone(), isolated.clone(), timeout)?;
            Some((name.clone(), driver))
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
    fn a_switch_by_tls_needs_its_certificate_and_any_other_has_none() {
        let pin = format!("\"certificate_sha256\": \"{}\"", "ab".repeat(32));
        let files = |certificate: &str, key: &str| {
            let fields = [("certificate_file", certificate), ("key_file", key)];
            let given = fields.into_iter().filter(|(_, file)| !file.is_empty());
            given
                .map(|(field, file)| format!("\"{field}\": \"{file}\", "))
                .collect::<String>()
        };
        let found = |address: &str, switch: &str, own: &str| {
            let text = GOOD.replace("tcp:10.0.0.2:6640\"", &format!("{address}:10.0.0.2:6640\"{switch}"));
            faults(&text.replacen('{', &format!("{{{own}"), 1))
        };
        let (file, pinned) = ("Cargo.toml", format!(", {pin}"));
        for own in [files("", ""), files(file, file)] {
            assert_eq!(found("ssl", &pinned, &own), [""; 0]);
        }
        for (address, switch, own, word) in [
            (
                "ssl",
                "",
                files("", ""),
                "switches.leaf-1.certificate_sha256: must be set",
            ),
            (
                "tcp",
                &pinned,
                files("", ""),
                "switches.leaf-1.certificate_sha256: has no effect",
            ),
            (
                "ssl",
                &pinned.replace("ab\"", "\""),
                files("", ""),
                "is not a SHA-256 of 64 hex digits",
            ),
            (
                "ssl",
                &pinned,
                files(file, ""),
                "ethernet.key_file: must be set with ethernet.certificate_file",
            ),
            (
                "ssl",
                &pinned,
                files("", file),
                "ethernet.certificate_file: must be set with ethernet.key_file",
            ),
            (
                "ssl",
                &pinned,
                files(file, "/no/such"),
                "ethernet.key_file: /no/such is not a file",
            ),
        ] {
            let found = found(address, switch, &own);
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        }
        let idle = found("tcp", "", &files(file, file));
        assert!(
            idle.len() == 2 && idle[0].contains("certificate_file: has no effect"),
            "{idle:?}"
        );
    }

    #[test]
    fn a_switch_by_netconf_needs_its_host_key_a_login_and_the_isolation_of_the_site() {
        let print = "SHA256:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE";
        let entry = format!(
            "\"netconf\": \"ssh://10.0.0.3\", \"host_key_sha256\": \"{print}\", \"user\": \"rackwright\", \
             \"key_file\": \"Cargo.toml\", \"isolated_by\": \"site\""
        );
        let found = |entry: &str| faults(&GOOD.replace("\"ovsdb\": \"tcp:10.0.0.2:6640\"", entry));
        assert_eq!(found(&entry), [""; 0]);
        assert_eq!(found(&entry.replace("key_file", "password_file")), [""; 0]);
        let print = format!("\"host_key_sha256\": \"{print}\", ");
        for (good, bad, word) in [
            (
                "ssh://10.0.0.3",
                "10.0.0.3:830",
                "leaf-1.netconf: \"10.0.0.3:830\" is not of the form ssh://HOST:PORT",
            ),
            (&print, "", "leaf-1.host_key_sha256: must be set with netconf"),
            ("SHA256:MDEy", "MD5:MDEy", "is not of the form SHA256:..."),
            (
                "\"user\": \"rackwright\", ",
                "",
                "leaf-1.user: must be set with netconf",
            ),
            (
                "\"key_file\": \"Cargo.toml\", ",
                "",
                "leaf-1.key_file: must be set with netconf",
            ),
            ("Cargo.toml", "/no/such", "leaf-1.key_file: /no/such is not a file"),
            (
                "\"user\"",
                "\"password_file\": \"x\", \"user\"",
                "leaf-1.password_file: has no effect with key_file",
            ),
            (
                ", \"isolated_by\": \"site\"",
                "",
                "isolate the ports in VLAN 10 and 20 on this switch",
            ),
            (
                "\"user\"",
                "\"bridge\": \"br0\", \"user\"",
                "leaf-1.bridge: has no effect with netconf",
            ),
            (
                "\"user\"",
                "\"ovsdb\": \"unix:/x\", \"user\"",
                "a switch has either `ovsdb` or `netconf`",
            ),
        ] {
            let found = found(&entry.replace(good, bad));
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        }
        let none = found("\"lldp_name\": \"x\"");
        assert!(none.len() == 1 && none[0].contains("`ovsdb` or `netconf`"), "{none:?}");
        let mixed = found("\"ovsdb\": \"unix:/x\", \"user\": \"rackwright\", \"isolated_by\": \"site\"");
        assert!(
            mixed.len() == 2 && mixed[0].contains("user: has no effect with ovsdb"),
            "{mixed:?}"
        );
        let text = GOOD.replace("\"ovsdb\": \"tcp:10.0.0.2:6640\"", &entry.replace("site", "us"));
        assert!(serde_json::from_str::<Settings>(&text).is_err());
        // The provisioning network may be left open, but not the quarantine.
        let open = GOOD.replace("\"bmc\"", "\"isolate_provisioning\": false, \"bmc\"");
        let bare = entry.replace(", \"isolated_by\": \"site\"", "");
        let found = faults(&open.replace("\"ovsdb\": \"tcp:10.0.0.2:6640\"", &bare));
        assert!(
            found.len() == 1 && found[0].contains("in VLAN 20 on this switch"),
            "{found:?}"
        );
        let whole = GOOD.replace("\"ovsdb\": \"tcp:10.0.0.2:6640\"", &entry);
        let settings: Settings = serde_json::from_str(&whole).unwrap();
        assert_eq!(settings.warnings(), [""; 0]);
        assert_eq!(settings.managed().unwrap().drivers().len(), 1);
    }

    #[test]
    fn a_site_without_network_settings_or_with_an_unprotected_switch_is_warned() {
        let warnings = |text: &str| serde_json::from_str::<Settings>(text).unwrap().warnings();
        let found = warnings("{}");
        assert!(found.len() == 1 && found[0].contains("by_hand"), "{found:?}");
        assert_eq!(warnings(r#"{"by_hand": true}"#), [""; 0]);
        let found = warnings(GOOD);
        assert!(
            found.len() == 1 && found[0].contains("forge readings: leaf-1. Use `ssl:`"),
            "{found:?}"
        );
        for protected in ["ssl:10.0.0.2:6640", "tcp:127.0.0.1:6640", "unix:/run/db.sock"] {
            assert_eq!(warnings(&GOOD.replace("tcp:10.0.0.2:6640", protected)), [""; 0]);
        }
    }
}
