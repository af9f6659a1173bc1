//! Images on targets: complete, or not at all.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used)]

mod support;

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rackwright_image::digest::is_zero;
use rackwright_image::writer::{
    ChunkSource, DirSource, FetchControl, FetchError, Fetched, Frame, IoMode, Object, Step, ZeroMethod, fetch_image,
};
use rackwright_image::{CHUNK_SIZE, ImageDigest, Options, WriteError, Written, ZeroPolicy, write_image};
use support::{Fixture, as_root, noise, root_tool, sample_disk};

fn options() -> Options {
    Options {
        threads: 2,
        ..Options::default()
    }
}

fn write(f: &Fixture, image: &ImageDigest, target: &Path, options: &Options) -> Result<Written, WriteError> {
    write_image(&DirSource(f.store.clone()), image, target, options, &|_| {})
}

/// A file of `len` bytes, filled with an old system's data.
fn used_disk(f: &Fixture, name: &str, len: usize) -> PathBuf {
    f.file(name, &vec![0xa5; len])
}

fn assert_written(target: &Path, disk: &[u8]) {
    let found = fs::read(target).unwrap();
    assert!(found.len() >= disk.len());
    let differs = found.iter().zip(disk).position(|(a, b)| a != b);
    assert_eq!(differs, None, "first byte that differs");
    let tail = &found[disk.len()..];
    assert!(
        is_zero(&tail[tail.len().saturating_sub(1 << 20)..]),
        "an old backup partition table must not survive"
    );
}

#[test]
fn old_data_is_never_readable() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    let cases = [
        (ZeroPolicy::Auto, IoMode::Auto, 0, ZeroMethod::PunchedHoles),
        (ZeroPolicy::Auto, IoMode::Pwrite, 3 << 20, ZeroMethod::PunchedHoles),
        (ZeroPolicy::WriteAll, IoMode::Auto, 3 << 20, ZeroMethod::Written),
        (ZeroPolicy::WriteAll, IoMode::Pwrite, 512, ZeroMethod::Written),
    ];
    for (zeros, io, extra, method) in cases {
        let target = used_disk(&f, "target", disk.len() + extra);
        let options = Options {
            zeros,
            io,
            verify_whole_disk: true,
            ..options()
        };
        let written = write(&f, &image, &target, &options).unwrap();
        assert_written(&target, &disk);
        assert_eq!(fs::metadata(&target).unwrap().len(), (disk.len() + extra) as u64);
        assert_eq!(
            (written.zero_method, written.zeros_skipped),
            (method, method != ZeroMethod::Written)
        );
        assert_eq!(written.logical_bytes, disk.len() as u64);
        let data = (5 * CHUNK_SIZE + 1536) as u64;
        let expected = if zeros == ZeroPolicy::Auto {
            data
        } else {
            disk.len() as u64
        };
        assert_eq!(written.written_bytes, expected);
        assert!(written.verified_whole_disk && written.direct_io);
        let is_offered = io_uring::IoUring::new(2).is_ok();
        assert_eq!(written.io_uring, io != IoMode::Pwrite && is_offered);
    }
}

#[test]
fn an_empty_file_becomes_a_sparse_copy() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    let target = f.file("fresh", b"");
    let written = write(&f, &image, &target, &options()).unwrap();
    assert_eq!(
        (written.zero_method, written.zeros_skipped),
        (ZeroMethod::FreshFile, true)
    );
    assert!(fs::read(&target).unwrap() == disk);
    let blocks = fs::metadata(&target).unwrap().blocks() * 512;
    assert!(blocks < 6 * CHUNK_SIZE as u64, "{blocks} bytes allocated");
}

#[test]
fn without_direct_io_the_result_is_the_same() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    // Apart from procfs and the like, a file in memory offers the fewest features.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let target = folder.path().join("target");
    fs::write(&target, vec![0xa5; disk.len() + 5000]).unwrap();
    let written = write(
        &f,
        &image,
        &target,
        &Options {
            verify_whole_disk: true,
            ..options()
        },
    )
    .unwrap();
    assert_written(&target, &disk);
    assert!(written.zeros_skipped);
}

#[test]
fn images_of_every_awkward_size() {
    let f = Fixture::new();
    for len in [
        512,
        4096,
        4608,
        CHUNK_SIZE - 512,
        CHUNK_SIZE,
        CHUNK_SIZE + 512,
        2 * CHUNK_SIZE,
    ] {
        for fill in [0u8, 7] {
            let disk = vec![fill; len];
            let image = f.add(&disk);
            let target = used_disk(&f, "target", len);
            write(
                &f,
                &image,
                &target,
                &Options {
                    verify_whole_disk: true,
                    ..options()
                },
            )
            .unwrap();
            assert!(fs::read(&target).unwrap() == disk, "{len} × {fill}");
        }
    }
}

