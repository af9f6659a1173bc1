//! `node settings`: a machine's firmware settings compared with those of its SKU.

use clap::{Args, Subcommand};
use rackwright_api::v1::settings_service_client::SettingsServiceClient;
use rackwright_api::v1::{
    GetNodeSettingsRequest, ListSettingsDriftRequest, NodeSetting, NodeSettings, SettingStanding,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, pages, units};

use super::actions::{self, PlainArgs};

/// Nodes of one page.
const PAGE: i32 = 500;

/// `rackwright node settings`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SettingsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// The node
    #[arg(required = true)]
    id: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write settings that are not as wanted: nodes without a claim are started and inspected again
    Apply(PlainArgs),
    /// Show nodes with settings that are not as wanted
    Drift,
}

/// Runs a settings command.
pub async fn run(cx: &Cx, args: SettingsArgs) -> Result<(), CliError> {
    match (args.action, args.id) {
        (Some(Action::Apply(args)), _) => actions::apply_settings(cx, args).await,
        (Some(Action::Drift), _) => drift(cx).await,
        (None, id) => show(cx, &id.unwrap_or_default()).await,
    }
}

async fn show(cx: &Cx, id: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = GetNodeSettingsRequest {
        name: names::full("nodes", id),
    };
    let doing = format!("read settings of node {}", names::short("nodes", id));
    let settings = rpc!(client, SettingsServiceClient.get_node_settings, doing, request).await?;
    let width = cx.ui.width();
    cx.ui.item(&settings, |paint| screen(&settings, paint, width))
}

async fn drift(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let (nodes, known, read) = all(&client).await?;
    let width = cx.ui.width();
    cx.ui.list(&nodes, |paint| {
        if nodes.is_empty() {
            return match (read, known) {
                (0, _) => "unknown: firmware settings were read from no node\n".to_owned(),
                (read, known) if read < known => format!(
                    "settings are as wanted on {read} of {known} nodes; the settings of the other nodes were not read\n"
                ),
                (read, _) => {
                    let nodes = plural(usize::try_from(read).unwrap_or_default(), "node");
                    format!("settings are as wanted on every node ({nodes})\n")
                }
            };
        }
        let mut table = Table::new(&[
            "NODE",
            "SINCE",
            "SETTING",
            "WANTED",
            "CURRENT",
            "AFTER START",
            "STANDING",
        ]);
        for node in &nodes {
            for setting in &node.settings {
                let [name, wanted, current, pending, standing] = cells(setting);
                let since = node.drift_time.as_ref().map(units::stamp).unwrap_or_default();
                let id = names::short("nodes", &node.name);
                table.row([id.into(), since.into(), name, wanted, current, pending, standing]);
            }
        }
        table.render(paint, width)
    })
}

/// The nodes with differences; the number of nodes; the number of nodes with settings that were read.
async fn all(client: &Client) -> Result<(Vec<NodeSettings>, i32, i32), CliError> {
    let (mut known, mut read) = (0, 0);
    let nodes = pages::all(async |page_token| {
        let request = ListSettingsDriftRequest {
            page_size: PAGE,
            page_token,
        };
        let page = rpc!(client, SettingsServiceClient.list_settings_drift, "list drift", request).await?;
        (known, read) = (known.max(page.known_nodes), read.max(page.read_nodes));
        Ok((page.nodes, page.next_page_token))
    })
    .await?;
    Ok((nodes, known, read))
}

fn screen(settings: &NodeSettings, paint: Paint, width: Option<usize>) -> String {
    let id = clean(names::short("nodes", &settings.name));
    if settings.settings.is_empty() {
        return match names::short("skus", &settings.sku) {
            "" => format!("the site has no node {id}, so no firmware settings are wanted\n"),
            sku => format!("SKU {} wants no firmware settings for {id}\n", clean(sku)),
        };
    }
    let time = |time: &Option<_>| time.as_ref().map_or_else(|| "never".to_owned(), units::stamp);
    let mut head = Table::pairs();
    let mut pair = |name: &str, value: Cell| {
        head.row([Cell::toned(name, Tone::Dim), value]);
    };
    pair("node", id.as_str().into());
    pair("SKU", names::short("skus", &settings.sku).into());
    pair("read", time(&settings.read_time).into());
    pair("verified after a start", time(&settings.verify_time).into());
    if let Some(since) = &settings.drift_time {
        pair("differs since", Cell::toned(units::stamp(since), Tone::Bad));
    }
    let mut table = Table::new(&["SETTING", "WANTED", "CURRENT", "AFTER START", "STANDING"]);
    for setting in &settings.settings {
        table.row(cells(setting));
    }
    format!("{}\n{}", head.render(paint, width), table.render(paint, width))
}

fn cells(setting: &NodeSetting) -> [Cell; 5] {
    let (word, tone) = match setting.standing() {
        SettingStanding::AsWanted => ("as wanted", Tone::Good),
        SettingStanding::Pending => ("waits for a start", Tone::Busy),
        SettingStanding::Differs => ("differs", Tone::Bad),
        SettingStanding::ReadOnly => ("differs, read-only", Tone::Bad),
        SettingStanding::Missing => ("not offered", Tone::Bad),
        SettingStanding::Unspecified => ("not read yet", Tone::Dim),
    };
    let optional = |text: &Option<String>| Cell::from(text.clone().unwrap_or_default());
    [
        (&setting.name).into(),
        (&setting.wanted).into(),
        optional(&setting.current),
        optional(&setting.pending),
        Cell::toned(word, tone),
    ]
}
