//! The same API by Connect and by REST: each call has the result of the call by gRPC, and curl is a client.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use rackwright_api::{REST, v1};
use rackwright_lab as lab;
use rackwright_tests::site::Site;
use serde_json::{Value, json};
use tonic::Code;

use crate::client::{Api, Method, SERVER, authority, enrolment, methods, start};

const JSON: &str = "application/json";
const JSON_STREAM: &str = "application/connect+json";
/// A stream that is silent for this long after its headers is open.
const SILENCE: Duration = Duration::from_millis(300);

/// The name of a gRPC code in Connect, from the code's own name.
fn name(code: Code) -> String {
    match code {
        // The one code that Connect spells in another way.
        Code::Cancelled => "canceled".to_owned(),
        code => format!("{code:?}").chars().fold(String::new(), |mut name, letter| {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
            name
        }),
    }
}

fn enveloped(message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).expect("a short message"));
    out.put(message);
    out.freeze()
}

/// The first message of a stream, with its flags. `None`: the stream is open and silent.
async fn first_message(response: http::Response<tonic::body::Body>) -> Option<(u8, Value)> {
    let (mut body, mut read) = (response.into_body(), BytesMut::new());
    loop {
        if let Some(prefix) = read.get(..5) {
            let length = u32::from_be_bytes(prefix[1..5].try_into().expect("four bytes")) as usize;
            if let Some(message) = read.get(5..5 + length) {
                return Some((prefix[0], serde_json::from_slice(message).expect("JSON")));
            }
        }
        let frame = tokio::time::timeout(SILENCE, body.frame()).await.ok()?;
        let frame = frame.expect("a last message").expect("an answer");
        read.extend_from_slice(&frame.into_data().expect("Connect has no trailers"));
    }
}

/// The result of a call: "ok", or the name of the error.
async fn result(api: &Api, method: &Method, message: &Value) -> String {
    let of = |value: &Value| value["code"].as_str().expect("a code").to_owned();
    let message = message.to_string();
    if method.streams_responses {
        let response = api
            .post(&method.path(), JSON_STREAM, enveloped(message.as_bytes()))
            .await;
        assert_eq!(response.status(), 200, "{}", method.path());
        return match first_message(response).await {
            Some((2, end)) if !end["error"].is_null() => of(&end["error"]),
            _ => "ok".to_owned(),
        };
    }
    let response = api.post(&method.path(), JSON, message).await;
    let is_ok = response.status().is_success();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let value: Value = serde_json::from_slice(&body).expect("JSON");
    if is_ok { "ok".to_owned() } else { of(&value) }
}

#[test]
fn each_call_by_connect_has_the_result_of_grpc() {
    lab::run_test(
        "connect::each_call_by_connect_has_the_result_of_grpc",
        async |namespace| {
            let (_lab, site, operator) = start(&namespace).await;
            let viewer = Api::of_cli(&site.viewer("guest"));
            let anonymous = Api::connect(&authority(&site.dir().join("cli")), None);
            let mut compared = 0;
            for method in methods().iter().filter(|method| !method.streams_requests) {
                for (caller, api) in [("anonymous", &anonymous), ("viewer", &viewer), ("operator", &operator)] {
                    let by_grpc = api.call(&method.path(), Vec::new()).await;
                    let by_grpc = name(by_grpc.map_or_else(|status| status.code(), |_| Code::Ok));
                    assert_eq!(
                        result(api, method, &json!({})).await,
                        by_grpc,
                        "{} as {caller}",
                        method.path()
                    );
                    compared += 1;
                }
            }
            assert!(compared > 250, "{compared}");
            // Calls that stream their requests need gRPC.
            for method in methods().iter().filter(|method| method.streams_requests) {
                assert_eq!(
                    result(&operator, method, &json!({})).await,
                    "unimplemented",
                    "{}",
                    method.path()
                );
            }
            answers_have_the_same_content(&operator).await;
        },
    );
}

/// The result of a REST request: "ok", or the name of the error.
async fn rest_result(api: &Api, verb: &str, path: &str) -> String {
    let response = api.send(verb, path, JSON, "").await;
    if response.status().is_success() {
        return "ok".to_owned();
    }
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let value: Value = serde_json::from_slice(&body).expect("JSON");
    let name = value["error"]["status"]
        .as_str()
        .expect("a status")
        .to_ascii_lowercase();
    name.replace("cancelled", "canceled")
}

