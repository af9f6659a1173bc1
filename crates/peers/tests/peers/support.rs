//! A site with an authority, an image, and agents on the loopback interface.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rackwright_fanout::{Chunk, OwnJob, Span, Ticket, UploadSettings};
use rackwright_identity::{
    Authority, CertificateSigner, ClientIdentity, ClientKey, ClientTrust, ServerCertificate, SystemRng,
    peer_server_config,
};
use rackwright_image::codec::{Encoder, MAX_FRAME_BYTES};
use rackwright_image::index::CHUNK_SIZE;
use rackwright_image::{ChunkDigest, DataChunk, Format, ImageDigest, Index, Sha256};
use rackwright_peers::{
    Answer, AskError, ClientSettings, FrameCheck, FrameStore, Heard, Holdings, PeerAddress, PeerClient, PeerServer,
    ServerSettings, Serving, SignedTicket, VerifiedFrame,
};
use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub const NOW: i64 = 1_790_000_000;
pub const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any step of a test takes on a busy computer.
pub const PATIENT: Duration = Duration::from_secs(60);
/// Memory of which a quarter holds far more than the images here.
pub const MEMORY: u64 = 128 * 4 * MAX_FRAME_BYTES as u64;

pub fn soon() -> Instant {
    Instant::now() + PATIENT
}

/// Limits of a server, with time for a busy computer.
pub fn patient_server() -> ServerSettings {
    ServerSettings {
        hello: PATIENT,
        idle: PATIENT,
        answer: PATIENT,
        uploads: UploadSettings {
            slow_after: Span::seconds(PATIENT.as_secs()),
            ..UploadSettings::default()
        },
        ..ServerSettings::default()
    }
}

/// Limits of a client, with time for a busy computer.
pub fn patient_client() -> ClientSettings {
    ClientSettings {
        connect: PATIENT,
        ..ClientSettings::default()
    }
}

/// The agent of a node in its claim generation 7.
pub fn agent(node: &str) -> ClientIdentity {
    ClientIdentity::agent_of_boot(node, 7, &format!("boot-of-{node}")).unwrap()
}

/// An image with chunks of noise; the last one is shorter.
pub struct Image {
    pub index: Arc<Index>,
    pub digest: ImageDigest,
    pub chunks: Vec<Vec<u8>>,
    pub frames: Vec<Vec<u8>>,
}

impl Image {
    pub fn new(seed: u64, chunks: u32) -> Self {
        let mut source = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
        let mut noise = |bytes: usize| {
            let mut chunk = vec![0; bytes];
            source.fill(&mut chunk);
            chunk
        };
        let last = 64 << 10;
        let chunks: Vec<Vec<u8>> = (1..=chunks)
            .map(|number| noise(if number == chunks { last } else { CHUNK_SIZE }))
            .collect();
        let frames = chunks.iter().map(|chunk| pack(chunk)).collect();
        let data = chunks.iter().zip(0..).map(|(chunk, number)| DataChunk {
            number,
            digest: ChunkDigest::of(chunk),
        });
        let size = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let index = Index::new(size, Format::Raw, Sha256([0; 32]), data.collect()).unwrap();
        Self {
            digest: ImageDigest::of(&index.encode()),
            index: Arc::new(index),
            chunks,
            frames,
        }
    }

    pub fn check(&self) -> FrameCheck {
        FrameCheck::new(self.index.clone()).unwrap()
    }

    /// A store with these chunks of the image.
    pub fn store(&self, memory: u64, chunks: &[u32]) -> Arc<FrameStore> {
        let store = FrameStore::new(&self.index, memory, 4);
        for chunk in chunks {
            let frame = self.frames[*chunk as usize].clone();
            let mut data = vec![0; self.chunks[*chunk as usize].len()];
            let frame = self.check().open(Chunk(*chunk), frame, &mut data).unwrap();
            assert_eq!(store.offer(frame, |_| 0), store.limit_bytes() > 0);
        }
        Arc::new(store)
    }

    /// Opens a frame that came, and compares the chunk with the image.
    pub fn open(&self, client: &PeerClient, answer: Answer) -> Result<VerifiedFrame, AskError> {
        let Answer::Frame(frame, _) = answer else {
            panic!("no frame came: {answer:?}")
        };
        let chunk = frame.chunk();
        let mut data = vec![0; self.chunks[chunk.0 as usize].len()];
        let verified = client.open(&mut self.check(), frame, &mut data)?;
        assert!(data == self.chunks[chunk.0 as usize] && verified.chunk() == chunk);
        Ok(verified)
    }
}

