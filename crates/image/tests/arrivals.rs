//! Images whose chunks arrive in any order: complete, or not at all.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use rackwright_image::digest::is_zero;
use rackwright_image::writer::{
    Delivery, DirSource, FetchError, IoMode, Object, Step, Traffic, ZeroMethod, arrivals, write_arrivals,
};
use rackwright_image::{CHUNK_SIZE, ImageDigest, Index, Options, WriteError, Written, ZeroPolicy, write_image};
use support::{Fixture, noise, sample_disk};

const MIB: u64 = 1 << 20;

struct Case {
    f: Fixture,
    disk: Vec<u8>,
    image: ImageDigest,
    index: Arc<Index>,
}

impl Case {
    fn of(disk: Vec<u8>) -> Self {
        let f = Fixture::new();
        let image = f.add(&disk);
        let index = Arc::new(f.store.index(&image).unwrap());
        Self { f, disk, image, index }
    }

    fn used_disk(&self, name: &str) -> PathBuf {
        self.f.file(name, &vec![0xa5; self.disk.len() + 3 * CHUNK_SIZE / 2])
    }

    fn put(&self, delivery: &Delivery, place: usize) -> std::io::Result<()> {
        let chunk = self.index.data()[place];
        let start = chunk.number as usize * CHUNK_SIZE;
        delivery.put(place, &self.disk[start..start + self.index.chunk_len(chunk.number)])
    }

    /// Writes while `download` runs in another thread.
    fn write(
        &self,
        target: &Path,
        options: &Options,
        download: impl FnOnce(&Self, Delivery) + Send,
    ) -> Result<Written, WriteError> {
        let (delivery, arrivals) = arrivals(self.index.clone(), options, Arc::default())?;
        thread::scope(|scope| {
            scope.spawn(|| download(self, delivery));
            write_arrivals(&arrivals, target, options, &|_| {})
        })
    }

    fn assert_written(&self, target: &Path) {
        let other = self.used_disk("other");
        write_image(
            &DirSource(self.f.store.clone()),
            &self.image,
            &other,
            &options(),
            &|_| {},
        )
        .unwrap();
        let (found, expected) = (fs::read(target).unwrap(), fs::read(other).unwrap());
        assert!(expected[..self.disk.len()] == self.disk[..]);
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(
            (differs, found.len()),
            (None, expected.len()),
            "as written by write_image"
        );
    }
}

fn options() -> Options {
    Options {
        threads: 2,
        memory_budget_bytes: 128 * MIB,
        ..Options::default()
    }
}

/// The place of the partition table, and the end with an old backup of one.
fn assert_does_not_boot(target: &Path) {
    let found = fs::read(target).unwrap();
    assert!(is_zero(&found[..CHUNK_SIZE.min(found.len())]));
    assert!(is_zero(&found[found.len() - MIB as usize..]));
}

#[test]
fn every_order_of_arrival_gives_the_same_disk() {
    let case = Case::of(sample_disk());
    let count = case.index.data().len();
    assert_eq!(count, 6);
    let forward: Vec<usize> = (0..count).collect();
    let backward = forward.iter().rev().copied().collect();
    let orders: [Vec<usize>; 4] = [forward, backward, vec![3, 0, 5, 1, 4, 2], vec![5, 2, 1, 4, 3, 0]];
    let ways = [
        (ZeroPolicy::Auto, IoMode::Auto, ZeroMethod::PunchedHoles),
        (ZeroPolicy::WriteAll, IoMode::Pwrite, ZeroMethod::Written),
        (ZeroPolicy::WriteAll, IoMode::Auto, ZeroMethod::Written),
        (ZeroPolicy::Auto, IoMode::Pwrite, ZeroMethod::PunchedHoles),
    ];
    for (order, (zeros, io, method)) in orders.into_iter().zip(ways) {
        let target = case.used_disk("target");
        let options = Options {
            zeros,
            io,
            verify_whole_disk: true,
            ..options()
        };
        let written = case.write(&target, &options, |case, delivery| {
            for place in &order {
                case.put(&delivery, *place).unwrap();
            }
            assert!(delivery.missing().is_empty());
        });
        let written = written.unwrap();
        case.assert_written(&target);
        assert_eq!(written.zero_method, method);
        assert_eq!(written.logical_bytes, case.disk.len() as u64);
        assert!(written.verified_whole_disk && written.memory_bytes <= options.memory_budget_bytes);
    }
}

