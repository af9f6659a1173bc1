//! `rackwright image ...`: operating-system images.

mod add;
mod spread;

use clap::Subcommand;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::{DeleteImageRequest, GetImageRequest, Image, ImageFormat, ImageVersion, ListImagesRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, pages, units};

/// `rackwright image`
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Upload and import an image file
    Add(add::AddArgs),
    /// Show all images
    List,
    /// Show one image and its versions
    Get { image: String },
    /// Show how agents that write an image serve each other its chunks
    Spread { image: String },
    /// Delete an image, or one version of it (IMAGE@DIGEST)
    Delete {
        image: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// Runs an image command.
pub async fn run(cx: &Cx, command: ImageCommand) -> Result<(), CliError> {
    match command {
        ImageCommand::Add(args) => add::run(cx, args).await,
        ImageCommand::List => list(cx).await,
        ImageCommand::Get { image } => {
            let image = get(&*cx.client().await?, &image).await?;
            let width = cx.ui.width();
            cx.ui.item(&image, |paint| details(&image, paint, width))
        }
        ImageCommand::Spread { image } => spread::run(cx, &image).await,
        ImageCommand::Delete { image, mutation } => {
            let client = cx.client().await?;
            let request = DeleteImageRequest {
                name: names::image(&image),
                mutation: Some(mutation.once()),
            };
            rpc!(
                client,
                ImageServiceClient.delete_image,
                format!("delete image {image}"),
                request
            )
            .await?;
            cx.ui.say(&format!("image {image} deleted"))
        }
    }
}

/// One image with all its versions.
async fn get(client: &Client, image: &str) -> Result<Image, CliError> {
    let request = GetImageRequest {
        name: names::full("images", image),
    };
    rpc!(
        client,
        ImageServiceClient.get_image,
        format!("read image {image}"),
        request
    )
    .await
}

async fn list(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let images = pages::all(async |page_token| {
        let request = ListImagesRequest {
            page_size: 1000,
            page_token,
        };
        let page = rpc!(client, ImageServiceClient.list_images, "list images", request).await?;
        Ok((page.images, page.next_page_token))
    })
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&images, |paint| list_table(&images).render(paint, width))
}

fn list_table(images: &[Image]) -> Table {
    let now = units::now();
    let mut table = Table::new(&[
        "IMAGE",
        "VERSIONS",
        "NEWEST",
        "DISK",
        "DATA",
        "STORED",
        "FORMAT",
        "SIGNED BY",
        "AGE",
    ]);
    for image in images {
        let newest = image.versions.first().cloned().unwrap_or_default();
        let age = newest
            .create_time
            .as_ref()
            .map(|time| units::age(units::since(time, now)));
        table.row([
            names::short("images", &image.name).into(),
            image.versions.len().to_string().into(),
            names::digest_short(names::last(&newest.name)).into(),
            units::bytes(newest.logical_bytes).into(),
            units::bytes(newest.data_bytes).into(),
            units::bytes(newest.compressed_bytes).into(),
            format_name(newest.source_format).into(),
            (&newest.signed_by).into(),
            age.unwrap_or_default().into(),
        ]);
    }
    table
}

fn details(image: &Image, paint: Paint, width: Option<usize>) -> String {
    let labels = image
        .metadata
        .as_ref()
        .map(|metadata| crate::node::labels_text(&metadata.labels));
    let mut text = paint.tone(Tone::Strong, &clean(names::short("images", &image.name)));
    if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
        text.push_str(&format!("  {}", clean(&labels)));
    }
    text.push('\n');
    for version in &image.versions {
        text.push('\n');
        let mut table = Table::pairs().indented(2);
        table.row(["version".into(), names::last(&version.name).into()]);
        table.row([
            "imported".into(),
            version
                .create_time
                .as_ref()
                .map(units::stamp)
                .unwrap_or_default()
                .into(),
        ]);
        table.row([
            "size".into(),
            format!(
                "{} on disk, {} of data, {} stored in {} chunks",
                units::bytes(version.logical_bytes),
                units::bytes(version.data_bytes),
                units::bytes(version.compressed_bytes),
                version.chunks
            )
            .into(),
        ]);
        table.row([
            "source".into(),
            format!(
                "{} sha256:{}",
                format_name(version.source_format),
                version.source_sha256
            )
            .into(),
        ]);
        table.row(["signed by".into(), (&version.signed_by).into()]);
        table.row(["system".into(), system(version).into()]);
        text.push_str(&table.render(paint, width));
    }
    text
}

/// The description of the system in a version.
fn system(version: &ImageVersion) -> String {
    let patterns = [
        ("ID", &version.os_id),
        ("VERSION_ID", &version.os_version),
        ("kernel", &version.kernel),
    ];
    let patterns = patterns.iter().filter(|(_, pattern)| !pattern.is_empty());
    patterns
        .map(|(key, pattern)| format!("{key}={pattern}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// `raw`, `zstd`, ...
fn format_name(format: i32) -> String {
    match ImageFormat::try_from(format) {
        Ok(ImageFormat::Unspecified) | Err(_) => String::new(),
        Ok(format) => format
            .as_str_name()
            .trim_start_matches("IMAGE_FORMAT_")
            .to_ascii_lowercase(),
    }
}
