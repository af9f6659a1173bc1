//! The proof of an erase: samples over the whole drive, before and after.

use std::collections::BTreeMap;
use std::io;

use rackwright_api::v1::EraseMethod;

use super::progress::DriveProgress;
use crate::drives::aligned::Aligned;
use crate::drives::{MethodError, RawDrive};

/// Minimum size of a sample in bytes.
pub const SAMPLE_BYTES: u64 = 4096;
/// Number of blocks of random bytes written before the erase.
const CANARIES: usize = 64;
/// Bytes read at each end to search for partition tables: more than a GPT with 128 entries at either block size.
const TABLE_BYTES: u64 = 256 << 10;

/// The content that a method leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residue {
    /// Only zeros.
    Zeros,
    /// Zeros or ones: the state of the medium after erasing its cells.
    Blank,
    /// Bytes unrelated to the earlier ones.
    Changed,
}

/// The content that must be read after a method.
pub fn expected_residue(method: EraseMethod) -> Residue {
    match method {
        EraseMethod::DiscardZeroed | EraseMethod::Overwrite => Residue::Zeros,
        EraseMethod::NvmeSanitizeBlock | EraseMethod::NvmeFormatUserData | EraseMethod::AtaSecureErase => {
            Residue::Blank
        }
        EraseMethod::NvmeSanitizeCrypto
        | EraseMethod::NvmeFormatCrypto
        | EraseMethod::AtaSecureEraseEnhanced
        | EraseMethod::Unspecified => Residue::Changed,
    }
}

/// The content at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleContent {
    Zeros,
    Ones,
    Data([u8; 16]),
}

impl SampleContent {
    fn of(bytes: &[u8]) -> Self {
        match bytes.first() {
            Some(0) if are_all(bytes, 0) => Self::Zeros,
            Some(0xFF) if are_all(bytes, 0xFF) => Self::Ones,
            _ => {
                let mut short = [0; 16];
                short.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
                Self::Data(short)
            }
        }
    }
}

/// Whether each byte is `value`. Checks blocks at once: a loop that can end at each byte takes ten times as long.
fn are_all(bytes: &[u8], value: u8) -> bool {
    let differs = |part: &[u8]| part.iter().fold(0, |seen, byte| seen | (byte ^ value)) != 0;
    !bytes.chunks(1024).any(differs)
}

/// The samples of a drive from before the erase.
#[derive(Debug)]
pub struct Samples {
    seen: BTreeMap<u64, SampleContent>,
    sample_bytes: u64,
}

impl Samples {
    /// Reads samples: one at a random place in each of `count` equal parts of the drive, and both ends.
    ///
    /// # Errors
    /// A sample cannot be read, or the job must end.
    pub fn take(raw: &dyn RawDrive, count: u32, progress: &DriveProgress<'_>) -> Result<Self, MethodError> {
        let sample_bytes = SAMPLE_BYTES.max(u64::from(raw.block_bytes()));
        let places = places(
            raw.size_bytes(),
            sample_bytes,
            u64::from(count),
            &mut RandomSource::new()?,
        )?;
        let mut buffer = Aligned::new(sample_bytes as usize);
        let mut seen = BTreeMap::new();
        for place in places {
            progress.check()?;
            raw.read_at(&mut buffer, place)?;
            seen.insert(place, SampleContent::of(&buffer));
        }
        Ok(Self { seen, sample_bytes })
    }

    /// Number of samples, and bytes per sample.
    pub fn counts(&self) -> (u64, u64) {
        (self.seen.len() as u64, self.sample_bytes)
    }

    /// Writes random bytes to some of the sample places. If the drive refuses a write, the present content is the sample.
    pub fn plant_canaries(&mut self, raw: &dyn RawDrive) {
        let stride = (self.seen.len() / CANARIES).max(1);
        let places: Vec<u64> = self.seen.keys().copied().step_by(stride).collect();
        let mut buffer = Aligned::new(self.sample_bytes as usize);
        if let Ok(mut draw) = RandomSource::new() {
            for place in &places {
                draw.fill(&mut buffer);
                if raw.write_at(&buffer, *place).is_err() {
                    break;
                }
            }
        }
        let _ = raw.flush();
        // The sample is the content that reads back, whether or not the write succeeded.
        for place in places {
            if raw.read_at(&mut buffer, place).is_ok() {
                self.seen.insert(place, SampleContent::of(&buffer));
            }
        }
    }

    /// Reads every sample again and compares it with the content that the method must leave.
    ///
    /// # Errors
    /// [`MethodError::Failed`] names the first place that disproves the erase, or states that nothing can be proven.
    pub fn prove(
        &self,
        raw: &dyn RawDrive,
        method: EraseMethod,
        progress: &DriveProgress<'_>,
    ) -> Result<(), MethodError> {
        let residue = expected_residue(method);
        let known = self
            .seen
            .values()
            .filter(|seen| matches!(seen, SampleContent::Data(_)))
            .count();
        if residue == Residue::Changed && known == 0 {
            return Err(MethodError::Failed(
                "the samples from before the erase contain no data, so a change cannot be proven".into(),
            ));
        }
        let mut buffer = Aligned::new(self.sample_bytes as usize);
        for (place, before) in &self.seen {
            progress.check()?;
            let read = raw.read_at(&mut buffer, *place);
            read.map_err(|error| MethodError::Failed(format!("the sample at byte {place} cannot be read: {error}")))?;
            let after = SampleContent::of(&buffer);
            if let Some(why) = disproof(residue, *before, after) {
                return Err(MethodError::Failed(format!("the sample at byte {place} {why}")));
            }
        }
        Ok(())
    }
}

