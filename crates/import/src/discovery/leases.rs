//! Lease files of DHCP servers: ISC dhcpd, Kea (memfile, CSV) and dnsmasq. The format is detected from the text.
//!
//! The expiry of a lease is ignored: an unused address costs one probe.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Maximum number of leases from one file.
const LEASES_MAX: usize = 65_536;
/// Maximum length of a host name, in characters.
const NAME_MAX: usize = 64;

/// A leased address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub address: IpAddr,
    /// The client's MAC address in lower case with colons. Empty: unknown.
    pub mac: String,
    /// The client's host name. Empty: unknown.
    pub host_name: String,
}

/// Why a lease file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseFault {
    /// The file has none of the three formats.
    #[error(
        "this is not a lease file of ISC dhcpd (`lease ADDRESS {{`), Kea (CSV that begins with `address,`) or dnsmasq \
         (`EXPIRY MAC ADDRESS NAME ID`)"
    )]
    Unknown,
    /// The file has too many leases.
    #[error("there are more than {LEASES_MAX} leases: split the file")]
    TooMany,
}

/// Reads a lease file. Only the last entry of an address counts, and only if it assigns the address. The result is
/// ordered by address.
///
/// # Errors
/// The format is unknown, or the file has too many leases.
pub fn parse_leases(text: &str) -> Result<Vec<Lease>, LeaseFault> {
    let text = text.trim_start_matches('\u{feff}');
    let mut found = BTreeMap::new();
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    let is_known = match first {
        // An empty file is valid: the server has given no lease.
        None => true,
        Some(line) if line.starts_with("address,") => kea(text, line, &mut found)?,
        Some(_) => dnsmasq(text, &mut found)? || isc(text, &mut found)?,
    };
    if !is_known {
        return Err(LeaseFault::Unknown);
    }
    Ok(found.into_values().flatten().collect())
}

/// By address. `None`: the address is not assigned.
type Found = BTreeMap<IpAddr, Option<Lease>>;

fn note(found: &mut Found, address: IpAddr, lease: Option<Lease>) -> Result<(), LeaseFault> {
    found.insert(address, lease);
    if found.len() > LEASES_MAX {
        return Err(LeaseFault::TooMany);
    }
    Ok(())
}

fn lease(address: IpAddr, mac: &str, host_name: &str) -> Lease {
    let name = host_name.trim_matches(['"', '*', '.']);
    let name = name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect();
    Lease {
        address,
        mac: super::plausible_mac(mac).unwrap_or_default(),
        host_name: name,
    }
}

/// Kea: the header names the columns. State 0 is an assigned lease.
fn kea(text: &str, header: &str, found: &mut Found) -> Result<bool, LeaseFault> {
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let (hardware, name, state) = (column("hwaddr"), column("hostname"), column("state"));
    for line in text.lines() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |at: Option<usize>| at.and_then(|at| cells.get(at)).copied().unwrap_or_default();
        let Some(address) = cells.first().and_then(|cell| cell.parse::<IpAddr>().ok()) else {
            continue;
        };
        let is_given = matches!(cell(state), "" | "0");
        let one = is_given.then(|| lease(address, cell(hardware), cell(name)));
        note(found, address, one)?;
    }
    Ok(true)
}

/// dnsmasq: expiry, MAC (for IPv6: IAID), address, name, client id. A line `duid …` separates the families.
fn dnsmasq(text: &str, found: &mut Found) -> Result<bool, LeaseFault> {
    let mut is_any = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [expiry, mac, address, name, ..] = words.as_slice() else {
            continue;
        };
        let (Ok(_), Ok(address)) = (expiry.parse::<u64>(), address.parse::<IpAddr>()) else {
            continue;
        };
        is_any = true;
        note(found, address, Some(lease(address, mac, name)))?;
    }
    Ok(is_any)
}

/// ISC dhcpd: blocks that begin with `lease ADDRESS {` or, for IPv6, `iaaddr ADDRESS {`. The server appends new blocks
/// for known addresses.
fn isc(text: &str, found: &mut Found) -> Result<bool, LeaseFault> {
    let (mut is_any, mut open) = (false, None::<Block>);
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.trim_end_matches(['{', ';', '}']).split_whitespace().collect();
        match words.as_slice() {
            ["lease" | "iaaddr", address, ..] => {
                open = address.parse().ok().map(Block::new);
                is_any |= open.is_some();
            }
            ["binding", "state", state, ..] => open.iter_mut().for_each(|block| block.is_given = *state == "active"),
            ["hardware", _, mac, ..] => open.iter_mut().for_each(|block| (*mac).clone_into(&mut block.mac)),
            ["client-hostname", name, ..] => open.iter_mut().for_each(|block| (*name).clone_into(&mut block.name)),
            _ => {}
        }
        if line.ends_with('}')
            && let Some(block) = open.take()
        {
            let one = block.is_given.then(|| lease(block.address, &block.mac, &block.name));
            note(found, block.address, one)?;
        }
    }
    Ok(is_any || text.contains("authoring-byte-order") || text.contains("server-duid"))
}

struct Block {
    address: IpAddr,
    is_given: bool,
    mac: String,
    name: String,
}

impl Block {
    fn new(address: IpAddr) -> Self {
        Self {
            address,
            is_given: true,
            mac: String::new(),
            name: String::new(),
        }
    }
}
