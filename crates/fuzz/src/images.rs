//! Images that customers bring.

use std::io::{Seek as _, Write as _};

use rackwright_image::{Index, fuzzing};

/// Bytes of a disk that are read.
const MOST: u64 = 256 << 10;

/// Reading an image twice gives the same bytes, and no more than were asked for.
pub(crate) fn qcow2(bytes: &[u8]) {
    let read = || {
        let mut file = tempfile::tempfile()?;
        file.write_all(bytes)?;
        file.rewind()?;
        fuzzing::qcow2(file, MOST)
    };
    let Ok(first) = read() else { return };
    assert!(first.len() as u64 <= MOST);
    assert!(read().is_ok_and(|again| again == first), "the second reading differs");
}

/// An index has one encoding: what is taken is written the same.
pub(crate) fn index(bytes: &[u8]) {
    let Ok(index) = Index::parse(bytes) else { return };
    assert_eq!(index.encode(), bytes, "an index with two encodings");
    assert!(index.data().len() as u64 <= u64::from(index.chunk_count()));
    let in_order = index.data().windows(2).all(|pair| pair[0].number < pair[1].number);
    assert!(in_order, "chunks out of order");
}
