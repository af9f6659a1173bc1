//! NVIDIA UFM by its REST interface (UFM Enterprise REST API guide, "PKey GUIDs" and "Ports").
//!
//! Only keys of the configured range are ever written: UFM's other partitions belong to others. Members are sent as sets.
//! UFM's answers are its own records of the fabric and prove nothing about a port: with [`Diags`] on a machine of the
//! fabric, tables are read from the ports themselves.

mod client;
mod edits;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use rackwright_infiniband::partition::{HealthCheck, compare, health};
use rackwright_infiniband::{Dump, Guid, PKey, Partition, Partitions, Tables};
use secrecy::SecretString;
use tokio::sync::Mutex;
use tracing::{info, warn};
use url::Url;

use crate::diags::{Diags, end_ports};
use crate::error::{FabricError, RolledBack};
use crate::fence::Fence;
use crate::manager::{Applied, FabricManager, Inspection, Proof, Reading};
use client::Client;
pub use client::UfmError;
use edits::Edit;

/// The credentials for UFM.
#[derive(Debug, Clone)]
pub enum UfmAccess {
    /// A user and password, by `/ufmRest`.
    User {
        /// User name.
        name: String,
        /// The user's password.
        password: SecretString,
    },
    /// An access token, by `/ufmRestV3`.
    Token(SecretString),
}

/// The UFM server, and the range of keys that this program owns.
#[derive(Debug, Clone)]
pub struct UfmSettings {
    /// `https://ufm.example`; the path of the interface is appended.
    pub url: Url,
    /// Authority certificates in PEM, one of which must have signed UFM's certificate. Not needed for UFM on this machine
    /// without TLS.
    pub authorities: Vec<u8>,
    /// The credentials.
    pub access: UfmAccess,
    /// First key of the owned range.
    pub first: PKey,
    /// Last key of the owned range.
    pub last: PKey,
    /// Longest time for one request.
    pub timeout: Duration,
    /// Most bytes read of an answer.
    pub answer_bytes: usize,
    /// Longest time until the ports have what UFM accepted; used only where ports can be read.
    pub deadline: Duration,
}

/// A UFM server.
#[derive(Debug)]
pub struct Ufm {
    settings: UfmSettings,
    client: Client,
    diags: Option<Diags>,
    changing: Mutex<()>,
}

impl Ufm {
    /// With these settings. With tools the ports are read; without tools UFM's records are used, and nothing is proven.
    ///
    /// # Errors
    /// The URL or the certificates are unusable, or the range includes the key of the default partition.
    pub fn new(settings: UfmSettings, diags: Option<Diags>) -> Result<Self, FabricError> {
        if settings.first > settings.last || settings.last == PKey::DEFAULT {
            return Err(UfmError::Setup(format!(
                "invalid range of keys: {} to {}",
                settings.first, settings.last
            ))
            .into());
        }
        let client = Client::new(&settings)?;
        Ok(Self {
            settings,
            client,
            diags,
            changing: Mutex::new(()),
        })
    }

    fn is_ours(&self, key: PKey) -> bool {
        (self.settings.first..=self.settings.last).contains(&key)
    }

    /// Removes the keys of others from the tables. The default partition is UFM's own too: this client does not set it.
    fn keep_own(&self, tables: &mut Tables) {
        for table in tables.read.values_mut() {
            table.retain(|entry| PKey::of_entry(*entry).is_some_and(|(key, _)| self.is_ours(key)));
        }
    }

    /// The partitions of the owned range, as UFM has them.
    async fn own_partitions(&self) -> Result<BTreeMap<PKey, views::UfmPartition>, UfmError> {
        let answer = self.client.get("resources/pkeys", &[("guids_data", "true")]).await?;
        let mut all = views::partitions(&answer)?;
        all.retain(|key, _| self.is_ours(*key));
        Ok(all)
    }

    async fn ports(&self) -> Result<BTreeSet<Guid>, UfmError> {
        let answer = self.client.get("resources/ports", &[("sys_type", "Computer")]).await?;
        views::ports(&answer)
    }

