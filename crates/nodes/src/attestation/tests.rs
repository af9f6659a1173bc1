use rackwright_ground::config::identity::{FirmwarePolicy, Settings};
use rackwright_ground::testing;
use rackwright_yaml::Quote;

use super::*;

const OURS: &str = "sha256:aa";
const OTHER: &str = "sha256:bb";

fn of() -> AgentSession {
    AgentSession {
        generation: 3,
        boot: "b1".into(),
    }
}

fn tpm(ek: &str, boot: &str) -> TpmEvidence {
    let nonce = [9; 32];
    TpmEvidence::Tpm(Box::new(Proof {
        ek: ek.into(),
        unproven: None,
        firmware: Registers::new(),
        quote_sha256: String::new(),
        nonce,
        extra: binding(&nonce, "n1", 3, boot, "key").to_vec(),
    }))
}

/// The result for a machine: "tpm", "address only", or why it is refused.
fn judgement(requirement: TpmRequirement, state: State, enrolled: &str, before: &str, shown: &TpmEvidence) -> String {
    judgement_where(AddressOnly::Allow, requirement, state, enrolled, before, shown)
}

/// The result at a site with this setting of `address_only`.
fn judgement_where(
    address_only: AddressOnly,
    requirement: TpmRequirement,
    state: State,
    enrolled: &str,
    before: &str,
    shown: &TpmEvidence,
) -> String {
    let mut record = testing::node("n1", state, None);
    record.spec.tpm_ek = enrolled.into();
    let boot = AgentBootRow {
        key_sha256: "key".into(),
        tpm_ek: before.into(),
        ..AgentBootRow::default()
    };
    let policy = Policy {
        tpm: requirement,
        address_only,
        ..Policy::default()
    };
    identify(policy, &record, &boot, &of(), shown, false).map_or_else(|why| why, |known| known.identity.into())
}

#[test]
fn policy_state_and_evidence_decide_identity() {
    use State::{Imaging, Inspecting};
    use TpmRequirement::{Preferred, Required};
    let none = TpmEvidence::Nothing("the TPM does not answer".into());
    let (ours, other, wrong) = (tpm(OURS, "b1"), tpm(OTHER, "b1"), TpmEvidence::Wrong("forged".into()));
    let cases: [(TpmRequirement, State, &str, &str, &TpmEvidence, &str); 18] = [
        (Preferred, Inspecting, "", "", &none, "address only"),
        (Preferred, Inspecting, "", "", &ours, "tpm"),
        (Preferred, Inspecting, "", OURS, &other, "--accept-tpm sha256:bb"),
        (Preferred, Inspecting, "", OURS, &none, "no TPM answered"),
        (Preferred, Inspecting, OURS, "", &other, "--accept-tpm sha256:bb"),
        (Preferred, Imaging, "", "", &ours, "address only"),
        (Preferred, Imaging, OURS, "", &ours, "tpm"),
        (Preferred, Imaging, OURS, "", &none, "(the TPM does not answer)"),
        (Preferred, Imaging, OURS, "", &other, "--accept-tpm sha256:bb"),
        (Preferred, Imaging, OURS, "", &wrong, "forged"),
        (Preferred, Imaging, "", "", &wrong, "forged"),
        (Preferred, Imaging, OURS, "", &tpm(OURS, "b0"), "another session"),
        (Required, Inspecting, "", "", &none, "settings require a TPM"),
        (Required, Inspecting, "", "", &ours, "tpm"),
        (Required, Imaging, "", "", &ours, "none was enrolled"),
        (Required, Imaging, OURS, "", &ours, "tpm"),
        (TpmRequirement::None, Imaging, OURS, "", &none, "address only"),
        (TpmRequirement::None, Imaging, OURS, "", &wrong, "address only"),
    ];
    for (requirement, state, enrolled, before, shown, expected) in cases {
        let judgement = judgement(requirement, state, enrolled, before, shown);
        assert!(
            judgement.contains(expected),
            "{requirement:?} {state} {enrolled:?} {shown:?}: {judgement}"
        );
        // Only a machine without a proof needs the site's permission to be known by its addresses.
        let strict = judgement_where(AddressOnly::Refuse, requirement, state, enrolled, before, shown);
        if judgement == BY_ADDRESS {
            let names_the_setting = strict.contains("set identity.address_only to allow");
            assert!(names_the_setting, "{requirement:?} {state} {shown:?}: {strict}");
        } else {
            assert_eq!(strict, judgement);
        }
    }
    let refused = judgement_where(AddressOnly::Refuse, Preferred, Imaging, "", "", &ours);
    assert!(refused.contains("node readmit n1 --accept-tpm sha256:aa"), "{refused}");
    let refused = judgement_where(AddressOnly::Refuse, Preferred, Inspecting, "", "", &none);
    assert!(refused.contains("(the TPM does not answer)"), "{refused}");
}

