//! NVMe namespaces that exist but are hidden from the kernel, because they are attached to no controller.
//!
//! NVM Express Base Specification 2.0: Identify, 5.17 (CNS 01h controller; 02h active namespaces of the controller; 10h
//! allocated namespaces of the subsystem; 11h an allocated namespace, attached or not), Namespace Attachment, 5.22. Total
//! and unallocated capacity are TNVMCAP and UNVMCAP of the controller's data structure.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::path::Path;

use rackwright_api::v1::EraseMethod;

use super::MethodError;
use super::hidden::{HiddenArea, canonical_path, wait_until_shown};
use super::nvme::{Admin, IDENTIFY, IDENTIFY_BYTES, IDENTIFY_CONTROLLER, succeed};
use crate::disk::{le16, le32, le64};
use crate::ioctl::{self, NvmeCommand};
use crate::root::SysRoot;
use crate::text;

const ACTIVE_LIST: u32 = 0x02;
const ALLOCATED_LIST: u32 = 0x10;
const ALLOCATED_NAMESPACE: u32 = 0x11;
const NAMESPACE_ATTACHMENT: u8 = 0x15;
/// Number of namespaces in one page of a list.
const LIST_ENTRIES: usize = 1024;
/// Maximum number of pages read from a list: more namespaces than any controller has.
const LIST_PAGES: usize = 16;
/// Sanitize reaches the whole subsystem, attached or not.
const SANITIZE_METHODS: &[EraseMethod] = &[EraseMethod::NvmeSanitizeCrypto, EraseMethod::NvmeSanitizeBlock];
/// Capacity outside of all namespaces that is not reported as unallocated is ignored up to this fraction of the total:
/// 1/100.
const UNACCOUNTED_DIVISOR: u64 = 100;

/// Properties of a controller, as it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Controller {
    id: u16,
    manages: bool,
    total_bytes: u64,
    unallocated_bytes: u64,
}

/// Namespaces of a controller, as it reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamespaceLists {
    controller: Controller,
    active: BTreeSet<u32>,
    /// All namespaces of the subsystem, with their sizes.
    allocated: BTreeMap<u32, u64>,
}

fn identify(admin: &dyn Admin, namespace: u32, what: u32) -> Result<Vec<u8>, MethodError> {
    let mut data = vec![0; IDENTIFY_BYTES];
    let command = NvmeCommand {
        opcode: IDENTIFY,
        namespace,
        dwords: [what, 0, 0],
        timeout_ms: 0,
    };
    succeed("identify", admin.admin(&command, &mut data)?)?;
    Ok(data)
}

fn controller(admin: &dyn Admin) -> Result<Controller, MethodError> {
    let data = identify(admin, 0, IDENTIFY_CONTROLLER)?;
    // 16 bytes each; no drive has 2^64 bytes, so the lower half is enough.
    let (total_bytes, unallocated_bytes) = (le64(&data, 280), le64(&data, 296));
    Ok(Controller {
        id: le16(&data, 78),
        manages: le16(&data, 256) & 8 != 0,
        total_bytes,
        unallocated_bytes,
    })
}

/// Total capacity of the controller of a namespace in bytes; 0 if the controller does not report it.
pub fn total_bytes(admin: &dyn Admin) -> u64 {
    controller(admin).map_or(0, |found| found.total_bytes)
}

fn ids(admin: &dyn Admin, list: u32) -> Result<BTreeSet<u32>, MethodError> {
    let mut found = BTreeSet::new();
    let mut after = 0;
    for _ in 0..LIST_PAGES {
        let page = identify(admin, after, list)?;
        let ids = (0..LIST_ENTRIES).map(|n| le32(&page, n * 4)).take_while(|id| *id != 0);
        let before = found.len();
        found.extend(ids.filter(|id| *id > after));
        after = found.last().copied().unwrap_or(0);
        if found.len() - before < LIST_ENTRIES {
            break;
        }
    }
    Ok(found)
}

