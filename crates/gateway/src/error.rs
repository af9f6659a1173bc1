//! Errors in Connect's JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::StatusCode;
use prost::Message as _;
use serde::Serialize;
use tonic::{Code, Status};

use crate::methods::Methods;

/// An error as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Error {
    code: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Detail>,
}

/// A detail: the name of a protobuf type, the encoded message, and the same as JSON for people.
#[derive(Debug, Serialize)]
struct Detail {
    r#type: String,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    debug: Option<serde_json::Value>,
}

/// An error as JSON, in the form of `google.rpc.Status` that REST APIs of Google have.
#[derive(Debug, Serialize)]
pub(crate) struct RestError {
    error: RestStatus,
}

#[derive(Debug, Serialize)]
struct RestStatus {
    code: u16,
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<serde_json::Value>,
}

impl RestError {
    pub(crate) fn of(status: &Status, http_status: StatusCode, methods: &Methods) -> Self {
        let details = details(status).into_iter().filter_map(|any| {
            let mut value = methods.json_of(any.type_url.rsplit('/').next()?, &any.value)?;
            value.as_object_mut()?.insert("@type".to_owned(), any.type_url.into());
            Some(value)
        });
        Self {
            error: RestStatus {
                code: http_status.as_u16(),
                status: code_name(status.code()),
                message: status.message().to_owned(),
                details: details.collect(),
            },
        }
    }
}

fn details(status: &Status) -> Vec<prost_types::Any> {
    tonic_types::pb::Status::decode(status.details())
        .unwrap_or_default()
        .details
}

impl Error {
    pub(crate) fn of(status: &Status, methods: &Methods) -> Self {
        let details = details(status).into_iter().map(|any| {
            let name = any.type_url.rsplit('/').next().unwrap_or_default();
            Detail {
                debug: methods.json_of(name, &any.value),
                value: STANDARD_NO_PAD.encode(&any.value),
                r#type: name.to_owned(),
            }
        });
        Self {
            code: name(status.code()),
            message: status.message().to_owned(),
            details: details.collect(),
        }
    }
}

/// The name of a code in Connect.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok | Code::Unknown => "unknown",
        Code::Cancelled => "canceled",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

/// The name of a status code in gRPC.
#[must_use]
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Unknown => "UNKNOWN",
        Code::Cancelled => "CANCELLED",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// The HTTP status of a unary call that failed, by Connect's table.
pub(crate) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