pub fn pack(chunk: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Encoder::new(1).unwrap().encode(chunk, &mut frame).unwrap();
    frame
}

/// A site: its authority, the key of its tickets, its clock.
pub struct Site {
    pub authority: Authority,
    pub signer: CertificateSigner,
    pub clock: Arc<AtomicI64>,
    pub image: Image,
    pub looks: Arc<Mutex<Vec<(ClientIdentity, Holdings)>>>,
}

impl Site {
    pub fn new(chunks: u32) -> Self {
        Self {
            authority: authority(),
            signer: CertificateSigner::generate(&SystemRng).unwrap(),
            clock: Arc::new(AtomicI64::new(NOW)),
            image: Image::new(7, chunks),
            looks: Arc::default(),
        }
    }

    pub fn trust(&self) -> Arc<ClientTrust> {
        trust(&self.authority)
    }

    /// A ticket of the customer "physics" for the image, an hour long.
    pub fn ticket(&self, of: &ClientIdentity) -> Ticket {
        let (generation, boot) = match &of.kind {
            rackwright_identity::ClientKind::Agent { claim_generation, boot } => (*claim_generation, boot.clone()),
            rackwright_identity::ClientKind::Member { .. } => (7, "boot".to_owned()),
        };
        Ticket {
            image: self.image.digest.to_string(),
            customer: "customers/physics".to_owned(),
            node: of.common_name.clone(),
            generation,
            boot,
            begins: NOW,
            ends: NOW + 3600,
        }
    }

    pub fn signed(&self, ticket: &Ticket) -> SignedTicket {
        SignedTicket::sign(ticket, &self.signer).unwrap()
    }

    /// A client with a certificate and a ticket of its own, and nothing in memory.
    pub fn client(&self, of: &ClientIdentity) -> PeerClient {
        self.client_with(of, self.signed(&self.ticket(of)), patient_client())
    }

    pub fn client_with(&self, of: &ClientIdentity, ticket: SignedTicket, settings: ClientSettings) -> PeerClient {
        let own = certificate(&self.authority, of);
        PeerClient::new(own, self.trust(), ticket, self.image.store(MEMORY, &[]), settings)
    }

    pub async fn serve(&self, of: &str, store: Arc<FrameStore>, settings: ServerSettings) -> Served {
        let looks = self.looks.clone();
        let heard: Heard = Arc::new(move |agent, holdings| looks.lock().unwrap().push((agent.clone(), holdings)));
        self.serve_with(of, store, settings, heard).await
    }

    pub async fn serve_with(&self, of: &str, store: Arc<FrameStore>, settings: ServerSettings, heard: Heard) -> Served {
        let agent = agent(of);
        let clock = self.clock.clone();
        let serving = Serving {
            job: OwnJob {
                image: self.image.digest.to_string(),
                customer: "customers/physics".to_owned(),
                is_public: false,
            },
            ticket_keys: vec![self.signer.public_key()],
            store,
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            heard,
        };
        let tls = peer_server_config(certificate(&self.authority, &agent), self.trust()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let server = PeerServer::new(serving, tls, settings);
        let (running, (stop, stopped)) = (server.clone(), tokio::sync::oneshot::channel::<()>());
        let task = tokio::spawn(async move { running.run(listener, async { _ = stopped.await }).await });
        Served {
            server,
            address: address(at, &agent),
            stop: Some(stop),
            task,
        }
    }
}

pub fn address(at: SocketAddr, agent: &ClientIdentity) -> PeerAddress {
    PeerAddress {
        at,
        agent: agent.clone(),
        is_outside: false,
    }
}

/// An agent that serves.
pub struct Served {
    pub server: PeerServer,
    pub address: PeerAddress,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Served {
    pub async fn stop(mut self) {
        self.stop.take();
        self.task.await.unwrap();
    }
}

pub fn authority() -> Authority {
    Authority::create("Rackwright site", SystemTime::now(), Arc::new(SystemRng)).unwrap()
}

pub fn trust(authority: &Authority) -> Arc<ClientTrust> {
    ClientTrust::new(std::slice::from_ref(authority.ca_der())).unwrap()
}

pub fn certificate(authority: &Authority, of: &ClientIdentity) -> Arc<ServerCertificate> {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap();
    let public = ClientKey::of_request(&csr.pem().unwrap()).unwrap();
    let issued = authority.issue_client(&public, of, SystemTime::now(), HOUR).unwrap();
    ServerCertificate::of_pem(issued.certificate_pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}
