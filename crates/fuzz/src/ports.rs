//! What an Ethernet switch says of its ports.

use rackwright_ports::fuzzing::reading;

/// A switch is read the same each time, or refused in words that are short and have no control characters.
pub(crate) fn open_vswitch(bytes: &[u8]) {
    let read = reading(bytes);
    if let Err(words) = &read {
        assert!(words.len() < 1_000, "{} bytes of words", words.len());
        assert!(!words.chars().any(char::is_control), "{words:?}");
    }
    assert_eq!(reading(bytes), read);
}