fn disproof(residue: Residue, before: SampleContent, after: SampleContent) -> Option<&'static str> {
    match (residue, before, after) {
        (_, SampleContent::Data(before), SampleContent::Data(after)) if before == after => {
            Some("still has the bytes from before the erase")
        }
        (_, _, SampleContent::Zeros)
        | (Residue::Blank | Residue::Changed, _, SampleContent::Ones)
        | (Residue::Changed, _, SampleContent::Data(_)) => None,
        (Residue::Zeros, _, _) => Some("is not zero"),
        (Residue::Blank, _, SampleContent::Data(_)) => Some("is neither all zeros nor all ones"),
    }
}

/// Places of the samples, ascending. The last one is the end of the drive. All other places are multiples of the sample
/// size.
fn places(size: u64, sample_bytes: u64, count: u64, draw: &mut RandomSource) -> io::Result<Vec<u64>> {
    let blocks = size / sample_bytes;
    if blocks == 0 {
        return Err(io::Error::other(format!(
            "the drive of {size} bytes is smaller than a sample"
        )));
    }
    let count = count.clamp(1, blocks);
    let mut places = vec![0, size - sample_bytes];
    for part in 0..count {
        let (from, to) = (blocks * part / count, blocks * (part + 1) / count);
        places.push((from + draw.below(to - from)) * sample_bytes);
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// Unpredictable bytes: a random key from the kernel, expanded as needed.
struct RandomSource(blake3::OutputReader);

impl RandomSource {
    fn new() -> io::Result<Self> {
        let mut key = [0; blake3::KEY_LEN];
        crate::random::fill(&mut key)?;
        Ok(Self(blake3::Hasher::new_keyed(&key).finalize_xof()))
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    fn below(&mut self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        // The bias of the remainder is below 2^-30 for any drive.
        u64::from_le_bytes(bytes) % bound.max(1)
    }
}

/// Checks that neither end looks like a partition table.
///
/// # Errors
/// The table that was found.
pub fn no_partition_table(raw: &dyn RawDrive) -> Result<(), MethodError> {
    let size = raw.size_bytes();
    let length = TABLE_BYTES.min(size);
    let mut buffer = Aligned::new(length as usize);
    for offset in [0, size - length] {
        raw.read_at(&mut buffer, offset)?;
        let has_gpt = buffer.chunks_exact(512).any(|block| block.starts_with(b"EFI PART"));
        let has_mbr = offset == 0 && buffer[510..512] == [0x55, 0xAA];
        if has_gpt || has_mbr {
            return Err(MethodError::Failed(format!(
                "a partition table is still found near byte {offset}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_all_of_the_drive() {
        let size = 100 << 20;
        let places = places(size, 4096, 64, &mut RandomSource::new().unwrap()).unwrap();
        assert!(places.len() >= 64 && places.len() <= 66);
        let part = size / 64;
        for index in 0..64 {
            let in_part = places
                .iter()
                .filter(|place| **place >= index * part && **place < (index + 1) * part)
                .count();
            assert!(in_part >= 1, "part {index}");
        }
        assert_eq!((places[0], *places.last().unwrap()), (0, size - 4096));
        assert_eq!(
            super::places(8192 + 512, 4096, 4096, &mut RandomSource::new().unwrap()).unwrap(),
            [0, 4096, 4608],
            "a small drive is read whole"
        );
        assert!(super::places(100, 4096, 5, &mut RandomSource::new().unwrap()).is_err());
    }

    #[test]
    fn readings_that_disprove_an_erase() {
        use Residue::{Blank, Changed, Zeros};
        let (a, b) = (SampleContent::Data([1; 16]), SampleContent::Data([2; 16]));
        let table = [
            (Zeros, a, SampleContent::Zeros, true),
            (Zeros, a, SampleContent::Ones, false),
            (Zeros, a, b, false),
            (Zeros, SampleContent::Zeros, b, false),
            (Blank, a, SampleContent::Ones, true),
            (Blank, a, b, false),
            (Changed, a, b, true),
            (Changed, a, a, false),
            (Changed, SampleContent::Zeros, b, true),
            (Changed, SampleContent::Zeros, SampleContent::Zeros, true),
            (Changed, a, SampleContent::Ones, true),
        ];
        for (residue, before, after, fine) in table {
            assert_eq!(
                disproof(residue, before, after).is_none(),
                fine,
                "{residue:?} {before:?} {after:?}"
            );
        }
    }
}
