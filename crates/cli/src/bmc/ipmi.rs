//! `rackwright bmc probe ipmi://HOST`: the functions that a BMC offers over IPMI.

use std::sync::Arc;

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, exit, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_ipmi::{Account, Controller, ErrorKind, Fru, Ipmi, IpmiError, Power};
use serde_json::{Value, json};

use super::access::AccessArgs;

/// The results of the probe.
struct Report {
    address: String,
    controller: Controller,
    machine: Fru,
    uuid: Option<String>,
    findings: Vec<Finding>,
    missing: Vec<String>,
}

struct Finding {
    capability: &'static str,
    state: &'static str,
    detail: String,
}

/// Probes the BMC and shows the result. Changes nothing.
pub async fn probe(cx: &Cx, args: AccessArgs) -> Result<(), CliError> {
    let address: rackwright_ipmi::IpmiAddress = args.address().parse().map_err(explain)?;
    let account = Account {
        password: args.password(cx)?,
        username: args.user().to_owned(),
    };
    let ipmi = Ipmi::new(address, account, Arc::default()).map_err(explain)?;
    let report = report(&ipmi).await.map_err(explain)?;
    match cx.ui.format() {
        Format::Json | Format::Yaml => cx.ui.value(&value(&report)),
        Format::Name => report.missing.iter().try_for_each(|missing| cx.ui.line(missing)),
        Format::Table => cx.ui.line(table(&report, cx.ui.paint(), cx.ui.width()).trim_end()),
    }
}

async fn report(ipmi: &Ipmi) -> Result<Report, IpmiError> {
    // Everything else depends on this: a refused login must not be tried six times.
    let controller = ipmi.controller().await?;
    let mut findings = Vec::new();
    let mut add = |capability, found: Result<Option<String>, IpmiError>| {
        let (state, detail) = match found {
            Ok(Some(detail)) => ("pass", detail),
            Ok(None) => ("not offered", String::new()),
            Err(error) => ("fail", error.to_string()),
        };
        findings.push(Finding {
            capability,
            state,
            detail,
        });
    };
    let power = |power| match power {
        Power::On => "on".to_owned(),
        Power::Off => "off".to_owned(),
    };
    add("power", ipmi.power().await.map(|seen| Some(power(seen))));
    let boot = ipmi.boot().await;
    add(
        "boot override",
        boot.map(|flags| Some(format!("now {:?}", flags.device))),
    );
    let console = ipmi.offers_console().await;
    add(
        "serial console",
        console.map(|is| is.then(|| "Serial over LAN".to_owned())),
    );
    let log = ipmi.event_log().await;
    add("event log", log.map(|entries| Some(plural(entries.len(), "entry"))));
    let macs = ipmi.address().macs();
    let known = (!macs.is_empty()).then(|| format!("{}, from its address", macs.join(", ")));
    add("Ethernet addresses", Ok(known));
    for capability in ["UEFI HTTP boot", "virtual media", "BIOS settings", "sensors", "events"] {
        add(capability, Ok(None));
    }
    let of = |name: &str| {
        findings
            .iter()
            .find(|one| one.capability == name && one.state != "pass")
    };
    let mut missing: Vec<String> = ["power", "boot override"]
        .iter()
        .filter_map(|name| of(name).map(|one| format!("{name}: {}", one.detail)))
        .collect();
    if macs.is_empty() {
        let how =
            "MAC addresses: IPMI does not report them; give them in the address: ipmi://HOST?mac=52:54:00:12:34:56";
        missing.push(how.to_owned());
    }
    Ok(Report {
        address: ipmi.address().to_string(),
        controller,
        machine: ipmi.fru().await?,
        uuid: ipmi.guid().await?,
        findings,
        missing,
    })
}

fn value(report: &Report) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|one| json!({"capability": one.capability, "outcome": one.state, "detail": one.detail}))
        .collect();
    json!({
        "address": report.address,
        "controller": report.controller,
        "machine": report.machine,
        "uuid": report.uuid,
        "findings": findings,
        "missing_for_deploy": report.missing,
    })
}

fn table(report: &Report, paint: Paint, width: Option<usize>) -> String {
    let words = |parts: [&Option<String>; 3]| {
        let words: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        words.join(" ")
    };
    let (machine, bmc) = (&report.machine, &report.controller);
    let mut head = Table::pairs();
    for (name, value) in [
        (
            "machine",
            words([&machine.manufacturer, &machine.product, &machine.serial]),
        ),
        ("UUID", report.uuid.clone().unwrap_or_default()),
        ("BMC", words([&bmc.manufacturer, &bmc.product, &bmc.firmware])),
        ("IPMI", bmc.ipmi.clone().unwrap_or_default()),
    ] {
        head.row([Cell::toned(name, Tone::Dim), Cell::from(value)]);
    }
    let mut out = head.render(paint, width);
    let mut findings = Table::new(&["CAPABILITY", "STATE", "DETAIL"]);
    for finding in &report.findings {
        let tone = match finding.state {
            "pass" => Tone::Good,
            "fail" => Tone::Bad,
            _ => Tone::Dim,
        };
        findings.row([
            Cell::from(finding.capability),
            Cell::toned(finding.state, tone),
            Cell::from(finding.detail.clone()),
        ]);
    }
    out.push('\n');
    out.push_str(&findings.render(paint, width));
    out.push('\n');
    if report.missing.is_empty() {
        out.push_str(&paint.tone(Tone::Good, "nothing is missing for a deployment over the network"));
    } else {
        out.push_str(&paint.tone(Tone::Bad, "missing for a deployment over the network:"));
        for missing in &report.missing {
            out.push_str(&format!("\n  {}", clean(missing)));
        }
    }
    out
}

/// The message of a failure, and the program's exit code.
fn explain(failure: IpmiError) -> CliError {
    let exit = match (&failure, failure.kind()) {
        (IpmiError::InvalidAddress { .. } | IpmiError::InvalidAccount { .. }, _) => exit::USAGE,
        (_, ErrorKind::Security) => exit::DENIED,
        (_, ErrorKind::Retryable) => exit::UNAVAILABLE,
        _ => exit::OTHER,
    };
    CliError::Bmc {
        message: failure.to_string(),
        hint: String::new(),
        exit,
    }
}
