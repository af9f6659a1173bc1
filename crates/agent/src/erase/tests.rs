//! Erases fake drives: honest ones, ones that refuse, and ones that lie.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use super::*;
use crate::drives::DriveError;
use rackwright_api::v1::Drive;

const SIZE: usize = 12 << 20;

/// A fake drive's reaction to a method.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Refuses,
    /// Reports success and leaves all bytes unchanged.
    Nothing,
    /// Overwrites all bytes with this byte.
    Fills(u8),
    /// Changes every byte.
    Scrambles,
    /// Fills all blocks but one in the middle with zeros.
    SkipsOne,
}

struct Fake {
    data: Mutex<Vec<u8>>,
    behaviour: BTreeMap<i32, Behaviour>,
    zero_out: Behaviour,
    writes: bool,
}

impl Fake {
    fn new(behaviour: &[(EraseMethod, Behaviour)]) -> Arc<Self> {
        let data = (0..SIZE)
            .map(|at| if at % 5 == 0 { 0 } else { (at / 3) as u8 })
            .collect();
        let behaviour = behaviour
            .iter()
            .map(|(method, behaviour)| (i32::from(*method), *behaviour))
            .collect();
        Arc::new(Self {
            data: Mutex::new(data),
            behaviour,
            zero_out: Behaviour::Refuses,
            writes: true,
        })
    }

    fn perform(&self, behaviour: Behaviour) -> io::Result<()> {
        let mut data = self.data.lock().unwrap();
        match behaviour {
            Behaviour::Refuses => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            Behaviour::Nothing => {}
            Behaviour::Fills(byte) => data.fill(byte),
            Behaviour::Scrambles => data
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = byte.wrapping_add((at % 7) as u8 + 1)),
            Behaviour::SkipsOne => {
                let (start, kept) = (SIZE / 2, data[SIZE / 2..SIZE / 2 + 512].to_vec());
                data.fill(0);
                data[start..start + 512].copy_from_slice(&kept);
            }
        }
        Ok(())
    }

    fn behaviour(&self, method: EraseMethod) -> Behaviour {
        self.behaviour
            .get(&method.into())
            .copied()
            .unwrap_or(Behaviour::Refuses)
    }
}

impl RawDrive for Arc<Fake> {
    fn size_bytes(&self) -> u64 {
        SIZE as u64
    }
    fn block_bytes(&self) -> u32 {
        512
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.copy_from_slice(&self.data.lock().unwrap()[offset as usize..][..buffer.len()]);
        Ok(())
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        if self.writes {
            self.data.lock().unwrap()[offset as usize..][..buffer.len()].copy_from_slice(buffer);
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, _: u64) -> io::Result<()> {
        if offset == 0 {
            self.perform(self.behaviour(EraseMethod::DiscardZeroed))
        } else {
            Ok(())
        }
    }
    fn zero_out(&self, offset: u64, _: u64) -> io::Result<()> {
        if offset == 0 {
            self.perform(self.zero_out)
        } else {
            Ok(())
        }
    }
    fn methods(&self) -> Vec<EraseMethod> {
        self.behaviour
            .keys()
            .filter_map(|method| EraseMethod::try_from(*method).ok())
            .collect()
    }
    fn execute(&self, method: EraseMethod, _: &JobControl) -> Result<(), MethodError> {
        Ok(self.perform(self.behaviour(method))?)
    }
    fn reread_partitions(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Fakes(Vec<Arc<Fake>>);

/// Fake drives, one with a hidden area.
struct Hiding(Fakes, HiddenArea);

impl Drives for Hiding {
    fn list(&self) -> Vec<DriveFacts> {
        self.0.list()
    }
    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        self.0.open(facts)
    }
    fn open_hidden(&self) -> Vec<HiddenArea> {
        vec![self.1.clone()]
    }
}

impl Drives for Fakes {
    fn list(&self) -> Vec<DriveFacts> {
        let facts = |index: usize| {
            let drive = Drive {
                name: format!("fake{index}"),
                serial_number: format!("S{index}"),
                size_bytes: SIZE as u64,
                ..Drive::default()
            };
            DriveFacts {
                node: drive.name.clone().into(),
                controller: drive.name.clone(),
                drive,
            }
        };
        (0..self.0.len()).map(facts).collect()
    }
    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        let index: usize = facts.drive.name.trim_start_matches("fake").parse().unwrap();
        Ok(Box::new(Arc::clone(&self.0[index])))
    }
}

fn run(fake: &Arc<Fake>) -> Result<DriveErase, JobError> {
    let drives = Fakes(vec![Arc::clone(fake)]);
    let job = EraseDrives {
        samples: 512,
        ..EraseDrives::default()
    };
    erase(&drives, &job, &JobControl::without_listener())
        .map(|mut result| result.drives.remove(0))
        .map_err(|failure| failure.error)
}

use EraseMethod::{DiscardZeroed, NvmeFormatUserData, NvmeSanitizeBlock, NvmeSanitizeCrypto, Overwrite};

#[test]
fn the_strongest_honest_method_is_taken() {
    let fake = Fake::new(&[
        (NvmeSanitizeCrypto, Behaviour::Scrambles),
        (Overwrite, Behaviour::Nothing),
    ]);
    let erased = run(&fake).unwrap();
    assert_eq!(erased.method(), NvmeSanitizeCrypto);
    assert!(erased.rejected_methods.is_empty() && erased.samples >= 512);
    assert_eq!(
        (erased.sample_bytes, erased.size_bytes, erased.serial_number.as_str()),
        (4096, SIZE as u64, "S0")
    );
    let data = fake.data.lock().unwrap();
    assert!(
        passes::is_zero(&data[..1 << 20]) && passes::is_zero(&data[SIZE - (1 << 20)..]),
        "ends are zeroed"
    );
}

#[test]
fn a_refused_method_is_written_down_and_the_next_is_tried() {
    let fake = Fake::new(&[
        (NvmeSanitizeBlock, Behaviour::Refuses),
        (NvmeFormatUserData, Behaviour::Fills(0xFF)),
    ]);
    let erased = run(&fake).unwrap();
    assert_eq!(erased.method(), NvmeFormatUserData);
    assert!(
        erased.rejected_methods[0].starts_with("nvme sanitize block: "),
        "{:?}",
        erased.rejected_methods
    );
}

#[test]
fn a_drive_that_falsely_reports_success_is_detected() {
    let fake = Fake::new(&[
        (NvmeSanitizeCrypto, Behaviour::Nothing),
        (NvmeSanitizeBlock, Behaviour::Nothing),
    ]);
    let error = run(&fake).unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), ("erase-not-proven", false));
    assert!(
        error.message.contains("fake0 (S0)") && error.message.contains("the drive reported success"),
        "{}",
        error.message
    );
}

