//! `rackwright bmc`: against a BMC that is a small tree over TLS.

use std::path::Path;

use serde_json::Value;

use crate::fake_bmc::{FakeBmc, MAC, PASSWORD, SERIAL};
use crate::golden::Script;
use crate::program::Program;

fn texts(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn probe_shows_present_and_missing_features() {
    let (bmc, program) = (FakeBmc::start(), Program::new());
    program.file("password", format!("{PASSWORD}\n"));
    program.file("wrong", "not the password\n");
    program.file(
        "mine/50-ours.json",
        r#"{"source": ["seen in hall 3"], "matches": [{"system.Model": "SYS-821GE*"}],
            "set": {"forced_boot_targets": ["UefiHttp"], "notes": {"boot-pxe": "port 2 only"}}}"#,
    );
    program.file(
        "faulty/1.json",
        r#"{"source": ["x"], "matches": [{"root.Vendor": "A"}], "set": {"boot_pay": 1}}"#,
    );
    let access = ["bmc", "probe", &bmc.url, "--user", "root"];
    let with = |more: &[&str]| {
        let mut arguments: Vec<String> = access.iter().map(|one| (*one).to_owned()).collect();
        arguments.extend(more.iter().map(|one| (*one).to_owned()));
        arguments
    };
    let mut script = Script::default();
    let mut run = |more: &[&str]| {
        let arguments = with(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        script.run(&program, &arguments)
    };
    let unknown = run(&["--password-file", "password"]);
    assert!(unknown.stderr.contains(&bmc.pin), "{unknown:?}");
    run(&["--password-file", "password", "--certificate-sha256", &bmc.pin]);
    run(&[
        "--password-file",
        "password",
        "--insecure-first-use",
        "--quirks",
        "mine",
    ]);
    run(&[
        "--password-file",
        "password",
        "--insecure-first-use",
        "--quirks",
        "faulty",
    ]);
    run(&["--password-file", "wrong", "--certificate-sha256", &bmc.pin]);
    run(&["--password-file", "password", "--certificate-sha256", &"ab".repeat(32)]);
    run(&["--insecure-first-use"]);
    run(&["--password-file", "password", "--insecure-first-use", "--system", "7"]);
    script.run(
        &program,
        &[
            "bmc",
            "probe",
            "http://10.0.0.1",
            "--user",
            "root",
            "--password-file",
            "password",
        ],
    );
    script.check("bmc_probe", &program);
}

#[test]
fn probe_as_json_is_for_programs() {
    let (bmc, program) = (FakeBmc::start(), Program::new());
    let arguments = [
        "bmc",
        "probe",
        &bmc.url,
        "--user",
        "root",
        "--password-stdin",
        "--certificate-sha256",
        &bmc.pin,
        "-o",
        "json",
    ];
    let finished = program.run_with_input(&arguments, PASSWORD);
    assert_eq!(finished.code, 0, "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report["certificate_sha256"], bmc.pin);
    assert_eq!(report["profiles"], serde_json::json!(["supermicro", "supermicro-x13"]));
    let finding = |name: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|one| one["capability"] == name).unwrap()["outcome"].clone()
    };
    assert_eq!(
        (finding("power-on"), finding("sse"), finding("secure-boot")),
        ("pass".into(), "not-offered".into(), "fail".into())
    );
    assert_eq!(report["missing_for_deploy"], serde_json::json!([]));
    let mut command = program.command(&arguments[..5]);
    command
        .args(["--insecure-first-use", "-o", "name"])
        .env("RACKWRIGHT_BMC_PASSWORD", PASSWORD);
    let by_variable = command.output().unwrap();
    assert!(
        by_variable.status.success() && by_variable.stdout.is_empty(),
        "{by_variable:?}"
    );
}

#[test]
fn a_recording_holds_nothing_that_tells_its_origin() {
    let (bmc, program) = (FakeBmc::start(), Program::new());
    program.file("password", PASSWORD);
    let record = |dir: &str| {
        let access = [
            "bmc",
            "record",
            &bmc.url,
            dir,
            "--user",
            "root",
            "--password-file",
            "password",
        ];
        program.run(&[&access[..], &["--certificate-sha256", &bmc.pin]].concat())
    };
    let finished = record("tree");
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(finished.stdout.starts_with("12 resources in tree"), "{finished:?}");
    assert!(
        finished.stderr.contains("/redfish/v1/Systems/1/SecureBoot: "),
        "{finished:?}"
    );
    let mut found = Vec::new();
    texts(&program.home().join("tree"), &mut found);
    assert_eq!(found.len(), 12);
    let bare = MAC.replace(':', "");
    for (path, text) in &found {
        let all = format!("{path} {text}").to_lowercase();
        for secret in [
            PASSWORD,
            &SERIAL.to_lowercase(),
            MAC,
            &bare,
            "tag-55",
            "6173ecec",
            "gpu-17",
            "asset-0815",
            "10.77.8.9",
            "ann.operator",
            "k-99",
        ] {
            assert!(!all.contains(secret), "{secret} in {path}: {text}");
        }
        assert!(!path.contains("JsonSchemas") && !path.contains("Sessions/1"), "{path}");
    }
    // The link to the interface, which contains its address, leads to the recorded resource.
    let collection = "tree/redfish/v1/Systems/1/EthernetInterfaces/index.json";
    let collection: Value =
        serde_json::from_str(&std::fs::read_to_string(program.home().join(collection)).unwrap()).unwrap();
    let link = collection["Members"][0]["@odata.id"].as_str().unwrap();
    assert!(
        program
            .home()
            .join("tree")
            .join(&link[1..])
            .join("index.json")
            .is_file(),
        "{link}"
    );
    let again = record("tree");
    assert_eq!(again.code, 2, "{again:?}");
}
