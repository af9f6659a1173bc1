//! A file with a chain of erase certificates, and its faults by position.
//!
//! The hash of a place is computed from its number, the hash of the previous place and the hash of the payload. So the
//! chain can be checked across certificates that the file contains only as a hash. Every certificate contains the hash of
//! the previous place, and the signed head contains the hash of the newest place.

use std::collections::HashMap;

use rackwright_api::v1::SigningKey;
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value;

use super::FORMAT;
use crate::node::evidence::signed_fields;
use crate::node::signing_keys::SigningKeys;

/// Allowed difference between the clocks of two control planes of a site.
const CLOCKS_S: f64 = 300.0;

/// A certificate that the file contains in full.
#[derive(Debug)]
struct Certificate {
    payload: String,
    signature: Vec<u8>,
    signer: String,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    payload_hash: String,
    certificate: Option<Certificate>,
}

#[derive(Debug)]
struct Head {
    number: u64,
    hash: String,
    time: String,
    signature: Vec<u8>,
    signer: String,
}

/// An exported file.
#[derive(Debug)]
pub struct File {
    keys: Vec<SigningKey>,
    head: Head,
    entries: Vec<Entry>,
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}

/// The hash of a place in the chain.
fn place_hash(number: u64, previous: &str, payload_hash: &str) -> String {
    let text = format!("rackwright-erase-chain-v1\nnumber={number}\nprevious={previous}\npayload={payload_hash}\n");
    sha256(text.as_bytes())
}

fn text(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().map(str::to_owned)
}

fn bytes(value: &Value, field: &str) -> Option<Vec<u8>> {
    hex::decode(value[field].as_str()?).ok()
}

impl Head {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            number: value["number"].as_u64()?,
            hash: text(value, "hash")?,
            time: text(value, "time")?,
            signature: bytes(value, "signature")?,
            signer: text(value, "signer")?,
        })
    }

    fn seconds(&self) -> f64 {
        self.time.parse().unwrap_or(0.0)
    }

    fn statement(&self) -> String {
        format!(
            "rackwright-erase-chain-head-v1\nnumber={}\nhash={}\ntime={}\n",
            self.number, self.hash, self.time
        )
    }
}

impl Entry {
    fn read(value: &Value) -> Option<Self> {
        let number = value["number"].as_u64()?;
        let certificate = text(value, "payload").and_then(|payload| {
            Some(Certificate {
                payload,
                signature: bytes(value, "signature")?,
                signer: text(value, "signer")?,
            })
        });
        let payload_hash = match &certificate {
            Some(certificate) => sha256(certificate.payload.as_bytes()),
            None => text(value, "payload_sha256")?,
        };
        Some(Self {
            number,
            payload_hash,
            certificate,
        })
    }
}

fn read_key(value: &Value) -> Option<SigningKey> {
    Some(SigningKey {
        number: u32::try_from(value["number"].as_u64()?).ok()?,
        public_key: bytes(value, "public_key")?,
        signature: bytes(value, "signature")?,
    })
}

fn holds(signer: &str, text: &str, signature: &[u8]) -> bool {
    let key = hex::decode(signer).unwrap_or_default();
    UnparsedPublicKey::new(&ED25519, key)
        .verify(text.as_bytes(), signature)
        .is_ok()
}

/// The statements of a certificate about its place.
struct Claimed {
    number: String,
    previous: String,
    issued: f64,
    ended: f64,
}

impl Claimed {
    fn of(payload: &str) -> Option<Self> {
        let fields = signed_fields(payload.as_bytes())?;
        let field = |name: &str| {
            let value = *fields.get(name)?.first()?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };
        Some(Self {
            number: field("number")?,
            previous: field("previous")?,
            issued: field("issue_time")?.parse().ok()?,
            ended: field("end_time")?.parse().ok()?,
        })
    }
}

/// The state of a file's check.
#[derive(Debug, Default)]
struct Walk {
    /// The number of the last place.
    number: u64,
    /// Its hash; none if it is unknown because previous places are missing.
    hash: Option<String>,
    /// The latest signing time of a certificate.
    issued: f64,
    faults: Vec<String>,
}

impl Walk {
    fn fault(&mut self, number: u64, what: &str) {
        self.faults.push(format!("certificate {number} {what}"));
    }

