//! The methods that work on every block: discard with a complete check, and overwriting.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use rackwright_api::v1::EraseMethod;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::progress::DriveProgress;
use crate::drives::aligned::Aligned;
use crate::drives::{MethodError, RawDrive};

/// Size of one read or write in bytes.
const CHUNK_BYTES: u64 = 4 << 20;
/// Size of one discard in bytes; drives accept long discards, but do not report their progress.
const DISCARD_BYTES: u64 = 1 << 30;
/// Concurrent requests per drive: enough to keep it busy while another chunk is checked.
const THREADS: usize = 3;
/// One of this many chunks is read back after the pattern pass.
const PATTERN_READ_BACK: u64 = 16;

/// Runs a method of any kind to its end. The caller must prove its effect.
///
/// # Errors
/// [`MethodError`]
pub fn perform(raw: &dyn RawDrive, method: EraseMethod, progress: &DriveProgress<'_>) -> Result<(), MethodError> {
    match method {
        EraseMethod::DiscardZeroed => discard(raw, progress),
        EraseMethod::Overwrite => overwrite(raw, progress),
        _ => raw.execute(method, progress.control()),
    }
}

/// Discards everything. If a block then does not read zero (a drive need not promise that), zeroes everything and checks
/// again.
fn discard(raw: &dyn RawDrive, progress: &DriveProgress<'_>) -> Result<(), MethodError> {
    in_pieces(raw.size_bytes(), DISCARD_BYTES, progress, |offset, length| {
        raw.discard(offset, length)
    })?;
    raw.flush()?;
    progress.step("zero check", raw.size_bytes());
    let Some(first) = first_nonzero(raw, progress)? else {
        return Ok(());
    };
    progress.step("zero-out", raw.size_bytes());
    in_pieces(raw.size_bytes(), DISCARD_BYTES, progress, |offset, length| {
        raw.zero_out(offset, length)
    })?;
    raw.flush()?;
    progress.step("zero check", raw.size_bytes());
    match first_nonzero(raw, progress)? {
        None => Ok(()),
        Some(again) => Err(MethodError::Failed(format!(
            "byte {first} was not zero after discard, and byte {again} is not zero after zeroing"
        ))),
    }
}

fn in_pieces(
    size: u64,
    piece: u64,
    progress: &DriveProgress<'_>,
    call: impl Fn(u64, u64) -> std::io::Result<()>,
) -> Result<(), MethodError> {
    let mut offset = 0;
    while offset < size {
        progress.check()?;
        let length = piece.min(size - offset);
        call(offset, length)?;
        progress.advance(length);
        offset += length;
    }
    Ok(())
}

/// Writes pseudo-random bytes under a key that exists only here and reads a part back. Then writes zeros and reads all of
/// them back.
fn overwrite(raw: &dyn RawDrive, progress: &DriveProgress<'_>) -> Result<(), MethodError> {
    let pattern = Pattern::new()?;
    progress.step("overwrite, pattern", raw.size_bytes());
    each_chunk(raw, progress, |index, offset, buffer| {
        pattern.fill(index, buffer);
        raw.write_at(buffer, offset)?;
        Ok(())
    })?;
    raw.flush()?;
    progress.step("overwrite, pattern read back", raw.size_bytes());
    each_chunk(raw, progress, |index, offset, buffer| {
        if !index.is_multiple_of(PATTERN_READ_BACK) {
            return Ok(());
        }
        raw.read_at(buffer, offset)?;
        let mut expected = vec![0; buffer.len()];
        pattern.fill(index, &mut expected);
        let same = *buffer == expected[..];
        same.then_some(())
            .ok_or_else(|| MethodError::Failed(format!("the pattern written at byte {offset} reads back differently")))
    })?;
    progress.step("overwrite, zeros", raw.size_bytes());
    each_chunk(raw, progress, |_, offset, buffer| {
        buffer.fill(0);
        raw.write_at(buffer, offset)?;
        Ok(())
    })?;
    raw.flush()?;
    progress.step("zero check", raw.size_bytes());
    match first_nonzero(raw, progress)? {
        None => Ok(()),
        Some(byte) => Err(MethodError::Failed(format!(
            "byte {byte} is not zero after zeros were written"
        ))),
    }
}

