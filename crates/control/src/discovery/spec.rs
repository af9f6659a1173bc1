//! The targets of a discovery: the stored request, and the list of single targets.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use rackwright_import::discovery::Ranges;
use rackwright_redfish::{BmcAddress, RedfishError};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// Default port.
const HTTPS: u16 = 443;

/// A request for a discovery.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiscoverySpec {
    /// Address ranges, as the caller wrote them.
    pub ranges: Vec<String>,
    /// Ports that are tried on each address of the ranges.
    pub ports: Vec<u16>,
    /// BMCs with further known facts.
    pub targets: Vec<TargetSpec>,
    /// Search by SSDP.
    pub ssdp: bool,
    /// Read lease files of DHCP servers.
    pub leases: bool,
    /// Most logins tried at one BMC.
    pub login_tries: u32,
    /// Try factory credentials after the given logins.
    pub factory_credentials: bool,
}

/// A BMC with its address and further known facts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetSpec {
    /// Such as `https://10.0.0.5`.
    pub address: String,
    /// Name of a login; empty: the logins without a name.
    pub login: String,
    /// Name for the node.
    pub name: String,
    /// Name of the rack; empty: not given.
    pub rack: String,
    /// Rack unit; 0: not given.
    pub unit: u16,
    /// SKU of the machine; empty: not given.
    pub sku: String,
    /// Path of the system.
    pub system: String,
    /// Labels for the node.
    pub labels: BTreeMap<String, String>,
    /// Source of the address.
    pub source: String,
}

/// Results of the sources that are read before the addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceResults {
    /// Targets that the sources name.
    pub targets: Vec<TargetSpec>,
    /// Failures of the sources, each a sentence without a full stop.
    pub notes: Vec<String>,
}

/// Credentials from the request, as they are sealed.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Secrets {
    /// In the order of the tries.
    pub logins: Vec<SecretLogin>,
}

/// A login from the request. It must not be shown.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SecretLogin {
    /// The name that targets use; empty: for targets without a login name.
    pub name: String,
    pub username: String,
    pub password: String,
}

impl SecretLogin {
    /// The password as a protected string.
    #[must_use]
    pub fn secret(&self) -> SecretString {
        SecretString::from(self.password.clone())
    }
}

/// One address and port to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Sort key with the order of addresses.
    pub place: String,
    /// Such as `https://10.0.0.5`.
    pub url: String,
    /// IP address without brackets, or host name.
    pub host: String,
    pub port: u16,
    /// Further known facts.
    pub details: TargetSpec,
}

impl Target {
    /// Parses an address as people write it.
    ///
    /// # Errors
    /// The address is malformed, or uses plain HTTP: others on the network could read what is sent.
    pub fn parse(details: TargetSpec) -> Result<Self, String> {
        let url = normal(&details.address)?;
        let parsed = Url::parse(&url).map_err(|e| format!("{:?}: {e}", details.address))?;
        let port = parsed.port_or_known_default().unwrap_or(HTTPS);
        let (host, key) = match parsed.host() {
            Some(Host::Ipv4(v4)) => (v4.to_string(), key(v4.into())),
            Some(Host::Ipv6(v6)) => (v6.to_string(), key(v6.into())),
            Some(Host::Domain(name)) => (name.to_owned(), format!("n{name:.255}")),
            None => return Err(format!("{:?} has no host", details.address)),
        };
        let is_loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if parsed.scheme() == "http" && !is_loopback {
            return Err(format!(
                "{}: plain HTTP is allowed for loopback addresses only",
                details.address
            ));
        }
        let path = parsed.path().trim_end_matches('/');
        Ok(Self {
            place: format!("{key} {port:05}{path:.200}"),
            url,
            host,
            port,
            details,
        })
    }

