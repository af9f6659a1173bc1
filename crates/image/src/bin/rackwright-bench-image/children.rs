//! The import and the write, each in its own process.

use std::fs;
use std::sync::atomic::AtomicBool;

use rackwright_image::writer::{ChunkSource, DirSource, HttpOptions, HttpSource, IoMode};
use rackwright_image::{ChunkStore, ImageDigest, ImportRequest, LEVEL, Options, SignaturePolicy, ZeroPolicy};
use serde_json::json;

use crate::Failure;
use crate::arguments::Arguments;

/// Imports a file into a store and prints the result.
pub(crate) fn import(arguments: &Arguments) -> Result<(), Failure> {
    let store = ChunkStore::open(arguments.path("--store")?)?;
    let source = arguments.path("--source")?;
    let policy = SignaturePolicy::default();
    let mut request = ImportRequest::new(&source, &policy);
    request.threads = arguments.number("--threads", 0)?;
    request.level = arguments.number("--level", LEVEL)?;
    let imported = rackwright_image::import(&request, &store, &|_| {}, &AtomicBool::new(false))?;
    let summary = json!({
        "image": imported.digest.to_string(),
        "logical_bytes": imported.logical_size,
        "data_bytes": imported.data_bytes,
        "packed_bytes": imported.packed_bytes,
        "new_chunks": imported.new_chunks,
        "zero_chunks": imported.zero_chunks,
    });
    println!("{summary}");
    Ok(())
}

/// Writes an image to a target and prints the result.
pub(crate) fn write(arguments: &Arguments) -> Result<(), Failure> {
    let image: ImageDigest = arguments.text("--image").ok_or("--image is missing")?.parse()?;
    let source: Box<dyn ChunkSource> = match arguments.text("--url") {
        Some(url) => Box::new(HttpSource::new(&[url], None, HttpOptions::default())?),
        None => Box::new(DirSource(ChunkStore::open(arguments.path("--store")?)?)),
    };
    let options = Options {
        threads: arguments.number("--threads", 0)?,
        memory_budget_bytes: arguments.number("--budget-mib", 0u64)? << 20,
        verify_whole_disk: arguments.flag("--verify"),
        zeros: if arguments.flag("--all") {
            ZeroPolicy::WriteAll
        } else {
            ZeroPolicy::Auto
        },
        io: if arguments.flag("--pwrite") {
            IoMode::Pwrite
        } else {
            IoMode::Auto
        },
        ..Options::default()
    };
    let target = arguments.path("--target")?;
    let written = rackwright_image::write_image(&*source, &image, &target, &options, &|_| {})?;
    let summary = json!({
        "logical_bytes": written.logical_bytes,
        "fetched_bytes": written.fetched_bytes,
        "written_bytes": written.written_bytes,
        "zero_method": format!("{:?}", written.zero_method),
        "io_uring": written.io_uring,
        "direct_io": written.direct_io,
        "threads": written.threads,
        "memory_bytes": written.memory_bytes,
        "seconds": written.duration.as_secs_f64(),
        "peak_rss_kib": peak_rss_kib(),
    });
    println!("{summary}");
    Ok(())
}

/// Peak memory of this process (`VmHWM` in proc(5)), KiB.
fn peak_rss_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
