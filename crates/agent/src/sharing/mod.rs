//! The agent's part in the fan-out of an image between agents: it serves the chunks that it has, and asks other agents for
//! the rest.
//!
//! | module | content |
//! |---|---|
//! | `order` | the check of what the job says about peers |
//! | `names` | messages of the claim stream, with numbers in place of nodes |
//! | `claims` | the claim stream to the control plane, with its reconnections |
//! | `download` | one write with peers, and the rest from the image servers if the control plane stays away |
//!
//! [`Sharing`] lives as long as the agent. A write puts its server and its claim stream there; they go on after the write,
//! until the next job, for at most [`rackwright_fanout::LONGEST_LINGER`].

mod claims;
mod download;
mod names;
mod order;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_api::v1::Peers;
use rackwright_fanout::LONGEST_LINGER;
use rackwright_identity::{ClientTrust, ServerCertificate, TlsError};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;
use tokio::task::JoinSet;

use crate::host::Host;
use crate::jobs::writer::Credentials;

pub(crate) use download::{Image, Shared, begin};
pub use order::NoPeers;

/// What a job needs to write its image with the help of other agents.
#[derive(Clone)]
pub struct PeerSetup {
    /// What the control plane says about it.
    pub order: Peers,
    /// The job's operation.
    pub operation: String,
    /// The machine, for its address and its memory.
    pub host: Arc<dyn Host>,
    /// Where server and claim stream go on after the write.
    pub sharing: Arc<Sharing>,
}

impl fmt::Debug for PeerSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSetup")
            .field("operation", &self.operation)
            .field("port", &self.order.port)
            .finish_non_exhaustive()
    }
}

/// What the agent serves to other agents now, and how it reaches the control plane for it.
#[derive(Default)]
pub struct Sharing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The control plane's URLs, the one of the present stream first.
    servers: Vec<String>,
    credentials: Option<Credentials>,
    serving: Option<Serving>,
    /// Tasks that were stopped. Their listener may still be open.
    ending: Vec<JoinSet<()>>,
    /// Number of the last image that was served.
    turn: Turn,
}

/// The number of an image that the agent serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn(u64);

/// The certificate that the agent shows to other agents, and the authorities of theirs.
#[derive(Clone)]
struct PeerTls {
    own: Arc<ServerCertificate>,
    trust: Arc<ClientTrust>,
}

struct Serving {
    tls: PeerTls,
    tasks: JoinSet<()>,
}

impl PeerTls {
    fn new(credentials: &Credentials) -> Result<Self, TlsError> {
        let key = credentials.key_pem.expose_secret().as_bytes();
        Ok(Self {
            own: ServerCertificate::of_pem(credentials.certificate_pem.as_bytes(), key)?,
            trust: ClientTrust::new(&authorities(credentials)?)?,
        })
    }

    fn renew(&self, credentials: &Credentials) -> Result<(), TlsError> {
        let key = credentials.key_pem.expose_secret().as_bytes();
        self.own.replace_by_pem(credentials.certificate_pem.as_bytes(), key)?;
        self.trust.replace(&authorities(credentials)?)
    }
}

fn authorities(credentials: &Credentials) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(credentials.ca_pem.as_bytes());
    Ok(found.collect::<Result<_, _>>()?)
}

