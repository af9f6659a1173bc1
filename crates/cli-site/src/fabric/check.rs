//! `rackwright fabric check`

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_infiniband::check::{Report, check, check_plan};
use rackwright_infiniband::{Dump, Structure};
use serde_json::json;

use super::{CheckArgs, bytes, note_findings, read_dump, read_plan};

pub(super) fn run(cx: &Cx, args: &CheckArgs) -> Result<(), CliError> {
    let fabric = args.fabric.as_deref();
    let plan = args.plan.as_deref().map(|plan| read_plan(cx, plan, fabric));
    let plan = plan.transpose()?;
    let dump = read_dump(&args.discovered, &bytes(&args.discovered)?)?;
    note_findings(cx, &args.discovered, &dump.findings, dump.more_findings);
    let Some(plan) = plan else {
        return without_plan(cx, &dump);
    };
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
    clean_or_faults(report.is_clean())
}

/// The faults are the result and were shown; the exit code reports that there are some.
fn clean_or_faults(is_clean: bool) -> Result<(), CliError> {
    if is_clean {
        Ok(())
    } else {
        Err(CliError::Several(Vec::new()))
    }
}

/// What the regularity of the fabric shows.
fn without_plan(cx: &Cx, dump: &Dump) -> Result<(), CliError> {
    let shape = Structure::of(&dump.fabric);
    match cx.ui.format() {
        Format::Table => cx.ui.line(render_shape(&shape, cx.ui.paint()).trim_end())?,
        Format::Name => shape.oddities.iter().try_for_each(|odd| cx.ui.line(odd.kind.word()))?,
        Format::Json | Format::Yaml => cx.ui.value(&json!({
            "oddities": shape.oddities,
            "more_oddities": shape.more_oddities,
            "rails": shape.rails,
            "findings": dump.findings,
        }))?,
    }
    clean_or_faults(shape.is_regular())
}

fn render_shape(shape: &Structure, paint: Paint) -> String {
    let mut out = String::new();
    if !shape.is_regular() {
        let mut table = Table::new(&["IRREGULARITY", "WHAT"]);
        for odd in &shape.oddities {
            table.row([Cell::toned(odd.kind.word(), Tone::Bad), Cell::from(&odd.text)]);
        }
        out = table.render(paint, None);
    }
    let (tone, found) = match shape.oddities.len() + shape.more_oddities {
        0 => (Tone::Good, "no irregularity".to_owned()),
        n => (Tone::Bad, plural(n, "irregularity")),
    };
    out.push_str(&format!(
        "{}; without a plan, a fault that is the same everywhere is not seen\n",
        paint.tone(tone, &found)
    ));
    out
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
    use rackwright_infiniband::{FatTree, Plan};

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

    #[test]
    fn without_a_plan_a_missing_adapter_is_suspected() {
        let (devices, cables) = FatTree::rail_optimised(4).plan().expect("a tree");
        let shape = |cables: &[rackwright_infiniband::PlannedCable]| {
            Structure::of(Plan::new(&devices, cables).expect("a plan").fabric())
        };
        assert_eq!(
            render_shape(&shape(&cables), Paint::PLAIN),
            "no irregularity; without a plan, a fault that is the same everywhere is not seen\n"
        );
        let gone = devices
            .iter()
            .position(|device| device.name == "gpu0002 mlx5_3")
            .expect("an adapter");
        let rest: Vec<_> = cables.iter().filter(|cable| cable.b.0 != gone).cloned().collect();
        assert_eq!(
            render_shape(&shape(&rest), Paint::PLAIN),
            "IRREGULARITY     WHAT\n\
             missing-adapter  node gpu0002: 7 of 8 adapters are seen, none on leaf-su01-r3; an adapter or its cable is \
             suspected to be faulty\n\
             1 irregularity; without a plan, a fault that is the same everywhere is not seen\n"
        );
    }
}
