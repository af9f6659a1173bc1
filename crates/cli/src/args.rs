//! The command tree.

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::{Cx, Global, Output};
use rackwright_cli_site::{fabric, power, site};

use crate::{
    apply, audit, auth, bmc, boot, capacity, certificates, cluster, control, discover, events, firmware, image, man,
    node, operation, usage,
};

/// Operator's command line of Rackwright.
///
/// Exit codes: 0 success, 1 other failure, 2 wrong usage or input, 3 not found, 4 conflict or wrong state, 5 not allowed or
/// not trusted, 6 server not reachable or time limit exceeded, 7 the awaited operation failed.
#[derive(Debug, Parser)]
#[command(name = "rackwright", version, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The nouns and the few verbs beside them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The hall in one screen: nodes, clusters, alarms, failures
    Status,
    /// Log in with a one-time token, or at the site's identity provider
    Login(auth::login::LoginArgs),
    /// Show your member name and role at the server
    Whoami,
    /// Tokens for new members
    #[command(subcommand)]
    Token(auth::TokenCommand),
    /// Members: list, change roles, revoke, delete
    #[command(subcommand)]
    Member(auth::member::MemberCommand),
    /// Your SSH keys for consoles (`ssh NODE@SERVER`)
    #[command(subcommand)]
    SshKey(auth::ssh_key::SshKeyCommand),
    /// The web console
    #[command(subcommand)]
    Console(auth::session::ConsoleCommand),
    /// Browsers that are logged in to the web console
    #[command(subcommand)]
    Session(auth::session::SessionCommand),
    /// Keys with which programs call the API as you
    #[command(subcommand)]
    ApiKey(auth::session::ApiKeyCommand),
    /// Servers you are logged in to
    #[command(subcommand)]
    Context(auth::ContextCommand),
    /// Enrol and change nodes from YAML files
    Apply(apply::ApplyArgs),
    /// Nodes: enrol, show, deploy, reimage, release
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Site files: planned racks, power, cooling, nodes, switches and cables
    #[command(subcommand)]
    Site(site::SiteCommand),
    /// Power: paths to nodes, headroom, alarms
    #[command(subcommand)]
    Power(power::PowerCommand),
    /// Clusters: plan, create, watch, hand over, release
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// The control plane: show its state, end a pause
    #[command(subcommand)]
    Control(control::ControlCommand),
    /// InfiniBand fabrics: topology, faults, comparison of the cabling with the plan
    #[command(subcommand)]
    Fabric(fabric::FabricCommand),
    /// Firmware: files, comparison of nodes with their SKU, golden values, maintenance windows
    #[command(subcommand)]
    Firmware(firmware::FirmwareCommand),
    /// Operating-system images
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// The largest cluster that a customer can get now, by SKU and fabric, with its price
    Capacity(capacity::CapacityArgs),
    /// Usage of nodes by customers, and reserved terms
    #[command(subcommand)]
    Usage(usage::UsageCommand),
    /// Long-running operations
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    /// Show events in order
    Events(events::EventsArgs),
    /// The chain of erase certificates: export, and verify without a control plane
    Certificates(certificates::CertificatesArgs),
    /// The audit: caller, address, method and outcome of calls; for auditors and operators
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Boot stages of machines, unknown machines, counters of the boot servers
    #[command(subcommand)]
    Boot(boot::BootCommand),
    /// Find BMCs in the management network, and enrol their machines
    #[command(subcommand)]
    Discover(discover::DiscoverCommand),
    /// BMCs: probe, show and record without a control plane; factory credentials
    #[command(subcommand)]
    Bmc(bmc::BmcCommand),
    /// Print a completion script for your shell
    Completion {
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the man page of the program, or write the man pages of all commands
    Man(man::ManArgs),
    /// Print the version
    Version,
}

impl Command {
    /// Refuses an unsupported output format before any other step.
    pub fn check_output(&self, output: &Output) -> Result<(), CliError> {
        let writes_csv = matches!(self, Self::Usage(usage) if usage.writes_csv());
        if *output == Output::Csv && !writes_csv {
            return Err(CliError::usage(
                "this command has no CSV output; nothing was done",
                "only `usage list`, `usage sum` and `usage breaches` write CSV; use table, wide, json, yaml, name or \
                 jsonpath=PATH",
            ));
        }
        Ok(())
    }
}

/// Writes the completion script.
pub fn completion(cx: &Cx, shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rackwright", &mut script);
    cx.ui.line(String::from_utf8_lossy(&script).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }

    /// `site plan`, `whoami`, ...: all commands without subcommands.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands() {
            let path = format!("{path} {}", sub.get_name()).trim().to_owned();
            if sub.has_subcommands() {
                leaves(sub, &path, found);
            } else {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_command_is_on_the_page() {
        let page = include_str!("../../../docs/cli.md");
        let mut commands = Vec::new();
        leaves(&Cli::command(), "", &mut commands);
        assert!(commands.len() > 50, "{commands:?}");
        commands.retain(|command| {
            !page.contains(&format!("`{command}`")) && !page.contains(&format!("rackwright {command}"))
        });
        assert!(
            commands.is_empty(),
            "docs/cli.md does not name: {}",
            commands.join(", ")
        );
    }
}
