//! Which client reaches which system at which address.

use super::*;
use std::time::Duration;

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 128, 0, 2));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 128, 0, 3));

fn hosts() -> Arc<Hosts> {
    let config = FleetConfig {
        nodes: 2,
        ..FleetConfig::default()
    };
    Arc::new(Hosts::new(&config, Dice(1), Clock::new(1.0)))
}

fn up(hosts: &Hosts, node: usize, boot: u32, address: IpAddr) {
    hosts.up(&SystemUp {
        node,
        boot,
        boot_id: String::new(),
        address: Some(address),
        installed: Arc::default(),
    });
}

fn found(hosts: &Hosts, address: IpAddr) -> Option<(usize, u32)> {
    let running = hosts.answering(address)?;
    Some((running.system.node, running.system.boot))
}

#[test]
fn an_address_may_change_its_machine_and_ended_ones_are_removed() {
    let hosts = hosts();
    up(&hosts, 0, 1, A);
    up(&hosts, 1, 1, B);
    assert_eq!((found(&hosts, A), found(&hosts, B)), (Some((0, 1)), Some((1, 1))));
    // The second machine received the first one's address, and the end of the first one was not reported.
    hosts.down(1);
    up(&hosts, 1, 2, A);
    hosts.down(0);
    assert_eq!((found(&hosts, A), found(&hosts, B)), (Some((1, 2)), None));
    hosts.down(1);
    hosts.down(1);
    assert!(hosts.endpoints().endpoints.is_empty() && hosts.endpoints().of_nodes.is_empty());
}

#[tokio::test]
async fn a_guest_sees_a_system_come_and_go() {
    let hosts = hosts();
    let client = hosts.admit(A).unwrap();
    let waiting = tokio::spawn(async move {
        let running = client.wait_for_system().await;
        client.wait_for_end(&running).await;
        running.system.boot
    });
    tokio::task::yield_now().await;
    up(&hosts, 0, 1, A);
    tokio::task::yield_now().await;
    // A reset: the next boot is a different system.
    hosts.down(0);
    up(&hosts, 0, 2, A);
    let boot = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert_eq!(boot.unwrap().unwrap(), 1);
    hosts.down(0);
    assert!(hosts.endpoints().endpoints.is_empty());
}

#[test]
fn clients_of_an_address_are_bounded() {
    let hosts = hosts();
    let clients: Vec<Client> = (0..CONNECTIONS).map(|_| hosts.admit(A).unwrap()).collect();
    assert!(hosts.admit(A).is_none() && hosts.admit(B).is_some());
    drop(clients);
    assert!(hosts.admit(A).is_some() && hosts.endpoints().endpoints.is_empty());
}
