//! Tests against `swtpm`, an independent TPM in software.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rackwright_tpm::client::{Tpm, TpmError};
use rackwright_tpm::device::{Socket, Transport as _};
use rackwright_tpm::pcr::{QUOTED, Selection};
use rackwright_tpm::public::{Kind, Public};
use rackwright_tpm::quote::{QuoteError, verify};
use rackwright_tpm::wire::{Reader, Writer};
use rackwright_tpm::{binding, credential, sha256};
use ring::rand::SystemRandom;

/// A TPM that ends with the test.
struct Software {
    process: Child,
    dir: tempfile::TempDir,
}

impl Software {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let process = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
            .args(["--tpmstate", &format!("dir={}", at(""))])
            .args(["--server", &format!("type=unixio,path={}", at("tpm"))])
            .args(["--ctrl", &format!("type=unixio,path={}", at("ctrl"))])
            .stdin(Stdio::null())
            .spawn()
            .expect("swtpm is installed (make deps)");
        Self { process, dir }
    }

    fn tpm(&self) -> Tpm {
        let path = self.dir.path().join("tpm");
        Tpm::new(Box::new(connected(&path)))
    }
}

impl Drop for Software {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn connected(path: &Path) -> Socket {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Socket::connect(path) {
            Ok(socket) => return socket,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_tpm_proves_itself_and_no_other() {
    let software = Software::start();
    let mut tpm = software.tpm();
    let (ek, ak) = (tpm.key(Kind::Endorsement).unwrap(), tpm.key(Kind::Attestation).unwrap());
    let secret = [42; 32];
    let random = SystemRandom::new();
    let made = credential::make(&ek.public, &ak.public.name(), &secret, &random).unwrap();
    assert_eq!(tpm.activate(&ek, &ak, &made).unwrap(), secret);

    // A credential for another attestation key, and a changed credential.
    let other = credential::make(&ek.public, &ek.public.name(), &secret, &random).unwrap();
    assert!(matches!(tpm.activate(&ek, &ak, &other), Err(TpmError::Refused { .. })));
    let mut changed = made.clone();
    changed.blob[40] ^= 1;
    assert!(matches!(
        tpm.activate(&ek, &ak, &changed),
        Err(TpmError::Refused { .. })
    ));

    let extra = binding(&[1; 32], "gpu-001", 3, "boot", "key");
    let quoted = tpm.quote(&ak, &extra, QUOTED).unwrap();
    assert_eq!(quoted.values.len(), 11);
    let quote = verify(&ak.public, &quoted.quote, &quoted.signature, &quoted.values).unwrap();
    assert_eq!(quote.extra, extra);
    assert_eq!(quote.selection, QUOTED);

    // Other values, another message, another key.
    let mut values = quoted.values.clone();
    values.insert(4, [9; 32]);
    let wrong = verify(&ak.public, &quoted.quote, &quoted.signature, &values);
    assert_eq!(wrong, Err(QuoteError::Values));
    let mut forged = quoted.quote.clone();
    let at = forged.windows(32).position(|part| part == extra).unwrap();
    forged[at] ^= 1;
    let wrong = verify(&ak.public, &forged, &quoted.signature, &quoted.values);
    assert_eq!(wrong, Err(QuoteError::Signature));
    let stranger = Public::new(Kind::Attestation, ek.public.point);
    let wrong = verify(&stranger, &quoted.quote, &quoted.signature, &quoted.values);
    assert_eq!(wrong, Err(QuoteError::Signature));

    // The keys are the same each time, and the TPM has room for them.
    for _ in 0..8 {
        let again = tpm.key(Kind::Endorsement).unwrap();
        assert_eq!(again.public, ek.public);
        tpm.remove(&again).unwrap();
    }
    assert_eq!(tpm.certificate().unwrap(), None, "a plain swtpm has none");
    assert!(matches!(tpm.pcrs(Selection(0)), Ok(values) if values.is_empty()));
}

/// The commands of a system that runs on the machine.
struct System(Socket);

impl System {
    /// Sends a command with an empty password. Returns the response code and the rest of the answer.
    fn sends(&mut self, code: u32, handles: &[u32], parameters: &[u8]) -> (u32, Vec<u8>) {
        let mut body = Writer::new();
        for handle in handles {
            body = body.u32(*handle);
        }
        // The password session: no nonce, no attributes, no password.
        let body = body
            .u32(9)
            .u32(0x4000_0009)
            .u16(0)
            .u8(0)
            .u16(0)
            .bytes(parameters)
            .done();
        let command = Writer::new()
            .u16(0x8002)
            .u32(10 + body.len() as u32)
            .u32(code)
            .bytes(&body);
        let answer = self.0.transmit(&command.done()).expect("the TPM answers");
        let mut reader = Reader::new(&answer);
        reader.bytes(6, "head").expect("an answer has a head");
        (
            reader.u32("code").expect("an answer has a code"),
            reader.rest().to_vec(),
        )
    }

