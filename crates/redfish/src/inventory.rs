//! The machine's hardware as its BMC knows it. Each part that cannot be read is reported as a gap.

use std::time::Duration;

use futures::StreamExt as _;
use rackwright_redfish_wire::address::same_resource;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::BmcClient;
use crate::parts::{FirmwareInfo, PartInfo};
use crate::resource::Resource;
use crate::views::{
    Drive, EthernetInterface, MacAddress, Memory, NetworkAdapter, NetworkFunction, NetworkPort, Processor, System,
};

/// Most resources that one inventory reads; a DGX H100 needs about 150.
const MAX_RESOURCES: usize = 5000;

/// Most bytes that one walk reads; parsed they take about five times as much memory.
const MAX_BYTES: usize = 64 << 20;

/// A processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessorInfo {
    /// Link.
    pub path: String,
    pub id: String,
    /// `CPU`, `GPU`, …
    pub kind: Option<String>,
    /// Maker.
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    pub cores: Option<u64>,
    pub threads: Option<u64>,
}

/// A memory module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
    /// Link.
    pub path: String,
    pub id: String,
    /// Label of the slot.
    pub locator: Option<String>,
    /// `DDR5`, …
    pub kind: Option<String>,
    /// Size in MiB.
    pub capacity_mib: Option<u64>,
    pub speed_mhz: Option<u64>,
    /// Maker.
    pub manufacturer: Option<String>,
    pub part_number: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
}

/// A network adapter, or an Ethernet interface without an adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// Link.
    pub path: String,
    pub id: String,
    /// Maker.
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Ethernet addresses.
    pub macs: Vec<MacAddress>,
    /// InfiniBand port GUIDs in hexadecimal.
    pub port_guids: Vec<String>,
    /// Whether any link is up; none if the BMC does not report it.
    pub link_up: Option<bool>,
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriveInfo {
    /// Link.
    pub path: String,
    pub id: String,
    /// Maker.
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Size in bytes.
    pub capacity_bytes: Option<u64>,
    /// `SSD`, `HDD`.
    pub media: Option<String>,
    /// `NVMe`, `SATA`, …
    pub protocol: Option<String>,
}

/// A part of the inventory that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryGap {
    /// The resource.
    pub path: String,
    /// Why it could not be read.
    pub why: String,
}

/// The complete inventory. Empty sockets, slots and bays are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BmcInventory {
    pub processors: Vec<ProcessorInfo>,
    /// Memory modules.
    pub memory: Vec<MemoryInfo>,
    /// Network adapters and interfaces.
    pub nics: Vec<Nic>,
    pub drives: Vec<DriveInfo>,
    pub power_supplies: Vec<PartInfo>,
    pub fans: Vec<PartInfo>,
    /// Links of the sensors.
    pub sensors: Vec<String>,
    pub firmware: Vec<FirmwareInfo>,
    /// Resources that could not be read.
    pub gaps: Vec<InventoryGap>,
}

impl BmcClient {
    /// Reads the hardware inventory of the machine.
    ///
    /// # Errors
    /// Those of [`system`](Self::system), and faults of the whole BMC. Any other fault is a gap.
    pub async fn inventory(&self) -> Result<BmcInventory, RedfishError> {
        let system = self.system().await?;
        let mut walk = Walk::new(self);
        let (mut processors, mut memory) = (Vec::new(), Vec::new());
        // GPUs and their memory may be on a board that is listed as a separate system.
        let boards = walk.side_systems(&system).await?;
        for place in std::iter::once(&system).chain(&boards) {
            let found = walk.members(place.processors()).await?.into_iter().map(Processor::from);
            processors.extend(found.filter(Processor::is_present).map(ProcessorInfo::from));
            let found = walk.members(place.memory()).await?.into_iter().map(Memory::from);
            memory.extend(found.filter(Memory::is_present).map(MemoryInfo::from));
        }
        let drives = walk.drives(&system).await?;
        let nics = walk.nics(&system).await?;
        let firmware = walk.firmware().await?;
        let parts = walk.parts().await?;
        Ok(BmcInventory {
            processors,
            memory,
            nics,
            drives,
            power_supplies: parts.power_supplies,
            fans: parts.fans,
            sensors: parts.sensors,
            firmware,
            gaps: walk.gaps,
        })
    }

    /// The drives alone, and the gaps of that reading. Many BMCs know the drives only while the machine runs.
    ///
    /// # Errors
    /// Those of [`inventory`](Self::inventory).
    pub async fn drives(&self) -> Result<(Vec<DriveInfo>, Vec<InventoryGap>), RedfishError> {
        let system = self.system().await?;
        let mut walk = Walk::new(self);
        let drives = walk.drives(&system).await?;
        Ok((drives, walk.gaps))
    }

