//! Reads the resources for the assessment. An unreadable resource costs only the capabilities that depend on it.

use rackwright_redfish_wire::error::RedfishError;

use crate::client::BmcClient;
use crate::quirks::{Evidence, Profile};
use crate::resource::Resource;
use crate::views::{Manager, ServiceRoot, System, VirtualMedia};

use super::{Report, assess};

/// Most managers, and most chassis, virtual drives and log services, that a probe reads.
const MAX_EACH: usize = 16;

/// The result of looking for a resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Reading {
    /// There is no link to the resource.
    #[default]
    Absent,
    /// The resource.
    Read(Resource),
    /// There is a link; the reason why it could not be read.
    Failed(String),
}

impl Reading {
    /// The resource, if it was read.
    pub fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Read(resource) => Some(resource),
            _ => None,
        }
    }
}

/// The resources that a probe has read.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The service root.
    pub root: Resource,
    /// The profile that applies.
    pub profile: Profile,
    /// The machine.
    pub system: Reading,
    /// The machine's settings object.
    pub settings: Reading,
    /// The description of the reset action's parameters.
    pub reset_info: Reading,
    pub managers: Vec<Resource>,
    pub chassis: Vec<Resource>,
    /// The virtual drives.
    pub media: Vec<VirtualMedia>,
    /// Collections of virtual drives that are linked.
    pub media_collections: Vec<String>,
    pub bios: Reading,
    pub secure_boot: Reading,
    pub account_service: Reading,
    /// The collection of accounts.
    pub accounts: Reading,
    pub session_service: Reading,
    pub event_service: Reading,
    pub update_service: Reading,
    /// Log services of the system and its managers, with their linked entries if those were readable.
    pub logs: Vec<(Resource, Reading)>,
    /// The resources with sensors, of each chassis.
    pub sensors: Vec<(String, Reading)>,
    /// The number of known Ethernet addresses of the machine, those in its boot options only if there are no others; or the
    /// reason why they could not be read.
    pub macs: Result<usize, String>,
}

impl BmcClient {
    /// Identifies the BMC and its capabilities. Changes nothing.
    ///
    /// # Errors
    /// Faults of the whole BMC, and [`RedfishError::SeveralSystems`]. A BMC without a system is not an error.
    pub async fn probe(&self) -> Result<Report, RedfishError> {
        let limit = self.settings().walk_timeout;
        match tokio::time::timeout(limit, self.observe()).await {
            Ok(observed) => Ok(assess(&observed?)),
            Err(_) => Err(RedfishError::WaitedTooLong {
                bmc: self.address(),
                what: "the end of the probe".to_owned(),
                waited_s: limit.as_secs(),
                last: "the BMC answers slowly".to_owned(),
            }),
        }
    }

    /// Reads the resources for the assessment.
    ///
    /// # Errors
    /// Those of [`probe`](Self::probe).
    pub async fn observe(&self) -> Result<Observed, RedfishError> {
        let root = self.service_root().await?;
        let system = match self.system().await {
            Ok(system) => Reading::Read(system.resource().clone()),
            Err(RedfishError::NoSuchSystem { wanted, .. }) if wanted.is_empty() => Reading::Absent,
            Err(RedfishError::MissingProperty { .. }) => Reading::Absent,
            Err(failure @ (RedfishError::SeveralSystems { .. } | RedfishError::NoSuchSystem { .. })) => {
                return Err(failure);
            }
            Err(failure) => self.failed(failure)?,
        };
        let view = system.resource().cloned().map(System::from);
        let chassis = self.chassis_of(&root, view.as_ref()).await?;
        let managers = self.managers_of(&root, view.as_ref()).await?;
        let profile = match &view {
            Some(system) => self.profile_of(system, managers.first()).await?.clone(),
            None => {
                let evidence = Evidence::gather(root.resource(), None, managers.first()).with_chassis(&chassis);
                self.quirks()?.profile_for(&evidence)
            }
        };
        let accounts = self.read(root.resource().link(&["AccountService"])).await?;
        let system_link = |name: &str| view.as_ref().and_then(|system| system.resource().link(&[name]));
        let (media_collections, media) = self.media_of(view.as_ref(), &managers).await?;
        let reset = view.as_ref().and_then(System::reset);
        Ok(Observed {
            profile,
            settings: self.read(view.as_ref().and_then(System::settings)).await?,
            reset_info: self.read(reset.and_then(|action| action.info)).await?,
            media_collections,
            media,
            bios: self.read(system_link("Bios")).await?,
            secure_boot: self.read(system_link("SecureBoot")).await?,
            accounts: self
                .read(accounts.resource().and_then(|service| service.link(&["Accounts"])))
                .await?,
            account_service: accounts,
            session_service: self.read(root.session_service()).await?,
            event_service: self.read(root.event_service()).await?,
            update_service: self.read(root.update_service()).await?,
            logs: self.logs_of(view.as_ref(), &managers).await?,
            sensors: self.sensors_of(&chassis).await?,
            macs: self.macs_known(view.as_ref()).await?,
            root: root.resource().clone(),
            system,
            managers,
            chassis,
        })
    }

