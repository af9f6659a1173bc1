//! Each input of the corpus holds, and a thousand changed copies of each.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use rackwright_fuzz::changes::{Numbers, changed};
use rackwright_fuzz::{check, readers};

/// Changed copies of each input.
const COPIES: u64 = 1000;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let read = entries.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(entry.path()).unwrap())
    });
    read.collect()
}

#[test]
fn the_corpus_holds() {
    for (_, input) in corpus() {
        check(&input);
        // Cut short anywhere, as a connection may be.
        for end in (0..input.len()).step_by(7) {
            check(&input[..end]);
        }
    }
}

#[test]
fn the_switch_of_the_corpus_is_read() {
    let corpus = corpus();
    let (_, input) = corpus.iter().find(|(name, _)| name == "ovsdb").unwrap();
    let reading = rackwright_ports::fuzzing::reading(&input[1..]).unwrap();
    assert!(reading.in_effect);
    assert_eq!(reading.ports.keys().collect::<Vec<_>>(), ["p1", "p2"]);
}

#[test]
fn the_switches_with_netconf_of_the_corpus_are_read() {
    let corpus = corpus();
    for name in ["netconf", "netconf-marks"] {
        let (_, input) = corpus.iter().find(|(found, _)| found == name).unwrap();
        let reading = rackwright_ports::fuzzing::netconf_reading(&input[1..]).unwrap();
        assert_eq!(reading.ports.keys().collect::<Vec<_>>(), ["p1", "p2"], "{name}");
    }
    let (_, input) = corpus.iter().find(|(name, _)| name == "netconf-error").unwrap();
    let refused = rackwright_ports::fuzzing::netconf_reading(&input[1..]).unwrap_err();
    assert!(refused.contains("access-denied at /x: no"), "{refused}");
}

#[test]
fn each_reader_has_an_input() {
    let corpus = corpus();
    let mut bytes = BTreeSet::new();
    for (byte, name) in readers() {
        assert!(bytes.insert(byte), "{name} has the first byte of another reader");
        let is_there = corpus.iter().any(|(_, input)| input.first() == Some(&byte));
        assert!(is_there, "no input for {name}");
    }
}

#[test]
fn changed_copies_hold() {
    for (name, input) in corpus() {
        let Some((kind, rest)) = input.split_first() else {
            continue;
        };
        for seed in 0..COPIES {
            let copy = [&[*kind], &changed(rest, &mut Numbers::of(seed))[..]].concat();
            if std::panic::catch_unwind(|| check(&copy)).is_err() {
                panic!("{name} changed with seed {seed}: {:?}", String::from_utf8_lossy(&copy));
            }
        }
    }
}
