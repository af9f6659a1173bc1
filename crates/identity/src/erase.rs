//! The payload of an erase certificate: the bytes that are signed.
//!
//! The first line names the format. Each further line holds one field, in a fixed order, as `name=LENGTH:VALUE` with the
//! length in bytes: no value can pass for another field. Numbers are decimal. Times are Unix seconds and nine digits of
//! nanoseconds. One record has exactly one encoding, and [`EraseRecord::decode`] accepts no other.
//!
//! Version 2 adds the witnesses of the drive. Version 3 adds how the machine was identified, as the first field. Version 4
//! adds the place in the site's chain of certificates, the digest of the machine's attestation, and further evidence. Older
//! versions are still accepted.
//!
//! ```text
//! rackwright-erase-certificate-v4
//! identity=12:address only
//! attestation=0:
//! number=2:17
//! previous=64:9f86d081…
//! issue_time=20:1790000010.000000000
//! name=50:nodes/gpu-001/eraseCertificates/…
//! node=13:nodes/gpu-001
//! claim_generation=1:3
//! …
//! rejected_methods=1:1
//! rejected_method=36:NVME_SANITIZE_CRYPTO: not supported…
//! witnesses=1:2
//! witness=3:bmc
//! witness=10:inspection
//! evidence=1:1
//! evidence_line=99:memory: powered off for 12 s, read from the BMC at 2026-09-21T14:13:10Z and at 2026-09-21T14:13:22Z
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const VERSION_1: &str = "rackwright-erase-certificate-v1\n";
const VERSION_2: &str = "rackwright-erase-certificate-v2\n";
const VERSION_3: &str = "rackwright-erase-certificate-v3\n";
const VERSION_4: &str = "rackwright-erase-certificate-v4\n";
const PAYLOAD_MAX_BYTES: usize = 64 * 1024;
const REJECTED_MAX: u64 = 64;
const WITNESSES_MAX: u64 = 16;
/// Largest number of lines of evidence.
pub const EVIDENCE_MAX: usize = 64;

/// The content of an erase certificate: the fields of `rackwright.v1.EraseCertificate` without the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EraseRecord {
    /// `nodes/{node}/eraseCertificates/{uuid}`.
    pub name: String,
    /// `nodes/{node}`.
    pub node: String,
    /// Generation of the claim that ended.
    pub claim_generation: u64,
    /// Operation that erased the drive.
    pub operation: String,
    /// The kernel's name of the drive.
    pub drive_name: String,
    /// As reported by the drive.
    pub drive_model: String,
    /// As reported by the drive.
    pub drive_serial: String,
    /// Size of the drive in bytes.
    pub drive_bytes: u64,
    /// The name of the `EraseMethod`, such as `ERASE_METHOD_NVME_FORMAT_CRYPTO`.
    pub method: String,
    /// Start of the erase.
    pub start_time: SystemTime,
    /// End of the verification.
    pub end_time: SystemTime,
    /// Number of samples that were read back.
    pub samples: u64,
    /// Bytes per sample.
    pub sample_bytes: u64,
    /// Stronger methods, each with the reason why it was not used.
    pub rejected_methods: Vec<String>,
    /// Sources that confirm the drive's serial number, model, size and namespaces, such as `bmc`. Version 1 has none.
    pub witnesses: Vec<String>,
    /// How the erasing machine was identified: "tpm", "bmc" or "address only". Versions 1 and 2 have none.
    pub identity: String,
    /// Further evidence of the erase, one sentence a line: memory, native capacity, hidden areas, omissions. Versions 1 to
    /// 3 have none.
    pub evidence: Vec<String>,
    /// The place in the site's chain. Versions 1 to 3 have none.
    pub link: Option<ChainLink>,
}

/// The place of a certificate in the site's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// Counts from 1.
    pub number: u64,
    /// [`chain_hash`] of the previous certificate, 64 hex digits; empty for the first one.
    pub previous: String,
    /// Time of signing, by the control plane's clock.
    pub issue_time: SystemTime,
    /// SHA-256 of the machine's quote and the quote's signature, 64 hex digits; empty if no TPM identified the machine.
    pub attestation: String,
}

/// SHA-256 of a certificate's payload, 64 hex digits. An export contains this hash in place of a certificate that it omits.
pub fn payload_hash(payload: &[u8]) -> String {
    hex::encode(ring::digest::digest(&ring::digest::SHA256, payload))
}