#[test]
fn each_path_of_the_table_is_the_call_of_its_method() {
    lab::run_test(
        "connect::each_path_of_the_table_is_the_call_of_its_method",
        async |namespace| {
            let (_lab, site, operator) = start(&namespace).await;
            let viewer = Api::of_cli(&site.viewer("guest"));
            let all = methods();
            // Raw bytes and WebSockets have no call of Connect.
            let without = ["#", "PUT ", "WEBSOCKET "];
            let is_compared = |line: &&str| !line.is_empty() && !without.iter().any(|start| line.starts_with(start));
            let lines = REST.lines().filter(is_compared);
            let mut compared = 0;
            for line in lines {
                let words: Vec<&str> = line.split_whitespace().collect();
                let method = all
                    .iter()
                    .find(|method| method.path() == format!("/rackwright.v1.{}", words[2]));
                let method = method.unwrap_or_else(|| panic!("{line}: no such method"));
                // A variable {FIELD=nodes/*} is the field FIELD with the value nodes/none.
                let (path, message) = match words[1].split_once('{') {
                    None => (words[1].to_owned(), json!({})),
                    Some((before, rest)) => {
                        let (variable, after) = rest.split_once('}').expect("a closed variable");
                        let (field, pattern) = variable.split_once('=').expect("a pattern");
                        let value = pattern.replace('*', "none");
                        let message = match field.split_once('.') {
                            None => json!({ field: value }),
                            Some((outer, inner)) => json!({ outer: { inner: value } }),
                        };
                        (format!("{before}{value}{after}"), message)
                    }
                };
                for (caller, api) in [("viewer", &viewer), ("operator", &operator)] {
                    let by_connect = result(api, method, &message).await;
                    assert_eq!(
                        rest_result(api, words[0], &path).await,
                        by_connect,
                        "{line} as {caller}"
                    );
                    compared += 1;
                }
            }
            assert!(compared > 200, "{compared}");
        },
    );
}