/// A loop device over a file; detached at the end.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path) -> Self {
        let arguments = ["--find", "--show", "--direct-io=on", file.to_str().unwrap()];
        let device = Self(PathBuf::from(root_tool("losetup", &arguments)));
        root_tool("chmod", &["0666", device.0.to_str().unwrap()]);
        device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = as_root("chmod").arg("0660").arg(&self.0).status();
        let _ = as_root("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_makes_the_zeros_itself() {
    let f = Fixture::new();
    let mut disk = sample_disk();
    disk.resize(40 * CHUNK_SIZE + 512, 0);
    let image = f.add(&disk);
    let file = used_disk(&f, "drive", disk.len() + (2 << 20));
    let drive = Loop::new(&file);
    let written = write(
        &f,
        &image,
        &drive.0,
        &Options {
            verify_whole_disk: true,
            ..options()
        },
    )
    .unwrap();
    assert_eq!(
        (written.zero_method, written.direct_io),
        (ZeroMethod::WriteZeroes, true)
    );
    assert_written(&file, &disk);

    // A drive in use stays untouched.
    let before = fs::read(&file).unwrap();
    let holder = File::options()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&drive.0)
        .unwrap();
    let error = write(&f, &image, &drive.0, &options()).unwrap_err();
    assert_eq!(error.code(), "disk-busy", "{error}");
    drop(holder);
    let large = f.add(&noise(1, disk.len() + (3 << 20)));
    let error = write(&f, &large, &drive.0, &options()).unwrap_err();
    assert_eq!(error.code(), "disk-too-small", "{error}");
    assert!(fs::read(&file).unwrap() == before);
}

#[test]
fn a_disk_too_small_is_not_touched() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    let target = used_disk(&f, "small", disk.len() - 512);
    let error = write(&f, &image, &target, &options()).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("disk-too-small", false));
    assert!(error.to_string().contains(&(disk.len() - 512).to_string()), "{error}");
    assert!(fs::read(&target).unwrap().iter().all(|byte| *byte == 0xa5));
}

#[test]
fn a_missing_disk_is_not_made() {
    let f = Fixture::new();
    let image = f.add(&sample_disk());
    let target = f.path("absent");
    let error = write(&f, &image, &target, &options()).unwrap_err();
    assert_eq!(error.code(), "disk-missing");
    assert!(!target.exists());
    assert_eq!(
        write(&f, &image, f.folder.path(), &options()).unwrap_err().code(),
        "disk-missing"
    );
    assert_eq!(
        write(&f, &image, Path::new("/dev/null"), &options())
            .unwrap_err()
            .code(),
        "disk-missing"
    );
}

#[test]
fn a_missing_image_and_a_damaged_index_leave_the_disk_alone() {
    let f = Fixture::new();
    let image = f.add(&sample_disk());
    let target = used_disk(&f, "target", 40 << 20);
    let error = write(&f, &ImageDigest::of(b"other"), &target, &options()).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("download-failed", false), "{error}");
    let source = CorruptSource {
        inner: DirSource(f.store.clone()),
        corrupts: |object| matches!(object, Object::Image(_)),
    };
    let error = write_image(&source, &image, &target, &options(), &|_| {}).unwrap_err();
    assert_eq!(error.code(), "digest-mismatch", "{error}");
    assert!(fs::read(&target).unwrap().iter().all(|byte| *byte == 0xa5));
}

/// A source that sends some objects with one wrong byte.
struct CorruptSource {
    inner: DirSource,
    corrupts: fn(&Object) -> bool,
}

impl ChunkSource for CorruptSource {
    fn fetch(&self, object: &Object, frame: &mut Frame, control: &FetchControl<'_>) -> Result<Fetched, FetchError> {
        let mut whole = Frame::new(frame.limit());
        let fetched = self.inner.fetch(object, &mut whole, control)?;
        let mut bytes = whole.filled().to_vec();
        if (self.corrupts)(object) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        }
        frame.clear();
        while frame.fill_from(&mut &bytes[frame.filled().len()..]).unwrap() > 0 {}
        Ok(fetched)
    }

    fn reject(&self, origin: usize, reason: &dyn fmt::Display) -> bool {
        self.inner.reject(origin, reason)
    }
}

