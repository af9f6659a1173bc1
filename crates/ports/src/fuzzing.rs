//! The entry point of the fuzzer: a complete reading of an Open vSwitch, without a network.

use std::io::{self, Cursor};
use std::time::Duration;

use crate::model::SwitchReading;
use crate::ovs::{OpenVSwitch, OvsSettings};
use crate::wire::{Address, Connection};

/// Reads a switch that answers every request with these bytes and then closes the connection.
///
/// # Errors
/// The text of the error that prevents the reading.
pub fn reading(bytes: &[u8]) -> Result<SwitchReading, String> {
    let switch = OpenVSwitch::new(OvsSettings {
        switch: "switch".to_owned(),
        address: Address::Unix("/".into()),
        tls: None,
        bridge: "br0".to_owned(),
        timeout: Duration::MAX,
    });
    let stream = tokio::io::join(Cursor::new(bytes.to_vec()), tokio::io::sink());
    let mut connection = Connection::over("switch", Box::new(stream));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let read = |error: io::Error| error.to_string();
    let reading = runtime.map_err(read)?.block_on(switch.reading(&mut connection));
    reading.map_err(|error| error.to_string())
}
