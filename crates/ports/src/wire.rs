//! JSON-RPC over a stream, as in OVSDB (RFC 7047, section 4): requests and answers follow each other without framing.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::error::PortsError;
use crate::tls::{self, TlsSettings};

/// Maximum number of bytes that a switch may send on one connection: some 30,000 ports.
pub(crate) const ANSWER_BYTES: usize = 16 << 20;
/// Maximum number of notifications skipped while waiting for an answer.
const SKIPPED_MAX: usize = 64;
/// Maximum length of a switch's text in an error, in characters.
const WORDS_MAX: usize = 200;

/// The management address of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// `HOST:PORT`, without encryption and without a proof of either side.
    Tcp(String),
    /// `HOST:PORT`, with TLS.
    Tls(String),
}

/// The text is not a valid address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of ssl:HOST:PORT, tcp:HOST:PORT and unix:/PATH")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err(fault()),
            };
        }
        let (scheme, address) = text.split_once(':').ok_or_else(fault)?;
        match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {}
            _ => return Err(fault()),
        }
        match scheme {
            "tcp" => Ok(Self::Tcp(address.to_owned())),
            "ssl" => Ok(Self::Tls(address.to_owned())),
            _ => Err(fault()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Tls(address) => write!(f, "ssl:{address}"),
        }
    }
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to a switch.
pub(crate) struct Connection {
    switch: String,
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    received: usize,
    last_id: u64,
}

impl Connection {
    /// Connects. An address with TLS needs `secure`.
    pub(crate) async fn open(
        switch: &str,
        address: &Address,
        secure: Option<&TlsSettings>,
    ) -> Result<Self, PortsError> {
        let unreachable = |source| PortsError::Unreachable {
            switch: switch.to_owned(),
            address: address.to_string(),
            source,
        };
        let stream: Box<dyn Stream> = match address {
            Address::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(unreachable)?),
            Address::Tcp(at) => Box::new(TcpStream::connect(at).await.map_err(unreachable)?),
            Address::Tls(at) => {
                let unproven = |what| PortsError::Unproven {
                    switch: switch.to_owned(),
                    address: address.to_string(),
                    what,
                };
                let secure = secure
                    .ok_or_else(|| unproven("`certificate_sha256` of the switch is not in the settings".into()))?;
                let stream = TcpStream::connect(at).await.map_err(unreachable)?;
                let host = at.rsplit_once(':').map_or(at.as_str(), |(host, _)| host);
                Box::new(tls::connect(secure, host, stream).await.map_err(unproven)?)
            }
        };
        Ok(Self::over(switch, stream))
    }

    /// Uses an open stream.
    pub(crate) fn over(switch: &str, stream: Box<dyn Stream>) -> Self {
        Self {
            switch: switch.to_owned(),
            stream,
            buffer: Vec::new(),
            received: 0,
            last_id: 0,
        }
    }

    /// Sends operations as one transaction. Returns the result of each operation.
    pub(crate) async fn transact(&mut self, database: &str, operations: Vec<Value>) -> Result<Vec<Value>, PortsError> {
        let count = operations.len();
        let mut params = vec![Value::from(database)];
        params.extend(operations);
        let result = self.call("transact", params).await?;
        let Value::Array(results) = result else {
            return Err(self.not_understood("the result of a transaction is not a list"));
        };
        // The error of one operation is at its position. An error of the whole transaction follows the last result.
        if let Some(fault) = results.iter().find(|result| result.get("error").is_some()) {
            let word = |field| fault.get(field).and_then(Value::as_str).unwrap_or_default();
            if word("error") == "timed out" {
                return Err(PortsError::Contended {
                    switch: self.switch.clone(),
                });
            }
            return Err(PortsError::Refused {
                switch: self.switch.clone(),
                words: excerpt(&format!("{}: {}", word("error"), word("details"))),
            });
        }
        if results.len() != count {
            return Err(self.not_understood("the number of results differs from the number of operations"));
        }
        Ok(results)
    }

    async fn call(&mut self, method: &str, params: Vec<Value>) -> Result<Value, PortsError> {
        self.last_id += 1;
        let id = Value::from(self.last_id);
        self.send(&json!({"method": method, "params": params, "id": id}))
            .await?;
        for _ in 0..SKIPPED_MAX {
            let mut message = self.receive().await?;
            if message.get("method").and_then(Value::as_str) == Some("echo") {
                let answer = json!({"id": message["id"], "result": message["params"], "error": null});
                self.send(&answer).await?;
                continue;
            }
            if message.get("method").is_some() || message.get("id") != Some(&id) {
                continue;
            }
            if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
                return Err(PortsError::Refused {
                    switch: self.switch.clone(),
                    words: excerpt(&error.to_string()),
                });
            }
            return Ok(message.get_mut("result").map(Value::take).unwrap_or_default());
        }
        Err(self.not_understood("the answer to the request is missing"))
    }

    async fn send(&mut self, message: &Value) -> Result<(), PortsError> {
        let bytes = message.to_string().into_bytes();
        let sent = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|source| self.broken(source))
    }

    async fn receive(&mut self) -> Result<Value, PortsError> {
        let mut scan = Scan::default();
        loop {
            if let Some(end) = scan.end_in(&self.buffer) {
                let rest = self.buffer.split_off(end);
                let message = std::mem::replace(&mut self.buffer, rest);
                return serde_json::from_slice(&message)
                    .map_err(|error| self.not_understood(&format!("the answer is not JSON: {error}")));
            }
            if scan.is_lost {
                return Err(self.not_understood("the answer does not begin like a message"));
            }
            if self.received >= ANSWER_BYTES {
                return Err(PortsError::TooLong {
                    switch: self.switch.clone(),
                    limit: ANSWER_BYTES,
                });
            }
            let read = self.stream.read_buf(&mut self.buffer).await;
            match read.map_err(|source| self.broken(source))? {
                0 => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
                length => self.received += length,
            }
        }
    }

    fn broken(&self, source: io::Error) -> PortsError {
        PortsError::Broken {
            switch: self.switch.clone(),
            source,
        }
    }

    pub(crate) fn not_understood(&self, what: &str) -> PortsError {
        PortsError::Answer {
            switch: self.switch.clone(),
            what: excerpt(what),
        }
    }
}