#[test]
fn a_wrong_chunk_is_never_written_and_the_disk_does_not_boot() {
    let f = Fixture::new();
    let mut disk = sample_disk();
    disk[4 * CHUNK_SIZE..5 * CHUNK_SIZE].copy_from_slice(&noise(44, CHUNK_SIZE));
    let image = f.add(&disk);
    let index = f.store.index(&image).unwrap();
    static WRONG: Mutex<Option<Object>> = Mutex::new(None);
    let number = 4;
    let entry = index.data().iter().find(|chunk| chunk.number == number).unwrap();
    *WRONG.lock().unwrap() = Some(Object::Chunk(entry.digest));
    let source = CorruptSource {
        inner: DirSource(f.store.clone()),
        corrupts: |object| *WRONG.lock().unwrap() == Some(*object),
    };
    let target = used_disk(&f, "target", disk.len());
    let error = write_image(&source, &image, &target, &options(), &|_| {}).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("digest-mismatch", false));
    assert!(error.to_string().contains(&entry.digest.to_string()), "{error}");
    let found = fs::read(&target).unwrap();
    let place = number as usize * CHUNK_SIZE;
    assert!(
        found[place..place + CHUNK_SIZE].iter().all(|byte| *byte == 0xa5),
        "the chunk's place is untouched"
    );
    assert!(is_zero(&found[..CHUNK_SIZE]), "no partition table");
}

#[test]
fn cancelling_ends_soon_and_leaves_no_partition_table() {
    let f = Fixture::new();
    let disk = noise(3, 30 * CHUNK_SIZE);
    let image = f.add(&disk);
    let target = used_disk(&f, "target", disk.len());
    let options = options();
    let source = CountingSource {
        inner: DirSource(f.store.clone()),
        count: AtomicUsize::new(0),
        options: &options,
    };
    let error = write_image(&source, &image, &target, &options, &|_| {}).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("cancelled", false));
    assert!(source.count.load(Ordering::Relaxed) < 12);
    assert!(is_zero(&fs::read(&target).unwrap()[..CHUNK_SIZE]));
    // Cancelled before the start: nothing is written.
    let target = used_disk(&f, "untouched", disk.len());
    assert_eq!(write(&f, &image, &target, &options).unwrap_err().code(), "cancelled");
    assert_eq!(fs::read(&target).unwrap()[0], 0xa5);
}

/// Cancels at the eighth fetch.
struct CountingSource<'a> {
    inner: DirSource,
    count: AtomicUsize,
    options: &'a Options,
}

impl ChunkSource for CountingSource<'_> {
    fn fetch(&self, object: &Object, frame: &mut Frame, control: &FetchControl<'_>) -> Result<Fetched, FetchError> {
        if self.count.fetch_add(1, Ordering::Relaxed) == 8 {
            self.options.cancel.store(true, Ordering::Relaxed);
        }
        self.inner.fetch(object, frame, control)
    }

    fn reject(&self, origin: usize, reason: &dyn fmt::Display) -> bool {
        self.inner.reject(origin, reason)
    }
}

#[test]
fn a_differing_readback_is_detected() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    for place in [2 * CHUNK_SIZE + 100, 7 * CHUNK_SIZE + 5, disk.len() - 1] {
        let target = used_disk(&f, "target", disk.len());
        let overwriter = File::options().write(true).open(&target).unwrap();
        let progress = |progress: rackwright_image::Progress| {
            if progress.step == Step::Verifying && progress.logical_bytes == 0 {
                overwriter.write_all_at(&[0x77], place as u64).unwrap();
                overwriter.sync_all().unwrap();
            }
        };
        let options = Options {
            verify_whole_disk: true,
            ..options()
        };
        let error = write_image(&DirSource(f.store.clone()), &image, &target, &options, &progress).unwrap_err();
        assert_eq!(error.code(), "verify-failed", "{error}");
        assert!(is_zero(&fs::read(&target).unwrap()[..CHUNK_SIZE]), "it must not boot");
    }
}

#[test]
fn missing_zeros_are_written() {
    let f = Fixture::new();
    let mut disk = sample_disk();
    disk.resize(20 * CHUNK_SIZE, 0);
    let image = f.add(&disk);
    let target = used_disk(&f, "target", disk.len());
    // Simulates a drive that reports success for Write Zeroes and does nothing: the old data is back before the samples are
    // read.
    let overwriter = File::options().write(true).open(&target).unwrap();
    let done_once = AtomicBool::new(false);
    let progress = |progress: rackwright_image::Progress| {
        let all_but_the_first = (disk.len() - CHUNK_SIZE) as u64;
        if progress.logical_bytes == all_but_the_first && !done_once.swap(true, Ordering::Relaxed) {
            for number in [1, 4, 9, 13, 19] {
                let old = vec![0xa5; CHUNK_SIZE];
                overwriter.write_all_at(&old, (number * CHUNK_SIZE) as u64).unwrap();
            }
            overwriter.sync_all().unwrap();
        }
    };
    let written = write_image(&DirSource(f.store.clone()), &image, &target, &options(), &progress).unwrap();
    assert!(done_once.load(Ordering::Relaxed));
    assert_eq!(
        (written.zero_method, written.zeros_skipped),
        (ZeroMethod::Written, false)
    );
    assert!(fs::read(&target).unwrap() == disk);
}

