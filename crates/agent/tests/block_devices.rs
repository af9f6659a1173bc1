//! Real block devices of the kernel: loop devices if the tests run as root, otherwise files in their place.

// Helpers outside of test functions.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

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

/// Whether a drive of that name takes a write.
type MayWrite = Arc<dyn Fn(&str) -> std::io::Result<()> + Send + Sync>;

/// Drives with overwriting as the only method.
struct NoDiscard(Box<dyn Drives>, MayWrite);

struct Overwritten {
    drive: Box<dyn RawDrive>,
    name: String,
    may_write: MayWrite,
}

impl Drives for NoDiscard {
    fn list(&self) -> Vec<DriveFacts> {
        self.0.list()
    }
    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        Ok(Box::new(Overwritten {
            drive: self.0.open(facts)?,
            name: facts.drive.name.clone(),
            may_write: Arc::clone(&self.1),
        }))
    }
}

impl RawDrive for Overwritten {
    fn size_bytes(&self) -> u64 {
        self.drive.size_bytes()
    }
    fn block_bytes(&self) -> u32 {
        self.drive.block_bytes()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.drive.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        (self.may_write)(&self.name)?;
        self.drive.write_at(buffer, offset)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.drive.flush()
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
        self.drive.execute(method, control)
    }
    fn reread_partitions(&self) -> std::io::Result<()> {
        self.drive.reread_partitions()
    }
}

#[test]
fn a_drive_that_cannot_discard_is_overwritten() {
    let bench = bench(1, 512);
    let result = erase(
        &NoDiscard(bench.drives, Arc::new(|_| Ok(()))),
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

const BOOT_AREA: &str = "mmcblk0boot0";

/// An eMMC with one boot area as the kernel lists it, both full of data. Also returns the switch that makes the boot area
/// read-only.
fn emmc(dir: &Path) -> (SysRoot, PathBuf) {
    let root = SysRoot::below(dir);
    let card = root.sys.join("devices/mmc_host/mmc0/mmc0:0001");
    let whole = card.join("block/mmcblk0");
    let boot = whole.join(BOOT_AREA);
    for folder in [&boot, &root.sys.join("block"), &root.dev] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(card.join("serial"), "0x5a1b\n").unwrap();
    for (folder, above, is_read_only) in [(&whole, "../..", "0"), (&boot, "..", "1")] {
        let name = folder.file_name().unwrap();
        symlink(folder, root.sys.join("block").join(name)).unwrap();
        symlink(above, folder.join("device")).unwrap();
        std::fs::write(folder.join("size"), "8192\n").unwrap();
        std::fs::write(folder.join("ro"), is_read_only).unwrap();
        std::fs::write(root.dev.join(name), vec![0xA5; 8192 * 512]).unwrap();
    }
    let switch = boot.join("force_ro");
    std::fs::write(&switch, "1").unwrap();
    (root, switch)
}

#[test]
fn a_boot_area_of_an_emmc_is_erased_and_is_read_only_before_and_after() {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let job = EraseDrives {
        samples: 100,
        ..EraseDrives::default()
    };
    for is_broken in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (root, switch) = emmc(dir.path());
        let watched = switch.clone();
        // As the kernel does: a write to the boot area fails while the switch is on.
        let may_write = move |name: &str| match name {
            BOOT_AREA if is_broken => Err(std::io::Error::other("a worn cell")),
            BOOT_AREA if text(&watched).trim() != "0" => Err(std::io::ErrorKind::ReadOnlyFilesystem.into()),
            _ => Ok(()),
        };
        let drives = NoDiscard(Box::new(BlockDrives::new(root.clone())), Arc::new(may_write));
        let outcome = erase(&drives, &job, &JobControl::without_listener());
        let boot_area = root.dev.join(BOOT_AREA);
        match outcome {
            Ok(result) => {
                let names: Vec<&str> = result.drives.iter().map(|one| one.drive_name.as_str()).collect();
                assert_eq!(names, ["mmcblk0", BOOT_AREA]);
                assert!(!is_broken && is_all_zero(&boot_area));
            }
            Err(failure) => {
                let message = failure.error.message;
                assert!(
                    is_broken && message.contains("drive mmcblk0boot0 (0x5a1b)"),
                    "{message}"
                );
                assert!(message.contains("a worn cell"), "{message}");
            }
        }
        assert!(is_all_zero(&root.dev.join("mmcblk0")));
        assert_eq!(text(&switch), "1", "broken: {is_broken}");

        // Also where the boot area cannot be opened.
        std::fs::remove_file(boot_area).unwrap();
        let failure = erase(&drives, &job, &JobControl::without_listener()).unwrap_err();
        assert!(failure.error.message.contains(BOOT_AREA), "{}", failure.error.message);
        assert_eq!(text(&switch), "1");
    }
}
