//! The configuration file: parsed, then checked. Every fault is reported at once, and an unknown field is a fault.

pub mod bmc_accounts;
pub mod console;
pub mod discovery;
pub mod ethernet;
pub mod fabric;
pub mod facility;
pub mod hardware_probe;
pub mod identity;
pub mod network_test;
pub mod power_watch;
pub mod settings_watch;
pub mod web;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rackwright_lifecycle::{Limits, Policy};
use rackwright_netboot::connections;
use rackwright_netboot::{ConfigFaults, NetbootConfig};
use rackwright_redfish::quirks::QuirkSet;
use rackwright_store::Database;
use rackwright_yaml::Quote;
use serde::Deserialize;

use crate::text::chain;
use crate::{audit, bmc_state, space, telemetry};

/// Most endpoints in the list for agents: it stands on their kernel's command line.
const ENDPOINTS_MAX: usize = 8;

/// The database's file in the data folder.
const DATABASE: &str = "rackwright.db";

/// The file as written. Never shown: the database's URL may hold a password.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    data_dir: PathBuf,
    #[serde(default)]
    shared_dir: Option<PathBuf>,
    #[serde(default)]
    database: Option<String>,
    #[serde(default)]
    database_password_file: Option<PathBuf>,
    #[serde(default = "default_site")]
    site: String,
    #[serde(default)]
    api: WireApi,
    #[serde(default)]
    store: WireStore,
    #[serde(default)]
    boot: Option<WireBoot>,
    #[serde(default)]
    images: Images,
    #[serde(default)]
    policy: Policy,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    connections: connections::Limits,
    #[serde(default)]
    storage: space::Settings,
    #[serde(default)]
    profiles: BTreeMap<String, PathBuf>,
    #[serde(default = "default_ssh_port")]
    ssh_port: u16,
    #[serde(default)]
    telemetry: Option<telemetry::Settings>,
    #[serde(default)]
    power_watch: power_watch::Settings,
    #[serde(default)]
    fabric: Option<fabric::Settings>,
    #[serde(default)]
    network_test: network_test::Settings,
    #[serde(default)]
    hardware_probe: hardware_probe::Settings,
    #[serde(default)]
    facility: Option<facility::Settings>,
    #[serde(default)]
    settings_watch: settings_watch::Settings,
    #[serde(default)]
    discovery: discovery::Settings,
    #[serde(default)]
    bmc_quirks: Option<PathBuf>,
    #[serde(default)]
    bmc_accounts: Option<bmc_accounts::Settings>,
    #[serde(default)]
    bmc_state: bmc_state::Settings,
    console: Option<console::Settings>,
    #[serde(default)]
    console_ssh: Option<console::SshSettings>,
    #[serde(default)]
    audit: audit::export::Settings,
    #[serde(default)]
    identity: identity::Settings,
    #[serde(default)]
    ethernet: ethernet::Settings,
    #[serde(default)]
    web: Option<web::Settings>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WireApi {
    listen: SocketAddr,
    names: Vec<String>,
    endpoints: Vec<String>,
}

impl Default for WireApi {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 7070)),
            names: vec!["localhost".into(), "127.0.0.1".into()],
            endpoints: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WireStore {
    listen: SocketAddr,
    urls: Vec<String>,
    caches: Vec<String>,
}

impl Default for WireStore {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 7443)),
            urls: Vec::new(),
            caches: Vec::new(),
        }
    }
}

/// TCP port at which agents serve each other chunks, if the settings name none.
const PEER_PORT: u16 = 8470;

/// Rules for imported images, and how agents fetch images.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Images {
    /// minisign public keys (the base64 line) of accepted signers.
    pub trusted_keys: Vec<String>,
    /// Refuse images without a signature by one of these keys.
    pub require_signature: bool,
    /// Agents that write the same image serve each other its chunks.
    pub peers: bool,
    /// TCP port at which agents serve each other. Only with `peers`.
    pub peer_port: Option<u16>,
}

