//! One write with the help of other agents.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rackwright_fanout::{DownloadCounts, DownloadSettings, UploadSettings};
use rackwright_identity::{ClientIdentity, ClientKind, identify, peer_server_config};
use rackwright_image::writer::{Arrivals, Delivery, FetchError, HttpSource, Traffic, arrivals, write_arrivals};
use rackwright_image::{ImageDigest, Index, Options, Progress, WriteError, Written};
use rackwright_peers::{
    ClientSettings, FrameError, FrameStore, FromTable, Heard, Holdings, PATIENCE, PeerClient, PeerServer,
    ServerSettings, Serving, Spread, SpreadChannels, SpreadEnd, SpreadError, ToTable,
};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, spawn_blocking};

use super::claims::{Claims, ClaimsEnd};
use super::names::Names;
use super::order::{NoPeers, Order};
use super::{ImageNumber, PeerSetup, PeerTls, Sharing};
use crate::{clock, random};

/// Threads that fetch the rest from the image servers.
const REST_THREADS: usize = 2;
/// Messages between the download and the claim stream.
const QUEUE: usize = 16;
/// Looks of other agents that wait for the download.
const HEARD: usize = 64;

/// The image of a write.
pub(crate) struct Image {
    pub(crate) digest: ImageDigest,
    /// The verified index.
    pub(crate) index: Arc<Index>,
    pub(crate) source: Arc<HttpSource>,
    /// Counts what is fetched; the index is counted already.
    pub(crate) traffic: Arc<Traffic>,
}

/// The result of a write with other agents.
pub(crate) struct Shared {
    pub(crate) written: Written,
    pub(crate) from_servers: u64,
    pub(crate) from_rack: u64,
    pub(crate) from_other_racks: u64,
    /// Chunks that were sent to other agents so far.
    pub(crate) served: u64,
    /// What did not go as planned.
    pub(crate) remark: Option<String>,
}

/// A write that has not begun. The agent already listens for others.
pub(crate) struct Download {
    runtime: Handle,
    sharing: Arc<Sharing>,
    number: ImageNumber,
    server: PeerServer,
    arrivals: Arrivals,
    conduct: Conduct,
}

/// What runs beside the threads that write to the drive.
struct Conduct {
    spread: Spread,
    table: Table,
    /// Looks of other agents.
    heard: mpsc::Receiver<(ClientIdentity, Holdings)>,
    delivery: Delivery,
    index: Arc<Index>,
    source: Arc<HttpSource>,
}

/// The download's ends of the claim stream.
struct Table {
    to_table: mpsc::Sender<ToTable>,
    from_table: mpsc::Receiver<FromTable>,
    /// Why the claim stream ended.
    claims_end: oneshot::Receiver<ClaimsEnd>,
}

/// What has come, and from where.
#[derive(Default)]
struct Fetched {
    counts: DownloadCounts,
    /// Chunks that came from the image servers after the download with other agents had ended.
    rest: u32,
    remark: Option<String>,
}

/// Prepares a write: listens for other agents, and begins to claim chunks. It runs in a thread for blocking work.
///
/// # Errors
/// [`NoPeers`]: nothing was begun, and the image can be written without other agents.
pub(crate) fn begin(setup: &PeerSetup, image: &Image, options: &Options) -> Result<Download, NoPeers> {
    let runtime = Handle::try_current().map_err(|_| NoPeers::NoRuntime)?;
    let order = Order::of(&setup.peers, &image.digest)?;
    let (servers, credentials) = setup.sharing.access();
    let tls = PeerTls::new(&credentials.ok_or(NoPeers::NoCertificate)?)?;
    let own = own_identity(&tls)?;
    let config = peer_server_config(tls.own.clone(), tls.trust.clone())?;
    let at = own_address(setup, &servers, order.port)?;
    let seed = seed()?;
    let (delivery, arrivals) = arrivals(image.index.clone(), options, image.traffic.clone())?;
    let store = Arc::new(frame_store(setup, &image.index));
    let listener = runtime.block_on(async {
        setup.sharing.wait_for_end().await;
        TcpListener::bind(at).await
    });
    let listener = listener.map_err(|source| NoPeers::Listen { at, source })?;
    let (to_heard, heard) = mpsc::channel(HEARD);
    let tell: Heard = Arc::new(move |agent, holdings| _ = to_heard.try_send((agent.clone(), holdings)));
    let serving = Serving {
        job: order.job,
        ticket_keys: order.keys,
        store: store.clone(),
        clock: Arc::new(clock::unix_s),
        heard: tell,
    };
    let server = PeerServer::new(serving, config, ServerSettings::default());
    let claims = Claims {
        sharing: setup.sharing.clone(),
        host: setup.host.clone(),
        operation: setup.operation.clone(),
        port: order.port,
        names: Names::new(own, store.chunks()),
        store: store.clone(),
    };
    let (number, table) = start(&runtime, (server.clone(), listener), claims, tls.clone());
    let client = PeerClient::new(
        tls.own,
        tls.trust,
        order.ticket,
        store.clone(),
        ClientSettings::default(),
    );
    let (taken, load) = (delivery.clone(), server.clone());
    let spread = Spread {
        index: image.index.clone(),
        client: Arc::new(client),
        store,
        origin: image.source.clone(),
        take: Arc::new(move |chunk, data| taken.put(chunk.0 as usize, data)),
        traffic: image.traffic.clone(),
        load: Arc::new(move || load.load()),
        settings: DownloadSettings::default(),
        patience: PATIENCE,
        seed,
    };
    let conduct = Conduct {
        spread,
        table,
        heard,
        delivery,
        index: image.index.clone(),
        source: image.source.clone(),
    };
    Ok(Download {
        runtime,
        sharing: setup.sharing.clone(),
        number,
        server,
        arrivals,
        conduct,
    })
}

