//! The audit's hash chain: encodes records, links them, and checks both.
//!
//! A record is text. The first line names the format. Each further line holds one field, in a fixed order, as
//! `name=LENGTH:VALUE` with the length in bytes. One record has one encoding. The hash of a record is the SHA-256 of the
//! previous record's hash followed by the bytes of the record. The first record follows the hash of the site's authority.
//! The site's signing key signs each hash, so only a holder of that key can add a record.

use std::fmt;

use ring::digest::{Context, SHA256};

use crate::signer::CertificateSigner;

const VERSION: &str = "rackwright-audit-record-v1\n";
/// The first line of a signed statement about a chain's head.
const STATEMENT: &str = "rackwright-audit-head-v1";
/// The first line of the text that the first record follows.
const GENESIS: &str = "rackwright-audit-genesis-v1";
/// The largest record in bytes.
pub const AUDIT_RECORD_MAX: usize = 64 * 1024;
/// Number of fields of a record.
const FIELDS: usize = 19;

/// One record of the audit. An empty field is unknown or does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditRecord {
    /// Position in the chain: from 1, without gaps.
    pub position: u64,
    /// Microseconds since 1970.
    pub time_us: i64,
    /// Id of the call; all records of one call share it.
    pub call: String,
    /// For example `members/ann`, `agents/gpu-001` or `local/root`.
    pub caller: String,
    /// Role of a member.
    pub role: String,
    /// Epoch of the member's certificate.
    pub epoch: String,
    /// Customer of the member; empty for a member of the site.
    pub customer: String,
    /// Source address of the connection.
    pub address: String,
    /// Name that the client reports for itself.
    pub client: String,
    /// For example `NodeService/DeployNode`.
    pub method: String,
    /// Fields of the request without secrets, as JSON.
    pub request: String,
    /// Resource name of the call's target, such as `nodes/gpu-001`.
    pub target: String,
    /// Name of the site.
    pub site: String,
    /// Name of the gRPC status code, such as `OK` or `PERMISSION_DENIED`.
    pub outcome: String,
    /// A short sentence about the outcome.
    pub message: String,
    /// Resource name of the operation that the call started.
    pub operation: String,
    /// Trace id of the call, 32 hex digits.
    pub trace: String,
    /// The replica that wrote the record.
    pub replica: String,
    /// Number of calls that the record covers: 1, or more in a summary of refused calls.
    pub calls: u64,
}

/// Why a text is not a valid record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditRecordError {
    /// The text exceeds [`AUDIT_RECORD_MAX`].
    #[error("an audit record has at most 64 KiB")]
    TooLarge,
    /// A field is missing or malformed, or the format is unknown; the argument names the place.
    #[error("the audit record is broken at {0}")]
    Broken(&'static str),
    /// The values are valid, but their encoding is not the canonical one.
    #[error("the audit record is not in its canonical form")]
    NotCanonical,
}

impl AuditRecord {
    fn fields(&self) -> [(&'static str, String); FIELDS] {
        let text = |value: &String| value.clone();
        [
            ("position", self.position.to_string()),
            ("time_us", self.time_us.to_string()),
            ("call", text(&self.call)),
            ("caller", text(&self.caller)),
            ("role", text(&self.role)),
            ("epoch", text(&self.epoch)),
            ("customer", text(&self.customer)),
            ("address", text(&self.address)),
            ("client", text(&self.client)),
            ("method", text(&self.method)),
            ("request", text(&self.request)),
            ("target", text(&self.target)),
            ("site", text(&self.site)),
            ("outcome", text(&self.outcome)),
            ("message", text(&self.message)),
            ("operation", text(&self.operation)),
            ("trace", text(&self.trace)),
            ("replica", text(&self.replica)),
            ("calls", self.calls.to_string()),
        ]
    }

    /// Returns the bytes that are hashed.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut encoded = String::from(VERSION);
        for (name, value) in self.fields() {
            encoded.push_str(&format!("{name}={}:{value}\n", value.len()));
        }
        encoded
    }