#[test]
fn chunks_from_several_threads_and_twice_are_written_once() {
    let mut disk = noise(3, 20 * CHUNK_SIZE + 5120);
    disk[7 * CHUNK_SIZE..9 * CHUNK_SIZE].fill(0);
    let case = Case::of(disk);
    let target = case.used_disk("target");
    let written = case.write(&target, &options(), |case, delivery| {
        thread::scope(|scope| {
            for first in 0..4 {
                let delivery = delivery.clone();
                scope.spawn(move || {
                    let count = case.index.data().len();
                    // Each thread has all chunks, from another place on.
                    for place in (0..count).map(|place| (place + first * 5) % count) {
                        case.put(&delivery, place).unwrap();
                    }
                });
            }
        });
    });
    assert_eq!(written.unwrap().written_bytes, (18 * CHUNK_SIZE + 5120) as u64);
    case.assert_written(&target);
}

#[test]
fn awkward_images_are_written() {
    for disk in [
        noise(1, 512),
        noise(1, CHUNK_SIZE),
        noise(1, CHUNK_SIZE + 512),
        vec![0; CHUNK_SIZE + 512],
        [vec![0; CHUNK_SIZE], noise(2, 4608)].concat(),
    ] {
        let case = Case::of(disk);
        for target in [case.used_disk("target"), case.f.file("fresh", b"")] {
            let written = case.write(&target, &options(), |case, delivery| {
                for place in (0..case.index.data().len()).rev() {
                    case.put(&delivery, place).unwrap();
                }
            });
            written.unwrap();
            assert!(fs::read(&target).unwrap()[..case.disk.len()] == case.disk[..]);
        }
    }
}

#[test]
fn a_missing_chunk_is_an_error_and_the_disk_does_not_boot() {
    let case = Case::of(sample_disk());
    for missing in [0, 3, 5] {
        let target = case.used_disk("target");
        let error = case.write(&target, &options(), |case, delivery| {
            for place in (0..6).filter(|place| *place != missing) {
                case.put(&delivery, place).unwrap();
            }
            assert_eq!(delivery.missing(), [missing]);
        });
        let error = error.unwrap_err();
        assert!(
            matches!(error, WriteError::Incomplete { missing: 1, chunks: 6 }),
            "{error}"
        );
        assert_eq!((error.code(), error.retryable()), ("download-failed", true));
        assert_does_not_boot(&target);
    }
}

#[test]
fn a_failure_of_the_download_ends_the_write() {
    let case = Case::of(sample_disk());
    let target = case.used_disk("target");
    let missing = FetchError::Missing(Object::Image(case.image));
    let error = case.write(&target, &options(), |case, delivery| {
        // The first chunk has come already, and is not written.
        case.put(&delivery, 0).unwrap();
        case.put(&delivery, 4).unwrap();
        delivery.fail(WriteError::Download(missing));
        delivery.fail(WriteError::Cancelled);
    });
    assert!(
        matches!(error, Err(WriteError::Download(FetchError::Missing(_)))),
        "{error:?}"
    );
    assert_does_not_boot(&target);
}

#[test]
fn cancelling_ends_a_write_that_waits_and_the_download_with_it() {
    let case = Case::of(noise(9, 12 * CHUNK_SIZE));
    let target = case.used_disk("target");
    let options = options();
    let (delivery, arrivals) = arrivals(case.index.clone(), &options, Arc::default()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for place in 0..8 {
                case.put(&delivery, place).unwrap();
            }
            options.cancel.store(true, Ordering::Relaxed);
        });
        // The download goes on, but hands over nothing more.
        let error = write_arrivals(&arrivals, &target, &options, &|_| {}).unwrap_err();
        assert_eq!(error.code(), "cancelled");
    });
    assert!(case.put(&delivery, 9).is_err(), "the write has ended");
    assert_does_not_boot(&target);
}

