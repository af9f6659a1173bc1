//! The stream to the control plane: hello, inventory, heartbeats and job reports up, jobs down.

use std::pin::pin;
use std::time::Duration;

use rackwright_api::v1::agent_message::Message as Up;
use rackwright_api::v1::agent_service_client::AgentServiceClient;
use rackwright_api::v1::control_message::Message as Down;
use rackwright_api::v1::{
    AgentMessage, Attestation, Challenge, ControlMessage, Heartbeat, Hello, Inventory, Neighbours, RegisterResponse,
};
use secrecy::ExposeSecret as _;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity as TlsIdentity};

use crate::host::Host;
use crate::jobs::desk::Desk;
use crate::jobs::writer::Credentials;
use crate::medium::Keeper;
use crate::net::neighbours::Heard;
use crate::tpm::Attester;

/// Messages that may wait for the network; beyond, the stream counts as stuck.
const QUEUE: usize = 16;
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long a message may wait for room, and the first answer of the server.
const STUCK_TIME: Duration = Duration::from_secs(30);
/// A dead server is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// A job carries its seed.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// Why a stream ended. The agent connects again.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No connection.
    #[error("connecting to {server}: {}", crate::jobs::writer::with_causes(.source))]
    Connect {
        /// The control plane's URL.
        server: String,
        /// What failed.
        source: tonic::transport::Error,
    },
    /// The control plane refused or ended it.
    #[error("the control plane says {:?}: {}", .0.code(), .0.message())]
    Status(Box<tonic::Status>),
    /// The control plane ended it without an error.
    #[error("the control plane closed the stream")]
    Closed,
    /// It neither takes nor sends.
    #[error("the control plane did not move for {STUCK_TIME:?}")]
    Stuck,
}

impl From<tonic::Status> for SessionError {
    fn from(status: tonic::Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// Connects from the host by TLS, trusting the pinned CA only; with credentials when there are some.
///
/// # Errors
/// [`SessionError::Connect`]
pub async fn connect(
    from: &dyn Host,
    server: &str,
    ca_pem: &str,
    credentials: Option<&Credentials>,
) -> Result<AgentServiceClient<Channel>, SessionError> {
    let failed = |source| SessionError::Connect {
        server: server.to_owned(),
        source,
    };
    // An IPv6 address stands in brackets in the URL, not in the certificate.
    let name = server
        .trim_start_matches("https://")
        .rsplit_once(':')
        .map_or(server, |(host, _)| host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca_pem))
        .domain_name(name);
    if let Some(credentials) = credentials {
        tls = tls.identity(TlsIdentity::from_pem(
            &credentials.certificate_pem,
            credentials.key_pem.expose_secret(),
        ));
    }
    let endpoint = Endpoint::from_shared(server.to_owned())
        .map_err(failed)?
        .local_address(from.source_address())
        .connect_timeout(CONNECT_TIME)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .tls_config(tls)
        .map_err(failed)?;
    let channel = endpoint.connect().await.map_err(failed)?;
    Ok(AgentServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES))
}

/// What a stream needs of the agent.
pub struct Session<'a> {
    /// The jobs.
    pub desk: &'a Arc<Desk>,
    /// For the uptime in heartbeats.
    pub host: &'a Arc<dyn Host>,
    /// Without jobs and generation, which are filled in at each connection.
    pub hello: &'a Hello,
    /// Sent on each stream: the one that carried it before may have ended before it arrived.
    pub inventory: &'a Inventory,
    /// What answers challenges; none: the machine has no TPM.
    pub attester: Option<&'a Arc<dyn Attester>>,
    /// The secret that the machine's BMC brings.
    pub secret: &'a Keeper,
    /// SHA-256 of the key that the stream's connection shows.
    pub key_sha256: &'a str,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// What the Ethernet cards hear.
    pub neighbours: &'a watch::Receiver<Heard>,
}

/// What the cards hear, when that is new. Waits for ever after the listener has ended.
async fn next_heard(neighbours: &mut watch::Receiver<Heard>) -> Neighbours {
    while neighbours.changed().await.is_ok() {
        if let Some(heard) = &*neighbours.borrow_and_update() {
            return heard.clone();
        }
    }
    std::future::pending().await
}

