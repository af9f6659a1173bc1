//! Hostile and broken answers to every public operation: each operation ends soon, uses little memory, and names the
//! resource that it could not parse.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rackwright_redfish::{
    BmcClient, BootTarget, Limits, MediaKind, Persistence, PowerGoal, PowerState, RedfishError, RetryPolicy, Settings,
};
use rackwright_redfish_record::{RecordLimits, Recording};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, standard_tree};
use crate::server::{Answer, Request};

/// Time limit of every operation: a few request time-outs, with room for a busy machine.
pub const TEST_LIMIT: Duration = Duration::from_secs(60);
const OPERATIONS: [&str; 9] = [
    "probe",
    "inventory",
    "machine",
    "power",
    "set-power",
    "boot",
    "media",
    "record",
    "readings",
];

fn link(path: &str) -> Value {
    json!({"@odata.id": format!("/redfish/v1/{path}")})
}

fn members(path: &str) -> Value {
    json!({"Members": [link(path)], "Members@odata.count": 1})
}

/// The parts of the machine.
fn parts() -> Vec<(&'static str, Value)> {
    vec![
        ("Systems/1/Processors", members("Systems/1/Processors/0")),
        (
            "Systems/1/Processors/0",
            json!({"Id": "0", "ProcessorType": "CPU", "Model": "P", "TotalCores": 8, "Status": {"State": "Enabled"}}),
        ),
        ("Systems/1/Memory", members("Systems/1/Memory/0")),
        (
            "Systems/1/Memory/0",
            json!({"Id": "0", "CapacityMiB": 65536, "MemoryDeviceType": "DDR5", "Status": {"State": "Enabled"}}),
        ),
        ("Systems/1/Storage", members("Systems/1/Storage/0")),
        (
            "Systems/1/Storage/0",
            json!({"Id": "0", "Drives": [link("Systems/1/Storage/0/Drives/0")]}),
        ),
        (
            "Systems/1/Storage/0/Drives/0",
            json!({"Id": "0", "CapacityBytes": 960_000_000_000_u64, "MediaType": "SSD"}),
        ),
        (
            "Systems/1/EthernetInterfaces",
            members("Systems/1/EthernetInterfaces/0"),
        ),
        (
            "Systems/1/EthernetInterfaces/0",
            json!({"Id": "0", "MACAddress": "02:00:00:00:00:01", "LinkStatus": "LinkUp"}),
        ),
        ("Systems/1/VirtualMedia", members("Systems/1/VirtualMedia/CD")),
        (
            "Systems/1/VirtualMedia/CD",
            json!({"Id": "CD", "MediaTypes": ["CD", "DVD"], "Inserted": false, "Actions": {
            "#VirtualMedia.InsertMedia": {"target": "/redfish/v1/Systems/1/VirtualMedia/CD/Insert"},
            "#VirtualMedia.EjectMedia": {"target": "/redfish/v1/Systems/1/VirtualMedia/CD/Eject"}}}),
        ),
        ("Systems/1/LogServices", members("Systems/1/LogServices/SEL")),
        (
            "Systems/1/LogServices/SEL",
            json!({"Id": "SEL", "Entries": link("Systems/1/LogServices/SEL/Entries")}),
        ),
        (
            "Systems/1/LogServices/SEL/Entries",
            json!({"Members": [{"Id": "1", "Message": "hot", "Severity": "Critical"}]}),
        ),
        ("Systems/1/Bios", json!({"Attributes": {"Boot": "UEFI"}})),
    ]
}

