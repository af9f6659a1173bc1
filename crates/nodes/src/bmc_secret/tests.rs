use rackwright_ground::config::identity::{AddressOnly, BmcRequirement, Policy, TpmRequirement};
use rackwright_ground::testing;
use rackwright_lifecycle::{NodeId, State};

use super::*;
use crate::attestation::{self, TpmEvidence};

fn of(generation: u64, boot: &str) -> AgentSession {
    AgentSession {
        generation,
        boot: boot.into(),
    }
}

#[tokio::test]
async fn secret_and_address_differ_by_node_generation_and_boot_and_from_each_other() {
    let core = testing::core().await;
    let sessions = [
        ("n1", of(1, "b1")),
        ("n2", of(1, "b1")),
        ("n1", of(2, "b1")),
        ("n1", of(1, "b2")),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (node, of) in &sessions {
        for purpose in [SECRETS, ADDRESSES] {
            let derived = *derived(&core, purpose, &NodeId::stored(*node), of).expose_secret();
            assert!(seen.insert(derived), "{node} {of:?} {purpose}");
        }
    }
    let (node, of) = &sessions[0];
    assert!(
        seen.contains(derived(&core, SECRETS, &NodeId::stored(*node), of).expose_secret()),
        "always the same one"
    );
    assert_eq!(seal(&core, &NodeId::stored(*node), of).len(), 40);
    assert_eq!(url(&core, &NodeId::stored(*node), of), None, "no boot services");
}

#[tokio::test]
async fn an_answer_counts_for_its_boot_and_its_key_where_the_bmc_has_the_medium() {
    let core = testing::core().await;
    let record = testing::node("n1", State::Inspecting, None);
    let of = of(0, "b1");
    let mut boot = AgentBootRow {
        boot: "b1".into(),
        key_sha256: "key".into(),
        bmc_secret: INSERTED.into(),
        ..AgentBootRow::default()
    };
    let answer = |key_sha256, secret: &[u8; 32]| {
        let nonce = vec![5; 32];
        let session = Session {
            nonce: &nonce,
            node: "n1",
            generation: 0,
            boot: "b1",
            key_sha256,
        };
        Answer {
            proof: session.prove(secret),
            nonce,
            fault: String::new(),
        }
    };
    let secret = *derived(&core, SECRETS, &"n1".into(), &of).expose_secret();
    let judged = |boot: &AgentBootRow, answer: Option<&Answer>| judge(&core, &record, boot, &of, answer);
    let good = answer("key", &secret);
    assert_eq!(judged(&boot, Some(&good)), Ok(true));
    assert!(judged(&boot, None).is_err());
    for wrong in [answer("another", &secret), answer("key", &[0; 32])] {
        assert!(judged(&boot, Some(&wrong)).unwrap_err().contains("does not know"));
    }
    let silent = Answer {
        proof: Vec::new(),
        fault: "no drive has the medium".into(),
        ..good.clone()
    };
    let why = judged(&boot, Some(&silent)).unwrap_err();
    assert!(
        why.contains("no drive has the medium") && why.contains("identity.bmc_skus"),
        "{why}"
    );
    boot.bmc_secret = "the BMC has no virtual media".into();
    assert_eq!(judged(&boot, None), Ok(false));
    assert_eq!(judged(&boot, Some(&good)), Ok(false), "nobody asked");
}

#[test]
fn policy_tpm_and_secret_decide_identity() {
    let no_evidence = TpmEvidence::Nothing(String::new());
    let cases = [
        (BmcRequirement::None, "", &no_evidence, false, "address only"),
        (BmcRequirement::Preferred, "", &no_evidence, false, "address only"),
        (BmcRequirement::Preferred, "", &no_evidence, true, "bmc"),
        (BmcRequirement::Required, "", &no_evidence, true, "bmc"),
        (
            BmcRequirement::Required,
            "",
            &no_evidence,
            false,
            "require a TPM or a secret of the BMC",
        ),
        (
            BmcRequirement::Required,
            "sha256:aa",
            &no_evidence,
            true,
            "no TPM answered",
        ),
    ];
    for (bmc, enrolled, shown, has_secret, expected) in cases {
        let mut record = testing::node("n1", State::Imaging, None);
        record.spec.tpm_ek = enrolled.into();
        let row = AgentBootRow::default();
        let outcome_where = |address_only| {
            let policy = Policy {
                bmc,
                address_only,
                ..Policy::default()
            };
            let known = attestation::identify(policy, &record, &row, &of(0, "b"), shown, has_secret);
            known.map_or_else(|why| why, |known| known.identity.into())
        };
        let outcome = outcome_where(AddressOnly::Allow);
        assert!(
            outcome.contains(expected),
            "{bmc:?} {enrolled:?} {has_secret}: {outcome}"
        );
        let strict = outcome_where(AddressOnly::Refuse);
        match expected {
            "address only" => assert!(strict.contains("set identity.address_only to allow"), "{strict}"),
            _ => assert_eq!(strict, outcome, "a secret is a proof"),
        }
    }
}

#[test]
fn the_bmc_secret_is_required_without_an_enrolled_tpm() {
    let mut record = testing::node("n1", State::Imaging, None);
    let uses_secret = |record: &NodeRecord, bmc, tpm| {
        let policy = Policy {
            bmc,
            tpm,
            ..Policy::default()
        };
        policy.asks_bmc(record)
    };
    assert!(uses_secret(
        &record,
        BmcRequirement::Preferred,
        TpmRequirement::Preferred
    ));
    assert!(!uses_secret(&record, BmcRequirement::None, TpmRequirement::Preferred));
    record.spec.tpm_ek = "sha256:aa".into();
    assert!(!uses_secret(
        &record,
        BmcRequirement::Required,
        TpmRequirement::Preferred
    ));
    assert!(
        uses_secret(&record, BmcRequirement::Required, TpmRequirement::None),
        "no TPM is challenged"
    );
}

#[test]
fn a_medium_is_for_the_bmcs_own_address() {
    let mut record = testing::node("n1", State::Imaging, None);
    for (address, remote, expected) in [
        ("https://10.0.0.7", "10.0.0.7", true),
        ("10.0.0.7:8443", "::ffff:10.0.0.7", true),
        ("https://10.0.0.7", "10.0.0.8", false),
        ("https://[2001:db8::7]:443", "2001:db8::7", true),
        ("https://[2001:db8::7]:443", "2001:db8::8", false),
        ("https://bmc-7.example", "10.0.0.8", true),
    ] {
        record.spec.bmc_address = address.into();
        assert_eq!(
            is_of_bmc(&record, remote.parse().unwrap()),
            expected,
            "{address} {remote}"
        );
    }
}
