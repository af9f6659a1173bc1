//! Entry points for the fuzzer: the client's own functions, without the network.

use serde_json::Value;

use crate::address::BmcAddress;
use crate::json;
use crate::settings::Limits;
use crate::sse::Parser;

/// A body as the client parses it; none if the client refuses it.
pub fn body(bytes: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(bytes);
    json::parse(text.trim_start_matches('\u{feff}').trim(), &Limits::default()).ok()
}

/// The messages (id and data) of an event stream that arrives in these pieces; none if the client closes the stream.
pub fn events(pieces: &[&[u8]]) -> Option<Vec<(Option<String>, String)>> {
    let mut parser = Parser::default();
    let mut all = Vec::new();
    for piece in pieces {
        let messages = parser.feed(piece).ok()?;
        all.extend(messages.into_iter().map(|message| (message.id, message.data)));
    }
    Some(all)
}

/// The target of a link from a BMC at this address; none if the client does not follow the link.
pub fn resolve(address: &str, link: &str) -> Option<String> {
    let url = BmcAddress::parse(address).ok()?.resolve(None, link).ok()?;
    Some(url.to_string())
}