    /// The IP address; `None` for a host name.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    fn of_range(ip: IpAddr, port: u16) -> Option<Self> {
        let host = match ip {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let details = TargetSpec {
            address: format!("https://{host}:{port}"),
            source: "range".to_owned(),
            ..TargetSpec::default()
        };
        Self::parse(details).ok()
    }
}

fn key(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(v4) => format!("4{:08x}", u32::from(v4)),
        IpAddr::V6(v6) => format!("6{:032x}", u128::from(v6)),
    }
}

/// The normal form of a BMC address: `https://10.0.0.5`.
///
/// # Errors
/// The address is malformed.
pub fn normal(address: &str) -> Result<String, String> {
    // A bare IPv6 address; a URL needs brackets.
    let bracketed = match address.trim().parse::<std::net::Ipv6Addr>() {
        Ok(v6) => format!("[{v6}]"),
        Err(_) => address.to_owned(),
    };
    BmcAddress::parse(&bracketed)
        .map(|address| address.to_string())
        .map_err(|error: RedfishError| error.to_string())
}

/// All targets, in order.
#[derive(Debug)]
pub struct Plan {
    named: Vec<Target>,
    /// Places of the named targets. They are skipped in ranges.
    places: HashSet<String>,
    ranges: Ranges,
    ports: Vec<u16>,
}

impl Plan {
    /// Joins the requested targets and the targets from other sources. The first of several targets at one place
    /// counts.
    #[must_use]
    pub fn new(spec: &DiscoverySpec, results: &SourceResults, max: u64) -> Self {
        let mut places = HashSet::new();
        let all = spec.targets.iter().chain(&results.targets);
        let named = all.filter_map(|target| Target::parse(target.clone()).ok());
        let named = named.filter(|target| places.insert(target.place.clone())).collect();
        let ports = match spec.ports.as_slice() {
            [] => vec![HTTPS],
            some => some.to_vec(),
        };
        Self {
            named,
            places,
            // The ranges were parsed when they were stored.
            ranges: Ranges::parse(&spec.ranges, max).unwrap_or_default(),
            ports,
        }
    }

    /// Number of targets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.named.len() as u64 + self.ranges.len().saturating_mul(self.ports.len() as u64)
    }

    /// The target at an index from 0; `None` if it is a named target already.
    #[must_use]
    pub fn nth(&self, index: u64) -> Option<Target> {
        let named = self.named.len() as u64;
        if index < named {
            return self.named.get(usize::try_from(index).ok()?).cloned();
        }
        let (index, ports) = (index - named, self.ports.len() as u64);
        let ip = self.ranges.nth(index / ports)?;
        let port = self.ports.get(usize::try_from(index % ports).ok()?)?;
        Target::of_range(ip, *port).filter(|target| !self.places.contains(&target.place))
    }
}

