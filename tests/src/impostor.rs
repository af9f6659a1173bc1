//! An attacker on the boot network without any credential: it uses DHCP, fetches boot scripts, registers and connects, all
//! over real sockets and under any MAC address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_api::v1::agent_service_client::AgentServiceClient;
use rackwright_api::v1::control_message::Message as Down;
use rackwright_identity::ClientKey;
use rackwright_sim::fleet::{Attester as _, SimTpm};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Status, Streaming};

use crate::bridge_host::ip;
use crate::neighbour::mac_bytes;

/// The address of its relay on the loopback interface, in the subnet of simulated machines; answers are sent to it.
const RELAY: Ipv4Addr = Ipv4Addr::new(127, 191, 0, 9);
/// The ports of DHCP servers, and of clients without a relay.
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// Flag of a DHCP client that wants its answers by broadcast.
const BROADCAST: u8 = 0x80;
/// Time limit of a DHCP answer.
const WAIT_LIMIT: Duration = Duration::from_secs(2);
/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(30);
/// Fixed part of a DHCP message with its magic cookie.
const HEADER: usize = 240;
const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;

/// A DHCP lease.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The leased address.
    pub address: Ipv4Addr,
    server: Ipv4Addr,
    /// The boot file: iPXE gets the URL of a script.
    pub boot_file: Option<String>,
}

#[derive(Debug)]
pub struct Host {
    socket: UdpSocket,
    server: SocketAddrV4,
    mac: [u8; 6],
    /// The relay between host and server.
    relay: Option<Ipv4Addr>,
    /// The interface that takes the leased address; none: the host has every address already.
    interface: Option<String>,
}

/// The values in the kernel line of a boot script.
#[derive(Debug, Clone)]
pub struct Plan {
    server: String,
    token: String,
    ca_url: String,
    mac: String,
    /// The address from which the plan was fetched.
    pub address: Ipv4Addr,
}

/// A key and a boot id for a registration.
#[derive(Debug)]
pub struct Key {
    pair: rcgen::KeyPair,
    boot_id: String,
}

impl Key {
    /// A new key, and the id of a kernel's boot.
    ///
    /// # Panics
    /// If no key can be made.
    #[must_use]
    pub fn new(boot_id: &str) -> Self {
        Self {
            pair: rcgen::KeyPair::generate().expect("a key can be made"),
            boot_id: boot_id.to_owned(),
        }
    }

    /// The digest to which a quote is bound.
    ///
    /// # Panics
    /// If the key signs nothing.
    #[must_use]
    pub fn sha256(&self) -> String {
        let key = ClientKey::of_request(&self.request()).expect("it is a request");
        key.sha256().to_owned()
    }

    fn request(&self) -> String {
        let request = rcgen::CertificateParams::default().serialize_request(&self.pair);
        request.expect("it is signed").pem().expect("it is PEM")
    }
}

/// A holder of an agent's certificate.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
    /// The certificate authority of the site.
    pub ca_pem: String,
    boot_id: String,
    mac: String,
    server: String,
    address: Ipv4Addr,
}

/// An accepted stream.
#[derive(Debug)]
pub struct Session {
    up: mpsc::Sender<v1::AgentMessage>,
    down: Streaming<v1::ControlMessage>,
}

