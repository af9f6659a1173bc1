//! `ipmi://HOST[:PORT][?option=value&…]`: the address of a BMC, with facts about its machine that IPMI does not report.

use std::fmt;
use std::str::FromStr;

use crate::error::IpmiError;

/// The scheme of every IPMI address.
pub(crate) const SCHEME: &str = "ipmi://";
/// UDP port of RMCP (IANA: asf-rmcp).
const PORT: u16 = 623;
/// Maximum length of an address, in bytes.
const LENGTH_MAX: usize = 2048;
/// Maximum number of MAC addresses.
const MACS_MAX: usize = 16;
/// Cipher suites that sign and encrypt (IPMI 2.0 table 22-20, and 17 from its errata). With the others, an attacker on
/// the network can read or change commands or passwords.
const CIPHERS: [u8; 5] = [3, 8, 12, 17, 18];
const USABLE_CIPHERS: &str = "3, 8, 12, 17 or 18";

/// The privilege level that a login requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Privilege {
    /// Operator level: enough for power and boot device.
    Operator,
    /// Administrator level: all commands.
    #[default]
    Administrator,
}

impl Privilege {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "OPERATOR",
            Self::Administrator => "ADMINISTRATOR",
        }
    }
}

/// The boot mode of a machine. A boot override includes the mode, and the wrong mode switches many machines over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Firmware {
    #[default]
    Uefi,
    /// BIOS, or UEFI's compatibility support module.
    Bios,
}

/// An address of the form `ipmi://HOST[:PORT]`, with options:
///
/// - `mac=52:54:00:77:00:01`, once for each network card that the machine boots from, because IPMI does not report
///   them;
/// - `firmware=bios` for a machine that does not boot by UEFI;
/// - `cipher=3`, one of 3, 8, 12, 17, 18: without it `ipmitool` queries the BMC's suites and takes the best;
/// - `privilege=operator`, if the account has no higher level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpmiAddress {
    host: String,
    port: u16,
    cipher: Option<u8>,
    privilege: Privilege,
    firmware: Firmware,
    macs: Vec<String>,
}

impl IpmiAddress {
    /// Whether a BMC address has the IPMI scheme. The rest of the address may still be invalid.
    #[must_use]
    pub fn is_ipmi(address: &str) -> bool {
        address
            .get(..SCHEME.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(SCHEME))
    }

    /// The host name or IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The UDP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The cipher suite to use. `None`: `ipmitool` queries the BMC.
    #[must_use]
    pub fn cipher(&self) -> Option<u8> {
        self.cipher
    }

    /// The privilege level that a login requests.
    #[must_use]
    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    /// The boot mode of the machine.
    #[must_use]
    pub fn firmware(&self) -> Firmware {
        self.firmware
    }

    /// MAC addresses that the machine boots from, in lower case with colons, without duplicates.
    #[must_use]
    pub fn macs(&self) -> &[String] {
        &self.macs
    }

