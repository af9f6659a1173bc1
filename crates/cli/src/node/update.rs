//! `node update`: changes the properties of a node other than its labels.

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{Bmc, Node, NodeSpec, UpdateNodeRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::read_password;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::Format;
use rackwright_cli_context::{Cx, names};
use secrecy::ExposeSecret as _;

/// `rackwright node update`
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// The node
    id: String,
    /// Address of the BMC: https://HOST[:PORT][/BASE], or ipmi://HOST[:PORT]?mac=MAC
    #[arg(long, value_name = "URL")]
    bmc: Option<String>,
    /// User at the BMC
    #[arg(long)]
    user: Option<String>,
    /// File with the password at the BMC
    #[arg(long, value_name = "FILE", conflicts_with = "password_stdin")]
    password_file: Option<PathBuf>,
    /// Read the password at the BMC from standard input
    #[arg(long)]
    password_stdin: bool,
    /// SHA-256 of the BMC's certificate; empty to pin the certificate of the next connection
    #[arg(long, value_name = "sha256:HEX")]
    bmc_certificate: Option<String>,
    /// Path of the system, if the BMC manages several
    #[arg(long, value_name = "PATH")]
    bmc_system: Option<String>,
    /// MAC address of a network card that the machine boots from, if its BMC does not report the address; repeat the option
    /// for several. Replaces the former ones; empty to remove them
    #[arg(long = "boot-mac", value_name = "MAC")]
    boot_macs: Vec<String>,
    /// Class of identical nodes
    #[arg(long)]
    sku: Option<String>,
    #[command(flatten)]
    mutation: MutationArgs,
}

impl UpdateArgs {
    /// The new values, and the paths of the given ones.
    fn changes(&self) -> Result<(NodeSpec, Vec<String>), CliError> {
        let password = match (&self.password_file, self.password_stdin) {
            (Some(path), _) => Some(read_password(Some(path))?),
            (None, true) => Some(read_password(None)?),
            (None, false) => None,
        };
        let mut paths = Vec::new();
        let mut take = |path: &str, value: Option<String>| {
            if value.is_some() {
                paths.push(path.to_owned());
            }
            value.unwrap_or_default()
        };
        let bmc = Bmc {
            address: take("spec.bmc.address", self.bmc.clone()),
            username: take("spec.bmc.username", self.user.clone()),
            password: take("spec.bmc.password", password.map(|p| p.expose_secret().to_owned())),
            certificate_sha256: take("spec.bmc.certificate_sha256", self.bmc_certificate.clone()),
            system: take("spec.bmc.system", self.bmc_system.clone()),
        };
        let sku = take("spec.sku", self.sku.clone());
        if !self.boot_macs.is_empty() {
            paths.push("spec.boot_macs".to_owned());
        }
        let spec = NodeSpec {
            bmc: Some(bmc),
            sku,
            boot_macs: self.boot_macs.iter().filter(|mac| !mac.is_empty()).cloned().collect(),
        };
        Ok((spec, paths))
    }
}

/// Changes a node.
pub async fn run(cx: &Cx, args: UpdateArgs) -> Result<(), CliError> {
    let (spec, paths) = args.changes()?;
    if paths.is_empty() {
        return Err(CliError::usage(
            "no change is given",
            "see `rackwright node update --help`",
        ));
    }
    let client = cx.client().await?;
    let id = names::short("nodes", &args.id);
    let words = paths
        .iter()
        .map(|path| path.trim_start_matches("spec."))
        .collect::<Vec<_>>()
        .join(", ");
    let request = UpdateNodeRequest {
        node: Some(Node {
            name: names::full("nodes", id),
            spec: Some(spec),
            ..Node::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths }),
        mutation: Some(args.mutation.once()),
    };
    let node = rpc!(
        client,
        NodeServiceClient.update_node,
        format!("change node {id}"),
        request
    )
    .await?;
    if cx.ui.format() == Format::Table {
        return cx.ui.say(&format!("{id} changed: {words}"));
    }
    cx.ui.item(&node, |_| String::new())
}