/// The hash of a place in the chain, 64 hex digits. It covers the payload's hash instead of the payload, so that a chain can
/// be verified without the omitted certificates.
pub fn chain_hash(number: u64, previous: &str, payload_hash: &str) -> String {
    let text = format!("rackwright-erase-chain-v1\nnumber={number}\nprevious={previous}\npayload={payload_hash}\n");
    hex::encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()))
}

/// The bytes of the signed statement about the chain's newest place.
pub fn chain_head(number: u64, hash: &str, time: SystemTime) -> Result<Vec<u8>, PayloadError> {
    let time = time_text("time", time)?;
    Ok(format!("rackwright-erase-chain-head-v1\nnumber={number}\nhash={hash}\ntime={time}\n").into_bytes())
}

/// Why a record cannot be encoded or a payload cannot be decoded. Permanent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload exceeds the largest size that is ever signed.
    #[error("the erase certificate's payload is larger than 64 KiB")]
    TooLarge,
    /// The time cannot be encoded.
    #[error("the erase certificate's {0} lies before 1970 or out of range")]
    Time(&'static str),
    /// The record has evidence, but no place in the chain.
    #[error("the erase certificate has evidence but no place in the chain")]
    NoPlace,
    /// A field is missing or malformed, or the format is unknown; the argument names the place.
    #[error("the erase certificate's payload is broken at {0}")]
    Broken(&'static str),
    /// The values are valid, but their encoding is not the canonical one.
    #[error("the erase certificate's payload is not in its canonical form")]
    NotCanonical,
}

impl EraseRecord {
    /// The bytes to sign: version 4, or an older version for a record without a place in the chain or an identity. Only
    /// version 4 carries evidence.
    pub fn encode(&self) -> Result<Vec<u8>, PayloadError> {
        let has_witnesses = !self.witnesses.is_empty();
        let version = match (self.identity.is_empty(), has_witnesses) {
            (false, _) if self.link.is_some() => VERSION_4,
            _ if !self.evidence.is_empty() => return Err(PayloadError::NoPlace),
            (false, _) => VERSION_3,
            (true, true) => VERSION_2,
            (true, false) => VERSION_1,
        };
        let mut text = String::from(version);
        if !self.identity.is_empty() {
            put(&mut text, "identity", &self.identity);
        }
        if let Some(link) = self.link.as_ref().filter(|_| version == VERSION_4) {
            put(&mut text, "attestation", &link.attestation);
            put(&mut text, "number", &link.number.to_string());
            put(&mut text, "previous", &link.previous);
            put(&mut text, "issue_time", &time_text("issue_time", link.issue_time)?);
        }
        put(&mut text, "name", &self.name);
        put(&mut text, "node", &self.node);
        put(&mut text, "claim_generation", &self.claim_generation.to_string());
        put(&mut text, "operation", &self.operation);
        put(&mut text, "drive_name", &self.drive_name);
        put(&mut text, "drive_model", &self.drive_model);
        put(&mut text, "drive_serial", &self.drive_serial);
        put(&mut text, "drive_bytes", &self.drive_bytes.to_string());
        put(&mut text, "method", &self.method);
        put(&mut text, "start_time", &time_text("start_time", self.start_time)?);
        put(&mut text, "end_time", &time_text("end_time", self.end_time)?);
        put(&mut text, "samples", &self.samples.to_string());
        put(&mut text, "sample_bytes", &self.sample_bytes.to_string());
        put(&mut text, "rejected_methods", &self.rejected_methods.len().to_string());
        for rejected in &self.rejected_methods {
            put(&mut text, "rejected_method", rejected);
        }
        if version != VERSION_1 {
            put(&mut text, "witnesses", &self.witnesses.len().to_string());
        }
        for witness in &self.witnesses {
            put(&mut text, "witness", witness);
        }
        if version == VERSION_4 {
            put(&mut text, "evidence", &self.evidence.len().to_string());
            for line in &self.evidence {
                put(&mut text, "evidence_line", line);
            }
        }
        let too_many = self.evidence.len() > EVIDENCE_MAX
            || self.rejected_methods.len() as u64 > REJECTED_MAX
            || self.witnesses.len() as u64 > WITNESSES_MAX;
        if too_many || text.len() > PAYLOAD_MAX_BYTES {
            Err(PayloadError::TooLarge)
        } else {
            Ok(text.into_bytes())
        }
    }

    /// Decodes a payload. The caller must verify its signature first.
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        if payload.len() > PAYLOAD_MAX_BYTES {
            return Err(PayloadError::TooLarge);
        }
        let text = std::str::from_utf8(payload).map_err(|_| PayloadError::Broken("its characters"))?;
        let versions = [VERSION_1, VERSION_2, VERSION_3, VERSION_4];
        let found = versions.iter().find_map(|v| Some((*v, text.strip_prefix(*v)?)));
        let (version, lines) = found.ok_or(PayloadError::Broken("its first line"))?;
        let mut rest = Lines(lines);
        let identity = match version {
            VERSION_3 | VERSION_4 => rest.text("identity")?,
            _ => String::new(),
        };
        let link = match version {
            VERSION_4 => Some(rest.link()?),
            _ => None,
        };
        let mut record = Self {
            identity,
            link,
            name: rest.text("name")?,
            node: rest.text("node")?,
            claim_generation: rest.number("claim_generation")?,
            operation: rest.text("operation")?,
            drive_name: rest.text("drive_name")?,
            drive_model: rest.text("drive_model")?,
            drive_serial: rest.text("drive_serial")?,
            drive_bytes: rest.number("drive_bytes")?,
            method: rest.text("method")?,
            start_time: rest.time("start_time")?,
            end_time: rest.time("end_time")?,
            samples: rest.number("samples")?,
            sample_bytes: rest.number("sample_bytes")?,
            rejected_methods: Vec::new(),
            witnesses: Vec::new(),
            evidence: Vec::new(),
        };
        let rejected = rest.number("rejected_methods")?;
        if rejected > REJECTED_MAX {
            return Err(PayloadError::TooLarge);
        }
        for _ in 0..rejected {
            record.rejected_methods.push(rest.text("rejected_method")?);
        }
        let witnesses = if version != VERSION_1 {
            rest.number("witnesses")?
        } else {
            0
        };
        if witnesses > WITNESSES_MAX {
            return Err(PayloadError::TooLarge);
        }
        for _ in 0..witnesses {
            record.witnesses.push(rest.text("witness")?);
        }
        let evidence = match version {
            VERSION_4 => rest.number("evidence")?,
            _ => 0,
        };
        if evidence > EVIDENCE_MAX as u64 {
            return Err(PayloadError::TooLarge);
        }
        for _ in 0..evidence {
            record.evidence.push(rest.text("evidence_line")?);
        }
        if !rest.0.is_empty() {
            return Err(PayloadError::Broken("its end"));
        }
        if record.encode()? == payload {
            Ok(record)
        } else {
            Err(PayloadError::NotCanonical)
        }
    }
}