#[test]
fn a_drive_that_is_too_small_refuses_the_download() {
    let case = Case::of(noise(9, 20 * CHUNK_SIZE));
    let target = case.f.file("small", &[0xa5; 8192]);
    let options = options();
    let (delivery, arrivals) = arrivals(case.index.clone(), &options, Arc::default()).unwrap();
    thread::scope(|scope| {
        let download = scope.spawn(|| (0..20).find_map(|place| case.put(&delivery, place).err()));
        let error = write_arrivals(&arrivals, &target, &options, &|_| {}).unwrap_err();
        assert_eq!(error.code(), "disk-too-small");
        assert!(download.join().unwrap().is_some(), "it does not wait for ever");
    });
    assert!(fs::read(&target).unwrap() == vec![0xa5; 8192]);
}

#[test]
fn an_unreadable_disk_in_verification_does_not_boot() {
    let case = Case::of(noise(4, 3 * CHUNK_SIZE));
    let target = case.used_disk("target");
    let options = Options {
        verify_whole_disk: true,
        ..options()
    };
    let (delivery, arrivals) = arrivals(case.index.clone(), &options, Arc::default()).unwrap();
    for place in 0..3 {
        case.put(&delivery, place).unwrap();
    }
    let damage = |progress: rackwright_image::Progress| {
        if progress.step == Step::Verifying && progress.logical_bytes == 0 {
            let file = fs::File::options().write(true).open(&target).unwrap();
            file.write_all_at(b"damage", 2 * CHUNK_SIZE as u64 + 777).unwrap();
            file.sync_all().unwrap();
        }
    };
    let error = write_arrivals(&arrivals, &target, &options, &damage).unwrap_err();
    assert_eq!(error.code(), "verify-failed", "{error}");
    assert_does_not_boot(&target);
}

#[test]
fn the_rest_comes_from_a_source() {
    let case = Case::of(sample_disk());
    let target = case.used_disk("target");
    let traffic = Arc::new(Traffic::default());
    let (delivery, arrivals) = arrivals(case.index.clone(), &options(), traffic.clone()).unwrap();
    for place in [0, 5] {
        case.put(&delivery, place).unwrap();
    }
    let written = thread::scope(|scope| {
        let rest = scope.spawn(move || delivery.fetch_rest(&DirSource(case.f.store.clone()), 3));
        let written = write_arrivals(&arrivals, &target, &options(), &|_| {}).unwrap();
        assert_eq!(rest.join().unwrap(), 4);
        written
    });
    assert_eq!(written.fetched_bytes, traffic.fetched.load(Ordering::Relaxed));
    assert!(written.fetched_bytes > 2 * CHUNK_SIZE as u64);

    let case = Case::of(sample_disk());
    for chunk in case.index.data() {
        // Two places have the same chunk.
        let _ = fs::remove_file(case.f.store.chunk_path(&chunk.digest));
    }
    let error = case.write(&target, &options(), |case, delivery| {
        assert_eq!(delivery.fetch_rest(&DirSource(case.f.store.clone()), 2), 0);
    });
    assert!(matches!(error, Err(WriteError::Download(_))), "{error:?}");
    assert_does_not_boot(&target);
}

#[test]
fn wrong_chunks_are_refused() {
    let case = Case::of(sample_disk());
    let (delivery, arrivals) = arrivals(case.index.clone(), &options(), Arc::default()).unwrap();
    let refused = |place: usize, data: &[u8]| delivery.put(place, data).unwrap_err().kind();
    let invalid = std::io::ErrorKind::InvalidInput;
    assert_eq!(refused(6, &[0; CHUNK_SIZE]), invalid);
    assert_eq!(refused(5, &[0; CHUNK_SIZE]), invalid, "the last chunk is short");
    assert_eq!(refused(1, &[0; 17]), invalid);
    assert_eq!(delivery.missing().len(), 6);
    drop(arrivals);
    let data = &case.disk[..CHUNK_SIZE];
    assert_eq!(refused(0, data), std::io::ErrorKind::BrokenPipe);
}
