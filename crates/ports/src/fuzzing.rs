//! The entry points of the fuzzer: a complete reading of a switch, without a network.

use std::io::{self, Cursor};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use crate::error::PortsError;
use crate::model::SwitchReading;
use crate::netconf::{Login, Netconf, NetconfSettings, Session, SshSettings};
use crate::ovs::{OpenVSwitch, OvsSettings};
use crate::wire::{Address, Connection, Stream};

const HOST_KEY: &str = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Reads an Open vSwitch that answers every request with these bytes and then closes the connection.
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
    let mut connection = Connection::over("switch", answering(bytes));
    run(switch.reading(&mut connection))
}

/// Reads a switch with NETCONF that sends these bytes and then closes the connection.
///
/// # Errors
/// The text of the error that prevents the reading.
pub fn netconf_reading(bytes: &[u8]) -> Result<SwitchReading, String> {
    let driver = Netconf::new(NetconfSettings {
        switch: "switch".to_owned(),
        ssh: SshSettings {
            address: "ssh://switch".parse().map_err(|error| format!("{error}"))?,
            host_key: HOST_KEY.parse().map_err(|error| format!("{error}"))?,
            user: "user".to_owned(),
            login: Login::Key("/".into()),
        },
        isolated: [10].into(),
        timeout: Duration::MAX,
    });
    // The answers arrive after the hello, and so after the first request.
    const MARK: &[u8] = b"]]>]]>";
    let mark = bytes.windows(MARK.len()).position(|found| found == MARK);
    let (hello, answers) = bytes.split_at(mark.map_or(bytes.len(), |at| at + MARK.len()));
    let stream = Cursor::new(hello.to_vec()).chain(Cursor::new(answers.to_vec()));
    let stream = Box::new(tokio::io::join(stream, tokio::io::sink()));
    run(async {
        let mut session = Session::over("switch", stream, Box::new(()), true).await?;
        driver.reading(&mut session).await
    })
}

fn answering(bytes: &[u8]) -> Box<dyn Stream> {
    Box::new(tokio::io::join(Cursor::new(bytes.to_vec()), tokio::io::sink()))
}

fn run(reading: impl Future<Output = Result<SwitchReading, PortsError>>) -> Result<SwitchReading, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let reading = runtime.map_err(|error: io::Error| error.to_string())?.block_on(reading);
    reading.map_err(|error| error.to_string())
}