/// The services of the BMC.
fn services() -> Vec<(&'static str, Value)> {
    vec![
        ("Chassis", members("Chassis/1")),
        (
            "Chassis/1",
            json!({"Id": "1", "ChassisType": "RackMount", "Thermal": link("Chassis/1/Thermal"), "Power": link("Chassis/1/Power"), "Sensors": link("Chassis/1/Sensors")}),
        ),
        (
            "Chassis/1/Thermal",
            json!({"Temperatures": [{"Name": "Inlet", "ReadingCelsius": 24.5}], "Fans": [{"Name": "F1", "Reading": 9000}]}),
        ),
        (
            "Chassis/1/Power",
            json!({"PowerControl": [{"PowerConsumedWatts": 900}], "PowerSupplies": [{"MemberId": "0", "PowerInputWatts": 900}]}),
        ),
        ("Chassis/1/Sensors", json!({"Members": []})),
        (
            "EventService",
            json!({"ServiceEnabled": true, "ServerSentEventUri": "/redfish/v1/EventService/SSE"}),
        ),
        (
            "UpdateService",
            json!({"FirmwareInventory": link("UpdateService/FirmwareInventory")}),
        ),
        (
            "UpdateService/FirmwareInventory",
            members("UpdateService/FirmwareInventory/BMC"),
        ),
        (
            "UpdateService/FirmwareInventory/BMC",
            json!({"Id": "BMC", "Version": "1.0"}),
        ),
        (
            "AccountService",
            json!({"MinPasswordLength": 8, "Accounts": link("AccountService/Accounts")}),
        ),
        ("AccountService/Accounts", json!({"Members": []})),
        ("SessionService", json!({"SessionTimeout": 1800})),
    ]
}

/// A machine with one of everything that the operations read.
pub fn full_tree() -> BTreeMap<String, Value> {
    let mut tree = standard_tree();
    let root = tree.get_mut("/redfish/v1").unwrap();
    for name in [
        "Chassis",
        "EventService",
        "UpdateService",
        "AccountService",
        "SessionService",
    ] {
        root[name] = link(name);
    }
    let system = tree.get_mut(SYSTEM).unwrap();
    for name in [
        "Processors",
        "Memory",
        "Storage",
        "EthernetInterfaces",
        "VirtualMedia",
        "LogServices",
        "Bios",
    ] {
        system[name] = link(&format!("Systems/1/{name}"));
    }
    system["Links"]["Chassis"] = json!([link("Chassis/1")]);
    let more = parts().into_iter().chain(services());
    tree.extend(more.map(|(path, body)| (format!("/redfish/v1/{path}"), body)));
    tree
}

/// Virtual pauses, and real time-outs short enough for a test.
fn short_limits(bmc: &Bmc) -> Settings {
    Settings {
        request_timeout: Duration::from_millis(300),
        retry: RetryPolicy {
            retries: 1,
            busy_retries: 1,
            ..RetryPolicy::default()
        },
        limits: Limits {
            body_bytes: 1 << 20,
            ..Limits::default()
        },
        ..bmc.settings()
    }
}

async fn run(client: &BmcClient, operation: &str) -> Result<(), RedfishError> {
    match operation {
        "probe" => client.probe().await.map(drop),
        "inventory" => client.inventory().await.map(drop),
        "machine" => client.machine().await.map(drop),
        "power" => client.power().await.map(drop),
        "set-power" => client.set_power(PowerGoal::On).await.map(drop),
        "boot" => client
            .set_boot(BootTarget::Pxe, Persistence::Once, None)
            .await
            .map(drop),
        "media" => client
            .insert_media("http://10.0.0.1/a.iso", MediaKind::Cd)
            .await
            .map(drop),
        "record" => Recording::of(client, &RecordLimits::default(), |_, _| {})
            .await
            .map(drop),
        _ => client.node_readings().await.map(drop),
    }
}

/// Runs every operation, each with its own client, against a BMC with this misbehaviour. Returns the failures with their
/// messages.
async fn all_against(
    name: &str,
    abuse: impl Fn(&Request) -> Option<Answer> + Send + Sync + Clone + 'static,
) -> Vec<(&'static str, String)> {
    let mut failures = Vec::new();
    for operation in OPERATIONS {
        let abuse = abuse.clone();
        let bmc = Bmc::start_with(full_tree(), Duration::ZERO, move |request, _| abuse(request)).await;
        let started = Instant::now();
        let work = async {
            let client = BmcClient::connect(bmc.target(), short_limits(&bmc)).await?;
            let outcome = run(&client, operation).await;
            let _ = client.close().await;
            outcome
        };
        let outcome = tokio::time::timeout(TEST_LIMIT, work).await;
        let outcome = outcome.unwrap_or_else(|_| panic!("{name}: {operation} hangs"));
        assert!(
            bmc.server.requests().len() < 1500,
            "{name}: {operation} sends too many requests"
        );
        if let Err(failure) = outcome {
            let text = failure.to_string();
            assert!(
                text.contains(&bmc.server.url()),
                "{name}: {operation} does not name the BMC: {text}"
            );
            assert!(
                text.len() < 2000,
                "{name}: {operation} has a message that is too long: {text}"
            );
            failures.push((operation, text));
        }
        assert!(started.elapsed() < TEST_LIMIT);
    }
    failures
}

