//! The connections of one listener: the limits, and which connection is closed when a limit is reached.
//!
//! A connection is *known* once its peer has presented a certificate, or has registered on the API, or has made a call with
//! a login of the web console. A call with a login that has ended makes it unknown again. Known connections are only limited
//! in total, and this module never closes them. All other connections are *unknown*. Their number is limited for the
//! listener and for each address. An unknown connection is *idle* while no request of it is being answered: bytes without a
//! complete request do not count.
//!
//! If a limit is reached, a new connection replaces the oldest idle unknown connection, which is closed. A connection is
//! safe for [`MIN_IDLE_TIME`] after it became idle. If no connection can be closed, a new connection from an address over
//! its limit is refused, and any other waits in the kernel's queue. So idle sockets cannot keep honest clients out, and a
//! burst of honest clients is served in order.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An idle unknown connection is safe for this long. A handshake takes much less, even on a busy server.
pub const MIN_IDLE_TIME: Duration = Duration::from_secs(2);
/// Minimum time between two log lines about refused or closed connections.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// Configured limits of the listeners.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Total connections to the API. The image store has a limit of the same size.
    pub total: usize,
    /// Of each total, connections without a certificate, handshakes included.
    pub unauthenticated: usize,
    /// Connections to boot HTTP.
    pub boot_http: usize,
    /// Unknown connections of one address to one listener. A /64 network of IPv6 counts as one address.
    pub per_address: usize,
    /// Seconds that a TLS handshake may take.
    pub handshake_s: u64,
    /// Seconds after which a connection without a certificate and without a request is closed.
    pub idle_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: 24_576,
            unauthenticated: 1024,
            boot_http: 4096,
            per_address: 64,
            handshake_s: 5,
            idle_s: 5,
        }
    }
}

impl Limits {
    /// Returns the faults of the limits, each as `field: reason`.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (field, value) in [
            ("unauthenticated", self.unauthenticated),
            ("boot_http", self.boot_http),
            ("per_address", self.per_address),
        ] {
            if value == 0 {
                faults.push(format!("{field}: must be at least 1"));
            }
        }
        if self.total < self.unauthenticated {
            faults.push("total: must be at least unauthenticated".to_owned());
        }
        for (field, value) in [("handshake_s", self.handshake_s), ("idle_s", self.idle_s)] {
            if !(1..=300).contains(&value) {
                faults.push(format!("{field}: must be 1 to 300"));
            }
        }
        faults
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub struct Connections {
    listener: &'static str,
    total: usize,
    unknown: usize,
    per_address: usize,
    table: Mutex<Table>,
    /// Notified when a place may have become free.
    space_freed: Notify,
    refused: AtomicU64,
    closed: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: HashMap<u64, Entry>,
    /// Unknown connections by address.
    unknown: HashMap<IpAddr, AddressCounts>,
    unknown_total: usize,
    /// Idle unknown connections of all addresses, oldest first.
    idle: BTreeSet<(Instant, u64)>,
    logged_at: Option<Instant>,
    /// Number of refused and of closed connections at the last log line.
    logged: (u64, u64),
}

#[derive(Debug, Default)]
struct AddressCounts {
    count: usize,
    idle: BTreeSet<(Instant, u64)>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    is_known: bool,
    /// Number of requests that are being answered.
    requests: usize,
    idle_since: Instant,
    close: CancellationToken,
}

/// Counts for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Open connections with a known peer.
    pub known: usize,
    /// Open connections with an unknown peer.
    pub unknown: usize,
    /// Refused connections so far.
    pub refused: u64,
    /// Connections closed so far because they were idle.
    pub closed: u64,
}

enum LimitReached {
    /// The address has too many connections.
    Address,
    /// The listener has too many connections. The time, if any, is when the oldest idle one may be closed.
    Listener(Option<Instant>),
}

/// The address for counting: all addresses of an IPv6 /64 network count as one host.
#[must_use]
pub fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

