//! The texts of errors and of the program's help.

use std::process::Stdio;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::import::DUMP;
use crate::program::Program;

#[test]
fn details_of_the_server_become_words() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    let mut refuse = |code: Code, message: &str, details: ErrorDetails| {
        fake.refuse("GetNode", Status::with_error_details(code, message, details));
        script.run(&program, &["node", "get", "gpu-001"]);
    };
    let mut details = ErrorDetails::with_bad_request_violation("spec.bmc.address", "must begin with https://");
    details.add_bad_request_violation("labels.rack", "too long");
    refuse(Code::InvalidArgument, "2 fields are wrong", details);
    let mut details = ErrorDetails::with_precondition_failure_violation("STATE", "nodes/gpu-001", "it is imaging");
    details.set_localized_message("en", "wait until it is active");
    refuse(Code::FailedPrecondition, "gpu-001 cannot be reimaged", details);
    let metadata = [
        ("device".to_owned(), "nvme0n1".to_owned()),
        ("hint".to_owned(), "replace it".to_owned()),
    ];
    refuse(
        Code::Internal,
        "the drive gave up",
        ErrorDetails::with_error_info("DRIVE", "rackwright", metadata),
    );
    refuse(
        Code::NotFound,
        "node \"gpu-001\" does not exist",
        ErrorDetails::with_help_link("see the docs", "https://d"),
    );
    refuse(Code::PermissionDenied, "ann is a viewer", ErrorDetails::new());
    refuse(Code::Unauthenticated, "", ErrorDetails::new());
    refuse(Code::Aborted, "it has version 8 by now, not 7", ErrorDetails::new());
    refuse(
        Code::AlreadyExists,
        "the key was used for another request",
        ErrorDetails::new(),
    );
    refuse(Code::ResourceExhausted, "too many calls", ErrorDetails::new());
    script.check("errors", &program);
}

#[test]
fn without_a_server() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    drop(fake);
    let mut script = Script::default();
    script.run(&program, &["node", "list"]);
    script.run(&program, &["node", "list", "--server", "nonsense:x"]);
    script.check("unreachable", &program);
}

#[test]
fn a_late_answer_is_given_up() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    for _ in 0..20 {
        fake.refuse("WhoAmI", Status::deadline_exceeded("the database is slow"));
    }
    let whoami = program.run(&["whoami"]);
    assert_eq!(whoami.code, 6, "{whoami:?}");
}

#[test]
fn wrong_usage() {
    let program = Program::new();
    for arguments in [
        &["node"][..],
        &["node", "list", "--nonsense"],
        &["node", "power", "a", "sideways"],
        &[],
    ] {
        let wrong = program.run(arguments);
        assert_eq!(wrong.code, 2, "{wrong:?}");
        assert!(
            wrong.stderr.contains("--help") || wrong.stderr.contains("Usage:"),
            "{wrong:?}"
        );
    }
}

#[test]
fn an_argument_that_names_an_unusable_file_is_wrong_usage() {
    let program = Program::new();
    let pin = format!("sha256:{}", "0".repeat(64));
    let file = program.file("file", "text");
    let below = format!("{file}/below");
    for arguments in [
        &["login", "--server", "h", "--ca-sha256", &pin, "--token-file", "nowhere"][..],
        &["fabric", "show", "nowhere"],
        &["fabric", "check", "--plan", "nowhere", "--discovered", "nowhere"],
        &["certificates", "--verify", "nowhere"],
        &["discover", "start", "--csv", "nowhere"],
        &["discover", "start", "--leases", "nowhere"],
        &["site", "import", "netbox", "--csv", "nowhere"],
        &[
            "site", "generate", "--sku", "dgx-h100", "--nodes", "8", "--file", &below,
        ],
        &["bmc", "record", "https://h", &file, "--user", "u"],
        &[
            "bmc",
            "probe",
            "https://h",
            "--user",
            "u",
            "--insecure-first-use",
            "--password-file",
            "nowhere",
        ],
    ] {
        let wrong = program.run(arguments);
        assert_eq!(wrong.code, 2, "{arguments:?}: {wrong:?}");
        let names_it = wrong.stderr.contains("nowhere") || wrong.stderr.contains(&file);
        assert!(wrong.stderr.contains("cannot ") && names_it, "{wrong:?}");
    }
}

