use super::uefi::{
    Baseline, BootOption, Key, Keys, SecureBoot, Shown, Uefi, UefiRules, differences, expected_order,
    expected_secure_boot,
};
use super::{BmcReading, BmcRules, Conclusion, Item, ItemState, Listed, Part, conclude, judge};
use crate::time::Timestamp;

fn option(number: u16, name: &str) -> BootOption {
    BootOption {
        reference: format!("Boot{number:04X}"),
        name: name.into(),
        device: format!("Pci/{name}"),
        path: format!("/options/{number}"),
    }
}

fn key(database: &str, digest: &str) -> Key {
    Key {
        database: database.into(),
        name: "CA".into(),
        identity: format!("sha256:{digest}"),
        path: format!("/{database}/{digest}"),
    }
}

/// The boot settings at the inspection.
fn base() -> Uefi {
    Uefi {
        options: Shown::Known(vec![option(0, "pxe"), option(1, "disk")]),
        order: Shown::Known(vec!["Boot0000".into(), "Boot0001".into()]),
        secure_boot: Shown::Known(SecureBoot {
            enabled: Some(true),
            mode: Some("UserMode".into()),
        }),
        keys: Shown::Known(Keys {
            entries: vec![key("PK", "aa"), key("db", "bb")],
            revoked: Some(78),
            databases: [("db".into(), "/db".into()), ("dbx".into(), "/dbx".into())].into(),
        }),
    }
}

/// The boot settings at the inspection with a change of the options, their order, Secure Boot or its keys.
fn with(change: impl FnOnce(&mut Vec<BootOption>, &mut Vec<String>, &mut SecureBoot, &mut Keys)) -> Uefi {
    let mut seen = base();
    let Uefi {
        options: Shown::Known(options),
        order: Shown::Known(order),
        secure_boot: Shown::Known(secure),
        keys: Shown::Known(keys),
    } = &mut seen
    else {
        unreachable!("every part of the base is known")
    };
    change(options, order, secure, keys);
    seen
}

fn items(reading: &BmcReading, of: Part) -> Vec<Item> {
    match &reading.iter().find(|(part, _)| *part == of).unwrap().1 {
        Listed::Whole(items) => items.clone(),
        other => panic!("{of:?}: {other:?}"),
    }
}

fn names(seen: &Uefi, rules: &UefiRules) -> Vec<(Part, String)> {
    let reading = differences(seen, &base(), rules);
    let parts = [
        Part::BootOptions,
        Part::BootOrder,
        Part::SecureBoot,
        Part::SecureBootKeys,
    ];
    let of = |part| {
        items(&reading, part)
            .into_iter()
            .map(move |item| (part, item.description()))
    };
    parts.into_iter().flat_map(of).collect()
}

#[test]
fn an_option_of_the_inspection_is_not_foreign() {
    assert_eq!(names(&base(), &UefiRules::default()), []);
    // The firmware renumbered its options.
    let recreated = with(|options, order, _, _| {
        *options = vec![option(7, "disk"), option(9, "pxe")];
        *order = vec!["Boot0009".into(), "Boot0007".into()];
    });
    assert_eq!(names(&recreated, &UefiRules::default()), []);
    // More revoked programs are an update.
    let revoked = with(|_, _, _, keys| keys.revoked = Some(80));
    assert_eq!(names(&revoked, &UefiRules::default()), []);
    // The agent's own option, which the erase removes.
    let agents = with(|options, order, _, _| {
        options.push(BootOption {
            device: "HD(1,GPT,x)/\\EFI\\BOOT\\BOOTX64.EFI".into(),
            ..option(2, "Rackwright: debian")
        });
        order.insert(0, "Boot0002".into());
    });
    assert_eq!(names(&agents, &UefiRules::default()), []);
}