impl Connections {
    /// Connections of a listener with client certificates.
    #[must_use]
    pub fn with_certificates(listener: &'static str, limits: &Limits) -> Arc<Self> {
        Self::new(listener, limits.total, limits.unauthenticated, limits.per_address)
    }

    /// Connections of boot HTTP, which has no client certificates.
    #[must_use]
    pub fn of_boot_http(limits: &Limits) -> Arc<Self> {
        Self::new("boot HTTP", limits.boot_http, limits.boot_http, limits.per_address)
    }

    fn new(listener: &'static str, total: usize, unknown: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self {
            listener,
            total,
            unknown,
            per_address,
            table: Mutex::default(),
            space_freed: Notify::new(),
            refused: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        })
    }

    /// The listener's name.
    #[must_use]
    pub fn listener(&self) -> &'static str {
        self.listener
    }

    /// Counts for metrics.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let table = self.lock();
        Counts {
            known: table.entries.len() - table.unknown_total,
            unknown: table.unknown_total,
            refused: self.refused.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }

    /// Waits for a place for a new connection. `None`: the connection is refused because its address has too many.
    pub async fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let address = counted_address(address);
        loop {
            match self.try_admit(address) {
                Ok(id) => {
                    let connections = Arc::clone(self);
                    return Some(Slot(Handle { connections, id }));
                }
                Err(LimitReached::Address) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    self.log(address);
                    return None;
                }
                Err(LimitReached::Listener(Some(at))) => {
                    tokio::select! {
                        () = self.space_freed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                Err(LimitReached::Listener(None)) => self.space_freed.notified().await,
            }
        }
    }

    fn try_admit(&self, address: IpAddr) -> Result<u64, LimitReached> {
        let now = Instant::now();
        let mut table = self.lock();
        let mut closed = false;
        let own = table.unknown.get(&address);
        if let Some(own) = own.filter(|own| own.count >= self.per_address) {
            match own.idle.first().copied() {
                Some((since, id)) if since + MIN_IDLE_TIME <= now => table.close(id),
                _ => return Err(LimitReached::Address),
            }
            closed = true;
        }
        if table.unknown_total >= self.unknown || table.entries.len() >= self.total {
            match table.idle.first().copied() {
                Some((since, id)) if since + MIN_IDLE_TIME <= now => table.close(id),
                oldest => return Err(LimitReached::Listener(oldest.map(|(since, _)| since + MIN_IDLE_TIME))),
            }
            closed = true;
        }
        let id = table.add(address, now);
        drop(table);
        if closed {
            self.closed.fetch_add(1, Ordering::Relaxed);
            self.log(address);
        }
        Ok(id)
    }

    /// Closes unknown connections that have been idle for longer than `limit`.
    pub fn close_idle(&self, limit: Duration) {
        let now = Instant::now();
        let mut table = self.lock();
        let mut closed = 0;
        while let Some((since, id)) = table.idle.first().copied()
            && since + limit <= now
        {
            table.close(id);
            closed += 1;
        }
        drop(table);
        if closed > 0 {
            self.closed.fetch_add(closed, Ordering::Relaxed);
            self.space_freed.notify_one();
        }
    }

    /// Logs how many connections were refused or closed to make room, at most once per [`LOG_PERIOD`].
    fn log(&self, last: IpAddr) {
        let now = Instant::now();
        let totals = (
            self.refused.load(Ordering::Relaxed),
            self.closed.load(Ordering::Relaxed),
        );
        let mut table = self.lock();
        if table.logged_at.is_some_and(|at| at + LOG_PERIOD > now) {
            return;
        }
        let (refused, closed) = (totals.0 - table.logged.0, totals.1 - table.logged.1);
        table.logged_at = Some(now);
        table.logged = totals;
        drop(table);
        tracing::warn!(
            listener = self.listener,
            refused,
            closed,
            %last,
            "too many connections without a certificate: new connections were refused, or idle connections were closed"
        );
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(&mut self, address: IpAddr, now: Instant) -> u64 {
        let id = self.next;
        self.next += 1;
        let entry = Entry {
            address,
            is_known: false,
            requests: 0,
            idle_since: now,
            close: CancellationToken::new(),
        };
        self.entries.insert(id, entry);
        self.unknown.entry(address).or_default().count += 1;
        self.unknown_total += 1;
        self.set_idle(id, now);
        id
    }

    fn set_idle(&mut self, id: u64, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&id)
            && !entry.is_known
        {
            entry.idle_since = now;
            self.idle.insert((now, id));
            self.unknown.entry(entry.address).or_default().idle.insert((now, id));
        }
    }

    fn unset_idle(&mut self, id: u64) {
        if let Some(entry) = self.entries.get(&id) {
            self.idle.remove(&(entry.idle_since, id));
            if let Some(own) = self.unknown.get_mut(&entry.address) {
                own.idle.remove(&(entry.idle_since, id));
            }
        }
    }

    /// Removes the connection from the unknown ones.
    fn forget_unknown(&mut self, id: u64) {
        self.unset_idle(id);
        let Some(entry) = self.entries.get(&id).filter(|entry| !entry.is_known) else {
            return;
        };
        self.unknown_total -= 1;
        if let Some(own) = self.unknown.get_mut(&entry.address) {
            own.count -= 1;
            if own.count == 0 {
                self.unknown.remove(&entry.address);
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        self.forget_unknown(id);
        self.entries.remove(&id)
    }

    fn close(&mut self, id: u64) {
        if let Some(entry) = self.remove(id) {
            entry.close.cancel();
        }
    }
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub struct Slot(Handle);

impl Slot {
    /// A handle for the requests of the connection.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.clone()
    }

    /// A token that is cancelled when the connection must end.
    #[must_use]
    pub fn closed(&self) -> CancellationToken {
        let table = self.0.connections.lock();
        match table.entries.get(&self.0.id) {
            Some(entry) => entry.close.clone(),
            None => {
                let token = CancellationToken::new();
                token.cancel();
                token
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.connections.lock().remove(self.0.id);
        self.0.connections.space_freed.notify_one();
    }
}

/// A connection's place, for the code that answers its requests.
#[derive(Debug, Clone)]
pub struct Handle {
    connections: Arc<Connections>,
    id: u64,
}

impl Handle {
    /// Marks the peer as known from now on.
    pub fn known(&self) {
        let mut table = self.connections.lock();
        table.forget_unknown(self.id);
        if let Some(entry) = table.entries.get_mut(&self.id) {
            entry.is_known = true;
        }
        drop(table);
        self.connections.space_freed.notify_one();
    }

    /// Marks the peer as unknown again: what made it known has ended.
    pub fn unknown(&self) {
        let mut table = self.connections.lock();
        let Some(entry) = table.entries.get_mut(&self.id).filter(|entry| entry.is_known) else {
            return;
        };
        entry.is_known = false;
        let (address, is_idle) = (entry.address, entry.requests == 0);
        table.unknown.entry(address).or_default().count += 1;
        table.unknown_total += 1;
        if is_idle {
            table.set_idle(self.id, Instant::now());
        }
    }

    /// Reports the end of the handshake. The idle time starts again, so that the peer has time for a request.
    pub fn opened(&self) {
        let mut table = self.connections.lock();
        table.unset_idle(self.id);
        table.set_idle(self.id, Instant::now());
    }

    /// Marks the connection as busy with a request until the returned value is dropped.
    #[must_use]
    pub fn busy(&self) -> Busy {
        let mut table = self.connections.lock();
        table.unset_idle(self.id);
        if let Some(entry) = table.entries.get_mut(&self.id) {
            entry.requests += 1;
        }
        drop(table);
        Busy(self.clone())
    }
}

/// Keeps a connection busy with one request until it is dropped.
#[derive(Debug)]
pub struct Busy(Handle);

impl Drop for Busy {
    fn drop(&mut self) {
        let id = self.0.id;
        let mut table = self.0.connections.lock();
        if let Some(entry) = table.entries.get_mut(&id) {
            entry.requests -= 1;
            if entry.requests == 0 {
                table.set_idle(id, Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests;
