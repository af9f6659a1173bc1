//! Whatever a machine sends, the verifier returns within its bounds and does not panic.

use proptest::prelude::*;
use rackwright_tpm::client::Tpm;
use rackwright_tpm::credential;
use rackwright_tpm::device::Transport;
use rackwright_tpm::log::{Event, Log, write};
use rackwright_tpm::pcr::{QUOTED, Selection, Values};
use rackwright_tpm::public::{Kind, Point, Public};
use rackwright_tpm::quote::{Quote, verify, write_signature};
use rackwright_tpm::sha256;

fn log() -> Vec<u8> {
    let event = |pcr, data| Event {
        pcr,
        kind: 13,
        digest: sha256(&[data]),
        data,
    };
    write(&[event(0, b"firmware"), event(4, b"loader"), event(7, b"secure boot")])
}

fn quote() -> Vec<u8> {
    let quote = Quote {
        extra: vec![7; 32],
        clock: 1,
        resets: 2,
        restarts: 3,
        selection: QUOTED,
        digest: [5; 32],
    };
    quote.write(&[0, 11, 1, 2])
}

/// A TPM that gives the same answer to every command.
struct Parrot(Vec<u8>);

impl Transport for Parrot {
    fn transmit(&mut self, _: &[u8]) -> std::io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }
}

fn answers(body: &[u8]) -> Vec<u8> {
    let mut answer = vec![0x80, 2];
    answer.extend((10 + body.len() as u32).to_be_bytes());
    answer.extend([0; 4]);
    answer.extend_from_slice(body);
    answer
}

proptest! {
    #[test]
    fn no_bytes_break_a_parser(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Log::parse(&bytes);
        let _ = Quote::parse(&bytes);
        let _ = credential::ephemeral(&bytes);
        for kind in [Kind::Endorsement, Kind::Attestation] {
            prop_assert!(Public::parse(kind, &bytes).is_err());
        }
        let ak = Public::new(Kind::Attestation, Point { x: [1; 32], y: [2; 32] });
        prop_assert!(verify(&ak, &bytes, &bytes, &Values::new()).is_err());
        for answer in [bytes.clone(), answers(&bytes)] {
            let mut tpm = Tpm::new(Box::new(Parrot(answer)));
            let _ = tpm.key(Kind::Endorsement);
            let _ = tpm.pcrs(QUOTED);
            let _ = tpm.certificate();
        }
    }

    #[test]
    fn a_changed_log_is_refused_or_differs_or_replays_the_same(at in 0..400_usize, bit in 0..8_u8) {
        let honest = log();
        let values = Log::parse(&honest).unwrap().replay();
        let mut changed = honest.clone();
        let at = at % changed.len();
        changed[at] ^= 1 << bit;
        if let Ok(log) = Log::parse(&changed) {
            let differs = log.differs(&values).is_some();
            prop_assert!(differs || log.replay() == values);
        }
    }

    #[test]
    fn a_cut_structure_is_refused(cut in 1..80_usize) {
        let (log, quote) = (log(), quote());
        prop_assert!(Quote::parse(&quote[..quote.len() - cut % quote.len()]).is_err() || cut % quote.len() == 0);
        let short = Log::parse(&log[..log.len() - cut]);
        let whole = Log::parse(&log).unwrap();
        prop_assert!(short.is_err() || short.unwrap().events.len() < whole.events.len());
    }
}

#[test]
fn lengths_that_promise_gigabytes_cost_nothing() {
    let mut log = log();
    let end = log.len();
    log[end - 15..end - 11].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Log::parse(&log).is_err());
    assert!(Log::parse(&vec![0; (1 << 20) + 1]).is_err());
}

#[test]
fn a_quote_reads_back_and_needs_its_signature() {
    let parsed = Quote::parse(&quote()).unwrap();
    assert_eq!((parsed.resets, parsed.restarts, parsed.selection), (2, 3, QUOTED));
    let ak = Public::new(Kind::Attestation, Point { x: [1; 32], y: [2; 32] });
    for signature in [
        write_signature(&[1; 32], &[1; 32]),
        write_signature(&[0; 33], &[1; 32]),
        Vec::new(),
    ] {
        assert!(verify(&ak, &quote(), &signature, &Values::new()).is_err());
    }
    assert_eq!(Selection(0b1001).indexes().collect::<Vec<_>>(), [0, 3]);
}
