//! The only interface of network boot to the rest of the system: its questions and its reports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::BootLoader;
use crate::dhcp::{Architecture, Kind};
use crate::mac::Mac;

/// Knows machines, issues and redeems boot tokens, stores the boot trace. The control plane implements it.
///
/// Many tasks call it concurrently. DHCP waits 2 s for `lookup` and for `mint`; then the client gets no answer (it repeats
/// its request) and `dhcp_directory_errors_total` grows. `redeem` may take 10 s, on the Secure Boot way together with
/// `mint`.
#[async_trait]
pub trait BootDirectory: Send + Sync + 'static {
    /// Identifies a machine: its node, its address, and whether it may boot.
    async fn lookup(&self, client: &Client) -> Result<Lookup, DirectoryError>;

    /// Issues a one-time token for one machine. Earlier tokens of the machine may stay valid, because clients repeat
    /// requests.
    async fn mint(&self, binding: &Binding) -> Result<OneTimeToken, DirectoryError>;

    /// Exchanges a token for the boot plan. Must refuse a token that was used, has expired, or was issued for another MAC
    /// address or another client address; [`crate::tokens::TokenBook`] implements this rule.
    async fn redeem(&self, token: &OneTimeToken, mac: Mac, remote: IpAddr) -> Result<BootPlan, Refusal>;

    /// Returns the firmware file of a URL. The arguments are the parts of the URL: the digest, the expiry in Unix seconds,
    /// and the seal over both. `None` if the seal is invalid or the URL has expired.
    fn firmware(&self, _digest: &str, _until_s: i64, _seal: &str) -> Option<std::path::PathBuf> {
        None
    }

    /// Returns the medium with the secret of a node's current boot, for the node's BMC at `remote`. `None` if the seal does
    /// not belong to the current boot, or another host requests the medium.
    async fn medium(&self, _node: &str, _seal: &str, _remote: IpAddr) -> Result<Option<Vec<u8>>, DirectoryError> {
        Ok(None)
    }

    /// The control plane's CA certificates, PEM, if they can change while the services run.
    fn ca_pem(&self) -> Option<String> {
        None
    }

    /// Stores a stage. Must not block. Returns [`StageDropped`] if the queue is full; the caller counts it.
    fn record(&self, seen: StageReport) -> Result<(), StageDropped>;
}

/// The directory cannot answer (no database, shutting down). The text must not contain secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the boot directory cannot answer: {0}")]
pub struct DirectoryError(pub String);

/// The queue for stages is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue for boot stages is full")]
pub struct StageDropped;

/// A machine as described by its DHCP message. Nothing in it is proven: a MAC address can be forged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub mac: Mac,
    /// Kind of the requesting program.
    pub kind: Kind,
    /// Option 93.
    pub architecture: Option<Architecture>,
    /// Option 97 (RFC 4578) as lower-case text, read in SMBIOS byte order as firmware sends it.
    pub system_uuid: Option<String>,
    /// Address of the relay agent (giaddr), if the message passed one.
    pub relay: Option<Ipv4Addr>,
    /// Option 82 sub-options 1 and 2 (RFC 3046): the switch port of the client, as the relay agent describes it.
    pub circuit_id: Option<Vec<u8>>,
    pub remote_id: Option<Vec<u8>>,
    /// Option 77 as printable text; "iPXE" for iPXE.
    pub user_class: Option<String>,
    /// Option 12 as printable text.
    pub hostname: Option<String>,
    /// The configured subnet of the client, by its relay or by this server's address. `None` in proxy mode or without a
    /// match.
    pub subnet: Option<Ipv4Net>,
    /// The address that the client requests or has; useful to let an unknown machine keep its address.
    pub requested: Option<Ipv4Addr>,
}

