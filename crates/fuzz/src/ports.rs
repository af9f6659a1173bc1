//! The answer of an Ethernet switch about its ports.

use std::fmt;

use rackwright_ports::fuzzing::{netconf_reading, reading};

/// An answer is read the same each time, or refused with a message that is short and has no control characters.
pub(crate) fn open_vswitch(bytes: &[u8]) {
    hold(reading, bytes);
}

/// The same of a switch with NETCONF.
pub(crate) fn netconf(bytes: &[u8]) {
    hold(netconf_reading, bytes);
}

fn hold<T: PartialEq + fmt::Debug>(reading: impl Fn(&[u8]) -> Result<T, String>, bytes: &[u8]) {
    let read = reading(bytes);
    if let Err(message) = &read {
        assert!(message.len() < 1_000, "{} bytes of words", message.len());
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
    assert_eq!(reading(bytes), read);
}