    /// TPM2_HierarchyChangeAuth.
    fn sets_password(&mut self, hierarchy: u32) -> u32 {
        self.sends(0x129, &[hierarchy], &Writer::new().sized(b"guess").done()).0
    }

    /// TPM2_NV_DefineSpace: 8 bytes that the owner reads and writes.
    fn defines_data(&mut self, index: u32) -> u32 {
        let area = Writer::new()
            .u32(index)
            .u16(0x000b)
            .u32(0x0002_0002)
            .u16(0)
            .u16(8)
            .done();
        let parameters = Writer::new().u16(0).sized(&area).done();
        self.sends(0x12a, &[OWNER], &parameters).0
    }
}

const OWNER: u32 = 0x4000_0001;
const LOCKOUT: u32 = 0x4000_000a;
const ENDORSEMENT: u32 = 0x4000_000b;

#[test]
fn foreign_objects_of_a_tpm_are_removed_and_its_identity_stays() {
    let software = Software::start();
    let path = software.dir.path().join("tpm");
    let ek = {
        let mut tpm = software.tpm();
        let key = tpm.key(Kind::Endorsement).unwrap();
        tpm.remove(&key).unwrap();
        key.public
    };
    let mut system = System(connected(&path));
    assert_eq!(system.defines_data(0x0180_0001), 0);
    // TPM_RC_NV_DEFINED: the data is there.
    assert_eq!(system.defines_data(0x0180_0001), 0x14c);
    assert_eq!(
        [OWNER, ENDORSEMENT].map(|hierarchy| system.sets_password(hierarchy)),
        [0, 0]
    );
    drop(system);

    let mut tpm = software.tpm();
    let refused = tpm.key(Kind::Endorsement).unwrap_err().to_string();
    assert!(refused.contains("a system has set a password"), "{refused}");
    tpm.clear().unwrap();
    assert_eq!(tpm.key(Kind::Endorsement).unwrap().public, ek);
    drop(tpm);
    let mut system = System(connected(&path));
    assert_eq!(
        system.defines_data(0x0180_0001),
        0,
        "neither the data nor the owner's password is left"
    );
    assert_eq!(system.sets_password(LOCKOUT), 0);
    drop(system);

    let refused = software.tpm().clear().unwrap_err().to_string();
    assert!(
        refused.contains("refuses to be cleared") && refused.contains("a system has set a password"),
        "{refused}"
    );
}

#[test]
fn two_tpms_have_two_keys() {
    let [mut one, mut two] = [Software::start(), Software::start()].map(|software| (software.tpm(), software));
    let key = |tpm: &mut Tpm| tpm.key(Kind::Endorsement).unwrap().public;
    let (first, second) = (key(&mut one.0), key(&mut two.0));
    assert_ne!(first.sha256(), second.sha256());
    assert_eq!(first.sha256(), sha256(&[first.bytes()]));
}
