//! Ports and networks as values: the wish, the reading, and the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::error::PortsError;

/// The membership of a port in one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// The access VLAN, 1 to 4094: the port sends and accepts untagged frames of this network only.
    pub vlan: u16,
    /// The port cannot reach other isolated ports of its switch.
    pub isolated: bool,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let isolated = if self.isolated { ", isolated" } else { "" };
        write!(f, "VLAN {}{isolated}", self.vlan)
    }
}

/// The version of a wish. A port stores the highest version applied to it and refuses lower versions, so a process that
/// was halted for a while cannot bring back an old wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version {
    /// The claim generation of the node behind the port.
    pub generation: u64,
    /// Increases with every change of the node's record.
    pub step: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.step)
    }
}

impl FromStr for Version {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (generation, step) = text.split_once('.').unwrap_or((text, "0"));
        Ok(Self {
            generation: generation.parse()?,
            step: step.parse()?,
        })
    }
}

/// The wanted networks of ports of one switch. The document is applied as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The version of the document.
    pub version: Version,
    /// The network of each port, by the port's name on the switch.
    pub ports: BTreeMap<String, Access>,
}

/// The VLANs of a port, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vlan {
    /// Untagged frames of one VLAN.
    Access(u16),
    /// Several VLANs. An empty set means all VLANs.
    Trunk(BTreeSet<u16>),
    /// Another mode, as text.
    Other(String),
}

impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(vlan) => write!(f, "VLAN {vlan}"),
            Self::Trunk(vlans) if vlans.is_empty() => f.write_str("a trunk of all VLANs"),
            Self::Trunk(vlans) => write!(f, "a trunk of {} VLANs", vlans.len()),
            Self::Other(words) => f.write_str(words),
        }
    }
}

/// One port, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortState {
    /// The VLANs of the port.
    pub vlan: Vlan,
    /// The port cannot reach other isolated ports.
    pub isolated: bool,
    /// The version of the last wish applied to the port. `None`: no wish was ever applied.
    pub version: Option<Version>,
}

impl PortState {
    /// Whether the port is in this network only.
    #[must_use]
    pub fn is(&self, access: Access) -> bool {
        self.vlan == Vlan::Access(access.vlan) && self.isolated == access.isolated
    }

    /// Whether the port may pass frames of the VLAN.
    #[must_use]
    pub fn may_carry(&self, vlan: u16) -> bool {
        match &self.vlan {
            Vlan::Access(own) => *own == vlan,
            Vlan::Trunk(vlans) => vlans.is_empty() || vlans.contains(&vlan),
            Vlan::Other(_) => true,
        }
    }
}

/// All ports of a switch, read at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwitchReading {
    /// The ports, by name.
    pub ports: BTreeMap<String, PortState>,
    /// The switch has carried out its whole stored configuration, so the reading shows its behaviour.
    pub in_effect: bool,
}

/// A port that must be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub port: String,
    /// The new network of the port.
    pub access: Access,
}

/// The changes that make the switch match the document. A port that already matches is also set once, so that it stores
/// the version.
///
/// # Errors
/// The switch has no such port, or a port has a newer wish.
pub fn difference(switch: &str, config: &SwitchConfig, seen: &SwitchReading) -> Result<Vec<Change>, PortsError> {
    let mut changes = Vec::new();
    for (port, access) in &config.ports {
        let Some(state) = seen.ports.get(port) else {
            return Err(PortsError::NoPort {
                switch: switch.to_owned(),
                port: port.clone(),
            });
        };
        if let Some(found) = state.version.filter(|found| *found > config.version) {
            return Err(PortsError::Superseded {
                switch: switch.to_owned(),
                port: port.clone(),
                found,
                own: config.version,
            });
        }
        if !state.is(*access) || state.version != Some(config.version) {
            changes.push(Change {
                port: port.clone(),
                access: *access,
            });
        }
    }
    Ok(changes)
}

