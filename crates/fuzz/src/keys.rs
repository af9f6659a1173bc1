//! Certificate requests, certificates and erase certificates.

use rackwright_identity::{ClientIdentity, ClientKey, EraseRecord, identify};

/// A request that is taken has one key, written as 64 hex digits.
pub(crate) fn request(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(key) = ClientKey::of_request(&text) else { return };
    let digest = key.sha256();
    assert!(
        digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()),
        "{digest:?}"
    );
}

/// A certificate that names a client names it in one way.
pub(crate) fn certificate(bytes: &[u8]) {
    let Ok(client) = identify(bytes) else { return };
    let again = ClientIdentity::from_uri(&client.uri());
    assert!(
        again.is_ok_and(|again| again == client),
        "{client:?} is named in two ways"
    );
}

/// A record has one encoding: what is taken is written the same.
pub(crate) fn erase_record(bytes: &[u8]) {
    let Ok(record) = EraseRecord::decode(bytes) else { return };
    let again = record.encode();
    assert!(again.is_ok_and(|again| again == bytes), "{record:?} has two encodings");
}
