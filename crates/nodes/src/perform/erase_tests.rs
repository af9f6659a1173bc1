use prost::Message as _;
use rackwright_ground::agents::AdmittedAgent;
use rackwright_ground::testing::{self, TestCore};
use rackwright_lifecycle::drives::KnownDrive;
use rackwright_lifecycle::{Attempt, Effect, Outcome, State, seconds};
use rackwright_store::{AgentSession, Proof};

use super::*;
use crate::drives::{accept, inspected};
use crate::perform::drives::recorded;
use crate::perform::job_ended;

const BYTES: u64 = 1_000_000_000_000;

fn inventory(serials: &[&str]) -> v1::Inventory {
    let drive = |(n, serial): (usize, &&str)| v1::Drive {
        name: format!("nvme{n}n1"),
        model: "SAMSUNG X".into(),
        serial_number: (*serial).to_owned(),
        size_bytes: BYTES,
        transport: "nvme".into(),
        ..v1::Drive::default()
    };
    v1::Inventory {
        drives: serials.iter().enumerate().map(drive).collect(),
        ..v1::Inventory::default()
    }
}

fn report(inventory: &v1::Inventory, now: Timestamp) -> v1::EraseDrivesResult {
    let time = Some(clock::system_time(now).into());
    let erased = |drive: &v1::Drive| v1::DriveErase {
        drive_name: drive.name.clone(),
        model: drive.model.clone(),
        serial_number: drive.serial_number.clone(),
        size_bytes: drive.size_bytes,
        method: v1::EraseMethod::NvmeFormatCrypto.into(),
        samples: 4096,
        sample_bytes: 4096,
        start_time: time,
        end_time: time,
        native_bytes: drive.size_bytes + 512,
        hidden_areas: vec!["host protected area of 512 bytes: opened".into()],
        ..v1::DriveErase::default()
    };
    v1::EraseDrivesResult {
        drives: inventory.drives.iter().map(erased).collect(),
        excluded: vec![v1::ExcludedDevice {
            name: "sr0".into(),
            size_bytes: 0,
            reason: "an optical drive".into(),
        }],
        tpm: v1::TpmClear::Cleared.into(),
        new_uefi_variables: None,
    }
}

struct Fixture {
    core: TestCore,
    tries: u32,
    was_off: bool,
}

impl Fixture {
    /// A node in reclaiming, inspected with two drives, both written to.
    async fn new(bmc: &[KnownDrive]) -> Self {
        let core = testing::core().await;
        let node = testing::node("n1", State::Inspecting, None);
        testing::add(&core, &node).await;
        let fixture = Self {
            core,
            tries: 0,
            was_off: true,
        };
        fixture.report_inventory(&inventory(&["SERIAL-A", "SERIAL-B"])).await;
        let done = recorded(&fixture.core, &node, bmc.to_vec()).await;
        assert_eq!(done.outcome, Outcome::Succeeded);
        let mut tx = fixture.core.store.write().await.unwrap();
        let mut record = tx.node(&"n1".into()).await.unwrap();
        done.learned
            .unwrap()
            .store(&mut tx, &mut record, Timestamp(5))
            .await
            .unwrap();
        inspected(&mut tx, &"n1".into(), Timestamp(6)).await.unwrap();
        record.node.state = State::Reclaiming;
        record.node.evidence.drives = ["SERIAL-A".to_owned(), "SERIAL-B".to_owned()].into();
        tx.save_node(&mut record, Timestamp(7)).await.unwrap();
        tx.commit().await.unwrap();
        fixture
    }