/// A switch's text for an error, shortened and without control characters.
pub(crate) fn excerpt(words: &str) -> String {
    let clean = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(WORDS_MAX).collect()
}

/// Searches for the end of a message: the brace that closes the first one. Each byte is examined once.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    is_lost: bool,
}

impl Scan {
    fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(byte) = bytes.get(self.at) {
            self.at += 1;
            if self.in_text {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' => self.depth += 1,
                b'}' if self.depth == 1 => return Some(self.at),
                b'}' if self.depth > 0 => self.depth -= 1,
                b'"' if self.depth > 0 => self.in_text = true,
                _ if self.depth > 0 || byte.is_ascii_whitespace() => {}
                _ => {
                    self.is_lost = true;
                    return None;
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!("tcp:10.0.0.2:6640".parse(), Ok(Address::Tcp("10.0.0.2:6640".into())));
        assert_eq!("ssl:sw:6640".parse(), Ok(Address::Tls("sw:6640".into())));
        assert_eq!(Address::Tls("sw:6640".into()).to_string(), "ssl:sw:6640");
        assert_eq!("unix:/run/db.sock".parse(), Ok(Address::Unix("/run/db.sock".into())));
        for bad in [
            "",
            "10.0.0.2:6640",
            "tcp:",
            "tcp::6640",
            "tcp:sw:0",
            "tcp:sw",
            "unix:db.sock",
            "ssl:sw",
            "pssl:sw:6640",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_ends_with_its_own_brace() {
        let text = br#"{"a":"}\"{","b":{}}{"#;
        let mut scan = Scan::default();
        for length in 0..text.len() - 1 {
            assert_eq!(scan.end_in(&text[..length]), None);
        }
        assert_eq!(scan.end_in(text), Some(text.len() - 1));
        let mut lost = Scan::default();
        assert_eq!(lost.end_in(b"SSH-2.0"), None);
        assert!(lost.is_lost);
    }
}
