//! Shared code of the tests: a plain Redfish client, guests, a file server.
#![allow(dead_code, unused_imports)] // each test binary uses its part

pub mod guest;
#[path = "../../../sim-bmc/tests/redfish_client/mod.rs"]
mod redfish_client;

use rackwright_lab::{Lab, LabConfig, Machine, Namespace};
pub use redfish_client::{Client, LONG, RESET, SESSIONS, SYSTEM, assert_error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub const CD: &str = "/redfish/v1/Managers/1/VirtualMedia/Cd";

/// A client of a machine's BMC that trusts only this BMC's certificate.
pub fn client_of(machine: &Machine) -> Client {
    let bmc = machine.bmc();
    let certificate = reqwest::Certificate::from_pem(bmc.certificate_pem.as_bytes()).unwrap();
    Client::at(bmc.url.clone(), &bmc.user, bmc.password(), Some(certificate))
}

/// A lab of one machine and a client of its BMC.
pub async fn one(namespace: &Namespace, config: LabConfig) -> (Lab, Machine, Client) {
    let lab = Lab::start(namespace, config).await.unwrap();
    let machine = lab.machine(0).clone();
    let client = client_of(&machine);
    (lab, machine, client)
}

/// Serves `content` to every request at the returned URL, for as long as the runtime lives.
pub async fn serve(content: Vec<u8>) -> String {
    let listener = tokio::net::TcpListener::bind("10.77.0.1:0").await.unwrap();
    let url = format!("http://{}/guest.iso", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0_u8; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                content.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&content).await;
            let _ = stream.shutdown().await;
        }
    });
    url
}
