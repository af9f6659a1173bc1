//! `rackwright site import`: from CSV exports, from a server that answers like NetBox's API, and from a dump.
//!
//! The server plays NetBox: these tests were not run against a real one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::authority::Authority;
use crate::golden::Script;
use crate::program::Program;

const TOKEN: &str = "nbt_abcdefghijkl.0123456789";

/// The exports from the site crate's own tests of the import.
fn exports() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/import_netbox");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                std::fs::read_to_string(path).unwrap(),
            )
        })
        .collect()
}

fn program() -> Program {
    let program = Program::new();
    for (name, text) in exports() {
        program.file(&format!("netbox/{name}"), text);
    }
    std::fs::rename(
        program.home().join("netbox/skus.yaml"),
        program.home().join("skus.yaml"),
    )
    .unwrap();
    program.file("token", format!("{TOKEN}\n"));
    program
}

const LETTERS: [&str; 4] = ["--feed", "A=Panel A", "--feed", "B=Panel B"];

#[test]
fn exports_of_netbox_become_a_site_file() {
    let program = program();
    let mut script = Script::default();
    let import = ["site", "import", "netbox", "--csv", "netbox", "--site", "Ashburn 1"];
    let with = |more: &[&'static str]| [&import[..], more].concat();
    script.run(&program, &with(&["--sku-file", "skus.yaml", "--name", "ashburn"]));
    let rated = [
        "--panel",
        "Panel A=60000",
        "--panel",
        "Panel B=60000",
        "--sku-file",
        "skus.yaml",
        "--file",
        "site.yaml",
    ];
    script.run(&program, &[&with(&rated)[..], &LETTERS].concat());
    script.run(&program, &["site", "validate", "site.yaml"]);
    script.run(&program, &["power", "explain", "gpu-10", "--site", "site.yaml"]);
    script.run(&program, &with(&["--file", "bare.yaml", "--node-role", "compute"]));
    std::fs::remove_file(program.home().join("netbox/power-panels.csv")).unwrap();
    program.file("netbox/racks.csv", "Name,Site\nR1,\"Ashburn 1\n");
    script.run(&program, &with(&["--file", "bare.yaml"]));
    program.file("netbox/racks.csv", "Name,Height\nR1,48U\n");
    script.run(&program, &with(&["--file", "bare.yaml"]));
    std::fs::remove_file(program.home().join("netbox/racks.csv")).unwrap();
    script.run(&program, &with(&["--file", "bare.yaml"]));
    program.file("skus.yaml", "skus:\n- {name: a}\n");
    script.run(&program, &with(&["--sku-file", "skus.yaml"]));
    script.check("site_import_netbox", &program);
}

#[test]
fn a_dump_becomes_a_site_file() {
    let program = program();
    program.file("today.ibnet", DUMP);
    program.file("no.ibnet", "hello\n");
    let mut script = Script::default();
    script.run(&program, &["site", "import", "fabric", "today.ibnet"]);
    let placed = ["--room", "hall-1", "--rack", "r01", "--file", "site.yaml"];
    let whole = [
        "site",
        "import",
        "fabric",
        "today.ibnet",
        "--sku-file",
        "skus.yaml",
        "--name",
        "lab",
    ];
    script.run(&program, &[&whole[..], &placed].concat());
    script.run(&program, &["site", "validate", "site.yaml"]);
    script.run(&program, &["site", "import", "fabric", "no.ibnet"]);
    script.run(
        &program,
        &[
            "site",
            "import",
            "fabric",
            "today.ibnet",
            "--file",
            "x.yaml",
            "-o",
            "json",
        ],
    );
    script.check("site_import_fabric", &program);
}

/// A fabric of two nodes and two leaves.
pub const DUMP: &str = r#"switchguid=0xb0(b0)
Switch	64 "S-00000000000000b0"		# "MF0;leaf-1:MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]	"H-00000000000000c0"[1](c0) 		# "gpu-1 mlx5_0" lid 5 4xNDR
[2]	"H-00000000000000d0"[1](d0) 		# "gpu-2 mlx5_0" lid 6 4xNDR

switchguid=0xe0(e0)
Switch	64 "S-00000000000000e0"		# "MF0;leaf-2:MQM9700/U1" enhanced port 0 lid 4 lmc 0
[1]	"H-00000000000000c1"[1](c1) 		# "gpu-1 mlx5_3" lid 7 4xNDR
[2]	"H-00000000000000d1"[1](d1) 		# "gpu-2 mlx5_3" lid 8 4xNDR

caguid=0xc0
Ca	1 "H-00000000000000c0"		# "gpu-1 mlx5_0"
[1](c0) 	"S-00000000000000b0"[1]		# lid 5 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 3 4xNDR

caguid=0xc1
Ca	1 "H-00000000000000c1"		# "gpu-1 mlx5_3"
[1](c1) 	"S-00000000000000e0"[1]		# lid 7 lmc 0 "MF0;leaf-2:MQM9700/U1" lid 4 4xNDR

caguid=0xd0
Ca	1 "H-00000000000000d0"		# "gpu-2 mlx5_0"
[1](d0) 	"S-00000000000000b0"[2]		# lid 6 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 3 4xNDR

caguid=0xd1
Ca	1 "H-00000000000000d1"		# "gpu-2 mlx5_3"
[1](d1) 	"S-00000000000000e0"[2]		# lid 8 lmc 0 "MF0;leaf-2:MQM9700/U1" lid 4 4xNDR
"#;

/// The fault of the played NetBox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerFault {
    None,
    /// `next` leads to another host.
    Elsewhere,
    /// `next` leads to the same page without end.
    EndlessPages,
    /// 403 for every request.
    Forbidden,
    /// 302 for every request.
    Moved,
    /// A page without an end.
    Endless,
    /// An incomplete JSON text.
    Cut,
}

