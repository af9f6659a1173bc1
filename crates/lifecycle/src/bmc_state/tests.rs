use super::*;

fn item(part: Part, name: &str) -> Item {
    Item {
        part,
        name: name.into(),
        detail: String::new(),
        path: format!("/{}/{name}", part.singular()),
        user: String::new(),
        is_open: true,
    }
}

fn account(slot: u32, name: &str) -> Item {
    Item {
        path: format!("/accounts/{slot}"),
        ..item(Part::Accounts, name)
    }
}

fn rules() -> BmcRules {
    BmcRules {
        own: "root".into(),
        keep_accounts: vec!["monitor".into()],
        keep_subscriptions: vec!["https://alerts.example/*".into(), "snmp://10.0.0.1".into()],
        ..BmcRules::default()
    }
}

fn accounts(items: &[Item]) -> BmcReading {
    vec![(Part::Accounts, Listed::Whole(items.to_vec()))]
}

fn foreign(reading: &BmcReading, rules: &BmcRules) -> Vec<String> {
    judge(reading, rules)
        .foreign
        .into_iter()
        .map(|item| item.name)
        .collect()
}

#[test]
fn only_our_account_and_those_the_site_keeps_stay() {
    let mut closed = account(5, "former");
    closed.is_open = false;
    let list = [
        account(1, "root"),
        account(2, "evil"),
        account(3, "monitor"),
        account(4, ""),
        closed,
    ];
    let verdict = judge(&accounts(&list), &rules());
    assert_eq!(verdict.foreign, [account(2, "evil"), account(4, "")]);
    assert_eq!(verdict.kept, [account(3, "monitor")]);
    assert!(verdict.unknown.is_empty());
}

#[test]
fn our_own_account_is_never_foreign_and_a_second_one_of_its_name_makes_all_unknown() {
    assert_eq!(
        foreign(&accounts(&[account(1, "ROOT"), account(2, "x")]), &rules()),
        ["x"]
    );
    assert_eq!(
        foreign(&accounts(&[account(1, "root"), account(2, "Root")]), &rules()),
        ["Root"]
    );
    for list in [
        vec![account(2, "x")],
        vec![account(1, "root"), account(2, "root"), account(3, "x")],
        vec![account(1, "ROOT"), account(2, "Root")],
        vec![account(1, "root"), account(2, "monitor"), account(3, "monitor")],
    ] {
        let verdict = judge(&accounts(&list), &rules());
        assert!(verdict.foreign.is_empty(), "{verdict:?}");
        assert!(
            matches!(verdict.unknown.as_slice(), [one] if !one.may_pass),
            "{verdict:?}"
        );
    }
}

#[test]
fn hidden_accounts_are_unknown_and_other_absent_parts_are_empty() {
    let reading: BmcReading = Part::ALL.iter().map(|part| (*part, Listed::NotOffered)).collect();
    let verdict = judge(&reading, &rules());
    let parts: Vec<Part> = verdict.unknown.iter().map(|unknown| unknown.part).collect();
    assert_eq!(parts, [Part::Accounts]);
    let reading: BmcReading = Part::ALL
        .iter()
        .map(|part| (*part, Listed::Unread("500".into())))
        .collect();
    let unknown = |rules: &BmcRules| judge(&reading, rules).unknown.len();
    let closing = BmcRules {
        close_in_band: true,
        ..rules()
    };
    assert_eq!((unknown(&rules()), unknown(&closing)), (11, 13));
}

#[test]
fn sessions_subscriptions_and_directories_stay_where_the_site_keeps_them() {
    let session = |user: &str| Item {
        user: user.into(),
        ..item(Part::Sessions, user)
    };
    let whole = |part, items: Vec<Item>| vec![(part, Listed::Whole(items))];
    let sessions = whole(
        Part::Sessions,
        vec![session("root"), session("monitor"), session(""), session("evil")],
    );
    assert_eq!(foreign(&sessions, &rules()), ["", "evil"]);
    let to = |name: &str| item(Part::Subscriptions, name);
    let list = whole(
        Part::Subscriptions,
        vec![
            to("https://alerts.example/a"),
            to("snmp://10.0.0.1"),
            to("https://alerts.example.evil/"),
        ],
    );
    assert_eq!(foreign(&list, &rules()), ["https://alerts.example.evil/"]);
    let directory = whole(Part::Directories, vec![item(Part::Directories, "LDAP")]);
    assert_eq!(foreign(&directory, &rules()), ["LDAP"]);
    let keeping = BmcRules {
        keep_directories: true,
        ..rules()
    };
    assert!(foreign(&directory, &keeping).is_empty());
    let in_band = whole(Part::HostInterfaces, vec![item(Part::HostInterfaces, "1")]);
    assert!(foreign(&in_band, &rules()).is_empty());
    let closing = BmcRules {
        close_in_band: true,
        ..rules()
    };
    assert_eq!(foreign(&in_band, &closing), ["1"]);
}

