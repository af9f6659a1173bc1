//! A medium with a secret, shown by a BMC to its machine as a CD, and the proof that the machine has read the secret.
//!
//! The medium is a complete ISO 9660 file system (ECMA-119) with one file, so that firmware, BMCs and people see a
//! valid disc. The file has a fixed position: a reader reads one sector and needs no file system.

use ring::hmac;

use crate::binding;

/// Length of a secret, in bytes.
pub const SECRET: usize = 32;
/// Length of a sector of the medium, in bytes.
pub const SECTOR: usize = 2048;
/// Byte offset of the file.
pub const PLACE: u64 = FILE as u64 * SECTOR as u64;
/// Length of the medium, in bytes. The data take 22 sectors. Drives read ahead, so 150 sectors of padding follow, as with
/// mkisofs.
pub const SIZE: usize = SECTORS as usize * SECTOR;

/// The beginning of the file. The secret follows.
const MAGIC: &[u8; 24] = b"rackwright-bmc-secret-v1";
const FILE_BYTES: usize = MAGIC.len() + SECRET;
/// The beginning of the authenticated bytes. The binding follows.
const PURPOSE: &[u8] = b"rackwright-bmc-proof-v1";

// Sector numbers. The first 16 sectors are the system area (ECMA-119, 6.2.1).
const DESCRIPTOR: u32 = 16;
const TERMINATOR: u32 = 17;
const PATHS: u32 = 18;
const PATHS_BIG: u32 = 19;
const ROOT: u32 = 20;
const FILE: u32 = 21;
const SECTORS: u32 = 22 + 150;

const NAME: &[u8] = b"SECRET.BIN;1";

/// Builds the medium with this secret.
#[must_use]
pub fn image(secret: &[u8; SECRET]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend_from_slice(secret);
    let mut image = Vec::with_capacity(SIZE);
    for (sector, content) in [
        (DESCRIPTOR, descriptor()),
        (TERMINATOR, b"\xffCD001\x01".to_vec()),
        (PATHS, paths(u32::to_le_bytes, u16::to_le_bytes)),
        (PATHS_BIG, paths(u32::to_be_bytes, u16::to_be_bytes)),
        (ROOT, root()),
        (FILE, file),
    ] {
        image.resize(sector as usize * SECTOR, 0);
        image.extend_from_slice(&content);
    }
    image.resize(SIZE, 0);
    image
}

/// Reads the secret from the sector at [`PLACE`]. `None`: the sector is from another medium.
#[must_use]
pub fn secret(sector: &[u8]) -> Option<[u8; SECRET]> {
    sector.strip_prefix(MAGIC)?.first_chunk().copied()
}

/// The session that a proof is bound to. A quote is bound to the same session: see [`binding`].
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The challenge's random bytes.
    pub nonce: &'a [u8],
    /// The node's name.
    pub node: &'a str,
    /// The node's claim generation.
    pub generation: u64,
    /// The identifier of the boot.
    pub boot: &'a str,
    /// SHA-256 of the agent's TLS key.
    pub key_sha256: &'a str,
}

impl Session<'_> {
    fn bytes(&self) -> Vec<u8> {
        let bound = binding(self.nonce, self.node, self.generation, self.boot, self.key_sha256);
        [PURPOSE, &bound].concat()
    }

    /// Proves knowledge of the secret. The proof does not reveal the secret.
    #[must_use]
    pub fn prove(&self, secret: &[u8; SECRET]) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::sign(&key, &self.bytes()).as_ref().to_vec()
    }

    /// Whether the proof was made with this secret for this session. The check takes constant time.
    #[must_use]
    pub fn proves(&self, secret: &[u8; SECRET], proof: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::verify(&key, &self.bytes(), proof).is_ok()
    }
}

/// Encodes a number in both byte orders (ECMA-119, 7.2.3 and 7.3.3).
fn both16(number: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (number.to_le_bytes(), number.to_be_bytes());
    [a, b, c, d]
}

fn both32(number: u32) -> Vec<u8> {
    [number.to_le_bytes(), number.to_be_bytes()].concat()
}

/// A directory record (9.1). The dates are zero, which means "not specified".
fn record(sector: u32, length: u32, is_directory: bool, name: &[u8]) -> Vec<u8> {
    // 33 bytes and the name, padded to an even length.
    let whole = (33 + name.len()).next_multiple_of(2);
    let mut record = vec![byte(whole), 0];
    record.extend(both32(sector));
    record.extend(both32(length));
    record.extend([0; 7]);
    record.extend([u8::from(is_directory) << 1, 0, 0]);
    record.extend(both16(1));
    record.push(byte(name.len()));
    record.extend_from_slice(name);
    record.resize(whole, 0);
    record
}

/// Converts a length below 256.
fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

const ONE_SECTOR: u32 = SECTOR as u32;

