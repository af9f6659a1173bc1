//! `rackwright fabric check`

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_infiniband::check::{Report, check, check_plan};
use serde_json::json;

use super::{CheckArgs, bytes, note_findings, read_dump, read_plan};

pub(super) fn run(cx: &Cx, args: &CheckArgs) -> Result<(), CliError> {
    let plan = read_plan(&args.plan)?;
    let dump = read_dump(&args.discovered, &bytes(&args.discovered)?)?;
    note_findings(cx, &args.discovered, &dump.findings, dump.more_findings);
    let mut report = check(&plan, &dump.fabric);
    report.faults.extend(check_plan(&plan));
    match cx.ui.format() {
        Format::Table => cx.ui.line(render(&report, cx.ui.paint()).trim_end())?,
        Format::Name => report
            .faults
            .iter()
            .try_for_each(|fault| cx.ui.line(&clean(&fault.cables.join(" "))))?,
        Format::Json | Format::Yaml => {
            let mut value = json!(report);
            value["findings"] = json!(dump.findings);
            cx.ui.value(&value)?;
        }
    }
    // The faults are the result and were shown; the exit code reports that there are some.
    if report.is_clean() {
        Ok(())
    } else {
        Err(CliError::Several(Vec::new()))
    }
}

fn render(report: &Report, paint: Paint) -> String {
    let mut out = String::new();
    if !report.is_clean() {
        let mut table = Table::new(&["FAULT", "WHAT"]);
        for fault in &report.faults {
            table.row([Cell::toned(fault.kind.word(), Tone::Bad), Cell::from(&fault.text)]);
        }
        out = table.render(paint, None);
    }
    if report.named_otherwise > 0 {
        out.push_str(&format!(
            "device names with another naming scheme than the plan, not compared: {}\n",
            report.named_otherwise
        ));
    }
    let matched = report.matched;
    let (tone, faults) = match report.faults.len() {
        0 => (Tone::Good, "no fault".to_owned()),
        n => (Tone::Bad, plural(n, "fault")),
    };
    out.push_str(&format!(
        "{}: {} of {} as planned; devices recognised: {} by GUID, {} by description, {} by place\n",
        paint.tone(tone, &faults),
        report.right,
        plural(report.cables, "cable"),
        matched.by_guid,
        matched.by_name,
        matched.by_place
    ));
    out
}

#[cfg(test)]
mod tests {
    use rackwright_infiniband::dump::{Limits, read};
    use rackwright_infiniband::{Dump, FatTree, Plan};

    use super::*;

    #[test]
    fn faults_are_a_table_and_the_last_line_sums_up() {
        let (devices, cables) = FatTree::rail_optimised(2).plan().expect("a tree");
        let plan = Plan::new(&devices, &cables).expect("a plan");
        let text = Dump::of(plan.fabric().clone()).write();
        let found = |text: &str| check(&plan, &read(text.as_bytes(), Limits::default()).expect("a dump").fabric);
        assert_eq!(
            render(&found(&text), Paint::PLAIN),
            "no fault: 32 of 32 cables as planned; devices recognised: 25 by GUID, 0 by description, 0 by place\n"
        );
        let slow = text.replacen("4xNDR", "1xNDR", 1);
        assert_eq!(
            render(&found(&slow), Paint::PLAIN),
            "FAULT        WHAT\n\
             wrong-width  cable 0001: leaf-su01-r0 port 1 to HCA 0 of node gpu0001 runs at 1xNDR, planned is 4xNDR\n\
             1 fault: 31 of 32 cables as planned; devices recognised: 25 by GUID, 0 by description, 0 by place\n"
        );
    }
}
