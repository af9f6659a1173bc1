//! The configuration file: as written, then checked. Every fault is reported at once, and an unknown field is a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rackwright_lifecycle::{Limits, Policy};
use rackwright_netboot::connections;
use rackwright_netboot::{ConfigFaults, NetbootConfig};
use rackwright_redfish::quirks::QuirkSet;
use rackwright_store::Database;
use serde::Deserialize;

use crate::clusters::{manager, network};
use crate::{
    attestation, audit, bmc_state, console, credentials, discovery, ethernet, facility, firmware_settings, space,
    telemetry, watch_power,
};

/// Replicas that agents are told of: the list stands on their kernel's command line.
const ENDPOINTS_MAX: usize = 8;

/// The database's file in the data folder.
const DATABASE: &str = "rackwright.db";

/// As written. Not to be shown: the database's URL may hold a password.
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
    power_watch: watch_power::Settings,
    #[serde(default)]
    fabric: Option<manager::Settings>,
    #[serde(default)]
    network_test: network::Settings,
    #[serde(default)]
    facility: Option<facility::Settings>,
    #[serde(default)]
    settings_watch: firmware_settings::Settings,
    #[serde(default)]
    discovery: discovery::Settings,
    #[serde(default)]
    bmc_quirks: Option<PathBuf>,
    #[serde(default)]
    bmc_accounts: Option<credentials::Settings>,
    #[serde(default)]
    bmc_state: bmc_state::Settings,
    console: Option<console::Settings>,
    #[serde(default)]
    console_ssh: Option<console::SshSettings>,
    #[serde(default)]
    audit: audit::export::Settings,
    #[serde(default)]
    identity: attestation::Settings,
    #[serde(default)]
    ethernet: ethernet::Settings,
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

/// How images are taken in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Images {
    /// minisign public keys (the base64 line) whose signatures count.
    pub trusted_keys: Vec<String>,
    /// Refuse images without a signature by one of them.
    pub require_signature: bool,
}

/// How machines are told to boot over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootMethod {
    /// PXE.
    #[default]
    Pxe,
    /// UEFI HTTP Boot.
    UefiHttp,
}

/// The ramdisk that machines are booted into.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramdisk {
    /// Its kernel.
    pub kernel: PathBuf,
    /// The initial ramdisk with the agent.
    pub initrd: PathBuf,
    /// Added to the kernel's command line, such as `console=ttyS1,115200`.
    #[serde(default)]
    pub arguments: String,
}

/// As written: boot services and what they hand out.
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
    /// How machines are told to boot.
    pub method: BootMethod,
    /// What they are booted into.
    pub ramdisk: Ramdisk,
    /// DHCP, TFTP and boot HTTP.
    pub network: NetbootConfig,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where keys and, if nothing else is said, images and the database are kept.
    pub data_dir: PathBuf,
    /// Where images and uploads are kept, which replicas share.
    pub shared_dir: PathBuf,
    /// The database.
    pub database: Database,
    /// The site's name.
    pub site: String,
    /// Where the API listens.
    pub api_listen: SocketAddr,
    /// Names and addresses the server is known by; the first is told to agents.
    pub names: Vec<String>,
    /// URLs of every replica's API, as agents are told them; this one's first.
    pub endpoints: Vec<String>,
    /// Where the image store listens.
    pub store_listen: SocketAddr,
    /// URLs agents fetch images from, in order.
    pub store_urls: Vec<String>,
    /// Members that may fetch every image: caching proxies.
    pub store_caches: BTreeSet<String>,
    /// Boot services; none: this process offers none.
    pub boot: Option<Boot>,
    /// Images.
    pub images: Images,
    /// Time limits and budgets.
    pub policy: Policy,
    /// How many machines may do at once what burdens what they share.
    pub limits: Limits,
    /// How many connections listeners take.
    pub connections: connections::Limits,
    /// How much room stays free on disks, and how large site files may be.
    pub storage: space::Settings,
    /// Validation profiles by SKU.
    pub profiles: BTreeMap<String, PathBuf>,
    /// Where installed systems are logged in to.
    pub ssh_port: u16,
    /// Where traces go; none: nowhere.
    pub telemetry: Option<telemetry::Settings>,
    /// How often nodes at rest are looked at.
    pub power_watch: watch_power::Settings,
    /// How often power and cooling are read; none: they are not.
    pub facility: Option<facility::Settings>,
    /// How often settings of firmware are read again.
    pub settings_watch: firmware_settings::Settings,
    /// How quickly addresses are looked at, and what is known of the management network.
    pub discovery: discovery::Settings,
    /// Who manages the InfiniBand fabric; none: clusters get no partitions.
    pub fabric: Option<manager::Settings>,
    /// Tests of the network between the nodes of a cluster.
    pub network_test: network::Settings,
    /// What single BMCs need done differently, the operator's own profiles included; none: what is built in.
    pub bmc_quirks: Option<Arc<QuirkSet>>,
    /// What is wanted of the accounts of BMCs; none: they are as they were enrolled.
    pub bmc_accounts: Option<credentials::Settings>,
    /// What may stay on BMCs between customers.
    pub bmc_state: bmc_state::Settings,
    /// What of consoles is recorded; none: nothing.
    pub console: Option<console::Settings>,
    /// Where SSH clients come to consoles; none: nowhere.
    pub console_ssh: Option<console::SshSettings>,
    /// Where records of the audit go beside the database.
    pub audit: audit::export::Settings,
    /// How machines have to prove which one they are.
    pub identity: attestation::Settings,
    /// The networks of nodes' switch ports.
    pub ethernet: ethernet::Settings,
}