    /// Whether the entry's place is in the order of the file.
    fn is_in_order(&mut self, number: u64) -> bool {
        if number <= self.number {
            let last = self.number;
            self.fault(
                number,
                &format!("comes after certificate {last}: it was moved or is a duplicate"),
            );
            return false;
        }
        for missing in (self.number + 1..number).take(20) {
            self.fault(missing, "is missing");
        }
        if number > self.number + 1 {
            self.hash = None;
        }
        true
    }

    fn entry(&mut self, entry: &Entry, keys: &SigningKeys, key: Option<&str>) {
        if !self.is_in_order(entry.number) {
            return;
        }
        self.number = entry.number;
        let mut previous = self.hash.take();
        if let Some(certificate) = &entry.certificate
            && let Some(claimed) = self.certificate(entry.number, certificate, keys, key)
        {
            if claimed.number != entry.number.to_string() {
                let what = format!("was signed as certificate {}: it was moved", claimed.number);
                self.fault(entry.number, &what);
            } else if previous.as_ref().is_some_and(|previous| *previous != claimed.previous) {
                let what = "does not follow from the certificate before it: that certificate was changed or replaced";
                self.fault(entry.number, what);
            }
            if claimed.issued + CLOCKS_S < self.issued {
                self.fault(
                    entry.number,
                    "was signed earlier than a certificate before it: it is back-dated",
                );
            }
            if claimed.ended > claimed.issued + CLOCKS_S {
                self.fault(
                    entry.number,
                    "states that the erase ended after the time of its signature",
                );
            }
            self.issued = self.issued.max(claimed.issued);
            previous = Some(claimed.previous);
        }
        self.hash = previous.map(|previous| place_hash(entry.number, &previous, &entry.payload_hash));
    }

    /// Checks a single certificate.
    fn certificate(
        &mut self,
        number: u64,
        certificate: &Certificate,
        keys: &SigningKeys,
        key: Option<&str>,
    ) -> Option<Claimed> {
        if let Err(why) = keys.judge(&certificate.signer, key) {
            self.fault(number, &format!("is not valid: {why}"));
        } else if !holds(&certificate.signer, &certificate.payload, &certificate.signature) {
            self.fault(number, "was changed: its signature is wrong");
            return None;
        }
        let claimed = Claimed::of(&certificate.payload);
        if claimed.is_none() {
            self.fault(number, "has no valid place in the chain");
        }
        claimed
    }
}

impl File {
    /// Reads a file. The error is a sentence.
    pub fn read(file: &str) -> Result<Self, String> {
        let mut lines = file.lines().enumerate();
        let broken = |line: usize| format!("line {} cannot be read", line + 1);
        let json = |(number, line): (usize, &str)| {
            let value = serde_json::from_str::<Value>(line).map_err(|_| broken(number))?;
            Ok::<_, String>((number, value))
        };
        let (_, first) = lines.next().map_or_else(|| Err("the file is empty".to_owned()), json)?;
        if first["format"] != FORMAT {
            return Err(format!(
                "the file is not from `rackwright certificates --export` ({FORMAT})"
            ));
        }
        let keys = first["signing_keys"].as_array().into_iter().flatten();
        let keys: Option<Vec<SigningKey>> = keys.map(read_key).collect();
        let (keys, head) = keys.zip(Head::read(&first["head"])).ok_or_else(|| broken(0))?;
        let entry = |line| {
            let (number, value) = json(line)?;
            Entry::read(&value).ok_or_else(|| broken(number))
        };
        Ok(Self {
            keys,
            head,
            entries: lines.map(entry).collect::<Result<_, _>>()?,
        })
    }

    /// The faults, as sentences with positions. Empty: the chain is complete.
    pub fn verify(&self, key: Option<&str>) -> Vec<String> {
        let keys = match SigningKeys::checked(self.keys.clone()) {
            Ok(keys) => keys,
            Err(why) => return vec![why],
        };
        let mut walk = Walk {
            hash: Some(String::new()),
            ..Walk::default()
        };
        for entry in &self.entries {
            walk.entry(entry, &keys, key);
        }
        let head = &self.head;
        if let Err(why) = keys.judge(&head.signer, key) {
            walk.faults.push(format!("the head of the chain is not valid: {why}"));
        } else if !holds(&head.signer, &head.statement(), &head.signature) {
            walk.faults
                .push("the head of the chain was changed: its signature is wrong".into());
        }
        for missing in (walk.number + 1..=head.number).take(20) {
            walk.fault(missing, "is missing at the end");
        }
        if walk.number > head.number {
            let what = "is newer than the head of the chain";
            walk.fault(walk.number, what);
        } else if walk.number == head.number && walk.hash.as_ref().is_some_and(|hash| *hash != head.hash) {
            walk.fault(
                head.number,
                "does not match the head of the chain: this certificate, or one that is present only as a hash, was changed",
            );
        }
        walk.faults
    }

