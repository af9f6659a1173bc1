//! REST requests.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Method, StatusCode};
use prost::Message as _;
use rackwright_api::{DESCRIPTORS, REST, v1};
use rackwright_gateway::Methods;
use serde_json::json;
use tonic::Status;

use crate::common::{Scripted, framed, node, not_found};

fn methods_with(table: &str) -> Result<Methods, String> {
    let methods = Methods::new(&[DESCRIPTORS]).expect("descriptors");
    methods
        .with_rest(table, "rackwright.v1")
        .map_err(|error| error.to_string())
}

#[test]
fn each_method_for_members_has_a_path() {
    let methods = methods_with(REST).expect("the table has no fault");
    let with_path: BTreeSet<String> = methods
        .with_rest_paths()
        .map(|name| format!("/{}", name.replace("Service.", "Service/")))
        .collect();
    let without: Vec<&str> = methods.paths().filter(|path| !with_path.contains(*path)).collect();
    let expected = [
        // For agents, and for other control planes.
        "/rackwright.v1.AgentService/ClaimChunks",
        "/rackwright.v1.AgentService/Connect",
        "/rackwright.v1.AgentService/Register",
        "/rackwright.v1.ControlService/ProveDatabase",
        // They stream their requests.
        "/rackwright.v1.FirmwareService/AddFirmware",
        "/rackwright.v1.SiteService/ApplySite",
        "/rackwright.v1.SiteService/PlanSite",
    ];
    assert_eq!(
        without.into_iter().collect::<BTreeSet<_>>(),
        expected.into_iter().collect()
    );
}

#[test]
fn faults_of_a_table_have_their_line() {
    for (table, fault) in [
        (
            "\n# one\nGET /v1/nodes",
            "line 3 of the table of REST paths: it does not have a verb, a path and a method",
        ),
        ("HEAD /v1/nodes NodeService/ListNodes", "HEAD is not GET"),
        (
            "PUT /v1/nodes NodeService/ListNodes",
            "is not a stream of requests with one response",
        ),
        ("PUT /v1/site SiteService/PlanSite", "does not have one field of bytes"),
        (
            "WEBSOCKET /v1/nodes NodeService/WatchNodes",
            "does not stream in both directions",
        ),
        ("GET /v2/nodes NodeService/ListNodes", "does not begin with /v1/"),
        (
            "GET /v1/nodes NodeService/Nothing",
            "there is no method NodeService/Nothing",
        ),
        ("POST /v1/site SiteService/ApplySite", "streams its requests"),
        ("GET /v1/{name=nodes/* NodeService/GetNode", "a { is not closed"),
        ("GET /v1/{name} NodeService/GetNode", "a variable has no pattern"),
        (
            "GET /v1/{nmae=nodes/*} NodeService/GetNode",
            "rackwright.v1.GetNodeRequest has no text nmae",
        ),
        (
            "GET /v1/{page_size=nodes/*} NodeService/ListNodes",
            "has no text page_size",
        ),
        (
            "GET /v1/{name=nodes/*} NodeService/GetNode\nGET /v1/nodes/{name=*} NodeService/ExplainNode",
            "this path has a method already",
        ),
    ] {
        let found = methods_with(table).expect_err(table);
        assert!(found.contains(fault), "{found}");
    }
}

