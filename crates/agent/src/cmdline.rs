//! The agent's settings from the kernel's command line, written by the boot plan.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use secrecy::SecretString;
use thiserror::Error;

/// Prefix length of an IPv4 address with neither `/length` nor `rackwright.mask`.
const DEFAULT_IPV4_PREFIX: u8 = 24;
/// Port of the control plane's boot HTTP server, if `rackwright.caurl` is missing.
const BOOT_HTTP_PORT: u16 = 8080;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = ();

    /// Parses six pairs of hexadecimal digits separated by `:` or `-`, or twelve digits.
    fn from_str(text: &str) -> Result<Self, ()> {
        let plain = match text.len() {
            12 => text.to_owned(),
            17 if text.bytes().skip(2).step_by(3).all(|b| b == b':' || b == b'-') => text.replace([':', '-'], ""),
            _ => return Err(()),
        };
        let mut mac = [0; 6];
        hex::decode_to_slice(plain, &mut mac).map_err(|_| ())?;
        Ok(Self(mac))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Action of the machine when the agent cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFatal {
    /// Switch off; the control plane notices and decides.
    PowerOff,
    /// Reset, for machines that cannot be switched on remotely.
    Reset,
}

/// Address, prefix length and gateway of the boot NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// The NIC's address.
    pub address: IpAddr,
    /// Bits of the network part.
    pub prefix: u8,
    /// Default gateway.
    pub gateway: Option<IpAddr>,
}

/// One replica of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://HOST:PORT` of the replica's gRPC listener.
    pub server: String,
    /// URL of the CA certificate (PEM) on the replica.
    pub ca_url: String,
}

/// The checked command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tried in order; at least one.
    pub endpoints: Vec<Endpoint>,
    /// One-time token; never logged.
    pub token: SecretString,
    /// SHA-256 of the DER of the control plane's CA certificate.
    pub ca_sha256: [u8; 32],
    /// MAC address of the boot NIC.
    pub mac: Option<Mac>,
    /// Static addressing; `None` selects DHCP.
    pub addressing: Option<Addressing>,
    /// `rackwright.onfatal=poweroff|reset`.
    pub on_fatal: OnFatal,
}

/// Why the agent cannot use a command line.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CmdlineError {
    /// A required key is missing.
    #[error("kernel command line: {key} is missing; the boot plan must give it")]
    Missing {
        /// The missing key.
        key: &'static str,
    },
    /// A value is malformed. The message omits the value: it may be a secret under the wrong key.
    #[error("kernel command line: {key} must be {expected}")]
    Invalid {
        /// The key of the value.
        key: &'static str,
        /// The required form.
        expected: &'static str,
    },
}

/// The last value of a key. An empty value counts as absent (iPXE leaves unset settings empty).
fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    let found = words
        .iter()
        .rev()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
    let found = found.trim_matches('"');
    (!found.is_empty()).then_some(found)
}

/// Parses a kernel command line.
///
/// # Errors
/// The first key that is missing or malformed.
pub fn parse(cmdline: &str) -> Result<Settings, CmdlineError> {
    let words: Vec<&str> = cmdline.split_ascii_whitespace().collect();
    let invalid = |key, expected| CmdlineError::Invalid { key, expected };
    let endpoints = endpoints(&words)?;
    let token = value(&words, "rackwright.token").ok_or(CmdlineError::Missing {
        key: "rackwright.token",
    })?;
    let ca = value(&words, "rackwright.ca").ok_or(CmdlineError::Missing { key: "rackwright.ca" })?;
    let mut ca_sha256 = [0; 32];
    ca.strip_prefix("sha256:")
        .and_then(|digits| hex::decode_to_slice(digits, &mut ca_sha256).ok())
        .ok_or(invalid("rackwright.ca", "sha256: and 64 hexadecimal digits"))?;
    let mac = match value(&words, "rackwright.mac") {
        Some(text) => Some(
            text.parse()
                .map_err(|()| invalid("rackwright.mac", "six pairs of hexadecimal digits"))?,
        ),
        None => None,
    };
    let on_fatal = match value(&words, "rackwright.onfatal") {
        None | Some("poweroff") => OnFatal::PowerOff,
        Some("reset") => OnFatal::Reset,
        Some(_) => return Err(invalid("rackwright.onfatal", "poweroff or reset")),
    };
    let addressing = addressing(&words)?;
    let token = SecretString::from(token);
    Ok(Settings {
        endpoints,
        token,
        ca_sha256,
        mac,
        addressing,
        on_fatal,
    })
}

