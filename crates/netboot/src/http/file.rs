//! Files over HTTP: complete or one range (RFC 9110, section 14), with HEAD, always with a length.

use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::http::response::Builder;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, SeekFrom, Take};
use tokio_stream::Stream;
use tokio_util::io::ReaderStream;

use crate::directory::Stage;
use crate::mac::Mac;
use crate::service::Shared;

/// Bytes per read.
const CHUNK: usize = 256 << 10;

/// The requested part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// First byte and number of bytes, within the file.
    Range(u64, u64),
    Unsatisfiable,
}

/// Answers a request for the file at `path`. Records `seen` at the end of the body.
pub(super) async fn serve_file(
    shared: Arc<Shared>,
    path: &Path,
    name: &str,
    seen: (Option<Mac>, Stage, IpAddr),
    method: &Method,
    headers: &HeaderMap,
) -> Response {
    let opened = async {
        let file = File::open(path).await?;
        let size = file.metadata().await?.len();
        std::io::Result::Ok((file, size))
    };
    let (mut file, size) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return read_failure(path, &error),
    };
    let (response, from, length) = match begin(headers, size) {
        Ok(begun) => begun,
        Err(response) => return *response,
    };
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        if let Err(error) = file.seek(SeekFrom::Start(from)).await {
            return read_failure(path, &error);
        }
        let stream = ReaderStream::with_capacity(file.take(length), CHUNK);
        let name = name.to_owned();
        Body::from_stream(TransferStream {
            stream,
            sent: 0,
            length,
            began: Instant::now(),
            name,
            seen,
            shared,
        })
    };
    let response = response.header(header::CONTENT_LENGTH, length).body(body);
    response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// Answers a request for `bytes`.
pub(super) fn serve_bytes(bytes: Vec<u8>, method: &Method, headers: &HeaderMap) -> Response {
    let (response, from, length) = match begin(headers, bytes.len() as u64) {
        Ok(begun) => begun,
        Err(response) => return *response,
    };
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        // Both numbers lie within `bytes`, so the conversions are exact.
        let bytes = bytes.into_iter().skip(from as usize).take(length as usize);
        Body::from(bytes.collect::<Vec<u8>>())
    };
    let response = response.header(header::CONTENT_LENGTH, length).body(body);
    response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// Returns the response head, the first byte and the length of the requested part; otherwise the complete error response.
fn begin(headers: &HeaderMap, size: u64) -> Result<(Builder, u64, u64), Box<Response>> {
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::ACCEPT_RANGES, "bytes");
    match range.map_or(Part::Whole, |range| part(range, size)) {
        Part::Whole => Ok((response.status(StatusCode::OK), 0, size)),
        Part::Range(from, length) => {
            let range = format!("bytes {from}-{}/{size}", from + length - 1);
            let response = response.status(StatusCode::PARTIAL_CONTENT);
            Ok((response.header(header::CONTENT_RANGE, range), from, length))
        }
        Part::Unsatisfiable => {
            let headers = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            Err(Box::new((StatusCode::RANGE_NOT_SATISFIABLE, headers).into_response()))
        }
    }
}

fn read_failure(path: &Path, error: &std::io::Error) -> Response {
    tracing::error!(path = %path.display(), %error, "a boot file cannot be read");
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "the file cannot be read on the server\n",
    )
        .into_response()
}

/// Reads a `Range` header. Anything but one plain byte range is ignored, as the standard allows.
fn part(range: &str, size: u64) -> Part {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Part::Whole;
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), _) if last.is_empty() && first < size => Part::Range(first, size - first),
        (Ok(first), Ok(last)) if first <= last && first < size => Part::Range(first, last.min(size - 1) - first + 1),
        (Ok(first), Ok(last)) if first > last => Part::Whole,
        (Ok(_), _) if last.is_empty() || last.parse::<u64>().is_ok() => Part::Unsatisfiable,
        (Err(_), Ok(0)) if first.is_empty() => Part::Unsatisfiable,
        (Err(_), Ok(_)) if first.is_empty() && size == 0 => Part::Unsatisfiable,
        (Err(_), Ok(suffix)) if first.is_empty() => Part::Range(size - suffix.min(size), suffix.min(size)),
        _ => Part::Whole,
    }
}

/// A body that records the number of sent bytes when it ends, also after an error.
struct TransferStream {
    stream: ReaderStream<Take<File>>,
    sent: u64,
    length: u64,
    began: Instant,
    name: String,
    seen: (Option<Mac>, Stage, IpAddr),
    shared: Arc<Shared>,
}

impl Stream for TransferStream {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut self.stream).poll_next(cx);
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            self.sent += bytes.len() as u64;
        }
        polled
    }
}

impl Drop for TransferStream {
    fn drop(&mut self) {
        let (mac, stage, remote) = self.seen;
        let seconds = self.began.elapsed().as_secs_f64();
        let (name, sent, length) = (&self.name, self.sent, self.length);
        self.shared.counters.http_bytes_total.add(sent);
        let detail = if sent == length {
            format!("{name} by HTTP: {sent} bytes in {seconds:.2} s")
        } else {
            format!("{name} by HTTP: interrupted after {sent} of {length} bytes and {seconds:.2} s")
        };
        self.shared.record(mac, stage, detail, remote);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (range, expected) in [
            ("bytes=0-0", Part::Range(0, 1)),
            ("bytes=2-", Part::Range(2, 8)),
            ("bytes=2-99", Part::Range(2, 8)),
            ("bytes=-3", Part::Range(7, 3)),
            ("bytes=-99", Part::Range(0, 10)),
            ("bytes=10-", Part::Unsatisfiable),
            ("bytes=10-12", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=5-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=x-", Part::Whole),
            ("items=0-1", Part::Whole),
            ("bytes=18446744073709551616-", Part::Whole),
        ] {
            assert_eq!(part(range, 10), expected, "{range}");
        }
        assert_eq!(part("bytes=-1", 0), Part::Unsatisfiable);
    }
}
