//! `rackwright fabric check`

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_infiniband::check::{CableFault, FaultKind, Report, check, check_plan};
use rackwright_infiniband::twice::{GuidPlace, twice};
use rackwright_infiniband::{Dump, Fabric, Structure};
use serde_json::json;

use super::{CheckArgs, bytes, note_findings, read_dump, read_plan};

/// Most port GUIDs with a finding of their own. Two dumps of one fabric share all GUIDs.
const MAX_TWICE: usize = 64;

pub(super) fn run(cx: &Cx, args: &CheckArgs) -> Result<(), CliError> {
    let fabric = args.fabric.as_deref();
    let plan = args.plan.as_deref().map(|plan| read_plan(cx, plan, fabric));
    let plan = plan.transpose()?;
    let dump = read_dump(&args.discovered, &bytes(&args.discovered)?)?;
    note_findings(cx, &args.discovered, &dump.findings, dump.more_findings);
    let copied = twice_guids(cx, args, &dump)?;
    let Some(plan) = plan else {
        return without_plan(cx, &dump, &copied);
    };
    let mut report = check(&plan, &dump.fabric);
    report.faults.extend(check_plan(&plan));
    report.faults.extend(copied);
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

/// The port GUIDs that answer in this dump and in one of the others, named by their files.
fn twice_guids(cx: &Cx, args: &CheckArgs, dump: &Dump) -> Result<Vec<CableFault>, CliError> {
    let mut others = Vec::with_capacity(args.others.len());
    for path in &args.others {
        let other = read_dump(path, &bytes(path)?)?;
        note_findings(cx, path, &other.findings, other.more_findings);
        others.push((path.display().to_string(), other));
    }
    let first = args.discovered.display().to_string();
    let others = others.iter().map(|(name, dump)| (name.as_str(), &dump.fabric));
    Ok(twice_faults(
        std::iter::once((first.as_str(), &dump.fabric)).chain(others),
    ))
}

fn twice_faults<'a>(fabrics: impl Iterator<Item = (&'a str, &'a Fabric)>) -> Vec<CableFault> {
    let found = twice(fabrics);
    let fault = |text, devices| CableFault {
        kind: FaultKind::GuidTwice,
        cables: Vec::new(),
        devices,
        text,
        runs: None,
        replacements: Vec::new(),
    };
    let mut faults: Vec<CableFault> = Vec::new();
    for one in found.iter().take(MAX_TWICE) {
        let places: Vec<String> = one.places.iter().map(place_text).collect();
        let text = format!(
            "port {} answers in {} dumps: {}; an adapter has a copied GUID: give it its own GUID again or replace it",
            one.port,
            one.places.len(),
            places.join("; ")
        );
        faults.push(fault(
            text,
            one.places.iter().map(|place| place.adapter.to_string()).collect(),
        ));
    }
    let more = found.len().saturating_sub(MAX_TWICE);
    if more > 0 {
        let text = format!("{more} more port GUIDs answer in several dumps: two of the dumps may be of one fabric");
        faults.push(fault(text, Vec::new()));
    }
    faults
}

/// `in west.ibnet at leaf-w-02/3 as "gpu-044 mlx5_1"`
fn place_text(place: &GuidPlace) -> String {
    let at = place.switch.as_ref().map(|at| format!(" at {}/{}", at.name, at.port));
    format!("in {}{} as {:?}", place.fabric, at.unwrap_or_default(), place.adapter)
}

/// What the regularity of the fabric shows, and port GUIDs of several fabrics.
fn without_plan(cx: &Cx, dump: &Dump, copied: &[CableFault]) -> Result<(), CliError> {
    let shape = Structure::of(&dump.fabric);
    match cx.ui.format() {
        Format::Table => cx.ui.line(render_shape(&shape, copied, cx.ui.paint()).trim_end())?,
        Format::Name => {
            let odd = shape.oddities.iter().map(|odd| odd.kind.word());
            let words = odd.chain(copied.iter().map(|fault| fault.kind.word()));
            words.into_iter().try_for_each(|word| cx.ui.line(word))?;
        }
        Format::Json | Format::Yaml => cx.ui.value(&json!({
            "oddities": shape.oddities,
            "more_oddities": shape.more_oddities,
            "rails": shape.rails,
            "guids_twice": copied,
            "findings": dump.findings,
        }))?,
    }
    clean_or_faults(shape.is_regular() && copied.is_empty())
}