impl Host {
    /// A host on the loopback interface, behind a relay, that poses under that MAC address.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn with_mac(server: SocketAddrV4, mac: &str) -> Self {
        Self {
            socket: UdpSocket::bind((RELAY, 0)).await.expect("a port is free"),
            server,
            mac: mac_bytes(mac),
            relay: Some(RELAY),
            interface: None,
        }
    }

    /// A host on the same link as the server, with an interface that has this MAC address. The interface also takes the
    /// leased address.
    ///
    /// # Panics
    /// If the interface cannot be used.
    pub async fn on_the_link(interface: &str, mac: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, CLIENT_PORT)).await;
        let socket = socket.expect("the port of DHCP clients is free");
        socket
            .bind_device(Some(interface.as_bytes()))
            .expect("the interface is there");
        socket.set_broadcast(true).expect("broadcasts are allowed");
        Self {
            socket,
            server: SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER_PORT),
            mac: mac_bytes(mac),
            relay: None,
            interface: Some(interface.to_owned()),
        }
    }

    fn message(&self, kind: u8, offer: Option<&Lease>) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&[1, 1, 6, u8::from(self.relay.is_some())]);
        bytes[4..8].copy_from_slice(&[0, 0, 0, kind]);
        match self.relay {
            Some(relay) => bytes[24..28].copy_from_slice(&relay.octets()),
            None => bytes[10] = BROADCAST,
        }
        bytes[28..34].copy_from_slice(&self.mac);
        bytes[236..HEADER].copy_from_slice(&[99, 130, 83, 99]);
        let mut add = |code: u8, data: &[u8]| {
            bytes.extend([code, u8::try_from(data.len()).expect("an option is short")]);
            bytes.extend_from_slice(data);
        };
        add(53, &[kind]);
        if let Some(offer) = offer {
            add(50, &offer.address.octets());
            add(54, &offer.server.octets());
        }
        add(60, b"PXEClient:Arch:00007:UNDI:003010");
        add(77, b"iPXE");
        add(93, &[0, 7]);
        if self.relay.is_some() {
            // Answer to the source port of this message (RFC 8357).
            add(82, &[19, 0]);
        }
        bytes.push(255);
        bytes
    }

    async fn exchange(&self, kind: u8, offer: Option<&Lease>) -> Option<Lease> {
        let message = self.message(kind, offer);
        self.socket.send_to(&message, self.server).await.expect("it is sent");
        let mut packet = vec![0; 4096];
        let answered = async {
            loop {
                let (length, _) = self.socket.recv_from(&mut packet).await.expect("an answer");
                // On a link, each host hears the answers to the others.
                if length > HEADER && packet[4..8] == message[4..8] && packet[28..34] == self.mac {
                    return length;
                }
            }
        };
        let length = tokio::time::timeout(WAIT_LIMIT, answered).await.ok()?;
        let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).map(Ipv4Addr::from);
        let mut lease = Lease {
            address: address(16).expect("four bytes"),
            server: Ipv4Addr::UNSPECIFIED,
            boot_file: None,
        };
        let mut rest = &packet[HEADER..length];
        while let [code, size, tail @ ..] = rest {
            let (data, next) = tail.split_at_checked(usize::from(*size))?;
            match *code {
                54 => lease.server = <[u8; 4]>::try_from(data).ok()?.into(),
                67 => lease.boot_file = String::from_utf8(data.to_vec()).ok(),
                _ => {}
            }
            rest = next;
        }
        Some(lease)
    }

    /// Requests an offer.
    ///
    /// # Panics
    /// If nothing can be sent.
    pub async fn discover(&self) -> Option<Lease> {
        self.exchange(DISCOVER, None).await
    }

    /// Asks a PXE boot server what to boot; the answer gives no address.
    ///
    /// # Panics
    /// If nothing can be sent.
    pub async fn ask_boot_server(&self) -> Option<Lease> {
        self.exchange(REQUEST, None).await
    }

    /// Requests a lease as iPXE does.
    ///
    /// # Panics
    /// If nothing can be sent, or the interface does not take the address.
    pub async fn lease(&self) -> Option<Lease> {
        let offer = self.discover().await?;
        let lease = self.exchange(REQUEST, Some(&offer)).await?;
        if let Some(interface) = &self.interface {
            ip(&format!("addr replace {}/24 dev {interface}", lease.address));
        }
        Some(lease)
    }

    /// Requests a lease and fetches the boot script from the leased address; none: there was nothing to boot.
    ///
    /// # Panics
    /// As [`Host::lease`], and if the boot server does not answer.
    pub async fn plan(&self) -> Option<Plan> {
        let lease = self.lease().await?;
        self.plan_at(&lease.boot_file?, lease.address).await
    }

    /// Fetches a boot script from an address.
    ///
    /// # Panics
    /// If the boot server does not answer.
    pub async fn plan_at(&self, url: &str, address: Ipv4Addr) -> Option<Plan> {
        let script = get(url, address).await?;
        let word = |key: &str| {
            let begin = script.find(&format!(" {key}="))? + key.len() + 2;
            let words: &str = &script[begin..];
            words.split_whitespace().next().map(str::to_owned)
        };
        let list = |key: &str| Some(word(key)?.split(',').next()?.to_owned());
        Some(Plan {
            server: list("rackwright.server")?,
            token: word("rackwright.token")?,
            ca_url: list("rackwright.caurl")?,
            mac: word("rackwright.mac")?,
            address,
        })
    }

    /// Repeats until there is a plan.
    ///
    /// # Panics
    /// If there is none within `limit`.
    pub async fn plan_as_soon_as_possible(&self, limit: Duration) -> Plan {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            if let Some(plan) = self.plan().await {
                return plan;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "there was nothing to boot for {limit:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The body of the answer to a GET from an address; none if the status is not 200.
///
/// # Panics
/// If the server does not answer.
pub async fn get(url: &str, from: Ipv4Addr) -> Option<String> {
    let rest = url.strip_prefix("http://").expect("plain HTTP");
    let (place, path) = rest.split_at(rest.find('/').expect("a path"));
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((from, 0))).expect("a loopback address");
    let mut stream = socket
        .connect(place.parse().expect("an address"))
        .await
        .expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("it answers");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| body.to_owned())
}