    /// The network adapters alone, and the gaps of that reading.
    ///
    /// # Errors
    /// Those of [`inventory`](Self::inventory).
    pub async fn adapters(&self) -> Result<(Vec<Nic>, Vec<InventoryGap>), RedfishError> {
        let system = self.system().await?;
        let mut walk = Walk::new(self);
        let adapters = walk.adapters(&system).await?;
        Ok((adapters, walk.gaps))
    }

    /// All Ethernet addresses of the machine, those of the system's own interfaces first.
    ///
    /// # Errors
    /// Those of [`inventory`](Self::inventory).
    pub async fn macs(&self) -> Result<Vec<MacAddress>, RedfishError> {
        let system = self.system().await?;
        self.macs_of(&system).await
    }

    pub(crate) async fn macs_of(&self, system: &System) -> Result<Vec<MacAddress>, RedfishError> {
        let mut walk = Walk::new(self);
        let interfaces = walk.members(system.ethernet_interfaces()).await?;
        let adapters = walk.adapters(system).await?;
        let own = interfaces
            .into_iter()
            .filter_map(|interface| EthernetInterface::from(interface).mac());
        let mut macs: Vec<MacAddress> = Vec::new();
        for mac in own.chain(adapters.into_iter().flat_map(|nic| nic.macs)) {
            if !macs.contains(&mac) {
                macs.push(mac);
            }
        }
        Ok(macs)
    }
}

/// A walk with limits that continues after the failure of a single resource.
pub(crate) struct Walk<'a> {
    pub(crate) client: &'a BmcClient,
    pub(crate) gaps: Vec<InventoryGap>,
    most: usize,
    left: usize,
    /// Resources that were requested so far, with or without success.
    requested: u32,
    bytes: usize,
    /// Start time by the client's clock.
    began: Duration,
    /// A limit was reached: the walk reads nothing more.
    is_over: bool,
}

impl<'a> Walk<'a> {
    fn new(client: &'a BmcClient) -> Self {
        Self::of_at_most(client, MAX_RESOURCES)
    }

    /// A walk that reads at most `most` resources.
    pub(crate) fn of_at_most(client: &'a BmcClient, most: usize) -> Self {
        Self {
            client,
            gaps: Vec::new(),
            most,
            left: most,
            requested: 0,
            bytes: 0,
            began: client.settings().environment.now(),
            is_over: false,
        }
    }

    /// The reason why the walk must stop; none while it may continue.
    fn bound(&self) -> Option<String> {
        let settings = self.client.settings();
        let spent = settings.environment.now().saturating_sub(self.began);
        if spent >= settings.walk_timeout {
            let limit_s = settings.walk_timeout.as_secs();
            return Some(format!(
                "the time limit of {limit_s} s was reached, the rest was not read"
            ));
        }
        if spent
            >= settings
                .walk_grace
                .saturating_add(settings.walk_pace.saturating_mul(self.requested))
        {
            let (requested, spent_s) = (self.requested, spent.as_secs());
            return Some(format!(
                "the BMC answers too slowly ({requested} resources in {spent_s} s), the rest was not read"
            ));
        }
        (self.bytes >= MAX_BYTES).then(|| format!("more than {MAX_BYTES} bytes were read, the rest was not"))
    }

    fn end(&mut self, path: &str, why: String) {
        self.is_over = true;
        self.gaps.push(InventoryGap {
            path: path.to_owned(),
            why,
        });
    }

    /// Turns the failure of a single resource into a gap.
    fn note(&mut self, path: &str, failure: RedfishError) -> Result<(), RedfishError> {
        if matches!(failure, RedfishError::Suspended { .. }) {
            // The resources read before the BMC stopped answering are kept.
            if !self.is_over {
                self.end(path, failure.to_string());
            }
            return Ok(());
        }
        if failure.is_fatal_for_walk() {
            return Err(failure);
        }
        self.gaps.push(InventoryGap {
            path: path.to_owned(),
            why: failure.to_string(),
        });
        Ok(())
    }

    /// Shortens a list; the unread rest is a gap.
    pub(crate) fn cut(&mut self, links: &mut Vec<String>, most: usize) {
        if let Some(first) = links.get(most) {
            self.gaps.push(InventoryGap {
                path: first.clone(),
                why: format!("more than {most} entries, the rest was not read"),
            });
            links.truncate(most);
        }
    }

