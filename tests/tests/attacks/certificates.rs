//! A forger with write access to the database, or with the signing key, changes certified facts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_identity::{EraseRecord, KeyFiles, SystemRng, chain_hash, payload_hash};
use rackwright_sim::fleet::Fleet;
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::site::{Site, out_or_error, texts};

use crate::machine::pxe_machine;

/// A control plane with a chain of certificates.
struct Hall {
    plane: Plane,
    fleet: Fleet,
    dir: PathBuf,
    exports: std::cell::Cell<u32>,
}

/// Changes to the database, and their reversal.
struct Forgery<'a> {
    done: &'a str,
    undone: &'a str,
    /// The expected finding of the verification.
    found: &'a str,
}

fn to_hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

impl Hall {
    async fn start(dir: &Path) -> Self {
        let (plane, fleet) = pxe_machine(dir).await;
        let hall = Self {
            plane,
            fleet,
            dir: dir.to_owned(),
            exports: std::cell::Cell::default(),
        };
        // Each round certifies every drive of the machine.
        while hall.count() < 3 {
            hall.erase().await;
        }
        hall
    }

    fn site(&self) -> &Site {
        &self.plane.site
    }

    async fn erase(&self) {
        let id = self.fleet.node(0).name();
        self.site().cli(["node", "deploy", &id, "--image", "disk"]);
        let states = ["imaging", "rebooting", "validating", "active"];
        self.site().until(&id, &states, TEST_LIMIT).await;
        self.site().cli(["node", "release", "--yes", &id]);
        self.site().until(&id, &["reclaiming"], TEST_LIMIT).await;
        self.site().until(&id, &["available"], TEST_LIMIT).await;
    }

    fn sql(&self, text: &str) -> String {
        let mut command = Command::new("sqlite3");
        command.args(["-cmd", ".timeout 20000"]);
        let output = command.arg(self.dir.join("data/rackwright.db")).arg(text).output();
        let output = output.expect("sqlite3 is installed");
        assert!(output.status.success(), "{text}: {:?}", texts(&output));
        texts(&output).0.lines().last().unwrap_or_default().trim().to_owned()
    }

    fn count(&self) -> u64 {
        self.sql("SELECT erase_count FROM site").parse().expect("a number")
    }

    /// Exports the chain to a new file.
    fn export(&self, further: &[&str]) -> String {
        self.exports.set(self.exports.get() + 1);
        let file = self.dir.join(format!("chain-{}.jsonl", self.exports.get()));
        let file = file.display().to_string();
        self.site()
            .cli([&["certificates", "--export", &file], further].concat());
        file
    }

    /// Verifies files. The CLI has no control plane and no credential.
    fn verify(&self, words: &[&str]) -> Result<String, String> {
        let mut command = self.site().command();
        command.env("RACKWRIGHT_CONFIG", self.dir.join("nowhere"));
        let output = command.args(["certificates", "--verify"]).args(words).output();
        let output = output.expect("the CLI can be started");
        out_or_error(&output)
    }

    fn finds(&self, forgery: &Forgery<'_>) {
        self.sql(forgery.done);
        let refused = self.verify(&[&self.export(&[])]).expect_err(forgery.found);
        assert!(refused.contains(forgery.found), "{refused}");
        self.sql(forgery.undone);
        self.verify(&[&self.export(&[])]).expect("all is as it was");
    }

    fn certificate(&self, number: u64) -> v1::EraseCertificate {
        let body = self.sql(&format!(
            "SELECT hex(body) FROM erase_certificates WHERE number = {number}"
        ));
        let bytes = from_hex(&body);
        v1::EraseCertificate::decode(bytes.as_slice()).expect("a certificate")
    }

    /// Hash of place `number` in the chain.
    fn place(&self, number: u64) -> String {
        (1..=number).fold(String::new(), |hash, number| {
            chain_hash(number, &hash, &payload_hash(&self.certificate(number).signed_payload))
        })
    }

    async fn stop(self) {
        self.plane.site.stop().await;
        self.fleet.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_a_reordered_and_a_changed_certificate_are_found_with_their_position() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path()).await;
    let keys = KeyFiles::read_set(&dir.path().join("data/keys"), Arc::new(SystemRng)).expect("the keys");
    let key = to_hex(keys.signer.public_key());
    let first = hall.export(&[]);
    let output = hall.verify(&[&first, "--key", &key]).expect("the chain is whole");
    assert!(
        output.contains(&format!("{} certificates are valid", hall.count())),
        "{output}"
    );
    assert!(hall.verify(&[&first, "--key", &"ab".repeat(32)]).is_err());

