//! A simulated Ethernet switch: the OVSDB server of an Open vSwitch by TLS, with access ports and faults.
//!
//! It answers the requests of a port driver (RFC 7047, schema `Open_vSwitch`): readings, changes of ports, waits. The
//! driver itself is tested against a real Open vSwitch.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The name of its bridge.
pub const BRIDGE: &str = "br0";

/// The behaviour of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerMode {
    /// Correct answers.
    #[default]
    Good,
    /// No answers.
    None,
    /// Data that is not a message.
    Noise,
    /// Correct answers, with the certificate of another host.
    OtherHost,
}

#[derive(Debug, Default)]
struct Inner {
    /// The columns of each port's row.
    ports: BTreeMap<String, Map<String, Value>>,
    /// Ports that ignore changes.
    kept: BTreeSet<String>,
    /// Each change of a port's VLAN, oldest first.
    history: Vec<(String, u16)>,
    answers: AnswerMode,
    config: i64,
}

/// A switch that runs until it is dropped.
#[derive(Debug)]
pub struct Switch {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
    certificate: [u8; 32],
    serving: JoinHandle<()>,
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Switch {
    /// Starts a switch on the loopback interface with these ports, each in VLAN 1.
    ///
    /// # Errors
    /// The socket could not be opened, or the certificates could not be made.
    pub async fn start(ports: impl IntoIterator<Item = String>) -> io::Result<Self> {
        let ((own, certificate), (other, _)) = (secured()?, secured()?);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let inner = Arc::new(Mutex::new(Inner::default()));
        for port in ports {
            let row = row_of(&port);
            lock(&inner).ports.insert(port, row);
        }
        let shared = inner.clone();
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let inner = shared.clone();
                let acceptor = match lock(&inner).answers {
                    AnswerMode::OtherHost => other.clone(),
                    _ => own.clone(),
                };
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, &inner).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            inner,
            address,
            certificate,
            serving,
        })
    }

    /// Its management address, in the form for settings.
    #[must_use]
    pub fn address(&self) -> String {
        format!("ssl:{}", self.address)
    }

    /// SHA-256 of its certificate, in the form for settings.
    #[must_use]
    pub fn certificate_sha256(&self) -> String {
        self.certificate.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The VLAN of a port, and whether the port is isolated; none if there is no such port.
    #[must_use]
    pub fn port(&self, port: &str) -> Option<(u16, bool)> {
        let inner = lock(&self.inner);
        let row = inner.ports.get(port)?;
        Some((vlan_of(row)?, row.get("protected")?.as_bool()?))
    }

    /// Moves a port to a VLAN without the driver.
    pub fn set_vlan(&self, port: &str, vlan: u16) {
        if let Some(row) = lock(&self.inner).ports.get_mut(port) {
            row.insert("tag".into(), vlan.into());
        }
    }

    /// With `true` the port accepts every change and ignores it; with `false` it makes changes again.
    pub fn keep(&self, port: &str, kept: bool) {
        let kept_ports = &mut lock(&self.inner).kept;
        match kept {
            true => kept_ports.insert(port.to_owned()),
            false => kept_ports.remove(port),
        };
    }

    /// Sets the behaviour.
    pub fn answer(&self, answers: AnswerMode) {
        lock(&self.inner).answers = answers;
    }

    /// The VLANs that a port was moved to, oldest first.
    #[must_use]
    pub fn history(&self, port: &str) -> Vec<u16> {
        let inner = lock(&self.inner);
        let of_port = inner.history.iter().filter(|(moved, _)| moved == port);
        of_port.map(|(_, vlan)| *vlan).collect()
    }
}

