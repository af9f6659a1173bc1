//! Fetches by plain HTTP from the machine's own address, as firmware and iPXE do.

use super::BootError;
use crate::fleet::faults::Lost;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use tokio::net::TcpSocket;

/// Time limit of a script.
const WAIT_LIMIT: Duration = Duration::from_secs(15);
/// Time limit of a file.
const FILE_WAIT_LIMIT: Duration = Duration::from_secs(600);
/// Largest medium, in bytes.
const MEDIUM_LONGEST: u64 = 16 << 30;
/// Longest script, in bytes.
const LONGEST: usize = 64 << 10;

/// Called with the path of each fetch: the lost part of the exchange.
pub(super) type Loss<'a> = &'a (dyn Fn(&str) -> Option<Lost> + Sync);

/// Fetches a text.
///
/// # Errors
/// [`BootError::Fetch`]
pub(super) async fn text(url: &str, from: Ipv4Addr, loss: Loss<'_>) -> Result<String, BootError> {
    let read = async |response: Response<Incoming>| {
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    within(url, WAIT_LIMIT, get(url, from, loss, read)).await
}

/// Fetches a file and discards the data; returns its length in bytes, which is the announced one.
///
/// # Errors
/// [`BootError::Fetch`]
pub(super) async fn discard(url: &str, from: Ipv4Addr, loss: Loss<'_>) -> Result<u64, BootError> {
    let read = async |response: Response<Incoming>| {
        let announced = response.headers().get(header::CONTENT_LENGTH);
        let announced: Option<u64> = announced.and_then(|length| length.to_str().ok()?.parse().ok());
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            length += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        match announced {
            Some(announced) if announced == length => Ok(length),
            _ => Err(format!("received {length} bytes, expected {announced:?}")),
        }
    };
    within(url, FILE_WAIT_LIMIT, get(url, from, loss, read)).await
}

/// Fetches a medium as a BMC does, and returns at most `length` bytes from `place` on.
///
/// # Errors
/// A sentence for the BMC's client.
pub(in crate::fleet) async fn part(url: &str, from: Ipv4Addr, place: u64, length: usize) -> Result<Vec<u8>, String> {
    let read = async |response: Response<Incoming>| {
        let mut body = response.into_body();
        let (mut at, mut part) = (0_u64, Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            // The part before the place, and the rest.
            let skip = usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX);
            let rest = length - part.len();
            part.extend(data.iter().skip(skip).take(rest));
            at += data.len() as u64;
            if at > MEDIUM_LONGEST {
                return Err(format!("the image is larger than {MEDIUM_LONGEST} bytes"));
            }
        }
        Ok(part)
    };
    let fetched = tokio::time::timeout(WAIT_LIMIT, get(url, from, &|_| None, read)).await;
    fetched.unwrap_or_else(|_| Err(format!("no answer within {} s", WAIT_LIMIT.as_secs())))
}

async fn within<T>(url: &str, limit: Duration, fetch: impl Future<Output = Result<T, String>>) -> Result<T, BootError> {
    let fetched = tokio::time::timeout(limit, fetch).await;
    let fetched = fetched.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())));
    fetched.map_err(|why| BootError::Fetch {
        // The query holds the token.
        what: url.split('?').next().unwrap_or_default().to_owned(),
        why,
    })
}

async fn get<T>(
    url: &str,
    from: Ipv4Addr,
    loss: Loss<'_>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, String>,
) -> Result<T, String> {
    let uri: Uri = url.parse().map_err(|error| format!("not a URL: {error}"))?;
    let lost = loss(uri.path());
    if lost == Some(Lost::Request) {
        return Err("the connection broke before the request was sent".to_owned());
    }
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
    let server: Ipv4Addr = host
        .and_then(|host| host.parse().ok())
        .ok_or("only http:// URLs with a numeric IPv4 address are supported")?;
    let there = SocketAddr::V4(SocketAddrV4::new(server, uri.port_u16().unwrap_or(80)));
    let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
    socket
        .bind(SocketAddr::from((from, 0)))
        .map_err(|error| format!("the machine's address {from} cannot be used: {error}"))?;
    let stream = socket.connect(there).await.map_err(|error| error.to_string())?;
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(text)?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::get(target)
        .header(header::HOST, there.to_string())
        .header(header::CONNECTION, "close")
        .header(header::USER_AGENT, "iPXE/1.21.1")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(text)?;
        let status = response.status();
        if status == StatusCode::OK {
            return read(response).await;
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Err(format!(
            "the server answered {status}: {}",
            String::from_utf8_lossy(&body).trim()
        ))
    };
    // The connection is polled only together with the answer. It ends with the answer; if it breaks, the answer reports so.
    let (answer, _) = tokio::join!(answer, connection);
    if lost == Some(Lost::Answer) {
        return Err("the connection broke before the answer arrived".to_owned());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 9);

    /// Answers one request; returns its source address.
    async fn answer(listener: TcpListener, answer: &str) -> SocketAddr {
        let (mut stream, from) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        from
    }

    async fn server() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/boot?token=s3cret", listener.local_addr().unwrap());
        (listener, url)
    }

    async fn answered(with: &str, lost: Option<Lost>) -> (Result<String, BootError>, SocketAddr) {
        let (listener, url) = server().await;
        let loss = |_: &str| lost;
        tokio::join!(text(&url, ADDRESS, &loss), answer(listener, with))
    }

    #[tokio::test]
    async fn a_text_is_fetched_by_the_machines_own_address() {
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n#!ipxe";
        let (script, from) = answered(whole, None).await;
        assert_eq!((script.unwrap().as_str(), from.ip()), ("#!ipxe", ADDRESS.into()));
        let (refused, _) = answered("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nused", None).await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("403 Forbidden: used") && !refused.contains("s3cret"),
            "{refused}"
        );
        assert!(answered("", None).await.0.is_err());
        assert!(answered(whole, Some(Lost::Answer)).await.0.is_err());
    }

    #[tokio::test]
    async fn a_file_has_the_length_that_was_announced() {
        for (with, length) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nkernel", Some(6)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nkernel", None),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nkernel", None),
        ] {
            let (listener, url) = server().await;
            let loss = |_: &str| None;
            let (fetched, _) = tokio::join!(discard(&url, ADDRESS, &loss), answer(listener, with));
            assert_eq!(fetched.ok(), length, "{with}");
        }
    }
}