#[test]
fn unproven_start_is_refused_only_where_required() {
    let record = testing::node("n1", State::Inspecting, None);
    let boot = AgentBootRow {
        key_sha256: "key".into(),
        ..AgentBootRow::default()
    };
    let recorded = Settings {
        address_only: AddressOnly::Allow,
        ..Settings::default()
    };
    let required = Settings {
        measured_boot: MeasuredBoot::Required,
        ..recorded.clone()
    };
    let settings = [required, recorded];
    let of_settings = |shown: &TpmEvidence| {
        let known = settings.clone().map(|settings| {
            identify(settings.of("h100"), &record, &boot, &of(), shown, false).map(|known| known.measured)
        });
        known.map(|known| known.unwrap_or_else(|why| format!("refused: {why}")))
    };
    assert_eq!(of_settings(&tpm(OURS, "b1")), [AS_SERVED, AS_SERVED]);
    let TpmEvidence::Tpm(mut proof) = tpm(OURS, "b1") else {
        panic!("a TPM");
    };
    proof.unproven = Some("another kernel".into());
    let [refused, recorded] = of_settings(&TpmEvidence::Tpm(proof));
    assert!(
        refused.contains("require a measured boot") && refused.contains("another kernel"),
        "{refused}"
    );
    assert_eq!(recorded, "another kernel");
    let [refused, recorded] = of_settings(&TpmEvidence::Nothing(String::new()));
    assert!(refused.contains("no TPM 2.0 answered"), "{refused}");
    assert_eq!(recorded, "");
}

#[test]
fn only_the_tpm_of_the_accepted_inspections_last_boot_is_enrolled() {
    let mut record = testing::node("n1", State::Inspecting, None);
    let boot = AgentBootRow {
        state_since: record.node.since,
        identity: BY_TPM.into(),
        tpm_ek: OURS.into(),
        ..AgentBootRow::default()
    };
    assert_eq!(tpm_to_enrol(&record, &boot).as_deref(), Some(OURS));
    let contested = AgentBootRow {
        contests: 1,
        ..boot.clone()
    };
    assert_eq!(tpm_to_enrol(&record, &contested), None);
    let unproven = AgentBootRow {
        identity: BY_ADDRESS.into(),
        ..boot.clone()
    };
    assert_eq!(tpm_to_enrol(&record, &unproven), None);
    record.spec.tpm_ek = OTHER.into();
    assert_eq!(tpm_to_enrol(&record, &boot), None, "only an operator changes it");
}

#[test]
fn settings_are_looked_up_by_sku() {
    let text = "tpm: none\nskus: {h100: required}";
    let settings: Settings = rackwright_yaml::read(text, Quote::Lines).unwrap();
    let tpm = |sku| settings.of(sku).tpm;
    assert_eq!(
        (tpm("h100"), tpm("cpu")),
        (TpmRequirement::Required, TpmRequirement::None)
    );
    assert!(settings.asks() && Settings::default().asks());
    assert!(rackwright_yaml::read::<Settings>("tpm: sometimes", Quote::Lines).is_err());
    let text = "address_only_skus: {cpu: allow}";
    let settings: Settings = rackwright_yaml::read(text, Quote::Lines).unwrap();
    let address_only = |sku| settings.of(sku).address_only;
    assert_eq!(
        (address_only("h100"), address_only("cpu")),
        (AddressOnly::Refuse, AddressOnly::Allow)
    );
    let text = "firmware: alarm\nfirmware_skus: {h100: hold}\nfirmware_registers: [0, 1]";
    let settings: Settings = rackwright_yaml::read(text, Quote::Lines).unwrap();
    let firmware = |sku| settings.of(sku).firmware;
    assert_eq!(
        (firmware("h100"), firmware("cpu")),
        (FirmwarePolicy::Hold, FirmwarePolicy::Alarm)
    );
    assert_eq!(settings.firmware_registers.0, [0, 1].into());
    assert_eq!(Settings::default().firmware_registers.0, [0, 2, 3, 7].into());
    for wrong in ["[4]", "[]"] {
        let text = format!("firmware_registers: {wrong}");
        assert!(
            rackwright_yaml::read::<Settings>(&text, Quote::Lines).is_err(),
            "{wrong}"
        );
    }
    assert_eq!(
        digest(&format!("sha256:{}", "A".repeat(64))),
        Some(format!("sha256:{}", "a".repeat(64)))
    );
    assert_eq!(digest("sha256:aa"), None);
}
