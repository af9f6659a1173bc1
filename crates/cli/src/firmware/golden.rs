//! `rackwright firmware golden`: the firmware that operators have approved, as TPMs and components measure it.

use clap::Subcommand;
use rackwright_api::v1::firmware_service_client::FirmwareServiceClient;
use rackwright_api::v1::{
    AddGoldenFirmwareRequest, FirmwareComponent, FirmwareRegister, GoldenFirmware, ListGoldenFirmwareRequest,
    RemoveGoldenFirmwareRequest,
};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::Table;
use rackwright_cli_context::{Cx, names, units};

/// Hexadecimal digits of a value in the list.
const SHORT: usize = 12;

/// `rackwright firmware golden`
#[derive(Debug, Subcommand)]
pub enum GoldenCommand {
    /// Approve the firmware measurements of a node's TPM and components, for all nodes of its SKU
    Add {
        /// The node
        #[arg(long, value_name = "NODE")]
        from_node: String,
        /// Reason why the node's firmware is good, stored and shown to others
        #[arg(long)]
        reason: String,
        /// Approve only if the node still has these values, as `node explain` names them
        #[arg(long, value_name = "ID")]
        values: Option<String>,
        #[command(flatten)]
        mutation: MutationArgs,
    },
    /// Show all golden values, by SKU
    List,
    /// Remove golden values: machines with these values are no longer approved
    Remove {
        /// Id, as `firmware golden list` shows it
        id: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// Runs a golden command.
pub async fn run(cx: &Cx, command: GoldenCommand) -> Result<(), CliError> {
    match command {
        GoldenCommand::Add {
            from_node,
            reason,
            values,
            mutation,
        } => {
            let client = cx.client().await?;
            let doing = format!("approve the firmware of {from_node}");
            let request = AddGoldenFirmwareRequest {
                node: names::full("nodes", &from_node),
                reason,
                values: values.unwrap_or_default(),
                mutation: Some(mutation.once()),
            };
            let added = rpc!(client, FirmwareServiceClient.add_golden_firmware, doing, request).await?;
            let (id, sku) = (names::short("golden-firmware", &added.name), &added.sku);
            cx.ui.say(&format!("golden values {id} approved for SKU {sku}"))
        }
        GoldenCommand::List => list(cx).await,
        GoldenCommand::Remove { id, mutation } => {
            let client = cx.client().await?;
            let doing = format!("remove golden values {id}");
            let request = RemoveGoldenFirmwareRequest {
                name: names::full("golden-firmware", &id),
                mutation: Some(mutation.once()),
            };
            rpc!(client, FirmwareServiceClient.remove_golden_firmware, doing, request).await?;
            cx.ui.say(&format!("golden values {id} removed"))
        }
    }
}

async fn list(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let doing = "list golden values of firmware";
    let request = ListGoldenFirmwareRequest {};
    let answer = rpc!(client, FirmwareServiceClient.list_golden_firmware, doing, request).await?;
    let width = cx.ui.width();
    cx.ui.list(&answer.golden, |paint| {
        if answer.golden.is_empty() {
            return "no firmware is approved; `rackwright firmware golden add` approves the firmware of a node\n"
                .to_owned();
        }
        table(&answer.golden).render(paint, width)
    })
}

fn table(all: &[GoldenFirmware]) -> Table {
    let mut table = Table::new(&["SKU", "ID", "FROM", "BY", "APPROVED", "PCRS", "COMPONENTS", "REASON"]);
    for one in all {
        let registers: Vec<String> = one.registers.iter().map(register).collect();
        table.row([
            (&one.sku).into(),
            names::short("golden-firmware", &one.name).into(),
            names::short("nodes", &one.node).into(),
            (&one.approved_by).into(),
            one.approve_time.as_ref().map(units::stamp).unwrap_or_default().into(),
            registers.join(" ").into(),
            components(&one.components).into(),
            (&one.reason).into(),
        ]);
    }
    table
}

/// The number of components with values, and the number of those with unsigned values from the BMC.
fn components(components: &[FirmwareComponent]) -> String {
    match (components.len(), components.iter().filter(|one| !one.signed).count()) {
        (0, _) => "-".to_owned(),
        (all, 0) => format!("{all} signed"),
        (all, unsigned) if unsigned == all => format!("{all} unsigned, from the BMC"),
        (all, unsigned) => format!(
            "{} signed, {unsigned} unsigned, from the BMC",
            all.saturating_sub(unsigned)
        ),
    }
}

fn register(register: &FirmwareRegister) -> String {
    let digits = register.value.strip_prefix("sha256:").unwrap_or(&register.value);
    format!("{}:{}", register.pcr, digits.get(..SHORT).unwrap_or(digits))
}
