//! `rackwright node power`

use clap::{Args, ValueEnum};
use rackwright_api::v1::PowerAction;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::wait::WaitArgs;

use super::bmc_log;
use super::targets::{Selection, Targets};
use super::verb::{Verb, start_all};

/// `rackwright node power`
#[derive(Debug, Args)]
pub struct PowerArgs {
    /// The nodes, and last the action: on, off, cycle or ac-cycle. --filter, --state and --label select nodes in place of
    /// IDs
    #[arg(required = true, value_name = "ID|ACTION")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// With ac-cycle: also if a customer has the node; all running work is interrupted
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation of a selection, or before nodes with a claim are switched off or power-cycled
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PowerArg {
    On,
    Off,
    Cycle,
    AcCycle,
}

impl PowerArg {
    /// The action, which is the last word.
    fn of(words: &mut Vec<String>) -> Result<Self, CliError> {
        let word = words.pop().unwrap_or_default();
        Self::from_str(&word, true).map_err(|_| {
            CliError::usage(
                format!("`{word}` is not an action"),
                "the last word is the action: on, off, cycle or ac-cycle; see `rackwright node power --help`",
            )
        })
    }

    /// The action of the API, unless the action is work of the BMC alone.
    fn action(self) -> Option<PowerAction> {
        match self {
            Self::On => Some(PowerAction::On),
            Self::Off => Some(PowerAction::Off),
            Self::Cycle => Some(PowerAction::Cycle),
            Self::AcCycle => None,
        }
    }
}

/// Switches nodes.
pub async fn run(cx: &Cx, args: PowerArgs) -> Result<(), CliError> {
    let mut ids = args.words;
    let action = PowerArg::of(&mut ids)?;
    if args.force && action != PowerArg::AcCycle {
        return Err(CliError::usage("--force is only for ac-cycle", "leave out --force"));
    }
    let verb = action.action().map(Verb::Power);
    let words = verb.as_ref().map_or("AC-cycle", Verb::verb_text);
    let chosen = Targets::new(ids, args.selection).choose(cx, words).await?;
    let warning = match action {
        PowerArg::Off | PowerArg::Cycle if !args.yes => {
            chosen.warning_of_use(cx, words, "Running work is interrupted.").await?
        }
        _ => None,
    };
    chosen.approve(&cx.ui, args.yes, words, warning.as_ref())?;
    match verb {
        Some(verb) => start_all(cx, verb, &chosen, args.waiting, &args.mutation).await,
        None => bmc_log::ac_cycle(cx, &chosen, args.force, args.waiting, &args.mutation).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_the_action() {
        let mut words = vec!["gpu-001".to_owned(), "off".to_owned(), "AC-cycle".to_owned()];
        assert_eq!(PowerArg::of(&mut words).unwrap(), PowerArg::AcCycle);
        assert_eq!(PowerArg::of(&mut words).unwrap(), PowerArg::Off);
        assert_eq!(PowerArg::AcCycle.action(), None);
        let wrong = PowerArg::of(&mut words).unwrap_err();
        assert!(wrong.to_string().contains("`gpu-001` is not an action"), "{wrong}");
    }
}