/// Returns the replicas. The URL of a replica's CA certificate is the URL at the same position of the list, or the default
/// one.
fn endpoints(words: &[&str]) -> Result<Vec<Endpoint>, CmdlineError> {
    let key = "rackwright.server";
    let servers = value(words, key).ok_or(CmdlineError::Missing { key })?;
    let mut ca_urls = value(words, "rackwright.caurl")
        .into_iter()
        .flat_map(|list| list.split(','));
    let mut endpoints = Vec::new();
    for server in servers.split(',') {
        let host = host_of(server).ok_or(CmdlineError::Invalid {
            key,
            expected: "https://ADDRESS:PORT with a numeric address, or several of these separated by commas",
        })?;
        let ca_url = match ca_urls.next() {
            Some(url) if url.starts_with("http://") || url.starts_with("https://") => url.to_owned(),
            Some(_) => {
                return Err(CmdlineError::Invalid {
                    key: "rackwright.caurl",
                    expected: "an http:// URL, or one URL for each server, separated by commas",
                });
            }
            None => format!("http://{host}:{BOOT_HTTP_PORT}/boot/v1/ca.pem"),
        };
        endpoints.push(Endpoint {
            server: server.to_owned(),
            ca_url,
        });
    }
    Ok(endpoints)
}

/// The numeric host of an `https://` URL, unchanged and with brackets. Names are refused: the agent is linked statically
/// and cannot resolve them.
fn host_of(server: &str) -> Option<&str> {
    let authority = server.strip_prefix("https://")?.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let bare = host
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse::<IpAddr>().ok().map(|_| host)
}

fn addressing(words: &[&str]) -> Result<Option<Addressing>, CmdlineError> {
    let invalid = |key, expected| CmdlineError::Invalid { key, expected };
    let Some(text) = value(words, "rackwright.ip") else {
        return Ok(None);
    };
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let wrong = || invalid("rackwright.ip", "ADDRESS or ADDRESS/LENGTH");
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match (length, value(words, "rackwright.mask")) {
        (Some(length), _) => length.parse().ok().filter(|l| *l <= bits).ok_or_else(wrong)?,
        (None, Some(mask)) if address.is_ipv4() => {
            let mask = mask.parse().ok().and_then(prefix_of_mask);
            mask.ok_or(invalid("rackwright.mask", "a net mask such as 255.255.255.0"))?
        }
        (None, _) => {
            if address.is_ipv4() {
                DEFAULT_IPV4_PREFIX
            } else {
                64
            }
        }
    };
    let gateway = match value(words, "rackwright.gw") {
        Some(text) => {
            let gateway: IpAddr = text.parse().map_err(|_| invalid("rackwright.gw", "an address"))?;
            let same_family = gateway.is_ipv4() == address.is_ipv4();
            same_family.then_some(Some(gateway)).ok_or(invalid(
                "rackwright.gw",
                "an address of the same family as rackwright.ip",
            ))?
        }
        None => None,
    };
    Ok(Some(Addressing {
        address,
        prefix,
        gateway: gateway.filter(|g| !g.is_unspecified()),
    }))
}

