//! `rackwright firmware window`: the times at which a machine in use may be disturbed.

use clap::Args;
use rackwright_api::v1::firmware_service_client::FirmwareServiceClient;
use rackwright_api::v1::{
    GetMaintenanceWindowRequest, MaintenanceWindow, OnceWindow, SetMaintenanceWindowRequest, WeeklyWindow,
};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::{Cx, units};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// `rackwright firmware window`
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// nodes/NODE or clusters/CLUSTER
    target: String,
    /// Weekly window, in UTC: DAY HH:MM and the duration, such as "sun 02:00 3h"; repeat the option for several
    #[arg(long, value_name = "SPAN", value_parser = weekly)]
    weekly: Vec<WeeklyWindow>,
    /// One window from now on, of this duration, such as 2h
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    now_for: Option<std::time::Duration>,
    /// No window: maintenance is never allowed
    #[arg(long, conflicts_with_all = ["weekly", "now_for"])]
    never: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

fn weekly(text: &str) -> Result<WeeklyWindow, String> {
    let wrong = || format!("{text:?} is not DAY HH:MM TIME, such as \"sun 02:00 3h\"");
    let mut words = text.split_whitespace();
    let (Some(day), Some(clock), Some(lasts), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return Err(wrong());
    };
    let day = DAYS
        .iter()
        .position(|one| day.eq_ignore_ascii_case(one))
        .ok_or_else(wrong)?;
    let (hour, minute) = clock.split_once(':').ok_or_else(wrong)?;
    let (hour, minute): (u32, u32) = (hour.parse().map_err(|_| wrong())?, minute.parse().map_err(|_| wrong())?);
    if hour > 23 || minute > 59 {
        return Err(wrong());
    }
    let minutes = units::parse_duration(lasts)?.as_secs() / 60;
    if !(1..=1440).contains(&minutes) {
        return Err("a window lasts one minute to one day".to_owned());
    }
    Ok(WeeklyWindow {
        day: u32::try_from(day).unwrap_or(0),
        start_minute: hour * 60 + minute,
        minutes: u32::try_from(minutes).unwrap_or(0),
    })
}

/// Sets the window if one is given, and shows it.
pub async fn run(cx: &Cx, args: WindowArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let doing = format!("read or set the maintenance window of {}", args.target);
    let sets = args.never || args.now_for.is_some() || !args.weekly.is_empty();
    let window = if sets {
        let now = units::system_time();
        let once = args.now_for.map(|lasts| OnceWindow {
            start_time: Some(now.into()),
            end_time: Some((now + lasts).into()),
        });
        let request = SetMaintenanceWindowRequest {
            window: Some(MaintenanceWindow {
                target: args.target.clone(),
                weekly: args.weekly.clone(),
                once: once.into_iter().collect(),
            }),
            mutation: Some(args.mutation.once()),
        };
        rpc!(client, FirmwareServiceClient.set_maintenance_window, doing, request).await?
    } else {
        let request = GetMaintenanceWindowRequest { target: args.target };
        rpc!(client, FirmwareServiceClient.get_maintenance_window, doing, request).await?
    };
    cx.ui.item(&window, |_| describe(&window))
}

fn describe(window: &MaintenanceWindow) -> String {
    let mut lines = Vec::new();
    for one in &window.weekly {
        let day = usize::try_from(one.day)
            .ok()
            .and_then(|day| DAYS.get(day))
            .unwrap_or(&"?");
        let (hour, minute) = (one.start_minute / 60, one.start_minute % 60);
        lines.push(format!("{day} {hour:02}:{minute:02} UTC, {} min", one.minutes));
    }
    for one in &window.once {
        let stamp = |time: &Option<prost_types::Timestamp>| time.as_ref().map(units::stamp).unwrap_or_default();
        lines.push(format!("{} to {}", stamp(&one.start_time), stamp(&one.end_time)));
    }
    if lines.is_empty() {
        lines.push("never".to_owned());
    }
    format!("maintenance window of {}: {}\n", window.target, lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_week() {
        let span = weekly("Sun 02:30 3h").unwrap();
        assert_eq!((span.day, span.start_minute, span.minutes), (6, 150, 180));
        for wrong in [
            "",
            "sun",
            "sun 2 3h",
            "son 02:00 3h",
            "sun 24:00 1h",
            "sun 02:00 2d",
            "sun 02:00 3h x",
        ] {
            assert!(weekly(wrong).is_err(), "{wrong}");
        }
    }
}