    /// Reads a record; accepts the canonical encoding only.
    ///
    /// # Errors
    /// [`AuditRecordError`].
    pub fn decode(text: &str) -> Result<Self, AuditRecordError> {
        if text.len() > AUDIT_RECORD_MAX {
            return Err(AuditRecordError::TooLarge);
        }
        let rest = text.strip_prefix(VERSION);
        let mut rest = rest.ok_or(AuditRecordError::Broken("the first line"))?;
        let mut next = |name: &'static str| {
            let (value, after) = field(rest, name).ok_or(AuditRecordError::Broken(name))?;
            rest = after;
            Ok(value.to_owned())
        };
        let number = |name, text: String| text.parse::<u64>().map_err(|_| AuditRecordError::Broken(name));
        let record = Self {
            position: number("position", next("position")?)?,
            time_us: next("time_us")?
                .parse()
                .map_err(|_| AuditRecordError::Broken("time_us"))?,
            call: next("call")?,
            caller: next("caller")?,
            role: next("role")?,
            epoch: next("epoch")?,
            customer: next("customer")?,
            address: next("address")?,
            client: next("client")?,
            method: next("method")?,
            request: next("request")?,
            target: next("target")?,
            site: next("site")?,
            outcome: next("outcome")?,
            message: next("message")?,
            operation: next("operation")?,
            trace: next("trace")?,
            replica: next("replica")?,
            calls: number("calls", next("calls")?)?,
        };
        match record.encode() == text {
            true => Ok(record),
            false => Err(AuditRecordError::NotCanonical),
        }
    }
}

/// Returns the value of the field at the start of `text`, and the rest of the text.
fn field<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (length, rest) = text.strip_prefix(name)?.strip_prefix('=')?.split_once(':')?;
    let (value, rest) = rest.split_at_checked(length.parse().ok()?)?;
    Some((value, rest.strip_prefix('\n')?))
}

/// The end of a chain: the position and hash of its last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditHead {
    /// Position of the last record; 0 for an empty chain.
    pub position: u64,
    /// Hash of the last record.
    pub hash: [u8; 32],
}

impl AuditHead {
    /// The head of a site's empty chain, from the hash of its authority.
    #[must_use]
    pub fn genesis(authority: &str) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(format!("{GENESIS}\n{authority}\n").as_bytes());
        Self {
            position: 0,
            hash: finish(context),
        }
    }

    /// The head after one more record.
    #[must_use]
    pub fn with_record(&self, record: &str) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(&self.hash);
        context.update(record.as_bytes());
        Self {
            position: self.position + 1,
            hash: finish(context),
        }
    }

    /// The bytes that the site's key signs.
    #[must_use]
    pub fn statement(&self) -> String {
        format!("{STATEMENT}\nposition={}\nhash={}\n", self.position, self.hash_hex())
    }

    /// The hash as 64 hex digits.
    #[must_use]
    pub fn hash_hex(&self) -> String {
        hex::encode(self.hash)
    }

    /// The head at `position` with a hash of 64 hex digits; `None` if `hash` is malformed.
    #[must_use]
    pub fn from_hex(position: u64, hash: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(hash, &mut bytes).ok()?;
        Some(Self { position, hash: bytes })
    }
}

fn finish(context: Context) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// A stored record: its encoding, the chain's hash up to it, and the signature over that hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Position under which the record is stored.
    pub position: u64,
    /// Result of [`AuditRecord::encode`].
    pub record: String,
    /// Hash of the chain up to this record, 64 hex digits.
    pub hash: String,
    /// Public key that verifies the signature, 64 hex digits.
    pub key: String,
    /// Signature over [`AuditHead::statement`], 128 hex digits.
    pub signature: String,
}

impl AuditEntry {
    /// Links a record to a chain and signs it. The record gets the position after `head`.
    #[must_use]
    pub fn link(head: &AuditHead, record: &mut AuditRecord, signer: &CertificateSigner) -> (Self, AuditHead) {
        record.position = head.position + 1;
        let text = record.encode();
        let next = head.with_record(&text);
        let (signature, key) = signer.sign_with_key(next.statement().as_bytes());
        let entry = Self {
            position: next.position,
            record: text,
            hash: next.hash_hex(),
            key: hex::encode(key),
            signature: hex::encode(signature),
        };
        (entry, next)
    }
}