async fn answers_have_the_same_content(operator: &Api) {
    operator
        .nodes()
        .enroll_node(enrolment("n1", &[("rack", "r7")]))
        .await
        .expect("enrolled");
    let request = v1::GetNodeRequest {
        name: "nodes/n1".to_owned(),
        read_mask: None,
    };
    let node = operator.nodes().get_node(request).await.expect("a node").into_inner();
    let path = "/rackwright.v1.NodeService/GetNode";
    let response = operator.post(path, JSON, r#"{"name": "nodes/n1"}"#).await;
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let shown: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(shown["name"], node.name);
    assert_eq!(shown["metadata"]["labels"], json!({"rack": "r7"}));
    let metadata = node.metadata.expect("metadata");
    assert_eq!(shown["metadata"]["resourceVersion"], metadata.resource_version);
    let created = metadata.create_time.expect("a time").to_string();
    assert_eq!(shown["metadata"]["createTime"], created);
    let absent = operator.post(path, JSON, r#"{"name": "nodes/n9"}"#).await;
    assert_eq!(absent.status(), 404);
    let body = absent.into_body().collect().await.expect("a body").to_bytes();
    let error: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(error["details"][0]["debug"]["resourceName"], "n9", "{error}");
}

/// The files of a login, as curl takes them.
fn files(login: &Path) -> [PathBuf; 2] {
    let files = std::fs::read_dir(login).expect("a login").flatten();
    let (mut authority, mut own) = (None, None);
    for path in files.map(|file| file.path()) {
        match path.to_string_lossy().as_ref() {
            name if name.ends_with(".ca.pem") => authority = Some(path),
            name if name.ends_with(".pem") => own = Some(path),
            _ => {}
        }
    }
    [authority, own].map(|path| path.expect("a file of the login"))
}

fn curl(site: &Site) -> Command {
    let [authority, own] = files(&site.dir().join("cli"));
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--http2", "--no-buffer", "--max-time", "20"]);
    curl.arg("--cacert").arg(authority).arg("--cert").arg(&own);
    curl.arg("--key").arg(own);
    curl
}

#[test]
fn curl_enrols_a_node_and_watches() {
    lab::run_test("connect::curl_enrols_a_node_and_watches", async |namespace| {
        let (_lab, site, operator) = start(&namespace).await;
        let post = |method: &str, body: &Value| {
            let mut curl = curl(&site);
            curl.args(["--write-out", "\n%{http_code}", "--json", &body.to_string()]);
            curl.arg(format!("{SERVER}/rackwright.v1.{method}"));
            let output = curl.output().expect("curl runs");
            let text = String::from_utf8(output.stdout).expect("text");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let (answer, status) = text.rsplit_once('\n').expect("a status");
            let answer: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
            (status.to_owned(), answer)
        };
        let enrolment = json!({
            "node_id": "n1",
            "spec": {"bmc": {"address": "https://10.77.0.1:9", "username": "admin", "password": "guess-this-one"}},
            "mutation": {"idempotencyKey": "by-curl-1"},
        });
        let (status, operation) = post("NodeService/EnrollNode", &enrolment);
        assert_eq!(status, "200", "{operation}");
        assert_eq!(
            post("NodeService/EnrollNode", &enrolment),
            (status, operation),
            "the same request again"
        );
        let (status, error) = post(
            "NodeService/EnrollNode",
            &json!({"node_id": "N 1", "mutation": {"idempotencyKey": "by-curl-2"}}),
        );
        assert_eq!(
            (status.as_str(), &error["code"]),
            ("400", &json!("invalid_argument")),
            "{error}"
        );
        let fields = &error["details"][0]["debug"]["fieldViolations"];
        assert_eq!(fields[0]["field"], "node_id", "{error}");

        by_rest(&site);
        watched(&site);
        drop(operator);
    });
}

/// REST: the same node, a change of another version than the present one, and the OpenAPI document.
fn by_rest(site: &Site) {
    let rest = |verb: &str, path: &str, further: &[&str]| {
        let mut curl = curl(site);
        curl.args(["--request", verb, "--write-out", "\n%{http_code} %header{etag}"]);
        curl.args(further).arg(format!("{SERVER}{path}"));
        let output = curl.output().expect("curl runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let (answer, status) = text.rsplit_once('\n').expect("a status");
        let answer: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        let (status, tag) = status.split_once(' ').expect("a status and a tag");
        (status.to_owned(), tag.to_owned(), answer)
    };
    let (status, tag, node) = rest("GET", "/v1/nodes/n1", &[]);
    assert_eq!((status.as_str(), &node["name"]), ("200", &json!("nodes/n1")), "{node}");
    let version = node["metadata"]["resourceVersion"].as_str().expect("a version");
    assert_eq!(tag, format!("\"{version}\""));
    let stale = ["--header", "If-Match: \"0\"", "--header", "Idempotency-Key: by-curl-3"];
    let (status, _, error) = rest("DELETE", "/v1/nodes/n1", &stale);
    assert_eq!(
        (status.as_str(), &error["error"]["status"]),
        ("409", &json!("ABORTED")),
        "{error}"
    );

    // A call that changes nothing with a version does not ignore one.
    let invitation = r#"{"member": "by-curl", "role": "ROLE_VIEWER"}"#;
    let versioned = [
        "--header",
        "If-Match: \"1\"",
        "--header",
        "Idempotency-Key: by-curl-5",
        "--json",
        invitation,
    ];
    let (status, _, error) = rest("POST", "/v1/tokens", &versioned);
    assert_eq!(status, "400", "{error}");
    let message = error["error"]["message"].as_str().expect("a message");
    assert!(message.contains("leave the version (If-Match) out"), "{message}");
    let (_, _, tokens) = rest("GET", "/v1/tokens", &[]);
    assert!(!tokens.to_string().contains("by-curl"), "{tokens}");

    // The audit has the whole request of a call with fields in path, headers and body.
    let body = r#"{"node": {"metadata": {"labels": {"rack": "by-rest"}}}, "updateMask": "metadata.labels"}"#;
    let further = ["--header", "Idempotency-Key: by-curl-4", "--json", body];
    let (status, tag, node) = rest("PATCH", "/v1/nodes/n1", &further);
    assert_eq!(status, "200", "{node}");
    assert_eq!(node["metadata"]["labels"]["rack"], "by-rest", "{node}");
    assert_eq!(node["metadata"]["resourceVersion"], tag.trim_matches('"'));
    let records = site.json(["audit", "list", "--method", "NodeService/UpdateNode"]);
    let records = records.as_array().expect("a list");
    let record = records.first().expect("a record of the call");
    let request = record["request"].as_str().expect("the request");
    assert_eq!(record["target"], "nodes/n1", "{record}");
    for part in ["by-rest", "nodes/n1"] {
        assert!(request.contains(part), "{part} is not in {request}");
    }

    let (status, _, document) = rest("GET", "/openapi.json", &[]);
    assert_eq!((status.as_str(), &document["openapi"]), ("200", &json!("3.1.0")));
    let [authority, _] = files(&site.dir().join("cli"));
    let mut anonymous = Command::new("curl");
    anonymous.args([
        "--silent",
        "--http2",
        "--write-out",
        "%{http_code}",
        "--output",
        "/dev/null",
    ]);
    anonymous
        .arg("--cacert")
        .arg(authority)
        .arg(format!("{SERVER}/openapi.json"));
    assert_eq!(anonymous.output().expect("curl runs").stdout, b"401");
}

/// A stream: an envelope for each node, as long as curl reads.
fn watched(site: &Site) {
    let mut watch = curl(site);
    watch.args([
        "--header",
        "Content-Type: application/connect+json",
        "--data-binary",
        "@-",
        "--max-time",
        "3",
    ]);
    watch.arg(format!("{SERVER}/rackwright.v1.NodeService/WatchNodes"));
    let mut watch = watch
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl runs");
    std::io::Write::write_all(&mut watch.stdin.take().expect("its input"), &enveloped(b"{}")).expect("written");
    let output = watch.wait_with_output().expect("curl ends");
    let length = u32::from_be_bytes(output.stdout[1..5].try_into().expect("four bytes")) as usize;
    let first: Value = serde_json::from_slice(&output.stdout[5..5 + length]).expect("JSON");
    assert_eq!(first["node"]["name"], "nodes/n1", "{first}");
}
