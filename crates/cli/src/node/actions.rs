//! Verbs that change nodes: deploy, reimage, release, hold, resume, quarantine, readmit, retry, delete.

use clap::Args;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{
    DeleteNodeRequest, Deployment, GetNodeRequest, HoldNodeRequest, Node, NodeState, QuarantineNodeRequest,
};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::{read_text, ssh_keys};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names};

use super::targets::{Targets, Warning};
use super::verb::{Verb, start_all};
use super::{state_name, state_tone};

/// For verbs that need nothing but the nodes.
#[derive(Debug, Args)]
pub struct PlainArgs {
    #[command(flatten)]
    targets: Targets,
    /// Do not ask for confirmation of a selection
    #[arg(long, short)]
    yes: bool,
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
    /// Do not ask for confirmation of a selection, or if the end of the hold erases the drives (the claim ended during the
    /// hold)
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
    /// Do not ask for confirmation of a selection, or before nodes with a claim are set apart
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright node delete`
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    targets: Targets,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    mutation: MutationArgs,
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
    /// Do not ask for confirmation of a selection
    #[arg(long, short)]
    yes: bool,
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

pub async fn deploy(cx: &Cx, args: DeployArgs) -> Result<(), CliError> {
    let chosen = args.targets.choose(cx, "deploy").await?;
    let deployment = args.deployment.read(chosen.ids.len())?;
    chosen.approve(&cx.ui, args.yes, "deploy", None)?;
    start_all(cx, Verb::Deploy(deployment), &chosen, args.waiting, &args.mutation).await
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
    let chosen = args.targets.choose(cx, "reimage").await?;
    let deployment = args.deployment.read(chosen.ids.len())?;
    if deployment.user_data.is_empty() {
        note_lost_user_data(cx, &chosen.ids).await;
    }
    let warning = Warning::of_erase("Reimage", &chosen.ids);
    chosen.approve(&cx.ui, args.consent.yes, "reimage", Some(&warning))?;
    start_all(cx, Verb::Reimage(deployment), &chosen, args.waiting, &args.mutation).await
}

pub async fn release(cx: &Cx, args: DestroyArgs) -> Result<(), CliError> {
    let chosen = args.targets.choose(cx, "release").await?;
    let warning = Warning::of_erase("Release", &chosen.ids);
    chosen.approve(&cx.ui, args.consent.yes, "release", Some(&warning))?;
    start_all(cx, Verb::Release, &chosen, args.waiting, &args.mutation).await
}

pub async fn readmit(cx: &Cx, args: ReadmitArgs) -> Result<(), CliError> {
    let ReadmitArgs {
        destroy,
        accept_drives,
        accept_tpm,
    } = args;
    let chosen = destroy.targets.choose(cx, "readmit").await?;
    let warning = Warning::of_erase("Readmit", &chosen.ids);
    chosen.approve(&cx.ui, destroy.consent.yes, "readmit", Some(&warning))?;
    let verb = Verb::Readmit(accept_drives, accept_tpm.unwrap_or_default());
    start_all(cx, verb, &chosen, destroy.waiting, &destroy.mutation).await
}

/// Asks for consent if the end of the hold erases nodes.
pub async fn resume(cx: &Cx, args: ResumeArgs) -> Result<(), CliError> {
    let chosen = args.targets.choose(cx, "resume").await?;
    let confirmed = if args.yes {
        chosen.ids.clone()
    } else {
        let erased = erased_by_resume(&chosen.nodes(cx).await?);
        let what = "The claim ended during the hold. Resume";
        let warning = (!erased.is_empty()).then(|| Warning::of_erase(what, &erased));
        chosen.approve(&cx.ui, false, "resume", warning.as_ref())?;
        erased
    };
    start_all(cx, Verb::Resume(confirmed), &chosen, args.waiting, &args.mutation).await
}

/// Held nodes with a claim that has ended.
fn erased_by_resume(nodes: &[Node]) -> Vec<String> {
    let is_erased = |node: &&Node| {
        let status = node.status.clone().unwrap_or_default();
        let is_held = status.state() == NodeState::Maintenance;
        is_held && status.claim.is_some_and(|claim| claim.release_requested)
    };
    let erased = nodes.iter().filter(is_erased);
    erased
        .map(|node| names::short("nodes", &node.name).to_owned())
        .collect()
}

/// Starts a verb that destroys nothing and needs nothing but the nodes.
async fn start_plain(cx: &Cx, verb: Verb, args: PlainArgs) -> Result<(), CliError> {
    let chosen = args.targets.choose(cx, verb.verb_text()).await?;
    chosen.approve(&cx.ui, args.yes, verb.verb_text(), None)?;
    start_all(cx, verb, &chosen, args.waiting, &args.mutation).await
}

pub async fn retry(cx: &Cx, args: PlainArgs) -> Result<(), CliError> {
    start_plain(cx, Verb::Retry, args).await
}

pub async fn rotate_password(cx: &Cx, args: PlainArgs) -> Result<(), CliError> {
    start_plain(cx, Verb::RotatePassword, args).await
}

pub async fn apply_settings(cx: &Cx, args: PlainArgs) -> Result<(), CliError> {
    start_plain(cx, Verb::Settings, args).await
}

pub async fn hold(cx: &Cx, args: ReasonArgs) -> Result<(), CliError> {
    let chosen = args.targets.choose(cx, "hold").await?;
    chosen.approve(&cx.ui, args.yes, "hold", None)?;
    let mutations = chosen.mutations(&args.mutation)?;
    let client = cx.client().await?;
    let mut outcomes = Vec::new();
    for id in &chosen.ids {
        let (name, reason) = (names::full("nodes", id), args.reason.clone());
        let request = HoldNodeRequest {
            name,
            reason,
            mutation: Some(mutations.of(id)),
        };
        outcomes.push(rpc!(client, NodeServiceClient.hold_node, format!("hold {id}"), request).await);
        if is_outage(outcomes.last()) {
            break;
        }
    }
    show_nodes(cx, "hold", outcomes)
}

pub async fn quarantine(cx: &Cx, args: ReasonArgs) -> Result<(), CliError> {
    let chosen = args.targets.choose(cx, "quarantine").await?;
    let warning = match args.yes {
        true => None,
        false => {
            let lost = "Customers lose these nodes, and only an erase (`node readmit`) brings them back.";
            chosen.warning_of_use(cx, "quarantine", lost).await?
        }
    };
    chosen.approve(&cx.ui, args.yes, "quarantine", warning.as_ref())?;
    let mutations = chosen.mutations(&args.mutation)?;
    let client = cx.client().await?;
    let mut outcomes = Vec::new();
    for id in &chosen.ids {
        let (name, reason) = (names::full("nodes", id), args.reason.clone());
        let request = QuarantineNodeRequest {
            name,
            reason,
            mutation: Some(mutations.of(id)),
        };
        let doing = format!("quarantine {id}");
        outcomes.push(rpc!(client, NodeServiceClient.quarantine_node, doing, request).await);
        if is_outage(outcomes.last()) {
            break;
        }
    }
    show_nodes(cx, "quarantine", outcomes)
}

pub async fn delete(cx: &Cx, args: DeleteArgs) -> Result<(), CliError> {
    let chosen = args.targets.choose(cx, "delete").await?;
    let warning = Warning::of_delete(&chosen.ids);
    chosen.approve(&cx.ui, args.yes, "delete", Some(&warning))?;
    let mutations = chosen.mutations(&args.mutation)?;
    let client = cx.client().await?;
    let mut errors = Vec::new();
    for id in &chosen.ids {
        let request = DeleteNodeRequest {
            name: names::full("nodes", id),
            mutation: Some(mutations.of(id)),
        };
        let doing = format!("delete node {id}");
        match rpc!(client, NodeServiceClient.delete_node, doing, request).await {
            Ok(_) => cx.ui.say(&format!("{id} deleted"))?,
            Err(error) if error.is_outage() => {
                errors.push(error);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    CliError::gather(errors)
}

/// Whether the last call found no server. The other calls would only fail in the same way, slowly.
fn is_outage(outcome: Option<&Result<Node, CliError>>) -> bool {
    matches!(outcome, Some(Err(error)) if error.is_outage())
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