/// The path and the message of the gRPC request of a REST request.
async fn called(verb: Method, uri: &str, headers: &[(&'static str, &str)], body: &str) -> (String, Bytes) {
    // The empty message is an answer of every method.
    let service = Scripted::new(&[v1::Node::default()], Status::ok(""));
    let answer = service.rest(verb, uri, headers, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{uri}: {:?}", answer.body);
    let seen = service.seen();
    (seen.path, seen.message.expect("a message"))
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn paths_queries_headers_and_bodies_make_the_message() {
    let mutation = |key: &str, version: &str| {
        Some(v1::Mutation {
            idempotency_key: key.to_owned(),
            resource_version: version.to_owned(),
        })
    };
    let (path, message) = called(Method::GET, "/v1/nodes/n%2D1", &[], "").await;
    let get = v1::GetNodeRequest {
        name: "nodes/n-1".to_owned(),
        ..v1::GetNodeRequest::default()
    };
    assert_eq!(path, "/rackwright.v1.NodeService/GetNode");
    assert_eq!(message, framed(&get.encode_to_vec()));

    let uri = "/v1/nodes?page_size=7&pageToken=a%3Db&filter=state+%3D+%22active%22&readMask=name,spec";
    let (path, message) = called(Method::GET, uri, &[], "").await;
    let list = v1::ListNodesRequest {
        page_size: 7,
        page_token: "a=b".to_owned(),
        filter: "state = \"active\"".to_owned(),
        read_mask: Some(prost_types::FieldMask {
            paths: vec!["name".to_owned(), "spec".to_owned()],
        }),
        order_by: String::new(),
    };
    assert_eq!(path, "/rackwright.v1.NodeService/ListNodes");
    assert_eq!(v1::ListNodesRequest::decode(&message[5..]).expect("a request"), list);

    // The body, the path and the headers of a changing call.
    let headers = [JSON, ("idempotency-key", "k-1"), ("if-match", "\"42\"")];
    let body = r#"{"reason": "a fan", "mutation": {"resourceVersion": "41"}}"#;
    let (path, message) = called(Method::POST, "/v1/nodes/n1:hold", &headers, body).await;
    let hold = v1::HoldNodeRequest {
        name: "nodes/n1".to_owned(),
        reason: "a fan".to_owned(),
        mutation: mutation("k-1", "42"),
    };
    assert_eq!(path, "/rackwright.v1.NodeService/HoldNode");
    // In the order of the fields' numbers, each once: the audit reads the beginning.
    assert_eq!(message, framed(&hold.encode_to_vec()));

    let uri = "/v1/nodes/n1?mutation.idempotencyKey=k-2";
    let (path, message) = called(Method::DELETE, uri, &[], "").await;
    let delete = v1::DeleteNodeRequest {
        name: "nodes/n1".to_owned(),
        mutation: mutation("k-2", ""),
    };
    assert_eq!(path, "/rackwright.v1.NodeService/DeleteNode");
    assert_eq!(v1::DeleteNodeRequest::decode(&message[5..]).expect("a request"), delete);

    let body = r#"{"node": {"metadata": {"labels": {"rack": "r1"}}}, "updateMask": "labels"}"#;
    let (_, message) = called(Method::PATCH, "/v1/nodes/n1", &[JSON], body).await;
    let update = v1::UpdateNodeRequest::decode(&message[5..]).expect("a request");
    let changed = update.node.expect("a node");
    assert_eq!(changed.name, "nodes/n1");
    assert_eq!(changed.metadata.expect("metadata").labels["rack"], "r1");

    // Names with a colon, with an action and without.
    let (path, _) = called(Method::GET, "/v1/operations/a:wait?timeout=5s", &[], "").await;
    assert_eq!(path, "/rackwright.v1.OperationService/WaitOperation");
    let (path, message) = called(Method::DELETE, "/v1/firmware/sha256:ab", &[], "").await;
    assert_eq!(path, "/rackwright.v1.FirmwareService/RemoveFirmware");
    let removed = v1::RemoveFirmwareRequest::decode(&message[5..]).expect("a request");
    assert_eq!(removed.name, "firmware/sha256:ab");
    let (path, _) = called(Method::DELETE, "/v1/images/noble/versions/sha256:ab", &[], "").await;
    assert_eq!(path, "/rackwright.v1.ImageService/DeleteImage");
}

#[tokio::test]
async fn a_response_has_the_version_of_its_resource() {
    let with_version = v1::Node {
        metadata: Some(v1::Metadata {
            resource_version: "7".to_owned(),
            ..v1::Metadata::default()
        }),
        ..node("nodes/n1")
    };
    let service = Scripted::new(&[with_version], Status::ok(""));
    let answer = service.rest(Method::GET, "/v1/nodes/n1", &[], "").await;
    let shown = json!({"name": "nodes/n1", "metadata": {"resourceVersion": "7"}});
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, shown));
    assert_eq!(answer.headers["etag"], "\"7\"");
}

#[tokio::test]
async fn errors_have_the_form_of_google_rpc_status() {
    for is_early in [false, true] {
        let service = Scripted {
            is_early,
            ..Scripted::new(&[], not_found())
        };
        let answer = service.rest(Method::GET, "/v1/nodes/n9", &[], "").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        let detail = json!({
            "@type": "type.googleapis.com/google.rpc.ResourceInfo",
            "resourceType": "node", "resourceName": "nodes/n9", "description": "does not exist",
        });
        let error =
            json!({"code": 404, "status": "NOT_FOUND", "message": "node n9 does not exist", "details": [detail]});
        assert_eq!(answer.json(), json!({"error": error}));
    }
}

#[tokio::test]
async fn requests_without_a_method_or_with_other_fields_do_not_reach_the_service() {
    let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
    for (verb, uri, headers, status, words) in [
        (Method::GET, "/v1/nothing", vec![], 404, "no method has this path"),
        (Method::GET, "/v1/nodes/", vec![], 404, "no method has this path"),
        (
            Method::GET,
            "/v1/nodes/n1:destroy/x/y",
            vec![],
            404,
            "no method has this path",
        ),
        (Method::DELETE, "/v1/nodes", vec![], 405, "this path takes GET, POST"),
        (
            Method::PUT,
            "/v1/nodes/n1",
            vec![],
            405,
            "this path takes DELETE, GET, PATCH",
        ),
        (
            Method::GET,
            "/v1/nodes?colour=red",
            vec![],
            400,
            "colour: ListNodesRequest has no such field",
        ),
        (Method::GET, "/v1/nodes?page_size=many", vec![], 400, "page_size: "),
        (
            Method::DELETE,
            "/v1/nodes/n1",
            vec![("if-match", "\"\"")],
            400,
            "if-match: it is empty",
        ),
        (
            Method::GET,
            "/v1/nodes?filter=a&filter=b",
            vec![],
            400,
            "filter is given twice",
        ),
        (Method::GET, "/v1/nodes/%ff", vec![], 400, "must be UTF-8"),
        (
            Method::GET,
            "/v1/events:stream?only_new=maybe",
            vec![],
            400,
            "is not true or false",
        ),
        (
            Method::POST,
            "/v1/nodes/n1:hold?reason=fan",
            vec![JSON],
            400,
            "takes its fields from the body",
        ),
        (
            Method::POST,
            "/v1/nodes/n1:hold",
            vec![],
            400,
            "Content-Type: application/json is needed",
        ),
        (
            Method::POST,
            "/v1/nodes/n1:hold",
            vec![("content-type", "text/plain")],
            400,
            "application/json is needed",
        ),
    ] {
        let answer = service.rest(verb.clone(), uri, &headers, "").await;
        assert_eq!(answer.status, status, "{verb} {uri}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], status, "{verb} {uri}");
        assert!(
            error["message"].as_str().is_some_and(|message| message.contains(words)),
            "{verb} {uri}: {error}"
        );
    }
    assert!(service.is_untouched());
    let answer = service.rest(Method::HEAD, "/v1/nodes/n1", &[], "").await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (405, 0));
    // The body is refused when the service reads it.
    let answer = service.rest(Method::DELETE, "/v1/nodes/n1", &[], "{}").await;
    assert_eq!(answer.json()["error"]["message"], "this request takes no body");
}

#[tokio::test]
async fn a_stream_has_a_line_for_each_message_and_for_an_error() {
    let watched = |name: &str| v1::WatchNodesResponse {
        node: Some(node(name)),
        ..v1::WatchNodesResponse::default()
    };
    let mut service = Scripted::new(&[], Status::ok(""));
    service.messages = ["nodes/n1", "nodes/n2"]
        .map(|name| watched(name).encode_to_vec().into())
        .into();
    let answer = service.rest(Method::GET, "/v1/nodes:watch", &[], "").await;
    assert_eq!(
        (answer.status, &answer.headers["content-type"]),
        (StatusCode::OK, &"application/jsonl".parse().expect("a value"))
    );
    let of = |name: &str| json!({"node": {"name": name}});
    assert_eq!(answer.lines(), [of("nodes/n1"), of("nodes/n2")]);

    service.status = not_found();
    let lines = service.rest(Method::GET, "/v1/nodes:watch", &[], "").await.lines();
    assert_eq!((lines.len(), &lines[2]["error"]["status"]), (3, &json!("NOT_FOUND")));
}