    pub(crate) async fn get_all(&mut self, links: &[String]) -> Result<Vec<Resource>, RedfishError> {
        let mut fresh: Vec<String> = Vec::new();
        for link in links {
            if !fresh.iter().any(|known| same_resource(known, link)) {
                fresh.push(link.clone());
            }
        }
        if fresh.len() > self.left {
            let why = format!("more than {} resources, the rest was not read", self.most);
            self.gaps.push(InventoryGap {
                path: fresh.get(self.left).cloned().unwrap_or_default(),
                why,
            });
            fresh.truncate(self.left);
        }
        self.left -= fresh.len();
        let mut found = Vec::new();
        let Some(first) = fresh.first().cloned().filter(|_| !self.is_over) else {
            return Ok(found);
        };
        if let Some(why) = self.bound() {
            self.end(&first, why);
            return Ok(found);
        }
        let mut fetched = self.client.fetch_each(fresh);
        while let Some((link, outcome)) = fetched.next().await {
            self.requested += 1;
            match outcome {
                Ok(resource) => {
                    self.bytes += resource.bytes();
                    found.push(resource);
                }
                Err(failure) => self.note(&link, failure)?,
            }
            // Requests under way are dropped with the stream.
            if let Some(why) = self.bound().filter(|_| !self.is_over) {
                self.end(&link, why);
                break;
            }
        }
        Ok(found)
    }

    pub(crate) async fn member_links(&mut self, collection: Option<String>) -> Result<Vec<String>, RedfishError> {
        let Some(link) = collection.filter(|_| !self.is_over) else {
            return Ok(Vec::new());
        };
        if let Some(why) = self.bound() {
            self.end(&link, why);
            return Ok(Vec::new());
        }
        self.left = self.left.saturating_sub(1);
        self.requested += 1;
        match self.client.member_links(&link).await {
            Ok(members) => Ok(members),
            Err(failure) => self.note(&link, failure).map(|()| Vec::new()),
        }
    }

    /// At most a given number of pages of a collection; unread pages are a gap.
    pub(crate) async fn pages(
        &mut self,
        collection: Option<String>,
        most: usize,
    ) -> Result<Vec<Resource>, RedfishError> {
        let Some(link) = collection.filter(|_| !self.is_over) else {
            return Ok(Vec::new());
        };
        if let Some(why) = self.bound() {
            self.end(&link, why);
            return Ok(Vec::new());
        }
        let (mut pages, mut members, mut bytes) = (Vec::new(), 0, 0);
        let each = |page: Resource| {
            members += page.at(&["Members"]).and_then(Value::as_array).map_or(0, Vec::len);
            bytes += page.bytes();
            pages.push(page);
            // Too many bytes end the reading in the same way as too many members.
            if bytes > MAX_BYTES { usize::MAX } else { members }
        };
        let outcome = self.client.pages(&link, most, each).await;
        self.left = self.left.saturating_sub(pages.len());
        self.requested = self
            .requested
            .saturating_add(u32::try_from(pages.len()).unwrap_or(u32::MAX));
        self.bytes += bytes;
        if let Err(failure) = outcome {
            self.note(&link, failure)?;
        }
        Ok(pages)
    }

    pub(crate) async fn members(&mut self, collection: Option<String>) -> Result<Vec<Resource>, RedfishError> {
        let links = self.member_links(collection).await?;
        self.get_all(&links).await
    }

    async fn drives(&mut self, system: &System) -> Result<Vec<DriveInfo>, RedfishError> {
        let mut links: Vec<String> = Vec::new();
        for storage in self.members(system.storage()).await? {
            match storage.at(&["Drives"]) {
                // Some BMCs give a collection in place of an array.
                Some(Value::Object(_)) => links.extend(self.member_links(storage.link(&["Drives"])).await?),
                _ => links.extend(storage.links(&["Drives"])),
            }
        }
        let drives = self
            .get_all(&links)
            .await?
            .into_iter()
            .map(Drive::from)
            .filter(Drive::is_present);
        let drives: Vec<DriveInfo> = drives.map(DriveInfo::from).collect();
        if !drives.is_empty() {
            return Ok(drives);
        }
        let simple = self.members(system.simple_storage()).await?;
        Ok(simple.iter().flat_map(simple_drives).collect())
    }

