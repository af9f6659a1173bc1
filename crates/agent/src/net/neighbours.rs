//! Listens for LLDP on every Ethernet card, in its own thread, while the agent runs.
//!
//! A switch announces itself periodically (by default every 30 s, IEEE 802.1AB-2016 clause 9.2.5.7), so no other task waits
//! for an announcement. A card that is down is set up to receive: without an address, without IPv6, and without answers to
//! ARP.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{LinkAddr, recvfrom};
use rackwright_api::v1::{Neighbour, Neighbours};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;

use super::lldp;
use super::netlink::Netlink;
use super::nic::{ethernet, index};
use crate::ioctl;
use crate::root::SysRoot;
use crate::text;

/// The known neighbours of the cards; `None` before the first report.
pub type NeighbourReport = Option<Neighbours>;

/// Interval between searches for new cards; also the longest wait before expired neighbours are removed.
const SCAN_PERIOD: Duration = Duration::from_secs(2);
/// Minimum time between two reports, even if a switch changes its announcement in each frame.
const REPORT_PERIOD: Duration = Duration::from_secs(5);
/// The protocol number of LLDP in Ethernet frames.
const ETHERTYPE: u16 = 0x88cc;
/// Largest accepted frame in bytes.
const FRAME_BYTES: usize = 2048;
/// Maximum number of frames handled at once.
const FRAMES_PER_POLL: usize = 64;
/// `IFF_UP`.
const UP: u32 = 1;
/// Every LLDP agent sends to the first group (nearest bridge); the other two groups are used too (IEEE 802.1AB-2016 table
/// 7-1).
const GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0, 0, 0x0e],
    [0x01, 0x80, 0xc2, 0, 0, 0x03],
    [0x01, 0x80, 0xc2, 0, 0, 0x00],
];

/// An Ethernet card.
struct Card {
    name: String,
    mac: String,
}

/// A neighbour and the end of its validity.
struct KnownNeighbour {
    neighbour: Neighbour,
    until: Instant,
}

/// State of the listening thread.
struct LldpListener {
    root: SysRoot,
    socket: OwnedFd,
    /// The cards that can receive, by the kernel's interface number.
    cards: BTreeMap<usize, Card>,
    /// The neighbour of each card, by the same number.
    known: BTreeMap<usize, KnownNeighbour>,
}

/// Starts the thread, which reports neighbours to `sender` until all receivers are dropped. A card that cannot receive LLDP
/// is logged and left out.
pub fn listen(root: &SysRoot, sender: watch::Sender<NeighbourReport>) {
    let mut listener = match LldpListener::open(root.clone()) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("cannot receive LLDP: {error}");
            return;
        }
    };
    let started = thread::Builder::new()
        .name("lldp".to_owned())
        .spawn(move || listener.run(&sender));
    if let Err(error) = started {
        tracing::warn!("cannot receive LLDP: {error}");
    }
}

impl LldpListener {
    fn open(root: SysRoot) -> io::Result<Self> {
        // The socket is bound to no card. It receives the frames of all cards, and each frame comes with its card's number.
        let lldp = Protocol::from(i32::from(ETHERTYPE.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(lldp))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            root,
            socket: socket.into(),
            cards: BTreeMap::new(),
            known: BTreeMap::new(),
        })
    }

    fn run(&mut self, sender: &watch::Sender<NeighbourReport>) {
        let mut report_at = Instant::now();
        let mut scan_at = Instant::now();
        while !sender.is_closed() {
            if Instant::now() >= scan_at {
                self.scan_cards();
                scan_at = Instant::now() + SCAN_PERIOD;
            }
            if let Err(error) = self.receive_frames() {
                tracing::warn!("receiving LLDP failed; the agent no longer reports neighbours: {error}");
                return;
            }
            let now = Instant::now();
            self.known.retain(|_, known| known.until > now);
            if now >= report_at && self.report(sender) {
                report_at = now + REPORT_PERIOD;
            }
        }
    }

    /// Finds the present cards, and makes new ones receive LLDP.
    fn scan_cards(&mut self) {
        let mut cards = BTreeMap::new();
        for (name, mac) in ethernet(&self.root) {
            let number = index(&self.root, &name);
            if number == 0 {
                continue;
            }
            let mac = mac.to_string();
            let key = number as usize;
            let is_known = self.cards.get(&key).is_some_and(|card| card.name == name);
            if !is_known {
                self.known.remove(&key);
                if let Err(error) = self.join(&name, number) {
                    tracing::warn!("cannot receive LLDP on {name}: {error}");
                    continue;
                }
            }
            cards.insert(key, Card { name, mac });
        }
        self.known.retain(|key, _| cards.contains_key(key));
        self.cards = cards;
    }

    /// Joins the groups on a card, and sets the card up if it is down.
    fn join(&self, name: &str, number: u32) -> io::Result<()> {
        for group in GROUPS {
            ioctl::join_packet_group(&self.socket, number, group)?;
        }
        let flags = self.root.sys.join("class/net").join(name).join("flags");
        if text::hex_number(&flags).is_none_or(|flags| flags & UP != 0) {
            return Ok(());
        }
        let settings = self.root.proc.join("sys/net");
        // Kernels without IPv6 do not have this file.
        let _ = fs::write(settings.join("ipv6/conf").join(name).join("disable_ipv6"), "1");
        // 8: no ARP reply for any local address (the kernel's ip-sysctl).
        let _ = fs::write(settings.join("ipv4/conf").join(name).join("arp_ignore"), "8");
        Netlink::open()?.set_up(number)
    }

    /// Waits up to [`SCAN_PERIOD`] for frames and handles those that arrived.
    fn receive_frames(&mut self) -> io::Result<()> {
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(SCAN_PERIOD).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, wait) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut frame = [0; FRAME_BYTES];
        for _ in 0..FRAMES_PER_POLL {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame) {
                Ok((length, Some(from))) => self.handle_frame(from.ifindex(), frame.get(..length).unwrap_or_default()),
                Ok((_, None)) => {}
                // The kernel reports a card that went down once; the other cards continue.
                Err(nix::errno::Errno::ENETDOWN | nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn handle_frame(&mut self, card_number: usize, frame: &[u8]) {
        let (Some(card), Some(announcement)) = (self.cards.get(&card_number), lldp::parse(frame)) else {
            return;
        };
        if announcement.ttl_s == 0 {
            self.known.remove(&card_number);
            return;
        }
        let known = KnownNeighbour {
            until: Instant::now() + Duration::from_secs(announcement.ttl_s.into()),
            neighbour: Neighbour {
                nic: card.name.clone(),
                mac: card.mac.clone(),
                chassis_id: announcement.chassis_id,
                port_id: announcement.port_id,
                port_description: announcement.port_description,
                system_name: announcement.system_name,
            },
        };
        self.known.insert(card_number, known);
    }

    /// Sends the neighbours if they changed. Returns whether they did.
    fn report(&self, sender: &watch::Sender<NeighbourReport>) -> bool {
        let neighbours = self.known.values().map(|known| known.neighbour.clone()).collect();
        sender.send_if_modified(|last| {
            let all = Neighbours { neighbours };
            let is_same = last.as_ref().map_or(all.neighbours.is_empty(), |last| *last == all);
            if !is_same {
                *last = Some(all);
            }
            !is_same
        })
    }
}
