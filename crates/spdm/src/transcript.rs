//! The bytes of a statement: the DSP0274 messages between BMC and device, up to the signature.

use crate::key::Curve;

/// Maximum length of a statement, in bytes. A measurement record has a three-byte length; real records have a few
/// kilobytes.
pub const STATEMENT_MAX: usize = 256 * 1024;
/// Maximum number of exchanges in a statement. A BMC may request each index separately.
const EXCHANGES_MAX: usize = 256;
/// Maximum number of measurements in a statement: an index is one byte.
const MEASUREMENTS_MAX: usize = 256;

const GET_VERSION: u8 = 0x84;
const VERSION: u8 = 0x04;
const GET_CAPABILITIES: u8 = 0xE1;
const CAPABILITIES: u8 = 0x61;
const NEGOTIATE_ALGORITHMS: u8 = 0xE3;
const ALGORITHMS: u8 = 0x63;
const GET_MEASUREMENTS: u8 = 0xE0;
const MEASUREMENTS: u8 = 0x60;

/// The measurement format of the DMTF.
const DMTF_SPECIFICATION: u8 = 1;
const NONCE: usize = 32;
/// Length of the requester's context in both messages, from 1.3 on.
const CONTEXT: usize = 8;

/// Why a statement proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// The statement ends in the middle of a message.
    #[error("the signed statement ends within {0}")]
    Short(&'static str),
    /// The statement is longer than [`STATEMENT_MAX`].
    #[error("the signed statement has {0} bytes, more than {STATEMENT_MAX}")]
    Long(usize),
    /// The statement has another message at this position.
    #[error("the signed statement has message {found:#04x}, expected {wanted}")]
    Unexpected {
        /// The expected message.
        wanted: &'static str,
        /// The code of the message found.
        found: u8,
    },
    /// This version is not supported.
    #[error("the signed statement has SPDM version {0:#04x}; supported versions are 1.1 to 1.3")]
    Version(u8),
    /// The messages of the statement have different versions.
    #[error("the messages of the signed statement have different SPDM versions")]
    MixedVersions,
    /// A length or a count does not fit.
    #[error("the signed statement is malformed: {0}")]
    Malformed(&'static str),
    /// The last request does not request a signature, or an earlier request does.
    #[error("the signed statement has no request for a signature at its end")]
    NotSigned,
    /// The statement was made for another reading.
    #[error("the signed statement has another nonce: the statement is old, or was made for another request")]
    OldNonce,
    /// The device reports that measurements changed during the reading.
    #[error("the device reports that its measurements changed during the reading")]
    Changed,
    /// The BMC shows no usable key.
    #[error("the BMC shows no ECDSA key of the device (P-256 or P-384)")]
    NoKey,
    /// The signature's length fits no supported algorithm.
    #[error("the signature has {0} bytes; supported are ECDSA P-256 (64) and P-384 (96)")]
    SignatureLength(usize),
    /// The negotiated algorithms are not supported.
    #[error(
        "the device signs with an unsupported algorithm; supported are ECDSA P-256 with SHA-256 and P-384 with SHA-384"
    )]
    Algorithm,
    /// No known key made the signature.
    #[error("the signature is wrong: none of the device keys from the BMC signed these measurements")]
    WrongSignature,
}

/// A version of SPDM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The number before the dot.
    pub major: u8,
    /// The number after the dot.
    pub minor: u8,
}

impl Version {
    fn of(byte: u8) -> Result<Self, StatementError> {
        let version = Self {
            major: byte >> 4,
            minor: byte & 0x0F,
        };
        match (version.major, version.minor) {
            (1, 1..=3) => Ok(version),
            _ => Err(StatementError::Version(byte)),
        }
    }

    /// From 1.2 on, the signature covers a prefix, and the transcript begins with version, capabilities and algorithms.
    pub(crate) fn has_prefix(self) -> bool {
        self.minor >= 2
    }

    fn has_context(self) -> bool {
        self.minor >= 3
    }
}

/// The algorithms that BMC and device negotiated, as signed by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithms {
    signature: u32,
    hash: u32,
}

impl Algorithms {
    /// Checks that the signature uses the negotiated algorithms.
    pub(crate) fn check_curve(self, curve: Curve) -> Result<(), StatementError> {
        // BaseAsymSel: bit 4 is ECDSA P-256, bit 7 P-384. BaseHashSel: bit 0 is SHA-256, bit 1 SHA-384.
        let wanted = match curve {
            Curve::P256 => (1 << 4, 1),
            Curve::P384 => (1 << 7, 1 << 1),
        };
        ((self.signature, self.hash) == wanted)
            .then_some(())
            .ok_or(StatementError::Algorithm)
    }
}