    async fn adapters(&mut self, system: &System) -> Result<Vec<Nic>, RedfishError> {
        let interfaces = self.members(system.network_interfaces()).await?;
        let mut links: Vec<String> = interfaces
            .iter()
            .filter_map(|interface| interface.link(&["Links", "NetworkAdapter"]))
            .collect();
        if links.is_empty() {
            for chassis in self.get_all(&system.chassis()).await? {
                links.extend(self.member_links(chassis.link(&["NetworkAdapters"])).await?);
            }
        }
        let mut nics = Vec::new();
        for adapter in self.get_all(&links).await? {
            let adapter = NetworkAdapter::from(adapter);
            let functions = self
                .members(adapter.functions())
                .await?
                .into_iter()
                .map(NetworkFunction::from);
            let functions: Vec<NetworkFunction> = functions.collect();
            let ports: Vec<NetworkPort> = self
                .members(adapter.ports())
                .await?
                .into_iter()
                .map(NetworkPort::from)
                .collect();
            let mut macs: Vec<MacAddress> = functions.iter().flat_map(NetworkFunction::macs).collect();
            macs.extend(ports.iter().flat_map(NetworkPort::macs));
            let mut port_guids: Vec<String> = functions.iter().flat_map(NetworkFunction::port_guids).collect();
            port_guids.extend(ports.iter().flat_map(NetworkPort::port_guids));
            nics.push(Nic {
                path: adapter.path().to_owned(),
                id: adapter.id(),
                manufacturer: adapter.manufacturer(),
                model: adapter.model(),
                serial: adapter.serial(),
                macs: distinct(macs),
                port_guids: distinct(port_guids),
                link_up: None,
            });
        }
        Ok(nics)
    }

    async fn nics(&mut self, system: &System) -> Result<Vec<Nic>, RedfishError> {
        let mut nics = self.adapters(system).await?;
        for interface in self
            .members(system.ethernet_interfaces())
            .await?
            .into_iter()
            .map(EthernetInterface::from)
        {
            let mac = interface.mac();
            match nics
                .iter_mut()
                .find(|nic| mac.is_some_and(|mac| nic.macs.contains(&mac)))
            {
                Some(nic) => {
                    let ups = [nic.link_up, interface.link_up()];
                    nic.link_up = ups.iter().flatten().copied().reduce(|a, b| a || b);
                }
                None => nics.push(Nic {
                    path: interface.path().to_owned(),
                    id: interface.id(),
                    manufacturer: None,
                    model: None,
                    serial: None,
                    macs: mac.into_iter().collect(),
                    port_guids: Vec::new(),
                    link_up: interface.link_up(),
                }),
            }
        }
        Ok(nics)
    }
}

fn distinct<T: PartialEq>(list: Vec<T>) -> Vec<T> {
    let mut out: Vec<T> = Vec::new();
    for item in list {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

/// The devices that a simple storage controller lists inline.
fn simple_drives(storage: &Resource) -> Vec<DriveInfo> {
    let Some(Value::Array(devices)) = storage.at(&["Devices"]) else {
        return Vec::new();
    };
    let is_present =
        |(_, device): &(usize, &Value)| json::text(device, &["Status", "State"]).as_deref() != Some("Absent");
    let described = devices
        .iter()
        .enumerate()
        .filter(is_present)
        .map(|(index, device)| DriveInfo {
            path: format!("{}#/Devices/{index}", storage.path()),
            id: json::fact(device, &["Name"]).unwrap_or_else(|| format!("{}.{index}", storage.id())),
            manufacturer: json::fact(device, &["Manufacturer"]),
            model: json::fact(device, &["Model"]),
            serial: json::fact(device, &["SerialNumber"]),
            capacity_bytes: json::whole(device, &["CapacityBytes"]),
            media: None,
            protocol: None,
        });
    described.collect()
}

impl From<Processor> for ProcessorInfo {
    fn from(view: Processor) -> Self {
        Self {
            path: view.path().to_owned(),
            id: view.id(),
            kind: view.kind(),
            manufacturer: view.manufacturer(),
            model: view.model(),
            serial: view.serial(),
            cores: view.cores(),
            threads: view.threads(),
        }
    }
}

impl From<Memory> for MemoryInfo {
    fn from(view: Memory) -> Self {
        Self {
            path: view.path().to_owned(),
            id: view.id(),
            locator: view.locator(),
            kind: view.kind(),
            capacity_mib: view.capacity_mib(),
            speed_mhz: view.speed_mhz(),
            manufacturer: view.manufacturer(),
            part_number: view.part_number(),
            serial: view.serial(),
        }
    }
}

impl From<Drive> for DriveInfo {
    fn from(view: Drive) -> Self {
        Self {
            path: view.path().to_owned(),
            id: view.id(),
            manufacturer: view.manufacturer(),
            model: view.model(),
            serial: view.serial(),
            capacity_bytes: view.capacity_bytes(),
            media: view.media(),
            protocol: view.protocol(),
        }
    }
}
