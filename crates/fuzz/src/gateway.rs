//! Requests to the API in the forms that the gateway reads.

use std::sync::{Arc, LazyLock};

use rackwright_api::{BARE_DESCRIPTORS, REST};
use rackwright_gateway::Methods;
use rackwright_gateway::fuzzing::{answered, are_requests, heard};

static METHODS: LazyLock<Arc<Methods>> = LazyLock::new(|| {
    let methods = Methods::new(&[BARE_DESCRIPTORS]).expect("descriptors");
    Arc::new(
        methods
            .with_rest(REST, "rackwright.v1")
            .expect("the table of REST paths"),
    )
});

/// A REST or Connect request gets the same answer each time, and never the one of a fault of the server. What reaches a
/// service is framed as gRPC messages. Of JSON, of paths and of raw bytes, they are messages of the method.
pub(crate) fn request(bytes: &[u8]) {
    let answer = |result| match result {
        Ok(answer) => answer,
        Err(error) => panic!("{error}"),
    };
    let Some(outcome) = answer(answered(&METHODS, bytes)) else {
        return;
    };
    let text = String::from_utf8_lossy(&outcome.body);
    // The connection behind this request is none that could become a WebSocket.
    let is_fault = outcome.status == 500 && !text.contains("cannot become a WebSocket");
    assert!(!is_fault, "{text}");
    if let Some((path, read)) = &outcome.read {
        let are_requests = are_requests(&METHODS, path, read);
        // Binary messages pass as they are.
        let is_binary = bytes.windows(5).any(|word| word.eq_ignore_ascii_case(b"proto"));
        assert!(are_requests.is_some_and(|are| are || is_binary), "{path} {read:?}");
    }
    assert_eq!(answer(answered(&METHODS, bytes)).as_ref(), Some(&outcome));
}

/// What a client sends over a WebSocket reaches the service as messages of the method, or not at all.
pub(crate) fn web_socket(bytes: &[u8]) {
    let (path, messages) = match heard(&METHODS, bytes) {
        Ok(heard) => heard,
        Err(error) => panic!("{error}"),
    };
    for message in messages {
        assert_eq!(are_requests(&METHODS, &path, &message), Some(true), "{message:?}");
    }
}
