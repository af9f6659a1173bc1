//! Errors between the control plane and a switch.

use std::io;

use crate::model::{Access, Version, Vlan};

/// Why a switch could not be read, or why a port does not match its wish.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// The connection failed.
    #[error(
        "switch {switch} cannot be reached at {address}; check the address in the settings and the management network of the switch"
    )]
    Unreachable {
        switch: String,
        /// Its management address.
        address: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The server at the address did not prove that it is the switch, or refused the control plane.
    #[error("switch {switch} at {address} is not proven: {what}")]
    Unproven {
        switch: String,
        /// Its management address.
        address: String,
        /// The fault, with advice.
        what: String,
    },
    /// The connection broke.
    #[error("the connection to switch {switch} broke")]
    Broken {
        switch: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No answer arrived within the limit.
    #[error("switch {switch} did not answer within {seconds} s; check that its management service runs")]
    Timeout {
        switch: String,
        /// The limit in seconds.
        seconds: u64,
    },
    /// An answer is longer than the limit.
    #[error("an answer of switch {switch} is longer than {limit} bytes; something else may listen at its address")]
    TooLong {
        switch: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The answer has an unexpected form.
    #[error("switch {switch} sent an invalid answer: {what}")]
    Answer {
        switch: String,
        /// The fault in the answer.
        what: String,
    },
    /// The switch refused the request.
    #[error("switch {switch} refused the request: {words}")]
    Refused {
        switch: String,
        /// The switch's reason.
        words: String,
    },
    /// Another session has locked the switch's configuration.
    #[error(
        "switch {switch}: {holder} has locked its configuration; the move is tried again. If the lock stays, end that session \
         on the switch"
    )]
    Locked {
        switch: String,
        /// The session with the lock.
        holder: String,
    },
    /// The switch cannot change several ports at once, or not at all.
    #[error("switch {switch} lacks {what}, so its ports cannot be moved safely; enable it on the switch")]
    Incapable {
        switch: String,
        /// The missing abilities.
        what: &'static str,
    },
    /// The driver cannot isolate ports on this switch.
    #[error(
        "switch {switch}, port {port}: {access} was requested, and Rackwright cannot isolate ports on this switch; see \
         `isolated_by` of the switch in the settings"
    )]
    NotIsolated {
        switch: String,
        port: String,
        /// The requested network.
        access: Access,
    },
    /// The switch has no such bridge.
    #[error("switch {switch} has no bridge {bridge}; correct `bridge` of the switch in the settings")]
    NoBridge { switch: String, bridge: String },
    /// The switch has no such port.
    #[error(
        "switch {switch} has no port {port}; correct the node's `ethernet` in the site file, or add the port to the switch"
    )]
    NoPort { switch: String, port: String },
    /// The port already has a newer document.
    #[error(
        "switch {switch}, port {port}: the port has version {found}, and this change has version {own}: a newer change \
         is in effect"
    )]
    Superseded {
        switch: String,
        port: String,
        /// The version on the port.
        found: Version,
        /// The version of the document.
        own: Version,
    },
    /// Another client changed the same ports during several tries.
    #[error("switch {switch}: another program changes the same ports at the same time; only Rackwright may set them")]
    Contended { switch: String },
    /// The switch accepted the change, but the port reads back differently.
    #[error("switch {switch}, port {port}: {requested} was set, but the port is in {seen}{}; check the port on the \
             switch", if *.isolated { ", isolated" } else { "" })]
    NotApplied {
        switch: String,
        port: String,
        /// The network that was set.
        requested: Access,
        /// The VLANs read back.
        seen: Vlan,
        /// The port reads back as isolated.
        isolated: bool,
    },
    /// The switch stored the change but did not carry it out.
    #[error(
        "switch {switch} stored the port settings but has not applied them; check that ovs-vswitchd runs on the switch"
    )]
    NotInEffect { switch: String },
}

/// An error with its causes, in one line.
#[must_use]
pub fn report(error: &PortsError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