    /// The content of the file, for people.
    pub fn summary(&self) -> String {
        let shown = self.entries.iter().filter(|entry| entry.certificate.is_some()).count();
        let hidden = self.entries.len() - shown;
        let end = format!(
            "the chain ends with certificate {}, hash {}",
            self.head.number, self.head.hash
        );
        match hidden {
            0 => format!("{shown} certificates are valid; {end}"),
            _ => format!("{shown} certificates are valid, {hidden} are present only as hashes; {end}"),
        }
    }
}

/// The contradictions between several files of one site, as sentences. Sorts the files by the time of their head.
pub fn compare(files: &mut [(String, File)]) -> Vec<String> {
    files.sort_by(|(_, a), (_, b)| a.head.seconds().total_cmp(&b.head.seconds()));
    let mut known: HashMap<u64, (String, String)> = HashMap::new();
    let (mut faults, mut longest) = (Vec::new(), (0, String::new()));
    for (name, file) in files {
        for entry in &file.entries {
            match known.get(&entry.number) {
                Some((_, hash)) if *hash == entry.payload_hash => {}
                Some((other, _)) => faults.push(format!(
                    "{name}: certificate {} differs from the certificate in {other}",
                    entry.number
                )),
                None => {
                    known.insert(entry.number, (name.clone(), entry.payload_hash.clone()));
                }
            }
        }
        if file.head.number < longest.0 {
            faults.push(format!(
                "{name}: certificates {} to {} are missing, although the older file {} has them",
                file.head.number + 1,
                longest.0,
                longest.1
            ));
        } else {
            longest = (file.head.number, name.clone());
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn public(pair: &Ed25519KeyPair) -> String {
        hex::encode(pair.public_key())
    }

    fn payload(number: u64, previous: &str, issued: u64) -> String {
        let mut text = String::from("rackwright-erase-certificate-v4\n");
        let (number, time) = (number.to_string(), format!("{issued}.000000000"));
        let fields = [
            ("identity", "address only"),
            ("attestation", ""),
            ("number", number.as_str()),
            ("previous", previous),
            ("issue_time", &time),
            ("end_time", &time),
        ];
        for (name, value) in fields {
            text.push_str(&format!("{name}={}:{value}\n", value.len()));
        }
        text
    }

    fn shown(number: u64, payload: &str, key: &Ed25519KeyPair) -> Value {
        json!({
            "number": number,
            "payload": payload,
            "signature": hex::encode(key.sign(payload.as_bytes())),
            "signer": public(key),
        })
    }

    fn head(number: u64, hash: &str, time: u64, key: &Ed25519KeyPair) -> Value {
        let time = format!("{time}.000000000");
        let text = format!("rackwright-erase-chain-head-v1\nnumber={number}\nhash={hash}\ntime={time}\n");
        json!({
            "format": FORMAT,
            "signing_keys": [{ "number": 1, "public_key": public(&pair(7)), "signature": "" }],
            "head": {
                "number": number, "hash": hash, "time": time,
                "signature": hex::encode(key.sign(text.as_bytes())), "signer": public(key),
            },
        })
    }

    /// Lines of a file with certificates that were signed at these times.
    fn chain(times: &[u64]) -> Vec<Value> {
        let (key, mut hash) = (pair(7), String::new());
        let mut lines = vec![Value::Null];
        for (number, time) in (1..).zip(times) {
            let payload = payload(number, &hash, *time);
            hash = place_hash(number, &hash, &sha256(payload.as_bytes()));
            lines.push(shown(number, &payload, &key));
        }
        lines[0] = head(times.len() as u64, &hash, 10_000, &key);
        lines
    }

    fn file(lines: &[Value]) -> File {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        File::read(&lines.join("\n")).unwrap()
    }

    fn faults(lines: &[Value]) -> Vec<String> {
        file(lines).verify(None)
    }

    fn hidden(line: &Value) -> Value {
        let payload = line["payload"].as_str().unwrap();
        json!({ "number": line["number"], "payload_sha256": sha256(payload.as_bytes()) })
    }

    fn names(faults: &[String], number: u64, word: &str) -> bool {
        let position = format!("certificate {number} ");
        faults
            .iter()
            .any(|fault| fault.contains(&position) && fault.contains(word))
    }

    #[test]
    fn a_complete_chain_is_valid_also_with_entries_that_are_only_hashes() {
        let lines = chain(&[1000, 2000, 3000, 4000]);
        assert_eq!(faults(&lines), [""; 0]);
        let key = public(&pair(7));
        assert_eq!(file(&lines).verify(Some(&key)), [""; 0]);
        assert!(!file(&lines).verify(Some(&"ab".repeat(32))).is_empty());
        for places in [vec![1], vec![2, 3], vec![4], vec![1, 2, 3, 4]] {
            let mut lines = lines.clone();
            for place in places {
                lines[place] = hidden(&lines[place]);
            }
            assert_eq!(faults(&lines), [""; 0]);
        }
        assert_eq!(faults(&chain(&[])), [""; 0]);
    }

    #[test]
    fn a_wrong_certificate_is_found_with_its_position() {
        let whole = chain(&[1000, 2000, 3000, 4000]);
        let mut removed = whole.clone();
        removed.remove(2);
        assert!(names(&faults(&removed), 2, "missing"));
        let mut cut = whole.clone();
        cut.pop();
        assert!(names(&faults(&cut), 4, "missing"));
        let mut moved = whole.clone();
        moved.swap(2, 3);
        assert!(names(&faults(&moved), 2, "moved"));
        let mut renumbered = moved.clone();
        renumbered[2]["number"] = 2.into();
        renumbered[3]["number"] = 3.into();
        assert!(names(&faults(&renumbered), 2, "signed as certificate 3"));
        let mut changed = whole.clone();
        changed[2]["payload"] = changed[2]["payload"]
            .as_str()
            .unwrap()
            .replace("address only", "address_only")
            .into();
        assert!(names(&faults(&changed), 2, "changed"));
        // Replaced by a thief with the key.
        let other = payload(2, "00", 2000);
        let mut replaced = whole.clone();
        replaced[2] = shown(2, &other, &pair(7));
        let found = faults(&replaced);
        assert!(
            names(&found, 2, "does not follow") && names(&found, 3, "does not follow"),
            "{found:?}"
        );
        let mut stranger = whole.clone();
        let payload = stranger[2]["payload"].as_str().unwrap().to_owned();
        stranger[2] = shown(2, &payload, &pair(8));
        assert!(names(&faults(&stranger), 2, "not a signing key"));
        let mut hash = whole.clone();
        hash[2] = json!({ "number": 2, "payload_sha256": "00" });
        assert!(names(&faults(&hash), 3, "does not follow"));
        let mut last = whole.clone();
        last[4] = json!({ "number": 4, "payload_sha256": "00" });
        assert!(names(&faults(&last), 4, "head"));
        let mut signed = whole.clone();
        signed[0]["head"]["number"] = 3.into();
        assert!(faults(&signed).iter().any(|fault| fault.contains("head")));
    }

    #[test]
    fn a_back_dated_certificate_is_found_and_clocks_may_differ_a_little() {
        assert!(names(&faults(&chain(&[1000, 3000, 2000])), 3, "back-dated"));
        assert_eq!(faults(&chain(&[1000, 3000, 2900])), [""; 0]);
    }

    #[test]
    fn a_file_that_another_one_contradicts_is_found() {
        let (old, mut new) = (chain(&[1000, 2000]), chain(&[1000, 2000, 3000]));
        let compared = |a: &[Value], b: &[Value]| compare(&mut [("a".to_owned(), file(a)), ("b".to_owned(), file(b))]);
        assert_eq!(compared(&old, &new), [""; 0]);
        assert!(names(&compared(&chain(&[1000, 2500]), &new), 2, "differs"));
        // A shortened chain, with a newly signed head.
        let hash = new[0]["head"]["hash"].as_str().unwrap().to_owned();
        new[0] = head(3, &hash, 9000, &pair(7));
        let found = compared(&old, &new);
        assert!(found[0].contains("certificates 3 to 3 are missing"), "{found:?}");
    }

    #[test]
    fn malformed_files_are_refused() {
        for text in ["", "{}", "nothing", "{\"format\":\"rackwright-erase-chain-v1\"}"] {
            assert!(File::read(text).is_err(), "{text}");
        }
        let lines = chain(&[1000]);
        assert!(
            File::read(&format!("{}\n{{}}", lines[0]))
                .unwrap_err()
                .contains("line 2")
        );
    }
}