/// Objects by table, in the form of NetBox's serializers.
type Objects = BTreeMap<&'static str, Vec<Value>>;

struct FakeNetbox {
    url: String,
    /// The requested paths, with the values of `Authorization`.
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

/// TLS as localhost.
fn acceptor(authority: &Authority) -> TlsAcceptor {
    let (certificate, key) = authority.server(&["localhost"]);
    let chain = vec![pem::parse(certificate).unwrap().into_contents().into()];
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(pem::parse(key).unwrap().into_contents());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key.into())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Serves pages of two objects until the test ends, below /netbox, with TLS if there is an acceptor.
async fn serve(objects: Objects, server_fault: ServerFault, tls: Option<TlsAcceptor>) -> FakeNetbox {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = if tls.is_some() {
        format!("https://localhost:{port}")
    } else {
        format!("http://127.0.0.1:{port}")
    };
    let netbox = FakeNetbox {
        url: url.clone(),
        requests: Arc::default(),
    };
    let (requests, objects) = (netbox.requests.clone(), Arc::new(objects));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (requests, objects, url, tls) = (requests.clone(), objects.clone(), url.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, &objects, server_fault, &url, &requests).await;
                        }
                    }
                    None => answer(stream, &objects, server_fault, &url, &requests).await,
                }
            });
        }
    });
    netbox
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    objects: &Objects,
    server_fault: ServerFault,
    url: &str,
    requests: &Mutex<Vec<(String, String)>>,
) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut path, mut authorization) = (String::new(), String::new(), String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let text = line.trim_end();
            if let Some(rest) = text.strip_prefix("GET ") {
                path = rest.split(' ').next().unwrap().to_owned();
            } else if let Some((name, value)) = text.split_once(": ")
                && name.eq_ignore_ascii_case("authorization")
            {
                authorization = value.to_owned();
            } else if text.is_empty() {
                break;
            }
        }
        requests.lock().unwrap().push((path.clone(), authorization.clone()));
        let denied = authorization != format!("Bearer {TOKEN}") || server_fault == ServerFault::Forbidden;
        let (status, body) = match server_fault {
            _ if denied => ("403 Forbidden", json!({"detail": "Invalid token"}).to_string()),
            ServerFault::Moved => ("302 Found", String::new()),
            _ => page(objects, server_fault, url, &path),
        };
        if server_fault == ServerFault::Endless {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = stream.write_all(head.as_bytes()).await;
            let chunk = format!("100000\r\n{}\r\n", " ".repeat(0x100000));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
            return;
        }
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// NetBox's answer to a list request, with at most two objects a page, as with a MAX_PAGE_SIZE of 2.
fn page(objects: &Objects, server_fault: ServerFault, url: &str, path: &str) -> (&'static str, String) {
    let Some((table, query)) = path
        .strip_prefix("/netbox/api/dcim/")
        .and_then(|rest| rest.split_once("/?"))
    else {
        return ("404 Not Found", String::new());
    };
    let parameter = |name: &str| {
        let of = |pair: &&str| pair.split_once('=').is_some_and(|(key, _)| key == name);
        query
            .split('&')
            .find(of)
            .and_then(|pair| pair.split_once('='))
            .map_or("", |(_, value)| value)
    };
    assert!(!parameter("limit").is_empty(), "{path}");
    let offset: usize = parameter("offset").parse().unwrap_or(0);
    let all = objects.get(table).cloned().unwrap_or_default();
    let results: Vec<&Value> = all.iter().skip(offset).take(2).collect();
    let next = match server_fault {
        ServerFault::Elsewhere => json!(format!(
            "https://evil.example/netbox/api/dcim/{table}/?limit=2&offset=2"
        )),
        ServerFault::EndlessPages => json!(format!("{url}/netbox/api/dcim/{table}/?limit=2&offset=99")),
        _ if offset + 2 < all.len() => json!(format!("{url}/netbox/api/dcim/{table}/?limit=2&offset={}", offset + 2)),
        _ => Value::Null,
    };
    let text = json!({"count": all.len(), "next": next, "previous": null, "results": results}).to_string();
    let end = if server_fault == ServerFault::Cut {
        text.len() / 2
    } else {
        text.len()
    };
    ("200 OK", text[..end].to_owned())
}