/// Size of a namespace in bytes: NVMCAP, or its blocks with their metadata.
fn bytes(data: &[u8]) -> u64 {
    let format = usize::from(data[26] & 0xF | (data[26] >> 5 & 3) << 4);
    let format = le32(data, 128 + format * 4);
    let block = 1_u64.checked_shl(format >> 16 & 0xFF).unwrap_or(0) + u64::from(format & 0xFFFF);
    le64(data, 48).max(le64(data, 0).saturating_mul(block))
}

fn read_lists(admin: &dyn Admin) -> Result<NamespaceLists, MethodError> {
    let controller = controller(admin)?;
    if !controller.manages {
        // Such drives have no command that creates or detaches a namespace.
        return Ok(NamespaceLists {
            controller,
            active: BTreeSet::new(),
            allocated: BTreeMap::new(),
        });
    }
    let (active, allocated) = (ids(admin, ACTIVE_LIST)?, ids(admin, ALLOCATED_LIST)?);
    let sized = allocated
        .into_iter()
        .map(|id| Ok((id, bytes(&identify(admin, id, ALLOCATED_NAMESPACE)?))));
    Ok(NamespaceLists {
        controller,
        active,
        allocated: sized.collect::<Result<_, MethodError>>()?,
    })
}

impl NamespaceLists {
    /// Bytes that are neither in a namespace nor unallocated, if they exceed the tolerated fraction.
    fn unaccounted(&self) -> Option<u64> {
        let total = self.controller.total_bytes;
        if !self.controller.manages {
            return None;
        }
        let known = self
            .allocated
            .values()
            .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let left = total.saturating_sub(known.saturating_add(self.controller.unallocated_bytes));
        (left > total / UNACCOUNTED_DIVISOR).then_some(left)
    }
}

fn attach(admin: &dyn Admin, namespace: u32, controller: u16) -> Result<(), MethodError> {
    // A controller list: the number of entries, then the entries of 16 bits each.
    let mut list = vec![0; IDENTIFY_BYTES];
    list[0] = 1;
    list[2..4].copy_from_slice(&controller.to_le_bytes());
    let command = NvmeCommand {
        opcode: NAMESPACE_ATTACHMENT,
        namespace,
        dwords: [0, 0, 0],
        timeout_ms: 0,
    };
    succeed("attach", admin.admin(&command, &mut list)?)
}

/// An NVMe subsystem of the machine, which is one drive.
struct Subsystem {
    description: String,
    /// Paths that appear as the controller of drives.
    paths: Vec<String>,
    /// Names of the controllers' character devices.
    controllers: Vec<String>,
}

/// Attaches every detached namespace of all NVMe drives. Returns the hidden areas.
pub fn open_all(root: &SysRoot) -> Vec<HiddenArea> {
    subsystems(root)
        .iter()
        .flat_map(|one| one.open_detached(root))
        .collect()
}

fn subsystems(root: &SysRoot) -> Vec<Subsystem> {
    let class = root.sys.join("class/nvme");
    let mut found: BTreeMap<String, Subsystem> = BTreeMap::new();
    for name in text::names(&class) {
        let folder = class.join(&name);
        let key = text::trimmed(&folder.join("subsysnqn")).unwrap_or_else(|| name.clone());
        let serial = text::or_empty(&folder.join("serial"));
        let one = found.entry(key).or_insert_with(|| Subsystem {
            description: format!("drive {name} (serial number {serial})"),
            paths: Vec::new(),
            controllers: Vec::new(),
        });
        one.paths.push(canonical_path(&folder));
        // With multipath, a drive's path is that of the subsystem.
        let groups = root.sys.join("class/nvme-subsystem");
        let groups = text::names(&groups).into_iter().map(|group| groups.join(group));
        let of_this = groups.filter(|group| group.join(&name).exists());
        one.paths.extend(of_this.map(|group| canonical_path(&group)));
        one.controllers.push(name);
    }
    found.into_values().collect()
}