#[test]
fn a_blank_drive_that_falsely_reports_success_is_detected_by_the_canaries() {
    for method in [NvmeSanitizeCrypto, NvmeSanitizeBlock] {
        let fake = Fake::new(&[(method, Behaviour::Nothing)]);
        fake.data.lock().unwrap().fill(0);
        assert_eq!(run(&fake).unwrap_err().code, "erase-not-proven", "{method:?}");
    }
}

#[test]
fn a_blank_drive_that_takes_no_writes_proves_no_crypto_erase() {
    let mut fake = Fake::new(&[(NvmeSanitizeCrypto, Behaviour::Nothing)]);
    Arc::get_mut(&mut fake).unwrap().writes = false;
    fake.data.lock().unwrap().fill(0);
    let error = run(&fake).unwrap_err();
    assert!(
        error.code == "erase-not-proven" && error.message.contains("a change cannot be proven"),
        "{}",
        error.message
    );
}

#[test]
fn a_lie_is_made_good_by_an_honest_method_and_written_down() {
    let fake = Fake::new(&[(NvmeSanitizeBlock, Behaviour::Nothing), (Overwrite, Behaviour::Nothing)]);
    let erased = run(&fake).unwrap();
    assert_eq!(erased.method(), Overwrite);
    assert!(
        erased.rejected_methods[0].contains("the drive reported success, but"),
        "{:?}",
        erased.rejected_methods
    );
    assert!(passes::is_zero(&fake.data.lock().unwrap()));
}

#[test]
fn one_missed_block_disproves_a_discard_and_zeroing_corrects_it() {
    let fake = Fake::new(&[(DiscardZeroed, Behaviour::SkipsOne)]);
    let error = run(&fake).unwrap_err();
    assert_eq!(error.code, "erase-unsupported", "{}", error.message);
    let mut fake = Fake::new(&[(DiscardZeroed, Behaviour::SkipsOne)]);
    Arc::get_mut(&mut fake).unwrap().zero_out = Behaviour::SkipsOne;
    assert!(
        run(&fake)
            .unwrap_err()
            .message
            .contains(&format!("byte {}", SIZE / 2 / 1000))
    );
    let mut fake = Fake::new(&[(DiscardZeroed, Behaviour::SkipsOne)]);
    Arc::get_mut(&mut fake).unwrap().zero_out = Behaviour::Fills(0);
    assert_eq!(run(&fake).unwrap().method(), DiscardZeroed);
}

#[test]
fn overwriting_a_drive_that_takes_no_writes_fails() {
    let mut fake = Fake::new(&[(Overwrite, Behaviour::Nothing)]);
    Arc::get_mut(&mut fake).unwrap().writes = false;
    let error = run(&fake).unwrap_err();
    assert_eq!(error.code, "erase-unsupported");
    assert!(error.message.contains("reads back differently"), "{}", error.message);
}

/// A drive that the kernel lists and does not open.
struct Closed(Fakes);

impl Drives for Closed {
    fn list(&self) -> Vec<DriveFacts> {
        self.0.list()
    }
    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        Err(DriveError::Io {
            drive: facts.drive.name.clone(),
            source: io::ErrorKind::PermissionDenied.into(),
        })
    }
}