/// The objects behind the exports in the API's form: references nested, choices with value and label.
fn objects() -> Objects {
    let mut rows: BTreeMap<String, Vec<BTreeMap<String, String>>> = BTreeMap::new();
    for (file, text) in exports() {
        let Some(table) = file.strip_suffix(".csv") else {
            continue;
        };
        let mut lines = text.lines();
        let header: Vec<String> = lines.next().unwrap().split(',').map(str::to_owned).collect();
        // None of these exports has a quoted cell.
        let row = |line: &str| header.iter().cloned().zip(line.split(',').map(str::to_owned)).collect();
        rows.insert(table.to_owned(), lines.map(row).collect());
    }
    let ids = |table: &str, name: &str, also: (&str, &str)| -> Value {
        let fits = |row: &&BTreeMap<String, String>| {
            row["Name"] == name && (also.0.is_empty() || row.get(also.0).is_some_and(|v| v == also.1))
        };
        rows[table]
            .iter()
            .find(fits)
            .map_or(Value::Null, |row| json!({"id": id(row), "name": name, "display": name}))
    };
    let mut out = Objects::new();
    for table in [
        "sites",
        "locations",
        "racks",
        "device-types",
        "devices",
        "power-panels",
        "power-feeds",
    ] {
        let shown = rows[table].iter().map(|row| place_object(table, row, &ids));
        out.insert(table, shown.collect());
    }
    for table in ["power-ports", "power-outlets", "interfaces"] {
        let shown = rows[table].iter().map(|row| part_object(table, row, &ids));
        out.insert(table, shown.collect());
    }
    let cables = rows["cables"].iter().map(|row| cable_object(row, &rows));
    out.insert("cables", cables.collect());
    out
}

type Row = BTreeMap<String, String>;
type Ids<'a> = dyn Fn(&str, &str, (&str, &str)) -> Value + 'a;

fn id(row: &Row) -> u64 {
    row["ID"].parse().unwrap()
}

fn number(text: &str) -> Value {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].parse::<f64>().map_or(Value::Null, |number| json!(number))
}

fn choice(value: &str, label: &str) -> Value {
    json!({"value": value, "label": label})
}

