//! A foreign DHCP server on the boot network, such as a router that was plugged in: it offers an address to firmware and iPXE,
//! and nothing to boot.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Fixed part of a DHCP message with its magic cookie.
const HEADER: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const MESSAGE_TYPE: u8 = 53;
const SERVER: u8 = 54;
const CLASS: u8 = 60;
const USER_CLASS: u8 = 77;

/// Offers sent so far.
#[derive(Debug, Default)]
struct Offers {
    firmware: AtomicUsize,
    ipxe: AtomicUsize,
}

/// The server. Dropping it ends it.
#[derive(Debug)]
pub struct RogueDhcp {
    offers: Arc<Offers>,
    task: JoinHandle<()>,
}

impl RogueDhcp {
    /// Starts the server on `interface`, with its own address and the one that it offers. Must run on the host with that
    /// interface.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start(interface: &str, own: Ipv4Addr, offered: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 67)).await;
        let socket = socket.expect("the port of DHCP servers is free");
        socket
            .bind_device(Some(interface.as_bytes()))
            .expect("the interface is there");
        socket.set_broadcast(true).expect("broadcasts are allowed");
        let offers = Arc::new(Offers::default());
        let task = tokio::spawn(serve(socket, own, offered, Arc::clone(&offers)));
        Self { offers, task }
    }

    /// The number of offers to firmware, and to iPXE.
    #[must_use]
    pub fn offers(&self) -> (usize, usize) {
        let Offers { firmware, ipxe } = &*self.offers;
        (firmware.load(Ordering::Relaxed), ipxe.load(Ordering::Relaxed))
    }
}

impl Drop for RogueDhcp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(socket: UdpSocket, own: Ipv4Addr, offered: Ipv4Addr, offers: Arc<Offers>) {
    let mut packet = vec![0; 4096];
    loop {
        let Ok(length) = socket.recv(&mut packet).await else {
            continue;
        };
        let packet = &packet[..length];
        let is_request = length > HEADER && packet[0] == 1 && packet[236..HEADER] == MAGIC;
        if !is_request || !option(packet, CLASS).is_some_and(|class| class.starts_with(b"PXEClient")) {
            continue;
        }
        let kind = match option(packet, MESSAGE_TYPE) {
            Some([DISCOVER]) => OFFER,
            Some([REQUEST]) if option(packet, SERVER) == Some(&own.octets()) => ACK,
            _ => continue,
        };
        let answer = answer(packet, kind, own, offered);
        let is_sent = socket.send_to(&answer, (Ipv4Addr::BROADCAST, 68)).await.is_ok();
        if is_sent && kind == OFFER {
            let is_ipxe = option(packet, USER_CLASS).is_some_and(|class| class.starts_with(b"iPXE"));
            let count = if is_ipxe { &offers.ipxe } else { &offers.firmware };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An option of a message.
fn option(packet: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = &packet[HEADER..];
    while let [code, tail @ ..] = rest {
        match *code {
            0 => rest = tail,
            255 => return None,
            code => {
                let (size, tail) = tail.split_first()?;
                let (data, next) = tail.split_at_checked(usize::from(*size))?;
                if code == wanted {
                    return Some(data);
                }
                rest = next;
            }
        }
    }
    None
}

fn answer(request: &[u8], kind: u8, own: Ipv4Addr, offered: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..3].copy_from_slice(&[2, 1, 6]);
    // The transaction, the flags, and the client's hardware address.
    for part in [4..8, 10..12, 28..44] {
        bytes[part.clone()].copy_from_slice(&request[part]);
    }
    bytes[16..20].copy_from_slice(&offered.octets());
    bytes[236..HEADER].copy_from_slice(&MAGIC);
    bytes.extend([MESSAGE_TYPE, 1, kind, SERVER, 4]);
    bytes.extend(own.octets());
    // Lease of an hour, network mask, router.
    bytes.extend([51, 4, 0, 0, 14, 16, 1, 4, 255, 255, 255, 0, 3, 4]);
    bytes.extend(own.octets());
    bytes.push(255);
    bytes.resize(bytes.len().max(300), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_its_request() {
        let mut request = vec![0; HEADER];
        request[4..8].copy_from_slice(&[1, 2, 3, 4]);
        request[28..34].copy_from_slice(&[0x52, 0x54, 0, 0x77, 0, 1]);
        request.extend([0, MESSAGE_TYPE, 1, DISCOVER, USER_CLASS, 4]);
        request.extend(b"iPXE");
        request.push(255);
        assert_eq!(option(&request, USER_CLASS), Some(&b"iPXE"[..]));
        assert_eq!(option(&request, CLASS), None);
        let own = Ipv4Addr::new(10, 77, 0, 2);
        let answer = answer(&request, OFFER, own, Ipv4Addr::new(10, 77, 0, 9));
        assert_eq!(answer[4..8], request[4..8]);
        assert_eq!(answer[28..34], request[28..34]);
        assert_eq!(option(&answer, MESSAGE_TYPE), Some(&[OFFER][..]));
        assert_eq!(option(&answer, SERVER), Some(&own.octets()[..]));
    }
}
