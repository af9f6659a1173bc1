//! Findings for machines on the loopback network.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rackwright_sim::fleet::{Fleet, FleetConfig};
use rackwright_sim::install_crypto;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::texts;

use super::strangers::{Behaviour, made_up, second_address, stranger};
use super::{discovery, ended, findings, found, plane, start, until, write};

const QUICK: &str = "connect_timeout_ms: 1000, answer_timeout_s: 3";

async fn fleet(nodes: usize) -> Fleet {
    let config = FleetConfig {
        nodes,
        ..FleetConfig::default()
    };
    Fleet::start(config).await.unwrap()
}

/// A table of a fleet's BMCs, with the login of each.
fn table(fleet: &Fleet) -> String {
    let mut text = "address,user,password,rack,unit,labels\n".to_owned();
    for index in 0..fleet.nodes() {
        let node = fleet.node(index);
        let (url, user, password) = (node.url(), node.user(), node.password());
        text.push_str(&format!("{url},{user},{password},r1,{},row=3\n", index + 1));
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_of_a_table_are_found_and_enrolled_once() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = plane(dir.path(), "127.0.0.1", QUICK).await;
    let fleet = fleet(3).await;
    let first: SocketAddr = fleet.node(0).url().trim_start_matches("https://").parse().unwrap();
    let other = format!("127.65.0.1:{}", free_port());
    let count = second_address(&other, first).await;
    let login = format!(
        "https://{other},{},{},,,\n",
        fleet.node(0).user(),
        fleet.node(0).password()
    );
    let dead = format!("https://127.65.0.9:{}", free_port());
    let csv = write(
        dir.path(),
        "bmcs.csv",
        &(table(&fleet) + &login + &format!("{dead},,,,,\n")),
    )
    .display()
    .to_string();
    let id = start(&site, &["--csv", &csv]);
    let ended_search = ended(&site, &id).await;
    assert_eq!(ended_search["counts"]["new"], 3, "{ended_search}");
    assert_eq!(ended_search["counts"]["same"], 1, "{ended_search}");
    assert_eq!(ended_search["counts"]["unreachable"], 1, "{ended_search}");
    assert!(count.load(Ordering::Relaxed) > 0);
    let all = findings(&site, &id);
    assert_eq!(all.len(), 4, "a machine with two addresses is one: {all:#?}");
    assert_eq!(found(&all, &dead), ("unreachable", "Connection refused (os error 111)"));
    let one = all.iter().find(|one| one["serial"] == fleet.node(0).serial()).unwrap();
    assert_eq!(one["uuid"], fleet.node(0).uuid());
    assert_eq!(one["other_addresses"][0], format!("https://{other}"));
    assert_eq!(one["certificate_sha256"], fleet.node(0).fingerprint().unwrap().unwrap());

    // The planned enrolment is shown and not done.
    let preview = site.json([
        "discover",
        "enrol",
        "--all-new",
        "--name",
        "gpu-{rack}-{unit}",
        "--dry-run",
    ]);
    assert_eq!(preview.as_array().unwrap().len(), 3);
    assert_eq!(preview[0]["node"], "nodes/gpu-r1-1");
    assert!(site.json(["node", "list"]).as_array().unwrap().is_empty());
    // A name for two machines is reported, and no machine is enrolled.
    let refused = site.try_cli(["discover", "enrol", "--all-new", "--name", "gpu-{rack}"]);
    assert_eq!(refused.status.code(), Some(2), "{:?}", texts(&refused));
    assert!(texts(&refused).1.contains("gets the name"), "{:?}", texts(&refused));
    assert!(site.json(["node", "list"]).as_array().unwrap().is_empty());

    let done = site.json([
        "discover",
        "enrol",
        "--all-new",
        "--name",
        "gpu-{rack}-{unit}",
        "--sku",
        "sim",
    ]);
    assert!(
        done.as_array().unwrap().iter().all(|one| one["action"] == "enrol"),
        "{done}"
    );
    let node = site.json(["node", "get", "gpu-r1-2"]);
    assert_eq!(node["spec"]["sku"], "sim");
    assert_eq!(node["metadata"]["labels"]["row"], "3");
    assert_eq!(
        node["spec"]["bmc"]["certificate_sha256"],
        fleet.node(1).fingerprint().unwrap().unwrap()
    );
    // The login that was found belongs to the node: its BMC is asked for its identity.
    until("the node has its machine's identity", || {
        let node = site.json(["node", "get", "gpu-r1-1"]);
        node["status"]["macs"][0] == fleet.node(0).mac()
    })
    .await;
    let again = site.json(["discover", "enrol", "--all-new"]);
    assert!(again.as_array().unwrap().is_empty(), "{again}");

    found_again(&site, &csv, &login).await;
    no_secret_is_kept_open(&site, &fleet);
    site.stop().await;
    fleet.stop().await;
}

/// Enrolled machines are recognised, even at another address.
async fn found_again(site: &rackwright_tests::site::Site, csv: &str, login: &str) {
    let id = start(site, &["--csv", csv]);
    let ended_search = ended(site, &id).await;
    assert_eq!(ended_search["counts"]["known"], 3, "{ended_search}");
    let alone = write(
        site.dir(),
        "alone.csv",
        &format!("address,user,password,rack,unit,labels\n{login}"),
    );
    let id = start(site, &["--csv", alone.to_str().unwrap()]);
    ended(site, &id).await;
    let all = findings(site, &id);
    assert_eq!(
        (all[0]["state"].as_str(), all[0]["node"].as_str()),
        (Some("known"), Some("nodes/gpu-r1-1")),
        "{all:#?}"
    );
}

/// No file of the daemon contains a password in clear.
fn no_secret_is_kept_open(site: &rackwright_tests::site::Site, fleet: &Fleet) {
    let mut files = 0;
    for folder in [site.dir().to_owned(), site.dir().join("data")] {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !entry.path().is_file() || name.ends_with(".csv") {
                continue;
            }
            files += 1;
            let bytes = std::fs::read(entry.path()).unwrap();
            for index in 0..fleet.nodes() {
                let password = fleet.node(index).password();
                let is_there = bytes
                    .windows(password.len())
                    .any(|window| window == password.as_bytes());
                assert!(!is_there, "{} holds a password", entry.path().display());
            }
        }
    }
    assert!(files > 2, "{files}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_bmcs_are_reported_and_clones_are_not_enrolled() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = plane(dir.path(), "127.0.0.1", QUICK).await;
    let port = free_port();
    let password = write(dir.path(), "password", "secret-of-the-test\n")
        .display()
        .to_string();
    let at = |host: u32| format!("127.66.0.{host}:{port}");
    let uuid = |number: u32| format!("1de17171-0000-4000-8000-{number:012x}");
    let range = [
        "--range",
        "127.66.0.0/28",
        "--port",
        &port.to_string(),
        "--user",
        "admin",
        "--password-file",
        &password,
    ];
    let one = made_up(dir.path(), &at(1), &uuid(1), "SN-ONE", "00:16:3e:00:00:01").await;
    let id = start(&site, &range);
    ended(&site, &id).await;
    site.cli(["discover", "enrol", &at(1)]);
    assert_eq!(
        site.json(["node", "get", "sn-one"])["spec"]["bmc"]["address"],
        format!("https://{}", at(1))
    );

    one.stop().await;
    let moved = made_up(dir.path(), &at(2), &uuid(1), "SN-ONE", "00:16:3e:00:00:01").await;
    let _clones = [
        made_up(dir.path(), &at(3), &uuid(2), "SN-TWO", "00:16:3e:00:00:02").await,
        made_up(dir.path(), &at(4), &uuid(2), "SN-THREE", "00:16:3e:00:00:03").await,
    ];
    let id = start(&site, &range);
    ended(&site, &id).await;
    let all = findings(&site, &id);
    let (state, why) = found(&all, &format!("https://{}", at(2)));
    assert_eq!(state, "moved", "{why}");
    assert!(why.contains("sn-one") && why.contains(&at(1)), "{why}");
    for host in [3, 4] {
        let (state, why) = found(&all, &format!("https://{}", at(host)));
        assert_eq!(state, "conflict", "{why}");
        assert!(why.contains(&at(3)) && why.contains(&at(4)), "{why}");
    }
    // Without a request, neither is a machine enrolled nor does a node get a new address.
    let skipped = site.json(["discover", "enrol", &at(2), &at(3), &at(4)]);
    let skipped = skipped.as_array().unwrap();
    assert!(skipped.iter().all(|one| one["action"] == "skip"), "{skipped:#?}");
    assert!(
        skipped[0]["reason"].as_str().unwrap().contains("--update"),
        "{skipped:#?}"
    );
    assert_eq!(site.json(["node", "list"]).as_array().unwrap().len(), 1);
    // Another certificate is not accepted in place of the old one.
    let refused = site.json(["discover", "enrol", "--update", &at(2)]);
    assert_eq!(refused["action"], "skip");
    assert!(
        refused["reason"]
            .as_str()
            .unwrap()
            .contains("has the stored certificate"),
        "{refused}"
    );
    let pin = moved.fingerprint().unwrap();
    site.cli(["node", "update", "sn-one", "--bmc-certificate", pin]);
    let updated = site.json(["discover", "enrol", "--update", &at(2)]);
    assert_eq!(updated["action"], "update", "{updated}");
    assert_eq!(
        site.json(["node", "get", "sn-one"])["spec"]["bmc"]["address"],
        format!("https://{}", at(2))
    );
    // No login is tried at a node's address, so only the certificate can show that another machine answers there.
    moved.stop().await;
    let _other = made_up(dir.path(), &at(2), &uuid(9), "SN-NINE", "00:16:3e:00:00:09").await;
    let id = start(&site, &range);
    ended(&site, &id).await;
    let all = findings(&site, &id);
    let (state, why) = found(&all, &format!("https://{}", at(2)));
    assert_eq!(state, "conflict", "{why}");
    assert!(
        why.contains("this is another machine, or the BMC has a new certificate"),
        "{why}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bmc_is_tried_with_no_more_logins_than_it_may_be() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = plane(dir.path(), "127.0.0.1", QUICK).await;
    let fleet = fleet(1).await;
    let node = fleet.node(0);
    let (wrong, right) = (
        write(dir.path(), "wrong", "wrong\n"),
        write(dir.path(), "right", &node.password()),
    );
    let csv = format!("address,credential\n{},some\n", node.url());
    let csv = write(dir.path(), "bmcs.csv", &csv).display().to_string();
    let login = |user: &str, file: &std::path::Path| format!("some:{user}:{}", file.display());
    let logins = [login("a", &wrong), login("b", &wrong), login(node.user(), &right)];
    let mut arguments = vec!["--csv", &csv];
    for login in &logins {
        arguments.extend(["--credential", login]);
    }
    let id = start(&site, &arguments);
    ended(&site, &id).await;
    let all = findings(&site, &id);
    assert_eq!(found(&all, &node.url()), ("login-refused", "2 logins were refused"));
    assert_eq!(all[0]["login_tries"], 2);
    // A named login is not tried unless it is requested.
    let range = node.url().replace("https://", "");
    let (host, port) = range.split_once(':').unwrap();
    let nameless = ["--range", host, "--port", port, "--credential", &logins[2]];
    let id = start(&site, &nameless);
    ended(&site, &id).await;
    assert_eq!(found(&findings(&site, &id), &node.url()).0, "login-needed");
    // The site's stored logins are tried only on request.
    let file = right.display().to_string();
    site.cli([
        "bmc",
        "credentials",
        "add",
        "--user",
        node.user(),
        "--password-file",
        &file,
    ]);
    let id = start(&site, &[&nameless[..], &["--factory-credentials"]].concat());
    ended(&site, &id).await;
    assert_eq!(found(&findings(&site, &id), &node.url()), ("new", ""));
    arguments.extend(["--login-tries", "3"]);
    let id = start(&site, &arguments);
    ended(&site, &id).await;
    let all = findings(&site, &id);
    assert_eq!(found(&all, &node.url()), ("new", ""));
    assert_eq!(
        (all[0]["login_tries"].as_i64(), all[0]["username"].as_str()),
        (Some(3), Some(node.user()))
    );
    site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_services_are_reported_and_get_no_password() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = plane(dir.path(), "127.0.0.1", QUICK).await;
    let port = free_port();
    let at = |host: u32| format!("127.67.0.{host}:{port}");
    let strangers = [
        stranger(&at(1), Behaviour::Page).await,
        stranger(&at(2), Behaviour::Silence).await,
        stranger(&at(3), Behaviour::Drip).await,
    ];
    let empty = dir.path().join("empty");
    std::fs::create_dir_all(empty.join("redfish/v1/Nothing")).unwrap();
    let is_no_root = r#"{"hello": "world"}"#;
    std::fs::write(empty.join("redfish/v1/index.json"), is_no_root).unwrap();
    let tree = rackwright_sim::mockup::Tree::read(&empty).unwrap();
    let _json = rackwright_sim::mockup::Mockup::start(tree, at(4).parse().unwrap(), true)
        .await
        .unwrap();
    let fleet = fleet(1).await;
    let password = write(dir.path(), "password", "secret-of-the-test\n")
        .display()
        .to_string();
    let fleet_port = fleet.port().to_string();
    let ports = ["--port", &port.to_string(), "--port", &fleet_port];
    let login = ["--user", "admin", "--password-file", &password];
    let id = start(
        &site,
        &[&["--range", "127.67.0.1-8,127.64.0.1"], &ports[..], &login[..]].concat(),
    );
    let ended_search = ended(&site, &id).await;
    assert_eq!(
        (ended_search["total"].as_i64(), ended_search["reached"].as_i64()),
        (Some(18), Some(18)),
        "{ended_search}"
    );
    let all = findings(&site, &id);
    for (host, words) in [(1, "TLS"), (2, "not"), (3, ""), (4, "not a Redfish")] {
        let (state, why) = found(&all, &format!("https://{}", at(host)));
        assert_eq!(state, "not-redfish", "{host}: {why}");
        assert!(why.contains(words), "{host}: {why}");
    }
    // Of a BMC: the login is tried once.
    let url = fleet.node(0).url();
    assert_eq!(found(&all, &url), ("login-refused", "the login was refused"));
    let one = all.iter().find(|one| one["address"] == url.as_str()).unwrap();
    assert_eq!(one["login_tries"], 1);
    for received in &strangers {
        assert!(!received.is_empty() && !received.has("secret-of-the-test"));
    }
    let shown = site.cli(["discover", "show", &id]);
    assert!(
        shown.contains("login-refused") && shown.contains("not-redfish"),
        "{shown}"
    );
    site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discovery_resumes_after_a_crash_and_ends_when_it_is_cancelled() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let mut site = plane(dir.path(), "127.0.0.1", "connections_per_s: 10, answer_timeout_s: 3").await;
    let port = free_port();
    let password = write(dir.path(), "password", "secret-of-the-test\n")
        .display()
        .to_string();
    let at = |host: u32| format!("127.68.0.{host}:{port}");
    let mut bmcs = Vec::new();
    for host in [5, 150, 250] {
        let uuid = format!("1de17171-0000-4000-8000-{host:012x}");
        let mac = format!("00:16:3e:00:01:{host:02x}");
        bmcs.push(made_up(dir.path(), &at(host), &uuid, &format!("SN-{host}"), &mac).await);
    }
    let port = port.to_string();
    let range = [
        "--range",
        "127.68.0.0/24",
        "--port",
        &port,
        "--user",
        "admin",
        "--password-file",
        &password,
    ];
    let id = start(&site, &range);
    until("some are looked at", || {
        discovery(&site, &id)["reached"].as_i64().unwrap() > 70
    })
    .await;
    // Only one discovery at a time may look at an address.
    let second = site.try_cli(["discover", "start", "--range", "127.68.0.9"]);
    assert_eq!(second.status.code(), Some(4), "{:?}", texts(&second));
    assert!(texts(&second).1.contains("127.68.0.9 already"), "{:?}", texts(&second));
    let before = discovery(&site, &id)["reached"].as_i64().unwrap();
    site.kill().await;
    site.restart().await;
    let after = discovery(&site, &id);
    assert!(after["reached"].as_i64().unwrap() >= before, "{before} {after}");
    assert_ne!(after["phase"], "done");
    let ended_search = ended(&site, &id).await;
    assert_eq!(
        (ended_search["total"].as_i64(), ended_search["reached"].as_i64()),
        (Some(254), Some(254)),
        "{ended_search}"
    );
    assert_eq!(
        (ended_search["counts"]["new"].as_i64(), ended_search["silent"].as_i64()),
        (Some(3), Some(251)),
        "{ended_search}"
    );
    let all = findings(&site, &id);
    assert!(all.iter().all(|one| one["login_tries"] == 1), "{all:#?}");

    let id = start(&site, &range);
    until("it has begun", || {
        discovery(&site, &id)["reached"].as_i64().unwrap() > 10
    })
    .await;
    site.cli(["operation", "cancel", &id]);
    let waited = site.try_cli(["operation", "wait", &id, "--timeout", "60s"]);
    assert_eq!(waited.status.code(), Some(7), "{:?}", texts(&waited));
    let ended_search = discovery(&site, &id);
    assert_eq!(ended_search["phase"], "done");
    assert!(
        ended_search["message"].as_str().unwrap().contains("cancelled"),
        "{ended_search}"
    );
    assert_eq!(ended_search["counts"]["new"], 1, "what was found stays: {ended_search}");
    site.stop().await;
}

/// The time to scan a /16 of addresses without listeners. There is no limit: the time is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_address_of_a_slash_16_is_probed() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = plane(dir.path(), "127.0.0.1", "connections_per_s: 100000, at_once: 512").await;
    let port = free_port();
    let _bmc = made_up(
        dir.path(),
        &format!("127.69.128.7:{port}"),
        "1de17171-0000-4000-8000-000000000001",
        "SN-1",
        "00:16:3e:00:00:01",
    )
    .await;
    let begun = std::time::Instant::now();
    let id = start(&site, &["--range", "127.69.0.0/16", "--port", &port.to_string()]);
    super::until_long("a /16 is done", Duration::from_secs(300), || {
        discovery(&site, &id)["phase"] == "done"
    })
    .await;
    let seconds = begun.elapsed().as_secs_f64();
    let ended_search = discovery(&site, &id);
    assert_eq!(
        (ended_search["reached"].as_i64(), ended_search["silent"].as_i64()),
        (Some(65_534), Some(65_533)),
        "{ended_search}"
    );
    assert_eq!(ended_search["counts"]["login-needed"], 1, "{ended_search}");
    println!("65534 addresses in {seconds:.1} s: {:.0} a second", 65_534.0 / seconds);
    site.stop().await;
}
