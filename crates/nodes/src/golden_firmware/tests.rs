use rackwright_ground::testing;
use rackwright_lifecycle::State;
use rackwright_tpm::log::{Log, write};

use super::components::Component;
use super::*;

fn next_row(before: &FirmwareValuesRow, found: &Values, ek: &str, now: Timestamp) -> FirmwareValuesRow {
    super::next_row(before, found, ek, now).unwrap()
}

const LOG: &[u8] = include_bytes!("../../../tpm/tests/logs/shim-grub.log");
const PCRS: &str = include_str!("../../../tpm/tests/logs/shim-grub.pcrs");
const COMPARED: [u8; 4] = [0, 2, 3, 7];

fn quoted() -> Quoted {
    let value = |line: &str| {
        let (pcr, hex) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        (pcr.parse().unwrap(), std::array::from_fn(byte))
    };
    PCRS.lines().map(value).collect()
}

/// The registers of the machine in the log.
fn real() -> Registers {
    registers(&quoted(), &Log::parse(LOG).unwrap().events)
}

/// The registers after a change of its events.
fn changed(change: impl FnOnce(&mut Vec<Event<'_>>)) -> Registers {
    let mut log = Log::parse(LOG).unwrap();
    change(&mut log.events);
    let bytes = write(&log.events);
    let log = Log::parse(&bytes).unwrap();
    registers(&log.replay(), &log.events)
}

fn place(events: &[Event<'_>], of: &str) -> usize {
    events.iter().position(|event| name(event) == of).unwrap()
}

fn values(registers: &Registers) -> Values {
    Values {
        registers: registers.clone(),
        ..Values::default()
    }
}

fn found(registers: &Registers, golden: &[Registers]) -> Finding {
    let named = golden
        .iter()
        .enumerate()
        .map(|(at, golden)| (format!("set {at}"), values(golden)));
    let named = named.collect::<Vec<_>>();
    compare(&values(registers), &named, &COMPARED.into(), &Ignored::default())
}

fn difference(registers: &Registers, golden: &[Registers]) -> Difference {
    match found(registers, golden) {
        Finding::Differs(difference) => difference,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_real_log_names_the_contents_of_the_firmwares_registers() {
    let real = real();
    let names = |pcr: u8| -> Vec<&str> { real[&pcr].events.iter().map(|event| event.name.as_str()).collect() };
    assert_eq!(
        names(0),
        [
            "firmware version \"\"",
            "firmware volume",
            "firmware volume",
            "separator"
        ]
    );
    assert_eq!((names(2), names(3)), (vec!["separator"], vec!["separator"]));
    assert_eq!(
        names(7),
        [
            "variable \"SecureBoot\"",
            "variable \"PK\"",
            "variable \"KEK\"",
            "variable \"db\"",
            "variable \"dbx\"",
            "separator",
            "certificate of \"db\"",
            "certificate of \"SbatLevel\"",
            "certificate of \"MokListRT\"",
        ]
    );
    assert_eq!(
        real[&7].value,
        "sha256:75677db6f14082d3bfec4d14bdd75c8d72612ef6914ca99cd5a5997b7a21309d"
    );
    assert_eq!(found(&real, &[]), Finding::NoneApproved);
    assert_eq!(
        found(&real, std::slice::from_ref(&real)),
        Finding::Golden("set 0".into())
    );
    assert_eq!(changed(|_| {})[&0], real[&0], "the replay gives the quoted values");
}

#[test]
fn another_variable_of_secure_boot_is_named_with_both_digests() {
    let other = changed(|events| {
        let at = place(events, "variable \"db\"");
        events[at].digest = [0xab; 32];
    });
    let difference = difference(&other, &[real()]);
    let [register] = difference.registers.as_slice() else {
        panic!("{difference:?}");
    };
    assert_eq!((register.pcr, &register.expected), (7, &real()[&7].value));
    assert_eq!(register.found, other[&7].value);
    // The digest does not match the text any more, so the name is only a claim of the log.
    assert_eq!(
        register.changes,
        [
            "variable \"db\" (not proven) is new (abababababab)",
            "variable \"db\" is missing (644aacf6f401)"
        ]
    );
    assert!(
        difference.to_string().starts_with("PCR 7 (Secure Boot policy) is "),
        "{difference}"
    );
}

#[test]
fn another_firmware_a_missing_and_a_new_event_are_named() {
    let volume = changed(|events| {
        let at = place(events, "firmware volume");
        events[at].digest = [0xab; 32];
    });
    let text = difference(&volume, &[real()]).to_string();
    let expected = format!(
        ": firmware volume is abababababab and should be {}",
        short(&real()[&0].events[1].digest)
    );
    assert!(
        text.starts_with("PCR 0 (firmware code)") && text.ends_with(&expected),
        "{text}"
    );
    let rom = changed(|events| {
        events.push(Event {
            pcr: 2,
            kind: 0x8000_0004,
            digest: [0xcd; 32],
            data: b"",
        });
    });
    let text = difference(&rom, &[real()]).to_string();
    assert!(
        text.ends_with(": EFI program or driver is new (cdcdcdcdcdcd)"),
        "{text}"
    );
    let text = difference(&real(), &[rom]).to_string();
    assert!(
        text.ends_with(": EFI program or driver is missing (cdcdcdcdcdcd)"),
        "{text}"
    );
    let order = changed(|events| {
        let at = place(events, "variable \"PK\"");
        events.swap(at, at + 1);
    });
    let text = difference(&order, &[real()]).to_string();
    assert!(text.ends_with(": the same measurements in another order"), "{text}");
}

#[test]
fn one_set_must_match_all_registers_and_the_closest_is_named() {
    let old = real();
    let mut new = changed(|events| events.retain(|event| event.kind != 0x8000_0008));
    new.get_mut(&7).unwrap().value = "sha256:new".into();
    // A mix of two golden sets is not golden.
    let mut mixed = old.clone();
    mixed.insert(7, new[&7].clone());
    assert_eq!(
        found(&new, &[old.clone(), new.clone()]),
        Finding::Golden("set 1".into())
    );
    let difference = difference(&mixed, &[old.clone(), new]);
    assert_eq!((difference.golden.as_str(), difference.registers.len()), ("set 0", 1));
    // PCR 1 differs by machine. It is only compared if the settings name it.
    let mut other_order = old.clone();
    other_order.get_mut(&1).unwrap().value = "sha256:boot order".into();
    assert_eq!(
        found(&other_order, std::slice::from_ref(&old)),
        Finding::Golden("set 0".into())
    );
    let all = compare(
        &values(&other_order),
        &[("all".into(), values(&old))],
        &REGISTERS.into(),
        &Ignored::default(),
    );
    assert!(
        matches!(&all, Finding::Differs(one) if one.registers[0].pcr == 1),
        "{all:?}"
    );
    // Golden values without a register do not approve that register.
    let mut without = old.clone();
    without.remove(&7);
    let text = self::difference(&old, &[without]).to_string();
    assert!(text.ends_with("no value of it is approved"), "{text}");
    assert!(parse("g1", "no JSON").is_err(), "a broken row is no row without values");
    assert!(matches!(found(&old, &[Registers::new()]), Finding::Differs(_)));
}

#[test]
fn the_id_follows_from_sku_and_values() {
    let (real, other) = (real(), changed(|events| events.retain(|event| event.pcr != 7)));
    assert_eq!(id_of("h100", &values(&real)), id_of("h100", &values(&real)));
    assert_eq!(id_of("h100", &values(&real)).len(), 16);
    assert_ne!(id_of("h100", &values(&real)), id_of("h100", &values(&other)));
    assert_ne!(id_of("h100", &values(&real)), id_of("cpu", &values(&real)));
}

#[test]
fn an_update_explains_the_first_change_after_it_and_no_change_of_secure_boot() {
    let record = testing::node("n1", State::Imaging, None);
    let at = Timestamp(1_790_000_000_000_000);
    let old = real();
    let flashed = changed(|events| events.retain(|event| event.kind != 0x8000_0008));
    let hacked = changed(|events| events.retain(|event| event.pcr != 0));
    let fault = |row: &FirmwareValuesRow| {
        let stored: Body = serde_json::from_str(&row.body).unwrap();
        let judgement = Judgement {
            record: &record,
            body: &stored,
            finding: found(&stored.registers, std::slice::from_ref(&old)),
        };
        judgement.fault().unwrap_or_default()
    };
    let first = next_row(&FirmwareValuesRow::default(), &values(&old), "ek", at);
    assert_eq!((first.first_seen_at, fault(&first)), (at, String::new()));
    assert_eq!(
        next_row(&first, &values(&old), "ek", at.plus(1)),
        first,
        "the first time is kept"
    );

    let mut updated = first.clone();
    (updated.updated_at, updated.updated_to) = (at, "BIOS to 2.1".into());
    let after = next_row(&updated, &values(&flashed), "ek", at.plus(2));
    assert_eq!(after.updated_at, Timestamp(0));
    assert!(
        fault(&after).starts_with("Rackwright updated BIOS to 2.1 at 20"),
        "{}",
        fault(&after)
    );
    assert_eq!(
        fault(&next_row(&after, &values(&flashed), "ek", at.plus(3))),
        fault(&after)
    );
    let again = next_row(&after, &values(&hacked), "ek", at.plus(4));
    assert!(
        fault(&again).contains("No update by Rackwright explains it"),
        "{}",
        fault(&again)
    );
    // After a session with the former values, the update explains no further change.
    let unchanged = next_row(&updated, &values(&old), "ek", at.plus(2));
    let later = next_row(&unchanged, &values(&hacked), "ek", at.plus(3));
    assert!(
        fault(&later).contains("No update by Rackwright explains it"),
        "{}",
        fault(&later)
    );

    let policy = changed(|events| {
        let at = place(events, "variable \"SecureBoot\"");
        events[at].digest = [0; 32];
    });
    let both = next_row(&updated, &values(&policy), "ek", at.plus(2));
    assert!(
        fault(&both).contains("does not explain a change of PCR 7"),
        "{}",
        fault(&both)
    );
}

fn component(key: &str, values: &[(u8, &str)]) -> Component {
    let measured = |value: &str| components::Measured {
        what: "mutable firmware".into(),
        value: value.into(),
    };
    Component {
        key: key.into(),
        fault: String::new(),
        measurements: values.iter().map(|(index, value)| (*index, measured(value))).collect(),
    }
}

fn of_components(list: &[(&str, Component)]) -> Values {
    Values {
        components: list
            .iter()
            .map(|(name, one)| ((*name).to_owned(), one.clone()))
            .collect(),
        ..Values::default()
    }
}

/// The differences from one set of golden values as text; empty if there are none.
fn difference_text(found: &Values, golden: &Values, ignored: &[&str]) -> String {
    let ignored: Vec<String> = ignored.iter().map(|one| (*one).to_owned()).collect();
    let ignored = Ignored::try_from(ignored).unwrap();
    match compare(found, &[("set".into(), golden.clone())], &BTreeSet::new(), &ignored) {
        Finding::Differs(difference) => difference.to_string(),
        _ => String::new(),
    }
}

#[test]
fn components_are_compared_by_link_and_index_and_a_missing_one_differs() {
    let golden = of_components(&[("/c/GPU_0", component("k0", &[(1, "aa"), (2, "bb")]))]);
    assert_eq!(difference_text(&golden, &golden, &[]), "");
    let other = of_components(&[("/c/GPU_0", component("k0", &[(1, "aa"), (2, "cc"), (3, "dd")]))]);
    assert_eq!(
        difference_text(&other, &golden, &[]),
        "component /c/GPU_0: index 2 (mutable firmware) is cc and should be bb, index 3 (mutable firmware) is dd, and no value \
         of it is approved"
    );
    assert_eq!(difference_text(&other, &golden, &["/c/GPU_*#2", "/c/GPU_0#3"]), "");
    assert!(difference_text(&other, &golden, &["/c/GPU_1#2", "/c/GPU_0#3"]).contains("index 2"));
    assert!(Ignored::try_from(vec!["/c/GPU_0".to_owned()]).is_err());
    assert!(Ignored::try_from(vec!["/c/GPU_0#256".to_owned()]).is_err());

    let mut none = Values::default();
    assert_eq!(
        difference_text(&none, &golden, &[]),
        "component /c/GPU_0 is not shown by the BMC"
    );
    none.unread = "no answer".into();
    assert_eq!(
        difference_text(&none, &golden, &[]),
        "component /c/GPU_0 was not read: no answer"
    );
    assert_eq!(
        difference_text(&golden, &Values::default(), &[]),
        "component /c/GPU_0 has no approved values"
    );
    let unsigned = of_components(&[("/c/GPU_0", component("", &[(1, "aa"), (2, "bb")]))]);
    assert!(difference_text(&unsigned, &golden, &[]).contains("is reported by the BMC only"));
    assert_eq!(
        difference_text(&golden, &unsigned, &[]),
        "",
        "a signature is more than the BMC's word"
    );
    assert_ne!(id_of("h100", &unsigned), id_of("h100", &golden));
    let moved = of_components(&[("/c/GPU_0", component("k9", &[(1, "aa"), (2, "bb")]))]);
    assert_eq!(id_of("h100", &moved), id_of("h100", &golden), "a key is of one machine");
}

#[test]
fn the_first_key_of_a_component_is_kept_until_an_operator_approves_another() {
    let at = Timestamp(1_790_000_000_000_000);
    let first = of_components(&[("/c/GPU_0", component("k0", &[(1, "aa")]))]);
    let second = of_components(&[("/c/GPU_0", component("k1", &[(1, "aa")]))]);
    let row = next_row(&FirmwareValuesRow::default(), &first, "", at);
    let row = next_row(&row, &second, "", at.plus(1));
    let keys = |body: &str| {
        let body: Body = serde_json::from_str(body).unwrap();
        components::other_keys(&body.components, &body.keys)
    };
    assert_eq!(
        keys(&row.body),
        ["component /c/GPU_0 signs with key k1 and first signed with k0"]
    );
    assert!(keys(&approve(&row.body).unwrap()).is_empty());

    let mut unknown = second;
    unknown.components.insert(
        "/c/GPU_1".into(),
        Component {
            fault: "no signature".into(),
            ..Component::default()
        },
    );
    let row = next_row(&row, &unknown, "", at.plus(2));
    assert_eq!(
        approve(&row.body).unwrap_err(),
        "component /c/GPU_1 is unknown: no signature"
    );
}