impl Images {
    /// The TCP port at which agents serve each other chunks. `None`: every chunk comes from the image servers.
    #[must_use]
    pub fn peer_port(&self) -> Option<u16> {
        self.peers.then(|| self.peer_port.unwrap_or(PEER_PORT))
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.require_signature && self.trusted_keys.is_empty() {
            faults.push(
                "images.require_signature: needs images.trusted_keys; without trusted keys no image can be added"
                    .to_owned(),
            );
        }
        match self.peer_port {
            Some(_) if !self.peers => {
                faults.push("images.peer_port: has no effect without images.peers: true".to_owned());
            }
            Some(0) => faults.push("images.peer_port: must be from 1 to 65535".to_owned()),
            _ => {}
        }
        faults
    }
}

/// How machines boot over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootMethod {
    /// The BMC sets PXE as the boot target.
    #[default]
    Pxe,
    /// The BMC sets UEFI HTTP Boot as the boot target.
    UefiHttp,
}

/// The ramdisk that machines are booted into.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramdisk {
    /// Path of its kernel.
    pub kernel: PathBuf,
    /// Path of the initial ramdisk with the agent.
    pub initrd: PathBuf,
    /// Added to the kernel's command line, such as `console=ttyS1,115200`.
    #[serde(default)]
    pub arguments: String,
}

/// The block `boot` as written: the boot services and the files that they serve.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBoot {
    #[serde(default)]
    method: BootMethod,
    ramdisk: Ramdisk,
    network: NetbootConfig,
}

/// Boot services, checked.
#[derive(Debug, Clone)]
pub struct Boot {
    /// How machines boot.
    pub method: BootMethod,
    /// The ramdisk that they boot.
    pub ramdisk: Ramdisk,
    /// DHCP, TFTP and boot HTTP.
    pub network: NetbootConfig,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where keys are kept, and by default also images and the database.
    pub data_dir: PathBuf,
    /// Where images and uploads are kept. All replicas share it.
    pub shared_dir: PathBuf,
    /// The database: a SQLite file or a PostgreSQL server.
    pub database: Database,
    /// The site's name, in the authority's certificate, the audit and traces.
    pub site: String,
    /// Where the API listens.
    pub api_listen: SocketAddr,
    /// Names and addresses of the server; agents use the first.
    pub names: Vec<String>,
    /// URLs of every replica's API for agents; this replica's first.
    pub endpoints: Vec<String>,
    /// Where the image store listens.
    pub store_listen: SocketAddr,
    /// URLs from which agents fetch images, in order of preference.
    pub store_urls: Vec<String>,
    /// Members that may fetch every image: caching proxies.
    pub store_caches: BTreeSet<String>,
    /// Boot services. `None`: this process runs none.
    pub boot: Option<Boot>,
    /// Rules for imported images, and how agents fetch images.
    pub images: Images,
    /// Time limits of effects and waits, and numbers of tries.
    pub policy: Policy,
    /// How many machines may load a shared resource at once.
    pub limits: Limits,
    /// How many connections the listeners accept.
    pub connections: connections::Limits,
    /// Free room to keep on disks, and the largest size of site files.
    pub storage: space::Settings,
    /// Validation profiles by SKU.
    pub profiles: BTreeMap<String, PathBuf>,
    /// The SSH port of installed systems.
    pub ssh_port: u16,
    /// The collector of traces. `None`: no traces are sent.
    pub telemetry: Option<telemetry::Settings>,
    /// How often nodes at rest are read.
    pub power_watch: power_watch::Settings,
    /// How often power and cooling are read. `None`: never.
    pub facility: Option<facility::Settings>,
    /// How often firmware settings are read again.
    pub settings_watch: settings_watch::Settings,
    /// Speed of address scans, and the known parts of the management network.
    pub discovery: discovery::Settings,
    /// The manager of the InfiniBand fabric. `None`: clusters get no partitions.
    pub fabric: Option<fabric::Settings>,
    /// Tests of the network between the nodes of a cluster.
    pub network_test: network_test::Settings,
    /// The program that reads the hardware of installed systems.
    pub hardware_probe: hardware_probe::Settings,
    /// Quirks of BMC models, including the operator's own profiles. `None`: the built-in profiles.
    pub bmc_quirks: Option<Arc<QuirkSet>>,
    /// The wanted BMC accounts. `None`: they stay as they were enrolled.
    pub bmc_accounts: Option<bmc_accounts::Settings>,
    /// What may stay on BMCs between customers.
    pub bmc_state: bmc_state::Settings,
    /// What is recorded of consoles. `None`: nothing.
    pub console: Option<console::Settings>,
    /// The SSH listener for consoles. `None`: there is none.
    pub console_ssh: Option<console::SshSettings>,
    /// Where audit records go, beside the database.
    pub audit: audit::export::Settings,
    /// How machines have to prove their identity.
    pub identity: identity::Settings,
    /// The networks of nodes' switch ports.
    pub ethernet: ethernet::Settings,
    /// The web console. `None`: this process serves none.
    pub web: Option<web::Settings>,
}