impl Sharing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the control plane's URLs for claim streams from now on, the first one to try first.
    pub fn set_servers(&self, servers: Vec<String>) {
        self.state().servers = servers;
    }

    /// Shows the new certificate to the control plane and to other agents from now on.
    pub fn set_credentials(&self, credentials: Credentials) {
        let mut state = self.state();
        if let Some(serving) = &state.serving
            && let Err(error) = serving.tls.renew(&credentials)
        {
            tracing::warn!(%error, "other agents still see the former certificate");
        }
        state.credentials = Some(credentials);
    }

    /// The control plane's URLs and the agent's credentials.
    fn link(&self) -> (Vec<String>, Option<Credentials>) {
        let state = self.state();
        (state.servers.clone(), state.credentials.clone())
    }

    /// The number of the next image, whose tasks [`Self::serve`] gets.
    fn next_turn(&self) -> Turn {
        let mut state = self.state();
        state.turn.0 += 1;
        state.turn
    }

    /// Keeps the tasks that serve an image.
    fn serve(&self, turn: Turn, tls: PeerTls, mut tasks: JoinSet<()>) {
        let mut state = self.state();
        state.stop();
        if state.turn == turn {
            // The certificate may have been renewed since the caller read it.
            if let Some(Err(error)) = state.credentials.as_ref().map(|credentials| tls.renew(credentials)) {
                tracing::warn!(%error, "other agents still see the former certificate");
            }
            state.serving = Some(Serving { tls, tasks });
        } else {
            tasks.abort_all();
            state.ending.push(tasks);
        }
    }

    /// Stops serving: other agents get nothing more, and the memory of the chunks comes free.
    pub fn end(&self) {
        let mut state = self.state();
        state.turn.0 += 1;
        state.stop();
    }

    /// Like [`Self::end`], unless another image is served by now.
    fn end_turn(&self, turn: Turn) {
        let mut state = self.state();
        if state.turn == turn {
            state.stop();
        }
    }

    /// Goes on serving for other agents that write the image, for at most [`LONGEST_LINGER`].
    pub fn linger(self: &Arc<Self>) {
        let state = self.state();
        if state.serving.is_none() {
            return;
        }
        let (sharing, turn) = (Arc::downgrade(self), state.turn);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(LONGEST_LINGER.as_micros())).await;
            if let Some(sharing) = sharing.upgrade() {
                sharing.end_turn(turn);
            }
        });
    }

    /// Whether the agent serves an image now.
    pub fn is_serving(&self) -> bool {
        self.state().serving.is_some()
    }

    /// Waits until the listener of the image that was served before is closed.
    async fn wait_for_end(&self) {
        let ending = std::mem::take(&mut self.state().ending);
        for mut tasks in ending {
            tasks.shutdown().await;
        }
    }
}

impl State {
    fn stop(&mut self) {
        if let Some(mut serving) = self.serving.take() {
            serving.tasks.abort_all();
            self.ending.push(serving.tasks);
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use secrecy::SecretString;

    use super::*;

    fn tls() -> PeerTls {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        PeerTls::new(&Credentials {
            ca_pem: certificate.pem(),
            certificate_pem: certificate.pem(),
            key_pem: SecretString::from(key.serialize_pem()),
        })
        .unwrap()
    }

    fn serve(sharing: &Sharing) -> Turn {
        let turn = sharing.next_turn();
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        sharing.serve(turn, tls(), tasks);
        turn
    }

    #[tokio::test(start_paused = true)]
    async fn serving_ends_after_its_time_and_a_later_image_is_served_on() {
        let minute = Duration::from_micros(LONGEST_LINGER.as_micros());
        let sharing = Arc::new(Sharing::default());
        serve(&sharing);
        sharing.linger();
        tokio::time::sleep(minute / 2).await;
        assert!(sharing.is_serving());
        tokio::time::sleep(minute).await;
        assert!(!sharing.is_serving());

        serve(&sharing);
        sharing.linger();
        sharing.end();
        let later = serve(&sharing);
        tokio::time::sleep(minute * 2).await;
        assert!(sharing.is_serving(), "the former time is not that of this image");
        sharing.end_turn(later);
        assert!(!sharing.is_serving());
        sharing.wait_for_end().await;
    }

    #[tokio::test]
    async fn an_image_that_begins_while_the_agent_ends_is_not_served() {
        let sharing = Sharing::default();
        let turn = sharing.next_turn();
        sharing.end();
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        sharing.serve(turn, tls(), tasks);
        assert!(!sharing.is_serving());
        sharing.wait_for_end().await;
    }
}
