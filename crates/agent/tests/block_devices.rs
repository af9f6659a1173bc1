//! Real block devices of the kernel: loop devices if the tests run as root, otherwise files in their place.

// Helpers outside of test functions.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rackwright_agent::drives::block::BlockDrives;
use rackwright_agent::drives::file::{FileDrive, FileDrives};
use rackwright_agent::drives::{DriveError, DriveFacts, Drives, RawDrive};
use rackwright_agent::erase::erase;
use rackwright_agent::jobs::control::JobControl;
use rackwright_agent::root::SysRoot;
use rackwright_api::v1::{Drive, EraseDrives, EraseMethod};

const SIZE: u64 = 40 << 20;

/// A loop device over a file; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path, more: &[&str]) -> Self {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(more)
            .arg(file)
            .output()
            .expect("losetup (package mount)");
        assert!(
            output.status.success(),
            "losetup: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Runs the block device code on devices that sysfs does not list as drives.
struct Loops {
    facts: Vec<DriveFacts>,
    inner: BlockDrives,
}

impl Drives for Loops {
    fn list(&self) -> Vec<DriveFacts> {
        self.facts.clone()
    }
    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        self.inner.open(facts)
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    files: Vec<PathBuf>,
    loops: Vec<Loop>,
    drives: Box<dyn Drives>,
    is_root: bool,
}

/// Creates drives full of data, with a partition table.
fn bench(count: usize, block_bytes: u32) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..count)
        .map(|index| dir.path().join(format!("disk{index}")))
        .collect();
    for path in &files {
        let data: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        std::fs::write(path, data).unwrap();
        let mut sfdisk = Command::new("sfdisk")
            .arg("--quiet")
            .arg(path)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sfdisk (package fdisk)");
        std::io::Write::write_all(&mut sfdisk.stdin.take().unwrap(), b"label: gpt\nsize=8192\n").unwrap();
        assert!(sfdisk.wait().unwrap().success());
    }
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        let file = |(index, path): (usize, &PathBuf)| FileDrive {
            name: format!("disk{index}"),
            serial_number: format!("S{index}"),
            path: path.clone(),
        };
        let drives = FileDrives {
            drives: files.iter().enumerate().map(file).collect(),
        };
        return Bench {
            _dir: dir,
            loops: Vec::new(),
            drives: Box::new(drives),
            files,
            is_root,
        };
    }
    let sector = format!("--sector-size={block_bytes}");
    let loops: Vec<Loop> = files.iter().map(|file| Loop::over(file, &[&sector])).collect();
    let facts = loops.iter().map(|device| {
        let name = device.0.file_name().unwrap().to_string_lossy().into_owned();
        let drive = Drive {
            name: name.clone(),
            size_bytes: SIZE,
            logical_block_bytes: block_bytes,
            ..Drive::default()
        };
        DriveFacts {
            drive,
            node: device.0.clone(),
            controller: name,
        }
    });
    let drives = Loops {
        facts: facts.collect(),
        inner: BlockDrives::new(SysRoot::real()),
    };
    Bench {
        _dir: dir,
        drives: Box::new(drives),
        loops,
        files,
        is_root,
    }
}

fn is_all_zero(path: &Path) -> bool {
    std::fs::read(path).unwrap().iter().all(|byte| *byte == 0)
}

#[test]
fn drives_are_erased_side_by_side_and_read_back() {
    for block_bytes in [512, 4096] {
        let bench = bench(2, block_bytes);
        let result = erase(&*bench.drives, &EraseDrives::default(), &JobControl::without_listener()).unwrap();
        assert_eq!(result.drives.len(), 2);
        for (drive, file) in result.drives.iter().zip(&bench.files) {
            assert_eq!(drive.method(), EraseMethod::DiscardZeroed, "{drive:?}");
            assert!(drive.samples >= 4096 && drive.size_bytes == SIZE, "{drive:?}");
            assert!(is_all_zero(file));
        }
    }
}

/// Drives with overwriting as the only method.
struct NoDiscard(Box<dyn Drives>);

struct Overwritten(Box<dyn RawDrive>);

impl Drives for NoDiscard {
    fn list(&self) -> Vec<DriveFacts> {
        self.0.list()
    }
    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        Ok(Box::new(Overwritten(self.0.open(facts)?)))
    }
}

impl RawDrive for Overwritten {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn block_bytes(&self) -> u32 {
        self.0.block_bytes()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_at(buffer, offset)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }
    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        panic!("not offered")
    }
    fn zero_out(&self, _: u64, _: u64) -> std::io::Result<()> {
        panic!("not offered")
    }
    fn methods(&self) -> Vec<EraseMethod> {
        vec![EraseMethod::NvmeSanitizeCrypto, EraseMethod::Overwrite]
    }
    fn execute(&self, method: EraseMethod, control: &JobControl) -> Result<(), rackwright_agent::drives::MethodError> {
        self.0.execute(method, control)
    }
    fn reread_partitions(&self) -> std::io::Result<()> {
        self.0.reread_partitions()
    }
}

#[test]
fn a_drive_that_cannot_discard_is_overwritten() {
    let bench = bench(1, 512);
    let result = erase(
        &NoDiscard(bench.drives),
        &EraseDrives {
            samples: 100,
            ..EraseDrives::default()
        },
        &JobControl::without_listener(),
    )
    .unwrap();
    assert_eq!(result.drives[0].method(), EraseMethod::Overwrite);
    assert!(
        result.drives[0].rejected_methods[0].starts_with("nvme sanitize crypto: not supported"),
        "{:?}",
        result.drives[0]
    );
    assert!(is_all_zero(&bench.files[0]));
}

#[test]
fn a_drive_in_use_is_not_erased() {
    let bench = bench(1, 512);
    if !bench.is_root {
        // Only block devices can detect another user.
        return assert!(bench.loops.is_empty());
    }
    let held = {
        use std::os::unix::fs::OpenOptionsExt as _;
        File::options()
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(&bench.loops[0].0)
            .unwrap()
    };
    let failure = erase(&*bench.drives, &EraseDrives::default(), &JobControl::without_listener()).unwrap_err();
    assert!(failure.error.message.contains("busy"), "{}", failure.error.message);
    let mut first = [0; 512];
    held.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(&first[510..], [0x55, 0xAA], "untouched");
}
