//! The answers for network boot: the node and the address of a MAC address, and what it may boot, once.

mod alarms;
mod pools;
mod unknown;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rackwright_ground::clock;
use rackwright_ground::config::Boot;
use rackwright_ground::core::{BootCounts, Core};
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_identity::{Token, TokenHash};
use rackwright_lifecycle::{NodeId, seconds};
use rackwright_netboot::{
    Binding, BootDirectory, BootFile, BootIntent, BootPlan, Client, DhcpMode, DirectoryError, Lookup, Mac, Netboot,
    NetbootConfig, OneTimeToken, Refusal, StageDropped, StageReport,
};
use rackwright_store::{BootStageRow, Scope, StoreError, TokenRow, UnknownMachineRow, WriteTx};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::agent_boot::{self, BootRequester, address_text};
use crate::bmc_secret;
use alarms::Alarms;
use pools::Pools;
use unknown::Sightings;
pub use unknown::UnknownReports;

/// Validity of a boot token: from the DHCP answer to the script.
const BOOT_TOKEN_S: i64 = 600;
/// Validity of an agent's token on a machine that belongs to no node.
const UNKNOWN_TOKEN_S: i64 = 900;
/// Boot stages that may wait to be stored.
const STAGES: usize = 1024;
/// Between two commits of stages: a flood on the wire does not keep the database busy.
const STAGES_PAUSE: Duration = Duration::from_millis(100);

/// Answers the boot services from the database.
#[derive(Debug)]
pub struct Directory {
    core: Arc<Core>,
    boot: Boot,
    stages: mpsc::Sender<BootStageRow>,
    unknown: Sightings,
    alarms: Alarms,
    pools: Pools,
}

fn failed(error: StoreError) -> DirectoryError {
    DirectoryError(error.to_string())
}

fn text(mac: Mac) -> String {
    mac.to_string().to_ascii_lowercase()
}

impl Directory {
    /// The address of a MAC address: its present one, or the first free one of its pool.
    async fn address(&self, mac: &str, client: &Client) -> Result<Option<Ipv4Addr>, StoreError> {
        let DhcpMode::Server { subnets } = &self.boot.network.dhcp else {
            return Ok(None);
        };
        let Some(subnet) = subnets.iter().find(|s| Some(s.network) == client.subnet) else {
            return Ok(None);
        };
        let has = self
            .core
            .store
            .address_of(mac)
            .await?
            .and_then(|a| a.parse::<Ipv4Addr>().ok());
        if let Some(address) = has.filter(|a| subnet.network.contains(a)) {
            return Ok(Some(address));
        }
        let Some(pool) = subnet.pool else { return Ok(None) };
        let given = self.pools.give(&self.core.store, mac, pool).await?;
        if given.is_none() {
            tracing::error!(mac, network = %subnet.network, "no address is left in the pool");
        }
        Ok(given)
    }

    fn record_unknown_machine(&self, mac: &str, client: &Client) {
        let now = clock::now();
        self.unknown.note(UnknownMachineRow {
            mac: mac.to_owned(),
            first_seen: now,
            last_seen: now,
            architecture: client.architecture.map(|a| a.to_string()).unwrap_or_default(),
            relay: client.relay.map(|r| r.to_string()).unwrap_or_default(),
            system_uuid: client.system_uuid.clone().unwrap_or_default(),
            inventory: None,
        });
    }

