//! `rackwright node ...`: servers.

mod actions;
mod believe;
mod bmc_log;
mod console;
mod describe;
mod enroll;
pub mod evidence;
mod explain;
mod firmware;
mod inventory;
mod label;
mod list;
mod power;
mod settings;
pub mod signing_keys;
mod targets;
mod timeline;
mod update;
mod verb;
mod watch;

use std::collections::HashMap;

use clap::Subcommand;
use rackwright_api::v1::{Node, NodeHealth, NodeState};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::Tone;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::{Cx, names};

/// `rackwright node`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Enrol a node
    Enroll(enroll::EnrollArgs),
    /// Show nodes
    List(list::ListArgs),
    /// Show one node
    Get { id: String },
    /// Show the reasons for a node's state, and what to do
    Explain { id: String },
    /// Show everything about a node: reasons, record, hardware, newest events
    Describe { id: String },
    /// Show a live timeline of phases
    Watch(watch::WatchArgs),
    /// Show the event log of a node's BMC, the newest first, or clear it
    BmcLog(bmc_log::BmcLogArgs),
    /// Switch nodes on or off, or power-cycle them
    Power(power::PowerArgs),
    /// Passwords of nodes' BMCs
    #[command(subcommand)]
    BmcPassword(BmcPasswordCommand),
    /// Write an image to nodes, validate them and hand them over
    Deploy(actions::DeployArgs),
    /// Write another image to deployed nodes (all data on the root drive is lost)
    Reimage(actions::ReimageArgs),
    /// Release nodes: all data on their drives is erased
    Release(actions::DestroyArgs),
    /// Take nodes out of service without changing their data
    Hold(actions::ReasonArgs),
    /// End a hold; erases nodes with a claim that ended during the hold
    Resume(actions::ResumeArgs),
    /// Set nodes apart until `readmit` has erased them
    Quarantine(actions::ReasonArgs),
    /// Bring nodes back from quarantine: all data on their drives is erased
    Readmit(actions::ReadmitArgs),
    /// Confirm that the records of doubted nodes are right, after a restore or when a machine knows more than its record
    Believe(believe::BelieveArgs),
    /// Try failed nodes again
    Retry(actions::PlainArgs),
    /// Attach to a node's serial console, or read its recording
    Console(console::ConsoleArgs),
    /// Show a node's firmware beside the versions that its SKU wants, or update it
    Firmware(firmware::FirmwareArgs),
    /// Show the hardware inventory of a node
    Inventory { id: String },
    /// Show a node's firmware settings beside the wanted values, write them, list differences
    Settings(settings::SettingsArgs),
    /// Show validation reports, the newest first
    Reports {
        id: String,
        /// Number of reports
        #[arg(long, default_value_t = 1)]
        last: usize,
    },
    /// Show the erase certificates of a node, the newest first
    Certificates(evidence::CertificatesArgs),
    /// Delete nodes without a claim
    Delete(actions::DeleteArgs),
    /// Change a node's BMC address, credentials or SKU
    Update(update::UpdateArgs),
    /// Set (k=v) and remove (k-) labels
    Label(label::LabelArgs),
}

/// `rackwright node bmc-password`
#[derive(Debug, Subcommand)]
pub enum BmcPasswordCommand {
    /// Set new passwords at the BMCs of nodes, also after a BMC refused an earlier change
    Rotate(actions::PlainArgs),
}

/// Runs a node command.
pub async fn run(cx: &Cx, command: NodeCommand) -> Result<(), CliError> {
    match command {
        NodeCommand::Enroll(args) => enroll::run(cx, args).await,
        NodeCommand::List(args) => list::run(cx, args).await,
        NodeCommand::Get { id } => list::get(cx, &id).await,
        NodeCommand::Explain { id } => explain::run(cx, &id).await,
        NodeCommand::Describe { id } => describe::run(cx, &id).await,
        NodeCommand::Watch(args) => watch::run(cx, args).await,
        NodeCommand::BmcLog(args) => bmc_log::run(cx, args).await,
        NodeCommand::Power(args) => power::run(cx, args).await,
        NodeCommand::BmcPassword(BmcPasswordCommand::Rotate(args)) => actions::rotate_password(cx, args).await,
        NodeCommand::Deploy(args) => actions::deploy(cx, args).await,
        NodeCommand::Reimage(args) => actions::reimage(cx, args).await,
        NodeCommand::Release(args) => actions::release(cx, args).await,
        NodeCommand::Hold(args) => actions::hold(cx, args).await,
        NodeCommand::Resume(args) => actions::resume(cx, args).await,
        NodeCommand::Quarantine(args) => actions::quarantine(cx, args).await,
        NodeCommand::Readmit(args) => actions::readmit(cx, args).await,
        NodeCommand::Believe(args) => believe::run(cx, args).await,
        NodeCommand::Retry(args) => actions::retry(cx, args).await,
        NodeCommand::Console(args) => console::run(cx, args).await,
        NodeCommand::Firmware(args) => firmware::run(cx, args).await,
        NodeCommand::Inventory { id } => inventory::run(cx, &id).await,
        NodeCommand::Settings(args) => settings::run(cx, args).await,
        NodeCommand::Reports { id, last } => evidence::reports(cx, &id, last).await,
        NodeCommand::Certificates(args) => evidence::certificates(cx, args).await,
        NodeCommand::Delete(args) => actions::delete(cx, args).await,
        NodeCommand::Update(args) => update::run(cx, args).await,
        NodeCommand::Label(args) => label::run(cx, args).await,
    }
}

/// `imaging`
pub fn state_name(state: i32) -> String {
    match NodeState::try_from(state) {
        Ok(state) => state
            .as_str_name()
            .trim_start_matches("NODE_STATE_")
            .to_ascii_lowercase(),
        Err(_) => "unknown".to_owned(),
    }
}

/// The colour of a state.
pub fn state_tone(state: i32) -> Tone {
    match NodeState::try_from(state) {
        Ok(NodeState::Available | NodeState::Active) => Tone::Good,
        Ok(NodeState::Failed | NodeState::Quarantined) => Tone::Bad,
        Ok(NodeState::Maintenance | NodeState::Unspecified) | Err(_) => Tone::Dim,
        Ok(_) => Tone::Busy,
    }
}

/// A state in its colour.
pub fn state_cell(state: i32) -> Cell {
    Cell::toned(state_name(state), state_tone(state))
}

/// A health in its colour. No value comes from an older server and is shown as unknown.
pub fn health_cell(health: i32) -> Cell {
    match NodeHealth::try_from(health) {
        Ok(NodeHealth::Ok) => Cell::toned("ok", Tone::Good),
        Ok(NodeHealth::Unreachable) => Cell::toned("BMC silent", Tone::Bad),
        Ok(NodeHealth::LoginRefused) => Cell::toned("login refused", Tone::Bad),
        Ok(NodeHealth::Doubted) => Cell::toned("doubted", Tone::Bad),
        Ok(NodeHealth::Unknown | NodeHealth::Unspecified) | Err(_) => Cell::toned("unknown", Tone::Dim),
    }
}

/// `k=v k=v`, sorted.
pub fn labels_text(labels: &HashMap<String, String>) -> String {
    let mut pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.sort();
    pairs.join(" ")
}

/// The node's image, or the image on its disk; empty if there is neither.
fn image_text(node: &Node) -> String {
    let status = node.status.clone().unwrap_or_default();
    let version = status
        .claim
        .map(|claim| claim.image_version)
        .unwrap_or(status.image_written);
    if version.is_empty() {
        String::new()
    } else {
        names::image_short(&version)
    }
}
