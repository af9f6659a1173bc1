//! What the fan-out is compared with: nginx as a cache in each rack, and libtorrent.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rackwright_identity::ClientIdentity;
use serde::Serialize;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::case::all_ready;
use super::image::Image;
use super::keys::{Pem, SiteKeys};
use super::network::{Host, Network};
use super::origin::{BASE, NAME};
use super::process::AgentProcess;

const CACHE_PORT: u16 = 8080;
const TORRENT_PORT: u16 = 6881;
/// The interpreter of the distribution, which finds the distribution's modules.
const PYTHON: &str = "/usr/bin/python3";
const TORRENT: &str = include_str!("torrent.py");
const START_LIMIT: Duration = Duration::from_secs(30);

/// A caching proxy. Dropping it kills it.
#[derive(Debug)]
pub struct Cache {
    pub url: String,
    _child: Child,
}

impl Cache {
    /// Starts nginx as in `deploy/README.md`, with a folder that does not exist yet.
    pub async fn start(host: &Host, folder: &Path, keys: &SiteKeys, origin_url: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let cache = ClientIdentity::member("cache", 1).map_err(io::Error::other)?;
        let Pem { certificate, key } = keys.client(&cache)?;
        fs::write(folder.join("cache.pem"), certificate + key.as_str())?;
        fs::write(folder.join("ca.pem"), &keys.ca_pem)?;
        let at = host.address;
        fs::write(folder.join("nginx.conf"), configuration(at, folder, origin_url))?;
        let runtime = Handle::current();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
        command.args(["-e", "stderr"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let child = host.namespace.enter(move || {
            let _runtime = runtime.enter();
            command.spawn()
        });
        let missing =
            |error: io::Error| io::Error::new(error.kind(), format!("nginx (Debian package nginx-light): {error}"));
        let mut child = child.map_err(missing)?;
        let until = Instant::now() + START_LIMIT;
        loop {
            let connected = host.namespace.enter(|| std::net::TcpStream::connect((at, CACHE_PORT)));
            match (connected, child.try_wait()?) {
                (Ok(_), None) => break,
                (Err(_), None) if Instant::now() < until => sleep(Duration::from_millis(20)).await,
                (_, _) => {
                    return Err(io::Error::other("nginx does not listen; see its message above"));
                }
            }
        }
        Ok(Self {
            url: format!("http://{at}:{CACHE_PORT}{BASE}"),
            _child: child,
        })
    }
}

fn configuration(at: Ipv4Addr, folder: &Path, origin_url: &str) -> String {
    let (folder, origin) = (folder.display(), origin_url.trim_end_matches(BASE));
    format!(
        "user root;
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/temp;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    proxy_cache_path {folder}/cache keys_zone=images:1m max_size=200g;
    server {{
        listen {at}:{CACHE_PORT};
        location {BASE}/ {{
            proxy_pass {origin};
            proxy_ssl_protocols TLSv1.3;
            proxy_ssl_certificate {folder}/cache.pem;
            proxy_ssl_certificate_key {folder}/cache.pem;
            proxy_ssl_trusted_certificate {folder}/ca.pem;
            proxy_ssl_verify on;
            proxy_ssl_name {NAME};
            proxy_cache images;
            proxy_cache_lock on;
            proxy_cache_lock_age 300s;
            proxy_cache_lock_timeout 300s;
            proxy_read_timeout 300s;
        }}
    }}
}}
"
    )
}

/// What a process with libtorrent does.
#[derive(Debug, Serialize)]
struct TorrentOrder {
    address: Ipv4Addr,
    port: u16,
    /// All agents and the seed.
    others: Vec<Ipv4Addr>,
    /// The file with the noise.
    noise: PathBuf,
    chunks: u32,
    /// Where the file is written. `None`: the seed.
    folder: Option<PathBuf>,
}

/// Whether Debian's Python has libtorrent.
pub async fn has_torrent() -> bool {
    let mut command = Command::new(PYTHON);
    command
        .args(["-c", "import libtorrent"])
        .stderr(Stdio::null())
        .stdin(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

/// Starts a seed at the origin, and an agent with libtorrent in place of each agent.
pub async fn torrents(
    network: &Network,
    image: &Image,
    folder: &Path,
) -> io::Result<(AgentProcess, Vec<AgentProcess>)> {
    let mut others: Vec<Ipv4Addr> = network.agents.iter().map(|host| host.address).collect();
    others.push(network.origin.address);
    let start = async |host: &Host, own: Option<PathBuf>| {
        let order = TorrentOrder {
            address: host.address,
            port: TORRENT_PORT,
            others: others.iter().copied().filter(|other| *other != host.address).collect(),
            noise: image.noise.clone(),
            chunks: image.content.chunks,
            folder: own,
        };
        let mut command = Command::new(PYTHON);
        command.args(["-c", TORRENT]);
        AgentProcess::start(&host.namespace, command, &order).await
    };
    let mut seed = [start(&network.origin, None).await?];
    all_ready(&mut seed).await?;
    let mut agents = Vec::new();
    for (number, host) in network.agents.iter().enumerate() {
        agents.push(start(host, Some(folder.join(number.to_string()))).await?);
    }
    all_ready(&mut agents).await?;
    let [seed] = seed;
    Ok((seed, agents))
}
