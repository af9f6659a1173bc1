//! Network interfaces and adapters of a system, and MAC addresses.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::view;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Whether a single interface can have this address: not zero, not broadcast, not multicast.
    pub fn is_usable(self) -> bool {
        self.0 != [0; 6] && self.0[0] & 1 == 0
    }

    /// Whether it is locally administered: chosen by software, not by the card's maker.
    pub fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Serialize for MacAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is not an Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an Ethernet address has twelve hexadecimal digits")]
pub struct InvalidMac;

impl FromStr for MacAddress {
    type Err = InvalidMac;

    /// Reads twelve hexadecimal digits in either case, separated by `:`, `-`, `.` or nothing.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits: String = text.trim().chars().filter(|c| !matches!(c, ':' | '-' | '.')).collect();
        let mut bytes = [0; 6];
        hex::decode_to_slice(&digits, &mut bytes).map_err(|_| InvalidMac)?;
        Ok(Self(bytes))
    }
}

fn usable(texts: impl IntoIterator<Item = String>) -> Vec<MacAddress> {
    let mut macs: Vec<MacAddress> = Vec::new();
    for mac in texts
        .into_iter()
        .filter_map(|text| text.parse().ok())
        .filter(|mac: &MacAddress| mac.is_usable())
    {
        if !macs.contains(&mac) {
            macs.push(mac);
        }
    }
    macs
}

view!(
    /// An Ethernet interface of a system (`#EthernetInterface`).
    EthernetInterface
);

impl EthernetInterface {
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// `PermanentMACAddress`; without it `MACAddress`.
    pub fn mac(&self) -> Option<MacAddress> {
        let texts = ["PermanentMACAddress", "MACAddress"]
            .into_iter()
            .filter_map(|name| self.0.text(&[name]));
        usable(texts).first().copied()
    }

    /// Whether the link is up; none if the BMC does not report it.
    pub fn link_up(&self) -> Option<bool> {
        self.0
            .text(&["LinkStatus"])
            .map(|status| status.eq_ignore_ascii_case("linkup"))
    }

    /// `SpeedMbps`; zero counts as unknown.
    pub fn speed_mbps(&self) -> Option<u64> {
        self.0.whole(&["SpeedMbps"]).filter(|speed| *speed > 0)
    }
}

view!(
    /// A network adapter (`#NetworkAdapter`).
    NetworkAdapter
);

impl NetworkAdapter {
    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn manufacturer(&self) -> Option<String> {
        self.0.fact(&["Manufacturer"])
    }

    pub fn model(&self) -> Option<String> {
        self.0.fact(&["Model"])
    }

    /// `SerialNumber`.
    pub fn serial(&self) -> Option<String> {
        self.0.fact(&["SerialNumber"])
    }

    /// Links to the collections of ports: the newer name, and the older one.
    pub fn ports(&self) -> Option<String> {
        self.0.link(&["Ports"]).or_else(|| self.0.link(&["NetworkPorts"]))
    }

    /// Link to the device functions.
    pub fn functions(&self) -> Option<String> {
        self.0.link(&["NetworkDeviceFunctions"])
    }
}

view!(
    /// A port of an adapter (`#Port` or the older `#NetworkPort`).
    NetworkPort
);

impl NetworkPort {
    /// Ethernet addresses on this port.
    pub fn macs(&self) -> Vec<MacAddress> {
        let newer = self.0.texts(&["Ethernet", "AssociatedMACAddresses"]);
        usable(newer.into_iter().chain(self.0.texts(&["AssociatedNetworkAddresses"])))
    }

    /// InfiniBand port GUIDs in lower-case hexadecimal without separators, including those that HPE lists
    /// among the addresses.
    pub fn port_guids(&self) -> Vec<String> {
        let named = self.0.texts(&["InfiniBand", "AssociatedPortGUIDs"]);
        guids(named.into_iter().chain(self.0.texts(&["AssociatedNetworkAddresses"])))
    }
}

view!(
    /// A function of an adapter (`#NetworkDeviceFunction`).
    NetworkFunction
);

impl NetworkFunction {
    /// `Ethernet.PermanentMACAddress`; without it `Ethernet.MACAddress`.
    pub fn macs(&self) -> Vec<MacAddress> {
        let names = ["PermanentMACAddress", "MACAddress"];
        let mut macs = usable(names.into_iter().filter_map(|name| self.0.text(&["Ethernet", name])));
        macs.truncate(1);
        macs
    }

    /// InfiniBand port GUIDs.
    pub fn port_guids(&self) -> Vec<String> {
        guids(
            ["PermanentPortGUID", "PortGUID"]
                .into_iter()
                .filter_map(|name| self.0.text(&["InfiniBand", name]))
                .take(1),
        )
    }
}

fn guids(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for text in texts {
        let bare = text.trim().trim_start_matches("0x").to_ascii_lowercase();
        let digits: String = bare.chars().filter(|c| !matches!(c, ':' | '-')).collect();
        let is_guid = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_guid && digits.bytes().any(|byte| byte != b'0') && !found.contains(&digits) {
            found.push(digits);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Resource;

    #[test]
    fn macs_in_many_spellings() {
        let expected = MacAddress([0x70, 0xb5, 0xe8, 0xf0, 0x52, 0xdc]);
        for text in [
            "70:B5:E8:F0:52:DC",
            "70-b5-e8-f0-52-dc",
            "70b5e8f052dc",
            " 70b5.e8f0.52dc ",
        ] {
            assert_eq!(text.parse::<MacAddress>().unwrap(), expected, "{text}");
        }
        assert_eq!(expected.to_string(), "70:b5:e8:f0:52:dc");
        for bad in ["", "70:b5", "88e9:a4ff:ff80:9da2", "zz:zz:zz:zz:zz:zz"] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
        assert!(!MacAddress([0; 6]).is_usable() && !MacAddress([0xff; 6]).is_usable());
    }

    #[test]
    fn ports_distinguish_macs_from_guids() {
        let port = NetworkPort::from(Resource::new(
            "/p",
            None,
            json!({"AssociatedNetworkAddresses": ["88e9:a4ff:ff80:9da2", "0000:0000:0000:0000", "94:6D:AE:91:75:BA", null]}),
        ));
        assert_eq!(port.port_guids(), ["88e9a4ffff809da2"]);
        assert_eq!(port.macs(), ["94:6d:ae:91:75:ba".parse().unwrap()]);
    }
}
