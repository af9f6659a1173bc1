//! `rackwright usage`: who used which nodes for how long, to the second, and the reserved part of it.

mod breaches;
mod csv;
mod list;
mod sum;
mod term;

use clap::{Args, Subcommand};
use prost_types::Timestamp;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::{Cx, Output, names, units};

/// `rackwright usage`
#[derive(Debug, Subcommand)]
pub enum UsageCommand {
    /// Show each use of a node, with its seconds within the period
    List(list::ListArgs),
    /// Show node-seconds by customer, cluster and SKU, reserved and on demand, and breaches of isolation
    Sum(PeriodArgs),
    /// Show breaches of the isolation of clusters on the fabric, with their seconds within the period
    Breaches(PeriodArgs),
    /// Reserved terms: number of nodes that a customer has contracted, and the period
    #[command(subcommand)]
    Term(term::TermCommand),
}

impl UsageCommand {
    /// Whether the command can write CSV.
    pub fn writes_csv(&self) -> bool {
        !matches!(self, Self::Term(_))
    }
}

/// What a report is about.
#[derive(Debug, Args)]
pub struct PeriodArgs {
    /// Start of the period: a day (2026-10-01, from 00:00 UTC) or a time (2026-10-01T06:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = parse_second)]
    from: Timestamp,
    /// End of the period, not included, in the same form; at most now (default: now)
    #[arg(long, value_name = "TIME", value_parser = parse_second)]
    to: Option<Timestamp>,
    /// Only usage of this customer
    #[arg(long, value_name = "NAME")]
    customer: Option<String>,
    /// Only usage of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
}

impl PeriodArgs {
    fn customer(&self) -> String {
        self.customer.clone().unwrap_or_default()
    }

    fn cluster(&self) -> String {
        let full = |name: &String| names::full("clusters", name);
        self.cluster.as_ref().map(full).unwrap_or_default()
    }

    /// Refuses an empty name, which would mean all of them.
    fn check(&self) -> Result<(), CliError> {
        let is_empty = |name: &Option<String>| name.as_ref().is_some_and(String::is_empty);
        if is_empty(&self.customer) || is_empty(&self.cluster) {
            return Err(CliError::usage(
                "the name of the customer or cluster is empty",
                "leave out the option for all customers and clusters",
            ));
        }
        Ok(())
    }
}

/// Runs a usage command.
pub async fn run(cx: &Cx, command: UsageCommand) -> Result<(), CliError> {
    match command {
        UsageCommand::List(args) => list::run(cx, args).await,
        UsageCommand::Sum(args) => sum::run(cx, args).await,
        UsageCommand::Breaches(args) => breaches::run(cx, args).await,
        UsageCommand::Term(command) => term::run(cx, command).await,
    }
}

fn is_csv(cx: &Cx) -> bool {
    cx.global.output == Output::Csv
}

/// A time in a table; empty: none.
fn stamp(time: Option<&Timestamp>) -> String {
    time.map(units::stamp).unwrap_or_default()
}

/// `alpha` for `clusters/alpha`.
fn cluster(name: &str) -> &str {
    names::short("clusters", name)
}

/// Reads a day in UTC or a time, to the whole second.
fn parse_second(text: &str) -> Result<Timestamp, String> {
    let wrong =
        || format!("`{text}` is neither a day such as 2026-10-01 nor a whole second such as 2026-10-01T06:00:00Z");
    // "2026-10-01" alone: the parser would ignore text after a day.
    let time = if text.len() == "2026-10-01".len() {
        let day: jiff::civil::Date = text.parse().map_err(|_| wrong())?;
        let midnight = day.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wrong())?;
        midnight.timestamp()
    } else {
        text.parse::<jiff::Timestamp>().map_err(|_| wrong())?
    };
    if time.subsec_nanosecond() != 0 {
        return Err(wrong());
    }
    Ok(Timestamp {
        seconds: time.as_second(),
        nanos: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_whole_seconds_are_read() {
        let read = |text| parse_second(text).map(|time| units::stamp(&time));
        assert_eq!(read("2026-10-01"), Ok("2026-10-01T00:00:00Z".to_owned()));
        assert_eq!(read("2026-10-01T06:00:00Z"), Ok("2026-10-01T06:00:00Z".to_owned()));
        assert_eq!(read("2026-10-01T00:00:00+02:00"), Ok("2026-09-30T22:00:00Z".to_owned()));
        for wrong in [
            "",
            "october",
            "2026-10",
            "2026-13-01",
            "2026-10-01T06",
            "2026-10-01T06:00:00.5Z",
            "30d",
        ] {
            assert!(parse_second(wrong).is_err(), "{wrong}");
        }
    }
}
