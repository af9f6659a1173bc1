//! Connect requests.

use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use prost::Message as _;
use rackwright_api::v1;
use rackwright_gateway::{Gateway, PeerRights};
use serde_json::json;
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt as _;

use crate::common::{LIMIT, Scripted, framed, methods, node, not_found, rights};

const GET: &str = "/rackwright.v1.NodeService/GetNode";
const WATCH: &str = "/rackwright.v1.NodeService/WatchNodes";
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_unary_call_in_json_is_the_same_call_in_grpc() {
    let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
    let headers = [
        ("content-type", "application/json; charset=utf-8"),
        ("connect-protocol-version", "1"),
        ("connect-timeout-ms", "2500"),
        ("accept-encoding", "gzip"),
        ("x-own", "kept"),
    ];
    let answer = service
        .post(GET, &headers, r#"{"name": "nodes/n1", "readMask": "name,spec"}"#)
        .await;
    assert_eq!(
        (answer.status, answer.json()),
        (StatusCode::OK, json!({"name": "nodes/n1"}))
    );
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.headers["x-served-by"], "one");
    assert_eq!(answer.headers["trailer-x-cost"], "3");
    assert!(
        !answer.headers.keys().any(|name| name.as_str().contains("grpc-")),
        "{:?}",
        answer.headers
    );

    let seen = service.seen();
    let wanted = v1::GetNodeRequest {
        name: "nodes/n1".to_owned(),
        read_mask: Some(prost_types::FieldMask {
            paths: vec!["name".to_owned(), "spec".to_owned()],
        }),
    };
    assert_eq!(seen.message.expect("a message"), framed(&wanted.encode_to_vec()));
    assert_eq!(seen.path, GET);
    let header = |name: &str| seen.headers.get(name).and_then(|value| value.to_str().ok());
    assert_eq!(header("content-type"), Some("application/grpc"));
    assert_eq!(header("te"), Some("trailers"));
    assert_eq!(header("x-own"), Some("kept"));
    for name in [
        "accept-encoding",
        "content-length",
        "connect-timeout-ms",
        "connect-protocol-version",
    ] {
        assert_eq!(header(name), None, "{name}");
    }
}

#[tokio::test]
async fn a_unary_call_in_binary_passes_the_message_unchanged() {
    let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
    let request = v1::GetNodeRequest {
        name: "nodes/n1".to_owned(),
        ..v1::GetNodeRequest::default()
    };
    let headers = [("content-type", "application/proto")];
    let answer = service.post(GET, &headers, request.encode_to_vec()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/proto");
    assert_eq!(v1::Node::decode(answer.body).expect("a node").name, "nodes/n1");
    assert_eq!(
        service.seen().message.expect("a message"),
        framed(&request.encode_to_vec())
    );
}

#[tokio::test]
async fn an_error_has_its_code_its_http_status_and_its_details() {
    for is_early in [false, true] {
        let service = Scripted {
            is_early,
            ..Scripted::new(&[], not_found())
        };
        for content_type in ["application/json", "application/proto"] {
            let answer = service.post(GET, &[("content-type", content_type)], "").await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND);
            assert_eq!(answer.headers["content-type"], "application/json");
            let error = answer.json();
            assert_eq!(
                (&error["code"], &error["message"]),
                (&json!("not_found"), &json!("node n9 does not exist"))
            );
            let detail = &error["details"][0];
            assert_eq!(detail["type"], "google.rpc.ResourceInfo");
            let debug = json!({"resourceType": "node", "resourceName": "nodes/n9", "description": "does not exist"});
            assert_eq!(detail["debug"], debug);
            assert!(
                detail["value"]
                    .as_str()
                    .is_some_and(|value| !value.is_empty() && !value.contains('='))
            );
        }
    }
}