#[test]
fn a_wrong_name_letter_or_number_in_an_argument_shows_what_to_write() {
    let program = Program::new();
    let long = "x".repeat(300);
    let generate = ["site", "generate", "--sku", "dgx-h100", "--nodes", "8", "--name"];
    let netbox = ["site", "import", "netbox", "--csv", "nowhere"];
    for (arguments, words) in [
        (
            [&generate[..], &["a/b"]].concat(),
            "the name `a/b` contains '/': use 1 to 63",
        ),
        (
            [&generate[..], &[long.as_str()]].concat(),
            "has 300 characters: use 1 to 63",
        ),
        (
            [&netbox[..], &["--feed", "AB=Panel"]].concat(),
            "`AB` is not a feed letter: write one capital letter",
        ),
        (
            [&netbox[..], &["--panel", "P=20 kW"]].concat(),
            "`20 kW` is not a number of watts: write a number from 1",
        ),
        (
            vec!["site", "import", "fabric", "nowhere", "--rack", "r/1"],
            "the name `r/1` contains '/'",
        ),
    ] {
        let wrong = program.run(&arguments);
        assert_eq!(wrong.code, 2, "{arguments:?}: {wrong:?}");
        assert!(wrong.stderr.contains(words), "{arguments:?}: {wrong:?}");
    }
}

/// A site with the cables of the dump.
const CABLED: &str = "site: {name: lab}
rooms: [{name: h}]
racks: [{name: r, room: h}]
skus:
- {name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, hcas: [mlx5_0, mlx5_3]}
nodes: [{name: 'gpu-[1-2]', sku: k, rack: r}]
switches: [{name: 'leaf-[1-2]', role: leaf, ports: 64, rail: [0, 1]}]
cables:
- {label: 'c[1-2]', a: 'gpu-[1-2]/mlx5_0', b: 'leaf-1/[1-2]'}
- {label: 'c[3-4]', a: 'gpu-[1-2]/mlx5_3', b: 'leaf-2/[1-2]'}
";

#[test]
fn cabling_faults_end_with_code_1() {
    let program = Program::new();
    program.file("plan.ibnet", DUMP);
    program.file("slow.ibnet", DUMP.replace("4xNDR", "1xNDR"));
    program.file("site.yaml", CABLED);
    program.file("site/all.yml", CABLED);
    for plan in ["plan.ibnet", "site.yaml", "site"] {
        for (discovered, code) in [("plan.ibnet", 0), ("slow.ibnet", 1)] {
            let check = program.run(&["fabric", "check", "--plan", plan, "--discovered", discovered]);
            assert_eq!(check.code, code, "{plan}: {check:?}");
            assert_eq!(check.stdout.contains("wrong-width"), code == 1, "{plan}: {check:?}");
        }
    }
    let check = program.run(&["fabric", "check", "--plan", "site.yaml", "--discovered", "slow.ibnet"]);
    assert!(check.stdout.contains("cable c1: "), "{check:?}");
}

#[test]
fn a_site_that_is_no_plan_of_a_fabric_is_refused() {
    let program = Program::new();
    program.file("plan.ibnet", DUMP);
    let (bare, _) = CABLED.split_once("cables:").unwrap();
    program.file("bare.yaml", bare);
    program.file("faulty.yaml", CABLED.replace("gpu-[1-2]/mlx5_3", "gpu-[1-2]/mlx5_4"));
    for (plan, words) in [
        ("bare.yaml", "bare.yaml: the site describes no cables"),
        ("faulty.yaml", "gpu-1 has no HCA named mlx5_4"),
    ] {
        let check = program.run(&["fabric", "check", "--plan", plan, "--discovered", "plan.ibnet"]);
        assert_eq!(check.code, 2, "{check:?}");
        assert!(check.stderr.contains(words), "{check:?}");
    }
}

