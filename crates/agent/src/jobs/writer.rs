//! Writing an image to a drive, as the job sees it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rackwright_api::v1::JobError;
use rackwright_image::index::MAX_INDEX_BYTES;
use rackwright_image::writer::{
    ChunkSource as _, FetchControl, FetchError, Frame, HttpOptions, HttpSource, Object, Tls, fetch_image,
};
use rackwright_image::{ImageDigest, Index, Options, write_image};
use secrecy::{ExposeSecret as _, SecretString};

use super::control::JobControl;
use super::job_error;
use super::write::{self, FinishError};
use crate::drives::DriveFacts;

/// Whom the agent trusts and how it proves who it is.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The control plane's CA, PEM.
    pub ca_pem: String,
    /// The agent's certificate, PEM.
    pub certificate_pem: String,
    /// Its key, PEM.
    pub key_pem: SecretString,
}

/// What is to be written.
#[derive(Clone, Debug)]
pub struct Order {
    /// Base URLs of the chunk stores, in order of preference.
    pub store_urls: Vec<String>,
    /// `b3-` and 64 hexadecimal digits.
    pub image_digest: String,
    /// Read everything back.
    pub verify_whole_disk: bool,
    /// 0: the writer's own default.
    pub memory_budget_bytes: u64,
    /// For stores that want TLS.
    pub credentials: Credentials,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// Bytes of the image.
    pub logical_bytes: u64,
    /// Bytes fetched.
    pub fetched_bytes: u64,
    /// Bytes written to the drive.
    pub written_bytes: u64,
    /// Zero chunks were skipped because the drive was known to read zeros.
    pub zeros_skipped: bool,
    /// Everything was read back.
    pub verified_whole_disk: bool,
    /// Downloads taken up again.
    pub resumed_downloads: u32,
    /// Whether io_uring was used.
    pub io_uring: bool,
}

/// Fetches, verifies and writes images.
pub trait ImageWriter: Send + Sync {
    /// Size of the image in bytes, from its index.
    ///
    /// # Errors
    /// `download-failed`, `digest-mismatch` and the like.
    fn logical_bytes(&self, order: &Order, control: &JobControl) -> Result<u64, JobError>;

    /// Writes the image to the start of the drive. On failure the drive must not boot.
    ///
    /// # Errors
    /// The report's error; `cancelled` when the control stopped it.
    fn write(&self, order: &Order, drive: &Path, control: &JobControl) -> Result<Written, JobError>;

    /// Fits what was written to the drive: its partition table, and the seed's files. On return both are on the medium.
    ///
    /// # Errors
    /// [`FinishError`]
    fn finish(&self, facts: &DriveFacts, files: &BTreeMap<String, Vec<u8>>) -> Result<(), FinishError> {
        write::finish(facts, files)
    }

    /// Makes what was written unusable, so that no half system boots.
    ///
    /// # Errors
    /// What the kernel says.
    fn spoil(&self, facts: &DriveFacts) -> io::Result<()> {
        write::zero_ends(&facts.node)
    }
}

/// The writer of the image crate over HTTP.
#[derive(Debug, Default)]
pub struct StoreWriter;

impl StoreWriter {
    /// Fetches and verifies the image as [`ImageWriter::write`] does, and hands what it holds to `take`, with its place in
    /// bytes: for a drive that is not the kernel's. `drive` is for messages.
    ///
    /// # Errors
    /// Those of [`ImageWriter::write`].
    pub fn stream(
        order: &Order,
        drive: &Path,
        control: &JobControl,
        take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<Written, JobError> {
        let (source, digest) = Self::source(order)?;
        let streamed = fetch_image(&source, &digest, drive, &control.flag(), take);
        let streamed = streamed.map_err(|error| job_error(error.code(), with_causes(&error), error.retryable()))?;
        Ok(Written {
            logical_bytes: streamed.logical_bytes,
            fetched_bytes: streamed.fetched_bytes,
            written_bytes: streamed.written_bytes,
            resumed_downloads: streamed.resumed_downloads,
            ..Written::default()
        })
    }

    fn source(order: &Order) -> Result<(HttpSource, ImageDigest), JobError> {
        let invalid = |what: &str, why: String| job_error("invalid-job", format!("{what}: {why}"), false);
        let digest = order
            .image_digest
            .parse()
            .map_err(|error| invalid("image digest", format!("{error}")))?;
        let Credentials {
            ca_pem,
            certificate_pem,
            key_pem,
        } = &order.credentials;
        let tls = Tls::with_ca(ca_pem.as_bytes())
            .and_then(|tls| tls.with_identity(certificate_pem.as_bytes(), key_pem.expose_secret().as_bytes()))
            .map_err(|error| job_error("internal", format!("the agent's own certificate: {error}"), false))?;
        let source = HttpSource::new(&order.store_urls, Some(&tls), HttpOptions::default());
        Ok((
            source.map_err(|error| invalid("store URLs", error.to_string()))?,
            digest,
        ))
    }
}

impl ImageWriter for StoreWriter {
    fn logical_bytes(&self, order: &Order, control: &JobControl) -> Result<u64, JobError> {
        let (source, digest) = Self::source(order)?;
        let (fetched, resumes, cancel) = (AtomicU64::new(0), AtomicU32::new(0), control.flag());
        let fetch = FetchControl {
            cancel: &cancel,
            fetched: &fetched,
            resumes: &resumes,
        };
        let mut frame = Frame::new(MAX_INDEX_BYTES);
        loop {
            let got = source
                .fetch(&Object::Image(digest), &mut frame, &fetch)
                .map_err(|error| {
                    let code = if matches!(error, FetchError::Cancelled) {
                        "cancelled"
                    } else {
                        "download-failed"
                    };
                    job_error(code, format!("index of image {digest}: {error}"), error.retryable())
                })?;
            match Index::parse_verified(frame.filled(), &digest) {
                Ok(index) => return Ok(index.logical_size()),
                Err(error) if source.reject(got.origin, &error) => {}
                Err(error) => {
                    let error = rackwright_image::WriteError::Index {
                        image: digest,
                        source: error,
                    };
                    return Err(job_error(error.code(), error.to_string(), error.retryable()));
                }
            }
        }
    }

    fn write(&self, order: &Order, drive: &Path, control: &JobControl) -> Result<Written, JobError> {
        let (source, digest) = Self::source(order)?;
        let options = Options {
            memory_budget_bytes: order.memory_budget_bytes,
            verify_whole_disk: order.verify_whole_disk,
            cancel: control.flag(),
            ..Options::default()
        };
        let report = |progress: rackwright_image::Progress| {
            control.measured(
                format!("image: {}", progress.step.name()),
                (progress.logical_bytes, progress.logical_bytes_total),
                progress.written_bytes,
                progress.bytes_per_second,
            );
        };
        let written = write_image(&source, &digest, drive, &options, &report);
        let written = written.map_err(|error| job_error(error.code(), with_causes(&error), error.retryable()))?;
        Ok(Written {
            logical_bytes: written.logical_bytes,
            fetched_bytes: written.fetched_bytes,
            written_bytes: written.written_bytes,
            zeros_skipped: written.zeros_skipped,
            verified_whole_disk: written.verified_whole_disk,
            resumed_downloads: written.resumed_downloads,
            io_uring: written.io_uring,
        })
    }
}

/// An error and what it says its causes are, each once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
