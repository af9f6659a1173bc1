//! `rackwright image add`: digest, upload, import.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use console::Term;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::{FinishUploadRequest, ImageFormat, StartUploadRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::{MutationArgs, fresh_key};
use rackwright_cli_context::output::live::Live;
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::upload::{self, Meter};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation, units};

/// Largest signature file: a minisign signature is some 300 bytes.
const MAX_SIGNATURE_BYTES: u64 = 16 << 10;

/// `rackwright image add`
#[derive(Debug, Args)]
#[command(
    after_help = "To continue an interrupted upload, repeat the command with the same --idempotency-key; the key is shown \
        when the upload begins."
)]
pub struct AddArgs {
    /// Name of the image; an existing image gets a new version
    name: String,
    /// The image file
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// SHA-256 of the file (default: computed from the file, which proves the transfer, not the origin)
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: Option<String>,
    /// Format of the file (default: detected from its first bytes)
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// A minisign signature over the file (the .minisig file)
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// Expected ID of the operating system, such as debian: a pattern (* and ?) that validation compares
    #[arg(long, value_name = "PATTERN")]
    os_id: Option<String>,
    /// Expected VERSION_ID of the operating system, such as 12: a pattern
    #[arg(long, value_name = "PATTERN")]
    os_version: Option<String>,
    /// Expected release of the kernel, such as '6.1.*': a pattern
    #[arg(long, value_name = "PATTERN")]
    kernel: Option<String>,
    /// Return after the upload, without waiting for the import
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatArg {
    Raw,
    Zstd,
    Gzip,
    Xz,
    Qcow2,
}

fn sha256(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    if digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(digits.to_ascii_lowercase())
    } else {
        Err("a SHA-256 is 64 hex digits".to_owned())
    }
}

/// Uploads and imports.
pub async fn run(cx: &Cx, args: AddArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let size_bytes = file_size(&args.file)?;
    let minisign_signature = args
        .signature
        .as_deref()
        .map(read_signature)
        .transpose()?
        .unwrap_or_default();
    let sha256 = match &args.sha256 {
        Some(sha256) => sha256.clone(),
        None => {
            let sha256 = compute_sha256(cx, &args.file, size_bytes).await?;
            cx.ui
                .note(&format!("no --sha256 was given; computed from the file: {sha256}"));
            sha256
        }
    };
    let key = args.mutation.idempotency_key.clone().unwrap_or_else(fresh_key);
    let request = StartUploadRequest {
        image_id: names::short("images", &args.name).to_owned(),
        size_bytes,
        sha256,
        format: api_format(args.format) as i32,
        minisign_signature,
        os_id: args.os_id.clone().unwrap_or_default(),
        os_version: args.os_version.clone().unwrap_or_default(),
        kernel: args.kernel.clone().unwrap_or_default(),
        mutation: Some(args.mutation.part(&key, "start")),
    };
    let doing = format!("add image {}", args.name);
    let started = rpc!(client, ImageServiceClient.start_upload, &doing, request).await?;
    if started.received_bytes > 0 {
        let had = units::bytes(started.received_bytes);
        cx.ui.note(&format!(
            "continuing an upload: {had} of {} are already received",
            units::bytes(size_bytes)
        ));
    } else {
        cx.ui.note(&format!(
            "upload begun; if it is interrupted, resume it with --idempotency-key {key}"
        ));
    }
    let clock = Instant::now();
    let sent = size_bytes - started.received_bytes.min(size_bytes);
    let uploaded = upload::run(&client, &cx.ui, &args.file, started).await?;
    let seconds = clock.elapsed().as_secs_f64();
    let rate = units::bytes((sent as f64 / seconds.max(1e-3)) as u64);
    cx.ui.note(&format!(
        "{} uploaded in {} ({rate}/s)",
        units::bytes(sent),
        units::duration(seconds)
    ));
    let request = FinishUploadRequest {
        name: uploaded.name,
        mutation: Some(args.mutation.part(&key, "finish")),
    };
    let import = rpc!(client, ImageServiceClient.finish_upload, &doing, request).await?;
    let waiting = WaitArgs {
        wait: !args.no_wait,
        timeout: None,
    };
    for import in operation::finish(cx, &client, vec![import], waiting).await? {
        if cx.ui.format() == Format::Table && import.done {
            cx.ui.say(&clean(&import.target))?;
        }
    }
    Ok(())
}

fn file_size(path: &Path) -> Result<u64, CliError> {
    let metadata = std::fs::metadata(path).map_err(|e| CliError::given("read", path, e))?;
    if !metadata.is_file() {
        return Err(CliError::usage(
            format!("{} is not a regular file", path.display()),
            "give the image as a file",
        ));
    }
    if metadata.len() == 0 {
        return Err(CliError::usage(
            format!("{} is empty", path.display()),
            "there is nothing to add",
        ));
    }
    Ok(metadata.len())
}

fn read_signature(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| CliError::given("read", path, e))?;
    file.take(MAX_SIGNATURE_BYTES)
        .read_to_string(&mut text)
        .map_err(|e| CliError::given("read", path, e))?;
    Ok(text)
}

fn api_format(format: Option<FormatArg>) -> ImageFormat {
    match format {
        None => ImageFormat::Unspecified,
        Some(FormatArg::Raw) => ImageFormat::Raw,
        Some(FormatArg::Zstd) => ImageFormat::Zstd,
        Some(FormatArg::Gzip) => ImageFormat::Gzip,
        Some(FormatArg::Xz) => ImageFormat::Xz,
        Some(FormatArg::Qcow2) => ImageFormat::Qcow2,
    }
}

async fn compute_sha256(cx: &Cx, path: &Path, size_bytes: u64) -> Result<String, CliError> {
    let mut live = Live::new(Term::stderr(), cx.ui.live_progress());
    let meter = Meter::new(0, size_bytes);
    let (file, counter) = (path.to_owned(), meter.counter());
    let mut work = tokio::task::spawn_blocking(move || digest_file(&file, &counter));
    let mut tick = tokio::time::interval(upload::REDRAW);
    let digest = loop {
        tokio::select! {
            done = &mut work => break done,
            _ = tick.tick() => live.draw(&[format!("reading {}  {}", path.display(), meter.text())]),
        }
    };
    live.clear();
    match digest {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(e)) => Err(CliError::given("read", path, e)),
        Err(e) => Err(CliError::io(
            format!("read {}", path.display()),
            std::io::Error::other(e),
        )),
    }
}

fn digest_file(path: &Path, counter: &upload::Counter) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex::encode(context.finish()));
        }
        context.update(&buffer[..read]);
        counter.add(read as u64);
    }
}