/// Prefix length of a contiguous IPv4 net mask.
pub fn prefix_of_mask(mask: std::net::Ipv4Addr) -> Option<u8> {
    let bits = u32::from(mask);
    let length = bits.leading_ones();
    (bits.checked_shl(length).unwrap_or(0) == 0).then_some(length as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    const MINIMAL: &str = "quiet rackwright.server=https://10.77.0.1:7070 rackwright.token=s3cret rackwright.ca=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn least_and_full() {
        let least = parse(MINIMAL).unwrap();
        assert_eq!(least.endpoints[0].ca_url, "http://10.77.0.1:8080/boot/v1/ca.pem");
        assert_eq!(least.token.expose_secret(), "s3cret");
        assert_eq!(
            (least.mac, least.addressing, least.on_fatal),
            (None, None, OnFatal::PowerOff)
        );
        let full = format!(
            "{MINIMAL} rackwright.caurl=http://10.77.0.1:8081/ca rackwright.mac=52-54-00-AB-cd-ef rackwright.ip=10.77.0.10/22 \
             rackwright.gw=10.77.0.1 rackwright.onfatal=reset console=ttyS0"
        );
        let full = parse(&full).unwrap();
        assert_eq!(full.mac.unwrap().to_string(), "52:54:00:ab:cd:ef");
        let addressing = full.addressing.unwrap();
        assert_eq!(addressing.address.to_string(), "10.77.0.10");
        assert_eq!(
            (addressing.prefix, addressing.gateway.unwrap().to_string().as_str()),
            (22, "10.77.0.1")
        );
        assert_eq!(
            (full.endpoints[0].ca_url.as_str(), full.on_fatal),
            ("http://10.77.0.1:8081/ca", OnFatal::Reset)
        );
    }

    #[test]
    fn several_servers_are_tried_in_their_order() {
        let two = "rackwright.server=https://10.0.0.1:7070,https://[fd77::2]:7070 rackwright.caurl=http://10.0.0.9/ca";
        let endpoints = parse(&format!("{MINIMAL} {two}")).unwrap().endpoints;
        let endpoint_pairs: Vec<_> = endpoints
            .iter()
            .map(|e| (e.server.as_str(), e.ca_url.as_str()))
            .collect();
        let wanted = [
            ("https://10.0.0.1:7070", "http://10.0.0.9/ca"),
            ("https://[fd77::2]:7070", "http://[fd77::2]:8080/boot/v1/ca.pem"),
        ];
        assert_eq!(endpoint_pairs, wanted);
    }

    #[test]
    fn masks_defaults_and_unset_values() {
        let prefix = |extra: &str| {
            parse(&format!("{MINIMAL} {extra}"))
                .unwrap()
                .addressing
                .map(|a| a.prefix)
        };
        assert_eq!(
            prefix("rackwright.ip=10.0.0.2 rackwright.mask=255.255.240.0 rackwright.gw="),
            Some(20)
        );
        assert_eq!(prefix("rackwright.ip=10.0.0.2"), Some(24));
        assert_eq!(prefix("rackwright.ip=fd77::2"), Some(64));
        assert_eq!(prefix("rackwright.ip= rackwright.mask="), None);
        assert_eq!(
            prefix("rackwright.ip=10.0.0.2/8 rackwright.ip=10.0.0.3/9"),
            Some(9),
            "the last one counts"
        );
    }

    #[test]
    fn faults_name_the_key_and_hide_the_value() {
        let without = |key: &str| {
            MINIMAL
                .split(' ')
                .filter(|word| !word.starts_with(key))
                .collect::<Vec<_>>()
                .join(" ")
        };
        for key in ["rackwright.server", "rackwright.token", "rackwright.ca"] {
            assert_eq!(parse(&without(key)).unwrap_err(), CmdlineError::Missing { key });
        }
        for (extra, key) in [
            ("rackwright.server=http://10.0.0.1:1", "rackwright.server"),
            ("rackwright.server=https://control.example:1", "rackwright.server"),
            ("rackwright.server=https://10.0.0.1", "rackwright.server"),
            ("rackwright.server=https://10.0.0.1:1,", "rackwright.server"),
            ("rackwright.server=https://10.0.0.1:1,https://b:1", "rackwright.server"),
            ("rackwright.ca=sha256:abcd", "rackwright.ca"),
            ("rackwright.ca=s3cret", "rackwright.ca"),
            ("rackwright.caurl=ftp://x", "rackwright.caurl"),
            ("rackwright.mac=52:54", "rackwright.mac"),
            ("rackwright.ip=10.0.0.1/33", "rackwright.ip"),
            ("rackwright.ip=ten", "rackwright.ip"),
            ("rackwright.ip=10.0.0.1 rackwright.mask=255.0.255.0", "rackwright.mask"),
            ("rackwright.ip=10.0.0.1 rackwright.gw=fd77::1", "rackwright.gw"),
            ("rackwright.onfatal=hang", "rackwright.onfatal"),
        ] {
            let error = parse(&format!("{MINIMAL} {extra}")).unwrap_err();
            assert!(error.to_string().contains(key), "{extra}: {error}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
        assert!(!format!("{:?}", parse(MINIMAL).unwrap()).contains("s3cret"));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_an_error(text in "(rackwright\\.[a-z]{1,8}=[^ ]{0,20} ?|[ -~]{0,10}){0,12}") {
            let _ = parse(&text);
        }

        #[test]
        fn macs_round_trip(bytes: [u8; 6]) {
            let mac = Mac(bytes);
            prop_assert_eq!(mac.to_string().parse::<Mac>(), Ok(mac));
        }
    }
}
