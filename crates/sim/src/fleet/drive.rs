//! Simulated drives behind the agent's own traits, so that the agent's real code lists, writes and erases them.
//!
//! A drive stores digests, not bytes: each block of 4 KiB reads as zeros, as ones, or as a repeated word that is derived
//! from the written data. A rewritten block reads differently and an unwritten block reads the same again, which is all
//! that the proof of an erase needs. A terabyte at rest takes a hundred bytes. The drive cannot return the written data:
//! see [`SimDrive`] for the consequences.
//!
//! No drive has a device node. The path in its place intentionally names nothing: a name below `/dev` could be a real
//! drive of the computer that runs the simulation.

mod concealed;

use super::dice::mix;
use super::faults::During;
use super::installed::Installed;
use super::ramdisk::Life;
use rackwright_agent::disk::marker::{self, Marker};
use rackwright_agent::drives::hidden::HiddenArea;
use rackwright_agent::drives::{DriveError, DriveFacts, Drives, MethodError, RawDrive};
use rackwright_agent::erase::DEFAULT_SAMPLES;
use rackwright_agent::jobs::control::JobControl;
use rackwright_api::v1::{Drive, EraseMethod, ExcludedDevice};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use concealed::Concealed;

/// Bytes of a block; content is stored per block.
const BLOCK: usize = 4096;
/// Most runs of blocks of a drive. A drive written in more places becomes all noise.
const RUNS: usize = 1024;
/// A folder that does not exist.
const NOWHERE: &str = "/nonexistent/rackwright-sim";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveFault {
    None,
    /// Reads and writes fail.
    Errors,
    /// It refuses its erase commands.
    RefusesToErase,
    /// It reports success without erasing.
    PretendsToErase,
}

/// The content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Zeros,
    Ones,
    /// Noise derived from this number and the block number.
    Noise(u64),
}

impl Content {
    fn of(block: &[u8]) -> Self {
        // A block of one repeated byte equals itself shifted by one byte.
        let is_even = block[1..] == block[..block.len() - 1];
        match block.first() {
            Some(0) if is_even => Self::Zeros,
            Some(0xff) if is_even => Self::Ones,
            _ => {
                let hash = digest(&SHA256, block);
                let mut seed = [0; 8];
                seed.copy_from_slice(&hash.as_ref()[..8]);
                Self::Noise(u64::from_le_bytes(seed))
            }
        }
    }

    fn fill(self, block: u64, bytes: &mut [u8]) {
        match self {
            Self::Zeros => bytes.fill(0),
            Self::Ones => bytes.fill(0xff),
            // The same word repeatedly: the word distinguishes blocks.
            Self::Noise(seed) => {
                let word = mix(seed ^ mix(block)) | 1;
                let (words, rest) = bytes.as_chunks_mut();
                words.fill(word.to_le_bytes());
                rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
            }
        }
    }
}

/// The content of a drive: runs of blocks, and the content everywhere else.
#[derive(Debug)]
struct Medium {
    elsewhere: Content,
    /// By first block: the number of blocks and their content. Runs do not overlap.
    runs: BTreeMap<u64, (u64, Content)>,
    system: System,
}

/// The system on a drive. Any other write to the drive ends it.
#[derive(Debug, Default)]
enum System {
    #[default]
    None,
    /// Incomplete: it does not boot.
    Begun(Box<Installed>),
    Whole(Arc<Installed>),
}

impl Medium {
    fn at(&self, block: u64) -> Content {
        let before = self.runs.range(..=block).next_back();
        before
            .filter(|(first, (count, _))| block - **first < *count)
            .map_or(self.elsewhere, |(_, (_, content))| *content)
    }

    fn fill(&mut self, content: Content) {
        self.elsewhere = content;
        self.runs.clear();
        self.system = System::None;
    }

