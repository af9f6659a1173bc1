//! SPDM statements: measurements that a component has signed and a BMC passes on.

use rackwright_spdm::{Statement, keys, verify};

/// An accepted statement is its signed part and its signature, has each index once, and is not verified without a key.
pub(crate) fn statement(bytes: &[u8]) {
    let known = keys(&String::from_utf8_lossy(bytes));
    let Ok(read) = Statement::parse(bytes) else {
        assert!(
            verify(bytes, &[0; 32], &known).is_err(),
            "what cannot be read is believed"
        );
        return;
    };
    assert_eq!([read.signed, read.signature].concat(), bytes);
    let is_ordered = read.measurements.windows(2).all(|pair| match pair {
        [one, other] => one.index < other.index,
        _ => true,
    });
    assert!(is_ordered, "{:?}", read.measurements);
    assert!(verify(bytes, &read.nonce, &[]).is_err(), "nobody has signed it");
}