fn put(text: &mut String, name: &str, value: &str) {
    text.push_str(&format!("{name}={}:{value}\n", value.len()));
}

fn time_text(name: &'static str, time: SystemTime) -> Result<String, PayloadError> {
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| PayloadError::Time(name))?;
    Ok(format!("{}.{:09}", since.as_secs(), since.subsec_nanos()))
}

/// The rest of a payload.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn text(&mut self, name: &'static str) -> Result<String, PayloadError> {
        let broken = || PayloadError::Broken(name);
        let rest = self
            .0
            .strip_prefix(name)
            .and_then(|r| r.strip_prefix('='))
            .ok_or_else(broken)?;
        let (length, rest) = rest.split_once(':').ok_or_else(broken)?;
        let length: usize = length.parse().map_err(|_| broken())?;
        let value = rest.get(..length).ok_or_else(broken)?;
        self.0 = rest[length..].strip_prefix('\n').ok_or_else(broken)?;
        Ok(value.into())
    }

    fn link(&mut self) -> Result<ChainLink, PayloadError> {
        let attestation = self.text("attestation")?;
        Ok(ChainLink {
            number: self.number("number")?,
            previous: self.text("previous")?,
            issue_time: self.time("issue_time")?,
            attestation,
        })
    }

    fn number(&mut self, name: &'static str) -> Result<u64, PayloadError> {
        self.text(name)?.parse().map_err(|_| PayloadError::Broken(name))
    }

    fn time(&mut self, name: &'static str) -> Result<SystemTime, PayloadError> {
        let text = self.text(name)?;
        let (seconds, nanos) = text.split_once('.').ok_or(PayloadError::Broken(name))?;
        let seconds: u64 = seconds.parse().map_err(|_| PayloadError::Broken(name))?;
        let nanos: u32 = nanos.parse().map_err(|_| PayloadError::Broken(name))?;
        if nanos >= 1_000_000_000 {
            return Err(PayloadError::Broken(name));
        }
        UNIX_EPOCH
            .checked_add(Duration::new(seconds, nanos))
            .ok_or(PayloadError::Time(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> EraseRecord {
        EraseRecord {
            name: "nodes/gpu-001/eraseCertificates/4f1c".into(),
            node: "nodes/gpu-001".into(),
            claim_generation: 3,
            operation: "operations/77".into(),
            drive_name: "nvme0n1".into(),
            drive_model: "ACME\nsamples=1:9".into(),
            drive_serial: "S1=1:x".into(),
            drive_bytes: 3_840_755_982_336,
            method: "ERASE_METHOD_NVME_FORMAT_CRYPTO".into(),
            start_time: UNIX_EPOCH + Duration::new(1_790_000_000, 5),
            end_time: UNIX_EPOCH + Duration::new(1_790_000_009, 0),
            samples: 4096,
            sample_bytes: 4096,
            rejected_methods: vec!["sanitize: not supported".into(), String::new()],
            witnesses: vec!["bmc".into(), "inspection".into()],
            identity: "address only".into(),
            evidence: vec!["memory: off\nwitness=3:bmc".into(), String::new()],
            link: Some(ChainLink {
                number: 1,
                previous: String::new(),
                issue_time: UNIX_EPOCH + Duration::from_secs(1_790_000_010),
                attestation: String::new(),
            }),
        }
    }

    #[test]
    fn a_place_in_the_chain_is_signed_and_read() {
        let mut record = record();
        record.link = Some(ChainLink {
            number: 2,
            previous: "ab".repeat(32),
            issue_time: UNIX_EPOCH + Duration::from_secs(7),
            attestation: "cd".repeat(32),
        });
        let payload = record.encode().unwrap();
        let text = String::from_utf8(payload.clone()).unwrap();
        assert!(text.starts_with("rackwright-erase-certificate-v4\nidentity=12:address only\nattestation=64:cdcd"));
        assert_eq!(EraseRecord::decode(&payload).unwrap(), record);
        for changed in [
            text.replace("-v4", "-v3"),
            text.replace("number=1:2\n", ""),
            text.replace("number=1:2", "number=2:02"),
        ] {
            assert!(EraseRecord::decode(changed.as_bytes()).is_err());
        }
    }

    #[test]
    fn every_part_of_a_place_changes_its_hash() {
        let payload = payload_hash(b"one");
        let hash = chain_hash(1, "", &payload);
        for other in [
            chain_hash(2, "", &payload),
            chain_hash(1, &hash, &payload),
            chain_hash(1, "", &payload_hash(b"two")),
        ] {
            assert!(other.len() == 64 && other != hash);
        }
    }

    #[test]
    fn encoding_is_fixed() {
        let mut plain = record();
        plain.drive_model = "Ä".into();
        plain.evidence = vec!["memory: off".into()];
        let expected = "rackwright-erase-certificate-v4\nidentity=12:address only\nattestation=0:\n\
            number=1:1\nprevious=0:\nissue_time=20:1790000010.000000000\nname=36:nodes/gpu-001/eraseCertificates/4f1c\n\
            node=13:nodes/gpu-001\nclaim_generation=1:3\noperation=13:operations/77\ndrive_name=7:nvme0n1\n\
            drive_model=2:Ä\ndrive_serial=6:S1=1:x\ndrive_bytes=13:3840755982336\n\
            method=31:ERASE_METHOD_NVME_FORMAT_CRYPTO\nstart_time=20:1790000000.000000005\n\
            end_time=20:1790000009.000000000\nsamples=4:4096\nsample_bytes=4:4096\nrejected_methods=1:2\n\
            rejected_method=23:sanitize: not supported\nrejected_method=0:\n\
            witnesses=1:2\nwitness=3:bmc\nwitness=10:inspection\n\
            evidence=1:1\nevidence_line=11:memory: off\n";
        assert_eq!(String::from_utf8(plain.encode().unwrap()).unwrap(), expected);
        assert_eq!(EraseRecord::decode(expected.as_bytes()).unwrap(), plain);
        // Records from before version 4, before version 3, and before version 2.
        assert!(matches!(
            EraseRecord {
                link: None,
                ..plain.clone()
            }
            .encode(),
            Err(PayloadError::NoPlace)
        ));
        plain.evidence.clear();
        plain.link = None;
        let place = "attestation=0:\nnumber=1:1\nprevious=0:\nissue_time=20:1790000010.000000000\n";
        let expected = expected.replace("-v4", "-v3").replace(place, "");
        let (expected, _) = expected.split_once("evidence=").unwrap();
        assert_eq!(String::from_utf8(plain.encode().unwrap()).unwrap(), expected);
        assert_eq!(EraseRecord::decode(expected.as_bytes()).unwrap(), plain);
        plain.identity.clear();
        let old = expected.replace("-v3\nidentity=12:address only", "-v2");
        assert_eq!(String::from_utf8(plain.encode().unwrap()).unwrap(), old);
        assert_eq!(EraseRecord::decode(old.as_bytes()).unwrap(), plain);
        plain.witnesses.clear();
        let old = old.replace("-v2", "-v1");
        let (old, _) = old.split_once("witnesses=").unwrap();
        assert_eq!(String::from_utf8(plain.encode().unwrap()).unwrap(), old);
        assert_eq!(EraseRecord::decode(old.as_bytes()).unwrap(), plain);
    }

    #[test]
    fn hostile_values_come_back_as_they_were() {
        let record = record();
        assert_eq!(EraseRecord::decode(&record.encode().unwrap()).unwrap(), record);
    }

    #[test]
    fn other_forms_are_refused() {
        let text = String::from_utf8(record().encode().unwrap()).unwrap();
        let refuse = |changed: String, what: &str| {
            assert_ne!(changed, text, "{what} changed nothing");
            assert!(EraseRecord::decode(changed.as_bytes()).is_err(), "{what}");
        };
        refuse(
            text.replace("claim_generation=1:3", "claim_generation=2:03"),
            "leading zero",
        );
        refuse(text.replace("claim_generation=1:3", "claim_generation=2:+3"), "sign");
        refuse(text.replace("node=13:", "node=013:"), "length with zero");
        refuse(
            text.replace("rejected_methods=1:2", "rejected_methods=1:1"),
            "left over",
        );
        refuse(
            text.replace("rejected_methods=1:2", "rejected_methods=19:9999999999999999999"),
            "count",
        );
        refuse(text.replace("node=13:", "node=99999999999:"), "length beyond the end");
        refuse(text.replace("-v4", "-v1"), "an identity in version 1");
        refuse(text.replace("-v4", "-v2"), "an identity in version 2");
        refuse(text.replace("-v4", "-v3"), "evidence in version 3");
        refuse(text.replace("-v4", "-v5"), "version");
        refuse(text.replace("evidence=1:2", "evidence=1:1"), "a line too many");
        refuse(text.replace("evidence=1:2", "evidence=2:99"), "more lines than can be");
        let (without, _) = text.split_once("evidence=").unwrap();
        refuse(without.to_owned(), "no evidence in version 4");
        refuse(
            text.replace("identity=12:address only\n", ""),
            "no identity in version 4",
        );
        refuse(
            text.replace("identity=12:address only", "identity=0:"),
            "an empty identity",
        );
        refuse(text.replace("witnesses=1:2", "witnesses=1:1"), "a witness too many");
        refuse(
            text.replace("witnesses=1:2", "witnesses=2:99"),
            "more witnesses than can be",
        );
        let none = text.replace(
            "witnesses=1:2\nwitness=3:bmc\nwitness=10:inspection\n",
            "witnesses=1:0\n",
        );
        let (none, _) = none.split_once("evidence=").unwrap();
        let version_2 = none.replace("-v4\nidentity=12:address only", "-v2");
        refuse(version_2, "no witness in version 2");
        refuse(format!("{text}\n"), "trailing line");
        refuse(text.replace(".000000005", ".5"), "short nanoseconds");
        for end in 0..text.len() {
            assert!(EraseRecord::decode(&text.as_bytes()[..end]).is_err(), "{end} bytes");
        }
    }
}