#[tokio::test]
async fn faulty_requests_are_refused_with_the_place_of_the_fault() {
    let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
    for (body, words) in [
        (r#"{"name": "nodes/n1", "nmae": 1}"#, "nmae"),
        (r#"{"name": 7}"#, "expected a string at line 1"),
        (r#"{"name": "a"} trailing"#, "trailing characters at line 1 column 15"),
        ("{", "EOF while parsing"),
        (r#""text""#, "invalid type"),
    ] {
        let answer = service.post(GET, &[JSON], body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        let error = answer.json();
        assert_eq!(error["code"], "invalid_argument", "{body}");
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.starts_with("the JSON of the request: ") && message.contains(words),
            "{message}"
        );
    }
    // An empty body is the empty message.
    assert_eq!(service.post(GET, &[JSON], "").await.status, StatusCode::OK);
    // The text of an error is cut.
    let answer = service
        .post(GET, &[JSON], format!(r#"{{"{}": 1}}"#, "x".repeat(LIMIT - 10)))
        .await;
    assert_eq!(answer.json()["code"], "invalid_argument");
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(LIMIT));
    let answer = service.post(GET, &[JSON], long).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        answer.json()["message"],
        "the message of this call has at most 100 bytes"
    );
}

#[tokio::test]
async fn requests_that_connect_does_not_know_do_not_reach_the_service() {
    let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
    let stream = ("content-type", "application/connect+json");
    for (path, headers, code, words) in [
        (
            "/rackwright.v1.NodeService/Nothing",
            vec![JSON],
            "unimplemented",
            "does not exist",
        ),
        (
            "/rackwright.v1.SiteService/ApplySite",
            vec![JSON],
            "unimplemented",
            "streams its requests",
        ),
        (
            GET,
            vec![JSON, ("content-encoding", "br")],
            "unimplemented",
            "content-encoding: of the compressions, only gzip",
        ),
        (
            GET,
            vec![JSON, ("connect-protocol-version", "2")],
            "invalid_argument",
            "version 1",
        ),
        (
            GET,
            vec![JSON, ("grpc-timeout", "1m")],
            "invalid_argument",
            "grpc-timeout",
        ),
        (
            GET,
            vec![JSON, ("connect-timeout-ms", "soon")],
            "invalid_argument",
            "number of milliseconds",
        ),
    ] {
        let answer = service.post(path, &headers, "{}").await;
        let error = answer.json();
        assert_eq!(error["code"], code, "{path}: {error}");
        assert!(
            error["message"].as_str().is_some_and(|message| message.contains(words)),
            "{path}: {error}"
        );
    }
    let answer = service
        .post("/rackwright.v1.NodeService/Nothing", &[stream], framed(b"{}"))
        .await;
    assert_eq!(
        answer.status,
        StatusCode::OK,
        "a stream has its error in its last message"
    );
    let messages = answer.messages();
    assert_eq!((messages.len(), messages[0].0), (1, 2));
    assert_eq!(messages[0].1["error"]["code"], "unimplemented");
    for (path, header, wanted) in [
        (WATCH, JSON, "application/connect+json"),
        (GET, stream, "application/json"),
    ] {
        let answer = service.post(path, &[header], "{}").await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{path}");
        let error = answer.json();
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(message.contains(wanted), "{path}: {error}");
    }
    assert!(service.is_untouched());
}

fn compressed(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(message).expect("memory");
    encoder.finish().expect("memory")
}

#[tokio::test]
async fn compressed_requests_are_the_same_requests_within_the_same_limits() {
    let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
    let gzip = ("content-encoding", "gzip");
    let request = v1::GetNodeRequest {
        name: "nodes/n1".to_owned(),
        ..v1::GetNodeRequest::default()
    };
    let (json, binary) = (r#"{"name": "nodes/n1"}"#, request.encode_to_vec());
    for (content_type, body) in [
        ("application/json", json.as_bytes()),
        ("application/proto", &binary[..]),
    ] {
        let headers = [("content-type", content_type), gzip];
        let answer = service.post(GET, &headers, compressed(body)).await;
        assert_eq!(answer.status, StatusCode::OK, "{content_type}: {:?}", answer.body);
        let seen = service.seen().message.expect("a message");
        assert_eq!(seen, framed(&binary), "{content_type}");
    }
    let answer = service
        .rest(Method::POST, "/v1/nodes/n1:hold", &[JSON, gzip], compressed(b"{}"))
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);

    for (body, code) in [
        (compressed(&vec![b' '; 8 * LIMIT]), "resource_exhausted"),
        (compressed(b"{}")[..15].to_vec(), "invalid_argument"),
        (b"{}".to_vec(), "invalid_argument"),
    ] {
        let error = service.post(GET, &[JSON, gzip], body).await.json();
        assert_eq!(error["code"], code, "{error}");
    }
}

#[tokio::test]
async fn long_compressed_requests_are_read_in_the_background() {
    let limits = PeerRights {
        limit: |_, _| 8 << 20,
        ..rights()
    };
    // Digits without a pattern stay long, and equal ones become short.
    let digits: String = (1..3_000u64).map(|n| (n * n * 7_919 % 10_007).to_string()).collect();
    for name in [digits, "7".repeat(100_000)] {
        let request = v1::GetNodeRequest {
            name,
            ..v1::GetNodeRequest::default()
        };
        let (json, binary) = (json!({ "name": request.name }).to_string(), request.encode_to_vec());
        for (content_type, body) in [
            ("application/json", json.as_bytes()),
            ("application/proto", &binary[..]),
        ] {
            let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
            let gateway = Gateway::new(service.clone(), methods(), limits, Arc::new(|| {}));
            let request = Request::post(GET).header("content-type", content_type);
            let request = request.header("content-encoding", "gzip");
            let body = http_body_util::Full::new(Bytes::from(compressed(body)));
            let request = request.body(Body::new(body)).expect("a request");
            let Ok(response) = gateway.oneshot(request).await;
            assert_eq!(response.status(), StatusCode::OK, "{content_type}");
            let seen = service.seen().message.expect("a message");
            assert_eq!(seen, framed(&binary), "{content_type}");
        }
    }
}

#[tokio::test]
async fn a_stream_takes_a_compressed_request_if_the_header_says_so() {
    let service = Scripted::new(&[], Status::ok(""));
    let enveloped = |flags: u8, message: &[u8]| {
        let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
        [&[flags][..], &length, message].concat()
    };
    let headers = [
        ("content-type", "application/connect+json"),
        ("connect-content-encoding", "gzip"),
    ];
    let filter = br#"{"filter": "state = failed"}"#;
    let wanted = v1::WatchNodesRequest {
        filter: "state = failed".to_owned(),
    };
    for body in [enveloped(1, &compressed(filter)), enveloped(0, filter)] {
        let answer = service.post(WATCH, &headers, body).await;
        assert_eq!(answer.status, StatusCode::OK);
        let seen = service.seen().message.expect("a message");
        assert_eq!(seen, framed(&wanted.encode_to_vec()), "{:?}", answer.messages());
    }
    let messages = service.post(WATCH, &headers, enveloped(1, filter)).await.messages();
    assert_eq!(messages[0].1["error"]["code"], "invalid_argument", "{messages:?}");
}

#[tokio::test]
async fn a_server_stream_ends_with_its_status() {
    let watched = |name: &str| v1::WatchNodesResponse {
        node: Some(node(name)),
        ..v1::WatchNodesResponse::default()
    };
    let mut service = Scripted::new(&[], Status::ok(""));
    service.messages = ["nodes/n1", "nodes/n2"]
        .map(|name| watched(name).encode_to_vec().into())
        .into();
    let json_stream = ("content-type", "application/connect+json");
    let answer = service.post(WATCH, &[json_stream], framed(b"{}")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/connect+json");
    let of = |name: &str| json!({"node": {"name": name}});
    let end = json!({"metadata": {"x-cost": ["3"]}});
    assert_eq!(answer.messages(), [(0, of("nodes/n1")), (0, of("nodes/n2")), (2, end)]);

    service.status = not_found();
    let answer = service.post(WATCH, &[json_stream], framed(b"{}")).await;
    let messages = answer.messages();
    assert_eq!((answer.status, messages.len()), (StatusCode::OK, 3));
    assert_eq!(messages[2].1["error"]["code"], "not_found");
    assert_eq!(messages[2].1["error"]["details"][0]["type"], "google.rpc.ResourceInfo");

    for (body, words) in [
        (Bytes::from_static(b"\0\0\0"), "ends before its message"),
        (Bytes::from_static(b"\0\0\0\0\x09{}"), "ends before its message"),
        (
            Bytes::from_static(b"\x01\0\0\0\x02{}"),
            "Connect-Content-Encoding does not say how",
        ),
        (Bytes::from_static(b"\0\0\0\0\x02{}\0\0\0\0\0"), "takes one message"),
    ] {
        let messages = service.post(WATCH, &[json_stream], body).await.messages();
        let error = &messages[0].1["error"];
        assert!(
            error["message"].as_str().is_some_and(|message| message.contains(words)),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_time_out() {
    let service = Scripted {
        hangs: true,
        ..Scripted::new(&[node("nodes/n1")], Status::ok(""))
    };
    let timeout = ("connect-timeout-ms", "2500");
    let answer = service.post(GET, &[JSON, timeout], "{}").await;
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (StatusCode::GATEWAY_TIMEOUT, &json!("deadline_exceeded"))
    );
    let watched = v1::WatchNodesResponse {
        node: Some(node("nodes/n1")),
        ..v1::WatchNodesResponse::default()
    };
    let service = Scripted {
        messages: vec![watched.encode_to_vec().into()],
        ..service
    };
    let stream = ("content-type", "application/connect+json");
    let messages = service.post(WATCH, &[stream, timeout], framed(b"{}")).await.messages();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(messages[1].1["error"]["code"], "deadline_exceeded");
}

/// The services decide about the caller before the body of a request is read.
#[tokio::test]
async fn a_refused_request_is_not_read() {
    struct Unread;

    impl http_body::Body for Unread {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            panic!("the body is read")
        }
    }

    let service = Scripted {
        refuses: true,
        ..Scripted::new(&[], Status::unauthenticated("no certificate"))
    };
    let request = Request::post(GET).header("content-type", "application/json");
    let answer = service.send(request.body(Body::new(Unread)).expect("a request")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        answer.json(),
        json!({"code": "unauthenticated", "message": "no certificate"})
    );
}

#[tokio::test]
async fn grpc_requests_pass_unchanged() {
    let service = Scripted::new(&[], Status::ok(""));
    let body = framed(b"anything");
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;charset=utf-8",
    ] {
        let request = Request::post(GET).header("content-type", content_type);
        let request = request.body(Body::new(http_body_util::Full::new(body.clone())));
        let gateway = Gateway::new(service.clone(), methods(), rights(), Arc::new(|| {}));
        let response = gateway
            .oneshot(request.expect("a request"))
            .await
            .expect("no service fails");
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let seen = service.seen();
        assert_eq!(seen.message.expect("a body"), body);
        assert_eq!(seen.headers["content-type"], content_type);
    }
}

/// A page of another site makes a browser send requests with its user's certificate.
#[tokio::test]
async fn requests_of_other_forms_and_of_other_sites_do_not_reach_the_service() {
    let service = Scripted::new(&[], Status::ok(""));
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/grpc-web",
        "application/grpcx",
    ] {
        let answer = service.post(GET, &[("content-type", content_type)], framed(b"")).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{content_type}");
    }
    assert_eq!(
        service.post(GET, &[], framed(b"")).await.status,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    let answer = service
        .rest(Method::GET, GET, &[("content-type", "application/grpc")], "")
        .await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    for (site, status) in [
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 200),
        ("none", 200),
    ] {
        let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
        let header = ("sec-fetch-site", site);
        let answers = [
            service.post(GET, &[JSON, header], "{}").await.status,
            service.rest(Method::GET, "/v1/nodes/n1", &[header], "").await.status,
            service.rest(Method::GET, "/openapi.json", &[header], "").await.status,
        ];
        // These methods have no OpenAPI document.
        let document = if status == 200 { 404 } else { status };
        assert_eq!(
            answers.map(|status| status.as_u16()),
            [status, status, document],
            "{site}"
        );
        assert_eq!(service.is_untouched(), status == 403, "{site}");
    }
    assert!(service.is_untouched());
}

#[tokio::test]
async fn what_the_gateway_refuses_itself_is_counted() {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let on_refusal = Arc::new(move || _ = count.fetch_add(1, Ordering::Relaxed));
    let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
    let gateway = Gateway::new(service.clone(), methods(), rights(), on_refusal);
    for (path, header, expected) in [
        ("/v1/nothing", JSON, 1),
        ("/rackwright.v1.NodeService/Nothing", JSON, 2),
        (GET, ("content-type", "text/html"), 3),
        (GET, ("content-type", "application/grpc"), 3),
    ] {
        let request = Request::post(path).header(header.0, header.1).body(Body::empty());
        let response = gateway.clone().oneshot(request.expect("a request")).await;
        response.expect("no service fails");
        assert_eq!(refused.load(Ordering::Relaxed), expected, "{path} {header:?}");
    }
}

#[tokio::test]
async fn the_json_of_a_request_is_limited_more_than_its_binary_form() {
    let limits = PeerRights {
        limit: |_, _| 8 << 20,
        reads_openapi: |_| true,
    };
    for (content_type, is_refused) in [("application/json", true), ("application/proto", false)] {
        let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
        let gateway = Gateway::new(service, methods(), limits, Arc::new(|| {}));
        let body = http_body_util::Full::new(bytes::Bytes::from(vec![b' '; (1 << 20) + 1]));
        let request = Request::post(GET)
            .header("content-type", content_type)
            .body(Body::new(body));
        let response = gateway
            .oneshot(request.expect("a request"))
            .await
            .expect("no service fails");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert_eq!(text.contains("send less at once"), is_refused, "{content_type}: {text}");
    }
}

#[tokio::test]
async fn long_json_is_the_same_call_as_short_json() {
    let limits = PeerRights {
        limit: |_, _| 8 << 20,
        reads_openapi: |_| true,
    };
    for length in [10, 16 << 10, 600_000] {
        let name = "n".repeat(length);
        let service = Scripted::new(&[node("nodes/n1")], Status::ok(""));
        let gateway = Gateway::new(service.clone(), methods(), limits, Arc::new(|| {}));
        let calls = (0..8).map(|_| {
            let body = http_body_util::Full::new(bytes::Bytes::from(format!("{{\"name\": \"{name}\"}}")));
            let request = Request::post(GET).header(JSON.0, JSON.1).body(Body::new(body));
            gateway.clone().oneshot(request.expect("a request"))
        });
        for answer in futures::future::join_all(calls).await {
            assert_eq!(answer.expect("no service fails").status(), 200, "{length}");
        }
        let request = v1::GetNodeRequest {
            name,
            ..v1::GetNodeRequest::default()
        };
        assert_eq!(
            service.seen().message.expect("a message"),
            framed(&request.encode_to_vec())
        );

        let body = http_body_util::Full::new(bytes::Bytes::from("[".repeat(length)));
        let request = Request::post(GET).header(JSON.0, JSON.1).body(Body::new(body));
        let answer = gateway.oneshot(request.expect("a request")).await;
        assert_eq!(answer.expect("no service fails").status(), 400, "{length}");
    }
}
