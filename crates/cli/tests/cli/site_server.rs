//! `rackwright site plan|apply|export|show`: the control plane's site.

use rackwright_api::v1::*;
use tonic::Status;

use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

fn change(kind: &str, name: &str, action: &str, fields: &[(&str, &str, &str)]) -> SiteChange {
    let field = |(field, from, to): &(&str, &str, &str)| SiteFieldChange {
        field: (*field).into(),
        from: (*from).into(),
        to: (*to).into(),
    };
    SiteChange {
        kind: kind.into(),
        name: name.into(),
        action: action.into(),
        fields: fields.iter().map(field).collect(),
    }
}

fn finding(is_error: bool, file: &str, line: u32, what: &str) -> SiteFinding {
    SiteFinding {
        is_error,
        file: file.into(),
        line,
        column: u32::from(line > 0) * 3,
        path: "racks[0].room".into(),
        what: what.into(),
        fix: "did you mean `hall`?".into(),
    }
}

fn plan() -> PlanSiteResponse {
    let mut changes = vec![change("site", "lab", "changed", &[("name", "old", "lab\x1b[2J")])];
    changes.extend((1..=9).map(|n| change("rack", &format!("r{n}"), "added", &[])));
    changes.push(change("node", "gpu-1", "removed", &[]));
    PlanSiteResponse {
        findings: vec![finding(false, "racks.yaml", 2, "the rack is warm")],
        changes,
        conflicts: Vec::new(),
        resource_version: "7".into(),
    }
}

fn site() -> Site {
    let file = |name: &str, text: &str| SiteFile {
        name: name.into(),
        text: text.into(),
    };
    Site {
        name: "site".into(),
        title: "lab".into(),
        files: vec![
            file("racks.yaml", "racks:\n- {name: r1}\n"),
            file("more/power.yaml", "power: []\n"),
        ],
        digest: format!("b3-{}", "ab".repeat(32)),
        applied_by: "ann".into(),
        nodes: 11,
        switches: 1,
        cables: 88,
        not_enrolled: (1..=10).map(|n| format!("gpu-{n}")).collect(),
        metadata: Some(Metadata {
            resource_version: "8".into(),
            update_time: Some(fixtures::ago(3 * 86400 + 7200)),
            ..Metadata::default()
        }),
    }
}

/// A fake with a site, and a user with two files of it.
fn both() -> (Fake, Program) {
    let fake = Fake::start();
    fake.state().clusters.site = Some(site());
    fake.state().clusters.plan = plan();
    let program = Program::logged_in(&fake);
    program.file("site/racks.yaml", "racks:\n- {name: r1, room: hal}\n");
    program.file("site/power.yml", "power: []\n");
    program.file("other/power.yml", "power: []\n");
    (fake, program)
}

#[test]
fn a_plan_shows_findings_changes_and_conflicts() {
    let (fake, program) = both();
    let mut script = Script::default();
    script.run(&program, &["site", "plan", "site"]);
    script.run(&program, &["site", "plan", "site", "-o", "name"]);
    fake.state().clusters.plan.conflicts = vec!["cluster alpha: the site has no node \"gpu-1\"\x07".into()];
    script.run(&program, &["site", "plan", "site"]);
    script.run(&program, &["site", "apply", "site", "--yes"]);
    fake.state().clusters.plan = PlanSiteResponse {
        findings: vec![
            finding(true, "racks.yaml", 2, "there is no room `hal`"),
            finding(true, "", 0, "there is no site\x1b[2J section"),
        ],
        resource_version: "7".into(),
        ..PlanSiteResponse::default()
    };
    script.run(&program, &["site", "plan", "site"]);
    script.run(&program, &["site", "apply", "site", "--yes", "--quiet"]);
    fake.state().clusters.plan = PlanSiteResponse::default();
    script.run(&program, &["site", "plan", "site/racks.yaml", "-o", "yaml"]);
    script.run(&program, &["site", "plan", "site/racks.yaml", "-o", "name"]);
    script.run(&program, &["site", "plan", "site/racks.yaml"]);
    script.run(&program, &["site", "plan", "nowhere.yaml"]);
    script.run(&program, &["site", "plan", "site/power.yml", "site/power.yml"]);
    script.check("site_plan", &program);
    let state = fake.state();
    assert!(state.clusters.applied.is_empty(), "nothing was applied");
    let names: Vec<_> = state.clusters.sent[0].iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["power.yml", "racks.yaml"]);
    assert_eq!(state.clusters.sent[0][1].text, "racks:\n- {name: r1, room: hal}\n");
}

