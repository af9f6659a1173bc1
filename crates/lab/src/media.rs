//! Fetches virtual media images by plain HTTP, with limits on size and time.

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::path::Path;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Longest pause in the transfer.
const STALL_DEADLINE: Duration = Duration::from_secs(30);

/// Downloads `url` to `path`. Errors are sentences for the client; after an error the file may be incomplete.
pub(super) async fn fetch(url: &str, path: &Path, limit_bytes: u64) -> Result<u64, String> {
    let uri: Uri = url.parse().map_err(|error| format!("not a URL: {error}"))?;
    if uri.scheme_str() != Some("http") {
        return Err("only the HTTP transfer protocol is supported".to_owned());
    }
    let host = uri.host().ok_or("the URL names no host")?;
    let body = tokio::time::timeout(CONNECT_DEADLINE, request(&uri, host))
        .await
        .map_err(|_| "no answer in time")??;
    store(body, path, limit_bytes).await
}

async fn request(uri: &Uri, host: &str) -> Result<Incoming, String> {
    let text = |error: hyper::Error| error.to_string();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port))
        .await
        .map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(text)?;
    tokio::spawn(connection);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::get(target)
        .header(header::HOST, format!("{host}:{port}"))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(text)?;
    if response.status() != StatusCode::OK {
        return Err(format!("the server answered {}", response.status()));
    }
    Ok(response.into_body())
}

async fn store(mut body: Incoming, path: &Path, limit_bytes: u64) -> Result<u64, String> {
    let mut file = File::create(path).await.map_err(|error| error.to_string())?;
    let mut written = 0_u64;
    loop {
        let frame = tokio::time::timeout(STALL_DEADLINE, body.frame())
            .await
            .map_err(|_| "the transfer stalled")?;
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else {
            continue;
        };
        written += data.len() as u64;
        if written > limit_bytes {
            return Err(format!("the image is larger than {limit_bytes} bytes"));
        }
        file.write_all(&data).await.map_err(|error| error.to_string())?;
    }
    file.flush().await.map_err(|error| error.to_string())?;
    if written == 0 {
        Err("the image is empty".to_owned())
    } else {
        Ok(written)
    }
}
