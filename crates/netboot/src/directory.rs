//! What network boot has to be told, and what it tells: the only interface to the rest of the system.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::BootLoader;
use crate::dhcp::{Architecture, Kind};
use crate::mac::Mac;

/// Knows machines, mints and redeems boot tokens, keeps the trace. Implemented by the control plane.
///
/// Calls come from many tasks at once. `lookup` and `mint` are given 2 s, `redeem` 10 s; then the client hears nothing
/// (it will ask again) and `dhcp_directory_errors_total` grows.
#[async_trait]
pub trait BootDirectory: Send + Sync + 'static {
    /// Who is this, which address is theirs, may they boot?
    async fn lookup(&self, client: &Client) -> Result<Lookup, DirectoryError>;

    /// A new one-time token for one machine. Earlier tokens of the same machine may stay valid: clients repeat requests.
    async fn mint(&self, binding: &Binding) -> Result<OneTimeToken, DirectoryError>;

    /// Trades a token for the boot plan. Must refuse a token that was used, has expired, or was minted for
    /// another MAC address or another client address; [`crate::tokens::TokenBook`] does exactly that.
    async fn redeem(&self, token: &OneTimeToken, mac: Mac, remote: IpAddr) -> Result<BootPlan, Refusal>;

    /// The file that a firmware address stands for, whose parts are the digest, the time until which it is good, in Unix
    /// seconds, and the seal of both. None: it is not one of ours, or its time is over.
    fn firmware(&self, _digest: &str, _until_s: i64, _seal: &str) -> Option<std::path::PathBuf> {
        None
    }

    /// The medium with the secret of a node's present boot, for its BMC at `remote`. None: the seal is of no such boot, or another
    /// asks.
    async fn medium(&self, _node: &str, _seal: &str, _remote: IpAddr) -> Result<Option<Vec<u8>>, DirectoryError> {
        Ok(None)
    }

    /// The control plane's CA certificates, PEM, where they can change while the services run.
    fn ca_pem(&self) -> Option<String> {
        None
    }

    /// Takes note of a stage. Must not block; a full queue is answered by [`StageDropped`], which is counted.
    fn record(&self, seen: StageSeen) -> Result<(), StageDropped>;
}

/// The directory could not answer (database away, shutting down). The text must be free of secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the boot directory cannot answer: {0}")]
pub struct DirectoryError(pub String);

/// The queue for stages is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue for boot stages is full")]
pub struct StageDropped;

/// A machine as its DHCP message describes it. Nothing in it is proven: a MAC address can be forged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub mac: Mac,
    /// What kind of program asks.
    pub kind: Kind,
    /// Option 93.
    pub architecture: Option<Architecture>,
    /// Option 97 (RFC 4578) as lower-case text, read in SMBIOS byte order as firmware sends it.
    pub system_uuid: Option<String>,
    /// The relay agent's address (giaddr), when the message came through one.
    pub relay: Option<Ipv4Addr>,
    /// Option 82 sub-options 1 and 2 (RFC 3046): the switch port it came in by, in the relay's own words.
    pub circuit_id: Option<Vec<u8>>,
    pub remote_id: Option<Vec<u8>>,
    /// Option 77, "iPXE" for iPXE.
    pub user_class: Option<String>,
    /// Option 12 as the client sent it.
    pub hostname: Option<String>,
    /// The configured subnet that the client sits in, by relay or by our own address. `None` in proxy mode and when no subnet fits.
    pub subnet: Option<Ipv4Net>,
    /// The address the client asks for or has: useful to keep an unknown machine's.
    pub requested: Option<Ipv4Addr>,
}

/// What the directory knows of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// A NIC of an enrolled node.
    Known {
        /// Its address; must lie in the subnet the client sits in. `None`: no answer in server mode.
        address: Option<Ipv4Addr>,
        hostname: Option<String>,
        boot: BootIntent,
    },
    /// A machine that nobody enrolled.
    Unknown {
        /// Whether the site lets it boot; [`crate::NetbootConfig::boot_unknown`] must allow it as well.
        boot_allowed: bool,
        /// An address from the pool (see [`crate::pool::Leases`]), if it shall get one.
        address: Option<Ipv4Addr>,
    },
}

/// What a known node is to boot now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootIntent {
    /// Our ramdisk; `None` takes the site's boot loader.
    Network { loader: Option<BootLoader> },
    /// What is installed: it gets its address and no boot file, so that firmware goes on to the next entry.
    Disk,
}

/// What a token is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    pub mac: Mac,
    /// The address we gave the machine; `None` as proxyDHCP, where another server does.
    pub address: Option<Ipv4Addr>,
}

/// Permission to fetch one boot plan once. Not shown by `Debug`.
#[derive(Clone)]
pub struct OneTimeToken(SecretString);

impl OneTimeToken {
    /// `text` goes into a URL's query as it is: up to 128 of `A-Z a-z 0-9 . _ ~ -`.
    pub fn new(text: String) -> Option<Self> {
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
        ((1..=128).contains(&text.len()) && text.bytes().all(unreserved)).then(|| Self(SecretString::from(text)))
    }

    /// The token itself, for storing its hash or putting it on the wire.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for OneTimeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTimeToken(…)")
    }
}

/// What a machine boots: files on this server's disk and the kernel's command line.
#[derive(Debug, Clone)]
pub struct BootPlan {
    /// A kernel, or a unified kernel image (then without `initrds`).
    pub kernel: BootFile,
    /// At most 8.
    pub initrds: Vec<BootFile>,
    /// Everything but `rackwright.mac`, `.ip`, `.mask` and `.gw`, which are added here. At most 3000 bytes of
    /// printable ASCII without `${`. Secret, because it may hold the agent's token.
    pub cmdline: SecretString,
}

/// One file of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFile {
    /// The name in URLs: 1 to 64 of `A-Z a-z 0-9 . _ -`, not beginning with a dot; unique in its plan.
    pub name: String,
    pub path: PathBuf,
}

/// Why a boot plan was not handed out. Shown to operators and, without more detail, to the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this boot token was never issued")]
    NoSuchToken,
    #[error("this boot token was used before; the machine has to ask for a new one by DHCP")]
    Used,
    #[error("this boot token has expired; the machine has to ask for a new one by DHCP")]
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

/// A step of a machine's boot. The receiver adds the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageSeen {
    /// `None` where only an address is known that we did not give out.
    pub mac: Option<Mac>,
    pub stage: Stage,
    /// In words, without secrets; at most 512 bytes.
    pub detail: String,
    pub remote: IpAddr,
}

/// Which step.
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