/// Why a configuration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The path of the configuration file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The file has the wrong form. The message names line and field.
    #[error("{}: {message}\n  The rest of the file was not checked.", path.display())]
    Syntax {
        /// The path of the configuration file.
        path: PathBuf,
        /// The fault and its place.
        message: String,
    },
    /// Some values are wrong or contradict each other: every fault, a line each.
    #[error("{}:\n  {}", path.display(), faults.join("\n  "))]
    Faults {
        /// The path of the configuration file.
        path: PathBuf,
        /// `field: what is wrong`.
        faults: Vec<String>,
    },
}

fn default_site() -> String {
    "rackwright".into()
}

/// IANA's port for SSH.
fn default_ssh_port() -> u16 {
    22
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML of this form, or some values are wrong.
    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        // Errors omit the lines around a fault if one of them may hold the password of the database or the collector.
        let holds_secrets = text.contains("postgres") || text.contains("headers");
        let quote = if holds_secrets { Quote::Nothing } else { Quote::Lines };
        let wire: Wire = rackwright_yaml::read(text, quote).map_err(|e| ConfigError::Syntax {
            path: path.to_owned(),
            message: e.to_string(),
        })?;
        let mut faults = Vec::new();
        let config = wire.check(&mut faults);
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Faults {
                path: path.to_owned(),
                faults,
            })
        }
    }
}

impl Wire {
    fn check(self, faults: &mut Vec<String>) -> Config {
        if !self.data_dir.is_absolute() {
            faults.push("data_dir: must be an absolute path".into());
        }
        if self.shared_dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            faults.push("shared_dir: must be an absolute path".into());
        }
        let database = match &self.database {
            Some(text) => Database::parse(text, self.database_password_file.clone()),
            None if self.database_password_file.is_some() => {
                Err("must be set, because database_password_file is set".into())
            }
            None => Ok(Database::from(&self.data_dir.join(DATABASE))),
        };
        let database = database.unwrap_or_else(|fault| {
            faults.push(format!("database: {fault}"));
            Database::from(DATABASE)
        });
        if self.api.names.is_empty() {
            faults.push("api.names: must have at least one name or address by which clients reach this server".into());
        }
        let first = self.api.names.first().cloned().unwrap_or_default();
        let endpoints = self.api.endpoints(faults);
        let mut urls = self.store.urls.clone();
        if urls.is_empty() {
            urls.push(format!("https://{first}:{}/store/v1", self.store.listen.port()));
        }
        for url in &urls {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                faults.push(format!("store.urls: {url:?} is neither http:// nor https://"));
            }
        }
        faults.extend(self.images.faults());
        self.check_parts(faults);
        Config {
            shared_dir: self.shared_dir.unwrap_or_else(|| self.data_dir.clone()),
            data_dir: self.data_dir,
            database,
            site: self.site,
            api_listen: self.api.listen,
            names: self.api.names,
            endpoints,
            store_listen: self.store.listen,
            store_urls: urls,
            store_caches: self.store.caches.into_iter().collect(),
            boot: self.boot.map(|b| b.check(faults)),
            images: self.images,
            policy: self.policy,
            limits: self.limits,
            connections: self.connections,
            storage: self.storage,
            profiles: self.profiles,
            ssh_port: self.ssh_port,
            telemetry: self.telemetry,
            power_watch: self.power_watch,
            fabric: self.fabric,
            network_test: self.network_test,
            hardware_probe: self.hardware_probe,
            facility: self.facility,
            settings_watch: self.settings_watch,
            bmc_accounts: self.bmc_accounts,
            bmc_state: self.bmc_state,
            discovery: self.discovery,
            bmc_quirks: self.bmc_quirks.and_then(|folder| quirks(&folder, faults)),
            console: self.console,
            console_ssh: self.console_ssh,
            audit: self.audit,
            identity: self.identity,
            ethernet: self.ethernet,
            web: self.web,
        }
    }

    /// Checks the blocks that do not depend on others.
    fn check_parts(&self, faults: &mut Vec<String>) {
        for (field, value) in [("policy.tries", self.policy.tries), ("policy.boots", self.policy.boots)] {
            if value == 0 {
                faults.push(format!("{field}: must be at least 1"));
            }
        }
        faults.extend(self.limits.faults());
        if self.images.peers && self.limits.image.per_rack.is_some() {
            faults.push("limits.image.per_rack: has no effect with images.peers: true".to_owned());
        }
        let connections = self.connections.faults();
        faults.extend(connections.into_iter().map(|fault| format!("connections.{fault}")));
        self.storage.check(faults);
        if self.ssh_port == 0 {
            faults.push("ssh_port: must be the port of the installed systems' SSH servers; leave it out for 22".into());
        }
        if let Some(telemetry) = &self.telemetry {
            telemetry.check(faults);
        }
        self.power_watch.check(faults);
        if let Some(fabric) = &self.fabric {
            fabric.check(faults);
        }
        self.network_test.check(faults);
        self.hardware_probe.check(faults);
        self.audit.check(faults);
        self.settings_watch.check(faults);
        self.discovery.check(faults);
        if let Some(facility) = &self.facility {
            facility.check(faults);
        }
        if let Some(accounts) = &self.bmc_accounts {
            accounts.check(faults);
        }
        self.ethernet.check(faults);
        self.bmc_state.check(self.bmc_accounts.as_ref(), faults);
        console::check(self.console.as_ref(), self.console_ssh.as_ref(), faults);
        if let Some(web) = &self.web {
            web.check(faults);
        }
    }
}

