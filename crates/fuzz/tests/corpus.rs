//! Each input of the corpus, and 40,000 changed copies, hold.

use std::path::Path;

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
fn each_reader_has_an_input() {
    let corpus = corpus();
    for (byte, name) in readers() {
        let is_there = corpus.iter().any(|(_, input)| input.first() == Some(&byte));
        assert!(is_there, "no input for {name}");
    }
}

/// Numbers from a seed (SplitMix64, Steele and others 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }
}

/// One to eight changes: a bit, a byte at the edge of its range, a piece repeated, removed or moved.
fn changed(input: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=numbers.below(8) {
        if bytes.len() < 2 {
            return bytes;
        }
        let at = 1 + numbers.below(bytes.len() - 1);
        let end = at + numbers.below((bytes.len() - at).min(64));
        match numbers.below(5) {
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b':'][numbers.below(8)],
            2 => {
                let piece = bytes[at..end].to_vec();
                let to = 1 + numbers.below(bytes.len() - 1);
                bytes.splice(to..to, piece);
            }
            3 => drop(bytes.drain(at..end)),
            _ => bytes.truncate(at + 1),
        }
    }
    bytes
}

#[test]
fn changed_copies_hold() {
    for (name, input) in corpus() {
        for seed in 0..COPIES {
            let copy = changed(&input, &mut Numbers(seed));
            if std::panic::catch_unwind(|| check(&copy)).is_err() {
                panic!("{name} changed with seed {seed}: {:?}", String::from_utf8_lossy(&copy));
            }
        }
    }
}