/// A fault at a position of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditFault {
    /// Records are missing from this position up to `to`.
    Missing {
        /// Last missing position.
        to: u64,
    },
    /// A record of another position stands here.
    Reordered {
        /// The position that the record states.
        stated: u64,
    },
    /// This record or an earlier one differs from the one that was hashed.
    Changed,
    /// No key of the site signed the hash.
    Forged,
    /// The row does not hold a valid record.
    NoRecord(AuditRecordError),
    /// The columns of the row differ from the record in it.
    Columns,
    /// The chain ends before this position, although a signed head names it.
    Cut {
        /// Position of the last existing record.
        last: u64,
    },
    /// A signed head names another hash at this position: the chain was replaced.
    Replaced,
    /// The control plane found that records after a position were lost, and recorded the loss here.
    Gap(String),
}

/// The first fault of a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct AuditChainError {
    /// Position of the fault.
    pub position: u64,
    /// Kind of the fault.
    pub fault: AuditFault,
}

impl fmt::Display for AuditChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.position;
        match &self.fault {
            AuditFault::Missing { to } if *to == at => write!(f, "record {at} is missing"),
            AuditFault::Missing { to } => write!(f, "records {at} to {to} are missing"),
            AuditFault::Reordered { stated } => {
                write!(
                    f,
                    "records are out of order: the record at position {at} has the number {stated}"
                )
            }
            AuditFault::Changed => write!(
                f,
                "record {at} was changed: its hash does not match its content and the previous record"
            ),
            AuditFault::Forged => write!(
                f,
                "record {at} was forged: its hash is not signed by a key of this site"
            ),
            AuditFault::NoRecord(error) => write!(f, "record {at} was changed: {error}"),
            AuditFault::Columns => write!(f, "record {at} was changed: the search columns differ from the record"),
            AuditFault::Cut { last } => write!(
                f,
                "the end is cut off: the last record is {last}, but the signed head outside of the database names \
                 record {at}"
            ),
            AuditFault::Replaced => write!(
                f,
                "record {at} is not the record that the signed head outside of the database names: the chain was replaced"
            ),
            AuditFault::Gap(message) => write!(f, "record {at} reports a gap: {message}"),
        }
    }
}

/// Verifies a chain record by record.
#[derive(Debug)]
pub struct AuditVerifier {
    head: AuditHead,
    /// Public keys of the site, 64 hex digits each.
    keys: Vec<String>,
}

impl AuditVerifier {
    /// Starts after `head`. `keys` are the site's public keys; only their signatures are valid.
    #[must_use]
    pub fn new(head: AuditHead, keys: impl IntoIterator<Item = [u8; 32]>) -> Self {
        let keys = keys.into_iter().map(hex::encode).collect();
        Self { head, keys }
    }

    /// The head after the last verified record.
    #[must_use]
    pub fn head(&self) -> AuditHead {
        self.head
    }

    /// Checks the next entry and returns its record.
    ///
    /// # Errors
    /// The first fault. The verifier cannot continue after it.
    pub fn verify_next(&mut self, entry: &AuditEntry) -> Result<AuditRecord, AuditChainError> {
        let expected = self.head.position + 1;
        let broken = |position, fault| Err(AuditChainError { position, fault });
        if entry.position > expected {
            return broken(expected, AuditFault::Missing { to: entry.position - 1 });
        }
        if entry.position < expected {
            return broken(expected, AuditFault::Reordered { stated: entry.position });
        }
        let record = match AuditRecord::decode(&entry.record) {
            Ok(record) => record,
            Err(error) => return broken(expected, AuditFault::NoRecord(error)),
        };
        if record.position != expected {
            let stated = record.position;
            return broken(expected, AuditFault::Reordered { stated });
        }
        let next = self.head.with_record(&entry.record);
        if next.hash_hex() != entry.hash {
            return broken(expected, AuditFault::Changed);
        }
        if !is_signed(&next, &self.keys, &entry.key, &entry.signature) {
            return broken(expected, AuditFault::Forged);
        }
        self.head = next;
        Ok(record)
    }
}

