//! The effect of a faulty BMC on requests and answers.

use super::events;
use super::expand::Within;
use super::host::{BadAnswer, RequestFault, RequestLine};
use super::reply::Fault;
use super::routes::To;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Number, Value, json};

/// Largest answer that is corrupted; our answers are far smaller.
const ANSWER_BYTES: usize = 1 << 20;
const PAGE: &str =
    "<!DOCTYPE html><html><head><title>Web Management</title></head><body>Please log in.</body></html>\n";

/// The connection ends without an answer. Also marks an answer that must not be sent.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the BMC hung up")]
pub struct ConnectionClosed;

/// Applies the BMC's faults to a request.
pub(super) async fn inject_fault(To(bmc): To, request: Request, next: Next) -> Response {
    if request.extensions().get::<Within>().is_some() {
        return next.run(request).await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let request_line = RequestLine {
        method: &method,
        path: &path,
    };
    if bmc.updates.is_away() {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(ConnectionClosed);
        return response;
    }
    match bmc.host.inject_fault(request_line).await {
        RequestFault::None => next.run(request).await,
        RequestFault::HangUp => {
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(ConnectionClosed);
            response
        }
        RequestFault::Unavailable { retry_after_s } => Fault::unavailable(retry_after_s).into_response(),
        RequestFault::SessionsFull => Fault::sessions_full().into_response(),
        // A stream has no end to wait for.
        RequestFault::BadAnswer(_) if path == events::STREAM => {
            Fault::internal("requested by the fault script").into_response()
        }
        RequestFault::BadAnswer(BadAnswer::InternalError) => {
            Fault::internal("requested by the fault script").into_response()
        }
        RequestFault::BadAnswer(bad_answer) => corrupt(next.run(request).await, bad_answer).await,
    }
}

/// The request was carried out; only its answer is corrupted.
async fn corrupt(answer: Response, bad_answer: BadAnswer) -> Response {
    let (mut parts, body) = answer.into_parts();
    let bytes = to_bytes(body, ANSWER_BYTES).await.unwrap_or_default();
    let bad_answer = match bad_answer {
        BadAnswer::Html => {
            parts.status = StatusCode::OK;
            let html = HeaderValue::from_static("text/html; charset=utf-8");
            parts.headers.insert(header::CONTENT_TYPE, html);
            Body::from(PAGE)
        }
        BadAnswer::Truncated => Body::from(bytes.slice(..bytes.len() / 2)),
        BadAnswer::Types => match serde_json::from_slice::<Value>(&bytes) {
            Ok(mut value) => {
                swap_types(&mut value);
                Body::from(value.to_string())
            }
            Err(_) => Body::from(bytes),
        },
        BadAnswer::InternalError => Body::from(bytes),
    };
    Response::from_parts(parts, bad_answer)
}

fn swap_types(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let members = object.iter_mut().filter(|(name, _)| !name.starts_with("@odata."));
            members.for_each(|(_, value)| swap_types(value));
        }
        Value::Array(array) => array.iter_mut().for_each(swap_types),
        Value::String(text) => *value = Value::Number(Number::from(text.len())),
        Value::Number(number) => *value = json!(number.to_string()),
        Value::Bool(_) | Value::Null => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_survive_swapped_types() {
        let mut value =
            json!({"@odata.id": "/redfish/v1", "Count": 3, "Members": [{"@odata.id": "/x", "Name": "four"}]});
        swap_types(&mut value);
        assert_eq!(
            value,
            json!({"@odata.id": "/redfish/v1", "Count": "3", "Members": [{"@odata.id": "/x", "Name": 4}]})
        );
    }
}