impl Subsystem {
    fn hidden(&self, what: String, closed: Option<String>, reached_by: &'static [EraseMethod]) -> HiddenArea {
        HiddenArea {
            drive: self.description.clone(),
            controllers: self.paths.clone(),
            what,
            closed,
            reached_by,
        }
    }

    fn open_detached(&self, root: &SysRoot) -> Vec<HiddenArea> {
        let mut lists = Vec::new();
        for name in &self.controllers {
            let result = open(&root.dev.join(name)).and_then(|file| Ok((read_lists(&file)?, file)));
            match result {
                Ok(found) => lists.push(found),
                Err(error) => {
                    let why = format!("the controller's list of namespaces cannot be read: {error}");
                    return vec![self.hidden("every namespace".into(), Some(why), &[])];
                }
            }
        }
        let active: BTreeSet<u32> = lists
            .iter()
            .flat_map(|(lists, _)| lists.active.iter().copied())
            .collect();
        let Some((first, file)) = lists.first() else {
            return Vec::new();
        };
        let detached = first.allocated.iter().filter(|(id, _)| !active.contains(*id));
        let mut hidden: Vec<HiddenArea> = detached
            .map(|(id, bytes)| {
                let closed = self.attached(root, file, *id, first.controller.id).err();
                self.hidden(
                    format!("detached namespace {id} of {bytes} bytes"),
                    closed,
                    SANITIZE_METHODS,
                )
            })
            .collect();
        if let Some(bytes) = first.unaccounted() {
            let why = format!(
                "the controller has {} bytes, but its namespaces and its unallocated capacity add up to {bytes} bytes less",
                first.controller.total_bytes
            );
            hidden.push(self.hidden(
                format!("{bytes} bytes outside of every namespace"),
                Some(why),
                SANITIZE_METHODS,
            ));
        }
        hidden
    }

    /// Attaches a namespace and waits for its block device.
    fn attached(&self, root: &SysRoot, file: &File, namespace: u32, controller: u16) -> Result<(), String> {
        attach(file, namespace, controller).map_err(|error| format!("the namespace could not be attached: {error}"))?;
        ioctl::nvme_rescan(file)
            .map_err(|error| format!("the namespace was attached, but the rescan failed: {error}"))?;
        let is_shown = || {
            text::names(&root.sys.join("block")).into_iter().any(|name| {
                let folder = root.sys.join("block").join(name);
                self.paths.contains(&canonical_path(&folder.join("device")))
                    && text::number::<u32>(&folder.join("nsid")) == Some(namespace)
                    && text::number::<u64>(&folder.join("size")).is_some_and(|size| size > 0)
            })
        };
        if wait_until_shown(is_shown) {
            Ok(())
        } else {
            Err("the namespace was attached, but the kernel does not list it".to_owned())
        }
    }
}