#[test]
fn the_shown_plan_is_the_applied_plan() {
    let (fake, program) = both();
    let mut script = Script::default();
    script.run(&program, &["site", "apply", "site"]);
    assert!(fake.state().clusters.applied.is_empty());
    script.run(
        &program,
        &["site", "apply", "site", "other", "--yes", "--idempotency-key", "k1"],
    );
    script.run(&program, &["site", "apply", "site", "--yes", "--resource-version", "6"]);
    script.run(&program, &["site", "apply", "site", "--yes", "-o", "name"]);
    fake.refuse("ApplySite", Status::aborted("site has version 8 by now, not 7"));
    script.run(&program, &["site", "apply", "site", "--yes", "--quiet"]);
    // Without a change there is no question.
    fake.state().clusters.plan.changes.clear();
    fake.state().clusters.plan.findings.clear();
    fake.state().clusters.site.as_mut().unwrap().not_enrolled.clear();
    script.run(&program, &["site", "apply", "site"]);
    script.check("site_apply", &program);
    let state = fake.state();
    let applied = &state.clusters.applied;
    assert_eq!(applied.len(), 3);
    let mutation = applied[0].mutation.clone();
    assert_eq!(
        (mutation.idempotency_key.as_str(), mutation.resource_version.as_str()),
        ("k1", "7")
    );
    let names: Vec<_> = applied[0].files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["site-power.yml", "racks.yaml", "other-power.yml"]);
}

#[test]
fn applying_asks_on_a_terminal() {
    let (fake, program) = both();
    let refused = program.run_on_terminal(&["site", "apply", "site"], "no\n");
    assert!(
        refused.stdout.contains("rack r1, r2, r3, r4, r5, ..., r9 (9) added"),
        "{refused:?}"
    );
    assert!(refused.stdout.contains("nothing was done"), "{refused:?}");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(fake.keys("ApplySite").is_empty());
    let agreed = program.run_on_terminal(&["site", "apply", "site", "--quiet"], "yes\n");
    assert!(
        agreed.stdout.contains("rack r1"),
        "the plan is shown before the question: {agreed:?}"
    );
    assert_eq!(agreed.code, 0, "{agreed:?}");
    assert_eq!(fake.keys("ApplySite").len(), 1);
}

#[test]
fn a_site_is_shown_as_files_and_as_a_stream() {
    let (fake, program) = both();
    let mut script = Script::default();
    script.run(&program, &["site", "show"]);
    script.run(&program, &["site", "export"]);
    script.run(&program, &["site", "export", "-o", "name"]);
    script.run(&program, &["site", "export", "out"]);
    script.run(&program, &["site", "export", "out"]);
    script.run(&program, &["site", "export", "out", "--force", "-o", "name"]);
    script.run(&program, &["site", "export", "--force"]);
    let read = |name: &str| std::fs::read_to_string(program.home().join(name)).unwrap_or_default();
    assert_eq!(read("out/racks.yaml"), "racks:\n- {name: r1}\n");
    assert_eq!(read("out/more/power.yaml"), "power: []\n");
    for hostile in ["/tmp/x.yaml", "../x.yaml", "a/../../x.yaml", "a\nb.yaml"] {
        fake.state().clusters.site.as_mut().unwrap().files[1].name = hostile.into();
        script.run(&program, &["site", "export", "evil"]);
    }
    assert!(!program.home().join("evil").exists() && !program.home().join("x.yaml").exists());
    fake.state().clusters.site = None;
    script.run(&program, &["site", "show"]);
    script.check("site_export", &program);
}

#[test]
fn a_shown_site_has_no_files_for_programs() {
    let (_fake, program) = both();
    let shown = program.run(&["site", "show", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["files"], serde_json::json!([]));
    assert_eq!(shown["metadata"]["resource_version"], "8");
    let exported = program.run(&["site", "export", "-o", "json"]);
    let exported: serde_json::Value = serde_json::from_str(&exported.stdout).unwrap();
    assert_eq!(exported["files"][1]["name"], "more/power.yaml");
}