fn raw(head: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

/// Each kind of bad body, with the text that the error must contain.
fn bodies() -> Vec<(&'static str, Answer, &'static str)> {
    let slow = Duration::from_millis(20);
    let fast = Duration::ZERO;
    vec![
        (
            "truncated",
            Answer::Raw(raw("Content-Length: 500\r\n", b"{\"Id\": ")),
            "broken",
        ),
        ("html", Answer::text(200, "<html>Welcome</html>"), "<html>Welcome"),
        (
            "html 403",
            Answer::text(403, "<html><title>Forbidden</title></html>"),
            "HTTP 403: Forbidden",
        ),
        (
            "length",
            Answer::Raw(raw("Content-Length: 99999999999\r\n", b"{")),
            "larger than the limit",
        ),
        (
            "endless chunks",
            Answer::Drip(
                raw(
                    "Transfer-Encoding: chunked\r\n",
                    &[b"ffff\r\n".to_vec(), vec![b'x'; 0xffff], b"\r\n".to_vec()].concat(),
                ),
                fast,
            ),
            "",
        ),
        (
            "endless body",
            Answer::Drip(raw("", &vec![b'['; 1 << 16]), fast),
            "larger than the limit",
        ),
        ("deep", Answer::text(200, &nested(5000)), "nested deeper"),
        (
            "crowded",
            Answer::text(200, &format!("{{\"a\":[{}0]}}", "0,".repeat(510_000))),
            "the answer is",
        ),
        ("slow head", Answer::Drip(b"HTTP/1.1 200 OK\r\nX: ".to_vec(), slow), ""),
        (
            "slow body",
            Answer::Drip(raw("Content-Length: 100000\r\n", b" "), slow),
            "",
        ),
        (
            "gzip",
            Answer::text(200, "\u{1f}\u{8b}").with("Content-Encoding", "gzip"),
            "not requested",
        ),
        (
            "deflate 500",
            Answer::text(500, "zzz").with("Content-Encoding", "deflate"),
            "HTTP 500",
        ),
    ]
}

/// Bad heads of an answer, or no answer, with the text that the error must contain.
fn heads() -> Vec<(&'static str, Answer, &'static str)> {
    vec![
        (
            "elsewhere",
            Answer::status(307).with("Location", "http://203.0.113.9/x"),
            "is not followed",
        ),
        (
            "elsewhere 2",
            Answer::status(302).with("Location", "//203.0.113.9/x"),
            "is not followed",
        ),
        ("circle", Answer::status(301).with("Location", SYSTEM), "redirects"),
        ("nowhere", Answer::status(308), "HTTP 308"),
        ("202", Answer::status(202), "expected a JSON object"),
        ("204", Answer::status(204), "expected a JSON object"),
        (
            "latin",
            Answer::Raw(raw("Content-Length: 6\r\n", b"{\"\xf6\":}")),
            "cannot be understood",
        ),
        (
            "nan",
            Answer::text(200, "{\"Reading\": NaN}"),
            "NaN is no number in JSON",
        ),
        (
            "infinity",
            Answer::text(200, "{\"PowerState\": \"On\",\n\"Reading\": -Infinity}"),
            "Infinity is no number in JSON, at line 2",
        ),
        (
            "huge number",
            Answer::text(200, "{\"Reading\": 1e999}"),
            "cannot be understood",
        ),
        (
            "many headers",
            Answer::Raw([b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".repeat(50_000)].concat()),
            "broken",
        ),
        (
            "long header",
            Answer::Raw([b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'y'; 4 << 20]].concat()),
            "broken",
        ),
        (
            "continue",
            Answer::Drip(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), Duration::from_millis(1)),
            "",
        ),
        ("no http", Answer::Raw(b"SSH-2.0-dropbear\r\n".to_vec()), "broken"),
        ("hangup", Answer::Hangup, "broken"),
        ("array", Answer::text(200, "[1]"), "expected a JSON object"),
    ]
}

fn answers() -> Vec<(&'static str, Answer, &'static str)> {
    [bodies(), heads()].concat()
}

fn is_read(request: &Request) -> bool {
    request.method == "GET" && request.path.trim_end_matches('/') != "/redfish/v1"
}

#[tokio::test]
async fn a_malformed_system_ends_each_operation_soon_and_with_a_message() {
    for (name, answer, words) in answers() {
        let failures = all_against(name, move |r| r.is("GET", SYSTEM).then(|| answer.clone())).await;
        for operation in [
            "inventory",
            "machine",
            "power",
            "set-power",
            "boot",
            "media",
            "readings",
        ] {
            let failure = failures.iter().find(|(failed, _)| *failed == operation);
            let (_, text) = failure.unwrap_or_else(|| panic!("{name}: {operation} believed it"));
            assert!(text.contains(words), "{name}: {operation}: {text}");
            assert!(
                text.contains(SYSTEM) || text.contains("requests to it are paused"),
                "{name}: {operation} names nothing: {text}"
            );
        }
    }
}

#[tokio::test]
async fn malformed_resources_behind_the_root_end_each_operation_soon() {
    for (name, answer, _) in answers() {
        all_against(name, move |request| is_read(request).then(|| answer.clone())).await;
    }
}

#[tokio::test]
async fn a_malformed_resource_costs_only_its_own_part() {
    for (name, answer, _) in answers() {
        let abuse = move |request: &Request| {
            let is_needed =
                [SYSTEM, "/redfish/v1/Systems", "/redfish/v1/Managers/BMC"].map(|path| request.is("GET", path));
            (is_read(request) && !is_needed.contains(&true)).then(|| answer.clone())
        };
        let failures = all_against(name, abuse).await;
        for operation in ["power", "set-power", "boot"] {
            let failure = failures.iter().find(|(failed, _)| *failed == operation);
            assert_eq!(failure, None, "{name}: it has nothing to do with what is broken");
        }
    }
}

#[tokio::test]
async fn no_malformed_answer_to_a_change_is_taken_for_success() {
    for (name, answer, _) in answers() {
        let failures = all_against(name, move |request| {
            (matches!(request.method.as_str(), "PATCH" | "POST") && !request.path.contains("Sessions"))
                .then(|| answer.clone())
        })
        .await;
        let failed = |operation| failures.iter().any(|(failed, _)| *failed == operation);
        assert!(failed("boot"), "{name}: what reads back as before was not set");
        assert!(failed("media"), "{name}: what reads back as empty was not inserted");
    }
}

#[tokio::test]
async fn roots_and_logins_of_all_kinds_end_soon() {
    for (name, answer, _) in answers() {
        for place in ["/redfish/v1", "/redfish/v1/SessionService/Sessions"] {
            let answer = answer.clone();
            let abuse = move |request: &Request| request.path.trim_end_matches('/').eq(place).then(|| answer.clone());
            all_against(name, abuse).await;
        }
    }
}

#[tokio::test]
async fn circles_of_links_and_endless_pages_end() {
    let endless = |request: &Request| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let n: u64 = query.trim_start_matches("$skip=").parse().unwrap_or(0);
        let body = json!({"Members": [{"@odata.id": format!("{path}/{n}")}], "Members@odata.nextLink": format!("{path}?$skip={}", n + 1)});
        Some(Answer::json(200, &body))
    };
    all_against("endless pages", move |request| {
        let is_collection = ["Processors", "Memory", "Sensors", "FirmwareInventory", "Entries"]
            .iter()
            .any(|name| request.path.split('?').next().is_some_and(|path| path.ends_with(name)));
        (request.method == "GET" && is_collection)
            .then(|| endless(request))
            .flatten()
    })
    .await;
    // Every collection contains itself, its parent and the root, and every link leads back.
    all_against("circles", |request| {
        let path = request.path.trim_end_matches('/');
        let is_inner = is_read(request) && path.matches('/').count() > 4;
        let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
        let links: Vec<Value> = [path, parent, "/redfish/v1", SYSTEM, path].iter().map(|link| json!({"@odata.id": link})).collect();
        let own = &links[0];
        let body = json!({"@odata.id": path, "Id": "x", "Members": links, "Drives": links, "Entries": own, "Sensors": own,
            "Links": {"NetworkAdapter": own, "Chassis": links, "ManagedBy": links}, "NetworkAdapters": own, "Metrics": own});
        is_inner.then(|| Answer::json(200, &body))
    })
    .await;
}

