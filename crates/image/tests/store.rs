//! Objects that stay in a store, objects that are removed, and the leftovers of a killed import.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rackwright_image::{CHUNK_SIZE, StoreError};
use support::{Fixture, count_files, noise, sample_disk};

#[test]
fn gc_keeps_shared_chunks() {
    let f = Fixture::new();
    let disk = sample_disk();
    let first = f.add(&disk);
    let mut changed = disk.clone();
    changed[6 * CHUNK_SIZE] ^= 1;
    let second = f.add(&changed);
    let before = f.store.stored_bytes(&first).unwrap();

    let report = f.store.gc(&HashSet::from([first, second])).unwrap();
    assert_eq!(
        (report.images_removed, report.chunks_removed, report.chunks_kept),
        (0, 0, 6)
    );
    let report = f.store.gc(&HashSet::from([first])).unwrap();
    assert_eq!(
        (report.images_removed, report.chunks_removed, report.chunks_kept),
        (1, 1, 5)
    );
    assert!(report.bytes_freed > CHUNK_SIZE as u64);
    f.store.verify(&first).unwrap();
    assert_eq!(f.store.stored_bytes(&first).unwrap(), before);
    assert!(f.disk_of(&first) == disk);
    assert!(matches!(f.store.index(&second), Err(StoreError::ImageMissing(image)) if image == second));
    f.store.gc(&HashSet::new()).unwrap();
    f.assert_empty();
}

#[test]
fn gc_is_refused_during_an_import() {
    let f = Fixture::new();
    let path = f.file("disk.raw", &sample_disk());
    let imported = f.import(&path).unwrap();
    // The caller has not recorded the name yet.
    let error = f.store.gc(&HashSet::new()).unwrap_err();
    assert!(matches!(error, StoreError::Busy(_)) && error.retryable(), "{error}");
    f.store.verify(&imported.digest).unwrap();
    drop(imported.hold);
    f.store.gc(&HashSet::new()).unwrap();
    f.assert_empty();
}

#[test]
fn gc_with_a_damaged_index_removes_nothing() {
    let f = Fixture::new();
    let image = f.add(&sample_disk());
    let other = f.add(&noise(1, CHUNK_SIZE));
    let files = count_files(f.store.root());
    let path = f.store.image_path(&image);
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = f.store.gc(&HashSet::from([image])).unwrap_err();
    assert!(matches!(error, StoreError::ImageDamaged { .. }), "{error}");
    assert_eq!(count_files(f.store.root()), files);
    f.store.verify(&other).unwrap();
}

#[test]
fn a_damaged_chunk_is_found_and_replaced_by_the_next_import() {
    let f = Fixture::new();
    let disk = sample_disk();
    let image = f.add(&disk);
    let chunk = f.store.index(&image).unwrap().data()[1].digest;
    let path = f.store.chunk_path(&chunk);
    for damage in [b"".to_vec(), b"rubbish".to_vec()] {
        fs::write(&path, damage).unwrap();
        assert!(matches!(f.store.verify(&image), Err(StoreError::ChunkDamaged { chunk: c, .. }) if c == chunk));
        assert_eq!(f.add(&disk), image);
        f.store.verify(&image).unwrap();
    }
}

#[test]
fn a_killed_import_leaves_a_consistent_store() {
    let f = Fixture::new();
    let kept = f.add(&sample_disk());
    let files = count_files(f.store.root());
    let big = f.file("big.raw", &noise(5, 100 * CHUNK_SIZE));
    let mut child = Command::new(env!("CARGO_BIN_EXE_rackwright-bench-image"))
        .args([
            "import",
            "--store",
            f.store.root().to_str().unwrap(),
            "--source",
            big.to_str().unwrap(),
        ])
        .args(["--threads", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Some chunks exist, most do not.
    let deadline = Instant::now() + Duration::from_secs(120);
    while count_files(f.store.root()) < files + 8 {
        assert!(
            Instant::now() < deadline && child.try_wait().unwrap().is_none(),
            "the import must still be going on"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let reported: Vec<_> = BufReader::new(child.stdout.take().unwrap()).lines().collect();
    assert!(reported.is_empty(), "it was killed before it ended: {reported:?}");

    assert_eq!(f.store.images().unwrap(), [kept]);
    f.store.verify(&kept).unwrap();
    // The chunks on disk are complete: the next import uses them.
    let imported = f.import(&big).unwrap();
    assert!((1..=93).contains(&imported.new_chunks), "{}", imported.new_chunks);
    f.store.verify(&imported.digest).unwrap();
    drop(imported);
    let report = f.store.gc(&HashSet::from([kept])).unwrap();
    assert_eq!(report.chunks_removed, 100);
    assert_eq!(count_files(f.store.root()), files);
}
