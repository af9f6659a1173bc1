//! Public areas of the endorsement key and the attestation key. Only ECC P-256 with SHA-256 is accepted.

use crate::sha256;
use crate::wire::{Malformed, Reader, Writer};

pub(crate) const ALG_AES: u16 = 0x0006;
pub(crate) const ALG_SHA256: u16 = 0x000b;
pub(crate) const ALG_NULL: u16 = 0x0010;
pub(crate) const ALG_ECDSA: u16 = 0x0018;
const ALG_ECC: u16 = 0x0023;
const ALG_CFB: u16 = 0x0043;
const CURVE_P256: u16 = 0x0003;
/// Length of a coordinate, in bytes.
const COORDINATE: usize = 32;
/// Maximum length of a public area. Both kinds need at most 122 bytes.
pub const PUBLIC_MAX: usize = 128;

/// fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt: the TCG's default template.
const EK_ATTRIBUTES: u32 = 0x0003_00b2;
/// fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA, restricted, sign.
const AK_ATTRIBUTES: u32 = 0x0005_0472;
/// PolicySecret(TPM_RH_ENDORSEMENT), the policy of the TCG's default templates.
const EK_POLICY: [u8; 32] = [
    0x83, 0x71, 0x97, 0x67, 0x44, 0x84, 0xb3, 0xf8, 0x1a, 0x90, 0xcc, 0x8d, 0x46, 0xa5, 0xd7, 0x24, 0xfd, 0x52, 0xd7,
    0x6e, 0x06, 0x52, 0x0b, 0x64, 0xf2, 0xa1, 0xda, 0x1b, 0x33, 0x14, 0x69, 0xaa,
];

/// A point on the curve P-256. The user of the point checks that the point lies on the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The x-coordinate, big-endian.
    pub x: [u8; COORDINATE],
    /// The y-coordinate, big-endian.
    pub y: [u8; COORDINATE],
}

impl Point {
    /// The point in uncompressed SEC 1 form: 4, x, y.
    #[must_use]
    pub fn sec1(&self) -> [u8; 65] {
        let mut bytes = [4; 65];
        bytes[1..33].copy_from_slice(&self.x);
        bytes[33..].copy_from_slice(&self.y);
        bytes
    }

    /// Reads the uncompressed SEC 1 form.
    #[must_use]
    pub fn of_sec1(bytes: &[u8]) -> Option<Self> {
        let [4, rest @ ..] = bytes else { return None };
        let (x, y) = rest.split_at_checked(COORDINATE)?;
        Some(Self {
            x: x.try_into().ok()?,
            y: y.try_into().ok()?,
        })
    }

    /// Reads a TPMS_ECC_POINT. A TPM may omit leading zeros.
    pub(crate) fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, Malformed> {
        let mut coordinate = || padded(reader.sized(field)?).ok_or(Malformed(field));
        Ok(Self {
            x: coordinate()?,
            y: coordinate()?,
        })
    }

    pub(crate) fn write(&self, writer: Writer) -> Writer {
        writer.sized(&self.x).sized(&self.y)
    }
}

/// Pads a number of at most 32 bytes with leading zeros.
pub(crate) fn padded(bytes: &[u8]) -> Option<[u8; COORDINATE]> {
    let begin = COORDINATE.checked_sub(bytes.len()).filter(|_| !bytes.is_empty())?;
    let mut coordinate = [0; COORDINATE];
    coordinate[begin..].copy_from_slice(bytes);
    Some(coordinate)
}

/// The use of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The key decrypts, only inside the TPM.
    Endorsement,
    /// The key signs only data that the TPM itself made.
    Attestation,
}

/// The public area of a key that never leaves its TPM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Public {
    /// The use of the key.
    pub kind: Kind,
    /// The key's point on the curve.
    pub point: Point,
    bytes: Vec<u8>,
}

fn area(kind: Kind, point: Option<&Point>) -> Vec<u8> {
    let writer = Writer::new().u16(ALG_ECC).u16(ALG_SHA256);
    let writer = match kind {
        Kind::Endorsement => {
            let writer = writer.u32(EK_ATTRIBUTES).sized(&EK_POLICY);
            writer.u16(ALG_AES).u16(128).u16(ALG_CFB).u16(ALG_NULL)
        }
        Kind::Attestation => {
            let writer = writer.u32(AK_ATTRIBUTES).sized(&[]);
            writer.u16(ALG_NULL).u16(ALG_ECDSA).u16(ALG_SHA256)
        }
    };
    let writer = writer.u16(CURVE_P256).u16(ALG_NULL);
    let writer = match (point, kind) {
        (Some(point), _) => point.write(writer),
        (None, Kind::Endorsement) => writer.sized(&[0; COORDINATE]).sized(&[0; COORDINATE]),
        (None, Kind::Attestation) => writer.sized(&[]).sized(&[]),
    };
    writer.done()
}

/// The template from which a TPM makes a key. The key is the same each time, until the seed changes.
#[must_use]
pub fn template(kind: Kind) -> Vec<u8> {
    area(kind, None)
}

impl Public {
    /// The public area of a key with this point.
    #[must_use]
    pub fn new(kind: Kind, point: Point) -> Self {
        Self {
            kind,
            point,
            bytes: area(kind, Some(&point)),
        }
    }

    /// Reads a public area. Everything except the point must match the template: a key with other attributes could
    /// leave its TPM, or could sign data from outside the TPM.
    ///
    /// # Errors
    /// The bytes are not the public area of a key of this kind.
    pub fn parse(kind: Kind, bytes: &[u8]) -> Result<Self, Malformed> {
        let what = match kind {
            Kind::Endorsement => "public area of the endorsement key",
            Kind::Attestation => "public area of the attestation key",
        };
        // The template ends with the point.
        let template = template(kind);
        let point_bytes = match kind {
            Kind::Endorsement => 4 + 2 * COORDINATE,
            Kind::Attestation => 4,
        };
        let fixed = &template[..template.len() - point_bytes];
        let point = bytes.strip_prefix(fixed).ok_or(Malformed(what))?;
        let mut reader = Reader::new(point);
        let point = Point::read(&mut reader, what)?;
        reader.end(what)?;
        Ok(Self {
            kind,
            point,
            bytes: bytes.to_vec(),
        })
    }

    /// The public area in the TPM's own encoding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The TPM's name for the key: the digest of the public area after the identifier of the hash algorithm.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        Writer::new().u16(ALG_SHA256).bytes(&self.sha256()).done()
    }

    /// The SHA-256 digest of the public area.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        sha256(&[&self.bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_area_reads_back_and_no_other_attributes_are_taken() {
        let point = Point { x: [7; 32], y: [9; 32] };
        for kind in [Kind::Endorsement, Kind::Attestation] {
            let public = Public::new(kind, point);
            assert!(public.bytes().len() <= PUBLIC_MAX);
            assert_eq!(Public::parse(kind, public.bytes()).unwrap(), public);
            assert_eq!(public.name()[..2], [0, 11]);
            for at in 0..public.bytes().len() - 68 {
                for bit in 0..8 {
                    let mut changed = public.bytes().to_vec();
                    changed[at] ^= 1 << bit;
                    assert!(
                        Public::parse(kind, &changed).is_err(),
                        "{kind:?}: bit {bit} of byte {at}"
                    );
                }
            }
            let mut longer = public.bytes().to_vec();
            longer.push(0);
            assert!(Public::parse(kind, &longer).is_err());
        }
        assert!(Public::parse(Kind::Attestation, Public::new(Kind::Endorsement, point).bytes()).is_err());
    }
}
