//! `node enroll`.

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{Bmc, EnrollNodeRequest, NodeSpec};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::{pair, read_password};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation};
use secrecy::{ExposeSecret as _, SecretString};

/// `rackwright node enroll`
#[derive(Debug, Args)]
#[group(id = "password")]
pub struct EnrollArgs {
    /// Name of the node: 1 to 63 characters of a-z, 0-9 and '-'
    id: String,
    /// Address of the BMC: https://HOST[:PORT][/BASE], or ipmi://HOST[:PORT]?mac=MAC
    #[arg(long, value_name = "URL")]
    bmc: String,
    /// User at the BMC; without user and password the factory credentials are tried (`bmc credentials list`)
    #[arg(long, requires = "password")]
    user: Option<String>,
    /// File with the password at the BMC
    #[arg(long, value_name = "FILE", group = "password", requires = "user")]
    password_file: Option<PathBuf>,
    /// Read the password at the BMC from standard input
    #[arg(long, group = "password", requires = "user")]
    password_stdin: bool,
    /// SHA-256 of the BMC's certificate (default: the certificate of the first connection is pinned)
    #[arg(long, value_name = "sha256:HEX")]
    bmc_certificate: Option<String>,
    /// Path of the system, if the BMC manages several
    #[arg(long, value_name = "PATH")]
    bmc_system: Option<String>,
    /// MAC address of a network card that the machine boots from, if its BMC does not report the address; repeat the option
    /// for several
    #[arg(long = "boot-mac", value_name = "MAC")]
    boot_macs: Vec<String>,
    /// Class of identical nodes
    #[arg(long)]
    sku: Option<String>,
    /// SHA-256 of the public area of the machine's TPM endorsement key (default: the TPM of the first inspection)
    #[arg(long, value_name = "sha256:HEX")]
    tpm_ek: Option<String>,
    /// Label, k=v; repeat the option for several
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Enrols one node.
pub async fn run(cx: &Cx, args: EnrollArgs) -> Result<(), CliError> {
    let password = match args.user {
        Some(_) => read_password(args.password_file.as_deref())?,
        None => SecretString::default(),
    };
    let client = cx.client().await?;
    let node_id = names::short("nodes", &args.id).to_owned();
    let doing = format!("enrol node {node_id}");
    let bmc = Bmc {
        address: args.bmc,
        username: args.user.unwrap_or_default(),
        password: password.expose_secret().to_owned(),
        certificate_sha256: args.bmc_certificate.unwrap_or_default(),
        system: args.bmc_system.unwrap_or_default(),
    };
    let request = EnrollNodeRequest {
        node_id,
        spec: Some(NodeSpec {
            bmc: Some(bmc),
            sku: args.sku.unwrap_or_default(),
            boot_macs: args.boot_macs,
        }),
        labels: args.labels.into_iter().collect(),
        mutation: Some(args.mutation.once()),
        tpm_ek: args.tpm_ek.unwrap_or_default(),
    };
    let started = rpc!(client, NodeServiceClient.enroll_node, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}
