//! Ports for programs that a test starts.

/// A port that is free for TCP and UDP on all addresses, together with the next port, on which DHCP clients listen. No
/// other process gets either of them before this process ends.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    rackwright_free_port::free_port().expect("two free ports")
}