#[test]
fn a_malformed_key_is_wrong_usage_and_a_wrong_chain_is_not_trusted() {
    let program = Program::new();
    let file = program.file("chain.jsonl", "no chain\n");
    let (chain, node) = (
        ["certificates", "--verify", &file],
        ["node", "certificates", "gpu-001", "--verify"],
    );
    for malformed in ["", "ab", &"zz".repeat(32), &"ab".repeat(33)] {
        for command in [&chain[..], &node] {
            let wrong = program.run(&[command, &["--key", malformed]].concat());
            assert_eq!(wrong.code, 2, "{command:?}: {wrong:?}");
            assert!(wrong.stderr.contains("--key"), "{wrong:?}");
        }
    }
    let wrong = program.run(&[&chain[..], &["--key", &"ab".repeat(32)]].concat());
    assert_eq!(wrong.code, 5, "{wrong:?}");
}

#[test]
fn version_and_help_describe_the_program() {
    let program = Program::new();
    let version = program.run(&["version"]);
    assert_eq!(version.stdout, concat!("rackwright ", env!("CARGO_PKG_VERSION"), "\n"));
    for shell in ["bash", "zsh", "fish"] {
        let script = program.run(&["completion", shell]);
        assert_eq!(script.code, 0);
        assert!(
            script.stdout.contains("rackwright") && script.stdout.contains("quarantine"),
            "{shell}"
        );
    }
    let mut script = Script::default();
    script.run(&program, &["--help"]);
    script.run(&program, &["node", "--help"]);
    script.run(&program, &["node", "deploy", "--help"]);
    script.check("help", &program);
}

/// The words before the first blank of the indented lines below `Commands:`.
fn subcommands(help: &str) -> Vec<&str> {
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn bash_takes_the_completion_script_and_it_completes() {
    let program = Program::new();
    let script = program.run(&["completion", "bash"]).stdout;
    let help = program.run(&["--help"]).stdout;
    let node = program.run(&["node", "--help"]).stdout;
    for (above, help) in [("rackwright", &help), ("rackwright__subcmd__node", &node)] {
        let names = subcommands(help);
        assert!(names.len() > 8, "{names:?}");
        for name in names {
            let case = format!(" {above},{name})\n");
            assert!(script.contains(&case), "{name} of {above} is not completed");
        }
    }
    let file = program.file("completion.bash", &script);
    let bash = |words: &[&str]| {
        let output = std::process::Command::new("bash")
            .args(words)
            .output()
            .expect("bash runs");
        let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
        assert!(output.status.success(), "{words:?}: {err:?}");
        assert_eq!(err.unwrap(), "", "{words:?}");
        out.unwrap()
    };
    bash(&["-n", &file]);
    let script = "source \"$1\"; COMP_WORDS=(rackwright node quar); COMP_CWORD=2; _rackwright rackwright quar node; \
                echo \"${COMPREPLY[@]}\"";
    assert_eq!(bash(&["-c", script, "bash", &file]), "quarantine\n");
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let fake = Fake::start();
    for index in 0..3000 {
        let node = fixtures::node(&format!("n{index:04}"), rackwright_api::v1::NodeState::Active, 60);
        fake.state().nodes.insert(node.name.clone(), node);
    }
    let program = Program::logged_in(&fake);
    let mut child = program
        .command(&["node", "list"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn no_colours_in_pipes() {
    let fake = Fake::start();
    for node in fixtures::nodes() {
        fake.state().nodes.insert(node.name.clone(), node);
    }
    let program = Program::logged_in(&fake);
    let list = program.run(&["node", "list"]);
    assert!(!list.stdout.contains('\x1b'), "{list:?}");
}
