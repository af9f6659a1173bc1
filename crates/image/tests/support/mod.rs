//! Shared by the tests of this crate: a sample disk, the tools that pack it, and a server that misbehaves on request.
#![allow(dead_code)]

pub mod server;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use rackwright_image::{
    CHUNK_SIZE, ChunkStore, ImageDigest, ImportError, ImportRequest, Imported, SignaturePolicy, import,
};

/// Incompressible bytes that depend on `seed`.
pub fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

/// A small disk with all relevant cases: data and zero chunks, a repeated chunk, one byte in a zero chunk, an unaligned
/// end.
pub fn sample_disk() -> Vec<u8> {
    let mut disk = vec![0; 8 * CHUNK_SIZE + 1536];
    let mut put = |chunk: usize, bytes: &[u8]| {
        let start = chunk * CHUNK_SIZE;
        disk[start..start + bytes.len()].copy_from_slice(bytes);
    };
    put(0, "partition table ".repeat(CHUNK_SIZE / 16).as_bytes());
    put(2, &noise(2, CHUNK_SIZE));
    put(5, &noise(2, CHUNK_SIZE));
    put(6, &noise(6, CHUNK_SIZE));
    put(8, &noise(8, 1536));
    disk[3 * CHUNK_SIZE + 77_777] = 1;
    disk
}

/// Runs a tool that the tests need. Panics if the tool is missing or fails.
pub fn tool(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed by the tests: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

/// A command for a tool that needs root: through sudo if another user runs the tests.
pub fn as_root(program: &str) -> Command {
    // The owner of /proc/self is the effective user.
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", "--", program]);
    command
}

/// Runs such a tool and returns its output. Panics if the tool is missing or fails.
pub fn root_tool(program: &str, arguments: &[&str]) -> String {
    let output = as_root(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed by the tests, as root or by sudo: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}, as root: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub struct Fixture {
    pub folder: tempfile::TempDir,
    pub store: ChunkStore,
}

impl Fixture {
    pub fn new() -> Self {
        // On a file system on a disk, which has direct I/O and holes.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let store = ChunkStore::open(folder.path().join("store")).unwrap();
        Self { folder, store }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub fn import(&self, path: &Path) -> Result<Imported, ImportError> {
        self.import_with(path, |_| {})
    }

    pub fn import_with(
        &self,
        path: &Path,
        change: impl FnOnce(&mut ImportRequest<'_>),
    ) -> Result<Imported, ImportError> {
        let policy = SignaturePolicy::default();
        let mut request = ImportRequest::new(path, &policy);
        request.threads = 2;
        change(&mut request);
        import(&request, &self.store, &|_| {}, &AtomicBool::new(false))
    }

    /// Imports raw bytes.
    pub fn add(&self, disk: &[u8]) -> ImageDigest {
        let path = self.file("added.raw", disk);
        self.import(&path).unwrap().digest
    }

    /// The disk as assembled from the store's chunks.
    pub fn disk_of(&self, image: &ImageDigest) -> Vec<u8> {
        let index = self.store.index(image).unwrap();
        let mut disk = vec![0; index.logical_size() as usize];
        let mut decoder = rackwright_image::codec::Decoder::new().unwrap();
        for entry in index.data() {
            let start = entry.number as usize * CHUNK_SIZE;
            let chunk = &mut disk[start..start + index.chunk_len(entry.number)];
            self.store
                .read_chunk(&entry.digest, &mut decoder, &mut Vec::new(), chunk)
                .unwrap();
        }
        disk
    }

    /// Asserts that no image is visible and that a collection leaves only the lock.
    pub fn assert_empty(&self) {
        assert_eq!(self.store.images().unwrap(), []);
        self.store.gc(&Default::default()).unwrap();
        let left = count_files(self.store.root());
        assert_eq!(left, 1, "only the lock remains");
    }
}

pub fn count_files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { count_files(&path) } else { 1 })
        .sum()
}
