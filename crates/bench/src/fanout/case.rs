//! One case: a network, a store, a control plane and agents, from the first start to the comparison of the last drive.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1::job::Work;
use rackwright_api::v1::{Job, WriteImage};
use rackwright_fanout::TableSettings;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::agent::{Ended, Order};
use super::image::Image;
use super::keys::{self, GENERATION, SiteKeys};
use super::network::{Crossed, Host, Layout, Namespace, Network};
use super::origin::{self, Origin};
use super::other_programs;
use super::plane::{Plane, PlaneSettings};
use super::process::AgentProcess;
use crate::meter::Process;

const PORT: u16 = 8470;
const CUSTOMER: &str = "customers/physics";
/// Memory of an agent's buffers: not much more than the least that it needs.
const BUFFERS: u64 = 76 << 20;
/// A run of processes that takes longer has failed.
const START_LIMIT: Duration = Duration::from_secs(120);
const CHECK_LIMIT: Duration = Duration::from_secs(600);

/// What all cases of a run share.
pub struct Stage {
    /// In memory.
    pub folder: PathBuf,
    pub program: PathBuf,
    pub keys: SiteKeys,
}

/// How the image reaches the agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// With the help of other agents.
    Agents,
    /// From the image server alone.
    Server,
    /// From a caching proxy in each rack.
    Caches,
    /// By BitTorrent, as a plain file.
    BitTorrent,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Server => "server",
            Self::Caches => "nginx",
            Self::BitTorrent => "libtorrent",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    pub way: Way,
    pub layout: Layout,
    pub image: Arc<Image>,
    /// The starts are spread evenly over this time.
    pub starts_over: Duration,
    /// Agents that are killed.
    pub killed: Vec<u32>,
    /// When they are killed, after the first start.
    pub killed_at: Duration,
    /// An agent's process ends after its job. Otherwise it serves others until all jobs have ended, for at most 60 s.
    pub leaves: bool,
    /// Time in which every job must end, from its own start.
    pub limit: Duration,
}

/// The measurements of a case.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The agents whose jobs ended, with their numbers.
    pub ends: Vec<(u32, Ended)>,
    /// Bytes of chunks from the image server.
    pub origin_chunk_bytes: u64,
    /// What the image server's link carried.
    pub origin: Crossed,
    /// What each leaf's link to the spine carried.
    pub uplinks: Vec<Crossed>,
    /// What the first agent's link carried.
    pub first: Crossed,
    /// Reports of wrong bytes.
    pub reports: usize,
    /// CPU seconds of all agents that still ran at the end.
    pub agents_cpu_s: f64,
    /// Busy cores of the computer from the first start to the last end, with everything else on it.
    pub cores_busy: f64,
}

/// What runs beside the agents.
struct Servers {
    origin: Origin,
    control: Plane,
    _caches: Vec<other_programs::Cache>,
    store_urls: Vec<String>,
}

