//! `PUT` requests: raw bytes become a stream of requests.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::Message as _;
use rackwright_api::v1;
use rackwright_gateway::Gateway;
use serde_json::json;
use tonic::Status;
use tonic::body::Body;
use tower::{ServiceExt as _, service_fn};

use crate::common::{Answer, LIMIT, Scripted, methods, rights};

const PATH: &str = "/v1/uploads/u1:write?offset=7";

fn accepting(received_bytes: u64) -> Scripted {
    let upload = v1::Upload {
        name: "uploads/u1".to_owned(),
        received_bytes,
        size_bytes: 1000,
    };
    Scripted {
        messages: vec![upload.encode_to_vec().into()],
        ..Scripted::new(&[], Status::ok(""))
    }
}

/// The messages in the body of a gRPC request.
fn messages(mut body: Bytes) -> Vec<v1::WriteUploadRequest> {
    let mut messages = Vec::new();
    while body.has_remaining() {
        assert_eq!(body.get_u8(), 0, "not compressed");
        let length = usize::try_from(body.get_u32()).expect("a length");
        messages.push(v1::WriteUploadRequest::decode(body.split_to(length)).expect("a message"));
    }
    messages
}

#[tokio::test]
async fn the_body_is_sent_in_parts_and_the_first_one_has_name_and_offset() {
    let service = accepting(257);
    let sent = "0123456789".repeat(25);
    let answer = service.rest(Method::PUT, PATH, &[], &sent).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    let shown = json!({"name": "uploads/u1", "receivedBytes": "257", "sizeBytes": "1000"});
    assert_eq!(answer.json(), shown);

    let seen = service.seen();
    assert_eq!(seen.path, "/rackwright.v1.ImageService/WriteUpload");
    assert_eq!(seen.headers["content-type"], "application/grpc");
    let parts = messages(seen.message.expect("a body"));
    assert_eq!((parts[0].name.as_str(), parts[0].offset), ("uploads/u1", 7));
    assert!(parts[1..].iter().all(|part| part.name.is_empty() && part.offset == 0));
    let lengths: Vec<usize> = parts.iter().map(|part| part.data.len()).collect();
    assert_eq!(lengths, [LIMIT, LIMIT, 50]);
    let data: Vec<u8> = parts.into_iter().flat_map(|part| part.data).collect();
    assert_eq!(data, sent.as_bytes());
}

#[tokio::test]
async fn an_empty_body_is_one_message_without_bytes() {
    let service = accepting(7);
    let answer = service.rest(Method::PUT, PATH, &[], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    let parts = messages(service.seen().message.expect("a body"));
    assert_eq!(parts.len(), 1);
    assert_eq!((parts[0].offset, parts[0].data.len()), (7, 0));
}

#[tokio::test]
async fn fields_that_do_not_fit_are_refused() {
    let service = accepting(0);
    for (uri, headers, status, words) in [
        ("/v1/uploads/u1:write?offset=x", vec![], 400, "offset: "),
        (
            "/v1/uploads/u1:write?data=aGk%3D",
            vec![],
            400,
            "data: the body of the request has it",
        ),
        (
            PATH,
            vec![("content-encoding", "gzip")],
            501,
            "requests must not be compressed",
        ),
        ("/v1/uploads/u1", vec![], 405, "this path takes GET"),
    ] {
        let answer = service.rest(Method::PUT, uri, &headers, "abc").await;
        let message = answer.json()["error"]["message"].to_string();
        assert_eq!(answer.status, status, "{uri}: {message}");
        assert!(message.contains(words), "{uri}: {message}");
    }
    assert!(service.is_untouched());
    // `GET` would read an upload with this text as its id.
    let answer = service.rest(Method::POST, PATH, &[], "abc").await;
    assert_eq!(
        (answer.status, &answer.headers["allow"]),
        (StatusCode::METHOD_NOT_ALLOWED, &"GET, PUT".parse().expect("a value"))
    );
}

/// The answer to a `PUT` if the service reads one message and refuses the call.
async fn refused_after_the_first_part(body: Body) -> Answer {
    let service = service_fn(|request: Request<Body>| async move {
        let mut body = request.into_body();
        let first = body.frame().await.expect("a frame").expect("a message");
        let parts = messages(first.into_data().expect("data"));
        assert_eq!(parts[0].offset, 7);
        let refused = Status::invalid_argument("7 is not the end of the received bytes; continue at 9");
        Ok::<Response<Body>, Infallible>(refused.into_http())
    });
    let request = Request::put(PATH).body(body).expect("a request");
    let gateway = Gateway::new(service, methods(), rights(), Arc::new(|| {}));
    let (head, body) = gateway.oneshot(request).await.expect("no service fails").into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.collect().await.expect("a body").to_bytes(),
    }
}

#[tokio::test]
async fn a_call_that_is_refused_before_the_end_of_the_body_is_answered() {
    // The rest of this body never comes.
    let data = Frame::data(Bytes::from(vec![1; 150]));
    let first = tokio_stream::iter([Ok::<_, Infallible>(data)]);
    let frames = tokio_stream::StreamExt::chain(first, tokio_stream::pending());
    let answer = refused_after_the_first_part(Body::new(StreamBody::new(frames))).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.json()["error"],
        json!({
            "code": 400, "status": "INVALID_ARGUMENT",
            "message": "7 is not the end of the received bytes; continue at 9",
        })
    );
}

#[tokio::test]
async fn bytes_before_the_break_of_a_body_reach_the_service() {
    let service = service_fn(|request: Request<Body>| async move {
        let mut body = request.into_body();
        let first = body.frame().await.expect("a frame").expect("a message");
        let parts = messages(first.into_data().expect("data"));
        assert_eq!(parts[0].data, b"abc");
        let broken = body.frame().await.expect("a frame").expect_err("the break");
        Ok::<Response<Body>, Infallible>(broken.into_http())
    });
    let frames = [
        Ok(Frame::data(Bytes::from_static(b"abc"))),
        Err(Status::unavailable("the connection broke")),
    ];
    let body = Body::new(StreamBody::new(tokio_stream::iter(frames)));
    let request = Request::put(PATH).body(body).expect("a request");
    let gateway = Gateway::new(service, methods(), rights(), Arc::new(|| {}));
    let response = gateway.oneshot(request).await.expect("no service fails");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}