impl Session<'_> {
    /// Runs a stream until it ends. `on_ready` is called when the control plane has accepted it, `on_renewed` with each new
    /// certificate.
    ///
    /// # Errors
    /// Always: why it ended.
    pub async fn run(
        &self,
        mut client: AgentServiceClient<Channel>,
        on_ready: impl FnOnce() + Send,
        mut on_renewed: impl FnMut(RegisterResponse) + Send,
    ) -> Result<std::convert::Infallible, SessionError> {
        let (up, queue) = mpsc::channel(QUEUE);
        let (jobs, claim_generation) = self.desk.all();
        self.send(
            &up,
            Up::Hello(Hello {
                jobs,
                claim_generation,
                ..self.hello.clone()
            }),
        )
        .await?;
        self.send(&up, Up::Inventory(self.inventory.clone())).await?;
        let answer = timeout(STUCK_TIME, client.connect(ReceiverStream::new(queue))).await;
        let mut down = answer.map_err(|_| SessionError::Stuck)??.into_inner();
        self.desk.sent();
        on_ready();
        let mut heartbeats = interval(self.heartbeat);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut neighbours = self.neighbours.clone();
        // Each stream begins with what was heard before.
        neighbours.mark_changed();
        loop {
            tokio::select! {
                message = down.message() => match message?.ok_or(SessionError::Closed)? {
                    ControlMessage { message: Some(Down::Challenge(challenge)) } => {
                        // A TPM takes seconds, and so does a medium: who says nothing meanwhile counts as gone.
                        let mut attesting = pin!(self.attest(challenge));
                        let answer = loop {
                            tokio::select! {
                                answer = &mut attesting => break answer,
                                _ = heartbeats.tick() => self.send(&up, self.heartbeat_now()).await?,
                            }
                        };
                        self.send(&up, Up::Attestation(answer)).await?;
                    }
                    ControlMessage { message: Some(message) } => self.obey(message, &mut on_renewed),
                    ControlMessage { message: None } => tracing::warn!("a message that this agent does not know was left out"),
                },
                () = self.desk.changed() => {
                    for report in self.desk.take() {
                        self.send(&up, Up::Job(report)).await?;
                    }
                    self.desk.sent();
                }
                heard = next_heard(&mut neighbours) => self.send(&up, Up::Neighbours(heard)).await?,
                _ = heartbeats.tick() => self.send(&up, self.heartbeat_now()).await?,
            }
        }
    }

    fn heartbeat_now(&self) -> Up {
        Up::Heartbeat(Heartbeat {
            uptime_s: self.host.uptime_s(),
        })
    }

    fn obey(&self, message: Down, on_renewed: &mut (impl FnMut(RegisterResponse) + Send)) {
        match message {
            Down::Job(job) => self.desk.submit(job),
            Down::Cancel(cancel) => self.desk.cancel(&cancel),
            Down::Renewed(renewed) => on_renewed(renewed),
            // Answered where the answer can be sent.
            Down::Challenge(_) => {}
        }
    }

    async fn attest(&self, challenge: Challenge) -> Attestation {
        let fault = |fault: String| Attestation {
            fault,
            ..Attestation::default()
        };
        let proof = if challenge.bmc_secret {
            self.secret.prove(self.host, &challenge, self.key_sha256).await
        } else {
            Ok(Vec::new())
        };
        let answer = if challenge.credential_blob.is_empty() {
            Attestation::default()
        } else if let Some(attester) = self.attester.map(Arc::clone) {
            let key_sha256 = self.key_sha256.to_owned();
            let answer = spawn_blocking(move || attester.answer(&challenge, &key_sha256)).await;
            answer.unwrap_or_else(|error| fault(format!("the agent failed: {error}")))
        } else {
            fault("the machine has no TPM".into())
        };
        let (bmc_proof, bmc_fault) = match proof {
            Ok(proof) => (proof, String::new()),
            Err(fault) => {
                tracing::error!("the secret of the BMC cannot be proven: {fault}");
                (Vec::new(), fault)
            }
        };
        Attestation {
            bmc_proof,
            bmc_fault,
            ..answer
        }
    }

    /// Reports that are lost here are in the hello of the next stream.
    async fn send(&self, up: &mpsc::Sender<AgentMessage>, message: Up) -> Result<(), SessionError> {
        let sent = timeout(STUCK_TIME, up.send(AgentMessage { message: Some(message) })).await;
        sent.map_err(|_| SessionError::Stuck)?.map_err(|_| SessionError::Closed)
    }
}
