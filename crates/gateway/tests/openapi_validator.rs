//! The OpenAPI document passes the validator of another project (`openapi-spec-validator`).
//!
//! `tests/venv.sh` makes the validator's environment in the target folder. This needs `python3` with `venv` and a package
//! index. Without them this test fails.

use std::path::Path;
use std::process::Command;

use rackwright_api::{DESCRIPTORS, REST};
use rackwright_gateway::Methods;

#[test]
fn a_foreign_validator_accepts_the_document() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(here.join("../../tests/venv.sh"))
        .arg(target.join("venv-openapi"))
        .arg(here.join("tests/openapi-requirements.txt"))
        .output()
        .expect("the script runs");
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "the validator's environment cannot be made: {words}"
    );
    let programs = String::from_utf8(made.stdout).expect("a path");

    let methods = Methods::new(&[DESCRIPTORS]).expect("descriptors");
    let methods = methods.with_openapi(DESCRIPTORS, (REST, "rackwright.v1"), ("Rackwright", "1.2.3"), &[]);
    let document = methods.openapi().expect("the table has no fault").expect("a source");
    let file = target.join("openapi.json");
    std::fs::write(&file, document.to_string()).expect("written");
    let validate = || {
        let validator = Path::new(programs.trim()).join("openapi-spec-validator");
        Command::new(validator).arg(&file).output().expect("the validator runs")
    };
    let valid = validate();
    let words = String::from_utf8_lossy(&valid.stdout);
    assert!(valid.status.success() && words.contains("OK"), "{words}");

    let mut faulty = document;
    faulty["paths"]["/v1/nodes/{node}"]["get"]["parameters"] = serde_json::json!([]);
    std::fs::write(&file, faulty.to_string()).expect("written");
    assert!(
        !validate().status.success(),
        "the validator accepts a path without its parameter"
    );
}
