//! Binds and runs all servers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::arp;
use crate::config::{ConfigFaults, DhcpMode, NetbootConfig, Settings};
use crate::connections::Connections;
use crate::counters::Counters;
use crate::dhcp::{self, Port};
use crate::directory::{BootDirectory, Stage, StageReport};
use crate::grub::GrubBoots;
use crate::leases::AcknowledgedLeases;
use crate::mac::Mac;
use crate::ra::Advertiser;
use crate::report_limiter::ReportLimiter;
use crate::sessions::Sessions;
use crate::socket::{self, Sharing, advice};
use crate::{http, ra, tftp};

/// State shared by all loops.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) directory: Arc<dyn BootDirectory>,
    pub(crate) counters: Arc<Counters>,
    /// Connections to boot HTTP.
    pub(crate) connections: Arc<Connections>,
    pub(crate) acknowledged: AcknowledgedLeases,
    pub(crate) grub: GrubBoots,
    pub(crate) sessions: Sessions,
    /// Other DHCP servers.
    pub(crate) rogue_reports: ReportLimiter<Ipv4Addr>,
    /// Hosts that use this server's address.
    pub(crate) conflict_reports: ReportLimiter<Mac>,
}

impl Shared {
    /// Passes a stage to the directory, and counts it if the directory drops it.
    pub(crate) fn record(&self, mac: Option<Mac>, stage: Stage, mut detail: String, remote: IpAddr) {
        if detail.len() > 512 {
            let cut = (0..=509).rev().find(|i| detail.is_char_boundary(*i)).unwrap_or(0);
            detail.truncate(cut);
            detail.push('…');
        }
        tracing::debug!(?mac, %stage, detail, %remote, "boot stage");
        if self
            .directory
            .record(StageReport {
                mac,
                stage,
                detail,
                remote,
            })
            .is_err()
        {
            self.counters.stages_dropped_total.increment();
        }
    }
}

/// Why network boot could not start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    Config(#[from] ConfigFaults),
    #[error("cannot listen for {what} on {place}: {source}; {}", advice(.source))]
    Socket {
        what: &'static str,
        place: String,
        source: io::Error,
    },
}

/// Addresses of the bound servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// `None` when DHCP is off.
    pub dhcp: Option<SocketAddr>,
    pub tftp: SocketAddr,
    pub http: SocketAddr,
}

/// Network boot, bound and ready to run.
pub struct Netboot {
    shared: Arc<Shared>,
    dhcp: Option<UdpSocket>,
    boot_server: Option<UdpSocket>,
    offers: Option<UdpSocket>,
    tftp: UdpSocket,
    http: TcpListener,
    advertiser: Option<Advertiser>,
    arp: Option<arp::Listener>,
    addresses: Addresses,
}