/// Connects; a connection that a busy listener closes is tried again.
async fn client(server: &str, tls: ClientTlsConfig, from: Ipv4Addr) -> AgentServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(server.to_owned())
        .expect("a URL")
        .local_address(Some(IpAddr::V4(from)));
    let endpoint = endpoint.tls_config(tls).expect("PEM");
    let deadline = tokio::time::Instant::now() + CONNECT;
    let channel = loop {
        let error = match endpoint.connect().await {
            Ok(channel) => break channel,
            Err(error) => error,
        };
        assert!(tokio::time::Instant::now() < deadline, "no connection: {error:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    AgentServiceClient::new(channel).max_decoding_message_size(32 << 20)
}

impl Plan {
    /// Registers with the plan's token from an address.
    ///
    /// # Errors
    /// The refusal of the control plane.
    ///
    /// # Panics
    /// If the control plane does not answer.
    pub async fn register_from(&self, key: &Key, from: Ipv4Addr) -> Result<Agent, Status> {
        let ca_pem = get(&self.ca_url, from).await.expect("the CA is public");
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&ca_pem));
        let request = v1::RegisterRequest {
            token: self.token.clone(),
            csr_pem: key.request(),
            mac: self.mac.clone(),
            boot_id: key.boot_id.clone(),
            ..v1::RegisterRequest::default()
        };
        let answer = client(&self.server, tls, from)
            .await
            .register(request)
            .await?
            .into_inner();
        Ok(Agent {
            certificate_pem: answer.certificate_pem,
            key_pem: key.pair.serialize_pem(),
            ca_pem,
            boot_id: key.boot_id.clone(),
            mac: self.mac.clone(),
            server: self.server.clone(),
            address: from,
        })
    }

    /// Registers from the address that fetched the plan.
    ///
    /// # Errors
    /// The refusal of the control plane.
    ///
    /// # Panics
    /// If the control plane does not answer.
    pub async fn register(&self, key: &Key) -> Result<Agent, Status> {
        self.register_from(key, self.address).await
    }
}

