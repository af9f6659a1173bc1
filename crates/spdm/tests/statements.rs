//! Statements written byte by byte from the tables of DSP0274 and signed with the test's keys.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used)]

use rackwright_spdm::{Statement, StatementError, hex, keys, verify};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, SignatureAlgorithm};
use ring::digest::{SHA384, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair};

const NONCE: [u8; 32] = [7; 32];

/// SPDM 1.2: version, capabilities, algorithms. The last two selections are ECDSA P-384 and SHA-384.
const AGREED_12: &str = "10840000 10040000 0001 0012 \
    12e10000 00 00 0000 00000000 00120000 00120000 12610000 00 00 0000 00000000 00120000 00120000 \
    12e30000 2000 01 00 80000000 02000000 000000000000000000000000 00 00 0000 \
    12630000 2400 01 00 04000000 80000000 02000000 000000000000000000000000 00 00 0000";

fn bytes(text: &str) -> Vec<u8> {
    let bare: String = text.split_whitespace().collect();
    ::hex::decode(bare).unwrap()
}

/// A request for a signature over all measurements, and the answer without its signature. Index 1 is a digest of four
/// bytes, index 2 the raw version "v1".
fn exchange(version: u8, more: &str) -> Vec<u8> {
    let v = format!("{version:02x}");
    let nonce = "07".repeat(32);
    let own = "5a".repeat(32);
    bytes(&format!(
        "{v}e001ff {nonce} 00 {more} {v}600000 02 140000 01 01 0700 01 0400 deadbeef 02 01 0500 86 0200 7631 {own} 0000 {more}"
    ))
}

/// A key pair and its certificate in PEM.
fn pair(of: &'static SignatureAlgorithm) -> (KeyPair, String) {
    let pair = KeyPair::generate_for(of).unwrap();
    let pem = CertificateParams::new(vec!["gpu".to_owned()])
        .unwrap()
        .self_signed(&pair)
        .unwrap()
        .pem();
    (pair, pem)
}

fn sign_384(pair: &KeyPair, message: &[u8]) -> Vec<u8> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &pair.serialize_der(), &random).unwrap();
    key.sign(&random, message).unwrap().as_ref().to_vec()
}

fn prefixed(version: &str, transcript: &[u8]) -> Vec<u8> {
    let mut message = version.repeat(4).into_bytes();
    message.extend([0; 6]);
    message.extend(b"responder-measurements signing");
    assert_eq!(message.len(), 100);
    message.extend(digest(&SHA384, transcript).as_ref());
    message
}

/// A statement of version 1.2 and the certificate of its signer in PEM.
fn of_12() -> (Vec<u8>, String) {
    let (pair, pem) = pair(&PKCS_ECDSA_P384_SHA384);
    let mut statement = [bytes(AGREED_12), exchange(0x12, "")].concat();
    let signature = sign_384(&pair, &prefixed("dmtf-spdm-v1.2.*", &statement));
    statement.extend(signature);
    (statement, pem)
}

#[test]
fn a_statement_of_1_2_is_read_and_proven() {
    let (statement, pem) = of_12();
    let proven = verify(&statement, &NONCE, &keys(&pem)).unwrap();
    let seen: Vec<(u8, u8, bool, String)> = proven
        .measurements
        .iter()
        .map(|one| (one.index, one.kind, one.is_raw, hex(&one.value)))
        .collect();
    assert_eq!(seen, [(1, 1, false, "deadbeef".into()), (2, 6, true, "7631".into())]);
    assert_eq!(proven.key_sha256.len(), 64);
    // The signer is one of the certificates of a chain.
    let (_, other) = pair(&PKCS_ECDSA_P384_SHA384);
    let found = verify(&statement, &NONCE, &keys(&format!("{other}{pem}"))).unwrap();
    assert_eq!(found.key_sha256, proven.key_sha256);
    assert_eq!(
        verify(&statement, &NONCE, &keys(&other)),
        Err(StatementError::WrongSignature)
    );
    assert_eq!(verify(&statement, &NONCE, &[]), Err(StatementError::NoKey));
    assert_eq!(verify(&statement, &[8; 32], &keys(&pem)), Err(StatementError::OldNonce));
}

#[test]
fn no_byte_of_a_statement_can_be_changed_and_none_left_out() {
    let (statement, pem) = of_12();
    let known = keys(&pem);
    for at in 0..statement.len() {
        let mut changed = statement.clone();
        changed[at] ^= 0x40;
        assert!(verify(&changed, &NONCE, &known).is_err(), "byte {at}");
        assert!(verify(&statement[..at], &NONCE, &known).is_err(), "cut at {at}");
    }
    let longer = [statement, vec![0]].concat();
    assert_eq!(
        verify(&longer, &NONCE, &known),
        Err(StatementError::SignatureLength(97))
    );
}