#[test]
fn a_part_absent_from_the_second_reading_was_removed() {
    let first = accounts(&[account(1, "root"), account(2, "evil"), account(3, "monitor")]);
    let last = accounts(&[account(1, "root"), account(3, "monitor")]);
    let done = conclude(&"n1".into(), &judge(&first, &rules()), &[], &last, &rules());
    assert_eq!(done.refusal, None);
    let held: Vec<_> = done
        .lines
        .iter()
        .map(|(held, _, text)| (*held, text.as_str()))
        .collect();
    assert_eq!(
        held,
        [
            (ItemState::Removed, "account \"evil\""),
            (ItemState::Kept, "account \"monitor\"")
        ]
    );
}

#[test]
fn a_part_that_returns_or_cannot_be_removed_holds_the_node_and_is_named() {
    let first = accounts(&[account(1, "root"), account(2, "evil")]);
    let found = judge(&first, &rules());
    let back = conclude(&"n1".into(), &found, &[], &first, &rules());
    let text = back.refusal.expect("it is held");
    for word in [
        "account \"evil\" at /accounts/2",
        "came back",
        "readmit n1",
        "bmc_state",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(back.retryable && back.lines.iter().all(|(held, ..)| *held == ItemState::Foreign));
    let refused = [(account(2, "evil"), "405 Method Not Allowed".to_owned())];
    let text = conclude(&"n1".into(), &found, &refused, &first, &rules())
        .refusal
        .expect("it is held");
    assert!(text.contains("405"), "{text}");
    // `allow_unknown` never allows a foreign thing that is known to be there.
    let lax = BmcRules {
        allow_unknown: true,
        ..rules()
    };
    assert!(conclude(&"n1".into(), &found, &[], &first, &lax).refusal.is_some());
    // An override that cannot be cleared is reported, and does not hold the node: each boot of the control plane sets it.
    let boot = vec![(Part::BootOverride, Listed::Whole(vec![item(Part::BootOverride, "Cd")]))];
    let done = conclude(&"n1".into(), &judge(&boot, &rules()), &[], &boot, &rules());
    assert!(done.refusal.is_none() && done.lines.len() == 1);
}

#[test]
fn an_unreadable_part_holds_the_node_unless_the_site_allows_it() {
    let hidden: BmcReading = vec![(Part::Accounts, Listed::NotOffered)];
    let failing: BmcReading = vec![(Part::Sessions, Listed::Unread("503 from the BMC".into()))];
    for (reading, retryable, word) in [(&hidden, false, "accounts"), (&failing, true, "503 from the BMC")] {
        let done = conclude(&"n1".into(), &judge(reading, &rules()), &[], reading, &rules());
        let text = done.refusal.expect("it is held");
        assert!(text.contains(word) && text.contains("unknown: allow"), "{text}");
        assert_eq!(done.retryable, retryable);
        let lax = BmcRules {
            allow_unknown: true,
            ..rules()
        };
        let done = conclude(&"n1".into(), &judge(reading, &lax), &[], reading, &lax);
        assert_eq!((done.refusal, done.lines.len()), (None, 1));
    }
    // A removal without a second reading as proof is not reported as a removal.
    let first = accounts(&[account(1, "root"), account(2, "evil")]);
    let unread: BmcReading = vec![(Part::Accounts, Listed::Unread("500".into()))];
    let done = conclude(&"n1".into(), &judge(&first, &rules()), &[], &unread, &rules());
    assert!(done.lines.iter().all(|(held, ..)| *held == ItemState::Unknown));
}
