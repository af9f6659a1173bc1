//! Every call of the API by every kind of caller, compared with a table.

use std::collections::BTreeMap;

use rackwright_identity::ClientIdentity;
use rackwright_tests::wire::{self, methods};
use tonic::Code;
use tonic::transport::{Channel, Identity};

use super::members::{OPEN, Plane, short};

/// The callers, in the order of the table's columns.
const CALLERS: [&str; 8] = [
    "operator",
    "viewer",
    "auditor",
    "customer-admin",
    "customer-user",
    "agent",
    "revoked",
    "stranger",
];
const TABLE: &str = include_str!("matrix.txt");

/// The table: for each call, whether each caller is admitted.
fn table() -> BTreeMap<&'static str, [bool; CALLERS.len()]> {
    let mut rows = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let call = words.next().expect("a line begins with a call");
        let marks: Vec<bool> = words
            .map(|mark| match mark {
                "yes" => true,
                "-" => false,
                other => panic!("{call}: the mark is yes or -, not {other:?}"),
            })
            .collect();
        let marks = marks
            .try_into()
            .unwrap_or_else(|_| panic!("{call}: one mark for each caller"));
        assert!(rows.insert(call, marks).is_none(), "{call} is twice in the table");
    }
    rows
}

/// Whether a caller is admitted: the server examined the request or answered it.
async fn is_let_in(channel: &Channel, method: &wire::Method) -> bool {
    let Err(status) = wire::call(channel.clone(), &method.path(), Vec::new()).await else {
        return true;
    };
    match status.code() {
        Code::PermissionDenied => false,
        // These calls check a token or a proof in the request. An empty one is refused with the same code.
        Code::Unauthenticated => {
            let looked = status.message().contains("token") || status.message().contains("proof");
            OPEN.contains(&short(method).as_str()) && looked
        }
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Unimplemented | Code::Cancelled => {
            panic!("{}: {status:?}", short(method))
        }
        _ => true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_admits_exactly_the_callers_of_the_table() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let file = dir.path().join("site.yaml").display().to_string();
    let generated = plane
        .site
        .cli(["site", "generate", "--sku", "dgx-h100", "--nodes", "4"]);
    std::fs::write(&file, format!("{generated}---\ncustomers: [{{name: acme}}]\n")).expect("it can be written");
    plane.site.cli(["site", "apply", &file, "--yes"]);
    let member = |name: &str, role: &[&str]| plane.connect(&plane.join(name, name, role));
    let (certificate, key) = plane.forge(&ClientIdentity::agent("n1", 0).expect("a name"));
    let revoked = member("mallory", &["operator"]);
    plane.site.cli(["member", "revoke", "mallory"]);
    let channels = [
        member("olga", &["operator"]),
        member("vera", &["viewer"]),
        member("audrey", &["auditor"]),
        member("adam@acme", &["customer-admin", "--customer", "acme"]),
        member("uma@acme", &["customer-user", "--customer", "acme"]),
        plane.connect_as(Identity::from_pem(certificate, key)),
        revoked,
        plane.connect_without(),
    ];
    let mut found = String::new();
    for method in methods() {
        found += &format!("{:<42}", short(&method));
        for channel in &channels {
            found += if is_let_in(channel, &method).await {
                " yes"
            } else {
                " -  "
            };
        }
        found = found.trim_end().to_owned() + "\n";
    }
    plane.site.stop().await;
    let table = table();
    let mut wrong = Vec::new();
    let mut calls = 0;
    for line in found.lines() {
        let mut words = line.split_whitespace();
        let call = words.next().expect("a call");
        calls += 1;
        let Some(row) = table.get(call) else {
            wrong.push(format!("{call} is not in the table"));
            continue;
        };
        for ((caller, expected), mark) in CALLERS.iter().zip(row).zip(words) {
            if *expected != (mark == "yes") {
                let is = if mark == "yes" { "is let in" } else { "is refused" };
                wrong.push(format!("{call}: the {caller} {is}, and the table differs"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\nfound:\n{found}", wrong.join("\n"));
    assert_eq!(calls, table.len(), "the table has calls that the API does not have");
    println!(
        "{} cells: {calls} calls, {} callers",
        calls * CALLERS.len(),
        CALLERS.len()
    );
}