    fn set(&mut self, first: u64, count: u64, content: Content) {
        self.system = System::None;
        let end = first.saturating_add(count);
        let overlapping: Vec<(u64, u64, Content)> = self
            .runs
            .range(..end)
            .rev()
            .map(|(start, (count, content))| (*start, *count, *content))
            .take_while(|(start, count, _)| start + count > first)
            .collect();
        for (start, count, old) in overlapping {
            self.runs.remove(&start);
            if start < first {
                self.runs.insert(start, (first - start, old));
            }
            if start + count > end {
                self.runs.insert(end, (start + count - end, old));
            }
        }
        if content == self.elsewhere && !matches!(content, Content::Noise(_)) {
            return;
        }
        // A write that continues the previous run becomes part of it.
        match self.runs.range_mut(..first).next_back() {
            Some((start, (before, old))) if *old == content && start + *before == first => *before += count,
            _ => _ = self.runs.insert(first, (count, content)),
        }
        if self.runs.len() > RUNS {
            let seed = self.runs.iter().fold(1, |seed, (start, (_, content))| match content {
                Content::Noise(noise) => mix(seed ^ noise ^ start),
                Content::Zeros | Content::Ones => mix(seed ^ start),
            });
            // Never zeros: forgotten content must not look erased.
            self.fill(Content::Noise(seed));
        }
    }
}

/// A drive. It outlives the boots of its machine.
///
/// It offers only the NVMe commands, not discarding or overwriting the whole drive: after those the agent reads every byte
/// back, and the drive cannot return the written data.
#[derive(Debug)]
pub struct SimDrive {
    name: String,
    model: &'static str,
    serial: String,
    node: PathBuf,
    size_bytes: u64,
    drive_fault: DriveFault,
    /// Namespaces of one drive share a controller.
    controller: String,
    transport: &'static str,
    concealed: Mutex<Concealed>,
    medium: Mutex<Medium>,
    erased: AtomicU64,
}

impl SimDrive {
    /// A drive that reads zeros. Its size is rounded down to whole blocks.
    pub(super) fn new(machine: &str, index: usize, model: &'static str, serial: String, bytes: u64) -> Self {
        let name = format!("nvme{index}n1");
        Self {
            node: [NOWHERE, machine, &name].iter().collect(),
            controller: format!("nvme{index}"),
            transport: "nvme",
            concealed: Mutex::new(Concealed::No),
            name,
            model,
            serial,
            size_bytes: bytes - bytes % BLOCK as u64,
            drive_fault: DriveFault::None,
            medium: Mutex::new(Medium {
                elsewhere: Content::Zeros,
                runs: BTreeMap::new(),
                system: System::None,
            }),
            erased: AtomicU64::new(0),
        }
    }