    async fn find(&self, client: &Client) -> Result<Lookup, StoreError> {
        let mac = text(client.mac);
        let Some(node) = self.core.store.node_of_mac(&mac).await? else {
            self.record_unknown_machine(&mac, client);
            let boot_allowed = self.boot.network.boot_unknown;
            let address = if boot_allowed {
                self.address(&mac, client).await?
            } else {
                None
            };
            return Ok(Lookup::Unknown { boot_allowed, address });
        };
        let record = self.core.store.node(&Scope::Site, &node).await?;
        let is_firmware = client.kind.looks_for_boot();
        let boot = if agent_boot::looks_for_boot(&self.core, &record, &mac, is_firmware).await? {
            BootIntent::Network { loader: None }
        } else {
            BootIntent::Disk
        };
        let hostname = record
            .node
            .claim
            .as_ref()
            .map_or_else(|| node.to_string(), |c| c.hostname.clone());
        Ok(Lookup::Known {
            address: self.address(&mac, client).await?,
            hostname: Some(hostname),
            boot,
        })
    }

    async fn mint_for(&self, binding: &Binding) -> Result<OneTimeToken, StoreError> {
        let body = binding.address.map(|a| a.to_string()).unwrap_or_default();
        let token = new_token(&self.core, "boot", &text(binding.mac), &body, BOOT_TOKEN_S).await?;
        let refused = || StoreError::NotFound {
            kind: "randomness",
            id: String::new(),
        };
        OneTimeToken::new(token).ok_or_else(refused)
    }

    async fn redeem_for(&self, token: &OneTimeToken, mac: Mac, remote: IpAddr) -> Result<BootPlan, Refusal> {
        let hash = TokenHash::of(token.expose())
            .map_err(|_| Refusal::NoSuchToken)?
            .to_hex();
        let mac = text(mac);
        let directory = |e: StoreError| Refusal::Directory(failed(e));
        let now = clock::now();
        let node = self.core.store.node_of_mac(&mac).await.map_err(directory)?;
        let mut tx = self.core.store.write().await.map_err(directory)?;
        if let Some(node) = &node {
            // The node is locked before its tokens, in the same order as when it is switched on.
            tx.node(node).await.map_err(directory)?;
        }
        let (row, used) = tx
            .token(&hash, "boot")
            .await
            .map_err(directory)?
            .ok_or(Refusal::NoSuchToken)?;
        if used {
            return Err(Refusal::Used);
        }
        if row.expires_at <= now {
            return Err(Refusal::Expired);
        }
        if row.subject != mac {
            return Err(Refusal::OtherMachine);
        }
        let address = address_text(Some(remote));
        let requester = BootRequester {
            mac: &mac,
            address: &address,
        };
        if !row.body.is_empty() && row.body != address {
            if let Some(node) = &node {
                agent_boot::note_second_address(&mut tx, node, requester, &row.body)
                    .await
                    .map_err(directory)?;
                self.core.commit(tx).await.map_err(directory)?;
            }
            return Err(Refusal::OtherAddress);
        }
        if tx.use_token(&hash, "boot", now).await.map_err(directory)?.is_none() {
            return Err(Refusal::Used); // Since the check above.
        }
        tx.revoke_tokens("boot", &mac).await.map_err(directory)?;
        let plan = self.plan(&mut tx, node.as_ref(), requester).await?;
        // Committed for every answer: a refusal may have contested the boot.
        self.core.commit(tx).await.map_err(directory)?;
        plan
    }

    /// The agent's own one-time token for this machine. A machine that belongs to no node gets one if the site boots such
    /// machines.
    async fn agent_token(
        &self,
        tx: &mut WriteTx,
        node: Option<&NodeId>,
        requester: BootRequester<'_>,
    ) -> Result<Result<String, Refusal>, StoreError> {
        let nothing_to_boot = |why: String| Ok(Err(Refusal::NothingToBoot(why)));
        if let Some(node) = node {
            let given = agent_boot::give_plan(&self.core, tx, node, requester).await?;
            return given.map_or_else(|refused| nothing_to_boot(refused.0), |token| Ok(Ok(token)));
        }
        if !self.boot.network.boot_unknown {
            return nothing_to_boot(
                "the MAC address belongs to no node; enrol the machine's BMC with `rackwright node enroll`".into(),
            );
        }
        tx.revoke_tokens("agent", requester.mac).await?;
        let (shown, row) = mint(&self.core, "agent", requester.mac, "", UNKNOWN_TOKEN_S)?;
        tx.put_token(&row).await?;
        Ok(Ok(shown))
    }