impl Netboot {
    /// Checks the configuration and opens every socket; no server answers before [`Netboot::run`]. Must be called within a
    /// Tokio runtime. On failure no socket stays open.
    pub async fn bind(
        config: NetbootConfig,
        directory: Arc<dyn BootDirectory>,
        connections: Arc<Connections>,
    ) -> Result<Self, BindError> {
        let settings = config.check()?;
        let interface = settings.interface.as_deref();
        let on_ip = |port| SocketAddrV4::new(settings.server_ip, port);
        let tftp = socket::udp(on_ip(settings.tftp_port)).map_err(failed("TFTP", on_ip(settings.tftp_port)))?;
        let http = socket::tcp(on_ip(settings.http_port)).map_err(failed("boot HTTP", on_ip(settings.http_port)))?;
        let dhcp_on = |port: u16, what, sharing| {
            let place = format!(
                "UDP port {port}{}",
                interface.map(|name| format!(" of {name}")).unwrap_or_default()
            );
            socket::dhcp(port, interface, sharing).map_err(failed(what, place))
        };
        let (dhcp, boot_server, offers) = match &settings.dhcp {
            DhcpMode::Server { .. } => {
                let dhcp = dhcp_on(settings.dhcp_port, "DHCP", Sharing::Exclusive)?;
                (Some(dhcp), None, offers_socket(&settings, interface))
            }
            DhcpMode::Proxy => {
                let dhcp = dhcp_on(settings.dhcp_port, "proxyDHCP", Sharing::Shared)?;
                let boot_server = dhcp_on(settings.boot_server_port, "PXE boot server requests", Sharing::Shared)?;
                (Some(dhcp), Some(boot_server), None)
            }
            DhcpMode::Off => (None, None, None),
        };
        let advertiser = match interface.filter(|_| settings.router_advertisements) {
            Some(name) => Some(Advertiser::bind(name).map_err(failed("router solicitations", name))?),
            None => None,
        };
        let arp = interface.and_then(arp_listener);
        let addresses = Addresses {
            dhcp: dhcp.as_ref().and_then(|socket| socket.local_addr().ok()),
            tftp: tftp.local_addr().map_err(failed("TFTP", "its socket"))?,
            http: http.local_addr().map_err(failed("boot HTTP", "its socket"))?,
        };
        let shared = Shared {
            settings: settings.with_http_port(addresses.http.port()),
            directory,
            counters: Arc::default(),
            connections,
            acknowledged: AcknowledgedLeases::default(),
            grub: GrubBoots::default(),
            sessions: Sessions::default(),
            rogue_reports: ReportLimiter::default(),
            conflict_reports: ReportLimiter::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            dhcp,
            boot_server,
            offers,
            tftp,
            http,
            advertiser,
            arp,
            addresses,
        })
    }

    /// The addresses of the servers.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The live counters.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Returns a function that reads the addresses that DHCP has acknowledged since the start, at most the last 65,536.
    pub fn leased_addresses(&self) -> impl Fn() -> Vec<Ipv4Addr> + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.acknowledged.addresses()
    }

    /// Serves until `cancel` is cancelled, then closes every socket and ends transfers in progress.
    ///
    /// # Errors
    /// One of the servers panicked; all servers are stopped.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), JoinError> {
        let shared = self.shared;
        let mut loops = JoinSet::new();
        if let Some(socket) = self.dhcp {
            loops.spawn(dhcp::serve(shared.clone(), socket, Port::Server, cancel.clone()));
        }
        if let Some(socket) = self.boot_server {
            loops.spawn(dhcp::serve(shared.clone(), socket, Port::BootServer, cancel.clone()));
        }
        if let Some(socket) = self.offers {
            loops.spawn(dhcp::listen_for_offers(shared.clone(), socket, cancel.clone()));
        }
        if let Some(advertiser) = self.advertiser {
            loops.spawn(ra::serve(shared.clone(), advertiser, cancel.clone()));
        }
        if let Some(listener) = self.arp {
            loops.spawn(arp::watch(shared.clone(), listener, cancel.clone()));
        }
        loops.spawn(tftp::serve(shared.clone(), self.tftp, cancel.clone()));
        loops.spawn(http::serve(shared, self.http, cancel));
        while let Some(ended) = loops.join_next().await {
            ended?;
        }
        Ok(())
    }
}

fn failed<P: std::fmt::Display>(what: &'static str, place: P) -> impl FnOnce(io::Error) -> BindError {
    move |source| BindError::Socket {
        what,
        place: place.to_string(),
        source,
    }
}

/// Failure is only a warning: listening for ARP needs a capability that not every site grants.
fn arp_listener(interface: &str) -> Option<arp::Listener> {
    match arp::Listener::bind(interface) {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(interface, %error, "cannot listen for hosts that use this server's address (CAP_NET_RAW is needed)");
            None
        }
    }
}

/// Failure is only a warning: this machine's own DHCP client may already use the port.
fn offers_socket(settings: &Settings, interface: Option<&str>) -> Option<UdpSocket> {
    let port = settings.client_port();
    match socket::dhcp(port, interface, Sharing::Shared) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(port, %error, "cannot listen for the offers of other DHCP servers");
            None
        }
    }
}
