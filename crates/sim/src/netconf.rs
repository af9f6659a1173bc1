//! A simulated Ethernet switch with NETCONF over SSH (RFC 6241, RFC 6242) and the OpenConfig models of VLANs, with faults.
//!
//! It answers the requests of a port driver, and reports the state of its ports beside their configuration. The driver
//! itself is tested against a real NETCONF server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{HashAlg, PrivateKey, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey, run_stream,
};
use russh::{Channel, ChannelId};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::switch::AnswerMode;

/// The control plane's user on the switch.
pub const USER: &str = "rackwright";
/// Maximum size of a request in bytes.
const REQUEST_BYTES: usize = 1 << 20;
const BASE: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";

#[derive(Debug, Clone)]
struct Port {
    vlan: u16,
    description: String,
}

#[derive(Debug, Default)]
struct Inner {
    ports: BTreeMap<String, Port>,
    /// The changes that a commit will make.
    candidate: Vec<(String, Port)>,
    /// Each change of a port's VLAN, oldest first.
    history: Vec<(String, u16)>,
    answers: AnswerMode,
}

/// A switch that runs until it is dropped.
#[derive(Debug)]
pub struct NetconfSwitch {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
    host_key: PublicKey,
    login: PrivateKey,
    serving: JoinHandle<()>,
}