#[test]
fn a_full_file_system_is_a_write_error() {
    let f = Fixture::new();
    let image = f.add(&noise(4, 6 * CHUNK_SIZE));
    let mount = f.path("mount");
    fs::create_dir(&mount).unwrap();
    root_tool(
        "mount",
        &["-t", "tmpfs", "-o", "size=10m", "tmpfs", mount.to_str().unwrap()],
    );
    let target = mount.join("target");
    File::create(&target).unwrap();
    let error = write(&f, &image, &target, &options()).unwrap_err();
    root_tool("umount", &[mount.to_str().unwrap()]);
    assert_eq!((error.code(), error.retryable()), ("write-failed", false), "{error}");
}

#[test]
fn too_small_a_budget_is_refused_before_writing() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    let target = used_disk(&f, "target", disk.len());
    let options = Options {
        memory_budget_bytes: 10 << 20,
        ..options()
    };
    let error = write(&f, &image, &target, &options).unwrap_err();
    assert_eq!(error.code(), "memory-budget");
    assert_eq!(fs::read(&target).unwrap()[0], 0xa5);
}

#[test]
fn the_memory_budget_holds_in_a_real_process() {
    let f = Fixture::new();
    let disk = noise(12, 40 * CHUNK_SIZE);
    let image = f.add(&disk);
    let peak_kib = |budget_mib: u64| {
        let target = used_disk(&f, "target", disk.len());
        let output = Command::new(env!("CARGO_BIN_EXE_rackwright-bench-image"))
            .args(["write", "--threads", "4", "--image", &image.to_string()])
            .args([
                "--store",
                f.store.root().to_str().unwrap(),
                "--target",
                target.to_str().unwrap(),
            ])
            .args(["--budget-mib", &budget_mib.to_string()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(fs::read(&target).unwrap() == disk);
        assert!(reported["memory_bytes"].as_u64().unwrap() <= budget_mib << 20);
        reported["peak_rss_kib"].as_u64().unwrap()
    };
    let (small, large) = (peak_kib(20), peak_kib(200));
    // The process itself, code included, stays below 12 MiB.
    assert!(small < (20 + 12) << 10, "{small} KiB with a budget of 20 MiB");
    assert!(
        large > small && large < (200 + 12) << 10,
        "{large} KiB with a budget of 200 MiB"
    );
}

#[test]
fn progress_rises_to_the_whole() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    let seen = Mutex::new(Vec::new());
    let target = used_disk(&f, "target", disk.len());
    let options = Options {
        verify_whole_disk: true,
        ..options()
    };
    let progress = |progress| seen.lock().unwrap().push(progress);
    let written = write_image(&DirSource(f.store.clone()), &image, &target, &options, &progress).unwrap();
    let seen = seen.into_inner().unwrap();
    let mut steps: Vec<Step> = seen.iter().map(|progress| progress.step).collect();
    steps.dedup();
    assert_eq!(
        steps,
        [
            Step::Preparing,
            Step::Writing,
            Step::Flushing,
            Step::Verifying,
            Step::Done
        ]
    );
    for step in [Step::Writing, Step::Verifying] {
        let of_step: Vec<u64> = seen
            .iter()
            .filter(|p| p.step == step)
            .map(|p| p.logical_bytes)
            .collect();
        assert!(of_step.is_sorted(), "{of_step:?}");
    }
    let last = seen.last().unwrap();
    assert_eq!(
        (last.logical_bytes, last.logical_bytes_total),
        (disk.len() as u64, disk.len() as u64)
    );
    assert_eq!(
        (last.fetched_bytes, last.written_bytes),
        (written.fetched_bytes, written.written_bytes)
    );
}

#[test]
fn an_image_without_a_drive_is_the_same_and_ends_where_it_is_refused() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    let (source, target) = (DirSource(f.store.clone()), Path::new("nowhere"));
    let mut found = vec![0; disk.len()];
    let mut put = |offset: u64, bytes: &[u8]| {
        found[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    };
    let streamed = fetch_image(&source, &image, target, &AtomicBool::new(false), &mut put).unwrap();
    assert!(found == disk, "what is not data is zero");
    assert_eq!(streamed.logical_bytes, disk.len() as u64);
    assert!(streamed.written_bytes < streamed.logical_bytes && streamed.fetched_bytes > 0);
    let mut calls = 0;
    let mut refuse = |_: u64, _: &[u8]| {
        calls += 1;
        Err(std::io::Error::from_raw_os_error(5))
    };
    let refused = fetch_image(&source, &image, target, &AtomicBool::new(false), &mut refuse);
    assert!(matches!(refused, Err(WriteError::Write { .. })), "{refused:?}");
    assert_eq!(calls, 1);
    let cancelled = fetch_image(&source, &image, target, &AtomicBool::new(true), &mut |_, _| Ok(()));
    assert!(matches!(cancelled, Err(WriteError::Cancelled)), "{cancelled:?}");
}