/// An acceptor with a new certificate, and the certificate's SHA-256.
fn secured() -> io::Result<(TlsAcceptor, [u8; 32])> {
    let made = rcgen::generate_simple_self_signed([BRIDGE.to_owned()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, made.cert.der()).as_ref());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    Ok((TlsAcceptor::from(Arc::new(config.map_err(io::Error::other)?)), digest))
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

fn vlan_of(row: &Map<String, Value>) -> Option<u16> {
    u16::try_from(row.get("tag")?.as_u64()?).ok()
}

fn row_of(port: &str) -> Map<String, Value> {
    let row = json!({
        "_uuid": id_of(port), "name": port, "tag": 1, "trunks": ["set", []], "cvlans": ["set", []],
        "vlan_mode": "access", "protected": false, "external_ids": ["map", []],
    });
    match row {
        Value::Object(row) => row,
        _ => Map::new(),
    }
}

fn id_of(port: &str) -> Value {
    json!(["uuid", port])
}

async fn serve(mut stream: TlsStream<TcpStream>, inner: &Mutex<Inner>) {
    let mut buffer = Vec::new();
    while let Some(request) = receive(&mut stream, &mut buffer).await {
        let answers = lock(inner).answers;
        let answer = match answers {
            AnswerMode::Good | AnswerMode::OtherHost => answer(&mut lock(inner), &request).to_string(),
            AnswerMode::None => return std::future::pending().await,
            AnswerMode::Noise => "SSH-2.0-OpenSSH\r\n".to_owned(),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

async fn receive(stream: &mut TlsStream<TcpStream>, buffer: &mut Vec<u8>) -> Option<Value> {
    loop {
        let mut messages = serde_json::Deserializer::from_slice(buffer).into_iter();
        if let Some(Ok(message)) = messages.next() {
            let end = messages.byte_offset();
            buffer.drain(..end);
            return Some(message);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Carries out a transaction completely or not at all.
fn answer(inner: &mut Inner, request: &Value) -> Value {
    let operations = request["params"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut next = Inner {
        ports: inner.ports.clone(),
        kept: inner.kept.clone(),
        history: inner.history.clone(),
        ..*inner
    };
    let mut results = Vec::new();
    let mut is_done = true;
    for operation in operations.iter().skip(1) {
        let result = carry_out(&mut next, operation);
        is_done = result.get("error").is_none();
        results.push(result);
        if !is_done {
            break;
        }
    }
    if is_done {
        *inner = next;
    }
    json!({"id": request["id"], "result": results, "error": null})
}

fn carry_out(inner: &mut Inner, operation: &Value) -> Value {
    let word = |field: &str| operation[field].as_str().unwrap_or_default();
    match (word("op"), word("table")) {
        ("select", "Bridge") => {
            let ports: Vec<Value> = inner.ports.keys().map(|port| id_of(port)).collect();
            json!({"rows": [{"ports": ["set", ports]}]})
        }
        ("select", "Port") => json!({"rows": inner.ports.values().collect::<Vec<_>>()}),
        ("select", _) => json!({"rows": [{"cur_cfg": inner.config, "next_cfg": inner.config}]}),
        ("wait", "Port") => {
            let wanted = &operation["rows"][0];
            let is_so = addressed(inner, operation).is_some_and(|(_, row)| {
                let columns = operation["columns"].as_array().map(Vec::as_slice).unwrap_or_default();
                let mut columns = columns.iter().filter_map(Value::as_str);
                columns.all(|column| row.get(column) == wanted.get(column))
            });
            match is_so {
                true => json!({}),
                false => json!({"error": "timed out", "details": "\"where\" clause test failed"}),
            }
        }
        ("update", "Port") => {
            let changes = operation["row"].as_object().cloned().unwrap_or_default();
            let Some((port, row)) = addressed(inner, operation) else {
                return json!({"count": 0});
            };
            let before = vlan_of(&row);
            if !inner.kept.contains(&port)
                && let Some(row) = inner.ports.get_mut(&port)
            {
                row.extend(changes);
                if let Some(vlan) = vlan_of(row).filter(|vlan| Some(*vlan) != before) {
                    inner.history.push((port, vlan));
                }
            }
            json!({"count": 1})
        }
        ("mutate", _) => {
            inner.config += 1;
            json!({"count": 1})
        }
        _ => json!({}),
    }
}

/// The port of an operation.
fn addressed(inner: &Inner, operation: &Value) -> Option<(String, Map<String, Value>)> {
    let port = operation["where"][0][2][1].as_str()?;
    Some((port.to_owned(), inner.ports.get(port)?.clone()))
}