/// Reports whether `key` is one of `keys` and signed `head`.
#[must_use]
pub fn is_signed(head: &AuditHead, keys: &[String], key: &str, signature: &str) -> bool {
    let (Ok(key_bytes), Ok(signature)) = (hex::decode(key), hex::decode(signature)) else {
        return false;
    };
    keys.iter().any(|known| known == key)
        && CertificateSigner::verify(&key_bytes, head.statement().as_bytes(), &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORITY: &str = "sha256:00";

    fn signer() -> CertificateSigner {
        CertificateSigner::from_seed([7; 32]).unwrap()
    }

    fn chain(length: u64) -> Vec<AuditEntry> {
        let (mut head, signer) = (AuditHead::genesis(AUTHORITY), signer());
        let link = |n: u64| {
            let mut record = AuditRecord {
                caller: format!("members/m{n}"),
                request: "{\"name\":\"nodes/n17\"}\n\"=:".into(),
                calls: 1,
                ..AuditRecord::default()
            };
            let (entry, next) = AuditEntry::link(&head, &mut record, &signer);
            head = next;
            entry
        };
        (0..length).map(link).collect()
    }

    fn verify(entries: &[AuditEntry]) -> Result<AuditHead, AuditChainError> {
        let mut verifier = AuditVerifier::new(AuditHead::genesis(AUTHORITY), [signer().public_key()]);
        for entry in entries {
            verifier.verify_next(entry)?;
        }
        Ok(verifier.head())
    }

    fn fault(entries: &[AuditEntry]) -> (u64, AuditFault) {
        let broken = verify(entries).unwrap_err();
        (broken.position, broken.fault)
    }

    #[test]
    fn a_record_has_one_encoding() {
        let entry = &chain(1)[0];
        let record = AuditRecord::decode(&entry.record).unwrap();
        assert_eq!(record.encode(), entry.record);
        for other in [
            entry.record.replace("position=1:1", "position=2:01"),
            entry.record.replace("calls=1:1", "calls=2:+1"),
            format!("{}\n", entry.record),
            entry.record.replace("record-v1", "record-v2"),
            entry.record[..entry.record.len() - 1].to_owned(),
            "é".repeat(40_000),
        ] {
            assert!(AuditRecord::decode(&other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn the_first_fault_of_a_chain_is_named_with_its_position() {
        let whole = chain(6);
        assert_eq!(verify(&whole).unwrap().position, 6);

        let mut changed = whole.clone();
        changed[2].record = changed[2].record.replace("m2", "m9");
        assert_eq!(fault(&changed), (3, AuditFault::Changed));

        let mut deleted = whole.clone();
        deleted.drain(2..4);
        assert_eq!(fault(&deleted), (3, AuditFault::Missing { to: 4 }));

        let mut swapped = whole.clone();
        swapped.swap(2, 3);
        assert_eq!(fault(&swapped), (3, AuditFault::Missing { to: 3 }));
        // Also if each row claims the other's position.
        swapped[2].position = 3;
        swapped[3].position = 4;
        assert_eq!(fault(&swapped), (3, AuditFault::Reordered { stated: 4 }));

        let mut twice = whole.clone();
        twice.insert(3, whole[1].clone());
        assert_eq!(fault(&twice), (4, AuditFault::Reordered { stated: 2 }));

        let mut broken = whole.clone();
        broken[5].record.clear();
        assert!(matches!(fault(&broken), (6, AuditFault::NoRecord(_))));
    }

    #[test]
    fn records_cannot_be_forged_without_the_key() {
        let whole = chain(3);
        let mut head = AuditHead::genesis(AUTHORITY).with_record(&whole[0].record);
        let forger = CertificateSigner::from_seed([8; 32]).unwrap();
        let mut forged = whole[..1].to_vec();
        for entry in &whole[1..] {
            let mut record = AuditRecord::decode(&entry.record).unwrap();
            record.caller = "members/eve".into();
            let (entry, next) = AuditEntry::link(&head, &mut record, &forger);
            head = next;
            forged.push(entry);
        }
        assert_eq!(fault(&forged), (2, AuditFault::Forged), "a key of a stranger");
        forged[1].key = whole[1].key.clone();
        assert_eq!(fault(&forged), (2, AuditFault::Forged), "the signature of a stranger");
        forged[1].signature = whole[1].signature.clone();
        assert_eq!(
            fault(&forged),
            (2, AuditFault::Forged),
            "the signature of another record"
        );
        // A chain of another site.
        let mut verifier = AuditVerifier::new(AuditHead::genesis("sha256:01"), [signer().public_key()]);
        assert_eq!(verifier.verify_next(&whole[0]).unwrap_err().fault, AuditFault::Changed);
    }
}
