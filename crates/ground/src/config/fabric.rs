//! The fabric manager, as the configuration names it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rackwright_fabric::{
    Diags, FabricError, FabricManager, Managers, OpenSm, OpenSmSettings, Process, ToolSettings, Tools, Ufm, UfmAccess,
    UfmSettings,
};
use rackwright_infiniband::{Guid, PKey};
use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use crate::text::chain;

/// Most bytes in one answer of UFM: some 100,000 ports.
const UFM_ANSWER_BYTES: usize = 256 << 20;
/// Longest time for one request to UFM.
const UFM_TIMEOUT: Duration = Duration::from_secs(60);

/// The settings block `fabric`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// OpenSM on this machine.
    #[serde(default)]
    opensm: Option<OpenSmFiles>,
    /// A UFM server.
    #[serde(default)]
    ufm: Option<UfmAddress>,
    /// The tools of infiniband-diags, which read the ports.
    #[serde(default)]
    tools: ToolFiles,
    /// The manager of each fabric, by the fabric's name in the site file. In place of `opensm`, `ufm` and `tools`.
    #[serde(default)]
    managers: BTreeMap<String, ManagerSettings>,
    /// First key for the partitions of clusters.
    #[serde(default = "first_key")]
    first_key: String,
    /// Last key for the partitions of clusters. A cluster may get it, too.
    #[serde(default = "last_key")]
    last_key: String,
    /// Longest time until all ports have a change, in seconds.
    #[serde(default = "deadline_s")]
    deadline_s: u32,
    /// Time without a change after which every port is read again, in seconds.
    #[serde(default = "proof_s")]
    pub proof_s: u32,
    /// Time between two checks of the isolation, and between two discoveries of the fabric with a comparison, in seconds; 0:
    /// never.
    #[serde(default = "check_s")]
    pub check_s: u32,
    /// What confirms a replaced adapter.
    #[serde(default)]
    pub adapters: Adapters,
}

/// `fabric.managers.NAME`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ManagerSettings {
    /// OpenSM on this machine.
    opensm: Option<OpenSmFiles>,
    /// A UFM server.
    ufm: Option<UfmAddress>,
    /// The tools of infiniband-diags, which read the ports.
    tools: ToolFiles,
}

/// `fabric.adapters`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adapters {
    /// What confirms a replaced adapter.
    confirm: Confirm,
}

impl Adapters {
    /// Whether the agreement of agent, BMC and fabric confirms a replaced adapter.
    #[must_use]
    pub fn by_agreement(&self) -> bool {
        self.confirm == Confirm::Agreement
    }
}

/// What confirms a replaced adapter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Confirm {
    /// The site file alone.
    #[default]
    Site,
    /// The site file, or the agreement of agent, BMC and fabric.
    Agreement,
}

/// `fabric.opensm`: the paths that OpenSM was started with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenSmFiles {
    /// `-P`
    partitions: PathBuf,
    /// `-f`
    log: PathBuf,
    /// `-F`
    #[serde(default)]
    options: Option<PathBuf>,
    /// The file with its process id.
    pid_file: PathBuf,
    /// Port GUIDs of subnet managers on other machines that may be the master.
    #[serde(default)]
    standbys: BTreeSet<Guid>,
}

/// `fabric.ufm`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct UfmAddress {
    url: String,
    /// A file that contains only an access token.
    token_file: PathBuf,
    /// Certificates in PEM of the authorities that may sign UFM's certificate.
    #[serde(default)]
    ca_file: Option<PathBuf>,
    /// Whether this machine is on the fabric, so that its tools can read ports. Only such a reading proves the isolation.
    #[serde(default)]
    read_ports: bool,
}

/// `fabric.tools`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ToolFiles {
    /// Their folder. `None`: they are on the search path.
    folder: Option<PathBuf>,
    /// The adapter of this machine that is in the fabric, such as `mlx5_2`. `None`: the first one with a port that is up.
    adapter: Option<String>,
    /// The port of the adapter.
    port: Option<u8>,
    /// Environment variables in addition to those of this process.
    environment: BTreeMap<String, String>,
}