    async fn report_inventory(&self, inventory: &v1::Inventory) {
        let mut tx = self.core.store.write().await.unwrap();
        tx.save_inventory(&"n1".into(), &inventory.encode_to_vec())
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Adds 12 s without power before the boot.
    async fn boot_agent(&self) {
        if self.tries > 0 || !self.was_off {
            return;
        }
        let mut tx = self.core.store.write().await.unwrap();
        let tried = [
            (Effect::PowerOff, 0, 1),
            (Effect::ProvePowerOff, 13, 13),
            (Effect::PowerOn, 14, 14),
        ];
        for (number, (effect, start, end)) in tried.into_iter().enumerate() {
            let row = EffectRow {
                id: effect.as_str().into(),
                node_id: "n1".into(),
                state_since: Timestamp(7),
                number: number as i64 - 10,
                generation: 0,
                owner: self.core.replica.clone(),
                attempt: Attempt {
                    effect,
                    started_at: Timestamp(seconds(start)),
                    ended_at: None,
                    deadline: Timestamp(seconds(99)),
                    outcome: Outcome::Open,
                    boot_id: None,
                },
            };
            tx.begin_effect(&row).await.unwrap();
            tx.end_effect(&row.id, &Outcome::Succeeded, Timestamp(seconds(end)))
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
    }

    /// Sends the job `ago_s` seconds ago, and reports. Returns the failure's code and message, and all certificates so far.
    async fn report_erase(
        &mut self,
        ago_s: i64,
        erased: v1::EraseDrivesResult,
    ) -> (String, String, Vec<v1::EraseCertificate>) {
        self.boot_agent().await;
        self.tries += 1;
        let id = format!("e{}", self.tries);
        let now = clock::now();
        let row = EffectRow {
            id: id.clone(),
            node_id: "n1".into(),
            state_since: Timestamp(7),
            number: i64::from(self.tries),
            generation: 0,
            owner: self.core.replica.clone(),
            attempt: Attempt {
                effect: Effect::EraseDrives,
                started_at: now.plus(-seconds(ago_s)),
                ended_at: None,
                deadline: now.plus(seconds(60)),
                outcome: Outcome::Open,
                boot_id: Some("b1".into()),
            },
        };
        let mut tx = self.core.store.write().await.unwrap();
        tx.begin_effect(&row).await.unwrap();
        tx.commit().await.unwrap();
        let report = v1::JobReport {
            operation: id.clone(),
            state: v1::JobState::Succeeded.into(),
            result: Some(v1::job_report::Result::EraseDrives(erased)),
            ..v1::JobReport::default()
        };
        let admitted_agent = AdmittedAgent {
            node: "n1".into(),
            number: 1,
            of: AgentSession {
                generation: 0,
                boot: "boot".into(),
            },
            boot_id: "b1".into(),
        };
        job_ended(&self.core, &admitted_agent, &report).await.unwrap();
        let outcome = self.core.store.effect(&id).await.unwrap().unwrap().attempt.outcome;
        let (code, message) = match outcome {
            Outcome::Succeeded => (String::new(), String::new()),
            Outcome::Failed {
                code,
                message,
                retryable,
            } => {
                assert_eq!(retryable, code == "memory-not-cleared", "{message}");
                (code, message)
            }
            other => panic!("{other:?}"),
        };
        let node = "n1".into();
        let kept = self
            .core
            .store
            .proofs(&Scope::Site, Proof::EraseCertificate, &node, i64::MAX, 10);
        let kept = kept.await.unwrap().into_iter();
        let certificates = kept.map(|(_, body)| v1::EraseCertificate::decode(body.as_slice()).unwrap());
        (code, message, certificates.collect())
    }
}

#[tokio::test]
async fn a_machine_known_by_its_tpm_is_certified_only_with_the_tpm_cleared() {
    let honest = inventory(&["SERIAL-A", "SERIAL-B"]);
    let mut fixture = Fixture::new(&[of_bmc("SERIAL-A")]).await;
    testing::booted(&fixture.core, "n1", "b1").await;
    let mut tx = fixture.core.store.write().await.unwrap();
    let mut row = tx.agent_boot(&"n1".into()).await.unwrap().unwrap();
    row.identity = BY_TPM.into();
    tx.put_agent_boot(&row).await.unwrap();
    tx.commit().await.unwrap();
    for kept in [v1::TpmClear::Unspecified, v1::TpmClear::NoTpm] {
        let mut lie = report(&honest, clock::now());
        lie.set_tpm(kept);
        let (code, message, certificates) = fixture.report_erase(10, lie).await;
        assert_eq!((code.as_str(), certificates.len()), ("tpm-not-cleared", 0), "{message}");
        assert!(message.contains("did not clear the TPM"), "{message}");
    }
    let (code, message, certificates) = fixture.report_erase(10, report(&honest, clock::now())).await;
    assert_eq!((code.as_str(), certificates.len()), ("", 2), "{message}");
}

#[tokio::test]
async fn a_report_without_the_uefi_variables_of_a_recorded_machine_is_refused() {
    let mut with_variables = inventory(&["SERIAL-A", "SERIAL-B"]);
    with_variables.uefi_variables = Some(v1::UefiVariables {
        vendors: vec!["8be4df61-93ca-11d2-aa0d-00e098032b8c".into()],
        names: vec![7],
    });
    let mut fixture = Fixture::new(&[of_bmc("SERIAL-A")]).await;
    fixture.report_inventory(&with_variables).await;
    let mut tx = fixture.core.store.write().await.unwrap();
    tx.expect_inventory(&"n1".into()).await.unwrap();
    tx.commit().await.unwrap();
    let (code, message, certificates) = fixture.report_erase(10, report(&with_variables, clock::now())).await;
    assert_eq!((code.as_str(), certificates.len()), ("uefi-variables", 0), "{message}");

    let mut compared = report(&with_variables, clock::now());
    compared.new_uefi_variables = Some(v1::NewUefiVariables {
        removed: vec!["Note-11111111-2222-3333-4444-555555555555".into()],
        left: Vec::new(),
    });
    let (code, message, certificates) = fixture.report_erase(10, compared).await;
    assert_eq!((code.as_str(), certificates.len()), ("", 2), "{message}");
    let evidence = &certificates[0].evidence;
    assert!(
        evidence.contains(&"UEFI variables: 1 of a former system removed".to_owned()),
        "{evidence:?}"
    );
    let events = fixture
        .core
        .store
        .events(&Scope::Site, 0, "nodes/n1", 99)
        .await
        .unwrap();
    let event = events
        .iter()
        .find(|event| event.kind == "security.uefi-variables")
        .unwrap();
    assert!(event.message.contains("Note-11111111"), "{event:?}");
}

fn of_bmc(serial: &str) -> KnownDrive {
    KnownDrive {
        name: "1".into(),
        serial: serial.into(),
        size_bytes: Some(BYTES),
        protocol: "NVMe".into(),
        ..KnownDrive::default()
    }
}

type Lie = fn(&mut v1::EraseDrivesResult);

#[tokio::test]
async fn one_lie_refuses_every_certificate_of_the_report_and_the_honest_report_names_its_witnesses() {
    const DAY_S: i64 = 24 * 60 * 60;
    let lies: &[(&str, &str, Lie)] = &[
        ("drives-differ", "size", |r| r.drives[0].size_bytes -= 512),
        ("drives-differ", "size", |r| r.drives[0].size_bytes = 11 * BYTES),
        ("drives-differ", "model", |r| r.drives[1].model = "OTHER".into()),
        ("drives-differ", "namespaces", |r| r.drives.push(r.drives[0].clone())),
        ("drives-differ", "FORGED", |r| {
            let mut more = r.drives[0].clone();
            more.serial_number = "FORGED".into();
            r.drives.push(more);
        }),
        ("drive-not-erased", "SERIAL-A", |r| {
            r.drives[0].serial_number = "FORGED".into()
        }),
        ("drive-not-erased", "SERIAL-B", |r| _ = r.drives.pop()),
        ("erase-not-proven", "3000000000000 bytes", |r| {
            r.drives[0].set_method(v1::EraseMethod::Overwrite)
        }),
        ("erase-not-proven", "1000000000000 bytes", |r| {
            r.drives[1].set_method(v1::EraseMethod::DiscardZeroed)
        }),
        ("erase-not-proven", "have to cross", |r| r.drives[1].samples = u64::MAX),
        ("erase-not-proven", "the job ran from", |r| {
            let drive = &mut r.drives[0];
            for time in [&mut drive.start_time, &mut drive.end_time] {
                time.as_mut().unwrap().seconds -= DAY_S;
            }
        }),
        ("erase-not-proven", "the job ran from", |r| {
            r.drives[0].end_time.as_mut().unwrap().seconds += DAY_S
        }),
        ("erase-not-proven", "the job ran from", |r| {
            r.drives[0].end_time.as_mut().unwrap().seconds -= 1
        }),
        ("erase-not-proven", "without a time", |r| r.drives[0].start_time = None),
        ("erase-not-proven", "without a method", |r| r.drives[1].samples = 0),
        ("erase-not-proven", "at most 512", |r| {
            r.drives = vec![r.drives[0].clone(); 513]
        }),
        ("erase-not-proven", "no drive", |r| r.drives.clear()),
    ];
    let mut fixture = Fixture::new(&[of_bmc("SERIAL-A")]).await;
    let honest = inventory(&["SERIAL-A", "SERIAL-B"]);
    for (wanted, word, lie) in lies {
        let mut lying = report(&honest, clock::now());
        lie(&mut lying);
        let (code, message, certificates) = fixture.report_erase(10, lying).await;
        assert_eq!(
            (code.as_str(), message.contains(word)),
            (*wanted, true),
            "{word}: {message}"
        );
        assert_eq!(certificates, [], "{word}");
    }
    let (code, message, mut certificates) = fixture.report_erase(10, report(&honest, clock::now())).await;
    assert_eq!(code, "", "{message}");
    certificates.sort_by(|a, b| a.drive_serial.cmp(&b.drive_serial));
    let named: Vec<_> = certificates
        .iter()
        .map(|c| (c.drive_serial.as_str(), c.witnesses.join("+")))
        .collect();
    assert_eq!(
        named,
        [
            ("SERIAL-A", "bmc+inspection".to_owned()),
            ("SERIAL-B", "inspection".to_owned())
        ]
    );
    for certificate in &certificates {
        let signed = EraseRecord::decode(&certificate.signed_payload).unwrap();
        assert_eq!(signed.witnesses, certificate.witnesses);
        assert_eq!(signed.evidence, certificate.evidence);
        assert_eq!(
            signed.evidence,
            [
                "memory: powered off for 12 s, read from the BMC at 1970-01-01T00:00:01Z and at 1970-01-01T00:00:13Z",
                "TPM: cleared",
                "native capacity: 1000000000512 bytes",
                "host protected area of 512 bytes: opened",
                "left out: sr0 (0 bytes): an optical drive",
            ]
        );
    }
    let mut numbers: Vec<u64> = certificates.iter().map(|certificate| certificate.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    // An overwrite that took long enough.
    let mut slow = report(&honest, clock::now());
    slow.drives[0].set_method(v1::EraseMethod::Overwrite);
    let (code, message, certificates) = fixture.report_erase(100, slow).await;
    assert_eq!((code.as_str(), certificates.len()), ("", 4), "{message}");
}

#[tokio::test]
async fn a_drive_that_is_gone_is_named_once_and_one_that_the_bmc_still_lists_each_time() {
    let mut fixture = Fixture::new(&[of_bmc("SERIAL-A"), of_bmc("SERIAL-B")]).await;
    let one = inventory(&["SERIAL-A"]);
    fixture.report_inventory(&one).await;
    let reads = async |fixture: &Fixture, serials: &[&str]| {
        let record = fixture.core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        let found = serials.iter().map(|serial| of_bmc(serial)).collect();
        let done = recorded(&fixture.core, &record, found).await;
        let mut tx = fixture.core.store.write().await.unwrap();
        let mut record = tx.node(&"n1".into()).await.unwrap();
        done.learned
            .unwrap()
            .store(&mut tx, &mut record, Timestamp(8))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    reads(&fixture, &["SERIAL-A", "SERIAL-B"]).await;
    for _ in 0..2 {
        let (code, message, certificates) = fixture.report_erase(10, report(&one, clock::now())).await;
        assert_eq!((code.as_str(), certificates.len()), ("drives-differ", 0), "{message}");
        assert!(
            message.contains("SERIAL-B") && message.contains("by the BMC"),
            "{message}"
        );
    }
    // The drive is pulled: the BMC no longer lists it.
    reads(&fixture, &["SERIAL-A"]).await;
    let (code, message, certificates) = fixture.report_erase(10, report(&one, clock::now())).await;
    assert_eq!((code.as_str(), certificates.len()), ("drive-missing", 0), "{message}");
    assert!(
        message.contains("SERIAL-B was in the machine when it was handed over"),
        "{message}"
    );
    let (code, message, certificates) = fixture.report_erase(10, report(&one, clock::now())).await;
    assert_eq!((code.as_str(), certificates.len()), ("", 1), "{message}");
}

#[tokio::test]
async fn a_swapped_drive_is_certified_after_an_operator_accepted_it_and_the_record_is_then_as_strict() {
    let mut fixture = Fixture::new(&[of_bmc("SERIAL-A"), of_bmc("SERIAL-B")]).await;
    let swapped = inventory(&["SERIAL-A", "SERIAL-C"]);
    fixture.report_inventory(&swapped).await;
    let accepts = async |fixture: &Fixture| {
        let mut tx = fixture.core.store.write().await.unwrap();
        let mut record = tx.node(&"n1".into()).await.unwrap();
        let is_accepted = accept(&mut tx, &mut record, "ann", Timestamp(9)).await.unwrap();
        tx.save_node(&mut record, Timestamp(9)).await.unwrap();
        tx.commit().await.unwrap();
        is_accepted
    };
    assert!(!accepts(&fixture).await, "nothing was reported");
    for _ in 0..2 {
        let (code, message, certificates) = fixture.report_erase(10, report(&swapped, clock::now())).await;
        assert_eq!((code.as_str(), certificates.len()), ("drives-differ", 0), "{message}");
        for word in ["SERIAL-B", "SERIAL-C", "--accept-drives"] {
            assert!(message.contains(word), "{message}");
        }
    }
    assert!(accepts(&fixture).await);
    assert!(!accepts(&fixture).await, "what was accepted is accepted once");
    let mut shrunk = report(&swapped, clock::now());
    shrunk.drives[1].size_bytes /= 2;
    let (code, message, certificates) = fixture.report_erase(10, shrunk).await;
    assert_eq!((code.as_str(), certificates.len()), ("drives-differ", 0), "{message}");
    assert!(message.contains("by the operator ann on 1970-01-01"), "{message}");
    let (code, message, certificates) = fixture.report_erase(10, report(&swapped, clock::now())).await;
    assert_eq!(code, "", "{message}");
    let witnesses: BTreeSet<String> = certificates.iter().map(|c| c.witnesses.join("+")).collect();
    assert_eq!(witnesses, ["bmc+operator".to_owned(), "operator".to_owned()].into());
}

#[tokio::test]
async fn an_inspection_that_the_bmc_contradicts_fails_and_is_not_recorded() {
    let core = testing::core().await;
    let node = testing::node("n1", State::Inspecting, None);
    testing::add(&core, &node).await;
    let fixture = Fixture {
        core,
        tries: 0,
        was_off: true,
    };
    fixture.report_inventory(&inventory(&["SERIAL-A"])).await;
    let done = recorded(&fixture.core, &node, vec![of_bmc("SERIAL-A"), of_bmc("BEHIND-RAID")]).await;
    assert!(
        matches!(&done.outcome, Outcome::Failed { code, message, retryable: false }
            if code == DIFFER && message.contains("BEHIND-RAID")),
        "{:?}",
        done.outcome
    );
    assert_eq!(done.events.len(), 1);
    // A BMC that lists no drives, or no sizes, contradicts nothing.
    let silent = KnownDrive {
        size_bytes: None,
        ..of_bmc("SERIAL-A")
    };
    for bmc in [vec![], vec![silent], vec![of_bmc("")]] {
        assert_eq!(recorded(&fixture.core, &node, bmc).await.outcome, Outcome::Succeeded);
    }
}

/// A node from an inspection before drives were recorded.
#[tokio::test]
async fn the_inventory_of_an_older_inspection_is_the_record() {
    let core = testing::core().await;
    testing::add(&core, &testing::node("n1", State::Reclaiming, None)).await;
    let mut fixture = Fixture {
        core,
        tries: 0,
        was_off: true,
    };
    let honest = inventory(&["SERIAL-A"]);
    fixture.report_inventory(&honest).await;
    let (code, message, _) = fixture.report_erase(10, report(&honest, clock::now())).await;
    assert_eq!(code, "drives-differ", "no drive is recorded: {message}");
    assert!(message.contains("no source has recorded it"), "{message}");
    let mut tx = fixture.core.store.write().await.unwrap();
    tx.expect_inventory(&"n1".into()).await.unwrap();
    tx.commit().await.unwrap();
    let mut lying = inventory(&["SERIAL-A"]);
    lying.drives[0].size_bytes *= 11;
    fixture.report_inventory(&lying).await;
    let (code, message, _) = fixture.report_erase(10, report(&lying, clock::now())).await;
    assert_eq!(code, "drives-differ", "{message}");
    fixture.report_inventory(&honest).await;
    let (code, message, certificates) = fixture.report_erase(10, report(&honest, clock::now())).await;
    assert_eq!(code, "", "{message}");
    assert_eq!(certificates[0].witnesses, ["inspection"]);
}

#[tokio::test]
async fn no_certificate_is_signed_for_a_machine_that_was_not_seen_without_power() {
    let mut fixture = Fixture::new(&[of_bmc("SERIAL-A")]).await;
    fixture.was_off = false;
    let honest = inventory(&["SERIAL-A", "SERIAL-B"]);
    let (code, message, certificates) = fixture.report_erase(10, report(&honest, clock::now())).await;
    assert_eq!(
        (code.as_str(), certificates.len()),
        ("memory-not-cleared", 0),
        "{message}"
    );
}