/// Zeroes a range with plain writes.
///
/// # Errors
/// The drive's error.
pub fn write_zeros(raw: &dyn RawDrive, offset: u64, length: u64) -> std::io::Result<()> {
    raw.write_at(&Aligned::new(usize::try_from(length).unwrap_or(usize::MAX)), offset)
}

/// Offset of the first byte of the drive that is not zero; `None` if the whole drive reads zero.
///
/// # Errors
/// [`MethodError`] if a block cannot be read: an unreadable block is not known to be zero.
pub fn first_nonzero(raw: &dyn RawDrive, progress: &DriveProgress<'_>) -> Result<Option<u64>, MethodError> {
    let found = AtomicU64::new(u64::MAX);
    each_chunk(raw, progress, |_, offset, buffer| {
        if found.load(Ordering::Relaxed) < offset {
            return Ok(());
        }
        raw.read_at(buffer, offset)?;
        if !is_zero(buffer) {
            let at = buffer.iter().position(|byte| *byte != 0).unwrap_or(0);
            found.fetch_min(offset + at as u64, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let found = found.into_inner();
    Ok((found != u64::MAX).then_some(found))
}

/// Whether all bytes are zero. Compares eight bytes at a time, so that the compiler uses wide registers.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|block| {
        let (words, rest) = block.as_chunks::<8>();
        words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word)) == 0 && rest.iter().all(|byte| *byte == 0)
    })
}

/// Calls `work(index, offset, buffer)` for every chunk of the drive on several threads. The first error stops it.
fn each_chunk(
    raw: &dyn RawDrive,
    progress: &DriveProgress<'_>,
    work: impl Fn(u64, u64, &mut [u8]) -> Result<(), MethodError> + Sync,
) -> Result<(), MethodError> {
    let size = raw.size_bytes();
    let next = AtomicU64::new(0);
    let failure: Mutex<Option<MethodError>> = Mutex::new(None);
    let worker = || {
        let mut buffer = Aligned::new(CHUNK_BYTES as usize);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let offset = index * CHUNK_BYTES;
            if offset >= size {
                return Ok(());
            }
            progress.check()?;
            let length = CHUNK_BYTES.min(size - offset);
            work(index, offset, &mut buffer[..length as usize])?;
            progress.advance(length);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                if let Err(error) = worker() {
                    // The other threads then find no work left.
                    next.store(size.div_ceil(CHUNK_BYTES), Ordering::Relaxed);
                    failure
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(error);
                }
            });
        }
    });
    failure
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .map_or(Ok(()), Err)
}

/// Pseudo-random chunks: the key stream of AES-256 in counter mode with a random key and one nonce per chunk.
struct Pattern(LessSafeKey);

impl Pattern {
    fn new() -> Result<Self, MethodError> {
        let mut key = [0; 32];
        crate::random::fill(&mut key).map_err(|error| MethodError::Failed(error.to_string()))?;
        let key = UnboundKey::new(&AES_256_GCM, &key);
        key.map(|key| Self(LessSafeKey::new(key)))
            .map_err(|_| MethodError::Failed("AES-256-GCM takes no key".into()))
    }

    fn fill(&self, index: u64, buffer: &mut [u8]) {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&index.to_le_bytes());
        buffer.fill(0);
        // Fails only for more than 64 GiB at once; the buffer would then stay zero and fail the read-back.
        let _ = self
            .0
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_zero_is_not_zero() {
        let mut bytes = vec![0; 9001];
        assert!(is_zero(&bytes));
        for at in [0, 7, 8, 4095, 4096, 9000] {
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
            bytes[at] = 0;
        }
        assert!(is_zero(&[]));
    }

    #[test]
    fn patterns_repeat_for_the_same_chunk_only() {
        let pattern = Pattern::new().unwrap();
        let (mut a, mut b, mut c) = (vec![0; 5000], vec![1; 5000], vec![0; 5000]);
        pattern.fill(3, &mut a);
        pattern.fill(3, &mut b);
        pattern.fill(4, &mut c);
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert!(!is_zero(&a[..16]));
    }
}
