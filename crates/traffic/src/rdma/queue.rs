//! A reliable queue pair and its memory: the safe interface to [`sys`](super::sys).
//!
//! A [`Queue`] owns everything from the open device to the memory and frees it in reverse order. Only one thread at a time
//! uses it.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::CStr;
use std::io;
use std::ptr::{NonNull, null_mut};

use super::card::{Card, Route};
use super::port::Port;
use super::sys::{self, Completion, Verbs};

/// Bytes of a message, and of the memory at each end.
pub const MESSAGE: usize = 256 * 1024;
/// Most messages in flight.
pub const DEPTH: u32 = 32;
/// Most receive requests.
const RECEIVES: u32 = 4;
/// Offset of received messages, behind the sent ones, in a test of latency.
const ARRIVALS: u64 = 4096;
/// Most completions fetched at once.
const FETCH: usize = 16;
/// 4.096 µs * 2^14 = 67 ms until a packet is sent again, up to six times: soft-RoCE treats seven as unlimited.
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 6;
/// Timer code 12 (0.64 ms) and number of retries while the other side has no receive request yet.
const NOT_READY: (u8, u8) = (12, 6);
/// Most routers between two ends.
const HOP_LIMIT: u8 = 64;

/// Memory that the adapter reads and writes. This program uses only its address and never makes a reference to it.
struct Memory(NonNull<u8>);

impl Memory {
    fn layout() -> Layout {
        // SAFETY: 4096 is a power of two, and the size rounded up to it is far below isize::MAX.
        unsafe { Layout::from_size_align_unchecked(MESSAGE, 4096) }
    }

    fn new() -> Result<Self, String> {
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(Self::layout()) };
        NonNull::new(memory).map(Self).ok_or_else(|| "out of memory".into())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and the adapter knows it no more: `Queue` drops this field last.
        unsafe { dealloc(self.0.as_ptr(), Self::layout()) }
    }
}

/// A queue pair. Parts that are not made yet, or could not be made, are null.
pub struct Queue {
    port: Port,
    verbs: &'static Verbs,
    context: *mut sys::Context,
    domain: *mut sys::Domain,
    region: *mut sys::Region,
    completions: *mut sys::Completions,
    pair: *mut sys::Pair,
    psn: u32,
    attributes: sys::PortAttributes,
    /// Sends and writes without a completion yet.
    in_flight: u32,
    // The last field: `drop` frees the others first.
    memory: Memory,
}

// SAFETY: libibverbs lets any thread use its objects; nothing here belongs to the thread that made it.
unsafe impl Send for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        let verbs = self.verbs;
        // SAFETY: each is null or was made by the call that belongs to it, is given back once, and before what it was made
        // of.
        unsafe {
            if !self.pair.is_null() {
                (verbs.destroy_qp)(self.pair);
            }
            if !self.completions.is_null() {
                (verbs.destroy_cq)(self.completions);
            }
            if !self.region.is_null() {
                (verbs.dereg_mr)(self.region);
            }
            if !self.domain.is_null() {
                (verbs.dealloc_pd)(self.domain);
            }
            (verbs.close_device)(self.context);
        }
    }
}

fn open(verbs: &Verbs, port: &Port) -> Result<*mut sys::Context, String> {
    let (mut count, mut context) = (0, None);
    // SAFETY: `count` is written during the call only.
    let list = unsafe { (verbs.get_device_list)(&mut count) };
    if list.is_null() {
        return Err(format!(
            "the RDMA devices cannot be listed: {}",
            io::Error::last_os_error()
        ));
    }
    for at in 0..usize::try_from(count).unwrap_or_default() {
        // SAFETY: the list has `count` entries with names that are C strings; an entry is used before the list is freed.
        let (device, name) = unsafe {
            let device = *list.add(at);
            (device, CStr::from_ptr((verbs.get_device_name)(device)))
        };
        if name.to_bytes() == port.device.as_bytes() {
            // SAFETY: as above; an open device outlives the list.
            let opened = unsafe { (verbs.open_device)(device) };
            context = Some((opened, io::Error::last_os_error()));
            break;
        }
    }
    // SAFETY: it is the list that was given, and no device of it is used any more.
    unsafe { (verbs.free_device_list)(list) };
    match context {
        Some((opened, _)) if !opened.is_null() => Ok(opened),
        Some((_, error)) => Err(format!("{port} cannot be opened: {error}")),
        None => Err(format!(
            "libibverbs does not list {}: the device's user-space driver, or /dev/infiniband/uverbs*, is missing",
            port.device
        )),
    }
}

