//! The boot script, fetched and read as iPXE does: what counts of it is the kernel's command line.

use super::BootError;
use crate::fleet::faults::Lost;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rackwright_agent::cmdline::{self, Settings};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use tokio::net::TcpSocket;

/// How long a script may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest script, in bytes.
const LONGEST: usize = 64 << 10;

/// Asked for each fetch, by the path: what of it and its answer is lost.
pub(super) type Loss<'a> = &'a (dyn Fn(&str) -> Option<Lost> + Sync);

/// Fetches a script by plain HTTP, coming from the machine's own address.
///
/// # Errors
/// [`BootError::Script`]
pub(super) async fn fetch(url: &str, from: Ipv4Addr, loss: Loss<'_>) -> Result<String, BootError> {
    let failed = |why: String| BootError::Script {
        // Behind the question mark is the token.
        url: url.split('?').next().unwrap_or_default().to_owned(),
        why,
    };
    let fetched = tokio::time::timeout(PATIENCE, get(url, from, loss)).await;
    fetched
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
        .map_err(failed)
}

async fn get(url: &str, from: Ipv4Addr, loss: Loss<'_>) -> Result<String, String> {
    let uri: Uri = url.parse().map_err(|error| format!("not a URL: {error}"))?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
    let server: Ipv4Addr = host
        .and_then(|host| host.parse().ok())
        .ok_or("only http:// URLs with a numeric IPv4 address are fetched")?;
    let lost = loss(uri.path());
    if lost == Some(Lost::Request) {
        return Err("the connection broke off before the server was asked".to_owned());
    }
    let port = uri.port_u16().unwrap_or(80);
    let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
    let here = SocketAddr::from((from, 0));
    socket
        .bind(here)
        .map_err(|error| format!("the machine's address {from} cannot be used: {error}"))?;
    let there = SocketAddr::V4(SocketAddrV4::new(server, port));
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
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok::<_, String>((status, String::from_utf8_lossy(&body).into_owned()))
    };
    // The connection moves only while it is waited for. It ends with the answer, and if it breaks, the answer says so.
    let (answer, _) = tokio::join!(answer, connection);
    let (status, body) = answer?;
    if lost == Some(Lost::Answer) {
        return Err("the connection broke off before the answer came".to_owned());
    }
    if status != StatusCode::OK {
        return Err(format!("the server answered {status}: {}", body.trim()));
    }
    Ok(body)
}

/// Reads the agent's settings from the kernel line of a script.
///
/// # Errors
/// [`BootError::NoKernel`], [`BootError::Cmdline`].
pub(super) fn settings(script: &str, address: Ipv4Addr) -> Result<Settings, BootError> {
    let line = script.lines().find_map(|line| line.strip_prefix("kernel "));
    let line = line.and_then(|line| line.split(" || ").next());
    let (_, arguments) = line.and_then(|line| line.split_once(' ')).ok_or(BootError::NoKernel)?;
    // What iPXE fills in where another server gave the address.
    let arguments = arguments.replace("${netX/ip}", &address.to_string());
    let arguments = arguments.replace("${netX/netmask}", "").replace("${netX/gateway}", "");
    Ok(cmdline::parse(&arguments)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 9);

    fn script(kernel: &str) -> String {
        format!("#!ipxe\n:retry\nimgfree\n{kernel}\ninitrd http://127.0.0.1/initrd || goto again\nboot || goto again\n")
    }

    #[test]
    fn the_command_line_is_that_of_the_kernel() {
        let ca = "a".repeat(64);
        let least = format!("rackwright.server=https://127.0.0.1:7070 rackwright.token=s3 rackwright.ca=sha256:{ca}");
        let line = format!(
            "kernel http://127.0.0.1/k {least} rackwright.ip=${{netX/ip}} rackwright.gw=${{netX/gateway}} initrd=initrd || goto again"
        );
        let read = settings(&script(&line), ADDRESS).unwrap();
        assert_eq!(read.endpoints[0].server, "https://127.0.0.1:7070");
        assert_eq!(
            read.addressing.map(|addressing| addressing.address),
            Some(ADDRESS.into())
        );
        assert!(matches!(settings(&script(""), ADDRESS), Err(BootError::NoKernel)));
        let bare = settings(&script("kernel http://127.0.0.1/k quiet || goto again"), ADDRESS);
        assert!(matches!(bare, Err(BootError::Cmdline(_))));
    }

    async fn answered(answer: &'static str) -> (Result<String, BootError>, SocketAddr) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/boot?token=s3cret", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, from) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            from
        };
        tokio::join!(fetch(&url, ADDRESS, &|_| None), serve)
    }

    #[tokio::test]
    async fn a_script_is_fetched_from_the_machines_own_address() {
        let (script, from) = answered("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n#!ipxe").await;
        assert_eq!((script.unwrap().as_str(), from.ip()), ("#!ipxe", ADDRESS.into()));
        let (refused, _) = answered("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nused").await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("403 Forbidden: used") && !refused.contains("s3cret"),
            "{refused}"
        );
        let (broken, _) = answered("").await;
        assert!(broken.is_err());
    }
}