#[test]
fn an_unknown_boot_option_and_order_are_foreign_unless_the_site_keeps_them() {
    let seen = with(|options, order, _, _| {
        options.push(option(5, "evil"));
        order.insert(0, "Boot0005".into());
    });
    let found = names(&seen, &UefiRules::default());
    assert_eq!(
        found,
        [
            (Part::BootOptions, "boot option \"evil\" (Pci/evil)".to_owned()),
            (
                Part::BootOrder,
                "boot order \"evil, pxe, disk\" (at the inspection: pxe, disk)".to_owned()
            )
        ]
    );
    assert_eq!(expected_order(&seen, &base()), ["Boot0000", "Boot0001"]);
    // Behind the options of the inspection it is foreign and starts nothing.
    let behind = with(|options, order, _, _| {
        options.push(option(5, "evil"));
        order.push("Boot0005".into());
    });
    let parts: Vec<Part> = names(&behind, &UefiRules::default())
        .into_iter()
        .map(|(part, _)| part)
        .collect();
    assert_eq!(parts, [Part::BootOptions]);
    let keeping = UefiRules {
        keep_boot_options: vec!["ev*".into()],
        ..UefiRules::default()
    };
    assert_eq!(names(&seen, &keeping), []);
    // The prefix of the agent's names alone is not enough.
    let named = with(|options, _, _, _| options.push(option(5, "Rackwright: evil")));
    assert_eq!(names(&named, &UefiRules::default()).len(), 1);
    let swapped = with(|_, order, _, _| order.swap(0, 1));
    assert_eq!(names(&swapped, &UefiRules::default()).len(), 1);
    let shortened = with(|_, order, _, _| order.truncate(1));
    assert_eq!(names(&shortened, &UefiRules::default()).len(), 1);
}

#[test]
fn secure_boot_that_is_off_or_unlocked_and_keys_that_came_or_went_are_foreign() {
    let seen = with(|_, _, secure, keys| {
        secure.enabled = Some(false);
        secure.mode = Some("SetupMode".into());
        keys.entries = vec![key("db", "bb"), key("db", "ee")];
        keys.revoked = Some(3);
    });
    let descriptions: Vec<String> = names(&seen, &UefiRules::default())
        .into_iter()
        .map(|(_, descriptions)| descriptions)
        .collect();
    assert_eq!(
        descriptions,
        [
            "Secure Boot \"off\" (expected: on)",
            "Secure Boot \"SetupMode\" (at the inspection: UserMode)",
            "Secure Boot key \"CA\" (in db, sha256:ee)",
            "Secure Boot key \"CA\" (missing from PK)",
            "Secure Boot key \"dbx\" (3 revoked programs, 78 at the inspection)",
        ]
    );
    assert_eq!(expected_secure_boot(&seen, &base(), &UefiRules::default()), Some(true));
    // The site's rule overrides the inspection.
    let site = UefiRules {
        secure_boot: Some(false),
        keys: vec![("db".into(), "ee".into())],
        ..UefiRules::default()
    };
    assert_eq!(expected_secure_boot(&seen, &base(), &site), None);
    assert_eq!(expected_secure_boot(&base(), &base(), &site), Some(false));
    let added = with(|_, _, secure, keys| {
        secure.enabled = Some(false);
        keys.entries.push(key("db", "ee"));
    });
    assert_eq!(names(&added, &site), []);
}

