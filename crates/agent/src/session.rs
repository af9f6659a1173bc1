//! The stream to the control plane. It sends hello, inventory, heartbeats and job reports, and receives jobs.

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
use crate::jobs::runner::JobRunner;
use crate::jobs::writer::Credentials;
use crate::medium::BootSecretStore;
use crate::net::neighbours::NeighbourReport;
use crate::tpm::Attester;

/// Maximum number of messages waiting for the network; beyond it the stream counts as stuck.
const QUEUE: usize = 16;
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time limit for queueing a message, and for the server's first answer.
const STUCK_TIME: Duration = Duration::from_secs(30);
/// A dead server is detected within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Large, because a job contains its seed.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// Why a stream ended. The agent then reconnects.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The connection failed.
    #[error("connecting to {server}: {}", crate::jobs::writer::with_causes(.source))]
    Connect {
        /// URL of the control plane.
        server: String,
        /// The transport's error.
        source: tonic::transport::Error,
    },
    /// The control plane refused or ended the stream.
    #[error("the control plane answered {:?}: {}", .0.code(), .0.message())]
    Status(Box<tonic::Status>),
    /// The control plane ended the stream without an error.
    #[error("the control plane closed the stream")]
    Closed,
    /// The control plane neither receives nor sends.
    #[error("the connection to the control plane was stuck for {STUCK_TIME:?}")]
    Stuck,
}

impl From<tonic::Status> for SessionError {
    fn from(status: tonic::Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// Connects from the host over TLS. Trusts only the CA in `ca_pem`; uses the credentials if present.
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
    // An IPv6 address has brackets in the URL, but not in the certificate.
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

/// The parts of the agent that a stream needs.
pub struct Session<'a> {
    /// The running and completed jobs.
    pub runner: &'a Arc<JobRunner>,
    /// Source of the uptime in heartbeats.
    pub host: &'a Arc<dyn Host>,
    /// The hello without jobs and generation; each connection fills those in.
    pub hello: &'a Hello,
    /// Sent on each stream: an earlier stream may have ended before it arrived.
    pub inventory: &'a Inventory,
    /// Answers challenges; `None` without a TPM.
    pub attester: Option<&'a Arc<dyn Attester>>,
    /// Holds the boot secret from the machine's BMC.
    pub secret: &'a BootSecretStore,
    /// SHA-256 of the key in the stream's connection.
    pub key_sha256: &'a str,
    /// Interval between heartbeats.
    pub heartbeat: Duration,
    /// Neighbours heard by the Ethernet cards.
    pub neighbours: &'a watch::Receiver<NeighbourReport>,
}

/// Waits for new results of the cards. Waits for ever once the listener has ended.
async fn next_neighbours(neighbours: &mut watch::Receiver<NeighbourReport>) -> Neighbours {
    while neighbours.changed().await.is_ok() {
        if let Some(current) = &*neighbours.borrow_and_update() {
            return current.clone();
        }
    }
    std::future::pending().await
}

impl Session<'_> {
    /// Runs a stream until it ends. Calls `on_ready` when the control plane has accepted the stream, and `on_renewed` for
    /// each new certificate.
    ///
    /// # Errors
    /// Always returned: the reason for the end.
    pub async fn run(
        &self,
        mut client: AgentServiceClient<Channel>,
        on_ready: impl FnOnce() + Send,
        mut on_renewed: impl FnMut(RegisterResponse) + Send,
    ) -> Result<std::convert::Infallible, SessionError> {
        let (up, queue) = mpsc::channel(QUEUE);
        let (jobs, claim_generation) = self.runner.snapshot();
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
        self.runner.sent();
        on_ready();
        let mut heartbeats = interval(self.heartbeat);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut neighbours = self.neighbours.clone();
        // Each stream starts with the earlier results.
        neighbours.mark_changed();
        loop {
            tokio::select! {
                message = down.message() => match message?.ok_or(SessionError::Closed)? {
                    ControlMessage { message: Some(Down::Challenge(challenge)) } => {
                        // A TPM and a medium take seconds. Without heartbeats meanwhile, the control plane would consider
                        // the agent lost.
                        let mut attesting = pin!(self.attest(challenge));
                        let answer = loop {
                            tokio::select! {
                                answer = &mut attesting => break answer,
                                _ = heartbeats.tick() => self.send(&up, self.heartbeat_now()).await?,
                            }
                        };
                        self.send(&up, Up::Attestation(answer)).await?;
                    }
                    ControlMessage { message: Some(message) } => self.handle(message, &mut on_renewed),
                    ControlMessage { message: None } => tracing::warn!("ignored an unknown message of the control plane"),
                },
                () = self.runner.changed() => {
                    for report in self.runner.take() {
                        self.send(&up, Up::Job(report)).await?;
                    }
                    self.runner.sent();
                }
                current = next_neighbours(&mut neighbours) => self.send(&up, Up::Neighbours(current)).await?,
                _ = heartbeats.tick() => self.send(&up, self.heartbeat_now()).await?,
            }
        }
    }

    fn heartbeat_now(&self) -> Up {
        Up::Heartbeat(Heartbeat {
            uptime_s: self.host.uptime_s(),
        })
    }

    fn handle(&self, message: Down, on_renewed: &mut (impl FnMut(RegisterResponse) + Send)) {
        match message {
            Down::Job(job) => self.runner.submit(job),
            Down::Cancel(cancel) => self.runner.cancel(&cancel),
            Down::Renewed(renewed) => on_renewed(renewed),
            // Handled in `run`, which can send the answer.
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
                tracing::error!("the boot secret from the BMC's medium cannot be proven: {fault}");
                (Vec::new(), fault)
            }
        };
        Attestation {
            bmc_proof,
            bmc_fault,
            ..answer
        }
    }

    /// Queues a message. Reports that are lost here are in the next stream's hello.
    async fn send(&self, up: &mpsc::Sender<AgentMessage>, message: Up) -> Result<(), SessionError> {
        let sent = timeout(STUCK_TIME, up.send(AgentMessage { message: Some(message) })).await;
        sent.map_err(|_| SessionError::Stuck)?.map_err(|_| SessionError::Closed)
    }
}
