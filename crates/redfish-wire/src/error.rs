//! Errors of talking to a BMC. Each message names the place and the remedy.

use std::fmt;
use std::time::Duration;

use crate::extended::BmcMessages;
use crate::sender::SendError;
use crate::tls::{CertificateFingerprint, NO_SHARED_CIPHER};

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
    /// Credentials or the certificate are wrong: an operator must check them, and no caller may retry.
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
    #[error("{given:?} is not a SHA-256 fingerprint: write 64 hexadecimal digits; colons between pairs are allowed")]
    InvalidFingerprint {
        /// The beginning of the given text.
        given: String,
    },
    /// The TLS library refused our own configuration.
    #[error("cannot set up TLS")]
    TlsSetup {
        /// The TLS library's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No connection could be made.
    #[error("{at}: no connection; check that the BMC has power, its address and the network between")]
    Unreachable {
        /// The request.
        at: Box<Exchange>,
        /// The cause.
        #[source]
        source: SendError,
    },
    /// The TLS handshake failed for another reason than a changed certificate.
    #[error("{at}: TLS handshake failed; the BMC may speak only protocols or ciphers that are no longer safe")]
    Tls {
        /// The request.
        at: Box<Exchange>,
        /// The cause.
        #[source]
        source: SendError,
    },
    /// The BMC supports none of the offered cipher suites.
    #[error("{at}: TLS handshake failed: {NO_SHARED_CIPHER}")]
    NoSharedCipher {
        /// The request.
        at: Box<Exchange>,
        /// The cause.
        #[source]
        source: SendError,
    },
    /// The connection broke after the request was sent.
    #[error("{at}: connection broken before the answer was complete")]
    Broken {
        /// The request.
        at: Box<Exchange>,
        /// The cause.
        #[source]
        source: SendError,
    },
    /// No complete answer in time.
    #[error("{at}: no complete answer within {limit_s} s")]
    TimedOut {
        /// The request.
        at: Box<Exchange>,
        /// The limit in seconds.
        limit_s: u64,
    },
    /// Several requests in a row got no answer, so the client pauses requests to the BMC; nothing was sent.
    #[error(
        "BMC {bmc} gave no answer {failures} times in a row; requests to it are paused for {wait_s} s, then one request tries \
         again; last failure: {last}"
    )]
    Suspended {
        /// Address of the BMC.
        bmc: String,
        /// Requests without an answer.
        failures: u32,
        /// Seconds until the next attempt is allowed.
        wait_s: u64,
        /// The last failure.
        last: String,
    },
    /// The BMC shows a different certificate from the pinned one.
    #[error(
        "BMC {bmc} shows certificate sha256:{seen}, but sha256:{expected} is pinned: either its certificate was renewed \
         (then pin the new one), or another device intercepts the connection; nothing was sent"
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
        /// The BMC's messages.
        detail: BmcMessages,
    },
    /// The BMC allows only a change of password.
    #[error("{at}: the BMC requires a new password for this account before any other request{detail}")]
    PasswordChangeRequired {
        /// The request.
        at: Box<Exchange>,
        /// The BMC's messages.
        detail: BmcMessages,
    },
    /// An HTTP status that reports a failure.
    #[error("{at}: HTTP {status}{detail}")]
    Status {
        /// The request.
        at: Box<Exchange>,
        /// HTTP status.
        status: u16,
        /// The BMC's messages.
        detail: BmcMessages,
        /// The pause that the BMC requested.
        retry_after: Option<Duration>,
    },
    /// The answer is not JSON, or not of the expected kind.
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
        limit_bytes: usize,
    },
    /// The answer is nested too deeply or holds too many values.
    #[error("{at}: the answer is refused: {why}")]
    TooComplex {
        /// The request.
        at: Box<Exchange>,
        /// The limit that was exceeded.
        why: String,
    },
    /// A collection does not end.
    #[error("{at}: the collection has more than {limit} {unit}, or its nextLink forms a loop")]
    EndlessCollection {
        /// The request for the first page beyond the limit.
        at: Box<Exchange>,
        limit: usize,
        /// The counted unit.
        unit: &'static str,
    },
    /// A link or redirect leads away from the BMC.
    #[error("BMC {bmc}: the link {link:?} does not lead to this BMC (or is not a link) and is not followed")]
    ForeignLink {
        /// Address of the BMC.
        bmc: String,
        link: String,
    },
    /// A redirect leads away from the BMC.
    #[error("{at}: the BMC redirects to {location:?}, which is not this BMC; the redirect is not followed")]
    ForeignRedirect {
        /// The request.
        at: Box<Exchange>,
        /// The target, shortened.
        location: String,
    },
    /// A required property is absent.
    #[error("BMC {bmc}: {path} has no {property}, so {consequence}")]
    MissingProperty {
        /// Address of the BMC.
        bmc: String,
        /// The resource.
        path: String,
        property: &'static str,
        /// The operation that is impossible without the property.
        consequence: &'static str,
    },
    /// The BMC manages no system of the requested name.
    #[error("BMC {bmc} has no system{}; it has: {}", named(.wanted), listed(.members))]
    NoSuchSystem {
        /// Address of the BMC.
        bmc: String,
        /// The requested name; empty if none was given.
        wanted: String,
        /// Ids of the existing systems.
        members: Vec<String>,
    },
    /// The service has no unit of the requested name, or has none or several and no name was given.
    #[error("{bmc} has no {what}{} (by id, name, user label or asset tag); it has: {}", named(.wanted), listed(.members))]
    NoSuchUnit {
        /// Address of the service.
        bmc: String,
        /// The kind of unit: `rack PDU`, `cooling unit`.
        what: &'static str,
        /// The requested name; empty if none was given.
        wanted: String,
        /// Ids of the existing units.
        members: Vec<String>,
    },
    /// The BMC manages several systems and no name was given.
    #[error("BMC {bmc} manages {} systems: name one of {}", members.len(), members.join(", "))]
    SeveralSystems {
        /// Address of the BMC.
        bmc: String,
        /// Ids of the systems.
        members: Vec<String>,
    },
    /// The BMC does not offer the requested function.
    #[error("BMC {bmc} does not offer {what}{}", instead(.offered))]
    NotOffered {
        /// Address of the BMC.
        bmc: String,
        /// The requested function.
        what: String,
        /// What the BMC offers instead; empty if the BMC lists nothing.
        offered: String,
    },
    /// Requested BIOS settings are invalid. Nothing was written.
    #[error("BMC {bmc}: these BIOS settings are invalid, and no setting was written: {}", faults.join("; "))]
    UnfitSettings {
        /// Address of the BMC.
        bmc: String,
        /// Attribute, value and reason, per fault.
        faults: Vec<String>,
    },
    /// The BMC accepted a change but reads back a different value.
    #[error("BMC {bmc}: {path} accepted {property} = {wanted}, but still reads {seen}")]
    NotApplied {
        /// Address of the BMC.
        bmc: String,
        /// The resource.
        path: String,
        property: String,
        /// The written value.
        wanted: String,
        /// The value that was read.
        seen: String,
    },
    /// An expected change did not happen in time.
    #[error("BMC {bmc}: {what} did not happen within {waited_s} s; last seen: {last}")]
    WaitedTooLong {
        /// Address of the BMC.
        bmc: String,
        /// The expected change.
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
        /// The final state of the task.
        state: String,
        /// The BMC's messages.
        detail: BmcMessages,
    },
    /// A firmware file is not readable as described.
    #[error("the firmware file {path} cannot be sent")]
    FirmwareFile {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file of quirk profiles is invalid.
    #[error("quirk file {name} is faulty: {why}")]
    QuirkFile {
        /// The file's name; its path if the file is the operator's.
        name: String,
        /// The fault, with line and field.
        why: String,
    },
    /// The operator's folder of quirk profiles, or a file in it, cannot be read.
    #[error("the quirk profiles in {path} cannot be read")]
    QuirkFolder {
        /// The folder or the file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The client was used after `close`.
    #[error("the client for BMC {bmc} was closed")]
    Closed {
        /// Address of the BMC.
        bmc: String,
    },
}

impl RedfishError {
    /// What a caller may do about this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::CertificateChanged { .. }
            | Self::Unauthorized { .. }
            | Self::ForeignLink { .. }
            | Self::ForeignRedirect { .. } => ErrorKind::Security,
            Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::TimedOut { .. }
            | Self::Suspended { .. }
            | Self::NotApplied { .. }
            | Self::WaitedTooLong { .. } => ErrorKind::Retryable,
            Self::Status { status, detail, .. } => {
                let later = matches!(status, 408 | 425 | 429 | 500 | 502..=504);
                if later || detail.is_busy() {
                    ErrorKind::Retryable
                } else {
                    ErrorKind::Permanent
                }
            }
            Self::TlsSetup { .. } | Self::Closed { .. } => ErrorKind::Bug,
            Self::FirmwareFile { .. }
            | Self::QuirkFile { .. }
            | Self::QuirkFolder { .. }
            | Self::InvalidAddress { .. }
            | Self::InvalidFingerprint { .. }
            | Self::Tls { .. }
            | Self::NoSharedCipher { .. }
            | Self::PasswordChangeRequired { .. }
            | Self::NotJson { .. }
            | Self::BodyTooLarge { .. }
            | Self::TooComplex { .. }
            | Self::EndlessCollection { .. }
            | Self::MissingProperty { .. }
            | Self::NoSuchSystem { .. }
            | Self::NoSuchUnit { .. }
            | Self::SeveralSystems { .. }
            | Self::NotOffered { .. }
            | Self::UnfitSettings { .. }
            | Self::TaskFailed { .. } => ErrorKind::Permanent,
        }
    }

    /// The HTTP status, if the BMC answered with one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } | Self::Unauthorized { status, .. } => Some(*status),
            Self::PasswordChangeRequired { .. } => Some(403),
            _ => None,
        }
    }

    /// The HTTP status with which the BMC refused this one request. `None` for a refusal of the login, which says nothing
    /// about the requested resource.
    pub fn refusal_status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The BMC's messages, if there are any.
    pub fn messages(&self) -> Option<&BmcMessages> {
        match self {
            Self::Status { detail, .. }
            | Self::Unauthorized { detail, .. }
            | Self::PasswordChangeRequired { detail, .. }
            | Self::TaskFailed { detail, .. } => Some(detail),
            _ => None,
        }
    }

    /// Whether the error means no answer, or none in time. An answer that has begun and breaks off counts as an answer.
    pub(crate) fn is_no_answer(&self, head_arrived: bool) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Tls { .. } | Self::NoSharedCipher { .. } | Self::TimedOut { .. } => true,
            Self::Broken { .. } => !head_arrived,
            _ => false,
        }
    }

    /// Whether the fault concerns the whole BMC and not one resource: a walk stops at such a fault.
    pub fn is_fatal_for_walk(&self) -> bool {
        matches!(
            self,
            Self::CertificateChanged { .. }
                | Self::Unauthorized { .. }
                | Self::PasswordChangeRequired { .. }
                | Self::Unreachable { .. }
                | Self::Suspended { .. }
                | Self::Tls { .. }
                | Self::NoSharedCipher { .. }
                | Self::Closed { .. }
        )
    }
}