/// The directory's knowledge of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// A NIC of an enrolled node.
    Known {
        /// Address of the machine. It must lie in the client's subnet. `None`: no answer in server mode.
        address: Option<Ipv4Addr>,
        hostname: Option<String>,
        boot: BootIntent,
    },
    /// A machine that is not enrolled.
    Unknown {
        /// Whether the site allows it to boot; [`crate::NetbootConfig::boot_unknown`] must allow it as well.
        boot_allowed: bool,
        /// An address from the pool (see [`crate::pool::Leases`]), if the machine should get one.
        address: Option<Ipv4Addr>,
    },
}

/// Boot target of a known node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootIntent {
    /// The agent's ramdisk; `None` selects the site's boot loader.
    Network { loader: Option<BootLoader> },
    /// The installed system: the node gets its address and no boot file, so that firmware continues with the next entry.
    Disk,
}

/// The machine to which a token is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    pub mac: Mac,
    /// The address that this server assigned; `None` as proxyDHCP, where another server assigns addresses.
    pub address: Option<Ipv4Addr>,
}

/// Permission to fetch one boot plan once. `Debug` hides it.
#[derive(Clone)]
pub struct OneTimeToken(SecretString);

impl OneTimeToken {
    /// `text` appears unescaped in the query of a URL: 1 to 128 of `A-Z a-z 0-9 . _ ~ -`.
    pub fn new(text: String) -> Option<Self> {
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
        ((1..=128).contains(&text.len()) && text.bytes().all(unreserved)).then(|| Self(SecretString::from(text)))
    }

    /// The token itself, to hash it or to send it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for OneTimeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTimeToken(…)")
    }
}

/// Boot plan of a machine: files on this server's disk and the kernel's command line.
#[derive(Debug, Clone)]
pub struct BootPlan {
    /// A kernel, or a unified kernel image (without `initrds`).
    pub kernel: BootFile,
    /// At most 8 files.
    pub initrds: Vec<BootFile>,
    /// The command line without `rackwright.mac`, `.ip`, `.mask` and `.gw`, which this crate adds. At most 3000 bytes of
    /// printable ASCII without quotes, backslashes and `${`. Secret, because it may contain the agent's token.
    pub cmdline: SecretString,
}

/// One file of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFile {
    /// The name in URLs: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot; unique in its plan.
    pub name: String,
    pub path: PathBuf,
}

/// Why a boot plan was refused. Operators see the reason; the machine sees it without further detail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this boot token was never issued")]
    NoSuchToken,
    #[error("this boot token was used before; the machine must request a new token by DHCP")]
    Used,
    #[error("this boot token has expired; the machine must request a new token by DHCP")]
    Expired,
    #[error("this boot token was issued to another MAC address")]
    OtherMachine,
    #[error("this boot token was issued to another client address")]
    OtherAddress,
    #[error("there is nothing to boot for this machine: {0}")]
    NothingToBoot(String),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// A step in the boot of a machine. The receiver adds the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageReport {
    /// `None` if only the IP address is known and this server did not assign it.
    pub mac: Option<Mac>,
    pub stage: Stage,
    /// A description without secrets; at most 512 bytes.
    pub detail: String,
    pub remote: IpAddr,
}

/// Step of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    DhcpDiscover,
    DhcpRequest,
    DhcpDecline,
    ProxyDhcp,
    Tftp,
    /// A first stage or the CA certificate by HTTP.
    Http,
    Script,
    Kernel,
    Initrd,
    Refused,
    RogueDhcp,
    AddressConflict,
}

impl Stage {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::DhcpDiscover => "dhcp-discover",
            Self::DhcpRequest => "dhcp-request",
            Self::DhcpDecline => "dhcp-decline",
            Self::ProxyDhcp => "proxy-dhcp",
            Self::Tftp => "tftp",
            Self::Http => "http",
            Self::Script => "script",
            Self::Kernel => "kernel",
            Self::Initrd => "initrd",
            Self::Refused => "refused",
            Self::RogueDhcp => "rogue-dhcp",
            Self::AddressConflict => "address-conflict",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