#[test]
fn statements_of_1_1_have_no_agreement_and_those_of_1_3_a_context() {
    let (p256, pem) = pair(&PKCS_ECDSA_P256_SHA256);
    let mut old = exchange(0x11, "");
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &p256.serialize_der(), &random).unwrap();
    // In 1.1 the transcript itself is signed.
    let signature = key.sign(&random, &old).unwrap();
    old.extend(signature.as_ref());
    assert_eq!(verify(&old, &NONCE, &keys(&pem)).unwrap().measurements.len(), 2);

    let (p384, pem) = pair(&PKCS_ECDSA_P384_SHA384);
    let agreed = AGREED_12
        .replace("12e", "13e")
        .replace("1261", "1361")
        .replace("1263", "1363");
    let mut new = [bytes(&agreed), exchange(0x13, "0011223344556677")].concat();
    let signature = sign_384(&p384, &prefixed("dmtf-spdm-v1.3.*", &new));
    new.extend(signature);
    assert_eq!(verify(&new, &NONCE, &keys(&pem)).unwrap().measurements.len(), 2);
}

#[test]
fn an_exchange_for_each_index_counts_whole() {
    let (pair, pem) = pair(&PKCS_ECDSA_P384_SHA384);
    let own = "5a".repeat(32);
    let first = bytes(&format!(
        "12e00005 12600000 01 0b0000 05 01 0700 01 0400 cafecafe {own} 0000"
    ));
    let mut statement = [bytes(AGREED_12), first, exchange(0x12, "")].concat();
    let signature = sign_384(&pair, &prefixed("dmtf-spdm-v1.2.*", &statement));
    statement.extend(signature);
    let proven = verify(&statement, &NONCE, &keys(&pem)).unwrap();
    let indices: Vec<u8> = proven.measurements.iter().map(|one| one.index).collect();
    assert_eq!(indices, [1, 2, 5]);
}

#[test]
fn malformed_statements_are_refused_and_named() {
    let refused = |statement: &[u8]| Statement::parse(statement).unwrap_err();
    assert!(matches!(refused(b""), StatementError::Short(_)));
    assert_eq!(refused(&exchange(0x10, "")), StatementError::Version(0x10));
    assert!(
        matches!(refused(&exchange(0x12, "")), StatementError::Malformed(_)),
        "1.2 without an agreement"
    );
    let mixed = [bytes(AGREED_12), exchange(0x11, "")].concat();
    assert_eq!(refused(&mixed), StatementError::MixedVersions);
    let own = "5a".repeat(32);
    let unsigned = bytes(&format!("11e00005 11600000 00 000000 {own} 0000"));
    assert_eq!(refused(&unsigned), StatementError::NotSigned);
    let mut changed = [bytes(AGREED_12), exchange(0x12, "")].concat();
    let at = changed.windows(2).rposition(|window| window == [0x12, 0x60]).unwrap();
    changed[at + 3] = 0x10;
    assert_eq!(refused(&changed), StatementError::Changed);
    // One index occurs twice.
    let mut twice = [bytes(AGREED_12), exchange(0x12, "")].concat();
    let second = twice.windows(3).rposition(|window| window == [2, 1, 5]).unwrap();
    twice[second] = 1;
    assert!(matches!(refused(&twice), StatementError::Malformed(_)));
    // RSA is negotiated.
    let (_, pem) = pair(&PKCS_ECDSA_P384_SHA384);
    let rsa = AGREED_12.replace("04000000 80000000", "04000000 01000000");
    let statement = [bytes(&rsa), exchange(0x12, ""), vec![9; 96]].concat();
    assert_eq!(verify(&statement, &NONCE, &keys(&pem)), Err(StatementError::Algorithm));
}

#[test]
fn unreadable_keys_are_left_out() {
    assert!(keys("no PEM").is_empty());
    assert!(keys("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_empty());
    let (pair, pem) = pair(&PKCS_ECDSA_P384_SHA384);
    let bare = keys(&pair.public_key_pem());
    assert_eq!(bare, keys(&pem), "a bare key is the key of its certificate");
    assert_eq!(hex(&[0xAB]), "ab");
    assert!(keys(&"x".repeat(100_000)).is_empty());
}