/// Checks that the document is in effect on the switch.
///
/// # Errors
/// The first port that differs.
pub(crate) fn verify(switch: &str, config: &SwitchConfig, seen: &SwitchReading) -> Result<(), PortsError> {
    for (port, access) in &config.ports {
        let Some(state) = seen.ports.get(port) else {
            return Err(PortsError::NoPort {
                switch: switch.to_owned(),
                port: port.clone(),
            });
        };
        if !state.is(*access) {
            return Err(PortsError::NotApplied {
                switch: switch.to_owned(),
                port: port.clone(),
                requested: *access,
                seen: state.vlan.clone(),
                isolated: state.isolated,
            });
        }
    }
    if seen.in_effect {
        Ok(())
    } else {
        Err(PortsError::NotInEffect {
            switch: switch.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTOMER: Access = Access {
        vlan: 101,
        isolated: false,
    };
    const BOOT: Access = Access {
        vlan: 10,
        isolated: true,
    };

    fn version(generation: u64, step: u64) -> Version {
        Version { generation, step }
    }

    fn state(access: Access, version: Option<Version>) -> PortState {
        PortState {
            vlan: Vlan::Access(access.vlan),
            isolated: access.isolated,
            version,
        }
    }

    fn reading(ports: &[(&str, PortState)]) -> SwitchReading {
        SwitchReading {
            ports: ports
                .iter()
                .map(|(name, state)| ((*name).into(), state.clone()))
                .collect(),
            in_effect: true,
        }
    }

    fn config(version: Version, ports: &[(&str, Access)]) -> SwitchConfig {
        SwitchConfig {
            version,
            ports: ports.iter().map(|(name, access)| ((*name).into(), *access)).collect(),
        }
    }

    #[test]
    fn only_ports_that_differ_are_changed() {
        let now = version(3, 7);
        let seen = reading(&[
            ("same", state(BOOT, Some(now))),
            ("other-vlan", state(CUSTOMER, Some(now))),
            (
                "not-isolated",
                state(
                    Access {
                        isolated: false,
                        ..BOOT
                    },
                    Some(now),
                ),
            ),
            ("old-version", state(BOOT, Some(version(3, 6)))),
            ("never-set", state(BOOT, None)),
            ("not-mentioned", state(CUSTOMER, None)),
        ]);
        let config = config(
            now,
            &["same", "other-vlan", "not-isolated", "old-version", "never-set"].map(|port| (port, BOOT)),
        );
        let changes = difference("sw", &config, &seen).unwrap();
        let ports: Vec<_> = changes.iter().map(|change| change.port.as_str()).collect();
        assert_eq!(ports, ["never-set", "not-isolated", "old-version", "other-vlan"]);
    }

    #[test]
    fn a_newer_request_and_a_missing_port_are_refused() {
        let seen = reading(&[("p1", state(CUSTOMER, Some(version(3, 8))))]);
        let older = difference("sw", &config(version(3, 7), &[("p1", BOOT)]), &seen).unwrap_err();
        assert!(matches!(older, PortsError::Superseded { .. }), "{older}");
        // The claim generation takes precedence over the step.
        assert!(difference("sw", &config(version(4, 0), &[("p1", BOOT)]), &seen).is_ok());
        let missing = difference("sw", &config(version(9, 0), &[("p2", BOOT)]), &seen).unwrap_err();
        assert!(missing.to_string().contains("switch sw has no port p2"), "{missing}");
    }

    #[test]
    fn a_setting_that_is_not_in_effect_proves_nothing() {
        let now = version(1, 1);
        let mut seen = reading(&[("p1", state(BOOT, Some(now)))]);
        assert!(verify("sw", &config(now, &[("p1", BOOT)]), &seen).is_ok());
        let kept = verify("sw", &config(now, &[("p1", CUSTOMER)]), &seen).unwrap_err();
        assert_eq!(
            kept.to_string(),
            "switch sw, port p1: VLAN 101 was set, but the port is in VLAN 10, isolated; check the port on the switch"
        );
        seen.in_effect = false;
        let idle = verify("sw", &config(now, &[("p1", BOOT)]), &seen).unwrap_err();
        assert!(matches!(idle, PortsError::NotInEffect { .. }));
    }

    #[test]
    fn a_trunk_may_carry_a_vlan() {
        let port = |vlan| PortState {
            vlan,
            isolated: false,
            version: None,
        };
        assert!(port(Vlan::Trunk(BTreeSet::new())).may_carry(7));
        assert!(port(Vlan::Trunk([7].into())).may_carry(7));
        assert!(!port(Vlan::Trunk([8].into())).may_carry(7));
        assert!(port(Vlan::Other("strange".into())).may_carry(7));
        assert!(!port(Vlan::Access(8)).may_carry(7));
    }
}