impl Agent {
    /// The same agent on a host with another address.
    #[must_use]
    pub fn at(&self, address: Ipv4Addr) -> Self {
        Self {
            address,
            ..self.clone()
        }
    }

    /// Connects with the certificate, and claims an address.
    ///
    /// # Errors
    /// The refusal of the control plane.
    ///
    /// # Panics
    /// If the control plane does not answer.
    pub async fn connect(&self, claimed_address: &str) -> Result<Session, Status> {
        self.send_hello(claimed_address, None).await
    }

    /// Connects with the certificate and shows the keys of a TPM.
    ///
    /// # Errors
    /// The refusal of the control plane.
    ///
    /// # Panics
    /// If the control plane does not answer.
    pub async fn connect_with(&self, tpm: &SimTpm) -> Result<Session, Status> {
        self.send_hello("10.66.6.6", Some(tpm.keys())).await
    }

    async fn send_hello(&self, claimed_address: &str, tpm: Option<v1::TpmKeys>) -> Result<Session, Status> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.ca_pem))
            .identity(Identity::from_pem(&self.certificate_pem, &self.key_pem));
        let mut client = client(&self.server, tls, self.address).await;
        let (up, messages) = mpsc::channel(16);
        let hello = v1::Hello {
            boot_id: self.boot_id.clone(),
            address: claimed_address.to_owned(),
            mac: self.mac.clone(),
            tpm,
            ..v1::Hello::default()
        };
        let message = Some(Up::Hello(hello));
        up.send(v1::AgentMessage { message }).await.expect("there is room");
        let down = client.connect(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Session { up, down })
    }
}

impl Session {
    /// Sends a message of an agent.
    pub async fn send_message(&self, message: Up) {
        // The other side may have ended the stream.
        let _ = self.up.send(v1::AgentMessage { message: Some(message) }).await;
    }

    /// Answers the challenge with a TPM. Returns the end of the stream; no other message may come before.
    ///
    /// # Panics
    /// If another message comes, or the stream does not end within `limit`.
    pub async fn answer_with(&mut self, tpm: &SimTpm, key_sha256: &str, limit: Duration) -> Status {
        self.answer_by(|challenge| tpm.answer(challenge, key_sha256), limit)
            .await
    }

    /// Answers the challenge with any attestation.
    ///
    /// # Panics
    /// If another message comes, or the stream does not end within `limit`.
    pub async fn answer_by(&mut self, answer: impl Fn(&v1::Challenge) -> v1::Attestation, limit: Duration) -> Status {
        let ended = async {
            loop {
                match self.down.message().await {
                    Ok(Some(v1::ControlMessage {
                        message: Some(Down::Challenge(challenge)),
                    })) => self.send_message(Up::Attestation(answer(&challenge))).await,
                    Ok(other) => panic!("the stream ends with a refusal, not with {other:?}"),
                    Err(status) => return status,
                }
            }
        };
        tokio::time::timeout(limit, ended)
            .await
            .expect("the session ends in time")
    }

    /// The job that arrives before the end of the stream; none if it ends without one.
    ///
    /// # Panics
    /// If neither happens within `limit`.
    pub async fn job_before_the_end(&mut self, limit: Duration) -> Option<v1::Job> {
        let heard = async {
            loop {
                tokio::select! {
                    message = self.down.message() => match message {
                        Ok(Some(v1::ControlMessage { message: Some(Down::Job(job)) })) => return Some(job),
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => return None,
                    },
                    () = tokio::time::sleep(Duration::from_secs(1)) => {
                        let heartbeat = v1::Heartbeat { uptime_s: 1.0 };
                        self.send_now(Up::Heartbeat(heartbeat));
                    }
                }
            }
        };
        tokio::time::timeout(limit, heard)
            .await
            .expect("the session ends in time")
    }

    fn send_now(&self, message: Up) {
        let _ = self.up.try_send(v1::AgentMessage { message: Some(message) });
    }
}
