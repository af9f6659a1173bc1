//! OpenSM on this machine: its files, its signal, its log, and the final reading of the ports.
//!
//! OpenSM reads `partitions.conf` on SIGHUP, and fails open: if the file is unreadable or missing, every port becomes a
//! full member of the default partition. So only text that was parsed here first is written, the file is replaced
//! atomically, and every port's table is read back before a change counts as done.

mod file;
mod log;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rackwright_infiniband::partition::{self, HealthCheck, ManagerOptions, compare, health};
use rackwright_infiniband::{Dump, Guid, Partitions, Tables};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::diags::{Diags, end_ports};
use crate::error::{FabricError, RolledBack};
use crate::fence::{Fence, Unshared};
use crate::manager::{Applied, FabricManager, Inspection, ManagerFault, Master, Proof, Reading};
use log::{Follower, LogEvent};

/// Interval of the checks whether OpenSM still runs, while a sweep is awaited.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How to find the OpenSM process.
#[derive(Debug, Clone)]
pub enum Process {
    /// The process id is in this file.
    File(PathBuf),
    /// The process id.
    Number(u32),
}

/// The files and limits of OpenSM.
#[derive(Debug, Clone)]
pub struct OpenSmSettings {
    /// `partitions.conf`, as given to OpenSM by `-P`.
    pub partitions: PathBuf,
    /// OpenSM's log, as given by `-f`. With `-d2` it is written at once; without, the end of a sweep may be seen late.
    pub log: PathBuf,
    /// OpenSM's options (`opensm.conf`), for the health check; none: there is no such file.
    pub options: Option<PathBuf>,
    /// The OpenSM process.
    pub process: Process,
    /// Port GUIDs of subnet managers on other machines that may be the master: standbys of this OpenSM.
    pub standbys: BTreeSet<Guid>,
    /// Longest time from the signal until every port has the wanted keys. A sweep of 8,192 ports takes 20 s, and the
    /// reading comes on top.
    pub deadline: Duration,
}

/// A running OpenSM.
#[derive(Debug)]
pub struct OpenSm {
    settings: OpenSmSettings,
    diags: Diags,
    /// The last text that took effect; none: no text has since the start of this process. Locked by each change.
    proven: Mutex<Option<String>>,
}

impl OpenSm {
    /// With these settings; reads ports with these tools.
    pub fn new(settings: OpenSmSettings, diags: Diags) -> Self {
        Self {
            settings,
            diags,
            proven: Mutex::new(None),
        }
    }

    /// Applies partitions from a text of another author, parsed as strictly as this program's own.
    ///
    /// # Errors
    /// [`FabricError::Conf`] if OpenSM could read the text differently; else those of [`FabricManager::apply`].
    pub async fn apply_text(&self, text: &str) -> Result<Applied, FabricError> {
        let wanted = partition::parse(text)?;
        self.apply(&wanted, &Unshared).await
    }