/// Begins to serve other agents and to claim chunks.
fn start(
    runtime: &Handle,
    (server, listener): (PeerServer, TcpListener),
    claims: Claims,
    tls: PeerTls,
) -> (ImageNumber, Table) {
    let sharing = claims.sharing.clone();
    let number = sharing.begin_image();
    let (to_table, from_download) = mpsc::channel(QUEUE);
    let (to_download, from_table) = mpsc::channel(QUEUE);
    let (tell_end, claims_end) = oneshot::channel();
    let mut tasks = JoinSet::new();
    tasks.spawn_on(
        async move { server.run(listener, std::future::pending()).await },
        runtime,
    );
    let ending = sharing.clone();
    let claiming = async move {
        let end = claims.run(from_download, to_download).await;
        tracing::info!(%end, "the agent serves no more chunks");
        let _ = tell_end.send(end);
        ending.end_image(number);
    };
    tasks.spawn_on(claiming, runtime);
    sharing.serve(number, tls, tasks);
    let table = Table {
        to_table,
        from_table,
        claims_end,
    };
    (number, table)
}

/// The agent in its own certificate. Others accept only one of a boot.
fn own_identity(tls: &PeerTls) -> Result<ClientIdentity, NoPeers> {
    let leaf = tls.own.leaf().ok_or(NoPeers::NoCertificate)?;
    let own = identify(&leaf).map_err(|_| NoPeers::NoCertificate)?;
    match &own.kind {
        ClientKind::Agent { boot, .. } if !boot.is_empty() => Ok(own),
        ClientKind::Agent { .. } | ClientKind::Member { .. } => Err(NoPeers::NoCertificate),
    }
}

/// Where the agent serves: at the address from which it reaches the control plane.
fn own_address(setup: &PeerSetup, servers: &[String], port: u16) -> Result<SocketAddr, NoPeers> {
    let server = servers.first().ok_or(NoPeers::NoServer)?;
    let address = setup.host.source_address();
    let address = address.or_else(|| setup.host.presence(server, None).address);
    Ok(SocketAddr::new(address.ok_or(NoPeers::NoAddress)?, port))
}

fn seed() -> Result<u64, NoPeers> {
    let mut seed = [0; 8];
    random::fill(&mut seed).map_err(NoPeers::Random)?;
    Ok(u64::from_le_bytes(seed))
}

fn frame_store(setup: &PeerSetup, index: &Index) -> FrameStore {
    let available = setup.host.available_memory().unwrap_or_else(|| {
        tracing::warn!("the available memory is unknown: no chunk is kept for other agents");
        0
    });
    let store = FrameStore::new(index, available, UploadSettings::default().at_once);
    let (limit, chunks) = (store.limit_bytes(), store.chunks());
    tracing::info!(
        available,
        limit,
        chunks,
        "memory for chunks that other agents may fetch"
    );
    store
}