fn open(path: &Path) -> Result<File, MethodError> {
    Ok(OpenOptions::new().read(true).write(true).open(path)?)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;

    use super::*;

    /// A controller with namespaces of 512-byte blocks.
    struct Fake {
        manages: bool,
        total: u64,
        unallocated: u64,
        /// Number, size in bytes, and whether it is attached.
        namespaces: RefCell<Vec<(u32, u64, bool)>>,
    }

    impl Admin for Fake {
        fn admin(&self, command: &NvmeCommand, data: &mut [u8]) -> io::Result<u16> {
            let mut namespaces = self.namespaces.borrow_mut();
            let requested_id = command.namespace;
            match (command.opcode, command.dwords[0]) {
                (IDENTIFY, IDENTIFY_CONTROLLER) => {
                    data[78] = 7;
                    data[256] = if self.manages { 8 } else { 0 };
                    data[280..288].copy_from_slice(&self.total.to_le_bytes());
                    data[296..304].copy_from_slice(&self.unallocated.to_le_bytes());
                }
                (IDENTIFY, list @ (ACTIVE_LIST | ALLOCATED_LIST)) => {
                    let listed = namespaces.iter().filter(|(_, _, on)| *on || list == ALLOCATED_LIST);
                    let ids = listed.map(|(id, ..)| *id).filter(|id| *id > requested_id);
                    for (n, id) in ids.take(LIST_ENTRIES).enumerate() {
                        data[n * 4..n * 4 + 4].copy_from_slice(&id.to_le_bytes());
                    }
                }
                (IDENTIFY, ALLOCATED_NAMESPACE) => {
                    let bytes = namespaces.iter().find(|(id, ..)| *id == requested_id).unwrap().1;
                    data[..8].copy_from_slice(&(bytes / 512).to_le_bytes());
                    data[130] = 9;
                }
                (NAMESPACE_ATTACHMENT, 0) => {
                    assert_eq!(data[..4], [1, 0, 7, 0]);
                    namespaces.iter_mut().find(|(id, ..)| *id == requested_id).unwrap().2 = true;
                }
                other => panic!("{other:?}"),
            }
            Ok(0)
        }
    }

    fn fake(namespaces: &[(u32, u64, bool)]) -> Fake {
        let sum: u64 = namespaces.iter().map(|(_, bytes, _)| *bytes).sum();
        Fake {
            manages: true,
            total: sum,
            unallocated: 0,
            namespaces: namespaces.to_vec().into(),
        }
    }

    #[test]
    fn a_detached_namespace_is_found_and_attached() {
        let fake = fake(&[(1, 1 << 30, true), (3, 1 << 20, false)]);
        let lists = read_lists(&fake).unwrap();
        assert_eq!(lists.active, [1].into());
        assert_eq!(lists.allocated, [(1, 1 << 30), (3, 1 << 20)].into());
        assert_eq!((lists.unaccounted(), lists.controller.id), (None, 7));
        attach(&fake, 3, 7).unwrap();
        assert_eq!(read_lists(&fake).unwrap().active, [1, 3].into());
    }

    #[test]
    fn a_list_of_more_than_a_page_is_read_to_its_end() {
        let many: Vec<(u32, u64, bool)> = (1..=2500).map(|id| (id, 512, id % 2 == 0)).collect();
        let lists = read_lists(&fake(&many)).unwrap();
        assert_eq!((lists.active.len(), lists.allocated.len()), (1250, 2500));
    }

    #[test]
    fn capacity_that_no_namespace_has_is_noticed_unless_it_is_unallocated() {
        let mut fake = fake(&[(1, 1 << 30, true)]);
        fake.total = 3 << 30;
        assert_eq!(read_lists(&fake).unwrap().unaccounted(), Some(2 << 30));
        fake.unallocated = 2 << 30;
        assert_eq!(read_lists(&fake).unwrap().unaccounted(), None);
        (fake.total, fake.unallocated) = (0, 0);
        assert_eq!(
            read_lists(&fake).unwrap().unaccounted(),
            None,
            "the controller reports no capacity"
        );
        assert_eq!(total_bytes(&fake), 0);
        (fake.total, fake.manages) = (3 << 30, false);
        assert_eq!(
            read_lists(&fake).unwrap().unaccounted(),
            None,
            "nothing can be created on it"
        );
    }

    #[test]
    fn a_controller_that_does_not_answer_is_no_drive_without_hidden_areas() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::below(dir.path());
        let folder = root.sys.join("class/nvme/nvme0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("serial"), "S1\n").unwrap();
        let hidden = open_all(&root);
        assert_eq!(hidden.len(), 1);
        assert!(hidden[0].closed.is_some() && hidden[0].reached_by.is_empty());
        assert!(
            hidden[0].failure().contains("serial number S1"),
            "{}",
            hidden[0].failure()
        );
    }
}