fn place_object(table: &str, row: &Row, ids: &Ids<'_>) -> Value {
    let at = |column: &str| row.get(column).map_or("", String::as_str);
    let site = || ids("sites", at("Site"), ("", ""));
    let rack = || ids("racks", at("Rack"), ("", ""));
    match table {
        "sites" => json!({"id": id(row), "name": at("Name"), "slug": at("Slug"), "status": choice("active", "Active")}),
        "locations" => json!({"id": id(row), "name": at("Name"), "site": site(), "parent": null}),
        "racks" => json!({
            "id": id(row), "name": at("Name"), "site": site(), "location": ids("locations", at("Location"), ("", "")),
            "u_height": number(at("Height")), "starting_unit": 1, "desc_units": false, "max_weight": number(at("Max Weight")),
            "weight_unit": choice("kg", "Kilograms"),
        }),
        "device-types" => json!({
            "id": id(row), "model": at("Device Type"), "manufacturer": {"id": 1, "name": at("Manufacturer")},
            "u_height": number(at("U Height")), "weight": number(at("Weight")), "weight_unit": choice("kg", "Kilograms"),
        }),
        "devices" => {
            let site = site();
            let racks = ids("racks", at("Rack"), ("Site", at("Site")));
            json!({
                "id": id(row), "name": at("Name"), "role": {"id": 1, "name": at("Role"), "slug": "x"},
                "device_type": {"id": 1, "manufacturer": {"id": 1, "name": at("Manufacturer")}, "model": at("Type"), "slug": "x"},
                "site": site, "location": ids("locations", at("Location"), ("", "")), "rack": racks, "position": number(at("Position")),
                "face": choice("front", "Front"), "status": choice(&at("Status").to_lowercase(), at("Status")),
                "oob_ip": if at("OOB IP").is_empty() { Value::Null } else { json!({"id": 1, "address": at("OOB IP")}) },
                "config_context": {"must not": "be asked for"}, "tags": [],
            })
        }
        "power-panels" => json!({"id": id(row), "name": at("Name"), "site": site(), "location": null}),
        _ => json!({
            "id": id(row), "name": at("Name"), "power_panel": ids("power-panels", at("Power panel"), ("", "")), "rack": rack(),
            "type": choice(&at("Type").to_lowercase(), at("Type")), "supply": choice("ac", "AC"),
            "phase": choice("three-phase", "Three-phase"), "voltage": number(at("Voltage")), "amperage": number(at("Amperage")),
            "max_utilization": number(at("Max utilization")), "status": choice("active", "Active"),
        }),
    }
}

fn part_object(table: &str, row: &Row, ids: &Ids<'_>) -> Value {
    let at = |column: &str| row.get(column).map_or("", String::as_str);
    let device = ids("devices", at("Device"), ("", ""));
    match table {
        "power-ports" => json!({
            "id": id(row), "name": at("Name"), "device": device, "type": choice("iec-60320-c20", "C20"),
            "maximum_draw": number(at("Maximum draw")), "allocated_draw": number(at("Allocated draw")),
        }),
        "power-outlets" => json!({
            "id": id(row), "name": at("Name"), "device": device, "type": choice("iec-60320-c19", "C19"),
            "power_port": {"id": 1, "name": at("Power port")}, "feed_leg": choice(at("Feed leg"), at("Feed leg")),
        }),
        _ => {
            let kind = if at("Type").starts_with("NDR") {
                "infiniband-ndr"
            } else {
                "1000base-t"
            };
            json!({
                "id": id(row), "name": at("Name"), "device": device, "type": choice(kind, at("Type")), "enabled": true,
                "wwn": if at("WWN").is_empty() { Value::Null } else { json!(at("WWN")) },
            })
        }
    }
}

fn cable_object(row: &Row, rows: &BTreeMap<String, Vec<Row>>) -> Value {
    let end = |side: &str| -> Value {
        let (device, name) = (&row[&format!("Device {side}")], &row[&format!("Termination {side}")]);
        let tables = [
            ("interfaces", "dcim.interface"),
            ("power-ports", "dcim.powerport"),
            ("power-outlets", "dcim.poweroutlet"),
            ("power-feeds", "dcim.powerfeed"),
        ];
        for (table, kind) in tables {
            let fits = |part: &&Row| part["Name"] == *name && part.get("Device").map_or("", String::as_str) == device;
            if let Some(part) = rows[table].iter().find(fits) {
                let mut object = json!({"id": id(part), "name": name});
                if !device.is_empty() {
                    object["device"] = json!({"id": 1, "name": device});
                }
                return json!([{"object_type": kind, "object_id": id(part), "object": object}]);
            }
        }
        json!([{"object_type": "dcim.interface", "object_id": 9999, "object": {"id": 9999, "name": name, "device": {"id": 77, "name": device}}}])
    };
    json!({
        "id": id(row), "type": "", "a_terminations": end("A"), "b_terminations": end("B"), "label": row["Label"],
        "status": choice("connected", "Connected"),
    })
}

/// Runs the program beside the server, which needs the runtime meanwhile.
async fn run(program: &Program, arguments: Vec<String>) -> crate::program::Finished {
    tokio::task::block_in_place(|| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        program.run(&arguments)
    })
}

