//! What an agent says of its machine's TPM.

use rackwright_tpm::log::Log;
use rackwright_tpm::medium::secret;
use rackwright_tpm::public::{Kind, Public};
use rackwright_tpm::quote::Quote;

/// An event log that is taken replays to the same values each time, of registers that a TPM has.
pub(crate) fn event_log(bytes: &[u8]) {
    let Ok(log) = Log::parse(bytes) else { return };
    let values = log.replay();
    assert!(values.keys().all(|pcr| *pcr < 24), "{values:?}");
    assert_eq!(log.differs(&values), None, "the log differs from its own replay");
    assert_eq!(log.replay(), values);
}

/// A quote that is taken names the registers that it is about. A public area that is taken is kept as it came.
pub(crate) fn quote(bytes: &[u8]) {
    if let Ok(quote) = Quote::parse(bytes) {
        assert!(quote.extra.len() <= bytes.len());
    }
    for kind in [Kind::Endorsement, Kind::Attestation] {
        if let Ok(public) = Public::parse(kind, bytes) {
            assert_eq!(public.bytes(), bytes);
        }
    }
}

/// A secret that is taken stands in the sector behind the words that announce it.
pub(crate) fn medium(bytes: &[u8]) {
    if let Some(found) = secret(bytes) {
        assert_eq!(bytes.get(24..56), Some(&found[..]));
    }
}
