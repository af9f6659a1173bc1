//! The upload: starts at the server's position, and resumes after every broken connection.

use std::collections::VecDeque;
use std::io::SeekFrom;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use console::Term;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::{GetUploadRequest, Progress, Upload, WriteUploadRequest};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::client::{Client, is_transient, rpc};
use crate::error::CliError;
use crate::output::live::{self, Live};
use crate::output::{Ui, clean};
use crate::retry::Backoff;

/// Pause between two drawings of the bar.
pub const REDRAW: Duration = Duration::from_millis(200);

/// Bytes of one message; the API accepts up to 1 MiB.
const PIECE_BYTES: usize = 512 << 10;

/// Pieces that are read ahead.
const PIECES_AHEAD: usize = 4;

/// The time window of the rate.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// Counts bytes across threads.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes done out of a total, with the rate over the last seconds.
#[derive(Debug)]
pub struct Meter {
    done: Counter,
    total: u64,
    samples: Mutex<VecDeque<(Instant, u64)>>,
}

impl Meter {
    pub fn new(done: u64, total: u64) -> Self {
        let meter = Self {
            done: Counter::default(),
            total,
            samples: Mutex::default(),
        };
        meter.done.set(done);
        meter
    }

    pub fn counter(&self) -> Counter {
        self.done.clone()
    }

    /// The current bar, amounts, rate and remaining time.
    pub fn text(&self) -> String {
        self.text_at(Instant::now())
    }

    fn text_at(&self, now: Instant) -> String {
        let done = self.done.get().min(self.total);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        // A reconnection reduces the count; older samples would make the rate meaningless.
        samples.retain(|(at, bytes)| *bytes <= done && now.duration_since(*at) <= RATE_WINDOW);
        samples.push_back((now, done));
        let (first_at, first_bytes) = samples.front().copied().unwrap_or((now, done));
        let seconds = now.duration_since(first_at).as_secs_f64();
        let rate = if seconds > 0.0 {
            ((done - first_bytes) as f64 / seconds) as u64
        } else {
            0
        };
        let progress = Progress {
            logical_bytes: done,
            logical_bytes_total: self.total,
            bytes_per_second: rate,
            ..Progress::default()
        };
        let percent = (done as f64 * 100.0 / self.total.max(1) as f64) as u32;
        format!("{}  {}", live::bar(percent), live::amounts(&progress))
    }
}

/// Sends the data that the server does not have yet.
///
/// # Errors
/// The server refuses, the file has become shorter, or the server stays away for minutes.
pub async fn run(client: &Client, ui: &Ui, path: &Path, mut upload: Upload) -> Result<Upload, CliError> {
    let doing = format!("upload {}", path.display());
    let mut live = Live::new(Term::stderr(), ui.live_progress());
    let meter = Meter::new(upload.received_bytes, upload.size_bytes);
    let mut backoff = Backoff::for_long_work();
    let mut shown = String::new();
    while upload.received_bytes < upload.size_bytes {
        let before = upload.received_bytes;
        meter.done.set(before);
        let outcome = send(client, path, &upload, &meter, &mut live).await;
        let lost = match outcome {
            Ok(answer) => {
                upload.received_bytes = answer.received_bytes;
                None
            }
            Err(SendError::File(error)) => return Err(error),
            Err(SendError::Rpc(status)) if !can_resume(&status) => return Err(CliError::rpc(&doing, status)),
            Err(SendError::Rpc(status)) => Some(status),
        };
        if let Some(status) = lost {
            live.clear();
            if shown != status.message() {
                shown = status.message().to_owned();
                ui.note(&format!(
                    "note: the upload was interrupted ({}); continuing",
                    clean(&shown)
                ));
            }
            if !backoff.pause().await {
                return Err(CliError::rpc(&doing, status));
            }
            let request = GetUploadRequest {
                name: upload.name.clone(),
            };
            match rpc!(client, ImageServiceClient.get_upload, &doing, request).await {
                Ok(answer) => upload.received_bytes = answer.received_bytes,
                Err(error) if error.is_outage() => {}
                Err(error) => return Err(error),
            }
        }
        if upload.received_bytes > before {
            backoff = Backoff::for_long_work();
        } else if backoff.delay().is_none() {
            return Err(CliError::BadAnswer(format!(
                "the upload stays at {before} bytes although data is sent"
            )));
        }
    }
    live.clear();
    Ok(upload)
}

