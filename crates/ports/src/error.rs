//! What can go wrong between the control plane and a switch.

use std::io;

use crate::model::{Access, Version, Vlan};

/// Why a switch could not be read, or a port does not have what was wished.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// No connection.
    #[error(
        "switch {switch} cannot be reached at {address}; check the address in the settings and the management network of the switch"
    )]
    Unreachable {
        /// The switch.
        switch: String,
        /// Its management address.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to switch {switch} broke")]
    Broken {
        /// The switch.
        switch: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No answer in time.
    #[error("switch {switch} did not answer within {seconds} s; look whether its management service runs")]
    Timeout {
        /// The switch.
        switch: String,
        /// The limit.
        seconds: u64,
    },
    /// An answer is longer than the limit.
    #[error("an answer of switch {switch} is longer than {limit} bytes; something else may listen at its address")]
    TooLong {
        /// The switch.
        switch: String,
        /// The limit.
        limit: usize,
    },
    /// An answer has not the form that it should have.
    #[error("switch {switch} gave an answer that is not understood: {what}")]
    Answer {
        /// The switch.
        switch: String,
        /// What is wrong with it.
        what: String,
    },
    /// The switch refused the request.
    #[error("switch {switch} refused the request: {words}")]
    Refused {
        /// The switch.
        switch: String,
        /// Its words.
        words: String,
    },
    /// The switch has no such bridge.
    #[error("switch {switch} has no bridge {bridge}; correct `bridge` of the switch in the settings")]
    NoBridge {
        /// The switch.
        switch: String,
        /// The bridge.
        bridge: String,
    },
    /// The switch has no such port.
    #[error(
        "switch {switch} has no port {port}; correct the node's `ethernet` in the site file, or add the port to the switch"
    )]
    NoPort {
        /// The switch.
        switch: String,
        /// The port.
        port: String,
    },
    /// A newer document was brought to the port.
    #[error(
        "switch {switch}, port {port}: version {found} is on the port, and this is version {own}: a newer wish is in effect"
    )]
    Superseded {
        /// The switch.
        switch: String,
        /// The port.
        port: String,
        /// The version on the port.
        found: Version,
        /// The version of the document.
        own: Version,
    },
    /// Another client changed the same ports meanwhile, several times.
    #[error("switch {switch}: another program changes the same ports at the same time; only Rackwright may set them")]
    Contended {
        /// The switch.
        switch: String,
    },
    /// The switch took the change, and the port is read otherwise.
    #[error("switch {switch}, port {port}: {wished} was set, and the port is read in {seen}{}; look at the port on the switch", if *.isolated { ", isolated" } else { "" })]
    Kept {
        /// The switch.
        switch: String,
        /// The port.
        port: String,
        /// What was set.
        wished: Access,
        /// What was read.
        seen: Vlan,
        /// The port was read as isolated.
        isolated: bool,
    },
    /// The switch stored the change and did not carry it out.
    #[error("switch {switch} stored its ports and has not put them into effect; look whether ovs-vswitchd runs there")]
    NotInEffect {
        /// The switch.
        switch: String,
    },
}

/// An error with its causes, in one line.
#[must_use]
pub fn report(error: &PortsError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
