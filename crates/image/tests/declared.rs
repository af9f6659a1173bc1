//! Frames of senders that are not trusted, looked at before they are decoded.

#![allow(clippy::unwrap_used)]

use rackwright_image::CHUNK_SIZE;
use rackwright_image::codec::{DecodeError, Encoder, check_declared};

#[test]
fn a_frame_is_checked_before_it_is_decoded() {
    let mut frame = Vec::new();
    let data = vec![7u8; 8192];
    Encoder::new(3).unwrap().encode(&data, &mut frame).unwrap();
    check_declared(&frame, 8192).unwrap();
    let other = check_declared(&frame, 4096).unwrap_err();
    assert_eq!(other.to_string(), "the frame declares 8192 bytes, expected 4096");
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
    assert!(bomb.len() < 8192, "{}", bomb.len());
    let bomb = check_declared(&bomb, CHUNK_SIZE).unwrap_err();
    assert!(
        matches!(bomb, DecodeError::Declared { declared: Some(found), .. } if found == 64 << 20),
        "{bomb}"
    );
    // A stream's header declares no size.
    let stream = zstd::encode_all(&data[..], 3).unwrap();
    let stream = check_declared(&stream, 8192).unwrap_err();
    assert!(
        matches!(stream, DecodeError::Declared { declared: None, .. }),
        "{stream}"
    );
    for wrong in [
        &frame[..frame.len() - 1],
        &[],
        b"rubbish",
        &[frame.clone(), frame.clone()].concat(),
    ] {
        let wrong = check_declared(wrong, 8192).unwrap_err();
        assert!(matches!(wrong, DecodeError::NotOneFrame), "{wrong}");
    }
    frame.extend([0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]);
    assert!(
        matches!(check_declared(&frame, 8192), Err(DecodeError::NotOneFrame)),
        "a frame behind it"
    );
}