    /// The process of OpenSM.
    ///
    /// # Errors
    /// [`FabricError::NoManager`] if OpenSM does not run; the file with the process id cannot be read.
    fn process(&self) -> Result<Pid, FabricError> {
        let (pid, of) = match &self.settings.process {
            Process::Number(pid) => (*pid, format!("it was process {pid}")),
            Process::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|source| file::failed("read", path, source))?;
                let number = text.trim().parse::<u32>();
                let none =
                    || FabricError::NoManager(format!("OpenSM cannot be found: {} has no process id", path.display()));
                let pid = number.map_err(|_| none())?;
                (pid, format!("its pid file names {pid}"))
            }
        };
        let gone = |why: String| FabricError::NoManager(format!("OpenSM does not run ({why})"));
        // The number may belong to another program by now, which must not be signalled.
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match name.trim() {
            "opensm" => {}
            "" => return Err(gone(of)),
            other => return Err(gone(format!("{of}, which is {other:?}"))),
        }
        i32::try_from(pid).map(Pid::from_raw).map_err(|_| gone(of))
    }

    fn signal(&self) -> Result<(), FabricError> {
        let pid = self.process()?;
        kill(pid, Signal::SIGHUP)
            .map_err(|errno| FabricError::NoManager(format!("OpenSM (process {pid}) cannot be signalled: {errno}")))
    }

    /// The master subnet manager.
    ///
    /// # Errors
    /// [`FabricError::NoMaster`] with the reason; the tool fails in another way.
    async fn master(&self) -> Result<Master, FabricError> {
        match self.diags.master().await {
            Err(FabricError::NoMaster(_)) => {
                let why = self.process().err().map(|error| error.to_string());
                Err(FabricError::NoMaster(why))
            }
            other => other,
        }
    }

    /// Whether this master is neither on this machine nor a known standby. False if the ports of this machine are not known.
    async fn is_foreign(&self, master: Master) -> bool {
        if self.settings.standbys.contains(&master.port) {
            return false;
        }
        match self.diags.local_ports().await {
            Ok(own) => !own.is_empty() && !own.contains(&master.port),
            Err(error) => {
                warn!(%error, "the ports of this machine are not known: a foreign subnet manager is not noticed");
                false
            }
        }
    }

    async fn read(&self) -> Result<(Reading, BTreeSet<Guid>), FabricError> {
        let master = self.master().await?;
        if self.is_foreign(master).await {
            return Err(FabricError::ForeignMaster(master));
        }
        let dump = self.diags.discover().await?;
        let ports = end_ports(&dump.fabric);
        let tables = self.diags.tables(&ports).await;
        let reading = Reading {
            tables,
            managers: BTreeSet::from([master.port]),
            proof: Proof::Ports,
        };
        Ok((reading, ports))
    }

    /// Checks that OpenSM reads its file and sets the keys of ports. Ok if no subnet manager answers: OpenSM may be
    /// starting.
    ///
    /// # Errors
    /// [`FabricError::NoManager`] and [`FabricError::ForeignMaster`], which say why not.
    async fn is_in_charge(&self) -> Result<(), FabricError> {
        match self.master().await {
            Ok(master) if self.is_foreign(master).await => Err(FabricError::ForeignMaster(master)),
            _ => self.process().map(|_pid| ()),
        }
    }

    /// Writes the file, has OpenSM read it, and waits until the ports have the wanted keys.
    async fn apply_and_verify(
        &self,
        text: &str,
        wanted: &Partitions,
        fence: &dyn Fence,
    ) -> Result<Reading, ApplyError> {
        let mut follower = Follower::start(&self.settings.log).map_err(ApplyError::Untouched)?;
        fence
            .check()
            .await
            .map_err(|why| ApplyError::Untouched(FabricError::Fenced(why)))?;
        file::replace(&self.settings.partitions, text).map_err(ApplyError::Untouched)?;
        self.is_in_charge().await.map_err(ApplyError::Unread)?;
        fence
            .check()
            .await
            .map_err(|why| ApplyError::Unread(FabricError::Fenced(why)))?;
        self.signal().map_err(ApplyError::Unread)?;
        let deadline = Instant::now() + self.settings.deadline;
        let mut differences = None;
        loop {
            let next = deadline.min(Instant::now() + POLL_INTERVAL);
            let seen = tokio::time::timeout_at(next, follower.next()).await;
            match seen {
                Err(_) if Instant::now() < deadline => {
                    self.is_in_charge().await.map_err(ApplyError::Unread)?;
                    continue;
                }
                Err(_) => {
                    return Err(match differences {
                        Some(differences) => ApplyError::Mismatch(differences),
                        None => ApplyError::Other(FabricError::NoSweep(self.settings.deadline)),
                    });
                }
                Ok(Err(error)) => return Err(ApplyError::Other(error)),
                Ok(Ok(LogEvent::Refused(line))) => return Err(ApplyError::Refused(line)),
                Ok(Ok(LogEvent::SubnetUp)) => {}
            }
            // The finished sweep may have begun before the signal. So the tables of the ports decide, after this sweep or a
            // later one.
            let (reading, ports) = self.read().await.map_err(ApplyError::of_reading)?;
            let found = compare(wanted, &reading.managers, ports, &reading.tables);
            if found.is_empty() {
                return Ok(reading);
            }
            differences = Some(found);
        }
    }

    /// Restores the former file, or closes every partition if the former file was missing or invalid.
    async fn roll_back(&self, former: Option<&str>, fence: &dyn Fence) -> RolledBack {
        let sound = former.and_then(|text| Some((text.to_owned(), partition::parse(text).ok()?)));
        let is_former = sound.is_some();
        let (text, partitions) = match sound {
            Some(sound) => sound,
            None => match Partitions::default().render() {
                Ok(text) => (text, Partitions::default()),
                Err(error) => return RolledBack::Failed(error.to_string()),
            },
        };
        match self.apply_and_verify(&text, &partitions, fence).await {
            Ok(_) if is_former => RolledBack::Yes,
            Ok(_) => RolledBack::ToClosed,
            Err(trouble) => {
                error!(?trouble, "the former partitions could not be restored");
                RolledBack::Failed(trouble.outcome_text())
            }
        }
    }
}

/// Why a file did not take effect.
#[derive(Debug)]
enum ApplyError {
    /// Nothing was changed.
    Untouched(FabricError),
    /// OpenSM does not run, another subnet manager is the master, or this process must not go on. OpenSM reads the changed
    /// file when it starts, or is the master again.
    Unread(FabricError),
    /// OpenSM could not read the file. The argument is the line of its log.
    Refused(String),
    /// Ports have other keys.
    Mismatch(Vec<partition::Difference>),
    /// Anything else, after the file was changed.
    Other(FabricError),
}

impl ApplyError {
    /// The ports could not be read after a sweep.
    fn of_reading(error: FabricError) -> Self {
        match error {
            FabricError::NoMaster(_) | FabricError::ForeignMaster(_) => Self::Unread(error),
            other => Self::Other(other),
        }
    }

    fn outcome_text(&self) -> String {
        match self {
            Self::Untouched(error) | Self::Unread(error) | Self::Other(error) => error.to_string(),
            Self::Refused(line) => format!("OpenSM refused the file: {line}"),
            Self::Mismatch(differences) => format!("{} table entries differ", differences.len()),
        }
    }
}

