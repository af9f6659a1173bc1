//! Whatever was once of interest to the fuzzer still holds.

use std::path::Path;

#[test]
fn the_corpus_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut tried = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        rackwright_fuzz::check(&input);
        // Cut short anywhere, as a connection may be.
        for end in (0..input.len()).step_by(7) {
            rackwright_fuzz::check(&input[..end]);
        }
        tried += 1;
    }
    assert!(tried >= 10, "{tried} inputs");
}