    /// `HOST:PORT`, which identifies one BMC.
    #[must_use]
    pub fn place(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        let lower = value.to_ascii_lowercase();
        match (name, lower.as_str()) {
            ("mac", _) => {
                let mac =
                    mac(&lower).ok_or_else(|| format!("mac={value:?} is not a MAC address like 52:54:00:77:00:01"))?;
                if !self.macs.contains(&mac) {
                    self.macs.push(mac);
                }
                if self.macs.len() > MACS_MAX {
                    return Err(format!("it has more than {MACS_MAX} MAC addresses"));
                }
            }
            ("firmware", "uefi") => self.firmware = Firmware::Uefi,
            ("firmware", "bios") => self.firmware = Firmware::Bios,
            ("firmware", _) => return Err(format!("firmware={value:?} is neither uefi nor bios")),
            ("privilege", "operator") => self.privilege = Privilege::Operator,
            ("privilege", "administrator") => self.privilege = Privilege::Administrator,
            ("privilege", _) => return Err(format!("privilege={value:?} is neither operator nor administrator")),
            ("cipher", number) => match number.parse() {
                Ok(cipher) if CIPHERS.contains(&cipher) => self.cipher = Some(cipher),
                _ => {
                    let fault = "is insecure or unknown; use";
                    return Err(format!("cipher suite {value:?} {fault} {USABLE_CIPHERS}"));
                }
            },
            _ => {
                return Err(format!(
                    "there is no option {name:?}; the options are mac, firmware, cipher and privilege"
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for IpmiAddress {
    type Err = IpmiError;

    fn from_str(text: &str) -> Result<Self, IpmiError> {
        parse(text).map_err(|why| IpmiError::InvalidAddress {
            // A user may have put a password into the address.
            address: if text.contains('@') || text.len() > 256 {
                format!("{SCHEME}…")
            } else {
                text.to_owned()
            },
            why,
        })
    }
}

impl fmt::Display for IpmiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.place())
    }
}

fn parse(text: &str) -> Result<IpmiAddress, String> {
    if text.len() > LENGTH_MAX {
        return Err(format!("it is longer than {LENGTH_MAX} bytes"));
    }
    let url = url::Url::parse(text).map_err(|fault| fault.to_string())?;
    if url.scheme() != "ipmi" {
        return Err("it does not begin with ipmi://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it must not contain user name and password".to_owned());
    }
    if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
        return Err("only options may follow host and port".to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || host.len() > 253 || host.starts_with('-') || !host.chars().all(is_plain) {
        return Err("its host is invalid".to_owned());
    }
    let mut address = IpmiAddress {
        host: host.to_owned(),
        port: url.port().unwrap_or(PORT),
        cipher: None,
        privilege: Privilege::default(),
        firmware: Firmware::default(),
        macs: Vec::new(),
    };
    if address.port == 0 {
        return Err("port 0 is invalid".to_owned());
    }
    for (name, value) in url.query_pairs() {
        address.option(&name, &value)?;
    }
    Ok(address)
}

/// Parses a unicast MAC address with colons or hyphens. Returns it with colons.
fn mac(text: &str) -> Option<String> {
    let text = text.replace('-', ":");
    let bytes: Vec<u8> = text
        .split(':')
        .map(|part| (part.len() == 2).then(|| u8::from_str_radix(part, 16).ok()).flatten())
        .collect::<Option<_>>()?;
    let is_one = bytes.len() == 6 && bytes.iter().any(|b| *b != 0) && bytes[0] & 1 == 0;
    (is_one && text.bytes().all(|b| b == b':' || b.is_ascii_hexdigit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_carries_settings_that_ipmi_does_not_report() {
        let plain: IpmiAddress = "ipmi://10.0.0.7".parse().unwrap();
        assert_eq!((plain.host(), plain.port()), ("10.0.0.7", 623));
        assert_eq!((plain.cipher(), plain.privilege()), (None, Privilege::Administrator));
        let all: IpmiAddress =
            "IPMI://[fd00::7]:9623/?cipher=17&privilege=operator&firmware=bios&mac=52-54-00-AA-00-01&mac=52:54:00:aa:00:01"
                .parse()
                .unwrap();
        assert_eq!(all.to_string(), "ipmi://[fd00::7]:9623");
        assert_eq!(all.host(), "fd00::7");
        assert_eq!((all.cipher(), all.firmware()), (Some(17), Firmware::Bios));
        assert_eq!(all.macs(), ["52:54:00:aa:00:01"]);
        assert!(IpmiAddress::is_ipmi("ipmi://") && !IpmiAddress::is_ipmi("https://ipmi"));
    }

    #[test]
    fn unusable_addresses_are_refused_with_a_reason() {
        for (address, word) in [
            ("https://10.0.0.7", "begin"),
            ("ipmi://", "host"),
            ("ipmi://-C", "host"),
            ("ipmi://a b", "invalid domain"),
            ("ipmi://a:0", "port 0"),
            ("ipmi://a:99999", "port"),
            ("ipmi://a/redfish", "only options"),
            ("ipmi://a?cipher=0", "cipher suite \"0\""),
            ("ipmi://a?cipher=1", "3, 8, 12, 17 or 18"),
            ("ipmi://a?mac=01:00:5e:00:00:01", "mac="),
            ("ipmi://a?mac=5254", "mac="),
            ("ipmi://a?firmware=coreboot", "uefi nor bios"),
            ("ipmi://a?privilege=oem", "operator nor administrator"),
            ("ipmi://a?colour=red", "no option \"colour\""),
        ] {
            let error = address.parse::<IpmiAddress>().unwrap_err().to_string();
            assert!(error.contains(word), "{address}: {error}");
        }
        let error = "ipmi://admin:geheim@a".parse::<IpmiAddress>().unwrap_err().to_string();
        assert!(
            error.contains("must not contain user name and password") && !error.contains("geheim"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn any_address_parses_or_is_an_error(text in ".{0,80}") {
            let _ = format!("ipmi://{text}").parse::<IpmiAddress>();
        }
    }
}
