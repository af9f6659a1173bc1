//! The agent's part in the fan-out of an image: the agent serves the chunks that it has to other agents, and asks them for
//! the chunks that it lacks.
//!
//! | module | content |
//! |---|---|
//! | `order` | the check of the job's message `Peers` |
//! | `names` | messages of the claim stream, with numbers in place of nodes |
//! | `claims` | the claim stream: chunk claims to the control plane, and its grants; with reconnections |
//! | `download` | one write with peers; if the control plane stays away, the rest comes from the image servers |
//!
//! [`Sharing`] lives as long as the agent. It holds the server and the claim stream of the last write. Both continue after
//! the write, until the next job, for at most [`rackwright_fanout::LONGEST_LINGER`].

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
    /// The job's message about peers, not checked yet.
    pub peers: Peers,
    /// The job's operation.
    pub operation: String,
    /// The machine: its address and the size of its memory.
    pub host: Arc<dyn Host>,
    /// Holds the server and the claim stream after the write.
    pub sharing: Arc<Sharing>,
}

impl fmt::Debug for PeerSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSetup")
            .field("operation", &self.operation)
            .field("port", &self.peers.port)
            .finish_non_exhaustive()
    }
}

/// The image that the agent serves to other agents now, and its access to the control plane.
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
    /// Tasks that were told to stop. Their listener may still be open.
    ending: Vec<JoinSet<()>>,
    /// Grows with each image that begins and with each [`Sharing::end`], so that tasks of before are recognised.
    image: ImageNumber,
}

/// Counts the images that this agent serves, so that an old task cannot end the server of a newer image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageNumber(u64);

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

    /// Sets the control plane's URLs for the next claim streams, in the order in which they are tried.
    pub fn set_servers(&self, servers: Vec<String>) {
        self.state().servers = servers;
    }

    /// Replaces the certificate that the agent shows to the control plane and to other agents.
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
    fn access(&self) -> (Vec<String>, Option<Credentials>) {
        let state = self.state();
        (state.servers.clone(), state.credentials.clone())
    }

    /// Begins the next image and returns its number, for [`Self::serve`].
    fn begin_image(&self) -> ImageNumber {
        let mut state = self.state();
        state.image.0 += 1;
        state.image
    }

    /// Takes over the tasks that serve an image. Stops them if another image or the end has come in between.
    fn serve(&self, image: ImageNumber, tls: PeerTls, mut tasks: JoinSet<()>) {
        let mut state = self.state();
        state.stop();
        if state.image == image {
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

    /// Stops serving: other agents get no more chunks, and the memory of the chunks is freed.
    pub fn end(&self) {
        let mut state = self.state();
        state.image.0 += 1;
        state.stop();
    }

    /// Stops serving this image. Does nothing if another image is served now.
    fn end_image(&self, image: ImageNumber) {
        let mut state = self.state();
        if state.image == image {
            state.stop();
        }
    }

    /// Continues to serve the written image to other agents, and stops after [`LONGEST_LINGER`].
    pub fn linger(self: &Arc<Self>) {
        let state = self.state();
        if state.serving.is_none() {
            return;
        }
        let (sharing, image) = (Arc::downgrade(self), state.image);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(LONGEST_LINGER.as_micros())).await;
            if let Some(sharing) = sharing.upgrade() {
                sharing.end_image(image);
            }
        });
    }

    /// Whether the agent serves an image now.
    pub fn is_serving(&self) -> bool {
        self.state().serving.is_some()
    }

    /// Waits until the listeners of earlier images are closed.
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

    fn serve(sharing: &Sharing) -> ImageNumber {
        let image = sharing.begin_image();
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        sharing.serve(image, tls(), tasks);
        image
    }

    #[tokio::test(start_paused = true)]
    async fn serving_ends_after_its_time_and_a_later_image_is_still_served() {
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
        assert!(sharing.is_serving(), "the time of the former image ends a later one");
        sharing.end_image(later);
        assert!(!sharing.is_serving());
        sharing.wait_for_end().await;
    }

    #[tokio::test]
    async fn an_image_that_begins_while_the_agent_ends_is_not_served() {
        let sharing = Sharing::default();
        let image = sharing.begin_image();
        sharing.end();
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        sharing.serve(image, tls(), tasks);
        assert!(!sharing.is_serving());
        sharing.wait_for_end().await;
    }
}