fn root() -> Vec<u8> {
    [
        record(ROOT, ONE_SECTOR, true, &[0]),
        record(ROOT, ONE_SECTOR, true, &[1]),
        record(FILE, FILE_BYTES as u32, false, NAME),
    ]
    .concat()
}

/// A path table with only the root directory (9.4): 10 bytes.
fn paths(long: fn(u32) -> [u8; 4], short: fn(u16) -> [u8; 2]) -> Vec<u8> {
    let mut table = vec![1, 0];
    table.extend(long(ROOT));
    table.extend(short(1));
    table.extend([0, 0]);
    table
}

/// The primary volume descriptor (8.4).
fn descriptor() -> Vec<u8> {
    let mut out = b"\x01CD001\x01\0".to_vec();
    let text = |out: &mut Vec<u8>, text: &str, length: usize| {
        let end = out.len() + length;
        out.extend_from_slice(text.as_bytes());
        out.resize(end, b' ');
    };
    text(&mut out, "", 32);
    text(&mut out, "RACKWRIGHT", 32);
    out.extend([0; 8]);
    out.extend(both32(SECTORS));
    out.extend([0; 32]);
    // Volume set size, volume sequence number, block size.
    for number in [1, 1, SECTOR as u16] {
        out.extend(both16(number));
    }
    // Length of a path table.
    out.extend(both32(10));
    out.extend(PATHS.to_le_bytes());
    out.extend([0; 4]);
    out.extend(PATHS_BIG.to_be_bytes());
    out.extend([0; 4]);
    out.extend(record(ROOT, ONE_SECTOR, true, &[0]));
    text(&mut out, "", 128);
    text(&mut out, "RACKWRIGHT", 128);
    text(&mut out, "", 128);
    text(&mut out, "RACKWRIGHT", 128);
    text(&mut out, "", 37 * 3);
    // Four dates, "not specified" (8.4.26.1).
    for _ in 0..4 {
        out.extend([b'0'; 16]);
        out.push(0);
    }
    out.push(1);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> u32 {
        u32::from_le_bytes(bytes[..4].try_into().unwrap())
    }

    #[test]
    fn the_file_is_found_by_the_file_system_and_by_its_place() {
        let image = image(&[7; 32]);
        assert_eq!(image.len(), SIZE);
        let sector = |number: u32| &image[number as usize * SECTOR..][..SECTOR];
        let volume = sector(16);
        assert_eq!(&volume[..8], b"\x01CD001\x01\0");
        assert_eq!(&volume[40..50], b"RACKWRIGHT");
        assert_eq!(number(&volume[80..]) as usize * SECTOR, image.len());
        assert_eq!((&volume[128..132], volume[881]), (&[0, 8, 8, 0][..], 1));
        assert_eq!(&sector(17)[..7], b"\xffCD001\x01");
        // Both path tables and the volume's record point to the root directory.
        let root = number(&volume[156 + 2..]);
        assert_eq!(number(&sector(number(&volume[140..]))[2..]), root);
        let big = u32::from_be_bytes(volume[148..152].try_into().unwrap());
        assert_eq!(&sector(big)[2..6], &root.to_be_bytes());
        let mut records = sector(root);
        let mut names = Vec::new();
        while records[0] > 0 {
            let (record, rest) = records.split_at(records[0].into());
            let name = &record[33..][..record[32].into()];
            assert_eq!(
                record[2..6],
                record[6..10].iter().rev().copied().collect::<Vec<_>>()[..]
            );
            names.push((name, number(&record[2..]), number(&record[10..])));
            records = rest;
        }
        let expected: [(&[u8], u32, u32); 3] = [(&[0], 20, 2048), (&[1], 20, 2048), (b"SECRET.BIN;1", 21, 56)];
        assert_eq!(names, expected);
        assert_eq!(PLACE, 21 * 2048);
        assert_eq!(secret(sector(21)), Some([7; 32]));
    }

    #[test]
    fn other_media_hold_no_secret() {
        for sector in [
            &b""[..],
            b"rackwright-bmc-secret-v1",
            b"rackwright-bmc-secret-v1short",
            &[0; 2048],
        ] {
            assert_eq!(secret(sector), None);
        }
    }

    #[test]
    fn a_proof_is_good_for_its_secret_and_its_session() {
        let session = Session {
            nonce: &[1; 32],
            node: "n1",
            generation: 2,
            boot: "b",
            key_sha256: "key",
        };
        let proof = session.prove(&[7; 32]);
        assert!(session.proves(&[7; 32], &proof));
        assert!(!session.proves(&[8; 32], &proof));
        assert!(!session.proves(&[7; 32], &proof[..31]) && !session.proves(&[7; 32], b""));
        for other in [
            Session {
                nonce: &[2; 32],
                ..session
            },
            Session { node: "n2", ..session },
            Session {
                generation: 3,
                ..session
            },
            Session { boot: "c", ..session },
            Session {
                key_sha256: "another",
                ..session
            },
        ] {
            assert!(!other.proves(&[7; 32], &proof), "{other:?}");
        }
    }
}
