//! Interface of a job for writing an image to a drive.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rackwright_api::v1::JobError;
use rackwright_image::index::MAX_INDEX_BYTES;
use rackwright_image::writer::{
    ChunkSource as _, FetchControl, FetchError, Frame, HttpOptions, HttpSource, Object, Tls, Traffic, fetch_image,
};
use rackwright_image::{ImageDigest, Index, Options, WriteError, Written, write_image};
use secrecy::{ExposeSecret as _, SecretString};

use super::control::JobControl;
use super::job_error;
use super::write::{self, FinishError};
use crate::drives::DriveFacts;
use crate::sharing::{self, PeerSetup, Shared};

/// The trusted CA and the agent's own credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// CA certificates of the control plane, PEM.
    pub ca_pem: String,
    /// The agent's certificate, PEM.
    pub certificate_pem: String,
    /// Private key of the certificate, PEM.
    pub key_pem: SecretString,
}

/// The image to write.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Base URLs of the chunk stores, in order of preference.
    pub store_urls: Vec<String>,
    /// `b3-` and 64 hexadecimal digits.
    pub image_digest: String,
    /// Whether to read everything back.
    pub verify_whole_disk: bool,
    /// Memory limit in bytes; 0 selects the writer's default.
    pub memory_budget_bytes: u64,
    /// For stores with TLS.
    pub credentials: Credentials,
    /// Set if other agents write the same image, and exchange its chunks with this one.
    pub peers: Option<PeerSetup>,
}

/// Result of a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteSummary {
    /// Size of the image in bytes.
    pub logical_bytes: u64,
    /// Bytes fetched, index and repeated parts included.
    pub fetched_bytes: u64,
    /// Bytes written to the drive.
    pub written_bytes: u64,
    /// Whether zero chunks were skipped because the drive reads as zeros there.
    pub zeros_skipped: bool,
    /// Whether everything was read back.
    pub verified_whole_disk: bool,
    /// Number of resumed downloads.
    pub resumed_downloads: u32,
    /// Whether io_uring was used.
    pub io_uring: bool,
    /// Chunks that came from the image servers. Zero, as the next three, if the agent wrote without other agents.
    pub chunks_from_servers: u64,
    /// Chunks that came from agents of the same rack.
    pub chunks_from_rack: u64,
    /// Chunks that came from agents of other racks.
    pub chunks_from_other_racks: u64,
    /// Chunks that were sent to other agents so far.
    pub chunks_served: u64,
    /// Irregularities that are no failures.
    pub remarks: Vec<String>,
}

/// Fetches, verifies and writes images.
pub trait ImageWriter: Send + Sync {
    /// Returns the size of the image in bytes, from its index.
    ///
    /// # Errors
    /// For example `download-failed` or `digest-mismatch`.
    fn logical_bytes(&self, request: &WriteRequest, control: &JobControl) -> Result<u64, JobError>;

    /// Writes the image to the start of the drive. On failure the drive must not boot.
    ///
    /// # Errors
    /// The error for the report; `cancelled` if the control stopped it.
    fn write(&self, request: &WriteRequest, drive: &Path, control: &JobControl) -> Result<WriteSummary, JobError>;

    /// Fits the written image to the drive: its partition table, and the seed's files. When it returns, both are on the
    /// medium.
    ///
    /// # Errors
    /// [`FinishError`]
    fn finish(&self, facts: &DriveFacts, files: &BTreeMap<String, Vec<u8>>) -> Result<(), FinishError> {
        write::finish(facts, files)
    }

    /// Makes the written image unusable, so that a half-written system never boots.
    ///
    /// # Errors
    /// The kernel's error.
    fn invalidate(&self, facts: &DriveFacts) -> io::Result<()> {
        write::zero_ends(&facts.node)
    }
}

/// The image crate's writer over HTTP.
#[derive(Debug, Default)]
pub struct StoreWriter;

