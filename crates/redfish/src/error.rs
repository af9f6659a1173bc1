//! What can go wrong with a BMC, in words that say where and what to do.

use std::fmt;
use std::time::Duration;

use crate::extended::BmcMessages;
use crate::tls::CertificateFingerprint;

/// The request that an error belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Address of the BMC, without credentials.
    pub bmc: String,
    /// HTTP method.
    pub method: String,
    /// Path and query on the BMC.
    pub path: String,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on BMC {}", self.method, self.path, self.bmc)
    }
}

/// What a caller may do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed later.
    Retryable,
    /// The same call will fail again until something is changed.
    Permanent,
    /// Credentials or the certificate are not what they should be: a person must look, nobody may go on trying.
    Security,
    /// A fault of this program.
    Bug,
}

/// Any failure of the Redfish client. Never holds a password, a token or a request body.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedfishError {
    /// The address cannot be used.
    #[error("BMC address {address:?} cannot be used: {why}; write https://host[:port][/path]")]
    InvalidAddress {
        /// The address as given, unless it may hold a password.
        address: String,
        /// The fault.
        why: String,
    },
    /// A certificate fingerprint cannot be read.
    #[error("{given:?} is no SHA-256 fingerprint: 64 hexadecimal digits are needed, colons between pairs allowed")]
    InvalidFingerprint {
        /// The beginning of what was given.
        given: String,
    },
    /// The TLS library refused our own configuration.
    #[error("cannot set up TLS")]
    TlsSetup {
        /// What rustls says.
        #[source]
        source: rustls::Error,
    },
    /// The HTTP library refused our own configuration.
    #[error("cannot set up the HTTP client")]
    ClientSetup {
        /// What reqwest says.
        #[source]
        source: reqwest::Error,
    },
    /// No connection could be made.
    #[error("{at}: no connection; check that the BMC has power, its address and the network between")]
    Unreachable {
        /// The request.
        at: Box<Exchange>,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The TLS handshake failed for another reason than a changed certificate.
    #[error("{at}: TLS handshake failed; the BMC may speak only protocols or ciphers that are no longer safe")]
    Tls {
        /// The request.
        at: Box<Exchange>,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The connection broke after the request was sent.
    #[error("{at}: connection broken before the answer was complete")]
    Broken {
        /// The request.
        at: Box<Exchange>,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// No complete answer in time.
    #[error("{at}: no complete answer within {limit_s} s")]
    TimedOut {
        /// The request.
        at: Box<Exchange>,
        /// The limit in seconds.
        limit_s: u64,
    },
    /// The BMC shows another certificate than the pinned one.
    #[error(
        "BMC {bmc} shows certificate sha256:{seen}, but sha256:{expected} is pinned: either its certificate was renewed \
         (then pin the new one) or somebody is in between; nothing was sent"
    )]
    CertificateChanged {
        /// Address of the BMC.
        bmc: String,
        /// The pinned certificate.
        expected: CertificateFingerprint,
        /// The certificate that was shown.
        seen: CertificateFingerprint,
    },
    /// User name or password were refused, or a fresh session is not accepted.
    #[error("{at}: user name or password refused (HTTP {status}){detail}")]
    Unauthorized {
        /// The request.
        at: Box<Exchange>,
        /// HTTP status.
        status: u16,
        /// What the BMC said.
        detail: BmcMessages,
    },
    /// The BMC allows nothing but a change of password.
    #[error("{at}: the BMC demands a new password for this account before anything else{detail}")]
    PasswordChangeRequired {
        /// The request.
        at: Box<Exchange>,
        /// What the BMC said.
        detail: BmcMessages,
    },
    /// An HTTP status that says no.
    #[error("{at}: HTTP {status}{detail}")]
    Status {
        /// The request.
        at: Box<Exchange>,
        /// HTTP status.
        status: u16,
        /// What the BMC said.
        detail: BmcMessages,
        /// The pause that the BMC asked for.
        retry_after: Option<Duration>,
    },
    /// The answer is no JSON, or not of the kind that must stand there.
    #[error("{at}: the answer cannot be understood: {why}; it begins {beginning:?}")]
    NotJson {
        /// The request.
        at: Box<Exchange>,
        /// The fault.
        why: String,
        /// The first printable characters of the answer.
        beginning: String,
    },
    /// The answer is larger than allowed.
    #[error("{at}: the answer is larger than the limit of {limit_bytes} bytes")]
    BodyTooLarge {
        /// The request.
        at: Box<Exchange>,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// The answer is nested too deeply or holds too many values.
    #[error("{at}: the answer is refused: {why}")]
    TooComplex {
        /// The request.
        at: Box<Exchange>,
        /// Which limit.
        why: String,
    },
    /// A collection does not end.
    #[error("{at}: the collection goes beyond {limit} {unit} or its nextLink leads in a circle")]
    EndlessCollection {
        /// The request for the page that was too much.
        at: Box<Exchange>,
        /// The limit.
        limit: usize,
        /// What is counted.
        unit: &'static str,
    },
    /// A link or redirect leads away from the BMC.
    #[error("BMC {bmc}: the link {link:?} leads away from it (or is no link) and is not followed")]
    ForeignLink {
        /// Address of the BMC.
        bmc: String,
        /// The link.
        link: String,
    },
    /// A property without which the work cannot go on is absent.
    #[error("BMC {bmc}: {path} has no {property}, so that {consequence}")]
    MissingProperty {
        /// Address of the BMC.
        bmc: String,
        /// The resource.
        path: String,
        /// The property.
        property: &'static str,
        /// What cannot be done.
        consequence: &'static str,
    },
    /// The BMC manages no system of the wanted name.
    #[error("BMC {bmc} has no system {wanted:?}; it has: {}", members.join(", "))]
    NoSuchSystem {
        /// Address of the BMC.
        bmc: String,
        /// The wanted name; empty where none was named.
        wanted: String,
        /// Ids of the systems that are there.
        members: Vec<String>,
    },
    /// The BMC manages several systems and none was named.
    #[error("BMC {bmc} manages {} systems: name one of {}", members.len(), members.join(", "))]
    SeveralSystems {
        /// Address of the BMC.
        bmc: String,
        /// Ids of the systems.
        members: Vec<String>,
    },
    /// The BMC does not offer what is wanted.
    #[error("BMC {bmc} does not offer {what}; it offers: {offered}")]
    NotOffered {
        /// Address of the BMC.
        bmc: String,
        /// What was wanted.
        what: String,
        /// What there is instead.
        offered: String,
    },
    /// The BMC accepted a change, but reads back something else.
    #[error("BMC {bmc}: {path} was told {property} = {wanted}, accepted it, and still reads {seen}")]
    NotApplied {
        /// Address of the BMC.
        bmc: String,
        /// The resource.
        path: String,
        /// The property.
        property: String,
        /// What was written.
        wanted: String,
        /// What is read.
        seen: String,
    },
    /// Something did not happen in time.
    #[error("BMC {bmc}: {what} did not happen within {waited_s} s; last seen: {last}")]
    WaitedTooLong {
        /// Address of the BMC.
        bmc: String,
        /// What was waited for.
        what: String,
        /// How long, in seconds.
        waited_s: u64,
        /// The last observation.
        last: String,
    },
    /// A task of the BMC failed.
    #[error("BMC {bmc}: task {path} ended as {state}{detail}")]
    TaskFailed {
        /// Address of the BMC.
        bmc: String,
        /// The task or its monitor.
        path: String,
        /// The state it ended in.
        state: String,
        /// What the BMC said.
        detail: BmcMessages,
    },
    /// A quirk file that is built into this program cannot be read.
    #[error("built-in quirk file {name} is faulty")]
    QuirkFile {
        /// Its name.
        name: &'static str,
        /// The fault.
        #[source]
        source: serde_json::Error,
    },
    /// The client was used after `close`.
    #[error("the client for BMC {bmc} was closed")]
    Closed {
        /// Address of the BMC.
        bmc: String,
    },
}

impl RedfishError {
    /// What a caller may do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::CertificateChanged { .. } | Self::Unauthorized { .. } | Self::ForeignLink { .. } => {
                ErrorKind::Security
            }
            Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::TimedOut { .. }
            | Self::NotApplied { .. }
            | Self::WaitedTooLong { .. } => ErrorKind::Retryable,
            Self::Status { status, detail, .. } => {
                let later = matches!(status, 408 | 425 | 429 | 500 | 502..=504);
                if later || detail.say_busy() {
                    ErrorKind::Retryable
                } else {
                    ErrorKind::Permanent
                }
            }
            Self::TlsSetup { .. } | Self::ClientSetup { .. } | Self::QuirkFile { .. } | Self::Closed { .. } => {
                ErrorKind::Bug
            }
            Self::InvalidAddress { .. }
            | Self::InvalidFingerprint { .. }
            | Self::Tls { .. }
            | Self::PasswordChangeRequired { .. }
            | Self::NotJson { .. }
            | Self::BodyTooLarge { .. }
            | Self::TooComplex { .. }
            | Self::EndlessCollection { .. }
            | Self::MissingProperty { .. }
            | Self::NoSuchSystem { .. }
            | Self::SeveralSystems { .. }
            | Self::NotOffered { .. }
            | Self::TaskFailed { .. } => ErrorKind::Permanent,
        }
    }

    /// The HTTP status, where the BMC answered with one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } | Self::Unauthorized { status, .. } => Some(*status),
            Self::PasswordChangeRequired { .. } => Some(403),
            _ => None,
        }
    }

    /// What the BMC said, where it said something.
    pub fn messages(&self) -> Option<&BmcMessages> {
        match self {
            Self::Status { detail, .. }
            | Self::Unauthorized { detail, .. }
            | Self::PasswordChangeRequired { detail, .. }
            | Self::TaskFailed { detail, .. } => Some(detail),
            _ => None,
        }
    }

    /// Whether this fault concerns the whole BMC rather than one resource of it: a walk stops at it.
    pub(crate) fn ends_a_walk(&self) -> bool {
        matches!(
            self,
            Self::CertificateChanged { .. }
                | Self::Unauthorized { .. }
                | Self::PasswordChangeRequired { .. }
                | Self::Unreachable { .. }
                | Self::Tls { .. }
                | Self::Closed { .. }
        )
    }
}
