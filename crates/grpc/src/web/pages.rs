//! The files of the web console, and the headers of all its answers.

use rackwright_web::{File, file};
use tonic::body::Body;
use tonic::codegen::http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName,
    IF_NONE_MATCH, VARY,
};
use tonic::codegen::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

/// The page of all views: the console's program reads the path.
const INDEX: &str = "index.html";

/// Headers of every answer. Scripts, styles and calls only come from and go to this server; no other page may show these.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("strict-transport-security", "max-age=31536000"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

/// The answer with the headers of every answer. Answers without other rules are not stored by caches.
pub fn secured(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// A file of the console. A path without an extension is a view of the console's page.
pub fn page(request: &Request<Body>) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let name = request.uri().path().trim_start_matches('/');
    let is_view = !name.rsplit('/').next().unwrap_or_default().contains('.');
    let Some(file) = file(if is_view { INDEX } else { name }) else {
        return empty(StatusCode::NOT_FOUND);
    };
    let is_known = request
        .headers()
        .get(IF_NONE_MATCH)
        .is_some_and(|tag| tag == file.tag.as_str());
    let mut response = match is_known {
        true => empty(StatusCode::NOT_MODIFIED),
        false => content(file, request.headers(), request.method() == Method::HEAD),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&file.tag) {
        headers.insert(ETAG, tag);
    }
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn content(file: &'static File, wanted: &HeaderMap, is_head: bool) -> Response<Body> {
    let is_compressed = takes_gzip(wanted);
    let bytes: &'static [u8] = if is_compressed { &file.gzip } else { file.bytes };
    let body = if is_head { &[] } else { bytes };
    let mut response = Response::new(Body::new(axum::body::Body::from(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let wanted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let mut codings = wanted.unwrap_or_default().split(',');
    codings.any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && quality.trim() != "q=0"
    })
}
