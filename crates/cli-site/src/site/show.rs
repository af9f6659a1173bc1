//! `rackwright site show`, and the texts about an applied site.

use rackwright_api::v1::get_site_response::Message;
use rackwright_api::v1::site_service_client::SiteServiceClient;
use rackwright_api::v1::{GetSiteRequest, GetSiteResponse, Site};
use rackwright_cli_context::client::Client;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::names::listed;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, units};
use tonic::Response;

use super::sent::ReceivedFiles;

/// The API lists at most this many nodes that are not enrolled.
const MOST_NAMED: usize = 1000;

/// Shows which site is applied, without its files.
pub async fn run(cx: &Cx) -> Result<(), CliError> {
    let mut site = get(&*cx.client().await?).await?;
    let files: Vec<String> = site.files.drain(..).map(|file| file.name).collect();
    let width = cx.ui.width();
    cx.ui.item(&site, |paint| details(&site, &files, paint, width))
}

/// The site with its files.
pub async fn get(client: &Client) -> Result<Site, CliError> {
    let send = |channel, request| async move {
        let mut messages = SiteServiceClient::new(channel).get_site(request).await?.into_inner();
        let (mut site, mut received) = (Site::default(), ReceivedFiles::default());
        while let Some(GetSiteResponse { message }) = messages.message().await? {
            match message {
                Some(Message::Site(first)) => site = first,
                Some(Message::Part(part)) => received.take(part)?,
                None => {}
            }
        }
        site.files = received.files()?;
        Ok(Response::new(site))
    };
    client.call("read the site", GetSiteRequest {}, send).await
}

/// `site lab is version 8: 128 nodes, 48 switches, 2048 cables`
pub fn sentence(site: &Site) -> String {
    let version = site.metadata.clone().unwrap_or_default().resource_version;
    format!(
        "site {} is version {version}: {}, {}, {}",
        site.title,
        plural(site.nodes as usize, "node"),
        plural(site.switches as usize, "switch"),
        plural(site.cables as usize, "cable"),
    )
}

/// The number of nodes that are not enrolled, their names, and a hint; empty if all are enrolled.
pub fn not_enrolled(site: &Site) -> Vec<String> {
    if site.not_enrolled.is_empty() {
        return Vec::new();
    }
    let words = if site.not_enrolled.len() == 1 {
        "node of the site is not enrolled"
    } else {
        "nodes of the site are not enrolled"
    };
    vec![
        clean(&format!("{} {words}: {}", missing(site), listed(&site.not_enrolled))),
        "hint: `rackwright apply -f nodes.yaml` enrols many nodes, `rackwright node enroll ID --bmc URL` one"
            .to_owned(),
    ]
}

fn missing(site: &Site) -> String {
    match site.not_enrolled.len() {
        count if count >= MOST_NAMED => format!("{count} or more"),
        count => count.to_string(),
    }
}

fn details(site: &Site, files: &[String], paint: Paint, width: Option<usize>) -> String {
    let metadata = site.metadata.clone().unwrap_or_default();
    let applied = metadata.update_time.as_ref().map_or_else(String::new, |time| {
        let age = units::duration(units::since(time, units::now()));
        format!("{} ({age} ago)", units::stamp(time))
    });
    let mut table = Table::pairs().indented(2);
    table.row(["version".into(), metadata.resource_version.into()]);
    table.row(["digest".into(), (&site.digest).into()]);
    table.row(["applied".into(), applied.into()]);
    table.row(["by".into(), (&site.applied_by).into()]);
    table.row(["files".into(), format!("{}: {}", files.len(), listed(files)).into()]);
    table.row(["nodes".into(), site.nodes.to_string().into()]);
    table.row(["switches".into(), site.switches.to_string().into()]);
    table.row(["cables".into(), site.cables.to_string().into()]);
    let enrolled = match site.not_enrolled.len() {
        0 => "all nodes".to_owned(),
        _ => format!("not {}: {}", missing(site), listed(&site.not_enrolled)),
    };
    table.row(["enrolled".into(), enrolled.into()]);
    let title = paint.tone(Tone::Strong, &clean(&site.title));
    let mut text = format!("{title}\n{}", table.render(paint, width));
    if let [_, hint] = not_enrolled(site).as_slice() {
        text.push_str(&format!("  {}\n", paint.tone(Tone::Dim, hint)));
    }
    text
}