#[test]
fn parts_that_the_bmc_no_longer_shows_are_unknown_and_never_shown_ones_are_not_judged() {
    let unread = Uefi {
        options: Shown::Unread("500".into()),
        order: Shown::NotOffered,
        secure_boot: Shown::NotOffered,
        keys: Shown::Known(Keys::default()),
    };
    let less = Uefi {
        keys: Shown::NotOffered,
        order: Shown::NotOffered,
        ..base()
    };
    let verdict = judge(
        &differences(&unread, &less, &UefiRules::default()),
        &BmcRules::default(),
    );
    let parts: Vec<Part> = verdict.unknown.iter().map(|unknown| unknown.part).collect();
    assert_eq!(parts, [Part::BootOptions, Part::SecureBoot]);
    assert!(verdict.foreign.is_empty());
    // A part that shows for the first time is adopted.
    let mut late = Baseline {
        seen: less,
        ..Baseline::default()
    };
    assert!(late.fill(&base(), Timestamp(9)) && late.is_late && late.seen == base());
    assert!(!late.fill(&unread, Timestamp(10)) && late.seen == base());
    // An inspection replaces the baseline, except for the parts that could not be read.
    let again = Baseline::of_inspection(unread.clone(), Timestamp(11), Some(late.clone()));
    assert!(again.is_late && again.seen.options == base().options && again.seen.order == Shown::NotOffered);
    assert_eq!(again.not_shown(), [Part::BootOrder, Part::SecureBoot]);
    let whole = Baseline::of_inspection(base(), Timestamp(12), Some(late));
    assert!(!whole.is_late && whole.not_shown().is_empty());
}

/// The conclusion for a machine that is still as `last` after all removals.
fn concluded(last: &Uefi, refused: &[(Item, String)], starts_again: bool) -> Conclusion {
    let rules = BmcRules {
        starts_again,
        ..BmcRules::default()
    };
    let reading = differences(last, &base(), &UefiRules::default());
    conclude(&"n1".into(), &judge(&reading, &rules), refused, &reading, &rules)
}

#[test]
fn a_change_may_wait_for_the_start_before_the_last_reading_and_for_no_other() {
    let off = with(|_, _, secure, _| secure.enabled = Some(false));
    let first = concluded(&off, &[], true);
    assert_eq!(first.refusal, None);
    assert!(
        first.lines.iter().all(|(held, ..)| *held == ItemState::Waiting),
        "{first:?}"
    );
    let last = concluded(&off, &[], false);
    let refusal = last.refusal.expect("it is held");
    assert!(
        refusal.contains("another start") && refusal.contains("readmit n1"),
        "{refusal}"
    );
    // A refused change does not wait for a start.
    let item = items(&differences(&off, &base(), &UefiRules::default()), Part::SecureBoot).remove(0);
    let refused = concluded(&off, &[(item, "403 Forbidden".into())], true);
    assert!(refused.refusal.is_some_and(|refusal| refusal.contains("403")));
}

#[test]
fn a_foreign_boot_option_holds_the_node_unless_it_is_after_ours() {
    let at = |place: usize| {
        with(move |options, order, _, _| {
            options.push(option(5, "evil"));
            order.insert(place, "Boot0005".into());
        })
    };
    let behind = concluded(&at(2), &[], false);
    assert_eq!(behind.refusal, None);
    assert!(
        behind.lines.iter().any(|(held, ..)| *held == ItemState::Foreign),
        "{behind:?}"
    );
    assert!(concluded(&at(0), &[], false).refusal.is_some());
    // A new order that waits for the start puts the option behind the others.
    let item = items(&differences(&at(0), &base(), &UefiRules::default()), Part::BootOptions).remove(0);
    let refused = [(item, "405".to_owned())];
    assert_eq!(concluded(&at(0), &refused, true).refusal, None);
    let refusal = concluded(&at(0), &refused, false).refusal.expect("it is held");
    assert!(refusal.contains("boot order \"evil, pxe, disk\""), "{refusal}");
    // Where the BMC shows no order, the option's place cannot be proven.
    let hidden = Uefi {
        order: Shown::NotOffered,
        ..base()
    };
    let reading = differences(
        &Uefi {
            order: Shown::NotOffered,
            ..at(2)
        },
        &hidden,
        &UefiRules::default(),
    );
    let rules = BmcRules::default();
    let done = conclude(&"n1".into(), &judge(&reading, &rules), &[], &reading, &rules);
    assert!(done.refusal.is_some());
}