    /// Kernel, ramdisk and a command line with the agent's own one-time token. The caller commits the change in any case.
    async fn plan(
        &self,
        tx: &mut WriteTx,
        node: Option<&NodeId>,
        requester: BootRequester<'_>,
    ) -> Result<Result<BootPlan, Refusal>, Refusal> {
        let directory = |e: StoreError| Refusal::Directory(failed(e));
        let shown = match self.agent_token(tx, node, requester).await.map_err(directory)? {
            Ok(shown) => shown,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let endpoints = &self.core.config.endpoints;
        let cmdline = format!(
            "rackwright.server={} rackwright.token={shown} rackwright.ca={} rackwright.caurl={} {}",
            endpoints.join(","),
            self.core.keys.authority.ca_sha256(),
            ca_urls(&self.boot.network, endpoints),
            self.boot.ramdisk.arguments,
        );
        let file = |name: &str, path: &std::path::Path| BootFile {
            name: name.to_owned(),
            path: path.to_owned(),
        };
        Ok(Ok(BootPlan {
            kernel: file("vmlinuz", &self.boot.ramdisk.kernel),
            initrds: vec![file("initrd", &self.boot.ramdisk.initrd)],
            cmdline: SecretString::from(cmdline.trim_end().to_owned()),
        }))
    }
}

/// The URLs where each replica's boot HTTP serves the CA. This replica has its address on the boot network; the others have
/// the host that agents use and the same port.
fn ca_urls(network: &NetbootConfig, endpoints: &[String]) -> String {
    let own = network.server_ip.to_string();
    let others = endpoints.iter().skip(1).filter_map(|endpoint| {
        let (host, _port) = endpoint.strip_prefix("https://")?.rsplit_once(':')?;
        Some(host.to_owned())
    });
    let urls = std::iter::once(own).chain(others);
    let urls = urls.map(|host| format!("http://{host}:{}/boot/v1/ca.pem", network.http_port));
    urls.collect::<Vec<_>>().join(",")
}

pub(crate) fn mint(
    core: &Core,
    purpose: &str,
    subject: &str,
    body: &str,
    life_s: i64,
) -> Result<(String, TokenRow), StoreError> {
    let none = |_| StoreError::NotFound {
        kind: "randomness",
        id: String::new(),
    };
    let (shown, hash) = Token::mint(core.rng.as_ref()).map_err(none)?;
    let row = TokenRow {
        hash: hash.to_hex(),
        purpose: purpose.to_owned(),
        subject: subject.to_owned(),
        body: body.to_owned(),
        expires_at: clock::now().plus(seconds(life_s)),
    };
    Ok((shown.expose_secret().to_owned(), row))
}

async fn new_token(core: &Core, purpose: &str, subject: &str, body: &str, life_s: i64) -> Result<String, StoreError> {
    let (shown, row) = mint(core, purpose, subject, body, life_s)?;
    let mut tx = core.store.write().await?;
    tx.put_token(&row).await?;
    tx.commit().await?;
    Ok(shown)
}

#[async_trait]
impl BootDirectory for Directory {
    fn ca_pem(&self) -> Option<String> {
        Some(self.core.keys.authority.trusted_pem())
    }

    fn firmware(&self, digest: &str, until_s: i64, seal: &str) -> Option<std::path::PathBuf> {
        let digest = crate::firmware::link::open(&self.core, digest, until_s, seal, clock::now())?;
        self.core.firmware_files.path(&digest)
    }

    async fn medium(&self, node: &str, seal: &str, remote: IpAddr) -> Result<Option<Vec<u8>>, DirectoryError> {
        bmc_secret::medium(&self.core, &NodeId::named(node), seal, remote)
            .await
            .map_err(failed)
    }