/// One measurement of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// The measurement's index in the device.
    pub index: u8,
    /// The kind of the measured object, without the bit for raw values: 0 immutable code, 1 mutable firmware, 2
    /// hardware configuration, 3 firmware configuration, 4 manifest and so on.
    pub kind: u8,
    /// Whether the value is the measured data itself instead of a digest.
    pub is_raw: bool,
    /// The digest or the raw value.
    pub value: Vec<u8>,
}

/// A parsed statement. Parsing proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement<'a> {
    /// The negotiated version.
    pub version: Version,
    /// The negotiated algorithms. Version 1.1 does not sign them.
    pub algorithms: Option<Algorithms>,
    /// The nonce of the request for the signature.
    pub nonce: [u8; NONCE],
    /// The measurements of all exchanges, ordered by index.
    pub measurements: Vec<Measurement>,
    /// The signed bytes.
    pub signed: &'a [u8],
    /// The signature: r followed by s.
    pub signature: &'a [u8],
}

/// Takes bytes from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, of: &'static str) -> Result<&'a [u8], StatementError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(StatementError::Short(of))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, of: &'static str) -> Result<[u8; N], StatementError> {
        self.take(N, of)?.try_into().map_err(|_| StatementError::Short(of))
    }

    fn byte(&mut self, of: &'static str) -> Result<u8, StatementError> {
        self.array(of).map(|[byte]| byte)
    }

    fn short(&mut self, of: &'static str) -> Result<u16, StatementError> {
        self.array(of).map(u16::from_le_bytes)
    }

    fn header(&mut self, code: u8, name: &'static str) -> Result<Header, StatementError> {
        let [version, found, first, second] = self.array(name)?;
        if found != code {
            return Err(StatementError::Unexpected { wanted: name, found });
        }
        Ok(Header { version, first, second })
    }
}

/// The first four bytes of a message, without the code.
struct Header {
    version: u8,
    first: u8,
    second: u8,
}

/// Reads version, capabilities and algorithms (VCA), which are signed from 1.2 on.
fn agreed(reader: &mut Reader<'_>) -> Result<(u8, Algorithms), StatementError> {
    reader.header(GET_VERSION, "GET_VERSION")?;
    reader.header(VERSION, "VERSION")?;
    let [_, count] = reader.array("VERSION")?;
    reader.take(usize::from(count) * 2, "VERSION")?;
    let request = reader.header(GET_CAPABILITIES, "GET_CAPABILITIES")?;
    let length = match Version::of(request.version)?.minor {
        1 => 8,
        _ => 16,
    };
    reader.take(length, "GET_CAPABILITIES")?;
    let answer = reader.header(CAPABILITIES, "CAPABILITIES")?;
    if answer.version != request.version {
        return Err(StatementError::MixedVersions);
    }
    if Version::of(answer.version)?.has_context() && answer.first & 1 != 0 {
        return Err(StatementError::Malformed(
            "CAPABILITIES with a block of algorithms is not supported",
        ));
    }
    reader.take(length, "CAPABILITIES")?;
    sized_bytes(reader, NEGOTIATE_ALGORITHMS, "NEGOTIATE_ALGORITHMS", request.version)?;
    let body = sized_bytes(reader, ALGORITHMS, "ALGORITHMS", request.version)?;
    // After the length come the specification and other selections, then the hash of measurements, the signature and
    // the hash.
    let mut body = Reader(body);
    body.take(6, "ALGORITHMS")?;
    let signature = body.array("ALGORITHMS").map(u32::from_le_bytes)?;
    let hash = body.array("ALGORITHMS").map(u32::from_le_bytes)?;
    Ok((request.version, Algorithms { signature, hash }))
}

/// Reads a message that states its own length. Returns the bytes after the length.
fn sized_bytes<'a>(
    reader: &mut Reader<'a>,
    code: u8,
    name: &'static str,
    version: u8,
) -> Result<&'a [u8], StatementError> {
    let header = reader.header(code, name)?;
    if header.version != version {
        return Err(StatementError::MixedVersions);
    }
    let length = usize::from(reader.short(name)?);
    let rest = length
        .checked_sub(6)
        .ok_or(StatementError::Malformed("the length of an algorithm message"))?;
    reader.take(rest, name)
}

