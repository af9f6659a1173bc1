//! A minimal control plane in this process: a CA, the boot server's CA file, registration and streams. Also a machine with
//! files as drives.
// Helpers of tests, not all of which every test file uses.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rackwright_agent::cmdline::{self, Settings};
use rackwright_agent::drives::file::{FileDrive, FileDrives};
use rackwright_agent::host::KernelHost;
use rackwright_agent::jobs::control::JobControl;
use rackwright_agent::jobs::job_error;
use rackwright_agent::jobs::power::{Power, PowerAction};
use rackwright_agent::jobs::writer::{ImageWriter, WriteRequest, WriteSummary};
use rackwright_agent::machine::Machine;
use rackwright_agent::root::SysRoot;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use rackwright_api::v1::control_message::Message as Down;
use rackwright_api::v1::{
    AgentMessage, ChunkMessage, ControlMessage, GrantMessage, JobError, JobReport, RegisterRequest, RegisterResponse,
};
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// Generous: the tests wait for events and never sleep for a fixed time.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);
pub const TOKEN: &str = "one-time-s3cret";
pub const NODE: &str = "nodes/gpu-001";

/// One stream of the agent, seen from the control plane.
pub struct Stream {
    pub up: Streaming<AgentMessage>,
    pub down: mpsc::Sender<Result<ControlMessage, Status>>,
    pub certificate: Vec<u8>,
}

impl Stream {
    pub async fn send(&self, message: Down) {
        self.down
            .send(Ok(ControlMessage { message: Some(message) }))
            .await
            .unwrap();
    }

    pub async fn next(&mut self) -> Up {
        let message = timeout(WAIT_LIMIT, self.up.message())
            .await
            .expect("the agent is silent")
            .unwrap();
        message.expect("the agent ended the stream").message.unwrap()
    }

    /// Returns the next message that `pick` accepts; skips others.
    pub async fn find<T>(&mut self, mut pick: impl FnMut(Up) -> Option<T>) -> T {
        loop {
            if let Some(found) = pick(self.next().await) {
                return found;
            }
        }
    }

    /// Returns the next report of an operation that has ended.
    pub async fn ended(&mut self, operation: &str) -> JobReport {
        use rackwright_api::v1::JobState::Running;
        self.find(|message| match message {
            Up::Job(report) if report.operation == operation && report.state() != Running => Some(report),
            _ => None,
        })
        .await
    }
}

struct Service {
    issuer: Issuer<'static, KeyPair>,
    tokens: Mutex<Vec<String>>,
    generation: u64,
    registrations: Arc<AtomicUsize>,
    streams: mpsc::Sender<Stream>,
}

impl Service {
    fn certify(&self, csr_pem: &str) -> RegisterResponse {
        let request = CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
        let certificate_pem = request.signed_by(&self.issuer).unwrap().pem();
        let (node, claim_generation) = (NODE.to_owned(), self.generation);
        RegisterResponse {
            certificate_pem,
            node,
            claim_generation,
            heartbeat_s: 1,
            ..RegisterResponse::default()
        }
    }
}

#[tonic::async_trait]
impl AgentService for Service {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<RegisterResponse>, Status> {
        let request = request.into_inner();
        let mut tokens = self.tokens.lock().unwrap();
        let Some(known) = tokens.iter().position(|token| *token == request.token) else {
            return Err(Status::unauthenticated("the token is spent or was never given"));
        };
        tokens.remove(known);
        assert_eq!(request.mac, "52:54:00:00:00:01");
        self.registrations.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(self.certify(&request.csr_pem)))
    }

    type ClaimChunksStream = Pin<Box<ReceiverStream<Result<GrantMessage, Status>>>>;

    async fn claim_chunks(
        &self,
        _: Request<Streaming<ChunkMessage>>,
    ) -> Result<Response<Self::ClaimChunksStream>, Status> {
        Err(Status::unimplemented("peers"))
    }

    type ConnectStream = Pin<Box<ReceiverStream<Result<ControlMessage, Status>>>>;

    async fn connect(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let certificates = request
            .peer_certs()
            .ok_or(Status::unauthenticated("no client certificate"))?;
        let certificate = certificates[0].to_vec();
        let (down, queue) = mpsc::channel(16);
        self.streams
            .send(Stream {
                up: request.into_inner(),
                down,
                certificate,
            })
            .await
            .unwrap();
        Ok(Response::new(Box::pin(ReceiverStream::new(queue))))
    }
}

pub struct Control {
    pub ca_pem: String,
    pub ca_sha256: String,
    pub server: SocketAddr,
    pub ca_url: String,
    pub registrations: Arc<AtomicUsize>,
    streams: mpsc::Receiver<Stream>,
    issuer: Issuer<'static, KeyPair>,
    serving: JoinHandle<()>,
}