#[test]
fn a_drive_that_exists_and_cannot_be_opened_is_named_so() {
    let drives = Closed(Fakes(vec![Fake::new(&[(Overwrite, Behaviour::Nothing)])]));
    let failure = erase(&drives, &EraseDrives::default(), &JobControl::without_listener()).unwrap_err();
    assert_eq!(failure.error.code, "disk-open-failed");
    let message = "fake0: it exists and cannot be opened";
    assert!(failure.error.message.contains(message), "{}", failure.error.message);
}

#[test]
fn a_drive_without_methods_is_unsupported() {
    let error = run(&Fake::new(&[])).unwrap_err();
    assert_eq!(error.code, "erase-unsupported");
}

#[test]
fn one_bad_drive_fails_the_job_and_the_good_ones_keep_their_evidence() {
    let drives = Fakes(vec![
        Fake::new(&[(DiscardZeroed, Behaviour::Fills(0))]),
        Fake::new(&[(NvmeSanitizeBlock, Behaviour::Nothing)]),
    ]);
    let failure = erase(&drives, &EraseDrives::default(), &JobControl::without_listener()).unwrap_err();
    assert_eq!(failure.error.code, "erase-not-proven");
    assert!(failure.error.message.contains("fake1") && !failure.error.message.contains("fake0"));
    assert_eq!(failure.erased.drives.len(), 1);
    let job = EraseDrives {
        drives: vec!["S0".into(), "fake0".into()],
        ..EraseDrives::default()
    };
    assert_eq!(
        erase(&drives, &job, &JobControl::without_listener())
            .unwrap()
            .drives
            .len(),
        1,
        "named twice, erased once"
    );
}

#[test]
fn missing_drives_and_stopped_jobs() {
    let none = erase(
        &Fakes(Vec::new()),
        &EraseDrives::default(),
        &JobControl::without_listener(),
    )
    .unwrap_err();
    assert_eq!(none.error.code, "disk-missing");
    let drives = Fakes(vec![Fake::new(&[(Overwrite, Behaviour::Nothing)])]);
    let job = EraseDrives {
        drives: vec!["nvme9n1".into()],
        ..EraseDrives::default()
    };
    let missing = erase(&drives, &job, &JobControl::without_listener()).unwrap_err();
    assert!(missing.error.code == "disk-missing" && missing.error.message.contains("fake0 (S0"));
    let control = JobControl::without_listener();
    control.stop(StopReason::Deadline);
    assert_eq!(
        erase(&drives, &EraseDrives::default(), &control)
            .unwrap_err()
            .error
            .code,
        "deadline"
    );
}

fn hiding(controller: &str, closed: Option<&str>) -> HiddenArea {
    HiddenArea {
        drive: "drive fake0 (serial number S0)".into(),
        controllers: vec![controller.into()],
        what: "detached namespace 2 of 4096 bytes".into(),
        closed: closed.map(str::to_owned),
        reached_by: &[NvmeSanitizeCrypto],
    }
}

fn run_hiding(behaviour: &[(EraseMethod, Behaviour)], hidden: HiddenArea) -> Result<DriveErase, JobError> {
    let drives = Hiding(Fakes(vec![Fake::new(behaviour)]), hidden);
    let erased = erase(&drives, &EraseDrives::default(), &JobControl::without_listener());
    erased
        .map(|mut result| result.drives.remove(0))
        .map_err(|failure| failure.error)
}

#[test]
fn a_hidden_area_is_opened_or_reached_by_the_method_or_the_drive_is_not_erased() {
    let both = [
        (NvmeSanitizeCrypto, Behaviour::Scrambles),
        (NvmeFormatUserData, Behaviour::Fills(0)),
    ];
    let opened = run_hiding(&both[1..], hiding("fake0", None)).unwrap();
    assert_eq!(opened.hidden_areas, ["detached namespace 2 of 4096 bytes: opened"]);
    let reached = run_hiding(&both, hiding("fake0", Some("status 0x2118"))).unwrap();
    assert_eq!(reached.method(), NvmeSanitizeCrypto);
    assert_eq!(
        reached.hidden_areas,
        ["detached namespace 2 of 4096 bytes: erased by nvme sanitize crypto"]
    );
    let error = run_hiding(&both[1..], hiding("fake0", Some("status 0x2118"))).unwrap_err();
    assert_eq!(error.code, "erase-unsupported");
    for words in [
        "detached namespace 2 of 4096 bytes of drive fake0",
        "status 0x2118",
        "destroy the drive",
    ] {
        assert!(error.message.contains(words), "{}", error.message);
    }
    // The drive is not listed.
    let error = run_hiding(&both, hiding("nvme9", Some("status 0x2118"))).unwrap_err();
    assert!(
        error.code == "erase-unsupported" && error.message.contains("status 0x2118"),
        "{error:?}"
    );
}
