//! `rackwright bmc probe`

use clap::Args;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_ipmi::IpmiAddress;
use rackwright_redfish::capabilities::{Outcome, Report};
use serde_json::json;

use super::access::{Access, AccessArgs, explain};

/// `rackwright bmc probe`
#[derive(Debug, Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    access: AccessArgs,
}

/// Probes the BMC and shows the result.
pub async fn run(cx: &Cx, args: ProbeArgs) -> Result<(), CliError> {
    if IpmiAddress::is_ipmi(args.access.address()) {
        return super::ipmi::probe(cx, args.access).await;
    }
    let access = Access::open(cx, args.access).await?;
    let report = access.client.probe().await;
    access.close(cx).await;
    let report = report.map_err(explain)?;
    let certificate = access.client.observed_fingerprint();
    match cx.ui.format() {
        Format::Json | Format::Yaml => {
            let mut value = serde_json::to_value(&report)
                .map_err(|fault| CliError::BadAnswer(format!("the report cannot be written: {fault}")))?;
            value["address"] = json!(access.client.address());
            value["certificate_sha256"] = json!(certificate.map(|seen| format!("sha256:{seen}")));
            cx.ui.value(&value)
        }
        Format::Name => report
            .missing_for_deploy
            .iter()
            .try_for_each(|missing| cx.ui.line(missing)),
        Format::Table => cx.ui.line(table(&report, cx.ui.paint(), cx.ui.width()).trim_end()),
    }
}

fn table(report: &Report, paint: Paint, width: Option<usize>) -> String {
    let detected = &report.detected;
    let both = |a: &Option<String>, b: &Option<String>| {
        let words: Vec<&str> = [a, b].into_iter().flatten().map(String::as_str).collect();
        words.join(" ")
    };
    let mut head = Table::pairs();
    let mut pair = |name: &str, value: String| {
        head.row([Cell::toned(name, Tone::Dim), Cell::from(value)]);
    };
    pair("machine", both(&detected.manufacturer, &detected.model));
    pair("system", detected.system.clone().unwrap_or_default());
    pair("BIOS", detected.bios_version.clone().unwrap_or_default());
    pair("BMC", both(&detected.bmc_model, &detected.bmc_firmware));
    pair("service", both(&detected.vendor, &detected.product));
    pair("Redfish", detected.redfish_version.clone().unwrap_or_default());
    pair("profiles", report.profiles.join(", "));
    let mut out = head.render(paint, width);
    let mut findings = Table::new(&["CAPABILITY", "STATE", "DETAIL"]);
    for finding in &report.findings {
        let tone = match finding.outcome {
            Outcome::Pass => Tone::Good,
            Outcome::NotOffered => Tone::Dim,
            Outcome::Fail => Tone::Bad,
        };
        let detail = match &finding.note {
            Some(note) => format!("{}; profile note: {note}", finding.detail),
            None => finding.detail.clone(),
        };
        findings.row([
            Cell::from(finding.capability.title()),
            Cell::toned(finding.outcome.to_string(), tone),
            Cell::from(detail),
        ]);
    }
    out.push('\n');
    out.push_str(&findings.render(paint, width));
    out.push('\n');
    if report.missing_for_deploy.is_empty() {
        out.push_str(&paint.tone(Tone::Good, "nothing is missing for a deployment over the network"));
    } else {
        out.push_str(&paint.tone(Tone::Bad, "missing for a deployment over the network:"));
        for missing in &report.missing_for_deploy {
            out.push_str(&format!("\n  {}", clean(missing)));
        }
    }
    out
}