    pub(super) fn with_fault(self, drive_fault: DriveFault) -> Self {
        Self { drive_fault, ..self }
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The drive's serial number.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Fills it with a former customer's data.
    pub fn fill_with_data(&self) {
        self.medium().fill(Content::Noise(mix(digest_of(&self.serial))));
    }

    /// Whether that data is still there.
    pub fn holds_data(&self) -> bool {
        self.medium().elsewhere == Content::Noise(mix(digest_of(&self.serial)))
    }

    /// Whether all of it reads zero.
    pub fn is_blank(&self) -> bool {
        let medium = self.medium();
        medium.elsewhere == Content::Zeros && medium.runs.is_empty()
    }

    /// The path in place of a device node.
    pub(super) fn node(&self) -> &Path {
        &self.node
    }

    /// Fills the beginning with an image of this digest. The image boots only after [`SimDrive::settle`].
    pub(super) fn write_image(&self, digest: &str, bytes: u64) -> io::Result<()> {
        self.range(0, bytes)?;
        let mut medium = self.medium();
        medium.set(0, bytes.div_ceil(BLOCK as u64), Content::Noise(digest_of(digest)));
        medium.system = System::Begun(Box::new(Installed {
            image_digest: digest.to_owned(),
            image_bytes: bytes,
            drive_serial: self.serial.clone(),
            ..Installed::default()
        }));
        Ok(())
    }

    /// Stores a chunk of an image in progress, which stays in progress.
    pub(super) fn write_chunk(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.range(offset, bytes.len() as u64)?;
        let mut medium = self.medium();
        let begun = std::mem::take(&mut medium.system);
        let blocks = (bytes.len() as u64).div_ceil(BLOCK as u64);
        medium.set(offset / BLOCK as u64, blocks, Content::of(bytes));
        medium.system = begun;
        Ok(())
    }

    /// Adds the seed to an image in progress.
    pub(super) fn put_seed(&self, put: impl FnOnce(&mut Installed)) -> io::Result<()> {
        self.range(0, 0)?;
        match &mut self.medium().system {
            System::Begun(installed) => {
                put(installed);
                Ok(())
            }
            System::None | System::Whole(_) => Err(io::Error::other("no image was started on this drive")),
        }
    }

    /// Marks the image in progress as complete.
    pub(super) fn settle(&self) {
        let system = &mut self.medium().system;
        *system = match std::mem::take(system) {
            System::Begun(installed) => System::Whole(Arc::from(installed)),
            other => other,
        };
    }

    /// Installs a bootable system.
    pub(super) fn install(&self, installed: Installed) {
        let mut medium = self.medium();
        medium.fill(Content::Noise(digest_of(&installed.image_digest)));
        medium.system = System::Whole(Arc::new(installed));
    }

    /// Zeroes its first block, so that it no longer boots.
    pub(super) fn invalidate(&self) {
        self.medium().set(0, 1, Content::Zeros);
    }

    /// The bootable system on it.
    pub fn installed(&self) -> Option<Arc<Installed>> {
        match &self.medium().system {
            System::Whole(installed) => Some(Arc::clone(installed)),
            System::None | System::Begun(_) => None,
        }
    }

    /// Changes the installed system, as software on the machine could; `false` if there is none.
    pub fn change_installed(&self, change: impl FnOnce(&mut Installed)) -> bool {
        match &mut self.medium().system {
            System::Whole(installed) => {
                change(Arc::make_mut(installed));
                true
            }
            System::None | System::Begun(_) => false,
        }
    }

    fn range(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.drive_fault == DriveFault::Errors {
            // EIO, as the kernel reports a medium error.
            return Err(io::Error::from_raw_os_error(5));
        }
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= self.size_bytes) {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }
}

fn digest_of(text: &str) -> u64 {
    let hash = digest(&SHA256, text.as_bytes());
    hash.as_ref()
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Calls `piece(block, from, range of the buffer)` for each block that a buffer at `offset` touches.
fn pieces(offset: u64, length: usize, mut piece: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let from = (at % BLOCK as u64) as usize;
        let count = (BLOCK - from).min(length - done);
        piece(at / BLOCK as u64, from, done..done + count);
        done += count;
    }
}

/// An open drive.
struct Open {
    drive: Arc<SimDrive>,
    /// The boot in which the drive is used. After its end, this handle no longer reaches the drive.
    life: Option<Arc<Life>>,
}

impl Open {
    fn range(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.life.as_ref().is_some_and(|life| !life.lasts()) {
            return Err(io::Error::other("this boot of the machine has ended"));
        }
        self.drive.range(offset, length)
    }
}

impl RawDrive for Open {
    fn size_bytes(&self) -> u64 {
        self.drive.shown_bytes()
    }