/// The server keeps the received data, so these errors only mean: read the position and continue.
///
/// After a cut the server may keep our old stream for a while. Then it refuses a second writer
/// (`FAILED_PRECONDITION`), or has received more than it reported before (a fault of the field
/// `offset`).
fn can_resume(status: &Status) -> bool {
    let offset_moved = || {
        let fields = status
            .get_details_bad_request()
            .map(|details| details.field_violations)
            .unwrap_or_default();
        fields.iter().any(|violation| violation.field == "offset")
    };
    match status.code() {
        Code::Aborted | Code::OutOfRange | Code::Cancelled | Code::FailedPrecondition => true,
        Code::InvalidArgument => offset_moved(),
        _ => is_transient(status),
    }
}

enum SendError {
    File(CliError),
    Rpc(Status),
}

/// One stream of pieces, from the server's position to the end of the file.
async fn send(
    client: &Client,
    path: &Path,
    upload: &Upload,
    meter: &Meter,
    live: &mut Live,
) -> Result<Upload, SendError> {
    let (channel, generation) = client.channel("upload").await.map_err(|error| match error {
        CliError::Unreachable { tried, .. } => {
            let why: Vec<_> = tried
                .into_iter()
                .map(|(server, why)| format!("{server}: {why}"))
                .collect();
            SendError::Rpc(Status::unavailable(why.join("; ")))
        }
        error => SendError::File(error),
    })?;
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    let reader = tokio::spawn(read_pieces(path.to_owned(), upload.clone(), sender, meter.counter()));
    let mut service = ImageServiceClient::new(channel);
    let call = service.write_upload(Request::new(ReceiverStream::new(pieces)));
    tokio::pin!(call);
    let mut tick = tokio::time::interval(REDRAW);
    let answer = loop {
        tokio::select! {
            answer = &mut call => break answer,
            _ = tick.tick() => live.draw(&[format!("uploading {}  {}", path.display(), meter.text())]),
        }
    };
    let read = reader.await.unwrap_or_else(|e| Err(std::io::Error::other(e)));
    match answer {
        Err(status) => {
            let status = client.classify(status);
            if status.code() == Code::Unavailable {
                client.forget(generation).await;
            }
            // A file that cannot be read ends the stream early; then that error is reported.
            match read {
                Err(e) => Err(SendError::File(CliError::file("read", path, e))),
                Ok(()) => Err(SendError::Rpc(status)),
            }
        }
        Ok(answer) => {
            read.map_err(|e| SendError::File(CliError::file("read", path, e)))?;
            Ok(answer.into_inner())
        }
    }
}

/// Reads the file into messages. Ends without an error if the receiver is gone.
async fn read_pieces(
    path: std::path::PathBuf,
    upload: Upload,
    pieces: mpsc::Sender<WriteUploadRequest>,
    counter: Counter,
) -> std::io::Result<()> {
    let mut file = File::open(&path).await?;
    file.seek(SeekFrom::Start(upload.received_bytes)).await?;
    let mut left = upload.size_bytes - upload.received_bytes;
    let mut name = upload.name;
    let mut offset = upload.received_bytes;
    while left > 0 {
        let mut data = vec![0; PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES))];
        file.read_exact(&mut data).await.map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => std::io::Error::other("the file became shorter during the upload"),
            _ => e,
        })?;
        let length = data.len() as u64;
        let message = WriteUploadRequest {
            name: std::mem::take(&mut name),
            offset: std::mem::take(&mut offset),
            data,
        };
        if pieces.send(message).await.is_err() {
            return Ok(());
        }
        counter.add(length);
        left -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meter_takes_its_rate_from_the_last_seconds() {
        let meter = Meter::new(0, 10_000_000);
        let start = Instant::now();
        assert_eq!(meter.text_at(start), "[--------------------]   0%  0 B of 10.0 MB");
        meter.done.set(2_000_000);
        let text = meter.text_at(start + Duration::from_secs(1));
        assert_eq!(
            text,
            "[####----------------]  20%  2.0 MB of 10.0 MB, 2.0 MB/s, 4.0 s left"
        );
        let text = meter.text_at(start + Duration::from_secs(60));
        assert_eq!(
            text, "[####----------------]  20%  2.0 MB of 10.0 MB",
            "an old rate is no rate"
        );
        meter.done.set(1_000_000);
        let text = meter.text_at(start + Duration::from_secs(61));
        assert_eq!(
            text, "[##------------------]  10%  1.0 MB of 10.0 MB",
            "a step back is no rate"
        );
    }
}