impl Queue {
    /// Makes a queue pair on a port, not connected yet. `psn`: 24 bits that the other side cannot predict.
    ///
    /// # Errors
    /// The library, the device, a permission or memory is missing, or the port is not active.
    pub fn new(port: Port, psn: u32) -> Result<Self, String> {
        let verbs = sys::verbs()?;
        let memory = Memory::new()?;
        let context = open(verbs, &port)?;
        // From here on `drop` frees it in any case.
        let mut queue = Self {
            port,
            verbs,
            context,
            domain: null_mut(),
            region: null_mut(),
            completions: null_mut(),
            pair: null_mut(),
            psn: psn & 0x00ff_ffff,
            attributes: sys::PortAttributes::default(),
            in_flight: 0,
            memory,
        };
        // SAFETY: the device is open, and the structure has room for what any version of the library writes.
        let failed = unsafe { (verbs.query_port)(context, queue.port.number, &mut queue.attributes) };
        queue.checked(failed, "be queried")?;
        if queue.attributes.state != sys::ACTIVE {
            return Err(format!("{} is not active", queue.port));
        }
        queue.fill()?;
        Ok(queue)
    }

    fn fill(&mut self) -> Result<(), String> {
        let verbs = self.verbs;
        // SAFETY: the device is open.
        self.domain = unsafe { (verbs.alloc_pd)(self.context) };
        self.made(self.domain.is_null(), "a protection domain")?;
        let start = self.memory.0.as_ptr().cast();
        // SAFETY: the memory has that size and lives until the region is given back; nothing else uses it.
        self.region = unsafe { (verbs.reg_mr)(self.domain, start, MESSAGE, sys::MAY_WRITE) };
        self.made(
            self.region.is_null(),
            "a memory region (is the limit of locked memory too low?)",
        )?;
        let room = (DEPTH + RECEIVES) as i32;
        // SAFETY: the device is open; null is allowed for what is not used.
        self.completions = unsafe { (verbs.create_cq)(self.context, room, null_mut(), null_mut(), 0) };
        self.made(self.completions.is_null(), "a completion queue")?;
        let mut setup = sys::PairSetup {
            owner: null_mut(),
            sent: self.completions,
            received: self.completions,
            shared: null_mut(),
            capacity: sys::Capacity {
                sends: DEPTH,
                receives: RECEIVES,
                send_pieces: 1,
                receive_pieces: 1,
                ..sys::Capacity::default()
            },
            kind: sys::RELIABLE,
            signal_all: 1,
        };
        // SAFETY: domain and queue are of this device and live longer; the setup is read during the call only.
        self.pair = unsafe { (verbs.create_qp)(self.domain, &mut setup) };
        self.made(self.pair.is_null(), "a queue pair")
    }

    fn made(&self, is_null: bool, what: &str) -> Result<(), String> {
        let error = io::Error::last_os_error();
        match is_null {
            true => Err(format!(
                "{} cannot create a {}: {error}",
                self.port,
                what.trim_start_matches("a ")
            )),
            false => Ok(()),
        }
    }

    /// Checks a result of the library: 0, an error number, or -1 with `errno`.
    fn checked(&self, failed: i32, what: &str) -> Result<(), String> {
        let error = match failed {
            0 => return Ok(()),
            number if number > 0 => io::Error::from_raw_os_error(number),
            _ => io::Error::last_os_error(),
        };
        Err(format!("{} cannot {what}: {error}", self.port))
    }

    /// The description of this end.
    pub fn card(&self) -> Card {
        // SAFETY: both were made, and are read-only from then on.
        let (pair, key) = unsafe { ((*self.pair).number, (*self.region).remote_key) };
        let is_ethernet = self.attributes.link_layer == sys::ETHERNET;
        Card {
            is_ethernet,
            lid: self.attributes.lid,
            mtu: self.attributes.active_mtu,
            pair,
            psn: self.psn,
            address: self.memory.0.as_ptr() as u64,
            key,
            gids: if is_ethernet { self.port.gids() } else { Vec::new() },
            pkeys: self.port.pkeys(),
        }
    }

    /// Connects this end with the other one; afterwards either may begin.
    ///
    /// # Errors
    /// The adapter refuses.
    pub fn connect(&mut self, route: Route, peer: &Card) -> Result<(), String> {
        let port = self.port.number;
        let init = sys::PairAttributes {
            pkey_index: route.pkey,
            port,
            access: sys::MAY_WRITE as u32,
            ..sys::PairAttributes::default()
        };
        self.modify(init, sys::INIT, "be set up")?;
        let mut path = sys::Path {
            lid: peer.lid,
            port,
            ..sys::Path::default()
        };
        if let Some((own, gid)) = route.gids {
            path.gid = sys::Gid(gid.address.octets());
            (path.own_gid, path.hop_limit, path.is_global) = (own, HOP_LIMIT, 1);
        }
        let receive = sys::PairAttributes {
            path_mtu: route.mtu,
            peer: peer.pair & 0x00ff_ffff,
            receive_psn: peer.psn & 0x00ff_ffff,
            peer_reads: 1,
            not_ready_timer: NOT_READY.0,
            path,
            ..sys::PairAttributes::default()
        };
        self.modify(receive, sys::READY_TO_RECEIVE, "be made ready to receive")?;
        let send = sys::PairAttributes {
            send_psn: self.psn,
            timeout: TIMEOUT,
            retries: RETRIES,
            not_ready_retries: NOT_READY.1,
            reads: 1,
            ..sys::PairAttributes::default()
        };
        self.modify(send, sys::READY_TO_SEND, "be made ready to send")
    }

