//! The upload of a firmware file: streamed, never whole in memory, with a known length. Web servers of BMCs often do
//! not support chunked bodies.

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame, SizeHint};
use serde_json::Value;
use tokio::fs::File;
use tokio::io::{AsyncRead as _, ReadBuf};
use url::Url;

/// Bytes per read of the file.
const PIECE: usize = 64 << 10;
/// Time limit of an upload in addition to the time for its size.
const BASE: Duration = Duration::from_secs(300);
/// Slowest rate of an upload: BMCs write to flash meanwhile, over USB 1 at worst.
const SLOWEST_BYTES_S: u64 = 50_000;
/// Boundary of a multipart body: a file contains it only by intent, and then the BMC refuses the upload.
const BOUNDARY: &str = "rackwright-9f2c1d7be04a4c0f8a6d35e17b90c2aa";

/// A file to upload, and the body before and after it.
#[derive(Debug, Clone)]
pub struct Upload {
    pub method: Method,
    pub url: Url,
    pub content_type: String,
    pub if_match: Option<String>,
    file: PathBuf,
    file_bytes: u64,
    before: Bytes,
    after: Bytes,
}

impl Upload {
    /// An upload of the bare file.
    pub fn bare(url: Url, file: PathBuf, file_bytes: u64) -> Self {
        Self {
            method: Method::POST,
            url,
            content_type: "application/octet-stream".to_owned(),
            if_match: None,
            file,
            file_bytes,
            before: Bytes::new(),
            after: Bytes::new(),
        }
    }

    /// A multipart body (RFC 7578): the parameters, the vendor's parameters if there are any, then the file.
    pub fn multipart(
        url: Url,
        file: PathBuf,
        file_bytes: u64,
        parameters: &Value,
        oem: Option<&Value>,
        name: &str,
    ) -> Self {
        let mut before = String::new();
        let parts = [("UpdateParameters", Some(parameters)), ("OemParameters", oem)];
        for (part, value) in parts {
            if let Some(value) = value {
                before.push_str(&format!(
                    "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{part}\"\r\n\
                     Content-Type: application/json\r\n\r\n{value}\r\n"
                ));
            }
        }
        before.push_str(&format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"UpdateFile\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        ));
        Self {
            content_type: format!("multipart/form-data; boundary={BOUNDARY}"),
            before: before.into(),
            after: format!("\r\n--{BOUNDARY}--\r\n").into(),
            ..Self::bare(url, file, file_bytes)
        }
    }

    /// Bytes of the whole body.
    pub(crate) fn length(&self) -> u64 {
        self.file_bytes + self.before.len() as u64 + self.after.len() as u64
    }

    /// The time limit of the upload.
    pub(crate) fn limit(&self) -> Duration {
        BASE + Duration::from_secs(self.length() / SLOWEST_BYTES_S)
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> String {
        self.file.display().to_string()
    }

    /// Opens the file anew: each attempt sends it from its beginning.
    pub(crate) async fn open(&self) -> std::io::Result<Streamed> {
        let file = File::open(&self.file).await?;
        let found = file.metadata().await?.len();
        if found != self.file_bytes {
            let why = format!("the file has {found} bytes, expected {}", self.file_bytes);
            return Err(std::io::Error::other(why));
        }
        Ok(Streamed {
            before: self.before.clone(),
            after: self.after.clone(),
            file,
            left: self.file_bytes,
            buffer: vec![0; PIECE],
        })
    }
}

/// The body as a stream.
pub(crate) struct Streamed {
    before: Bytes,
    after: Bytes,
    file: File,
    /// Bytes of the file that are still to be sent.
    left: u64,
    buffer: Vec<u8>,
}

impl Streamed {
    fn poll_file(&mut self, context: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let most = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
        let mut into = ReadBuf::new(&mut self.buffer[..most]);
        Poll::Ready(Some(
            match ready!(Pin::new(&mut self.file).poll_read(context, &mut into)) {
                Err(fault) => Err(fault),
                Ok(()) if into.filled().is_empty() => Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(()) => {
                    let piece = Bytes::copy_from_slice(into.filled());
                    self.left -= piece.len() as u64;
                    Ok(Frame::data(piece))
                }
            },
        ))
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if !self.before.is_empty() {
            let before = std::mem::take(&mut self.before);
            return Poll::Ready(Some(Ok(Frame::data(before))));
        }
        if self.left > 0 {
            return self.poll_file(context);
        }
        if self.after.is_empty() {
            return Poll::Ready(None);
        }
        let after = std::mem::take(&mut self.after);
        Poll::Ready(Some(Ok(Frame::data(after))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left + self.before.len() as u64 + self.after.len() as u64)
    }
}