/// All JSON pointers of a document, deepest first.
fn pointers(value: &Value, here: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            pointers(
                value,
                &format!("{here}/{}", name.replace('~', "~0").replace('/', "~1")),
                found,
            )
        }),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(n, value)| pointers(value, &format!("{here}/{n}"), found)),
        _ => {}
    }
    if !here.is_empty() {
        found.push(here.to_owned());
    }
}

#[tokio::test]
async fn a_wrong_type_in_any_field_hangs_nothing() {
    let malformed = [
        json!(null),
        json!(-7),
        json!(1e300),
        json!("odd"),
        json!([]),
        json!([null, 3, {}]),
        json!({"@odata.id": 7}),
        json!(true),
        json!(""),
    ];
    let tree = full_tree();
    let places: Vec<(String, String)> = tree
        .iter()
        .flat_map(|(path, body)| {
            let mut found = Vec::new();
            pointers(body, "", &mut found);
            found.into_iter().map(move |pointer| (path.clone(), pointer))
        })
        .collect();
    assert!(places.len() > 150, "{}", places.len());
    let bmc = Bmc::start_with(tree.clone(), Duration::ZERO, |_, _| None).await;
    for (n, (path, pointer)) in places.iter().enumerate() {
        bmc.state.lock().unwrap().tree = tree.clone();
        let value = malformed[n % malformed.len()].clone();
        *bmc.state
            .lock()
            .unwrap()
            .tree
            .get_mut(path)
            .unwrap()
            .pointer_mut(pointer)
            .unwrap() = value.clone();
        for operation in ["probe", "inventory", "boot", "readings"] {
            let work = async {
                let client = BmcClient::connect(bmc.target(), short_limits(&bmc)).await?;
                let outcome = run(&client, operation).await;
                let _ = client.close().await;
                outcome
            };
            let outcome = tokio::time::timeout(TEST_LIMIT, work).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("{operation} hangs at {path}#{pointer} = {value}"));
            if let Err(failure) = outcome {
                assert!(failure.to_string().contains(&bmc.server.url()), "{failure}");
            }
        }
    }
}

