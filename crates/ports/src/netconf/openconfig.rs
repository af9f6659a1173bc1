//! The OpenConfig models of a port: `openconfig-interfaces`, `openconfig-if-ethernet` and `openconfig-vlan`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::model::{Change, PortState, Version, Vlan};
use crate::wire::excerpt;

use super::xml::{Element, Space, escape};

/// The version of the last wish is kept in a port's description, in the form ` [rackwright 12.3]`.
const MARK: &str = "[rackwright ";
/// VLANs of a port: 0 and 4095 are reserved (IEEE 802.1Q).
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// A port, as read.
#[derive(Debug)]
pub(crate) struct Port {
    /// The port for the model.
    pub(crate) state: PortState,
    /// The switch reported the VLANs that are in operation, and not only the configured ones.
    pub(crate) is_operational: bool,
    /// The description without the version.
    description: String,
}

/// The subtree filter of a reading (RFC 6241, section 6).
pub(crate) fn filter() -> String {
    format!(
        "<filter type=\"subtree\"><interfaces xmlns=\"{}\"><interface><name/><config><description/></config>\
         <ethernet xmlns=\"{}\"><switched-vlan xmlns=\"{}\"><config/><state/></switched-vlan></ethernet></interface>\
         </interfaces></filter>",
        Space::Interfaces.name(),
        Space::Ethernet.name(),
        Space::Vlan.name()
    )
}

/// The configuration of the changed ports. The former VLANs of a port are replaced as a whole.
pub(crate) fn edit(changes: &[Change], before: &BTreeMap<String, Port>, version: Version) -> String {
    let mut text = format!("<interfaces xmlns=\"{}\">", Space::Interfaces.name());
    for Change { port, access } in changes {
        let own = before.get(port).map_or("", |port| port.description.as_str());
        let description = format!("{own} {MARK}{version}]");
        let _: Result<(), _> = write!(
            text,
            "<interface><name>{name}</name><config><name>{name}</name><description>{}</description></config>\
             <ethernet xmlns=\"{}\"><switched-vlan xmlns=\"{}\"><config nc:operation=\"replace\">\
             <interface-mode>ACCESS</interface-mode><access-vlan>{}</access-vlan></config></switched-vlan></ethernet>\
             </interface>",
            escape(description.trim_start()),
            Space::Ethernet.name(),
            Space::Vlan.name(),
            access.vlan,
            name = escape(port),
        );
    }
    text.push_str("</interfaces>");
    text
}

/// The ports in the data of an answer. The site isolates the ports in the VLANs of `isolated`.
///
/// # Errors
/// The fault, as a part of a sentence.
pub(crate) fn ports(data: &Element, isolated: &BTreeSet<u16>) -> Result<BTreeMap<String, Port>, String> {
    let mut ports = BTreeMap::new();
    let lists = data.all(Space::Interfaces, "interfaces");
    for interface in lists.flat_map(|list| list.all(Space::Interfaces, "interface")) {
        let name = interface
            .leaf(Space::Interfaces, "name")
            .filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| "an interface has no name".to_owned())?;
        if ports.insert(name.to_owned(), port(interface, isolated)).is_some() {
            return Err(format!("port {} appears twice", excerpt(name)));
        }
    }
    Ok(ports)
}

fn port(interface: &Element, isolated: &BTreeSet<u16>) -> Port {
    let switched = interface.child(Space::Ethernet, "ethernet");
    let switched = switched.and_then(|ethernet| ethernet.child(Space::Vlan, "switched-vlan"));
    let part = |name| {
        let leaves = switched.and_then(|switched| switched.child(Space::Vlan, name))?;
        vlans(leaves).unwrap_or_else(|odd| Some(Vlan::Other(format!("{:?}", excerpt(&odd)))))
    };
    let (configured, operational) = (part("config"), part("state"));
    let is_operational = operational.is_some();
    let vlan = match (configured, operational) {
        (Some(configured), Some(operational)) if configured != operational => {
            Vlan::Other(format!("{operational}, but configured for {configured}"))
        }
        (_, Some(vlan)) | (Some(vlan), None) => vlan,
        (None, None) => Vlan::Other("no VLAN".to_owned()),
    };
    let config = interface.child(Space::Interfaces, "config");
    let description = config.and_then(|config| config.leaf(Space::Interfaces, "description"));
    let (description, version) = described(description.unwrap_or_default());
    let isolated = matches!(&vlan, Vlan::Access(vlan) if isolated.contains(vlan));
    Port {
        state: PortState {
            vlan,
            isolated,
            version,
        },
        is_operational,
        description,
    }
}

/// The VLANs of `switched-vlan/config` or `switched-vlan/state`. `None`: there are none.
///
/// # Errors
/// A text that is not one VLAN or a range: the models also allow two tags, such as `100.200`.
fn vlans(leaves: &Element) -> Result<Option<Vlan>, String> {
    let number = |name: &str| match leaves.leaf(Space::Vlan, name).filter(|text| !text.is_empty()) {
        Some(text) => vlan(text).map(Some),
        None => Ok(None),
    };
    let (access, native) = (number("access-vlan")?, number("native-vlan")?);
    let mode = leaves.leaf(Space::Vlan, "interface-mode").unwrap_or_default();
    let mut trunk = BTreeSet::new();
    for range in leaves.all(Space::Vlan, "trunk-vlans").map(Element::text) {
        let (first, last) = range.split_once("..").unwrap_or((range, range));
        let (first, last) = (vlan(first)?, vlan(last)?);
        // A range is at most 4,094 numbers; the set does not grow beyond that.
        if trunk.len() < VLANS.len() {
            trunk.extend(first..=last);
        }
    }
    Ok(match (mode, access) {
        ("ACCESS", Some(vlan)) if trunk.is_empty() => Some(Vlan::Access(vlan)),
        ("TRUNK", _) => {
            // A trunk without a list of VLANs carries all of them.
            if !trunk.is_empty() {
                trunk.extend(native);
            }
            Some(Vlan::Trunk(trunk))
        }
        ("", None) if native.is_none() && trunk.is_empty() => None,
        (mode, access) => Some(Vlan::Other(format!("mode {:?}, access VLAN {access:?}", excerpt(mode)))),
    })
}

