//! `$expand`: an answer includes the resources to which it refers (DSP0266, "The $expand query parameter").
//!
//! One level, without references under `Links`, as the service root states.

use super::request_fault::ConnectionClosed;
use super::routes::To;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Largest answer that is expanded; our answers are far smaller.
const ANSWER_BYTES: usize = 1 << 20;
/// Most references that are expanded in one answer.
const REFERENCES: usize = 256;
/// The value of the parameter, with and without the level.
const ONE_LEVEL: [&str; 2] = [".", ".($levels=1)"];

/// The entry in the service root.
pub(super) fn supported() -> Value {
    json!({"ExpandAll": false, "Levels": true, "Links": false, "MaxLevels": 1, "NoLinks": true})
}

/// Marks a request within another one: it costs the client no exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within;

/// The request without its `$expand`, if that value is supported and is the only parameter.
fn plain(request: &Request) -> Option<Uri> {
    let query = percent_decode_str(request.uri().query()?).decode_utf8().ok()?;
    let value = query.strip_prefix("$expand=")?;
    let is_read = *request.method() == Method::GET && ONE_LEVEL.contains(&value);
    is_read.then(|| request.uri().path().parse().ok())?
}

/// Answers a request, and includes the referenced resources if the request asks for them.
pub(super) async fn answer(router: Router, mut request: Request) -> Result<Response, ConnectionClosed> {
    let Some(uri) = plain(&request) else {
        return sent(&router, request).await;
    };
    let (headers, to) = (request.headers().clone(), request.extensions().get::<To>().cloned());
    *request.uri_mut() = uri;
    let response = sent(&router, request).await?;
    if response.status() != StatusCode::OK {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let bytes = to_bytes(body, ANSWER_BYTES).await.map_err(|_| ConnectionClosed)?;
    let (Ok(mut value), Some(to)) = (serde_json::from_slice::<Value>(&bytes), to) else {
        return Ok(Response::from_parts(parts, Body::from(bytes)));
    };
    let mut places = Vec::new();
    references(&mut value, &mut places);
    for place in places.into_iter().take(REFERENCES) {
        if let Some(found) = resource(&router, &headers, &to, place).await {
            *place = found;
        }
    }
    // ETag and length were those of the answer without the included resources.
    parts.headers.remove(header::ETAG);
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(value.to_string())))
}

async fn sent(router: &Router, request: Request) -> Result<Response, ConnectionClosed> {
    match router.clone().oneshot(request).await {
        Ok(response) if response.extensions().get::<ConnectionClosed>().is_none() => Ok(response),
        Ok(_) => Err(ConnectionClosed),
        Err(never) => match never {},
    }
}

/// Objects that only hold a reference, outside `Links` and actions.
fn references<'a>(value: &'a mut Value, places: &mut Vec<&'a mut Value>) {
    if path_of(value).is_some() {
        return places.push(value);
    }
    match value {
        Value::Object(object) => {
            let rest = object.iter_mut();
            let rest = rest.filter(|(name, _)| !matches!(name.as_str(), "Links" | "Actions"));
            rest.for_each(|(_, value)| references(value, places));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| references(value, places)),
        _ => {}
    }
}

fn path_of(value: &Value) -> Option<&str> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    let path = object.get("@odata.id")?.as_str()?;
    (!path.contains('#')).then_some(path)
}

/// The resource; none: it does not exist, or the client may not read it, and the reference stays.
async fn resource(router: &Router, headers: &HeaderMap, to: &To, reference: &Value) -> Option<Value> {
    let mut request = Request::get(path_of(reference)?).body(Body::empty()).ok()?;
    *request.headers_mut() = headers.clone();
    request.extensions_mut().insert(to.clone());
    request.extensions_mut().insert(Within);
    let response = sent(router, request).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    let tag = response
        .headers()
        .get(header::ETAG)
        .and_then(|tag| tag.to_str().ok())
        .map(str::to_owned);
    let bytes = to_bytes(response.into_body(), ANSWER_BYTES).await.ok()?;
    let mut value: Value = serde_json::from_slice(&bytes).ok()?;
    if let (Some(tag), Some(object)) = (tag, value.as_object_mut()) {
        object.insert("@odata.etag".to_owned(), tag.into());
    }
    Some(value)
}
