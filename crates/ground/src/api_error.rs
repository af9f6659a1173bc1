//! Turns failures of calls into gRPC statuses: a code, and details with a reason, the field or resource, and a hint.

use rackwright_identity::SealError;
use rackwright_store::StoreError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::space::{self, NoRoom};
use crate::text::{NAME_MAX, SENTENCE_MAX};

/// The longest message, and the longest list of faults in the details, in bytes of a header. A status travels in the headers
/// of HTTP/2, the message twice; most clients close a connection with more than 16 KiB of headers, and every call on it.
const STATUS_MAX: usize = 3_000;
/// What a fault takes besides its texts.
const FAULT_OVERHEAD: usize = 16;

/// The domain of the reasons, as `google.rpc.ErrorInfo` requires one.
const DOMAIN: &str = "rackwright";

/// The violation type of a request that the present state does not allow.
const STATE: &str = "STATE";

/// The violation type of a request that needs `confirm_erase`.
const UNCONFIRMED: &str = "CONFIRM_ERASE";

/// The language of the hints.
const HINT_LOCALE: &str = "en";

/// A call's failure.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Fields of the request are wrong: each field with its fault.
    #[error("{}", in_words(.0))]
    Invalid(Vec<(String, String)>),
    /// Names in the request are in use: each field with its fault.
    #[error("{}", in_words(.0))]
    Taken(Vec<(String, String)>),
    /// The request is valid, but the present state does not allow it.
    #[error("{message}")]
    Precondition {
        /// The resource.
        subject: String,
        /// What blocks the request.
        message: String,
        /// What the caller can do.
        hint: String,
    },
    /// The request erases data, and the caller did not confirm that.
    #[error("{message}")]
    Unconfirmed {
        /// The resource.
        subject: String,
        /// What would happen.
        message: String,
    },
    /// The resource was changed since the caller read it.
    #[error("{subject} has version {found} by now, not {given}; read it again")]
    Stale {
        /// The resource.
        subject: String,
        /// Its present version.
        found: String,
        /// The version in the request.
        given: String,
    },
    /// The caller showed no accepted certificate or token.
    #[error("{0}")]
    Unauthenticated(String),
    /// The caller is known and lacks the right.
    #[error("{0}")]
    Forbidden(String),
    /// The resource does not exist.
    #[error("{kind} {name:?} does not exist")]
    NotFound {
        /// Kind of resource.
        kind: &'static str,
        /// Its name in the request.
        name: String,
    },
    /// The requested position is not in the retained history.
    #[error("{0}")]
    OutOfRange(String),
    /// A disk has no room for the upload.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The member has too much running at once.
    #[error("{message}")]
    Busy {
        /// What the member has too much of.
        message: String,
        /// What the caller can do.
        hint: String,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fault of the daemon itself.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// A request with one wrong field.
    pub fn invalid(field: impl Into<String>, fault: impl Into<String>) -> Self {
        Self::Invalid(vec![(field.into(), fault.into())])
    }

    /// The failure to seal the user data in `field`.
    pub fn unsealed(field: &str, error: &SealError) -> Self {
        match error {
            SealError::TooLong { .. } => Self::invalid(field, "it is larger than 256 KiB"),
            other => Self::Internal(other.to_string()),
        }
    }

    /// A request that the present state does not allow.
    pub fn precondition(subject: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Precondition {
            subject: subject.into(),
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let text = shortened(&error.to_string(), STATUS_MAX);
        let (code, details) = match &error {
            ApiError::Invalid(faults) => (Code::InvalidArgument, field_violations(faults)),
            ApiError::Taken(faults) => (Code::AlreadyExists, field_violations(faults)),
            ApiError::Precondition { subject, message, hint } => {
                let (subject, message) = (short_name(subject), shortened(message, SENTENCE_MAX * 2));
                let mut details = ErrorDetails::with_precondition_failure_violation(STATE, subject, message);
                add_hint(&mut details, hint);
                (Code::FailedPrecondition, details)
            }
            ApiError::Unconfirmed { subject, message } => {
                let (subject, message) = (short_name(subject), shortened(message, SENTENCE_MAX * 2));
                let mut details = ErrorDetails::with_precondition_failure_violation(UNCONFIRMED, subject, message);
                add_hint(
                    &mut details,
                    "set confirm_erase to confirm the erase; the CLI sets it with --yes",
                );
                (Code::FailedPrecondition, details)
            }
            ApiError::Stale { subject, .. } => (Code::Aborted, error_info("STALE_RESOURCE_VERSION", subject, "")),
            ApiError::Unauthenticated(_) => (
                Code::Unauthenticated,
                error_info("NO_CREDENTIAL", "", "`rackwright login` obtains a client certificate"),
            ),
            ApiError::Forbidden(_) => (
                Code::PermissionDenied,
                error_info("ROLE", "", "an operator can give you another role with a new token"),
            ),
            ApiError::NotFound { kind, name } => (
                Code::NotFound,
                ErrorDetails::with_resource_info(*kind, short_name(name), "", "does not exist"),
            ),
            ApiError::OutOfRange(_) => (
                Code::OutOfRange,
                error_info("OUT_OF_RANGE", "", "start from position 0"),
            ),
            ApiError::NoRoom(full) => (
                Code::ResourceExhausted,
                error_info("NO_ROOM", &full.folder, space::HINT),
            ),
            ApiError::Busy { hint, .. } => (Code::ResourceExhausted, error_info("BUSY", "", hint)),
            ApiError::Store(store) => store_details(store),
            ApiError::Internal(_) => (Code::Internal, error_info("BUG", "", "")),
        };
        if matches!(code, Code::Internal | Code::Unavailable) {
            tracing::error!(error = %text, source = ?std::error::Error::source(&error), "a call failed");
        }
        Status::with_error_details(code, text, details)
    }
}

/// `FIELD: FAULT; FIELD: FAULT`.
fn in_words(faults: &[(String, String)]) -> String {
    let words: Vec<String> = faults
        .iter()
        .map(|(field, fault)| format!("{field}: {fault}"))
        .collect();
    words.join("; ")
}

fn field_violations(faults: &[(String, String)]) -> ErrorDetails {
    let mut details = ErrorDetails::new();
    let mut left = STATUS_MAX;
    for (field, fault) in faults {
        let (field, fault) = (short_name(field), shortened(fault, SENTENCE_MAX));
        let Some(rest) = left.checked_sub(field.len() + fault.len() + FAULT_OVERHEAD) else {
            break;
        };
        left = rest;
        details.add_bad_request_violation(field, fault);
    }
    details
}

/// `text`, or its beginning with "…". A byte that is escaped in a header counts as three.
fn shortened(text: &str, max: usize) -> String {
    let cost = |c: char| match c {
        ' ' | '"' | '#' | '%' | '<' | '>' | '?' | '`' | '{' | '}' => 3,
        '!'..='~' => 1,
        _ => c.len_utf8() * 3,
    };
    let mut length = 0;
    let end = text.char_indices().find(|(_, c)| {
        length += cost(*c);
        length > max
    });
    end.map_or_else(|| text.to_owned(), |(end, _)| format!("{}…", &text[..end]))
}

/// The name of a resource or a field, which may come from the request.
fn short_name(name: &str) -> String {
    shortened(name, NAME_MAX * 2)
}

/// The code and the details of a failed database call.
fn store_details(error: &StoreError) -> (Code, ErrorDetails) {
    match error {
        StoreError::NotFound { kind, id } => (
            Code::NotFound,
            ErrorDetails::with_resource_info(*kind, short_name(id), "", "does not exist"),
        ),
        StoreError::Exists { kind, id } => (
            Code::AlreadyExists,
            ErrorDetails::with_resource_info(*kind, short_name(id), "", "exists already"),
        ),
        StoreError::Conflict { id, .. } => (
            Code::Aborted,
            error_info("CHANGED_MEANWHILE", id, "send the same request again"),
        ),
        StoreError::KeyReused { key, .. } => (
            Code::AlreadyExists,
            error_info("IDEMPOTENCY_KEY_REUSED", key, "use a fresh key for a new request"),
        ),
        StoreError::MacTaken { mac, node } => {
            let hint = format!("`rackwright node get {node}` shows the other node");
            (Code::AlreadyExists, error_info("MAC_TAKEN", mac, &hint))
        }
        StoreError::Contended(_) => (
            Code::Aborted,
            error_info("CONTENDED", "", "send the same request again"),
        ),
        StoreError::Database(_) | StoreError::Open { .. } if error.is_retryable() => (
            Code::Unavailable,
            error_info("STORE", "", "send the same request again"),
        ),
        _ => (Code::Internal, error_info("STORE", "", "")),
    }
}

/// Details with a reason for programs, the resource, and a hint for people. `subject` and `hint` may be empty.
fn error_info(reason: &str, subject: &str, hint: &str) -> ErrorDetails {
    let metadata = [("subject".to_owned(), short_name(subject))];
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    add_hint(&mut details, hint);
    details
}

fn add_hint(details: &mut ErrorDetails, hint: &str) {
    if !hint.is_empty() {
        details.set_localized_message(HINT_LOCALE, shortened(hint, SENTENCE_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the headers of a status, as the client gets them.
    fn headers(status: &Status) -> usize {
        let mut map = tonic::codegen::http::HeaderMap::new();
        status.add_header(&mut map).unwrap();
        map.iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 32)
            .sum()
    }

    #[test]
    fn a_status_fits_the_headers_of_any_client_whatever_the_request_says() {
        for text in ["x", "\u{10ffff}", "\n", "\"", "%"].map(|text| text.repeat(20_000)) {
            let named = || text.clone();
            let faults = || vec![(named(), named()); 200];
            for error in [
                ApiError::Invalid(faults()),
                ApiError::Taken(faults()),
                ApiError::precondition(named(), named(), named()),
                ApiError::Unconfirmed {
                    subject: named(),
                    message: named(),
                },
                ApiError::Stale {
                    subject: named(),
                    found: named(),
                    given: named(),
                },
                ApiError::Unauthenticated(named()),
                ApiError::Forbidden(named()),
                ApiError::NotFound {
                    kind: "node",
                    name: named(),
                },
                ApiError::OutOfRange(named()),
                ApiError::Busy {
                    message: named(),
                    hint: named(),
                },
                ApiError::Store(StoreError::NotFound {
                    kind: "node",
                    id: named(),
                }),
                ApiError::Internal(named()),
            ] {
                let status = Status::from(error);
                assert!(headers(&status) < 15 << 10, "{}: {}", status.code(), headers(&status));
                assert!(status.message().ends_with('…'), "{}", status.message());
            }
        }
        let status = Status::from(ApiError::invalid("name", "is \"empty\" – or not"));
        assert_eq!(status.message(), "name: is \"empty\" – or not");
    }
}