fn vlan(text: &str) -> Result<u16, String> {
    let vlan = text.trim().parse().ok().filter(|vlan| VLANS.contains(vlan));
    vlan.ok_or_else(|| text.to_owned())
}

/// Splits a description into an operator's own text and the version.
fn described(text: &str) -> (String, Option<Version>) {
    let marked = text.rsplit_once(MARK).and_then(|(before, rest)| {
        let (version, after) = rest.split_once(']')?;
        Some((before, version.parse().ok()?, after))
    });
    match marked {
        Some((before, version, after)) => {
            let own = format!("{} {}", before.trim_end(), after.trim_start());
            (own.trim().to_owned(), Some(version))
        }
        // A malformed version was not written by Rackwright.
        None => (text.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::xml::parse;
    use super::*;
    use crate::model::Access;

    fn read(leaves: &str) -> Port {
        let text = format!(
            "<data xmlns='{}'><interfaces xmlns='{}'><interface><name>p1</name>{leaves}</interface></interfaces></data>",
            Space::Base.name(),
            Space::Interfaces.name()
        );
        let mut ports = ports(&parse(text.as_bytes()).unwrap().root, &[10].into()).unwrap();
        ports.remove("p1").unwrap()
    }

    fn switched(config: &str, state: &str) -> Vlan {
        let leaves = format!(
            "<ethernet xmlns='{}'><switched-vlan xmlns='{}'><config>{config}</config><state>{state}</state></switched-vlan>\
             </ethernet>",
            Space::Ethernet.name(),
            Space::Vlan.name()
        );
        read(&leaves).state.vlan
    }

    const ACCESS: &str = "<interface-mode>ACCESS</interface-mode><access-vlan>101</access-vlan>";

    #[test]
    fn the_vlans_of_a_port_are_those_in_operation() {
        assert_eq!(switched(ACCESS, ""), Vlan::Access(101));
        assert_eq!(switched("", ACCESS), Vlan::Access(101));
        let other = switched(ACCESS, &ACCESS.replace("101", "10"));
        assert_eq!(other.to_string(), "VLAN 10, but configured for VLAN 101");
        let trunk = "<interface-mode>TRUNK</interface-mode><native-vlan>7</native-vlan><trunk-vlans>9</trunk-vlans>\
                     <trunk-vlans>20..22</trunk-vlans>";
        assert_eq!(switched(trunk, ""), Vlan::Trunk([7, 9, 20, 21, 22].into()));
        let all = "<interface-mode>TRUNK</interface-mode><native-vlan>7</native-vlan>";
        assert_eq!(switched(all, ""), Vlan::Trunk([].into()));
        let routed = read("");
        assert_eq!(
            (routed.state.vlan, routed.is_operational),
            (Vlan::Other("no VLAN".into()), false)
        );
        for odd in [
            "<interface-mode>ACCESS</interface-mode>",
            "<access-vlan>101</access-vlan>",
            "<trunk-vlans>1</trunk-vlans>",
        ] {
            assert!(matches!(switched(odd, ""), Vlan::Other(_)), "{odd}");
        }
        for odd in ["0", "4095", "-1", "x", "70000", "1..", "1..4095", "100.200"] {
            let leaf = format!("<interface-mode>TRUNK</interface-mode><trunk-vlans>{odd}</trunk-vlans>");
            assert!(matches!(switched(&leaf, ""), Vlan::Other(_)), "{odd}");
        }
    }

    #[test]
    fn the_site_isolates_the_vlans_of_the_settings() {
        for (vlan, isolated) in [(10, true), (101, false)] {
            let leaves = ACCESS.replace("101", &vlan.to_string());
            let port = format!(
                "<ethernet xmlns='{}'><switched-vlan xmlns='{}'><config>{leaves}</config></switched-vlan></ethernet>",
                Space::Ethernet.name(),
                Space::Vlan.name()
            );
            assert_eq!(read(&port).state.isolated, isolated);
        }
    }

    #[test]
    fn an_operators_description_stays_beside_the_version() {
        let version = |generation, step| Some(Version { generation, step });
        for (text, own, found) in [
            ("", "", None),
            ("rack 7", "rack 7", None),
            ("rack 7 [rackwright 12.3]", "rack 7", version(12, 3)),
            ("[rackwright 12.3]", "", version(12, 3)),
            ("rack 7 [rackwright 12.3] spare", "rack 7 spare", version(12, 3)),
            ("[rackwright 1.1] [rackwright 2.0]", "[rackwright 1.1]", version(2, 0)),
            ("rack [rackwright x]", "rack [rackwright x]", None),
            ("rack [rackwright 1.1", "rack [rackwright 1.1", None),
        ] {
            assert_eq!(described(text), (own.to_owned(), found), "{text}");
        }
        let port = read("<config><description>R&amp;D [rackwright 1.1]</description></config>");
        let change = Change {
            port: "p1".into(),
            access: Access {
                vlan: 7,
                isolated: false,
            },
        };
        let text = edit(
            &[change],
            &[("p1".to_owned(), port)].into(),
            Version { generation: 1, step: 2 },
        );
        assert!(
            text.contains("<description>R&amp;D [rackwright 1.2]</description>"),
            "{text}"
        );
        assert!(text.contains("<access-vlan>7</access-vlan>"), "{text}");
    }
}