    fn native_bytes(&self) -> u64 {
        self.drive.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.range(offset, buffer.len() as u64)?;
        let medium = self.drive.medium();
        let mut whole = [0; BLOCK];
        pieces(offset, buffer.len(), |block, from, range| {
            let (content, count) = (medium.at(block), range.len());
            if count == BLOCK {
                content.fill(block, &mut buffer[range]);
            } else {
                content.fill(block, &mut whole);
                buffer[range].copy_from_slice(&whole[from..from + count]);
            }
        });
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.range(offset, buffer.len() as u64)?;
        let mut medium = self.drive.medium();
        let mut whole = [0; BLOCK];
        pieces(offset, buffer.len(), |block, from, range| {
            let count = range.len();
            if count == BLOCK {
                return medium.set(block, 1, Content::of(&buffer[range]));
            }
            medium.at(block).fill(block, &mut whole);
            whole[from..from + count].copy_from_slice(&buffer[range]);
            medium.set(block, 1, Content::of(&whole));
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.range(0, 0)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.zero_out(offset, length)
    }

    fn zero_out(&self, offset: u64, length: u64) -> io::Result<()> {
        self.range(offset, length)?;
        let block = BLOCK as u64;
        let (first, end) = (offset.div_ceil(block), (offset + length) / block);
        if first < end {
            self.drive.medium().set(first, end - first, Content::Zeros);
        }
        // The partial first and last block.
        let zeros = [0; BLOCK];
        let head = (first * block - offset).min(length);
        self.write_at(&zeros[..head as usize], offset)?;
        let tail = if first <= end { offset + length - end * block } else { 0 };
        self.write_at(&zeros[..tail as usize], offset + length - tail)
    }

    fn methods(&self) -> Vec<EraseMethod> {
        vec![
            EraseMethod::NvmeSanitizeCrypto,
            EraseMethod::NvmeSanitizeBlock,
            EraseMethod::NvmeFormatUserData,
        ]
    }

    fn execute(&self, method: EraseMethod, control: &JobControl) -> Result<(), MethodError> {
        control.check()?;
        self.range(0, 0)?;
        let left = match (self.drive.drive_fault, method) {
            (DriveFault::RefusesToErase, _) => return Err(MethodError::Failed("invalid command opcode".to_owned())),
            (DriveFault::PretendsToErase, _) => return Ok(()),
            (_, EraseMethod::NvmeSanitizeCrypto) => {
                let count = self.drive.erased.fetch_add(1, Ordering::Relaxed);
                Content::Noise(mix(digest_of(&self.drive.serial) ^ mix(count.wrapping_add(1))))
            }
            (_, EraseMethod::NvmeSanitizeBlock | EraseMethod::NvmeFormatUserData) => Content::Zeros,
            _ => return Err(MethodError::Unsupported("not a command of NVMe".to_owned())),
        };
        self.drive.medium().fill(left);
        if let Some(life) = &self.life {
            life.survive(During::Erase, control)?;
            // The drive sanitizes for a while; no thread need wait for it.
            control.complete_later(life.node.erasing(), || ());
        }
        Ok(())
    }

    fn reread_partitions(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The drives of a machine.
#[derive(Clone)]
pub struct SimDrives {
    drives: Arc<[Arc<SimDrive>]>,
    /// Detached namespaces and drives that were plugged in later.
    more: Arc<Mutex<Vec<Arc<SimDrive>>>>,
    life: Option<Arc<Life>>,
}

impl SimDrives {
    pub(super) fn new(drives: impl IntoIterator<Item = Arc<SimDrive>>) -> Self {
        Self {
            drives: drives.into_iter().collect(),
            more: Arc::default(),
            life: None,
        }
    }

    /// All drives, concealed or not.
    fn each(&self) -> Vec<Arc<SimDrive>> {
        let more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        self.drives.iter().chain(more.iter()).cloned().collect()
    }

    /// The same drives for the software of one boot of their machine.
    pub(super) fn of_boot(self, life: Arc<Life>) -> Self {
        Self {
            life: Some(life),
            ..self
        }
    }

    /// The drives, in order.
    pub fn all(&self) -> &[Arc<SimDrive>] {
        &self.drives
    }

    /// The system that the machine boots: the first drive's that has one.
    pub fn installed(&self) -> Option<Arc<Installed>> {
        self.drives.iter().find_map(|drive| drive.installed())
    }
}

impl Drives for SimDrives {
    fn list(&self) -> Vec<DriveFacts> {
        let facts = |drive: &Arc<SimDrive>| DriveFacts {
            drive: Drive {
                name: drive.name.clone(),
                model: drive.model.to_owned(),
                serial_number: drive.serial.clone(),
                size_bytes: drive.shown_bytes(),
                logical_block_bytes: 512,
                physical_block_bytes: BLOCK as u32,
                transport: drive.transport.to_owned(),
                removable: drive.transport == "usb",
                ..Drive::default()
            },
            node: drive.node.clone(),
            controller: drive.controller.clone(),
        };
        let is_shown = |drive: &&Arc<SimDrive>| !matches!(drive.concealed(), Concealed::Detached { .. });
        self.each().iter().filter(is_shown).map(facts).collect()
    }

    fn excluded(&self) -> Vec<ExcludedDevice> {
        vec![ExcludedDevice {
            name: "sr0".to_owned(),
            size_bytes: 0,
            reason: "an optical drive; it is not writable".to_owned(),
        }]
    }

    fn open_hidden(&self) -> Vec<HiddenArea> {
        self.each().iter().filter_map(|drive| drive.open_hidden()).collect()
    }

    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        let found = self.each().into_iter().find(|drive| drive.node == facts.node);
        match found {
            Some(drive) => Ok(Box::new(Open {
                drive,
                life: self.life.clone(),
            })),
            None => Err(DriveError::Io {
                drive: facts.drive.name.clone(),
                source: io::ErrorKind::NotFound.into(),
            }),
        }
    }

    fn erase_samples(&self) -> u32 {
        let of_fleet = |life: &Arc<Life>| life.node.shared.config.erase_samples;
        self.life.as_ref().map_or(DEFAULT_SAMPLES, of_fleet)
    }

    fn marker(&self, facts: &DriveFacts) -> Option<Marker> {
        let drive = self.each().into_iter().find(|drive| drive.node == facts.node)?;
        marker::parse(&facts.drive.name, &drive.installed()?.marker)
    }
}

#[cfg(test)]
mod tests;