fn render_shape(shape: &Structure, copied: &[CableFault], paint: Paint) -> String {
    let mut out = String::new();
    if !shape.is_regular() || !copied.is_empty() {
        let mut table = Table::new(&["IRREGULARITY", "WHAT"]);
        for odd in &shape.oddities {
            table.row([Cell::toned(odd.kind.word(), Tone::Bad), Cell::from(&odd.text)]);
        }
        for fault in copied {
            table.row([Cell::toned(fault.kind.word(), Tone::Bad), Cell::from(&fault.text)]);
        }
        out = table.render(paint, None);
    }
    let (tone, found) = match shape.oddities.len() + shape.more_oddities + copied.len() {
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
    use rackwright_infiniband::{Device, DeviceKind, FabricBuilder, FatTree, Guid, Plan, PortRef};

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
            render_shape(&shape(&cables), &[], Paint::PLAIN),
            "no irregularity; without a plan, a fault that is the same everywhere is not seen\n"
        );
        let gone = devices
            .iter()
            .position(|device| device.name == "gpu0002 mlx5_3")
            .expect("an adapter");
        let rest: Vec<_> = cables.iter().filter(|cable| cable.b.0 != gone).cloned().collect();
        assert_eq!(
            render_shape(&shape(&rest), &[], Paint::PLAIN),
            "IRREGULARITY     WHAT\n\
             missing-adapter  node gpu0002: 7 of 8 adapters are seen, none on leaf-su01-r3; an adapter or its cable is \
             suspected to be faulty\n\
             1 irregularity; without a plan, a fault that is the same everywhere is not seen\n"
        );
    }

    /// The dump of a leaf with one adapter.
    fn dump(leaf: &str, adapter: &str, port_guid: u64) -> Dump {
        let mut builder = FabricBuilder::default();
        let leaf = builder.device(Device::new(DeviceKind::Switch, leaf, 64));
        let adapter = builder.device(Device::new(DeviceKind::ChannelAdapter, adapter, 1));
        let [near, far] = [adapter, leaf].map(|device| PortRef { device, port: 1 });
        builder.connect(near, far, None).expect("a link");
        builder.port(near).expect("a port").guid = Guid::new(port_guid);
        Dump::of(builder.finish())
    }

    #[test]
    fn a_guid_in_two_dumps_is_a_fault_with_and_without_a_plan() {
        let east = dump("leaf-1", "gpu-1 mlx5_0", 0x77);
        let (forged, other) = (
            dump("leaf-9", "gpu-9 mlx5_0", 0x77),
            dump("leaf-9", "gpu-9 mlx5_0", 0x78),
        );
        let of = |west: &Dump| {
            let parts = [("east.ibnet", &east.fabric), ("west.ibnet", &west.fabric)];
            twice_faults(parts.into_iter())
        };
        assert_eq!(of(&other), Vec::new());
        let faults = of(&forged);
        let texts: Vec<&str> = faults.iter().map(|fault| fault.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "port 0x0000000000000077 answers in 2 dumps: in east.ibnet at leaf-1/1 as \"gpu-1 mlx5_0\"; in west.ibnet \
                 at leaf-9/1 as \"gpu-9 mlx5_0\"; an adapter has a copied GUID: give it its own GUID again or replace it"
            ]
        );
        let shown = render_shape(&Structure::of(&east.fabric), &faults, Paint::PLAIN);
        assert!(shown.contains("guid-twice    port 0x0000000000000077 "), "{shown}");
    }
}