/// The requested name, quoted, after a space. Empty if no name was given.
fn named(wanted: &str) -> String {
    if wanted.is_empty() {
        String::new()
    } else {
        format!(" {wanted:?}")
    }
}

/// The ids of a list, or a word for an empty list.
fn listed(ids: &[String]) -> String {
    if ids.is_empty() {
        "none".to_owned()
    } else {
        ids.join(", ")
    }
}

/// What the BMC offers instead, as the end of a sentence. Empty if the BMC lists nothing.
fn instead(offered: &str) -> String {
    if offered.is_empty() {
        String::new()
    } else {
        format!("; it offers: {offered}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_does_not_end_a_message_in_a_colon() {
        let not_offered = |offered: &str| {
            let failure = RedfishError::NotOffered {
                bmc: "https://b".to_owned(),
                what: "a known form of boot override".to_owned(),
                offered: offered.to_owned(),
            };
            failure.to_string()
        };
        let text = "BMC https://b does not offer a known form of boot override";
        assert_eq!(not_offered(""), text);
        assert_eq!(not_offered("None, Hdd"), format!("{text}; it offers: None, Hdd"));
        let no_system = |wanted: &str, members: &[&str]| {
            let failure = RedfishError::NoSuchSystem {
                bmc: "https://b".to_owned(),
                wanted: wanted.to_owned(),
                members: members.iter().map(|id| (*id).to_owned()).collect(),
            };
            failure.to_string()
        };
        assert_eq!(no_system("", &[]), "BMC https://b has no system; it has: none");
        assert_eq!(
            no_system("2", &["1", "HGX_0"]),
            "BMC https://b has no system \"2\"; it has: 1, HGX_0"
        );
        let no_unit = RedfishError::NoSuchUnit {
            bmc: "https://b".to_owned(),
            what: "rack PDU",
            wanted: "a".to_owned(),
            members: Vec::new(),
        };
        assert!(no_unit.to_string().ends_with("it has: none"), "{no_unit}");
    }
}
