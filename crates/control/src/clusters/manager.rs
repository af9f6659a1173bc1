//! The fabric manager, as the configuration names it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rackwright_fabric::{
    Diags, FabricError, FabricManager, OpenSm, OpenSmSettings, Process, ToolSettings, Tools, Ufm, UfmAccess,
    UfmSettings,
};
use rackwright_infiniband::PKey;
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
    /// First key for the partitions of clusters.
    #[serde(default = "first_key")]
    first_key: String,
    /// Last key.
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
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ToolFiles {
    /// Their folder. `None`: they are on the search path.
    folder: Option<PathBuf>,
    /// Environment variables in addition to those of this process.
    environment: std::collections::BTreeMap<String, String>,
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
        if self.opensm.is_some() == self.ufm.is_some() {
            faults.push("fabric: needs exactly one of opensm and ufm".into());
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
        if let Some(ufm) = &self.ufm {
            if Url::parse(&ufm.url).is_err() {
                faults.push(format!("fabric.ufm.url: {:?} is not a URL", ufm.url));
            }
            if !ufm.token_file.is_file() {
                faults.push(format!(
                    "fabric.ufm.token_file: {} is not a file",
                    ufm.token_file.display()
                ));
            }
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

    /// Makes the client of the manager.
    ///
    /// # Errors
    /// A file cannot be read, or the settings are unusable.
    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    pub fn manager(&self) -> Result<Arc<dyn FabricManager>, String> {
        let diags = Diags::new(Tools::new(ToolSettings {
            folder: self.tools.folder.clone(),
            environment: self.tools.environment.clone().into_iter().collect(),
            ..ToolSettings::default()
        }));
        let deadline = Duration::from_secs(self.deadline_s.into());
        if let Some(files) = &self.opensm {
            let settings = OpenSmSettings {
                partitions: files.partitions.clone(),
                log: files.log.clone(),
                options: files.options.clone(),
                process: Process::File(files.pid_file.clone()),
                deadline,
            };
            return Ok(Arc::new(OpenSm::new(settings, diags)));
        }
        let Some(ufm) = &self.ufm else {
            return Err("fabric: needs opensm or ufm".into());
        };
        let read = |path: &PathBuf| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let token = String::from_utf8_lossy(&read(&ufm.token_file)?).trim().to_owned();
        let (first, last) = self.keys()?;
        let settings = UfmSettings {
            url: Url::parse(&ufm.url).map_err(|e| format!("fabric.ufm.url: {e}"))?,
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