    hall.finds(&Forgery {
        done: "CREATE TABLE kept AS SELECT * FROM erase_certificates WHERE number = 2; \
               DELETE FROM erase_certificates WHERE number = 2",
        undone: "INSERT INTO erase_certificates SELECT * FROM kept; DROP TABLE kept",
        found: "certificate 2 is missing",
    });
    let swap = "UPDATE erase_certificates SET number = 5 - number WHERE number IN (2, 3)";
    hall.finds(&Forgery {
        done: swap,
        undone: swap,
        found: "certificate 2 was signed as certificate 3",
    });
    let certificate = hall.certificate(2);
    let (serial, body) = (certificate.drive_serial.clone(), certificate.encode_to_vec());
    let other = format!("?{}", &serial[1..]);
    let changed = to_hex(&body).replace(&to_hex(&serial), &to_hex(&other));
    assert_ne!(changed, to_hex(&body));
    let put = |body: &str| format!("UPDATE erase_certificates SET body = X'{body}' WHERE number = 2");
    hall.finds(&Forgery {
        done: &put(&changed),
        undone: &put(&to_hex(&body)),
        found: "certificate 2 was changed",
    });

    // The newest one is missing, which the chain itself no longer reveals; an older file does.
    let count = hall.count();
    hall.sql(&format!(
        "DELETE FROM erase_certificates WHERE number = {count}; UPDATE site SET erase_count = {}, erase_head = '{}'",
        count - 1,
        hall.place(count - 1)
    ));
    let cut = hall.export(&[]);
    let refused = hall.verify(&[&first, &cut]).expect_err("one is missing");
    assert!(
        refused.contains(&format!("certificates {count} to {count} are missing")),
        "{refused}"
    );
    hall.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_back_dated_certificate_by_a_stolen_signing_key_is_found_with_its_position() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path()).await;
    let keys = KeyFiles::read_set(&dir.path().join("data/keys"), Arc::new(SystemRng)).expect("the keys");
    let count = hall.count();
    let mut certificate = hall.certificate(count);
    let mut record = EraseRecord::decode(&certificate.signed_payload).expect("a record");
    record.name = format!("{}/eraseCertificates/forged", record.node);
    let link = record.link.as_mut().expect("a place in the chain");
    link.number = count + 1;
    link.previous = hall.place(count);
    for time in [&mut link.issue_time, &mut record.start_time, &mut record.end_time] {
        *time -= Duration::from_secs(86_400);
    }
    let payload = record.encode().expect("a payload");
    let hash = payload_hash(&payload);
    certificate.name.clone_from(&record.name);
    certificate.number = count + 1;
    certificate.signature = keys.signer.sign(&payload);
    certificate.signed_payload = payload;
    let head = chain_hash(count + 1, &hall.place(count), &hash);
    hall.sql(&format!(
        "INSERT INTO erase_certificates (id, node_id, body, customer, number, payload_hash) VALUES ('forged', '{}', X'{}', \
         '', {}, '{hash}'); UPDATE site SET erase_count = {}, erase_head = '{head}'",
        hall.fleet.node(0).name(),
        to_hex(certificate.encode_to_vec()),
        count + 1,
        count + 1,
    ));
    let refused = hall.verify(&[&hall.export(&[])]).expect_err("it is back-dated");
    let expected = format!(
        "certificate {} was signed earlier than a certificate before it",
        count + 1
    );
    assert!(refused.contains(&expected), "{refused}");
    hall.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_for_a_customer_shows_nothing_of_others_and_is_verified() {
    let dir = tempfile::tempdir().expect("a folder");
    let hall = Hall::start(dir.path()).await;
    // Half of the machines belonged to this customer.
    hall.sql("UPDATE erase_certificates SET customer = 'acme' WHERE number % 2 = 0");
    let file = hall.export(&["--customer", "acme"]);
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(text.contains(&hall.certificate(2).name));
    for other in [1, 3] {
        let other = hall.certificate(other);
        assert!(!text.contains(&other.name), "{text}");
    }
    let output = hall.verify(&[&file]).expect("the chain is whole");
    assert!(output.contains("are present only as hashes"), "{output}");
    // A certificate missing from the file is noticed.
    let lines: Vec<&str> = text.lines().collect();
    let shorter = [&lines[..2], &lines[3..]].concat().join("\n");
    let cut = dir.path().join("cut.jsonl");
    std::fs::write(&cut, shorter).expect("the file can be written");
    let refused = hall.verify(&[&cut.display().to_string()]).expect_err("one is missing");
    assert!(refused.contains("certificate 2 is missing"), "{refused}");
    hall.stop().await;
}
