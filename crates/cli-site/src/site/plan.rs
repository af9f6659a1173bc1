//! `rackwright site plan` and `rackwright site apply`: site files compared with the control plane's site.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rackwright_api::v1::site_service_client::SiteServiceClient;
use rackwright_api::v1::{ApplySiteRequest, Mutation, PlanSiteRequest, PlanSiteResponse, SiteFile};
use rackwright_cli_context::Cx;
use rackwright_cli_context::client::Client;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, Paint, Tone, clean};
use tonic::{Request, Status};

use super::load::refused;
use super::sent::{self, MAX_PLAN_BYTES, SentFiles};
use super::{Paths, diff, show};

/// `rackwright site apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    paths: Paths,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Shows the changes. Ends with an error if the files could not be applied.
pub async fn run(cx: &Cx, paths: &[PathBuf]) -> Result<(), CliError> {
    let sent = SentFiles::read(paths)?;
    let plan = ask(&*cx.client().await?, &sent).await?;
    match cx.ui.format() {
        // Each change has its own name; without changes nothing is printed.
        Format::Name if plan.changes.is_empty() => {}
        Format::Table => cx.ui.line(text(&sent, &plan, cx.ui.paint()).trim_end())?,
        _ => cx.ui.item(&plan, |_| String::new())?,
    }
    verdict(&sent, &plan)
}

/// Applies exactly what was shown: if the site has changed meanwhile, the server refuses.
pub async fn apply(cx: &Cx, args: ApplyArgs) -> Result<(), CliError> {
    let sent = SentFiles::read(&args.paths.paths)?;
    let client = cx.client().await?;
    let plan = ask(&client, &sent).await?;
    let verdict = verdict(&sent, &plan);
    let asks = !args.yes && !plan.changes.is_empty();
    let shown = text(&sent, &plan, cx.ui.paint_errors());
    if asks || verdict.is_err() {
        // The person who decides must see the changes.
        eprint!("{shown}");
    } else {
        cx.ui.note(shown.trim_end());
    }
    verdict?;
    let mut mutation = args.mutation.once();
    if mutation.resource_version.is_empty() {
        mutation.resource_version = plan.resource_version;
    } else if mutation.resource_version != plan.resource_version {
        let found = version_text(&plan.resource_version);
        let status = Status::aborted(format!("{found}, not version {}", mutation.resource_version));
        return Err(CliError::rpc("apply the site", status));
    }
    if asks {
        cx.ui.consent("this changes the site", "These files become the site.")?;
    }
    let send = |channel, request: Request<(Arc<[SiteFile]>, Mutation)>| async move {
        let request = request.map(|(files, mutation)| {
            let messages = sent::parts(files).map(|part| ApplySiteRequest {
                mutation: None,
                part: Some(part),
            });
            let first = ApplySiteRequest {
                mutation: Some(mutation),
                part: None,
            };
            tokio_stream::iter(std::iter::once(first).chain(messages))
        });
        SiteServiceClient::new(channel).apply_site(request).await
    };
    let site = client
        .call_with_data("apply the site", sent.bytes(), (sent.files.clone(), mutation), send)
        .await?;
    if cx.ui.format() != Format::Table {
        return cx.ui.item(&site, |_| String::new());
    }
    cx.ui.say(&clean(&show::sentence(&site)))?;
    for line in show::not_enrolled(&site) {
        cx.ui.note(&line);
    }
    Ok(())
}

/// The server's plan for the files.
async fn ask(client: &Client, sent: &SentFiles) -> Result<PlanSiteResponse, CliError> {
    let send = |channel, request: Request<Arc<[SiteFile]>>| async move {
        let request = request.map(|files| {
            let messages = sent::parts(files).map(|part| PlanSiteRequest { part: Some(part) });
            tokio_stream::iter(messages)
        });
        SiteServiceClient::new(channel)
            .max_decoding_message_size(MAX_PLAN_BYTES)
            .plan_site(request)
            .await
    };
    let files = sent.files.clone();
    client.call_with_data("plan the site", sent.bytes(), files, send).await
}

/// Findings, then changes, then conflicts.
fn text(sent: &SentFiles, plan: &PlanSiteResponse, paint: Paint) -> String {
    let findings = sent.findings(&plan.findings);
    let mut text = sent.local().render(&findings, paint);
    if findings.errors == 0 {
        let differences: Vec<_> = plan.changes.iter().map(diff::Difference::from).collect();
        text.push_str(&diff::text(&differences, paint));
        let compared = match plan.resource_version.as_str() {
            "" | "0" => "there is no site yet".to_owned(),
            version => format!("compared with version {} of the site", clean(version)),
        };
        let words = if differences.is_empty() { "no difference; " } else { "" };
        text.push_str(&format!("{words}{compared}\n"));
    }
    for conflict in &plan.conflicts {
        text.push_str(&format!("{} {}\n", paint.tone(Tone::Bad, "conflict:"), clean(conflict)));
    }
    text
}

/// `the site has version 7`
fn version_text(version: &str) -> String {
    match version {
        "" | "0" => "there is no site yet".to_owned(),
        version => format!("the site has version {}", clean(version)),
    }
}

/// An error if the files could not be applied.
fn verdict(sent: &SentFiles, plan: &PlanSiteResponse) -> Result<(), CliError> {
    let findings = sent.findings(&plan.findings);
    if findings.errors > 0 {
        return Err(refused(&findings));
    }
    match plan.conflicts.len() {
        0 => Ok(()),
        count => Err(CliError::usage(
            format!("{} with resources of clusters", plural(count, "conflict")),
            "keep the resources of the clusters in the site, or release the clusters first (`rackwright cluster release`)",
        )),
    }
}