impl ToolFiles {
    /// What selects the port of this machine that the tools send from. A simulator takes the port from the environment.
    fn reader(&self) -> (Option<&str>, u8, &BTreeMap<String, String>) {
        (self.adapter.as_deref(), self.port.unwrap_or(1), &self.environment)
    }
}

/// One manager, with the place of its settings for messages.
struct ManagerAt<'a> {
    /// `fabric`, or `fabric.managers.NAME`.
    place: String,
    opensm: Option<&'a OpenSmFiles>,
    ufm: Option<&'a UfmAddress>,
    tools: &'a ToolFiles,
}

fn first_key() -> String {
    "0x0001".into()
}

fn last_key() -> String {
    "0x7ffe".into()
}

fn deadline_s() -> u32 {
    300
}

fn proof_s() -> u32 {
    600
}

fn check_s() -> u32 {
    60
}

impl Settings {
    /// Adds each fault of the settings to `faults`.
    pub fn check(&self, faults: &mut Vec<String>) {
        let is_single = self.opensm.is_some() || self.ufm.is_some() || self.tools != ToolFiles::default();
        if !self.managers.is_empty() && is_single {
            faults.push(
                "fabric: has managers, and opensm, ufm or tools as well: name each manager with its tools below managers"
                    .into(),
            );
        }
        let (mut files, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for one in self.managers_at() {
            one.check(faults);
            if one.reads_ports() && !ports.insert(one.tools.reader()) {
                faults.push(format!(
                    "{}.tools: another manager reads the same port of this machine: name the adapter that is in this fabric, \
                     such as mlx5_2",
                    one.place
                ));
            }
            for (field, path) in one.opensm.iter().flat_map(|opensm| opensm.files()) {
                if !files.insert(path) {
                    faults.push(format!(
                        "{}.opensm.{field}: another OpenSM has the file {} already",
                        one.place,
                        path.display()
                    ));
                }
            }
        }
        for (field, key) in [("first_key", &self.first_key), ("last_key", &self.last_key)] {
            if let Err(fault) = key.parse::<PKey>() {
                faults.push(format!("fabric.{field}: {fault}"));
            }
        }
        if let Ok((first, last)) = self.keys()
            && (first > last || last == PKey::DEFAULT)
        {
            faults.push(format!(
                "fabric.last_key: {first} to {last} is not a range of keys within 0x0001 to 0x7ffe"
            ));
        }
        for (field, seconds) in [("deadline_s", self.deadline_s), ("proof_s", self.proof_s)] {
            if seconds == 0 {
                faults.push(format!("fabric.{field}: must be at least 1"));
            }
        }
    }

    /// The range of keys.
    ///
    /// # Errors
    /// A key does not parse, which `check` has reported.
    pub fn keys(&self) -> Result<(PKey, PKey), String> {
        let parse = |key: &str| key.parse::<PKey>().map_err(|e| e.to_string());
        Ok((parse(&self.first_key)?, parse(&self.last_key)?))
    }

    /// The settings of each manager.
    fn managers_at(&self) -> Vec<ManagerAt<'_>> {
        if self.managers.is_empty() {
            return vec![ManagerAt {
                place: "fabric".to_owned(),
                opensm: self.opensm.as_ref(),
                ufm: self.ufm.as_ref(),
                tools: &self.tools,
            }];
        }
        let named = self.managers.iter();
        let named = named.map(|(fabric, manager)| ManagerAt {
            place: format!("fabric.managers.{fabric}"),
            opensm: manager.opensm.as_ref(),
            ufm: manager.ufm.as_ref(),
            tools: &manager.tools,
        });
        named.collect()
    }

    /// The names of the fabrics with a manager. Empty: the site has one fabric, and the settings do not name it.
    pub fn fabrics(&self) -> impl Iterator<Item = &str> {
        self.managers.keys().map(String::as_str)
    }