impl<'a> Statement<'a> {
    /// Parses a statement. Parsing proves nothing.
    ///
    /// # Errors
    /// The bytes are not a statement.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, StatementError> {
        if bytes.len() > STATEMENT_MAX {
            return Err(StatementError::Long(bytes.len()));
        }
        let mut reader = Reader(bytes);
        let is_with_agreement = matches!(bytes, [_, GET_VERSION, ..]);
        let agreement = is_with_agreement.then(|| agreed(&mut reader)).transpose()?;
        let first = reader
            .0
            .first()
            .copied()
            .ok_or(StatementError::Short("GET_MEASUREMENTS"))?;
        let version = Version::of(first)?;
        let algorithms = agreement.map(|(_, algorithms)| algorithms);
        if agreement.is_some_and(|(agreed, _)| agreed != first) {
            return Err(StatementError::MixedVersions);
        }
        if version.has_prefix() != agreement.is_some() {
            return Err(StatementError::Malformed(
                "it must begin with GET_VERSION from SPDM 1.2 on, but not before SPDM 1.2",
            ));
        }
        let mut measurements = Vec::new();
        for _ in 0..EXCHANGES_MAX {
            let nonce = request(&mut reader, first)?;
            answer(&mut reader, first, nonce.is_some(), &mut measurements)?;
            if let Some(nonce) = nonce {
                let signature = reader.0;
                let signed = bytes
                    .get(..bytes.len().saturating_sub(signature.len()))
                    .ok_or(StatementError::NotSigned)?;
                return Ok(Self {
                    version,
                    algorithms,
                    nonce,
                    measurements: in_order(measurements)?,
                    signed,
                    signature,
                });
            }
        }
        Err(StatementError::NotSigned)
    }
}

/// Reads a request. Returns its nonce if it requests a signature.
fn request(reader: &mut Reader<'_>, version: u8) -> Result<Option<[u8; NONCE]>, StatementError> {
    const NAME: &str = "GET_MEASUREMENTS";
    if reader.0.is_empty() {
        return Err(StatementError::NotSigned);
    }
    let header = reader.header(GET_MEASUREMENTS, NAME)?;
    if header.version != version {
        return Err(StatementError::MixedVersions);
    }
    let nonce = if header.first & 1 == 0 {
        None
    } else {
        let nonce = reader.array(NAME)?;
        let _slot = reader.byte(NAME)?;
        Some(nonce)
    };
    if Version::of(version)?.has_context() {
        reader.take(CONTEXT, NAME)?;
    }
    Ok(nonce)
}

/// Reads the answer to a request, without its signature.
fn answer(
    reader: &mut Reader<'_>,
    version: u8,
    is_last: bool,
    into: &mut Vec<Measurement>,
) -> Result<(), StatementError> {
    const NAME: &str = "MEASUREMENTS";
    let header = reader.header(MEASUREMENTS, NAME)?;
    if header.version != version {
        return Err(StatementError::MixedVersions);
    }
    let version = Version::of(version)?;
    // Bits 5:4 from 1.2 on: 01 means that measurements changed after the first request of this statement.
    if is_last && version.has_prefix() && (header.second >> 4) & 0b11 == 1 {
        return Err(StatementError::Changed);
    }
    let blocks = reader.byte(NAME)?;
    let [low, middle, high] = reader.array(NAME)?;
    let length = u32::from_le_bytes([low, middle, high, 0]);
    let length = usize::try_from(length).map_err(|_| StatementError::Short(NAME))?;
    let mut record = Reader(reader.take(length, NAME)?);
    for _ in 0..blocks {
        into.push(block(&mut record)?);
        if into.len() > MEASUREMENTS_MAX {
            return Err(StatementError::Malformed("more measurements than indices"));
        }
    }
    if !record.0.is_empty() {
        return Err(StatementError::Malformed("the record is longer than its measurements"));
    }
    reader.take(NONCE, NAME)?;
    let opaque = reader.short(NAME)?;
    reader.take(usize::from(opaque), NAME)?;
    if version.has_context() {
        reader.take(CONTEXT, NAME)?;
    }
    Ok(())
}

fn block(record: &mut Reader<'_>) -> Result<Measurement, StatementError> {
    const NAME: &str = "a measurement";
    let [index, specification] = record.array(NAME)?;
    if specification != DMTF_SPECIFICATION {
        return Err(StatementError::Malformed("a measurement is not in the DMTF's form"));
    }
    let size = usize::from(record.short(NAME)?);
    let mut inner = Reader(record.take(size, NAME)?);
    let kind = inner.byte(NAME)?;
    let length = usize::from(inner.short(NAME)?);
    let value = inner.take(length, NAME)?.to_vec();
    if !inner.0.is_empty() {
        return Err(StatementError::Malformed("a measurement is longer than its value"));
    }
    Ok(Measurement {
        index,
        kind: kind & 0x7F,
        is_raw: kind & 0x80 != 0,
        value,
    })
}

/// Sorts by index. Two measurements with one index make the statement invalid.
fn in_order(mut measurements: Vec<Measurement>) -> Result<Vec<Measurement>, StatementError> {
    measurements.sort_by_key(|one| one.index);
    let is_twice = |pair: &[Measurement]| matches!(pair, [one, other] if one.index == other.index);
    match measurements.windows(2).any(is_twice) {
        true => Err(StatementError::Malformed("two measurements have the same index")),
        false => Ok(measurements),
    }
}
