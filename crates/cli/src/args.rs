//! The command tree, and the context of every command.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::client::Client;
use crate::error::CliError;
use crate::output::{Format, Ui};
use crate::{
    apply, audit, auth, bench, bmc, boot, capacity, certificates, cluster, control, discover, events, fabric, firmware,
    image, node, operation, power, site, units, usage,
};

/// Operator's command line of Rackwright.
///
/// Exit codes: 0 done, 1 other failure, 2 wrong usage or input, 3 not found, 4 conflict or wrong state, 5 not allowed or
/// not trusted, 6 server not reachable or time spent, 7 the operation that was waited for failed.
#[derive(Debug, Parser)]
#[command(name = "rackwright", version, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Context to use (see `rackwright context list`)
    #[arg(long, global = true, env = "RACKWRIGHT_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Endpoint to use instead of the context's; repeat it for several, tried in order
    #[arg(
        long,
        global = true,
        env = "RACKWRIGHT_SERVER",
        value_name = "URL",
        value_delimiter = ','
    )]
    pub server: Vec<String>,
    /// Form of results
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Say nothing but results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Longest time for one call (not for waiting)
    #[arg(long, global = true, value_name = "TIME", value_parser = units::parse_duration, default_value = "30s")]
    pub call_timeout: Duration,
}

/// What `--output` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// The API's own field names; streams write one object a line
    Json,
    /// The same as YAML
    Yaml,
    /// Resource names only, one a line
    Name,
    /// Comma-separated, for `usage list` and `usage sum`
    Csv,
}

impl Output {
    /// The format of every output except reports in CSV.
    fn format(self) -> Format {
        match self {
            Self::Table | Self::Csv => Format::Table,
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
            Self::Name => Format::Name,
        }
    }
}

/// The nouns and the few verbs beside them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Get a credential for a one-time token
    Login(auth::login::LoginArgs),
    /// Show who the server takes you for
    Whoami,
    /// Tokens for new members
    #[command(subcommand)]
    Token(auth::TokenCommand),
    /// Members: who may log in, and the end of that
    #[command(subcommand)]
    Member(auth::member::MemberCommand),
    /// Your SSH keys, for consoles by `ssh NODE@SERVER`
    #[command(subcommand)]
    SshKey(auth::ssh_key::SshKeyCommand),
    /// Servers you are logged in to
    #[command(subcommand)]
    Context(auth::ContextCommand),
    /// Enrol and change nodes as YAML files say
    Apply(apply::ApplyArgs),
    /// Servers: enrol, deploy, reimage, release and all you may ask about one
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Site files: racks, power, cooling, nodes, switches and cables as they are planned
    #[command(subcommand)]
    Site(site::SiteCommand),
    /// How power gets to nodes
    #[command(subcommand)]
    Power(power::PowerCommand),
    /// Clusters: plan, create, watch, hand over, release
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// The control plane itself: whether it is paused
    #[command(subcommand)]
    Control(control::ControlCommand),
    /// InfiniBand fabrics: their shape, and their cabling against the plan
    #[command(subcommand)]
    Fabric(fabric::FabricCommand),
    /// Firmware: files, and which nodes have what their SKU wants
    #[command(subcommand)]
    Firmware(firmware::FirmwareCommand),
    /// Operating-system images
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// What a customer could get now: the largest cluster by SKU and fabric, and its price
    Capacity(capacity::CapacityArgs),
    /// Who used which nodes for how long, and reserved terms
    #[command(subcommand)]
    Usage(usage::UsageCommand),
    /// Long-running work
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    /// Everything that happened, in order
    Events(events::EventsArgs),
    /// The chain of all erase certificates: export it, and verify it without a control plane
    Certificates(certificates::CertificatesArgs),
    /// The audit: who called what, from where, and how that ended; for auditors and operators
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// What was seen of machines while they booted
    #[command(subcommand)]
    Boot(boot::BootCommand),
    /// Find BMCs in the management network, and enrol their machines
    #[command(subcommand)]
    Discover(discover::DiscoverCommand),
    /// BMCs by themselves, before a control plane knows them
    #[command(subcommand)]
    Bmc(bmc::BmcCommand),
    /// What the control plane costs, measured on simulated machines
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a completion script for your shell
    Completion {
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the version
    Version,
}

impl Command {
    /// Refuses an unsupported output format before any other step.
    pub fn check_output(&self, output: Output) -> Result<(), CliError> {
        let writes_csv = matches!(self, Self::Usage(usage) if usage.writes_csv());
        if output == Output::Csv && !writes_csv {
            return Err(CliError::usage(
                "this command does not write CSV, nothing was done",
                "`usage list` and `usage sum` do; everything writes table, json, yaml and name",
            ));
        }
        Ok(())
    }
}

/// The context of a command.
#[derive(Debug)]
pub struct Cx {
    pub ui: Ui,
    pub global: Global,
}

impl Cx {
    pub fn new(global: Global) -> Self {
        Self {
            ui: Ui::new(global.output.format(), global.quiet),
            global,
        }
    }

    /// A client for the chosen context.
    pub async fn client(&self) -> Result<Arc<Client>, CliError> {
        Client::of_context(&self.ui, &self.global).await
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