fn import(url: &str, more: &[&str]) -> Vec<String> {
    let fixed = [
        "site",
        "import",
        "netbox",
        "--token-file",
        "token",
        "--site",
        "Ashburn 1",
        "--sku-file",
        "skus.yaml",
        "--url",
        url,
    ];
    fixed.iter().chain(more).map(|text| (*text).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_gives_the_same_site_as_the_exports() {
    let program = program();
    let authority = Authority::new("site");
    program.file("ca.pem", &authority.pem);
    let netbox = serve(objects(), ServerFault::None, Some(acceptor(&authority))).await;
    let url = format!("{}/netbox", netbox.url);
    let more = [&["--ca-file", "ca.pem", "--file", "api.yaml"][..], &LETTERS].concat();
    let finished = run(&program, import(&url, &more)).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    let csv = [
        "site",
        "import",
        "netbox",
        "--csv",
        "netbox",
        "--site",
        "Ashburn 1",
        "--sku-file",
        "skus.yaml",
        "--file",
        "csv.yaml",
    ];
    let exported = run(
        &program,
        csv.iter().chain(&LETTERS).map(|text| (*text).to_owned()).collect(),
    )
    .await;
    assert_eq!(exported.code, 0, "{exported:?}");
    let read = |file: &str| std::fs::read_to_string(program.home().join(file)).unwrap();
    assert_eq!(read("api.yaml"), read("csv.yaml"));
    assert!(
        !format!("{finished:?}").contains("abcdefghijkl"),
        "the token is shown: {finished:?}"
    );
    let requests = netbox.requests.lock().unwrap();
    assert!(
        requests
            .iter()
            .all(|(_, authorization)| *authorization == format!("Bearer {TOKEN}"))
    );
    assert!(
        requests
            .iter()
            .any(|(path, _)| path == "/netbox/api/dcim/devices/?limit=500&exclude=config_context"),
        "{requests:?}"
    );
    assert!(
        requests
            .iter()
            .any(|(path, _)| path == "/netbox/api/dcim/devices/?limit=2&offset=2"),
        "{requests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_certificate_is_refused_before_the_token_is_sent() {
    let program = program();
    program.file("ca.pem", Authority::new("one").pem);
    let netbox = serve(objects(), ServerFault::None, Some(acceptor(&Authority::new("other")))).await;
    let finished = run(&program, import(&netbox.url, &["--ca-file", "ca.pem"])).await;
    assert_eq!(finished.code, 6, "{finished:?}");
    assert!(finished.stderr.contains("certificate"), "{finished:?}");
    assert_eq!(netbox.requests.lock().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_a_server_are_reported_and_bounded() {
    let program = program();
    program.file("other", "0123456789\n");
    program.file("none", "\n");
    for (server_fault, code, words) in [
        (
            ServerFault::Elsewhere,
            5,
            "the next page of api/dcim/sites is at https://evil.example",
        ),
        (ServerFault::EndlessPages, 1, "is empty and names a next page"),
        (ServerFault::Forbidden, 5, "403 Forbidden"),
        (ServerFault::Moved, 2, "redirects are not followed"),
        (ServerFault::Endless, 1, "the answer is larger than 64 MiB"),
        (ServerFault::Cut, 1, "is not JSON"),
    ] {
        let netbox = serve(objects(), server_fault, None).await;
        let finished = run(&program, import(&format!("{}/netbox", netbox.url), &[])).await;
        assert_eq!(finished.code, code, "{server_fault:?}: {finished:?}");
        assert!(finished.stderr.contains(words), "{server_fault:?}: {finished:?}");
        assert!(
            !format!("{finished:?}").contains("abcdefghijkl"),
            "{server_fault:?}: the token is shown: {finished:?}"
        );
        let evil = netbox
            .requests
            .lock()
            .unwrap()
            .iter()
            .any(|(path, _)| path.contains("evil"));
        assert!(!evil);
    }
    let netbox = serve(objects(), ServerFault::None, None).await;
    let finished = run(&program, import(&netbox.url, &[])).await;
    assert_eq!(finished.code, 2, "the path /netbox is missing: {finished:?}");
    for token in ["other", "none"] {
        let mut arguments = import(&format!("{}/netbox", netbox.url), &[]);
        arguments[4] = token.to_owned();
        assert_eq!(run(&program, arguments).await.code, 5);
    }
    let finished = run(&program, import("http://netbox.example", &[])).await;
    assert_eq!(finished.code, 2, "{finished:?}");
}