#[tokio::test]
async fn a_walk_over_large_answers_bounds_its_memory() {
    let big = format!("{{\"Id\": \"1\", \"Pad\": \"{}\"}}", "x".repeat(7 << 20));
    let bmc = Bmc::start_with(full_tree(), Duration::ZERO, move |request, _| {
        if request.is("GET", "/redfish/v1/Systems/1/Memory") {
            let links: Vec<Value> = (0..400)
                .map(|n| json!({"@odata.id": format!("/redfish/v1/Systems/1/Memory/{n}")}))
                .collect();
            return Some(Answer::json(200, &json!({"Members": links})));
        }
        request
            .path
            .starts_with("/redfish/v1/Systems/1/Memory/")
            .then(|| Answer::text(200, &big))
    })
    .await;
    let client = BmcClient::connect(bmc.target(), bmc.settings()).await.unwrap();
    let found = client.inventory().await.unwrap();
    assert!(
        found.gaps.iter().any(|gap| gap.why.contains("bytes were read")),
        "{:?}",
        found.gaps
    );
    assert!(found.memory.len() < 40, "{}", found.memory.len());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // The server offered 2.8 GB.
    assert!(peak_kib < 800 << 10, "{peak_kib} KiB");
}

#[tokio::test]
async fn of_two_values_of_one_name_the_last_counts() {
    let body = "{\"Id\": \"1\", \"PowerState\": \"On\", \"Boot\": {\"BootSourceOverrideTarget\": \"Pxe\"}, \
                \"PowerState\": \"Off\", \"Boot\": {\"BootSourceOverrideTarget\": \"None\"}}";
    let bmc = Bmc::start(move |request, _| request.is("GET", SYSTEM).then(|| Answer::text(200, body))).await;
    let system = bmc.connect().await.system().await.unwrap();
    assert_eq!(system.power_state(), PowerState::Off);
    let target = &system.resource().json()["Boot"]["BootSourceOverrideTarget"];
    assert_eq!(target, "None", "an object counts as a whole");
}