#[async_trait]
impl FabricManager for OpenSm {
    fn name(&self) -> &'static str {
        "OpenSM"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        self.diags.discover().await
    }

    async fn apply(&self, wanted: &Partitions, fence: &dyn Fence) -> Result<Applied, FabricError> {
        let text = wanted.render()?;
        if partition::parse(&text)? != *wanted {
            return Err(FabricError::Unsupported(
                "the partition file for OpenSM does not read back as the wanted partitions",
            ));
        }
        let mut proven = self.proven.lock().await;
        let file = file::inspect(&self.settings.partitions)?;
        let former = file.content.as_deref().map(file::text);
        let mut before = None;
        if former.as_deref() == Some(text.as_str()) && file.is_protected {
            let (reading, ports) = self.read().await?;
            let differences = compare(wanted, &reading.managers, ports.iter().copied(), &reading.tables);
            if differences.is_empty() {
                *proven = Some(text);
                let absent = absent(wanted, &ports);
                return Ok(Applied {
                    changed: false,
                    before,
                    absent,
                    reading,
                });
            }
            before = Some(self.differing(&differences, reading).await);
        }
        match self.apply_and_verify(&text, wanted, fence).await {
            Ok(reading) => {
                *proven = Some(text);
                let ports: BTreeSet<Guid> = reading.tables.read.keys().copied().collect();
                let absent = absent(wanted, &ports);
                info!(
                    partitions = wanted.partitions.len(),
                    ports = ports.len(),
                    "partitions applied and read back"
                );
                Ok(Applied {
                    changed: true,
                    before,
                    absent,
                    reading,
                })
            }
            Err(ApplyError::Untouched(error) | ApplyError::Unread(error)) => Err(error),
            Err(trouble) => {
                warn!(
                    ?trouble,
                    "the partitions did not take effect; restoring the former partitions"
                );
                // A file that another has changed is not restored.
                let former = proven.as_deref().or(former.as_deref());
                let rolled_back = self.roll_back(former, fence).await;
                Err(match trouble {
                    ApplyError::Refused(line) => FabricError::Refused { line, rolled_back },
                    ApplyError::Mismatch(differences) => FabricError::Mismatch {
                        differences,
                        rolled_back,
                    },
                    ApplyError::Other(error) | ApplyError::Untouched(error) | ApplyError::Unread(error) => error,
                })
            }
        }
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        Ok(self.read().await?.0)
    }

    async fn inspect(&self, ports: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        let _alone = self.proven.lock().await;
        let mut reading = Reading {
            tables: Tables::default(),
            managers: BTreeSet::new(),
            proof: Proof::Ports,
        };
        let file = file::inspect(&self.settings.partitions)?;
        let mut manager = None;
        if !ports.is_empty() {
            match self.master().await {
                // Without a subnet manager no tool finds a port by its GUID.
                Err(error @ FabricError::NoMaster(_)) => manager = Some(ManagerFault::Absent(error.to_string())),
                Err(other) => return Err(other),
                Ok(master) => {
                    if self.is_foreign(master).await {
                        manager = Some(ManagerFault::Foreign { master, fabric: None });
                    } else {
                        reading.managers.insert(master.port);
                    }
                    reading.tables = self.diags.tables(ports).await;
                }
            }
        }
        Ok(Inspection {
            files: vec![file],
            manager,
            reading,
            problem: None,
        })
    }

    async fn confirm(&self, unexpected: &Tables) -> Result<Tables, FabricError> {
        Ok(self.diags.confirm(unexpected).await)
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        let options = match &self.settings.options {
            Some(path) => file::read(path)?.map(|text| ManagerOptions::parse(&text)),
            None => None,
        };
        let (reading, _) = self.read().await?;
        let managers = self.full_members(reading.managers)?;
        Ok(health(options.as_ref(), &managers, &reading.tables))
    }
}

impl OpenSm {
    /// The tables of the differing ports that a second reading confirms.
    async fn differing(&self, differences: &[partition::Difference], reading: Reading) -> Reading {
        let mut tables = Tables::default();
        for difference in differences {
            if let Some(table) = reading.tables.read.get(&difference.port) {
                tables.read.insert(difference.port, table.clone());
            }
        }
        Reading {
            tables: self.diags.confirm(&tables).await,
            ..reading
        }
    }

    /// Ports that may be full members of the default partition: those of subnet managers, and those in the file.
    fn full_members(&self, managers: BTreeSet<Guid>) -> Result<BTreeSet<Guid>, FabricError> {
        let named = file::read(&self.settings.partitions)?.and_then(|text| partition::parse(&text).ok());
        Ok(managers
            .into_iter()
            .chain(named.into_iter().flat_map(|named| named.management))
            .collect())
    }
}

fn absent(wanted: &Partitions, ports: &BTreeSet<Guid>) -> BTreeSet<Guid> {
    let members = wanted
        .partitions
        .values()
        .flat_map(|partition| partition.members.keys());
    members.filter(|member| !ports.contains(member)).copied().collect()
}

/// The folder of a file; for a bare name the current one.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