    fn modify(&mut self, mut to: sys::PairAttributes, (state, mask): (u32, i32), what: &str) -> Result<(), String> {
        to.state = state;
        // SAFETY: the pair exists; the structure is read during the call only.
        let failed = unsafe { (self.verbs.modify_qp)(self.pair, &mut to, mask) };
        self.checked(failed, what)
    }

    fn piece(&self, offset: u64, length: usize) -> sys::Piece {
        sys::Piece {
            address: self.memory.0.as_ptr() as u64 + offset,
            length: length as u32,
            // SAFETY: the region was made and does not change.
            key: unsafe { (*self.region).local_key },
        }
    }

    /// Writes a message to the other side's memory.
    ///
    /// # Errors
    /// The adapter refuses.
    pub fn write(&mut self, peer: &Card) -> Result<(), String> {
        self.post(sys::WRITE, MESSAGE, peer.address, peer.key)
    }

    /// Sends `bytes` bytes, at most `ARRIVALS`.
    ///
    /// # Errors
    /// The adapter refuses.
    pub fn send(&mut self, bytes: usize) -> Result<(), String> {
        self.post(sys::SEND, bytes.min(ARRIVALS as usize), 0, 0)
    }

    fn post(&mut self, operation: u32, bytes: usize, remote_address: u64, remote_key: u32) -> Result<(), String> {
        let mut piece = self.piece(0, bytes);
        let mut request = sys::SendRequest {
            id: SENT,
            next: null_mut(),
            pieces: &mut piece,
            count: 1,
            operation,
            flags: 0,
            immediate: 0,
            remote_address,
            remote_key,
            rest: [0; 9],
        };
        let mut bad = null_mut();
        // SAFETY: an open device's table is there and does not change.
        let post = unsafe { (*self.context).post_send }.ok_or("this driver cannot send")?;
        // SAFETY: the pair is of that device; request and piece are read during the call only, and the memory that the
        // piece names lives as long as the pair.
        let failed = unsafe { post(self.pair, &mut request, &mut bad) };
        self.checked(failed, "send")?;
        self.in_flight += 1;
        Ok(())
    }

    /// Messages sent that have not arrived yet.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Posts a receive request, for a message of [`send`](Self::send).
    ///
    /// # Errors
    /// The adapter refuses.
    pub fn expect(&mut self) -> Result<(), String> {
        let mut piece = self.piece(ARRIVALS, ARRIVALS as usize);
        let mut request = sys::ReceiveRequest {
            id: RECEIVED,
            next: null_mut(),
            pieces: &mut piece,
            count: 1,
        };
        let mut bad = null_mut();
        // SAFETY: as in `post`.
        let post = unsafe { (*self.context).post_recv }.ok_or("this driver cannot receive")?;
        // SAFETY: as in `post`.
        let failed = unsafe { post(self.pair, &mut request, &mut bad) };
        self.checked(failed, "receive")
    }

    /// The completions since the last call, without waiting.
    ///
    /// # Errors
    /// A request failed: the error has device, port and the name of the status.
    pub fn poll(&mut self) -> Result<Done, String> {
        let mut fetched = [Completion::default(); FETCH];
        // SAFETY: as in `post`.
        let poll = unsafe { (*self.context).poll_cq }.ok_or("this driver cannot poll")?;
        // SAFETY: the queue is of that device, and the array has this number of places.
        let count = unsafe { poll(self.completions, FETCH as i32, fetched.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| format!("{}: its completions cannot be read", self.port))?;
        let mut done = Done::default();
        for completion in fetched.iter().take(count) {
            if completion.status != 0 {
                let status = sys::status(completion.status);
                let vendor = completion.vendor_error;
                return Err(format!("{}: {status}, vendor code {vendor:#x}", self.port));
            }
            match completion.id {
                RECEIVED => done.received = Some(completion.bytes),
                _ => done.sent += 1,
            }
        }
        self.in_flight = self.in_flight.saturating_sub(done.sent);
        Ok(done)
    }
}

/// Ids of requests.
const SENT: u64 = 1;
const RECEIVED: u64 = 2;

/// Completed messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Messages sent that have arrived.
    pub sent: u32,
    /// Bytes of a received message.
    pub received: Option<u32>,
}
