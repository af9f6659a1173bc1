//! `rackwright ssh-key ...`: the caller's SSH keys, for `ssh NODE@SERVER`.

use std::path::PathBuf;

use clap::Subcommand;
use rackwright_api::v1::console_service_client::ConsoleServiceClient;
use rackwright_api::v1::{AddSshKeyRequest, ListSshKeysRequest, RemoveSshKeyRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Table};
use rackwright_cli_context::{Cx, units};

/// `rackwright ssh-key`
#[derive(Debug, Subcommand)]
pub enum SshKeyCommand {
    /// Register one of your public keys, such as ~/.ssh/id_ed25519.pub
    Add {
        /// The public key's file
        file: PathBuf,
        #[command(flatten)]
        mutation: MutationArgs,
    },
    /// Show your keys
    List,
    /// Remove one of your keys; operators can remove the keys of any member
    Remove {
        /// Fingerprint SHA256:..., as `rackwright ssh-key list` shows it
        fingerprint: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// Runs an ssh-key command.
pub async fn run(cx: &Cx, command: SshKeyCommand) -> Result<(), CliError> {
    let client = cx.client().await?;
    match command {
        SshKeyCommand::Add { file, mutation } => {
            let text = std::fs::read_to_string(&file).map_err(|source| CliError::given("read", &file, source))?;
            let request = AddSshKeyRequest {
                public_key: text.trim().to_owned(),
                mutation: Some(mutation.once()),
            };
            let key = rpc!(client, ConsoleServiceClient.add_ssh_key, "register the key", request).await?;
            if cx.ui.format() == Format::Table {
                return cx.ui.say(&format!("registered {}", key.fingerprint));
            }
            cx.ui.item(&key, |_| String::new())
        }
        SshKeyCommand::List => {
            let request = ListSshKeysRequest {};
            let answer = rpc!(client, ConsoleServiceClient.list_ssh_keys, "read your keys", request).await?;
            cx.ui.list(&answer.keys, |paint| {
                let mut table = Table::new(&["FINGERPRINT", "REGISTERED"]);
                for key in &answer.keys {
                    let time = key.create_time.as_ref().map(units::stamp).unwrap_or_default();
                    table.row([Cell::from(key.fingerprint.clone()), Cell::from(time)]);
                }
                table.render(paint, cx.ui.width())
            })
        }
        SshKeyCommand::Remove { fingerprint, mutation } => {
            let request = RemoveSshKeyRequest {
                fingerprint: fingerprint.clone(),
                mutation: Some(mutation.once()),
            };
            rpc!(client, ConsoleServiceClient.remove_ssh_key, "remove the key", request).await?;
            cx.ui.say(&format!("removed {fingerprint}"))
        }
    }
}