/// The built-in profiles with the operator's profiles of a folder.
fn quirks(folder: &Path, faults: &mut Vec<String>) -> Option<Arc<QuirkSet>> {
    match QuirkSet::with_folder(folder) {
        Ok(quirks) => Some(quirks),
        Err(failure) => {
            faults.push(format!("bmc_quirks: {}", chain(&failure)));
            None
        }
    }
}

impl WireApi {
    /// This replica's own URL, then the others in the order of the list.
    fn endpoints(&self, faults: &mut Vec<String>) -> Vec<String> {
        let first = self.names.first().map_or("", String::as_str);
        let own = format!("https://{first}:{}", self.listen.port());
        if self.endpoints.is_empty() {
            return vec![own];
        }
        if self.endpoints.len() > ENDPOINTS_MAX {
            faults.push(format!("api.endpoints: at most {ENDPOINTS_MAX} endpoints"));
        }
        for endpoint in &self.endpoints {
            let address = endpoint.strip_prefix("https://").map(str::parse::<SocketAddr>);
            if !matches!(address, Some(Ok(_))) {
                faults.push(format!(
                    "api.endpoints: {endpoint:?} is not https://ADDRESS:PORT; agents do not resolve names"
                ));
            }
        }
        if !self.endpoints.contains(&own) {
            faults.push(format!(
                "api.endpoints: this replica is missing: {own}, from the first of api.names and the port of api.listen"
            ));
        }
        let others = self.endpoints.iter().filter(|endpoint| **endpoint != own).cloned();
        std::iter::once(own.clone()).chain(others).collect()
    }
}

impl WireBoot {
    fn check(self, faults: &mut Vec<String>) -> Boot {
        for (field, path) in [("kernel", &self.ramdisk.kernel), ("initrd", &self.ramdisk.initrd)] {
            if !path.is_file() {
                faults.push(format!(
                    "boot.ramdisk.{field}: {} is not a file; `make ramdisk` builds it",
                    path.display()
                ));
            }
        }
        if self.ramdisk.arguments.chars().any(char::is_control) {
            faults.push("boot.ramdisk.arguments: control characters are not allowed".into());
        }
        if let Err(ConfigFaults(more)) = self.network.clone().check() {
            faults.extend(more.into_iter().map(|fault| format!("boot.network.{fault}")));
        }
        Boot {
            method: self.method,
            ramdisk: self.ramdisk,
            network: self.network,
        }
    }
}

#[cfg(test)]
mod tests;
