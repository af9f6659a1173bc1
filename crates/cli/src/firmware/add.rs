//! `rackwright firmware add`: computes the digest, then sends the file in one stream.

use std::path::{Path, PathBuf};

use clap::Args;
use rackwright_api::v1::AddFirmwareRequest;
use rackwright_api::v1::firmware_service_client::FirmwareServiceClient;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::{Cx, names, units};
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;

/// Bytes of one message; the API accepts up to 1 MiB.
const PIECE: usize = 512 << 10;

/// `rackwright firmware add`
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The firmware file of the vendor, unchanged
    file: PathBuf,
    /// Component: the `component` of a SKU's `firmware:` in the site file
    #[arg(long)]
    component: String,
    /// Version, exactly as the BMC reports it after the installation
    #[arg(long)]
    version: String,
}

/// Uploads.
pub async fn run(cx: &Cx, args: AddArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let failed = |e| CliError::file("read", &args.file, e);
    let path = args.file.clone();
    let digest = tokio::task::spawn_blocking(move || digest(&path)).await;
    let sha256 = digest
        .map_err(std::io::Error::other)
        .and_then(|done| done)
        .map_err(|e| CliError::given("read", &args.file, e))?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let first = AddFirmwareRequest {
        component: args.component.clone(),
        version: args.version.clone(),
        file_name: name,
        sha256,
        data: Vec::new(),
    };
    let (sender, pieces) = mpsc::channel(4);
    let reader = tokio::spawn(read(args.file.clone(), first, sender));
    let (channel, _) = client.channel("add firmware").await?;
    let mut service = FirmwareServiceClient::new(channel);
    let answer = service.add_firmware(Request::new(ReceiverStream::new(pieces))).await;
    // A file that cannot be read ends the stream early; then that error is reported.
    reader
        .await
        .map_err(std::io::Error::other)
        .and_then(|done| done)
        .map_err(failed)?;
    let added = answer
        .map_err(|status| CliError::rpc("add firmware", client.classify(status)))?
        .into_inner();
    let size = units::bytes(added.size_bytes);
    cx.ui.item(&added, |_| {
        let digest = names::short("firmware", &added.name);
        format!("{} {} added: {size}, {digest}\n", added.component, added.version)
    })
}

async fn read(
    path: PathBuf,
    first: AddFirmwareRequest,
    sender: mpsc::Sender<AddFirmwareRequest>,
) -> std::io::Result<()> {
    let mut file = File::open(path).await?;
    let mut next = first;
    loop {
        let mut data = vec![0; PIECE];
        let n = file.read(&mut data).await?;
        data.truncate(n);
        next.data = data;
        if sender.send(std::mem::take(&mut next)).await.is_err() || n == 0 {
            return Ok(());
        }
    }
}

fn digest(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut file = std::fs::File::open(path)?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hex::encode(context.finish()));
        }
        context.update(&buffer[..n]);
    }
}
