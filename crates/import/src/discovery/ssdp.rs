//! SSDP for Redfish (DSP0266, "Discovery"): a multicast search to all BMCs of a network, and their answers.

use std::net::IpAddr;

/// The UDP port of SSDP.
pub const SSDP_PORT: u16 = 1900;
/// The search target.
const TARGET: &str = "urn:dmtf-org:service:redfish-rest:1";
/// Maximum length of an answer, in bytes. The rest is ignored.
const ANSWER_MAX: usize = 4096;

/// The answer of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsdpAnswer {
    /// URL of the service root, such as `https://10.0.0.5/redfish/v1/`.
    pub location: String,
    /// UUID of the service. Empty: unknown.
    pub uuid: String,
}

/// The search message to `group`. Services answer within `wait_s` seconds, each after its own delay.
#[must_use]
pub fn search(group: IpAddr, wait_s: u8) -> String {
    let host = match group {
        IpAddr::V4(v4) => format!("{v4}:{SSDP_PORT}"),
        IpAddr::V6(v6) => format!("[{v6}]:{SSDP_PORT}"),
    };
    format!(
        "M-SEARCH * HTTP/1.1\r\nHOST: {host}\r\nMAN: \"ssdp:discover\"\r\nMX: {wait_s}\r\nST: {TARGET}\r\nUSER-AGENT: rackwright\r\n\r\n"
    )
}

/// Parses an answer. `None`: the answer is not from a Redfish service.
#[must_use]
pub fn parse_answer(bytes: &[u8]) -> Option<SsdpAnswer> {
    let text = std::str::from_utf8(bytes.get(..bytes.len().min(ANSWER_MAX))?).ok()?;
    let mut lines = text.lines();
    let status = lines.next()?;
    let is_good = status.starts_with("HTTP/1.") && status.split_whitespace().nth(1) == Some("200");
    let (mut target, mut location, mut uuid) = (None, None, String::new());
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "st" => target = Some(value),
            "al" => location = Some(value),
            "usn" => uuid = usn(value),
            _ => {}
        }
    }
    // A service may include its own minor version: `…:redfish-rest:1:14`.
    let is_redfish = target.is_some_and(|target| {
        let target = target.to_ascii_lowercase();
        target
            .strip_prefix(TARGET)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    });
    let location = location?;
    let is_url = ["https://", "http://"]
        .iter()
        .any(|scheme| location.starts_with(scheme));
    (is_good && is_redfish && is_url && location.len() <= 512).then(|| SsdpAnswer {
        location: location.to_owned(),
        uuid,
    })
}

/// Parses `uuid:UUID::urn:…`.
fn usn(text: &str) -> String {
    let uuid = text.strip_prefix("uuid:").unwrap_or_default();
    uuid.split(':').next().unwrap_or_default().chars().take(36).collect()
}