/// A target or source that both discoveries have, if there is one.
#[must_use]
pub fn overlap(a: &DiscoverySpec, b: &DiscoverySpec, max: u64) -> Option<String> {
    let ranges = |spec: &DiscoverySpec| Ranges::parse(&spec.ranges, max).unwrap_or_default();
    let (in_a, in_b) = (ranges(a), ranges(b));
    if let Some(both) = in_a.meets(&in_b) {
        return Some(both.to_string());
    }
    let places = |spec: &DiscoverySpec| -> Vec<Target> {
        let targets = spec.targets.iter().cloned();
        targets.filter_map(|target| Target::parse(target).ok()).collect()
    };
    let (named_a, named_b) = (places(a), places(b));
    let of_a: HashSet<&str> = named_a.iter().map(|target| target.place.as_str()).collect();
    let within = |targets: &[Target], ranges: &Ranges| {
        let is_in = |target: &&Target| target.ip().is_some_and(|ip| ranges.contains(ip));
        targets.iter().find(is_in).map(|target| target.url.clone())
    };
    let both = named_b.iter().find(|target| of_a.contains(target.place.as_str()));
    both.map(|target| target.url.clone())
        .or_else(|| within(&named_a, &in_b))
        .or_else(|| within(&named_b, &in_a))
        .or_else(|| (a.ssdp && b.ssdp).then(|| "the search by SSDP".to_owned()))
        .or_else(|| (a.leases && b.leases).then(|| "the lease files".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str) -> TargetSpec {
        TargetSpec {
            address: address.to_owned(),
            ..TargetSpec::default()
        }
    }

    #[test]
    fn addresses_have_one_form_and_sort() {
        let place = |address: &str| Target::parse(target(address)).unwrap().place;
        for same in ["10.0.0.5", "https://10.0.0.5:443/", "https://10.0.0.5/redfish/v1"] {
            assert_eq!(place(same), place("https://10.0.0.5"), "{same}");
            assert_eq!(normal(same).unwrap(), "https://10.0.0.5");
        }
        assert_eq!(normal("fd00::5").unwrap(), "https://[fd00::5]");
        let mut places: Vec<String> = ["fd00::1", "10.0.0.10", "10.0.0.9:8443", "10.0.0.9", "bmc-7"]
            .map(place)
            .into();
        places.sort();
        let order = ["10.0.0.9", "10.0.0.9:8443", "10.0.0.10", "fd00::1", "bmc-7"].map(place);
        assert_eq!(places, order);
        assert!(
            Target::parse(target("http://10.0.0.5"))
                .unwrap_err()
                .contains("plain HTTP")
        );
        assert!(Target::parse(target("http://127.0.0.5:8000")).is_ok());
        assert!(Target::parse(target("ftp://x")).is_err());
    }

    #[test]
    fn a_plan_has_each_address_once() {
        let spec = DiscoverySpec {
            ranges: vec!["10.0.0.0/30".into()],
            ports: vec![443, 8443],
            targets: vec![target("10.0.0.2"), target("https://10.0.0.2:443")],
            ..DiscoverySpec::default()
        };
        let results = SourceResults {
            targets: vec![target("10.0.0.2"), target("10.0.0.9")],
            ..SourceResults::default()
        };
        let plan = Plan::new(&spec, &results, 100);
        let urls: Vec<Option<String>> = (0..plan.count()).map(|i| plan.nth(i).map(|t| t.url)).collect();
        let url = |text: &str| Some(text.to_owned());
        assert_eq!(
            urls,
            [
                url("https://10.0.0.2"),
                url("https://10.0.0.9"),
                url("https://10.0.0.1"),
                url("https://10.0.0.1:8443"),
                None,
                url("https://10.0.0.2:8443"),
            ]
        );
        assert_eq!(plan.nth(plan.count()), None);
    }

    #[test]
    fn addresses_that_two_discoveries_share_are_named() {
        let range = |text: &str| DiscoverySpec {
            ranges: vec![text.to_owned()],
            ..DiscoverySpec::default()
        };
        let named = |address: &str| DiscoverySpec {
            targets: vec![target(address)],
            ..DiscoverySpec::default()
        };
        let ssdp = DiscoverySpec {
            ssdp: true,
            ..DiscoverySpec::default()
        };
        let both = |a: &DiscoverySpec, b: &DiscoverySpec| overlap(a, b, 1000);
        assert_eq!(both(&range("10.0.0.0/24"), &range("10.0.1.0/24")), None);
        assert_eq!(
            both(&range("10.0.0.0/24"), &range("10.0.0.9-10.0.1.9")).as_deref(),
            Some("10.0.0.9")
        );
        assert!(both(&range("10.0.0.0/24"), &named("10.0.0.7:8443")).is_some());
        assert!(both(&named("10.0.0.7"), &range("10.0.0.0/24")).is_some());
        assert!(both(&named("10.0.0.7"), &named("https://10.0.0.7/")).is_some());
        assert_eq!(both(&named("10.0.0.7"), &ssdp), None);
        assert!(both(&ssdp, &ssdp).is_some());
    }
}