    async fn perform(&self, edits: &[Edit], fence: &dyn Fence) -> Result<(), FabricError> {
        for edit in edits {
            fence.check().await.map_err(FabricError::Fenced)?;
            match edit {
                Edit::Create { body } => self.client.post("resources/pkeys/add", body).await?,
                Edit::Add { body } => self.client.post("resources/pkeys/", body).await?,
                Edit::Remove { key, guids } => {
                    self.client
                        .delete(&format!("resources/pkeys/{key}/guids/{}", edits::csv(guids)))
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Sends UFM the difference, and checks that UFM has it now. Returns whether anything was sent.
    async fn apply_and_verify(
        &self,
        wanted: &BTreeMap<PKey, Partition>,
        fence: &dyn Fence,
    ) -> Result<bool, FabricError> {
        let edits = edits::edits(&self.own_partitions().await?, wanted);
        if edits.is_empty() {
            return Ok(false);
        }
        self.perform(&edits, fence).await?;
        let left = edits::edits(&self.own_partitions().await?, wanted);
        if left.is_empty() {
            return Ok(true);
        }
        Err(UfmError::NotApplied(left.iter().map(Edit::unfulfilled).take(5).collect()).into())
    }

    async fn roll_back(&self, former: &BTreeMap<PKey, views::UfmPartition>, fence: &dyn Fence) -> RolledBack {
        let former: BTreeMap<PKey, Partition> = former.iter().map(|(key, held)| (*key, held.partition(*key))).collect();
        match self.apply_and_verify(&former, fence).await {
            Ok(_) => RolledBack::Yes,
            Err(error) => RolledBack::Failed(error.to_string()),
        }
    }

    /// Waits until the ports themselves have the wanted keys: UFM answers before its subnet manager has swept.
    async fn wait_until_proven(&self, diags: &Diags, wanted: &Partitions) -> Result<Reading, Vec<ProofError>> {
        let deadline = tokio::time::Instant::now() + self.settings.deadline;
        loop {
            let reading = self.read(diags).await.map_err(|error| vec![ProofError::Error(error)])?;
            let differences = self.own_differences(wanted, &reading);
            if differences.is_empty() {
                return Ok(reading);
            }
            // There is no event at the end of a sweep by UFM's subnet manager, so the ports are polled.
            let pause = tokio::time::Instant::now() + Duration::from_millis(500);
            if pause > deadline {
                return Err(differences.into_iter().map(ProofError::Difference).collect());
            }
            tokio::time::sleep_until(pause).await;
        }
    }

    /// The differences of the ports from the wanted partitions, for keys of the owned range.
    fn own_differences(
        &self,
        wanted: &Partitions,
        reading: &Reading,
    ) -> Vec<rackwright_infiniband::partition::Difference> {
        let ports: Vec<Guid> = reading
            .tables
            .read
            .keys()
            .chain(reading.tables.unread.keys())
            .copied()
            .collect();
        let mut differences = compare(wanted, &reading.managers, ports, &reading.tables);
        differences.retain(|difference| difference.key.is_none_or(|key| self.is_ours(key)));
        differences
    }

    async fn read(&self, diags: &Diags) -> Result<Reading, FabricError> {
        let dump = diags.discover().await?;
        Ok(Reading {
            tables: diags.tables(&end_ports(&dump.fabric)).await,
            managers: BTreeSet::from([diags.master().await?.port]),
            proof: Proof::Ports,
        })
    }

    /// The tables by UFM's own records, of the ports that UFM has in its fabric. Members of a partition may be in another
    /// one.
    async fn recorded_tables(&self) -> Result<Reading, FabricError> {
        let answer = self.client.get("resources/pkeys", &[("guids_data", "true")]).await?;
        let mut read: BTreeMap<Guid, Vec<u16>> =
            self.ports().await?.into_iter().map(|port| (port, Vec::new())).collect();
        for (key, held) in views::partitions(&answer)? {
            for (port, member) in held.members {
                let Some(table) = read.get_mut(&port) else { continue };
                let entry = key.entry(member.membership);
                if member.first {
                    table.insert(0, entry)
                } else {
                    table.push(entry)
                }
            }
        }
        Ok(Reading {
            tables: Tables {
                read,
                unread: BTreeMap::new(),
            },
            managers: BTreeSet::new(),
            proof: Proof::Manager,
        })
    }
}

enum ProofError {
    Difference(rackwright_infiniband::partition::Difference),
    Error(FabricError),
}

#[async_trait]
impl FabricManager for Ufm {
    fn name(&self) -> &'static str {
        "UFM"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        match &self.diags {
            Some(diags) => diags.discover().await,
            None => Err(FabricError::Unsupported(
                "reading UFM's fabric needs infiniband-diags on a machine of that fabric, and none is configured",
            )),
        }
    }

    async fn apply(&self, wanted: &Partitions, fence: &dyn Fence) -> Result<Applied, FabricError> {
        wanted.check()?;
        if let Some(other) = wanted.partitions.keys().find(|key| !self.is_ours(**key)) {
            let (first, last) = (self.settings.first, self.settings.last);
            return Err(UfmError::ForeignKey {
                key: *other,
                first,
                last,
            }
            .into());
        }
        let _alone = self.changing.lock().await;
        let former = self.own_partitions().await?;
        let changed = match self.apply_and_verify(&wanted.partitions, fence).await {
            Ok(changed) => changed,
            Err(error @ FabricError::Fenced(_)) => return Err(error),
            Err(error) => {
                let rolled_back = self.roll_back(&former, fence).await;
                warn!(%error, %rolled_back, "UFM did not apply the partitions");
                return Err(UfmError::ApplyFailed {
                    why: error.to_string(),
                    rolled_back,
                }
                .into());
            }
        };
        let reading = match &self.diags {
            None => self.recorded_tables().await?,
            Some(diags) => match self.wait_until_proven(diags, wanted).await {
                Ok(reading) => reading,
                Err(errors) => {
                    let rolled_back = self.roll_back(&former, fence).await;
                    let mut differences = Vec::new();
                    for one in errors {
                        match one {
                            ProofError::Error(error) => return Err(error),
                            ProofError::Difference(difference) => differences.push(difference),
                        }
                    }
                    return Err(FabricError::Mismatch {
                        differences,
                        rolled_back,
                    });
                }
            },
        };
        let known = self.ports().await?;
        let members = wanted
            .partitions
            .values()
            .flat_map(|partition| partition.members.keys().copied());
        let absent = members.filter(|member| !known.contains(member)).collect();
        info!(partitions = wanted.partitions.len(), changed, "UFM has the partitions");
        Ok(Applied {
            changed,
            before: None,
            absent,
            reading,
        })
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        match &self.diags {
            Some(diags) => self.read(diags).await,
            None => self.recorded_tables().await,
        }
    }

    async fn inspect(&self, ports: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        let _alone = self.changing.lock().await;
        let mut reading = match &self.diags {
            _ if ports.is_empty() => Reading {
                tables: Tables::default(),
                managers: BTreeSet::new(),
                proof: Proof::Ports,
            },
            Some(diags) => Reading {
                tables: diags.tables(ports).await,
                managers: BTreeSet::new(),
                proof: Proof::Ports,
            },
            None => self.recorded_tables().await?,
        };
        reading.tables.read.retain(|port, _| ports.contains(port));
        self.keep_own(&mut reading.tables);
        Ok(Inspection {
            files: Vec::new(),
            manager: None,
            reading,
            problem: None,
        })
    }

    async fn confirm(&self, unexpected: &Tables) -> Result<Tables, FabricError> {
        let Some(diags) = &self.diags else {
            return Ok(unexpected.clone());
        };
        let mut confirmed = diags.confirm(unexpected).await;
        self.keep_own(&mut confirmed);
        Ok(confirmed)
    }

    /// UFM does not expose the keys of its subnet manager, so these are unknown.
    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        let reading = self.tables().await?;
        Ok(health(None, &reading.managers, &reading.tables))
    }
}
