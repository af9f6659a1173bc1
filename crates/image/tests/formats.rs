//! Images in every format, created by the usual tools; and files that are invalid.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rackwright_image::import::ImportStep;
use rackwright_image::{CHUNK_SIZE, Format, ImportError, ImportLimits, ImportRequest, Sha256, SignaturePolicy, import};
use support::{Fixture, noise, sample_disk, tool};

fn sha256(bytes: &[u8]) -> Sha256 {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    Sha256(digest)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The sample disk in a format, packed by the format's own tool.
fn packed(f: &Fixture, raw: &Path, format: &str) -> PathBuf {
    let output = f.path(&format!("disk.{format}"));
    let raw = text(raw);
    let convert = |arguments: &[&str]| {
        let mut all = vec!["convert", "-f", "raw", "-O", "qcow2"];
        all.extend(arguments);
        all.extend([raw, text(&output)]);
        tool("qemu-img", &all);
    };
    match format {
        "zst" => tool("zstd", &["-q", "-1", raw, "-o", text(&output)]),
        "zst19" => tool("zstd", &["-q", "-4", "--long=27", raw, "-o", text(&output)]),
        "gz" | "xz" => {
            let program = if format == "gz" { "gzip" } else { "xz" };
            tool("sh", &["-c", &format!("{program} -1 -c {raw} > {}", text(&output))]);
        }
        "qcow2" => convert(&[]),
        "qcow2-zlib" => convert(&["-c"]),
        "qcow2-zstd" => convert(&["-c", "-o", "compression_type=zstd"]),
        "qcow2-small" => convert(&["-c", "-o", "cluster_size=4096"]),
        "qcow2-v2" => convert(&["-o", "compat=0.10"]),
        other => panic!("{other}"),
    }
    output
}

#[test]
fn every_format_gives_the_same_disk() {
    let f = Fixture::new();
    let disk = sample_disk();
    let raw = f.file("disk.raw", &disk);
    let imported = f.import(&raw).unwrap();
    assert!(f.disk_of(&imported.digest) == disk);
    assert_eq!(
        (imported.data_chunks, imported.zero_chunks, imported.new_chunks),
        (6, 3, 5)
    );
    assert_eq!(imported.source_format, Format::Raw);
    assert_eq!(imported.source_sha256, sha256(&disk));
    f.store.verify(&imported.digest).unwrap();
    let raw_index = f.store.index(&imported.digest).unwrap();
    let formats = [
        ("zst", Format::Zstd),
        ("zst19", Format::Zstd),
        ("gz", Format::Gzip),
        ("xz", Format::Xz),
        ("qcow2", Format::Qcow2),
        ("qcow2-zlib", Format::Qcow2),
        ("qcow2-zstd", Format::Qcow2),
        ("qcow2-small", Format::Qcow2),
        ("qcow2-v2", Format::Qcow2),
    ];
    for (name, format) in formats {
        let path = packed(&f, &raw, name);
        let again = f.import(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(again.source_format, format, "{name}");
        assert_eq!(again.source_sha256, sha256(&fs::read(&path).unwrap()), "{name}");
        // Known chunks are shared and not stored again.
        assert_eq!((again.new_chunks, again.new_bytes), (0, 0), "{name}");
        let index = f.store.index(&again.digest).unwrap();
        assert_eq!(
            (index.data(), index.logical_size()),
            (raw_index.data(), raw_index.logical_size()),
            "{name}"
        );
    }
}

#[test]
fn a_chunk_that_several_threads_pack_at_once_is_new_once() {
    let (f, other) = (Fixture::new(), Fixture::new());
    let chunk = &sample_disk()[..CHUNK_SIZE];
    let raw = f.file("disk.raw", &chunk.repeat(16));
    let imported = f.import_with(&raw, |request| request.threads = 8).unwrap();
    let one = other.import(&other.file("disk.raw", chunk)).unwrap();
    assert_eq!((imported.data_chunks, imported.new_chunks), (16, 1));
    assert_eq!(imported.new_bytes, one.new_bytes);
}

#[test]
fn the_same_file_has_the_same_name_in_any_store_at_any_level() {
    let (one, other) = (Fixture::new(), Fixture::new());
    let disk = sample_disk();
    let first = one.add(&disk);
    let path = other.file("disk.raw", &disk);
    let second = other.import_with(&path, |request| request.level = 3).unwrap();
    assert_eq!(first, second.digest);
}

#[test]
fn several_frames_in_one_file_are_one_disk() {
    let f = Fixture::new();
    let disk = sample_disk();
    let (a, b) = disk.split_at(3 * CHUNK_SIZE + 12345);
    for format in ["zst", "gz", "xz"] {
        let mut joined = fs::read(packed(&f, &f.file("a.raw", a), format)).unwrap();
        fs::remove_file(f.path(&format!("disk.{format}"))).unwrap();
        joined.extend(fs::read(packed(&f, &f.file("b.raw", b), format)).unwrap());
        let image = f.import(&f.file("joined", &joined)).unwrap().digest;
        assert!(f.disk_of(&image) == disk, "{format}");
    }
}

#[test]
fn a_cut_file_of_any_format_is_refused_and_leaves_nothing() {
    let f = Fixture::new();
    let raw = f.file("disk.raw", &sample_disk());
    for format in ["zst", "gz", "xz", "qcow2", "qcow2-zlib"] {
        let whole = fs::read(packed(&f, &raw, format)).unwrap();
        let path = f.file("cut", &whole[..whole.len() - whole.len() / 3]);
        let error = f.import(&path).unwrap_err();
        assert_eq!(error.code(), "source-invalid", "{format}: {error}");
        f.assert_empty();
    }
    let path = f.file("cut.raw", &sample_disk()[..10_000]);
    assert_eq!(f.import(&path).unwrap_err().code(), "source-invalid");
    let path = f.file("empty", b"");
    assert_eq!(f.import(&path).unwrap_err().code(), "source-invalid");
    f.assert_empty();
}

#[test]
fn damage_inside_a_packed_file_is_noticed() {
    let f = Fixture::new();
    let raw = f.file("disk.raw", &sample_disk());
    for format in ["zst", "gz", "xz"] {
        let mut bytes = fs::read(packed(&f, &raw, format)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let error = f.import(&f.file("damaged", &bytes)).unwrap_err();
        assert_eq!(error.code(), "source-invalid", "{format}: {error}");
    }
    f.assert_empty();
}

#[test]
fn a_wrong_sha256_is_refused_before_anything_is_stored() {
    let f = Fixture::new();
    let disk = sample_disk();
    let path = f.file("disk.raw", &disk);
    let wrong = Sha256([7; 32]);
    let error = f
        .import_with(&path, |request| request.expected_sha256 = Some(wrong))
        .unwrap_err();
    assert_eq!(error.code(), "digest-mismatch");
    assert!(error.to_string().contains(&sha256(&disk).to_string()), "{error}");
    assert_eq!(support::count_files(f.store.root()), 1);
    f.import_with(&path, |request| request.expected_sha256 = Some(sha256(&disk)))
        .unwrap();
}

/// Creates a key pair and its signature over `path` with minisign.
fn sign(f: &Fixture, name: &str, path: &Path, extra: &[&str]) -> (String, String) {
    let (public, secret) = (f.path(&format!("{name}.pub")), f.path(&format!("{name}.key")));
    if !public.exists() {
        tool("minisign", &["-G", "-W", "-p", text(&public), "-s", text(&secret)]);
    }
    let signature = f.path(&format!("{name}.minisig"));
    let mut arguments = vec![
        "-S",
        "-s",
        text(&secret),
        "-x",
        text(&signature),
        "-m",
        text(path),
        "-t",
        "build 7",
    ];
    arguments.extend(extra);
    tool("minisign", &arguments);
    (
        fs::read_to_string(public).unwrap(),
        fs::read_to_string(signature).unwrap(),
    )
}

fn import_signed(
    f: &Fixture,
    path: &Path,
    policy: &SignaturePolicy,
    signature: Option<&str>,
) -> Result<rackwright_image::Imported, ImportError> {
    let request = ImportRequest {
        signature,
        ..ImportRequest::new(path, policy)
    };
    import(&request, &f.store, &|_| {}, &AtomicBool::new(false))
}

#[test]
fn signatures_are_checked_against_the_trusted_keys() {
    let f = Fixture::new();
    let path = f.file("disk.raw", &sample_disk());
    let (public, signature) = sign(&f, "site", &path, &[]);
    let (stranger, strange) = sign(&f, "stranger", &path, &[]);
    let required = SignaturePolicy {
        trusted_keys: vec![public.clone()],
        required: true,
    };
    let code = |result: Result<_, ImportError>| result.map(drop).map_err(|error| error.code());

    assert_eq!(
        code(import_signed(&f, &path, &required, None)),
        Err("signature-missing")
    );
    assert_eq!(
        code(import_signed(&f, &path, &required, Some(&strange))),
        Err("signature-invalid")
    );
    assert_eq!(
        code(import_signed(&f, &path, &required, Some("rubbish"))),
        Err("signature-invalid")
    );
    let (_, old_kind) = sign(&f, "site", &path, &["-l"]);
    assert_eq!(
        code(import_signed(&f, &path, &required, Some(&old_kind))),
        Err("signature-invalid")
    );
    let forged = signature.replace("build 7", "build 8");
    assert_eq!(
        code(import_signed(&f, &path, &required, Some(&forged))),
        Err("signature-invalid")
    );
    let mut other_disk = sample_disk();
    other_disk[5] ^= 1;
    let other = f.file("other.raw", &other_disk);
    assert_eq!(
        code(import_signed(&f, &other, &required, Some(&signature))),
        Err("signature-invalid")
    );
    // A given signature must verify, whether or not one is required.
    let lax = SignaturePolicy {
        required: false,
        ..required.clone()
    };
    assert_eq!(
        code(import_signed(&f, &path, &lax, Some(&strange))),
        Err("signature-invalid")
    );
    let broken = SignaturePolicy {
        trusted_keys: vec!["no key".to_owned()],
        required: false,
    };
    assert_eq!(code(import_signed(&f, &path, &broken, None)), Err("policy-invalid"));
    f.assert_empty();

    assert_eq!(import_signed(&f, &path, &lax, None).unwrap().signed_by, None);
    let line = public.lines().nth(1).unwrap().to_owned();
    let policy = SignaturePolicy {
        trusted_keys: vec![stranger, line],
        required: true,
    };
    let signed_by = import_signed(&f, &path, &policy, Some(&signature))
        .unwrap()
        .signed_by
        .unwrap();
    assert_eq!(
        (signed_by.trusted_key, signed_by.trusted_comment.as_str()),
        (1, "build 7")
    );
}

#[test]
fn a_backing_file_is_never_followed() {
    let f = Fixture::new();
    let secret = f.file("secret.raw", &noise(1, CHUNK_SIZE));
    let path = f.path("overlay.qcow2");
    tool(
        "qemu-img",
        &["create", "-f", "qcow2", "-F", "raw", "-b", text(&secret), text(&path)],
    );
    let error = f.import(&path).unwrap_err();
    assert!(error.to_string().contains("backing file"), "{error}");
    let path = f.path("external.qcow2");
    let options = format!("data_file={}", text(&f.path("external.raw")));
    tool(
        "qemu-img",
        &["create", "-f", "qcow2", "-o", &options, text(&path), "8M"],
    );
    let error = f.import(&path).unwrap_err();
    assert!(error.to_string().contains("another file"), "{error}");
    f.assert_empty();
}

#[test]
fn a_packed_file_in_a_packed_file_is_no_disk() {
    let f = Fixture::new();
    let raw = f.file("disk.raw", &sample_disk());
    let qcow2 = packed(&f, &raw, "qcow2");
    let error = f.import(&packed(&f, &qcow2, "zst")).unwrap_err();
    assert!(
        matches!(
            error,
            ImportError::Nested {
                outer: Format::Zstd,
                inner: Format::Qcow2
            }
        ),
        "{error}"
    );
    let error = f
        .import_with(&qcow2, |request| request.format = Some(Format::Raw))
        .unwrap_err();
    assert!(matches!(error, ImportError::Nested { .. }), "{error}");
    f.assert_empty();
}

#[test]
fn bombs_end_at_the_limits() {
    let f = Fixture::new();
    let path = f.path("bomb.zst");
    tool(
        "sh",
        &["-c", &format!("head -c 300M /dev/zero | zstd -q -19 > {}", text(&path))],
    );
    assert!(fs::metadata(&path).unwrap().len() < 100_000);
    let limits = ImportLimits {
        max_logical_bytes: 100 << 20,
        ..ImportLimits::default()
    };
    let error = f.import_with(&path, |request| request.limits = limits).unwrap_err();
    assert_eq!(error.code(), "too-large", "{error}");

    let path = f.file("noise.raw", &noise(9, 5 * CHUNK_SIZE));
    let limits = ImportLimits {
        max_new_bytes: 2 * CHUNK_SIZE as u64,
        ..ImportLimits::default()
    };
    let error = f.import_with(&path, |request| request.limits = limits).unwrap_err();
    assert_eq!(error.code(), "too-large", "{error}");

    // A frame with a window of 128 MiB, and an xz stream with the same demand.
    let raw = f.file("disk.raw", &sample_disk());
    let limits = ImportLimits {
        max_decoder_bytes: 1 << 20,
        ..ImportLimits::default()
    };
    for format in ["zst19", "xz"] {
        let path = packed(&f, &raw, format);
        let error = f.import_with(&path, |request| request.limits = limits).unwrap_err();
        assert_eq!(error.code(), "source-invalid", "{error}");
    }
    f.assert_empty();
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let f = Fixture::new();
    let path = f.file("disk.raw", &sample_disk());
    let policy = SignaturePolicy::default();
    let request = ImportRequest::new(&path, &policy);
    let touched = AtomicBool::new(false);
    let progress = |progress: rackwright_image::ImportProgress| {
        if progress.step == ImportStep::Storing && !touched.swap(true, Ordering::Relaxed) {
            let mut disk = sample_disk();
            disk[1] ^= 1;
            fs::write(&path, disk).unwrap();
        }
    };
    let error = import(&request, &f.store, &progress, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.code(), "source-changed");
    assert!(error.retryable());
    f.assert_empty();
}

#[test]
fn progress_is_reported_and_cancelling_leaves_nothing() {
    let f = Fixture::new();
    let path = f.file("disk.raw", &noise(3, 80 << 20));
    let policy = SignaturePolicy::default();
    let request = ImportRequest {
        threads: 1,
        ..ImportRequest::new(&path, &policy)
    };
    let cancel = Arc::new(AtomicBool::new(false));
    let seen = Mutex::new(Vec::new());
    let progress = |progress: rackwright_image::ImportProgress| {
        assert_eq!(progress.source_bytes_total, 80 << 20);
        seen.lock().unwrap().push((progress.step, progress.source_bytes));
        if progress.step == ImportStep::Verifying {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let error = import(&request, &f.store, &progress, &cancel).unwrap_err();
    assert_eq!(error.code(), "cancelled");
    assert_eq!(seen.lock().unwrap().as_slice(), [(ImportStep::Verifying, 64 << 20)]);
    f.assert_empty();
}
