//! `rackwright control ...`: the control plane itself.

use clap::{Args, Subcommand};
use rackwright_api::v1::control_service_client::ControlServiceClient;
use rackwright_api::v1::{Control, GetControlRequest, ResumeControlRequest};
use rackwright_cli_context::Cx;
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::Table;

/// `rackwright control`
#[derive(Debug, Subcommand)]
pub enum ControlCommand {
    /// Show whether the control plane is paused, the number of doubted nodes, and warnings about its settings
    Show,
    /// End the pause of a control plane that was started with --paused; the control plane then acts on machines
    Resume(ResumeArgs),
}

/// `rackwright control resume`
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Runs a control command.
pub async fn run(cx: &Cx, command: ControlCommand) -> Result<(), CliError> {
    let client = cx.client().await?;
    match command {
        ControlCommand::Show => {
            let doing = "read the state of the control plane";
            let control = rpc!(client, ControlServiceClient.get_control, doing, GetControlRequest {}).await?;
            show(cx, &control)
        }
        ControlCommand::Resume(args) => {
            if !args.yes {
                cx.ui.consent(
                    "this makes the control plane act on machines",
                    "End the pause: the control plane acts on machines as its database says.",
                )?;
            }
            let request = ResumeControlRequest {
                mutation: Some(args.mutation.once()),
            };
            let control = rpc!(client, ControlServiceClient.resume_control, "end the pause", request).await?;
            show(cx, &control)
        }
    }
}

fn show(cx: &Cx, control: &Control) -> Result<(), CliError> {
    cx.ui.item(control, |_| {
        let state = if control.paused {
            "paused: answers reads, acts on no machine"
        } else {
            "working"
        };
        let mut table = Table::pairs();
        table.row(["control plane".into(), state.into()]);
        table.row(["doubted nodes".into(), control.doubted_nodes.to_string().into()]);
        for warning in &control.warnings {
            table.row(["warning".into(), warning.as_str().into()]);
        }
        table.render(cx.ui.paint(), cx.ui.width())
    })
}
