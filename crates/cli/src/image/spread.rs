//! `rackwright image spread`: how agents that write an image serve each other its chunks.

use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::{GetImageSpreadRequest, ImageSpread, RackSpread, VersionSpread};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::{Paint, Table, clean};
use rackwright_cli_context::{Cx, names, units};

/// Shows the spread of an image.
pub async fn run(cx: &Cx, image: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = GetImageSpreadRequest {
        name: names::full("images", image),
    };
    let spread = rpc!(
        client,
        ImageServiceClient.get_image_spread,
        format!("read the spread of image {image}"),
        request
    )
    .await?;
    let width = cx.ui.width();
    cx.ui.item(&spread, |paint| render(&spread, paint, width))
}

fn render(spread: &ImageSpread, paint: Paint, width: Option<usize>) -> String {
    if spread.versions.is_empty() {
        let image = clean(names::short("images", &spread.name));
        return format!(
            "no agent that is connected to this replica writes {image} with the help of others (this needs images.peers: true \
             in the daemon's settings)\n"
        );
    }
    let versions = spread.versions.iter().map(|version| one(version, paint, width));
    versions.collect::<Vec<_>>().join("\n")
}

fn one(version: &VersionSpread, paint: Paint, width: Option<usize>) -> String {
    let agents: usize = version.racks.iter().map(|rack| rack.agents.len()).sum();
    let mut text = format!(
        "{}: {} chunks, {} in {}\n",
        names::digest_short(names::last(&version.name)),
        version.chunks,
        plural(agents, "agent"),
        plural(version.racks.len(), "rack")
    );
    text.push_str(&format!(
        "granted from the image servers: {} chunks, {} of them again, {} of them for agents that are alone\n\n",
        version.server_chunks, version.server_chunks_again, version.server_chunks_alone
    ));
    let mut racks = Table::new(&["RACK", "AGENTS", "ALONE", "HELD", "FETCHING"]);
    for rack in &version.racks {
        racks.row([
            name(rack).into(),
            rack.agents.len().to_string().into(),
            rack.alone.to_string().into(),
            of(rack.held_chunks, version.chunks).into(),
            rack.grants.to_string().into(),
        ]);
    }
    text.push_str(&racks.render(paint, width));
    text.push('\n');
    let now = units::now();
    let mut agents = Table::new(&["NODE", "RACK", "HELD", "FETCHING", "ALONE", "SINCE"]);
    for rack in &version.racks {
        for agent in &rack.agents {
            let since = agent
                .begin_time
                .as_ref()
                .map(|time| units::age(units::since(time, now)));
            agents.row([
                names::short("nodes", &agent.node).into(),
                name(rack).into(),
                of(agent.held_chunks, version.chunks).into(),
                agent.grants.to_string().into(),
                if agent.is_alone { "yes" } else { "" }.into(),
                since.unwrap_or_default().into(),
            ]);
        }
    }
    text.push_str(&agents.render(paint, width));
    text
}

fn name(rack: &RackSpread) -> &str {
    match rack.rack.as_str() {
        "" => "(not known)",
        name => name,
    }
}

fn of(part: u32, all: u32) -> String {
    format!("{part} of {all}")
}