    async fn lookup(&self, client: &Client) -> Result<Lookup, DirectoryError> {
        self.find(client).await.map_err(failed)
    }

    async fn mint(&self, binding: &Binding) -> Result<OneTimeToken, DirectoryError> {
        self.mint_for(binding).await.map_err(failed)
    }

    async fn redeem(&self, token: &OneTimeToken, mac: Mac, remote: IpAddr) -> Result<BootPlan, Refusal> {
        self.redeem_for(token, mac, remote).await
    }

    fn record(&self, seen: StageReport) -> Result<(), StageDropped> {
        self.alarms.note(seen.stage, &seen.detail, seen.remote, Instant::now());
        let Some(mac) = seen.mac else {
            tracing::debug!(
                stage = %seen.stage,
                detail = seen.detail,
                remote = %seen.remote,
                "boot stage without a MAC address"
            );
            return Ok(());
        };
        let row = BootStageRow {
            mac: text(mac),
            at: clock::now(),
            stage: seen.stage.name().to_owned(),
            detail: cut(&seen.detail, SENTENCE_MAX),
            remote: seen.remote.to_string(),
        };
        self.stages.try_send(row).map_err(|_| StageDropped)
    }
}

/// Stores stages as they come, many with one commit. Runs until the senders are gone.
async fn store_stages(core: Arc<Core>, mut stages: mpsc::Receiver<BootStageRow>) {
    let mut batch = Vec::new();
    while stages.recv_many(&mut batch, STAGES).await > 0 {
        // Stages of one machine keep their order. Machines have the same order in all replicas, so that replicas cannot
        // deadlock.
        batch.sort_by(|a, b| a.mac.cmp(&b.mac));
        let stored = async {
            let mut tx = core.store.write().await?;
            for row in &batch {
                tx.add_boot_stage(row).await?;
            }
            tx.commit().await
        };
        if let Err(error) = stored.await {
            tracing::error!(%error, lost = batch.len(), "boot stages could not be stored");
        }
        batch.clear();
        tokio::time::sleep(STAGES_PAUSE).await;
    }
}

/// Binds the boot services. The future runs them until the core stops.
///
/// # Errors
/// The configuration is wrong, or a port cannot be bound.
pub async fn start(core: Arc<Core>, boot: Boot) -> Result<impl Future<Output = Result<(), String>>, String> {
    let (sender, receiver) = mpsc::channel(STAGES);
    let waiting = sender.downgrade();
    let (unknown, machines) = Sightings::new();
    let (alarms, events) = Alarms::new();
    let network = boot.network.clone();
    let directory = Arc::new(Directory {
        core: core.clone(),
        boot,
        stages: sender,
        unknown,
        alarms,
        pools: Pools::default(),
    });
    let netboot = Netboot::bind(network, directory, core.listeners.boot.clone())
        .await
        .map_err(|e| e.to_string())?;
    let counters = netboot.counters();
    let counts = BootCounts {
        counters: Arc::new(move || counters.snapshot()),
        addresses: Arc::new(netboot.leased_addresses()),
        stages_waiting: Arc::new(move || waiting.upgrade().map_or(0, |s| s.max_capacity() - s.capacity())),
    };
    *core.boot_counts.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
    let mut storing = JoinSet::new();
    storing.spawn(store_stages(core.clone(), receiver));
    storing.spawn(unknown::store(core.clone(), machines));
    storing.spawn(alarms::store(core.clone(), events));
    let stop = core.stop.clone();
    Ok(async move {
        tokio::select! {
            biased;
            served = netboot.run(stop) => served.map_err(|error| format!("a server for machines that boot ended: {error}")),
            Some(ended) = storing.join_next() => Err(match ended {
                Ok(()) => "boot stages are no longer stored".to_owned(),
                Err(error) => format!("boot stages are no longer stored: {error}"),
            }),
        }
    })
}