/// Listens at a host's address.
pub async fn listen(host: &Host) -> io::Result<TcpListener> {
    let at = host.address;
    let listener = host.namespace.enter(move || std::net::TcpListener::bind((at, 0)))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// The node of an agent. Its name begins with its rack.
fn node(layout: &Layout, agent: u32) -> String {
    format!("{}-gpu-{agent}", agent % layout.racks)
}

fn rack(node: &str) -> u32 {
    node.split('-').next().and_then(|rack| rack.parse().ok()).unwrap_or(0)
}

impl Case {
    pub async fn run(&self, stage: &Stage) -> io::Result<Outcome> {
        let folder = stage.folder.join(self.name);
        fs::create_dir_all(&folder)?;
        let network = Network::new(&self.layout)?;
        let outcome = self.run_in(stage, &network, &folder).await;
        fs::remove_dir_all(&folder)?;
        outcome
    }

    async fn run_in(&self, stage: &Stage, network: &Network, folder: &std::path::Path) -> io::Result<Outcome> {
        let servers = self.servers(stage, network, folder).await?;
        let (seed, agents) = match self.way {
            Way::BitTorrent => {
                let (seed, agents) = other_programs::torrents(network, &self.image, folder).await?;
                (Some(seed), agents)
            }
            _ => (None, self.agents(stage, network, &servers, folder).await?),
        };
        let begun = Instant::now();
        let before = (
            network.of(&network.origin)?,
            network.uplinks()?,
            network.of(&network.agents[0])?,
        );
        let ticks = Ticks::now()?;
        let done = self.work(agents, begun).await?;
        let cores_busy = Ticks::now()?.busy_since(&ticks);
        let pids = done.iter().filter_map(|(_, process, _)| process.id()).collect();
        let usage = Process::new("agents", pids).usage().map_err(io::Error::other)?;
        let uplinks = network.uplinks()?.into_iter().zip(before.1);
        let mut outcome = Outcome {
            origin_chunk_bytes: servers.origin.chunk_bytes(),
            origin: network.of(&network.origin)?.since(before.0),
            uplinks: uplinks.map(|(now, before)| now.since(before)).collect(),
            first: network.of(&network.agents[0])?.since(before.2),
            reports: servers.control.reports().len(),
            agents_cpu_s: usage.cpu_s,
            cores_busy,
            ends: Vec::new(),
        };
        outcome.ends = self.check(done).await?;
        drop(seed);
        Ok(outcome)
    }

    async fn servers(&self, stage: &Stage, network: &Network, folder: &std::path::Path) -> io::Result<Servers> {
        let keys = &stage.keys;
        let (listener, at) = (listen(&network.origin).await?, network.origin.address.to_string());
        let origin = Origin::start(listener, &self.image.store, keys.server_tls(&[&at, origin::NAME])?)?;
        let at = network.control.address.to_string();
        let settings = PlaneSettings {
            ca_pem: keys.ca_pem.clone(),
            server: keys.server(&[&at])?,
            chunks: self.image.content.chunks,
            table: TableSettings::default(),
            rack,
        };
        let control = Plane::start(listen(&network.control).await?, settings)?;
        let mut caches = Vec::new();
        if self.way == Way::Caches {
            for (number, host) in network.caches.iter().enumerate() {
                let folder = folder.join(format!("cache-{number}"));
                caches.push(other_programs::Cache::start(host, &folder, keys, &origin.url).await?);
            }
        }
        let store_urls = match &*caches {
            [] => vec![origin.url.clone()],
            caches => caches.iter().map(|cache| cache.url.clone()).collect(),
        };
        Ok(Servers {
            origin,
            control,
            _caches: caches,
            store_urls,
        })
    }

    /// Starts the agents' processes, and waits until they are ready.
    async fn agents(
        &self,
        stage: &Stage,
        network: &Network,
        servers: &Servers,
        folder: &std::path::Path,
    ) -> io::Result<Vec<AgentProcess>> {
        let mut agents = Vec::new();
        for (host, number) in network.agents.iter().zip(0..) {
            let name = node(&self.layout, number);
            let identity = keys::agent(&name)?;
            let peers = match self.way {
                Way::Agents => Some(stage.keys.peers(&self.image.digest, &identity, CUSTOMER, PORT)?),
                Way::Server | Way::Caches | Way::BitTorrent => None,
            };
            let urls = &servers.store_urls;
            let work = WriteImage {
                // Each rack has a cache, or all racks have one server.
                store_urls: vec![urls[rack(&name) as usize % urls.len()].clone()],
                image_digest: self.image.digest.to_string(),
                memory_budget_bytes: BUFFERS,
                peers,
                ..WriteImage::default()
            };
            let job = Job {
                operation: "op-1".into(),
                claim_generation: GENERATION,
                deadline_s: self.limit.as_secs().try_into().unwrap_or(u32::MAX),
                work: Some(Work::WriteImage(work)),
            };
            let credentials = stage.keys.credentials(&identity)?;
            let own = (folder.join(&name), self.image.content);
            let order = Order::new(&credentials, &servers.control.url, &job, own);
            let mut command = Command::new(&stage.program);
            command.arg("fanout-agent");
            agents.push(AgentProcess::start(&host.namespace, command, &order).await?);
        }
        all_ready(&mut agents).await?;
        Ok(agents)
    }

    /// Lets the agents do their jobs. An agent that was killed has no end.
    async fn work(
        &self,
        agents: Vec<AgentProcess>,
        begun: Instant,
    ) -> io::Result<Vec<(u32, AgentProcess, Option<Ended>)>> {
        let mut running = JoinSet::new();
        let (count, chunks) = (agents.len(), self.image.content.chunks);
        for (mut agent, number) in agents.into_iter().zip(0u32..) {
            let begin = begun + self.starts_over * number / u32::try_from(count).unwrap_or(u32::MAX);
            let killed_at = self.killed.contains(&number).then(|| begun + self.killed_at);
            let (limit, leaves) = (self.limit, self.leaves);
            running.spawn(async move {
                let wait = begin.duration_since(Instant::now()) + limit;
                let worked = timeout(wait, agent.work(begin, killed_at)).await;
                let late = || io::Error::other(format!("agent {number} did not end its job in {limit:?}"));
                let ended = worked.map_err(|_| late())??;
                if leaves && ended.is_some() {
                    agent.check(chunks).await?;
                    agent.end().await?;
                }
                Ok::<_, io::Error>((number, agent, ended))
            });
        }
        let (mut done, mut left) = (Vec::new(), count - self.layout.slow.len());
        while left > 0
            && let Some(joined) = running.join_next().await
        {
            let ended = joined.map_err(io::Error::other)??;
            left -= usize::from(!self.layout.slow.contains(&ended.0));
            done.push(ended);
        }
        // Agents with slow links take four times as long, and nothing is measured at them: their processes end here.
        Ok(done)
    }

    /// Compares all drives with the image.
    async fn check(&self, done: Vec<(u32, AgentProcess, Option<Ended>)>) -> io::Result<Vec<(u32, Ended)>> {
        let mut checks = JoinSet::new();
        let chunks = self.image.content.chunks;
        for (number, mut agent, ended) in done {
            let Some(ended) = ended else { continue };
            checks.spawn(async move {
                // Those that left were compared before.
                if agent.id().is_some() {
                    agent.check(chunks).await?;
                    agent.end().await?;
                }
                Ok::<_, io::Error>((number, ended))
            });
        }
        let mut ends = Vec::new();
        let all = async {
            while let Some(joined) = checks.join_next().await {
                ends.push(joined.map_err(io::Error::other)??);
            }
            Ok::<_, io::Error>(())
        };
        let checked = timeout(CHECK_LIMIT, all).await;
        checked.map_err(|_| io::Error::other(format!("the drives were not compared in {CHECK_LIMIT:?}")))??;
        ends.sort_by_key(|(number, _)| *number);
        Ok(ends)
    }
}

/// Waits until all processes are ready.
pub async fn all_ready(agents: &mut [AgentProcess]) -> io::Result<()> {
    let all = async {
        for agent in agents {
            agent.ready().await?;
        }
        Ok(())
    };
    let late = || io::Error::other(format!("the agents were not ready in {START_LIMIT:?}"));
    timeout(START_LIMIT, all).await.map_err(|_| late())?
}

/// The rate of one TCP stream from the origin to an agent, in bits per second, over this many bytes.
pub async fn stream_rate(layout: &Layout, bytes: u64) -> io::Result<f64> {
    let network = Network::new(layout)?;
    let listener = listen(&network.origin).await?;
    let sending = async {
        let (mut stream, _) = listener.accept().await?;
        let piece = vec![7; 64 << 10];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(piece.len() as u64);
            tokio::io::AsyncWriteExt::write_all(&mut stream, &piece[..length as usize]).await?;
            left -= length;
        }
        Ok::<_, io::Error>(())
    };
    let at = listener.local_addr()?;
    let receiving = async {
        let mut stream = connect(&network.agents[0].namespace, at).await?;
        let begun = Instant::now();
        let mut piece = vec![0; 64 << 10];
        let mut came = 0;
        loop {
            match tokio::io::AsyncReadExt::read(&mut stream, &mut piece).await? {
                0 => return Ok((came, begun.elapsed())),
                length => came += length as u64,
            }
        }
    };
    let ((), (came, time)) = tokio::try_join!(sending, receiving)?;
    if came != bytes {
        return Err(io::Error::other(format!("{came} of {bytes} bytes came")));
    }
    Ok(came as f64 * 8.0 / time.as_secs_f64())
}

async fn connect(namespace: &Namespace, at: std::net::SocketAddr) -> io::Result<tokio::net::TcpStream> {
    // The socket belongs to the namespace in which it is made.
    let socket = namespace.enter(|| {
        let socket = tokio::net::TcpSocket::new_v4()?;
        Ok(socket)
    })?;
    socket.connect(at).await
}

/// The computer's CPU time, in ticks.
struct Ticks {
    busy: u64,
    all: u64,
    cores: usize,
}

impl Ticks {
    fn now() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let mut lines = stat.lines().take_while(|line| line.starts_with("cpu"));
        let first = lines.next().unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal
        let fields = first.split_whitespace().skip(1).take(8);
        let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        if fields.len() < 8 {
            return Err(io::Error::other("/proc/stat has an unexpected format"));
        }
        let all = fields.iter().sum();
        Ok(Self {
            busy: all - fields[3] - fields[4],
            all,
            cores: lines.count(),
        })
    }

    fn busy_since(&self, before: &Self) -> f64 {
        let all = (self.all - before.all).max(1);
        (self.busy - before.busy) as f64 / all as f64 * self.cores as f64
    }
}
