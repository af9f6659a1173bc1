//! Streams of Connect end with what allowed them.

use rackwright_ground::rights;
use tonic::codegen::Bytes;

use super::*;

/// Longest delay until a stream ends after its session.
const AT_ONCE: Duration = Duration::from_secs(1);

type Stream = tokio::task::JoinHandle<Result<Bytes, axum::Error>>;

/// A stream of this method that has been accepted.
async fn open(lab: &Lab, method: &str, mut request: Request<Body>) -> Stream {
    let enveloped = [&[0, 0, 0, 0, 2][..], b"{}"].concat();
    *request.uri_mut() = format!("/rackwright.v1.{method}").parse().unwrap();
    *request.body_mut() = Body::new(axum::body::Body::from(enveloped));
    let kind = HeaderValue::from_static("application/connect+json");
    request.headers_mut().insert(CONTENT_TYPE, kind);
    let response = lab.send(request).await;
    assert_eq!(response.status(), StatusCode::OK);
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 20);
    tokio::spawn(body)
}

/// All that a stream has sent until its end.
async fn ended(stream: Stream) -> String {
    let bytes = tokio::time::timeout(AT_ONCE, stream).await.unwrap().unwrap().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

const EVENTS: &str = "EventService/StreamEvents";

#[tokio::test]
async fn a_stream_ends_with_its_session() {
    let lab = Lab::new().await;
    tokio::spawn(rights::run(lab.core.clone()));
    let session = lab.log_in("vera").await;
    let stream = open(&lab, EVENTS, of_page("/", &session, &json!({}))).await;
    let (_, list) = lab
        .page("/rackwright.v1.SessionService/ListSessions", &session, &json!({}))
        .await;
    let end = json!({"name": list["sessions"][0]["name"], "mutation": {"idempotencyKey": "e"}});
    assert!(!stream.is_finished());
    assert_eq!(
        lab.certified("olga", "SessionService/EndSession", &end).await.0,
        StatusCode::OK
    );
    let text = ended(stream).await;
    assert!(
        text.contains("unauthenticated") && text.contains("of this call has ended"),
        "{text}"
    );
}

#[tokio::test]
async fn a_stream_ends_when_the_role_gives_less() {
    let lab = Lab::new().await;
    tokio::spawn(rights::run(lab.core.clone()));
    let (session, key) = (lab.log_in("olga").await, lab.api_key("olga", None).await);
    let other = lab.log_in("vera").await;
    let mut with_key = of_page("/", "", &json!({}));
    with_key.headers_mut().remove(COOKIE);
    let bearer = HeaderValue::try_from(format!("Bearer {key}")).unwrap();
    with_key.headers_mut().insert(AUTHORIZATION, bearer);
    let streams = [
        open(&lab, EVENTS, of_page("/", &session, &json!({}))).await,
        open(&lab, "NodeService/WatchNodes", of_page("/", &session, &json!({}))).await,
        open(&lab, EVENTS, with_key).await,
    ];
    let of_vera = open(&lab, EVENTS, of_page("/", &other, &json!({}))).await;
    assert!(streams.iter().all(|stream| !stream.is_finished()));
    let mut tx = lab.core.store.write().await.unwrap();
    tx.set_member_role("olga", "viewer").await.unwrap();
    lab.core.commit(tx).await.unwrap();
    for stream in streams {
        let text = ended(stream).await;
        assert!(text.contains("permission_denied"), "{text}");
    }
    assert!(!of_vera.is_finished(), "the stream of another member goes on");
    // The session is still one of a viewer.
    assert_eq!(lab.page(WHO, &session, &json!({})).await.1["role"], "ROLE_VIEWER");
}