impl Control {
    pub async fn start(generation: u64) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap();
        let ca_sha256 = hex::encode(ring::digest::digest(&ring::digest::SHA256, ca.der()));
        let issuer = |key: &KeyPair| Issuer::new(params.clone(), KeyPair::from_pem(&key.serialize_pem()).unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let own_key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()])
            .unwrap()
            .signed_by(&own_key, &issuer(&key))
            .unwrap();
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(own.pem(), own_key.serialize_pem()))
            .client_ca_root(Certificate::from_pem(ca.pem()))
            .client_auth_optional(true);
        let (sender, streams) = mpsc::channel(16);
        let registrations = Arc::new(AtomicUsize::new(0));
        let service = Service {
            issuer: issuer(&key),
            tokens: Mutex::new(vec![TOKEN.to_owned()]),
            generation,
            registrations: Arc::clone(&registrations),
            streams: sender,
        };
        let serving = tokio::spawn(async move {
            let router = Server::builder()
                .tls_config(tls)
                .unwrap()
                .add_service(AgentServiceServer::new(service));
            router
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        let ca_url = serve_file(ca.pem());
        Self {
            ca_pem: ca.pem(),
            ca_sha256,
            server,
            ca_url,
            registrations,
            streams,
            issuer: issuer(&key),
            serving,
        }
    }

    pub async fn stream(&mut self) -> Stream {
        timeout(WAIT_LIMIT, self.streams.recv())
            .await
            .expect("no stream")
            .unwrap()
    }

    /// Issues another certificate for the same key.
    pub fn renew(&self, csr_pem: &str) -> RegisterResponse {
        let request = CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
        let certificate_pem = request.signed_by(&self.issuer).unwrap().pem();
        RegisterResponse {
            certificate_pem,
            node: NODE.into(),
            heartbeat_s: 1,
            ..RegisterResponse::default()
        }
    }

    pub fn settings(&self) -> Settings {
        self.settings_with("")
    }

    /// Appended settings take precedence.
    pub fn settings_with(&self, more: &str) -> Settings {
        let (server, ca, url) = (self.server, &self.ca_sha256, &self.ca_url);
        let text = format!(
            "rackwright.server=https://{server} rackwright.token={TOKEN} rackwright.ca=sha256:{ca} rackwright.caurl={url} \
             rackwright.mac=52:54:00:00:00:01 {more}"
        );
        cmdline::parse(&text).unwrap()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves one text over plain HTTP until the process ends.
pub fn serve_file(content: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                content.len()
            );
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(content.as_bytes()));
        }
    });
    format!("http://{address}/ca.pem")
}

/// A writer under the control of the test: each write waits for its turn.
#[derive(Default)]
pub struct Gate {
    pub image: Vec<u8>,
    pub begun: AtomicUsize,
    pub turns: Mutex<Vec<std::sync::mpsc::Sender<()>>>,
    pub orders: Mutex<Vec<WriteRequest>>,
}

impl Gate {
    /// Waits for a waiting write and lets it continue.
    pub async fn release(&self) {
        let until = tokio::time::Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(turn) = self.turns.lock().unwrap().pop() {
                turn.send(()).unwrap();
                return;
            }
            assert!(tokio::time::Instant::now() < until, "no write waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub struct GateWriter(pub Arc<Gate>);

impl ImageWriter for GateWriter {
    fn logical_bytes(&self, request: &WriteRequest, _: &JobControl) -> Result<u64, JobError> {
        self.0.orders.lock().unwrap().push(request.clone());
        Ok(self.0.image.len() as u64)
    }

    fn write(&self, _: &WriteRequest, drive: &Path, control: &JobControl) -> Result<WriteSummary, JobError> {
        use std::os::unix::fs::FileExt as _;
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let (turn, wait) = std::sync::mpsc::channel();
        self.0.turns.lock().unwrap().push(turn);
        loop {
            if control.stopped().is_some() {
                return Err(job_error("cancelled", "stopped", false));
            }
            match wait.recv_timeout(Duration::from_millis(5)) {
                Ok(()) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let disk = std::fs::File::options().write(true).open(drive).unwrap();
        disk.write_all_at(&self.0.image, 0).unwrap();
        Ok(WriteSummary {
            logical_bytes: self.0.image.len() as u64,
            ..WriteSummary::default()
        })
    }
}

/// A power switch that records its actions.
#[derive(Default)]
pub struct Switch(pub Mutex<Vec<PowerAction>>);

impl Power for Switch {
    fn perform(&self, action: PowerAction) -> std::io::Result<()> {
        self.0.lock().unwrap().push(action);
        Ok(())
    }
}

/// A machine in a folder.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub drive: PathBuf,
    pub gate: Arc<Gate>,
    pub switch: Arc<Switch>,
    pub root: SysRoot,
    pub machine: Machine,
}

/// Creates a machine with one drive of 128 MiB, and an image of 64 MiB with one partition.
pub fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let drive = dir.path().join("vda");
    std::fs::File::create(&drive).unwrap().set_len(128 << 20).unwrap();
    let root = SysRoot::below(dir.path());
    let gate = Arc::new(Gate {
        image: image(dir.path()),
        ..Gate::default()
    });
    let switch = Arc::new(Switch::default());
    let drives = FileDrives {
        drives: vec![FileDrive {
            name: "vda".into(),
            serial_number: "S1".into(),
            path: drive.clone(),
        }],
    };
    let machine = Machine {
        host: Arc::new(KernelHost { root: root.clone() }),
        drives: Arc::new(drives),
        writer: Arc::new(GateWriter(Arc::clone(&gate))),
        eraser: Arc::new(rackwright_agent::erase::DriveEraser),
        power: Arc::clone(&switch) as Arc<dyn Power>,
    };
    Bench {
        dir,
        drive,
        gate,
        switch,
        root,
        machine,
    }
}

fn image(dir: &Path) -> Vec<u8> {
    use std::process::{Command, Stdio};
    let path = dir.join("image");
    std::fs::write(&path, vec![0; 64 << 20]).unwrap();
    let mut sfdisk = Command::new("sfdisk")
        .arg("--quiet")
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sfdisk (package fdisk)");
    sfdisk
        .stdin
        .take()
        .unwrap()
        .write_all(b"label: gpt\nstart=2048,size=8192\n")
        .unwrap();
    assert!(sfdisk.wait().unwrap().success());
    std::fs::read(path).unwrap()
}