    /// The names of the fabrics that are discovered. A UFM without `read_ports` discovers nothing.
    pub fn discovered(&self) -> impl Iterator<Item = &str> {
        let reads = |manager: &ManagerSettings| match &manager.ufm {
            Some(ufm) => ufm.read_ports,
            None => true,
        };
        let managers = self.managers.iter().filter(move |(_, manager)| reads(manager));
        managers.map(|(fabric, _)| fabric.as_str())
    }

    /// Makes the client of the manager, or of the managers of all fabrics.
    ///
    /// # Errors
    /// A file cannot be read, or the settings are unusable.
    pub fn manager(&self) -> Result<Arc<dyn FabricManager>, String> {
        let mut clients = Vec::new();
        for one in self.managers_at() {
            clients.push(self.client(&one)?);
        }
        if self.managers.is_empty()
            && let Some(only) = clients.pop()
        {
            return Ok(only);
        }
        let fabrics = self.fabrics().map(str::to_owned);
        Ok(Arc::new(Managers::new(fabrics.zip(clients))))
    }

    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    fn client(&self, one: &ManagerAt<'_>) -> Result<Arc<dyn FabricManager>, String> {
        let place = &one.place;
        let diags = Diags::new(Tools::new(ToolSettings {
            folder: one.tools.folder.clone(),
            environment: one.tools.environment.clone().into_iter().collect(),
            port: one
                .tools
                .adapter
                .clone()
                .map(|adapter| (adapter, one.tools.port.unwrap_or(1))),
            ..ToolSettings::default()
        }));
        let deadline = Duration::from_secs(self.deadline_s.into());
        if let Some(files) = one.opensm {
            let settings = OpenSmSettings {
                partitions: files.partitions.clone(),
                log: files.log.clone(),
                options: files.options.clone(),
                process: Process::File(files.pid_file.clone()),
                standbys: files.standbys.clone(),
                deadline,
            };
            return Ok(Arc::new(OpenSm::new(settings, diags)));
        }
        let Some(ufm) = one.ufm else {
            return Err(format!("{place}: needs opensm or ufm"));
        };
        let read = |path: &PathBuf| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let token = String::from_utf8_lossy(&read(&ufm.token_file)?).trim().to_owned();
        let (first, last) = self.keys()?;
        let settings = UfmSettings {
            url: Url::parse(&ufm.url).map_err(|e| format!("{place}.ufm.url: {e}"))?,
            authorities: ufm.ca_file.as_ref().map(read).transpose()?.unwrap_or_default(),
            access: UfmAccess::Token(SecretString::from(token)),
            first,
            last,
            timeout: UFM_TIMEOUT,
            answer_bytes: UFM_ANSWER_BYTES,
            deadline,
        };
        let manager = Ufm::new(settings, ufm.read_ports.then_some(diags));
        Ok(Arc::new(manager.map_err(|e: FabricError| chain(&e))?))
    }
}

impl OpenSmFiles {
    /// The files that belong to one OpenSM alone.
    fn files(&self) -> [(&'static str, &Path); 3] {
        [
            ("partitions", &self.partitions),
            ("log", &self.log),
            ("pid_file", &self.pid_file),
        ]
    }
}

impl ManagerAt<'_> {
    fn reads_ports(&self) -> bool {
        self.opensm.is_some() || self.ufm.is_some_and(|ufm| ufm.read_ports)
    }

    fn check(&self, faults: &mut Vec<String>) {
        let place = &self.place;
        if self.opensm.is_some() == self.ufm.is_some() {
            faults.push(format!("{place}: needs exactly one of opensm and ufm"));
        }
        if self.tools.port.is_some() && self.tools.adapter.is_none() {
            faults.push(format!(
                "{place}.tools.port: needs the adapter of the port, such as mlx5_2"
            ));
        }
        let Some(ufm) = self.ufm else { return };
        if Url::parse(&ufm.url).is_err() {
            faults.push(format!("{place}.ufm.url: {:?} is not a URL", ufm.url));
        }
        if !ufm.token_file.is_file() {
            faults.push(format!(
                "{place}.ufm.token_file: {} is not a file",
                ufm.token_file.display()
            ));
        }
    }
}
