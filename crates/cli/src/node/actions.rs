//! Verbs that change nodes: power, deploy, reimage, release, hold, resume, quarantine, readmit, retry, delete.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use rackwright_api::v1::credential_service_client::CredentialServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::settings_service_client::SettingsServiceClient;
use rackwright_api::v1::{
    ApplyNodeSettingsRequest, DeleteNodeRequest, DeployNodeRequest, Deployment, GetNodeRequest, HoldNodeRequest,
    Mutation, Node, NodeState, Operation, PowerAction, QuarantineNodeRequest, ReadmitNodeRequest, ReimageNodeRequest,
    ReleaseNodeRequest, ResumeNodeRequest, RetryNodeRequest, RotateBmcPasswordRequest, SetNodePowerRequest,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::{read_text, ssh_keys};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, Ui, clean};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, nodes, operation};

use super::{state_name, state_tone};

/// One or several nodes.
#[derive(Debug, Args)]
pub struct Targets {
    /// The nodes
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

impl Targets {
    /// The plain ids without repetition, in the given order.
    fn ids(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let ids = self.ids.iter().map(|id| names::short("nodes", id).to_owned());
        ids.filter(|id| seen.insert(id.clone())).collect()
    }
}

/// For verbs that need nothing but the nodes.
#[derive(Debug, Args)]
pub struct PlainArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// For verbs that destroy what is on the nodes' drives.
#[derive(Debug, Args)]
pub struct DestroyArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright node resume`
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    targets: Targets,
    /// Do not ask for confirmation if the end of the hold erases the drives (the claim ended during the hold)
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright node readmit`
#[derive(Debug, Args)]
pub struct ReadmitArgs {
    #[command(flatten)]
    destroy: DestroyArgs,
    /// Accept the drives that the machine's agent reported last, in place of the recorded drives. Check the machine first:
    /// erase certificates name you as the witness of these drives
    #[arg(long)]
    accept_drives: bool,
    /// Assign this TPM to the node after a change of its board: the digest from the refusal, or "none" if the node no longer
    /// has a TPM. Check the machine first
    #[arg(long, value_name = "sha256:HEX|none")]
    accept_tpm: Option<String>,
}

/// For verbs whose reason is kept and shown to everybody.
#[derive(Debug, Args)]
pub struct ReasonArgs {
    #[command(flatten)]
    targets: Targets,
    /// Reason, stored and shown to others
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright node delete`
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright node power`
#[derive(Debug, Args)]
pub struct PowerArgs {
    /// The node
    id: String,
    #[arg(value_enum)]
    action: PowerArg,
    /// With ac-cycle: also if a customer has the node; all running work is interrupted
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PowerArg {
    On,
    Off,
    Cycle,
    AcCycle,
}

/// What a node is given.
#[derive(Debug, Args)]
pub struct DeploymentArgs {
    /// Image: NAME for its newest version, or NAME@DIGEST
    #[arg(long)]
    image: String,
    /// Host name (default: the node's name)
    #[arg(long)]
    hostname: Option<String>,
    /// SSH public key for logins, or a file with such keys; repeat the option for several
    #[arg(long = "ssh-key", value_name = "FILE|KEY")]
    ssh_keys: Vec<String>,
    /// File with cloud-config for the installed system, in addition to Rackwright's own. It is not kept: give it again with
    /// each image
    #[arg(long, value_name = "FILE")]
    user_data: Option<std::path::PathBuf>,
    /// Kernel name, serial number or stable id of the root drive (default: the smallest drive that fits)
    #[arg(long, value_name = "DRIVE")]
    root_drive: Option<String>,
    /// Read the whole disk back after writing and compare
    #[arg(long)]
    verify_disk: bool,
    /// Owning customer; customers take turns where machines wait for power or images
    #[arg(long, value_name = "NAME")]
    customer: Option<String>,
}

/// `rackwright node deploy`
#[derive(Debug, Args)]
pub struct DeployArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright node reimage`
#[derive(Debug, Args)]
pub struct ReimageArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `--yes`
#[derive(Debug, Args)]
struct Consent {
    /// Do not ask for confirmation; all data on the drives is destroyed
    #[arg(long, short)]
    yes: bool,
}

impl Consent {
    /// Asks on a terminal; elsewhere `--yes` is required.
    fn obtain(&self, ui: &Ui, what: &str, ids: &[String]) -> Result<(), CliError> {
        if self.yes {
            return Ok(());
        }
        let list = ids.join(", ");
        ui.consent(
            &format!("this destroys all data on the drives of {list}"),
            &format!("{what} {list}: all data on the drives is lost."),
        )
    }
}

/// The action for each of several nodes, with everything except the node and the mutation.
enum Verb {
    Power(PowerAction),
    Deploy(Deployment),
    Reimage(Deployment),
    Release,
    /// With the nodes that it may erase.
    Resume(Vec<String>),
    /// Whether to accept the last reported drives, and the TPM to accept.
    Readmit(bool, String),
    Retry,
    RotatePassword,
    Settings,
}

impl Verb {
    /// The words in "cannot ... gpu-001".
    fn verb_text(&self) -> &'static str {
        match self {
            Self::Power(PowerAction::On) => "switch on",
            Self::Power(PowerAction::Off) => "switch off",
            Self::Power(_) => "power-cycle",
            Self::Deploy(_) => "deploy",
            Self::Reimage(_) => "reimage",
            Self::Release => "release",
            Self::Resume(_) => "resume",
            Self::RotatePassword => "change the BMC password of",
            Self::Readmit(..) => "readmit",
            Self::Retry => "retry",
            Self::Settings => "apply settings to",
        }
    }

    async fn send(&self, client: &Client, id: &str, mutation: Mutation) -> Result<Operation, CliError> {
        let doing = format!("{} {id}", self.verb_text());
        let name = names::full("nodes", id);
        let mutation = Some(mutation);
        match self {
            Self::Power(action) => {
                let request = SetNodePowerRequest {
                    name,
                    action: *action as i32,
                    mutation,
                };
                rpc!(client, NodeServiceClient.set_node_power, doing, request).await
            }
            Self::Deploy(deployment) => {
                let request = DeployNodeRequest {
                    name,
                    deployment: Some(deployment.clone()),
                    mutation,
                };
                rpc!(client, NodeServiceClient.deploy_node, doing, request).await
            }
            Self::Reimage(deployment) => {
                let request = ReimageNodeRequest {
                    name,
                    deployment: Some(deployment.clone()),
                    mutation,
                };
                rpc!(client, NodeServiceClient.reimage_node, doing, request).await
            }
            Self::Release => {
                rpc!(
                    client,
                    NodeServiceClient.release_node,
                    doing,
                    ReleaseNodeRequest { name, mutation }
                )
                .await
            }
            Self::Resume(confirmed) => {
                let request = ResumeNodeRequest {
                    name,
                    mutation,
                    confirm_erase: confirmed.iter().any(|confirmed| confirmed == id),
                };
                rpc!(client, NodeServiceClient.resume_node, doing, request).await
            }
            Self::RotatePassword => {
                rpc!(
                    client,
                    CredentialServiceClient.rotate_bmc_password,
                    doing,
                    RotateBmcPasswordRequest { name, mutation }
                )
                .await
            }
            Self::Readmit(accept_drives, accept_tpm) => {
                let request = ReadmitNodeRequest {
                    name,
                    mutation,
                    confirm_erase: true,
                    accept_drives: *accept_drives,
                    accept_tpm: accept_tpm.clone(),
                };
                rpc!(client, NodeServiceClient.readmit_node, doing, request).await
            }
            Self::Retry => {
                rpc!(
                    client,
                    NodeServiceClient.retry_node,
                    doing,
                    RetryNodeRequest { name, mutation }
                )
                .await
            }
            Self::Settings => {
                let request = ApplyNodeSettingsRequest { name, mutation };
                rpc!(client, SettingsServiceClient.apply_node_settings, doing, request).await
            }
        }
    }
}

/// Starts the verb on every node, waits on request, and reports. A refusal of one node does not stop the others.
async fn start_all(
    cx: &Cx,
    verb: Verb,
    ids: &[String],
    waiting: WaitArgs,
    mutation: &MutationArgs,
) -> Result<(), CliError> {
    let mutations = mutation.each(ids.len())?;
    let client = cx.client().await?;
    let mut started = Vec::new();
    let mut errors = Vec::new();
    for id in ids {
        match verb.send(&client, id, mutations.of(id)).await {
            Ok(operation) => started.push(operation),
            // Without a server the other calls would only fail in the same way, slowly.
            Err(error) if error.is_outage() => {
                errors.push(error);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    if !started.is_empty()
        && let Err(error) = operation::finish(cx, &client, started, waiting).await
    {
        errors.push(error);
    }
    CliError::gather(errors)
}

pub async fn power(cx: &Cx, args: PowerArgs) -> Result<(), CliError> {
    let is_ac_cycle = matches!(args.action, PowerArg::AcCycle);
    if args.force && !is_ac_cycle {
        return Err(CliError::usage("--force is only for ac-cycle", "leave out --force"));
    }
    let action = match args.action {
        PowerArg::On => PowerAction::On,
        PowerArg::Off => PowerAction::Off,
        PowerArg::Cycle => PowerAction::Cycle,
        PowerArg::AcCycle => {
            return super::bmc_log::ac_cycle(cx, &args.id, args.force, args.waiting, &args.mutation).await;
        }
    };
    let ids = [names::short("nodes", &args.id).to_owned()];
    start_all(cx, Verb::Power(action), &ids, args.waiting, &args.mutation).await
}

pub async fn deploy(cx: &Cx, args: DeployArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    let deployment = args.deployment.read(ids.len())?;
    start_all(cx, Verb::Deploy(deployment), &ids, args.waiting, &args.mutation).await
}

/// Names the nodes that have user data now and get none with their next image. A failed reading is left to the call itself.
async fn note_lost_user_data(cx: &Cx, ids: &[String]) {
    let Ok(client) = cx.client().await else { return };
    let mut losing = Vec::new();
    for id in ids {
        let request = GetNodeRequest {
            name: names::full("nodes", id),
            read_mask: None,
        };
        let node = rpc!(client, NodeServiceClient.get_node, format!("read {id}"), request).await;
        let claim = node.ok().and_then(|node| node.status).and_then(|status| status.claim);
        if claim.is_some_and(|claim| claim.has_user_data) {
            losing.push(id.as_str());
        }
    }
    if !losing.is_empty() {
        let list = clean(&losing.join(", "));
        cx.ui.note(&format!(
            "{list}: deployed with user data, which is not kept. Give --user-data again if the new system needs it."
        ));
    }
}

pub async fn reimage(cx: &Cx, args: ReimageArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    let deployment = args.deployment.read(ids.len())?;
    if deployment.user_data.is_empty() {
        note_lost_user_data(cx, &ids).await;
    }
    args.consent.obtain(&cx.ui, "Reimage", &ids)?;
    start_all(cx, Verb::Reimage(deployment), &ids, args.waiting, &args.mutation).await
}

pub async fn release(cx: &Cx, args: DestroyArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    args.consent.obtain(&cx.ui, "Release", &ids)?;
    start_all(cx, Verb::Release, &ids, args.waiting, &args.mutation).await
}

pub async fn readmit(cx: &Cx, args: ReadmitArgs) -> Result<(), CliError> {
    let ReadmitArgs {
        destroy,
        accept_drives,
        accept_tpm,
    } = args;
    let ids = destroy.targets.ids();
    destroy.consent.obtain(&cx.ui, "Readmit", &ids)?;
    start_all(
        cx,
        Verb::Readmit(accept_drives, accept_tpm.unwrap_or_default()),
        &ids,
        destroy.waiting,
        &destroy.mutation,
    )
    .await
}

/// Asks for consent if the end of the hold erases nodes.
pub async fn resume(cx: &Cx, args: ResumeArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    let confirmed = if args.yes {
        ids.clone()
    } else {
        let erased = erased_by_resume(cx, &ids).await?;
        if !erased.is_empty() {
            Consent { yes: false }.obtain(&cx.ui, "The claim ended during the hold. Resume", &erased)?;
        }
        erased
    };
    start_all(cx, Verb::Resume(confirmed), &ids, args.waiting, &args.mutation).await
}

/// Held nodes with a claim that has ended. If the reading fails, the call itself refuses where necessary.
async fn erased_by_resume(cx: &Cx, ids: &[String]) -> Result<Vec<String>, CliError> {
    let client = cx.client().await?;
    let mut erased = Vec::new();
    for id in ids {
        let Ok(node) = nodes::get(&client, id).await else {
            continue;
        };
        let status = node.status.unwrap_or_default();
        let is_held = status.state() == NodeState::Maintenance;
        if is_held && status.claim.is_some_and(|claim| claim.release_requested) {
            erased.push(id.clone());
        }
    }
    Ok(erased)
}

pub async fn retry(cx: &Cx, args: PlainArgs) -> Result<(), CliError> {
    start_all(cx, Verb::Retry, &args.targets.ids(), args.waiting, &args.mutation).await
}

pub async fn rotate_password(cx: &Cx, args: PlainArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    start_all(cx, Verb::RotatePassword, &ids, args.waiting, &args.mutation).await
}

pub async fn apply_settings(cx: &Cx, args: PlainArgs) -> Result<(), CliError> {
    start_all(cx, Verb::Settings, &args.targets.ids(), args.waiting, &args.mutation).await
}

pub async fn hold(cx: &Cx, args: ReasonArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    let mutations = args.mutation.each(ids.len())?;
    let client = cx.client().await?;
    let mut outcomes = Vec::new();
    for id in &ids {
        let (name, reason) = (names::full("nodes", id), args.reason.clone());
        let request = HoldNodeRequest {
            name,
            reason,
            mutation: Some(mutations.of(id)),
        };
        outcomes.push(rpc!(client, NodeServiceClient.hold_node, format!("hold {id}"), request).await);
    }
    show_nodes(cx, "hold", outcomes)
}

pub async fn quarantine(cx: &Cx, args: ReasonArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    let mutations = args.mutation.each(ids.len())?;
    let client = cx.client().await?;
    let mut outcomes = Vec::new();
    for id in &ids {
        let (name, reason) = (names::full("nodes", id), args.reason.clone());
        let request = QuarantineNodeRequest {
            name,
            reason,
            mutation: Some(mutations.of(id)),
        };
        outcomes.push(
            rpc!(
                client,
                NodeServiceClient.quarantine_node,
                format!("quarantine {id}"),
                request
            )
            .await,
        );
    }
    show_nodes(cx, "quarantine", outcomes)
}

pub async fn delete(cx: &Cx, args: DeleteArgs) -> Result<(), CliError> {
    let ids = args.targets.ids();
    let mutations = args.mutation.each(ids.len())?;
    let client = cx.client().await?;
    let mut errors = Vec::new();
    for id in &ids {
        let request = DeleteNodeRequest {
            name: names::full("nodes", id),
            mutation: Some(mutations.of(id)),
        };
        match rpc!(
            client,
            NodeServiceClient.delete_node,
            format!("delete node {id}"),
            request
        )
        .await
        {
            Ok(_) => cx.ui.say(&format!("{id} deleted"))?,
            Err(error) => errors.push(error),
        }
    }
    CliError::gather(errors)
}

/// Shows the nodes that accepted the request, with their current state, then the errors of the others. The control plane
/// changes the state a moment later.
fn show_nodes(cx: &Cx, verb: &str, outcomes: Vec<Result<Node, CliError>>) -> Result<(), CliError> {
    let mut nodes = Vec::new();
    let mut errors = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(node) => nodes.push(node),
            Err(error) => errors.push(error),
        }
    }
    if cx.ui.format() == Format::Table {
        for node in &nodes {
            let status = node.status.clone().unwrap_or_default();
            let state = cx.ui.paint().tone(state_tone(status.state), &state_name(status.state));
            let id = clean(names::short("nodes", &node.name));
            let is_there = match verb {
                "hold" => status.state() == NodeState::Maintenance,
                "quarantine" => status.state() == NodeState::Quarantined,
                _ => false,
            };
            let still = if is_there { "" } else { "still " };
            cx.ui.say(&format!("{id}: {verb} accepted, state {still}{state}"))?;
        }
    } else if !nodes.is_empty() {
        cx.ui.items(&nodes, |_| String::new())?;
    }
    CliError::gather(errors)
}

impl DeploymentArgs {
    fn read(&self, targets: usize) -> Result<Deployment, CliError> {
        if targets > 1 && self.hostname.is_some() {
            return Err(CliError::usage(
                "--hostname applies to one node, but several nodes are given",
                "leave out --hostname: each node then has its own name as host name",
            ));
        }
        Ok(Deployment {
            image: names::image(&self.image),
            hostname: self.hostname.clone().unwrap_or_default(),
            ssh_authorized_keys: ssh_keys(&self.ssh_keys)?,
            user_data: self
                .user_data
                .as_deref()
                .map(read_text)
                .transpose()?
                .unwrap_or_default(),
            root_drive: self.root_drive.clone().unwrap_or_default(),
            verify_whole_disk: self.verify_disk,
            customer: self.customer.clone().unwrap_or_default(),
            has_user_data: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_named_twice_counts_once() {
        let targets = Targets {
            ids: vec!["b".into(), "nodes/a".into(), "nodes/b".into()],
        };
        assert_eq!(targets.ids(), ["b", "a"]);
    }
}