impl StoreWriter {
    /// Fetches and verifies the image like [`ImageWriter::write`], and passes its data with their offsets in bytes to
    /// `take`: for drives outside the kernel. `drive` is used in messages.
    ///
    /// # Errors
    /// Same as [`ImageWriter::write`].
    pub fn stream(
        request: &WriteRequest,
        drive: &Path,
        control: &JobControl,
        take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<WriteSummary, JobError> {
        let (source, digest) = Self::source(request)?;
        let streamed = fetch_image(&source, &digest, drive, &control.flag(), take);
        let streamed = streamed.map_err(|error| write_error(&error))?;
        Ok(WriteSummary {
            logical_bytes: streamed.logical_bytes,
            fetched_bytes: streamed.fetched_bytes,
            written_bytes: streamed.written_bytes,
            resumed_downloads: streamed.resumed_downloads,
            ..WriteSummary::default()
        })
    }

    fn source(request: &WriteRequest) -> Result<(HttpSource, ImageDigest), JobError> {
        let invalid = |what: &str, why: String| job_error("invalid-job", format!("{what}: {why}"), false);
        let digest = request
            .image_digest
            .parse()
            .map_err(|error| invalid("image digest", format!("{error}")))?;
        let Credentials {
            ca_pem,
            certificate_pem,
            key_pem,
        } = &request.credentials;
        let tls = Tls::with_ca(ca_pem.as_bytes())
            .and_then(|tls| tls.with_identity(certificate_pem.as_bytes(), key_pem.expose_secret().as_bytes()))
            .map_err(|error| job_error("internal", format!("the agent's own certificate: {error}"), false))?;
        let source = HttpSource::new(&request.store_urls, Some(&tls), HttpOptions::default());
        Ok((
            source.map_err(|error| invalid("store URLs", error.to_string()))?,
            digest,
        ))
    }
}

impl StoreWriter {
    /// Fetches the index and verifies it. The traffic is counted.
    fn index(
        source: &HttpSource,
        digest: ImageDigest,
        control: &JobControl,
        traffic: &Traffic,
    ) -> Result<Index, JobError> {
        let cancel = control.flag();
        let fetch = FetchControl {
            cancel: &cancel,
            fetched: &traffic.fetched,
            resumes: &traffic.resumes,
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
                Ok(index) => return Ok(index),
                Err(error) if source.reject(got.origin, &error) => {}
                Err(source) => return Err(write_error(&WriteError::Index { image: digest, source })),
            }
        }
    }
}

fn write_error(error: &WriteError) -> JobError {
    job_error(error.code(), with_causes(error), error.retryable())
}

fn summary(written: &Written) -> WriteSummary {
    WriteSummary {
        logical_bytes: written.logical_bytes,
        fetched_bytes: written.fetched_bytes,
        written_bytes: written.written_bytes,
        zeros_skipped: written.zeros_skipped,
        verified_whole_disk: written.verified_whole_disk,
        resumed_downloads: written.resumed_downloads,
        io_uring: written.io_uring,
        ..WriteSummary::default()
    }
}

impl ImageWriter for StoreWriter {
    fn logical_bytes(&self, request: &WriteRequest, control: &JobControl) -> Result<u64, JobError> {
        let (source, digest) = Self::source(request)?;
        Ok(Self::index(&source, digest, control, &Traffic::default())?.logical_size())
    }

    fn write(&self, request: &WriteRequest, drive: &Path, control: &JobControl) -> Result<WriteSummary, JobError> {
        let (source, digest) = Self::source(request)?;
        let options = Options {
            memory_budget_bytes: request.memory_budget_bytes,
            verify_whole_disk: request.verify_whole_disk,
            cancel: control.flag(),
            ..Options::default()
        };
        let report = |progress: rackwright_image::Progress| {
            control.report_measured(
                format!("image: {}", progress.step.name()),
                (progress.logical_bytes, progress.logical_bytes_total),
                progress.written_bytes,
                progress.bytes_per_second,
            );
        };
        let source = Arc::new(source);
        let mut remarks = Vec::new();
        if let Some(peers) = &request.peers {
            let traffic = Arc::new(Traffic::default());
            let index = Arc::new(Self::index(&source, digest, control, &traffic)?);
            let image = sharing::Image {
                digest,
                index,
                source: Arc::clone(&source),
                traffic,
            };
            match sharing::begin(peers, &image, &options) {
                Ok(download) => {
                    let shared = download.write(drive, &options, &report);
                    return shared.map(with_peers).map_err(|error| write_error(&error));
                }
                Err(why) => {
                    tracing::warn!(%why, "the image is written without the help of other agents");
                    remarks.push(format!("written without other agents ({why})"));
                }
            }
        }
        let written = write_image(&*source, &digest, drive, &options, &report);
        let written = written.map_err(|error| write_error(&error))?;
        Ok(WriteSummary {
            remarks,
            ..summary(&written)
        })
    }
}

fn with_peers(shared: Shared) -> WriteSummary {
    WriteSummary {
        chunks_from_servers: shared.from_servers,
        chunks_from_rack: shared.from_rack,
        chunks_from_other_racks: shared.from_other_racks,
        chunks_served: shared.served,
        remarks: shared.remark.into_iter().collect(),
        ..summary(&shared.written)
    }
}

/// The text of an error and its causes, without repetitions.
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
