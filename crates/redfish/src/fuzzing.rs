//! What the fuzzer reaches of the insides: the functions that the client itself calls, without the network.

use serde_json::Value;

use crate::address::BmcAddress;
use crate::json;
use crate::settings::Limits;
use crate::sse::Parser;

/// A body as the client takes it; none where it refuses it.
pub fn body(bytes: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(bytes);
    json::parse(text.trim_start_matches('\u{feff}').trim(), &Limits::default()).ok()
}

/// The messages of a stream of events that came in these pieces, id and data; none where the stream is given up.
pub fn events(pieces: &[&[u8]]) -> Option<Vec<(Option<String>, String)>> {
    let mut parser = Parser::default();
    let mut all = Vec::new();
    for piece in pieces {
        let messages = parser.feed(piece).ok()?;
        all.extend(messages.into_iter().map(|message| (message.id, message.data)));
    }
    Some(all)
}

/// Where a link of a BMC at this address leads; none where it is not followed.
pub fn resolve(address: &str, link: &str) -> Option<String> {
    let url = BmcAddress::parse(address).ok()?.resolve(None, link).ok()?;
    Some(url.to_string())
}
