//! The steps of a machine's firmware from its first DHCP message to the agent's settings.

use super::dhcp::{Client, Lease, Program, Relay};
use super::{BootError, fetch, mac, script, tftp};
use crate::fleet::config::{BootFiles, BootMethod};
use crate::fleet::machine::BootSource;
use crate::fleet::node::Node;
use rackwright_agent::cmdline::Settings;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// How often a script tries to fetch a file, and the pause between attempts, in the machine's time.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// The agent's settings from the boot script, and the machine's address.
///
/// # Errors
/// [`BootError`]
pub(super) async fn load(node: &Node, source: BootSource, relay: &Relay) -> Result<(Settings, Ipv4Addr), BootError> {
    let config = &node.shared.config;
    match (config.boot_method, source) {
        (BootMethod::Ipxe, _) => {}
        (BootMethod::Pxe, BootSource::Http) => http_boot(node, relay).await?,
        (BootMethod::Pxe, _) => pxe(node, relay).await?,
    }
    let lease = lease(node, relay, Program::Ipxe).await?;
    let url = lease.boot_file.ok_or(BootError::NoScript)?;
    let lost = |path: &str| config.faults.boot_http(path, node.moment());
    let text = fetch::text(&url, lease.address, &lost).await?;
    let settings = script::settings(&text, lease.address)?;
    if config.boot_files == BootFiles::Fetch {
        files(node, &text, lease.address).await?;
    }
    Ok((settings, lease.address))
}

async fn lease(node: &Node, relay: &Relay, program: Program) -> Result<Lease, BootError> {
    let client = Client {
        mac: mac(node).0,
        uuid: node.shared.uuid_bytes(node.index()),
        program,
    };
    let faults = &node.shared.config.faults;
    let lease = relay.lease(client, &|| faults.dhcp(node.moment())).await?;
    node.set_address(lease.address);
    Ok(lease)
}

/// The first stage by TFTP.
async fn pxe(node: &Node, relay: &Relay) -> Result<(), BootError> {
    let lease = lease(node, relay, Program::Pxe).await?;
    let file = lease.boot_file.ok_or(BootError::NoScript)?;
    let config = &node.shared.config;
    let server = SocketAddrV4::new(lease.next_server, config.tftp_port);
    let lost = |lost| config.faults.tftp(lost, node.moment());
    let length = tftp::read(server, &file, lease.address, &lost).await;
    let length = length.map_err(|why| BootError::Fetch {
        what: format!("{file} by TFTP from {server}"),
        why,
    })?;
    tracing::debug!(file, length, "first stage by TFTP");
    Ok(())
}

/// The first stage by HTTP.
async fn http_boot(node: &Node, relay: &Relay) -> Result<(), BootError> {
    let lease = lease(node, relay, Program::HttpBoot).await?;
    let url = lease.boot_file.ok_or(BootError::NoScript)?;
    let faults = &node.shared.config.faults;
    let lost = |path: &str| faults.boot_http(path, node.moment());
    let length = fetch::discard(&url, lease.address, &lost).await?;
    tracing::debug!(url, length, "first stage by HTTP");
    Ok(())
}

/// Fetches kernel and ramdisk, with as many attempts as the script makes.
async fn files(node: &Node, text: &str, address: Ipv4Addr) -> Result<(), BootError> {
    let faults = &node.shared.config.faults;
    let lost = |path: &str| faults.boot_http(path, node.moment());
    let mut attempt = 1;
    loop {
        let fetched = async {
            for url in script::files(text) {
                fetch::discard(url, address, &lost).await?;
            }
            Ok(())
        };
        match fetched.await {
            Err(error) if attempt < ATTEMPTS => tracing::debug!(%error, attempt, "fetching kernel and ramdisk again"),
            end => return end,
        }
        attempt += 1;
        tokio::time::sleep(node.shared.clock.lasts(PAUSE)).await;
    }
}
