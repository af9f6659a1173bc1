//! What must hold of each reader of input from outside, whatever the input is. [`check`] panics where something does not
//! hold.
//!
//! `make fuzz` looks for a counter-example with libFuzzer; the test of this crate tries what stands in `corpus/`.
//! No reader may panic, take long or take much memory. What else must hold stands at each function.

mod bmc;
mod boot;
pub mod changes;
mod gateway;
mod images;
mod keys;
mod ports;
mod site;
mod spdm;
mod tpm;
mod view_values;

/// A reader under test: takes the input.
type Reader = fn(&[u8]);

/// The readers by the first byte of an input.
const READERS: &[(u8, &str, Reader)] = &[
    (b'v', "the views of a BMC's resource", bmc::views),
    (b'e', "a BMC's event stream", bmc::events),
    (b'l', "a BMC's links", bmc::links),
    (b's', "the recording of a BMC", bmc::scrubbing),
    (b'g', "an entry of a BMC's log (SEL)", bmc::logs),
    (b'd', "a DHCP packet", boot::dhcp),
    (b't', "a TFTP packet", boot::tftp),
    (b'h', "an ARP packet", boot::arp),
    (b'L', "an LLDP frame", boot::lldp),
    (b'c', "a certificate request (PKCS #10)", keys::request),
    (b'x', "a client certificate (X.509)", keys::certificate),
    (b'r', "an erase certificate", keys::erase_record),
    (b'u', "an event log of UEFI firmware (TCG)", tpm::event_log),
    (b'o', "a quote and a key of a TPM", tpm::quote),
    (b'm', "a signed statement of a component (SPDM)", spdm::statement),
    (b'M', "a medium with a secret", tpm::medium),
    (b'w', "answers of an Open vSwitch (OVSDB)", ports::open_vswitch),
    (b'N', "answers of a switch with NETCONF", ports::netconf),
    (b'q', "a qcow2 image", images::qcow2),
    (b'i', "an index of an image", images::index),
    (b'f', "a dump of a fabric (ibnetdiscover)", site::dump),
    (b'p', "OpenSM's partitions.conf", site::partitions),
    (b'y', "a site file (YAML)", site::file),
    (b'n', "NetBox tables (CSV)", site::netbox),
    (b'R', "a REST or Connect request", gateway::request),
    (b'W', "what a client sends over a WebSocket", gateway::web_socket),
    (b'a', "SSDP answers, DHCP leases and lists of targets", site::discovery),
];

/// Takes the first byte as the reader to try, and the rest as its input. Any other byte tries a BMC's resource.
///
/// # Panics
/// Something does not hold.
pub fn check(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let reader = READERS.iter().find(|(byte, ..)| byte == kind);
    let reader = reader.map_or(bmc::views as Reader, |(_, _, reader)| *reader);
    reader(rest);
}

/// The readers: first byte of an input, and name.
pub fn readers() -> impl Iterator<Item = (u8, &'static str)> {
    READERS.iter().map(|(byte, name, _)| (*byte, *name))
}
