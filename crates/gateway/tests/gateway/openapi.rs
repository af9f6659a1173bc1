//! The OpenAPI document of the API.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use rackwright_api::{DESCRIPTORS, REST};
use rackwright_gateway::{Gateway, Methods, PeerRights};
use serde_json::Value;
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt as _;

use crate::common::{Scripted, rights};

/// Calls that need no credential.
const OPEN: &[&str] = &["/rackwright.v1.AuthService/RedeemToken"];

fn methods() -> Methods {
    let methods = Methods::new(&[DESCRIPTORS]).expect("descriptors");
    methods.with_openapi(DESCRIPTORS, (REST, "rackwright.v1"), ("Rackwright", "1.2.3"), OPEN)
}

fn document() -> Value {
    methods().openapi().expect("the table has no fault").expect("a source")
}

/// The targets of all references.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_describes_each_path() {
    let document = document();
    assert_eq!(
        (&document["openapi"], &document["info"]["version"]),
        (&"3.1.0".into(), &"1.2.3".into())
    );
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths
        .values()
        .flat_map(|path| path.as_object().expect("operations").values());
    let lines = REST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(operations.count(), lines.count());

    let get = &paths["/v1/nodes/{node}"]["get"];
    assert_eq!(get["operationId"], "NodeService_GetNode");
    assert_eq!(get["parameters"][0]["name"], "node");
    assert_eq!(get["parameters"][1]["name"], "read_mask");
    assert_eq!(
        get["responses"]["200"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/Node"
    );
    let delete = paths["/v1/nodes/{node}"]["delete"]["parameters"]
        .as_array()
        .expect("parameters");
    let names: Vec<&str> = delete.iter().map(|one| one["name"].as_str().expect("a name")).collect();
    let expected = [
        "node",
        "mutation.idempotency_key",
        "mutation.resource_version",
        "Idempotency-Key",
        "If-Match",
    ];
    assert_eq!(names, expected);
    let hold = &paths["/v1/nodes/{node}:hold"]["post"];
    assert_eq!(
        hold["description"],
        "Takes a node out of service and leaves its data alone."
    );
    assert_eq!(
        hold["requestBody"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/HoldNodeRequest"
    );
    assert!(!paths["/v1/nodes:watch"]["get"]["responses"]["200"]["content"]["application/jsonl"].is_null());
    assert!(paths.contains_key("/v1/images/{image}/versions/{version}"), "{paths:?}");

    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let metadata = &schemas["Metadata"]["properties"];
    assert_eq!(metadata["createTime"]["format"], "date-time");
    assert_eq!(metadata["labels"]["additionalProperties"]["type"], "string");
    assert!(
        metadata["uid"]["description"]
            .as_str()
            .is_some_and(|text| text.starts_with("Opaque"))
    );
    assert!(
        schemas["NodeState"]["enum"]
            .as_array()
            .is_some_and(|names| names.contains(&"NODE_STATE_ACTIVE".into()))
    );
}

#[test]
fn each_reference_has_its_schema() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 150, "{}", found.len());
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a reference within the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn known_peers_read_the_document() {
    for (is_known, status) in [(true, StatusCode::OK), (false, StatusCode::UNAUTHORIZED)] {
        let rights = PeerRights {
            reads_openapi: match is_known {
                true => |_| true,
                false => |_| false,
            },
            ..rights()
        };
        let service = Scripted::new(&[], Status::ok(""));
        let gateway = Gateway::new(service, Arc::new(methods()), rights, Arc::new(|| {}));
        let request = Request::builder()
            .method(Method::GET)
            .uri("/openapi.json")
            .body(Body::empty());
        let response = gateway
            .oneshot(request.expect("a request"))
            .await
            .expect("no service fails");
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["content-type"], "application/json");
    }
}

#[test]
fn calls_need_a_certificate_or_a_key_unless_they_are_open() {
    let document = document();
    assert_eq!(
        document["security"],
        serde_json::json!([{"certificate": []}, {"apiKey": []}])
    );
    let schemes = document["components"]["securitySchemes"].as_object().expect("schemes");
    assert_eq!(schemes.keys().collect::<Vec<_>>(), ["certificate", "apiKey"]);
    let mut open = Vec::new();
    for (path, verbs) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in verbs.as_object().expect("verbs") {
            if let Some(security) = operation.get("security") {
                assert_eq!(*security, serde_json::json!([]));
                open.push(format!("{verb} {path}"));
            }
        }
    }
    assert_eq!(open, ["post /v1/credential:redeem"]);
}