impl Download {
    /// Writes the image to the drive. Afterwards the agent still serves; after an error it does not.
    ///
    /// # Errors
    /// As [`write_arrivals`].
    pub(crate) fn write(
        self,
        drive: &Path,
        options: &Options,
        report: &dyn Fn(Progress),
    ) -> Result<Shared, WriteError> {
        let conducting = self.runtime.spawn(self.conduct.run());
        let written = write_arrivals(&self.arrivals, drive, options, report);
        let written = written.inspect_err(|_| {
            conducting.abort();
            self.sharing.end_image(self.number);
        })?;
        let fetched = self.runtime.block_on(conducting).unwrap_or_else(|error| {
            tracing::error!(%error, "the counts of the download are lost");
            Fetched::default()
        });
        let Fetched { counts, rest, remark } = fetched;
        Ok(Shared {
            written,
            from_servers: u64::from(counts.from_origin) + u64::from(rest),
            from_rack: counts.from_rack.into(),
            from_other_racks: counts.from_other_racks.into(),
            served: self.server.counts().frames,
            remark,
        })
    }
}

impl Conduct {
    /// Downloads with other agents, and the rest from the image servers if the claims end before.
    async fn run(self) -> Fetched {
        let Self {
            spread,
            table,
            heard,
            delivery,
            index,
            source,
        } = self;
        let Table {
            to_table,
            from_table,
            claims_end,
        } = table;
        let channels = SpreadChannels {
            to_table,
            from_table,
            heard,
        };
        let SpreadEnd { counts, result } = spread.run(channels).await;
        let mut fetched = Fetched {
            counts,
            ..Fetched::default()
        };
        match result {
            Ok(()) => {}
            Err(error @ (SpreadError::NoTable | SpreadError::NoProgress { .. })) => {
                let why = match error {
                    SpreadError::NoTable => claims_end
                        .await
                        .map_or_else(|_| "the claims ended".to_owned(), |end| end.to_string()),
                    other => other.to_string(),
                };
                let missing = delivery.missing().len();
                tracing::warn!(why, missing, "the rest of the image comes from the image servers");
                fetched.remark = Some(format!("{missing} chunks without other agents: {why}"));
                let rest = spawn_blocking(move || delivery.fetch_rest(&*source, REST_THREADS));
                fetched.rest = rest.await.unwrap_or_default();
            }
            Err(error) => delivery.fail(write_error(&index, error)),
        }
        fetched
    }
}

fn write_error(index: &Index, error: SpreadError) -> WriteError {
    let setup = |error: &dyn fmt::Display| WriteError::Setup {
        what: "the download with other agents",
        source: io::Error::other(error.to_string()),
    };
    match error {
        SpreadError::Origin(FetchError::Cancelled) => WriteError::Cancelled,
        SpreadError::Origin(error) => WriteError::Download(error),
        SpreadError::WrongOrigin(FrameError::Wrong { chunk, digest, source }) => WriteError::Chunk {
            chunk: digest,
            number: index.data().get(chunk.0 as usize).map_or(chunk.0, |data| data.number),
            source,
        },
        error => setup(&error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rackwright_api::v1::Peers;
    use rackwright_image::{ChunkDigest, DataChunk, Format, Sha256};

    use super::*;
    use crate::host::KernelHost;
    use crate::root::SysRoot;

    fn setup(root: SysRoot) -> PeerSetup {
        PeerSetup {
            peers: Peers::default(),
            operation: "op-1".into(),
            host: Arc::new(KernelHost { root }),
            sharing: Arc::default(),
        }
    }

    #[test]
    fn the_agent_serves_at_the_address_that_the_control_plane_sees() {
        let setup = setup(SysRoot::real());
        let at = |server: &str| own_address(&setup, &[server.to_owned()], 7444).map(|at| at.to_string());
        assert_eq!(at("https://127.0.0.1:7443").unwrap(), "127.0.0.1:7444");
        if UdpSocket::bind("[::1]:0").is_ok() {
            assert_eq!(at("https://[::1]:7443").unwrap(), "[::1]:7444");
        }
        assert!(matches!(at("https://a-name:7443"), Err(NoPeers::NoAddress)));
        assert!(matches!(own_address(&setup, &[], 7444), Err(NoPeers::NoServer)));
    }

    #[test]
    fn memory_for_others_follows_the_kernels_estimate() {
        let digest = ChunkDigest::of(b"x");
        let data = (0..10).map(|number| DataChunk { number, digest });
        let index = Index::new(10 << 22, Format::Raw, Sha256([0; 32]), data.collect()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let setup = setup(SysRoot::below(folder.path()));
        assert_eq!(frame_store(&setup, &index).limit_bytes(), 0, "unknown");
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        for (available, limit) in [("1048576", 256 << 20), ("100000", 0)] {
            let meminfo = format!("MemTotal: 4 kB\nMemAvailable:   {available} kB\n");
            std::fs::write(folder.path().join("proc/meminfo"), meminfo).unwrap();
            assert_eq!(frame_store(&setup, &index).limit_bytes(), limit);
        }
    }
}