/// Why a configuration is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not what it should be; names line and field.
    #[error("{}: {message}\n  What follows in the file was not checked.", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        message: String,
    },
    /// Its values do not fit together; every fault, a line each.
    #[error("{}:\n  {}", path.display(), faults.join("\n  "))]
    Faults {
        /// The file.
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
    /// It cannot be read, is not YAML of this form, or its values do not fit together.
    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        // The lines around a fault are not shown where one of them may hold the database's or the collector's password.
        let holds_secrets = text.contains("postgres") || text.contains("headers");
        let options = serde_saphyr::options! { with_snippet: !holds_secrets };
        let wire: Wire = serde_saphyr::from_str_with_options(text, options).map_err(|e| ConfigError::Syntax {
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
            None if self.database_password_file.is_some() => Err("is needed: there is a database_password_file".into()),
            None => Ok(Database::from(&self.data_dir.join(DATABASE))),
        };
        let database = database.unwrap_or_else(|fault| {
            faults.push(format!("database: {fault}"));
            Database::from(DATABASE)
        });
        if self.api.names.is_empty() {
            faults.push("api.names: at least one name or address by which clients reach this server".into());
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
        if self.images.require_signature && self.images.trusted_keys.is_empty() {
            faults.push("images.require_signature: no image could ever be added without images.trusted_keys".into());
        }
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
        }
    }

    /// Checks the blocks that stand for themselves.
    fn check_parts(&self, faults: &mut Vec<String>) {
        for (field, value) in [("policy.tries", self.policy.tries), ("policy.boots", self.policy.boots)] {
            if value == 0 {
                faults.push(format!("{field}: must be at least 1"));
            }
        }
        faults.extend(self.limits.faults());
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
    }
}

/// The profiles of a folder behind those that are built in.
fn quirks(folder: &Path, faults: &mut Vec<String>) -> Option<Arc<QuirkSet>> {
    match QuirkSet::with_folder(folder) {
        Ok(quirks) => Some(quirks),
        Err(failure) => {
            let cause = std::error::Error::source(&failure).map(|cause| format!(": {cause}"));
            faults.push(format!("bmc_quirks: {failure}{}", cause.unwrap_or_default()));
            None
        }
    }
}

impl WireApi {
    /// This replica's own URL, then the others as they are listed.
    fn endpoints(&self, faults: &mut Vec<String>) -> Vec<String> {
        let first = self.names.first().map_or("", String::as_str);
        let own = format!("https://{first}:{}", self.listen.port());
        if self.endpoints.is_empty() {
            return vec![own];
        }
        if self.endpoints.len() > ENDPOINTS_MAX {
            faults.push(format!("api.endpoints: at most {ENDPOINTS_MAX}"));
        }
        for endpoint in &self.endpoints {
            let address = endpoint.strip_prefix("https://").map(str::parse::<SocketAddr>);
            if !matches!(address, Some(Ok(_))) {
                faults.push(format!(
                    "api.endpoints: {endpoint:?} is not https://ADDRESS:PORT; agents resolve no names"
                ));
            }
        }
        if !self.endpoints.contains(&own) {
            faults.push(format!(
                "api.endpoints: this replica is missing: {own}, of api.listen and the first of api.names"
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