impl Drop for NetconfSwitch {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl NetconfSwitch {
    /// Starts a switch on the loopback interface with these ports, each in VLAN 1.
    ///
    /// # Errors
    /// The socket could not be opened, or the keys could not be made.
    pub async fn start(ports: impl IntoIterator<Item = String>) -> io::Result<Self> {
        let (own, other, login) = (key()?, key()?, key()?);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let description = String::new();
        let port = Port { vlan: 1, description };
        let inner = Arc::new(Mutex::new(Inner {
            ports: ports.into_iter().map(|name| (name, port.clone())).collect(),
            ..Inner::default()
        }));
        let (host_key, client) = (own.public_key().clone(), login.public_key().clone());
        let (own, other) = (Arc::new(config(own)), Arc::new(config(other)));
        let shared = inner.clone();
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let config = match lock(&shared).answers {
                    AnswerMode::OtherHost => other.clone(),
                    _ => own.clone(),
                };
                let client = Client {
                    inner: shared.clone(),
                    key: client.clone(),
                    input: Vec::new(),
                    is_greeted: false,
                };
                connections.spawn(async move {
                    if let Ok(session) = run_stream(config, stream, client).await {
                        // A client that breaks off is not an error here.
                        let _: Result<(), russh::Error> = session.await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            inner,
            address,
            host_key,
            login,
            serving,
        })
    }

    /// Its management address, in the form for settings.
    #[must_use]
    pub fn address(&self) -> String {
        format!("ssh://{}", self.address)
    }

    /// SHA-256 of its host key, in the form for settings.
    #[must_use]
    pub fn host_key_sha256(&self) -> String {
        self.host_key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The private key of [`USER`], in OpenSSH's format.
    ///
    /// # Errors
    /// The key could not be encoded.
    pub fn login_key(&self) -> io::Result<String> {
        let text = self.login.to_openssh(LineEnding::LF).map_err(io::Error::other)?;
        Ok(text.to_string())
    }

    /// The VLAN of a port; none if there is no such port.
    #[must_use]
    pub fn vlan(&self, port: &str) -> Option<u16> {
        lock(&self.inner).ports.get(port).map(|port| port.vlan)
    }

    /// The VLANs that a port was moved to, oldest first.
    #[must_use]
    pub fn history(&self, port: &str) -> Vec<u16> {
        let inner = lock(&self.inner);
        let of_port = inner.history.iter().filter(|(moved, _)| moved == port);
        of_port.map(|(_, vlan)| *vlan).collect()
    }

    /// Sets the behaviour.
    pub fn answer(&self, answers: AnswerMode) {
        lock(&self.inner).answers = answers;
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key() -> io::Result<PrivateKey> {
    let mut seed = [0; 32];
    rackwright_agent::random::fill(&mut seed)?;
    let pair = KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed));
    PrivateKey::new(pair, "simulated").map_err(io::Error::other)
}

fn config(key: PrivateKey) -> Config {
    Config {
        // Russh delays refused clients by a second, as a defence against guessing.
        auth_rejection_time: Duration::ZERO,
        keys: vec![key],
        ..Config::default()
    }
}

/// A connection.
struct Client {
    inner: Arc<Mutex<Inner>>,
    key: PublicKey,
    input: Vec<u8>,
    is_greeted: bool,
}

impl Client {
    fn judge(&self, user: &str, key: &PublicKey) -> Auth {
        match user == USER && key.key_data() == self.key.key_data() {
            true => Auth::Accept,
            false => Auth::reject(),
        }
    }

    /// The next message of the client: the first ends with a mark, the others are in chunks.
    fn next(&mut self) -> Option<String> {
        let end: &[u8] = if self.is_greeted { b"\n##\n" } else { b"]]>]]>" };
        let at = self.input.windows(end.len()).position(|bytes| bytes == end)?;
        let message: Vec<u8> = self.input.drain(..at + end.len()).collect();
        Some(String::from_utf8_lossy(&message).into_owned())
    }
}

impl Handler for Client {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        Ok(self.judge(user, offer.public_key))
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        Ok(self.judge(user, key.public_key))
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if name != "netconf" {
            return session.channel_failure(channel);
        }
        session.channel_success(channel)?;
        let answers = lock(&self.inner).answers;
        let capability = |name: &str| format!("<capability>urn:ietf:params:netconf:{name}</capability>");
        let list = ["base:1.0", "base:1.1", "capability:candidate:1.0"]
            .map(capability)
            .concat();
        match answers {
            AnswerMode::None => Ok(()),
            AnswerMode::Noise => session.data(channel, &b"% Invalid input\r\n]]>]]>"[..]),
            AnswerMode::Good | AnswerMode::OtherHost => session.data(
                channel,
                format!(
                    "<hello xmlns=\"{BASE}\"><capabilities>{list}</capabilities><session-id>1</session-id></hello>]]>]]>"
                ),
            ),
        }
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        self.input.extend_from_slice(data);
        if self.input.len() > REQUEST_BYTES {
            return session.close(channel);
        }
        while let Some(message) = self.next() {
            if !self.is_greeted {
                self.is_greeted = true;
                continue;
            }
            if lock(&self.inner).answers == AnswerMode::None {
                return Ok(());
            }
            let id = between(&message, "message-id=\"", "\"").unwrap_or_default();
            let content = answer(&mut lock(&self.inner), &message);
            let reply = format!("<rpc-reply xmlns=\"{BASE}\" message-id=\"{id}\">{content}</rpc-reply>");
            session.data(channel, format!("\n#{}\n{reply}\n##\n", reply.len()))?;
            if message.contains("<close-session/>") {
                session.eof(channel)?;
                session.close(channel)?;
            }
        }
        Ok(())
    }
}

fn answer(inner: &mut Inner, request: &str) -> String {
    if request.contains("<get>") {
        return format!("<data>{}</data>", data(inner));
    }
    if request.contains("<edit-config>") {
        for text in request.split("<interface>").skip(1) {
            let leaf = |name: &str| between(text, &format!("<{name}>"), &format!("</{name}>"));
            let vlan = leaf("access-vlan").and_then(|vlan| vlan.parse().ok());
            if let (Some(name), Some(vlan)) = (leaf("name"), vlan) {
                let description = leaf("description").unwrap_or_default().to_owned();
                inner.candidate.push((name.to_owned(), Port { vlan, description }));
            }
        }
    } else if request.contains("<discard-changes/>") {
        inner.candidate.clear();
    } else if request.contains("<commit/>") {
        for (name, port) in std::mem::take(&mut inner.candidate) {
            let before = inner.ports.insert(name.clone(), port.clone());
            if before.is_none_or(|before| before.vlan != port.vlan) {
                inner.history.push((name, port.vlan));
            }
        }
    }
    "<ok/>".to_owned()
}

fn data(inner: &Inner) -> String {
    let mut text = "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\">".to_owned();
    for (name, Port { vlan, description }) in &inner.ports {
        let leaves = format!("<interface-mode>ACCESS</interface-mode><access-vlan>{vlan}</access-vlan>");
        let _: Result<(), _> = write!(
            text,
            "<interface><name>{name}</name><config><name>{name}</name><description>{description}</description></config>\
             <ethernet xmlns=\"http://openconfig.net/yang/interfaces/ethernet\"><switched-vlan \
             xmlns=\"http://openconfig.net/yang/vlan\"><config>{leaves}</config><state>{leaves}</state></switched-vlan>\
             </ethernet></interface>"
        );
    }
    text + "</interfaces>"
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(found, _)| found)
}