    /// Turns the failure of a single resource into a reading.
    fn failed(&self, failure: RedfishError) -> Result<Reading, RedfishError> {
        if failure.is_fatal_for_walk() {
            return Err(failure);
        }
        Ok(Reading::Failed(error_summary(&failure)))
    }

    async fn read(&self, link: Option<String>) -> Result<Reading, RedfishError> {
        let Some(link) = link else { return Ok(Reading::Absent) };
        match self.get(&link).await {
            Ok(resource) => Ok(Reading::Read(resource)),
            Err(failure) => self.failed(failure),
        }
    }

    /// The readable ones of the first members of a collection.
    async fn some(&self, collection: Option<String>) -> Result<Vec<Resource>, RedfishError> {
        let Some(link) = collection else { return Ok(Vec::new()) };
        match self.member_links(&link).await {
            Ok(members) => self.some_of(members).await,
            Err(failure) => self.failed(failure).map(|_| Vec::new()),
        }
    }

    async fn some_of(&self, mut links: Vec<String>) -> Result<Vec<Resource>, RedfishError> {
        links.truncate(MAX_EACH);
        let mut found = Vec::new();
        for (_, outcome) in self.get_each(&links).await {
            match outcome {
                Ok(resource) => found.push(resource),
                Err(failure) => drop(self.failed(failure)?),
            }
        }
        Ok(found)
    }

    /// The chassis of the machine; all chassis if there is no machine or the machine names none.
    async fn chassis_of(&self, root: &ServiceRoot, system: Option<&System>) -> Result<Vec<Resource>, RedfishError> {
        let named = system.map(System::chassis).unwrap_or_default();
        if named.is_empty() {
            self.some(root.chassis()).await
        } else {
            self.some_of(named).await
        }
    }

    async fn managers_of(&self, root: &ServiceRoot, system: Option<&System>) -> Result<Vec<Resource>, RedfishError> {
        let named = match system {
            Some(system) => self.manager_links(system).await?,
            None => Vec::new(),
        };
        if named.is_empty() {
            self.some(root.managers()).await
        } else {
            self.some_of(named).await
        }
    }

    async fn media_of(
        &self,
        system: Option<&System>,
        managers: &[Resource],
    ) -> Result<(Vec<String>, Vec<VirtualMedia>), RedfishError> {
        let own = system.and_then(System::virtual_media);
        let of_managers = managers
            .iter()
            .filter_map(|manager| Manager::from(manager.clone()).virtual_media());
        let collections: Vec<String> = own.into_iter().chain(of_managers).collect();
        let slots = match system {
            Some(_) if !collections.is_empty() => self.virtual_media().await?,
            _ => Vec::new(),
        };
        Ok((collections, slots))
    }

    async fn logs_of(
        &self,
        system: Option<&System>,
        managers: &[Resource],
    ) -> Result<Vec<(Resource, Reading)>, RedfishError> {
        let places = system.map(System::resource).into_iter().chain(managers);
        let mut collections: Vec<String> = places.filter_map(|place| place.link(&["LogServices"])).collect();
        collections.dedup();
        let mut logs = Vec::new();
        for collection in collections {
            for service in self.some(Some(collection)).await? {
                // One readable log is enough: large logs take BMCs long.
                let is_known = logs
                    .iter()
                    .any(|(_, entries): &(_, Reading)| entries.resource().is_some());
                let entries = if is_known {
                    Reading::Absent
                } else {
                    self.read(service.link(&["Entries"])).await?
                };
                logs.push((service, entries));
            }
        }
        Ok(logs)
    }

    async fn sensors_of(&self, chassis: &[Resource]) -> Result<Vec<(String, Reading)>, RedfishError> {
        let mut found = Vec::new();
        for one in chassis {
            for name in ["Sensors", "Thermal"] {
                let link = one.link(&[name]);
                if link.is_some() {
                    found.push((name.to_owned(), self.read(link).await?));
                }
            }
        }
        Ok(found)
    }

    async fn macs_known(&self, system: Option<&System>) -> Result<Result<usize, String>, RedfishError> {
        let Some(system) = system else { return Ok(Ok(0)) };
        let count = match self.macs_of(system).await {
            Ok(macs) if macs.is_empty() => self.boot_option_macs().await.map(|(macs, _)| macs.len()),
            known => known.map(|macs| macs.len()),
        };
        match count {
            Ok(count) => Ok(Ok(count)),
            Err(failure) if failure.is_fatal_for_walk() => Err(failure),
            Err(failure) => Ok(Err(error_summary(&failure))),
        }
    }
}

/// A failure without the BMC's address, which adds nothing to a report about one BMC.
pub fn error_summary(failure: &RedfishError) -> String {
    match failure {
        RedfishError::Status { at, status, .. } => format!("{} {} answered HTTP {status}", at.method, at.path),
        RedfishError::TimedOut { at, limit_s } => format!("{} {}: no answer within {limit_s} s", at.method, at.path),
        RedfishError::NotJson { at, why, .. } => {
            format!("{} {}: the answer cannot be understood: {why}", at.method, at.path)
        }
        other => other.to_string(),
    }
}
